//! A proxy that is frozen, or cut off from the map database, does not stop a move, and does nothing wrong when it is back.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_postgres::Client;

use super::{leftovers, move_partitions, partitions_on};
use crate::support::{Cable, Cluster, Frozen, Proxy, ProxyOptions, WireClient};

struct Stage {
    cluster: Cluster,
    /// Lives all the time.
    steady: Proxy,
    /// Ids by partition of the two that move, in this order.
    ids: Vec<Vec<i64>>,
    /// An id of a partition that stays on the source.
    stays: i64,
    moving: Vec<i32>,
}

impl Stage {
    async fn start() -> Self {
        let cluster = Cluster::start(2).await;
        let steady = Proxy::start(&cluster, ProxyOptions::default());
        let admin = steady.connect().await;
        for (name, shard) in [("a", 0), ("b", 1)] {
            admin
                .batch_execute(&format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard)))
                .await
                .expect("add_shard");
            if shard == 0 {
                admin
                    .batch_execute(
                        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint NOT NULL);
                         INSERT INTO t SELECT g, 0 FROM generate_series(1, 500) g;
                         SELECT shardgate.distribute_table('t', 'id', partitions => 16)",
                    )
                    .await
                    .expect("a table");
            }
        }
        let mut stage = Self { cluster, steady, ids: Vec::new(), stays: 0, moving: Vec::new() };
        stage.choose(&admin).await;
        stage
    }

    /// What is moved next.
    async fn choose(&mut self, admin: &Client) {
        let partitions = partitions_on(&self.steady, "t", "a").await;
        self.moving = partitions[..2].to_vec();
        let mut by_partition = std::collections::BTreeMap::<i32, Vec<i64>>::new();
        for id in 1..=500_i64 {
            let row =
                admin.query_one(&format!("SELECT partition_id FROM shardgate.locate('t', '{id}')"), &[]).await.expect("located");
            by_partition.entry(row.get(0)).or_default().push(id);
        }
        self.ids = self.moving.iter().map(|partition| by_partition[partition].clone()).collect();
        self.stays = by_partition[&partitions[2]][0];
    }

    fn id(&self, nth: usize) -> i64 {
        self.ids.concat()[nth]
    }

    async fn moves(&self) {
        let began = Instant::now();
        let moved = tokio::time::timeout(Duration::from_secs(60), move_partitions(&self.cluster, &self.moving, "b")).await;
        moved.unwrap_or_else(|_| panic!("the move has not ended after {:?}", began.elapsed()));
    }

    /// Nothing of the moved partitions is on the old shard, and each row is there once.
    async fn is_whole(&self) {
        let source = self.cluster.connect_shard(0).await;
        let ids = self.ids.concat();
        let left = source.query_one("SELECT count(*) FROM t WHERE id = ANY ($1)", &[&ids]).await.expect("rows");
        assert_eq!(left.get::<_, i64>(0), 0, "rows on the old shard");
        let count = self.steady.connect().await.query_one("SELECT count(*), count(DISTINCT id) FROM t", &[]).await.expect("rows");
        assert_eq!((count.get::<_, i64>(0), count.get::<_, i64>(1)), (500, 500));
        assert_eq!(leftovers(&self.cluster).await, Vec::<String>::new());
    }

    async fn value(&self, id: i64) -> i64 {
        self.steady.connect().await.query_one("SELECT v FROM t WHERE id = $1", &[&id]).await.expect("a row").get(0)
    }
}

/// A session at the victim, with what it said to each statement.
struct Guest(WireClient);

impl Guest {
    async fn at(proxy: &Proxy, statements: &[String]) -> Self {
        let mut client = WireClient::connect(proxy.address()).await;
        for statement in statements {
            client.query(statement).flush().await;
            let told = answer(&mut client).await;
            assert!(!told.contains("E("), "{statement}: {told}");
        }
        Self(client)
    }

    /// While nobody reads it.
    async fn send(&mut self, statement: &str) {
        self.0.query(statement).flush().await;
    }

    async fn hear(&mut self) -> String {
        answer(&mut self.0).await
    }
}

