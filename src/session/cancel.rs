//! Cancel requests: from the key that a client was given to the backends that work for it right now.
//!
//! A cancel request names a backend process, not a statement, and arrives late: it can hit whatever the process does next.
//! Hence: it is sent only to backends that the session holds at that moment, and a backend that was sent one is never given
//! back to the pool, it is closed. A session that waits for a connection stops waiting.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::commands::clients::Backend;
use super::stop::StopSignal;
use crate::backend::{CANCEL_TIMEOUT, CancelHandle, Connection};
use crate::telemetry::CancelOutcome;

/// The sessions of this proxy by the process id that their clients were told. It names one session alone, as everything else that is
/// known of a session goes by it.
#[derive(Default)]
pub struct CancelRegistry {
    sessions: Mutex<HashMap<i32, Registered>>,
}

struct Registered {
    secret: i32,
    target: Arc<CancelTarget>,
}

/// What BackendKeyData told the client: process id and secret.
pub type CancelKey = (i32, i32);

/// What one session runs.
#[derive(Default)]
pub struct CancelTarget {
    state: Mutex<State>,
    /// The proxy drains: between transactions the session is to end.
    pub stop: StopSignal,
    /// The drain's deadline: the session is to end, whatever it does.
    pub abort: StopSignal,
    /// The session waits for its client, and nothing that it does can still succeed or fail.
    is_at_rest: AtomicBool,
    /// Shards agree on a commit: it comes to its end whatever becomes of the client.
    is_committing: AtomicBool,
    /// The client has gone: nothing that it has sent is begun any more.
    has_left: AtomicBool,
    /// The session has ended.
    gone: CancellationToken,
    /// Told when a cancel request finds the session waiting for a connection.
    stop_waiting: Notify,
}

#[derive(Default)]
struct State {
    running: SmallVec<[Arc<CancelHandle>; 2]>,
    /// Backends that a cancel request was sent to.
    cancelled: Vec<Arc<CancelHandle>>,
}

impl CancelRegistry {
    /// A key with a process id that no other session has.
    pub fn register(&self, target: &Arc<CancelTarget>) -> CancelKey {
        self.register_drawn(target, || (rand::random::<i32>() & i32::MAX, rand::random::<i32>()))
    }

    fn register_drawn(&self, target: &Arc<CancelTarget>, mut draw: impl FnMut() -> CancelKey) -> CancelKey {
        let mut sessions = self.sessions.lock();
        loop {
            let (process_id, secret) = draw();
            if process_id != 0 && !sessions.contains_key(&process_id) {
                sessions.insert(process_id, Registered { secret, target: Arc::clone(target) });
                return (process_id, secret);
            }
        }
    }

    pub fn remove(&self, key: CancelKey) {
        if let Some(known) = self.sessions.lock().remove(&key.0) {
            known.target.gone.cancel();
        }
    }

    /// As `pg_terminate_backend`: what it runs is cancelled, and it ends. `None`: not within `patience`; with none it is not waited for.
    pub async fn end_session(&self, session: i32, patience: Duration) -> Option<()> {
        let Some(target) = self.sessions.lock().get(&session).map(|known| Arc::clone(&known.target)) else { return Some(()) };
        target.abort.set();
        if patience.is_zero() { Some(()) } else { timeout(patience, target.gone.cancelled()).await.ok() }
    }

    /// The backends that work for sessions right now.
    pub fn backends(&self) -> Vec<(Backend, i32)> {
        let sessions = self.sessions.lock();
        let of_session = |(session, known): (&i32, &Registered)| {
            let running = known.target.state.lock().running.clone();
            running.into_iter().map(|handle| (Backend::of(&handle), *session)).collect::<Vec<_>>()
        };
        sessions.iter().flat_map(of_session).collect()
    }

    /// The proxy drains: idle sessions are to end.
    pub fn stop_all(&self) {
        let sessions: Vec<Arc<CancelTarget>> = self.sessions.lock().values().map(|known| Arc::clone(&known.target)).collect();
        sessions.iter().for_each(|session| session.stop.set());
    }

    /// The time of the drain is over: all sessions are to end.
    pub fn abort_all(&self) {
        let sessions: Vec<Arc<CancelTarget>> = self.sessions.lock().values().map(|known| Arc::clone(&known.target)).collect();
        sessions.iter().for_each(|session| session.abort.set());
    }

    /// Every session whose statement runs is to look whether its client is still there.
    pub fn look_for_clients(&self) {
        let sessions: Vec<Arc<CancelTarget>> = self.sessions.lock().values().map(|known| Arc::clone(&known.target)).collect();
        sessions.iter().filter(|session| !session.is_at_rest()).for_each(|session| session.abort.look());
    }

