//! Conditions that PostgreSQL evaluates for rows although they stand above the groups that it makes of them.
//!
//! Of values that are equal and do not look alike (`1.0` and `1.00`, `'1 mon'` and `'30 days'`) a group shows one. A condition that
//! can tell them apart does not say the same of rows as of groups. PostgreSQL's planner evaluates it for rows where it may:
//!
//! * The conjuncts of HAVING without aggregates, volatile functions and sub-selects become part of WHERE, unless there are grouping
//!   sets (`subquery_planner` in planner.c). PostgreSQL 18 moves some conjuncts above grouping sets too.
//! * A condition on the columns by which a sub-select, a view or a query of WITH groups, drops duplicates or partitions its windows
//!   moves into it (`subquery_is_pushdown_safe` and `qual_is_pushdown_safe` in allpaths.c).
//!
//! A shard does so with the text that it gets. So the first kind stays in the shards' text, and the second is in one text with
//! the query that it is about: rows that show one of several equal values ([`Notes::shows_one_of_equals`]) are not made apart from
//! conditions that may tell these apart.
//!
//! [`Notes::shows_one_of_equals`]: crate::sql::notes::Notes::shows_one_of_equals

use std::ops::Range;

use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

use super::aggregate::{GroupedQuery, Part};
use super::bind::Reader;
use super::catalog_functions::{self, Nature};
use super::found_first::{Level, has_duplicates_dropped};
use super::scope::Frame;
use super::{Bound, Distinct, Grouping};
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;

/// The conjuncts of HAVING, with their places in the text.
#[derive(Default)]
pub struct Having<'n> {
    /// About the rows of a group: PostgreSQL makes them part of WHERE.
    pub rows: Vec<Range<usize>>,
    /// About a whole group.
    pub groups: Vec<(Node<'n>, Range<usize>)>,
}

