//! `COPY … FROM STDIN` into a table of several shards: what has to be known to send each row to its shard.
//!
//! The rows are forwarded as the bytes they are; what is read here says only how rows and columns are told apart in them, and
//! where the shard key stands. Options are PostgreSQL's to check: the shards get the client's own statement, and answer it
//! before a row is read.

use pg_raw_parse::{Node, nodes};

use super::session_command::option_is_on;
use crate::error::PgError;
use crate::shard_key::{KeyFunction, KeyType};

/// How the rows of a COPY find their shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyIn {
    /// The table, as PostgreSQL names it in the context of errors.
    pub table: String,
    /// The same as SQL names it anywhere.
    pub qualified: String,
    pub format: CopyFormat,
    /// The first line names the columns.
    pub has_header: bool,
    /// ENCODING; `None`: the session's.
    pub encoding: Option<String>,
    /// For each column of the shard key. Empty: a reference table, every shard gets every row.
    pub key: Vec<CopyKey>,
    /// A trigger of the statement fires on a shard without rows too.
    pub fires_per_statement: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text { delimiter: u8, null: Vec<u8> },
    Csv { delimiter: u8, quote: u8, escape: u8, null: Vec<u8> },
    Binary,
}

/// One column of the shard key among the columns of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyKey {
    /// 0-based; `None`: the rows do not have it, it is NULL.
    pub position: Option<usize>,
    pub column_type: KeyType,
    pub function: Option<KeyFunction>,
    /// `atttypmod` of the column.
    pub typmod: i32,
    pub is_not_null: bool,
    /// FORCE_NOT_NULL, FORCE_NULL.
    pub is_forced_not_null: bool,
    pub is_forced_null: bool,
}

impl CopyFormat {
    /// As the options say. Bad ones are PostgreSQL's to refuse.
    pub fn read(copy: &nodes::CopyStmt) -> Self {
        match text(copy, "format") {
            Some("csv") => {
                let quote = byte(copy, "quote", b'"');
                let (delimiter, escape) = (byte(copy, "delimiter", b','), byte(copy, "escape", quote));
                CopyFormat::Csv { delimiter, quote, escape, null: null(copy, "") }
            }
            Some("binary") => CopyFormat::Binary,
            // One that PostgreSQL does not know it refuses.
            Some(_) | None => CopyFormat::Text { delimiter: byte(copy, "delimiter", b'\t'), null: null(copy, "\\N") },
        }
    }
}

impl CopyIn {
    /// Without the key. Errors: an option that the proxy cannot follow.
    pub fn read(copy: &nodes::CopyStmt, schema: &str, table: &str) -> Result<Self, PgError> {
        if let Some(option) = copy.options().iter().find_map(|option| option.defname().filter(|name| !FOLLOWED.contains(name))) {
            return Err(unknown_option(option));
        }
        if option_is_on(copy.options(), "freeze") {
            return Err(PgError::unsupported(
                "COPY FREEZE into a sharded or reference table is not supported",
                "Whether the table was made or emptied in this transaction is not known of every shard.",
                "Leave out FREEZE.",
            ));
        }
        let format = CopyFormat::read(copy);
        let encoding = text(copy, "encoding").map(str::to_owned);
        let has_header = option_is_on(copy.options(), "header");
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let qualified = format!("{}.{}", quoted(schema), quoted(table));
        Ok(Self { table: table.to_owned(), qualified, format, has_header, encoding, key: Vec::new(), fires_per_statement: false })
    }
}

/// Is the column in the list of this option, by name or by `*`?
pub fn is_listed(copy: &nodes::CopyStmt, option: &str, column: &str) -> bool {
    let named = copy.options().iter().filter(|known| known.defname() == Some(option));
    named.map(nodes::DefElem::arg).any(|argument| match argument {
        Node::NodeList(list) => list.iter().any(|name| matches!(name, Node::String(name) if name.sval() == Some(column))),
        Node::A_Star(_) => true,
        _ => false,
    })
}

/// The columns that the rows have; empty: all that take values.
pub fn listed_columns(copy: &nodes::CopyStmt) -> Vec<&str> {
    copy.attlist().iter().map(|node| node.as_str().unwrap_or_default()).collect()
}

pub(super) fn text<'n>(copy: &'n nodes::CopyStmt, name: &str) -> Option<&'n str> {
    let option = copy.options().iter().find(|option| option.defname() == Some(name))?;
    option.arg().as_str()
}

/// An option of one byte. Others the shards refuse before a row is read.
fn byte(copy: &nodes::CopyStmt, name: &str, default: u8) -> u8 {
    match text(copy, name).map(str::as_bytes) {
        Some([byte]) => *byte,
        Some(_) | None => default,
    }
}

fn null(copy: &nodes::CopyStmt, default: &str) -> Vec<u8> {
    text(copy, "null").unwrap_or(default).as_bytes().to_vec()
}

fn unknown_option(name: &str) -> PgError {
    PgError::unsupported(
        format!("COPY with the option \"{name}\" is not supported across shards"),
        "The proxy does not know what it means for the rows.",
        "Leave it out, or copy the rows of one shard at a time.",
    )
}

/// Options whose meaning is known, or does not matter, to who splits the rows.
const FOLLOWED: [&str; 11] = [
    "format",
    "freeze",
    "delimiter",
    "null",
    "header",
    "quote",
    "escape",
    "force_quote",
    "force_not_null",
    "force_null",
    "encoding",
];
