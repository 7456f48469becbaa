//! Whether a shard can be reached, and when to try again.
//!
//! ```text
//!          connect fails                    retry_at reached: one checkout tries, the others fail at once
//!   Up ─────────────────► Down{retry_at} ──────────────────────────────► Probing ── ok ──► Up
//!                              ▲                                            │
//!                              └───────────── longer back-off ── fails ─────┘
//! ```
//! A shard that is down costs its callers an error, never a wait; other shards do not notice.

use std::time::{Duration, Instant};

use rand::Rng;

/// How long to leave an unreachable shard alone.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub base: Duration,
    pub factor: f64,
    /// Share of the delay, both ways: 0.2 is ±20 %.
    pub jitter: f64,
    pub max: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down { retry_at: Instant, failures: u32 },
    Probing { failures: u32 },
}

#[derive(Debug)]
pub struct Health {
    state: State,
    backoff: Backoff,
}

impl Health {
    pub fn new(backoff: Backoff) -> Self {
        Self { state: State::Up, backoff }
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// May a connection be opened now? `true` for one caller once the back-off is over.
    pub fn may_connect(&mut self, now: Instant) -> bool {
        match self.state {
            State::Up => true,
            State::Probing { .. } => false,
            State::Down { retry_at, failures } if now >= retry_at => {
                self.state = State::Probing { failures };
                true
            }
            State::Down { .. } => false,
        }
    }

    /// A caller that was let through gave up without an answer: the next one may try.
    pub fn abandoned(&mut self, now: Instant) {
        if let State::Probing { failures } = self.state {
            self.state = State::Down { retry_at: now, failures };
        }
    }

    pub fn connected(&mut self) {
        self.state = State::Up;
    }

    /// Nobody's statement has waited for this attempt: the next one may try by itself, and does not fail where the shard has come back since.
    pub fn probe_failed(&mut self, now: Instant) {
        let failures = match self.state {
            State::Up => 0,
            State::Down { failures, .. } | State::Probing { failures } => failures,
        };
        self.state = State::Down { retry_at: now, failures };
    }

    pub fn failed(&mut self, now: Instant) {
        let failures = match self.state {
            State::Up => 0,
            State::Down { failures, .. } | State::Probing { failures } => failures,
        };
        let delay = self.backoff.delay(failures, rand::rng().random_range(-1.0..=1.0));
        self.state = State::Down { retry_at: now + delay, failures: failures.saturating_add(1) };
    }
}

impl Backoff {
    /// Delay after this many failures; `noise` in -1..=1.
    fn delay(&self, failures: u32, noise: f64) -> Duration {
        let grown = self.base.as_secs_f64() * self.factor.powi(failures.min(64).cast_signed());
        let capped = grown.min(self.max.as_secs_f64());
        Duration::from_secs_f64((capped * (1.0 + self.jitter * noise)).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { base: Duration::from_millis(50), factor: 2.0, jitter: 0.2, max: Duration::from_millis(1000) };

    #[test]
    fn one_caller_probes_when_the_back_off_is_over() {
        let start = Instant::now();
        let mut health = Health::new(BACKOFF);
        assert!(health.may_connect(start));
        health.failed(start);
        assert!(!health.may_connect(start));
        let later = start + Duration::from_secs(1);
        assert!(health.may_connect(later));
        assert!(!health.may_connect(later), "only one probes");
        health.connected();
        assert!(health.is_up() && health.may_connect(later));
    }

    #[test]
    fn a_probe_that_fails_keeps_nobody_from_trying() {
        let now = Instant::now();
        let mut health = Health::new(BACKOFF);
        health.probe_failed(now);
        assert!(!health.is_up() && health.may_connect(now));
        health.failed(now);
        assert!(!health.may_connect(now), "a statement that has tried does");
    }

    #[test]
    fn delays_double_up_to_the_maximum_with_a_fifth_of_noise() {
        assert_eq!(BACKOFF.delay(0, 0.0), Duration::from_millis(50));
        assert_eq!(BACKOFF.delay(3, 0.0), Duration::from_millis(400));
        assert_eq!(BACKOFF.delay(60, 1.0), Duration::from_millis(1200));
        assert_eq!(BACKOFF.delay(60, -1.0), Duration::from_millis(800));
    }
}
