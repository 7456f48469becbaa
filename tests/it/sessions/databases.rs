//! Databases are made and dropped once on each server, and what stopped half-way is taken up again.

use super::stage::{Stage, succeed};
use crate::support::{Cluster, ProxyOptions};

const FOUND: &str = "SELECT count(*) FROM pg_database WHERE datname = 'reports'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_are_made_and_dropped_once_on_each_server() {
    let stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    both_ways(&stage).await;
    half_way(&stage).await;
    its_own_stay(&stage).await;
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_several_shards_makes_one_database() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask("CREATE DATABASE reports").await, "C(CREATE DATABASE) Z(I)");
    assert_eq!(count(&stage, 0, FOUND).await, 1);
    assert_eq!(client.ask("DROP DATABASE reports WITH (FORCE)").await, "C(DROP DATABASE) Z(I)");
    stage.assert_log_is_clean();
}

async fn count(stage: &Stage, shard: usize, sql: &str) -> i64 {
    stage.cluster.connect_shard(shard).await.query_one(sql, &[]).await.expect(sql).get(0)
}

async fn both_ways(stage: &Stage) {
    let mut client = stage.client().await;
    let made = "CREATE DATABASE Reports TEMPLATE template0 CONNECTION LIMIT 3";
    assert_eq!(client.ask(made).await, "C(CREATE DATABASE) Z(I)");
    for shard in 0..2 {
        assert_eq!(count(stage, shard, &format!("{FOUND} AND datconnlimit = 3")).await, 1);
    }
    assert_eq!(client.ask(made).await, "E(42P04 database \"reports\" already exists) Z(I)");
    assert_eq!(client.ask("DROP DATABASE reports").await, "C(DROP DATABASE) Z(I)");
    assert_eq!(client.ask("DROP DATABASE reports").await, "E(3D000 database \"reports\" does not exist) Z(I)");
    let told = client.ask("DROP DATABASE IF EXISTS reports").await;
    assert_eq!(told, "N(00000 database \"reports\" does not exist, skipping) C(DROP DATABASE) Z(I)");
    succeed(&mut client, "BEGIN").await;
    let told = client.ask(made).await;
    assert_eq!(told, "E(25001 CREATE DATABASE cannot run inside a transaction block) Z(E)");
    succeed(&mut client, "ROLLBACK").await;
    let direct = stage.proxy.connect().await;
    direct.execute("CREATE DATABASE reports", &[]).await.expect("by the extended protocol");
    direct.execute("DROP DATABASE reports", &[]).await.expect("by the extended protocol");
    assert_eq!(count(stage, 1, FOUND).await, 0);
}

async fn half_way(stage: &Stage) {
    let mut client = stage.client().await;
    stage.cluster.connect_shard(0).await.batch_execute("CREATE ROLE reporter").await.expect("role");
    let other = stage.cluster.connect_shard(1).await;
    let made = "CREATE DATABASE reports OWNER reporter";
    let told = client.ask(made).await;
    assert!(told.contains("N(01000 done on shard0, failed on shard1; repeat the statement to go on)"), "{told}");
    assert!(told.contains("E(42704 role \"reporter\" does not exist)"), "{told}");
    other.batch_execute("CREATE ROLE reporter").await.expect("role");
    let told = client.ask(made).await;
    assert_eq!(told, "N(00000 the database is there already on shard \"shard0\") C(CREATE DATABASE) Z(I)");
    // One that a drop has left behind half dropped is made anew.
    other.batch_execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'reports'").await.expect("invalid");
    let told = client.ask(made).await;
    assert!(told.contains("an invalid database of an earlier attempt is dropped on shard \"shard1\""), "{told}");
    assert!(told.ends_with("C(CREATE DATABASE) Z(I)"), "{told}");
    other.batch_execute("DROP DATABASE reports").await.expect("dropped");
    let told = client.ask("DROP DATABASE reports").await;
    assert_eq!(told, "C(DROP DATABASE) N(00000 the database is gone already on shard \"shard1\") Z(I)");
    assert_eq!(count(stage, 0, FOUND).await, 0);
}

/// Those behind the one that the client is in.
async fn its_own_stay(stage: &Stage) {
    let mut client = stage.client().await;
    let behind = stage.cluster.shard_url(1);
    let behind = behind.rsplit('/').next().expect("a name");
    for name in ["app", behind] {
        let told = client.ask(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        assert_eq!(told, "E(55006 cannot drop the currently open database) Z(I)");
        let told = client.ask(&format!("CREATE DATABASE {name}")).await;
        assert_eq!(told, format!("E(42P04 database \"{name}\" already exists) Z(I)"));
    }
}
