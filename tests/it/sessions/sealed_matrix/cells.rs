//! The cells of the matrix: which combinations there are, and a set of them in which every pair of values occurs.

use std::collections::{BTreeMap, BTreeSet};
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

impl Cell {
    /// Not of an object, a lock or the like.
    pub fn is_of_setting(&self) -> bool {
        let of_objects = KINDS.iter().skip_while(|kind| kind.name != FIRST_OBJECT);
        !of_objects.map(|kind| kind.name).any(|name| name == self.kind.name)
    }
}

const FIRST_OBJECT: &str = "temporary table";

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

/// The configurations that `make test` starts: every pair of their values occurs, of three not all. `make soak` has the others.
pub const IN_TEST: [Configuration; 4] = [
    Configuration { is_distributed: false, mode: PoolMode::Transaction, as_client: true },
    Configuration { is_distributed: false, mode: PoolMode::Session, as_client: false },
    Configuration { is_distributed: true, mode: PoolMode::Transaction, as_client: false },
    Configuration { is_distributed: true, mode: PoolMode::Session, as_client: true },
];

const KIND: usize = 0;
const WAY: usize = 1;
const END: usize = 2;
const PROTOCOL: usize = 3;
const OBSERVER: usize = 4;
const SETTING: usize = 5;

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

/// A value of the cell, of which every pair occurs: the last place of the numbers has three, which are at places behind.
type Value = (usize, usize);

fn values_of(place: usize, number: usize) -> Vec<Value> {
    if place < SETTING {
        return vec![(place, number)];
    }
    let Cell { configuration, .. } = cell([0, 0, 0, 0, 0, number]);
    let in_session_mode = usize::from(configuration.mode == PoolMode::Session);
    vec![(SETTING, number / CONFIGURATIONS), (SETTING + 1, in_session_mode), (SETTING + 2, usize::from(configuration.as_client))]
}

/// Does `make test` start the configuration of this value of the last place?
fn is_in_test(number: usize) -> bool {
    IN_TEST.contains(&cell([0, 0, 0, 0, 0, number]).configuration)
}

/// Why these two are never in one cell. All else is: no pair of values is left out of `make test` but these.
fn excluded((one, first): Value, (other, second): Value) -> Option<&'static str> {
    match (one, other) {
        (KIND, WAY) if KINDS[first].is_read_by() && matches!(WAYS[second], Way::DynamicExecute | Way::AddedConstraint) => {
            Some("set back with a warning, which PostgreSQL has none of: `sealed` tests it")
        }
        (WAY, PROTOCOL) => PROTOCOLS[second].cannot_send(WAYS[first].call(&KINDS[0]).1),
        (END, PROTOCOL) => PROTOCOLS[second].cannot_end(ENDS[first]),
        (END, OBSERVER) if ENDS[first] == End::Left && OBSERVERS[second] != Observer::Next => {
            Some("the session has left before anybody looks")
        }
        (one, other) if one > other => excluded((other, second), (one, first)),
        _ => None,
    }
}

fn may_meet(one: Value, other: Value) -> bool {
    excluded(one, other).is_none()
}

/// Both orders of a pair are one.
type Pair = (Value, Value);

fn pair(one: Value, other: Value) -> Pair {
    if one < other { (one, other) } else { (other, one) }
}

/// Of these values.
fn pairs_of(values: &[Value]) -> impl Iterator<Item = Pair> + '_ {
    values.iter().enumerate().flat_map(|(index, one)| values[index + 1..].iter().map(|other| pair(*one, *other)))
}

fn values_of_cell(numbers: Numbers) -> Vec<Value> {
    numbers.into_iter().enumerate().flat_map(|(place, number)| values_of(place, number)).collect()
}

fn numbers_at(place: usize) -> impl Iterator<Item = usize> {
    (0..SIZES[place]).filter(move |number| place != SETTING || is_in_test(*number))
}

/// Every pair that may meet in what `make test` starts.
fn wanted() -> BTreeSet<Pair> {
    let mut all = BTreeSet::new();
    for (one, other) in (0..SIZES.len()).flat_map(|one| (one + 1..SIZES.len()).map(move |other| (one, other))) {
        for (first, second) in numbers_at(one).flat_map(|first| numbers_at(other).map(move |second| (first, second))) {
            let values = [values_of(one, first), values_of(other, second)].concat();
            all.extend(pairs_of(&values).filter(|(one, other)| may_meet(*one, *other)));
        }
    }
    all
}

