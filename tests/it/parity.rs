//! Parity: what one PostgreSQL that holds all rows answers, the proxy over three shards answers too.
//!
//! The oracle is PostgreSQL itself: each statement of the case files runs on a plain database and through the proxy, in the
//! simple protocol and in the extended one with text and binary values, and the answers are compared message by message
//! (`answer` says what equal means). After what may write, the rows of all tables are compared, read past the proxy. What the
//! proxy does not do yet is marked in the cases as refused, and then must be refused.
//!
//! Scenes, each with servers of its own: `general`, a small application; `keys`, a table for each kind of shard key; `gather`,
//! what PostgreSQL computes over rows of several shards; `writes`, rows that are numbered and dated, and their kind.

mod answer;
mod case;
mod generated;
mod messages;
mod psql;
mod raw_client;
mod runner;
mod tpch;
mod world;

use runner::Runner;
use world::{Scene, World};

const GENERAL: Scene = Scene {
    schema: include_str!("parity/general/schema.sql"),
    rows: include_str!("parity/general/rows.sql"),
    declare: include_str!("parity/general/declare.sql"),
    locate: "SELECT shardgate.locate('accounts', '1')",
};
const KEYS: Scene = Scene {
    schema: include_str!("parity/keys/schema.sql"),
    rows: include_str!("parity/keys/rows.sql"),
    declare: include_str!("parity/keys/declare.sql"),
    locate: "SELECT shardgate.locate('k_int4', '1')",
};

const GATHER: Scene = Scene {
    schema: include_str!("parity/gather/schema.sql"),
    rows: include_str!("parity/gather/rows.sql"),
    declare: include_str!("parity/gather/declare.sql"),
    locate: "SELECT shardgate.locate('people', '1')",
};

const WRITES: Scene = Scene {
    schema: include_str!("parity/writes/schema.sql"),
    rows: include_str!("parity/writes/rows.sql"),
    declare: include_str!("parity/writes/declare.sql"),
    locate: "SELECT shardgate.locate('items', '1')",
};

#[tokio::test]
async fn statements_are_answered_as_by_one_postgresql() {
    let mut world = World::start(GENERAL).await;
    let mut runner = Runner::new(&mut world).await;
    for (file, text) in [
        ("reads.sql", include_str!("parity/general/reads.sql")),
        ("aggregates.sql", include_str!("parity/general/aggregates.sql")),
        ("traps.sql", include_str!("parity/general/traps.sql")),
        ("writes.sql", include_str!("parity/general/writes.sql")),
        ("copy.sql", include_str!("parity/general/copy.sql")),
        ("truncate.sql", include_str!("parity/general/truncate.sql")),
        ("staged.sql", include_str!("parity/general/staged.sql")),
        ("prepared.sql", include_str!("parity/general/prepared.sql")),
        ("scripts.sql", include_str!("parity/general/scripts.sql")),
        ("copy_out.sql", include_str!("parity/general/copy_out.sql")),
        ("locks.sql", include_str!("parity/general/locks.sql")),
        ("cursors.sql", include_str!("parity/general/cursors.sql")),
    ] {
        runner.run(&case::cases(file, text)).await;
    }
    messages::run(&mut runner).await;
    let mut tally = runner.tally;
    psql::run(&world, &mut tally);
    tally.finish("general");
}

#[tokio::test]
async fn keys_of_every_type_are_found_as_by_one_postgresql() {
    let mut world = World::start(KEYS).await;
    let mut runner = Runner::new(&mut world).await;
    runner.run(&case::cases("keys.sql", include_str!("parity/keys/keys.sql"))).await;
    runner.tally.finish("keys");
}

#[tokio::test]
async fn statements_over_gathered_rows_are_answered_as_by_one_postgresql() {
    let mut world = World::start(GATHER).await;
    let mut runner = Runner::new(&mut world).await;
    runner.run(&case::cases("reads.sql", include_str!("parity/gather/reads.sql"))).await;
    runner.run(&case::cases("scripts.sql", include_str!("parity/gather/scripts.sql"))).await;
    runner.run(&case::cases("cursors.sql", include_str!("parity/gather/cursors.sql"))).await;
    runner.run(&case::cases("copy_out.sql", include_str!("parity/gather/copy_out.sql"))).await;
    runner.tally.finish("gather");
}

#[tokio::test]
async fn rows_are_written_over_several_shards_as_by_one_postgresql() {
    let mut world = World::start(WRITES).await;
    let mut runner = Runner::new(&mut world).await;
    for (file, text) in
        [("numbers.sql", include_str!("parity/writes/numbers.sql")), ("merge.sql", include_str!("parity/writes/merge.sql"))]
    {
        runner.run(&case::cases(file, text)).await;
    }
    runner.tally.finish("writes");
}
