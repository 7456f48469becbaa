//! The second pass: facts go down to the leaves and become key conditions; distributions come up and say whether the query may
//! run on every shard that holds some of its rows.
//!
//! The rules for joins (traps of the page on SQL over shards): sharded with sharded on the whole key stays sharded whatever the
//! join; sharded with replicated does too unless the replicated side is kept, because a kept row would be returned once a shard;
//! a sub-select over sharded rows must be tied by the whole key to sharded rows around it.

use std::rc::Rc;

use super::bind::{Reader, with_stack};
use super::facts::{self, Classes};
use super::leaves::LeafKind;
use super::{Block, Body, Bound, Column, Distinct, Facts, FromItem, Grouping, Join, Predicate, SetOperation, Subquery, Term};
use crate::error::PgError;
use crate::shard_key::KeyColumn;
use crate::shardmap::GroupId;
use crate::sql::analysis::{Fact, Part};

/// Where the rows of a relation expression are.
#[derive(Clone, Debug)]
pub enum Distribution {
    /// The same rows on every shard.
    Replicated,
    /// Only on the home shard.
    Home,
    /// Each row on the shard of its key.
    Sharded(Sharded),
}

#[derive(Clone, Debug, Default)]
pub struct Sharded {
    pub keys: Vec<RowKey>,
    /// Keys of rows around it, or to its left, to which its rows are tied by the whole key: for each of those rows, everything
    /// it may do stays within one shard.
    pub anchors: Vec<RowKey>,
    /// Of a set operation: the output columns that hold the whole key.
    pub output_keys: Vec<(GroupId, Vec<usize>)>,
}

/// Terms that hold a row's whole key, in the key's order.
#[derive(Clone, Debug, PartialEq)]
pub struct RowKey {
    pub group: GroupId,
    pub terms: Vec<Term>,
    /// Every row has it: not of the nullable side of an outer join.
    pub is_total: bool,
}

/// A query's distribution, and what keeps its result on several shards from being a mere union of theirs.
pub struct Placed {
    pub distribution: Distribution,
    /// The rows of the shards are not the rows of the answer yet: aggregates, DISTINCT, windows.
    pub combined: Option<Combined>,
}

/// Rows of several shards must be put together before they are the answer.
pub struct Combined {
    pub by: CombinedBy,
    /// What aggregates with DISTINCT count is told apart by the whole key: no value is on two shards.
    pub is_distinct_by_key: bool,
    /// Said where it cannot be done.
    pub reason: PgError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CombinedBy {
    /// Aggregates, GROUP BY.
    Groups,
    Distinct,
    DistinctOn,
    /// UNION without ALL.
    Union,
    /// FOR UPDATE and its kind.
    Locks,
    /// Windows, INTERSECT.
    Other,
}

impl Reader<'_> {
    /// Places a query. `anchors`: keys of sharded rows around it; `leaf`: what stands for its rows outside.
    pub fn place(&mut self, bound: &Bound, leaf: Option<usize>, environment: &Facts, anchors: &[RowKey]) -> Placed {
        with_stack(|| self.place_inside(bound, leaf, environment, anchors))
    }

