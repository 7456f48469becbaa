//! Schema changes that nobody works on any more: their proxy is gone, or the map was away when they ended.
//!
//! While a change is open the shards may differ, so nobody looks for drift and unknown names are looked up each time. Recovery ends
//! what the change has left on the shards; then any proxy reads what has become of them, drops from the map what is nowhere
//! any more, settles which names tables have, and closes the change. A proxy that was only frozen may still commit: it finishes its change again, which
//! tells everybody to read the schema anew.
//!
//! But for sequences and names: what the map says of a sequence that a transaction makes, or alters, and of a table that it renames, must
//! stay until that has ended. So it holds a lock on the home shard, taken before the map hears of it; as long as it does the change stays
//! open, whatever has become of its proxy. Who closes reads the map first and looks for the lock then.

use std::sync::Arc;

use crate::backend::catalog_reader::Known;
use crate::backend::schema_reader;
use crate::catalog::Catalog;
use crate::error::PgError;
use crate::session::gateway::Gateway;
use crate::shardmap::{MapSnapshot, Table};

/// (schema, name).
type Name = (String, String);

impl Gateway {
    /// Every few seconds. Does nothing while anybody works on a change, or what one has left is not known.
    pub async fn close_abandoned_changes(&self) -> Result<(), PgError> {
        if self.map.load().open_schema_changes == 0 || self.changes_schema() {
            return Ok(());
        }
        let store = self.map.store();
        let changes = store.open_schema_changes().await?;
        let own = self.map.lease().proxy_id();
        // After the list: who has begun one of them is in the reading.
        self.recovery.read_leases().await?;
        for proxy in changes.open.iter().map(|(_, proxy)| *proxy) {
            let Some(proxy) = proxy else { return Ok(()) };
            let is_gone = proxy == own || self.recovery.is_gone(proxy.0);
            if !is_gone || self.recovery.may_have_prepared(proxy.0).await {
                return Ok(());
            }
        }
        let ids: Vec<_> = changes.open.iter().map(|(id, _)| *id).collect();
        if self.numbers.are_under_way(&ids).await? {
            tracing::info!(changes = ids.len(), "schema changes of a proxy that is gone stay open: its transaction has not ended");
            return Ok(());
        }
        Box::pin(self.numbers.settle_alterations(ACTOR, &ids)).await?;
        // After the list of changes: one that has begun since then is seen when they are closed.
        self.map.refresh().await?;
        let map = self.map.snapshot();
        if self.numbers.are_under_way(&ids).await? {
            return Ok(());
        }
        self.refresh_catalog().await?;
        let home = self.catalog.load_full();
        let mut tables = self.tables_of_no_shard(&map, &home).await?;
        let renamed = map.settled(&ids, &home, |name| tables.contains(name));
        tables.retain(|(schema, name)| map.table(schema, name).is_some_and(|table| table.renamed.is_none()));
        let sequences: Vec<Name> = map.sequences.keys().filter(|name| !home.relation_names.contains_key(*name)).cloned().collect();
        if store.close_schema_changes(ACTOR, &changes, map.epoch, (&tables, &sequences), &renamed).await? {
            tracing::info!(changes = changes.open.len(), "schema changes that nobody works on are closed");
            self.map.refresh().await?;
            self.follow_schema().await?;
        }
        Ok(())
    }

    /// Declared, and on no shard any more. An error: not every shard can be read.
    async fn tables_of_no_shard(&self, map: &MapSnapshot, home: &Catalog) -> Result<Vec<Name>, PgError> {
        // One that is renamed is at home by another name.
        let is_at_home = |table: &Table| table.renamed.as_ref().is_some_and(|renamed| home.relations.contains_key(&renamed.oid));
        let tables = map.tables.values().filter(|table| !is_at_home(table));
        let mut gone: Vec<Name> = tables.map(|table| (table.schema.clone(), table.name.clone())).collect();
        gone.retain(|name| !home.relation_names.contains_key(name));
        for shard in map.shards.iter().filter(|shard| !shard.is_home && shard.state.is_ready()) {
            if gone.is_empty() {
                break;
            }
            let catalog = schema_reader::read(shard, &mut Known::default()).await?;
            gone.retain(|name| !catalog.relation_names.contains_key(name));
        }
        Ok(gone)
    }

    /// Does a session of this proxy change the schema?
    fn changes_schema(&self) -> bool {
        Arc::strong_count(&self.schema_changes) > 1
    }
}

/// As who it stands in the map's history.
const ACTOR: &str = "shardgate";
