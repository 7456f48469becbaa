//! Decision rows are kept for a day, and for as long as their transaction is prepared anywhere.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use shardgate::execute::commit::Registry;
use shardgate::execute::recovery::Recovery;
use shardgate::shardmap::{MapOptions, ProxyId, ShardMap};

use crate::sessions::Stage;
use crate::support::ProxyOptions;

#[tokio::test]
async fn old_decisions_go_when_nothing_of_theirs_is_prepared() {
    let mut stage = Stage::start(2, ProxyOptions::default()).await;
    // Its own recovery would finish what is prepared here.
    stage.proxy.signal(Signal::STOP);
    let map = stage.cluster.connect_map().await;
    let cluster: String = map.query_one("SELECT cluster_id FROM shardgate_map.cluster", &[]).await.expect("a cluster").get(0);
    let decider = stage.cluster.connect_shard(0).await;
    let uuid: String = decider.query_one("SELECT shard::text FROM shardgate.identity", &[]).await.expect("a uuid").get(0);
    let gtx = |number: usize| format!("sg:{cluster}:{uuid}:1:{number}:{}", "ab".repeat(32));
    let other = format!("sg:{}:{uuid}:1:9:{}", "0".repeat(16), "ab".repeat(32));
    for (name, outcome, hours) in [
        (gtx(1), "committed", 25),
        (gtx(2), "aborted", 25),
        (gtx(3), "committed", 23),
        (gtx(4), "aborted", 23),
        (gtx(5), "committed", 48),
        (gtx(6), "aborted", 48),
        (other.clone(), "committed", 48),
    ] {
        let at = format!("now() - interval '{hours} hours'");
        let sql = format!(
            "INSERT INTO shardgate.decisions VALUES ('{name}', '{outcome}', {at}); INSERT INTO shardgate.applied VALUES ('{name}', {at})"
        );
        decider.batch_execute(&sql).await.expect("rows");
    }
    // Two of them are prepared on the other shard, of which one would be finished only by a decision that is there.
    let participant = stage.cluster.connect_shard(1).await;
    for number in [5, 6] {
        let sql = format!("BEGIN; CREATE TABLE prepared_{number} (x int); PREPARE TRANSACTION '{}:1'", gtx(number));
        participant.batch_execute(&sql).await.expect("prepared");
    }
    let options = MapOptions {
        url: stage.cluster.map_url(),
        migrate: false,
        lookup_cache_entries: 1000,
        poll_interval: Duration::from_secs(5),
        proxy_id: ProxyId::random(),
        address: "127.0.0.1:0".to_owned(),
    };
    let map = ShardMap::connect(options).await.expect("the map");
    let recovery = Recovery::new(Arc::clone(&map), Arc::new(Registry::new(cluster.clone(), 1)));
    let removed = recovery.collect().await;
    let left = async |table: &str| -> Vec<String> {
        let rows = decider.query(&format!("SELECT gtx FROM shardgate.{table} ORDER BY gtx"), &[]).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    };
    let mut wanted = [gtx(3), gtx(4), gtx(5), gtx(6), other];
    wanted.sort();
    for table in ["decisions", "applied"] {
        let found = left(table).await;
        assert_eq!(
            found.iter().filter(|name| name.ends_with(&"ab".repeat(32))).collect::<Vec<_>>(),
            wanted.iter().collect::<Vec<_>>(),
            "{table}"
        );
    }
    assert_eq!(removed, 4, "two old rows of each table");
}
