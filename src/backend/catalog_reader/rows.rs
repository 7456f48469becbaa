//! How the reader's queries run, and the rows that they give.
//!
//! All parts of the schema come by one statement, and so by one snapshot at every isolation level. It runs on a connection of the
//! reader's own, or on one that has a transaction open: there the reader sees what that transaction has changed.

use std::collections::HashMap;
use std::error::Error;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row, ValueRef};

use super::changes::{self, Since};
use super::{CatalogError, schema_queries};
use crate::backend::{Connection, ConnectionError, Own};

/// A connection over which a schema is read.
pub trait CatalogSource: Send {
    /// Begins what `END` undoes: the settings of the reader.
    const BEGIN: &'static str;
    const END: &'static str;
    /// What it reads is what others read.
    const SEES_COMMITTED: bool;

    /// Runs several statements as one message. Gives the first column of their rows, as text.
    fn run(&mut self, text: String) -> impl Future<Output = Result<Vec<Bytes>, SourceError>> + Send;
}

/// What the connection, or the server, has to say.
#[derive(Debug)]
pub struct SourceError {
    /// The server's; `None`: the connection does not work.
    pub sqlstate: Option<String>,
    pub cause: Box<dyn Error + Send + Sync>,
}

impl SourceError {
    pub(super) fn of(self, part: &'static str) -> CatalogError {
        CatalogError::Query { part, sqlstate: self.sqlstate, source: self.cause }
    }
}

/// Of the reader's own. Outside of a transaction.
impl CatalogSource for PgConnection {
    const BEGIN: &'static str = "BEGIN READ ONLY";
    const END: &'static str = "ROLLBACK";
    const SEES_COMMITTED: bool = true;

    async fn run(&mut self, text: String) -> Result<Vec<Bytes>, SourceError> {
        let failed = |error: sqlx::Error| SourceError {
            sqlstate: error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned()),
            cause: Box::new(error),
        };
        let rows = self.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await.map_err(failed)?;
        let first = |row: &sqlx::postgres::PgRow| {
            let value = row.try_get_raw(0)?;
            if value.is_null() {
                return Ok(Bytes::new());
            }
            value.as_bytes().map(Bytes::copy_from_slice).map_err(sqlx::Error::Decode)
        };
        rows.iter().map(first).collect::<Result<_, _>>().map_err(failed)
    }
}

/// One with an open transaction, which goes on as it was.
pub struct InTransaction<'c>(pub &'c mut Connection);

impl CatalogSource for InTransaction<'_> {
    const BEGIN: &'static str = "SAVEPOINT shardgate_catalog";
    const END: &'static str = "ROLLBACK TO SAVEPOINT shardgate_catalog; RELEASE SAVEPOINT shardgate_catalog";
    const SEES_COMMITTED: bool = false;

    async fn run(&mut self, text: String) -> Result<Vec<Bytes>, SourceError> {
        let rows = self.0.simple(&Own::Catalog.text(&text)).await.map_err(|error| SourceError {
            sqlstate: match &error {
                ConnectionError::Refused { sqlstate, .. } => Some(sqlstate.clone()),
                _ => None,
            },
            cause: Box::new(error),
        })?;
        Ok(rows.into_iter().map(|row| row.into_iter().next().flatten().unwrap_or_default()).collect())
    }
}

/// How definitions are printed. The statement is large and its rows are few: neither compiled nor run in parallel, which would
/// change the order of rows.
const SETTINGS: &str = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL client_encoding = 'UTF8'; \
                        SET LOCAL quote_all_identifiers = off; SET LOCAL DateStyle = 'ISO, MDY'; \
                        SET LOCAL IntervalStyle = postgres; SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather = 0";

/// Runs it under the reader's settings. Not cancel safe: the connection may be left in a transaction.
pub(super) async fn run<S: CatalogSource>(
    source: &mut S,
    part: &'static str,
    settings: &str,
    query: &str,
) -> Result<Vec<Bytes>, CatalogError> {
    let failed = |error: SourceError| error.of(part);
    let run = source.run(format!("{}; {SETTINGS}; {settings}; {query}; {}", S::BEGIN, S::END)).await;
    match run {
        Err(SourceError { sqlstate: Some(sqlstate), cause }) => {
            source.run(S::END.to_owned()).await.map_err(failed)?;
            Err(CatalogError::Query { part, sqlstate: Some(sqlstate), source: cause })
        }
        run => run.map_err(failed),
    }
}

