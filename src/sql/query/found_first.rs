//! Queries inside a statement whose answer hangs on which rows of a reference table are found first.
//!
//! The copies have the same rows in places of their own. `LIMIT 1` without an order, the order of `array_agg`, the first row of
//! DISTINCT ON: a shard's own answer is as good as any other, but several shards must not give several answers in one statement.
//! So such a query is evaluated once, unless what it finds is determined: by equalities with a whole unique key, by an order that
//! has one, or because the rows that could be exchanged look alike ([`super::equal_image`]). For the same reason DISTINCT, GROUP BY,
//! UNION and `min` are evaluated once where they show one of several values that are equal and do not look alike.

use std::collections::HashSet;

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::leaves::{Columns, Leaf, LeafKind};
use super::pushed_conditions::only_compares;
use super::scope::{Frame, Resolution};
use super::select_list::ordinal;
use super::{
    Block, Body, Bound, Column, ColumnProperties, Distinct, FromItem, Grouping, Join, OrderBy, OrderItem, Output, Predicate,
    SetOperation, Term,
};
use crate::catalog::RelationKind;
use crate::error::PgError;
use crate::shard_key::{Oid, oid};
use crate::sql::notes::Notes;
use crate::sql::parse::tree;

/// What a query is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    #[default]
    Rows,
    /// Only whether it has rows counts.
    Existence,
    /// Its rows are compared, by `=`.
    Membership,
    /// Its rows make an array, in their order.
    Array,
    /// Only its first row counts.
    First,
}

/// `column = value`, and the columns of the same query level that the value is made of.
struct Equality {
    column: Column,
    needs: Vec<Column>,
}

/// What is known of the rows of one level.
pub struct Known {
    equalities: Vec<Equality>,
    /// Columns that have one value in all rows, as far as equalities say it.
    fixed: HashSet<Column>,
}

/// One query level, read.
pub struct Level<'l, 'n> {
    pub select: &'n nodes::SelectStmt,
    pub frame: &'l Frame<'l>,
    pub block: &'l Block,
    pub outputs: &'l [Output],
    pub is_complete: bool,
    pub order: &'l [OrderItem],
    /// Its leaves and those of queries in its FROM.
    pub leaves: std::ops::Range<usize>,
}

impl Notes {
    fn finds_first(&mut self, what: &str) {
        self.finds_first = true;
        self.not_pushable(found_first(what));
    }
}

