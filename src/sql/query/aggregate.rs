//! Aggregates over the rows of several shards: what each shard computes, and how the proxy makes one row of each group's parts.
//!
//! A shard runs the client's own text with `avg` replaced by `sum` and a hidden `count`, hidden columns for what groups and
//! sorts, and without ORDER BY, LIMIT and OFFSET, which mean groups that are whole. Only what is exact is combined: whether the
//! types allow it is seen at the row description of the shards, before anything is answered.
//!
//! Anything in the select list without an aggregate depends on the group alone, or PostgreSQL would have refused it: any part's
//! value will do.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::merge::Assembly;
use super::scope::{Frame, Resolution};
use super::{Block, Distinct, OrderBy, OrderItem, Output};
use crate::error::PgError;
use crate::sql::analysis::{Combination, Combine, Groups, Merge, RowKeyColumn, SortKey, TextOrder};
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::parse::tree;

/// The outermost query, as its groups are read.
pub struct GroupedQuery<'q, 'n> {
    pub select: &'n nodes::SelectStmt,
    pub frame: &'q Frame<'q>,
    pub outputs: &'q [Output],
    pub is_complete: bool,
    pub block: &'q Block,
    pub order: &'q [OrderItem],
}

/// What an expression is to a group.
pub enum Part<'n> {
    /// Without aggregates: the same for all rows of a group.
    Plain,
    Aggregate(&'n nodes::FuncCall, Aggregate),
    /// Computed from aggregates.
    Mixed,
}

#[derive(Clone)]
pub enum Aggregate {
    Combined(Combination),
    Average,
}

