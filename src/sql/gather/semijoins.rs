//! Rows that a join will throw away need not be shipped: `l IN (SELECT o …)` beside the conditions of a table, where the other
//! table's rows lie on the same shard.
//!
//! What is used: a row of `r` is needed only if there is a row of `s` with an equal column that satisfies what the statement asks
//! of `s` itself. That follows from an equality in WHERE, in the ON of a join for the sides that it filters, in `r.x IN (SELECT
//! s.y …)`, and in a correlated sub-select, whose rows are looked for by rows around it. Equalities go on: from `r.k = s.k` and
//! `s.k = q.k` follows `r.k = q.k`. The rows of `s` are there when it is colocated and the columns are the whole shard keys, or
//! when it is a reference table. Rows of `s` too many only let rows of `r` through.
//!
//! Where they are not there, `s` may be loaded first, and its values be sent to the shards of `r`: where `s` is restricted, and
//! the column is its primary key, as in `orders.customer = customer.id`, or else `r` is not restricted at all.

use super::Keys;
use super::filters::{self, ColumnName, Piece, TEXTS, Unqualified};
use super::survey::{Right, Survey};
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
    Elsewhere,
}

/// Columns by the index of their relation in the survey.
pub type At<'r> = (usize, &'r Column);

/// The joins of a survey.
struct Joins<'s, 'r> {
    known: &'s [Option<Known<'r>>],
    /// Of each relation: its columns, and columns that they must be equal to one of the values of.
    reached: Vec<Vec<(At<'r>, At<'r>)>>,
    /// Of each relation, what must be true of a row that is needed.
    needed: Vec<Vec<Vec<Piece>>>,
}

/// What must be true of a row that is needed, by relation. `own`: by its own columns; `inputs`: the names of those that are
/// loaded.
pub fn semijoins(
    survey: &Survey,
    known: &[Option<Known<'_>>],
    own: Vec<Vec<Vec<Piece>>>,
    inputs: &[Option<String>],
) -> Vec<Vec<Vec<Piece>>> {
    let steps = steps(survey, known);
    let reached = (0..own.len()).map(|relation| reached(relation, &steps)).collect();
    let mut joins = Joins { known, reached, needed: own };
    // Of reference tables first: the rows of a nation that are needed follow from its region, those of a supplier from its nation.
    joins.add(|place| place == Place::Reference, |place| place == Place::Reference);
    joins.add(|place| matches!(place, Place::Sharded { .. }), |place| place == Place::Reference);
    joins.add_keys(inputs);
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
        self.conditions(relation).iter().flat_map(|condition| keys_of(condition)).any(|own| own == keys)
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
                        conditions.iter().any(|condition| !keys_of(condition).any(|keys| self.has_keys(relation, keys)));
                    let is_of_use = says_more && !other.relation.has_row_security;
                    is_of_use.then(|| membership(from.1, to.1, &other, conditions))
                };
                self.reached(relation).filter_map(partner).collect()
            })
            .collect();
        self.needed.iter_mut().zip(found).for_each(|(needed, found)| needed.extend(found));
    }

    /// Partners elsewhere, by keys.
    fn add_keys(&mut self, inputs: &[Option<String>]) {
        let input = |relation: usize| inputs.get(relation).and_then(Option::as_ref);
        let partners = |joins: &Self, relation: usize, is_wanted: &dyn Fn(Known<'r>, &Column) -> bool| -> Vec<Vec<Piece>> {
            let (Some(own), Some(own_name)) = (joins.known(relation), input(relation)) else { return Vec::new() };
            let partner = |(from, to): (At<'r>, At<'r>)| {
                let (other, name) = (joins.known(to.0)?, input(to.0)?);
                let is_apart = other.relation.oid != own.relation.oid && !is_beside(&own, from.1, &other, to.1);
                let conditions = joins.conditions(to.0);
                let waits_for_it = conditions.iter().flat_map(|condition| keys_of(condition)).any(|keys| keys.input == *own_name);
                let is_of_use = is_apart && is_wanted(other, to.1) && !conditions.is_empty() && !waits_for_it;
                let keys = Keys {
                    input: name.clone(),
                    relation: format!("{}.{}", other.relation.schema, other.relation.name),
                    column: quoted_identifier(&to.1.name),
                    type_name: listed(from.1)?,
                };
                is_of_use.then(|| vec![Piece::Sql(quoted_identifier(&from.1.name)), Piece::Keys(keys)])
            };
            joins.reached(relation).filter_map(partner).collect()
        };
        // What is restricted by keys may restrict others.
        for _ in 0..KEY_STEPS_MAX {
            for relation in 0..self.needed.len() {
                let found = partners(self, relation, &is_primary);
                let Some(needed) = self.needed.get_mut(relation) else { continue };
                for keys in found {
                    if !needed.contains(&keys) {
                        needed.push(keys);
                    }
                }
            }
        }
        let unrestricted = (0..self.needed.len()).filter(|relation| self.conditions(*relation).is_empty());
        let found: Vec<(usize, Vec<Vec<Piece>>)> =
            unrestricted.map(|relation| (relation, partners(self, relation, &|_, _| true))).collect();
        for (relation, keys) in found {
            self.needed.get_mut(relation).into_iter().for_each(|needed| needed.extend(keys.clone()));
        }
    }
}