    fn place_inside(&mut self, bound: &Bound, leaf: Option<usize>, environment: &Facts, anchors: &[RowKey]) -> Placed {
        match &bound.body {
            Body::Block(block) => {
                let mut environment = environment.clone();
                if let Some(leaf) = leaf {
                    environment.extend(facts::inward(leaf, bound));
                }
                self.place_block(bound, block, &environment, anchors)
            }
            Body::SetOperation { operation, is_all, left, right, has_limit, subqueries } => {
                let leaf = leaf.filter(|_| !has_limit);
                let (left_bound, right_bound) = (left.as_ref(), right.as_ref());
                let mut left_placed = self.place(left_bound, leaf, environment, anchors);
                let mut right_placed = self.place(right_bound, leaf, environment, anchors);
                if *operation == SetOperation::Union && !is_all {
                    // Equal rows that are left in a branch are dropped by the UNION around it.
                    left_placed.forget_duplicates();
                    right_placed.forget_duplicates();
                }
                self.place_subqueries(subqueries, environment, anchors);
                let left = self.branch(left_bound, left_placed);
                let right = self.branch(right_bound, right_placed);
                let inside = SetBranches { bound, left, right };
                self.place_set_operation(*operation, *is_all, inside)
            }
            Body::Values { subqueries, .. } => {
                self.place_subqueries(subqueries, environment, anchors);
                Placed::of(Distribution::Replicated)
            }
            Body::Recursive { start, step } => {
                // A filter from outside does not commute with the recursion, but what holds around a sub-select holds in both.
                let start_placed = self.place(start, None, environment, anchors);
                let start = self.branch(start, start_placed);
                let step_placed = self.place(step, None, environment, anchors);
                let step = self.branch(step, step_placed);
                self.recursive(start, step)
            }
            Body::Modification { .. } => {
                self.notes.not_pushable(PgError::unsupported(
                    "INSERT, UPDATE, DELETE or MERGE in WITH is not supported across shards",
                    "Its rows would be combined with the rest of the statement on each shard for itself.",
                    "Restrict the statement to one shard key, or run its parts one after the other.",
                ));
                Placed::of(Distribution::Sharded(Sharded::default()))
            }
            Body::SelfReference => Placed::of(Distribution::Replicated),
        }
    }

    fn place_block(&mut self, bound: &Bound, block: &Block, environment: &Facts, anchors: &[RowKey]) -> Placed {
        let mut around = environment.clone();
        around.extend(block.filter.iter().cloned());
        around.extend(block.subqueries.iter().flat_map(Subquery::outward));
        let distribution = self.place_from_list(&block.from, &around, anchors);
        // What holds for the rows, as the expressions see them.
        let mut row_facts: Facts = environment.iter().cloned().chain(block.filter.iter().cloned()).collect();
        row_facts.extend(block.from.iter().flat_map(facts::of_rows));
        let mut inner_anchors = anchors.to_vec();
        if let Distribution::Sharded(sharded) = &distribution {
            inner_anchors.extend(sharded.keys.iter().cloned());
        }
        let has_group_of_nothing = matches!(block.grouping, Grouping::Whole | Grouping::Sets);
        for (index, subquery) in block.subqueries.iter().enumerate() {
            if has_group_of_nothing && index >= block.row_subquery_count {
                // There is a group over all rows even without a row: nothing that holds for rows holds here.
                self.place_subquery(subquery, environment, &inner_anchors);
                continue;
            }
            let mut known = row_facts.clone();
            let others = block.subqueries.iter().enumerate().filter(|(other, _)| *other != index);
            known.extend(others.flat_map(|(_, other)| other.outward()));
            self.place_subquery(subquery, &known, &inner_anchors);
        }
        row_facts.extend(block.subqueries.iter().flat_map(Subquery::outward));
        self.finish_block(bound, block, distribution, &row_facts)
    }

