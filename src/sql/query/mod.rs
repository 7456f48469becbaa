//! What a query means for routing: which relations it reads and writes, which keys their rows have, and whether running it on
//! every shard and merging the answers is right.
//!
//! Two passes. *Binding* ([`bind`], [`expression`], [`predicate`], [`modify`]) resolves every name in its scope and turns the
//! parse tree into a small tree of its own ([`Bound`]), in which each reference to a relation is a [`Leaf`] of its own.
//! *Placement* ([`placement`]) walks it with the facts that hold at each place, derives a key condition for every sharded leaf
//! ([`facts`]) and a distribution for every relation expression.
//!
//! The soundness argument for conditions: a condition C is valid for a leaf when removing the leaf's rows that fail C cannot
//! change the answer. Facts passed down to a leaf are strict comparisons that every surviving row satisfies, so a row that fails
//! C only takes part in combinations that are filtered anyway, and a null-extended row in its place fails them too. Facts go
//! down into the nullable side of an outer join together with its ON condition, into the kept side without it, and through the
//! output columns of a sub-select only where a filter on that column commutes with it (no LIMIT; grouped or partitioned by it).

mod actions;
mod aggregate;
mod bind;
mod bodies;
mod by_settings;
mod catalog_functions;
mod collation;
mod column_name;
mod conversions;
mod copied;
mod copy_in;
mod distinct;
mod equal_image;
mod expression;
mod facts;
mod found_first;
mod from;
mod functions;
mod insert;
mod keyed_blocks;
mod keyed_bodies;
mod keyed_calls;
mod last_step;
mod leaves;
mod limits;
mod locking;
mod merge;
mod merge_into;
mod modify;
mod numbered;
mod outline;
mod placement;
mod predicate;
mod pushed_conditions;
mod relations;
mod scope;
mod select_list;
mod server;
mod set_default;
mod through_view;
mod value_type;
mod windows;
mod with;

use std::rc::Rc;

use crate::shard_key::{KeyFunction, KeyType};
use crate::sql::analysis::{KeyValue, Test, TextOrder};

pub use bind::{Draws, Reader};
pub use by_settings::may_read_settings;
pub use catalog_functions::{Nature, is_aggregate, nature};
pub use column_name::column_name;
pub use expression::Place;

pub use insert::gives_value;
pub use keyed_bodies::keyed_by_row;
pub use numbered::generated_always;
pub use predicate::is_star;
pub use pushed_conditions::conditions_only_compare;
pub use relations::{
    Resolved, is_own_relation, is_temporary_schema, means_temporary, placed, resolve, resolve_name, text_means_temporary,
};
pub use server::is_of_server;
pub use set_default::{hides_clock, sets_default};

/// A column of a leaf, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    pub leaf: usize,
    pub index: usize,
}

/// A column, or a key function of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    pub column: Column,
    pub function: Option<KeyFunction>,
}

impl From<Column> for Term {
    fn from(column: Column) -> Self {
        Self { column, function: None }
    }
}

/// A boolean expression as far as it is understood. Every atom is strict: NULL makes it not true.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// Says nothing.
    Unknown,
    /// Never true.
    False,
    Test {
        term: Term,
        term_type: KeyType,
        test: Test,
    },
    /// Equal by PostgreSQL's own operator, of types whose values are the same where they compare equal.
    Same(Term, Term),
    /// Two names of one value, NULL included: an output and what it is made of.
    Identical(Term, Term),
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
}

impl Predicate {
    /// It says something of such a column.
    pub fn mentions(&self, is_such: &dyn Fn(&Column) -> bool) -> bool {
        match self {
            Predicate::Unknown | Predicate::False => false,
            Predicate::Test { term, .. } => is_such(&term.column),
            Predicate::Same(left, right) | Predicate::Identical(left, right) => is_such(&left.column) || is_such(&right.column),
            Predicate::And(inner) | Predicate::Or(inner) => inner.iter().any(|predicate| predicate.mentions(is_such)),
        }
    }
}

/// Predicates that hold together.
pub type Facts = Vec<Rc<Predicate>>;

/// A query that was read.
#[derive(Debug)]
pub struct Bound {
    pub outputs: Vec<Output>,
    /// `outputs` are all columns, in order.
    pub is_complete: bool,
    pub body: Body,
    /// ORDER BY.
    pub order: Vec<OrderItem>,
}

/// An item of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderItem {
    pub by: OrderBy,
    pub is_descending: bool,
    pub is_nulls_first: bool,
    pub order: ItemOrder,
}

