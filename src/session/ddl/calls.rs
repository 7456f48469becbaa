//! Calls and DO blocks whose bodies change the schema: what a client may ask of their answer, and whether they have made the same
//! changes on every shard.
//!
//! That a body decides by the schema alone does not make it do the same: oids, the time, and the order in which rows are found differ
//! from shard to shard. So what the shards have become is compared, in the transaction, before any of them commits. What differed
//! before does not count.
//!
//! ```text
//! the body has run on each ─► schemas read within the transaction ─► alike: on it goes
//!                                   └─ differences ─► once more ─► without those that others see ─► refused: all is rolled back
//! ```
//! The second reading is for a change by somebody else that was committed between two readings. Owners, privileges and comments are
//! not compared: no statement is planned by them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::schema_reader::{self, READ_TIMEOUT};
use crate::backend::catalog_reader::{Known, WhenHeld};
use crate::catalog::Catalog;
use crate::error::PgError;
use crate::session::protocol::statement::Statement;
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::{Format, oid};
use crate::shardmap::Shard;
use crate::wire::{self, FieldDescription};

/// The shard that differs from the first one, and a sentence that says in what.
type Difference = (String, String);

impl Session {
    /// The shards run the text of a call that changes the schema, and answer as to a simple query: in text.
    pub(in crate::session) async fn check_formats_of_call(
        &mut self,
        statement: &Arc<Statement>,
        bind: &wire::Bind<'_>,
    ) -> Result<(), Failure> {
        let description = self.describe(statement).await?;
        let rows = description.rows.as_deref().map(wire::row_description).transpose().map_err(SessionEnd::from)?;
        let is_alike = |field: &FieldDescription| ALIKE_IN_BOTH_FORMATS.contains(&field.type_oid);
        let mut fields = rows.iter().flatten().enumerate();
        match fields.find(|(index, field)| bind.result_format(*index) == Format::Binary && !is_alike(field)) {
            None => Ok(()),
            Some((_, field)) => Err(PgError::unsupported(
                format!("column \"{}\" of this call is not supported in the binary format", String::from_utf8_lossy(&field.name)),
                "The call changes the schema on every shard, which answer it in text.",
                "Send it by the simple query protocol, or cast the column to text.",
            )
            .into()),
        }
    }

    /// The body's text on each of them, in the open transaction.
    pub(super) async fn run_body_on_each(&mut self, shards: &[Arc<Shard>], text: &str) -> Result<(), Failure> {
        self.run_on_each(shards, text).await?;
        let Some((first, others)) = shards.split_first().filter(|(_, others)| !others.is_empty()) else { return Ok(()) };
        let mut found = Box::pin(self.differences_within(first, others)).await?;
        if !found.is_empty() {
            let again = Box::pin(self.differences_within(first, others)).await?;
            found.retain(|difference| again.contains(difference));
        }
        if !found.is_empty() {
            let before = Box::pin(differences_outside(first, others)).await?;
            found.retain(|difference| !before.contains(difference));
        }
        if found.is_empty() { Ok(()) } else { Err(made_otherwise(first, &found).into()) }
    }

    /// As the open transaction sees them. All of it within the time that one reading has.
    async fn differences_within(&mut self, first: &Shard, others: &[Arc<Shard>]) -> Result<Vec<Difference>, Failure> {
        let deadline = Instant::now() + READ_TIMEOUT;
        let mut known = self.gateway.compared_with(None).await;
        let here = self.read_within(first, &mut known, deadline).await?;
        let mut found = Vec::new();
        for shard in others {
            let there = self.read_within(shard, &mut Known::default(), deadline).await?;
            add_differences(&mut found, &here, shard, &there);
        }
        Ok(found)
    }

    async fn read_within(&mut self, shard: &Shard, known: &mut Known, deadline: Instant) -> Result<Catalog, Failure> {
        let index = self.transaction.index_of(shard.id).ok_or_else(|| PgError::internal("a shard has not run a body"))?;
        self.read_catalog_within(index, known, WhenHeld::Wait(LOCK_PATIENCE), deadline).await
    }
}

/// As everybody else does.
async fn differences_outside(first: &Shard, others: &[Arc<Shard>]) -> Result<Vec<Difference>, PgError> {
    let here = schema_reader::read(first, &mut Known::default()).await?;
    let mut found = Vec::new();
    for shard in others {
        let there = schema_reader::read(shard, &mut Known::default()).await?;
        add_differences(&mut found, &here, shard, &there);
    }
    Ok(found)
}

fn add_differences(found: &mut Vec<Difference>, here: &Catalog, shard: &Shard, there: &Catalog) {
    found.extend(here.diff(there).into_iter().map(|difference| (shard.name.clone(), difference)));
}

fn made_otherwise(first: &Shard, found: &[Difference]) -> PgError {
    let shard = found.first().map(|(shard, _)| shard.as_str()).unwrap_or_default();
    let of_shard = found.iter().filter(|(other, _)| other == shard).take(DIFFERENCES_MAX);
    let list: Vec<&str> = of_shard.map(|(_, difference)| difference.as_str()).collect();
    PgError::unsupported(
        "the statement does not change the schema alike on every shard",
        format!("Here: shard \"{}\", there: shard \"{shard}\".\n{}.", first.name, list.join(";\n")),
        "Let it not depend on object identifiers, on the time, or on the order of rows without ORDER BY; or send its schema changes as \
         statements of their own.",
    )
}

const DIFFERENCES_MAX: usize = 5;
/// Others may hold tables from which definitions are printed.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Types whose values are the same bytes as text and in binary.
const ALIKE_IN_BOTH_FORMATS: [u32; 6] = [oid::TEXT, oid::VARCHAR, oid::BPCHAR, oid::NAME, oid::UNKNOWN, oid::VOID];
