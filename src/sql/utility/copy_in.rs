//! `COPY … FROM STDIN` into a table of several shards: what has to be known to send each row to its shard.
//!
//! The rows are forwarded as the bytes they are; what is read here says only how rows and columns are told apart in them, and
//! where the shard key stands. Options are PostgreSQL's to check: the shards get the client's own statement, and answer it
//! before a row is read.
//!
//! A column that the client leaves out, and that the shards would each fill for themselves, is put before those of each row, and
//! its name before theirs: a row with too few or too many columns stays one.

use std::borrow::Cow;
use std::ops::Range;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::session_command::option_is_on;
use crate::catalog::{Oid, SequenceName, quoted_identifier, quoted_name};
use crate::error::PgError;
use crate::shard_key::{KeyFunction, KeyType};
use crate::sql::parse::lexer::{self, TokenKind};

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
    /// How many columns the client's rows have.
    pub column_count: usize,
    /// Columns that are put before the client's own; only where it lists them.
    pub added: Vec<AddedColumn>,
    /// A trigger of the statement fires on a shard without rows too.
    pub fires_per_statement: bool,
    /// ON_ERROR ignore: a row with a value that its column's type does not have is left out.
    pub skips_bad_rows: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text { delimiter: u8, null: Vec<u8> },
    Csv { delimiter: u8, quote: u8, escape: u8, null: Vec<u8> },
    Binary,
}

/// A column that the rows do not have and the shards shall not fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedColumn {
    pub name: String,
    pub type_oid: Oid,
    pub value: AddedValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddedValue {
    /// The next number of a cluster-wide sequence, for each row.
    Number(SequenceName),
    /// The same for an identity column, which asks for no right to the sequence.
    Identity(SequenceName),
    /// A `shardgate.unique_id()`, for each row.
    UniqueId,
    /// A `gen_random_uuid()`, for each row.
    Uuid,
    /// What this expression is at the time of the transaction, for all rows.
    Constant(String),
}

/// Where the value of a key column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Among the client's columns, from 0.
    Row(usize),
    /// Among the added ones.
    Added(usize),
    /// Nowhere: it is NULL.
    Null,
}

/// One column of the shard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyKey {
    pub source: KeySource,
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
    pub fn read(copy: &nodes::CopyStmt) -> Result<Self, PgError> {
        Ok(match text(copy, "format")?.as_deref() {
            Some("csv") => {
                let quote = byte(copy, "quote", b'"')?;
                let (delimiter, escape) = (byte(copy, "delimiter", b',')?, byte(copy, "escape", quote)?);
                CopyFormat::Csv { delimiter, quote, escape, null: null(copy, "")? }
            }
            Some("binary") => CopyFormat::Binary,
            // One that PostgreSQL does not know it refuses.
            Some(_) | None => CopyFormat::Text { delimiter: byte(copy, "delimiter", b'\t')?, null: null(copy, "\\N")? },
        })
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
        // Such a notice names a line of the rows of one shard.
        if text(copy, "log_verbosity")?.is_some_and(|value| value.eq_ignore_ascii_case("verbose")) {
            return Err(unknown_option("log_verbosity verbose"));
        }
        let skips_bad_rows = text(copy, "on_error")?.is_some_and(|value| value.eq_ignore_ascii_case("ignore"));
        let format = CopyFormat::read(copy)?;
        let encoding = text(copy, "encoding")?.map(Cow::into_owned);
        let has_header = option_is_on(copy.options(), "header");
        let qualified = quoted_name(schema, table);
        Ok(Self {
            table: table.to_owned(),
            qualified,
            format,
            has_header,
            encoding,
            key: Vec::new(),
            column_count: 0,
            added: Vec::new(),
            fires_per_statement: false,
            skips_bad_rows,
        })
    }

    /// The statement with the names of the added columns, and where in it they stand.
    pub fn with_added_names(&self, text: &str) -> Result<(String, Range<usize>), PgError> {
        let mut tokens = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment);
        // Before the list stand COPY and a name.
        let open = tokens.find(|token| text.get(token.start..token.end) == Some("("));
        let at = open.filter(|_| !self.added.is_empty()).ok_or_else(|| PgError::internal("COPY without a list of columns"))?.end;
        let quoted = |column: &AddedColumn| format!("{}, ", quoted_identifier(&column.name));
        let names: String = self.added.iter().map(quoted).collect();
        let (before, after) = text.split_at_checked(at).ok_or_else(|| PgError::internal("COPY is cut short"))?;
        Ok((format!("{before}{names}{after}"), at..at + names.len()))
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

/// What an option says, as `defGetString` reads it. One that says nothing PostgreSQL refuses. Errors: it may say anything.
pub(in crate::sql) fn text<'n>(copy: &'n nodes::CopyStmt, name: &str) -> Result<Option<Cow<'n, str>>, PgError> {
    let Some(option) = copy.options().iter().find(|option| option.defname() == Some(name)) else { return Ok(None) };
    Ok(Some(match option.arg() {
        Node::None => return Ok(None),
        Node::String(value) => value.sval().unwrap_or_default().into(),
        Node::Integer(value) => value.ival.to_string().into(),
        Node::Float(value) => value.fval().unwrap_or_default().into(),
        Node::Boolean(value) => if value.boolval { "true" } else { "false" }.into(),
        Node::A_Star(_) => "*".into(),
        Node::NodeList(list) => joined(list).ok_or_else(|| unknown_value(name))?.into(),
        _ => return Err(unknown_value(name)),
    }))
}

/// A list of names as one name.
fn joined(names: &NodeList) -> Option<String> {
    let names: Option<Vec<&str>> = names.iter().map(Node::as_str).collect();
    Some(names?.join("."))
}

/// An option of one byte. Others the shards refuse before a row is read.
fn byte(copy: &nodes::CopyStmt, name: &str, default: u8) -> Result<u8, PgError> {
    Ok(match text(copy, name)?.as_deref().map(str::as_bytes) {
        Some([byte]) => *byte,
        Some(_) | None => default,
    })
}

fn null(copy: &nodes::CopyStmt, default: &str) -> Result<Vec<u8>, PgError> {
    Ok(text(copy, "null")?.map_or_else(|| default.as_bytes().to_vec(), |null| null.as_bytes().to_vec()))
}

fn unknown_value(name: &str) -> PgError {
    PgError::unsupported(
        format!("this value of the COPY option \"{name}\" is not supported across shards"),
        "The proxy does not know what it means for the rows.",
        "Write it as a string.",
    )
}

fn unknown_option(name: &str) -> PgError {
    PgError::unsupported(
        format!("COPY with the option \"{name}\" is not supported across shards"),
        "The proxy does not know what it means for the rows.",
        "Leave it out, or copy the rows of one shard at a time.",
    )
}

/// Options whose meaning is known, or does not matter, to who splits the rows.
const FOLLOWED: [&str; 13] = [
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
    "on_error",
    "log_verbosity",
];
