//! Rows that a join will throw away need not be shipped: `l IN (SELECT o …)` beside the conditions of a table, where the other
//! table's rows lie on the same shard.
//!
//! What is used are the steps of [`super::steps`]: a row of `r` is needed only if there is a row of `s` with an equal column that
//! satisfies what the statement asks of `s` itself. They go on: from `r.k = s.k` and `s.k = q.k` follows `r.k = q.k`. The rows of
//! `s` are there when it is colocated and the columns are the whole shard keys, or when it is a reference table. Rows of `s` too
//! many only let rows of `r` through.
//!
//! Where they are not there, `s` may be loaded first, and its values be sent to the shards of `r`. That costs another trip to them,
//! and is done where `s` is expected to have fewer keys than `r` has rows: `s` is restricted, and
//!
//! * the column is its primary key, as in `orders.customer = customer.id`: each row of `r` has one partner at most;
//! * or `r` is restricted less: not at all, or by no equality with constants where `s` has one.
//!
//! What is restricted by keys is so as much as the table that they come from. A temporary table counts as restricted by constants:
//! that is what its rows are, a list that the client has brought. It waits for nobody's keys. No statistics are asked: keys that are
//! too many are not sent (`keys`), and the rows come as they would have.

use std::collections::BTreeSet;
use std::slice::from_ref;

use super::filters::{self, Piece};
use super::keys::{Form, Keys};
use super::keys_in;
use super::steps::{At, is_same, steps};
use super::survey::Survey;
use crate::catalog::{Column, Relation, quoted_identifier, quoted_name};
use crate::shard_key::oid;
use crate::shardmap::GroupId;

/// A relation of the survey that the catalogue has.
#[derive(Clone, Copy, Debug)]
pub struct Known<'r> {
    pub relation: &'r Relation,
    pub place: Place<'r>,
    pub with_children: bool,
}

impl Known<'_> {
    fn is_temporary(self) -> bool {
        self.place == Place::Temporary
    }
}

/// Where its rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'r> {
    /// Sharded by this column alone.
    Sharded {
        group: GroupId,
        key: &'r str,
    },
    /// On every shard.
    Reference,
    /// On the session's own connection.
    Temporary,
    Elsewhere,
}

/// Where the values of a relation's columns are when it has been loaded.
#[derive(Clone, Debug)]
pub struct KeySource {
    /// Name of the input.
    pub input: String,
    /// How messages name it.
    pub relation: String,
    /// It is a sub-select that the shards compute: those of its tables' columns that it hands on, by their names in it.
    pub computed: Option<Vec<(usize, i16, String)>>,
}

impl KeySource {
    /// The name of a column there, quoted.
    fn column(&self, at: At<'_>) -> Option<String> {
        match &self.computed {
            None => Some(quoted_identifier(&at.1.name)),
            Some(columns) => {
                let is_it = |(relation, attnum, _): &&(usize, i16, String)| *relation == at.0 && *attnum == at.1.attnum;
                columns.iter().find(is_it).map(|(_, _, name)| quoted_identifier(name))
            }
        }
    }
}

/// The joins of a survey.
struct Joins<'s, 'r> {
    known: &'s [Option<Known<'r>>],
    /// Of each relation that is loaded.
    sources: &'s [Option<KeySource>],
    /// Columns that rows of other inputs are compared with.
    compared: Vec<At<'r>>,
    /// Of each relation, how much it is restricted.
    extent: Vec<Extent>,
    /// Of each relation: its columns, and columns that they must be equal to one of the values of.
    reached: Vec<Vec<(At<'r>, At<'r>)>>,
    /// Of each relation, what must be true of a row that is needed.
    needed: Vec<Vec<Vec<Piece>>>,
}

/// How much a table is restricted, as far as that shows in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    #[default]
    Whole,
    Part,
    /// An equality with constants.
    Pinned,
}

/// Which partners send keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeysOf {
    /// Restricted ones, of a primary key.
    Primary,
    /// Those that are restricted the most, and more than the table itself.
    Fewest,
}

