//! What cannot be answered over gathered rows, in the words for the client.

use crate::error::PgError;

pub fn construct(what: &str) -> PgError {
    PgError::unsupported(
        format!("{what} is not supported over the rows of several shards"),
        "The proxy cannot tell which tables it reads.",
        "Restrict the statement to one shard key.",
    )
}

pub fn table_sample() -> PgError {
    PgError::unsupported(
        "TABLESAMPLE is not supported across shards",
        "Each shard would draw a sample of its own.",
        "Restrict the statement to one shard key.",
    )
}

pub fn system_column(name: &str) -> PgError {
    PgError::unsupported(
        format!("system column \"{name}\" is not supported across shards"),
        "Its values mean something only within one server.",
        "Use the primary key, or restrict the statement to one shard key.",
    )
}

pub fn function(name: &str) -> PgError {
    PgError::unsupported(
        format!("function {name}() is not supported across shards"),
        "Its result or effect belongs to one server or session.",
        "Call it in a statement of its own, or restrict the statement to one shard key.",
    )
}

pub fn whole_row(name: &str) -> PgError {
    PgError::unsupported(
        format!("the whole row \"{name}\" is not supported here over the rows of several shards"),
        "The gathered rows are of another row type than the table.",
        format!("Name the columns that are needed, or use row_to_json({name}) or count({name})."),
    )
}

pub fn temporary_table(name: &str) -> PgError {
    PgError::unsupported(
        format!("temporary table \"{name}\" cannot be combined with rows of several shards"),
        "It is a view or a sequence, or a table with row security or with a column of a type that only this session has.",
        "Copy its rows into another temporary table, or read the tables one after the other.",
    )
}

pub fn own_name(name: &str) -> PgError {
    PgError::unsupported(
        format!("temporary table \"{name}\" cannot be named here over the rows of several shards"),
        "The statement runs on a connection that does not have it, where the name may mean another table.",
        "Name columns instead of its row type; call functions that name it, and ask the catalogue, in a statement of its own.",
    )
}

pub fn unknown_table(name: &str) -> PgError {
    PgError::unsupported(
        format!("table \"{name}\" cannot be combined with rows of several shards"),
        "The proxy has not seen it in the home shard's schema.",
        "Retry in a moment if the table is new.",
    )
}

pub fn relation(name: &str, detail: impl Into<String>) -> PgError {
    PgError::unsupported(
        format!("\"{name}\" cannot be combined with rows of several shards"),
        detail,
        "Read the tables that are needed directly, or one after the other.",
    )
}

pub fn hidden(detail: impl Into<String>) -> PgError {
    hidden_unless(detail, "Declare what it touches with shardgate.declare_function(), or call it in a statement of its own.")
}

pub fn hidden_unless(detail: impl Into<String>, hint: impl Into<String>) -> PgError {
    PgError::unsupported("the statement calls something that touches tables of several shards", detail, hint)
}

pub fn unproven(detail: &str) -> PgError {
    PgError::unsupported(
        "the statement cannot be rewritten for the rows of several shards",
        detail,
        "Write it more plainly, or restrict it to one shard key.",
    )
}
