//! The connections to one shard as one user: a budget, idle connections by runtime, and one fair queue.
//!
//! ```text
//!              idle on this runtime ──────────────► taken
//!   checkout ─ budget left ───────► opened ───────► taken
//!              idle on another runtime ─► moved ──► taken
//!              none ─► queue (late joiners first) ─► handed over by whoever gives one back, or 53300 at the deadline
//! ```
//!
//! Part of the budget is for late joiners only: sessions that hold a connection of another shard already. Without it, sessions
//! that hold A and wait for B, and their mirror image, would wait for each other until the deadline.
//!
//! A pool belongs to one address and one state of its shard. When either changes in the map the pool is retired: it gives nothing more
//! out, those who wait in its queue ask the new pool, and connections that are in use are closed when they are given back.
//!
//! Every runtime keeps its own idle connections, because a socket belongs to one reactor; moving one costs two system calls.
//! The mutex is held for a few instructions, never across an await.

mod checkout_error;
mod resetting;
mod retired;
mod suspicion;

pub use checkout_error::CheckoutError;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use super::health::Backoff;
use super::identity::Misdirected;
use super::open::OpenError;
use super::reset::Settled;
use super::{Connection, ConnectionLimits, Health, ShardAddress};
use crate::auth::BackendCredentials;
use crate::error::SqlState;
use crate::shardmap::{Membership, ShardId};
use crate::telemetry::{Metrics, PoolCounters};

/// Limits of every pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Connections to one shard as one user.
    pub size: usize,
    /// Of these, only for late joiners.
    pub late_joiner_reserve: usize,
    pub checkout_timeout: Duration,
    pub connect_timeout: Duration,
    /// An idle connection is closed after this; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// A connection is not given out after this age; `None`: never.
    pub max_lifetime: Option<Duration>,
    pub backoff: Backoff,
    pub connection: ConnectionLimits,
}

/// Who asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkout {
    First,
    /// The session holds a connection of another shard.
    LateJoiner,
}

/// A connection that is checked out. Dropping it closes it; [`Pooled::release`] gives it back when it is clean.
#[must_use]
pub struct Pooled {
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
    /// Opened for this checkout.
    pub is_new: bool,
}

/// A place in the queue. Whoever leaves it gives back what was sent at the last moment.
struct Queued<'p> {
    receiver: oneshot::Receiver<Grant>,
    pool: &'p Pool,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(grant) = self.receiver.try_recv() {
            self.pool.return_grant(grant);
        }
    }
}

impl std::ops::Deref for Pooled {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("taken only by release and drop")
    }
}

impl std::ops::DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("taken only by release and drop")
    }
}

impl Pooled {
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Gives a clean connection back, after a reset where something that is not on record may be on it; closes any other.
    pub fn release(mut self) {
        // What comes after its last answer is seen at the next checkout, before anything is sent.
        let Some(connection) = self.connection.as_mut().filter(|connection| connection.is_clean()) else { return };
        if connection.needs_reset() {
            self.reset();
        } else {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.shrink();
            self.pool.give_back(connection);
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.discard(connection);
        }
    }
}

/// What `shardgate.pools` shows.
#[derive(Clone, Debug)]
pub struct PoolState {
    pub shard: String,
    pub user: String,
    pub active: usize,
    pub idle: usize,
    pub waiting: usize,
}

pub struct Pool {
    pub shard: ShardId,
    pub address: ShardAddress,
    credentials: BackendCredentials,
    /// The newest login that has asked for it.
    asked_by: AtomicU64,
    /// Set with the state locked.
    is_retired: AtomicBool,
    limits: PoolLimits,
    pub counters: PoolCounters,
    state: Mutex<State>,
    /// Told when a connection is lost.
    disturbed: Arc<Notify>,
    membership: Arc<Membership>,
}

