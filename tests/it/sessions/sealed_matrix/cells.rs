//! The cells of the matrix: which combinations there are, and a set of them in which every pair of values occurs.

use std::collections::BTreeSet;
use std::fmt;

use super::ends::{ENDS, End};
use super::kinds::{KINDS, Kind};
use super::observers::{OBSERVERS, Observer};
use super::protocols::{PROTOCOLS, Protocol};
use super::stage::Configuration;
use super::ways::{WAYS, Way};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    Transaction,
    Session,
}

/// What is distributed, and on what the statement works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Nothing is distributed.
    Nothing,
    /// A table of the home shard beside sharded ones.
    Home,
    Sharded,
    /// The function that sets is declared.
    DeclaredHome,
    DeclaredSharded,
}

pub const TABLES: &[Tables] = &[Tables::Nothing, Tables::Home, Tables::Sharded, Tables::DeclaredHome, Tables::DeclaredSharded];

impl Tables {
    pub fn is_declared(self) -> bool {
        matches!(self, Self::DeclaredHome | Self::DeclaredSharded)
    }
}

#[derive(Clone, Copy)]
pub struct Cell {
    pub numbers: Numbers,
    pub kind: &'static Kind,
    pub way: Way,
    pub end: End,
    pub protocol: Protocol,
    pub observer: Observer,
    pub tables: Tables,
    pub configuration: Configuration,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { numbers, kind, way, end, protocol, observer, tables, configuration } = self;
        let user = if configuration.as_client { "client" } else { "shard" };
        write!(
            f,
            "kind: {}, way: {way:?}, end: {end:?}, protocol: {protocol:?}, observer: {observer:?}, tables: {tables:?}, \
             pool mode: {:?}, backend_user: {user}, numbers: {}",
            kind.name,
            configuration.mode,
            numbers.map(|number| number.to_string()).join(",")
        )
    }
}

/// What stands at each place of a cell's numbers.
const SIZES: [usize; 6] = [KINDS.len(), WAYS.len(), ENDS.len(), PROTOCOLS.len(), OBSERVERS.len(), TABLES.len() * CONFIGURATIONS];

/// For each kind of tables: pool mode × backend_user.
const CONFIGURATIONS: usize = 4;

/// The indices of a cell's values.
pub type Numbers = [usize; SIZES.len()];

/// The configurations that `make test` starts: every pair of their values occurs.
pub const IN_TEST: [Configuration; 4] = [
    Configuration { is_distributed: false, mode: PoolMode::Transaction, as_client: true },
    Configuration { is_distributed: false, mode: PoolMode::Session, as_client: false },
    Configuration { is_distributed: true, mode: PoolMode::Transaction, as_client: false },
    Configuration { is_distributed: true, mode: PoolMode::Session, as_client: true },
];

/// The cell of these numbers.
pub fn cell(numbers: Numbers) -> Cell {
    let [kind, way, end, protocol, observer, setting] = numbers;
    let tables = TABLES[setting / CONFIGURATIONS];
    let mode = if setting.is_multiple_of(2) { PoolMode::Transaction } else { PoolMode::Session };
    let as_client = setting % CONFIGURATIONS < 2;
    let configuration = Configuration { is_distributed: tables != Tables::Nothing, mode, as_client };
    Cell {
        numbers,
        kind: &KINDS[kind],
        way: WAYS[way],
        end: ENDS[end],
        protocol: PROTOCOLS[protocol],
        observer: OBSERVERS[observer],
        tables,
        configuration,
    }
}

/// Does `make test` start the configuration of this value of the last place?
pub fn is_in_test(setting: usize) -> bool {
    IN_TEST.contains(&cell([0, 0, 0, 0, 0, setting]).configuration)
}

