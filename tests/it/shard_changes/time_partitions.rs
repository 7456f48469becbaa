//! Range tables by time whose next pieces are made ahead of now, on the shards whose turn it is.

use std::time::{Duration, Instant};

use super::told;
use crate::sessions::{Stage, succeed};
use crate::support::WireClient;
use crate::transactions::Points;

/// On a stage of three shards.
pub async fn next_pieces_are_made_ahead_of_now(stage: &Stage) {
    let mut admin = stage.client().await;
    for statement in [
        "CREATE TABLE events (at timestamptz, id int, PRIMARY KEY (at, id))",
        "SELECT shardgate.distribute_table('events', 'at', 'range', on_shards => 'shard0')",
        "INSERT INTO events SELECT date_trunc('month', now()) - n * interval '1 month', n FROM generate_series(0, 5) n",
    ] {
        succeed(&mut admin, statement).await;
    }
    let call = "SELECT shardgate.time_partitions('events', '1 month', ahead => 3, on_shards => 'shard1,shard2')";
    succeed(&mut admin, call).await;
    let pieces = "SELECT string_agg(shard, ',' ORDER BY low::timestamptz NULLS FIRST) FROM shardgate.partitions p JOIN shardgate.tables t \
                  USING (colocation_group) WHERE table_name = 'events'";
    until(&mut admin, pieces, "shard0,shard1,shard2,shard1").await;
    let bounds = "SELECT bool_and(low::timestamptz = date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + nth * interval '1 month') \
                  FROM (SELECT low, row_number() OVER (ORDER BY low::timestamptz) AS nth FROM shardgate.partitions p \
                  JOIN shardgate.tables t USING (colocation_group) WHERE table_name = 'events' AND low IS NOT NULL) b";
    assert_eq!(admin.value(bounds).await, "t");
    // Again: there is nothing to do. With more, only what lacks.
    succeed(&mut admin, call).await;
    succeed(&mut admin, &call.replace("=> 3", "=> 4")).await;
    until(&mut admin, pieces, "shard0,shard1,shard2,shard1,shard2").await;
    succeed(
        &mut admin,
        "INSERT INTO events SELECT date_trunc('month', now()) + n * interval '1 month', n FROM generate_series(1, 5) n",
    )
    .await;
    assert_eq!(admin.value("SELECT count(*) FROM events").await, "11");
    until(&mut admin, "SELECT made FROM shardgate.time_partitions", "4").await;
    let row = "SELECT every, ahead, on_shards, made, error IS NULL FROM shardgate.time_partitions";
    assert_eq!(admin.row(row).await, ["1 mon", "4", "shard1,shard2", "4", "t"]);

    // The pieces of a table that is new have their shards, in their order; a date is cut at days.
    for statement in [
        "CREATE TABLE days (day date PRIMARY KEY)",
        "SELECT shardgate.distribute_table('days', 'day', 'range', on_shards => 'shard2,shard0,shard2', bounds => '{2020-01-01,2021-01-01}')",
    ] {
        succeed(&mut admin, statement).await;
    }
    let days = pieces.replace("'events'", "'days'");
    assert_eq!(admin.value(&days).await, "shard2,shard0,shard2");
    succeed(&mut admin, "SELECT shardgate.time_partitions('days', '1 year', 1, 'shard0')").await;
    until(&mut admin, &days, "shard2,shard0,shard2,shard0").await;
    let last = "SELECT (max(low::date) = date_trunc('year', now() AT TIME ZONE 'UTC') + interval '1 year')::text FROM shardgate.partitions p \
                JOIN shardgate.tables t USING (colocation_group) WHERE table_name = 'days'";
    assert_eq!(admin.value(last).await, "true");
    for (arguments, expected) in [
        ("'days', '6 hours'", "22023 | every must be whole days where the key is a date"),
        ("'events', 'soon'", "22023 | invalid value for every: \"soon\" |  | Write a length of time, such as '1 month'"),
        ("'events', '-1 month'", "22023 | every must be between a minute and 100 years"),
        ("'events', '1 second'", "22023 | every must be between a minute and 100 years"),
        ("'events', '1 month', 0", "22023 | ahead must be between 1 and 1000 pieces"),
        ("'events', '1 month', 3, 'shard9'", "42704 | shard \"shard9\" does not exist | "),
        (
            "'accounts', '1 month'",
            "55000 | table \"accounts\" is not sharded by range of one date or timestamp |  | Only such a table",
        ),
        ("'nothing', '1 month'", "42P01 | table \"nothing\" is not sharded | "),
    ] {
        let said = told(&mut admin, &format!("SELECT shardgate.time_partitions({arguments})")).await;
        assert!(said.starts_with(expected), "{arguments}: {said}");
    }
    one_that_is_not_carried_is_told_and_carried_later(stage, &mut admin, &days).await;
    // However often it was asked for.
    assert_eq!(admin.value(pieces).await, "shard0,shard1,shard2,shard1,shard2");
    // No more of it.
    succeed(&mut admin, "SELECT shardgate.time_partitions('events', NULL)").await;
    assert_eq!(admin.value("SELECT count(*) FROM shardgate.time_partitions").await, "1");
}

