//! The texts of a gathering, made from its recipe. Pure.

use std::collections::BTreeMap;

use crate::sql::gather::{Brought, Found, Input, KEY_ROWS_MAX, Keys, KnownKeys, Recipe, Source};

/// What the scratch session gets, but for the statement itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Begins the transaction.
    pub begin: String,
    /// Makes the tables.
    pub tables: String,
    /// Before rows are copied.
    pub transport: String,
    /// One for each input of the recipe.
    pub loads: Vec<TableLoad>,
    /// After the last row: back to the client's settings, nothing may be written any more.
    pub finish: String,
}

/// How one temporary table gets its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLoad {
    /// The scratch session takes the home shard's own rows by itself.
    pub reads_home: bool,
    /// INSERT, without its SELECT.
    insert: String,
    /// After that SELECT: for the bytes that its rows take, or where they end.
    after: String,
    /// What its rows are, on each shard.
    input: Input,
    pub round: usize,
    pub copy: String,
    /// Makes the table's rows of what was loaded.
    pub combine: Option<String>,
    /// Indexes, by which rows are looked for again and again.
    pub indexes: String,
    /// Statistics: worth their time where much has been loaded.
    pub analyze: String,
}

/// What a shard runs to send its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragments {
    pub text: String,
    /// Indexes of the inputs whose rows it sends, ascending.
    pub serves: Vec<usize>,
    /// Only the inputs of the first round: the others are asked for when these have been loaded.
    pub is_begun_only: bool,
    /// After the last one.
    end: String,
    /// All rows come in one COPY: its first column is the index in `serves`, then come the columns of every input.
    pub tagged: Option<Vec<Columns>>,
}

/// The columns of one input among those of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// After the tag, from 0.
    pub first: usize,
    pub count: usize,
}

impl Script {
    /// `reads_home`: the scratch session takes the home shard's rows of sharded tables by itself.
    pub fn new(recipe: &Recipe, reads_home: bool, lock_timeout_ms: Option<u64>) -> Self {
        let creates: Vec<String> = recipe.inputs.iter().map(|input| format!("{};", input.create)).collect();
        let save = TRANSPORT
            .map(|(name, _)| format!("pg_catalog.set_config('{SAVED}{name}', pg_catalog.current_setting('{name}'), true)"));
        let restore = TRANSPORT
            .map(|(name, _)| format!("pg_catalog.set_config('{name}', pg_catalog.current_setting('{SAVED}{name}'), true)"));
        Self {
            begin: format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE;{}", lock_timeout(lock_timeout_ms)),
            tables: creates.concat(),
            transport: format!("SELECT {};{}", save.join(", "), transport()),
            loads: recipe.inputs.iter().map(|input| table_load(input, reads_home)).collect(),
            finish: format!("SELECT {};SET TRANSACTION READ ONLY", restore.join(", ")),
        }
    }
}

impl Fragments {
    /// On a connection outside of the client's transaction: all in one snapshot.
    pub fn outside(recipe: &Recipe, lock_timeout_ms: Option<u64>) -> Self {
        let served = served(recipe, |source| source == Source::Shards);
        let at_once = served.iter().filter(|(_, input)| input.round == 0);
        let copies: Vec<String> = at_once.map(|(_, input)| copy_out(&without_keys(input))).collect();
        let is_begun_only = copies.len() < served.len();
        // Where no row is read yet, a query of nothing takes the snapshot.
        let copies = if copies.is_empty() { "SELECT;".to_owned() } else { copies.concat() };
        let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{}{}", lock_timeout(lock_timeout_ms), transport());
        let end = "ROLLBACK".to_owned();
        let text = format!("{begin}{copies}{}", if is_begun_only { "" } else { &end });
        Self { text, serves: served.iter().map(|(index, _)| *index).collect(), is_begun_only, end, tagged: None }
    }

    /// On the session's own connection outside of a transaction: the rows of temporary tables, which nobody else changes. Several
    /// statements in one text are a transaction, which ends with them whatever becomes of it.
    pub fn temporary(recipe: &Recipe) -> Self {
        let served = served(recipe, |source| source == Source::Temporary);
        let copies: String = served.iter().map(|(_, input)| copy_out(&without_keys(input))).collect();
        let serves = served.iter().map(|(index, _)| *index).collect();
        Self { text: format!("{}{copies}", transport()), serves, is_begun_only: false, end: String::new(), tagged: None }
    }

    /// Its queries of a later round, when the keys are there; of all inputs of the round, by their indexes.
    pub fn round(&self, queries: &[(usize, String)], is_last: bool) -> String {
        let own = queries.iter().filter(|(input, _)| self.serves.contains(input));
        let copies: Vec<String> = own.map(|(_, query)| copy_out(query)).collect();
        format!("{}{}", copies.concat(), if is_last { &self.end } else { "" })
    }

    /// On the transaction's own connection, which sees what was written there. In READ COMMITTED each statement has a snapshot
    /// of its own, so that two COPYs might disagree: all inputs come in one, and none waits for keys. `has_snapshot`: one of all
    /// its statements.
    pub fn own(recipe: &Recipe, has_shards: bool, is_home: bool, has_snapshot: bool) -> Self {
        let served = served(recipe, |source| match source {
            Source::Shards => has_shards,
            Source::Home | Source::Temporary => is_home,
            Source::Scratch => false,
        });
        let begin = format!("SAVEPOINT {OWN_SAVEPOINT};{}SET LOCAL max_parallel_workers_per_gather = 0;", transport());
        let end = format!("ROLLBACK TO SAVEPOINT {OWN_SAVEPOINT};RELEASE SAVEPOINT {OWN_SAVEPOINT}");
        let serves = served.iter().map(|(index, _)| *index).collect();
        if has_snapshot && served.iter().any(|(_, input)| input.round > 0) {
            let at_once = served.iter().filter(|(_, input)| input.round == 0);
            let copies: Vec<String> = at_once.map(|(_, input)| copy_out(&without_keys(input))).collect();
            return Self { text: format!("{begin}{}", copies.concat()), serves, is_begun_only: true, end, tagged: None };
        }
        let (copy, tagged) = match served.as_slice() {
            [(_, only)] => (without_keys(only), None),
            inputs => tagged(inputs),
        };
        Self { text: format!("{begin}COPY ({copy}) TO STDOUT;{end}"), serves, is_begun_only: false, end, tagged }
    }
}