impl Reader<'_> {
    /// It has rows of reference tables, and no others.
    fn reads_copies_only(&self, leaves: std::ops::Range<usize>) -> bool {
        let leaves = self.leaves.get(leaves).unwrap_or_default();
        // Rows of functions are counted among those that every shard has, and are in one order.
        let is_table = |leaf: &Leaf<'_>| matches!((&leaf.kind, &leaf.columns), (LeafKind::Replicated, Columns::Relation(_)));
        leaves.iter().any(is_table) && leaves.iter().all(|leaf| matches!(leaf.kind, LeafKind::Replicated | LeafKind::Derived))
    }

    /// Not for several shards, if they may find other rows first.
    pub fn note_found_first(&mut self, level: &Level<'_, '_>, asked: Asked) {
        if asked == Asked::Existence || !self.reads_copies_only(level.leaves.clone()) {
            return;
        }
        let known = self.known_of(level);
        let is_single_group = matches!(level.block.grouping, Grouping::Whole);
        let leaves_out = self.leaves_out_rows(level.select) || asked == Asked::First;
        let first = if leaves_out && !is_single_group && !self.has_total_order(level, &known, asked) {
            Some("LIMIT")
        } else if matches!(level.block.distinct, Distinct::On(_)) && !self.has_total_order(level, &known, asked) {
            Some("DISTINCT ON")
        } else if matches!(level.block.distinct, Distinct::Rows) && self.has_distinct_equals(level, &known, asked) {
            Some("DISTINCT")
        } else if self.shows_equals_of_group(level, &known, asked) {
            Some("GROUP BY")
        } else if !self.has_unique_key(level, &known.fixed) && self.has_unordered_window(level, &known) {
            Some("a window function")
        } else if asked == Asked::Array && !is_single_group && !self.has_total_order(level, &known, asked) {
            Some("ARRAY")
        } else if self.has_unordered_aggregate(level, &known) {
            Some("an aggregate")
        } else {
            None
        };
        if let Some(what) = first {
            self.notes.finds_first(what);
        }
    }

    /// LIMIT of a set operation, and which of equal rows it shows.
    pub fn note_found_first_of_set(
        &mut self,
        select: &nodes::SelectStmt,
        bound: &Bound,
        leaves: std::ops::Range<usize>,
        asked: Asked,
    ) {
        if asked == Asked::Existence || !self.reads_copies_only(leaves) {
            return;
        }
        let look_alike = bound.is_complete && bound.outputs.iter().all(|output| is_told(output, asked));
        if has_duplicates_dropped(&bound.body) && !look_alike {
            self.notes.finds_first(DROPPED);
        } else if !(look_alike && sorts_by_all(&bound.outputs, &bound.order))
            && (matches!(asked, Asked::Array | Asked::First) || self.leaves_out_rows(select))
        {
            self.notes.finds_first("LIMIT");
        }
    }

    /// UNION of WITH RECURSIVE.
    pub fn note_equals_of_union(&mut self, bound: &Bound, leaves: std::ops::Range<usize>) {
        let look_alike = bound.is_complete && bound.outputs.iter().all(|output| output.properties.has_equal_image);
        if !look_alike && self.reads_copies_only(leaves) {
            self.notes.finds_first(DROPPED);
        }
    }

    /// DISTINCT drops rows that are equal and do not look alike.
    fn has_distinct_equals(&self, level: &Level<'_, '_>, known: &Known, asked: Asked) -> bool {
        if level.is_complete && level.outputs.iter().all(|output| self.is_one_value(output, level) || is_told(output, asked)) {
            return false;
        }
        let columns = level.outputs.iter().filter_map(column_of).filter(|column| level.leaves.contains(&column.leaf));
        !matches!(level.block.grouping, Grouping::None) || !self.has_unique_key(level, &self.determined(level, known, columns))
    }

    /// What is not of this level is one value for all of its rows.
    fn is_one_value(&self, output: &Output, level: &Level<'_, '_>) -> bool {
        column_of(output).is_some_and(|column| !level.leaves.contains(&column.leaf))
    }

    /// Groups of rows that are equal and do not look alike, of which one is shown.
    fn shows_equals_of_group(&self, level: &Level<'_, '_>, known: &Known, asked: Asked) -> bool {
        if !matches!(level.block.grouping, Grouping::By(_) | Grouping::Sets) {
            return false;
        }
        let select = level.select;
        if self.groups_look_alike(level) {
            return false;
        }
        let columns = select.group_clause().iter().filter_map(|item| self.own_column(item, level));
        if matches!(level.block.grouping, Grouping::By(_)) && self.has_unique_key(level, &self.determined(level, known, columns)) {
            return false;
        }
        // The values by which the groups are made are shown by themselves, or as part of an expression.
        let is_compared = |node: Node<'_>| asked == Asked::Membership && matches!(node, Node::ColumnRef(_));
        let targets = select.target_list().iter().map(nodes::ResTarget::val).filter(|target| !is_compared(*target));
        let sorts = select.sort_clause().iter().map(nodes::SortBy::node).filter(|node| !matches!(node, Node::ColumnRef(_)));
        let having = Some(select.having_clause()).filter(|having| !only_compares(*having));
        targets.chain(sorts).chain(having).any(|node| self.shows_column(node, level))
    }

    /// Values by which the rows are grouped are equal only where they look alike.
    pub fn groups_look_alike(&self, level: &Level<'_, '_>) -> bool {
        level.select.group_clause().iter().flat_map(expressions_of).all(|item| self.item_looks_alike(item, level, true))
    }

    /// The same of one item of GROUP BY, or of DISTINCT ON, which takes a name for an output first.
    pub fn item_looks_alike(&self, item: Node<'_>, level: &Level<'_, '_>, inputs_first: bool) -> bool {
        match (ordinal(item), item) {
            (Some(index), _) => level.outputs.get(index).is_some_and(|output| output.properties.has_equal_image),
            (None, Node::ColumnRef(column)) => {
                let name = tree::single_name(column.fields());
                let found = level.outputs.iter().find(|output| name.is_some_and(|name| output.name == name));
                match (self.own_column(item, level), found) {
                    (Some(column), output) if inputs_first || output.is_none() => self.properties(column).has_equal_image,
                    (_, Some(output)) => output.properties.has_equal_image,
                    (_, None) => self.value_has_equal_image(item, level.frame),
                }
            }
            (None, item) => self.value_has_equal_image(item, level.frame),
        }
    }

    /// A column of the level stands outside of aggregates.
    pub fn shows_column(&self, node: Node<'_>, level: &Level<'_, '_>) -> bool {
        let mut shows = false;
        tree::walk(node, &mut |node| {
            match node {
                Node::FuncCall(call) if call.over().is_none() && self.is_aggregate_call(call, level.frame) => return false,
                Node::ColumnRef(column) => {
                    let path = tree::names(column.fields());
                    shows |= path.is_none_or(|path| level.frame.resolves_here(&path, &self.leaves));
                }
                Node::SubLink(_) => shows = true,
                _ => {}
            }
            !shows
        });
        shows
    }

    fn known_of(&self, level: &Level<'_, '_>) -> Known {
        let mut conditions = vec![level.select.where_clause()];
        for item in level.select.from_clause() {
            inner_conditions(item, &mut conditions);
        }
        let mut equalities = Vec::new();
        level.block.from.iter().for_each(|item| merged_equalities(item, &mut equalities));
        while let Some(condition) = conditions.pop() {
            match condition {
                Node::BoolExpr(all) if all.boolop == nodes::BoolExprType::AND_EXPR => conditions.extend(all.args().iter()),
                Node::A_Expr(e)
                    if e.kind == nodes::A_Expr_Kind::AEXPR_OP
                        && matches!(tree::names(e.name()).as_deref(), Some(["="] | ["pg_catalog", "="])) =>
                {
                    equalities.extend(self.equality(e.lexpr(), e.rexpr(), level));
                    equalities.extend(self.equality(e.rexpr(), e.lexpr(), level));
                }
                _ => {}
            }
        }
        let known = Known { equalities, fixed: HashSet::new() };
        Known { fixed: self.determined(level, &known, []), ..known }
    }

    /// Rows that agree in `columns` agree in these too.
    pub fn determined(&self, level: &Level<'_, '_>, known: &Known, columns: impl IntoIterator<Item = Column>) -> HashSet<Column> {
        let mut found = known.fixed.clone();
        found.extend(columns);
        loop {
            let count = found.len();
            let is_determined = |equality: &&Equality| equality.needs.iter().all(|column| found.contains(column));
            let more: Vec<Column> = known.equalities.iter().filter(is_determined).map(|equality| equality.column).collect();
            found.extend(more);
            for place in level.leaves.clone().filter(|place| self.has_unique_key_of(*place, &found)).collect::<Vec<_>>() {
                let count = self.leaves.get(place).and_then(Leaf::column_count).unwrap_or_default();
                found.extend((0..count).map(|index| Column { leaf: place, index }));
            }
            if found.len() == count {
                return found;
            }
        }
    }

    fn equality(&self, side: Node<'_>, other: Node<'_>, level: &Level<'_, '_>) -> Option<Equality> {
        let column = self.own_column(side, level)?;
        let properties = self.properties(column);
        // As floating-point numbers several integers are equal, as char(n) several texts.
        let is_coarse =
            |type_oid: Oid| matches!(type_oid, 0 | oid::FLOAT4 | oid::FLOAT8 | oid::BPCHAR) && type_oid != properties.type_oid;
        let mut needs = Vec::new();
        let mut is_simple = self.operators_are_plain();
        tree::walk(other, &mut |node| {
            match node {
                Node::ColumnRef(_) => {
                    let compared = self.column_properties(node, level);
                    is_simple &= compared.map_or(self.is_body, |found| found.is_deterministic && !is_coarse(found.type_oid));
                    needs.extend(self.own_column(node, level));
                }
                Node::TypeCast(cast) => is_simple &= !self.is_coarse_cast(cast),
                // Another value each time, or for each row; another equality.
                Node::SubLink(_) | Node::FuncCall(_) | Node::CollateClause(_) => is_simple = false,
                _ => {}
            }
            is_simple
        });
        is_simple.then_some(Equality { column, needs })
    }

    /// What is not a column of this level is fixed: of a query around it, a parameter, a variable.
    pub fn own_column(&self, node: Node<'_>, level: &Level<'_, '_>) -> Option<Column> {
        let Node::ColumnRef(reference) = node else { return None };
        match level.frame.resolve(&tree::names(reference.fields())?, &self.leaves) {
            Resolution::Column(column) => Some(column).filter(|column| level.leaves.contains(&column.leaf)),
            Resolution::Unknown => None,
        }
    }

    fn is_coarse_cast(&self, cast: &nodes::TypeCast) -> bool {
        let name = cast.type_name().and_then(|name| name.names().iter().filter_map(|part| part.sval()).next_back());
        let is_domain = |name: &str| self.context.catalog.types.values().any(|known| known.kind == 'd' && known.name == name);
        name.is_none_or(|name| matches!(name, "float4" | "float8" | "bpchar") || is_domain(name))
    }

    fn column_properties(&self, node: Node<'_>, level: &Level<'_, '_>) -> Option<ColumnProperties> {
        let Node::ColumnRef(reference) = node else { return None };
        match level.frame.resolve(&tree::names(reference.fields())?, &self.leaves) {
            Resolution::Column(column) => Some(self.properties(column)),
            Resolution::Unknown => None,
        }
    }

    /// No two rows agree in these columns: they hold a unique key of each table.
    pub fn has_unique_key(&self, level: &Level<'_, '_>, columns: &HashSet<Column>) -> bool {
        level.leaves.clone().all(|place| self.has_unique_key_of(place, columns))
    }

    fn has_unique_key_of(&self, place: usize, columns: &HashSet<Column>) -> bool {
        let Some(leaf) = self.leaves.get(place) else { return false };
        let (LeafKind::Replicated, Columns::Relation(relation)) = (&leaf.kind, &leaf.columns) else { return false };
        if relation.kind == RelationKind::Table && !relation.children.is_empty() {
            // Rows of tables that inherit from it have keys of their own.
            return false;
        }
        let is_held = |name: &Option<String>| {
            let index = name.as_ref().and_then(|name| relation.columns.iter().position(|column| column.name == *name));
            index.is_some_and(|index| {
                let is_not_null = relation.columns.get(index).is_some_and(|column| column.is_not_null);
                is_not_null && columns.contains(&Column { leaf: place, index })
            })
        };
        relation.uniques.iter().any(|unique| {
            !unique.is_partial && !unique.is_exclusion && !unique.columns.is_empty() && unique.columns.iter().all(is_held)
        })
    }

    /// ORDER BY leaves no choice.
    fn has_total_order(&self, level: &Level<'_, '_>, known: &Known, asked: Asked) -> bool {
        let look_alike = level.outputs.iter().all(|output| is_told(output, asked));
        if level.is_complete && look_alike && sorts_by_all(level.outputs, level.order) {
            return true;
        }
        let targets = level.select.target_list().iter();
        if level.is_complete
            && targets.map(nodes::ResTarget::val).all(|value| matches!(value, Node::A_Const(_) | Node::ParamRef(_)))
        {
            return true;
        }
        let sorted = level.select.sort_clause().iter().zip(level.order).filter_map(|(sort, item)| {
            let output = match item.by {
                OrderBy::Output(index) => level.outputs.get(index).and_then(|output| output.origin.as_ref()),
                OrderBy::Hidden(_) | OrderBy::Other => None,
            };
            let column = output.filter(|origin| origin.function.is_none()).map(|origin| origin.column);
            column.or_else(|| self.own_column(sort.node(), level))
        });
        let columns = self.determined(level, known, sorted);
        match &level.block.grouping {
            Grouping::None => self.has_unique_key(level, &columns),
            Grouping::By(terms) => terms.len() == level.select.group_clause().len() && self.tells_groups_apart(terms, &columns),
            Grouping::Whole | Grouping::Sets => false,
        }
    }

    /// No two groups agree in these columns, and a group's values look alike.
    fn tells_groups_apart(&self, terms: &[Term], columns: &HashSet<Column>) -> bool {
        terms
            .iter()
            .all(|term| term.function.is_none() && columns.contains(&term.column) && self.properties(term.column).has_equal_image)
    }

    /// One that makes another value of the same rows in another order.
    fn has_unordered_aggregate(&self, level: &Level<'_, '_>, known: &Known) -> bool {
        let mut found = false;
        let targets = level.select.target_list().iter().map(nodes::ResTarget::val);
        let sorts = level.select.sort_clause().iter().map(nodes::SortBy::node);
        for node in targets.chain(sorts).chain([level.select.having_clause()]) {
            tree::walk(node, &mut |node| {
                found |= match node {
                    Node::FuncCall(call) if call.over().is_none() && self.is_aggregate_call(call, level.frame) => {
                        self.hangs_on_order(call, level, known)
                    }
                    Node::JsonObjectAgg(_) | Node::JsonArrayAgg(_) => !self.has_unique_key(level, &known.fixed),
                    _ => false,
                };
                !found
            });
        }
        found
    }

    fn hangs_on_order(&self, call: &nodes::FuncCall, level: &Level<'_, '_>, known: &Known) -> bool {
        let is_sorted_by_value = || {
            let (Some(sort), 1) = (call.agg_order().iter().next(), call.agg_order().len()) else { return false };
            let own = |node: Node<'_>| self.own_column(node, level);
            let look_alike = |column: &Column| self.properties(*column).has_equal_image;
            own(sort.node()).filter(look_alike).is_some_and(|sorted| {
                call.args().iter().all(|argument| matches!(argument, Node::A_Const(_)) || own(argument) == Some(sorted))
            })
        };
        if self.is_orderless(call, level.frame) || is_sorted_by_value() {
            return false;
        }
        let sorted = call.agg_order().iter().filter_map(|sort| self.own_column(sort.node(), level));
        !self.has_unique_key(level, &self.determined(level, known, sorted))
    }
}

