//! Declarations beside each other, beside schema changes, and beside proxies and map databases that are away.

use std::time::Duration;

use shardgate::declare::Control;
use shardgate::shardmap::ShardState;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::{Declarer, code, connect_map, connect_map_at, told};
use crate::support::{Cable, connect};

/// Until the query says true. What it waits for is brought about by somebody else.
async fn until(client: &Client, condition: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !client.query_one(&format!("SELECT {condition}"), &[]).await.expect(condition).get::<_, bool>(0) {
        assert!(Instant::now() < deadline, "never: {condition}");
        tokio::task::yield_now().await;
    }
}

const GATES: &str = "SELECT count(*) FROM pg_trigger WHERE tgname = 'shardgate_declaring'";
const WAITS_FOR_T: &str = "EXISTS (SELECT FROM pg_locks WHERE relation = 't'::regclass AND NOT granted)";

const STATES: &str = "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM shardgate.shards";

#[tokio::test]
async fn two_shards_added_at_once_wait_for_each_other() {
    let d = Declarer::start(3).await;
    d.on_shard(0, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    d.add(0).await.unwrap();
    d.call("reference_table", &["t"]).await.unwrap();
    let mut writer = d.cluster.connect_shard(0).await;
    let watcher = d.cluster.connect_shard(0).await;
    let transaction = writer.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
    // The one waits for the writer, the other for the first: its gate stays.
    let (first, second, ()) = tokio::join!(d.add(1), d.add(2), async {
        until(&watcher, WAITS_FOR_T).await;
        until(&watcher, "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)").await;
        transaction.commit().await.unwrap();
    });
    first.expect("the first");
    second.expect("the second");
    assert_eq!(d.value_on_map(STATES).await, "shard0 online, shard1 online, shard2 online");
    for shard in 0..3 {
        assert_eq!(d.value_on_shard(shard, "SELECT string_agg(id::text, ',' ORDER BY id) FROM t").await, "1,2");
    }
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
}

#[tokio::test]
async fn the_same_table_distributed_twice_at_once_is_distributed_once() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let (first, second) = tokio::join!(d.call("distribute_table", &["t", "id"]), d.call("distribute_table", &["t", "id"]));
    let errors: Vec<_> = [first, second].into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.iter().map(code).collect::<Vec<_>>(), ["42710"]);
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
}

#[tokio::test]
async fn two_first_shards_at_once_are_both_ready() {
    let d = Declarer::start(2).await;
    d.on_shard(0, "CREATE TABLE t (id int)").await;
    d.on_shard(1, "CREATE TABLE t (id int)").await;
    let mut holder = d.cluster.connect_map().await;
    let watcher = d.cluster.connect_map().await;
    let transaction = holder.transaction().await.unwrap();
    transaction.batch_execute("LOCK TABLE shardgate_map.shard IN SHARE MODE").await.unwrap();
    // The one is about to be registered, the other waits for the map.
    let (first, second, ()) = tokio::join!(d.add(0), d.add(1), async {
        until(&watcher, "(SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'add_shard') = 2").await;
        transaction.commit().await.unwrap();
    });
    first.expect("the first");
    second.expect("the second");
    assert_eq!(d.value_on_map(STATES).await, "shard0 online, shard1 online");
}

#[tokio::test]
async fn the_same_first_shard_twice_at_once_is_one() {
    let d = Declarer::start(1).await;
    let (first, second) = tokio::join!(d.add(0), d.add(0));
    first.expect("the first");
    second.expect("the second");
    assert_eq!(d.value_on_map(STATES).await, "shard0 online");
}