#[expect(clippy::vec_box, reason = "a connection is some hundred bytes and changes hands under the lock")]
struct State {
    /// By runtime; the last one was used last.
    idle: Vec<Vec<Box<Connection>>>,
    /// Open or being opened, idle ones included.
    open: usize,
    in_use: usize,
    waiters: VecDeque<Waiter>,
    /// Length of the queue at which those who have given up are taken out.
    waiters_checked_at: usize,
    health: Health,
    /// Of the last attempt.
    misdirected: Option<Misdirected>,
    /// Connections opened before this are not given out: the shard has been away since, or they are too old.
    not_before: Instant,
    /// A connection was lost, and whether the shard is there has not been tried since.
    is_suspect: bool,
}

struct Waiter {
    kind: Checkout,
    sender: oneshot::Sender<Grant>,
}

/// What a waiter is woken with.
enum Grant {
    Connection(Box<Connection>),
    /// A place in the budget: open one.
    Slot,
}

/// What a checkout found under the lock.
enum Found {
    Idle(Box<Connection>),
    Slot,
    Wait(oneshot::Receiver<Grant>),
    /// Why, where the last connection did not lead to the shard.
    Down(Option<Misdirected>),
    Retired,
}

impl Pool {
    fn new(pools: &Pools, shard: ShardId, address: ShardAddress, credentials: BackendCredentials) -> Self {
        let limits = pools.limits;
        let counters = PoolCounters::new(&pools.metrics, &address.name);
        let state = State {
            idle: (0..pools.runtimes.max(1)).map(|_| Vec::new()).collect(),
            open: 0,
            in_use: 0,
            waiters: VecDeque::new(),
            waiters_checked_at: WAITERS_CHECKED_AT,
            health: Health::new(limits.backoff),
            misdirected: None,
            not_before: Instant::now(),
            is_suspect: false,
        };
        let (asked_by, is_retired) = (AtomicU64::new(0), AtomicBool::new(false));
        let (state, disturbed) = (Mutex::new(state), Arc::clone(&pools.disturbed));
        let membership = Arc::clone(&pools.membership);
        Self { shard, address, credentials, asked_by, is_retired, limits, counters, state, disturbed, membership }
    }

    /// A clean connection that fits. Waits in the queue up to `checkout_timeout`. Cancel safe: a connection handed to a caller
    /// that has gone is given to the next one. Where there is no room for one more, one that does not fit is exchanged for a
    /// new one.
    pub async fn checkout(
        self: &Arc<Self>,
        kind: Checkout,
        runtime: usize,
        fits: impl Fn(&Connection) -> bool,
    ) -> Result<Pooled, CheckoutError> {
        let deadline = tokio::time::Instant::now() + self.limits.checkout_timeout;
        loop {
            let found = self.find(kind, runtime, &fits);
            let grant = match found {
                Found::Idle(connection) => Grant::Connection(connection),
                Found::Slot => Grant::Slot,
                Found::Down(None) => return Err(self.unavailable("The last attempt to connect failed")),
                Found::Down(Some(reason)) => return Err(self.misdirected(reason)),
                Found::Retired => return Err(self.retired()),
                Found::Wait(receiver) => {
                    let since = Instant::now();
                    let granted = self.wait(receiver, deadline).await;
                    self.counters.waited(since.elapsed());
                    granted?
                }
            };
            match grant {
                Grant::Slot => return self.open(runtime).await,
                Grant::Connection(connection) if !fits(&connection) => {
                    connection.close();
                    return self.open(runtime).await;
                }
                Grant::Connection(connection) => {
                    if let Some(connection) = self.take_over(connection, runtime) {
                        let mut taken = Pooled { connection: Some(connection), pool: Arc::clone(self), is_new: false };
                        if taken.is_reset(deadline).await {
                            return Ok(taken);
                        }
                    }
                }
            }
        }
    }

    /// An idle connection of this runtime that fits, without a wait; one of the few that were used last. `None`: ask
    /// [`Pool::checkout`].
    pub fn take_ready(self: &Arc<Self>, runtime: usize, fits: impl Fn(&Connection) -> bool) -> Option<Pooled> {
        let mut connection = {
            let mut state = self.state.lock();
            if !state.waiters.is_empty() || !state.may_take(Checkout::First, &self.limits) {
                return None;
            }
            let not_before = state.not_before;
            let idle = state.idle.get_mut(runtime)?;
            let from = idle.len().saturating_sub(FITTING_MAX);
            let last = last_of(idle.get(from..)?, |connection| connection.opened_at >= not_before && fits(connection))?;
            let connection = idle.remove(from + last);
            state.in_use += 1;
            connection
        };
        match connection.settle_reset() {
            Settled::Ready if connection.is_quiet() => {
                return Some(Pooled { connection: Some(connection), pool: Arc::clone(self), is_new: false });
            }
            Settled::Due => self.give_back(connection),
            Settled::Ready | Settled::Useless => self.discard(connection),
        }
        None
    }

