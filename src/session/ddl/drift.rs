//! Tables that are not the same on all shards: statements over several shards on them are refused, by name.
//!
//! Schema changes through the proxies are alike everywhere. What is changed on one shard directly is found by a slow look at all
//! of them, and counts when two looks agree and no change was under way: then a statement that runs on one shard goes on as that
//! shard understands it, and one that would need them alike says what differs. Home tables, functions and the like are needed alike
//! by schema changes alone: what differs is logged, and a schema change that one shard refuses says which.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use crate::backend::schema_reader::READ_TIMEOUT;
use crate::catalog::{Catalog, Definitions, Held, ObjectName};
use crate::error::PgError;
use crate::session::gateway::Gateway;
use crate::session::protocol::describe::error_frame;
use crate::session::reads::scatter::with_shard_named;
use crate::session::{Failure, Session};
use crate::shardmap::{GroupId, Table, TableKind};
use crate::sql::analysis::Part;
use crate::wire;

/// (schema, name) → what differs, as a sentence.
pub type Drift = HashMap<(String, String), String>;

/// What the last look has found.
#[derive(Debug, Default)]
pub struct DriftLook {
    suspected: Drift,
    /// Beside declared tables: the shard, and what differs as a sentence.
    suspected_besides: BTreeSet<(String, String)>,
    /// Of these, what has been logged.
    logged: BTreeSet<(String, String)>,
}

impl Gateway {
    /// Looks at every shard. One that cannot be read says nothing.
    pub async fn look_for_drift(&self, look: &mut DriftLook) {
        let before = self.map.snapshot();
        if before.open_schema_changes > 0 || before.shards.len() < 2 || !self.has_catalog_for(&before) {
            return;
        }
        let home = self.catalog.load_full();
        if home.held != Held::Nothing {
            return;
        }
        let shards: Vec<_> = before.shards.iter().filter(|shard| !shard.is_home && shard.state.is_ready()).cloned().collect();
        let tables: Vec<Arc<Table>> = before.tables.values().cloned().collect();
        let version = before.schema_version;
        drop(before);
        let readers = self.control.schema_readers();
        readers.retain(&shards);
        let (mut found, mut besides) = (Drift::new(), BTreeSet::new());
        for shard in shards {
            let Some(mut reader) = readers.of(&shard, READ_TIMEOUT).await else { continue };
            match reader.read_whole(&shard).await {
                Ok(catalog) if catalog.held != Held::Nothing => tracing::debug!(shard = shard.name, "a part of its schema is held"),
                Ok(catalog) => {
                    add_differences((&mut found, &mut besides), &tables, &home, &shard.name, &catalog);
                    add_others(&mut besides, &tables, &home, &shard.name, &catalog);
                }
                Err(error) => tracing::debug!(shard = shard.name, %error, "a shard's schema is not known"),
            }
        }
        let after = self.map.load();
        if after.schema_version != version || after.open_schema_changes > 0 {
            return;
        }
        look.log_besides(besides);
        let confirmed: Drift = found.iter().filter(|(table, what)| look.suspected.get(*table) == Some(what)).map(own).collect();
        if **self.drift.load() != confirmed {
            for ((_, table), what) in &confirmed {
                tracing::warn!(table, what, "a table is not the same on all shards");
            }
            self.drift.store(Arc::new(confirmed));
        }
        look.suspected = found;
    }
}

impl DriftLook {
    /// What two looks agree on, once.
    fn log_besides(&mut self, found: BTreeSet<(String, String)>) {
        let confirmed: BTreeSet<_> = found.intersection(&self.suspected_besides).cloned().collect();
        for (shard, difference) in confirmed.difference(&self.logged).take(LOGGED_MAX) {
            tracing::warn!(shard, difference, "the schema is not the same on all shards (here: the home shard)");
        }
        self.logged = confirmed;
        self.suspected_besides = found;
    }
}

fn own((table, what): (&(String, String), &String)) -> ((String, String), String) {
    (table.clone(), what.clone())
}

