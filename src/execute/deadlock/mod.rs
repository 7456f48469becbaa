//! Deadlocks that no shard sees by itself: transactions over several shards that wait for each other's locks, or for connections
//! that the others hold.
//!
//! ```text
//!   a transaction takes its second shard ─► it is listed here              (one that stays on one shard never is)
//!   it has waited half a second in one statement ─► its proxy asks the shards who blocks it, tells the other proxies (by the
//!      map database), and looks for rings ─► the same ring a second time ─► its youngest member is cancelled: 40P01
//!      (the last to take a second shard: before that, a transaction is not looked at and costs nothing)
//! ```
//! A ring has only waiting members, so what others tell is enough. It is believed when two readings, one after the other, show the
//! same statements: process ids of pooled connections change owners. Who waits in pieces (schema changes) waits between them too. While the map database is away a proxy looks at its own
//! sessions only. Nobody is asked, and nothing is read, while nobody waits.

mod graph;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::execute::recovery::Link;
use crate::shardmap::{ShardId, ShardMap};
use graph::{Backend, Deadlock, PoolWait, Waiter, WaiterId, deadlocks};

/// The transactions of this proxy that hold several shards, or hold one and wait for another.
#[derive(Default)]
pub struct Waits {
    listed: Mutex<HashMap<i32, Arc<Wait>>>,
    next_transaction: AtomicI64,
    arrived: Notify,
}

/// One of them.
pub struct Wait {
    session: i32,
    transaction: i64,
    began_ms: u64,
    /// Odd while a statement runs; grows with every statement.
    statement: AtomicI64,
    /// The statement that gives way, and since when.
    victim: Mutex<Option<(i64, Instant)>>,
    holding: Mutex<Holding>,
    /// It waits for a lock in pieces, and is between two of them.
    is_between: AtomicBool,
}

/// What a transaction holds, and the pool that it waits for.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    pub backends: Vec<(ShardId, i32)>,
    pub pools: Vec<usize>,
    pub waits_for: Option<usize>,
    /// Of the pool that it waits for.
    pub in_use: usize,
}

/// A statement that gives way, of a session of this proxy.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    pub session: i32,
    id: WaiterId,
}

/// Listed as long as it lives.
pub struct Listed {
    wait: Arc<Wait>,
    waits: Arc<Waits>,
}

impl Waits {
    /// The session's transaction, in the middle of a statement.
    pub fn list(self: &Arc<Self>, session: i32) -> Listed {
        let wait = Arc::new(Wait {
            session,
            transaction: self.next_transaction.fetch_add(1, Ordering::Relaxed),
            began_ms: SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|at| at.as_millis().try_into().ok()).unwrap_or(0),
            statement: AtomicI64::new(1),
            victim: Mutex::default(),
            holding: Mutex::default(),
            is_between: AtomicBool::new(false),
        });
        self.listed.lock().insert(session, Arc::clone(&wait));
        self.arrived.notify_one();
        Listed { wait, waits: Arc::clone(self) }
    }

    /// Until there is a transaction to look at. Cancel safe.
    pub async fn some(&self) {
        while self.listed.lock().is_empty() {
            self.arrived.notified().await;
        }
    }

    /// The statement runs yet.
    pub fn is_running(&self, victim: &Victim) -> bool {
        self.listed.lock().get(&victim.session).is_some_and(|wait| wait.is_in(&victim.id))
    }

    /// This statement of this session gives way. `false`: it has ended meanwhile, or was told so just now: a second cancel that
    /// finds it on its way out would be a second error to the client.
    fn choose(&self, victim: &WaiterId, now: Instant) -> bool {
        let listed = self.listed.lock();
        let Some(wait) = listed.get(&victim.session) else { return false };
        let is_same = wait.is_in(victim);
        let mut chosen = wait.victim.lock();
        let is_told = chosen.is_some_and(|(statement, at)| statement == victim.statement && now.duration_since(at) < TOLD_AGAIN);
        if is_same && !is_told {
            *chosen = Some((victim.statement, now));
        }
        is_same && !is_told
    }
}

impl Wait {
    fn is_in(&self, statement: &WaiterId) -> bool {
        self.transaction == statement.transaction && self.statement.load(Ordering::Acquire) == statement.statement
    }
}

impl Listed {
    pub fn begin_statement(&self) {
        let before = self.wait.statement.load(Ordering::Relaxed);
        if before % 2 == 0 {
            self.wait.statement.store(before + 1, Ordering::Release);
        }
    }

