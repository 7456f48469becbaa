//! How the answers of several shards to a SELECT become one: order, LIMIT and OFFSET.
//!
//! What the proxy needs and the client did not select, the shards add to their rows as hidden columns, spliced into the client's
//! own text at the end of its select list.

use std::ops::Range;

use pg_raw_parse::nodes;

use super::bind::Reader;
use super::placement::{Combined, CombinedBy};
use super::predicate::is_star;
use super::{Body, Bound, Column, Distinct, FromItem, Grouping, OrderBy, OrderItem, Term};
use crate::error::PgError;
use crate::sql::analysis::{Combine, Fragment, KeyCondition, KeyTest, Merge, Part, SortKey, Splice, Test};

/// A merge in the making.
#[derive(Debug)]
pub struct Assembly {
    pub merge: Merge,
    /// Columns that the client selects.
    visible: usize,
    hidden: Vec<String>,
    splices: Vec<Splice>,
}

impl Assembly {
    pub fn new(visible: usize) -> Self {
        Self { merge: Merge::default(), visible, hidden: Vec::new(), splices: Vec::new() }
    }

    /// Adds a column to the fragment's rows; its position.
    pub fn hide(&mut self, sql: String) -> usize {
        // By its own name ORDER BY and GROUP BY could mean it.
        self.hidden.push(format!("{sql} AS shardgate_hidden"));
        self.visible + self.hidden.len() - 1
    }

    pub fn hidden_columns(&self) -> usize {
        self.hidden.len()
    }

    /// Of the fragment's rows.
    pub fn columns(&self) -> usize {
        self.visible + self.hidden.len()
    }

    /// PostgreSQL is not asked how text sorts.
    fn keep_known_orders(&mut self) {
        self.merge.order_by.iter_mut().for_each(|key| key.text.collation = None);
    }

    pub fn splice(&mut self, range: Range<usize>, text: String) {
        self.splices.push(Splice { start: range.start, end: range.end, text });
    }
}

impl Reader<'_> {
    /// The merge of the outermost query, whose rows are the shards' rows; an error names what the proxy cannot merge.
    pub fn merge(&mut self, select: &nodes::SelectStmt, bound: &Bound) -> Result<Merge, PgError> {
        let order = order_of(bound)?;
        let mut assembly = self.ordered(select, bound, &order)?;
        if assembly.merge.limit.is_none() {
            check_all_rows(&order)?;
            assembly.keep_known_orders();
        }
        self.finish_merge(assembly)
    }

    /// The merge of the outermost query, whose rows are made of rows of several shards.
    pub fn combine(&mut self, select: &nodes::SelectStmt, bound: &Bound, combined: Combined) -> Result<Merge, PgError> {
        match combined.by {
            // The analysis of a text that is on one shard anyway must not be bound to its literals.
            _ if self.is_on_one_shard() => Err(combined.reason),
            CombinedBy::Groups => {
                let merge = self.groups.take().unwrap_or(Err(combined.reason.clone()))?;
                let Some(Combine::Groups(groups)) = &merge.combine else { return Err(combined.reason) };
                if groups.counts_distinct && !combined.is_distinct_by_key {
                    return Err(combined.reason);
                }
                // Offsets of this text only, and the numbers in it.
                self.notes.is_bound_to_text |= merge.fragment.is_some() || groups.last_step.is_some();
                Ok(merge)
            }
            // Which row of its group is the first is the sub-select's to say.
            CombinedBy::DistinctOn if inherited_order(bound).is_some() => Err(combined.reason),
            CombinedBy::Distinct | CombinedBy::Union | CombinedBy::DistinctOn => {
                let distinct = self.distinct_rows(bound, combined)?;
                let mut assembly = self.ordered(select, bound, &bound.order)?;
                assembly.merge.combine = Some(self.hide_keys(distinct, &mut assembly)?);
                self.finish_merge(assembly)
            }
            CombinedBy::Locks => {
                let hint = self.lock_hint.take();
                let without = |reason: PgError| hint.map_or(reason.clone(), |hint| reason.with_hint(hint));
                let locking = self.locking.take().ok_or_else(|| without(combined.reason))?;
                let mut assembly = self.ordered(select, bound, &bound.order)?;
                // Rows are locked in their order, as they come.
                assembly.keep_known_orders();
                assembly.merge.locking = Some(locking);
                // Offsets of this text only.
                self.notes.is_bound_to_text = true;
                self.finish_merge(assembly)
            }
            CombinedBy::Other => Err(combined.reason),
        }
    }

    /// Order and limits, by which the shards sort and cut too.
    fn ordered(&mut self, select: &nodes::SelectStmt, bound: &Bound, order: &[OrderItem]) -> Result<Assembly, PgError> {
        let mut assembly = Assembly::new(bound.outputs.len());
        for item in order {
            let column = match &item.by {
                OrderBy::Output(index) if bound.is_complete || self.is_before_star(select, *index) => *index,
                OrderBy::Hidden(sql) => assembly.hide(sql.clone()),
                OrderBy::Output(_) | OrderBy::Other => return Err(unknown_order()),
            };
            assembly.merge.order_by.push(SortKey {
                column,
                is_descending: item.is_descending,
                is_nulls_first: item.is_nulls_first,
                text: item.order.text.clone(),
            });
        }
        if assembly.hidden_columns() > 0 && !takes_hidden_columns(bound) {
            return Err(unknown_order());
        }
        let limits = self.limits(select)?;
        let before = assembly.hidden_columns();
        self.keep_limits(&limits, &mut assembly);
        if assembly.hidden_columns() > before && !matches!(bound.body, Body::Block(_)) {
            return Err(PgError::unsupported(
                "this LIMIT or OFFSET is not supported across shards",
                "It is an expression, and the rows of a set operation or of VALUES cannot carry its value.",
                "Compute the number first and pass it.",
            ));
        }
        if assembly.hidden_columns() > 0 && !bound.is_complete {
            return Err(unknown_order());
        }
        Ok(assembly)
    }

    /// Puts the hidden columns and the splices in their places.
    pub fn finish_merge(&mut self, assembly: Assembly) -> Result<Merge, PgError> {
        let merge = self.assembled(assembly)?;
        if merge.fragment.is_some() {
            // Offsets of this text only, and the numbers in it.
            self.notes.is_bound_to_text = true;
        }
        Ok(merge)
    }

    /// The statement runs on one shard, unless a value turns out not to be one of its key: all that it touches is tied to one
    /// key.
    fn is_on_one_shard(&self) -> bool {
        let [Part::Sharded { group, condition, .. }] = self.parts.as_slice() else { return false };
        let columns = self.context.map.group(*group).map_or(0, |group| group.key_types.len());
        let mut pinned = Vec::new();
        pinned_columns(condition, &mut pinned);
        columns > 0 && (0..columns).all(|column| pinned.contains(&column))
    }

    pub fn assembled(&self, assembly: Assembly) -> Result<Merge, PgError> {
        let Assembly { mut merge, hidden, mut splices, .. } = assembly;
        if !hidden.is_empty() {
            let end = self.outline.as_ref().ok_or_else(unknown_order)?.targets_end();
            splices.push(Splice { start: end, end, text: format!(", {}", hidden.join(", ")) });
            merge.hidden_columns = hidden.len();
        }
        if !splices.is_empty() {
            splices.sort_by_key(|splice| splice.start);
            merge.fragment = Some(Fragment { splices });
        }
        Ok(merge)
    }

    /// The output's position is certain although a later `*` is not known.
    fn is_before_star(&self, select: &nodes::SelectStmt, index: usize) -> bool {
        select.target_list().iter().position(|target| is_star(target.val())).is_none_or(|star| index < star)
    }
}

