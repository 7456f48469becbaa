//! Reads a shard's schema into a [`Catalog`], by one statement whatever the number of tables.
//!
//! With `search_path = pg_catalog`, so that every definition that PostgreSQL prints names its objects with their schema and
//! compares between servers. Left out: the schemas `pg_*`, `information_schema` and `shardgate`. Members of an extension are read,
//! since statements may use them, but compared only through the extension's version. Never writes, never keeps a setting on the
//! connection.
//!
//! Waits for nobody's locks, but for what is new to the reader, if it wants that: see `printed`. All else is read from the rows of
//! pg_catalog, and printed only by functions that open no relation.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use self::base::{Base, Search, Step};
use self::functions::FunctionNotes;
use self::printed::{Printed, Wanted};
use self::rows::Rows;
use crate::catalog::{Catalog, Definitions, Held, ObjectName, Oid};

mod base;
mod changes;
mod expressions;
mod functions;
mod printed;
mod relations;
mod rows;

pub use rows::{CatalogSource, InTransaction, SourceError};

/// Why a schema could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("cannot read the {part} of the schema")]
    Query {
        part: &'static str,
        /// The server has refused the query.
        sqlstate: Option<String>,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("unexpected {what} {value:?} in pg_catalog")]
    Unexpected { what: &'static str, value: String },
    #[error("the schema has changed each time that it was read")]
    Restless,
    #[error("the reading of the schema was interrupted")]
    Interrupted,
}

impl CatalogError {
    /// Somebody holds what a definition is printed from.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Query { sqlstate: Some(sqlstate), .. } if LOCKED.contains(&sqlstate.as_str()))
    }

    /// The server has refused the query.
    fn is_the_servers(&self) -> bool {
        matches!(self, Self::Query { sqlstate: Some(_), .. })
    }
}

/// Not had in time, or in a deadlock that the server has ended here.
const LOCKED: [&str; 2] = ["55P03", "40P01"];

/// What is to be done with definitions that cannot be printed, since others hold their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenHeld {
    /// Wait for this long, and for the length of one query more; then fail.
    Wait(Duration),
    /// Leave them out: [`Catalog::held`].
    LeaveOut,
}

/// What readings of one server's schema leave for the next.
#[derive(Clone, Debug, Default)]
pub struct Known {
    printed: Printed,
    base: Option<Arc<Base>>,
    /// Of the connection that is kept.
    token: Option<i64>,
    /// The last reading has read everything.
    was_full: bool,
}

impl Known {
    /// Another connection comes.
    pub fn forget_connection(&mut self) {
        self.base = None;
        self.token = None;
    }

    pub fn was_full(&self) -> bool {
        self.was_full
    }

    /// What a base is known by, and the oldest transaction that runs.
    async fn begin<S: CatalogSource>(&mut self, source: &mut S) -> Result<(i64, i64), CatalogError> {
        let token = match self.token {
            Some(token) => token,
            None => *self.token.insert(base::prepare(source).await?),
        };
        Ok((token, base::oldest(source).await?))
    }

    /// The texts are these, and changes count since that reading.
    pub fn compared_with(self, other: &Known) -> Known {
        Known { base: other.base.clone(), ..self }
    }
}

/// Reads everything; of definitions, what has changed since the last reading of this server is printed. `version` is left at 0:
/// who keeps catalogues numbers them. Not cancel safe: the connection may be left in a transaction, or with a savepoint.
pub async fn read<S: CatalogSource>(source: &mut S, known: &mut Known, when_held: WhenHeld) -> Result<Catalog, CatalogError> {
    known.base = None;
    Box::pin(read_in_rounds(source, known, when_held, false)).await
}

/// As [`read`], but only what has changed since the last reading that `known` is of. The connection is to be kept for the next one:
/// without it, everything is read. In a transaction: compares with what others have read last.
pub async fn read_changes<S: CatalogSource>(
    source: &mut S,
    known: &mut Known,
    when_held: WhenHeld,
) -> Result<Catalog, CatalogError> {
    Box::pin(read_in_rounds(source, known, when_held, true)).await
}

