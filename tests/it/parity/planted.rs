//! Rows that lie on a shard and are not owned by it change no answer and are changed by no statement.
//!
//! Every scene again, in a world where each shard holds altered copies of the rows that the other shards own, as in the middle of a
//! move of everything. What is refused for that reason alone is listed with its reason, and nothing else may differ.

use super::runner::{ALL_MODES, Mode, Runner};
use super::world::World;
use super::{ACTIONS, GATHER, GENERAL, KEYS, MERGES, MOVING, PARTITIONED, STAYING, UNSEEN, WRITES, run_files};
use crate::support::volume;

/// A query, or a prepared statement.
const SOME_MODES: &[Mode] = &[Mode::Simple, Mode::Binary];

async fn run(world: &mut World, name: &str) {
    let mut runner = Runner::new(world).await;
    // Which row of several fails first hangs on where they lie, and so on what was written before.
    let in_test = (SOME_MODES, if name == "writes" { 2 } else { 1 });
    (runner.modes, runner.ways_per_case) = volume(in_test, (ALL_MODES, ALL_MODES.len()));
    runner.listed = UNCOVERED;
    run_files(&mut runner, name, None).await;
    runner.tally.finish_but_for(&format!("{name}, planted"), name, UNCOVERED);
}

#[tokio::test]
async fn whatever_they_are_asked() {
    let mut world = World::start_planted(MOVING).await;
    let mut runner = Runner::new(&mut world).await;
    run_files(&mut runner, "moving", None).await;
    runner.tally.finish_but_for("moving, planted", "moving", UNCOVERED);
}

#[tokio::test]
async fn in_a_small_application() {
    run(&mut World::start_planted(GENERAL).await, "general").await;
}

#[tokio::test]
async fn with_keys_of_every_type() {
    run(&mut World::start_planted(KEYS).await, "keys").await;
}

#[tokio::test]
async fn over_gathered_rows() {
    run(&mut World::start_planted(GATHER).await, "gather").await;
}

#[tokio::test]
async fn over_rows_that_are_brought_to_the_shards() {
    run(&mut World::start_planted_staying(STAYING).await, "staying").await;
}

#[tokio::test]
async fn in_writes() {
    run(&mut World::start_planted(WRITES).await, "writes").await;
}

#[tokio::test]
async fn in_partitioned_tables() {
    run(&mut World::start_planted(PARTITIONED).await, "partitioned").await;
}

#[tokio::test]
async fn in_what_a_write_does_unseen() {
    run(&mut World::start_planted(ACTIONS).await, "actions").await;
}

#[tokio::test]
async fn in_what_a_statement_reads_unseen() {
    run(&mut World::start_planted(UNSEEN).await, "unseen").await;
}

#[tokio::test]
async fn in_what_is_merged() {
    run(&mut World::start_planted(MERGES).await, "merges").await;
}

/// `scene file:line reason`.
const UNCOVERED: &str = include_str!("planted/uncovered.txt");
