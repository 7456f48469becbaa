//! Parity: what one PostgreSQL that holds all rows answers, the proxy over three shards answers too.
//!
//! The oracle is PostgreSQL itself: each statement of the case files runs on a plain database and through the proxy, in the
//! simple protocol and in the extended one with text and binary values, and the answers are compared message by message
//! (`answer` says what equal means). After what may write, the rows of all tables are compared, read past the proxy. What the
//! proxy does not do yet is marked in the cases as refused, and then must be refused.
//!
//! Scenes, each with servers of its own: `general`, a small application; `keys`, a table for each kind of shard key; `gather`,
//! what PostgreSQL computes over rows of several shards; `writes`, rows that are numbered and dated, and their kind;
//! `partitioned`, declaratively partitioned tables; `actions`, what foreign keys and partitions do unseen; `unseen`, what functions,
//! triggers and policies read, and values that are computed once; `collations`, text in other orders than that of its bytes;
//! `moving`, what might see rows that are being moved; `merges`, what rows are sorted and grouped by when they are put together; `staying`, rows that are brought to the shards of others. The
//! others are told in databases with such an order too.

mod answer;
mod case;
mod generated;
mod messages;
mod planted;
mod psql;
mod raw_client;
mod residues;
mod runner;
mod tpch;
mod world;

use std::path::{Path, PathBuf};

use case::Case;
use runner::Runner;
use world::{Scene, World};

use crate::support::{Text, volume};

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

const PARTITIONED: Scene = Scene {
    schema: include_str!("parity/partitioned/schema.sql"),
    rows: include_str!("parity/partitioned/rows.sql"),
    declare: include_str!("parity/partitioned/declare.sql"),
    locate: "SELECT shardgate.locate('events', '1')",
};

const ACTIONS: Scene = Scene {
    schema: include_str!("parity/actions/schema.sql"),
    rows: include_str!("parity/actions/rows.sql"),
    declare: include_str!("parity/actions/declare.sql"),
    locate: "SELECT shardgate.locate('paints', '1')",
};

const UNSEEN: Scene = Scene {
    schema: include_str!("parity/unseen/schema.sql"),
    rows: include_str!("parity/unseen/rows.sql"),
    declare: include_str!("parity/unseen/declare.sql"),
    locate: "SELECT shardgate.locate('t', '1')",
};

const COLLATIONS: Scene = Scene {
    schema: include_str!("parity/collations/schema.sql"),
    rows: include_str!("parity/collations/rows.sql"),
    declare: include_str!("parity/collations/declare.sql"),
    locate: "SELECT shardgate.locate('people', '1')",
};

const MERGES: Scene = Scene {
    schema: include_str!("parity/merges/schema.sql"),
    rows: include_str!("parity/merges/rows.sql"),
    declare: include_str!("parity/merges/declare.sql"),
    locate: "SELECT shardgate.locate('t', '1')",
};

const STAYING: Scene = Scene {
    schema: include_str!("parity/staying/schema.sql"),
    rows: include_str!("parity/staying/rows.sql"),
    declare: include_str!("parity/staying/declare.sql"),
    locate: "SELECT shardgate.locate('facts', '1')",
};

/// What is particular about rows that lie where they are not owned.
const MOVING: Scene = Scene {
    schema: include_str!("parity/moving/schema.sql"),
    rows: include_str!("parity/moving/rows.sql"),
    declare: include_str!("parity/moving/declare.sql"),
    locate: "SELECT shardgate.locate('m_t', '1')",
};

#[tokio::test]
async fn statements_are_answered_as_by_one_postgresql() {
    let mut world = World::start(GENERAL).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "general", None).await;
    messages::run(&mut runner).await;
    let mut tally = runner.tally;
    psql::run(&world, &mut tally);
    tally.finish("general");
}

#[tokio::test]
async fn keys_of_every_type_are_found_as_by_one_postgresql() {
    let mut world = World::start(KEYS).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "keys", None).await;
    runner.tally.finish("keys");
}

#[tokio::test]
async fn statements_over_gathered_rows_are_answered_as_by_one_postgresql() {
    let mut world = World::start(GATHER).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "gather", None).await;
    runner.tally.finish("gather");
}

