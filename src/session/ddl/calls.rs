//! Calls and DO blocks whose bodies change the schema: what a client may ask of their answer, and whether they have made the same
//! changes on every shard.
//!
//! That a body decides by the schema alone does not make it do the same: oids, the time, and the order in which rows are found differ
//! from shard to shard. So what the shards have become is compared, in the transaction, before any of them commits. What differed
//! before does not count, in whatever it differs now.
//!
//! ```text
//! the body has run on each ─► schemas read within the transaction ─► alike: on it goes
//!                                   └─ differences ─► once more ─► without those that others see ─► refused: all is rolled back
//! ```
//! The second reading is for a change by somebody else that was committed between two readings. Owners, privileges and comments are
//! not compared: no statement is planned by them. Nor is a definition that others hold: what the body has made is printed from what
//! its own transaction holds.

use std::sync::Arc;

use tokio::time::Instant;

use super::own_catalog::READER_PATIENCE;
use super::{every_shard, own_catalog};
use crate::backend::catalog_reader::Known;
use crate::backend::schema_reader::{self, READ_TIMEOUT};
use crate::catalog::{Definitions, ObjectName};
use crate::error::PgError;
use crate::session::protocol::statement::Statement;
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::{Format, oid};
use crate::shardmap::Shard;
use crate::wire::{self, FieldDescription};

/// Between the first shard and another one.
struct Difference {
    shard: String,
    object: ObjectName,
    /// Says in what.
    sentence: String,
}

impl Difference {
    /// The same object of the same shard differs there, in whatever.
    fn is_among(&self, others: &[Difference]) -> bool {
        others.iter().any(|other| (&self.shard, &self.object) == (&other.shard, &other.object))
    }
}

/// The shards run the text of a call that changes the schema, and answer as to a simple query: in text.
pub(in crate::session) async fn check_formats_of_call(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<(), Failure> {
    let description = session.describe(statement).await?;
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
pub(super) async fn run_body_on_each(session: &mut Session, shards: &[Arc<Shard>], text: &str) -> Result<(), Failure> {
    every_shard::run_on_each(session, shards, text).await?;
    if shards.len() < 2 {
        return Ok(());
    }
    let mut known = known_of(session, shards).await?;
    let mut found = Box::pin(differences_within(session, &mut known)).await?;
    if !found.is_empty() {
        let again = Box::pin(differences_within(session, &mut known)).await?;
        found.retain(|difference| difference.is_among(&again));
    }
    if !found.is_empty() {
        let before = Box::pin(differences_outside(&mut known)).await?;
        found.retain(|difference| !difference.is_among(&before));
    }
    match (shards.first(), found.is_empty()) {
        (Some(first), false) => Err(made_otherwise(first, &found).into()),
        _ => Ok(()),
    }
}

/// The texts that each of them had when it was read last: those that the body has made are new, and printed.
async fn known_of(session: &Session, shards: &[Arc<Shard>]) -> Result<Vec<(Arc<Shard>, Known)>, Failure> {
    let mut known = Vec::new();
    for shard in shards {
        let reader = session.gateway.control.schema_readers().of(shard, READER_PATIENCE).await;
        known.push((Arc::clone(shard), reader.map(|reader| reader.known().clone()).unwrap_or_default()));
    }
    Ok(known)
}

/// As the open transaction sees them. All of it within the time that one reading has.
async fn differences_within(session: &mut Session, known: &mut [(Arc<Shard>, Known)]) -> Result<Vec<Difference>, Failure> {
    let deadline = Instant::now() + READ_TIMEOUT;
    let mut catalogs = Vec::new();
    for (shard, known) in known {
        let index = session.transaction.index_of(shard.id).ok_or_else(|| PgError::internal("a shard has not run a body"))?;
        catalogs.push((&**shard, own_catalog::read_catalog_within(session, index, known, deadline).await?.definitions));
    }
    Ok(differences(&catalogs))
}

/// As everybody else does.
async fn differences_outside(known: &mut [(Arc<Shard>, Known)]) -> Result<Vec<Difference>, PgError> {
    let mut catalogs = Vec::new();
    for (shard, known) in known {
        let catalog = schema_reader::read(shard, known).await?;
        catalogs.push((&**shard, catalog.definitions));
    }
    Ok(differences(&catalogs))
}

/// Each with the first one. Extensions are of the version that a server has.
fn differences(schemas: &[(&Shard, Definitions)]) -> Vec<Difference> {
    let Some(((_, here), others)) = schemas.split_first() else { return Vec::new() };
    let of_shard = |(shard, there): &(&Shard, Definitions)| {
        let is_version = |object: &ObjectName| object.is_extension() && here.contains(object) && there.contains(object);
        let differing = here.differing(there).into_iter().filter(|(object, _)| !is_version(object));
        differing.map(|(object, sentence)| Difference { shard: shard.name.clone(), object, sentence }).collect::<Vec<_>>()
    };
    others.iter().flat_map(of_shard).collect()
}

fn made_otherwise(first: &Shard, found: &[Difference]) -> PgError {
    let shard = found.first().map(|difference| difference.shard.as_str()).unwrap_or_default();
    let of_shard = found.iter().filter(|difference| difference.shard == shard).take(DIFFERENCES_MAX);
    let list: Vec<&str> = of_shard.map(|difference| difference.sentence.as_str()).collect();
    PgError::unsupported(
        "the statement does not change the schema alike on every shard",
        format!("Here: shard \"{}\", there: shard \"{shard}\".\n{}.", first.name, list.join(";\n")),
        "Let it not depend on object identifiers, on the time, or on the order of rows without ORDER BY; or send its schema changes as \
         statements of their own.",
    )
}

const DIFFERENCES_MAX: usize = 5;

/// Types whose values are the same bytes as text and in binary.
const ALIKE_IN_BOTH_FORMATS: [u32; 6] = [oid::TEXT, oid::VARCHAR, oid::BPCHAR, oid::NAME, oid::UNKNOWN, oid::VOID];