/// Up to ReadyForQuery, or the end.
async fn answer(client: &mut WireClient) -> String {
    let mut told = String::new();
    loop {
        let Some(message) = client.next().await else { return told + "end" };
        told += &message.describe();
        told.push(' ');
        if message.tag == b'Z' {
            return told;
        }
        assert_ne!(message.describe(), "nothing", "after {told}");
    }
}

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// What a session may hear whose proxy was shut out: repeat it, or the connection to the shard was lost.
fn is_excused(told: &str) -> bool {
    ["40001", "57P03", "57P01", "08006"].iter().any(|code| told.contains(code)) || told.ends_with("end")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_proxy_does_not_stop_a_move_and_writes_nothing_to_the_old_shard() {
    let stage = Stage::start().await;
    let mut victim = Proxy::start(&stage.cluster, ProxyOptions::default());
    let key = |nth| stage.id(nth);
    let select = |nth| format!("SELECT v FROM t WHERE id = {}", key(nth));
    let update = |nth| format!("UPDATE t SET v = v + 1 WHERE id = {}", key(nth));
    let count = "SELECT count(*), sum(v) FROM t".to_owned();
    // Each has used its statement before, so that all is known that can be.
    let mut reader = Guest::at(&victim, &[select(0), select(0)]).await;
    let mut counter = Guest::at(&victim, &[count.clone(), count.clone()]).await;
    let mut writer = Guest::at(&victim, &[update(1), update(1)]).await;
    let mut sweeper = Guest::at(&victim, &["UPDATE t SET v = v WHERE v < 0".to_owned()]).await;
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for (nth, level) in LEVELS.iter().enumerate() {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        writers.push(Guest::at(&victim, &[begin.clone(), update(2 + nth)]).await);
        readers.push(Guest::at(&victim, &[begin, select(5 + nth)]).await);
    }
    let lock = format!("SELECT v FROM t WHERE id = {} FOR UPDATE", key(8));
    let beside = format!("UPDATE t SET v = 7 WHERE id = {}", stage.stays);
    let mut locker = Guest::at(&victim, &["BEGIN".to_owned(), lock, beside]).await;

    victim.signal(Signal::STOP);
    stage.moves().await;
    stage.is_whole().await;
    let steady = stage.steady.connect().await;
    // The new owner's values differ from those that the old one had.
    steady.execute("UPDATE t SET v = 100 WHERE id = ANY ($1)", &[&stage.ids.concat()]).await.expect("the new owner writes");
    reader.send(&select(0)).await;
    counter.send(&count).await;
    writer.send(&update(1)).await;
    sweeper.send("UPDATE t SET v = v + 1").await;
    for (nth, writer) in writers.iter_mut().enumerate() {
        writer.send(&update(2 + nth)).await;
    }
    for (nth, reader) in readers.iter_mut().enumerate() {
        reader.send(&select(5 + nth)).await;
    }
    locker.send("COMMIT").await;
    let moved = stage.ids.concat().len() as i64;
    victim.signal(Signal::CONT);

    let swept = sweeper.hear().await;
    let is_swept = swept.contains("C(UPDATE 500)");
    assert!(is_swept || is_excused(&swept), "{swept}");
    let (told, written) = (reader.hear().await, writer.hear().await);
    assert!(told.contains("D(100)") || told.contains("D(101)") || is_excused(&told), "an old value: {told}");
    let is_written = written.contains("C(UPDATE 1)");
    assert!(is_written || is_excused(&written), "{written}");
    let told = counter.hear().await;
    let sums = [(0, 0), (0, 1), (500, 0), (500, 1)].map(|(swept, one)| format!("D(500,{})", moved * 100 + swept + one));
    assert!(sums.iter().any(|sum| told.contains(sum)) || is_excused(&told), "{told} is none of {sums:?}");
    for guest in writers.iter_mut().chain(&mut readers) {
        let told = guest.hear().await;
        assert!(is_excused(&told), "the transaction has lost its shard: {told}");
        guest.send("COMMIT").await;
        assert!(!guest.hear().await.contains("C(COMMIT)"), "what was written is lost");
    }
    let told = locker.hear().await;
    assert!(is_excused(&told) || told.contains("08007"), "what it had locked may have changed: {told}");
    let expected = 100 + i64::from(is_swept);
    assert_eq!(stage.value(key(1)).await, expected + i64::from(is_written), "each acknowledged write once");
    for nth in 2..8 {
        assert_eq!(stage.value(key(nth)).await, expected, "what was not committed is not there");
    }
    assert_eq!(stage.value(stage.stays).await, i64::from(is_swept));
    stage.is_whole().await;
    // It goes on as if nothing had been.
    let client = victim.connect().await;
    assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect("all rows"), 500);
}