/// May these two values be in one cell?
fn may_meet((one, first): (usize, usize), (other, second): (usize, usize)) -> bool {
    const KIND: usize = 0;
    const WAY: usize = 1;
    const END: usize = 2;
    const PROTOCOL: usize = 3;
    const OBSERVER: usize = 4;
    match (one, other) {
        // Set back with a warning, which PostgreSQL has none of: `sealed` tests it.
        (KIND, WAY) => !(KINDS[first].is_read_by() && WAYS[second] == Way::DynamicExecute),
        (WAY, PROTOCOL) => PROTOCOLS[second].can_send(WAYS[first].call(&KINDS[0]).1),
        (END, PROTOCOL) => PROTOCOLS[second].can_end(ENDS[first]),
        (END, OBSERVER) => ENDS[first] != End::Left || OBSERVERS[second] == Observer::Next,
        (one, other) if one > other => may_meet((other, second), (one, first)),
        (KIND | WAY | END | PROTOCOL | OBSERVER, _) => true,
        _ => unreachable!("two values of one place"),
    }
}

/// Cells in which every pair of values occurs that may; `is_possible`: of the last place's values.
pub fn covering(is_possible: impl Fn(usize) -> bool) -> Vec<Numbers> {
    let values =
        |place: usize| (0..SIZES[place]).filter(|value| place < SIZES.len() - 1 || is_possible(*value)).collect::<Vec<_>>();
    let mut uncovered = BTreeSet::new();
    for one in 0..SIZES.len() {
        for other in one + 1..SIZES.len() {
            for first in values(one) {
                let pairs = values(other).into_iter().map(|second| ((one, first), (other, second)));
                uncovered.extend(pairs.filter(|(one, other)| may_meet(*one, *other)));
            }
        }
    }
    let mut cells = Vec::new();
    while let Some(&(one, other)) = uncovered.first() {
        let mut chosen = vec![one, other];
        for place in (0..SIZES.len()).filter(|place| *place != one.0 && *place != other.0) {
            let fitting = values(place).into_iter().filter(|value| chosen.iter().all(|with| may_meet(*with, (place, *value))));
            let gain = |value: usize| chosen.iter().filter(|with| uncovered.contains(&pair(**with, (place, value)))).count();
            // Where several are as good, they take turns.
            let turn = |value: usize| (value + SIZES[place] - cells.len() % SIZES[place]) % SIZES[place];
            let best = fitting.max_by_key(|value| (gain(*value), turn(*value))).expect("some value fits");
            chosen.push((place, best));
        }
        chosen.sort_unstable();
        for (index, one) in chosen.iter().enumerate() {
            for other in &chosen[index + 1..] {
                uncovered.remove(&(*one, *other));
            }
        }
        cells.push(std::array::from_fn(|place| chosen[place].1));
    }
    cells
}

/// Cells by a seed, for this configuration.
pub fn random(configuration: Configuration, count: usize, random: &mut impl rand::Rng) -> Vec<Numbers> {
    let mut cells = Vec::with_capacity(count);
    while cells.len() < count {
        let numbers: Numbers = std::array::from_fn(|place| random.random_range(0..SIZES[place]));
        if is_allowed(numbers) && cell(numbers).configuration == configuration {
            cells.push(numbers);
        }
    }
    cells
}

fn is_allowed(numbers: Numbers) -> bool {
    let values: Vec<(usize, usize)> = numbers.into_iter().enumerate().collect();
    values.iter().all(|one| values.iter().all(|other| one.0 >= other.0 || may_meet(*one, *other)))
}

fn pair(one: (usize, usize), other: (usize, usize)) -> ((usize, usize), (usize, usize)) {
    if one < other { (one, other) } else { (other, one) }
}

#[test]
fn every_pair_of_values_is_in_a_cell() {
    let cells = covering(is_in_test);
    assert!(cells.iter().all(|numbers| is_allowed(*numbers) && is_in_test(numbers[SIZES.len() - 1])));
    for one in 0..SIZES.len() {
        for other in one + 1..SIZES.len() {
            let together: BTreeSet<(usize, usize)> = cells.iter().map(|numbers| (numbers[one], numbers[other])).collect();
            let all = (0..SIZES[one]).flat_map(|first| (0..SIZES[other]).map(move |second| (first, second)));
            let possible = |second: usize| other < SIZES.len() - 1 || is_in_test(second);
            let mut wanted = all.filter(|(first, second)| may_meet((one, *first), (other, *second)) && possible(*second));
            assert_eq!(wanted.find(|pair| !together.contains(pair)), None, "values of {one} and {other}");
        }
    }
}
