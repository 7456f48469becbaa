//! `shardgate.pools` and `shardgate.clients`: what only the proxy that answers knows.
//!
//! In the map database these are views over two settings that hold JSON; the proxy sets them on the connection before the
//! statement runs there. So they work in any SELECT, joined with the other relations.

use std::sync::Arc;

use serde_json::{Value, json};

use super::gateway::MAP_DATABASE;
use super::{Failure, Session};
use crate::backend::push_literal;

impl Session {
    /// Gives the map database's connection this proxy's rows of the named relations.
    pub(super) async fn publish_relations(&mut self, relations: &[String]) -> Result<(), Failure> {
        let mut sql = String::new();
        for relation in relations {
            let rows = match relation.as_str() {
                "pools" => self.gateway.pool_rows(),
                "clients" => self.gateway.clients.rows(),
                _ => continue,
            };
            sql.push_str("SELECT pg_catalog.set_config(");
            push_literal(&mut sql, &format!("shardgate_proxy.{relation}"));
            sql.push(',');
            push_literal(&mut sql, &Value::Array(rows).to_string());
            sql.push_str(",false);");
        }
        let index = self.join(MAP_DATABASE).await?;
        self.sync(index).await?;
        if let Some(participant) = self.participants.get_mut(index) {
            participant.connection.simple(&sql).await.map_err(|error| super::setting::refused("map", error))?;
        }
        Ok(())
    }
}

impl super::Gateway {
    fn pool_rows(&self) -> Vec<Value> {
        let mut pools: Vec<_> = self.pools.all().iter().filter(|pool| pool.shard != MAP_DATABASE).map(|pool| pool.describe()).collect();
        pools.sort_by(|a, b| (&a.shard, &a.user).cmp(&(&b.shard, &b.user)));
        pools
            .into_iter()
            .map(|pool| json!({"shard": pool.shard, "user": pool.user, "active": pool.active, "idle": pool.idle, "waiting": pool.waiting}))
            .collect()
    }
}

/// What `shardgate.clients` shows of the sessions of this proxy.
#[derive(Default)]
pub struct Clients {
    sessions: parking_lot::Mutex<std::collections::HashMap<i32, Arc<ClientRow>>>,
}

/// One client, as it was at login; what changes is in `state`.
pub struct ClientRow {
    pub address: String,
    pub user: String,
    pub state: parking_lot::Mutex<ClientState>,
}

#[derive(Clone, Debug, Default)]
pub struct ClientState {
    /// `active`, `idle`, `idle in transaction`, `idle in transaction (aborted)`.
    pub state: &'static str,
    pub shards: Vec<String>,
    pub pinned_by: Option<&'static str>,
}

impl Clients {
    pub fn insert(&self, id: i32, row: Arc<ClientRow>) {
        self.sessions.lock().insert(id, row);
    }

    pub fn remove(&self, id: i32) {
        self.sessions.lock().remove(&id);
    }

    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.lock().is_empty()
    }

    fn rows(&self) -> Vec<Value> {
        let sessions: Vec<Arc<ClientRow>> = self.sessions.lock().values().cloned().collect();
        sessions
            .iter()
            .map(|row| {
                let state = row.state.lock().clone();
                json!({"client": row.address, "user": row.user, "state": state.state, "shards": state.shards, "pinned_by": state.pinned_by})
            })
            .collect()
    }
}
