//! Statements drawn from a seed, over tables drawn from it, are answered as by one PostgreSQL.
//!
//! Each round makes tables of every kind (`schema`) and asks many SELECTs (`query`, `read`, `expression`) and writes (`write`) of
//! both sides, in the simple protocol and in the extended one with parameters, in text and binary, and row by row. After a write
//! the rows of all tables are compared, and made as they were. What differs is shrunk to the least statement that still differs
//! and printed with the tables and the seed. What is refused is counted by construct.
//!
//! `SHARDGATE_GENERATED_SEED` makes the tables and statements of one round again, `SHARDGATE_GENERATED_ONLY` one statement of it,
//! `SHARDGATE_GENERATED_COUNT` sets how many statements a round has, `SHARDGATE_GENERATED_SHOW` prints what is refused.

mod equals;
mod expression;
mod query;
mod read;
mod schema;
mod tree;
mod values;
mod write;

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::answer::{Answer, Part, RowOrder, Told};
use super::raw_client::{Format, Message, RawClient};
use super::world::World;
use crate::support::volume;
use query::{Generator, Statement};
use schema::Schema;
use tree::{Tree, Written};

#[tokio::test]
async fn generated_statements_are_answered_as_by_one_postgresql() {
    let seed = number("SHARDGATE_GENERATED_SEED");
    let count = number("SHARDGATE_GENERATED_COUNT").unwrap_or(volume(300, 2_000) as u64);
    let mut tally = Tally::default();
    for round in 0..seed.map_or(volume(1, 50), |_| 1) {
        // The same statements in every `make test`: what they find is found at once, and by everybody.
        let seed = seed.unwrap_or_else(|| volume(round + 1, rand::random::<u32>() as usize) as u64);
        println!("seed {seed}");
        run(seed, count, Rows::Owned, &mut tally).await;
    }
    tally.finish();
}

/// The same, in worlds where each shard holds altered copies of the other shards' rows.
#[tokio::test]
async fn generated_statements_see_no_rows_that_are_not_owned() {
    let seed = number("SHARDGATE_GENERATED_SEED");
    let count = number("SHARDGATE_GENERATED_COUNT").unwrap_or(volume(150, 2_000) as u64);
    let mut tally = Tally::default();
    for round in 0..seed.map_or(volume(1, 20), |_| 1) {
        let seed = seed.unwrap_or_else(|| volume(round + 2, rand::random::<u32>() as usize) as u64);
        println!("seed {seed}");
        run(seed, count, Rows::Planted, &mut tally).await;
    }
    tally.finish();
}

/// What lies on the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Owned,
    /// Copies of others, too.
    Planted,
}

#[derive(Default)]
struct Tally {
    statements: usize,
    /// Of them.
    writes: usize,
    failed: usize,
    /// By what the refusals say; of writes apart.
    refused: BTreeMap<(bool, String), usize>,
    differences: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Simple,
    Extended(Format),
    /// Through a portal, so many rows at a time.
    Pieces(Format, i32),
}

enum Verdict {
    Equal,
    /// By one PostgreSQL too.
    Failed,
    Refused(String),
    Differs(Difference),
}

struct Difference {
    plain: Answer,
    proxy: Answer,
    /// Of the rows that a write has left.
    rows: Option<String>,
}

struct Sides {
    world: World,
    plain: RawClient,
    proxy: RawClient,
}