    /// In the queue, until it is this session's turn.
    async fn wait(&self, receiver: oneshot::Receiver<Grant>, deadline: tokio::time::Instant) -> Result<Grant, CheckoutError> {
        let mut queued = Queued { receiver, pool: self };
        match tokio::time::timeout_at(deadline, &mut queued.receiver).await {
            Ok(Ok(grant)) => Ok(grant),
            // Nobody but a pool that is retired sends its queue away.
            Ok(Err(_)) => Err(self.retired()),
            Err(_) => Err(CheckoutError::Timeout {
                shard: self.address.name.clone(),
                size: self.limits.size,
                timeout: self.limits.checkout_timeout,
            }),
        }
    }

    fn find(&self, kind: Checkout, runtime: usize, fits: impl Fn(&Connection) -> bool) -> Found {
        let mut state = self.state.lock();
        if self.is_retired() {
            return Found::Retired;
        }
        // A queue is served in order; only late joiners go ahead of those who hold nothing.
        if state.may_take(kind, &self.limits) && (state.waiters.is_empty() || kind == Checkout::LateJoiner) {
            if let Some(connection) = state.take_idle(runtime, &fits) {
                state.in_use += 1;
                return Found::Idle(connection);
            }
            let has_room = state.open < self.limits.size;
            if has_room && state.health.may_connect(Instant::now()) {
                state.open += 1;
                state.in_use += 1;
                return Found::Slot;
            }
            // A shard that lets nobody in just now may serve on those that it has.
            if let Some(connection) = state.take_idle_elsewhere(fits, has_room) {
                state.in_use += 1;
                return Found::Idle(connection);
            }
            if has_room {
                return Found::Down(state.misdirected.clone());
            }
        }
        let (sender, receiver) = oneshot::channel();
        state.forget_gone_waiters();
        let waiter = Waiter { kind, sender };
        match kind {
            Checkout::First => state.waiters.push_back(waiter),
            Checkout::LateJoiner => {
                let behind = state.waiters.iter().position(|waiting| waiting.kind == Checkout::First);
                let place = behind.unwrap_or(state.waiters.len());
                state.waiters.insert(place, waiter);
            }
        }
        Found::Wait(receiver)
    }

    /// A connection that was idle, ready for use on this runtime; `None` when it was of no more use.
    fn take_over(&self, mut connection: Box<Connection>, runtime: usize) -> Option<Box<Connection>> {
        if !self.is_usable(&mut connection) {
            self.discard(connection);
            return None;
        }
        if connection.runtime == runtime {
            return Some(connection);
        }
        match connection.move_to_runtime(runtime) {
            Ok(moved) => Some(Box::new(moved)),
            Err(error) => {
                tracing::debug!(%error, "idle connection lost while it changed its runtime");
                self.forget();
                None
            }
        }
    }

    /// A connection that was in use is gone.
    fn forget(&self) {
        let mut state = self.state.lock();
        state.open -= 1;
        state.in_use -= 1;
        self.serve_slot(&mut state);
    }

    fn is_usable(&self, connection: &mut Connection) -> bool {
        connection.opened_at >= self.state.lock().not_before && (connection.is_being_reset() || connection.is_quiet())
    }

    async fn open(self: &Arc<Self>, runtime: usize) -> Result<Pooled, CheckoutError> {
        self.try_open(runtime, Health::failed).await
    }