/// A value of it can be exchanged for an equal one, and nobody sees that.
fn is_told(output: &Output, asked: Asked) -> bool {
    let is_number = matches!(output.properties.type_oid, oid::NUMERIC | oid::FLOAT4 | oid::FLOAT8);
    output.properties.has_equal_image || (asked == Asked::Membership && is_number)
}

fn column_of(output: &Output) -> Option<Column> {
    output.origin.as_ref().filter(|origin| origin.function.is_none()).map(|origin| origin.column)
}

/// An item of GROUP BY, or those in its sets.
fn expressions_of(item: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut items = vec![item];
    while let Some(item) = items.pop() {
        match item {
            Node::GroupingSet(set) => items.extend(set.content().iter()),
            Node::RowExpr(row) => items.extend(row.args().iter()),
            item => found.push(item),
        }
    }
    found
}

/// UNION, INTERSECT or EXCEPT somewhere in the chain. UNION ALL keeps every row.
pub fn has_duplicates_dropped(body: &Body) -> bool {
    match body {
        Body::SetOperation { operation: SetOperation::Union, is_all: true, left, right, .. } => {
            has_duplicates_dropped(&left.body) || has_duplicates_dropped(&right.body)
        }
        Body::SetOperation { .. } => true,
        _ => false,
    }
}

