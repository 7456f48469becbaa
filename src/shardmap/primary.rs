//! Which server is a shard's primary now: its system identifier and its timeline, shared by all that connect to the shard.
//!
//! A promotion begins a new timeline. The first connection that sees one says so here, and from that moment on every connection to the
//! server before is good for nothing, whatever it is used for and whether or not it still answers:
//!
//! ```text
//!   connection opened ─► accept(server it shows) ─┬─ the same, or the first that is seen ─► a pledge, good until the primary changes
//!                                                 ├─ a newer timeline ─► this is the primary now; all pledges before are broken
//!                                                 └─ an older timeline, another system ─► refused
//!   the map ─► learn(what other proxies have seen) ─► the same rules
//! ```
//! What is known here and not in the map is told to it ([`Primary::untold`]), again where the map has lost it (it failed over, or was
//! restored). A server with another system identifier is no successor
//! that could be told by itself (a dump that was restored, `pg_upgrade`): an administrator says so, by the map. Pure but for locks.
//!
//! Two servers that are primaries of the newest timeline at once are no successors of one another, and each may have what the other one has
//! not: none is used until one of them is gone, or was promoted once more ([`Primary::note_split`]).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use futures::task::AtomicWaker;
use parking_lot::Mutex;

/// A primary server, as it shows itself. The timeline is a history's, so that two servers with the same are one after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PrimaryServer {
    pub system_identifier: i64,
    pub timeline: i32,
}

impl PrimaryServer {
    /// It was promoted later.
    pub fn is_successor_of(self, other: Self) -> bool {
        self.system_identifier == other.system_identifier && self.timeline > other.timeline
    }
}

/// Why a server is not the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPrimary {
    /// Its timeline is older.
    Former,
    /// It is a database cluster of its own.
    OtherSystem,
    /// Another server is a primary of this timeline, too.
    Split,
}

#[derive(Debug, Default)]
pub struct Primary {
    known: Mutex<Known>,
    /// Grows when the primary becomes another one.
    generation: AtomicU64,
    /// When the server was started to which the last connection was made, in microseconds.
    started_at: AtomicI64,
}

#[derive(Debug, Default)]
struct Known {
    server: Option<PrimaryServer>,
    is_told: bool,
    /// Two servers show `server`.
    is_split: bool,
    /// Of those who wait for the server that was the primary.
    pledges: Vec<Weak<AtomicWaker>>,
    /// Number of pledges at which the broken ones are taken out.
    swept_at: usize,
}

/// A connection's own: it leads to the server that was the primary when it was opened.
#[derive(Debug)]
pub struct Pledge {
    primary: Arc<Primary>,
    server: PrimaryServer,
    generation: u64,
    waker: Arc<AtomicWaker>,
}

impl Pledge {
    /// To which the connection leads.
    pub fn server(&self) -> PrimaryServer {
        self.server
    }