/// The map database goes away while it makes the change, and makes it.
#[tokio::test]
async fn a_gate_stays_closed_until_it_is_known_that_the_map_was_changed() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let port = d.cluster.map_server().port();
    let cable = Cable::to(format!("127.0.0.1:{port}").parse().unwrap()).await;
    let url = d.cluster.map_url().replace(&format!(":{port}/"), &format!(":{}/", cable.address().port()));
    let far = Declarer { map: connect_map_at(url, false).await, ..d };
    let far = Declarer { control: Control::new(far.map.clone(), vec!["postgres".to_owned()]), ..far };
    let mut holder = far.cluster.connect_map().await;
    let watcher = far.cluster.connect_map().await;
    let transaction = holder.transaction().await.unwrap();
    transaction.batch_execute("LOCK TABLE shardgate_map.declared_table IN SHARE MODE").await.unwrap();
    let (declared, ()) = tokio::join!(far.call("distribute_table", &["t", "id"]), async {
        until(&watcher, "EXISTS (SELECT FROM pg_locks WHERE relation = 'shardgate_map.declared_table'::regclass AND NOT granted)")
            .await;
        cable.cut();
        transaction.commit().await.unwrap();
    });
    let error = declared.unwrap_err();
    assert_eq!(code(&error), "08007", "{}", told(&error));
    assert!(told(&error).contains("Writes to the table are refused"), "{}", told(&error));
    until(&watcher, "EXISTS (SELECT FROM shardgate.tables WHERE table_name = 't' AND kind = 'sharded')").await;
    assert_eq!(far.value_on_shard(0, GATES).await, "1");
    let refused = far.cluster.connect_shard(0).await.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap_err();
    assert_eq!(refused.code().map(|code| code.code()), Some("40001"));
    far.call("distribute_table", &["t", "id"]).await.expect("called again it ends");
    assert_eq!(far.value_on_shard(0, GATES).await, "0");
}

#[tokio::test]
async fn a_gate_that_was_left_is_opened_when_every_proxy_has_followed() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let other = connect_map(&d.cluster, false).await;
    // One of its statements is planned by the map as it was before.
    let planned_before = other.in_use();
    let map = d.cluster.connect_map().await;
    let home = d.cluster.connect_shard(0).await;
    let declaring = async {
        let declared = d.call("reference_table", &["t"]).await;
        declared.map(drop).map_err(|error| told(&error))
    };
    // The first call is cut off while it waits for the other proxy.
    tokio::select! {
        outcome = declaring => panic!("it does not wait: {outcome:?}"),
        () = until(&map, "EXISTS (SELECT FROM shardgate.tables WHERE table_name = 't' AND kind = 'reference')") => {}
    }
    until(&home, "NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock')").await;
    assert_eq!(d.value_on_shard(0, GATES).await, "1");
    let follows = async {
        until(&home, "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock')").await;
        let renewals = "SELECT sum(renewals) FROM shardgate_map.proxy";
        let before: i64 = d.value_on_map(renewals).await.parse().unwrap();
        until(&map, &format!("({renewals}) > {before} + 4")).await;
        assert_eq!(d.value_on_shard(0, GATES).await, "1", "a statement planned before still runs");
        drop(planned_before);
    };
    let (declared, ()) = tokio::join!(d.call("reference_table", &["t"]), follows);
    declared.expect("called again it ends");
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
    other.close().await;
}

#[tokio::test]
async fn adding_a_shard_again_opens_the_gates_that_were_left() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    d.call("reference_table", &["t"]).await.unwrap();
    d.on_shard(
        0,
        "CREATE TRIGGER shardgate_declaring BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION shardgate.refuse_while_declaring()",
    )
    .await;
    d.add(1).await.expect("again");
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
}