/// It reaches the shards, and not the map.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_is_cut_off_from_the_map_is_shut_out_until_it_is_back() {
    let stage = Stage::start().await;
    let map = Cable::to(format!("127.0.0.1:{}", stage.cluster.map_server().port()).parse().expect("an address")).await;
    let port = |port: u16| format!(":{port}/");
    let url = stage.cluster.map_url().replace(&port(stage.cluster.map_server().port()), &port(map.address().port()));
    let victim = Proxy::start(&stage.cluster, ProxyOptions { settings: vec![("map.url", url)], ..ProxyOptions::default() });
    let (moves, stays) = (stage.id(0), stage.stays);
    let select = |id: i64| format!("SELECT v FROM t WHERE id = {id}");
    let update = |id: i64| format!("UPDATE t SET v = v + 1 WHERE id = {id}");
    let mut guest = Guest::at(&victim, &[select(moves), update(moves), select(stays)]).await;
    let mut open = Guest::at(&victim, &["BEGIN".to_owned(), update(stage.id(1))]).await;

    map.stall(true);
    // As long as nobody goes on without it.
    for statement in [update(moves), select(stays)] {
        guest.send(&statement).await;
        let told = guest.hear().await;
        assert!(told.contains("C("), "{statement}: {told}");
    }
    stage.moves().await;
    stage.is_whole().await;
    stage.steady.connect().await.execute("UPDATE t SET v = 100 WHERE id = $1", &[&moves]).await.expect("the new owner writes");
    for statement in [select(moves), update(moves), select(stays), update(stays), "SELECT count(*) FROM t".to_owned()] {
        guest.send(&statement).await;
        let told = guest.hear().await;
        assert!(is_excused(&told), "{statement}: {told}");
        guest.send(&statement).await;
        let told = guest.hear().await;
        assert!(told.contains("57P03"), "{statement}: {told}");
    }
    open.send(&update(stage.id(1))).await;
    let told = open.hear().await;
    assert!(is_excused(&told), "{told}");
    assert_eq!(stage.value(moves).await, 100);
    // A login that has to ask a shard relies on no map: it hears of no transaction that is to be repeated.
    let login = async |number: i32| {
        let conninfo = format!("{} application_name=login_{number}", victim.conninfo());
        tokio_postgres::connect(&conninfo, tokio_postgres::NoTls).await.map(drop)
    };
    let is_not_now = |error: &tokio_postgres::Error| error.code().is_some_and(|code| code.code() == "57P03");
    let refused = login(0).await.expect_err("shut out");
    assert!(is_not_now(&refused), "{refused:?}");

    map.stall(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut number = 1;
    while let Err(error) = login(number).await {
        assert!(is_not_now(&error) && Instant::now() < deadline, "{error:?}");
        number += 1;
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        guest.send(&select(moves)).await;
        let told = guest.hear().await;
        if told.contains("D(100)") {
            break;
        }
        assert!(told.contains("57P03") || told.contains("40001"), "{told}");
        assert!(Instant::now() < deadline, "it is not back: {told}\n{}", victim.log());
    }
    guest.send(&update(moves)).await;
    assert!(guest.hear().await.contains("C(UPDATE 1)"));
    assert_eq!(stage.value(moves).await, 101);
    assert_eq!(stage.value(stage.id(1)).await, 0, "its transaction is rolled back");
    // Every shard has shut that generation out, and the map knows that nothing is left to do.
    let map = stage.cluster.connect_map().await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while map.query_one("SELECT count(*) FROM shardgate_map.fence", &[]).await.expect("fences").get::<_, i64>(0) > 0 {
        assert!(Instant::now() < deadline, "a fence is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Nobody can renew, so nobody is taken for frozen; statements whose keys are known go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_stands_still_for_all_shuts_nobody_out() {
    let cluster = Cluster::separate_servers(2).await;
    let settings = vec![("moves.grace_ms", "300".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let client = proxy.connect().await;
    client.batch_execute(&format!("SELECT shardgate.add_shard('a', '{}')", cluster.shard_url(0))).await.expect("add_shard");
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, v bigint NOT NULL);
             INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g;
             SELECT shardgate.distribute_table('t', 'id', partitions => 16)",
        )
        .await
        .expect("a table");
    client.batch_execute(&format!("SELECT shardgate.add_shard('b', '{}')", cluster.shard_url(1))).await.expect("add_shard");
    let partitions = partitions_on(&proxy, "t", "a").await;
    client
        .batch_execute(&format!("SELECT shardgate.move_partitions(ARRAY[{}], 'b')", partitions[0]))
        .await
        .expect("a move that a proxy drives");
    let map = Frozen::server(cluster.map_server());
    let until = Instant::now() + Duration::from_secs(9);
    let mut written = 0_i64;
    while Instant::now() < until {
        let updated = client.execute("UPDATE t SET v = v + 1 WHERE id = $1", &[&(written % 100 + 1)]).await.expect("it goes on");
        assert_eq!(updated, 1);
        written += 1;
    }
    map.thaw();
    let deadline = Instant::now() + Duration::from_secs(60);
    let map = cluster.connect_map().await;
    while map.query_one("SELECT state FROM shardgate_map.move", &[]).await.expect("the move").get::<_, String>(0) != "done" {
        assert!(Instant::now() < deadline, "the move does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for shard in 0..2 {
        let shard = cluster.connect_shard(shard).await;
        let count = shard.query_one("SELECT count(*) FROM shardgate.shut_out", &[]).await.expect("who is shut out");
        assert_eq!(count.get::<_, i64>(0), 0, "the proxy lives");
    }
    let sum = client.query_one("SELECT sum(v)::bigint FROM t", &[]).await.expect("a sum");
    assert_eq!(sum.get::<_, i64>(0), written);
}

/// Past every proxy, with snapshots from before the move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_writer_at_the_old_shard_is_refused_at_every_level() {
    let stage = Stage::start().await;
    let mut writers = Vec::new();
    for level in LEVELS {
        let direct = stage.cluster.connect_shard(0).await;
        direct
            .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM t; SAVEPOINT s"))
            .await
            .expect("a snapshot");
        writers.push((level, direct));
    }
    let list: Vec<String> = stage.moving.iter().map(ToString::to_string).collect();
    let output = super::rebalance(&stage.cluster, &["move", "--partition", &list.join(","), "--to", "b", "--keep"]).await;
    assert!(output.status.success(), "{}", super::text(&output.stderr));
    let (moved, stays) = (stage.id(0), stage.stays);
    for (level, direct) in &writers {
        for statement in [
            format!("UPDATE t SET v = 9 WHERE id = {moved}"),
            format!("DELETE FROM t WHERE id = {moved}"),
            format!("UPDATE t SET id = {moved} + 100000 WHERE id = {moved}"),
            "UPDATE t SET v = 9".to_owned(),
        ] {
            let error = direct.batch_execute(&statement).await.expect_err("refused");
            let error = error.as_db_error().expect("the shard's");
            assert_eq!(
                (error.code().code(), error.constraint()),
                ("40001", Some("shardgate_gate")),
                "{level}: {statement}: {error}"
            );
            direct.batch_execute("ROLLBACK TO s").await.expect("back");
        }
        direct.batch_execute(&format!("UPDATE t SET v = v WHERE id = {stays}; ROLLBACK")).await.expect("what has not moved");
    }
    let map = stage.cluster.connect_map().await;
    let id: i32 = map.query_one("SELECT move_id FROM shardgate_map.move", &[]).await.expect("the move").get(0);
    let output = super::rebalance(&stage.cluster, &["finish", &id.to_string()]).await;
    assert!(output.status.success(), "{}", super::text(&output.stderr));
    let deadline = Instant::now() + Duration::from_secs(60);
    while map.query_one("SELECT state FROM shardgate_map.move", &[]).await.expect("the move").get::<_, String>(0) != "done" {
        assert!(Instant::now() < deadline, "the move does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.is_whole().await;
}

/// What it was planned by may be old: it runs on no connection that the shards have taken since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_from_before_a_lost_lease_gets_no_new_connection() {
    let stage = Stage::start().await;
    stage.moves().await;
    let there = stage.id(0);
    let mut guest = Guest::at(&stage.steady, &["BEGIN".to_owned(), format!("UPDATE t SET v = 1 WHERE id = {}", stage.stays)]).await;
    let map = stage.cluster.connect_map().await;
    map.batch_execute("DELETE FROM shardgate_map.proxy").await.expect("its lease is lost");
    let deadline = Instant::now() + Duration::from_secs(10);
    while map.query_opt("SELECT FROM shardgate_map.proxy WHERE generation = 2 AND counter > 0", &[]).await.expect("a row").is_none()
    {
        assert!(Instant::now() < deadline, "it does not register again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let target = stage.cluster.connect_shard(1).await;
    let end = "SELECT count(pg_terminate_backend(a.pid)) FROM shardgate.backend b JOIN pg_stat_activity a ON a.pid = b.pid AND b.started = a.backend_start";
    while target.query_one(end, &[]).await.expect("ended").get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guest.send(&format!("UPDATE t SET v = 1 WHERE id = {there}")).await;
    let told = guest.hear().await;
    assert!(told.contains("E(40001 the proxy had lost its lease"), "{told}");
    guest.send("ROLLBACK").await;
    assert!(guest.hear().await.contains("C(ROLLBACK)"));
    guest.send(&format!("UPDATE t SET v = v + 1 WHERE id = {there}")).await;
    assert!(guest.hear().await.contains("C(UPDATE 1)"));
    assert_eq!((stage.value(stage.stays).await, stage.value(there).await), (0, 1));
    let registered =
        target.query_one("SELECT count(*) FROM shardgate.backend WHERE generation = 2", &[]).await.expect("registered");
    assert!(registered.get::<_, i64>(0) > 0);
}
