//! Facts: what holds for the rows at a place, and what that says about a leaf's key.

use std::cell::Cell;
use std::rc::Rc;

use super::leaves::{LeafKey, same_family};
use super::{Block, Body, Bound, Column, Distinct, Facts, FromItem, Grouping, Join, Predicate, SetOperation, Term};
use crate::shard_key::KeyType;
use crate::shardmap::Strategy;
use crate::sql::analysis::{KeyCondition, KeyTest, Test};

/// Equalities beyond these are left out, which only makes conditions weaker.
const EQUALITIES_MAX: usize = 400;
/// Alternatives beyond these are not compared with each other.
const DISTINCT_MAX: usize = 64;
/// Predicates that are looked at for one leaf, each with the equalities around it; beyond, nothing is proven.
const WORK_MAX: usize = 1_000_000;
/// OR nests no deeper; beyond, nothing is proven.
const OR_DEPTH_MAX: usize = 12;

/// Terms known to be equal.
#[derive(Debug, Default)]
pub struct Classes {
    terms: Vec<Term>,
    /// Index of the class of each term.
    class: Vec<usize>,
}

impl Classes {
    pub fn of<'p>(predicates: impl IntoIterator<Item = &'p Predicate>) -> Self {
        let mut classes = Self::default();
        let mut count = 0;
        for predicate in predicates {
            if let Predicate::Same(left, right) | Predicate::Identical(left, right) = predicate {
                count += 1;
                if count > EQUALITIES_MAX {
                    break;
                }
                classes.unite(left, right);
            }
        }
        classes.close();
        classes
    }

    pub fn same(&self, left: &Term, right: &Term) -> bool {
        if left == right {
            return true;
        }
        if let (Some(left), Some(right)) = (self.class_of(left), self.class_of(right))
            && left == right
        {
            return true;
        }
        // The same function of equal columns.
        left.function.is_some() && left.function == right.function && self.same(&Term::from(left.column), &Term::from(right.column))
    }

    fn class_of(&self, term: &Term) -> Option<usize> {
        let index = self.terms.iter().position(|known| known == term)?;
        self.class.get(index).copied()
    }

    fn add(&mut self, term: &Term) -> usize {
        if let Some(class) = self.class_of(term) {
            return class;
        }
        let class = self.terms.len();
        self.terms.push(term.clone());
        self.class.push(class);
        class
    }

    fn unite(&mut self, left: &Term, right: &Term) {
        let (left, right) = (self.add(left), self.add(right));
        for class in &mut self.class {
            if *class == right {
                *class = left;
            }
        }
    }

    /// Equal columns have equal functions: unites the function terms that occur.
    fn close(&mut self) {
        let functions: Vec<Term> = self.terms.iter().filter(|term| term.function.is_some()).cloned().collect();
        for (at, left) in functions.iter().enumerate() {
            for right in functions.get(at + 1..).unwrap_or_default() {
                if self.same(left, right) {
                    self.unite(left, right);
                }
            }
        }
    }
}

/// Every conjunct, with nested ANDs opened.
pub fn conjuncts<'p>(facts: impl IntoIterator<Item = &'p Predicate>) -> Vec<&'p Predicate> {
    let mut list = Vec::new();
    let mut stack: Vec<&Predicate> = facts.into_iter().collect();
    while let Some(predicate) = stack.pop() {
        match predicate {
            Predicate::And(inner) => stack.extend(inner),
            other => list.push(other),
        }
    }
    list
}

/// What the facts say about the key of one leaf's rows.
pub fn condition(facts: &Facts, key: &[LeafKey<'_>], strategy: Strategy, sorts_bytewise: &dyn Fn(&Term) -> bool) -> KeyCondition {
    let derivation = Derivation { key, strategy, sorts_bytewise, work: Cell::new(0) };
    derivation.all_of(&conjuncts(facts.iter().map(Rc::as_ref)), &[], 0)
}

struct Derivation<'k, 'c> {
    key: &'k [LeafKey<'c>],
    strategy: Strategy,
    sorts_bytewise: &'k dyn Fn(&Term) -> bool,
    /// See [`WORK_MAX`].
    work: Cell<usize>,
}

