//! For how long the other proxies have not renewed their leases, as one who reads the map now and then sees it. Pure.
//!
//! Clocks are never compared: what counts is that the row has not changed from reading to reading, by the reader's own clock
//! ([`Leases::silent_for`]). While the map is away nobody can renew, so a reading that fails ends all silences, and of a long gap
//! between two readings only a part counts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::lease::LEASE;

/// The proxies' leases as seen from here, by our own clock.
pub struct Leases {
    /// The most that counts of the time between two readings.
    gap_max: Duration,
    rows: HashMap<i64, Row>,
    /// The map has been read at least once.
    is_known: bool,
    /// How many of them held their leases, by the last reading that has not failed.
    live: usize,
    /// Unless the last reading has failed.
    read_at: Option<Instant>,
    /// For how long no reading has failed.
    watched: Duration,
}

struct Row {
    renewals: i64,
    /// How long they have stayed so, between readings of which none has failed.
    silent: Duration,
    /// Had ended before a reading failed, and has not been renewed since.
    has_ended: bool,
}

impl Leases {
    /// `gap_max`: readings follow each other within this, mostly.
    pub fn new(gap_max: Duration) -> Self {
        Self { gap_max, rows: HashMap::new(), is_known: false, live: 0, read_at: None, watched: Duration::ZERO }
    }

    /// `rows`: proxy id and renewals, as the map has them now.
    pub fn note(&mut self, rows: &[(i64, i64)], now: Instant) {
        // In a longer gap the map may have been away, and nobody could renew.
        let passed = self.read_at.map_or(Duration::ZERO, |before| now.duration_since(before).min(self.gap_max));
        self.read_at = Some(now);
        self.watched += passed;
        let before = std::mem::take(&mut self.rows);
        for &(proxy, renewals) in rows {
            let row = match before.get(&proxy) {
                Some(known) if known.renewals == renewals => {
                    Row { renewals, silent: known.silent + passed, has_ended: known.has_ended }
                }
                Some(_) | None => Row { renewals, silent: Duration::ZERO, has_ended: false },
            };
            self.rows.insert(proxy, row);
        }
        self.rows.values_mut().for_each(|row| row.has_ended |= row.silent > LEASE);
        self.live = self.rows.values().filter(|row| !row.has_ended).count();
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
        self.silent_for(proxy) > LEASE
    }

    /// Between readings of which none has failed.
    pub fn silent_for(&self, proxy: i64) -> Duration {
        self.rows.get(&proxy).map_or(self.watched, |row| row.silent)
    }

    /// Had this process lost its lease, or had it none, when the map could be read last? Whether it has renewed it since is not known.
    pub fn is_over(&self, proxy: i64) -> bool {
        self.rows.get(&proxy).map_or(self.is_known, |row| row.has_ended)
    }

    /// How many proxies hold their leases; this one at least. While the map is away, as many as before: they go on.
    pub fn count_live(&self) -> usize {
        self.live.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Leases {
        Leases::new(Duration::from_secs(3))
    }

    #[test]
    fn a_lease_has_ended_when_readings_have_found_no_renewal_for_so_long() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut leases = leases();
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
        let mut leases = leases();
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
    fn what_was_over_before_the_map_went_away_is_over_until_it_is_renewed() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut leases = leases();
        assert!(!leases.is_over(9), "nothing is known");
        for second in [0, 3, 6] {
            leases.note(&[(7, 10), (8, at(second).duration_since(start).as_secs().cast_signed())], at(second));
        }
        for _ in 0..3 {
            assert!(leases.is_over(7) && leases.is_over(9) && !leases.is_over(8));
            leases.note_failure();
        }
        leases.note(&[(7, 10), (8, 6)], at(60));
        assert!(leases.is_over(7) && !leases.is_over(8), "the one may renew from now on");
        leases.note(&[(7, 11), (8, 6)], at(61));
        assert!(!leases.is_over(7), "it was frozen");
    }

    #[test]
    fn proxies_count_while_they_renew() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut leases = leases();
        assert_eq!(leases.count_live(), 1, "this one");
        leases.note(&[(7, 10), (8, 1)], start);
        assert_eq!(leases.count_live(), 2);
        leases.note(&[(7, 11), (8, 1)], at(3));
        leases.note(&[(7, 12), (8, 1)], at(6));
        assert_eq!(leases.count_live(), 1);
    }

    #[test]
    fn while_the_map_is_away_as_many_proxies_count_as_before() {
        let start = Instant::now();
        let mut leases = leases();
        leases.note(&[(7, 10), (8, 1), (9, 4)], start);
        for _ in 0..10 {
            leases.note_failure();
        }
        assert_eq!(leases.count_live(), 3);
    }
}