async fn read_in_rounds<S: CatalogSource>(
    source: &mut S,
    known: &mut Known,
    when_held: WhenHeld,
    by_changes: bool,
) -> Result<Catalog, CatalogError> {
    let patience = match when_held {
        WhenHeld::Wait(patience) => patience,
        WhenHeld::LeaveOut => PRINTED_FOR_MAX,
    };
    let deadline = Instant::now() + patience;
    let mut missing_before = Vec::new();
    let mut leaves_out = false;
    let mut search = Search::default();
    let is_kept = by_changes && S::SEES_COMMITTED;
    for _ in 0..ROUNDS_MAX {
        if is_kept {
            settle(source, deadline).await?;
        }
        known.was_full = known.base.is_none();
        let step = match &known.base {
            Some(base) => {
                match Arc::clone(base).read_changes(source, &mut known.printed, &mut search, leaves_out).await {
                    // A pooler in between may have given the session to another one.
                    Err(error) if error.is_the_servers() && S::SEES_COMMITTED => {
                        tracing::debug!(%error, "changes of the schema could not be read");
                        known.forget_connection();
                        Step::InDoubt
                    }
                    read => read?,
                }
            }
            None => {
                let begun = if by_changes && S::SEES_COMMITTED { Some(known.begin(source).await?) } else { None };
                Step::Snapshot(Box::pin(read_whole(source, &mut known.printed, leaves_out, begun)).await?)
            }
        };
        let missing = match step {
            Step::Snapshot(Snapshot::Read { catalog, held, base }) => {
                if is_kept && !is_settled(source).await? {
                    continue;
                }
                if let Some(base) = base {
                    known.base = Some(Arc::from(base));
                }
                return with_held(catalog, held).await;
            }
            Step::Snapshot(Snapshot::Lacks(missing)) => missing,
            Step::Again => continue,
            Step::InDoubt => {
                known.base = None;
                continue;
            }
        };
        let printed = known.printed.print(source, &missing, deadline).await?;
        if is_kept && !is_settled(source).await? {
            known.printed = Printed::default();
        }
        if let Some(refused) = printed {
            leaves_out = refused.is_locked() && when_held == WhenHeld::LeaveOut;
            // What was dropped in that moment is no more in the next snapshot.
            let is_final = !refused.is_locked() && missing == missing_before;
            if is_final || !leaves_out && Instant::now() >= deadline {
                return Err(refused);
            }
        }
        missing_before = missing;
    }
    Err(CatalogError::Restless)
}

/// A commit is seen before others hear which of their caches it makes invalid: between the two, a connection that is kept prints by the
/// old names what it reads by the new rows. That takes as long as files are deleted, and the transaction's own lock goes after it.
async fn settle<S: CatalogSource>(source: &mut S, deadline: Instant) -> Result<(), CatalogError> {
    while !is_settled(source).await? && Instant::now() < deadline {
        tokio::time::sleep(SETTLE_INTERVAL).await;
    }
    Ok(())
}

/// No transaction that is seen as ended still holds its own lock.
async fn is_settled<S: CatalogSource>(source: &mut S) -> Result<bool, CatalogError> {
    let rows = source.run(UNSETTLED.to_owned()).await.map_err(|error| error.of("schema"))?;
    Ok(rows.last().is_some_and(|row| row.starts_with(b"0")))
}

/// Ids of transactions have 32 bits in the locks: those from the snapshot's end on have not ended. A snapshot does not list ids of
/// subtransactions, each of which has a lock of its own: the oldest one of a transaction says what has become of it.
const UNSETTLED: &str = "
WITH snapshot AS MATERIALIZED (
    SELECT s, pg_catalog.pg_snapshot_xmax(s)::text::int8 AS next FROM pg_catalog.pg_current_snapshot() s),
locked AS (
    SELECT pg_catalog.max(((next - l.transactionid::text::int8 + 2147483648) & 4294967295) - 2147483648) AS before
    FROM snapshot, pg_catalog.pg_locks l
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
    GROUP BY l.virtualtransaction)