async fn run(seed: u64, count: u64, rows: Rows, tally: &mut Tally) {
    let schema = Schema::new(&mut StdRng::seed_from_u64(seed));
    // What can be answered with an input that stays on its shards can be answered without; each is tried.
    let world = match (rows, seed % 2 == 1) {
        (Rows::Owned, true) => World::start_staying(schema.scene()).await,
        (Rows::Owned, false) => World::start(schema.scene()).await,
        (Rows::Planted, true) => World::start_planted_staying(schema.scene()).await,
        (Rows::Planted, false) => World::start_planted(schema.scene()).await,
    };
    let (plain, proxy) = (world.connect_plain().await, world.connect_proxy().await);
    let mut sides = Sides { world, plain, proxy };
    let only = number("SHARDGATE_GENERATED_ONLY");
    for number in (0..count).filter(|number| only.is_none_or(|only| only == *number)) {
        let statement = Generator::new(&schema, seed.wrapping_mul(1_000_003).wrapping_add(number)).statement();
        if fails_by_itself(&statement.tree) {
            continue;
        }
        let mode = mode_of(&statement, number);
        tally.statements += 1;
        tally.writes += usize::from(statement.writes);
        match sides.verdict(&statement, mode).await {
            Verdict::Equal => {}
            Verdict::Failed => tally.failed += 1,
            Verdict::Refused(construct) => {
                if std::env::var_os("SHARDGATE_GENERATED_SHOW").is_some() {
                    let Written { text, .. } = statement.tree.write(mode != Mode::Simple);
                    println!("statement {number}, {mode:?}: {construct}\n  {text}");
                }
                *tally.refused.entry((statement.writes, construct)).or_default() += 1;
            }
            Verdict::Differs(first) => {
                let order = statement.order;
                let (least, Difference { plain, proxy, rows }) = sides.shrunk(statement, mode, first).await;
                let Written { text, values } = least.tree.write(mode != Mode::Simple);
                let rows = rows.map(|rows| format!("Rows are left different:\n{rows}")).unwrap_or_default();
                tally.differences.push(format!(
                    "seed {seed}, statement {number}, {mode:?}, rows in {order:?} order\n{}{}\n{text}\nwith {values:?}\n\
                     PostgreSQL:\n{plain}Shardgate:\n{proxy}{rows}",
                    schema.schema, schema.rows
                ));
                if tally.differences.len() == DIFFERENCES_MAX {
                    return;
                }
            }
        }
    }
}

/// Where rows come in any order, or only their number counts, pieces of them cannot be compared.
fn mode_of(statement: &Statement, number: u64) -> Mode {
    let formats = [Format::Text, Format::Binary];
    let format = formats[(number / 4) as usize % 2];
    match number % 4 {
        1 => Mode::Extended(format),
        3 if statement.order == RowOrder::Total => Mode::Pieces(format, (number / 8 % 5) as i32 + 1),
        3 => Mode::Extended(format),
        _ => Mode::Simple,
    }
}

/// PostgreSQL looks the least and the most of all rows up by a sub-select with the whole's own LIMIT: WITH TIES may then find
/// "more than one row".
fn fails_by_itself(tree: &Tree) -> bool {
    let Written { text, .. } = tree.write(false);
    text.contains(" WITH TIES") && !text.contains(" GROUP BY ") && (text.contains("max(") || text.contains("min("))
}

impl Sides {
    async fn answers(&mut self, tree: &Tree, mode: Mode) -> (Answer, Answer) {
        let Written { text, values } = tree.write(mode != Mode::Simple);
        let (format, pieces) = match mode {
            Mode::Simple => {
                return (self.plain.query(&text, b"").await, self.proxy.query(&text, b"").await);
            }
            Mode::Extended(format) => (format, vec![0]),
            Mode::Pieces(format, rows) => (format, vec![rows, rows + 1, 0]),
        };
        let values: Vec<Option<Vec<u8>>> = values.into_iter().map(|value| value.map(String::into_bytes)).collect();
        let mut messages = vec![
            Message::Parse { name: String::new(), text, types: Vec::new() },
            Message::DescribeStatement(String::new()),
            Message::Bind { portal: String::new(), statement: String::new(), format: Format::Text, values, results: vec![format] },
        ];
        messages.extend(pieces.into_iter().map(|rows| Message::Execute { portal: String::new(), rows }));
        for client in [&mut self.plain, &mut self.proxy] {
            messages.iter().for_each(|message| client.put(message));
        }
        (self.plain.sync(b"").await, self.proxy.sync(b"").await)
    }

