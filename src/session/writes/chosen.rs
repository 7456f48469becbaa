//! Writes whose rows and values a query chooses first, by [`crate::sql::rewrite::chosen`].
//!
//! All of it is in one transaction: the rows are locked before they are looked at for the last time, so that what is written is
//! right for them as they are.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::batches::BATCH_VALUES_MAX;
use super::staged::{Asked, sqlstate};
use super::write::{Request, Shown};
use crate::error::{PgError, SqlState};
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId};
use crate::sql::copies_locked::lock_before_write;
use crate::sql::rewrite::chosen::{Chosen, ROWS, star_name};
use crate::sql::rewrite::staging::{Answer, Stage, StageKind};

impl Session {
    /// `text`: the statement. The transaction is open. Returns the tag.
    pub(in crate::session) async fn write_chosen(
        &mut self,
        chosen: &Chosen,
        text: &str,
        asked: &Asked<'_>,
    ) -> Result<String, Failure> {
        // Rows are locked after the table, as by all who write it.
        if let Some(lock) = lock_before_write(text, &self.context, &|_| None).filter(|_| chosen.is_copied) {
            let shards = self.shards_with_copies()?;
            // What is chosen here, and written by its keys, is the same on every shard.
            self.lock_copies(&lock.for_any_user(), &shards).await?;
        }
        let query = self.with_values_of(asked, &[chosen.query(None).as_str()]).await?.concat();
        let candidates = self.answer_query(&query, &ANSWER).await?;
        let width = candidates.columns.len();
        let parts: Vec<Answer> = keys(&distinct(candidates, chosen)?, chosen).in_parts(chosen, width)?;
        let mut lists = Vec::with_capacity(parts.len());
        for part in &parts {
            let list = self.rows_as(StageKind::In { is_not: false }, part)?;
            self.answer_query(&chosen.lock(&list), &ANSWER).await.map_err(told_of_the_lock)?;
            if chosen.is_copied {
                self.lock_other_copies(&chosen.lock(&list)).await?;
            }
            lists.push(list);
        }
        // Every part is looked at before any is written: no sub-select sees half of the statement's own work.
        let mut rows = Vec::with_capacity(parts.len());
        for list in &lists {
            let query = self.with_values_of(asked, &[chosen.query(Some(list)).as_str()]).await?.concat();
            rows.push(distinct(self.answer_query(&query, &ANSWER).await?, chosen)?);
        }
        rows.retain(|rows| !rows.rows.is_empty());
        if rows.is_empty() {
            self.check_privileges(text, asked).await?;
            self.put_description(asked.rows())?;
        }
        let mut count = 0;
        for rows in &mut rows {
            let starred = take_stars(rows, chosen);
            let list = self.rows_as(StageKind::In { is_not: false }, &keys(rows, chosen))?;
            let table = self.rows_as(StageKind::From { alias: Some(ROWS.to_owned()) }, rows)?;
            let found = self.find_write(&chosen.write(&table, &list, &starred), asked).await?;
            if found.writing.shards().len() > 1 {
                self.check_commit_support(found.writing.shards()).await?;
            }
            let tag = self.write_text_of(&found.writing, &found.text, asked).await?;
            count += tag.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        }
        Ok(chosen.tag(count))
    }

    /// Who had locked the rows at home may not have committed them elsewhere yet, where they may be looked at next.
    async fn lock_other_copies(&mut self, lock: &str) -> Result<(), Failure> {
        for shard in self.shards_with_copies()?.into_iter().skip(1) {
            self.read_on(&self.several([shard])?, &Request::Query(lock), Shown::Nothing).await?;
        }
        Ok(())
    }

    /// The home shard first.
    fn shards_with_copies(&self) -> Result<Vec<ShardId>, PgError> {
        let is_online = |shard: &Arc<Shard>| shard.is_home || shard.state.is_ready();
        Ok(self.shards_home_first()?.into_iter().filter(is_online).map(|shard| shard.id).collect())
    }

    fn rows_as(&self, kind: StageKind, answer: &Answer) -> Result<String, PgError> {
        let stage = Stage { start: 0, end: 0, query: String::new(), kind };
        Ok(stage.constant(answer, &self.context.catalog)?.unwrap_or_default())
    }
}

/// DELETE does not need the right to lock.
fn told_of_the_lock(failure: Failure) -> Failure {
    match failure {
        Failure::Shard(frame) if sqlstate(&frame) == Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to lock the rows of this write")
                .with_detail("Its sub-selects are computed over several shards, for rows that are locked before.")
                .with_hint("Locking needs the privilege UPDATE on the table, or on one of its columns.")
                .into()
        }
        other => other,
    }
}

/// Each row of the table once: it meets one of several rows of FROM, whichever comes first.
fn distinct(mut answer: Answer, chosen: &Chosen) -> Result<Answer, PgError> {
    let mut seen = HashSet::new();
    let count = answer.rows.len();
    answer.rows.retain(|row| seen.insert(row.get(..chosen.key_width()).map(<[_]>::to_vec)));
    if answer.rows.len() < count && chosen.is_single() {
        return Err(PgError::new(
            SqlState::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        ));
    }
    Ok(answer)
}

/// Gives the columns of stars names of their own. Returns those that they had.
fn take_stars(rows: &mut Answer, chosen: &Chosen) -> Vec<Vec<String>> {
    let ranges = rows.keep_stars(&chosen.stars);
    let mut rename = |(star, range): (usize, Range<usize>)| {
        let columns = rows.columns.get_mut(range).unwrap_or_default().iter_mut().enumerate();
        columns.map(|(place, column)| std::mem::replace(&mut column.name, star_name(star, place))).collect()
    };
    ranges.into_iter().enumerate().map(&mut rename).collect()
}

/// The keys of these rows alone.
fn keys(answer: &Answer, chosen: &Chosen) -> Answer {
    let mut keys = answer.clone();
    keys.columns.truncate(chosen.key_width());
    keys.rows.iter_mut().for_each(|row| row.truncate(chosen.key_width()));
    keys
}

impl Answer {
    /// Of so many rows that a text can hold what is computed for them: so many columns.
    fn in_parts(self, chosen: &Chosen, width: usize) -> Result<Vec<Answer>, PgError> {
        let rows_max = (BATCH_VALUES_MAX / width.max(1)).max(1);
        if self.rows.len() > rows_max && !chosen.may_batch {
            return Err(PgError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("a write whose sub-selects are computed for each row is about more than {rows_max} rows"),
            )
            .with_detail("RETURNING, a trigger, or a foreign key of the table to itself would see that it is several statements.")
            .with_hint("Write fewer rows at a time."));
        }
        let part = |rows: &[Vec<Option<String>>]| Answer { columns: self.columns.clone(), rows: rows.to_vec() };
        Ok(self.rows.chunks(rows_max).map(part).collect())
    }
}

/// Rows that stand by themselves.
const ANSWER: StageKind = StageKind::Cte;
