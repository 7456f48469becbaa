//! `SELECT setval('t_id_seq', (SELECT max(id) FROM t))`: a cluster-wide sequence is set to what a query says, as is done after rows
//! were loaded with their numbers.
//!
//! The call's place in the text takes its values, which makes a query like any other; what that says is set by the proxy. Constants
//! are no affair of this module: they are drawn like other numbers ([`crate::sql::rewrite::drawing`]).

use pg_raw_parse::{Node, nodes};

use crate::catalog::SequenceName;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer::TokenKind;
use crate::sql::parse::tokens::Tokens;
use crate::sql::rewrite::drawing;

/// What is to be set, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSequence {
    pub sequence: SequenceName,
    /// Gives the number, and where the call has three arguments whether it has been used.
    pub query: String,
    /// Name of the output column.
    pub column: String,
}

/// Whether the statement is nothing but one such call, of values that have to be computed.
pub fn is_one(select: &nodes::SelectStmt, context: &Context) -> bool {
    call(select, context).is_some_and(|(call, ..)| drawing::number(call, context).is_err())
}

/// `text`: the statement alone. `None`: it is not such a statement, or has parameters.
pub fn read(text: &str, context: &Context) -> Option<SetSequence> {
    let tree = parse::parse(text).ok()?;
    let Some(Node::SelectStmt(select)) = tree.stmts().next() else { return None };
    let (call, sequence, alias) = call(select, context)?;
    let tokens = Tokens::of(text);
    if tokens.iter().any(|(kind, _)| kind == TokenKind::Parameter) {
        return None;
    }
    let first = tokens.at_location(call.location)?;
    let open = tokens.name_end(first) + 1;
    let close = tokens.closing(open)?;
    let mut values = tokens.elements(open + 1, close)?.into_iter().skip(1).map(|(first, last)| tokens.slice(first, last));
    let number = format!("({})::pg_catalog.int8", values.next()??);
    let values = match values.next() {
        Some(is_called) => format!("{number}, ({})::pg_catalog.bool", is_called?),
        None => number,
    };
    let place = tokens.range(first, close)?;
    let query = format!("{}{values}{}", text.get(..place.start)?, text.get(place.end..)?);
    Some(SetSequence { sequence, query, column: alias.unwrap_or(SETVAL).to_owned() })
}

fn call<'n>(select: &'n nodes::SelectStmt, context: &Context) -> Option<(&'n nodes::FuncCall, SequenceName, Option<&'n str>)> {
    let mut targets = select.target_list().iter();
    let (Some(target), None) = (targets.next(), targets.next()) else { return None };
    let Node::FuncCall(call) = target.val() else { return None };
    let is_meant = drawing::sequence_function(call) == Some(SETVAL) && matches!(call.args().len(), 2 | 3);
    if !is_meant || select.into_clause().is_some() || !select.values_lists().is_empty() {
        return None;
    }
    Some((call, drawing::cluster_sequence_of(call, context)?, target.name()))
}

const SETVAL: &str = "setval";