/// As one that is cut off from the map, or frozen: it is there, works by an old map, and says nothing.
async fn silent_proxy(map: &Client, silent: &str) {
    let sql = format!(
        "INSERT INTO shardgate_map.proxy (proxy_id, address, last_seen)
         VALUES (7, 'far:6432', clock_timestamp() - interval '{silent}')"
    );
    map.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn a_proxy_that_says_nothing_could_write_by_its_old_map() {
    let d = Declarer::with_schema(
        1,
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE r (id int PRIMARY KEY); CREATE TABLE full_ (id int PRIMARY KEY);
         INSERT INTO full_ VALUES (1)",
    )
    .await;
    for database in ["second", "third"] {
        d.cluster.create_database(database).await;
    }
    let (second, third) = (d.cluster.url_on_shard(0, "second"), d.cluster.url_on_shard(0, "third"));
    d.call("reference_table", &["r"]).await.expect("nobody is silent");
    let map = d.cluster.connect_map().await;
    silent_proxy(&map, "10 seconds").await;
    // The copies are written like home tables while there is one shard.
    let error = d.call("add_shard", &["shard1", &second]).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("55006", "a proxy does not follow the shard map"));
    assert!(told(&error).contains("Proxy 7 (far:6432) has not been heard of for 1"), "{}", told(&error));
    assert!(told(&error).contains("DELETE FROM shardgate_map.proxy WHERE proxy_id = 7"), "{}", told(&error));
    map.batch_execute("DELETE FROM shardgate_map.proxy WHERE proxy_id = 7").await.unwrap();
    d.call("add_shard", &["shard1", &second]).await.expect("it is gone");

    silent_proxy(&map, "10 seconds").await;
    assert_eq!(code(&d.call("distribute_table", &["t", "id"]).await.unwrap_err()), "55006");
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
    d.call("distribute_table", &["full_", "id"]).await.expect("all its rows stay where they are");
    d.call("add_shard", &["shard2", &third]).await.expect("copies on several shards need a lease");
    map.batch_execute("UPDATE shardgate_map.proxy SET last_seen = last_seen - interval '1 hour' WHERE proxy_id = 7").await.unwrap();
    d.call("distribute_table", &["t", "id"]).await.expect("it is taken for gone");
}

#[tokio::test]
async fn a_proxy_that_falls_silent_meanwhile_keeps_the_gate_closed() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let map = d.cluster.connect_map().await;
    silent_proxy(&map, "0 seconds").await;
    let (declared, ()) = tokio::join!(d.call("distribute_table", &["t", "id"]), async {
        // Its lease is over for long.
        until(&map, "(SELECT last_seen < clock_timestamp() - interval '8 seconds' FROM shardgate_map.proxy WHERE proxy_id = 7)")
            .await;
        assert_eq!(d.value_on_shard(0, GATES).await, "1");
        map.batch_execute("DELETE FROM shardgate_map.proxy WHERE proxy_id = 7").await.unwrap();
    });
    declared.expect("it is gone");
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
}

#[tokio::test]
async fn an_open_schema_change_holds_up_declarations() {
    let d = Declarer::with_schema(1, "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'").await;
    d.cluster.create_database("second").await;
    let second = d.cluster.url_on_shard(0, "second");
    let store = d.map.store();
    let epoch = store.epoch().await.unwrap();
    let change = store.begin_schema_change("alice", "CREATE FUNCTION", d.map.lease().proxy_id(), epoch).await.unwrap();
    let error = d.call("add_shard", &["shard1", &second]).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("55006", "the schema of the shards is being changed"));
    d.on_shard(0, "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 2'").await;
    // It waits for a while.
    let map = d.cluster.connect_map().await;
    let declarations = "SELECT declaration FROM shardgate_map.cluster";
    let before = d.value_on_map(declarations).await;
    let arguments = ["shard1", second.as_str()];
    let (added, ()) = tokio::join!(d.call("add_shard", &arguments), async {
        until(&map, &format!("({declarations}) > {before} + 2")).await;
        store.finish_schema_change("alice", change).await.unwrap();
    });
    added.expect("the change has ended");
    let there = connect(&second).await;
    assert_eq!(there.query_one("SELECT f()", &[]).await.unwrap().get::<_, i32>(0), 2);
}

