//! Replaces the names of relations in a text by their byte offsets, and proves the result by reading it again.
//!
//! Works on PostgreSQL's tokens around the places that the parser reports; whatever does not look as expected is refused. A
//! spliced text counts only when its survey is that of the original but for the names that were replaced.

use std::ops::Range;

use super::computed::Computed;
use super::refusals;
use super::survey::{ColumnUse, RelationUse, Step, Survey};
use crate::catalog::quoted_identifier;
use crate::error::PgError;
use crate::sql::analysis::Splice;
use crate::sql::parse::tokens::Tokens;

/// What stands in a relation's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Index in [`Survey::relations`].
    pub relation: usize,
    /// A name of `pg_temp`, unquoted.
    pub name: String,
}

impl Tokens<'_> {
    /// The splice that puts `replacement` in the place of a relation in FROM.
    pub fn relation(&self, relation: &RelationUse, replacement: &str) -> Result<Splice, PgError> {
        let first = self.at(relation.location).ok_or_else(unexpected)?;
        let names = self.names(first).ok_or_else(unexpected)?;
        let mut last = self.name_end(first);
        let expected: Vec<&str> = relation.schema.as_deref().into_iter().chain([relation.name.as_str()]).collect();
        if names != expected {
            return Err(unexpected());
        }
        let mut first = first;
        if relation.with_children {
            if self.piece(last + 1) == "*" {
                last += 1;
            }
        } else {
            let before = |index: usize| index.checked_sub(1).ok_or_else(unexpected);
            if self.piece(before(first)?) == "(" && self.piece(last + 1) == ")" {
                first = before(first)?;
                last += 1;
            }
            first = before(first).ok().filter(|only| self.is_word(*only, "only")).ok_or_else(unexpected)?;
        }
        let command = first.checked_sub(1).filter(|table| self.is_word(*table, "table"));
        let range = self.range(command.unwrap_or(first), last).ok_or_else(unexpected)?;
        let select = if command.is_some() { "SELECT * FROM " } else { "" };
        let alias = match relation.alias {
            Some(_) => String::new(),
            None => format!("AS {} ", quoted_identifier(&relation.name)),
        };
        Ok(Splice { start: range.start, end: range.end, text: format!(" {select}{replacement} {alias}") })
    }

    /// What stands between the innermost parentheses around an offset that begin with one of these words.
    pub fn parenthesised(&self, offset: usize, words: &[&str]) -> Option<Range<usize>> {
        let mut open = self.at(offset)?;
        let mut depth = 0_usize;
        loop {
            open = open.checked_sub(1)?;
            match self.piece(open) {
                ")" => depth += 1,
                "(" if depth > 0 => depth -= 1,
                "(" if self.is_one_of(open + 1, words) => break,
                "(" => return None,
                _ => {}
            }
        }
        Some(self.get(open)?.end..self.get(self.closing(open)?)?.start)
    }

    /// `schema.table.column` without its schema.
    pub fn unqualified(&self, column: &ColumnUse) -> Result<Splice, PgError> {
        let first = column.location.and_then(|location| self.at(location)).ok_or_else(unexpected)?;
        let names = self.names(first).ok_or_else(unexpected)?;
        let (Some(start), Some(table)) = (self.get(first), self.get(first + 2)) else { return Err(unexpected()) };
        if names.first() != column.path.first() || names.get(1) != column.path.get(1) {
            return Err(unexpected());
        }
        Ok(Splice { start: start.start, end: table.start, text: " ".to_owned() })
    }
}

/// The text with its pieces replaced. `splices` in any order, not overlapping.
pub fn apply(text: &str, splices: &mut [Splice]) -> Result<String, PgError> {
    splices.sort_by_key(|splice| splice.start);
    let mut out = String::with_capacity(text.len() + 32 * splices.len());
    let mut position = 0;
    for splice in splices.iter() {
        out.push_str(text.get(position..splice.start).ok_or_else(unexpected)?);
        out.push_str(&splice.text);
        position = splice.end;
    }
    out.push_str(text.get(position..).ok_or_else(unexpected)?);
    Ok(out)
}

/// What is replaced in a text.
#[derive(Clone, Copy, Debug)]
pub struct Replaced<'r> {
    pub relations: &'r [Replacement],
    /// Columns of the form `schema.table.column` that lose their schema.
    pub shortened: &'r [usize],
    pub computed: &'r [Computed],
}

/// Whether `new` is `old` with these replacements.
pub fn is_same(old: &Survey, new: &Survey, replaced: &Replaced<'_>) -> bool {
    let mut steps = new.trace.iter();
    let mut index = 0;
    while let Some(step) = old.trace.get(index) {
        if let Some(computed) = replaced.computed.iter().find(|computed| computed.inner.steps.start == index) {
            let is_there =
                |step: &Step| steps.next().is_some_and(|new_step| is_same_step(&computed.replaced, step, new, new_step, None));
            if !computed.replaced.trace.iter().all(is_there) {
                return false;
            }
            index = computed.inner.steps.end;
            continue;
        }
        if !steps.next().is_some_and(|new_step| is_same_step(old, step, new, new_step, Some(replaced))) {
            return false;
        }
        index += 1;
    }
    steps.next().is_none()
}

/// Whether a step is the same in another survey, but for what was replaced.
pub fn is_same_step(old: &Survey, old_step: &Step, new: &Survey, new_step: &Step, replaced: Option<&Replaced<'_>>) -> bool {
    match (old_step, new_step) {
        (Step::Relation(a), Step::Relation(b)) => match (old.relations.get(*a), new.relations.get(*b)) {
            (Some(a_use), Some(b_use)) => {
                let mut relations = replaced.into_iter().flat_map(|replaced| replaced.relations);
                match relations.find(|replacement| replacement.relation == *a) {
                    Some(replacement) => is_replaced(a_use, b_use, replacement),
                    None => RelationUse { location: 0, ..a_use.clone() } == RelationUse { location: 0, ..b_use.clone() },
                }
            }
            _ => false,
        },
        (Step::Column(a), Step::Column(b)) => match (old.columns.get(*a), new.columns.get(*b)) {
            (Some(a_use), Some(b_use)) => {
                let skipped = usize::from(replaced.is_some_and(|replaced| replaced.shortened.contains(a)));
                a_use.is_star == b_use.is_star && a_use.path.get(skipped..) == Some(&b_use.path)
            }
            _ => false,
        },
        (Step::Other(a), Step::Other(b)) => a == b,
        (Step::Relation(_) | Step::Column(_) | Step::Other(_), _) => false,
    }
}

fn is_replaced(old: &RelationUse, new: &RelationUse, replacement: &Replacement) -> bool {
    new.schema.as_deref() == Some(TEMPORARY_SCHEMA)
        && new.name == replacement.name
        && new.alias.as_deref() == Some(old.effective_name())
        && new.has_column_aliases == old.has_column_aliases
        && new.with_children
}

pub const TEMPORARY_SCHEMA: &str = "pg_temp";

fn unexpected() -> PgError {
    refusals::unproven("A table's name stands in a form that the proxy does not know.")
}
