//! The second reading: what another parser, with another walk, makes of a statement that is about to be narrowed.
//!
//! A wrong condition sends a statement to too few shards, and its answer is silently wrong. So before a reading narrows one,
//! sqlparser reads the text too, and a small walk of its own finds the tables and, for plain statements, the equalities between
//! columns and values. It shares nothing with the first reading but the catalogue. Where it sees another set of tables, or a
//! condition that the first one's does not follow from, the readings differ: the statement is then not narrowed. Where it cannot
//! parse the text, or does not understand a part that might matter, it has no opinion, and PostgreSQL's grammar stays the
//! authority.
//!
//! The tree is never printed, and never made from a text whose tree might be deep: sqlparser drops its trees recursively and
//! tries some brackets twice. The limits here keep both small; no text crashes or stalls the reader.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sqlparser::ast::{CopySource, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::analysis::{KeyCondition, Opinion, Part};
use super::context::Context;
use super::parse::lexer::{self, Literal, TokenKind};
use super::parse::tokens::cut;

mod claims;
mod names;
mod sketch;

/// A relation as a statement names it: schema, if given, and name.
pub type Name = (Option<String>, String);

/// What the first reading claims.
#[derive(Clone, Copy)]
pub struct Claims<'a> {
    pub text: &'a str,
    /// Where the statement is in the text.
    pub start: usize,
    pub end: usize,
    pub literals: &'a [Literal],
    pub context: &'a Context,
    /// Relations that the statement's own text names.
    pub named: &'a BTreeSet<Name>,
    pub parts: &'a [Part],
}

/// Longer texts get no second reading.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Tokens that may make the tree deeper by one.
const LINKS_MAX: usize = 200;
/// Brackets that are open at once: what sqlparser tries twice at each would double its time.
const BRACKETS_MAX: usize = 12;
/// sqlparser's own limit for what it reads by recursion.
const RECURSION_MAX: usize = 50;

/// Whether the claims are worth a second look: some condition is to restrict the shards.
pub fn is_narrowed(parts: &[Part]) -> bool {
    parts.iter().any(|part| match part {
        Part::Home => false,
        Part::Sharded { condition, .. } => *condition != KeyCondition::All,
    })
}

pub fn opinion(claims: Claims<'_>) -> Opinion {
    let Some(text) = claims.text.get(claims.start..claims.end).filter(|text| is_shallow(text)) else {
        return Opinion::Unsure;
    };
    // A panic of the parser says nothing about the statement.
    catch_unwind(AssertUnwindSafe(|| read(text, claims))).unwrap_or(Opinion::Unsure)
}

fn read(text: &str, claims: Claims<'_>) -> Opinion {
    let parser = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(RECURSION_MAX);
    let statements = parser.try_with_sql(text).and_then(|mut parser| parser.parse_statements());
    let Ok([statement]) = statements.as_deref() else {
        return Opinion::Unsure;
    };
    let Some(statement) = within(statement) else {
        return Opinion::Unsure;
    };
    let statement = &*statement;
    let names = names::of(statement);
    if names.is_odd {
        return Opinion::Unsure;
    }
    if !names.agree(claims.named) {
        return Opinion::Differs("another set of tables");
    }
    sketch::of(statement, &names, claims.context).map_or(Opinion::Unsure, |sketch| claims::judge(&sketch, claims))
}

/// The statement that reads or writes rows: itself, or what a cursor, COPY or EXPLAIN is for.
fn within(statement: &Statement) -> Option<Cow<'_, Statement>> {
    match statement {
        Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_) => {
            Some(Cow::Borrowed(statement))
        }
        Statement::Declare { stmts } => match stmts.as_slice() {
            [declare] => declare.for_query.clone().map(|query| Cow::Owned(Statement::Query(query))),
            _ => None,
        },
        Statement::Copy { source: CopySource::Query(query), to: true, .. } => Some(Cow::Owned(Statement::Query(query.clone()))),
        Statement::Explain { statement, .. } => within(statement),
        _ => None,
    }
}

/// Small enough, flat enough, and without words that sqlparser takes for names.
fn is_shallow(text: &str) -> bool {
    const ODD_WORDS: [&str; 2] = ["table", "only"];
    const LINKING_WORDS: [&str; 16] = [
        "and",
        "or",
        "not",
        "is",
        "in",
        "like",
        "ilike",
        "similar",
        "between",
        "union",
        "intersect",
        "except",
        "collate",
        "at",
        "case",
        "interval",
    ];
    if text.len() > TEXT_BYTES_MAX {
        return false;
    }
    let (mut links, mut open) = (0, 0_usize);
    for token in lexer::tokens(text) {
        let Some(piece) = text.get(token.start..token.end) else {
            return false;
        };
        match token.kind {
            TokenKind::Symbol => match piece {
                "(" | "[" | "{" => {
                    open += 1;
                    if open > BRACKETS_MAX {
                        return false;
                    }
                }
                ")" | "]" | "}" => open = open.saturating_sub(1),
                "," | ";" => {}
                _ => links += 1,
            },
            TokenKind::Word => {
                let is_one_of = |words: &[&str]| words.iter().any(|word| piece.eq_ignore_ascii_case(word));
                if is_one_of(&ODD_WORDS) {
                    return false;
                }
                links += usize::from(is_one_of(&LINKING_WORDS));
            }
            TokenKind::Literal(_) | TokenKind::QuotedIdentifier | TokenKind::Parameter | TokenKind::Comment => {}
        }
    }
    links <= LINKS_MAX
}

/// As PostgreSQL folds it.
fn folded(identifier: &sqlparser::ast::Ident) -> String {
    cut(match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_ascii_lowercase(),
    })
}

#[cfg(test)]
mod tests;
