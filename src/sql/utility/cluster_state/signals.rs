//! Where a call that ends or cancels sessions may stand: where PostgreSQL calls it once for each row of the answer, and for no other.
//!
//! What else stands around a call may keep PostgreSQL from calling it (`CASE`, `AND`, `FILTER`), and would not keep the proxy.

use std::ops::Range;

use pg_raw_parse::{ConstValue, Node, nodes};

use super::named;
use crate::error::PgError;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;
use crate::sql::query::{column_name, is_aggregate};

/// A SELECT whose list calls what ends or cancels sessions.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    /// Byte offsets.
    pub list: Range<usize>,
    /// The list decides on the rows with FROM and WHERE. Not where the calls are in aggregates, which would make one row of all.
    pub is_list_kept: bool,
}

/// What an item of the list is to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Item {
    /// It is the call, or its type cast.
    Call,
    /// An aggregate of the call.
    Aggregate,
    Other,
}

/// `count`: of the calls, all of which have to be items of the outermost SELECT, or the only argument of an aggregate there.
pub(super) fn of(statement: Node<'_>, count: usize, tokens: &Tokens<'_>) -> Result<Signals, PgError> {
    let Node::SelectStmt(select) = statement else { return Err(not_here()) };
    let items: Vec<Item> = select.target_list().iter().map(|target| item(target.val())).collect();
    let is = |wanted: Item| items.iter().filter(|item| **item == wanted).count();
    let (calls, aggregates) = (is(Item::Call), is(Item::Aggregate));
    let is_of_one_kind = calls == count || (aggregates == count && is_without_order(select));
    if !is_plain(select) || !is_of_one_kind || sorts_by_call(select) {
        return Err(not_here());
    }
    let list = || {
        let mut first = tokens.word_at_top(0, &["select"])? + 1;
        first += usize::from(tokens.is_word(first, "all"));
        let ends =
            [tokens.from_at_top(first), tokens.word_at_top(first, &["where", "window", "order", "limit", "offset", "fetch"])];
        let last = match ends.into_iter().flatten().min() {
            Some(end) => end - 1,
            None => (first..tokens.count()).rev().find(|index| tokens.piece(*index) != ";")?,
        };
        tokens.range(first, last)
    };
    Ok(Signals { list: list().ok_or_else(not_here)?, is_list_kept: calls == count })
}

fn item(value: Node<'_>) -> Item {
    let Node::FuncCall(call) = tree::without_casts(value) else { return Item::Other };
    if is_signal(call) {
        return Item::Call;
    }
    let argument = call.args().first().map_or(Node::None, tree::without_casts);
    let is_plain = !call.agg_distinct
        && !call.agg_within_group
        && call.agg_order().is_empty()
        && matches!(call.agg_filter(), Node::None)
        && call.over().is_none();
    match (named(call), argument) {
        ((Some("pg_catalog") | None, Some(name)), Node::FuncCall(inner))
            if is_aggregate(name) && is_signal(inner) && call.args().len() == 1 && is_plain =>
        {
            Item::Aggregate
        }
        _ => Item::Other,
    }
}

fn is_signal(call: &nodes::FuncCall) -> bool {
    matches!(named(call), (Some("pg_catalog") | None, Some("pg_cancel_backend" | "pg_terminate_backend")))
}

/// No rows are put together, and none is computed that the client does not get: PostgreSQL calls for those that OFFSET leaves out,
/// and for one that WITH TIES does.
fn is_plain(select: &nodes::SelectStmt) -> bool {
    select.op == nodes::SetOperation::SETOP_NONE
        && select.into_clause().is_none()
        && select.distinct_clause().is_empty()
        && select.group_clause().is_empty()
        && matches!(select.having_clause(), Node::None)
        && select.locking_clause().is_empty()
        && matches!(select.limit_offset(), Node::None)
        && select.limit_option != nodes::LimitOption::LIMIT_OPTION_WITH_TIES
}

fn is_without_order(select: &nodes::SelectStmt) -> bool {
    select.sort_clause().is_empty() && matches!(select.limit_count(), Node::None)
}

/// By the number or the name of an item: then PostgreSQL calls for every row before LIMIT counts.
fn sorts_by_call(select: &nodes::SelectStmt) -> bool {
    let items: Vec<(String, Item)> = select
        .target_list()
        .iter()
        .map(|target| (target.name().map_or_else(|| column_name(target.val()), str::to_owned), item(target.val())))
        .collect();
    select.sort_clause().iter().any(|sort| match sort.node() {
        Node::A_Const(constant) => match constant.val() {
            Some(ConstValue::Integer(number)) => {
                let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
                // Before it there may be a star.
                let has_star = select.target_list().iter().any(|target| is_star(target.val()));
                has_star || index.and_then(|index| items.get(index)).is_some_and(|(_, item)| *item != Item::Other)
            }
            _ => false,
        },
        Node::ColumnRef(column) if column.fields().len() == 1 => {
            let name = column.fields().first().and_then(Node::as_str);
            items.iter().any(|(known, item)| *item != Item::Other && Some(known.as_str()) == name)
        }
        _ => false,
    })
}

fn is_star(value: Node<'_>) -> bool {
    matches!(value, Node::ColumnRef(column) if column.fields().iter().any(|field| matches!(field, Node::A_Star(_))))
}

fn not_here() -> PgError {
    PgError::unsupported(
        "pg_terminate_backend() and pg_cancel_backend() are not supported here",
        "The proxy has to know all sessions that are meant before the statement gives its answer: the call has to be an item of the list, or all that an aggregate is given.",
        "Put what chooses the sessions into WHERE, in a SELECT of its own without GROUP BY, DISTINCT, OFFSET or FOR UPDATE, as in SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ….",
    )
}