    /// The parts of a query level that combine rows.
    fn finish_block(&mut self, bound: &Bound, block: &Block, distribution: Distribution, row_facts: &Facts) -> Placed {
        let sharded = match distribution {
            Distribution::Replicated | Distribution::Home => return Placed::of(distribution),
            Distribution::Sharded(sharded) if sharded.is_anchored() => {
                // A group over all rows is a row without a key.
                let keys = if matches!(block.grouping, Grouping::Whole | Grouping::Sets) { Vec::new() } else { sharded.keys };
                return Placed::of(Distribution::Sharded(Sharded { keys, ..sharded }));
            }
            Distribution::Sharded(sharded) => sharded,
        };
        let classes = classes(row_facts);
        let covers = |terms: &[Term]| sharded.keys.iter().any(|key| key.is_total && key.is_among(terms, &classes));
        let origins = || bound.outputs.iter().filter_map(|output| output.origin.clone()).collect::<Vec<Term>>();
        let is_distinct_by_key = block.distinct_arguments.iter().all(|terms| covers(terms));
        let needed = |by: CombinedBy, message: &str, detail: &str| {
            Some(Combined { by, is_distinct_by_key, reason: gather(message, detail) })
        };
        let combined = if matches!(block.grouping, Grouping::Whole | Grouping::Sets) {
            needed(
                CombinedBy::Groups,
                "aggregates over the rows of several shards are not supported",
                "The groups are made of rows of several shards.",
            )
        } else if matches!(&block.grouping, Grouping::By(terms) if !covers(terms)) {
            needed(
                CombinedBy::Groups,
                "GROUP BY without the whole shard key is not supported across shards",
                "A group may have rows on several shards.",
            )
        } else if block.windows.iter().any(|partition| !covers(partition)) {
            needed(
                CombinedBy::Other,
                "a window function is not supported across shards unless it is partitioned by the whole shard key",
                "A window may have rows of several shards.",
            )
        } else if matches!(block.distinct, Distinct::Rows) && !covers(&origins()) {
            needed(
                CombinedBy::Distinct,
                "SELECT DISTINCT is not supported across shards unless it selects the whole shard key",
                "Equal rows may come from several shards.",
            )
        } else if matches!(&block.distinct, Distinct::On(terms) if !covers(terms)) {
            needed(
                CombinedBy::DistinctOn,
                "SELECT DISTINCT ON is not supported across shards unless it names the whole shard key",
                "Rows of several shards may compete.",
            )
        } else if block.is_locking {
            needed(
                CombinedBy::Locks,
                "these row locks are not supported across shards",
                "Rows are locked over several shards by a plain SELECT, where every table that is locked is sharded.",
            )
        } else {
            None
        };
        Placed { distribution: Distribution::Sharded(sharded), combined }
    }

    /// For a query inside another: what would have to be gathered refuses the statement on several shards.
    fn without_gather(&mut self, placed: Placed) -> Distribution {
        if let Some(combined) = placed.combined {
            self.notes.not_pushable(combined.reason);
        }
        placed.distribution
    }

    /// A sub-select or a branch of a set operation: a LIMIT inside cuts rows of all shards together.
    fn branch(&mut self, bound: &Bound, placed: Placed) -> Distribution {
        let distribution = self.without_gather(placed);
        let has_limit = match &bound.body {
            Body::Block(block) => block.has_limit,
            Body::SetOperation { has_limit, .. } => *has_limit,
            Body::Values { .. } | Body::Recursive { .. } | Body::Modification { .. } | Body::SelfReference => false,
        };
        if has_limit && matches!(&distribution, Distribution::Sharded(sharded) if !sharded.is_anchored()) {
            self.notes.not_pushable(gather(
                "LIMIT in a sub-select is not supported across shards",
                "Each shard would take that many rows of its own.",
            ));
        }
        distribution
    }

    /// A sub-select of FROM or of an expression.
    fn nested(&mut self, bound: &Bound, leaf: Option<usize>, environment: &Facts, anchors: &[RowKey]) -> Distribution {
        let placed = self.place(bound, leaf, environment, anchors);
        let distribution = self.branch(bound, placed);
        let Distribution::Sharded(mut sharded) = distribution else {
            return distribution;
        };
        if let Some(leaf) = leaf {
            let output_keys = std::mem::take(&mut sharded.output_keys);
            sharded.keys.extend(output_keys.into_iter().map(|(group, positions)| {
                let terms = positions.into_iter().map(|index| Column { leaf, index }.into()).collect();
                RowKey { group, terms, is_total: true }
            }));
        }
        Distribution::Sharded(sharded)
    }

    pub fn place_subqueries(&mut self, subqueries: &[Subquery], environment: &Facts, anchors: &[RowKey]) {
        for subquery in subqueries {
            self.place_subquery(subquery, environment, anchors);
        }
    }