    async fn verdict(&mut self, statement: &Statement, mode: Mode) -> Verdict {
        let (plain, proxy) = self.answers(&statement.tree, mode).await;
        let is_closed = plain.is_closed() || proxy.is_closed();
        if is_closed {
            self.plain = self.world.connect_plain().await;
            self.proxy = self.world.connect_proxy().await;
        }
        // An error of a row that is excluded cannot always be told from one of the client's.
        let is_refusal = |error: &&Told| error.is_refusal() || error.get('M').is_some_and(|told| told.ends_with(OF_MOVING_ROWS));
        let refusal = proxy.error().filter(is_refusal).cloned();
        // What the rows are afterwards tells more than the count in the tag; back to the first ones.
        let rows = match statement.writes {
            true => self.world.check_and_restore(refusal.is_some()).await,
            false => None,
        };
        let is_same = match (plain.error(), proxy.error()) {
            _ if is_closed || rows.is_some() => false,
            (_, Some(_)) if refusal.is_some() => true,
            // Which row is looked at first is open, and what is wrong with it.
            (Some(one), Some(other)) => is_alike(one.get('C'), other.get('C')),
            (Some(one), None) => one.get('C').is_some_and(|code| code.starts_with("22")),
            (None, Some(_)) => false,
            (None, None) => {
                let (plain, proxy) = (comparable(plain.clone(), mode), comparable(proxy.clone(), mode));
                plain.lines(statement.order) == proxy.lines(statement.order)
                    || (statement.order == RowOrder::Total && {
                        let is_cut = is_cut(&statement.tree);
                        plain.lines_of_ties(is_cut) == proxy.lines_of_ties(is_cut)
                    })
            }
        };
        match (is_same, refusal) {
            (false, _) => Verdict::Differs(Difference { plain, proxy, rows }),
            (true, Some(refusal)) => Verdict::Refused(construct(refusal.get('M').unwrap_or_default())),
            (true, None) if plain.error().is_some() => Verdict::Failed,
            (true, None) => Verdict::Equal,
        }
    }

    /// The least statement that is still answered differently, as far as so many tries find it.
    async fn shrunk(&mut self, mut least: Statement, mode: Mode, mut difference: Difference) -> (Statement, Difference) {
        let mut tries = 0;
        'simpler: loop {
            for tree in least.tree.simpler() {
                tries += 1;
                if tries > TRIES_MAX {
                    return (least, difference);
                }
                let simpler = Statement { tree, ..least };
                if let Verdict::Differs(found) = self.verdict(&simpler, mode).await
                    && found.plain.error().is_none()
                {
                    (least, difference) = (simpler, found);
                    continue 'simpler;
                }
            }
            return (least, difference);
        }
    }
}

/// Of two errors: the same, or both about values, constraints or rows that are met twice, of which there may be several.
fn is_alike(one: Option<&str>, other: Option<&str>) -> bool {
    let is_of_rows = |code: Option<&str>| code.is_some_and(|code| ["21", "22", "23"].iter().any(|class| code.starts_with(class)));
    one == other || (is_of_rows(one) && is_of_rows(other))
}

/// Of rows that are alike to its order, some may be left out.
fn is_cut(tree: &Tree) -> bool {
    let Written { text, .. } = tree.write(false);
    [" LIMIT ", " OFFSET ", " FETCH ", "DISTINCT"].iter().any(|word| text.contains(word))
}

impl Tally {
    fn finish(self) {
        let Tally { statements, writes, failed, refused, differences } = self;
        println!("{statements} statements, {failed} of them errors on both sides");
        for (is_write, name, count) in [(false, "SELECT", statements - writes), (true, "writes", writes)] {
            let mut own: Vec<(&str, usize)> =
                refused.iter().filter(|(key, _)| key.0 == is_write).map(|(key, count)| (key.1.as_str(), *count)).collect();
            own.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let all: usize = own.iter().map(|(_, count)| count).sum();
            println!("{name}: {count}, {all} refused ({:.2} %)", share(all, count));
            own.iter().for_each(|(construct, refused)| println!("  {refused:6} ({:.2} %) {construct}", share(*refused, count)));
        }
        assert!(differences.is_empty(), "{} answers differ:\n\n{}", differences.len(), differences.join("\n\n"));
        assert!(failed * 4 < statements, "most statements must run");
    }
}

const OF_MOVING_ROWS: &str = "while rows of its tables are being moved";

/// In the simple protocol PostgreSQL tells the type modifier that an expression has in its plan, which hangs on how far it was
/// computed while planning.
fn comparable(mut answer: Answer, mode: Mode) -> Answer {
    for part in answer.parts.iter_mut().filter(|_| mode == Mode::Simple) {
        if let Part::Columns(columns) = part {
            columns.iter_mut().filter(|column| column.attnum == 0).for_each(|column| column.typmod = -1);
        }
    }
    answer
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// A refusal without the names in it.
fn construct(message: &str) -> String {
    let pieces = message.split('"').enumerate().map(|(index, piece)| if index % 2 == 0 { piece } else { "…" });
    pieces.collect::<Vec<_>>().join("\"")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?} is no number")))
}

const DIFFERENCES_MAX: usize = 5;
const TRIES_MAX: usize = 600;
