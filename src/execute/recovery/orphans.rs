//! Whether the proxy that began a transaction still lives, and so whether recovery should take it up. Pure.
//!
//! Acting on a transaction whose proxy lives after all harms nobody, since the decision row arbitrates: its owner hears that it
//! was rolled back. So these rules are about leaving the living in peace, never about being right.

use std::time::{Duration, Instant};

use super::link::Prepared;
use crate::shardmap::Leases;

/// Is this transaction nobody's any more? `is_active`: it is under way in this process.
pub fn is_orphan(prepared: &Prepared, own: i64, is_active: bool, leases: &Leases, now: Instant) -> bool {
    match prepared.id.incarnation() == own {
        true => !is_active,
        false => prepared.age > AGE_MAX || leases.is_over(prepared.id.incarnation(), now),
    }
}

/// No commit takes this long.
const AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::commit::{Secret, TransactionId};
    use crate::shardmap::LEASE;

    fn prepared(incarnation: i64, age: Duration) -> Prepared {
        let id = TransactionId::new("c", "0b9f7a4e-5a0e-4c61-8b4e-3a5e7f1d2c3b", incarnation, 1, &Secret::random());
        Prepared { gid: id.gid(1), id, age }
    }

    fn leases() -> Leases {
        Leases::new(Duration::from_secs(3))
    }

    #[test]
    fn the_transactions_of_a_living_proxy_are_left_alone_for_a_while() {
        let start = Instant::now();
        let mut leases = leases();
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
        let mut leases = leases();
        leases.note(&[(7, 10), (8, 1)], start);
        let later = start + LEASE + Duration::from_millis(1);
        leases.note(&[(7, 10)], later);
        assert!(is_orphan(&prepared(7, Duration::ZERO), 1, false, &leases, later));
        assert!(is_orphan(&prepared(8, Duration::ZERO), 1, false, &leases, later));
    }

    #[test]
    fn an_own_transaction_is_an_orphan_when_its_commit_has_ended() {
        let (leases, now) = (leases(), Instant::now());
        assert!(is_orphan(&prepared(1, Duration::ZERO), 1, false, &leases, now));
        assert!(!is_orphan(&prepared(1, Duration::from_secs(600)), 1, true, &leases, now));
    }
}
