//! What one session sets reaches no other, whatever it is, however it came to be set, and however that ended.
//!
//! A cell of the matrix is a kind of state, a way in which a statement comes to set it, the end of the transaction, the messages,
//! what is distributed, the pool's mode, whose connections they are, and who looks first. The same statements run on plain
//! PostgreSQL, where every client has a connection of its own, and through the proxy; what each sees is equal, or the statement is
//! refused with its reason and leaves nothing. Every pair of values is in some cell, but for those that cannot be in one ([`cells`] says
//! why); most cells have nothing distributed, since these are quickest. `make test` runs a part of them; `make soak` runs all, and adds
//! random cells, also of the configurations that `make test` does not start.

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
use stage::{Configuration, SLOTS, Stage, Words};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_with_nothing_distributed_in_transaction_pooling() {
    sealed(IN_TEST[0], |cell| cell.is_of_setting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_with_nothing_distributed_in_transaction_pooling() {
    sealed(IN_TEST[0], |cell| !cell.is_of_setting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_with_nothing_distributed_in_session_pooling() {
    sealed(IN_TEST[1], |cell| cell.is_of_setting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_with_nothing_distributed_in_session_pooling() {
    sealed(IN_TEST[1], |cell| !cell.is_of_setting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_sharded_tables_in_transaction_pooling() {
    sealed(IN_TEST[2], |_| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_sharded_tables_in_session_pooling() {
    sealed(IN_TEST[3], |_| true).await;
}

/// One cell of so many is in `make test`: all together take two cores some twelve minutes.
const PARTS: usize = 8;

async fn sealed(configuration: Configuration, is_meant: fn(&Cell) -> bool) {
    let of_test = |cell: &Cell| cell.configuration == configuration && is_meant(cell);
    let asked_for = asked_for();
    if !asked_for.is_empty() {
        let asked_for: Vec<Cell> = asked_for.into_iter().filter(of_test).collect();
        return if asked_for.is_empty() { println!("none of these cells") } else { run_all(configuration, asked_for).await };
    }
    let part = volume(PARTS, 1);
    run_all(configuration, cells::covering().into_iter().map(cells::cell).filter(of_test).skip(part / 2).step_by(part).collect())
        .await;
    for other in [true, false].map(|as_client| Configuration { as_client, ..configuration }) {
        let count = volume(0, 400);
        let seed: u64 = rand::random();
        let mut random = StdRng::seed_from_u64(seed);
        if count > 0 {
            println!("{other:?}: of {count} cells by the seed {seed}");
            let cells = cells::random(other, count, &mut random).into_iter().map(cells::cell);
            run_all(other, cells.filter(is_meant).collect()).await;
        }
    }
}

/// Cells again: `SHARDGATE_CELLS` is what their failures name as their numbers, with blanks between.
fn asked_for() -> Vec<Cell> {
    let text = std::env::var("SHARDGATE_CELLS").unwrap_or_default();
    let numbers = |cell: &str| cell.split(',').map(|number| number.parse().expect("a number")).collect::<Vec<usize>>();
    text.split_whitespace().map(|cell| cells::cell(numbers(cell).try_into().expect("the numbers of a cell"))).collect()
}

async fn run_all(configuration: Configuration, all: Vec<Cell>) {
    let mut stage = Stage::start(configuration).await;
    let (mut failures, mut outcomes) = (Vec::new(), BTreeMap::<Outcome, usize>::new());
    let mut number = 0;
    for cells in batches(&all) {
        let words = |slot: usize, cell: &Cell| (*cell, stage.words(cell.tables, slot, number + slot));
        let cells: Vec<(Cell, Words)> = cells.iter().enumerate().map(|(slot, cell)| words(slot, cell)).collect();
        number += cells.len();
        let created = run::create_together(&stage, &cells).await;
        for ((cell, words), is_created) in cells.iter().zip(created) {
            match run::run(&stage, cell, words, is_created).await {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(failure) => {
                    stage.restart_proxy();
                    failures.push(failure);
                }
            }
        }
        run::clean_up(&stage, &cells).await;
    }
    let equal = outcomes.get(&Outcome::Equal).copied().unwrap_or_default();
    println!("{configuration:?}: {} cells, {equal} equal, {} wrong", all.len(), failures.len());
    outcomes.iter().for_each(|(outcome, count)| println!("{count}: {outcome:?}"));
    assert!(failures.is_empty(), "{} of {} cells are wrong\n\n{}", failures.len(), all.len(), failures.join("\n"));
}

/// Cells whose objects are created, and dropped, by one change of the schema: such changes are most of a cell's time. Alike ones are
/// together, as they are refused alike.
fn batches(all: &[Cell]) -> Vec<Vec<Cell>> {
    let (alone, mut together): (Vec<Cell>, Vec<Cell>) = all.iter().partition(|cell| cell.way.concerns_others());
    together.sort_by_key(|cell| cell.way as usize);
    together.chunks(SLOTS).map(<[Cell]>::to_vec).chain(alone.into_iter().map(|cell| vec![cell])).collect()
}