#[tokio::test]
async fn a_schema_that_changes_while_the_declaration_waits_is_looked_at_again() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY, email text)").await;
    let mut other = d.cluster.connect_shard(0).await;
    let watcher = d.cluster.connect_shard(0).await;
    let transaction = other.transaction().await.unwrap();
    transaction.batch_execute("CREATE UNIQUE INDEX unique_email ON t (email)").await.unwrap();
    let (declared, ()) = tokio::join!(d.call("distribute_table", &["t", "id"]), async {
        until(&watcher, WAITS_FOR_T).await;
        transaction.commit().await.unwrap();
    });
    let error = declared.unwrap_err();
    assert!(told(&error).contains("Unique index \"unique_email\" does not contain the shard key"), "{}", told(&error));
    assert_eq!(d.value_on_shard(0, GATES).await, "0");
    other.batch_execute("DROP INDEX unique_email").await.unwrap();
    d.call("distribute_table", &["t", "id"]).await.expect("without the index");
}

/// Through a proxy; the home shard's own schema shows nothing of it yet.
#[tokio::test]
async fn a_schema_change_that_begins_meanwhile_is_waited_for() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let mut writer = d.cluster.connect_shard(0).await;
    let (home, map) = (d.cluster.connect_shard(0).await, d.cluster.connect_map().await);
    let transaction = writer.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
    let declarations = "SELECT declaration FROM shardgate_map.cluster";
    let (declared, ()) = tokio::join!(d.call("reference_table", &["t"]), async {
        until(&home, WAITS_FOR_T).await;
        let before = d.value_on_map(declarations).await;
        let (store, proxy) = (d.map.store(), d.map.lease().proxy_id());
        let change = store.begin_schema_change("alice", "DROP TABLE", proxy, store.epoch().await.unwrap()).await.unwrap();
        transaction.commit().await.unwrap();
        // It was refused, and waits for the end.
        until(&map, &format!("({declarations}) > {before} + 2")).await;
        assert_eq!(d.value_on_shard(0, GATES).await, "0");
        store.finish_schema_change("alice", change).await.unwrap();
    });
    declared.expect("planned anew");
    assert_eq!(d.value_on_shard(1, "SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn rows_that_come_meanwhile_into_a_lookup_table_without_default_are_seen() {
    let d = Declarer::with_schema(1, "CREATE TABLE t (tenant text PRIMARY KEY)").await;
    let mut writer = d.cluster.connect_shard(0).await;
    let watcher = d.cluster.connect_shard(0).await;
    let transaction = writer.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES ('x')", &[]).await.unwrap();
    let lookup = [("", "t"), ("", "tenant"), ("strategy", "lookup")];
    let (declared, ()) = tokio::join!(d.call_named("distribute_table", &lookup), async {
        until(&watcher, WAITS_FOR_T).await;
        transaction.commit().await.unwrap();
    });
    assert_eq!(declared.unwrap_err().message, "rows were inserted into table \"t\" meanwhile");
    d.call_named("distribute_table", &lookup).await.expect("again");
    let located = d.call("locate", &["t", "x"]).await.expect("its key is found");
    assert_eq!(located.rows[0][1].as_deref(), Some("shard0"));
}

#[tokio::test]
async fn rows_of_sharded_tables_that_a_new_shard_brings_are_refused() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE at_home (id int)").await;
    d.call("distribute_table", &["t", "id"]).await.unwrap();
    d.cluster.create_database("copy").await;
    let url = d.cluster.url_on_shard(0, "copy");
    let copy = connect(&url).await;
    copy.batch_execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (7); CREATE TABLE at_home (id int)")
        .await
        .unwrap();
    copy.batch_execute("INSERT INTO at_home VALUES (1)").await.unwrap();
    let error = d.call("add_shard", &["shard2", &url]).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("55000", "table \"t\" holds rows on shard \"shard2\""));
    d.map.refresh().await.unwrap();
    assert!(d.map.snapshot().shard_by_name("shard2").is_none());
    copy.batch_execute("TRUNCATE t").await.unwrap();
    d.call("add_shard", &["shard2", &url]).await.expect("without the rows");
    assert_eq!(d.map.snapshot().shard_by_name("shard2").map(|shard| shard.state), Some(ShardState::Online));
}
