//! Mistakes that are planted on purpose, one by one: what the other tests look at shows each of them.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Ledger;
use super::kills::{Points, Told, commit, found_now, uuid, write};
use crate::sessions::Stage;
use crate::support::{Cluster, Proxy, ProxyOptions};

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

/// The only shard that has written has no transaction any more when it is told to commit: PostgreSQL answers COMMIT all the same.
#[tokio::test]
async fn a_commit_of_nothing_is_no_success() {
    for is_planted in [false, true] {
        let points = Points::new();
        let stage = Stage::start(2, points.options()).await;
        if is_planted {
            points.arm("planted.lost_before_commit", "");
        }
        let mut client = stage.client().await;
        let update = format!("BEGIN; UPDATE accounts SET balance = 7 WHERE id = {}", stage.key(1, 0));
        assert!(!client.ask(&update).await.contains("E("));
        let told = commit(&mut client).await;
        assert_eq!(told == Told::Failed("40001".to_owned()), is_planted, "{told:?}");
        let there = client.value("SELECT count(*) FROM accounts WHERE balance = 7").await;
        assert_eq!(there == "0", is_planted, "{told:?}");
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

/// A participant has lost its transaction: PREPARE there answers without any error, with a warning or another tag.
#[tokio::test]
async fn tags_that_are_ignored_are_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        let stage = Stage::start(3, points.options()).await;
        Ledger::create(&stage).await;
        points.arm("planted.lost_transaction", "");
        if is_planted {
            points.arm("planted.tags_ignored", "");
        }
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(1)).await;
        let told = commit(&mut client).await;
        // With the mistake even the client hears of success: what the shard did outside of a transaction has stayed.
        assert!(is_planted || matches!(told, Told::Failed(_)), "{told:?}");
        let there = found_now(&stage, &uuid(1)).await;
        assert_eq!(there == 0, !is_planted, "on {there} shards");
    }
}

/// Two participants on one server would have the same name.
#[tokio::test]
async fn a_gid_without_the_participant_is_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        let stage = Stage::start(3, points.options()).await;
        Ledger::create(&stage).await;
        if is_planted {
            points.arm("planted.gid_without_participant", "");
        }
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(1)).await;
        let told = commit(&mut client).await;
        assert_eq!(told == Told::Committed, !is_planted, "{told:?}");
        assert_eq!(found_now(&stage, &uuid(1)).await, if is_planted { 0 } else { 3 });
    }
}

/// A proxy is frozen before the decision, recovery rolls its transaction back, the proxy thaws: only the row stops it.
#[tokio::test]
async fn aborted_rows_that_are_collected_early_are_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        // Longer than recovery takes: the decider's server must not be what stops it.
        let settings = vec![("cross_shard.commit_timeout_ms", "60000".to_owned())];
        let mut stage = Stage::start(3, ProxyOptions { settings, ..points.options() }).await;
        Ledger::create(&stage).await;
        let planted = Points::new();
        if is_planted {
            planted.arm("planted.collected_early", "");
        }
        let _other = Proxy::start(&stage.cluster, planted.options());
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(1)).await;
        points.arm("before_decision", "hold");
        let committing = tokio::spawn(async move { commit(&mut client).await });
        points.until_reached("before_decision").await;
        stage.proxy.signal(Signal::STOP);
        Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(15)).await;
        let decider = stage.cluster.connect_shard(0).await;
        let aborted = "SELECT FROM shardgate.decisions WHERE outcome = 'aborted'";
        let deadline = Instant::now() + Duration::from_secs(15);
        while is_planted && !decider.query(aborted, &[]).await.expect("rows").is_empty() {
            assert!(Instant::now() < deadline, "not collected");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(decider.query(aborted, &[]).await.expect("rows").is_empty(), is_planted);
        points.release("before_decision");
        stage.proxy.signal(Signal::CONT);
        let told = committing.await.expect("no panic");
        let there = found_now(&stage, &uuid(1)).await;
        assert_eq!(there == 0 && told != Told::Committed, !is_planted, "{told:?}, on {there} shards");
    }
}

/// The client does not wait for its commits to be flushed: the decision must be, before others are told of it.
#[tokio::test]
async fn a_decision_that_is_not_flushed_is_seen() {
    for is_planted in [false, true] {
        let points = Points::new();
        let mut cluster = Cluster::separate_servers(3).await;
        let direct = cluster.connect_shard(0).await;
        for setting in
            ["wal_writer_delay = '10s'", "wal_writer_flush_after = '100MB'", "autovacuum = off", "bgwriter_delay = '10s'"]
        {
            direct.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await.expect("set");
        }
        drop(direct);
        cluster.shard_server_mut(0).restart().expect("restarted");
        let mut stage = Stage::on(cluster, points.options()).await;
        Ledger::create(&stage).await;
        stage.cluster.connect_shard(0).await.batch_execute("CHECKPOINT").await.expect("nothing else is flushed");
        if is_planted {
            points.arm("planted.commit_not_secured", "");
        }
        let mut client = stage.client().await;
        assert_eq!(client.ask("SET synchronous_commit = off").await, "C(SET) Z(I)");
        write(&mut client, &stage, &uuid(1)).await;
        points.arm("after_decision", "hold");
        let committing = tokio::spawn(async move { commit(&mut client).await });
        points.until_reached("after_decision").await;
        stage.cluster.shard_server_mut(0).kill().expect("killed");
        points.release("after_decision");
        drop(committing.await.expect("no panic"));
        stage.cluster.shard_server_mut(0).start_again().expect("started again");
        Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;
        let there = found_now(&stage, &uuid(1)).await;
        assert_eq!(there == 3, !is_planted, "on {there} shards");
    }
}