impl Derivation<'_, '_> {
    /// `around`: equalities that hold besides.
    fn all_of(&self, list: &[&Predicate], around: &[&Predicate], depth: usize) -> KeyCondition {
        let is_equality = |predicate: &&&Predicate| matches!(predicate, Predicate::Same(..) | Predicate::Identical(..));
        let equalities: Vec<&Predicate> = list.iter().chain(around).filter(is_equality).take(EQUALITIES_MAX).copied().collect();
        let work = self.work.get() + list.len() + equalities.len().pow(2);
        self.work.set(work);
        if work > WORK_MAX {
            return KeyCondition::All;
        }
        let classes = Classes::of(equalities.iter().copied());
        let mut parts = Vec::new();
        for predicate in list {
            let part = match predicate {
                Predicate::False => return KeyCondition::Nothing,
                Predicate::Test { term, term_type, test } => self.test(term, *term_type, test, &classes),
                Predicate::Or(branches) if depth < OR_DEPTH_MAX => self.any_of(branches, &equalities, depth),
                Predicate::Unknown | Predicate::Same(..) | Predicate::Identical(..) | Predicate::Or(_) | Predicate::And(_) => {
                    KeyCondition::All
                }
            };
            match part {
                KeyCondition::All => {}
                KeyCondition::Nothing => return KeyCondition::Nothing,
                part => add_distinct(&mut parts, part),
            }
        }
        match parts.len() {
            0 => KeyCondition::All,
            1 => parts.remove(0),
            _ => {
                // The order of conjuncts means nothing; a fixed one makes equal conditions equal.
                parts.sort_by_cached_key(|part| format!("{part:?}"));
                KeyCondition::And(parts)
            }
        }
    }

    fn any_of(&self, branches: &[Predicate], around: &[&Predicate], depth: usize) -> KeyCondition {
        let mut parts = Vec::new();
        for branch in branches {
            match self.all_of(&conjuncts([branch]), around, depth + 1) {
                KeyCondition::All => return KeyCondition::All,
                KeyCondition::Nothing => {}
                part => add_distinct(&mut parts, part),
            }
        }
        match parts.len() {
            0 => KeyCondition::Nothing,
            1 => parts.remove(0),
            _ => KeyCondition::Or(parts),
        }
    }

    fn test(&self, term: &Term, term_type: KeyType, test: &Test, classes: &Classes) -> KeyCondition {
        let is_order = matches!(test, Test::Compare(..));
        let can_compare = self.strategy == Strategy::Range;
        for (index, key) in self.key.iter().enumerate() {
            let plain = Term::from(key.term.column);
            let column_type = key.column.column_type;
            let (function, compared, applies) = if classes.same(term, &key.term) {
                let compared = match &key.term.function {
                    Some(function) => function.result_type(column_type),
                    None => Some(column_type),
                };
                let is_bytewise = !matches!(term_type, KeyType::Text | KeyType::Bpchar) || (self.sorts_bytewise)(term);
                (None, compared, !is_order || (can_compare && is_bytewise))
            } else if key.term.function.is_some() && classes.same(term, &plain) {
                (key.term.function.clone(), Some(column_type), !is_order)
            } else {
                continue;
            };
            // The column of a view over a union may hold this one converted to another type.
            if applies && compared.is_some_and(|compared| same_family(compared, term_type)) {
                return KeyCondition::Test(KeyTest { column: index, column_type: term_type, function, test: test.clone() });
            }
        }
        KeyCondition::All
    }
}

/// Leaves out what is there already, in lists short enough to look through each time.
pub fn add_distinct(parts: &mut Vec<KeyCondition>, part: KeyCondition) {
    if parts.len() > DISTINCT_MAX || !parts.contains(&part) {
        parts.push(part);
    }
}