SELECT pg_catalog.count(*)::text FROM snapshot, locked
WHERE before >= 1 AND pg_catalog.pg_visible_in_snapshot((next - before)::text::xid8, s)";
const SETTLE_INTERVAL: Duration = Duration::from_millis(5);

/// Each waits for a lock, or sees another change of the schema.
const ROUNDS_MAX: usize = 1000;
/// One by one, when something is held. What is left is printed by the next reading.
const PRINTED_FOR_MAX: Duration = Duration::from_secs(10);

enum Snapshot {
    Read {
        catalog: Box<Catalog>,
        /// Texts that were left out.
        held: Vec<Wanted>,
        base: Option<Box<Base>>,
    },
    /// Texts to print first.
    Lacks(Vec<Wanted>),
}

/// Bodies of functions are looked through: elsewhere, since others wait for this core.
async fn with_held(mut catalog: Box<Catalog>, held: Vec<Wanted>) -> Result<Catalog, CatalogError> {
    if held.is_empty() {
        return Ok(*catalog);
    }
    let definitions: Vec<_> = held.iter().filter_map(|held| held.definition(&catalog)).collect();
    definitions.into_iter().for_each(|(whole, kind)| catalog.definitions.hold(whole, kind));
    let found = tokio::task::spawn_blocking(move || {
        let names: Vec<String> = held.iter().filter_map(|held| held.planned_by(&catalog)).map(str::to_owned).collect();
        catalog.held = catalog.names_that_use(&names).map_or(Held::Anything, Held::These);
        *catalog
    });
    found.await.map_err(|_| CatalogError::Interrupted)
}

/// `begun`: before it, for a base.
async fn read_whole<S: CatalogSource>(
    source: &mut S,
    printed: &mut Printed,
    leaves_out: bool,
    begun: Option<(i64, i64)>,
) -> Result<Snapshot, CatalogError> {
    // All would be read only to learn that no text is there.
    if printed.is_empty() && !leaves_out {
        let missing = printed.missing(Rows::read_wanted(source).await?.take("wanted")?, None)?;
        if !missing.is_empty() {
            return Ok(Snapshot::Lacks(missing));
        }
    }
    let mut rows = Rows::read_whole(source, begun.map(|(_, bound)| bound)).await?;
    let missing = printed.missing(rows.take("wanted")?, None)?;
    if !missing.is_empty() && !leaves_out {
        return Ok(Snapshot::Lacks(missing));
    }
    let (mut catalog, mut notes) = (Box::<Catalog>::default(), FunctionNotes::default());
    add_database(&mut rows, &mut catalog)?;
    relations::add(&mut rows, &mut catalog, printed, |_| true)?;
    expressions::add(&mut rows, &mut catalog, printed)?;
    functions::add(&mut rows, &mut catalog, printed, &mut notes)?;
    catalog.digest = catalog.definitions.digest();
    let base = begun.map(|begun| Base::of_whole(&mut rows, &catalog, notes, &missing, begun)).transpose()?.map(Box::new);
    Ok(Snapshot::Read { catalog, held: missing, base })
}

/// Of all parts of the schema.
fn schema_queries() -> impl Iterator<Item = (&'static str, &'static str)> {
    QUERIES.into_iter().chain(relations::QUERIES).chain(expressions::QUERIES).chain(functions::QUERIES)
}

const QUERIES: [(&str, &str); 4] =
    [("wanted", printed::WANTED), ("database", DATABASE), ("schemas", SCHEMAS), ("others", OTHER_OBJECTS)];

#[derive(Deserialize)]
struct DatabaseRow {
    server_version: u32,
    provider: String,
    collate: String,
    locale: Option<String>,
}

#[derive(Deserialize)]
struct NamedRow {
    kind: String,
    name: String,
    definition: String,
}

#[derive(Deserialize)]
struct SchemaRow {
    name: String,
}

// Through jsonb, since the columns have other names in other versions of PostgreSQL.
const DATABASE: &str = "
SELECT current_setting('server_version_num')::int4 AS server_version, d.datlocprovider::text AS provider, d.datcollate AS collate, to_jsonb(d)->>'datlocale' AS locale
FROM pg_database d WHERE d.datname = current_database()";