    /// As a cancel request of the client would; `session` is the process id that it was told.
    pub async fn cancel_session(&self, session: i32) {
        let target = self.sessions.lock().get(&session).map(|known| Arc::clone(&known.target));
        if let Some(target) = target {
            target.cancel().await;
        }
    }

    /// Forwards a cancel request to every backend that works for the session. An unknown key is ignored, as in PostgreSQL.
    pub async fn cancel(&self, (process_id, secret): CancelKey) -> CancelOutcome {
        match self.find(process_id, secret) {
            Some(target) => target.cancel().await,
            None => CancelOutcome::Unknown,
        }
    }

    fn find(&self, process_id: i32, secret: i32) -> Option<Arc<CancelTarget>> {
        let sessions = self.sessions.lock();
        sessions.get(&process_id).filter(|known| known.secret == secret).map(|known| Arc::clone(&known.target))
    }
}

impl CancelTarget {
    /// The session begins to wait for this backend.
    pub fn started(&self, connection: &Connection) {
        let Some(handle) = &connection.cancel_handle else { return };
        let mut state = self.state.lock();
        if state.running.is_empty() || !state.running.iter().any(|known| Arc::ptr_eq(known, handle)) {
            state.running.push(Arc::clone(handle));
        }
    }

    /// This backend works for the session no more: before it is somebody else's.
    pub fn ended(&self, connection: &Connection) {
        let Some(handle) = &connection.cancel_handle else { return };
        self.state.lock().running.retain(|known| !Arc::ptr_eq(known, handle));
    }

    #[inline]
    pub fn rest(&self, is_at_rest: bool) {
        self.is_at_rest.store(is_at_rest, Ordering::Relaxed);
    }

    pub fn commit(&self, is_committing: bool) {
        self.is_committing.store(is_committing, Ordering::Relaxed);
    }

    pub fn is_committing(&self) -> bool {
        self.is_committing.load(Ordering::Relaxed)
    }

    pub fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Does the session wait for a backend?
    pub fn is_running(&self) -> bool {
        !self.state.lock().running.is_empty()
    }

    /// For the session's own task, and those that look after it.
    pub fn is_at_rest(&self) -> bool {
        self.is_at_rest.load(Ordering::Relaxed)
    }

    /// Ready when a cancel request comes; made when the session begins to wait for a connection, it misses none from then on.
    pub fn cancelled(&self) -> Notified<'_> {
        self.stop_waiting.notified()
    }

    /// The backends have answered. Was any of them sent a cancel request that has not been asked for by
    /// [`CancelTarget::was_sent_to`] yet?
    pub fn finished(&self) -> bool {
        let mut state = self.state.lock();
        state.running.clear();
        !state.cancelled.is_empty()
    }

    /// Was a cancel request sent to this backend? Asked before the connection is given back.
    pub fn was_sent_to(&self, connection: &Connection) -> bool {
        let Some(handle) = &connection.cancel_handle else { return false };
        let mut state = self.state.lock();
        let before = state.cancelled.len();
        state.cancelled.retain(|cancelled| !Arc::ptr_eq(cancelled, handle));
        state.cancelled.len() < before
    }

    pub async fn cancel(&self) -> CancelOutcome {
        // Wakes who waits now: no request is left over for a later wait.
        self.stop_waiting.notify_waiters();
        let running = {
            let mut state = self.state.lock();
            let running = state.running.clone();
            state.cancelled.extend(running.iter().cloned());
            running
        };
        let outcome = if running.is_empty() { CancelOutcome::Late } else { CancelOutcome::Forwarded };
        // A shard that does not answer keeps nobody from the others, and nobody for long.
        let delivering = join_all(running.iter().map(|backend| async {
            match tokio::time::timeout(CANCEL_TIMEOUT, backend.endpoint.cancel(&backend.key.bytes)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cancel request not delivered"),
                Err(_) => tracing::warn!("cancel request not delivered in time"),
            }
        }));
        delivering.await;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_id_names_one_session() {
        let registry = CancelRegistry::default();
        let (first, second) = (Arc::new(CancelTarget::default()), Arc::new(CancelTarget::default()));
        let mut drawn = [(0, 1), (7, 1), (7, 2), (8, 2)].into_iter();
        let mut draw = || drawn.next().expect("enough");
        assert_eq!(registry.register_drawn(&first, &mut draw), (7, 1));
        assert_eq!(registry.register_drawn(&second, &mut draw), (8, 2), "7 is taken, whatever the secret is");
        let is_first = |found: Option<Arc<CancelTarget>>| found.is_some_and(|found| Arc::ptr_eq(&found, &first));
        assert!(is_first(registry.find(7, 1)) && registry.find(7, 2).is_none() && !is_first(registry.find(8, 2)));
        registry.remove((7, 1));
        assert!(registry.find(7, 1).is_none() && registry.find(8, 2).is_some());
        assert_eq!(registry.register_drawn(&first, || (7, 3)), (7, 3), "its session has ended");
    }
}