    /// `failed`: what an attempt in vain means for the next ones.
    async fn try_open(
        self: &Arc<Self>,
        runtime: usize,
        failed: impl FnOnce(&mut Health, Instant),
    ) -> Result<Pooled, CheckoutError> {
        let slot = Slot { pool: self, is_used: false };
        let opening = Box::pin(super::open::open(&self.address, &self.credentials, runtime, Some(&self.membership)));
        let attempt = tokio::time::timeout(self.limits.connect_timeout, opening);
        let opened = attempt.await.unwrap_or(Err(OpenError::Timeout(self.limits.connect_timeout)));
        match &opened {
            Ok(_) => self.counters.connected(),
            Err(_) => self.counters.failed(),
        }
        match opened {
            _ if self.is_retired() => Err(self.retired()),
            Ok(mut connection) => {
                connection.set_limits(self.limits.connection);
                slot.used();
                self.connected();
                Ok(Pooled { connection: Some(Box::new(connection)), pool: Arc::clone(self), is_new: true })
            }
            Err(OpenError::Refused(error)) if error.code() != Some(SqlState::CANNOT_CONNECT_NOW) => {
                self.connected();
                let code = error.code();
                let code = code.as_ref().map_or("", SqlState::as_str);
                tracing::warn!(shard = %self.address.name, user = self.user(), code, reason = %error.message(), "shard refused a login");
                Err(CheckoutError::Refused { shard: self.address.name.clone(), error })
            }
            Err(OpenError::ShutOut { generation }) => {
                self.connected();
                Err(CheckoutError::ShutOut { shard: self.address.name.clone(), generation })
            }
            Err(error) => {
                let mut state = self.state.lock();
                let was_up = state.health.is_up();
                failed(&mut state.health, Instant::now());
                state.is_suspect = false;
                state.misdirected = if let OpenError::Misdirected(reason) = &error { Some(reason.clone()) } else { None };
                drop(state);
                match was_up {
                    true => tracing::warn!(shard = %self.address.name, user = self.user(), %error, "shard not reachable"),
                    false => tracing::debug!(shard = %self.address.name, user = self.user(), %error, "shard still not reachable"),
                }
                match error {
                    OpenError::Misdirected(reason) => Err(self.misdirected(reason)),
                    // The log names the file.
                    OpenError::Password(_) => Err(self.unavailable("the password that its url means cannot be read")),
                    error => Err(self.unavailable(&error.to_string())),
                }
            }
        }
    }

    fn misdirected(&self, reason: Misdirected) -> CheckoutError {
        CheckoutError::Misdirected { shard: self.address.name.clone(), reason }
    }

    fn unavailable(&self, reason: &str) -> CheckoutError {
        CheckoutError::Unavailable { shard: self.address.name.clone(), reason: reason.to_owned() }
    }

    fn give_back(&self, mut connection: Box<Connection>) {
        connection.idle_since = None;
        let mut state = self.state.lock();
        state.in_use -= 1;
        if self.is_retired() || connection.opened_at < state.not_before {
            state.open -= 1;
            self.serve_slot(&mut state);
            return;
        }
        let mut grant = Grant::Connection(connection);
        while let Some(waiter) = state.next_waiter(&self.limits) {
            state.in_use += 1;
            match waiter.sender.send(grant) {
                Ok(()) => return,
                Err(returned) => {
                    state.in_use -= 1;
                    grant = returned;
                }
            }
        }
        if let Grant::Connection(connection) = grant {
            let runtime = connection.runtime;
            match state.idle.get_mut(runtime) {
                Some(idle) => idle.push(connection),
                None => state.open -= 1,
            }
        }
    }

    fn discard(&self, connection: Box<Connection>) {
        self.note_loss(&connection);
        connection.close();
        self.forget();
    }

    /// A place in the budget is free: let the next waiter open a connection.
    fn serve_slot(&self, state: &mut State) {
        while let Some(waiter) = state.next_waiter(&self.limits) {
            state.open += 1;
            state.in_use += 1;
            if waiter.sender.send(Grant::Slot).is_ok() {
                return;
            }
            state.open -= 1;
            state.in_use -= 1;
        }
    }

    fn return_grant(&self, grant: Grant) {
        match grant {
            Grant::Connection(connection) => self.give_back(connection),
            Grant::Slot => {
                let mut state = self.state.lock();
                state.open -= 1;
                state.in_use -= 1;
                self.serve_slot(&mut state);
            }
        }
    }

