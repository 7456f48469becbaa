//! The transactions over several shards that this process runs: their names, and which are under way right now.
//!
//! Recovery leaves alone what is under way here. A transaction leaves the list when its commit ends, however it ends: when its
//! session is gone, what it left behind is recovery's.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::transaction_id::{Secret, TransactionId};
use crate::failpoint::Failpoints;

/// One a process.
pub struct Registry {
    /// The same for all proxies of the cluster.
    cluster: String,
    /// Of this process: its proxy's id, so that its lease tells whether it lives.
    incarnation: i64,
    number: AtomicU64,
    active: Mutex<HashSet<TransactionId>>,
    pub(crate) failpoints: Failpoints,
}

/// A transaction that is under way; dropping it ends that.
pub struct Active {
    pub id: TransactionId,
    pub secret: Secret,
    registry: Arc<Registry>,
}

impl Registry {
    pub fn new(cluster: String, incarnation: i64) -> Self {
        Self {
            cluster,
            incarnation,
            number: AtomicU64::new(1),
            active: Mutex::default(),
            failpoints: Failpoints::from_environment(),
        }
    }

    pub fn begin(self: &Arc<Self>, decider_uuid: &str) -> Active {
        let secret = Secret::random();
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let id = TransactionId::new(&self.cluster, decider_uuid, self.incarnation, number, &secret);
        self.active.lock().insert(id.clone());
        Active { id, secret, registry: Arc::clone(self) }
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn incarnation(&self) -> i64 {
        self.incarnation
    }

    pub fn is_active(&self, id: &TransactionId) -> bool {
        self.active.lock().contains(id)
    }
}

impl Active {
    pub fn failpoints(&self) -> &Failpoints {
        &self.registry.failpoints
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.registry.active.lock().remove(&self.id);
    }
}
