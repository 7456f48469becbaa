//! What takes part in a commit over several shards at each isolation level.

use super::kills::{Points, Told, commit};
use crate::sessions::Stage;
use crate::support::ProxyOptions;

/// In SERIALIZABLE what was read counts too: that shard may refuse as well, so it promises like one that was written.
#[tokio::test]
async fn a_shard_that_was_only_read_is_prepared_in_serializable_transactions() {
    let points = Points::new();
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned())];
    let stage = Stage::start(3, ProxyOptions { settings, ..points.options() }).await;
    let update = |shard: usize| format!("UPDATE accounts SET balance = 1 WHERE id = {}", stage.key(shard, 0));
    let read = format!("SELECT balance FROM accounts WHERE id = {}", stage.key(2, 0));
    for (level, written, prepared) in [
        ("SERIALIZABLE", vec![0, 1], vec![1, 2]),
        ("SERIALIZABLE", vec![0], vec![2]),
        ("REPEATABLE READ", vec![0, 1], vec![1]),
        ("READ COMMITTED", vec![0, 1], vec![1]),
    ] {
        let mut client = stage.client().await;
        assert_eq!(client.ask(&format!("BEGIN ISOLATION LEVEL {level}; {read}")).await.matches("E(").count(), 0);
        for shard in written {
            assert_eq!(client.ask(&update(shard)).await, "C(UPDATE 1) Z(T)");
        }
        points.arm("after_prepare", "hold");
        let committing = tokio::spawn(async move { commit(&mut client).await });
        points.until_reached("after_prepare").await;
        let direct = stage.cluster.connect_shard(0).await;
        let sql = "SELECT database FROM pg_prepared_xacts WHERE gid LIKE 'sg:%' ORDER BY database";
        let found: Vec<String> = direct.query(sql, &[]).await.expect("prepared").iter().map(|row| row.get(0)).collect();
        let wanted: Vec<String> = prepared.iter().map(|shard| format!("shard{shard}")).collect();
        points.release("after_prepare");
        assert_eq!(found, wanted, "{level}");
        assert_eq!(committing.await.expect("no panic"), Told::Committed, "{level}");
        let mut client = stage.client().await;
        assert_eq!(client.value("SELECT count(*) FROM shardgate.transactions").await, "0");
    }
    stage.assert_log_is_clean();
}
