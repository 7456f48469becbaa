//! Rows that a join will throw away need not be shipped: `l IN (SELECT o …)` beside the conditions of a table, where the other
//! table's rows lie on the same shard.
//!
//! What is used: a row of `r` is needed only if there is a row of `s` with an equal column that satisfies what the statement asks
//! of `s` itself. That follows from an equality in WHERE, in the ON of a join for the sides that it filters, in `r.x IN (SELECT
//! s.y …)`, and in a correlated sub-select, whose rows are looked for by rows around it. Equalities go on: from `r.k = s.k` and
//! `s.k = q.k` follows `r.k = q.k`. The rows of `s` are there when it is colocated and the columns are the whole shard keys, or
//! when it is a reference table. Rows of `s` too many only let rows of `r` through.

use super::filters::{ColumnName, Piece, TEXTS, Unqualified};
use super::splicing::quoted;
use super::survey::{Right, Survey};
use crate::catalog::{Column, Relation};
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
type At<'r> = (usize, &'r Column);

/// A row of the table is needed only if its column is among the values of a column of another one, by its primary key: that one
/// may be loaded first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partner {
    pub column: String,
    /// Type of the column, as SQL.
    pub type_name: &'static str,
    /// Index in the survey's relations.
    pub relation: usize,
    pub key: String,
}

/// What follows from joins, by relation.
pub struct Joined {
    pub conditions: Vec<Vec<Vec<Piece>>>,
    pub partners: Vec<Vec<Partner>>,
}

/// `own`: of each relation, what must be true of a row that is needed, by its own columns.
pub fn semijoins(survey: &Survey, known: &[Option<Known<'_>>], own: &[Vec<Vec<Piece>>]) -> Joined {
    let steps = steps(survey, known);
    let count = survey.relations.len();
    let is_reference = |relation: usize| matches!(known.get(relation), Some(Some(Known { place: Place::Reference, .. })));
    // Of reference tables first: the rows of a nation that are needed follow from its region.
    let mut all = own.to_vec();
    for (relation, conditions) in all.iter_mut().enumerate().filter(|(relation, _)| is_reference(*relation)) {
        conditions.extend(of_relation(relation, known, own, &steps));
    }
    let conditions = (0..count).map(|relation| of_relation(relation, known, &all, &steps)).collect();
    let partners = (0..count).map(|relation| partners_of(relation, known, &steps)).collect();
    Joined { conditions, partners }
}

fn partners_of(relation: usize, known: &[Option<Known<'_>>], steps: &[(At<'_>, At<'_>)]) -> Vec<Partner> {
    let partner = |(from, to): &(At<'_>, At<'_>)| {
        let own = known.get(relation).copied().flatten()?;
        let other = known.get(to.0).copied().flatten()?;
        let is_primary = |unique: &&crate::catalog::Unique| unique.is_primary && unique.columns == [Some(to.1.name.clone())];
        other.relation.uniques.iter().find(is_primary)?;
        let (column, key) = (from.1.name.clone(), to.1.name.clone());
        let is_apart = from.0 == relation && other.relation.oid != own.relation.oid && !is_beside(&own, from.1, &other, to.1);
        is_apart.then_some(Partner { column, type_name: listed(from.1)?, relation: to.0, key })
    };
    steps.iter().filter_map(partner).collect()
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
fn listed(column: &Column) -> Option<&'static str> {
    match column.type_oid {
        oid::INT2 => Some("pg_catalog.int2"),
        oid::INT4 => Some("pg_catalog.int4"),
        oid::INT8 => Some("pg_catalog.int8"),
        oid::UUID => Some("pg_catalog.uuid"),
        _ => None,
    }
}

fn of_relation(
    relation: usize,
    known: &[Option<Known<'_>>],
    own: &[Vec<Vec<Piece>>],
    steps: &[(At<'_>, At<'_>)],
) -> Vec<Vec<Piece>> {
    let Some(own_known) = known.get(relation).and_then(Option::as_ref).filter(|known| known.place != Place::Elsewhere) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let starts = steps.iter().map(|(from, _)| *from).filter(|(index, _)| *index == relation);
    let mut started: Vec<i16> = Vec::new();
    for start in starts {
        if started.contains(&start.1.attnum) {
            continue;
        }
        started.push(start.1.attnum);
        // Columns that are equal to it, near ones first.
        let mut reached: Vec<At<'_>> = vec![start];
        let mut next = 0;
        while let Some(at) = reached.get(next).copied().filter(|_| reached.len() <= REACHED_MAX) {
            next += 1;
            for (_, to) in steps.iter().filter(|(from, _)| is_same(*from, at)) {
                if !reached.iter().any(|other| is_same(*other, *to)) {
                    reached.push(*to);
                }
            }
        }
        for (other, column) in reached.into_iter().skip(1) {
            let (Some(Some(known)), Some(conditions)) = (known.get(other), own.get(other)) else { continue };
            let is_there = is_beside(own_known, start.1, known, column);
            if other != relation && is_there && !conditions.is_empty() && !known.relation.has_row_security {
                found.push(membership(start.1, column, known, conditions));
            }
        }
    }
    found
}

fn membership(own: &Column, column: &Column, known: &Known<'_>, conditions: &[Vec<Piece>]) -> Vec<Piece> {
    let only = if known.with_children { "" } else { "ONLY " };
    let table = format!("{}.{}", quoted(&known.relation.schema), quoted(&known.relation.name));
    let mut pieces =
        vec![Piece::Sql(format!("{} IN (SELECT {} FROM {only}{table} WHERE ", quoted(&own.name), quoted(&column.name)))];
    for (index, condition) in conditions.iter().enumerate() {
        pieces.extend((index > 0).then(|| Piece::Sql(" AND ".to_owned())));
        pieces.extend(condition.iter().cloned());
    }
    pieces.push(Piece::Sql(")".to_owned()));
    pieces
}

/// (a, b): a row is needed only if there is a row with an equal b, of those that its own level keeps.
fn steps<'r>(survey: &Survey, known: &[Option<Known<'r>>]) -> Vec<(At<'r>, At<'r>)> {
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
                (Some(qualifier), _) => qualifier == used.effective_name(),
                (None, Unqualified::Own { merged }) => !merged.contains(&name.name),
                (None, Unqualified::Unknown) => return None,
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
