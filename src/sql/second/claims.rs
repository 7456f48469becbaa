//! Whether what the first reading claims follows from what the second one sees.

use super::Claims;
use std::cell::Cell;

use super::sketch::{Column, Constant, Formula, Item, Sketch};
use crate::shard_key::KeyColumn;
use crate::shardmap::GroupId;
use crate::sql::analysis::{KeyCondition, KeyTest, KeyValue, Opinion, Part, Test};

/// From the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Follows,
    /// Something that is not understood may be why.
    Unclear,
    DoesNotFollow,
}

pub fn judge(sketch: &Sketch<'_>, claims: Claims<'_>) -> Opinion {
    let is_stored = sketch.is_stored;
    let work = &Cell::new(0);
    let verdicts = sketch.cases.iter().flat_map(|case| {
        let sharded = sketch.items.iter().enumerate().filter_map(|(index, item)| Some((index, item, item.key?)));
        sharded.map(move |(index, item, (group, key))| Judge { claims, case, is_stored, index, item, key, work }.best(group))
    });
    match verdicts.max() {
        Some(Verdict::Follows) => Opinion::Agrees,
        Some(Verdict::DoesNotFollow) => Opinion::Differs("a condition that does not follow"),
        Some(Verdict::Unclear) | None => Opinion::Unsure,
    }
}

/// One table under one conjunction.
struct Judge<'j> {
    claims: Claims<'j>,
    case: &'j [Formula],
    /// The case says what is stored, not what is compared.
    is_stored: bool,
    index: usize,
    item: &'j Item<'j>,
    key: &'j [KeyColumn],
    /// Conditions looked at, of the whole statement.
    work: &'j Cell<usize>,
}

/// Conditions beyond these are not looked at.
const WORK_MAX: usize = 20_000;

/// ORs that are taken apart one inside the other.
const CASES_DEPTH_MAX: usize = 3;

impl Judge<'_> {
    /// Some claim for the group must be no narrower than this table's rows.
    fn best(&self, group: GroupId) -> Verdict {
        let facts: Vec<&Formula> = self.case.iter().collect();
        let claimed = self.claims.parts.iter().filter_map(|part| match part {
            Part::Sharded { group: claimed, condition, .. } if *claimed == group => Some(condition),
            Part::Sharded { .. } | Part::Home => None,
        });
        claimed.map(|condition| self.follows(&facts, condition, 0)).min().unwrap_or(Verdict::DoesNotFollow)
    }

    fn follows(&self, facts: &[&Formula], condition: &KeyCondition, depth: usize) -> Verdict {
        self.work.set(self.work.get() + 1);
        if self.work.get() > WORK_MAX {
            return Verdict::Unclear;
        }
        if !self.is_stored && facts.iter().any(|fact| is_never_true(fact)) {
            return Verdict::Follows;
        }
        let direct = match condition {
            KeyCondition::All => Verdict::Follows,
            KeyCondition::Nothing => Verdict::Unclear,
            KeyCondition::And(parts) => {
                return parts.iter().map(|part| self.follows(facts, part, depth)).max().unwrap_or(Verdict::Follows);
            }
            KeyCondition::Or(parts) => {
                parts.iter().map(|part| self.follows(facts, part, CASES_DEPTH_MAX)).min().unwrap_or(Verdict::DoesNotFollow)
            }
            KeyCondition::Test(test) => self.test(facts, test),
        };
        if direct == Verdict::Follows || depth >= CASES_DEPTH_MAX {
            return direct;
        }
        self.by_cases(facts, condition, depth).min(direct)
    }

    /// It follows from every branch of some OR.
    fn by_cases(&self, facts: &[&Formula], condition: &KeyCondition, depth: usize) -> Verdict {
        let alternatives = facts.iter().filter_map(|fact| match fact {
            Formula::Any(branches) => Some(branches),
            Formula::Silent | Formula::Opaque | Formula::Equal(..) | Formula::OneOf(..) => None,
        });
        let every = |branches: &Vec<Vec<Formula>>| {
            let verdicts = branches.iter().map(|branch| {
                let known: Vec<&Formula> = facts.iter().copied().chain(branch).collect();
                self.follows(&known, condition, depth + 1)
            });
            verdicts.max().unwrap_or(Verdict::Follows)
        };
        alternatives.map(every).min().unwrap_or(Verdict::DoesNotFollow)
    }

    fn test(&self, facts: &[&Formula], test: &KeyTest) -> Verdict {
        let unproven = if facts.contains(&&Formula::Opaque) { Verdict::Unclear } else { Verdict::DoesNotFollow };
        let Some(key) = self.key.get(test.column) else {
            return Verdict::DoesNotFollow;
        };
        let claimed = match &test.test {
            Test::Equals(value) => vec![value],
            Test::Stored(stored) => vec![&stored.value],
            Test::In(values) => values.iter().collect(),
            Test::AnyOf(_) | Test::Compare(..) => return Verdict::Unclear,
        };
        // A comparison with the function's result is none with a column.
        if test.function != key.function {
            return Verdict::Unclear;
        }
        let claimed: Option<Vec<Constant>> = claimed.into_iter().map(|value| self.constant(value)).collect();
        let (Some(claimed), Some(position)) =
            (claimed, self.item.relation.columns.iter().position(|column| column.name == key.column))
        else {
            return Verdict::Unclear;
        };
        let own = equal_columns(facts, (self.index, position));
        let is_within = |fact: &&Formula| match fact {
            Formula::OneOf(column, constants) => {
                let is_claimed =
                    |constant: &Constant| claimed.contains(constant) || (!self.is_stored && *constant == Constant::Null);
                own.contains(column) && constants.iter().all(is_claimed)
            }
            Formula::Silent | Formula::Opaque | Formula::Equal(..) | Formula::Any(_) => false,
        };
        if facts.iter().any(is_within) { Verdict::Follows } else { unproven }
    }

    /// As the text has it.
    fn constant(&self, value: &KeyValue) -> Option<Constant> {
        match value {
            KeyValue::Parameter { number, .. } => Some(Constant::Parameter(*number)),
            KeyValue::Null => Some(Constant::Null),
            KeyValue::Bool(value) => Some(Constant::Text(value.to_string())),
            KeyValue::Literal { ordinal, negative, .. } => {
                let text = self.claims.literals.get(*ordinal as usize)?.value(self.claims.text)?;
                Some(Constant::Text(if *negative { format!("-{text}") } else { text.into_owned() }))
            }
            KeyValue::Constant { .. } => None,
        }
    }
}

/// A comparison with NULL alone, or a plain FALSE.
fn is_never_true(formula: &Formula) -> bool {
    match formula {
        Formula::OneOf(_, constants) => constants.iter().all(|constant| *constant == Constant::Null),
        Formula::Any(branches) => branches.is_empty(),
        Formula::Silent | Formula::Opaque | Formula::Equal(..) => false,
    }
}

/// The column, and those that equalities make it equal to.
fn equal_columns(facts: &[&Formula], column: Column) -> Vec<Column> {
    let mut equal = vec![column];
    let mut next = 0;
    while let Some(known) = equal.get(next).copied() {
        next += 1;
        for fact in facts {
            let other = match fact {
                Formula::Equal(left, right) if *left == known => *right,
                Formula::Equal(left, right) if *right == known => *left,
                _ => continue,
            };
            if !equal.contains(&other) {
                equal.push(other);
            }
        }
    }
    equal
}
