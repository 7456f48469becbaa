//! Which rows are needed only together with others: equalities, followed from one column to another.
//!
//! A step from `r.x` to `s.y` says that the statement's answer stays what it is without the rows of `r` that no row of `s` equals,
//! `s` being what is loaded of it. It follows from an equality
//!
//! * in WHERE, for tables that no outer join extends by NULLs: every row that counts has a partner;
//! * in ON or USING, for the tables that this condition filters: both sides of an inner join, the side of an outer join that is
//!   extended by NULLs. On the side that is kept a row without a partner is a row of the answer;
//! * in `r.x IN (SELECT s.y …)` as a conjunct of these;
//! * in the WHERE of a sub-select, whose rows are looked for by rows around it; and from these to it where `EXISTS` of it is such a
//!   conjunct itself.
//!
//! The partner may be any table of the level, extended by NULLs or not, since a NULL equals nothing; and a column of a sub-select
//! or WITH query in FROM that hands on the column of a table: its rows are made of those that are loaded.

use std::ops::Range;

use super::filters::{ColumnName, Unqualified};
use super::keys::are_comparable;
use super::semijoins::Known;
use super::survey::{Equality, Output, Right, Side, Survey, Using};
use crate::catalog::Column;

/// Columns by the index of their relation in the survey.
pub type At<'r> = (usize, &'r Column);

/// What a column's name means.
#[derive(Clone, Copy)]
struct Meaning<'r> {
    at: At<'r>,
    /// The level that knows the name.
    level: usize,
    /// A sub-select in FROM hands it on.
    is_derived: bool,
}

/// What a level says about a name.
enum Here<'r> {
    Means(Meaning<'r>),
    /// Nothing there has it: it is of a level around.
    Around,
    Unknown,
}

/// What every look-up needs.
struct Names<'s, 'r> {
    survey: &'s Survey,
    known: &'s [Option<Known<'r>>],
}

/// (a, b): a row is needed only if there is a row with an equal b, of those that its own level keeps.
pub fn steps<'r>(survey: &Survey, known: &[Option<Known<'r>>]) -> Vec<(At<'r>, At<'r>)> {
    let names = Names { survey, known };
    let of_conditions = survey.equalities.iter().flat_map(|equality| names.steps_of(equality));
    let of_using = survey.usings.iter().flat_map(|using| names.steps_of_using(using));
    of_conditions.chain(of_using).collect()
}

/// The columns that a SELECT hands on, by the names that it gives them.
pub fn handed_on<'r>(survey: &Survey, known: &[Option<Known<'r>>], level: usize) -> Vec<(At<'r>, String)> {
    let names = Names { survey, known };
    let outputs = survey.levels.get(level).map(|level| level.outputs.as_slice()).unwrap_or_default();
    let named = outputs.iter().filter_map(|output| match output {
        Output::Column { name, column } => match names.at_level(column, level, None) {
            Here::Means(found) => Some((found.at, name.clone())),
            Here::Around | Here::Unknown => None,
        },
        Output::All(_) => None,
    });
    named.collect()
}

pub fn is_same(one: At<'_>, other: At<'_>) -> bool {
    one.0 == other.0 && one.1.attnum == other.1.attnum
}

