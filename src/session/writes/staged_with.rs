//! Queries of WITH, where a statement over several shards is answered in parts. One that writes is run as a statement of its own, with
//! all that this may need, and what it returns is kept. That the parts do not see each other's writes has been seen before
//! ([`crate::sql::rewrite::staging`]).
//!
//! What follows them may be a query: it is answered last, over what they have returned, before all of it is committed.

use super::staged::{Asked, Clock, Found};
use super::write::{Request, Shown, WritingKind};
use crate::error::PgError;
use crate::session::{Failure, Session};
use crate::sql::analysis::Splice;
use crate::sql::rewrite::returned::insert_apart;
use crate::sql::rewrite::staging::{Answer, CteStage, Stage, StageKind, Stages, are_run, returned, under_with};

impl Session {
    /// The queries of WITH, in their order: by name what those after them see, and what stands in their places in the text.
    pub(in crate::session) async fn answer_with(
        &mut self,
        stages: &Stages,
        alone: &str,
        clock: Option<&Clock>,
    ) -> Result<(Vec<(String, String)>, Vec<Splice>), Failure> {
        let (mut with, mut splices) = (Vec::new(), Vec::new());
        for (CteStage { stage, name, head, writes }, is_run) in stages.ctes.iter().zip(are_run(&stages.ctes, alone)) {
            let answer = match writes {
                true => Box::pin(self.answer_write(&under_with(&with, &stage.query)?)).await?,
                false if !is_run => self.described_only(&under_with(&with, &stage.query)?).await?,
                false => self.answer_stage(stage, &with, stages, clock).await?,
            };
            let Some(text) = stage.constant(&answer, &self.context.catalog)? else { continue };
            with.push((name.clone(), format!("{head}{text})")));
            splices.push(Splice { start: stage.start, end: stage.end, text });
        }
        Ok((with, splices))
    }

    /// The query that follows WITH, whose queries are constants now: for the client. Returns the tag.
    pub(in crate::session) async fn answer_rest(&mut self, text: &str, asked: &Asked<'_>) -> Result<String, Failure> {
        let query = self.with_values_of(asked, &[text]).await?.concat();
        let answer = self.answer_query(&query, &StageKind::Cte).await?;
        self.show(&answer, asked).await
    }

    /// An INSERT whose RETURNING has sub-selects over other shards: it runs by itself, and they over the rows that it returns.
    /// `refusal`: why it cannot run as it is. Returns the tag.
    pub(in crate::session) async fn insert_apart(
        &mut self,
        text: &str,
        refusal: PgError,
        asked: &Asked<'_>,
        begins: bool,
    ) -> Result<String, Failure> {
        let Some(apart) = insert_apart(text, &self.context) else { return Err(refusal.into()) };
        let insert = self.with_values_of(asked, &[apart.insert.as_str()]).await?.concat();
        let Found { writing, text } = self.find_write(&insert, &Asked::Own).await?;
        if begins {
            self.begin_one_statement();
        }
        if writing.shards().len() > 1 {
            self.check_commit_support(writing.shards()).await?;
        }
        let kept = self.divert();
        let run = self.write_text_of(&writing, &text, &Asked::Own).await;
        let tag = run.as_ref().map_or_else(|_| String::new(), Clone::clone);
        let mut rows = self.diverted(kept, run.map(drop))?;
        self.check_types_are_exact(&rows.columns)?;
        self.add_collations(&returned(&apart.insert).unwrap_or_default(), &mut rows).await?;
        let stage = Stage { start: 0, end: 0, query: String::new(), kind: StageKind::From { alias: Some(apart.alias.clone()) } };
        let table = stage.constant(&rows, &self.context.catalog)?.unwrap_or_default();
        let query = self.with_values_of(asked, &[apart.query(&table).as_str()]).await?.concat();
        let answer = self.answer_query(&query, &StageKind::Cte).await?;
        self.show(&answer, asked).await?;
        Ok(tag)
    }

    /// Rows for the client, in the formats that it has asked for. Returns the tag of a query.
    pub(in crate::session) async fn show(&mut self, answer: &Answer, asked: &Asked<'_>) -> Result<String, Failure> {
        let stage = Stage { start: 0, end: 0, query: String::new(), kind: StageKind::Cte };
        let rows = match answer.columns.is_empty() {
            true => format!("SELECT FROM pg_catalog.generate_series(1, {})", answer.rows.len()),
            false => stage.constant(answer, &self.context.catalog)?.unwrap_or_default(),
        };
        self.put_description(asked.rows())?;
        let texts = [rows];
        let home = self.several([self.home()?.id])?;
        match asked {
            Asked::Text { .. } => self.read_on(&home, &Request::Queries(&texts), Shown::Rows).await,
            Asked::Own => self.read_on(&home, &Request::Queries(&texts), Shown::DescribedRows).await,
            Asked::Bound { bind, description } => {
                self.read_on(&home, &Request::Rows { texts: &texts, bind, description }, Shown::Rows).await
            }
        }
    }

    /// Runs one of them, inside the transaction of the whole.
    pub(in crate::session) async fn answer_write(&mut self, query: &str) -> Result<Answer, Failure> {
        // It may have queries of its own that are answered first.
        self.staging.is_under_way = false;
        let found = self.find_write(query, &Asked::Own).await;
        self.staging.is_under_way = true;
        let Found { writing, text } = found?;
        if writing.shards().len() > 1 {
            self.check_commit_support(writing.shards()).await?;
        }
        let kept = self.divert();
        let run = match &writing.kind {
            WritingKind::Staged(staging) => Box::pin(self.run_stages(staging, &text, &Asked::Own, false)).await,
            WritingKind::Moved(moving) => Box::pin(self.delete_and_insert(moving, (&text, &moving.delete), &Asked::Own)).await,
            WritingKind::Parts
            | WritingKind::Copies
            | WritingKind::LockedCopies(_)
            | WritingKind::Locks
            | WritingKind::Rows(_)
            | WritingKind::Streamed { .. } => self.write_text_of(&writing, &text, &Asked::Own).await,
        };
        let mut answer = self.diverted(kept, run.map(drop))?;
        let Some(returned) = returned(query) else { return Ok(answer) };
        // A write without anything to write was not sent, and nobody has described it.
        if answer.columns.is_empty() {
            answer = self.described_only(&returned).await?;
        }
        self.check_types_are_exact(&answer.columns)?;
        self.add_collations(&returned, &mut answer).await?;
        Ok(answer)
    }
}
