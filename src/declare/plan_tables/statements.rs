//! Which share of the statements that the home shard has counted (`pg_stat_statements`) would stay on one shard under a key.
//!
//! Each is read as the proxy would read it if the tables were sharded so. What another reading would be needed for counts as several
//! shards, so the share is rather too low than too high. Of transactions nothing is known: the server counts statements.

use std::collections::BTreeMap;

use pg_raw_parse::Node;

use super::facts::rows;
use super::members::Members;
use crate::catalog::quoted_identifier;
use crate::declare::shard_connection::ShardConnection;
use crate::error::PgError;
use crate::sql::analysis::{Analysis, Command, KeyCondition, KeyValue, Part, Scope, Test};
use crate::sql::{Analyzer, Context};

/// Statements and how often they were called.
pub(super) struct Workload(Vec<(String, i64)>);

/// In calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// Of statements that touch sharded tables.
    pub(super) all: i64,
    pub(super) on_one_shard: i64,
    /// Of an UPDATE that assigns a key.
    pub(super) key_updates: i64,
}

impl Workload {
    /// `None`: the server counts none, or this user may not see them.
    pub(super) async fn read(home: &mut ShardConnection) -> Result<Option<Self>, PgError> {
        let schemas: Vec<(String,)> = rows(home, EXTENSION).await?;
        let Some((schema,)) = schemas.first() else { return Ok(None) };
        let sql = format!(
            "SELECT s.query, s.calls::int8 FROM {}.pg_stat_statements s
             WHERE s.dbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND s.query IS NOT NULL
             ORDER BY s.calls DESC, s.query LIMIT {STATEMENTS_MAX}",
            quoted_identifier(schema)
        );
        match rows(home, &sql).await {
            Ok(found) => Ok(Some(Self(found))),
            // It is installed and not loaded.
            Err(error) => {
                tracing::debug!(error = %error.message, "pg_stat_statements cannot be read");
                Ok(None)
            }
        }
    }

    pub(super) fn shares(&self, context: &Context, members: &Members<'_>) -> Shares {
        let analyzer = Analyzer::new();
        let mut shares = Shares::default();
        for (text, calls) in &self.0 {
            let Ok(read) = analyzer.read(text, context) else { continue };
            let [analysis] = read.analyzed.statements.as_slice() else { continue };
            if !matches!(analysis.command, Command::Query(_)) {
                continue;
            }
            match &analysis.scope {
                Scope::Placed { parts, .. } if parts.iter().any(|part| matches!(part, Part::Sharded { .. })) => {
                    shares.all += calls;
                    shares.on_one_shard += if stays_on_one_shard(analysis, parts) { *calls } else { 0 };
                }
                Scope::Refused(_) => shares.all += calls,
                _ => {}
            }
            shares.key_updates += if assigns_key(text, members) { *calls } else { 0 };
        }
        shares
    }
}

/// All parts have the same key.
fn stays_on_one_shard(analysis: &Analysis, parts: &[Part]) -> bool {
    if analysis.split_rows.is_some() {
        return false;
    }
    let mut values: Option<BTreeMap<usize, KeyValue>> = None;
    for part in parts {
        let Part::Sharded { condition, .. } = part else { return false };
        let mut found = BTreeMap::new();
        collect(condition, &mut found);
        if found.is_empty() || values.as_ref().is_some_and(|known| *known != found) {
            return false;
        }
        values = Some(found);
    }
    true
}

/// What each column of the key is said to be.
fn collect(condition: &KeyCondition, found: &mut BTreeMap<usize, KeyValue>) {
    match condition {
        KeyCondition::And(conditions) => conditions.iter().for_each(|condition| collect(condition, found)),
        KeyCondition::Test(test) => {
            let value = match &test.test {
                Test::Equals(value) => Some(value),
                Test::In(values) => values.first().filter(|_| values.len() == 1),
                Test::Stored(stored) => Some(&stored.value),
                Test::AnyOf(_) | Test::Compare(..) => None,
            };
            if let Some(value) = value {
                found.entry(test.column).or_insert_with(|| value.clone());
            }
        }
        KeyCondition::All | KeyCondition::Nothing | KeyCondition::Or(_) => {}
    }
}

fn assigns_key(text: &str, members: &Members<'_>) -> bool {
    let Ok(tree) = crate::sql::parse(text) else { return false };
    let mut statements = tree.iter().map(|raw| raw.stmt());
    let Some(Node::UpdateStmt(update)) = statements.next() else { return false };
    let Some(name) = update.relation() else { return false };
    let is_named = |schema: &str| name.schemaname().is_none_or(|given| given == schema);
    let mut named = members
        .list
        .iter()
        .filter(|member| name.relname() == Some(member.relation.name.as_str()) && is_named(&member.relation.schema));
    named.any(|member| {
        let assigned = update.target_list().iter().filter_map(|target| target.name());
        assigned.into_iter().any(|column| member.key.iter().any(|item| item.column == column))
    })
}

const STATEMENTS_MAX: usize = 2000;

const EXTENSION: &str = "SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
     WHERE e.extname = 'pg_stat_statements'";
