//! Mistakes that are planted on purpose, one by one: what the other tests look at shows each of them.

use std::time::Duration;

use super::Ledger;
use super::kills::{Points, Told, commit, found_now, uuid, write};
use crate::sessions::Stage;
use crate::support::{Proxy, ProxyOptions};

/// A participant whose deferred trigger refuses, and the decision is made all the same: half a transaction.
#[tokio::test]
async fn a_decision_before_all_are_prepared_is_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        let stage = Stage::start(3, points.options()).await;
        Ledger::create(&stage).await;
        if is_planted {
            points.arm("planted.decided_before_all_are_prepared", "");
        }
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(1)).await;
        let refused = format!("INSERT INTO ledger VALUES ('{}', {}, NULL)", uuid(2), stage.key(2, 0));
        assert_eq!(client.ask(&refused).await, "C(INSERT 0 1) Z(T)");
        let told = commit(&mut client).await;
        let there = found_now(&stage, &uuid(1)).await;
        assert_eq!(there == 0 || there == 3, !is_planted, "{told:?}, on {there} shards");
    }
}

/// Two participants of a transaction that was never decided: the second finds the row that the recovery of the first has written.
#[tokio::test]
async fn a_unique_violation_read_as_a_commit_is_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        let stage = Stage::start(3, points.options()).await;
        Ledger::create(&stage).await;
        let planted = Points::new();
        if is_planted {
            planted.arm("planted.violation_read_as_committed", "");
        }
        let _other = Proxy::start(&stage.cluster, if is_planted { planted.options() } else { ProxyOptions::default() });
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(1)).await;
        points.arm("before_decision", "abort");
        assert_eq!(commit(&mut client).await, Told::Nothing);
        Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(15)).await;
        let there = found_now(&stage, &uuid(1)).await;
        assert_eq!(there == 0 || there == 3, !is_planted, "on {there} shards");
    }
}

/// A lock that was taken by reading is let go before the commit is everywhere: who waited for it misses what was written.
#[tokio::test]
async fn readers_that_end_first_are_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        let stage = Stage::start(3, points.options()).await;
        if is_planted {
            points.arm("planted.readers_end_first", "");
        }
        let (mut holder, mut waiter) = (stage.client().await, stage.client().await);
        let lock = format!("SELECT 1 FROM accounts WHERE id = {} FOR UPDATE", stage.key(0, 0));
        let texts = [
            "BEGIN".to_owned(),
            lock.clone(),
            format!("UPDATE accounts SET balance = 1 WHERE id = {}", stage.key(1, 0)),
            format!("UPDATE accounts SET balance = 1 WHERE id = {}", stage.key(2, 0)),
        ];
        for text in texts {
            assert!(!holder.ask(&text).await.contains("E("), "{text}");
        }
        points.arm("after_decision", "hold");
        let committing = tokio::spawn(async move { commit(&mut holder).await });
        points.until_reached("after_decision").await;
        // Decided, and not everywhere yet: the lock is the only thing between.
        let told = waiter.ask(&format!("BEGIN; SET LOCAL lock_timeout = '300ms'; {lock}")).await;
        assert_eq!(told.contains("E(55P03 "), !is_planted, "{told}");
        points.release("after_decision");
        assert_eq!(committing.await.expect("no panic"), Told::Committed);
    }
}