fn served(recipe: &Recipe, is_served: impl Fn(Source) -> bool) -> Vec<(usize, &Input)> {
    recipe.inputs.iter().enumerate().filter(|(_, input)| is_served(input.source)).collect()
}

/// One query for all inputs: a column for each column of each, NULL in the rows of the others.
fn tagged(inputs: &[(usize, &Input)]) -> (String, Option<Vec<Columns>>) {
    let mut first = 0;
    let columns = inputs.iter().map(|(_, input)| {
        let columns = Columns { first, count: input.columns.len() };
        first += columns.count;
        columns
    });
    let columns: Vec<Columns> = columns.collect();
    let branches: Vec<String> = (0..inputs.len())
        .map(|own| {
            let of = |(other, (_, input)): (usize, &(usize, &Input))| -> Vec<String> {
                let column = |name: &String| match own == other {
                    true => format!("x.{name}"),
                    // Of the right type, without naming it.
                    false => format!("(SELECT y.{name} FROM ({}) y WHERE false)", without_keys(input)),
                };
                input.columns.iter().map(column).collect()
            };
            let list: Vec<String> = inputs.iter().enumerate().flat_map(of).collect();
            let fragment = inputs.get(own).map(|(_, input)| without_keys(input)).unwrap_or_default();
            format!("SELECT {own}, {} FROM ({fragment}) x", list.join(", "))
        })
        .collect();
    (branches.join(" UNION ALL "), Some(columns))
}

fn without_keys(input: &Input) -> String {
    input.query(&KnownKeys::new())
}

fn copy_out(query: &str) -> String {
    // The query may end in a comment.
    format!("COPY ({query}\n) TO STDOUT;")
}

fn table_load(input: &Input, reads_home: bool) -> TableLoad {
    let quoted = |name: &str| format!("pg_temp.\"{name}\"");
    let (table, loaded) = (quoted(&input.name), quoted(&input.loaded));
    let columns = if input.columns.is_empty() { String::new() } else { format!(" ({})", input.columns.join(", ")) };
    let indexes: String = input.indexes.iter().map(|index| format!("{index};")).collect();
    let (reads_home, after) = match input.source {
        Source::Shards => (reads_home, format!(";SELECT pg_catalog.pg_table_size('{loaded}'::pg_catalog.regclass)")),
        Source::Home | Source::Temporary => (false, String::new()),
        // Of its own, not shipped; where there are more they are too many.
        Source::Scratch => (true, format!(" LIMIT {}", KEY_ROWS_MAX + 1)),
    };
    TableLoad {
        reads_home,
        insert: format!("INSERT INTO {loaded}{columns}"),
        after,
        input: input.clone(),
        round: input.round,
        indexes,
        analyze: format!("ANALYZE {table}"),
        copy: format!("COPY {loaded}{columns} FROM STDIN"),
        combine: input.combine.clone(),
    }
}

impl TableLoad {
    pub fn is_of(&self, keys: &Keys) -> bool {
        self.input.name == keys.input
    }

    /// The keys by which its rows are restricted.
    pub fn keys(&self) -> impl Iterator<Item = &Keys> {
        self.input.keys()
    }

    /// Its rows on one shard.
    pub fn query(&self, known: &KnownKeys, rows: &BTreeMap<String, Found>) -> String {
        self.input.query_with(known, rows)
    }

    /// The inputs whose rows stand in it.
    pub fn brought(&self) -> &[Brought] {
        &self.input.brought
    }

    /// The home shard's own rows, and the bytes that they take.
    pub fn home(&self, query: &str) -> Option<String> {
        let Self { insert, after, .. } = self;
        self.reads_home.then(|| match &self.input.inserted {
            Some(columns) => format!("{insert} SELECT {} FROM ({query}\n) x{after}", columns.join(", ")),
            None => format!("{insert} {query}\n{after}"),
        })
    }
}

fn transport() -> String {
    TRANSPORT.iter().map(|(name, value)| format!("SET LOCAL {name} = '{value}';")).collect()
}

fn lock_timeout(milliseconds: Option<u64>) -> String {
    milliseconds.map(|milliseconds| format!("SET LOCAL lock_timeout = {milliseconds};")).unwrap_or_default()
}

/// Under these, the text of a value is read back as the same value on any server. `array_nulls` off would make a string of a
/// NULL in an array, `xmloption` DOCUMENT would refuse content. DateStyle keeps the client's order of day and month. Not IntervalStyle:
/// each of its styles is read back exactly where it is set.
const TRANSPORT: [(&str, &str); 7] = [
    ("DateStyle", "ISO"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
    ("client_encoding", "UTF8"),
];

/// Prefix of the settings in which the client's own wait.
const SAVED: &str = "shardgate_saved.";
/// Undoes the settings again, and nothing else: a SELECT leaves nothing behind.
const OWN_SAVEPOINT: &str = "shardgate_gather";