fn sorts_by_all(outputs: &[Output], order: &[OrderItem]) -> bool {
    (0..outputs.len()).all(|index| order.iter().any(|item| item.by == OrderBy::Output(index)))
}

/// What inner joins ask for.
fn inner_conditions<'n>(item: Node<'n>, conditions: &mut Vec<Node<'n>>) {
    if let Node::JoinExpr(join) = item
        && join.jointype == nodes::JoinType::JOIN_INNER
    {
        conditions.push(join.quals());
        inner_conditions(join.larg(), conditions);
        inner_conditions(join.rarg(), conditions);
    }
}

/// What the ON and USING of inner joins say is equal. A merged column is that of the left side.
fn merged_equalities(item: &FromItem, equalities: &mut Vec<Equality>) {
    let FromItem::Join { kind: Join::Inner, left, right, on, .. } = item else { return };
    for fact in on {
        if let Predicate::Same(one, other) = &**fact
            && one.function.is_none()
            && other.function.is_none()
        {
            equalities.push(Equality { column: one.column, needs: vec![other.column] });
            equalities.push(Equality { column: other.column, needs: vec![one.column] });
        }
    }
    merged_equalities(left, equalities);
    merged_equalities(right, equalities);
}

const DROPPED: &str = "UNION, INTERSECT or EXCEPT";

