//! What one session sets reaches no other, whatever it is, however it came to be set, and however that ended.
//!
//! A cell of the matrix is a kind of state, a way in which a statement comes to set it, the end of the transaction, the messages,
//! what is distributed, the pool's mode, whose connections they are, and who looks first. The same statements run on plain
//! PostgreSQL, where every client has a connection of its own, and through the proxy; what each sees is equal, or the statement is
//! refused with its reason and leaves nothing. Every pair of values is in some cell of `make soak`, which adds random cells. `make test`
//! runs a sample of these; where nothing is distributed also all cells whose objects do nothing to others: many are created in one
//! schema change.

mod cells;
mod ends;
mod kinds;
mod observers;
mod protocols;
mod run;
mod speaker;
mod stage;
mod ways;

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::support::volume;
use cells::{Cell, IN_TEST};
use run::Outcome;
use stage::{Configuration, Stage, Words};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_distributed_transaction_pooling() {
    sealed(IN_TEST[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_distributed_session_pooling() {
    sealed(IN_TEST[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharded_transaction_pooling() {
    sealed(IN_TEST[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharded_session_pooling() {
    sealed(IN_TEST[3]).await;
}

async fn sealed(configuration: Configuration) {
    let asked_for: Vec<Cell> = asked_for().into_iter().filter(|cell| cell.configuration == configuration).collect();
    if !asked_for.is_empty() {
        return run_all(configuration, asked_for).await;
    }
    let covering = cells::covering(cells::is_in_test).into_iter().map(cells::cell);
    let covering: Vec<Cell> = covering.filter(|cell| cell.configuration == configuration).collect();
    let is_whole = |cell: &Cell| !configuration.is_distributed && cell.way.keeps_to_itself();
    let (together, sampled): (Vec<Cell>, Vec<Cell>) = covering.into_iter().partition(is_whole);
    let step = sampled.len() / volume(SAMPLE, sampled.len());
    run_all(configuration, together.into_iter().chain(sampled.into_iter().step_by(step)).collect()).await;
    for other in [true, false].map(|as_client| Configuration { as_client, ..configuration }) {
        let count = volume(0, 400);
        let seed: u64 = rand::random();
        let mut random = StdRng::seed_from_u64(seed);
        if count > 0 {
            println!("{other:?}: {count} cells by the seed {seed}");
            run_all(other, cells::random(other, count, &mut random).into_iter().map(cells::cell).collect()).await;
        }
    }
}

/// Cells of a configuration outside of `make soak`: all of them take minutes.
const SAMPLE: usize = 16;

/// Cells again: `SHARDGATE_CELLS` is what their failures name as their numbers, with blanks between.
fn asked_for() -> Vec<Cell> {
    let text = std::env::var("SHARDGATE_CELLS").unwrap_or_default();
    let numbers = |cell: &str| cell.split(',').map(|number| number.parse().expect("a number")).collect::<Vec<usize>>();
    text.split_whitespace().map(|cell| cells::cell(numbers(cell).try_into().expect("the numbers of a cell"))).collect()
}

async fn run_all(configuration: Configuration, all: Vec<Cell>) {
    let mut stage = Stage::start(configuration).await;
    let (mut failures, mut outcomes) = (Vec::new(), BTreeMap::<Outcome, usize>::new());
    let mut left = Vec::new();
    let numbered = |(number, cell): (usize, &Cell)| (*cell, stage.words(cell.tables, number));
    let numbered: Vec<(Cell, Words)> = all.iter().enumerate().map(numbered).collect();
    for cells in numbered.chunks(run::LEFT_MAX) {
        let is_together = cells.iter().all(|(cell, _)| cell.way.keeps_to_itself());
        let is_created = is_together && run::create_together(&stage, cells).await;
        for (cell, words) in cells {
            let outcome = run::run(&stage, cell, words, is_created).await;
            if outcome.is_err() {
                stage.restart_proxy();
            }
            run::clean_up(&stage, cell, words, &mut left).await;
            match outcome {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(failure) => failures.push(failure),
            }
        }
    }
    let equal = outcomes.get(&Outcome::Equal).copied().unwrap_or_default();
    println!("{configuration:?}: {} cells, {equal} equal, {} wrong", all.len(), failures.len());
    outcomes.iter().for_each(|(outcome, count)| println!("{count}: {outcome:?}"));
    assert!(failures.is_empty(), "{} of {} cells are wrong\n\n{}", failures.len(), all.len(), failures.join("\n"));
}
