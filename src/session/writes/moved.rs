//! UPDATE of a shard key: the rows are deleted where they are and inserted where they belong, in one transaction.
//!
//! Which statements that is right for [`crate::sql::rewrite::moving`] says. What is left to see is whether old and new keys overlap: then
//! one UPDATE might find a row in its way that this one has deleted before, and it is refused.

use std::collections::HashSet;
use std::sync::Arc;

use super::staged::{Asked, sqlstate};
use super::{exact, staged, staged_with};
use crate::error::{PgError, SqlState};
use crate::session::commands::permitted;
use crate::session::protocol::statement::Statement;
use crate::session::reads::scatter;
use crate::session::{Failure, Session};
use crate::shard_key::oid;
use crate::sql::analysis::Analysis;
use crate::sql::rewrite::moving::{Item, Moving, moving};
use crate::sql::rewrite::staging::{Answer, AnswerColumn};
use crate::wire::{self, originate};

/// Runs a statement of the simple protocol. Ends the transaction that it begins.
pub(in crate::session) async fn move_rows_of_text(
    session: &mut Session,
    moving: &Moving,
    statement: &Analysis,
    text: &str,
) -> Result<(), Failure> {
    let rows = staged::described_rows(session, statement, text).await?;
    let begins_here = !session.transaction.is_open();
    if begins_here {
        session.begin_one_statement();
    }
    let run =
        match Box::pin(move_rows(session, moving, (statement.alone(text), &moving.delete), &Asked::Text { rows: rows.as_ref() }))
            .await
        {
            Err(Failure::Shard(frame)) => Err(scatter::told_of_the_text(session, frame, statement, text).await),
            run => run,
        };
    let tag = session.end_one_statement(begins_here, run).await?;
    originate::command_complete(&mut session.client.output, &tag);
    Ok(())
}

