//! Whether the proxy that began a transaction still lives, and so whether recovery should take it up. Pure.
//!
//! Acting on a transaction whose proxy lives after all harms nobody, since the decision row arbitrates: its owner hears that it
//! was rolled back. So these rules are about leaving the living in peace, never about being right.

use std::time::Duration;

use super::link::Prepared;
use crate::shardmap::Leases;

/// Is this transaction nobody's any more? `is_active`: it is under way in this process.
pub fn is_orphan(prepared: &Prepared, own: i64, is_active: bool, leases: &Leases) -> bool {
    match prepared.id.incarnation() == own {
        true => !is_active,
        false => prepared.age > AGE_MAX || leases.is_over(prepared.id.incarnation()),
    }
}

/// No commit takes this long.
const AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::execute::commit::{Secret, TransactionId};

    fn prepared(incarnation: i64, age: Duration) -> Prepared {
        let id = TransactionId::new("c", "0b9f7a4e-5a0e-4c61-8b4e-3a5e7f1d2c3b", incarnation, 1, &Secret::random());
        Prepared { gid: id.gid(1), id, age }
    }

    fn leases() -> Leases {
        Leases::new(Duration::from_secs(3))
    }

    #[test]
    fn the_transactions_of_a_living_proxy_are_left_alone_for_a_while() {
        let mut leases = leases();
        let (young, old) = (prepared(7, Duration::from_secs(1)), prepared(7, Duration::from_secs(61)));
        // Nothing is known of any lease yet.
        assert!(!is_orphan(&young, 1, false, &leases));
        assert!(is_orphan(&old, 1, false, &leases));
        for second in 0..10 {
            leases.note(&[(7, second)], Instant::now() + Duration::from_secs(second.unsigned_abs()));
            assert!(!is_orphan(&young, 1, false, &leases), "after {second} s");
        }
    }

    #[test]
    fn a_lease_that_is_not_renewed_or_gone_is_over() {
        let (start, mut leases) = (Instant::now(), leases());
        for second in [0, 3, 6] {
            leases.note(&[(7, 10), (8, second)], start + Duration::from_secs(second.unsigned_abs()));
        }
        assert!(is_orphan(&prepared(7, Duration::ZERO), 1, false, &leases));
        assert!(is_orphan(&prepared(9, Duration::ZERO), 1, false, &leases), "it has no lease");
        assert!(!is_orphan(&prepared(8, Duration::ZERO), 1, false, &leases));
    }

    #[test]
    fn while_the_map_is_away_only_age_counts() {
        let (start, mut leases) = (Instant::now(), leases());
        leases.note(&[(7, 10)], start);
        leases.note_failure();
        assert!(is_orphan(&prepared(9, Duration::ZERO), 1, false, &leases), "it had none before");
        assert!(!is_orphan(&prepared(7, Duration::from_secs(20)), 1, false, &leases), "it cannot renew its lease");
        assert!(is_orphan(&prepared(7, Duration::from_secs(61)), 1, false, &leases));
        leases.note(&[(7, 10)], start + Duration::from_secs(30));
        assert!(!is_orphan(&prepared(7, Duration::from_secs(20)), 1, false, &leases), "it may renew it from now on");
    }

    #[test]
    fn an_own_transaction_is_an_orphan_when_its_commit_has_ended() {
        let leases = leases();
        assert!(is_orphan(&prepared(1, Duration::ZERO), 1, false, &leases));
        assert!(!is_orphan(&prepared(1, Duration::from_secs(600)), 1, true, &leases));
    }
}