    /// Closes connections that have ended, are too old or have been idle too long; those in use that are too old are closed when they are
    /// given back. Called every second or so: nothing on the way of a statement looks at the clock for it.
    pub fn close_idle(&self, now: Instant) {
        let mut expired = Vec::new();
        let mut state = self.state.lock();
        if let Some(oldest) = self.limits.max_lifetime.and_then(|lifetime| now.checked_sub(lifetime)) {
            state.not_before = state.not_before.max(oldest);
        }
        let not_before = state.not_before;
        let is_expired = |connection: &mut Box<Connection>| {
            let idle_since = *connection.idle_since.get_or_insert(now);
            let is_idle_too_long = self.limits.idle_timeout.is_some_and(|timeout| now.duration_since(idle_since) >= timeout);
            let is_usable = match connection.settle_reset() {
                Settled::Ready => connection.is_quiet(),
                Settled::Due => true,
                Settled::Useless => false,
            };
            is_idle_too_long || connection.opened_at < not_before || !is_usable
        };
        for idle in &mut state.idle {
            expired.extend(idle.extract_if(.., is_expired));
        }
        state.open -= expired.len();
        drop(state);
        for connection in expired {
            self.note_loss(&connection);
            connection.close();
        }
    }

    /// As whom its connections are logged in.
    pub fn user(&self) -> &str {
        &self.credentials.user
    }

    pub fn is_up(&self) -> bool {
        self.state.lock().health.is_up()
    }

    pub fn describe(&self) -> PoolState {
        let state = self.state.lock();
        PoolState {
            shard: self.address.name.clone(),
            user: self.credentials.user.to_string(),
            active: state.in_use,
            idle: state.open - state.in_use,
            waiting: state.waiters.iter().filter(|waiter| !waiter.sender.is_closed()).count(),
        }
    }
}

impl State {
    fn may_take(&self, kind: Checkout, limits: &PoolLimits) -> bool {
        let reserved = match kind {
            Checkout::First => limits.late_joiner_reserve.min(limits.size.saturating_sub(1)),
            Checkout::LateJoiner => 0,
        };
        self.in_use < limits.size - reserved
    }

    /// The one that was used last of those that fit.
    fn take_idle(&mut self, runtime: usize, fits: impl Fn(&Connection) -> bool) -> Option<Box<Connection>> {
        let idle = self.idle.get_mut(runtime)?;
        let last = last_of(idle, fits)?;
        Some(idle.remove(last))
    }

    /// One of another runtime that fits. Where there is no room for one more, any other else, which is exchanged for a new one.
    fn take_idle_elsewhere(&mut self, fits: impl Fn(&Connection) -> bool, has_room: bool) -> Option<Box<Connection>> {
        let fitting = self.idle.iter_mut().find_map(|idle| last_of(idle, &fits).map(|last| idle.remove(last)));
        if fitting.is_some() || has_room {
            return fitting;
        }
        self.idle.iter_mut().max_by_key(|idle| idle.len()).and_then(Vec::pop)
    }

    /// Takes out who has given up, when the queue has doubled: so it is never longer than twice those who wait.
    fn forget_gone_waiters(&mut self) {
        if self.waiters.len() >= self.waiters_checked_at {
            self.waiters.retain(|waiter| !waiter.sender.is_closed());
            self.waiters_checked_at = (self.waiters.len() * 2).max(WAITERS_CHECKED_AT);
        }
    }

    /// The first waiter that may take a connection now.
    fn next_waiter(&mut self, limits: &PoolLimits) -> Option<Waiter> {
        while let Some(waiter) = self.waiters.front() {
            if waiter.sender.is_closed() {
                self.waiters.pop_front();
                continue;
            }
            return if self.may_take(waiter.kind, limits) { self.waiters.pop_front() } else { None };
        }
        None
    }
}

/// A place in the budget while a connection is being opened; given back when opening fails or its caller goes.
struct Slot<'a> {
    pool: &'a Arc<Pool>,
    is_used: bool,
}

impl Slot<'_> {
    fn used(mut self) {
        self.is_used = true;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            let mut state = self.pool.state.lock();
            state.open -= 1;
            state.in_use -= 1;
            state.health.abandoned(Instant::now());
            self.pool.serve_slot(&mut state);
        }
    }
}

