//! Reads a shard's schema into a [`Catalog`], in a dozen queries whatever the number of tables.
//!
//! All queries see one snapshot (`REPEATABLE READ READ ONLY`), with `search_path = pg_catalog` so that every definition that
//! PostgreSQL prints names its objects with their schema and compares between servers. Left out: the schemas `pg_*`,
//! `information_schema` and `shardgate`. Members of an extension are read, since statements may use them, but compared only
//! through the extension's version. Never writes, never keeps a setting on the connection. Cancel safe: the transaction is
//! rolled back.

use sqlx::{Connection, PgConnection};

use crate::catalog::{Catalog, Definitions, ObjectName, Oid};

mod expressions;
mod functions;
mod relations;

/// Why a schema could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("cannot read the {part} of the schema")]
    Query {
        part: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("unexpected {what} {value:?} in pg_catalog")]
    Unexpected { what: &'static str, value: String },
}

impl CatalogError {
    /// A lock was not to be had within the connection's `lock_timeout`.
    pub fn is_locked(&self) -> bool {
        let Self::Query { source: sqlx::Error::Database(error), .. } = self else { return false };
        error.code().is_some_and(|code| code == "55P03")
    }
}

/// Reads everything. `version` is left at 0: who keeps catalogues numbers them.
pub async fn read(conn: &mut PgConnection) -> Result<Catalog, CatalogError> {
    let mut transaction = conn.begin().await.map_err(failed("snapshot"))?;
    let mut catalog = Catalog::default();
    for setting in SETTINGS {
        sqlx::query(setting).execute(&mut *transaction).await.map_err(failed("snapshot"))?;
    }
    read_database(&mut transaction, &mut catalog).await?;
    relations::read(&mut transaction, &mut catalog).await?;
    expressions::read(&mut transaction, &mut catalog).await?;
    functions::read(&mut transaction, &mut catalog).await?;
    // Undoes the settings too.
    transaction.rollback().await.map_err(failed("snapshot"))?;
    catalog.digest = catalog.definitions.digest();
    Ok(catalog)
}

/// How the connection prints definitions. The first works in a transaction that has not read yet; in a nested one it would be
/// refused, which is right: its snapshot would be another.
const SETTINGS: [&str; 5] = [
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL search_path = pg_catalog",
    "SET LOCAL quote_all_identifiers = off",
    "SET LOCAL DateStyle = 'ISO, MDY'",
    "SET LOCAL IntervalStyle = postgres",
];

#[derive(sqlx::FromRow)]
struct DatabaseRow {
    provider: String,
    collate: String,
    locale: Option<String>,
}

#[derive(sqlx::FromRow)]
struct NamedRow {
    kind: String,
    name: String,
    definition: String,
}

async fn read_database(conn: &mut PgConnection, catalog: &mut Catalog) -> Result<(), CatalogError> {
    // Through jsonb, since the columns have other names in other versions of PostgreSQL.
    let database: DatabaseRow = sqlx::query_as(
        "SELECT d.datlocprovider::text AS provider, d.datcollate AS collate, to_jsonb(d)->>'datlocale' AS locale
         FROM pg_database d WHERE d.datname = current_database()",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(failed("database"))?;
    catalog.is_collation_c = is_bytewise(&database.provider, &database.collate, database.locale.as_deref());

    catalog.schemas = sqlx::query_scalar(
        "SELECT nspname::text FROM pg_namespace
         WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'shardgate') ORDER BY nspname",
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(failed("schemas"))?;
    for schema in &catalog.schemas {
        catalog.definitions.insert(ObjectName::new("schema", schema), "");
    }

    let others: Vec<NamedRow> =
        sqlx::query_as(OTHER_OBJECTS).fetch_all(&mut *conn).await.map_err(failed("extensions and collations"))?;
    for other in others {
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

fn failed(part: &'static str) -> impl Fn(sqlx::Error) -> CatalogError {
    move |source| CatalogError::Query { part, source }
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
