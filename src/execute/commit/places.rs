//! Places for prepared transactions: a server has `max_prepared_transactions` of them, for all its databases and all proxies.
//!
//! A commit takes a place for each shard that it prepares before it prepares any, and gives them back when it has ended; when
//! there is none it waits its turn. Without that the server refuses the PREPARE, and the transaction is lost. Each proxy uses its
//! part of them, by how many proxies live. What a lost proxy has left prepared keeps its place until recovery has finished it; it
//! is not counted here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Of one proxy.
#[derive(Debug, Default)]
pub struct Places {
    /// By what tells servers apart.
    servers: Mutex<HashMap<String, Server>>,
    /// Some server has fewer than before.
    shrunk: Notify,
}

#[derive(Debug)]
struct Server {
    free: Arc<Semaphore>,
    /// Free and taken ones.
    count: usize,
}

/// What a commit needs on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub places: usize,
    /// `max_prepared_transactions`.
    pub of: usize,
}

/// Gives the places back when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct TakenPlaces {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Places {
    /// Waits for as long as it takes; who came first is served first. Servers in one order for all, so that nobody waits for who
    /// waits for him. Cancel safe.
    pub async fn take(&self, wanted: &BTreeMap<String, Wanted>, proxies: usize) -> TakenPlaces {
        let mut permits = Vec::with_capacity(wanted.len());
        for (server, wanted) in wanted {
            loop {
                let shrunk = self.shrunk.notified();
                tokio::pin!(shrunk);
                shrunk.as_mut().enable();
                let (free, count) = self.server(server, wanted.of / proxies.max(1));
                // A commit on so many shards of one server goes alone.
                let places = u32::try_from(wanted.places.min(count)).unwrap_or(u32::MAX);
                tokio::select! {
                    permit = free.acquire_many_owned(places) => {
                        permits.extend(permit);
                        break;
                    }
                    // Who wants more than there are now would wait for ever, with all behind him.
                    () = shrunk => {}
                }
            }
        }
        TakenPlaces { _permits: permits }
    }

    /// With this many places, or as many fewer as are free, and at least one.
    fn server(&self, name: &str, count: usize) -> (Arc<Semaphore>, usize) {
        let count = count.max(1);
        let mut servers = self.servers.lock();
        if servers.len() >= SERVERS_MAX && !servers.contains_key(name) {
            // Restarted servers have other names: what nobody waits for is let go.
            servers.retain(|_, server| Arc::strong_count(&server.free) > 1);
        }
        let fresh = || Server { free: Arc::new(Semaphore::new(count)), count };
        let server = servers.entry(name.to_owned()).or_insert_with(fresh);
        if count > server.count {
            server.free.add_permits(count - server.count);
            server.count = count;
        } else {
            let forgotten = server.free.forget_permits(server.count - count);
            server.count -= forgotten;
            if forgotten > 0 {
                self.shrunk.notify_waiters();
            }
        }
        (Arc::clone(&server.free), server.count)
    }
}

/// Kept for servers that nobody commits on.
const SERVERS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn wanted(places: usize, of: usize) -> BTreeMap<String, Wanted> {
        BTreeMap::from([("one".to_owned(), Wanted { places, of })])
    }

    #[test]
    fn who_finds_no_place_waits_for_one() {
        let places = Places::default();
        let (one, two) = (wanted(1, 3), wanted(2, 3));
        let first = places.take(&two, 1).now_or_never().expect("free");
        let mut second = Box::pin(places.take(&two, 1));
        assert!((&mut second).now_or_never().is_none());
        // One is free, but somebody was here before.
        assert!(places.take(&one, 1).now_or_never().is_none());
        drop(first);
        let second = second.now_or_never().expect("its turn");
        let third = places.take(&one, 1).now_or_never().expect("the last one");
        assert!(places.take(&one, 1).now_or_never().is_none());
        drop((second, third));
        assert!(places.take(&wanted(9, 3), 1).now_or_never().is_some(), "more than there are: alone");
    }

    #[test]
    fn who_wants_more_than_there_are_now_keeps_nobody_waiting() {
        let places = Places::default();
        let (two, many) = (wanted(2, 8), wanted(8, 8));
        let held = places.take(&wanted(6, 8), 1).now_or_never().expect("free");
        let mut waiting = Box::pin(places.take(&many, 1));
        assert!((&mut waiting).now_or_never().is_none());
        // A second proxy comes: half of them, and all that are free now are gone.
        drop(places.take(&two, 2).now_or_never());
        drop(held);
        assert!((&mut waiting).now_or_never().is_some(), "alone, with as many as there are");
    }

    #[test]
    fn each_proxy_has_its_part() {
        let places = Places::default();
        let alone = places.take(&wanted(3, 4), 1).now_or_never().expect("free");
        assert!(places.take(&wanted(2, 4), 2).now_or_never().is_none(), "another proxy has come");
        drop(alone);
        let _one = places.take(&wanted(2, 4), 2).now_or_never().expect("free");
        assert!(places.take(&wanted(1, 4), 2).now_or_never().is_none());
        let _two = places.take(&wanted(2, 4), 1).now_or_never().expect("it has gone again");
        assert!(Places::default().take(&wanted(1, 2), 5).now_or_never().is_some(), "at least one");
    }
}
