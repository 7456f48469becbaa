//! A panic in one session: the client hears `XX000`, the operator sees it, nothing is left behind, and the others go on.

use std::time::{Duration, Instant};

use super::Points;
use crate::sessions::Stage;

const PANICS: &str = "shardgate_session_panics_total ";

#[tokio::test]
async fn a_panic_ends_its_session_alone_and_leaves_nothing() {
    let points = Points::new();
    let stage = Stage::start(2, points.options()).await;
    let (on_home, on_other) = (stage.key(0, 0), stage.key(1, 0));
    let both = format!("UPDATE accounts SET balance = 41 WHERE id IN ({on_home}, {on_other}) AND owner <> 'secret'");
    let one = format!("UPDATE accounts SET balance = 41 WHERE id = {on_home} AND owner <> 'secret'");
    let cases = [("before_commit", &one), ("before_prepare", &both), ("after_prepare", &both)];
    for (number, (point, write)) in cases.into_iter().enumerate() {
        let mut client = stage.client().await;
        let mut beside = stage.client().await;
        crate::sessions::succeed(&mut client, "BEGIN").await;
        crate::sessions::succeed(&mut client, write).await;
        points.arm(point, "panic");
        client.query("COMMIT /* 'secret' */");
        let told = client.rest().await;
        points.release(point);
        let error = told.iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!((error.field(b'V'), error.field(b'C')), ("FATAL".to_owned(), "XX000".to_owned()), "{point}");
        assert!(error.field(b'D').contains("not known"), "{point}: {}", error.field(b'D'));

        // Rolled back, perhaps by the recovery; nothing is locked, and no connection is left in a transaction.
        let balances = format!("SELECT balance FROM accounts WHERE id = {on_home} FOR UPDATE");
        assert_eq!(beside.value(&balances).await, "100", "{point}");
        let metrics = stage.proxy.admin("/metrics").expect("metrics").1;
        let count = metrics.lines().find_map(|line| line.strip_prefix(PANICS)).expect("the series");
        assert_eq!(count, (number + 1).to_string(), "{point}");
    }
    let log = stage.proxy.log();
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("a session panicked")).collect();
    assert_eq!(panics.len(), cases.len(), "{log}");
    assert!(panics.iter().all(|line| line.contains("shape=")), "{panics:?}");
    assert!(log.contains("place=") && log.contains("failpoint.rs"), "{log}");
    assert!(!log.contains("secret"), "{log}");
    until_pools_are_idle(&stage).await;
}

/// No connection is in use: what a session had is closed or given back.
async fn until_pools_are_idle(stage: &Stage) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut client = stage.client().await;
    while client.value("SELECT coalesce(sum(active), 0) FROM shardgate.pools WHERE shard <> 'map'").await != "0" {
        assert!(Instant::now() < deadline, "a connection is never given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