/// Execute of a portal; the transaction is open. Returns the tag.
pub(in crate::session) async fn move_rows_of_bound(
    session: &mut Session,
    moving: &Moving,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<String, Failure> {
    let description = session.describe(statement).await?;
    let asked = Asked::Bound { bind, description: &description };
    let delete = staged::with_values_of(session, &asked, &[moving.delete.as_str()]).await?.concat();
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement moved"))?;
    match Box::pin(move_rows(session, moving, (analysis.alone(statement.text()), &delete), &asked)).await {
        Err(Failure::Shard(frame)) => Err(scatter::told_of_the_text(session, frame, analysis, statement.text()).await),
        run => run,
    }
}

/// An UPDATE whose queries are constants now, if it moves rows. Returns the tag.
pub(in crate::session) async fn move_staged(
    session: &mut Session,
    text: &str,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<Option<String>, Failure> {
    let Some(moving) = moving(text, &session.context)? else { return Ok(None) };
    let delete = staged::with_values_of(session, asked, &[moving.delete.as_str()]).await?.concat();
    if begins {
        session.begin_one_statement();
    }
    Box::pin(delete_and_insert(session, &moving, (text, &delete), asked)).await.map(Some)
}

async fn move_rows(session: &mut Session, moving: &Moving, texts: (&str, &str), asked: &Asked<'_>) -> Result<String, Failure> {
    permitted::check_not_read_only(session, texts.0)?;
    exact::check_text_is_exact(session)?;
    session.staging.is_under_way = true;
    session.staging.planned_by = None;
    let moved = Box::pin(delete_and_insert(session, moving, texts, asked)).await;
    session.staging.is_under_way = false;
    moved
}

/// `update`: the statement, which needs rights of its own. `delete`: with the values of parameters.
pub(in crate::session) async fn delete_and_insert(
    session: &mut Session,
    moving: &Moving,
    (update, delete): (&str, &str),
    asked: &Asked<'_>,
) -> Result<String, Failure> {
    permitted::check_privileges(session, update, asked).await?;
    let from = staged::find_write(session, delete, &Asked::Own).await?.writing;
    if from.shards().len() > 1 {
        session.check_commit_support(from.shards()).await?;
    }
    let kept = session.divert();
    let run = staged::write_text_of(session, &from, delete, &Asked::Own).await.map(drop);
    let mut answer = session.diverted(kept, run).map_err(told_of_the_move)?;
    let count = answer.rows.len();
    if count == 0 {
        staged::put_description(session, asked.rows())?;
        return Ok("UPDATE 0".to_owned());
    }
    exact::check_types_are_exact(session, &answer.columns)?;
    check_keys(moving, &answer)?;
    let apart = answer.split_off(moving.column_count + moving.key.len());
    answer.split_off(moving.column_count);
    let values = answer.inserted(&session.context.catalog)?;
    let mut insert = format!("{}{values}{}", moving.insert, moving.returning);
    let is_whole = moving.returned.is_empty();
    if !is_whole {
        insert = staged::with_values_of(session, asked, &[insert.as_str()]).await?.concat();
    }
    let asked_here = if is_whole { asked } else { &Asked::Own };
    let to = staged::find_write(session, &insert, asked_here).await?.writing;
    let mut shards = from.shards().to_vec();
    shards.extend(to.shards().iter().filter(|shard| !from.shards().contains(shard)));
    if shards.len() > 1 {
        session.check_commit_support(&shards).await?;
    }
    if is_whole {
        staged::write_text_of(session, &to, &insert, asked).await.map_err(told_of_the_move)?;
        return Ok(format!("UPDATE {count}"));
    }
    let kept = session.divert();
    let run = staged::write_text_of(session, &to, &insert, &Asked::Own).await.map(drop);
    let own = session.diverted(kept, run).map_err(told_of_the_move)?;
    let returned = returned(moving, own, apart)?;
    staged_with::show(session, &returned, asked).await?;
    Ok(format!("UPDATE {count}"))
}

/// An UPDATE asks for less: that the user may run it has been seen before.
fn told_of_the_move(failure: Failure) -> Failure {
    match failure {
        Failure::Shard(frame) if sqlstate(&frame) == Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to move the rows of this UPDATE")
                .with_detail("It changes their shard key: they are deleted where they are, and inserted where they belong.")
                .with_hint("Moving needs the privileges SELECT, INSERT and DELETE on the whole table, beside UPDATE.")
                .into()
        }
        other => other,
    }
}

/// RETURNING, its items in their order. Rows are inserted in the order in which they were deleted.
fn returned(moving: &Moving, own: Answer, mut apart: Answer) -> Result<Answer, PgError> {
    if !own.columns.is_empty() && own.rows.len() != apart.rows.len() {
        return Err(PgError::internal("a moved row has not been returned"));
    }
    let stars = apart.keep_stars(&moving.stars);
    // The column of the DELETE's answer or of the INSERT's, for each column of RETURNING.
    let (mut next_own, mut next_apart) = (0.., 0..);
    let mut places: Vec<(bool, usize)> = Vec::new();
    for item in &moving.returned {
        match item {
            Item::Own(width) => places.extend(next_own.by_ref().take(*width).map(|place| (false, place))),
            Item::Apart => places.extend(next_apart.next().map(|place| (true, place))),
            Item::Star(star) => places.extend(stars.get(*star).into_iter().cloned().flatten().map(|place| (true, place))),
        }
    }
    let column = |(is_apart, place): &(bool, usize)| {
        let columns = if *is_apart { &apart.columns } else { &own.columns };
        columns.get(*place).cloned()
    };
    let columns: Vec<AnswerColumn> = places.iter().filter_map(column).collect();
    let mut own_rows = own.rows.iter();
    let row = |apart: &Vec<Option<String>>| {
        let own = own_rows.next();
        let value = |(is_apart, place): &(bool, usize)| if *is_apart { apart.get(*place) } else { own?.get(*place) };
        places.iter().map(|place| value(place).cloned().flatten()).collect()
    };
    let rows = apart.rows.iter().map(row).collect();
    Ok(Answer { columns, rows })
}

/// The text of a value, the same for those that are equal: without the blanks at the end of a char(n), and the zeros at the end of a
/// numeric.
fn as_compared(value: &str, type_oid: u32) -> &str {
    match type_oid {
        oid::BPCHAR => value.trim_end_matches(' '),
        oid::NUMERIC if value.contains('.') => value.trim_end_matches('0').trim_end_matches('.'),
        _ => value,
    }
}

/// No row gets a key that another one had.
fn check_keys(moving: &Moving, answer: &Answer) -> Result<(), PgError> {
    if answer.rows.len() == 1 {
        return Ok(());
    }
    let place_of_old = moving.column_count..moving.column_count + moving.key.len();
    let type_of = |place: usize| answer.columns.get(place).map_or(0, |column| column.type_oid);
    let shown = |value: Option<&str>, place: usize| value.map(|value| as_compared(value, type_of(place)).to_owned());
    let value = |row: &[Option<String>], place: usize| shown(row.get(place).and_then(Option::as_deref), place);
    let old: HashSet<Vec<Option<String>>> =
        answer.rows.iter().map(|row| place_of_old.clone().map(|place| value(row, place)).collect()).collect();
    let overlaps = answer.rows.iter().any(|row| {
        let new: Vec<Option<String>> = moving.key.iter().map(|place| value(row, *place)).collect();
        old.contains(&new)
    });
    // As text, values of one type are the same or not.
    let is_of_same_type = |(index, place): (usize, &usize)| type_of(*place) == type_of(moving.column_count + index);
    if !overlaps && moving.key.iter().enumerate().all(is_of_same_type) {
        return Ok(());
    }
    Err(PgError::unsupported(
        "cannot update the shard key of several rows to keys that others of them have",
        "The rows are deleted and inserted, and one UPDATE might find a row in its way.",
        "Update the rows one by one.",
    ))
}