/// How the values of an item sort.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemOrder {
    pub text: TextOrder,
    /// They are text, for certain.
    pub is_text: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum OrderBy {
    /// The n-th output, from 0.
    Output(usize),
    /// Something that is not selected, as SQL.
    Hidden(String),
    Other,
}

#[derive(Debug)]
pub enum Body {
    Block(Box<Block>),
    SetOperation {
        operation: SetOperation,
        is_all: bool,
        left: Box<Bound>,
        right: Box<Bound>,
        has_limit: bool,
        /// In ORDER BY, LIMIT and OFFSET.
        subqueries: Vec<Subquery>,
    },
    /// VALUES: the same rows everywhere.
    Values {
        /// For each column: its type and its values, when all are constants or parameters of one type.
        columns: Vec<Option<(KeyType, Vec<KeyValue>)>>,
        subqueries: Vec<Subquery>,
    },
    /// WITH RECURSIVE: the rows of both branches, the second over its own results.
    Recursive {
        start: Box<Bound>,
        step: Box<Bound>,
    },
    /// INSERT, UPDATE, DELETE or MERGE in WITH, placed where it stands: what holds for the rows it returns.
    Modification {
        facts: Facts,
    },
    /// A reference to a recursive query inside itself.
    SelfReference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    Union,
    Intersect,
    Except,
}

/// SELECT … FROM … WHERE … GROUP BY …
#[derive(Debug, Default)]
pub struct Block {
    pub from: Vec<FromItem>,
    /// Conjuncts of WHERE, and what sub-selects in it imply.
    pub filter: Facts,
    pub subqueries: Vec<Subquery>,
    /// The first of `subqueries`, in FROM and WHERE, are evaluated for rows; the others perhaps for groups.
    pub row_subquery_count: usize,
    pub grouping: Grouping,
    pub distinct: Distinct,
    /// PARTITION BY of each window function; an empty list is one window over all rows.
    pub windows: Vec<Vec<Term>>,
    /// The columns among the arguments of each aggregate with DISTINCT.
    pub distinct_arguments: Vec<Vec<Term>>,
    pub has_limit: bool,
    pub is_locking: bool,
}

#[derive(Debug, Default)]
pub enum Grouping {
    #[default]
    None,
    /// Aggregates over all rows.
    Whole,
    /// By these terms and perhaps expressions.
    By(Vec<Term>),
    /// ROLLUP, CUBE, GROUPING SETS: some groups are over all rows.
    Sets,
}

#[derive(Debug, Default)]
pub enum Distinct {
    #[default]
    None,
    /// Over the whole row.
    Rows,
    On(Vec<Term>),
}

#[derive(Debug)]
pub enum FromItem {
    Leaf(usize),
    /// A sub-select, view, CTE or VALUES; the leaf stands for its rows.
    Derived {
        leaf: usize,
        bound: Box<Bound>,
    },
    Join {
        kind: Join,
        left: Box<FromItem>,
        right: Box<FromItem>,
        on: Facts,
        subqueries: Vec<Subquery>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Inner,
    Left,
    Right,
    Full,
}

/// A sub-select in an expression.
#[derive(Debug)]
pub struct Subquery {
    pub bound: Bound,
    /// `x IN (SELECT …)` as a conjunct of WHERE: equalities of x with the outputs, valid inside and outside.
    pub link: Facts,
    /// A conjunct of WHERE that is true only when the sub-select has a row: what holds for that row holds outside.
    pub is_required: bool,
    /// In the ON of an outer join: what holds outside does not hold inside.
    pub is_isolated: bool,
}

impl Subquery {
    /// What the sub-select says about the rows of the query around it.
    pub fn outward(&self) -> Facts {
        if !self.is_required {
            return Facts::new();
        }
        facts::implied(&self.bound).into_iter().chain(self.link.iter().cloned()).collect()
    }
}

/// A column that a query yields.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    /// What it is, when it is a column or a key function of one.
    pub origin: Option<Term>,
    pub properties: ColumnProperties,
}

/// What is known of a column's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnProperties {
    /// 0: unknown. Of a domain, the type under it.
    pub type_oid: u32,
    /// It is, or may be, a domain over that type.
    pub is_domain: bool,
    pub typmod: i32,
    /// Equality is bytewise, or of a type without collation.
    pub is_deterministic: bool,
    /// Sorts bytewise, when it is text.
    pub is_collation_c: bool,
    /// As SQL names it; `None` where there is none, or it is not known.
    pub collation: Option<String>,
    pub is_not_null: bool,
    /// Equal values look alike, for certain.
    pub has_equal_image: bool,
}