impl<'r> Names<'_, 'r> {
    fn steps_of(&self, equality: &Equality) -> Vec<(At<'r>, At<'r>)> {
        let Some(left) = self.meaning(&equality.left, equality) else { return Vec::new() };
        let filters = |meaning: &Meaning<'_>| !meaning.is_derived && equality.relations.contains(&meaning.at.0);
        let right = match &equality.right {
            Right::SubSelect(place) => {
                let right = self.output_of(*place).filter(|right| filters(&left) && are_comparable(left.at.1, right.1));
                return right.map(|right| (left.at, right)).into_iter().collect();
            }
            Right::Column(column) => self.meaning(column, equality),
        };
        let Some(right) = right.filter(|right| are_comparable(left.at.1, right.at.1)) else { return Vec::new() };
        let is_there =
            |to: &Meaning<'_>| to.level == equality.level || (!to.is_derived && self.survey.is_outer(to.at.0, equality.level));
        let is_step = |from: &Meaning<'_>, to: &Meaning<'_>| {
            (filters(from) && is_there(to)) || (filters(to) && self.is_looked_for(equality.level, from, to))
        };
        let both = [(left, right), (right, left)];
        both.into_iter().filter(|(from, to)| is_step(from, to)).map(|(from, to)| (from.at, to.at)).collect()
    }

    fn steps_of_using(&self, using: &Using) -> Vec<(At<'r>, At<'r>)> {
        let side = |side: &Side| match side {
            Side::Item(item) => {
                let name = ColumnName { qualifier: Some(item.clone()), name: using.name.clone() };
                match self.at_level(&name, using.level, None) {
                    Here::Means(Meaning { at, is_derived, .. }) => Some((at, is_derived)),
                    Here::Around | Here::Unknown => None,
                }
            }
            Side::Join(relations) => {
                let column = |index: &usize| self.column(*index, &using.name).map(|column| ((*index, column), false));
                relations.iter().find_map(column)
            }
        };
        let (Some(left), Some(right)) = (side(&using.left), side(&using.right)) else { return Vec::new() };
        let filters = |(at, is_derived): &(At<'_>, bool)| !is_derived && using.relations.contains(&at.0);
        let both =
            [(left, right), (right, left)].into_iter().filter(|(from, to)| filters(from) && are_comparable(from.0.1, to.0.1));
        both.map(|(from, to)| (from.0, to.0)).collect()
    }

    /// Rows around the level are needed only if it has a row that they equal. `inner`: filtered by the equality.
    fn is_looked_for(&self, level: usize, outer: &Meaning<'_>, inner: &Meaning<'_>) -> bool {
        let Some(entered) = self.survey.levels.get(level).filter(|level| level.is_membership) else { return false };
        let existence = self.survey.existences.iter().find(|existence| Some(existence.place) == entered.entered_by);
        entered.kept.contains(&inner.at.0)
            && Some(outer.level) == entered.parent
            && !outer.is_derived
            && existence.is_some_and(|existence| existence.relations.contains(&outer.at.0))
    }

    /// The column that a sub-select of one column yields.
    fn output_of(&self, place: i32) -> Option<At<'r>> {
        let mut levels = self.survey.levels.iter().enumerate();
        let (index, level) = levels.find(|(_, level)| level.entered_by == Some(place))?;
        let Here::Means(found) = self.at_level(level.output.as_ref()?, index, None) else { return None };
        (found.is_derived || level.kept.contains(&found.at.0)).then_some(found.at)
    }

    /// What a column's name means in an equality, as far as that is certain.
    fn meaning(&self, name: &ColumnName, equality: &Equality) -> Option<Meaning<'r>> {
        let (mut next, mut visible) = (Some(equality.level), equality.visible.as_ref());
        while let Some(level) = next {
            match self.at_level(name, level, visible) {
                Here::Means(found) => return Some(found),
                Here::Around => (next, visible) = (self.survey.levels.get(level)?.parent, None),
                Here::Unknown => return None,
            }
        }
        None
    }

    /// Were there two of one name, PostgreSQL would refuse the statement. `visible`: of the level's names, when not all are.
    fn at_level(&self, name: &ColumnName, index: usize, visible: Option<&Range<usize>>) -> Here<'r> {
        let Some(level) = self.survey.levels.get(index) else { return Here::Unknown };
        let is_certain = match (&name.qualifier, &level.unqualified) {
            (_, Unqualified::Hidden) | (None, Unqualified::Unknown) => false,
            (None, Unqualified::Own { merged }) => !merged.contains(&name.name),
            (Some(_), Unqualified::Own { .. } | Unqualified::Unknown) => true,
        };
        let used = |relation: &usize| self.survey.relations.get(*relation);
        let names = visible.map(|visible| level.names.get(visible.clone()).unwrap_or_default());
        let is_visible = |table: &str| names.is_none_or(|names| names.iter().any(|name| name == table));
        let is_named = |table: &str| is_visible(table) && name.qualifier.as_deref().is_none_or(|qualifier| qualifier == table);
        let is_known = |relation: &usize| {
            self.known.get(*relation).is_some_and(Option::is_some) && used(relation).is_some_and(|used| !used.has_column_aliases)
        };
        if !is_certain || !level.relations.iter().all(is_known) {
            return Here::Unknown;
        }
        let tables = level.relations.iter().filter(|relation| used(relation).is_some_and(|used| is_named(used.effective_name())));
        let columns = tables.filter_map(|relation| self.column(*relation, &name.name).map(|column| (*relation, column)));
        let derived = level.derived.iter().filter(|derived| is_named(&derived.name));
        let handed_on = derived.filter_map(|derived| self.handed_on(&name.name, derived.level));
        let found: Vec<(At<'r>, bool)> = columns.map(|at| (at, false)).chain(handed_on.map(|at| (at, true))).collect();
        match (found.as_slice(), level.is_closed) {
            (&[(at, is_derived)], _) => Here::Means(Meaning { at, level: index, is_derived }),
            ([], true) => Here::Around,
            (_, _) => Here::Unknown,
        }
    }

    /// The column of a table that a sub-select in FROM hands on by this name.
    fn handed_on(&self, name: &str, index: usize) -> Option<At<'r>> {
        let outputs = &self.survey.levels.get(index)?.outputs;
        let of = |column: ColumnName| match self.at_level(&column, index, None) {
            Here::Means(found) => Some(found.at),
            Here::Around | Here::Unknown => None,
        };
        let found = outputs.iter().filter_map(|output| match output {
            Output::Column { name: own, column } => (own == name).then(|| of(column.clone())).flatten(),
            Output::All(qualifier) => of(ColumnName { qualifier: qualifier.clone(), name: name.to_owned() }),
        });
        match found.collect::<Vec<_>>().as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    fn column(&self, relation: usize, name: &str) -> Option<&'r Column> {
        let has_own_names = self.survey.relations.get(relation).is_some_and(|used| !used.has_column_aliases);
        self.known.get(relation).copied().flatten().filter(|_| has_own_names)?.relation.column(name)
    }
}
