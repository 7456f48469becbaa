//! Whether the proxy that began a transaction still lives, and so whether recovery should take it up. Pure.
//!
//! Acting on a transaction whose proxy lives after all harms nobody, since the decision row arbitrates: its owner hears that it
//! was rolled back. So those rules are about leaving the living in peace, never about being right. A change of the schema is closed
//! only when its proxy was silent from reading to reading ([`Leases::has_ended`]): while the map is away nobody can renew.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::link::Prepared;
use crate::shardmap::LEASE;

/// The proxies' leases as seen from here, by our own clock.
#[derive(Default)]
pub struct Leases {
    rows: HashMap<i64, Row>,
    /// The map has been read at least once.
    is_known: bool,
    /// Unless the last reading has failed.
    read_at: Option<Instant>,
    /// For how long no reading has failed.
    watched: Duration,
}

struct Row {
    renewals: i64,
    /// The reading that has found them first.
    since: Instant,
    /// How long they have stayed so, between readings of which none has failed.
    silent: Duration,
}

impl Leases {
    /// `rows`: proxy id and renewals, as the map has them now.
    pub fn note(&mut self, rows: &[(i64, i64)], now: Instant) {
        // In a longer gap the map may have been away, and nobody could renew.
        let passed = self.read_at.map_or(Duration::ZERO, |before| now.duration_since(before).min(GAP_MAX));
        self.read_at = Some(now);
        self.watched += passed;
        let before = std::mem::take(&mut self.rows);
        for &(proxy, renewals) in rows {
            let row = match before.get(&proxy) {
                Some(known) if known.renewals == renewals => Row { silent: known.silent + passed, ..*known },
                Some(_) | None => Row { renewals, since: now, silent: Duration::ZERO },
            };
            self.rows.insert(proxy, row);
        }
        self.is_known = true;
    }

    /// The map could not be read.
    pub fn note_failure(&mut self) {
        self.read_at = None;
        self.watched = Duration::ZERO;
        self.rows.values_mut().for_each(|row| row.silent = Duration::ZERO);
    }

    /// Has this process lost its lease, or has it none, while the map could be read all the time? By the last reading.
    pub fn has_ended(&self, proxy: i64) -> bool {
        self.rows.get(&proxy).map_or(self.watched, |row| row.silent) > LEASE
    }

    /// How many proxies hold their leases, as far as is known; this one at least.
    pub fn count_live(&self, now: Instant) -> usize {
        let live = self.rows.values().filter(|row| now.duration_since(row.since) <= LEASE);
        live.count().max(1)
    }

    /// Has nobody heard of this process for the length of a lease? It may live, and the map be away.
    fn is_over(&self, proxy: i64, now: Instant) -> bool {
        match self.rows.get(&proxy) {
            Some(row) => now.duration_since(row.since) > LEASE,
            None => self.is_known,
        }
    }
}

/// Is this transaction nobody's any more? `is_active`: it is under way in this process.
pub fn is_orphan(prepared: &Prepared, own: i64, is_active: bool, leases: &Leases, now: Instant) -> bool {
    match prepared.id.incarnation() == own {
        true => !is_active,
        false => prepared.age > AGE_MAX || leases.is_over(prepared.id.incarnation(), now),
    }
}

/// No commit takes this long.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Rounds follow each other within this, mostly.
const GAP_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::commit::{Secret, TransactionId};

    fn prepared(incarnation: i64, age: Duration) -> Prepared {
        let id = TransactionId::new("c", "0b9f7a4e-5a0e-4c61-8b4e-3a5e7f1d2c3b", incarnation, 1, &Secret::random());
        Prepared { gid: id.gid(1), id, age }
    }

    #[test]
    fn the_transactions_of_a_living_proxy_are_left_alone_for_a_while() {
        let start = Instant::now();
        let mut leases = Leases::default();
        let (young, old) = (prepared(7, Duration::from_secs(1)), prepared(7, Duration::from_secs(61)));
        // Nothing is known of any lease yet.
        assert!(!is_orphan(&young, 1, false, &leases, start));
        leases.note(&[(7, 10)], start);
        assert!(!is_orphan(&young, 1, false, &leases, start));
        assert!(is_orphan(&old, 1, false, &leases, start));
        let later = start + LEASE + Duration::from_millis(1);
        leases.note(&[(7, 11)], later);
        assert!(!is_orphan(&young, 1, false, &leases, later));
    }

    #[test]
    fn a_lease_that_is_not_renewed_or_gone_is_over() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.note(&[(7, 10), (8, 1)], start);
        let later = start + LEASE + Duration::from_millis(1);
        leases.note(&[(7, 10)], later);
        assert!(is_orphan(&prepared(7, Duration::ZERO), 1, false, &leases, later));
        assert!(is_orphan(&prepared(8, Duration::ZERO), 1, false, &leases, later));
    }

    #[test]
    fn a_lease_has_ended_when_readings_have_found_no_renewal_for_so_long() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut leases = Leases::default();
        assert!(!leases.has_ended(7), "nothing is known");
        for second in [0, 2, 4] {
            leases.note(&[(7, 10), (8, 1)], at(second));
            assert!(!leases.has_ended(7) && !leases.has_ended(9), "after {second} s");
        }
        // Time alone says nothing: the last reading is what counts.
        leases.note(&[(7, 10), (8, 2)], at(6));
        assert!(leases.has_ended(7) && leases.has_ended(9), "9 has no row");
        assert!(!leases.has_ended(8));
        leases.note(&[(7, 11), (8, 2), (9, 0)], at(7));
        assert!(!leases.has_ended(7) && !leases.has_ended(9), "it was frozen, or has just come");
    }

    #[test]
    fn while_the_map_is_away_no_lease_ends() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut leases = Leases::default();
        leases.note(&[(7, 10)], at(0));
        leases.note_failure();
        leases.note(&[(7, 10)], at(8));
        assert!(!leases.has_ended(7) && !leases.has_ended(9), "it may renew again from now on");
        // An outage that no reading has met.
        leases.note(&[(7, 10)], at(60));
        assert!(!leases.has_ended(7) && !leases.has_ended(9));
        leases.note(&[(7, 10)], at(63));
        assert!(leases.has_ended(7) && leases.has_ended(9));
    }

    #[test]
    fn proxies_count_while_they_renew() {
        let start = Instant::now();
        let mut leases = Leases::default();
        assert_eq!(leases.count_live(start), 1, "this one");
        leases.note(&[(7, 10), (8, 1)], start);
        assert_eq!(leases.count_live(start), 2);
        let later = start + LEASE + Duration::from_millis(1);
        leases.note(&[(7, 11), (8, 1)], later);
        assert_eq!(leases.count_live(later), 1);
    }

    #[test]
    fn an_own_transaction_is_an_orphan_when_its_commit_has_ended() {
        let (leases, now) = (Leases::default(), Instant::now());
        assert!(is_orphan(&prepared(1, Duration::ZERO), 1, false, &leases, now));
        assert!(!is_orphan(&prepared(1, Duration::from_secs(600)), 1, true, &leases, now));
    }
}