pub fn found_first(what: &str) -> PgError {
    PgError::unsupported(
        format!("{what} over a reference table is not supported here across shards"),
        "Which rows are found first differs from copy to copy, and so does which of several equal values is shown.",
        "Add an ORDER BY that ends with a unique key; cast what is equal but does not look alike to a type in which it does.",
    )
}

#[cfg(test)]
mod tests {
    use crate::sql::analysis::Scope;
    use crate::sql::{Analyzer, testing};

    /// Whether it may run on several shards as it is.
    fn is_pushed_down(text: &str) -> bool {
        let mut fixture = testing::library();
        fixture.table(
            "prices",
            "id int8, g int4, n numeric, p numeric10_2, f float8, ci text/ci, c5 char5, c bpchar, j jsonb, day date",
        );
        fixture.replicate("prices");
        for table in ["ref", "prices"] {
            fixture.primary_key(table, "id");
        }
        let context = fixture.context(&["public"], &[]);
        let analyzed = Analyzer::new().analyze(text, &context).unwrap();
        match &analyzed.statements[0].scope {
            Scope::Placed { pushdown, .. } => pushdown.is_ok(),
            Scope::Replicated => true,
            scope => panic!("{text}: {scope:?}"),
        }
    }

    #[test]
    fn what_several_copies_would_answer_each_in_its_way_is_asked_once() {
        for text in [
            "SELECT k, (SELECT name FROM ref LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref ORDER BY g LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref OFFSET 3) FROM t",
            "SELECT k, (SELECT name FROM ref OFFSET 0 LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref OFFSET $1) FROM t",
            "SELECT k FROM t WHERE x = (SELECT g FROM ref WHERE g = t.x LIMIT 1)",
            "SELECT k FROM t WHERE x IN (SELECT g FROM ref ORDER BY name LIMIT 3)",
            "SELECT k, (SELECT string_agg(name, ',') FROM ref) FROM t",
            "SELECT k, (SELECT array_agg(name ORDER BY g) FROM ref WHERE g = t.x) FROM t",
            "SELECT k, (SELECT jsonb_object_agg(g, name) FROM ref) FROM t",
            "SELECT t.k FROM t JOIN (SELECT DISTINCT ON (g) g, name FROM ref ORDER BY g) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, row_number() OVER (ORDER BY name) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, sum(id) OVER (ORDER BY name ROWS 2 PRECEDING) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, lag(name) OVER (PARTITION BY g) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, array_agg(name) OVER (ORDER BY g) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, ntile(2) OVER w n FROM ref WINDOW w AS (ORDER BY g)) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, sum(id) OVER w n FROM ref WINDOW w AS (ORDER BY g ROWS 1 PRECEDING)) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, row_number() OVER (ORDER BY g, id) n FROM ref GROUP BY ROLLUP (g, id)) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, rank() OVER (ORDER BY g) n FROM ref LIMIT 3) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT a.g FROM ref a JOIN ref b ON a.g = b.g WHERE a.id = 1 LIMIT 1) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g FROM ref a JOIN ref b USING (g) WHERE a.id = 1 LIMIT 1) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT a.g FROM ref a LEFT JOIN ref b USING (id) WHERE b.id = 1 LIMIT 1) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) n FROM ref GROUP BY g LIMIT 2) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) n FROM ref GROUP BY g, name ORDER BY g LIMIT 2) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) n FROM ref GROUP BY g ORDER BY count(*) LIMIT 2) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) n FROM ref GROUP BY g, g + id ORDER BY g LIMIT 2) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, array_agg(name) n FROM ref GROUP BY g ORDER BY g LIMIT 2) r ON r.g = t.x",
            "SELECT k FROM t UNION ALL (SELECT id FROM ref LIMIT 1)",
            "SELECT k, ARRAY(SELECT name FROM ref WHERE g = t.x) FROM t",
            "UPDATE t SET name = (SELECT name FROM ref LIMIT 1)",
            "DELETE FROM t WHERE x IN (SELECT g FROM ref ORDER BY name LIMIT 2)",
            "SELECT k FROM t WHERE x IN (SELECT id FROM ref UNION SELECT g FROM ref LIMIT 1)",
        ] {
            assert!(!is_pushed_down(text), "{text}");
        }
    }

