//! The shards' schema as this proxy knows it: read from the home shard, kept as one immutable [`Catalog`].
//!
//! A schema change through a proxy is announced in the map database before the first shard is touched and finished after the
//! last, so every proxy reads the catalogue anew and an interrupted change is seen. A table that was dropped leaves the map;
//! renaming a distributed one is refused. What was changed behind the proxy's back is found by a slow look.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use super::gateway::Gateway;
use super::{Failure, Session};
use crate::backend::catalog_reader;
use crate::catalog::{Catalog, Oid};
use crate::error::{PgError, SqlState};
use crate::shardmap::Shard;

/// For the connection, and for the dozen queries.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

impl Gateway {
    /// Reads the home shard's schema; replaces the catalogue when it differs. One reader at a time. Cancel safe.
    pub async fn refresh_catalog(&self) -> Result<(), PgError> {
        let _one_at_a_time = self.refreshing.lock().await;
        let Some(home) = self.map.snapshot().shards.iter().find(|shard| shard.is_home).cloned() else { return Ok(()) };
        let mut catalog = tokio::time::timeout(READ_TIMEOUT, read(&home))
            .await
            .map_err(|_| unreadable(&home).with_detail(format!("There was no answer within {} s.", READ_TIMEOUT.as_secs())))??;
        let known = self.catalog.load_full();
        if catalog.digest == known.digest && same_oids(&catalog, &known) {
            return Ok(());
        }
        catalog.version = known.version + 1;
        let catalog = Arc::new(catalog);
        self.catalog.store(Arc::clone(&catalog));
        // A relation for operators: it may be behind.
        if let Err(error) = self.control.publish_home_tables(&catalog).await {
            tracing::debug!(%error, "shardgate.tables could not be brought up to date");
        }
        Ok(())
    }

    /// Tables that were dropped on the shards leave the map.
    async fn follow_tables(&self, actor: &str, before: &Catalog) -> Result<(), PgError> {
        let after = self.catalog.load_full();
        let map = self.map.snapshot();
        let store = self.map.store();
        let mut has_changed = false;
        for relation in before.relations.values().filter(|relation| map.table(&relation.schema, &relation.name).is_some()) {
            let old = (relation.schema.as_str(), relation.name.as_str());
            let is_there = after.relations.contains_key(&relation.oid) || after.resolve(Some(old.0), old.1, &[]).is_some();
            if !is_there {
                has_changed |= store.drop_table(actor, old.0, old.1).await?;
            }
        }
        drop(map);
        if has_changed {
            self.map.refresh().await?;
        }
        Ok(())
    }
}

impl Session {
    /// Says in the map database that the shards' schema is about to change. Once a transaction.
    pub(super) async fn announce_schema_change(&mut self, tag: &str) -> Result<(), Failure> {
        if self.schema_change.is_none() {
            let change = self.gateway.map.store().begin_schema_change(&self.identity.user, tag).await.map_err(PgError::from)?;
            self.schema_change = Some((change, self.gateway.catalog.load_full()));
        }
        Ok(())
    }

    /// The catalogue is read anew, here and by the other proxies, before the client hears that the change is done. After a
    /// rollback too: nobody has to know which it was.
    pub(super) async fn finish_schema_change(&mut self) -> Result<(), PgError> {
        let Some((change, before)) = self.schema_change.take() else { return Ok(()) };
        self.gateway.refresh_catalog().await?;
        self.gateway.follow_tables(&self.identity.user, &before).await?;
        self.gateway.map.store().finish_schema_change(&self.identity.user, change).await?;
        self.gateway.map.refresh().await?;
        Ok(())
    }
}

async fn read(home: &Shard) -> Result<Catalog, PgError> {
    let options = PgConnectOptions::from_str(&home.url).map_err(|_| unreadable(home).with_detail("Its URL cannot be used."))?;
    let failed = |error: &dyn std::error::Error| {
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        unreadable(home).with_detail(format!("{error}{source}"))
    };
    let mut connection =
        PgConnection::connect_with(&options.application_name("shardgate")).await.map_err(|error| failed(&error))?;
    let catalog = catalog_reader::read(&mut connection).await.map_err(|error| failed(&error))?;
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "connection for the schema not closed in order");
    }
    Ok(catalog)
}

fn unreadable(home: &Shard) -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("the schema of the home shard \"{}\" cannot be read", home.name))
}

/// The digest is of definitions: a table that was made anew alike has another oid.
fn same_oids(one: &Catalog, other: &Catalog) -> bool {
    fn same<V>(one: &HashMap<Oid, V>, other: &HashMap<Oid, V>) -> bool {
        one.len() == other.len() && one.keys().all(|oid| other.contains_key(oid))
    }
    same(&one.relations, &other.relations) && same(&one.functions, &other.functions)
}
