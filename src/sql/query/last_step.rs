//! What is left to do with whole groups when it is more than to sort and cut them: expressions over aggregates, HAVING, windows,
//! DISTINCT. PostgreSQL does it, in a query of its own over the few rows that the groups are.
//!
//! That query is the client's text with each aggregate and each grouped column replaced by a column of the groups, HAVING as its
//! WHERE, and the groups, as constants, for its FROM. It reads no table, so that any shard can run it. What cannot be replaced
//! with certainty has no last step.

use std::collections::HashSet;
use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::aggregate::{Aggregate, GroupedQuery, GroupsInTheMaking, Part};
use super::bind::Reader;
use super::column_name::column_name;
use super::pushed_conditions::Having;
use super::scope::Frame;
use super::{Column, Distinct, OrderBy};
use crate::catalog::quoted_identifier;
use crate::sql::analysis::{ColumnUse, Combination, LastStep, Merge};
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::parse::tree;

/// The alias of the groups.
const GROUPS: &str = "shardgate_groups";

/// Pieces of the text, each with what takes its place; in no order, not overlapping.
type Replacements = Vec<(Range<usize>, String)>;

struct Making<'q, 'n> {
    query: &'q GroupedQuery<'q, 'n>,
    groups: GroupsInTheMaking,
    uses: Vec<ColumnUse>,
    /// Grouped columns, and where the groups have them.
    grouped: Vec<(Column, usize)>,
    /// Of the groups' columns that are plain columns of tables.
    collations: Vec<Option<String>>,
    replaced: Replacements,
}