    fn place_subquery(&mut self, subquery: &Subquery, environment: &Facts, anchors: &[RowKey]) {
        let mut known = if subquery.is_isolated { Facts::new() } else { environment.clone() };
        known.extend(subquery.link.iter().cloned());
        match self.nested(&subquery.bound, None, &known, anchors) {
            Distribution::Replicated | Distribution::Home => {}
            Distribution::Sharded(sharded) if sharded.is_anchored() => {}
            Distribution::Sharded(_) => self.notes.not_pushable(PgError::unsupported(
                "a sub-select over several shards is not supported here",
                "Its rows are not tied by the whole shard key to the rows around it, so one shard does not have all of them.",
                "Compare the whole shard key of the inner table with that of the outer one, or run the sub-select first.",
            )),
        }
    }

    pub fn place_from_list(&mut self, items: &[FromItem], around: &Facts, anchors: &[RowKey]) -> Distribution {
        let mut result: Option<Distribution> = None;
        for (index, item) in items.iter().enumerate() {
            let mut known = around.clone();
            let others = items.iter().enumerate().filter(|(other, _)| *other != index);
            known.extend(others.flat_map(|(_, other)| facts::of_rows(other)));
            let mut visible = anchors.to_vec();
            if let Some(Distribution::Sharded(sharded)) = &result {
                visible.extend(sharded.keys.iter().cloned());
            }
            let right = self.place_from(item, &known, &visible);
            result = Some(match result {
                None => right,
                Some(left) => {
                    let joined: Facts = around.iter().cloned().chain(items.iter().flat_map(facts::of_rows)).collect();
                    self.join_distributions(Join::Inner, left, right, &joined)
                }
            });
        }
        result.unwrap_or(Distribution::Replicated)
    }

    fn place_from(&mut self, item: &FromItem, environment: &Facts, anchors: &[RowKey]) -> Distribution {
        match item {
            FromItem::Leaf(leaf) => self.place_leaf(*leaf, environment, anchors),
            FromItem::Derived { leaf, bound } => self.nested(bound, Some(*leaf), environment, anchors),
            FromItem::Join { kind, left, right, on, subqueries } => {
                let kind = self.reduced(*kind, left, right, environment);
                let with = |other: &FromItem, is_inside: bool| -> Facts {
                    let mut known = environment.clone();
                    if is_inside {
                        known.extend(on.iter().cloned());
                        known.extend(facts::of_rows(other));
                    }
                    known
                };
                let left_inside = matches!(kind, Join::Inner | Join::Right);
                let right_inside = matches!(kind, Join::Inner | Join::Left);
                let left_placed = self.place_from(left, &with(right, left_inside), anchors);
                let mut visible = anchors.to_vec();
                if let Distribution::Sharded(sharded) = &left_placed {
                    visible.extend(sharded.keys.iter().cloned());
                }
                let right_placed = self.place_from(right, &with(left, right_inside), &visible);
                if let Distribution::Sharded(sharded) = &right_placed {
                    visible.extend(sharded.keys.iter().cloned());
                }
                let mut joined: Facts = on.iter().cloned().chain(facts::of_rows(left)).chain(facts::of_rows(right)).collect();
                if kind == Join::Inner {
                    joined.extend(environment.iter().cloned());
                }
                self.place_subqueries(subqueries, &joined, &visible);
                self.join_distributions(kind, left_placed, right_placed, &joined)
            }
        }
    }

