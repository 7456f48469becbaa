//! What the FROM of one query level says about its tables: which conditions filter which of them, and what is kept.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::survey::{STACK_BYTES, STACK_LEFT_BYTES_MIN};

/// Tables by the places of their names.
pub struct Reading<'n> {
    pub conditions: Vec<ConditionRead<'n>>,
    pub places: Vec<i32>,
    /// Names of the items, in their order.
    pub names: Vec<String>,
    /// No name of an item is that of anything else.
    pub has_tables_only: bool,
    /// Columns of USING.
    pub merged: Vec<String>,
    pub usings: Vec<UsingRead>,
    /// NATURAL joins.
    pub has_hidden_names: bool,
    /// Aliases of joins.
    pub has_hidden_tables: bool,
    outer_joins: usize,
}

/// A condition of the level.
pub struct ConditionRead<'n> {
    pub root: Node<'n>,
    /// The tables whose rows it filters.
    pub filtered: Vec<i32>,
    /// Which of the names an ON sees: those of its join. `None`: all.
    pub visible: Option<Range<usize>>,
}

/// A column of USING, of tables that are certain to have the values that it compares.
pub struct UsingRead {
    pub name: String,
    pub left: Operand,
    pub right: Operand,
    pub filtered: Vec<i32>,
}

/// One side of a join.
#[derive(Clone)]
pub struct Operand {
    /// The name by which its columns may be qualified; `None`: a join.
    pub name: Option<String>,
    pub places: Vec<i32>,
}

impl Default for Reading<'_> {
    fn default() -> Self {
        Self {
            conditions: Vec::new(),
            places: Vec::new(),
            names: Vec::new(),
            has_tables_only: true,
            merged: Vec::new(),
            usings: Vec::new(),
            has_hidden_names: false,
            has_hidden_tables: false,
            outer_joins: 0,
        }
    }
}

impl<'n> Reading<'n> {
    /// Reads an item; the places of its tables that no outer join in it extends by NULLs.
    pub fn item(&mut self, item: Node<'n>) -> Vec<i32> {
        self.names.extend(name(item).map(str::to_owned));
        match item {
            Node::RangeVar(relation) => {
                self.places.push(relation.location);
                vec![relation.location]
            }
            Node::JoinExpr(join) => stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || self.join(join)),
            _ => {
                self.has_tables_only = false;
                Vec::new()
            }
        }
    }

    fn join(&mut self, join: &'n nodes::JoinExpr) -> Vec<i32> {
        let (first, outer_joins) = (self.places.len(), self.outer_joins);
        let first_name = self.names.len();
        let left = self.item(join.larg());
        let middle = self.places.len();
        let right = self.item(join.rarg());
        let has_hidden_tables = self.has_hidden_tables;
        self.has_hidden_names |= join.is_natural;
        self.has_hidden_tables |= join.alias().is_some();
        // It is a name of this level, and none of a table.
        self.has_tables_only &= join.join_using_alias().is_none();
        let both = || [left.as_slice(), right.as_slice()].concat();
        let (filtered, kept) = match join.jointype {
            nodes::JoinType::JOIN_INNER => (both(), both()),
            nodes::JoinType::JOIN_LEFT => (right.clone(), left.clone()),
            nodes::JoinType::JOIN_RIGHT => (left.clone(), right.clone()),
            _ => (Vec::new(), Vec::new()),
        };
        let side = |item: Node<'_>, range: Range<usize>| {
            let places = self.places.get(range).unwrap_or_default().to_vec();
            Operand { name: name(item).map(str::to_owned), places }
        };
        let left = side(join.larg(), first..middle);
        let right = side(join.rarg(), middle..self.places.len());
        let names = join.using_clause().iter().filter_map(|name| name.sval());
        // Of what an outer join below has merged, the value is one of several; an alias of a join may have renamed it.
        let is_certain = |name: &str| !has_hidden_tables && (outer_joins == self.outer_joins || !self.merges(name));
        let usings = names.clone().filter(|name| is_certain(name)).map(|name| UsingRead {
            name: name.to_owned(),
            left: left.clone(),
            right: right.clone(),
            filtered: filtered.clone(),
        });
        let usings: Vec<UsingRead> = usings.collect();
        self.usings.extend(usings);
        self.merged.extend(names.map(str::to_owned));
        self.outer_joins += usize::from(join.jointype != nodes::JoinType::JOIN_INNER);
        let visible = Some(first_name..self.names.len());
        self.conditions.push(ConditionRead { root: join.quals(), filtered, visible });
        kept
    }

    /// A join that was read may have made one column of several of this name.
    fn merges(&self, name: &str) -> bool {
        self.has_hidden_names || self.merged.iter().any(|merged| merged == name)
    }
}

fn name(item: Node<'_>) -> Option<&str> {
    match item {
        Node::RangeVar(relation) => relation.alias().map_or(relation.relname(), |alias| alias.aliasname()),
        Node::RangeSubselect(subselect) => subselect.alias()?.aliasname(),
        _ => None,
    }
}
