//! ALTER TABLE … RENAME and SET SCHEMA of sharded and reference tables, and RENAME of columns of their keys: what the map knows by name.
//!
//! ```text
//! home shard: held open ─► map: all names ─► every proxy works by that ─► shards: ALTER … COMMIT ─► map: what is not there is forgotten
//! ```
//! The shards commit at once, and statements by others that mention one of the names wait for the end, as for any definition that changes.
//! Between the shards' commit and the map's last word each name is placed by the map, so that none is taken for a table of the home
//! shard, nor a column of the key for another one. What a savepoint takes back leaves a name that nobody has, until the end. If the proxy
//! fails, another one ends it ([`super::abandoned`]); if it was only frozen, the lock on the home shard keeps the names.
//!
//! A statement that was planned before could run after it, when something else has the old name: so none may be left.

use std::sync::Arc;
use std::time::Duration;

use super::{every_shard, redefined};
use crate::catalog::{Oid, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::session::gateway::Gateway;
use crate::session::sequences::altered;
use crate::session::{Failure, Session};
use crate::shardmap::{ProxyBehind, SchemaChangeId, Shard, Silent, TableName};
use crate::sql::analysis::DistributedRename;
use crate::sql::ddl::ddl_locks::TableLocks;
use crate::sql::ddl::redefined::Redefined;

/// In the open transaction, in a change of the schema that was announced.
pub(super) struct Renaming<'s> {
    pub session: &'s mut Session,
    pub rename: &'s DistributedRename,
}

impl Renaming<'_> {
    pub async fn run(
        mut self,
        redefines: &Redefined,
        locks: Option<&TableLocks>,
        shards: &[Arc<Shard>],
        text: &str,
    ) -> Result<(), Failure> {
        let oid = self.look().await?;
        match self.rename {
            DistributedRename::Numbered { .. } => redefined::announce_redefinition(self.session, redefines).await?,
            DistributedRename::Table { .. } | DistributedRename::KeyColumn { .. } => self.announce(redefines, oid).await?,
        }
        match locks.filter(|_| shards.len() > 1) {
            Some(locks) => every_shard::run_locked(self.session, shards, locks, text).await,
            None => every_shard::run_on_each(self.session, shards, text).await,
        }
    }

    /// At what the home shard has, in PostgreSQL's words where it would refuse: what it refuses must not have come to the map.
    async fn look(&mut self) -> Result<Oid, Failure> {
        let (table, is_taken, taken) = match self.rename {
            DistributedRename::Table { from, to } => (from, is_relation(to), already_exists(to)),
            DistributedRename::KeyColumn { table, to, .. } => (table, is_column(table, to), has_column(table, to)),
            DistributedRename::Numbered { table } => (table, "false".to_owned(), already_exists(table)),
        };
        let found = format!(
            "SELECT c.oid::pg_catalog.int8, pg_catalog.pg_has_role(c.relowner, 'USAGE'), {is_taken} \
             FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) {}",
            as_regclass(table)
        );
        let found = self.rows(&found).await?;
        let Some([Some(oid), Some(is_owner), Some(is_taken)]) = found.first().map(Vec::as_slice) else {
            return Err(PgError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", table.1)).into());
        };
        let oid = oid.parse().map_err(|_| PgError::internal("an oid is no number"))?;
        match (is_owner.as_str(), is_taken.as_str()) {
            ("t", "f") => {}
            ("t", _) => return Err(taken.into()),
            (_, _) => {
                let message = format!("must be owner of table {}", table.1);
                return Err(PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into());
            }
        }
        let changes_schema = match self.rename {
            DistributedRename::Table { from, to } => from.0 != to.0,
            DistributedRename::Numbered { .. } => true,
            DistributedRename::KeyColumn { .. } => false,
        };
        if changes_schema {
            self.check_sequences(table).await?;
        }
        Ok(oid)
    }

    /// PostgreSQL moves them with their table.
    async fn check_sequences(&mut self, table: &TableName) -> Result<(), Failure> {
        let owned = self.rows(&owned_sequences(table)).await?;
        let map = self.session.gateway.map.snapshot();
        let owned = owned.into_iter().filter_map(|row| <[Option<String>; 2]>::try_from(row).ok());
        let mut owned = owned.filter_map(|[schema, name]| schema.zip(name));
        match owned.find(|sequence| map.sequences.contains_key(sequence)) {
            None => Ok(()),
            Some((schema, name)) => Err(PgError::unsupported(
                format!("table \"{}\" cannot be moved to another schema with sequence \"{name}\"", table.1),
                "It is a sequence of the whole cluster, and the shard map knows it by its schema and name.",
                format!(
                    "A sequence that belongs to no column stays where it is: ALTER SEQUENCE {} OWNED BY NONE. That of an identity column \
                     cannot be parted from it.",
                    quoted_name(&schema, &name)
                ),
            )
            .into()),
        }
    }

    async fn announce(&mut self, redefines: &Redefined, oid: Oid) -> Result<(), Failure> {
        let change = altered::hold_change(self.session).await?;
        let actor = self.session.login.identity.user.clone();
        redefined::redefine(self.session, redefines).await?;
        if let Some(announced) = &mut self.session.transaction.schema_change {
            // First: what the map has not answered it may have done.
            announced.renames = true;
        }
        let gateway = Arc::clone(&self.session.gateway);
        let store = gateway.map.store();
        let begun = match self.rename {
            DistributedRename::Table { from, to } => store.begin_rename(&actor, change, (from, to), oid).await,
            DistributedRename::KeyColumn { table, place, to } => {
                store.begin_key_rename(&actor, change, table, oid, (*place, to)).await
            }
            DistributedRename::Numbered { .. } => Ok(()),
        };
        begun.map_err(PgError::from)?;
        let epoch = gateway.map.refresh().await.map_err(PgError::from)?;
        let (patience, cancel) = (redefined::patience(self.session), Arc::clone(&self.session.cancel));
        let own = self.session.transaction.pinned_map.get();
        let behind = tokio::select! {
            biased;
            behind = gateway.map.reached_by_all(epoch, own, Silent::Awaited, PATIENCE) => behind.map_err(PgError::from)?,
            failure = patience.ends(&cancel) => return Err(failure.into()),
        };
        if behind.is_empty() { Ok(()) } else { Err(still_planned(&behind).into()) }
    }

    async fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let home = self.session.home()?;
        Ok(altered::run_aside(self.session, &home, sql).await?.rows)
    }
}