/// What does not belong to a unit: when it has changed, all is read.
const WITHOUT_UNITS: [&str; 6] = ["database", "schemas", "others", "operators", "equalities", "implicit_casts"];

/// Rows of several queries, by their names.
pub(super) struct Rows(HashMap<String, Vec<Bytes>>);

impl Rows {
    /// Which texts are to be printed.
    pub async fn read_wanted<S: CatalogSource>(source: &mut S) -> Result<Self, CatalogError> {
        let wanted = schema_queries().filter(|(name, _)| *name == "wanted");
        let queries = wanted.map(|(name, query)| (name, changes::of_units(query, None))).collect();
        Self::read(source, &joined("", queries)).await
    }

    /// Everything. `base`: with what the next reading compares with; its bound.
    pub async fn read_whole<S: CatalogSource>(source: &mut S, base: Option<i64>) -> Result<Self, CatalogError> {
        let mut queries: Vec<(&str, String)> =
            schema_queries().map(|(name, query)| (name, changes::of_units(query, None))).collect();
        if let Some(bound) = base {
            queries.extend([
                ("state", changes::state(None)),
                ("marks", changes::marks(None, bound)),
                ("objects", changes::object_lists(None)),
            ]);
        }
        let ctes = if base.is_some() { changes::whole() } else { String::new() };
        Self::read(source, &joined(&ctes, queries)).await
    }

    /// What has changed.
    pub async fn read_changes<S: CatalogSource>(source: &mut S, since: &Since) -> Result<Self, CatalogError> {
        let query = if S::SEES_COMMITTED { since.execute() } else { Self::changes_query(since) };
        Self::read(source, &query).await
    }

    pub fn changes_query(since: &Since) -> String {
        let of_units = schema_queries().filter(|(name, _)| !WITHOUT_UNITS.contains(name));
        let mut queries: Vec<(&str, String)> =
            of_units.map(|(name, query)| (name, changes::of_units(query, Some(since)))).collect();
        queries.extend([
            ("state", changes::state(Some(since))),
            ("marks", changes::marks(Some(since), 0)),
            ("objects", changes::object_lists(Some(since))),
            ("counts", changes::COUNTS.to_owned()),
            ("units", changes::UNIT_LIST.to_owned()),
        ]);
        joined(&changes::since(since), queries)
    }

    /// All from one snapshot.
    async fn read<S: CatalogSource>(source: &mut S, query: &str) -> Result<Self, CatalogError> {
        let mut rows: HashMap<String, Vec<Bytes>> = HashMap::new();
        for row in run(source, "schema", "SET LOCAL plan_cache_mode = force_generic_plan", query).await? {
            let end = row.iter().position(|byte| *byte == b' ').ok_or_else(|| unexpected("row", &row))?;
            let name = String::from_utf8_lossy(row.get(..end).unwrap_or_default()).into_owned();
            rows.entry(name).or_default().push(row.slice(end + 1..));
        }
        Ok(Self(rows))
    }

    pub fn one<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T, CatalogError> {
        self.take(name)?.pop().ok_or_else(|| unexpected(name, b""))
    }

    pub fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Vec<T>, CatalogError> {
        let rows = self.0.remove(name).unwrap_or_default();
        rows.iter().map(|row| serde_json::from_slice(row).map_err(|_| unexpected(name, row))).collect()
    }
}

fn joined(ctes: &str, queries: Vec<(&str, String)>) -> String {
    let branch = |(name, query): (&str, String)| format!("SELECT '{name} ' || row_to_json(q)::text FROM ({query}\n) q");
    format!("{ctes}\n{}", queries.into_iter().map(branch).collect::<Vec<_>>().join("\nUNION ALL "))
}

fn unexpected(what: &'static str, row: &[u8]) -> CatalogError {
    CatalogError::Unexpected { what, value: String::from_utf8_lossy(row).into_owned() }
}