/// What must be true of a row that is needed, by relation. `own`: by its own columns; `is_pinned`: by an equality with constants;
/// `sources`: where those are that are loaded.
pub fn semijoins(
    survey: &Survey,
    known: &[Option<Known<'_>>],
    (own, is_pinned): (Vec<Vec<Vec<Piece>>>, &[bool]),
    sources: &[Option<KeySource>],
) -> Vec<Vec<Vec<Piece>>> {
    let steps = steps(survey, known);
    let reached = (0..own.len()).map(|relation| reached(relation, &steps)).collect();
    let is_temporary = |relation: usize| known.get(relation).is_some_and(|known| known.is_some_and(Known::is_temporary));
    let extent = is_pinned.iter().enumerate();
    let extent = extent.map(|(relation, is_pinned)| match *is_pinned || is_temporary(relation) {
        true => Extent::Pinned,
        false => Extent::Whole,
    });
    let extent = extent.collect();
    let input = |at: At<'_>| sources.get(at.0).and_then(Option::as_ref).map(|source| &source.input);
    let compared = steps.iter().filter(|(from, to)| input(*from) != input(*to)).map(|(_, to)| *to).collect();
    let mut joins = Joins { known, sources, compared, extent, reached, needed: own };
    // Of reference tables first: the rows of a nation that are needed follow from its region, those of a supplier from its nation.
    joins.add(|place| place == Place::Reference, |place| place == Place::Reference);
    joins.add(|place| matches!(place, Place::Sharded { .. }), |place| place == Place::Reference);
    joins.add_keys();
    joins.add(|place| matches!(place, Place::Sharded { .. }), |place| matches!(place, Place::Sharded { .. }));
    joins.needed
}

impl<'r> Joins<'_, 'r> {
    fn known(&self, relation: usize) -> Option<Known<'r>> {
        self.known.get(relation).copied().flatten()
    }

    fn conditions(&self, relation: usize) -> &[Vec<Piece>] {
        self.needed.get(relation).map(Vec::as_slice).unwrap_or_default()
    }

    fn has_keys(&self, relation: usize, keys: &Keys) -> bool {
        keys_in(self.conditions(relation)).any(|own| own == keys)
    }

    fn reached(&self, relation: usize) -> impl Iterator<Item = (At<'r>, At<'r>)> {
        self.reached.get(relation).into_iter().flatten().copied()
    }

    /// Partners on the same shard: `of` relations, `among` relations.
    fn add(&mut self, of: impl Fn(Place<'r>) -> bool, among: impl Fn(Place<'r>) -> bool) {
        let found: Vec<Vec<Vec<Piece>>> = (0..self.needed.len())
            .map(|relation| {
                let Some(own) = self.known(relation).filter(|known| of(known.place)) else { return Vec::new() };
                let partner = |(from, to): (At<'r>, At<'r>)| {
                    let other = self.known(to.0).filter(|other| among(other.place) && is_beside(&own, from.1, other, to.1))?;
                    let conditions = self.conditions(to.0);
                    // By the same keys it is restricted already.
                    let says_more =
                        conditions.iter().any(|condition| !keys_in(from_ref(condition)).any(|keys| self.has_keys(relation, keys)));
                    let is_of_use = says_more && !other.relation.has_row_security;
                    is_of_use.then(|| membership(from.1, to.1, &other, conditions))
                };
                self.reached(relation).filter_map(partner).collect()
            })
            .collect();
        self.needed.iter_mut().zip(found).for_each(|(needed, found)| needed.extend(found));
    }

    /// How much it is restricted, by what is known now: a computed sub-select as much as one of its tables.
    fn extent(&self, relation: usize) -> Extent {
        let of = |relation: usize| {
            let own = self.extent.get(relation).copied().unwrap_or_default();
            match self.conditions(relation).is_empty() && !self.known(relation).is_some_and(Known::is_temporary) {
                true => Extent::Whole,
                false => own.max(Extent::Part),
            }
        };
        match self.source(relation).filter(|source| source.computed.is_some()) {
            Some(source) => self.relations_of(&source.input).map(of).max().unwrap_or_default(),
            None => of(relation),
        }
    }

    fn source(&self, relation: usize) -> Option<&KeySource> {
        self.sources.get(relation).and_then(Option::as_ref)
    }

    /// Those that are loaded as this input.
    fn relations_of(&self, input: &str) -> impl Iterator<Item = usize> {
        let sources = self.sources.iter().enumerate();
        sources.filter(move |(_, source)| source.as_ref().is_some_and(|source| source.input == input)).map(|(index, _)| index)
    }

    /// Partners elsewhere, by keys.
    fn add_keys(&mut self) {
        // What is restricted by keys may restrict others.
        for _ in 0..KEY_STEPS_MAX {
            self.add_keys_of(KeysOf::Primary);
        }
        for _ in 0..KEY_STEPS_MAX {
            self.add_keys_of(KeysOf::Fewest);
        }
    }

    fn add_keys_of(&mut self, which: KeysOf) {
        for relation in 0..self.needed.len() {
            let before = self.extent(relation);
            let partners = self.reached(relation).filter(|(from, to)| {
                let extent = self.extent(to.0);
                let is_wanted = match which {
                    KeysOf::Primary => extent > Extent::Whole && self.known(to.0).is_some_and(|other| is_primary(other, to.1)),
                    KeysOf::Fewest => extent > before,
                };
                is_wanted && self.may_wait(relation, *from, *to)
            });
            let partners: Vec<(At<'r>, At<'r>)> = partners.collect();
            let is_best = |(from, to): &(At<'r>, At<'r>)| {
                let alike = partners.iter().filter(|(other, _)| is_same(*other, *from));
                which == KeysOf::Primary || alike.map(|(_, other)| self.extent(other.0)).max() == Some(self.extent(to.0))
            };
            let keys = |(from, to): &(At<'r>, At<'r>)| Some((self.keys(*from, *to)?, self.extent(to.0)));
            let found: Vec<(Vec<Piece>, Extent)> = partners.iter().filter(|pair| is_best(pair)).filter_map(keys).collect();
            let (Some(needed), Some(own)) = (self.needed.get_mut(relation), self.extent.get_mut(relation)) else { continue };
            for (keys, extent) in found {
                *own = extent.max(*own);
                if !needed.contains(&keys) {
                    needed.push(keys);
                }
            }
        }
    }

    /// The partner is somewhere else, restricted by more than what restricts these rows as well, and does not wait for them.
    fn may_wait(&self, relation: usize, from: At<'r>, to: At<'r>) -> bool {
        let (Some(own), Some(other)) = (self.known(relation), self.known(to.0)) else { return false };
        let (Some(source), Some(other_source)) = (self.source(relation), self.source(to.0)) else { return false };
        let is_shared = |keys: &Keys| {
            let is_it = |at: At<'_>| {
                let source = self.source(at.0).filter(|source| source.input == keys.input);
                source.and_then(|source| source.column(at)).as_ref() == Some(&keys.column)
            };
            self.reached(relation).any(|(own, at)| is_same(own, from) && is_it(at))
        };
        let says_more = self.conditions(to.0).iter().any(|condition| match condition.as_slice() {
            [Piece::Sql(column), Piece::Keys(keys)] => *column != quoted_identifier(&to.1.name) || !is_shared(keys),
            _ => true,
        });
        // Of a sub-select, only what it hands on itself: grouping may have left NULLs in another column that equals this one.
        let is_computed = other_source.computed.is_some();
        let is_handed_on = is_computed && self.compared.iter().any(|at| is_same(*at, to));
        let says_more = says_more || other.is_temporary();
        source.computed.is_none()
            && !own.is_temporary()
            && (is_handed_on || (!is_computed && says_more && other.relation.oid != own.relation.oid))
            && !is_beside(&own, from.1, &other, to.1)
            && !self.waits_for(&other_source.input, &source.input)
    }

    /// `from` is among the values of `to`.
    fn keys(&self, from: At<'r>, to: At<'r>) -> Option<Vec<Piece>> {
        let source = self.source(to.0)?;
        let (input, relation) = (source.input.clone(), source.relation.clone());
        let keys = Keys { input, relation, column: source.column(to)?, form: Form::of(from.1, to.1)? };
        Some(vec![Piece::Sql(quoted_identifier(&from.1.name)), Piece::Keys(keys)])
    }

    /// An input is restricted by keys of another, or by keys of what waits for it.
    fn waits_for(&self, input: &str, other: &str) -> bool {
        let (mut waiting, mut seen) = (vec![input], BTreeSet::new());
        while let Some(input) = waiting.pop().filter(|input| *input != other) {
            let keys = self.relations_of(input).flat_map(|relation| keys_in(self.conditions(relation)));
            waiting.extend(keys.map(|keys| keys.input.as_str()).filter(|input| seen.insert(*input)));
        }
        seen.contains(other)
    }
}