/// Indexes that are not unique change no answer: what differs of them is kept beside.
fn add_differences(
    (found, besides): (&mut Drift, &mut BTreeSet<(String, String)>),
    tables: &[Arc<Table>],
    home: &Catalog,
    shard: &str,
    catalog: &Catalog,
) {
    for table in tables {
        let name = (table.schema.clone(), table.name.clone());
        let Some(relation) = home.relation_names.get(&name).and_then(|oid| home.relations.get(oid)) else { continue };
        let there = match catalog.resolve(Some(&table.schema), &table.name, &[]) {
            Some(relation) => catalog.definitions_of_family(relation),
            None => Definitions::default(),
        };
        let here = home.definitions_of_family(relation);
        let is_slower = |object: &ObjectName| [&here, &there].iter().all(|of| object.is_plain_index(of.get(object)));
        let (slower, differing): (Vec<_>, Vec<_>) = here.differing(&there).into_iter().partition(|(object, _)| is_slower(object));
        besides.extend(slower.into_iter().map(|(_, difference)| (shard.to_owned(), difference)));
        let differences: Vec<String> = differing.into_iter().map(|(_, difference)| difference).collect();
        if !differences.is_empty() && !found.contains_key(&name) {
            let list = differences.iter().take(DIFFERENCES_MAX).cloned().collect::<Vec<_>>().join(";\n");
            found.insert(name, format!("Here: the home shard, there: shard \"{shard}\".\n{list}."));
        }
    }
}

/// What differs beside these tables.
fn add_others(found: &mut BTreeSet<(String, String)>, tables: &[Arc<Table>], home: &Catalog, shard: &str, catalog: &Catalog) {
    let (mut here, mut there) = (home.definitions.clone(), catalog.definitions.clone());
    for table in tables {
        for (of, definitions) in [(home, &mut here), (catalog, &mut there)] {
            let Some(relation) = of.resolve(Some(&table.schema), &table.name, &[]) else { continue };
            of.family(relation).iter().for_each(|member| definitions.remove(&member.whole()));
        }
    }
    found.extend(here.differences(&there).into_iter().map(|difference| (shard.to_owned(), difference)));
}

/// The error of a schema change on another shard than the first, as its client gets it.
pub(super) fn as_of_drift(frame: &[u8], shard: &str) -> Bytes {
    let named = with_shard_named(frame, shard);
    let body = named.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return named };
    let is_of_schema = fields.get(b'C').is_some_and(|code| code.starts_with(b"42") && code != b"42501");
    if !is_of_schema || fields.get(b'H').is_some() {
        return named;
    }
    let hint = format!(
        "The home shard has not refused it: the schema of shard \"{shard}\" is another one. \"shardgate check\" lists the differences; \
         a schema change behind the comment /* shardgate: shard={shard} */ is made on that shard alone."
    );
    let mut with_hint = body.strip_suffix(&[0]).unwrap_or(body).to_vec();
    with_hint.push(b'H');
    with_hint.extend_from_slice(hint.as_bytes());
    with_hint.extend_from_slice(&[0, 0]);
    error_frame(&with_hint)
}

const DIFFERENCES_MAX: usize = 5;
/// Differences that one look logs.
const LOGGED_MAX: usize = 20;

/// A statement over several shards needs its tables alike on them.
pub(in crate::session) fn check_drift(session: &Session, parts: &[Part]) -> Result<(), Failure> {
    let drift = session.gateway.drift.load();
    if drift.is_empty() {
        return Ok(());
    }
    let groups: Vec<GroupId> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Sharded { group, .. } => Some(*group),
            Part::Home => None,
        })
        .collect();
    let is_used = |table: &Table| matches!(&table.kind, TableKind::Sharded { group, .. } if groups.contains(group));
    refuse_drifted(session, &drift, is_used)
}

/// A write to every copy of a reference table.
pub(in crate::session) fn check_drift_of_copies(session: &Session) -> Result<(), Failure> {
    let drift = session.gateway.drift.load();
    if drift.is_empty() {
        return Ok(());
    }
    refuse_drifted(session, &drift, |table| table.kind == TableKind::Reference)
}

fn refuse_drifted(session: &Session, drift: &Drift, is_used: impl Fn(&Table) -> bool) -> Result<(), Failure> {
    let map = session.gateway.map.load();
    let drifted = drift.iter().find(|(name, _)| map.tables.get(*name).is_some_and(|table| is_used(table)));
    match drifted {
        None => Ok(()),
        Some(((_, table), what)) => Err(PgError::unsupported(
            format!("table \"{table}\" is not the same on all shards"),
            what.clone(),
            "Make the tables alike: a schema change behind the comment /* shardgate: shard=name */ is made on that shard alone; \
                 \"shardgate check\" lists all differences. It is noticed within a minute.",
        )
        .into()),
    }
}
