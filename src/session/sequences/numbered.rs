//! ALTER TABLE ... ADD COLUMN of columns that number the rows of a distributed table: one sequence for all shards.
//!
//! ```text
//!   home:      the client's text        rows get 1 … n by PostgreSQL      default: shardgate.next_id ─┐
//!   another:   the same text            its rows get 1 … m                the same default           │ one
//!              its numbers become n + 1 … n + m                                                      │ transaction
//!   map:       the sequence, above all of them                  every proxy has heard of it          │
//!   COMMIT     on all shards or on none ──────────────────────────────────────────────────────────────┘
//! ```
//! The table is locked on all shards before the first one changes it: no row comes between, and no shard has done its work for
//! nothing when another's lock is not to be had. The map has the sequence before anybody can see the column: whoever inserts after
//! the commit draws from it. What was declared and is not committed is dropped from the map again with the end of the schema change;
//! where this proxy is lost before, it stays there, and gives way to the next one of its name.

use std::sync::Arc;
use std::time::Duration;

use super::altered;
use crate::backend::Stored;
use crate::catalog::{SequenceName, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::session::ddl::{every_shard, patient};
use crate::session::{Failure, Session};
use crate::shardmap::{NewSequence, Shard};
use crate::sql::analysis::NumberedColumns;

/// A column's sequence, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Numbered {
    pub sequence: SequenceName,
    increment: i64,
    minimum: i64,
    maximum: i64,
    /// That no row has yet.
    next_number: i128,
    has_rows: bool,
}

/// The transaction is open, and will be committed on all shards or on none. Not cancel safe: what was declared stays until the
/// end of the schema change.
pub(in crate::session) async fn add_numbered(
    session: &mut Session,
    added: &NumberedColumns,
    shards: &[Arc<Shard>],
    text: &str,
) -> Result<(), Failure> {
    for shard in shards {
        // Makes what a shard that was added by an earlier version lacks.
        session.commit_support(shard.id).await?;
    }
    let table = quoted_name(&added.table.0, &added.table.1);
    patient::lock_patiently(session, shards, &table).await?;
    let mut known: Vec<Option<Numbered>> = vec![None; added.columns.len()];
    for shard in shards {
        every_shard::run_part(session, shard, text, shard.is_home).await?;
        for (column, known) in added.columns.iter().zip(&mut known) {
            let found = number_column(session, shard, added, column, known.as_ref()).await?;
            *known = match (known.take(), found) {
                (None, found) if shard.is_home => found,
                (None, None) => None,
                (Some(before), Some(found)) if before.is_of(&found) => {
                    Some(Numbered { has_rows: before.has_rows || found.has_rows, ..found })
                }
                (_, _) => return Err(not_alike(added, shard).into()),
            };
        }
    }
    declare_numbered(session, known.into_iter().flatten().collect()).await
}

/// One shard's column, as the client's text has made it. `None`: it was there before.
async fn number_column(
    session: &mut Session,
    shard: &Arc<Shard>,
    added: &NumberedColumns,
    column: &str,
    known: Option<&Numbered>,
) -> Result<Option<Numbered>, Failure> {
    let first = known.map_or_else(|| "NULL".to_owned(), |known| quoted_literal(&known.next_number.to_string()));
    let sql = format!(
        "SELECT schema_name, sequence_name, increment, minimum, maximum, next_number, has_rows \
             FROM shardgate.number_added_column({}::pg_catalog.regclass, {}, {}, {first})",
        quoted_literal(&quoted_name(&added.table.0, &added.table.1)),
        quoted_literal(column),
        !added.is_reference
    );
    let kept = session.divert();
    let run = every_shard::run_on_one(session, shard, &Stored::SchemaChange.text(&sql), true).await;
    let answer = session.diverted(kept, run)?;
    let row = answer.rows.into_iter().next().unwrap_or_default();
    let mut values = row.into_iter();
    let mut next = || values.next().flatten();
    let (Some(schema), Some(name)) = (next(), next()) else { return Ok(None) };
    let mut number = || next().and_then(|text| text.parse::<i128>().ok());
    let small = |number: Option<i128>| number.and_then(|number| i64::try_from(number).ok());
    let limits = (small(number()), small(number()), small(number()), number());
    let (Some(increment), Some(minimum), Some(maximum), Some(next_number)) = limits else {
        return Err(PgError::internal(format!("unexpected answer of shard \"{}\"", shard.name)).into());
    };
    let has_rows = next().as_deref() == Some("t");
    Ok(Some(Numbered { sequence: (schema, name), increment, minimum, maximum, next_number, has_rows }))
}

/// Before the commit, and every proxy has heard of it: who sees the column draws from the map.
async fn declare_numbered(session: &mut Session, columns: Vec<Numbered>) -> Result<(), Failure> {
    if columns.is_empty() {
        return Ok(());
    }
    let change = altered::hold_change(session).await?;
    for numbered in &columns {
        let sequence = &numbered.sequence;
        // What the transaction goes back to, if it does, needs its own declaration.
        let is_again = session.transaction.schema_change.as_ref().is_some_and(|change| change.is_declared(sequence));
        if is_again || session.gateway.numbers.is_committed(sequence).await? {
            return Err(made_again(&sequence.1).into());
        }
        let store = session.gateway.map.store();
        let generation = store
            .declare_new_sequence(&session.login.identity.user, change, &numbered.declaration())
            .await
            .map_err(PgError::from)?;
        if let Some(change) = &mut session.transaction.schema_change {
            change.has_declared(numbered.clone(), generation);
        }
        if numbered.has_rows {
            session.drawn.by_shards(sequence);
        }
    }
    let epoch = session.gateway.map.refresh().await.map_err(PgError::from)?;
    if !session.gateway.map.seen_by_all(epoch, SEEN_WITHIN).await.map_err(PgError::from)? {
        return Err(PgError::new(SqlState::CANNOT_CONNECT_NOW, "a proxy has not heard of a new sequence in time")
            .with_detail("Rows that come through it would have no numbers.")
            .with_hint("Repeat the statement.")
            .into());
    }
    Ok(())
}

impl Numbered {
    pub fn declaration(&self) -> NewSequence<'_> {
        NewSequence {
            schema: &self.sequence.0,
            name: &self.sequence.1,
            increment: self.increment,
            minimum: self.minimum,
            maximum: self.maximum,
            next_number: self.next_number,
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        let definition = |of: &Self| (of.sequence.clone(), of.increment, of.minimum, of.maximum);
        definition(self) == definition(other)
    }
}

/// Without a commit on all shards at once.
pub(in crate::session) fn not_at_once(added: &NumberedColumns) -> PgError {
    PgError::unsupported(
        format!("a column that numbers rows cannot be added to distributed table \"{}\"", added.table.1),
        "Its rows are numbered on all shards or on none, and a transaction cannot be committed on all of them at once.",
        "Set max_prepared_transactions on every shard, and cross_shard.writes = \"2pc\".",
    )
}

fn made_again(sequence: &str) -> PgError {
    PgError::unsupported(
        format!("sequence \"{sequence}\" is made again in one transaction"),
        "The shard map knows one sequence of a name, and the transaction may still be rolled back to the one before.",
        "Commit first, or give the column another name.",
    )
}

fn not_alike(added: &NumberedColumns, shard: &Shard) -> PgError {
    PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("table \"{}\" is not the same on shard \"{}\"", added.table.1, shard.name),
    )
    .with_detail("A column that numbers rows has another sequence there than on the home shard.")
    .with_hint("Make the shards alike; \"shardgate check\" lists all differences.")
}

/// One that is lost is waited for until its lease has ended.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