    /// The shard has another primary now.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.primary.generation.load(Ordering::Acquire) != self.generation
    }

    /// When it is.
    pub async fn broken(&self) {
        std::future::poll_fn(|context| {
            self.wake_when_broken(context.waker());
            if self.is_broken() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Who waits for the server's answer is woken when it is the primary no more. Ask [`Pledge::is_broken`] after this.
    #[inline]
    pub fn wake_when_broken(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
    }
}

/// When the pledge is broken; never, where there is none.
pub async fn primary_changes(pledge: Option<&Pledge>) {
    match pledge {
        Some(pledge) => pledge.broken().await,
        None => std::future::pending().await,
    }
}

impl Primary {
    /// As the map has it.
    pub fn of(server: Option<PrimaryServer>) -> Arc<Self> {
        let known = Known { server, is_told: server.is_some(), ..Known::default() };
        Arc::new(Self { known: Mutex::new(known), ..Self::default() })
    }

    pub fn server(&self) -> Option<PrimaryServer> {
        self.known.lock().server
    }

    /// Of a connection that was just opened, or looked at again.
    pub fn accept(self: &Arc<Self>, found: PrimaryServer) -> Result<Pledge, NotPrimary> {
        let mut known = self.known.lock();
        if let Some(now) = known.server
            && now.system_identifier != found.system_identifier
        {
            return Err(NotPrimary::OtherSystem);
        }
        if known.server.is_some_and(|now| now.is_successor_of(found)) {
            return Err(NotPrimary::Former);
        }
        self.become_known(&mut known, found, false);
        if known.is_split {
            return Err(NotPrimary::Split);
        }
        let waker = Arc::new(AtomicWaker::new());
        known.sweep();
        known.pledges.push(Arc::downgrade(&waker));
        Ok(Pledge { primary: Arc::clone(self), server: found, generation: self.generation.load(Ordering::Acquire), waker })
    }

    /// What the map says, which is newer than what it said before. It alone can name another system. Where it says an older timeline,
    /// it does not know, or knows no more, what it is to be told.
    pub fn learn(&self, told: PrimaryServer) {
        self.learn_by(&mut self.known.lock(), told);
    }

    fn learn_by(&self, known: &mut Known, told: PrimaryServer) {
        match known.server {
            Some(now) if now.is_successor_of(told) => known.is_told = false,
            Some(_) | None => self.become_known(known, told, true),
        }
    }

    fn become_known(&self, known: &mut Known, server: PrimaryServer, is_told: bool) {
        if known.server == Some(server) {
            known.is_told |= is_told;
            return;
        }
        let is_other = known.server.is_some();
        known.server = Some(server);
        known.is_told = is_told;
        known.is_split = false;
        if is_other {
            self.break_pledges(known);
        }
    }

    fn break_pledges(&self, known: &mut Known) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        known.pledges.drain(..).filter_map(|pledge| pledge.upgrade()).for_each(|waker| waker.wake());
    }

    /// Two servers are seen as this primary at once, or are no more. Nothing changes where another one is the primary by now.
    pub fn note_split(&self, server: PrimaryServer, is_split: bool) {
        let mut known = self.known.lock();
        if known.server != Some(server) || known.is_split == is_split {
            return;
        }
        known.is_split = is_split;
        if is_split {
            self.break_pledges(&mut known);
        }
    }

    pub fn is_split(&self) -> bool {
        self.known.lock().is_split
    }

    /// The map knows none.
    pub fn learn_nothing(&self) {
        self.known.lock().is_told = false;
    }

    /// What the map does not know yet.
    pub fn untold(&self) -> Option<PrimaryServer> {
        let known = self.known.lock();
        known.server.filter(|_| !known.is_told)
    }

    /// The map was told of `server`, and says that it is `answer`. What was learnt meanwhile is newer.
    pub fn note_answer(&self, server: PrimaryServer, answer: PrimaryServer) {
        let mut known = self.known.lock();
        if known.server == Some(server) {
            self.learn_by(&mut known, answer);
        }
    }

    pub fn note_started_at(&self, microseconds: i64) {
        self.started_at.store(microseconds, Ordering::Release);
    }

    /// Of the server to which the last connection was made; 0: there was none.
    pub fn started_at(&self) -> i64 {
        self.started_at.load(Ordering::Acquire)
    }
}

impl Known {
    /// When their number has doubled: so there are never more than twice those that are held.
    fn sweep(&mut self) {
        if self.pledges.len() >= self.swept_at {
            self.pledges.retain(|pledge| pledge.strong_count() > 0);
            self.swept_at = (self.pledges.len() * 2).max(SWEPT_FROM);
        }
    }
}

/// For what the map says: two shards are alike if the same server is known.
impl PartialEq for Primary {
    fn eq(&self, other: &Self) -> bool {
        self.server() == other.server()
    }
}

const SWEPT_FROM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const fn server(system_identifier: i64, timeline: i32) -> PrimaryServer {
        PrimaryServer { system_identifier, timeline }
    }

    #[test]
    fn a_newer_timeline_breaks_what_was_pledged_before() {
        let primary = Primary::of(None);
        let first = primary.accept(server(1, 1)).expect("the first");
        assert_eq!(primary.untold(), Some(server(1, 1)));
        primary.note_answer(server(1, 1), server(1, 1));
        assert_eq!(primary.untold(), None);
        let again = primary.accept(server(1, 1)).expect("the same");
        assert!(!first.is_broken() && !again.is_broken());
        let next = primary.accept(server(1, 3)).expect("promoted");
        assert!(first.is_broken() && again.is_broken() && !next.is_broken());
        assert_eq!(primary.untold(), Some(server(1, 3)));
        assert_eq!(primary.accept(server(1, 2)).unwrap_err(), NotPrimary::Former);
        assert_eq!(primary.accept(server(2, 9)).unwrap_err(), NotPrimary::OtherSystem);
    }

    #[test]
    fn of_two_primaries_of_one_timeline_none_is_used() {
        let primary = Primary::of(Some(server(1, 2)));
        let pledge = primary.accept(server(1, 2)).expect("the primary");
        primary.note_split(server(1, 1), true);
        assert!(!pledge.is_broken() && !primary.is_split(), "two former ones");
        primary.note_split(server(1, 2), true);
        assert!(pledge.is_broken() && primary.is_split());
        assert_eq!(primary.accept(server(1, 2)).unwrap_err(), NotPrimary::Split);
        assert_eq!(primary.accept(server(1, 1)).unwrap_err(), NotPrimary::Former);
        primary.note_split(server(1, 2), false);
        let pledge = primary.accept(server(1, 2)).expect("the one that is left");
        primary.note_split(server(1, 2), true);
        assert!(pledge.is_broken() && primary.accept(server(1, 3)).is_ok() && !primary.is_split(), "one was promoted once more");
    }

    #[test]
    fn the_map_may_know_better_and_alone_may_name_another_system() {
        let primary = Primary::of(Some(server(1, 2)));
        assert_eq!(primary.untold(), None);
        let pledge = primary.accept(server(1, 2)).expect("the same");
        primary.learn(server(1, 1));
        assert!(!pledge.is_broken() && primary.server() == Some(server(1, 2)), "what it said before");
        primary.learn(server(1, 3));
        assert!(pledge.is_broken());
        assert_eq!(primary.accept(server(1, 2)).unwrap_err(), NotPrimary::Former);
        let pledge = primary.accept(server(1, 4)).expect("promoted");
        primary.learn(server(2, 1));
        assert!(pledge.is_broken());
        assert_eq!(primary.accept(server(1, 5)).unwrap_err(), NotPrimary::OtherSystem);
        assert!(primary.accept(server(2, 1)).is_ok() && primary.untold().is_none());
    }

    #[test]
    fn a_map_that_has_lost_what_it_was_told_is_told_again() {
        let primary = Primary::of(Some(server(1, 2)));
        primary.accept(server(1, 3)).expect("promoted");
        primary.note_answer(server(1, 3), server(1, 3));
        assert_eq!(primary.untold(), None);
        primary.learn(server(1, 2));
        assert_eq!(primary.untold(), Some(server(1, 3)));
        assert_eq!(primary.accept(server(1, 2)).unwrap_err(), NotPrimary::Former);
        primary.learn(server(1, 3));
        primary.learn_nothing();
        assert_eq!(primary.untold(), Some(server(1, 3)));
    }

    #[test]
    fn who_tells_the_map_too_late_learns_what_it_knows() {
        let primary = Primary::of(None);
        let pledge = primary.accept(server(1, 2)).expect("the first");
        primary.note_answer(server(1, 2), server(1, 3));
        assert!(pledge.is_broken() && primary.untold().is_none());
        assert_eq!(primary.server(), Some(server(1, 3)));
        // It came after something newer.
        primary.learn(server(2, 1));
        primary.note_answer(server(1, 3), server(1, 3));
        assert_eq!(primary.server(), Some(server(2, 1)));
    }

    #[test]
    fn who_waits_is_woken_and_those_that_are_gone_are_forgotten() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let primary = Primary::of(None);
        let pledge = primary.accept(server(1, 1)).expect("the first");
        let woken = Arc::new(Woken(false.into()));
        pledge.wake_when_broken(&Arc::clone(&woken).into());
        for _ in 0..1000 {
            drop(primary.accept(server(1, 1)));
        }
        assert!(primary.known.lock().pledges.len() <= SWEPT_FROM);
        primary.learn(server(1, 2));
        assert!(woken.0.load(Ordering::SeqCst) && pledge.is_broken());
    }
}
