//! MERGE into a sharded table whose source was answered first: each shard gets the rows whose keys are its own.
//!
//! That each shard may merge its part is proven with a stand-in for the source, of rows that are sharded like the target by the
//! columns that the rows are split by: what makes a MERGE of such a source wrong over several shards makes this one wrong.
//! A row without a key matches nothing; one shard has it, so that it fails, or is left out, once.

use super::staged::{Asked, Clock, Staging, put_defaults};
use super::write::{Request, Shown, Writing, WritingKind};
use crate::error::PgError;
use crate::routing::{Inputs, Reach};
use crate::session::route::Route;
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::analysis::Splice;
use crate::sql::rewrite::staging::{Answer, Merging, is_under_with, spliced};

impl Session {
    /// What its condition and actions evaluate once, as constants. A sub-select that names the rows stays where it is.
    pub(in crate::session) async fn answer_actions(
        &mut self,
        staging: &Staging,
        with: &[(String, String)],
        clock: Option<&Clock>,
    ) -> Result<Vec<Splice>, Failure> {
        let mut splices = Vec::new();
        if let Some(defaults) = &staging.stages.defaults {
            let values = self.default_values(defaults, 1, clock).await?;
            put_defaults(defaults, &values.constants(&self.context.catalog)?, &mut splices);
        }
        self.answer_sub_selects(staging, with, clock, &mut splices).await?;
        Ok(splices)
    }

    /// `answer`: the source's rows. `with`: the queries of WITH as constants; `actions`: what [`Self::answer_actions`] has found.
    /// Returns the tag.
    pub(in crate::session) async fn write_merging(
        &mut self,
        (staging, merging, with, actions): (&Staging, &Merging, Vec<Splice>, Vec<Splice>),
        alone: &str,
        answer: &Answer,
        asked: &Asked<'_>,
        begins: bool,
    ) -> Result<String, Failure> {
        let source = &merging.source;
        let dropped: Vec<Splice> =
            staging.stages.dropped.iter().map(|(start, end)| Splice { start: *start, end: *end, text: String::new() }).collect();
        let around = |with: &[Splice], text: String| {
            spliced(alone, &[with, &actions, &[Splice { start: source.start, end: source.end, text }]].concat())
        };
        let names: Vec<(String, String)> = staging.stages.ctes.iter().map(|cte| (cte.name.clone(), String::new())).collect();
        // A sub-select that is not the source would find a table of that name.
        let is_named = is_under_with(&names, &around(&dropped, String::new()));
        let with = if is_named { with } else { dropped };
        let with_source = |text: String| around(&with, text);
        self.prove_merging(staging, &with_source(merging.stand_in(answer, &self.context.catalog)?), asked).await?;
        let parts = self.rows_by_shard(merging, answer).await?;
        if parts.is_empty() {
            self.check_privileges(alone, asked).await?;
            return Ok("MERGE 0".to_owned());
        }
        let mut shards = Vec::with_capacity(parts.len());
        let mut texts = Vec::with_capacity(parts.len());
        for (shard, places) in parts {
            let rows = places.iter().filter_map(|place| answer.rows.get(*place).cloned()).collect();
            let part = Answer { columns: answer.columns.clone(), rows };
            texts.push(with_source(merging.constant(&part, &self.context.catalog)?));
            shards.push(shard);
        }
        if begins {
            self.begin_one_statement();
        }
        if shards.len() > 1 {
            self.check_commit_support(&shards).await?;
        }
        let reach = Reach::several(shards, self.gateway.map.load().snapshot());
        let writing = Writing { reach, kind: WritingKind::Parts };
        match asked {
            Asked::Text { .. } | Asked::Own => self.write_on(&writing, &Request::Queries(&texts), Shown::Nothing).await,
            Asked::Bound { bind, description } => {
                let request = Request::Rows { texts: &texts, bind, description };
                self.write_on(&writing, &request, Shown::Nothing).await
            }
        }
    }

    /// The key that all rows would be merged into has no shard: right if there are none.
    pub(in crate::session) async fn merge_without_rows(
        &mut self,
        staging: &Staging,
        answer: &Answer,
        alone: &str,
        asked: &Asked<'_>,
    ) -> Result<String, Failure> {
        if !answer.rows.is_empty() {
            return Err(staging.refusal().clone().into());
        }
        self.check_privileges(alone, asked).await?;
        Ok("MERGE 0".to_owned())
    }

    async fn prove_merging(&mut self, staging: &Staging, text: &str, asked: &Asked<'_>) -> Result<(), Failure> {
        let read = self.read_anew(text).await?;
        let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("a staged MERGE is empty"))?;
        let inputs = match asked {
            Asked::Text { .. } | Asked::Own => Inputs::literals(text, &read.literals),
            Asked::Bound { bind, description } => Inputs::bound(text, &read.literals, bind, &description.parameter_types),
        };
        match self.route(statement, &inputs).await? {
            route @ Route::Write(_) if !self.draws(statement) => {
                self.note_numbers_of(statement.numbers, &route);
                Ok(())
            }
            // Where one shard has all of the target's keys nothing is proven of several.
            Route::Write(_) | Route::Shard(_) | Route::Scatter(_) | Route::Gather(_) => Err(staging.refusal().clone().into()),
        }
    }

    /// The places of the rows, by shard.
    async fn rows_by_shard(&mut self, merging: &Merging, answer: &Answer) -> Result<Vec<(ShardId, Vec<usize>)>, Failure> {
        let (rows, texts) = merging.routed(answer, &self.context.catalog)?;
        let mut parts: Vec<(ShardId, Vec<usize>)> = Vec::new();
        let mut waiting = rows.iter();
        for text in &texts {
            let read = self.read_anew(text).await?;
            let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("rows without a statement"))?;
            let Route::Write(writing) = self.route_rows(statement, &Inputs::literals(text, &read.literals)).await? else {
                return Err(PgError::internal("rows are not routed as rows").into());
            };
            let WritingKind::Rows(shard_of_row) = &writing.kind else {
                return Err(PgError::internal("rows are not routed as rows").into());
            };
            for (shard, place) in shard_of_row.iter().zip(waiting.by_ref().take(shard_of_row.len())) {
                let shard = *writing.shards().get(*shard).ok_or_else(|| PgError::internal("a row without a shard"))?;
                match parts.iter_mut().find(|(known, _)| *known == shard) {
                    Some((_, places)) => places.push(*place),
                    None => parts.push((shard, vec![*place])),
                }
            }
        }
        let without_key = (0..answer.rows.len()).filter(|place| rows.binary_search(place).is_err()).collect::<Vec<_>>();
        if !without_key.is_empty() {
            match parts.first_mut() {
                Some((_, places)) => places.extend(without_key),
                None => parts.push((self.home()?.id, without_key)),
            }
        }
        Ok(parts)
    }
}
