//! EXECUTE: the arguments that a prepared statement is given in SQL.
//!
//! They are expressions, which PostgreSQL evaluates on the shard where the statement runs. A constant is a value that routes, as
//! a bound parameter's does. Anything else must be proven to touch no table and to mean the same on every server; its value is
//! not known to the proxy.

use pg_raw_parse::{Node, nodes};

use crate::error::PgError;
use crate::sql::analysis::{Command, Effect, KeyValue, Merge, Scope, SessionCall};
use crate::sql::context::Context;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::placing::{self, Placement};
use crate::sql::query::Reader;
use crate::sql::statement::Source;

/// Scope is the session's, or refused.
pub fn place(execute: &nodes::ExecuteStmt, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    let name = execute.name().unwrap_or_default().to_owned();
    let after_name = after_name(source).ok_or_else(unusual_name)?;
    let mut reader = Reader::new(context, source.text, source.literals);
    let mut arguments = Vec::new();
    for node in execute.params() {
        let constant = constant(&mut reader, node);
        if constant.is_none() {
            reader.expression(node)?;
        }
        arguments.push(constant);
    }
    let is_repeatable = reader.notes.volatile.is_none();
    let command = Command::Execute { name, after_name, arguments, is_repeatable };
    let mut placement = placing::finish(reader, command, Ok(Merge::default()));
    let leaves_nothing = placement.session_calls.iter().all(|call| matches!(call, SessionCall::Server | SessionCall::OneServer));
    let is_harmless = matches!(placement.scope, Scope::Tableless) && placement.effect == Effect::Read && leaves_nothing;
    placement.scope = if is_harmless { Scope::Session } else { Scope::Refused(unproven_argument()) };
    Ok(placement)
}

/// A literal, perhaps with a sign or a cast.
fn constant(reader: &mut Reader<'_>, node: Node<'_>) -> Option<KeyValue> {
    match node {
        Node::A_Const(_) => reader.value(node, None),
        Node::TypeCast(cast) => {
            let cast_to = reader.cast_type(cast)?;
            matches!(cast.arg(), Node::A_Const(_)).then(|| reader.value(cast.arg(), Some(cast_to))).flatten()
        }
        _ => None,
    }
}

/// Where the text goes on after the name. `None`: the name is written in a way that is not one token.
fn after_name(source: Source<'_>) -> Option<usize> {
    let text = source.text.get(source.start..source.end)?;
    let mut tokens = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).skip(1);
    let name = tokens.next().filter(|token| matches!(token.kind, TokenKind::Word | TokenKind::QuotedIdentifier))?;
    let is_plain = tokens.next().is_none_or(|token| text.get(token.start..token.end) == Some("("));
    is_plain.then_some(source.start + name.end)
}

fn unusual_name() -> PgError {
    PgError::unsupported(
        "this form of a prepared statement's name is not supported",
        "The name is not a plain or quoted identifier.",
        "Write the name in double quotes, without U&.",
    )
}

fn unproven_argument() -> PgError {
    PgError::unsupported(
        "this argument of EXECUTE is not supported",
        "It calls something that reads or writes tables, sequences or the session, and would do so on the statement's shard.",
        "Select the value first, and give it as a constant.",
    )
}