const SCHEMAS: &str = "
SELECT nspname::text AS name FROM pg_namespace
WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'shardgate') ORDER BY nspname";

fn add_database(rows: &mut Rows, catalog: &mut Catalog) -> Result<(), CatalogError> {
    for database in rows.take::<DatabaseRow>("database")? {
        catalog.definitions = Definitions::of_server(database.server_version / 10_000);
        catalog.is_collation_c = is_bytewise(&database.provider, &database.collate, database.locale.as_deref());
    }
    catalog.schemas = rows.take::<SchemaRow>("schemas")?.into_iter().map(|schema| schema.name).collect();
    for schema in &catalog.schemas {
        catalog.definitions.insert(ObjectName::new("schema", schema), "");
    }
    for other in rows.take("others")? {
        insert_named(&mut catalog.definitions, other)?;
    }
    Ok(())
}

const OTHER_OBJECTS: &str = "
SELECT 'extension' AS kind, extname::text AS name, 'version ' || extversion AS definition FROM pg_extension
UNION ALL
SELECT 'collation', format('%s.%s', n.nspname, c.collname),
       format('provider %s, locale %s, deterministic %s', c.collprovider,
              coalesce(c.collcollate, to_jsonb(c)->>'colllocale', to_jsonb(c)->>'colliculocale'), c.collisdeterministic)
FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
UNION ALL
SELECT 'event trigger', evtname::text,
       format('on %s, function %s, tags %s, enabled %s', evtevent, evtfoid::regproc, evttags, evtenabled)
FROM pg_event_trigger
WHERE NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_event_trigger'::regclass AND d.objid = pg_event_trigger.oid AND d.deptype = 'e')
UNION ALL
SELECT 'cast', format('%s as %s', format_type(castsource, NULL), format_type(casttarget, NULL)),
       format('function %s, context %s, method %s', castfunc::regprocedure, castcontext, castmethod)
FROM pg_cast
WHERE oid >= 16384
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_cast'::regclass AND d.objid = pg_cast.oid AND d.deptype = 'e')";

fn insert_named(definitions: &mut Definitions, row: NamedRow) -> Result<(), CatalogError> {
    let kind = match row.kind.as_str() {
        "extension" => "extension",
        "collation" => "collation",
        "event trigger" => "event trigger",
        "cast" => "cast",
        "operator" => "operator",
        "type" => "type",
        other => return Err(CatalogError::Unexpected { what: "kind of object", value: other.to_owned() }),
    };
    definitions.insert(ObjectName::new(kind, row.name), row.definition);
    Ok(())
}

/// Whether a collation orders by bytes. `locale` is that of the builtin provider.
pub(super) fn is_bytewise(provider: &str, collate: &str, locale: Option<&str>) -> bool {
    match provider {
        "c" => matches!(collate, "C" | "POSIX"),
        "b" => matches!(locale, Some("C" | "C.UTF-8" | "C.UTF8" | "PG_UNICODE_FAST")),
        _ => false,
    }
}

/// An oid that came as int8, since SQL's oid has no plain Rust type in the driver.
fn oid(value: i64) -> Result<Oid, CatalogError> {
    Oid::try_from(value).map_err(|_| CatalogError::Unexpected { what: "oid", value: value.to_string() })
}

fn oids(values: &[i64]) -> Result<Vec<Oid>, CatalogError> {
    values.iter().map(|value| oid(*value)).collect()
}

/// First character of a `"char"` column that came as text.
fn letter(what: &'static str, value: &str) -> Result<char, CatalogError> {
    value.chars().next().ok_or_else(|| CatalogError::Unexpected { what, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_c_posix_and_builtin_collations_are_bytewise() {
        assert!(is_bytewise("c", "C", None));
        assert!(is_bytewise("c", "POSIX", None));
        assert!(is_bytewise("b", "en_US.utf8", Some("C.UTF-8")));
        assert!(!is_bytewise("c", "C.UTF-8", None), "libc's C.UTF-8 depends on the version of libc");
        assert!(!is_bytewise("c", "en_US.UTF-8", None));
        assert!(!is_bytewise("i", "C", Some("en-US")));
    }
}