impl Reader<'_> {
    /// `None`: what PostgreSQL makes part of WHERE cannot be told.
    pub fn having<'n>(&self, query: &GroupedQuery<'_, 'n>) -> Option<Having<'n>> {
        let mut having = Having::default();
        let condition = query.select.having_clause();
        if matches!(condition, Node::None) {
            return Some(having);
        }
        let conjuncts = conjuncts_of(condition);
        let tokens = Tokens::of(self.text);
        let ranges = self.outline.as_ref()?.having.as_ref().and_then(|range| conjunct_ranges(&tokens, range))?;
        if ranges.len() != conjuncts.len() || !ranges.iter().zip(&conjuncts).all(|(range, conjunct)| is_within(*conjunct, range)) {
            return None;
        }
        for (conjunct, range) in conjuncts.into_iter().zip(ranges) {
            match self.part(conjunct, query.frame) {
                // Without GROUP BY it decides whether rows are looked at at all, and about the one group too.
                Part::Plain if query.select.group_clause().is_empty() || !self.becomes_where(conjunct, query.frame) => return None,
                Part::Plain => having.rows.push(range),
                Part::Aggregate(..) | Part::Mixed if self.stays_whole(conjunct, query) => having.groups.push((conjunct, range)),
                Part::Aggregate(..) | Part::Mixed => return None,
            }
        }
        Some(having)
    }

    /// PostgreSQL makes a conjunct without aggregates part of WHERE: nothing in it is volatile.
    fn becomes_where(&self, conjunct: Node<'_>, frame: &Frame<'_>) -> bool {
        let mut is_moved = true;
        tree::walk(conjunct, &mut |node| {
            is_moved &= match node {
                Node::FuncCall(call) => match self.catalog_function(call, frame) {
                    Some(name) => matches!(catalog_functions::nature(name, call.args().len()), Nature::Plain | Nature::Clock),
                    None => self.is_known_not_volatile(call, frame),
                },
                Node::A_Expr(e) => {
                    let name = e.name().iter().next_back().and_then(Node::as_str).unwrap_or_default();
                    !self.context.catalog.operator_functions.contains_key(name)
                }
                Node::TypeCast(cast) => self.cast_type(cast).is_some(),
                Node::SubLink(_) => false,
                other => tree::is_known(other),
            };
            is_moved
        });
        is_moved
    }

    fn is_known_not_volatile(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> bool {
        let found = self.functions_of_users(call, frame);
        !found.is_empty() && found.iter().all(|function| function.volatility != 'v')
    }

    /// The planner takes nothing without aggregates out of a conjunct that has some: it opens NOT over AND and OR, and takes out
    /// what all branches of an OR have in common.
    fn stays_whole(&self, conjunct: Node<'_>, query: &GroupedQuery<'_, '_>) -> bool {
        let Node::BoolExpr(e) = conjunct else { return true };
        let mut branches: Vec<Node<'_>> = e.args().iter().collect();
        match e.boolop {
            nodes::BoolExprType::OR_EXPR => {
                while let Some(branch) = branches.pop() {
                    match branch {
                        Node::BoolExpr(inner) if inner.boolop == nodes::BoolExprType::OR_EXPR => {
                            branches.extend(inner.args().iter())
                        }
                        Node::BoolExpr(_) => {}
                        branch if !matches!(self.part(branch, query.frame), Part::Plain) => return true,
                        _ => {}
                    }
                }
                false
            }
            nodes::BoolExprType::NOT_EXPR => !branches.iter().any(|branch| matches!(branch, Node::BoolExpr(_))),
            _ => false,
        }
    }

    /// Notes whether the level shows one of several values that are equal and do not look alike, in a column that a condition
    /// from outside may be about.
    pub fn note_shown_equals(&mut self, level: &Level<'_, '_>) {
        // PostgreSQL moves no condition below LIMIT.
        self.notes.shows_one_of_equals |= !level.block.has_limit && self.shows_equals(level);
    }

    fn shows_equals(&self, level: &Level<'_, '_>) -> bool {
        let select = level.select;
        let look_alike = || level.is_complete && level.outputs.iter().all(|output| output.properties.has_equal_image);
        let of_distinct = match level.block.distinct {
            Distinct::None => false,
            Distinct::Rows => !look_alike(),
            Distinct::On(_) => !select.distinct_clause().iter().all(|item| self.item_looks_alike(item, level, false)),
        };
        let of_groups = || {
            matches!(level.block.grouping, Grouping::By(_) | Grouping::Sets)
                && !self.groups_look_alike(level)
                && select.target_list().iter().any(|target| self.shows_column(target.val(), level))
        };
        of_distinct || of_groups() || self.has_window_of_equals(level)
    }

    /// PARTITION BY of any window.
    fn has_window_of_equals(&self, level: &Level<'_, '_>) -> bool {
        let mut has_equals = false;
        let mut visit = |node: Node<'_>| {
            tree::walk(node, &mut |node| {
                let window = match node {
                    Node::FuncCall(call) => call.over(),
                    Node::WindowDef(window) => Some(window),
                    _ => None,
                };
                let mut partition = window.into_iter().flat_map(|window| window.partition_clause().iter());
                has_equals |= partition.any(|item| !self.value_has_equal_image(item, level.frame));
                !has_equals
            });
        };
        level.select.target_list().iter().map(nodes::ResTarget::val).for_each(&mut visit);
        level.select.window_clause().iter().for_each(&mut visit);
        has_equals
    }

    /// The same of UNION, INTERSECT and EXCEPT.
    pub fn note_shown_equals_of_set(&mut self, bound: &Bound, has_limit: bool) {
        let look_alike = bound.is_complete && bound.outputs.iter().all(|output| output.properties.has_equal_image);
        self.notes.shows_one_of_equals |= !has_limit && !look_alike && has_duplicates_dropped(&bound.body);
    }
}

