//! A map database that fails over to a server which lacks its last changes: what the shards have and the map does not is found, and is
//! put right as docs/failing-over.md says.

use std::process::Output;
use std::time::{Duration, Instant};

use crate::sessions::{Stage, succeed};
use crate::support::{Backup, Cluster, ProxyOptions, WireClient};

const DECLARED_BEFORE: [&str; 8] = [
    "CREATE TABLE later (id bigint PRIMARY KEY)",
    "CREATE TABLE codes (id bigint PRIMARY KEY)",
    "INSERT INTO codes VALUES (1)",
    "CREATE TABLE tenants (name text PRIMARY KEY)",
    "SELECT shardgate.distribute_table('tenants', 'name', 'lookup')",
    "SELECT shardgate.map_key('tenants', 'a', 'shard1')",
    "CREATE TABLE days (day date PRIMARY KEY)",
    "SELECT shardgate.distribute_table('days', 'day', 'range', on_shards => 'shard0', bounds => '{2020-01-01}')",
];

#[tokio::test]
async fn what_a_promoted_map_has_forgotten_is_found_and_put_right() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut admin = stage.client().await;
    for statement in DECLARED_BEFORE {
        succeed(&mut admin, statement).await;
    }
    let last = "SELECT p.partition_id FROM shardgate.partitions p JOIN shardgate.tables t USING (colocation_group) \
                WHERE t.table_name = 'days' AND p.low = '2020-01-01'";
    let last = admin.value(last).await;
    let backup = Backup::of(stage.cluster.map_server());
    for statement in [
        "ALTER TABLE accounts RENAME TO ledgers",
        "SELECT shardgate.distribute_table('later', 'id')",
        "INSERT INTO later SELECT generate_series(1, 20)",
        "SELECT shardgate.reference_table('codes')",
        "SELECT shardgate.map_key('tenants', 'b', 'shard1')",
        "INSERT INTO tenants VALUES ('a'), ('b')",
    ] {
        succeed(&mut admin, statement).await;
    }
    let split = format!("SELECT shardgate.split_partition({last}, '2021-01-01', 'shard1')");
    stage.proxy.connect().await.batch_execute(&split).await.expect("a new piece");
    succeed(&mut admin, "INSERT INTO days VALUES ('2019-01-01'), ('2020-06-01'), ('2021-06-01')").await;

    let port = stage.cluster.map_server().port();
    stage.cluster.map_server_mut().kill().expect("killed");
    let promoted = backup.take_over(port).await;
    drop(stage.cluster.replace_map_server(promoted));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !stage.proxy.log().contains("has forgotten changes") {
        assert!(Instant::now() < deadline, "{}", stage.proxy.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    is_found(&stage).await;
    is_put_right(&stage).await;
}

async fn is_found(stage: &Stage) {
    let (is_well, told) = stage.proxy.check(&[]);
    assert!(!is_well, "{told}");
    for table in ["codes", "later", "ledgers"] {
        assert!(
            told.contains(&format!("shard \"shard1\": table \"public.{table}\" has rows here, and the map does not know it")),
            "{told}"
        );
    }
    assert!(told.contains("table \"public.accounts\": it is declared and does not exist on the home shard."), "{told}");
    assert!(told.contains("\"What a map forgets\""), "{told}");
    let doctor = doctor(stage);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!doctor.status.success(), "{told}");
    for table in ["days", "tenants"] {
        assert!(told.contains(&format!("shard shard1: 1 rows of table \"{table}\" lie where they are not owned")), "{told}");
    }
}

async fn is_put_right(stage: &Stage) {
    let mut admin = stage.client().await;
    for shard in 0..2 {
        succeed(&mut admin, &format!("/* shardgate: shard=shard{shard} */ ALTER TABLE ledgers RENAME TO accounts")).await;
    }
    succeed(&mut admin, "ALTER TABLE accounts RENAME TO ledgers").await;
    assert_eq!(admin.value("SELECT count(*) FROM ledgers").await, "90");

    succeed(&mut admin, "SELECT shardgate.reference_table('codes')").await;
    succeed(&mut admin, "SELECT shardgate.map_key('tenants', 'b', 'shard1')").await;
    assert_eq!(admin.value("SELECT count(*) FROM tenants WHERE name = 'b'").await, "1");

    // Rows that lie elsewhere than on the home shard are carried away, and come back through the proxy.
    let there = stage.cluster.connect_shard(1).await;
    let kept =
        there.query_one("SELECT string_agg(format('(%s)', id), ',') FROM later", &[]).await.expect("rows").get::<_, String>(0);
    there.batch_execute("TRUNCATE later").await.expect("emptied");
    succeed(&mut admin, "SELECT shardgate.distribute_table('later', 'id')").await;
    succeed(&mut admin, &format!("INSERT INTO later VALUES {kept}")).await;
    assert_eq!(admin.value("SELECT count(*) FROM later").await, "20");
    there.batch_execute("DELETE FROM days WHERE day = '2021-06-01'").await.expect("carried away");
    succeed(&mut admin, "INSERT INTO days VALUES ('2021-06-01')").await;
    assert_eq!(admin.value("SELECT count(*) FROM days").await, "3");

    let (is_well, told) = stage.proxy.check(&[]);
    assert!(is_well, "{told}");
    let doctor = doctor(stage);
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
    let mut other = WireClient::connect(stage.proxy.address()).await;
    assert_eq!(other.value("SELECT kind FROM shardgate.tables WHERE table_name = 'codes'").await, "reference");
}

fn doctor(stage: &Stage) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shard-rebalance"));
    command.args(["doctor", "--map", &stage.cluster.map_url()]).output().expect("it runs")
}