    fn place_leaf(&mut self, leaf: usize, environment: &Facts, anchors: &[RowKey]) -> Distribution {
        let Some(found) = self.leaves.get(leaf) else {
            return Distribution::Replicated;
        };
        let (group, key) = match &found.kind {
            LeafKind::Sharded { group, key } => (*group, key),
            LeafKind::Home => {
                self.parts.push(Part::Home);
                return Distribution::Home;
            }
            LeafKind::Replicated | LeafKind::Elsewhere | LeafKind::Derived => return Distribution::Replicated,
        };
        let sorts_bytewise = |term: &Term| self.properties(term.column).is_collation_c;
        let condition = facts::condition(environment, key, group.strategy, &sorts_bytewise);
        let terms: Vec<Term> = key.iter().map(|key| key.term.clone()).collect();
        let own = RowKey { group: group.id, terms, is_total: true };
        let classes = classes(environment);
        let anchors = anchors.iter().filter(|anchor| anchor.is_same(&own, &classes)).cloned().collect();
        let name = found.name.clone();
        let columns = key.iter().map(|key| key.column.clone()).collect::<Vec<KeyColumn>>();
        let group = group.id;
        self.add_part(Part::Sharded { group, condition, stores: false }, &name, &columns);
        Distribution::Sharded(Sharded { keys: vec![own], anchors, output_keys: Vec::new() })
    }

    /// `table`, `key`: of the rows.
    pub fn add_part(&mut self, part: Part, table: &str, key: &[KeyColumn]) {
        if let Part::Sharded { condition, .. } = &part {
            let fact = Fact::Restriction { table: table.to_owned(), condition: condition.clone(), key: key.to_vec() };
            if !self.why.contains(&fact) {
                self.why.push(fact);
            }
        }
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }

    /// An outer join whose nullable side is compared outside is an inner one: a null-extended row would be filtered.
    fn reduced(&self, kind: Join, left: &FromItem, right: &FromItem, environment: &Facts) -> Join {
        let rejects_left = || rejects_nulls(environment, left);
        let rejects_right = || rejects_nulls(environment, right);
        match kind {
            Join::Inner => Join::Inner,
            Join::Left if rejects_right() => Join::Inner,
            Join::Right if rejects_left() => Join::Inner,
            Join::Left | Join::Right => kind,
            Join::Full => match (rejects_left(), rejects_right()) {
                (true, true) => Join::Inner,
                // Rows without a left side are gone: the left side is kept.
                (true, false) => Join::Left,
                (false, true) => Join::Right,
                (false, false) => Join::Full,
            },
        }
    }

    fn join_distributions(&mut self, kind: Join, left: Distribution, right: Distribution, joined: &Facts) -> Distribution {
        use Distribution::{Home, Replicated, Sharded as S};
        match (left, right) {
            (Replicated, Replicated) => Replicated,
            (Home, Home | Replicated) | (Replicated, Home) => Home,
            // The statement's parts say it: home and sharded rows must be on one shard.
            (Home, S(sharded)) | (S(sharded), Home) => S(sharded),
            (S(sharded), Replicated) if matches!(kind, Join::Inner | Join::Left) => S(sharded),
            (Replicated, S(sharded)) if matches!(kind, Join::Inner | Join::Right) => S(sharded),
            (S(sharded), Replicated) | (Replicated, S(sharded)) => {
                if !sharded.is_anchored() {
                    self.notes.not_pushable(kept_rows(kind));
                }
                S(sharded)
            }
            (S(left), S(right)) => S(self.join_sharded(kind, left, right, joined)),
        }
    }

    fn join_sharded(&mut self, kind: Join, left: Sharded, right: Sharded, joined: &Facts) -> Sharded {
        let classes = classes(joined);
        let outer_of_right: Vec<RowKey> = right.anchors.iter().filter(|anchor| !left.keys.contains(anchor)).cloned().collect();
        let is_tied = left.keys.iter().any(|a| right.keys.iter().any(|b| a.is_same(b, &classes)))
            // LATERAL: tied to the rows on the left.
            || right.anchors.iter().any(|anchor| left.keys.contains(anchor))
            // Both tied to the same row around them.
            || (!left.anchors.is_empty() && !outer_of_right.is_empty());
        if !is_tied {
            self.notes.not_pushable(PgError::unsupported(
                "a join of sharded tables is not on the whole shard key",
                "Rows that belong together may be on different shards.",
                "Join on all columns of the shard key, with =, or restrict both tables to one key.",
            ));
        }
        let anchors = match kind {
            Join::Inner if left.anchors.is_empty() => outer_of_right,
            Join::Inner | Join::Left => left.anchors,
            Join::Right => outer_of_right,
            Join::Full if outer_of_right.is_empty() => Vec::new(),
            Join::Full => left.anchors,
        };
        let nullable = |keys: Vec<RowKey>, is_nullable: bool| {
            keys.into_iter().map(move |key| RowKey { is_total: key.is_total && !is_nullable, ..key })
        };
        let left = nullable(left.keys, matches!(kind, Join::Right | Join::Full));
        let right = nullable(right.keys, matches!(kind, Join::Left | Join::Full));
        Sharded { keys: left.chain(right).collect(), anchors, output_keys: Vec::new() }
    }

