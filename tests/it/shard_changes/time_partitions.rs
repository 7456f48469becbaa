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
    // No more of it.
    succeed(&mut admin, "SELECT shardgate.time_partitions('events', NULL)").await;
    assert_eq!(admin.value("SELECT count(*) FROM shardgate.time_partitions").await, "1");
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
