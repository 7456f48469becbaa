//! Who waits for whom, and who has to give way. Pure.
//!
//! A transaction that waits for a lock waits for all who hold it; one that waits for a connection of a full pool waits for any of
//! those who hold one. Stuck is who can never go on: everybody is at first taken for stuck who waits, and whoever waits for
//! somebody that is not is let off, until nothing changes. Who does not wait can always go on, so locks of sessions that nobody
//! tells of are never taken for a deadlock.

use std::collections::BTreeSet;

/// A process of one shard.
pub type Backend = (i32, i32);

/// One statement of one transaction that waits, as its proxy tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub id: WaiterId,
    /// When the transaction took its second shard, by its proxy's clock in milliseconds: the youngest gives way. The same to whoever
    /// reads it and whenever, so that all choose alike.
    pub began_ms: u64,
    /// The transaction's connections.
    pub backends: BTreeSet<Backend>,
    /// Pools of its proxy that they are of.
    pub pools: BTreeSet<usize>,
    /// Who has to end before it goes on, directly or because they wait in turn for these on the same shard.
    pub blockers: BTreeSet<Backend>,
    pub pool: Option<PoolWait>,
}

/// A wait for a connection of a proxy's pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolWait {
    /// As in [`Waiter::pools`].
    pub pool: usize,
    /// Its connections that are in use.
    pub in_use: usize,
}

/// Names a statement: another one of the same session is another wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    pub proxy: i64,
    pub session: i32,
    pub transaction: i64,
    pub statement: i64,
}

/// The one of each deadlock that gives way, with all that are stuck in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    pub victim: WaiterId,
    pub members: BTreeSet<WaiterId>,
}

/// Every deadlock among these. The same whichever way they are told: where rings share a member, proxies must not look at different
/// ones, of which each leaves the victim to the other.
pub fn deadlocks(mut waiters: Vec<Waiter>) -> Vec<Deadlock> {
    waiters.sort_by_key(|waiter| waiter.id);
    deadlocks_in_order(&waiters)
}

fn deadlocks_in_order(waiters: &[Waiter]) -> Vec<Deadlock> {
    let mut stuck: BTreeSet<usize> = (0..waiters.len()).filter(|index| waits(waiters, *index)).collect();
    loop {
        let freed: Vec<usize> = stuck.iter().copied().filter(|index| !is_stuck(waiters, *index, &stuck)).collect();
        if freed.is_empty() {
            break;
        }
        stuck.retain(|index| !freed.contains(index));
    }
    let mut found = Vec::new();
    while let Some(cycle) = cycle(waiters, &stuck) {
        let youngest =
            cycle.iter().copied().filter_map(|index| waiters.get(index)).max_by_key(|waiter| (waiter.began_ms, waiter.id));
        let Some(victim) = youngest.map(|waiter| waiter.id) else { break };
        let members = cycle.iter().filter_map(|index| waiters.get(*index)).map(|waiter| waiter.id).collect();
        found.push(Deadlock { victim, members });
        stuck.retain(|index| !cycle.contains(index));
    }
    found
}

fn waits(waiters: &[Waiter], index: usize) -> bool {
    waiters.get(index).is_some_and(|waiter| waiter.pool.is_some() || !waiter.blockers.is_empty())
}

fn is_stuck(waiters: &[Waiter], index: usize, stuck: &BTreeSet<usize>) -> bool {
    let Some(waiter) = waiters.get(index) else { return false };
    match &waiter.pool {
        Some(pool) => holders(waiters, index, stuck).count() >= pool.in_use,
        None => next(waiters, index, stuck).next().is_some(),
    }
}

/// Stuck waiters of the same proxy that hold a connection of the pool.
fn holders<'w>(waiters: &'w [Waiter], index: usize, stuck: &'w BTreeSet<usize>) -> impl Iterator<Item = usize> + 'w {
    let waiter = waiters.get(index);
    stuck.iter().copied().filter(move |other| {
        let (Some(waiter), Some(other)) = (waiter, waiters.get(*other)) else { return false };
        let Some(pool) = &waiter.pool else { return false };
        other.id.proxy == waiter.id.proxy && other.pools.contains(&pool.pool)
    })
}

/// The stuck ones that this one waits for.
fn next<'w>(waiters: &'w [Waiter], index: usize, stuck: &'w BTreeSet<usize>) -> Box<dyn Iterator<Item = usize> + 'w> {
    let Some(waiter) = waiters.get(index) else { return Box::new(std::iter::empty()) };
    if waiter.pool.is_some() {
        return Box::new(holders(waiters, index, stuck).filter(move |other| *other != index));
    }
    Box::new(stuck.iter().copied().filter(move |other| {
        *other != index && waiters.get(*other).is_some_and(|other| !other.backends.is_disjoint(&waiter.blockers))
    }))
}