/// The column is the whole primary key.
fn is_primary(known: Known<'_>, column: &Column) -> bool {
    known.relation.uniques.iter().any(|unique| unique.is_primary && unique.columns == [Some(column.name.clone())])
}

/// From the columns of a relation, those of others that are equal to them, near ones first.
fn reached<'r>(relation: usize, steps: &[(At<'r>, At<'r>)]) -> Vec<(At<'r>, At<'r>)> {
    let mut found = Vec::new();
    let mut started: Vec<i16> = Vec::new();
    for start in steps.iter().map(|(from, _)| *from).filter(|(index, _)| *index == relation) {
        if started.contains(&start.1.attnum) {
            continue;
        }
        started.push(start.1.attnum);
        let mut reached: Vec<At<'r>> = vec![start];
        let mut next = 0;
        while let Some(at) = reached.get(next).copied().filter(|_| reached.len() <= REACHED_MAX) {
            next += 1;
            for (_, to) in steps.iter().filter(|(from, _)| is_same(*from, at)) {
                if !reached.iter().any(|other| is_same(*other, *to)) {
                    reached.push(*to);
                }
            }
        }
        found.extend(reached.into_iter().skip(1).filter(|to| to.0 != relation).map(|to| (start, to)));
    }
    found
}

/// Equal values of these two columns are on the same shard.
fn is_beside(own: &Known<'_>, column: &Column, other: &Known<'_>, other_column: &Column) -> bool {
    match (own.place, other.place) {
        (_, Place::Reference) => true,
        (Place::Sharded { group, key }, Place::Sharded { group: other_group, key: other_key }) => {
            let are_alike = column.type_oid == other_column.type_oid;
            group == other_group && are_alike && column.name == key && other_column.name == other_key
        }
        (_, _) => false,
    }
}

/// Lists of these have neither quotes nor settings: their type.
pub fn listed(column: &Column) -> Option<&'static str> {
    match column.type_oid {
        oid::INT2 => Some("pg_catalog.int2"),
        oid::INT4 => Some("pg_catalog.int4"),
        oid::INT8 => Some("pg_catalog.int8"),
        oid::UUID => Some("pg_catalog.uuid"),
        _ => None,
    }
}

fn membership(own: &Column, column: &Column, known: &Known<'_>, conditions: &[Vec<Piece>]) -> Vec<Piece> {
    let only = if known.with_children { "" } else { "ONLY " };
    let table = quoted_name(&known.relation.schema, &known.relation.name);
    let mut rows = vec![Piece::Sql(format!("SELECT {} FROM {only}{table} WHERE ", quoted_identifier(&column.name)))];
    for (index, condition) in conditions.iter().enumerate() {
        rows.extend((index > 0).then(|| Piece::Sql(" AND ".to_owned())));
        rows.extend(condition.iter().cloned());
    }
    filters::among(quoted_identifier(&own.name), rows)
}

const REACHED_MAX: usize = 8;
/// A key of a key of a key.
const KEY_STEPS_MAX: usize = 3;