/// The one that was used last of those that fit, and rather one that is not being reset.
fn last_of(idle: &[Box<Connection>], fits: impl Fn(&Connection) -> bool) -> Option<usize> {
    let is_ready = |connection: &Connection| !connection.is_being_reset() && fits(connection);
    let last = |is_meant: &dyn Fn(&Connection) -> bool| idle.iter().rposition(|connection| is_meant(connection));
    last(&is_ready).or_else(|| last(&fits))
}

/// Idle connections that are looked at for one that fits.
const FITTING_MAX: usize = 4;
/// A queue shorter than this is not looked through.
const WAITERS_CHECKED_AT: usize = 64;

/// The pools of one proxy, by shard and user.
pub struct Pools {
    pools: RwLock<HashMap<(ShardId, String), Arc<Pool>>>,
    limits: PoolLimits,
    runtimes: usize,
    metrics: Metrics,
    disturbed: Arc<Notify>,
    membership: Arc<Membership>,
}

impl Pools {
    pub fn new(limits: PoolLimits, runtimes: usize, metrics: Metrics, membership: Arc<Membership>) -> Self {
        Self { pools: RwLock::new(HashMap::new()), limits, runtimes, metrics, disturbed: Arc::default(), membership }
    }

    /// Ready when a connection has been lost since it was last waited for.
    pub fn disturbed(&self) -> Notified<'_> {
        self.disturbed.notified()
    }

    /// The pool of this shard and of the user with these credentials; made when it is first asked for. Of two logins with different
    /// ones the later counts, which has the user's present password: an earlier session shares its pool. One of another address
    /// is retired.
    pub fn pool(&self, shard: ShardId, address: ShardAddress, credentials: BackendCredentials, login: u64) -> Arc<Pool> {
        let key = (shard, credentials.user.to_string());
        let is_of_address = |pool: &Pool| pool.address.is_same(&address);
        let is_meant =
            |pool: &Pool| is_of_address(pool) && (pool.credentials == credentials || pool.asked_by.load(Ordering::Acquire) > login);
        if let Some(pool) = self.pools.read().get(&key).filter(|pool| is_meant(pool)) {
            pool.asked_by.fetch_max(login, Ordering::AcqRel);
            return Arc::clone(pool);
        }
        let mut pools = self.pools.write();
        if let Some(pool) = pools.get(&key).filter(|pool| is_meant(pool)) {
            pool.asked_by.fetch_max(login, Ordering::AcqRel);
            return Arc::clone(pool);
        }
        let is_moved = pools.get(&key).is_some_and(|pool| !is_of_address(pool));
        let pool = Arc::new(Pool::new(self, shard, address, credentials));
        pool.asked_by.store(login, Ordering::Release);
        let before = pools.insert(key, Arc::clone(&pool));
        drop(pools);
        if let Some(before) = before.filter(|_| is_moved) {
            before.retire();
        }
        pool
    }

    pub fn all(&self) -> Vec<Arc<Pool>> {
        self.pools.read().values().cloned().collect()
    }

    /// Forgets pools; sessions that have them go on with them.
    pub fn retain(&self, keep: impl Fn(&Pool) -> bool) {
        self.pools.write().retain(|_, pool| keep(pool));
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::auth::{BackendSecret, Greeting};
    use crate::backend::identity::Expected;
    use crate::config::Secret;
    use crate::config::ShardUrl;
    use crate::net::{ShardEndpoint, ShardStream};
    use crate::shardmap::{ProxyId, ShardState};

    pub(super) fn pools() -> Pools {
        let second = Duration::from_secs(1);
        let limits = PoolLimits {
            size: 2,
            late_joiner_reserve: 1,
            checkout_timeout: second,
            connect_timeout: second,
            idle_timeout: None,
            max_lifetime: None,
            backoff: Backoff { base: second, factor: 1.0, jitter: 0.0, max: second },
            connection: ConnectionLimits { message_bytes_max: 1 << 20, unasked_bytes_max: 1 << 20 },
        };
        Pools::new(limits, 2, Metrics::new().expect("built"), Membership::new(ProxyId(1)))
    }

    pub(super) fn address(url: &str, state: ShardState) -> ShardAddress {
        let endpoints = ShardEndpoint::of(ShardUrl::parse(url).expect("valid")).expect("usable");
        let (name, database) = ("s1".to_owned(), "app".to_owned());
        let expected = Expected { uuid: None, primary: Arc::default() };
        ShardAddress { name, database, url: url.to_owned(), state, expected, endpoints, primary_host: Arc::default() }
    }

    /// A connection of this runtime, and its shard's end.
    pub(super) async fn connected(runtime: usize) -> (Box<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (shard, _) = listener.accept().await.expect("accepted");
        let url = ShardUrl::parse("postgres://postgres@127.0.0.1:1/app").expect("valid");
        let endpoint = ShardEndpoint::of(url).expect("usable").remove(0);
        let greeting = Greeting { parameter_status: Vec::new(), backend_key: None, leftover: BytesMut::new() };
        (Box::new(Connection::new(ShardStream::Plain(stream), &endpoint, greeting, runtime)), shard)
    }

    pub(super) fn has_idle(pool: &Pool, connection: Box<Connection>) {
        let mut state = pool.state.lock();
        state.open += 1;
        let runtime = connection.runtime;
        state.idle[runtime].push(connection);
    }

    pub(super) fn ask(pools: &Pools, password: &str, login: u64) -> Arc<Pool> {
        let url = "postgres://postgres@127.0.0.1:1/app";
        let address = address(url, ShardState::Online);
        let credentials = BackendCredentials { user: "ada".into(), secret: BackendSecret::Password(Secret::new(password)) };
        pools.pool(ShardId(1), address, credentials, login)
    }

    #[tokio::test]
    async fn a_shard_that_lets_nobody_in_serves_on_by_the_connections_of_other_runtimes() {
        let pool = ask(&pools(), "any", 1);
        let (connection, _shard) = connected(1).await;
        has_idle(&pool, connection);
        pool.state.lock().health.failed(Instant::now());
        assert!(matches!(pool.find(Checkout::LateJoiner, 0, |_| false), Found::Down(None)), "it knows what it must not");
        assert!(matches!(pool.find(Checkout::LateJoiner, 0, |_| true), Found::Idle(_)));
        assert!(matches!(pool.find(Checkout::LateJoiner, 0, |_| true), Found::Down(None)), "there is no other");
    }

    #[tokio::test]
    async fn one_that_fits_on_another_runtime_goes_before_one_that_does_not() {
        let pool = ask(&pools(), "any", 1);
        let ((fitting, _shard), (other, _other_shard)) = (connected(0).await, connected(1).await);
        has_idle(&pool, fitting);
        has_idle(&pool, other);
        let found = pool.find(Checkout::LateJoiner, 1, |connection| connection.runtime == 0);
        assert!(matches!(found, Found::Idle(connection) if connection.runtime == 0));
        let found = pool.find(Checkout::LateJoiner, 1, |connection| connection.runtime == 0);
        assert!(matches!(found, Found::Idle(_)), "to be exchanged for a new one");
    }

    #[test]
    fn a_session_with_an_old_password_does_not_bring_it_back() {
        let pools = pools();
        let old = ask(&pools, "old", 1);
        assert!(Arc::ptr_eq(&old, &ask(&pools, "old", 2)), "one pool for all sessions of a user");
        // The settings were reloaded, and the pools of users that have changed are forgotten.
        pools.retain(|_| false);
        let again = ask(&pools, "old", 1);
        let new = ask(&pools, "new", 3);
        assert!(!Arc::ptr_eq(&again, &new) && new.credentials.secret == BackendSecret::Password(Secret::new("new")));
        assert!(Arc::ptr_eq(&new, &ask(&pools, "old", 2)), "the session from before shares it");
        assert!(Arc::ptr_eq(&new, &ask(&pools, "new", 4)));
        assert!(Arc::ptr_eq(&new, &ask(&pools, "old", 3)), "and does not replace it later");
        assert_eq!(pools.all().len(), 1);
    }
}