impl Reader<'_> {
    /// The merge of a query with aggregates or GROUP BY: by the proxy alone, or with a last step for PostgreSQL.
    pub fn grouped(&self, query: &GroupedQuery<'_, '_>) -> Result<Merge, PgError> {
        let by_postgresql = self.sorts_by_known_collation(query).then(|| self.with_last_step(query)).flatten();
        let mut merge = match by_postgresql {
            Some(merge) => merge,
            None => self.combined_alone(query).or_else(|reason| self.with_last_step(query).ok_or(reason))?,
        };
        if let Some(Combine::Groups(groups)) = &mut merge.combine {
            groups.counts_distinct = self.counts_distinct(query);
        }
        Ok(merge)
    }

    fn combined_alone(&self, query: &GroupedQuery<'_, '_>) -> Result<Merge, PgError> {
        let outline = self.outline.as_ref().ok_or_else(unknown_text)?;
        let is_plain = query.is_complete && query.outputs.len() == outline.targets.len();
        if !is_plain || query.select.group_distinct {
            return Err(unknown_text());
        }
        let block = query.block;
        if !block.windows.is_empty() || !matches!(block.distinct, Distinct::None) || block.is_locking {
            return Err(not_alone());
        }
        if block.subqueries.len() > block.row_subquery_count {
            return Err(with_subquery());
        }
        let having = self.having(query).filter(|having| having.groups.is_empty()).ok_or_else(|| of_aggregates("HAVING"))?;
        let mut made = GroupsInTheMaking::new(query.outputs.len());
        for (target, range) in query.select.target_list().iter().zip(&outline.targets) {
            let combination = self.visible_column(target, range, query.frame, &mut made)?;
            made.groups.columns.push(combination);
        }
        self.keys(query, &outline.group_items, &mut made)?;
        self.group_order(query, &mut made)?;
        let limits = self.limits(query.select)?;
        let tail = self.drop_limits(&limits, &mut made.assembly);
        let dropped = if having.rows.is_empty() { outline.tail.clone() } else { outline.after_having.clone() };
        if !dropped.is_empty() || !tail.is_empty() {
            made.assembly.splice(dropped, tail);
        }
        self.assembled(made.finish())
    }

    pub(super) fn visible_column(
        &self,
        target: &nodes::ResTarget,
        range: &Range<usize>,
        frame: &Frame<'_>,
        made: &mut GroupsInTheMaking,
    ) -> Result<Combination, PgError> {
        match self.part(target.val(), frame) {
            Part::Plain => Ok(Combination::First),
            Part::Mixed => Err(of_aggregates("the select list")),
            Part::Aggregate(_, Aggregate::Combined(combination)) => Ok(combination),
            Part::Aggregate(call, Aggregate::Average) => {
                let text = self.call_text(call).ok_or_else(unknown_text)?;
                made.assembly.splice(text.name.clone(), "pg_catalog.sum".to_owned());
                if target.name().is_none() {
                    made.assembly.splice(range.end..range.end, " AS \"avg\"".to_owned());
                }
                Ok(Combination::Average { counts: made.hide(format!("pg_catalog.count{}", text.arguments), Combination::Count) })
            }
        }
    }

    /// A column for each item of GROUP BY.
    pub(super) fn keys(
        &self,
        query: &GroupedQuery<'_, '_>,
        items: &[Range<usize>],
        made: &mut GroupsInTheMaking,
    ) -> Result<(), PgError> {
        for (item, range) in query.select.group_clause().iter().zip(items) {
            // GROUP BY (a, b) are two items.
            if let Node::RowExpr(row) = item
                && row.row_format != nodes::CoercionForm::COERCE_EXPLICIT_CALL
            {
                for item in row.args() {
                    let key = self.column_key(item, query, made)?;
                    made.groups.keys.push(key);
                }
                continue;
            }
            let output = |index: usize| query.outputs.get(index).map(|output| (index, &output.properties));
            let key = match self.grouped_output(item, query)? {
                Some(index) => {
                    let (column, properties) = output(index).ok_or_else(unknown_text)?;
                    let is_enum = self.is_enum(properties.type_oid);
                    RowKeyColumn { column, is_deterministic: properties.is_deterministic, is_enum }
                }
                None => {
                    let text = self.text.get(range.clone()).ok_or_else(unknown_text)?;
                    let is_deterministic = self.compares_bytewise(item, query.frame);
                    let is_enum = match self.column_of(item, query.frame) {
                        Some(column) => self.is_enum(self.properties(column).type_oid),
                        None => false,
                    };
                    RowKeyColumn { column: made.hide(text.to_owned(), Combination::First), is_deterministic, is_enum }
                }
            };
            made.groups.keys.push(key);
        }
        Ok(())
    }

    /// A plain column among the items of GROUP BY.
    fn column_key(
        &self,
        item: Node<'_>,
        query: &GroupedQuery<'_, '_>,
        made: &mut GroupsInTheMaking,
    ) -> Result<RowKeyColumn, PgError> {
        let (Node::ColumnRef(reference), Some(column)) = (item, self.column_of(item, query.frame)) else {
            return Err(unknown_text());
        };
        let properties = self.properties(column);
        let position = match query.outputs.iter().position(|output| output.origin == Some(column.into())) {
            Some(position) => position,
            None => {
                let path = tree::names(reference.fields()).ok_or_else(unknown_text)?;
                made.hide(super::select_list::quoted_path(&path), Combination::First)
            }
        };
        let is_enum = self.is_enum(properties.type_oid);
        Ok(RowKeyColumn { column: position, is_deterministic: properties.is_deterministic, is_enum })
    }

    /// The output that an item of GROUP BY is: by number, by being the same column, or by name where no column has it.
    fn grouped_output(&self, item: Node<'_>, query: &GroupedQuery<'_, '_>) -> Result<Option<usize>, PgError> {
        match item {
            Node::A_Const(_) => match super::select_list::ordinal(item) {
                Some(index) if index < query.outputs.len() => Ok(Some(index)),
                _ => Err(unknown_text()),
            },
            Node::ColumnRef(column) => {
                if let Some(found) = self.column_of(item, query.frame) {
                    return Ok(query.outputs.iter().position(|output| output.origin == Some(found.into())));
                }
                let path = tree::names(column.fields()).ok_or_else(unknown_text)?;
                let [name] = path.as_slice() else { return Ok(None) };
                let mut named = query.outputs.iter().enumerate().filter(|(_, output)| output.name == *name);
                match (named.next(), named.next()) {
                    (Some((index, _)), None) if !query.frame.resolves_here(&path, &self.leaves) => Ok(Some(index)),
                    (None, _) => Ok(None),
                    _ => Err(unknown_text()),
                }
            }
            _ => Ok(None),
        }
    }

    pub(super) fn column_of(&self, node: Node<'_>, frame: &Frame<'_>) -> Option<super::Column> {
        let Node::ColumnRef(column) = node else { return None };
        match frame.resolve(&tree::names(column.fields())?, &self.leaves) {
            Resolution::Column(column) => Some(column),
            Resolution::Unknown => None,
        }
    }

    fn group_order(&self, query: &GroupedQuery<'_, '_>, made: &mut GroupsInTheMaking) -> Result<(), PgError> {
        for (sort, item) in query.select.sort_clause().iter().zip(query.order) {
            let column = match &item.by {
                OrderBy::Output(index) if *index < query.outputs.len() && !is_ambiguous(sort.node(), query.outputs) => *index,
                OrderBy::Hidden(sql) => self.sorted_column(sort.node(), sql, query.frame, made)?,
                OrderBy::Output(_) | OrderBy::Other => return Err(super::merge::unknown_order()),
            };
            made.assembly.merge.order_by.push(SortKey {
                column,
                is_descending: item.is_descending,
                is_nulls_first: item.is_nulls_first,
                // What groups are sorted by must be known to the proxy.
                text: TextOrder { is_bytewise: item.order.text.is_bytewise, collation: None },
            });
        }
        Ok(())
    }

    pub(super) fn sorted_column(
        &self,
        node: Node<'_>,
        sql: &str,
        frame: &Frame<'_>,
        made: &mut GroupsInTheMaking,
    ) -> Result<usize, PgError> {
        match self.part(node, frame) {
            Part::Plain => Ok(made.hide(sql.to_owned(), Combination::First)),
            Part::Mixed => Err(of_aggregates("ORDER BY")),
            Part::Aggregate(call, aggregate) => self.hidden_aggregate(call, aggregate, made).ok_or_else(unknown_text),
        }
    }

    /// A hidden column for an aggregate.
    pub(super) fn hidden_aggregate(
        &self,
        call: &nodes::FuncCall,
        aggregate: Aggregate,
        made: &mut GroupsInTheMaking,
    ) -> Option<usize> {
        let text = self.call_text(call)?;
        Some(match aggregate {
            Aggregate::Combined(combination) => {
                let name = self.text.get(text.name)?;
                made.hide(format!("{name}{}", text.arguments), combination)
            }
            Aggregate::Average => {
                let counts = made.hide(format!("pg_catalog.count{}", text.arguments), Combination::Count);
                made.hide(format!("pg_catalog.sum{}", text.arguments), Combination::Average { counts })
            }
        })
    }

    pub(super) fn part<'n>(&self, node: Node<'n>, frame: &Frame<'_>) -> Part<'n> {
        if let Node::FuncCall(call) = node
            && self.is_aggregate_call(call, frame)
        {
            return self.combination_of(call, frame).map_or(Part::Mixed, |aggregate| Part::Aggregate(call, aggregate));
        }
        let mut is_plain = true;
        tree::walk(node, &mut |node| {
            is_plain &= match node {
                Node::FuncCall(call) => call.over().is_none() && !self.is_aggregate_call(call, frame),
                Node::SubLink(_) | Node::JsonObjectAgg(_) | Node::JsonArrayAgg(_) | Node::GroupingFunc(_) => false,
                other => tree::is_known(other),
            };
            is_plain
        });
        if is_plain { Part::Plain } else { Part::Mixed }
    }

    /// An aggregate whose parts make the whole exactly; the types are looked at when the shards have described them.
    fn combination_of(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> Option<Aggregate> {
        let is_simple = call.over().is_none() && !call.agg_within_group && !call.func_variadic && call.agg_order().is_empty();
        if !is_simple || call.args().iter().any(|argument| matches!(argument, Node::NamedArgExpr(_))) {
            return None;
        }
        let name = self.catalog_function(call, frame)?;
        let order = || call.args().first().map(|argument| self.order_of_value(argument, frame).text).unwrap_or_default();
        let found = match (name, call.agg_star, call.args().len()) {
            ("count", true, 0) | ("count", false, 1) => Aggregate::Combined(Combination::Count),
            ("sum", false, 1) => Aggregate::Combined(Combination::Sum),
            ("avg", false, 1) => Aggregate::Average,
            ("min", false, 1) => Aggregate::Combined(Combination::Minimum(order())),
            ("max", false, 1) => Aggregate::Combined(Combination::Maximum(order())),
            ("bool_and" | "every", false, 1) => Aggregate::Combined(Combination::All),
            ("bool_or", false, 1) => Aggregate::Combined(Combination::Any),
            _ => return None,
        };
        Some(found)
    }

    /// An aggregate of the query counts a value once however many rows have it, where once or often is not the same.
    fn counts_distinct(&self, query: &GroupedQuery<'_, '_>) -> bool {
        let select = query.select;
        let mut counts = false;
        let mut visit = |node: Node<'_>| {
            tree::walk(node, &mut |node| {
                if let Node::FuncCall(call) = node
                    && call.agg_distinct
                {
                    let found = self.combination_of(call, query.frame);
                    counts |=
                        matches!(found, Some(Aggregate::Average | Aggregate::Combined(Combination::Count | Combination::Sum)));
                }
                true
            });
        };
        select.target_list().iter().for_each(|target| visit(target.val()));
        select.sort_clause().iter().for_each(|sort| visit(sort.node()));
        visit(select.having_clause());
        select.window_clause().iter().for_each(visit);
        counts
    }

    /// Where a call's name stands, and its text from the opening parenthesis on, with FILTER.
    pub(super) fn call_text(&self, call: &nodes::FuncCall) -> Option<CallText> {
        let start = usize::try_from(call.location).ok()?;
        let rest = self.text.get(start..)?;
        let mut depth = 0usize;
        let mut opened = None;
        let mut end = None;
        let mut is_filter_next = false;
        for token in lexer::tokens(rest).filter(|token| token.kind != TokenKind::Comment) {
            let piece = rest.get(token.start..token.end)?;
            if depth == 0 && end.is_some() {
                // After the arguments only FILTER belongs to the call, and only once.
                if is_filter_next || token.kind != TokenKind::Word || !piece.eq_ignore_ascii_case("filter") {
                    if is_filter_next && piece == "(" {
                        depth += 1;
                        continue;
                    }
                    break;
                }
                is_filter_next = true;
                continue;
            }
            match (token.kind, piece) {
                (TokenKind::Symbol, "(") => {
                    opened.get_or_insert(token.start);
                    depth += 1;
                }
                (TokenKind::Symbol, ")") => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        end = Some(token.end);
                        if is_filter_next {
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        let (opened, end) = (opened?, end?);
        let has_filter = !matches!(call.agg_filter(), Node::None);
        if has_filter != is_filter_next {
            return None;
        }
        Some(CallText { name: start..start + opened, arguments: rest.get(opened..end)?.to_owned(), end: start + end })
    }
}

/// A call in the text.
pub struct CallText {
    pub name: Range<usize>,
    /// From the opening parenthesis on, with FILTER.
    pub arguments: String,
    pub end: usize,
}

/// What the shards compute, as it is put together.
pub struct GroupsInTheMaking {
    pub assembly: Assembly,
    pub groups: Groups,
    /// Of the hidden columns, in their order.
    hidden: Vec<Combination>,
}

impl GroupsInTheMaking {
    pub fn new(visible: usize) -> Self {
        Self { assembly: Assembly::new(visible), groups: Groups::default(), hidden: Vec::new() }
    }

    pub fn finish(self) -> Assembly {
        let GroupsInTheMaking { mut assembly, mut groups, hidden } = self;
        groups.columns.extend(hidden);
        // What the limits have hidden.
        groups.columns.resize(assembly.columns(), Combination::First);
        assembly.merge.combine = Some(Combine::Groups(groups));
        assembly
    }

    pub fn hide(&mut self, sql: String, combination: Combination) -> usize {
        self.hidden.push(combination);
        self.assembly.hide(sql)
    }
}

/// Two outputs have the name that ORDER BY gives: what the shards run has no ORDER BY that would be refused.
fn is_ambiguous(node: Node<'_>, outputs: &[Output]) -> bool {
    let name = match node {
        Node::ColumnRef(column) => tree::single_name(column.fields()),
        _ => None,
    };
    name.is_some_and(|name| outputs.iter().filter(|output| output.name == name).count() > 1)
}

const HINT: &str = "Add a condition that pins the shard key, or group and select by the whole shard key.";

fn unknown_text() -> PgError {
    PgError::unsupported(
        "aggregates over the rows of several shards are not supported",
        "The proxy cannot take the statement apart: its select list or GROUP BY has an item that it cannot find its way around.",
        HINT,
    )
}

fn not_alone() -> PgError {
    PgError::unsupported(
        "aggregates over the rows of several shards are not supported together with windows, DISTINCT or locks",
        "They would work on groups that are not whole on any shard.",
        HINT,
    )
}

fn with_subquery() -> PgError {
    PgError::unsupported(
        "aggregates over the rows of several shards are not supported together with sub-selects outside of FROM and WHERE",
        "The sub-select would be evaluated for groups that are not whole on any shard.",
        HINT,
    )
}

fn of_aggregates(place: &str) -> PgError {
    PgError::unsupported(
        format!("this expression over aggregates in {place} is not supported across shards"),
        "Only count, sum, avg, min, max, bool_and, bool_or and every are combined, by themselves and without ORDER BY.",
        "Select the aggregates by themselves and compute with their results, or restrict the statement to one shard key.",
    )
}

#[cfg(test)]
mod tests;