    #[test]
    fn what_is_determined_is_asked_everywhere() {
        for text in [
            "SELECT k, (SELECT name FROM ref WHERE id = t.x LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref WHERE t.x = ref.id AND g > 3 LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref WHERE id = $1 LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref ORDER BY g, id LIMIT 1) FROM t",
            "SELECT k, (SELECT name FROM ref ORDER BY name DESC LIMIT 1) FROM t",
            "SELECT k, (SELECT string_agg(name, ',' ORDER BY id) FROM ref) FROM t",
            "SELECT k, (SELECT string_agg(name, ',' ORDER BY name) FROM ref) FROM t",
            "SELECT k, (SELECT array_agg(DISTINCT name) FROM ref) FROM t",
            "SELECT k, (SELECT count(*) FROM ref WHERE g = t.x LIMIT 1) FROM t",
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM ref WHERE g = t.x LIMIT 1)",
            "SELECT t.k FROM t JOIN (SELECT DISTINCT ON (g) g, name FROM ref ORDER BY g, id) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT b.g FROM ref a JOIN ref b ON a.g = b.id WHERE a.id = 1 LIMIT 1) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, rank() OVER (ORDER BY g) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) OVER () n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, sum(id) OVER (PARTITION BY name) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, sum(id) OVER (PARTITION BY g ORDER BY name) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, max(id) OVER (ORDER BY g GROUPS 1 PRECEDING) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) n FROM ref) r \
             ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, row_number() OVER (ORDER BY g, id) n FROM ref) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, lag(name) OVER (w ORDER BY id) n FROM ref WINDOW w AS (PARTITION BY g)) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT b.g FROM ref a JOIN ref b USING (id) WHERE a.id = 1 LIMIT 1) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT a.g FROM ref a JOIN ref b USING (id) ORDER BY id LIMIT 3) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT name FROM ref OFFSET 0) r ON r.name = t.name",
            "SELECT t.k FROM t JOIN (SELECT name FROM ref LIMIT ALL OFFSET 0) r ON r.name = t.name",
            "SELECT k FROM t WHERE x IN (SELECT id FROM ref UNION SELECT g FROM ref OFFSET 0)",
            "SELECT t.k FROM t JOIN (SELECT g, count(*) n FROM ref GROUP BY g ORDER BY g LIMIT 2) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT g, name, count(*) n FROM ref GROUP BY 1, 2 ORDER BY name, g LIMIT 2) r ON r.g = t.x",
            "SELECT t.k FROM t JOIN (SELECT name, max(g) g FROM ref WHERE g = 4 GROUP BY g, name ORDER BY name LIMIT 2) r ON r.g = t.x",
            "SELECT id FROM ref LIMIT 1",
            "SELECT k, ARRAY(SELECT name FROM ref ORDER BY name) FROM t",
            "SELECT k, ARRAY(SELECT name FROM ref WHERE id = t.x) FROM t",
            "SELECT k, (SELECT string_agg(n, ',') FROM unnest(string_to_array(t.name, ' ')) n) FROM t",
            "SELECT k, (SELECT n FROM unnest(string_to_array(t.name, ' ')) WITH ORDINALITY u (n, o) ORDER BY o LIMIT 1) FROM t",
            "UPDATE t SET name = (SELECT name FROM ref WHERE id = t.x LIMIT 1)",
            "SELECT string_agg(name, ',') FROM ref",
        ] {
            assert!(is_pushed_down(text), "{text}");
        }
    }

    /// Sub-selects as a table `r` with a column `v`, joined with rows of a sharded table.
    fn joined(query: &str) -> String {
        format!("SELECT t.k, r.v FROM t JOIN ({query}) r ON true")
    }

    #[test]
    fn which_of_equal_values_is_shown_is_asked_once() {
        for query in [
            "SELECT DISTINCT n v FROM prices",
            "SELECT DISTINCT f v FROM prices",
            "SELECT DISTINCT ci v FROM prices",
            "SELECT DISTINCT c v FROM prices",
            "SELECT DISTINCT j v FROM prices",
            "SELECT DISTINCT lower(ci) v FROM prices",
            "SELECT DISTINCT g / 2.0 v FROM prices",
            "SELECT DISTINCT coalesce(p, 0) v FROM prices",
            "SELECT DISTINCT prices v FROM prices",
            "SELECT DISTINCT v FROM (SELECT n v FROM prices) s",
            "SELECT n v FROM prices ORDER BY n LIMIT 1",
            "SELECT ci v FROM prices ORDER BY ci LIMIT 1",
            "SELECT n v FROM prices GROUP BY n",
            "SELECT n + 1 v FROM prices GROUP BY n",
            "SELECT count(*) v FROM prices GROUP BY n HAVING n::text = '1.0'",
            "SELECT count(*) v FROM prices GROUP BY n ORDER BY n::text LIMIT 5",
            "SELECT n v FROM prices GROUP BY 1",
            "SELECT n v FROM prices GROUP BY ROLLUP (g, n)",
            "SELECT g / 2.0 v FROM prices GROUP BY 1",
            "SELECT g / 2.0 v FROM prices GROUP BY v",
            "SELECT DISTINCT ON (n) n v FROM prices ORDER BY n",
            "SELECT min(n) v FROM prices",
            "SELECT max(f) v FROM prices",
            "SELECT min(ci) v FROM prices",
            "SELECT min(n) OVER () v FROM prices",
            "SELECT array_agg(n ORDER BY n) v FROM prices",
            "SELECT array_agg(DISTINCT n) v FROM prices",
            "SELECT sum(DISTINCT n) v FROM prices",
            "SELECT mode() WITHIN GROUP (ORDER BY n) v FROM prices",
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY f) v FROM prices",
            "SELECT sum(f) v FROM prices",
            "SELECT sum(f) OVER () v FROM prices",
            "SELECT avg(n * f) v FROM prices",
            "SELECT stddev(g::float8) v FROM prices",
            "SELECT corr(g, g) v FROM prices",
            "SELECT n v FROM prices UNION SELECT n FROM prices",
            "SELECT n v FROM prices UNION ALL SELECT n FROM prices EXCEPT SELECT n FROM prices",
            "SELECT n v FROM prices INTERSECT ALL SELECT n FROM prices",
            "SELECT p v FROM prices UNION SELECT g FROM prices",
            "SELECT g v FROM prices UNION SELECT n FROM prices",
            "WITH RECURSIVE w AS (SELECT n v FROM prices UNION SELECT v FROM w) SELECT v FROM w",
            "SELECT name v FROM ref WHERE id = (2.0)::float8 LIMIT 1",
        ] {
            assert!(!is_pushed_down(&joined(query)), "{query}");
        }
        for text in [
            "SELECT k, ARRAY(SELECT n FROM prices ORDER BY n) FROM t",
            "SELECT k, ARRAY(SELECT id FROM ref UNION SELECT id FROM ref) FROM t",
            "SELECT k FROM t WHERE x IN (SELECT n::text::int4 FROM prices GROUP BY n)",
            "SELECT k FROM t WHERE x < ANY (SELECT DISTINCT n FROM prices)",
            "SELECT k FROM t WHERE name COLLATE \"C\" IN (SELECT DISTINCT ci FROM prices)",
            "SELECT k, (SELECT name FROM ref WHERE id = t.f LIMIT 1) FROM t",
            "INSERT INTO t (k, name) SELECT k, (SELECT min(n)::text FROM prices) FROM u",
        ] {
            assert!(!is_pushed_down(text), "{text}");
        }
    }

    #[test]
    fn equal_values_that_look_alike_are_asked_everywhere() {
        for query in [
            "SELECT DISTINCT g v FROM prices",
            "SELECT DISTINCT p v FROM prices",
            "SELECT DISTINCT c5 v FROM prices",
            "SELECT DISTINCT day v FROM prices",
            "SELECT DISTINCT id, n v FROM prices",
            "SELECT DISTINCT n::text v FROM prices",
            "SELECT DISTINCT n > 1 v FROM prices",
            "SELECT DISTINCT lower(name) v FROM ref",
            "SELECT DISTINCT name || '-' || g v FROM ref",
            "SELECT DISTINCT g * 2 + 1 v FROM prices",
            "SELECT DISTINCT coalesce(g, 0) v FROM prices",
            "SELECT DISTINCT CASE WHEN n > 1 THEN 'much' ELSE 'little' END v FROM prices",
            "SELECT DISTINCT extract(year FROM day) v FROM prices",
            "SELECT DISTINCT date_trunc('month', day) v FROM prices",
            "SELECT DISTINCT v FROM (SELECT lower(name) v FROM ref) s",
            "SELECT DISTINCT v FROM (SELECT g, count(*) v FROM prices GROUP BY g) s",
            "SELECT p v FROM prices ORDER BY p LIMIT 1",
            "SELECT n v FROM prices ORDER BY n, id LIMIT 1",
            "SELECT p v FROM prices GROUP BY p",
            "SELECT count(*) v FROM prices GROUP BY n",
            "SELECT count(*) v FROM prices GROUP BY n HAVING n > 1",
            "SELECT n v FROM prices GROUP BY id",
            "SELECT g v FROM prices GROUP BY ROLLUP (g, p)",
            "SELECT name v, count(*) FROM ref GROUP BY 1",
            "SELECT min(p) v FROM prices",
            "SELECT max(day) v FROM prices",
            "SELECT min(g) OVER (PARTITION BY n) v FROM prices",
            "SELECT rank() OVER (ORDER BY n) v FROM prices",
            "SELECT sum(n) v FROM prices",
            "SELECT avg(p * g) v FROM prices",
            "SELECT sum(CASE WHEN day IS NULL THEN 1 ELSE 0 END) v FROM prices",
            "SELECT count(DISTINCT n) v FROM prices",
            "SELECT array_agg(DISTINCT p) v FROM prices",
            "SELECT string_agg(DISTINCT name, ',' ORDER BY name) v FROM ref",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) v FROM prices",
            "SELECT mode() WITHIN GROUP (ORDER BY p) v FROM prices",
            "SELECT p v FROM prices UNION SELECT p FROM prices",
            "SELECT g v FROM prices UNION SELECT id FROM prices",
            "SELECT n v FROM prices UNION ALL SELECT n FROM prices",
            "WITH RECURSIVE w AS (SELECT id v FROM ref UNION SELECT ref.g FROM ref JOIN w ON ref.id = w.v) SELECT v FROM w",
        ] {
            assert!(is_pushed_down(&joined(query)), "{query}");
        }
        for text in [
            "SELECT k FROM t WHERE x IN (SELECT n FROM prices)",
            "SELECT k FROM t WHERE x IN (SELECT DISTINCT n FROM prices)",
            "SELECT k FROM t WHERE x IN (SELECT n FROM prices ORDER BY n LIMIT 2)",
            "SELECT k FROM t WHERE x IN (SELECT n FROM prices UNION SELECT n FROM prices)",
            "SELECT k FROM t WHERE x IN (SELECT n FROM prices GROUP BY n)",
            "SELECT k FROM t WHERE EXISTS (SELECT DISTINCT n FROM prices)",
            "SELECT t.k, r.n FROM t JOIN prices r ON r.n = t.x",
            "SELECT DISTINCT n FROM prices",
            "SELECT k, (SELECT name FROM ref WHERE id = t.x::int8 LIMIT 1) FROM t",
        ] {
            assert!(is_pushed_down(text), "{text}");
        }
    }
}