impl Reader<'_> {
    /// `None`: not to be taken apart, or nothing that PostgreSQL would be needed for.
    pub fn with_last_step(&self, query: &GroupedQuery<'_, '_>) -> Option<Merge> {
        let outline = self.outline.as_ref()?;
        let (select, block) = (query.select, query.block);
        let is_plain = query.is_complete && query.outputs.len() == outline.targets.len() && !select.group_distinct;
        let is_distinct = match block.distinct {
            Distinct::None => false,
            Distinct::Rows => true,
            Distinct::On(_) => return None,
        };
        // Rows of the last step are told apart bytewise.
        let is_deterministic = || query.outputs.iter().all(|output| output.properties.is_deterministic);
        if is_distinct && !is_deterministic() {
            return None;
        }
        if !is_plain || block.is_locking || block.subqueries.len() > block.row_subquery_count {
            return None;
        }
        let mut making = Making {
            query,
            groups: GroupsInTheMaking::new(query.outputs.len()),
            uses: Vec::new(),
            grouped: Vec::new(),
            collations: Vec::new(),
            replaced: Vec::new(),
        };
        // Whole targets are known by their places; the others wait for the keys.
        let mut whole = Vec::with_capacity(outline.targets.len());
        for (target, range) in select.target_list().iter().zip(&outline.targets) {
            let is_mixed = matches!(self.part(target.val(), query.frame), Part::Mixed);
            whole.push(!is_mixed);
            let combination = if is_mixed {
                // The shards have nothing to say to it.
                making.groups.assembly.splice(range.clone(), "NULL".to_owned());
                Combination::First
            } else {
                self.visible_column(target, range, query.frame, &mut making.groups).ok()?
            };
            making.groups.groups.columns.push(combination);
            making.collations.push(self.collation_of(target.val(), query.frame));
        }
        self.keys(query, &outline.group_items, &mut making.groups).ok()?;
        making.grouped = self.grouped_columns(query, &making.groups)?;
        let mut hidden = Vec::new();
        for &(column, index) in making.grouped.iter().filter(|(_, index)| *index >= whole.len()) {
            let leaf = self.leaves.get(column.leaf);
            hidden.push((index, leaf.and_then(|leaf| leaf.collation(column.index)).map(str::to_owned)));
        }
        hidden.into_iter().for_each(|(index, collation)| making.set_collation(index, collation));
        let targets = self.last_targets(&mut making, &whole)?;
        let having = self.having(query)?;
        let filter = self.last_filter(&having, &mut making)?;
        self.last_order(&mut making, &whole)?;
        for window in select.window_clause() {
            self.replace_inside(window, &mut making)?;
        }
        let tail = self.replaced(outline.after_having.clone(), &making.replaced)?;
        let (dropped, kept) = match (having.groups.is_empty(), having.rows.as_slice()) {
            (true, _) => (outline.after_having.clone(), String::new()),
            (false, []) => (outline.tail.clone(), String::new()),
            (false, rows) => {
                let rows: Vec<&str> = rows.iter().map(|range| self.text.get(range.clone())).collect::<Option<_>>()?;
                (outline.tail.clone(), format!("HAVING {}", rows.join(" AND ")))
            }
        };
        making.groups.assembly.splice(dropped, kept);
        making.groups.groups.is_filtered = !having.groups.is_empty();
        let mut uses = making.uses;
        uses.resize(making.groups.assembly.columns(), ColumnUse::default());
        for (used, collation) in uses.iter_mut().zip(making.collations) {
            used.collation = collation;
        }
        let names: Vec<String> = (1..=uses.len()).map(|number| format!("c{number}")).collect();
        making.groups.groups.last_step = Some(LastStep {
            before: format!("SELECT {}{} FROM (", if is_distinct { "DISTINCT " } else { "" }, targets.join(", ")),
            after: format!(") AS {GROUPS} ({}){} {tail}", names.join(", "), filter.unwrap_or_default()),
            uses,
        });
        self.assembled(making.groups.finish()).ok()
    }

    /// Is it sorted by text in an order that the proxy does not know, and PostgreSQL can be told?
    pub fn sorts_by_known_collation(&self, query: &GroupedQuery<'_, '_>) -> bool {
        let targets: Vec<Node<'_>> = query.select.target_list().iter().map(nodes::ResTarget::val).collect();
        query.select.sort_clause().iter().zip(query.order).filter(|(_, item)| !item.order.text.is_bytewise).any(|(sort, item)| {
            let sorted = match &item.by {
                OrderBy::Output(index) => targets.get(*index).copied(),
                OrderBy::Hidden(_) => Some(sort.node()),
                OrderBy::Other => None,
            };
            sorted.is_some_and(|node| self.collation_of(node, query.frame).is_some())
        })
    }

    /// Of a table's column, or the least or greatest of one: what else is made of it may have another collation.
    fn collation_of(&self, node: Node<'_>, frame: &Frame<'_>) -> Option<String> {
        let node = match node {
            Node::FuncCall(call)
                if matches!(
                    self.part(node, frame),
                    Part::Aggregate(_, Aggregate::Combined(Combination::Minimum(_) | Combination::Maximum(_)))
                ) =>
            {
                call.args().first()?
            }
            node => node,
        };
        let column = self.column_of(node, frame)?;
        self.leaves.get(column.leaf)?.collation(column.index).map(str::to_owned)
    }

    /// The columns of GROUP BY that are plain, and where the shards' rows have them.
    fn grouped_columns(&self, query: &GroupedQuery<'_, '_>, groups: &GroupsInTheMaking) -> Option<Vec<(Column, usize)>> {
        let mut found = Vec::new();
        let mut keys = groups.groups.keys.iter();
        for item in query.select.group_clause() {
            let items: Vec<Node<'_>> = match item {
                Node::RowExpr(row) if row.row_format != nodes::CoercionForm::COERCE_EXPLICIT_CALL => row.args().iter().collect(),
                item => vec![item],
            };
            for item in items {
                let key = keys.next()?;
                let column = self.column_of(item, query.frame).or_else(|| {
                    let origin = query.outputs.get(key.column)?.origin.as_ref()?;
                    origin.function.is_none().then_some(origin.column)
                });
                found.extend(column.map(|column| (column, key.column)));
            }
        }
        Some(found)
    }

    fn last_targets(&self, making: &mut Making<'_, '_>, whole: &[bool]) -> Option<Vec<String>> {
        let outline = self.outline.as_ref()?;
        let query = making.query;
        let mut targets = Vec::with_capacity(whole.len());
        for (index, (target, range)) in query.select.target_list().iter().zip(&outline.targets).enumerate() {
            let name = target.name().map_or_else(|| column_name(target.val()), str::to_owned);
            let alias = format!("AS {}", quoted_identifier(&name));
            if whole.get(index).copied()? {
                targets.push(format!("{} {alias}", column(index)));
                continue;
            }
            self.replace_inside(target.val(), making)?;
            let text = self.replaced(range.clone(), &making.replaced)?;
            targets.push(if target.name().is_some() { text } else { format!("{text} {alias}") });
        }
        Some(targets)
    }

    /// What HAVING says of whole groups, as the WHERE of the last step.
    fn last_filter(&self, having: &Having<'_>, making: &mut Making<'_, '_>) -> Option<Option<String>> {
        let mut conjuncts = Vec::with_capacity(having.groups.len());
        for (conjunct, range) in &having.groups {
            self.replace_inside(*conjunct, making)?;
            conjuncts.push(self.replaced(range.clone(), &making.replaced)?);
        }
        Some((!conjuncts.is_empty()).then(|| format!(" WHERE {}", conjuncts.join(" AND "))))
    }

    /// ORDER BY: numbers and names of outputs stay; columns and expressions become columns of the groups.
    fn last_order(&self, making: &mut Making<'_, '_>, whole: &[bool]) -> Option<()> {
        let query = making.query;
        let ranges = self.outline.as_ref()?.order_items.as_slice();
        for ((sort, item), range) in query.select.sort_clause().iter().zip(query.order).zip(ranges) {
            match &item.by {
                OrderBy::Output(index) => {
                    if whole.get(*index).copied()? {
                        making.sort_by(*index, item.order.text.is_bytewise);
                    }
                    if !names_output(sort.node(), query) {
                        // The output's own column by another name.
                        if !whole.get(*index).copied()? {
                            return None;
                        }
                        making.replaced.push((range.clone(), collated(sort.node(), column(*index))?));
                    }
                }
                OrderBy::Hidden(sql) => match self.part(sort.node(), query.frame) {
                    Part::Mixed => self.replace_inside(sort.node(), making)?,
                    Part::Plain | Part::Aggregate(..) => {
                        let index = self.sorted_column(sort.node(), sql, query.frame, &mut making.groups).ok()?;
                        making.sort_by(index, item.order.text.is_bytewise);
                        making.set_collation(index, self.collation_of(sort.node(), query.frame));
                        making.replaced.push((range.clone(), collated(sort.node(), column(index))?));
                    }
                },
                OrderBy::Other => return None,
            }
        }
        Some(())
    }

    /// Replaces the aggregates and the grouped columns of an expression.
    fn replace_inside(&self, node: Node<'_>, making: &mut Making<'_, '_>) -> Option<()> {
        let frame = making.query.frame;
        let mut is_possible = true;
        tree::walk(node, &mut |node| {
            let found = match node {
                Node::FuncCall(call) if call.over().is_none() && self.is_aggregate_call(call, frame) => {
                    match self.part(node, frame) {
                        Part::Aggregate(call, aggregate) => {
                            let found = self.call_text(call).zip(self.hidden_aggregate(call, aggregate, &mut making.groups));
                            if let Some((_, index)) = found {
                                making.set_collation(index, self.collation_of(node, frame));
                            }
                            found.map(|(text, index)| (text.name.start..text.end, index))
                        }
                        Part::Plain | Part::Mixed => None,
                    }
                }
                Node::ColumnRef(reference) => {
                    let grouped = self.column_of(node, frame);
                    let index = making.grouped.iter().find(|(column, _)| Some(*column) == grouped).map(|(_, index)| *index);
                    self.name_text(reference).zip(index)
                }
                Node::SubLink(_) | Node::GroupingFunc(_) | Node::JsonObjectAgg(_) | Node::JsonArrayAgg(_) => None,
                other => {
                    is_possible &= tree::is_known(other);
                    return is_possible;
                }
            };
            match found {
                Some((range, index)) => {
                    making.compute_with(index);
                    making.replaced.push((range, column(index)));
                }
                None => is_possible = false,
            }
            false
        });
        is_possible.then_some(())
    }

    /// Where a column reference stands: names and dots.
    fn name_text(&self, reference: &nodes::ColumnRef) -> Option<Range<usize>> {
        let start = usize::try_from(reference.location).ok()?;
        let mut end = start;
        let mut names = 0;
        let mut is_name_next = true;
        let rest = self.text.get(start..)?;
        for token in lexer::tokens(rest).filter(|token| token.kind != TokenKind::Comment) {
            let is_dot = rest.get(token.start..token.end)? == ".";
            let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedIdentifier);
            match (is_name_next, is_name, is_dot) {
                (true, true, _) => names += 1,
                (false, _, true) => {}
                _ => break,
            }
            if !is_dot {
                end = start + token.end;
            }
            is_name_next = !is_name_next;
        }
        (names == reference.fields().len()).then_some(start..end)
    }

    /// A piece of the text with what is in it replaced.
    fn replaced(&self, range: Range<usize>, replaced: &Replacements) -> Option<String> {
        let mut inside: Vec<&(Range<usize>, String)> =
            replaced.iter().filter(|(piece, _)| range.start <= piece.start && piece.end <= range.end).collect();
        inside.sort_by_key(|(piece, _)| piece.start);
        let mut text = String::new();
        let mut position = range.start;
        let mut starts = HashSet::new();
        for (piece, with) in inside {
            if !starts.insert(piece.start) {
                continue;
            }
            text.push_str(self.text.get(position..piece.start)?);
            text.push_str(with);
            position = piece.end;
        }
        text.push_str(self.text.get(position..range.end)?);
        Some(text)
    }
}

