//! `COPY … TO STDOUT` over several shards: the query whose rows it writes, and how they are written.
//!
//! COPY of a table is COPY of a query for its columns, without the rows of tables that inherit from it. PostgreSQL's own word on
//! the options, its header and its trailer come from a *model*: the same COPY of the same query without its rows.

use std::borrow::Cow;

use pg_raw_parse::{Node, nodes};

use super::copy_in::{CopyFormat, is_listed, listed_columns, text};
use crate::catalog::{RelationKind, quoted_identifier, quoted_name};
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::query::{Resolved, resolve};

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOut {
    /// The query.
    pub query: String,
    /// Where it begins in the statement; `None`: it is not the client's.
    pub start: Option<usize>,
    /// COPY of the query without rows.
    pub model: String,
    /// Where the options begin: characters of the model, and of the statement, before them.
    pub options_at: (usize, usize),
    pub format: CopyFormat,
    pub quoted: Quoted,
    /// ENCODING; `None`: the session's.
    pub encoding: Option<String>,
}

/// FORCE_QUOTE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quoted {
    /// Where they must be.
    Needed,
    All,
    Columns(Vec<String>),
}

/// Reads the statement, which stands alone in its text. `None`: PostgreSQL refuses it before it looks for rows.
pub fn read(statement: &str, context: &Context) -> Result<Option<CopyOut>, PgError> {
    let tree = parse::parse(statement)?;
    let Some(Node::CopyStmt(copy)) = tree.stmts().next() else { return Err(PgError::internal("not a COPY")) };
    let Some(places) = Places::find(statement) else { return Err(unknown_form()) };
    let mut options = statement.get(places.options..).unwrap_or_default().to_owned();
    if places.is_binary {
        if !options.trim().is_empty() {
            return Err(unknown_form());
        }
        options = " (FORMAT binary)".to_owned();
    }
    let (query, start) = match copy.relation() {
        Some(relation) => match query_of_table(copy, relation, context) {
            Some(query) => (query, None),
            None => return Ok(None),
        },
        None => {
            let (start, end) = places.query.ok_or_else(unknown_form)?;
            (statement.get(start..end).unwrap_or_default().to_owned(), Some(start))
        }
    };
    // The query may end in a comment.
    let before = format!("COPY (SELECT * FROM ({query}\n) shardgate_rows LIMIT 0) TO STDOUT");
    let options_at = (before.chars().count(), statement.get(..places.options).map_or(0, |before| before.chars().count()));
    let model = before + &options;
    Ok(Some(CopyOut {
        query,
        start,
        model,
        options_at,
        format: CopyFormat::read(copy)?,
        quoted: quoted(copy),
        encoding: text(copy, "encoding")?.map(Cow::into_owned),
    }))
}

impl Quoted {
    pub fn has(&self, column: &[u8]) -> bool {
        match self {
            Quoted::Needed => false,
            Quoted::All => true,
            Quoted::Columns(columns) => columns.iter().any(|listed| listed.as_bytes() == column),
        }
    }
}

fn quoted(copy: &nodes::CopyStmt) -> Quoted {
    let Some(option) = copy.options().iter().find(|option| option.defname() == Some("force_quote")) else { return Quoted::Needed };
    match option.arg() {
        Node::NodeList(list) => Quoted::Columns(list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()),
        // Told by a name that no column has.
        _ if is_listed(copy, "force_quote", "") => Quoted::All,
        _ => Quoted::Needed,
    }
}

