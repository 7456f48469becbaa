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
use super::{staged, unsettled, write};
use crate::error::{PgError, SqlState};
use crate::session::commands::permitted;
use crate::session::ddl::every_shard;
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId};
use crate::sql::copies_locked::lock_before_write;
use crate::sql::rewrite::chosen::{Chosen, ROWS, star_name};
use crate::sql::rewrite::staging::{Answer, Stage, StageKind};

/// `text`: the statement. The transaction is open. Returns the tag.
pub(in crate::session) async fn write_chosen(
    session: &mut Session,
    chosen: &Chosen,
    text: &str,
    asked: &Asked<'_>,
) -> Result<String, Failure> {
    // Rows are locked after the table, as by all who write it.
    if let Some(lock) = lock_before_write(text, &session.context, &|_| None).filter(|_| chosen.is_copied) {
        let shards = shards_with_copies(session)?;
        // What is chosen here, and written by its keys, is the same on every shard.
        unsettled::lock_copies(session, &lock.for_any_user(), &shards).await?;
    }
    let query = staged::with_values_of(session, asked, &[chosen.query(None).as_str()]).await?.concat();
    let candidates = staged::answer_query(session, &query, &ANSWER).await?;
    let width = candidates.columns.len();
    let parts: Vec<Answer> = keys(&distinct(candidates, chosen)?, chosen).in_parts(chosen, width)?;
    let mut lists = Vec::with_capacity(parts.len());
    for part in &parts {
        let list = rows_as(session, StageKind::In { is_not: false }, part)?;
        staged::answer_query(session, &chosen.lock(&list), &ANSWER).await.map_err(told_of_the_lock)?;
        if chosen.is_copied {
            lock_other_copies(session, &chosen.lock(&list)).await?;
        }
        lists.push(list);
    }
    // Every part is looked at before any is written: no sub-select sees half of the statement's own work.
    let mut rows = Vec::with_capacity(parts.len());
    for list in &lists {
        let query = staged::with_values_of(session, asked, &[chosen.query(Some(list)).as_str()]).await?.concat();
        rows.push(distinct(staged::answer_query(session, &query, &ANSWER).await?, chosen)?);
    }
    rows.retain(|rows| !rows.rows.is_empty());
    if rows.is_empty() {
        permitted::check_privileges(session, text, asked).await?;
        staged::put_description(session, asked.rows())?;
    }
    let mut count = 0;
    for rows in &mut rows {
        let starred = take_stars(rows, chosen);
        let list = rows_as(session, StageKind::In { is_not: false }, &keys(rows, chosen))?;
        let table = rows_as(session, StageKind::From { alias: Some(ROWS.to_owned()) }, rows)?;
        let found = staged::find_write(session, &chosen.write(&table, &list, &starred), asked).await?;
        if found.writing.shards().len() > 1 {
            session.check_commit_support(found.writing.shards()).await?;
        }
        let tag = staged::write_text_of(session, &found.writing, &found.text, asked).await?;
        count += tag.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(chosen.tag(count))
}

/// Who had locked the rows at home may not have committed them elsewhere yet, where they may be looked at next.
async fn lock_other_copies(session: &mut Session, lock: &str) -> Result<(), Failure> {
    for shard in shards_with_copies(session)?.into_iter().skip(1) {
        write::read_on(session, &session.several([shard])?, &Request::Query(lock), Shown::Nothing).await?;
    }
    Ok(())
}

/// The home shard first.
fn shards_with_copies(session: &Session) -> Result<Vec<ShardId>, PgError> {
    let is_online = |shard: &Arc<Shard>| shard.is_home || shard.state.is_ready();
    Ok(every_shard::shards_home_first(session)?.into_iter().filter(is_online).map(|shard| shard.id).collect())
}

fn rows_as(session: &Session, kind: StageKind, answer: &Answer) -> Result<String, PgError> {
    let stage = Stage { start: 0, end: 0, query: String::new(), kind };
    Ok(stage.constant(answer, &session.context.catalog)?.unwrap_or_default())
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
