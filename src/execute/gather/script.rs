//! The texts of a gathering, made from its recipe. Pure.

use crate::sql::gather::{Input, Recipe, Source};

/// Everything that is sent but the statement itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Begins the scratch transaction.
    pub begin: String,
    /// Makes the tables.
    pub tables: String,
    /// Before rows are copied.
    pub transport: String,
    pub loads: Vec<TableLoad>,
    /// What a shard runs: one COPY for each load that takes rows from shards.
    pub fragments: String,
    /// After the last row: back to the client's settings, nothing may be written any more.
    pub finish: String,
}

/// How one temporary table gets its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLoad {
    /// As messages name it.
    pub relation: String,
    /// The home shard's own rows, and the bytes that they take.
    pub home: Option<String>,
    pub copy: String,
    /// Worth its time for large tables.
    pub analyze: String,
    /// Shards send rows too.
    pub has_fragment: bool,
}

impl Script {
    /// `has_home`: the home shard is among those that have rows of sharded tables.
    /// `lock_timeout_ms`: on connections that may wait for a lock of the client's own transaction.
    pub fn new(recipe: &Recipe, has_home: bool, lock_timeout_ms: Option<u64>) -> Self {
        let locks = lock_timeout_ms.map(|ms| format!("SET LOCAL lock_timeout = {ms};")).unwrap_or_default();
        let creates: Vec<String> = recipe.inputs.iter().map(|input| format!("{};", input.create)).collect();
        let loads = recipe.inputs.iter().map(|input| table_load(input, has_home)).collect();
        let copies: Vec<String> = recipe
            .inputs
            .iter()
            .filter(|input| input.source == Source::Shards)
            .map(|input| format!("COPY ({}) TO STDOUT;", input.fragment))
            .collect();
        let settings: Vec<String> = TRANSPORT.iter().map(|(name, value)| format!("SET LOCAL {name} = '{value}';")).collect();
        let settings = settings.concat();
        let save = TRANSPORT
            .map(|(name, _)| format!("pg_catalog.set_config('{SAVED}{name}', pg_catalog.current_setting('{name}'), true)"));
        let restore = TRANSPORT
            .map(|(name, _)| format!("pg_catalog.set_config('{name}', pg_catalog.current_setting('{SAVED}{name}'), true)"));
        Self {
            begin: format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE;{locks}"),
            tables: creates.concat(),
            transport: format!("SELECT {};{settings}", save.join(", ")),
            loads,
            fragments: format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{locks}{settings}{}ROLLBACK", copies.concat()),
            finish: format!("SELECT {};SET TRANSACTION READ ONLY", restore.join(", ")),
        }
    }
}

fn table_load(input: &Input, has_home: bool) -> TableLoad {
    let table = format!("pg_temp.\"{}\"", input.name);
    let takes_home = match input.source {
        Source::Shards => has_home,
        Source::Home => true,
    };
    let home = takes_home.then(|| {
        format!(
            "INSERT INTO {table} ({}) {};SELECT pg_catalog.pg_table_size('{table}'::pg_catalog.regclass)",
            input.columns, input.fragment
        )
    });
    TableLoad {
        relation: input.relation.clone(),
        home,
        analyze: format!("ANALYZE {table}"),
        copy: format!("COPY {table} ({}) FROM STDIN", input.columns),
        has_fragment: input.source == Source::Shards,
    }
}

/// Under these, the text of a value is read back as the same value on any server. `array_nulls` off would make a string of a
/// NULL in an array, `xmloption` DOCUMENT would refuse content. DateStyle keeps the client's order of day and month.
const TRANSPORT: [(&str, &str); 8] = [
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
    ("client_encoding", "UTF8"),
];

/// Prefix of the settings in which the client's own wait.
const SAVED: &str = "shardgate_saved.";