impl Making<'_, '_> {
    fn use_of(&mut self, index: usize) -> Option<&mut ColumnUse> {
        if self.uses.len() <= index {
            self.uses.resize(index + 1, ColumnUse::default());
        }
        self.uses.get_mut(index)
    }

    fn sort_by(&mut self, index: usize, is_bytewise: bool) {
        if let Some(known) = self.use_of(index) {
            known.is_bytewise = is_bytewise && (known.is_bytewise || !known.is_sorted);
            known.is_sorted = true;
        }
    }

    fn set_collation(&mut self, index: usize, collation: Option<String>) {
        if self.collations.len() <= index {
            self.collations.resize(index + 1, None);
        }
        if let Some(known) = self.collations.get_mut(index) {
            *known = collation;
        }
    }

    fn compute_with(&mut self, index: usize) {
        if let Some(known) = self.use_of(index) {
            known.is_computed = true;
        }
    }
}

/// An item of ORDER BY that means an output by its number or its name.
fn names_output(node: Node<'_>, query: &GroupedQuery<'_, '_>) -> bool {
    match node {
        Node::A_Const(_) => true,
        Node::ColumnRef(reference) => {
            tree::single_name(reference.fields()).is_some_and(|name| query.outputs.iter().any(|output| output.name == name))
        }
        _ => false,
    }
}

/// With the collation that the item names: the column has its own. `None`: the name cannot be read.
fn collated(item: Node<'_>, column: String) -> Option<String> {
    let Node::CollateClause(collate) = item else { return Some(column) };
    let names: Vec<String> = tree::names(collate.collname())?.into_iter().map(quoted_identifier).collect();
    Some(format!("{column} COLLATE {}", names.join(".")))
}

fn column(index: usize) -> String {
    format!("{GROUPS}.c{}", index + 1)
}