fn keys_of(condition: &[Piece]) -> impl Iterator<Item = &Keys> {
    condition.iter().filter_map(|piece| match piece {
        Piece::Keys(keys) => Some(keys),
        Piece::Sql(_) | Piece::Parameter(_) => None,
    })
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
            group == other_group && column.name == key && other_column.name == other_key
        }
        (_, _) => false,
    }
}

/// Lists of these have neither quotes nor settings.
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

/// (a, b): a row is needed only if there is a row with an equal b, of those that its own level keeps.
pub fn steps<'r>(survey: &Survey, known: &[Option<Known<'r>>]) -> Vec<(At<'r>, At<'r>)> {
    let mut steps = Vec::new();
    for equality in &survey.equalities {
        let left = resolved(survey, known, &equality.left, equality.level);
        let right = match &equality.right {
            Right::Column(column) => resolved(survey, known, column, equality.level),
            Right::SubSelect(place) => output_of(survey, known, *place),
        };
        let (Some(left), Some(right)) = (left, right) else { continue };
        if !is_comparable(left.1, right.1) {
            continue;
        }
        let filters = |at: At<'_>| equality.relations.contains(&at.0);
        let is_sub_select = matches!(equality.right, Right::SubSelect(_));
        let is_outer = |at: At<'_>| survey.is_outer(at.0, equality.level);
        if filters(left) && (filters(right) || is_outer(right) || is_sub_select) {
            steps.push((left, right));
        }
        if !is_sub_select && filters(right) && (filters(left) || is_outer(left)) {
            steps.push((right, left));
        }
    }
    steps
}

/// The column that a sub-select of one column yields.
fn output_of<'r>(survey: &Survey, known: &[Option<Known<'r>>], place: i32) -> Option<At<'r>> {
    let (index, level) = survey.levels.iter().enumerate().find(|(_, level)| level.entered_by == Some(place))?;
    let found = resolved(survey, known, level.output.as_ref()?, index)?;
    level.kept.contains(&found.0).then_some(found)
}

/// What a column's name means, as far as that is certain.
fn resolved<'r>(survey: &Survey, known: &[Option<Known<'r>>], name: &ColumnName, level: usize) -> Option<At<'r>> {
    let mut next = Some(level);
    while let Some(level) = next.and_then(|level| survey.levels.get(level)) {
        let mut found = Vec::new();
        for index in &level.relations {
            let used = survey.relations.get(*index)?;
            let column = known.get(*index).copied().flatten().and_then(|known| known.relation.column(&name.name));
            let is_meant = match (&name.qualifier, &level.unqualified) {
                (_, Unqualified::Hidden) | (None, Unqualified::Unknown) => return None,
                (Some(qualifier), _) => qualifier == used.effective_name(),
                (None, Unqualified::Own { merged }) => !merged.contains(&name.name),
            };
            if used.has_column_aliases || known.get(*index).is_none_or(Option::is_none) {
                return None;
            }
            found.extend(column.filter(|_| is_meant).map(|column| (*index, column)));
        }
        match (found.as_slice(), level.is_closed) {
            ([only], _) => return Some(*only),
            ([], true) => next = level.parent,
            _ => return None,
        }
    }
    None
}

fn is_same(one: At<'_>, other: At<'_>) -> bool {
    one.0 == other.0 && one.1.attnum == other.1.attnum
}

/// Of one type, and equality of it is the same on every shard.
fn is_comparable(left: &Column, right: &Column) -> bool {
    let is_text = TEXTS.contains(&left.type_oid);
    left.type_oid == right.type_oid
        && super::filters::COMPARED.contains(&left.type_oid)
        && (!is_text || (left.is_deterministic && right.is_deterministic && left.collation == right.collation))
}

const REACHED_MAX: usize = 8;
/// A key of a key of a key.
const KEY_STEPS_MAX: usize = 3;