/// Whatever is made after it; and nobody carries back what somebody has moved.
async fn one_that_is_not_carried_is_told_and_carried_later(stage: &Stage, admin: &mut WireClient, pieces: &str) {
    let map = stage.cluster.connect_map().await;
    let last = "SELECT p.partition_id, p.low FROM shardgate.partitions p JOIN shardgate.tables t USING (colocation_group) \
                WHERE table_name = 'days' AND low IS NOT NULL ORDER BY low::date DESC LIMIT 1";
    let [last, low] = <[String; 2]>::try_from(admin.row(last).await).expect("two columns");
    let not_carried = format!("SELECT shardgate_map.time_piece_not_carried({last}, 'shard1', 'there was no room')");
    map.batch_execute(&not_carried).await.expect("as a proxy notes it");
    let error = "SELECT error FROM shardgate.time_partitions WHERE every = '1 year'";
    let expected = format!("partition {last}, from {low}, is not on shard \"shard1\": there was no room");
    assert_eq!(admin.value(error).await, expected);
    succeed(admin, "SELECT shardgate.time_partitions('days', '1 year', 2, 'shard0')").await;
    until(admin, pieces, "shard2,shard0,shard2,shard0,shard0").await;
    until(admin, "SELECT made FROM shardgate.time_partitions WHERE every = '1 year'", "2").await;
    assert_eq!(admin.value(error).await, expected);
    let (_, said) = stage.proxy.check(&[]);
    assert!(said.contains("there was no room"), "{said}");
    map.batch_execute("UPDATE shardgate_map.time_piece SET again_at = now() - interval '1 s'").await.expect("two minutes later");
    let again = "SELECT shardgate.time_partitions('days', '1 year', 2, 'shard0')";
    succeed(admin, again).await;
    until(admin, pieces, "shard2,shard0,shard2,shard1,shard0").await;
    until(admin, "SELECT count(error) FROM shardgate.time_partitions", "0").await;
    until(admin, "SELECT count(*) FROM shardgate.moves WHERE state NOT IN ('done', 'aborted')", "0").await;
    // It was moved by hand.
    map.batch_execute(&not_carried.replace("'shard1'", "'shard0'")).await.expect("as a proxy notes it");
    assert_eq!(admin.value("SELECT count(error) FROM shardgate.time_partitions").await, "1");
    succeed(admin, &format!("SELECT shardgate.move_partition({last}, 'shard2')")).await;
    until(admin, pieces, "shard2,shard0,shard2,shard2,shard0").await;
    assert_eq!(admin.value("SELECT count(error) FROM shardgate.time_partitions").await, "0");
    map.batch_execute("UPDATE shardgate_map.time_piece SET again_at = now() - interval '1 s'").await.expect("two minutes later");
    succeed(admin, again).await;
    let left = "SELECT count(*) FROM shardgate_map.time_piece";
    let deadline = Instant::now() + Duration::from_secs(60);
    // The proxy has looked at what is due.
    while map.query_one(left, &[]).await.expect(left).get::<_, i64>(0) != 0 {
        assert!(Instant::now() < deadline, "what is nobody's trouble any more is kept");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(admin.value(pieces).await, "shard2,shard0,shard2,shard2,shard0");
}

/// A move gives way to it, and the piece is carried again.
#[tokio::test]
async fn a_change_of_the_schema_keeps_no_piece_from_its_shard() {
    let points = Points::new();
    let stage = Stage::start(3, points.options()).await;
    let (mut admin, mut other) = (stage.client().await, stage.client().await);
    for statement in [
        "CREATE TABLE events (at timestamptz, id int, PRIMARY KEY (at, id))",
        "SELECT shardgate.distribute_table('events', 'at', 'range', on_shards => 'shard0')",
    ] {
        succeed(&mut admin, statement).await;
    }
    points.arm("move.gated", "hold");
    succeed(&mut admin, "SELECT shardgate.time_partitions('events', '1 month', ahead => 1, on_shards => 'shard1')").await;
    points.until_reached("move.gated").await;
    // Noted before it is carried, for whoever takes it up if this proxy dies now.
    let error = admin.value("SELECT error FROM shardgate.time_partitions").await;
    assert!(error.ends_with(" is not on shard \"shard1\": its move has not ended"), "{error}");
    succeed(&mut other, "CREATE TABLE made_meanwhile (id int)").await;
    points.release("move.gated");
    let pieces = "SELECT string_agg(shard, ',' ORDER BY low::timestamptz NULLS FIRST) FROM shardgate.partitions p JOIN shardgate.tables t \
                  USING (colocation_group) WHERE table_name = 'events'";
    until(&mut admin, pieces, "shard0,shard1").await;
    until(&mut admin, "SELECT concat(made, error) FROM shardgate.time_partitions", "1").await;
    assert_eq!(admin.value("SELECT string_agg(state, ',' ORDER BY move_id) FROM shardgate.moves").await, "aborted,done");
}

/// A proxy makes one piece after the other, each of which is moved to its shard.
async fn until(client: &mut WireClient, sql: &str, expected: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let found = client.value(sql).await;
        if found == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
