//! Learns which oids a shard gives to the tables and types that the client knows by the home shard's.
//!
//! Read once for a shard and a version of the catalogue, on the connection that has just been checked out there, and shared by
//! all sessions. The relay and the merge translate row descriptions by it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::{Connection, ForeignOids, Nesting, OID_NAMES_SQL, OidName, OidNames, Own, Pooled};
use crate::error::PgError;
use crate::session::ddl::own_catalog;
use crate::session::gateway::MAP_DATABASE;
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId};

/// What all sessions have learnt.
#[derive(Default)]
pub struct KnownOids {
    /// The home shard's, and the version of the catalogue that they are of.
    home: Mutex<Option<(u64, Arc<OidNames>)>>,
    /// With the URL that they were read behind: a database that was dumped and restored elsewhere has others.
    shards: Mutex<HashMap<ShardId, (String, Arc<ForeignOids>)>>,
}

impl KnownOids {
    fn home(&self, version: u64) -> Option<Arc<OidNames>> {
        self.home.lock().as_ref().filter(|(known, _)| *known == version).map(|(_, names)| Arc::clone(names))
    }

    /// Of the home shard, as a catalogue of this version was read there.
    pub(in crate::session) fn keep_home(&self, version: u64, names: OidNames) {
        let mut home = self.home.lock();
        if home.as_ref().is_none_or(|(known, _)| *known <= version) {
            *home = Some((version, Arc::new(names)));
        }
    }

    fn shard(&self, shard: ShardId, url: &str, version: u64) -> Option<Arc<ForeignOids>> {
        let shards = self.shards.lock();
        let known = shards.get(&shard).filter(|(known, oids)| known == url && oids.version == version);
        known.map(|(_, oids)| Arc::clone(oids))
    }
}

impl Session {
    /// Before a connection to this shard is taken. The home shard is asked on the connection that the session has there, if it is at
    /// rest: waiting for a second one would be waiting for what others hold who wait for the same.
    pub(in crate::session) async fn learn_home_oids(&mut self, shard: &Shard) -> Result<(), Failure> {
        let version = own_catalog::shared_catalog_version(self);
        if shard.is_home || shard.id == MAP_DATABASE || self.gateway.oids.shard(shard.id, &shard.url, version).is_some() {
            return Ok(());
        }
        if self.gateway.oids.home(version).is_none() {
            let names = self.home_names().await?;
            self.gateway.oids.keep_home(version, names);
        }
        Ok(())
    }

    async fn home_names(&mut self) -> Result<OidNames, Failure> {
        let home = self.home()?;
        // What they are is for all sessions: not as a transaction sees them that has changed the schema.
        let held = self.transaction.schema_change.is_none().then(|| self.transaction.on_mut(home.id)).flatten();
        if let Some(participant) = held.filter(|participant| !participant.needs_sync && participant.connection.is_at_rest()) {
            return names(&mut participant.connection, &home.name).await;
        }
        let settings = Arc::clone(&self.login.settings);
        let mut connection = self.checkout_any(&home, &settings).await?;
        let names = names(&mut connection, &home.name).await?;
        connection.release();
        Ok(names)
    }

    /// On a connection to this shard that has nothing under way.
    pub(in crate::session) async fn learn_oids(&self, connection: &mut Pooled, shard: &Shard) -> Result<(), Failure> {
        let version = own_catalog::shared_catalog_version(self);
        if connection.oids.version == version || shard.is_home || shard.id == MAP_DATABASE {
            return Ok(());
        }
        let url = connection.pool().address.url.clone();
        if let Some(known) = self.gateway.oids.shard(shard.id, &url, version) {
            connection.oids = known;
            return Ok(());
        }
        // Another session has seen a newer catalogue: this connection goes without until it is checked out again.
        let Some(home) = self.gateway.oids.home(version) else {
            if connection.oids.version == 0 {
                connection.oids = Arc::new(ForeignOids::unknown());
            }
            return Ok(());
        };
        let oids = Arc::new(ForeignOids::between(version, &names(connection, &shard.name).await?, &home));
        self.gateway.oids.shards.lock().insert(shard.id, (url, Arc::clone(&oids)));
        connection.oids = oids;
        Ok(())
    }

    /// Those of what the open transaction has made on its shards. `version`: of the catalogue that shows it.
    pub(in crate::session) async fn learn_own_oids(&mut self, version: u64) -> Result<(), Failure> {
        let home = self.home()?.id;
        let mut shards: Vec<ShardId> =
            self.transaction.participants().iter().filter(|one| one.has_begun).map(|one| one.shard).collect();
        shards.retain(|shard| *shard != home && *shard != MAP_DATABASE);
        if shards.is_empty() {
            return Ok(());
        }
        let at_home = self.own_names(home).await?;
        for shard in shards {
            let names = self.own_names(shard).await?;
            if let Some(participant) = self.transaction.on_mut(shard) {
                participant.lacks_oids = false;
                participant.connection.oids = Arc::new(ForeignOids::between(version, &names, &at_home));
            }
        }
        Ok(())
    }

    /// Of a shard on which the transaction has changed the schema. Nobody else learns what it has made.
    pub(in crate::session) async fn learn_oids_late(&mut self, index: usize) -> Result<(), Failure> {
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(()) };
        participant.lacks_oids = false;
        let shard = self.gateway.shard(participant.shard)?;
        if shard.is_home || shard.id == MAP_DATABASE {
            return Ok(());
        }
        let home = self.home()?.id;
        let at_home = if self.transaction.index_of(home).is_some() {
            Arc::new(self.own_names(home).await?)
        } else {
            self.learn_home_oids(&shard).await?;
            match self.gateway.oids.home(own_catalog::shared_catalog_version(self)) {
                Some(names) => names,
                None => Arc::new(self.home_names().await?),
            }
        };
        let names = self.own_names(shard.id).await?;
        // No other transaction takes these for its own.
        let version = self.gateway.own_version();
        if let Some(participant) = self.transaction.on_mut(shard.id) {
            participant.connection.oids = Arc::new(ForeignOids::between(version, &names, &at_home));
        }
        Ok(())
    }

    async fn own_names(&mut self, shard: ShardId) -> Result<OidNames, Failure> {
        let index = self.transaction.index_of(shard).ok_or_else(|| PgError::internal("participant is gone"))?;
        if self.transaction.is_open() {
            self.transaction.catch_up(index, &self.gateway.registry);
        }
        self.sync(index).await?;
        let participant = self.transaction.at(index)?;
        let name = participant.connection.pool().address.name.clone();
        names(&mut participant.connection, &name).await
    }
}

async fn names(connection: &mut Connection, shard: &str) -> Result<OidNames, Failure> {
    let rows = connection
        .simple(&Own::Catalog.text(OID_NAMES_SQL))
        .await
        .map_err(|error| crate::session::settings::setting::refused(shard, error))?;
    let entry = |row: &Vec<Option<bytes::Bytes>>| match row.as_slice() {
        [Some(name), Some(oid), Some(letter)] => {
            let oid = std::str::from_utf8(oid).ok()?.parse().ok()?;
            Some((name.to_vec(), OidName { oid, nesting: Nesting::from_letter(letter) }))
        }
        _ => None,
    };
    Ok(rows.iter().filter_map(entry).collect())
}