/// Each statement twice: with the biggest table where it is, and with all of them gathered.
#[tokio::test]
async fn rows_that_are_brought_to_the_shards_are_those_of_one_postgresql() {
    for mut world in [World::start_staying(STAYING).await, World::start(STAYING).await] {
        let mut runner = Runner::new(&mut world).await;
        run_files(&mut runner, "staying", None).await;
        runner.tally.finish("staying");
    }
}

#[tokio::test]
async fn rows_are_written_over_several_shards_as_by_one_postgresql() {
    let mut world = World::start(WRITES).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "writes", None).await;
    runner.tally.finish("writes");
}

#[tokio::test]
async fn partitioned_tables_are_read_and_written_as_by_one_postgresql() {
    let mut world = World::start(PARTITIONED).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "partitioned", None).await;
    runner.tally.finish("partitioned");
}

#[tokio::test]
async fn what_a_write_does_unseen_is_as_by_one_postgresql() {
    let mut world = World::start(ACTIONS).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "actions", None).await;
    runner.tally.finish("actions");
}

#[tokio::test]
async fn what_a_statement_reads_unseen_is_as_by_one_postgresql() {
    let mut world = World::start(UNSEEN).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "unseen", None).await;
    runner.tally.finish("unseen");
}

/// In databases whose default collation is not C, since the names of collations count.
#[tokio::test]
async fn what_is_merged_is_as_by_one_postgresql() {
    let mut world = World::start_sorting(MERGES, Text::Linguistic).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "merges", None).await;
    runner.tally.finish("merges");
}

/// In databases whose default collation is not C.
#[tokio::test]
async fn text_that_is_not_in_the_order_of_its_bytes_is_answered_as_by_one_postgresql() {
    let mut world = World::start_sorting(COLLATIONS, Text::Linguistic).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "collations", None).await;
    runner.tally.finish("collations");
}

#[tokio::test]
async fn every_scene_is_answered_alike_where_text_is_in_a_linguistic_order() {
    let scenes = [(GENERAL, "general"), (KEYS, "keys"), (GATHER, "gather"), (WRITES, "writes")];
    for (scene, name) in volume(scenes[..1].to_vec(), scenes.to_vec()) {
        let mut world = World::start_sorting(scene, Text::Linguistic).await;
        let mut runner = Runner::new(&mut world).await;
        run_files(&mut runner, name, volume(Some(&["aggregates.sql", "reads.sql"]), None)).await;
        runner.tally.finish(&format!("{name}, linguistic"));
    }
}

/// Of all shards, in snapshots that were taken together; the scratch session that rows are gathered in has another one.
#[tokio::test]
async fn reports_are_answered_as_by_one_postgresql() {
    let scenes = vec![(GATHER, "gather"), (GENERAL, "general"), (KEYS, "keys"), (PARTITIONED, "partitioned")];
    for (scene, name) in volume(scenes[..1].to_vec(), scenes.clone()) {
        let mut world = World::start(scene).await;
        let mut runner = Runner::new(&mut world).await;
        for cases in files_of(name, volume(Some(&["reads.sql"]), None)) {
            runner.run_within("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", &cases).await;
        }
        let tally = runner.tally;
        assert!(tally.refused * 10 < tally.checks, "{} of {} are refused", tally.refused, tally.checks);
        tally.finish(&format!("{name}, reports"));
    }
}

/// The cases of a scene: every file in its folder but those that make the scene, so that none can be forgotten; or only some.
async fn run_files(runner: &mut Runner<'_>, scene: &str, only: Option<&[&str]>) {
    for cases in files_of(scene, only) {
        runner.run(&cases).await;
    }
}

fn files_of(scene: &str, only: Option<&[&str]>) -> Vec<Vec<Case>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/parity").join(scene);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !SCENE_FILES.iter().any(|name| file.ends_with(name)));
    files.retain(|file| only.is_none_or(|names| names.iter().any(|name| file.ends_with(name))));
    files.sort();
    assert!(!files.is_empty());
    let read = |file: PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        case::cases(&name, &std::fs::read_to_string(&file).unwrap())
    };
    files.into_iter().map(read).collect()
}

const SCENE_FILES: [&str; 3] = ["schema.sql", "rows.sql", "declare.sql"];