    pub fn end_statement(&self) {
        let before = self.wait.statement.load(Ordering::Relaxed);
        if before % 2 == 1 {
            self.wait.statement.store(before + 1, Ordering::Release);
        }
    }

    /// The statement that runs, or has just failed, was cancelled to break a deadlock.
    pub fn is_victim(&self) -> bool {
        let statement = self.wait.statement.load(Ordering::Acquire);
        self.wait.victim.lock().is_some_and(|(victim, _)| victim == statement)
    }

    pub fn hold(&self, backends: Vec<(ShardId, i32)>, pools: Vec<usize>) {
        *self.wait.holding.lock() = Holding { backends, pools, waits_for: None, in_use: 0 };
    }

    /// It has given up waiting for a lock, to let others pass, and will wait again.
    pub fn pause(&self) {
        self.wait.is_between.store(true, Ordering::Release);
    }

    pub fn resume(&self) {
        self.wait.is_between.store(false, Ordering::Release);
    }

    /// `None`: it has got its connection.
    pub fn wait_for_pool(&self, pool: Option<usize>, in_use: usize) {
        let mut holding = self.wait.holding.lock();
        holding.waits_for = pool;
        holding.in_use = in_use;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut listed = self.waits.listed.lock();
        if listed.get(&self.wait.session).is_some_and(|known| Arc::ptr_eq(known, &self.wait)) {
            listed.remove(&self.wait.session);
        }
    }
}

/// Looks for deadlocks; one a proxy. Its connections belong to the runtime that it runs on.
pub struct Detector {
    waits: Arc<Waits>,
    map: Arc<ShardMap>,
    proxy: i64,
    links: HashMap<ShardId, Link>,
    /// Since when each session has been seen in the same statement.
    seen: HashMap<i32, (i64, i64, Instant)>,
    /// Whom those who wait in pieces were waiting for when they were last seen to wait.
    blocked_before: HashMap<WaiterId, BTreeSet<Backend>>,
    /// What the last round has found.
    suspected: Vec<Deadlock>,
    has_told: bool,
}

impl Detector {
    pub fn new(waits: Arc<Waits>, map: Arc<ShardMap>) -> Self {
        let proxy = map.lease().proxy_id().0;
        Self {
            waits,
            map,
            proxy,
            links: HashMap::new(),
            seen: HashMap::new(),
            blocked_before: HashMap::new(),
            suspected: Vec::new(),
            has_told: false,
        }
    }

    /// One look. Returns the statements that are to be cancelled.
    pub async fn round(&mut self) -> Vec<Victim> {
        let waiting = self.waiting(Instant::now());
        if waiting.is_empty() {
            self.suspected.clear();
            self.blocked_before.clear();
            if std::mem::take(&mut self.has_told) {
                self.tell(&[]).await;
            }
            return Vec::new();
        }
        let own = self.waiters(&waiting).await;
        let mut all = self.tell(&own).await;
        self.has_told = true;
        all.extend(own);
        let found = deadlocks(all);
        let confirmed = found.iter().filter(|deadlock| self.suspected.contains(deadlock)).map(|deadlock| deadlock.victim);
        let victims: Vec<Victim> = confirmed
            .filter(|victim| victim.proxy == self.proxy && self.waits.choose(victim, Instant::now()))
            .map(|victim| {
                tracing::info!(session = victim.session, "a deadlock over several shards is broken");
                Victim { session: victim.session, id: victim }
            })
            .collect();
        self.suspected = found;
        victims
    }

    /// Those who have been in one statement for long enough.
    fn waiting(&mut self, now: Instant) -> Vec<Arc<Wait>> {
        let listed: Vec<Arc<Wait>> = self.waits.listed.lock().values().cloned().collect();
        self.seen.retain(|session, _| listed.iter().any(|wait| wait.session == *session));
        let mut waiting = Vec::new();
        for wait in listed {
            let statement = wait.statement.load(Ordering::Acquire);
            if statement % 2 == 0 {
                self.seen.remove(&wait.session);
                continue;
            }
            let seen = self.seen.entry(wait.session).or_insert((wait.transaction, statement, now));
            if (seen.0, seen.1) != (wait.transaction, statement) {
                *seen = (wait.transaction, statement, now);
            }
            if now.duration_since(seen.2) >= PATIENCE {
                waiting.push(wait);
            }
        }
        waiting
    }