/// The columns of a sharded table. `None`: no such table or column, or one that COPY does not take.
fn query_of_table(copy: &nodes::CopyStmt, name: &nodes::RangeVar, context: &Context) -> Option<String> {
    let Resolved::Sharded { relation, .. } = resolve(context, name, &context.search_path) else { return None };
    if relation.kind != RelationKind::Table {
        return None;
    }
    let listed = listed_columns(copy);
    let columns: Vec<&str> = match listed.is_empty() {
        true => relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.as_str()).collect(),
        false => {
            let is_good = |(place, name): (usize, &&str)| {
                relation.column(name).is_some_and(|column| !column.is_generated)
                    && !listed.iter().take(place).any(|before| before == name)
            };
            if !listed.iter().enumerate().all(is_good) {
                return None;
            }
            listed
        }
    };
    if let Quoted::Columns(quoted) = quoted(copy)
        && !quoted.iter().all(|name| columns.contains(&name.as_str()))
    {
        return None;
    }
    let columns: Vec<String> = columns.into_iter().map(quoted_identifier).collect();
    let only = if relation.children.is_empty() { "" } else { "ONLY " };
    Some(format!("SELECT {} FROM {only}{}", columns.join(", "), quoted_name(&relation.schema, &relation.name)))
}

/// Byte offsets of what matters in the statement.
struct Places {
    /// Inside of the parentheses.
    query: Option<(usize, usize)>,
    options: usize,
    /// `COPY BINARY t`.
    is_binary: bool,
}

impl Places {
    fn find(text: &str) -> Option<Self> {
        let tokens: Vec<_> = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).collect();
        let is_word = |index: usize, word: &str| {
            tokens.get(index).is_some_and(|token: &lexer::Token| {
                token.kind == TokenKind::Word
                    && text.get(token.start..token.end).is_some_and(|piece| piece.eq_ignore_ascii_case(word))
            })
        };
        let mut depth = 0_usize;
        let mut first: Option<(usize, usize)> = None;
        for (index, token) in tokens.iter().enumerate() {
            match text.get(token.start..token.end)? {
                "(" => {
                    depth += 1;
                    // Of a table, these are its columns.
                    first = first.or(Some((token.end, usize::MAX)));
                }
                ")" => {
                    depth = depth.checked_sub(1)?;
                    if let (0, Some((_, end))) = (depth, &mut first) {
                        *end = (*end).min(token.start);
                    }
                }
                // PostgreSQL takes either word for the client, and PHP's driver writes the other one.
                _ if depth == 0 && is_word(index, "to") && (is_word(index + 1, "stdout") || is_word(index + 1, "stdin")) => {
                    let options = tokens.get(index + 1)?.end;
                    if is_word(index + 2, "using") || is_word(index + 2, "delimiters") {
                        return None;
                    }
                    return Some(Self { query: first, options, is_binary: is_word(1, "binary") });
                }
                _ => {}
            }
        }
        None
    }
}

fn unknown_form() -> PgError {
    PgError::unsupported(
        "this form of COPY is not supported across shards",
        "Its options are written in an old way.",
        "Write COPY ... TO STDOUT (FORMAT ..., DELIMITER ...).",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Option<(Option<&str>, &str, bool)> {
        let places = Places::find(text)?;
        let query = places.query.and_then(|(start, end)| text.get(start..end));
        Some((query, text.get(places.options..)?, places.is_binary))
    }

    #[test]
    fn the_query_and_the_options_are_found() {
        let text = "COPY /* ( */ (SELECT ')' FROM (VALUES (1)) v(a)) TO STDOUT (FORMAT csv)";
        assert_eq!(find(text), Some((Some("SELECT ')' FROM (VALUES (1)) v(a)"), " (FORMAT csv)", false)));
        assert_eq!(find("copy t to stdout"), Some((None, "", false)));
        assert_eq!(find("COPY BINARY t TO STDOUT").map(|found| found.2), Some(true));
        assert_eq!(find("COPY t (a, b) TO STDOUT WITH CSV HEADER").map(|found| found.1), Some(" WITH CSV HEADER"));
        assert_eq!(find("COPY t TO STDOUT USING DELIMITERS ','"), None);
        assert_eq!(find("COPY t TO STDIN WITH DELIMITER ';'").map(|found| found.1), Some(" WITH DELIMITER ';'"));
        assert_eq!(find("COPY t FROM STDIN"), None);
    }
}