/// Cells of the configurations of `make test` in which every pair of values occurs that may. As few as may be have distributed tables,
/// which take the longest.
pub fn covering() -> Vec<Numbers> {
    let mut uncovered = wanted();
    let mut cells = Vec::new();
    while let Some(&(one, other)) = uncovered.first() {
        let numbers = with_both(one, other, &uncovered, cells.len());
        for covered in pairs_of(&values_of_cell(numbers)) {
            uncovered.remove(&covered);
        }
        cells.push(numbers);
    }
    cells
}

/// The cell with these two that has the most pairs that are in no other one.
fn with_both(one: Value, other: Value, uncovered: &BTreeSet<Pair>, turn: usize) -> Numbers {
    let mut numbers = [0; SIZES.len()];
    let mut chosen: Vec<Value> = Vec::new();
    let given = |place: usize| [one, other].into_iter().filter(move |value| value.0.min(SETTING) == place);
    let mut places: Vec<usize> = (0..SIZES.len()).collect();
    places.sort_by_key(|place| given(*place).next().is_none());
    for place in places {
        let has_given = |number: &usize| given(place).all(|value| values_of(place, *number).contains(&value));
        let fits =
            |number: &usize| values_of(place, *number).into_iter().all(|value| chosen.iter().all(|with| may_meet(*with, value)));
        let gain = |number: usize| {
            let values = values_of(place, number);
            chosen
                .iter()
                .flat_map(|with| values.iter().map(|value| pair(*with, *value)))
                .filter(|pair| uncovered.contains(pair))
                .count()
        };
        // Where several are as good, they take turns.
        let turns = |number: usize| match place {
            // Both modes are to take as long as each other.
            SETTING => (number + turn) % 2,
            _ => (number + SIZES[place] - turn % SIZES[place]) % SIZES[place],
        };
        let is_cheap = |number: usize| place == SETTING && !cell([0, 0, 0, 0, 0, number]).configuration.is_distributed;
        let rank = |number: &usize| (gain(*number), is_cheap(*number), turns(*number));
        let best = numbers_at(place).filter(has_given).filter(fits).max_by_key(rank).expect("some value fits");
        numbers[place] = best;
        chosen.extend(values_of(place, best));
    }
    numbers
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
    pairs_of(&values_of_cell(numbers)).all(|(one, other)| may_meet(one, other))
}

#[test]
fn every_pair_of_values_is_in_a_cell() {
    let cells = covering();
    assert!(cells.iter().all(|numbers| is_allowed(*numbers) && is_in_test(numbers[SETTING])));
    let together: BTreeSet<Pair> =
        cells.iter().flat_map(|numbers| pairs_of(&values_of_cell(*numbers)).collect::<Vec<_>>()).collect();
    // Written down once more, by the values themselves.
    let sizes = [KINDS.len(), WAYS.len(), ENDS.len(), PROTOCOLS.len(), OBSERVERS.len(), TABLES.len(), 2, 2];
    let mut left_out = BTreeMap::<&str, usize>::new();
    for (one, other) in (0..sizes.len()).flat_map(|one| (one + 1..sizes.len()).map(move |other| (one, other))) {
        for (first, second) in (0..sizes[one]).flat_map(|first| (0..sizes[other]).map(move |second| (first, second))) {
            let both = ((one, first), (other, second));
            match excluded(both.0, both.1) {
                Some(reason) => *left_out.entry(reason).or_default() += 1,
                None => assert!(together.contains(&both), "values {first} of {one} and {second} of {other}"),
            }
        }
    }
    left_out.iter().for_each(|(reason, count)| println!("{count} pairs cannot be: {reason}"));
    let in_configuration =
        |configuration: &Configuration| cells.iter().filter(|numbers| cell(**numbers).configuration == *configuration).count();
    println!("{} cells: {:?}", cells.len(), IN_TEST.each_ref().map(in_configuration));
}