    /// With who blocks them, as the shards say.
    async fn waiters(&mut self, waiting: &[Arc<Wait>]) -> Vec<Waiter> {
        let ids: Vec<i64> = waiting.iter().map(|wait| wait.statement.load(Ordering::Acquire)).collect();
        let holdings: Vec<Holding> = waiting.iter().map(|wait| wait.holding.lock().clone()).collect();
        let were_between: Vec<bool> = waiting.iter().map(|wait| wait.is_between.load(Ordering::Acquire)).collect();
        let mut pids = HashMap::<ShardId, Vec<i32>>::new();
        for (shard, pid) in holdings.iter().flat_map(|holding| &holding.backends) {
            pids.entry(*shard).or_default().push(*pid);
        }
        let blocked = self.blocked(pids).await;
        let waiters = waiting.iter().zip(ids).zip(holdings).map(|((wait, statement), holding)| {
            let of_shard = |(shard, pid): &(ShardId, i32)| (shard.0, *pid);
            let blockers =
                holding.backends.iter().flat_map(|backend| blocked.get(&of_shard(backend)).into_iter().flatten().copied());
            Waiter {
                id: WaiterId { proxy: self.proxy, session: wait.session, transaction: wait.transaction, statement },
                began_ms: wait.began_ms,
                blockers: blockers.collect(),
                backends: holding.backends.iter().map(of_shard).collect(),
                pools: holding.pools.iter().copied().collect(),
                pool: holding.waits_for.map(|pool| PoolWait { pool, in_use: holding.in_use }),
            }
        });
        let mut waiters: Vec<Waiter> = waiters.collect();
        // Two that wait in pieces might never be met in one look.
        for ((waiter, wait), was_between) in waiters.iter_mut().zip(waiting).zip(were_between) {
            if waiter.blockers.is_empty() && (was_between || wait.is_between.load(Ordering::Acquire)) {
                waiter.blockers = self.blocked_before.remove(&waiter.id).unwrap_or_default();
            }
        }
        self.blocked_before = waiters.iter().map(|waiter| (waiter.id, waiter.blockers.clone())).collect();
        waiters
    }

    /// For each process those that it waits for, and those that these wait for on the same shard.
    async fn blocked(&mut self, pids: HashMap<ShardId, Vec<i32>>) -> HashMap<(i32, i32), Vec<(i32, i32)>> {
        let map = self.map.snapshot();
        self.links.retain(|shard, link| map.shard(*shard).is_some_and(|known| known.url == link.shard.url));
        for shard in pids.keys() {
            if let Some(known) = map.shard(*shard) {
                self.links.entry(*shard).or_insert_with(|| Link::new(Arc::clone(known)));
            }
        }
        drop(map);
        let asked = self.links.iter_mut().filter_map(|(shard, link)| Some((*shard, link, pids.get(shard)?)));
        let answers = join_all(asked.map(|(shard, link, pids)| async move {
            let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
            let rows = tokio::time::timeout(ASK_TIMEOUT, link.values(BLOCKERS.replace("$1", &list.join(",")))).await;
            if rows.is_err() {
                // An answer that is still on its way would be taken for that to the next question.
                *link = Link::new(Arc::clone(&link.shard));
            }
            (shard, rows.ok().and_then(Result::ok).unwrap_or_default())
        }))
        .await;
        let mut blocked = HashMap::<(i32, i32), Vec<(i32, i32)>>::new();
        for (shard, rows) in answers {
            for row in rows {
                let pair = row.split_once(' ').and_then(|(waiter, blocker)| Some((waiter.parse().ok()?, blocker.parse().ok()?)));
                if let Some((waiter, blocker)) = pair {
                    blocked.entry((shard.0, waiter)).or_default().push((shard.0, blocker));
                }
            }
        }
        blocked
    }

