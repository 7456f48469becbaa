//! Snapshots that one session gives to others of this proxy: `pg_export_snapshot()` and `SET TRANSACTION SNAPSHOT`, as `pg_dump -j`
//! uses them.
//!
//! A common snapshot ([`super::common_snapshot`]) is one of each shard; exported, each shard has given it a name. Here these go by one
//! name of the proxy's, with the map by which they were taken. It is known as long as the transaction that has exported it is open.
//!
//! ```text
//!   exporter: BEGIN READ ONLY … common snapshot ─ pg_export_snapshot() on each shard ─► name ─► { map, shard ↦ its name }
//!   importer: BEGIN READ ONLY … SET TRANSACTION SNAPSHOT name ─► the same on each shard, each with its own name
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::common_snapshot::CommonSnapshot;
use super::replay::hidden_statement;
use crate::backend::Own;
use crate::catalog::quoted_literal;
use crate::error::{PgError, SqlState};
use crate::session::commands::question;
use crate::session::{Failure, Session};
use crate::shardmap::{MapSnapshot, ShardId};
use crate::wire::originate;

/// Of all sessions of this proxy, by the name that the client was told.
#[derive(Default)]
pub struct ExportedSnapshots {
    by_name: Mutex<HashMap<String, Arc<Exported>>>,
}

#[derive(Debug)]
struct Exported {
    map: Arc<MapSnapshot>,
    /// What each shard calls it.
    names: Vec<(ShardId, String)>,
}

/// Its transaction is open. Dropped with it.
pub(in crate::session) struct Export {
    all: Arc<ExportedSnapshots>,
    name: String,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.all.by_name.lock().remove(&self.name);
    }
}

impl ExportedSnapshots {
    fn add(self: &Arc<Self>, exported: Exported) -> Export {
        let mut by_name = self.by_name.lock();
        loop {
            let name = format!("{:08X}-{:08X}-1", rand::random::<u32>(), rand::random::<u32>());
            if !by_name.contains_key(&name) {
                by_name.insert(name.clone(), Arc::new(exported));
                return Export { all: Arc::clone(self), name };
            }
        }
    }

    fn find(&self, name: &str) -> Option<Arc<Exported>> {
        self.by_name.lock().get(name).cloned()
    }
}

impl Session {
    /// `pg_export_snapshot()`: the name of this transaction's snapshot.
    pub(in crate::session) async fn export_snapshot(&mut self) -> Result<String, Failure> {
        if !self.transaction.is_open() || !self.transaction.savepoints.is_empty() {
            return Err(not_exported().into());
        }
        let map = self.gateway.map.snapshot();
        let shards = match map.shards.len() {
            1 => self.online_shards(),
            _ => Box::pin(self.share_snapshot()).await?,
        };
        let map = self.transaction.snapshots.map().map_or(map, Arc::clone);
        let mut names = Vec::with_capacity(shards.len());
        for shard in &shards {
            self.join(shard.id).await?;
            let rows =
                Box::pin(question::ask_question(self, shard, &Own::Catalog.text("SELECT pg_catalog.pg_export_snapshot()"))).await?;
            let name = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
            let name = name.ok_or_else(|| PgError::internal("a shard has not named its snapshot"))?;
            names.push((shard.id, String::from_utf8_lossy(&name).into_owned()));
        }
        let export = self.gateway.exported_snapshots.add(Exported { map, names });
        let name = export.name.clone();
        self.transaction.exports.push(export);
        Ok(name)
    }

    /// SET TRANSACTION SNAPSHOT.
    pub(in crate::session) async fn import_snapshot(&mut self, name: &str) -> Result<(), Failure> {
        if !self.transaction.is_open() {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "SET TRANSACTION can only be used in transaction blocks");
            originate::command_complete(&mut self.client.output, "SET");
            return Ok(());
        }
        if self.transaction.participants().iter().any(|participant| participant.has_begun)
            || !self.transaction.savepoints.is_empty()
        {
            let message = "SET TRANSACTION SNAPSHOT must be called before any query";
            return Err(PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message).into());
        }
        if !self.has_snapshot() {
            let message = "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ";
            return Err(PgError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        let Some(exported) = self.gateway.exported_snapshots.find(name) else {
            return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid snapshot identifier: \"{name}\""))
                .with_detail("No open transaction of this proxy has exported it by pg_export_snapshot().")
                .with_hint("The sessions that share a snapshot have to be of one proxy.")
                .into());
        };
        let is_several = exported.names.len() > 1;
        if is_several && !self.is_repeatable_read_only() {
            return Err(PgError::unsupported(
                "a snapshot of several shards is not supported in this transaction",
                "It serves transactions that are REPEATABLE READ and READ ONLY.",
                "Begin with BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY.",
            )
            .into());
        }
        for (shard, name) in &exported.names {
            let index = self.attach(*shard).await?;
            self.transaction.begin_on(index, &self.gateway.registry);
            let Some(participant) = self.transaction.participants_mut().get_mut(index) else { continue };
            let text = format!("SET TRANSACTION SNAPSHOT {}", quoted_literal(name));
            hidden_statement(participant, &Own::Transaction.text(&text));
            self.transaction.catch_up(index, &self.gateway.registry);
            self.sync(index).await?;
        }
        self.transaction.snapshots.take_all(Arc::clone(&exported.map), exported.names.iter().map(|(shard, _)| *shard));
        if is_several {
            self.transaction.common_snapshot = CommonSnapshot::Taken;
        }
        originate::command_complete(&mut self.client.output, "SET");
        Ok(())
    }
}

pub(super) fn not_exported() -> PgError {
    PgError::unsupported(
        "pg_export_snapshot() is not supported in this transaction",
        "A snapshot of all shards can be exported where the transaction is REPEATABLE READ and READ ONLY, and has not read on one shard alone.",
        "Call it first in a transaction that begins with BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY.",
    )
}