/// Some stuck ones that wait for each other in a ring.
fn cycle(waiters: &[Waiter], stuck: &BTreeSet<usize>) -> Option<Vec<usize>> {
    let mut path = vec![*stuck.first()?];
    loop {
        // Every stuck one waits for a stuck one, so a walk comes back to where it was.
        let following = next(waiters, *path.last()?, stuck).next()?;
        if let Some(place) = path.iter().position(|known| *known == following) {
            return Some(path.split_off(place));
        }
        path.push(following);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `age` in seconds, backends and blockers as (shard, pid).
    fn waiter(session: i32, age: u64, backends: &[Backend], blockers: &[Backend]) -> Waiter {
        Waiter {
            id: WaiterId { proxy: 1, session, transaction: 1, statement: 1 },
            began_ms: 1_000_000 - age * 1000,
            backends: backends.iter().copied().collect(),
            pools: backends.iter().filter_map(|(shard, _)| usize::try_from(*shard).ok()).collect(),
            blockers: blockers.iter().copied().collect(),
            pool: None,
        }
    }

    fn victims(waiters: &[Waiter]) -> Vec<i32> {
        deadlocks(waiters.to_vec()).iter().map(|deadlock| deadlock.victim.session).collect()
    }

    #[test]
    fn the_youngest_of_a_ring_gives_way() {
        let two = [waiter(1, 9, &[(0, 1), (1, 1)], &[(1, 2)]), waiter(2, 5, &[(0, 2), (1, 2)], &[(0, 1)])];
        assert_eq!(victims(&two), [2]);
        let three = [
            waiter(1, 4, &[(0, 1), (1, 1)], &[(1, 2)]),
            waiter(2, 5, &[(1, 2), (2, 2)], &[(2, 3)]),
            waiter(3, 6, &[(2, 3), (0, 3)], &[(0, 1)]),
        ];
        assert_eq!(victims(&three), [1]);
        assert_eq!(deadlocks(three.to_vec())[0].members.len(), 3);
    }

    /// One waits for two that wait for it: two rings share it.
    #[test]
    fn whoever_looks_sees_the_same_ring() {
        let of = |proxy: i64, waiter: Waiter| Waiter { id: WaiterId { proxy, ..waiter.id }, ..waiter };
        let shared = of(1, waiter(1, 9, &[(0, 1), (1, 1)], &[(0, 2), (0, 3)]));
        let a = of(1, waiter(2, 5, &[(0, 2), (1, 2)], &[(1, 1)]));
        let x = of(2, waiter(3, 7, &[(0, 3), (1, 3)], &[(1, 1)]));
        let (by_the_first, by_the_second) = ([x.clone(), shared.clone(), a.clone()], [shared, a, x]);
        let mut backwards = by_the_second.to_vec();
        backwards.reverse();
        let found = deadlocks(by_the_first.to_vec());
        assert_eq!(found.len(), 1);
        assert_eq!(deadlocks(by_the_second.to_vec()), found);
        assert_eq!(deadlocks(backwards), found);
    }

    #[test]
    fn who_waits_for_somebody_that_can_go_on_is_left_alone() {
        let chain = [waiter(1, 9, &[(0, 1), (1, 1)], &[(1, 2)]), waiter(2, 5, &[(0, 2), (1, 2)], &[(0, 77)])];
        assert!(victims(&chain).is_empty());
        // One that merely waits for a ring is no victim, though it is the youngest.
        let tail = [
            waiter(1, 9, &[(0, 1), (1, 1)], &[(1, 2)]),
            waiter(2, 5, &[(0, 2), (1, 2)], &[(0, 1)]),
            waiter(3, 1, &[(0, 3), (1, 3)], &[(0, 1), (0, 2)]),
        ];
        assert_eq!(victims(&tail), [2]);
        assert!(victims(&[]).is_empty());
    }

    #[test]
    fn two_rings_have_two_victims() {
        let waiters = [
            waiter(1, 9, &[(0, 1), (1, 1)], &[(1, 2)]),
            waiter(2, 5, &[(0, 2), (1, 2)], &[(0, 1)]),
            waiter(3, 2, &[(0, 3), (1, 3)], &[(1, 4)]),
            waiter(4, 7, &[(0, 4), (1, 4)], &[(0, 3)]),
        ];
        let mut found = victims(&waiters);
        found.sort_unstable();
        assert_eq!(found, [2, 3]);
    }

    #[test]
    fn a_full_pool_is_a_deadlock_only_when_all_its_connections_are_stuck() {
        let pool = |pool, in_use| Some(PoolWait { pool, in_use });
        // Each holds the only connection that the other wants.
        let both = [
            Waiter { pool: pool(1, 1), ..waiter(1, 9, &[(0, 1)], &[]) },
            Waiter { pool: pool(0, 1), ..waiter(2, 5, &[(1, 2)], &[]) },
        ];
        assert_eq!(victims(&both), [2]);
        let with_room = [Waiter { pool: pool(1, 2), ..both[0].clone() }, both[1].clone()];
        assert!(victims(&with_room).is_empty());
        // A lock on the one side, a pool on the other.
        let mixed = [Waiter { pool: pool(1, 1), ..waiter(1, 9, &[(0, 1)], &[]) }, waiter(2, 5, &[(1, 2), (0, 2)], &[(0, 1)])];
        assert_eq!(victims(&mixed), [2]);
    }
}