/// Those of ANDs within it too.
fn conjuncts_of(condition: Node<'_>) -> Vec<Node<'_>> {
    let mut conjuncts = Vec::new();
    let mut waiting = vec![condition];
    while let Some(node) = waiting.pop() {
        match node {
            Node::BoolExpr(e) if e.boolop == nodes::BoolExprType::AND_EXPR => {
                let args: Vec<Node<'_>> = e.args().iter().collect();
                waiting.extend(args.into_iter().rev());
            }
            node => conjuncts.push(node),
        }
    }
    conjuncts
}

/// The pieces of a condition that AND parts, those in parentheses too.
fn conjunct_ranges(tokens: &Tokens<'_>, range: &Range<usize>) -> Option<Vec<Range<usize>>> {
    let first = tokens.at(range.start)?;
    let end = (first..=tokens.count()).find(|index| tokens.get(*index).is_none_or(|token| token.start >= range.end))?;
    let mut pieces = Vec::new();
    let mut waiting = vec![(first, end)];
    while let Some((first, end)) = waiting.pop() {
        let parted = parted(tokens, first, end)?;
        match parted.as_slice() {
            [_] if tokens.closing(first).is_some_and(|close| close + 1 == end) && parted_inside(tokens, first, end) => {
                waiting.push((first + 1, end - 1));
            }
            [_] => pieces.push(tokens.range(first, end.checked_sub(1)?)?),
            several => waiting.extend(several.iter().rev()),
        }
    }
    Some(pieces)
}

/// What stands in the parentheses is more than one conjunct, perhaps in parentheses again.
fn parted_inside(tokens: &Tokens<'_>, first: usize, end: usize) -> bool {
    let (mut first, mut end) = (first, end);
    while tokens.closing(first).is_some_and(|close| close + 1 == end) {
        (first, end) = (first + 1, end - 1);
        if parted(tokens, first, end).is_some_and(|pieces| pieces.len() > 1) {
            return true;
        }
    }
    false
}

/// The pieces between the ANDs of these tokens, without those of BETWEEN and CASE. One piece where there is an OR.
fn parted(tokens: &Tokens<'_>, first: usize, end: usize) -> Option<Vec<(usize, usize)>> {
    let mut pieces = Vec::new();
    let (mut start, mut index, mut cases, mut betweens) = (first, first, 0_usize, 0_usize);
    while index < end {
        let is_name = index.checked_sub(1).is_some_and(|before| tokens.piece(before) == ".");
        match tokens.piece(index) {
            "(" | "[" => index = tokens.closing(index)?,
            _ if is_name => {}
            _ if tokens.is_word(index, "case") => cases += 1,
            _ if tokens.is_word(index, "end") => cases = cases.checked_sub(1)?,
            _ if cases > 0 => {}
            _ if tokens.is_word(index, "between") => betweens += 1,
            _ if tokens.is_word(index, "or") => return Some(vec![(first, end)]),
            _ if tokens.is_word(index, "and") && betweens > 0 => betweens -= 1,
            _ if tokens.is_word(index, "and") => {
                pieces.push((start, index));
                start = index + 1;
            }
            _ => {}
        }
        index += 1;
    }
    pieces.push((start, end));
    Some(pieces)
}

/// What the parser says where it is, is there.
fn is_within(conjunct: Node<'_>, range: &Range<usize>) -> bool {
    let mut is_within = true;
    tree::walk(conjunct, &mut |node| {
        let location = match node {
            Node::ColumnRef(column) => column.location,
            Node::FuncCall(call) => call.location,
            Node::A_Const(constant) => constant.location,
            Node::ParamRef(parameter) => parameter.location,
            Node::A_Expr(e) => e.location,
            _ => return true,
        };
        // What the grammar has made of other words has no place.
        is_within &= usize::try_from(location).map_or(true, |location| range.contains(&location));
        is_within
    });
    is_within
}

/// The conditions of a statement, those of its sub-selects too, ask of values nothing but how they compare.
pub fn conditions_only_compare(statement: Node<'_>) -> bool {
    let mut waiting = Vec::new();
    let mut parts = vec![statement];
    while let Some(part) = parts.pop() {
        match part {
            Node::SelectStmt(select) => waiting.extend([select.where_clause(), select.having_clause()]),
            Node::UpdateStmt(update) => waiting.push(update.where_clause()),
            Node::DeleteStmt(delete) => waiting.push(delete.where_clause()),
            Node::MergeStmt(merge) => waiting.push(merge.join_condition()),
            Node::JoinExpr(join) => waiting.push(join.quals()),
            _ => {}
        }
        walk_manual::<()>(part, |child| {
            parts.push(child);
            Recurse::no()
        });
    }
    while let Some(condition) = waiting.pop() {
        match condition {
            Node::BoolExpr(e) => waiting.extend(e.args().iter()),
            // Its own conditions are among these.
            Node::SubLink(sublink) => waiting.push(sublink.testexpr()),
            Node::None => {}
            condition if only_compares(condition) => {}
            _ => return false,
        }
    }
    true
}

/// It asks of values nothing but how they compare.
pub(super) fn only_compares(condition: Node<'_>) -> bool {
    let mut is_such = true;
    tree::walk(condition, &mut |node| {
        let is_inside_looked_at = match node {
            Node::BoolExpr(_)
            | Node::NullTest(_)
            | Node::BooleanTest(_)
            | Node::ColumnRef(_)
            | Node::A_Const(_)
            | Node::RowExpr(_)
            | Node::ParamRef(_) => true,
            Node::A_Expr(e) => {
                let is_kind = !matches!(
                    e.kind,
                    nodes::A_Expr_Kind::AEXPR_LIKE | nodes::A_Expr_Kind::AEXPR_ILIKE | nodes::A_Expr_Kind::AEXPR_SIMILAR
                );
                let is_comparison =
                    tree::single_name(e.name()).is_some_and(|name| COMPARISONS.contains(&name) || name.starts_with("BETWEEN"));
                is_kind && is_comparison
            }
            // Of a constant only. As text some values that are equal differ.
            Node::TypeCast(cast) => {
                let name = cast.type_name().and_then(|name| name.names().iter().filter_map(|part| part.sval()).next_back());
                matches!(cast.arg(), Node::A_Const(_) | Node::ParamRef(_)) && name.is_some_and(|name| !TEXTS.contains(&name))
            }
            other => other.as_node_list().is_some(),
        };
        is_such &= is_inside_looked_at;
        is_such
    });
    is_such
}

const COMPARISONS: [&str; 7] = ["=", "<>", "<", ">", "<=", ">=", "!="];
const TEXTS: [&str; 5] = ["text", "varchar", "bpchar", "name", "char"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;

    #[test]
    fn a_condition_is_parted_where_postgresql_parts_it() {
        for (condition, pieces) in [
            ("a = 1", vec!["a = 1"]),
            ("a AND b", vec!["a", "b"]),
            ("(a AND (b)) AND c", vec!["a", "(b)", "c"]),
            ("((a and b))", vec!["a", "b"]),
            ("a BETWEEN 1 AND 2 AND b", vec!["a BETWEEN 1 AND 2", "b"]),
            ("CASE WHEN a AND b THEN c AND d END AND e", vec!["CASE WHEN a AND b THEN c AND d END", "e"]),
            ("a AND b OR c", vec!["a AND b OR c"]),
            ("(a OR b) AND f(c AND d)", vec!["(a OR b)", "f(c AND d)"]),
            ("NOT a AND t.end", vec!["NOT a", "t.end"]),
        ] {
            let tokens = Tokens::of(condition);
            let found = conjunct_ranges(&tokens, &(0..condition.len())).expect(condition);
            let found: Vec<&str> = found.into_iter().map(|range| &condition[range]).collect();
            assert_eq!(found, pieces, "{condition}");
        }
    }

    #[test]
    fn what_looks_at_more_than_how_values_compare_is_seen_wherever_it_stands() {
        let only_compare = |text: &str| {
            let tree = parse::parse(text).expect(text);
            conditions_only_compare(tree.stmts().next().expect("a statement"))
        };
        for text in [
            "DELETE FROM t USING u WHERE t.n = u.n AND u.at >= date '2024-01-01'",
            "DELETE FROM t WHERE n IN (SELECT n FROM u WHERE n > 5) OR EXISTS (SELECT 1 FROM u JOIN v ON u.a = v.a)",
            "UPDATE t SET x = u.n::text FROM u WHERE t.k = u.k",
        ] {
            assert!(only_compare(text), "{text}");
        }
        for text in [
            "DELETE FROM t USING u WHERE t.n = u.n AND u.n::text = '1.0'",
            "WITH w AS (SELECT n FROM u WHERE scale(n) = 2) DELETE FROM t USING w WHERE w.n = t.n",
            "DELETE FROM t WHERE n IN (SELECT n FROM u JOIN v ON u.n::text = v.s)",
            "UPDATE t SET x = 1 FROM u WHERE u.s LIKE 'a%'",
            "DELETE FROM t USING u WHERE u.c = 'a'::text",
        ] {
            assert!(!only_compare(text), "{text}");
        }
    }
}