/// What holds for every row of a query, in terms of the columns inside it.
pub fn implied(bound: &Bound) -> Facts {
    match &bound.body {
        Body::Block(block) => implied_by_block(block),
        Body::SetOperation { .. } | Body::Values { .. } | Body::Recursive { .. } | Body::SelfReference => Facts::new(),
        Body::Modification { facts } => facts.clone(),
    }
}

fn implied_by_block(block: &Block) -> Facts {
    // A group over all rows exists without any row.
    if matches!(block.grouping, Grouping::Whole | Grouping::Sets) {
        return Facts::new();
    }
    let mut facts: Facts = block.from.iter().flat_map(of_rows).collect();
    facts.extend(block.filter.iter().cloned());
    facts.extend(block.subqueries.iter().flat_map(|subquery| subquery.outward()));
    facts
}

/// What holds for every row of an item of FROM.
pub fn of_rows(item: &FromItem) -> Facts {
    match item {
        FromItem::Leaf(_) => Facts::new(),
        FromItem::Derived { leaf, bound } => exported(*leaf, bound),
        FromItem::Join { kind, left, right, on, .. } => match kind {
            Join::Inner => of_rows(left).into_iter().chain(of_rows(right)).chain(on.iter().cloned()).collect(),
            Join::Left => of_rows(left),
            Join::Right => of_rows(right),
            Join::Full => Facts::new(),
        },
    }
}

/// What holds for every row of a sub-select, in terms of the leaf that stands for it.
pub fn exported(leaf: usize, bound: &Bound) -> Facts {
    match &bound.body {
        Body::Block(_) | Body::Modification { .. } => {
            let mut facts = implied(bound);
            facts.extend(links(leaf, bound, |index| bound.outputs.get(index).and_then(|output| output.origin.clone())));
            facts
        }
        Body::SetOperation { operation, left, right, .. } => match operation {
            SetOperation::Union => {
                let branch =
                    |bound: &Bound| Predicate::And(exported(leaf, bound).iter().map(|fact| fact.as_ref().clone()).collect());
                vec![Rc::new(Predicate::Or(vec![branch(left), branch(right)]))]
            }
            SetOperation::Intersect => exported(leaf, left).into_iter().chain(exported(leaf, right)).collect(),
            SetOperation::Except => exported(leaf, left),
        },
        Body::Values { columns, .. } => columns
            .iter()
            .enumerate()
            .filter_map(|(index, column)| {
                let (term_type, values) = column.as_ref()?;
                let term = Term::from(Column { leaf, index });
                Some(Rc::new(Predicate::Test { term, term_type: *term_type, test: Test::In(values.clone()) }))
            })
            .collect(),
        Body::Recursive { .. } | Body::SelfReference => Facts::new(),
    }
}

/// Equalities between a sub-select's outputs and its columns that may be used inside it: a filter on the output commutes with
/// what the sub-select does.
pub fn inward(leaf: usize, bound: &Bound) -> Facts {
    links(leaf, bound, |index| filterable_origin(bound, index))
}

fn links(leaf: usize, bound: &Bound, origin: impl Fn(usize) -> Option<Term>) -> Facts {
    if !bound.is_complete {
        return Facts::new();
    }
    (0..bound.outputs.len())
        .filter_map(|index| Some(Rc::new(Predicate::Identical(Column { leaf, index }.into(), origin(index)?))))
        .collect()
}

/// What the n-th output is inside, when a filter on it may be applied inside instead.
pub fn filterable_origin(bound: &Bound, index: usize) -> Option<Term> {
    let origin = bound.outputs.get(index)?.origin.as_ref()?;
    let Body::Block(block) = &bound.body else {
        return None;
    };
    let groups = match &block.grouping {
        Grouping::None => true,
        Grouping::Whole | Grouping::Sets => false,
        Grouping::By(terms) => terms.contains(origin),
    };
    let distinct = match &block.distinct {
        Distinct::None | Distinct::Rows => true,
        Distinct::On(terms) => terms.contains(origin),
    };
    let windows = block.windows.iter().all(|partition| partition.contains(origin));
    (groups && distinct && windows && !block.has_limit).then(|| origin.clone())
}