    fn place_set_operation(&mut self, operation: SetOperation, is_all: bool, branches: SetBranches<'_>) -> Placed {
        use Distribution::{Home, Replicated, Sharded as S};
        let SetBranches { bound, left, right } = branches;
        let (left, right) = match (left, right) {
            (Replicated, Replicated) => return Placed::of(Replicated),
            (Home, Home | Replicated) | (Replicated, Home) => return Placed::of(Home),
            (Home, S(sharded)) | (S(sharded), Home) => return Placed::of(S(sharded)),
            (S(sharded), Replicated) | (Replicated, S(sharded)) if operation == SetOperation::Union && !is_all => {
                // The replicated rows come once from each shard, and count once.
                let combined = (!sharded.is_anchored()).then(|| equal_rows(CombinedBy::Union));
                let distribution = S(Sharded { anchors: sharded.anchors, ..Sharded::default() });
                return Placed { distribution, combined };
            }
            (S(sharded), Replicated) | (Replicated, S(sharded)) => {
                if !sharded.is_anchored() {
                    self.notes.not_pushable(PgError::unsupported(
                        "a set operation of sharded and replicated rows is not supported across shards",
                        "The replicated rows would be counted once on each shard.",
                        "Restrict the sharded tables to one shard key, or run the branches one after the other.",
                    ));
                }
                return Placed::of(S(Sharded { anchors: sharded.anchors, ..Sharded::default() }));
            }
            (S(left), S(right)) => (left, right),
        };
        let output_keys = set_keys(bound, &left, &right);
        let anchors = if right.is_anchored() { left.anchors } else { Vec::new() };
        let is_union_all = operation == SetOperation::Union && is_all;
        let by = if operation == SetOperation::Union { CombinedBy::Union } else { CombinedBy::Other };
        let combined = (!is_union_all && output_keys.is_empty() && anchors.is_empty()).then(|| equal_rows(by));
        Placed { distribution: S(Sharded { keys: Vec::new(), anchors, output_keys }), combined }
    }

    fn recursive(&mut self, start: Distribution, step: Distribution) -> Placed {
        use Distribution::{Home, Replicated, Sharded as S};
        let distribution = match (start, step) {
            (Replicated, Replicated) => Replicated,
            (Home | Replicated, Home | Replicated) => Home,
            (S(start), S(step)) if start.is_anchored() && step.is_anchored() => {
                S(Sharded { anchors: start.anchors, ..Sharded::default() })
            }
            _ => {
                self.notes.not_pushable(PgError::unsupported(
                    "WITH RECURSIVE over sharded tables is not supported across shards",
                    "A step may lead from one shard to another.",
                    "Restrict every sharded table in both branches to one shard key.",
                ));
                S(Sharded::default())
            }
        };
        Placed::of(distribution)
    }
}

struct SetBranches<'b> {
    bound: &'b Bound,
    left: Distribution,
    right: Distribution,
}

impl Placed {
    fn of(distribution: Distribution) -> Self {
        Self { distribution, combined: None }
    }

    fn forget_duplicates(&mut self) {
        self.combined.take_if(|combined| matches!(combined.by, CombinedBy::Distinct | CombinedBy::Union));
    }
}

impl Sharded {
    pub fn is_anchored(&self) -> bool {
        !self.anchors.is_empty()
    }
}