    /// Tells the other proxies, and hears of theirs. Without the map database this proxy is alone.
    async fn tell(&self, own: &[Waiter]) -> Vec<Waiter> {
        let told: Vec<Value> = own.iter().map(to_json).collect();
        let telling = tokio::time::timeout(ASK_TIMEOUT, self.map.store().tell_waiters(self.proxy, Value::Array(told))).await;
        match telling {
            Ok(Ok(others)) => others.as_array().map(|others| others.iter().filter_map(from_json).collect()).unwrap_or_default(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }
}

fn to_json(waiter: &Waiter) -> Value {
    let WaiterId { proxy, session, transaction, statement } = waiter.id;
    let pool = waiter.pool.as_ref().map(|pool| [pool.pool, pool.in_use]);
    // Text: a number of 64 bits is not safe in every reader of JSON.
    json!({
        "id": [proxy.to_string(), session.to_string(), transaction.to_string(), statement.to_string()],
        "began_ms": waiter.began_ms,
        "backends": waiter.backends,
        "blockers": waiter.blockers,
        "pools": waiter.pools,
        "pool": pool,
    })
}

fn from_json(value: &Value) -> Option<Waiter> {
    let id: Vec<i64> = value.get("id")?.as_array()?.iter().map(|part| part.as_str()?.parse().ok()).collect::<Option<_>>()?;
    let [proxy, session, transaction, statement] = <[i64; 4]>::try_from(id).ok()?;
    let backends = |key: &str| serde_json::from_value::<BTreeSet<(i32, i32)>>(value.get(key)?.clone()).ok();
    let pool = serde_json::from_value::<Option<[usize; 2]>>(value.get("pool")?.clone()).ok()?;
    Some(Waiter {
        id: WaiterId { proxy, session: i32::try_from(session).ok()?, transaction, statement },
        began_ms: value.get("began_ms")?.as_u64()?,
        backends: backends("backends")?,
        blockers: backends("blockers")?,
        pools: serde_json::from_value(value.get("pools")?.clone()).ok()?,
        pool: pool.map(|[pool, in_use]| PoolWait { pool, in_use }),
    })
}

/// A statement that has run for less is not asked for: most waits are over by then.
const PATIENCE: Duration = Duration::from_millis(500);
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// A cancel that has had no effect for so long was lost.
const TOLD_AGAIN: Duration = Duration::from_secs(5);
// Prepared transactions show as process 0 and are left out: they end with the commit that they are part of, which has a limit.
const BLOCKERS: &str = "WITH RECURSIVE chain(waiter, blocker) AS (
    SELECT a.pid, b.pid FROM unnest(ARRAY[$1]::int[]) a(pid), unnest(pg_blocking_pids(a.pid)) b(pid)
    UNION SELECT c.waiter, b.pid FROM chain c, unnest(pg_blocking_pids(c.blocker)) b(pid) WHERE c.blocker <> 0)
    SELECT waiter || ' ' || blocker FROM chain WHERE blocker <> 0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_proxy_tells_another_reads() {
        let waiter = Waiter {
            id: WaiterId { proxy: i64::MIN, session: 7, transaction: i64::MAX, statement: 3 },
            began_ms: 1234,
            backends: BTreeSet::from([(1, 10), (2, 20)]),
            blockers: BTreeSet::from([(2, 30)]),
            pools: BTreeSet::from([5]),
            pool: Some(PoolWait { pool: 6, in_use: 2 }),
        };
        assert_eq!(from_json(&to_json(&waiter)), Some(waiter.clone()));
        let without = Waiter { pool: None, ..waiter };
        assert_eq!(from_json(&to_json(&without)), Some(without));
        assert_eq!(from_json(&json!({"id": []})), None);
    }

    #[test]
    fn a_victim_is_told_once() {
        let waits = Arc::new(Waits::default());
        let listed = waits.list(7);
        let victim = WaiterId { proxy: 1, session: 7, transaction: 0, statement: 1 };
        let now = Instant::now();
        assert!(waits.choose(&victim, now));
        assert!(!waits.choose(&victim, now + Duration::from_secs(1)));
        assert!(listed.is_victim());
        // Unless the cancel was lost.
        assert!(waits.choose(&victim, now + TOLD_AGAIN));
        listed.end_statement();
        listed.begin_statement();
        assert!(waits.choose(&WaiterId { statement: 3, ..victim }, now));
    }

    #[test]
    fn a_statement_that_has_ended_is_no_victim() {
        let waits = Arc::new(Waits::default());
        let listed = waits.list(7);
        let victim = WaiterId { proxy: 1, session: 7, transaction: 0, statement: 1 };
        let now = Instant::now();
        let chosen = Victim { session: 7, id: victim };
        assert!(waits.choose(&victim, now) && listed.is_victim() && waits.is_running(&chosen));
        listed.end_statement();
        assert!(!listed.is_victim() && !waits.choose(&victim, now) && !waits.is_running(&chosen));
        listed.begin_statement();
        assert!(!waits.choose(&victim, now) && !waits.is_running(&chosen));
        drop(listed);
        assert!(waits.listed.lock().is_empty());
    }
}