impl Gateway {
    /// The transaction has ended, and the catalogue was read after it.
    pub(super) async fn settle_renames(&self, actor: &str, change: SchemaChangeId) -> Result<(), PgError> {
        self.map.refresh().await?;
        let home = self.catalog.load_full();
        let settled = self.map.snapshot().settled(&[change], &home, |name| !home.relation_names.contains_key(name));
        self.map.store().settle_renames(actor, &[change], &settled).await?;
        Ok(())
    }
}

fn as_regclass((schema, name): &TableName) -> String {
    format!("pg_catalog.to_regclass({})", quoted_literal(&quoted_name(schema, name)))
}

fn is_relation(name: &TableName) -> String {
    format!("{} IS NOT NULL", as_regclass(name))
}

fn is_column(table: &TableName, column: &str) -> String {
    format!(
        "EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid OPERATOR(pg_catalog.=) {} \
         AND a.attname OPERATOR(pg_catalog.=) {}::pg_catalog.name AND NOT a.attisdropped)",
        as_regclass(table),
        quoted_literal(column)
    )
}

fn owned_sequences(table: &TableName) -> String {
    format!(
        "SELECT n.nspname, s.relname FROM pg_catalog.pg_depend d \
         JOIN pg_catalog.pg_class s ON s.oid OPERATOR(pg_catalog.=) d.objid \
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) s.relnamespace \
         WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refobjid OPERATOR(pg_catalog.=) {} \
         AND d.deptype OPERATOR(pg_catalog.=) ANY ('{{a,i}}'::pg_catalog.\"char\"[]) \
         AND s.relkind OPERATOR(pg_catalog.=) 'S'::pg_catalog.\"char\"",
        as_regclass(table)
    )
}

fn already_exists((_, name): &TableName) -> PgError {
    PgError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

fn has_column((_, table): &TableName, column: &str) -> PgError {
    PgError::new(SqlState::DUPLICATE_COLUMN, format!("column \"{column}\" of relation \"{table}\" already exists"))
}

fn still_planned(behind: &[ProxyBehind]) -> PgError {
    let proxies: Vec<String> = behind.iter().map(|proxy| format!("{} ({})", proxy.id, proxy.address)).collect();
    PgError::new(SqlState::OBJECT_IN_USE, "statements that were planned before the table is renamed may still run")
        .with_detail(format!(
            "Proxies that have not answered them all, or are not heard of: {}. Nothing was changed.",
            proxies.join(", ")
        ))
        .with_hint("Repeat it when they have ended; SELECT * FROM shardgate.proxies shows who follows.")
}

pub(super) fn on_one_shard() -> PgError {
    PgError::unsupported(
        "a sharded or reference table, or a column of its key, cannot be renamed on one shard",
        "The shard map knows it by one name.",
        "Send it without a routing hint.",
    )
}

pub(super) fn not_at_once() -> PgError {
    PgError::unsupported(
        "a sharded or reference table, or a column of its key, cannot be renamed here",
        "It has one name on all shards, and this transaction cannot be committed on all of them at once.",
        "Set max_prepared_transactions on every shard, and cross_shard.writes = \"2pc\".",
    )
}

/// Longer than a proxy takes to tell what it has reached.
const PATIENCE: Duration = Duration::from_secs(10);
