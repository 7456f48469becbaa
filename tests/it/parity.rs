//! Parity: what one PostgreSQL that holds all rows answers, the proxy over three shards answers too.
//!
//! The oracle is PostgreSQL itself: each statement of `parity/cases/*.sql` runs on a plain database and through the proxy, in
//! the simple protocol and in the extended one with text and binary values, and the answers are compared message by message
//! (`answer` says what equal means). After what may write, the rows of all tables are compared, read past the proxy. What the
//! proxy does not do yet is marked in the cases as refused, and then must be refused.

mod answer;
mod case;
mod raw_client;
mod runner;
mod world;

use runner::Runner;
use world::World;

/// Runs files of cases in a world of their own.
async fn parity(name: &str, files: &[(&str, &str)]) {
    let mut world = World::start().await;
    let mut runner = Runner::new(&mut world).await;
    for (file, text) in files {
        runner.run(&case::cases(file, text)).await;
    }
    runner.tally.finish(name);
}

#[tokio::test]
async fn reads_are_answered_as_by_one_postgresql() {
    parity("reads", &[("reads.sql", include_str!("parity/cases/reads.sql"))]).await;
}