/// All rows in an order that only PostgreSQL knows: it gets them all, and the shards need not sort them first.
/// The order of the rows: that of ORDER BY, or else the one in which the only sub-select of FROM gives them. PostgreSQL keeps that one,
/// although SQL does not promise it. An error: they are in an order that the outputs do not show.
fn order_of(bound: &Bound) -> Result<Vec<OrderItem>, PgError> {
    match inherited_order(bound) {
        None => Ok(bound.order.clone()),
        Some(inherited) => inherited.ok_or_else(unknown_order),
    }
}

/// By the outputs of this query; `Some(None)`: it is by what is no output. `None`: there is none.
fn inherited_order(bound: &Bound) -> Option<Option<Vec<OrderItem>>> {
    let Body::Block(block) = &bound.body else { return None };
    let [FromItem::Derived { leaf, bound: inner }] = block.from.as_slice() else { return None };
    if !matches!((&block.grouping, &block.distinct), (Grouping::None, Distinct::None | Distinct::On(_))) {
        return None;
    }
    // One of its own sorts the rows anew, except that DISTINCT ON may find them in it.
    if !bound.order.is_empty() && matches!(block.distinct, Distinct::None) {
        return None;
    }
    let order = match inner.order.is_empty() {
        true => match inherited_order(inner)? {
            Some(order) => order,
            None => return Some(None),
        },
        false => inner.order.clone(),
    };
    let output_of = |index: usize| {
        let is_it = |term: &Term| *term == Column { leaf: *leaf, index }.into();
        bound.outputs.iter().position(|output| output.origin.as_ref().is_some_and(is_it))
    };
    let shown = |item: OrderItem| match item.by {
        OrderBy::Output(index) => Some(OrderItem { by: OrderBy::Output(output_of(index)?), ..item }),
        OrderBy::Hidden(_) | OrderBy::Other => None,
    };
    Some(order.into_iter().map(shown).collect())
}

fn check_all_rows(order: &[OrderItem]) -> Result<(), PgError> {
    match order.iter().find(|item| item.order.is_text && !item.order.text.is_bytewise) {
        None => Ok(()),
        Some(_) => Err(PgError::unsupported(
            "rows of several shards cannot be put in order",
            "They sort by text in a collation that is not C, and all of them are wanted.",
            "Add LIMIT or a condition on the shard key, or sort by the text COLLATE \"C\".",
        )),
    }
}

/// Columns of the key that are equal to one value.
fn pinned_columns(condition: &KeyCondition, pinned: &mut Vec<usize>) {
    match condition {
        KeyCondition::Test(KeyTest { column, test: Test::Equals(_), .. }) => pinned.push(*column),
        KeyCondition::And(conditions) => conditions.iter().for_each(|condition| pinned_columns(condition, pinned)),
        KeyCondition::All | KeyCondition::Nothing | KeyCondition::Test(_) | KeyCondition::Or(_) => {}
    }
}

/// A column can be added to the select list without changing the rows.
fn takes_hidden_columns(bound: &Bound) -> bool {
    match &bound.body {
        Body::Block(block) => {
            matches!(block.distinct, Distinct::None | Distinct::On(_)) && matches!(block.grouping, Grouping::None | Grouping::By(_))
        }
        Body::SetOperation { .. }
        | Body::Values { .. }
        | Body::Recursive { .. }
        | Body::Modification { .. }
        | Body::SelfReference => false,
    }
}

pub fn unknown_order() -> PgError {
    PgError::unsupported(
        "this ORDER BY is not supported across shards",
        "It sorts by something that is not a column of the result, or in an order that the proxy does not know.",
        "Select what the rows are sorted by, and sort by that column; or restrict the statement to one shard key.",
    )
}
