//! A shard whose machine is cut off: nobody says that its connections have ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Cluster, Machine, Proxy, ProxyOptions, on_machines};

/// What the kernel needs to find out, and half as much.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn statements_on_a_shard_that_is_cut_off_end_within_a_minute() {
    on_machines("statements_on_a_shard_that_is_cut_off_end_within_a_minute", 4, statements_end);
}

async fn statements_end(machines: Arc<[Machine]>) {
    let [map, first, second, own] = &*machines else { panic!("four machines") };
    let cluster = Cluster::on_machines(&[map, first, second]).await;
    let options = ProxyOptions { address: Some(own.address()), ..ProxyOptions::default() };
    let proxy = own.run(|| Proxy::start(&cluster, options));
    let admin = proxy.connect().await;
    for (shard, name) in [(0, "a"), (1, "b")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
    }
    let table =
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint NOT NULL); SELECT shardgate.distribute_table('t', 'id', partitions => 4)";
    admin.batch_execute(table).await.expect("a table");
    admin.batch_execute("INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g").await.expect("rows");
    let mut ids = [0_i64; 2];
    for id in 1..=100_i64 {
        let shard: String =
            admin.query_one(&format!("SELECT shard FROM shardgate.locate('t', '{id}')"), &[]).await.expect("located").get(0);
        ids[usize::from(shard == "b")] = id;
    }
    let [at_first, at_second] = ids;
    // Its answer is waited for; and a connection that is idle in the pool.
    let update = format!("UPDATE t SET v = v + 1 WHERE id = {at_second}");
    let (sleeper, writer) = (proxy.connect().await, proxy.connect().await);
    let sleep = format!("SELECT pg_sleep(1000), v FROM t WHERE id = {at_second}");
    let sleeping = tokio::spawn(async move { sleeper.query_one(&sleep, &[]).await });
    let shard = cluster.connect_shard(1).await;
    let runs = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(1000)%'";
    while shard.query_one(runs, &[]).await.expect("activity").get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    drop(shard);
    writer.batch_execute(&update).await.expect("written");
    second.cut_off();
    let began = Instant::now();
    let written = tokio::spawn(async move { writer.batch_execute(&update).await });
    let elsewhere = format!("UPDATE t SET v = v + 1 WHERE id = {at_first}");
    admin.batch_execute(&elsewhere).await.expect("the other shard goes on");
    for (what, ended) in [
        ("an answer", tokio::time::timeout(ENDS_WITHIN, async { sleeping.await.expect("joined").map(drop) }).await),
        ("an acknowledgement", tokio::time::timeout(ENDS_WITHIN, async { written.await.expect("joined") }).await),
    ] {
        let ended = ended.unwrap_or_else(|_| panic!("{what} is waited for after {:?}", began.elapsed()));
        let code = ended.expect_err("the shard is away").code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("08006"), "{what}");
    }
    admin.batch_execute(&elsewhere).await.expect("the other shard goes on");
    second.reconnect();
    let again = format!("UPDATE t SET v = v + 1 WHERE id = {at_second}");
    while let Err(error) = admin.batch_execute(&again).await {
        assert!(began.elapsed() < ENDS_WITHIN * 2, "{error:?}");
        tokio::task::yield_now().await;
    }
    let row = admin.query_one(&format!("SELECT v FROM t WHERE id = {at_second}"), &[]).await.expect("read");
    assert!((2..=3).contains(&row.get::<_, i64>(0)), "the write that was cut off may have been made");
}