impl RowKey {
    /// Both keys are equal, column by column.
    pub fn is_same(&self, other: &RowKey, classes: &Classes) -> bool {
        self.group == other.group
            && self.terms.len() == other.terms.len()
            && self.terms.iter().zip(&other.terms).all(|(a, b)| classes.same(a, b))
    }

    /// Every column of the key is, or is determined by, one of these.
    fn is_among(&self, terms: &[Term], classes: &Classes) -> bool {
        self.terms.iter().all(|key| {
            let plain = Term::from(key.column);
            terms.iter().any(|term| classes.same(term, key) || classes.same(term, &plain))
        })
    }
}

pub fn classes(facts: &Facts) -> Classes {
    Classes::of(facts::conjuncts(facts.iter().map(Rc::as_ref)))
}

/// Output columns that hold the whole key in both branches.
fn set_keys(bound: &Bound, left: &Sharded, right: &Sharded) -> Vec<(GroupId, Vec<usize>)> {
    let Body::SetOperation { left: left_bound, right: right_bound, .. } = &bound.body else {
        return Vec::new();
    };
    let positions = |sharded: &Sharded, bound: &Bound| -> Vec<(GroupId, Vec<usize>)> {
        let classes = classes(&facts::implied(bound));
        let at = |term: &Term| {
            bound.outputs.iter().position(|output| output.origin.as_ref().is_some_and(|origin| classes.same(origin, term)))
        };
        let keys = sharded.keys.iter().filter(|key| key.is_total && bound.is_complete);
        let own = keys.filter_map(|key| Some((key.group, key.terms.iter().map(at).collect::<Option<Vec<usize>>>()?)));
        own.chain(sharded.output_keys.iter().cloned()).collect()
    };
    let (left, right) = (positions(left, left_bound), positions(right, right_bound));
    left.into_iter().filter(|key| right.contains(key)).collect()
}

/// A conjunct compares a column of the item: a row in which the item is null-extended does not survive.
fn rejects_nulls(environment: &Facts, item: &FromItem) -> bool {
    let mut leaves = Vec::new();
    collect_leaves(item, &mut leaves);
    let is_of_item = |term: &Term| leaves.contains(&term.column.leaf);
    facts::conjuncts(environment.iter().map(Rc::as_ref)).into_iter().any(|predicate| match predicate {
        Predicate::Test { term, .. } => is_of_item(term),
        Predicate::Same(left, right) => is_of_item(left) || is_of_item(right),
        // The same value by another name is the same NULL.
        Predicate::Identical(..) => false,
        Predicate::Unknown | Predicate::False | Predicate::And(_) | Predicate::Or(_) => false,
    })
}

fn collect_leaves(item: &FromItem, leaves: &mut Vec<usize>) {
    match item {
        FromItem::Leaf(leaf) | FromItem::Derived { leaf, .. } => leaves.push(*leaf),
        FromItem::Join { left, right, .. } => {
            collect_leaves(left, leaves);
            collect_leaves(right, leaves);
        }
    }
}

fn kept_rows(kind: Join) -> PgError {
    let join = match kind {
        Join::Inner => "JOIN",
        Join::Left => "LEFT JOIN",
        Join::Right => "RIGHT JOIN",
        Join::Full => "FULL JOIN",
    };
    PgError::unsupported(
        format!("{join} that keeps rows of a table that every shard has is not supported across shards"),
        "A kept row would be returned once on each shard.",
        "Put the sharded table on the kept side, or restrict it to one shard key.",
    )
}

fn equal_rows(by: CombinedBy) -> Combined {
    let reason = gather(
        "UNION, INTERSECT and EXCEPT are not supported across shards unless they select the whole shard key",
        "Equal rows may come from several shards.",
    );
    Combined { by, is_distinct_by_key: false, reason }
}

fn gather(message: &str, detail: &str) -> PgError {
    PgError::unsupported(message, detail, "Add a condition that pins the shard key, or group and select by the whole shard key.")
}
