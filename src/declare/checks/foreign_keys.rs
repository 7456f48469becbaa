//! Foreign keys of and to a table that is declared: which cannot be checked on one shard, and what keeps them; dropping them comes last.

use serde_json::Value;

use super::{Candidate, Obstacle, Place};
use crate::catalog::{
    ForeignKey, ForeignKeyAction, ObjectName, Relation, quoted_identifier, quoted_literal, quoted_name, shown_name,
};
use crate::declare::key::column_text;
use crate::declare::plan_tables::definitions::ForeignKeyText;
use crate::shard_key::KeyColumn;

/// Why a foreign key cannot be checked on one shard.
enum Problem<'k> {
    /// A sharded table refers to one that is not declared.
    ToHome(&'k [KeyColumn]),
    /// The reverse.
    FromHome(&'k [KeyColumn]),
    FromReference,
    Apart,
    WithoutKey(&'k [KeyColumn], &'k [KeyColumn]),
    /// Its action on delete would set columns of the key.
    SetsKey(&'k [KeyColumn]),
}

impl Candidate<'_> {
    pub(super) fn foreign_keys(&self, member: &Relation) -> impl Iterator<Item = Obstacle> {
        member.foreign_keys.iter().filter_map(|foreign_key| {
            let referenced = self.catalog.relations.get(&foreign_key.referenced)?;
            self.foreign_key_obstacle(foreign_key, member, referenced)
        })
    }

    /// Those of other tables that refer to this one.
    pub(super) fn referencing_keys(&self, member: &Relation) -> impl Iterator<Item = Obstacle> {
        let mut referencing: Vec<&Relation> =
            self.catalog.relations.values().filter(|relation| relation.oid != member.oid).collect();
        referencing.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
        referencing.into_iter().flat_map(move |referencing| {
            let to_this = referencing.foreign_keys.iter().filter(|foreign_key| foreign_key.referenced == member.oid);
            to_this.filter_map(move |foreign_key| self.foreign_key_obstacle(foreign_key, referencing, member))
        })
    }

    fn foreign_key_obstacle(&self, foreign_key: &ForeignKey, from: &Relation, to: &Relation) -> Option<Obstacle> {
        let problem = self.foreign_key_problem(foreign_key, from, to)?;
        let reason = match problem {
            Problem::ToHome(_) => format!("table \"{}\" is not distributed, its rows are on the home shard only", to.name),
            Problem::FromHome(_) => format!("table \"{}\" is not distributed, its rows are on the home shard only", from.name),
            Problem::FromReference => "a reference table is on every shard, and the rows it refers to are not".to_owned(),
            Problem::Apart => "the two tables are not colocated".to_owned(),
            Problem::WithoutKey(..) => "it does not contain the whole shard key of both tables".to_owned(),
            Problem::SetsKey(_) => "what it sets when rows are deleted there has the shard key in it".to_owned(),
        };
        let (name, from_name) = (&foreign_key.name, &from.name);
        Some(Obstacle {
            what: format!("Foreign key \"{name}\" of table \"{from_name}\" refers to table \"{}\": {reason}.", to.name),
            remedy: self.keeping(&problem, foreign_key, from, to),
        })
    }

    /// `None`: it can be checked on one shard.
    fn foreign_key_problem<'k>(&'k self, foreign_key: &ForeignKey, from: &Relation, to: &Relation) -> Option<Problem<'k>> {
        let (from_place, to_place) = (self.place(from), self.place(to));
        if let Place::Sharded(_, key) = from_place
            && matches!(to_place, Place::Sharded(..))
            && sets_key(foreign_key, from, key)
        {
            return Some(Problem::SetsKey(key));
        }
        match (from_place, to_place) {
            // The rows that are referred to are everywhere.
            (Place::Sharded(..) | Place::Reference, Place::Reference) => None,
            // Home tables are on the home shard, where the copy is as good as any; but a write there must reach all copies,
            // and an action like ON DELETE CASCADE would fire on the home shard's rows alone, which are all of them.
            (Place::Home, Place::Reference | Place::Home) => None,
            (Place::Reference, Place::Sharded(..) | Place::Home) => Some(Problem::FromReference),
            (Place::Sharded(_, key), Place::Home) => Some(Problem::ToHome(key)),
            (Place::Home, Place::Sharded(_, key)) => Some(Problem::FromHome(key)),
            (Place::Sharded(from_group, _), Place::Sharded(to_group, _)) if from_group != to_group => Some(Problem::Apart),
            (Place::Sharded(_, from_key), Place::Sharded(_, to_key)) => {
                let is_pair = |(from, to): (&KeyColumn, &KeyColumn)| {
                    from.function == to.function
                        && pairs(foreign_key).any(|(column, referenced)| *column == from.column && *referenced == to.column)
                };
                let is_on_key = from_key.len() == to_key.len() && from_key.iter().zip(to_key).all(is_pair);
                (!is_on_key).then_some(Problem::WithoutKey(from_key, to_key))
            }
        }
    }

    /// What keeps the foreign key, then what drops it.
    fn keeping(&self, problem: &Problem<'_>, foreign_key: &ForeignKey, from: &Relation, to: &Relation) -> String {
        let table = |relation: &Relation| shown_name(&relation.schema, &relation.name);
        let drop = format!(
            "ALTER TABLE {} DROP CONSTRAINT {}",
            quoted_name(&from.schema, &from.name),
            quoted_identifier(&foreign_key.name)
        );
        let literal = |text: &str| quoted_literal(text).trim_start().to_owned();
        let reference = format!("SELECT shardgate.reference_table({})", literal(&table(to)));
        let both = |from_key: Option<String>, to_key: Option<String>| {
            let pair = |relation: &Relation, key: Option<String>| {
                format!("{}: {}", Value::from(table(relation)), Value::from(key.unwrap_or_else(|| "…".to_owned())))
            };
            let pairs =
                if from.oid == to.oid { pair(from, from_key) } else { format!("{}, {}", pair(from, from_key), pair(to, to_key)) };
            literal(&format!("{{{pairs}}}"))
        };
        match problem {
            Problem::ToHome(key) => match paired(key, |column| referenced_by(foreign_key, column)) {
                // It is the key already.
                Some(to_key) => format!(
                    "It stays if both tables are declared at once: SELECT shardgate.distribute_tables({}); or if the other one is a \
                     reference table first: {reference}. Otherwise {drop}.",
                    both(Some(text(key)), Some(to_key))
                ),
                None => format!(
                    "It stays if the other table is small and a reference table first: {reference}; or, with the shard key in it, if both \
                     are declared at once: SELECT * FROM shardgate.plan_tables({}) gives the script. Otherwise {drop}.",
                    both(Some(text(key)), None)
                ),
            },
            Problem::FromHome(key) => match paired(key, |column| referring_to(foreign_key, column)) {
                Some(from_key) => format!(
                    "It stays if both tables are declared at once: SELECT shardgate.distribute_tables({}). Otherwise {drop}.",
                    both(Some(from_key), Some(text(key)))
                ),
                None => format!(
                    "It stays, with the shard key in it, if both tables are declared at once: SELECT * FROM shardgate.plan_tables({}) gives \
                     the script. Otherwise {drop}.",
                    both(None, Some(text(key)))
                ),
            },
            Problem::FromReference => {
                format!("It stays if the other table is a reference table first: {reference}. Otherwise {drop}.")
            }
            Problem::Apart => format!(
                "It stays if the table that is declared now goes to the other one's group: colocate_with => {}. Otherwise {drop}.",
                literal(&table(if from.oid == self.relation.oid { to } else { from }))
            ),
            Problem::WithoutKey(from_key, to_key) => format!(
                "It stays with the shard key in it, which the keys of table \"{}\" need, too: SELECT * FROM shardgate.plan_tables({}) gives \
                 the script. Otherwise {drop}.",
                to.name,
                both(Some(text(from_key)), Some(text(to_key)))
            ),
            Problem::SetsKey(key) => self.without_key_set(foreign_key, from, key, &drop),
        }
    }

    fn without_key_set(&self, foreign_key: &ForeignKey, from: &Relation, key: &[KeyColumn], drop: &str) -> String {
        let rest: Vec<&str> = set_columns(foreign_key).iter().map(String::as_str).filter(|column| !is_key(key, column)).collect();
        let object = ObjectName::part_of(from.whole(), "constraint", foreign_key.name.as_str());
        let printed = self.catalog.definitions.get(&object).and_then(|printed| ForeignKeyText::read(printed, &[]));
        match printed.filter(|_| !rest.is_empty()) {
            Some(text) => {
                let text = text.setting_only(&rest);
                format!("Name the columns that it sets: {drop}, ADD CONSTRAINT {} {text}.", quoted_identifier(&foreign_key.name))
            }
            None => format!("Rows cannot be without their shard key: {drop}, and make it again with another action."),
        }
    }
}

fn pairs(foreign_key: &ForeignKey) -> impl Iterator<Item = (&String, &String)> {
    foreign_key.columns.iter().zip(&foreign_key.referenced_columns)
}

/// The other table's key, where the foreign key pairs each column of this one's with a column there.
fn paired<'f>(key: &[KeyColumn], other: impl Fn(&str) -> Option<&'f str>) -> Option<String> {
    let one = |column: &KeyColumn| Some(column_text(other(&column.column)?, column.function.as_ref()));
    Some(key.iter().map(one).collect::<Option<Vec<String>>>()?.join(", "))
}

fn referenced_by<'f>(foreign_key: &'f ForeignKey, own: &str) -> Option<&'f str> {
    pairs(foreign_key).find(|(column, _)| *column == own).map(|(_, referenced)| referenced.as_str())
}

fn referring_to<'f>(foreign_key: &'f ForeignKey, other: &str) -> Option<&'f str> {
    pairs(foreign_key).find(|(_, referenced)| *referenced == other).map(|(column, _)| column.as_str())
}

/// As a declaration takes it.
pub(in crate::declare) fn text(key: &[KeyColumn]) -> String {
    key.iter().map(|column| column_text(&column.column, column.function.as_ref())).collect::<Vec<_>>().join(", ")
}

fn set_columns(foreign_key: &ForeignKey) -> &[String] {
    if foreign_key.columns_set_on_delete.is_empty() { &foreign_key.columns } else { &foreign_key.columns_set_on_delete }
}

fn is_key(key: &[KeyColumn], column: &str) -> bool {
    key.iter().any(|key| key.column == column)
}

/// A column that cannot be NULL is not set so, as in PostgreSQL.
fn sets_key(foreign_key: &ForeignKey, from: &Relation, key: &[KeyColumn]) -> bool {
    let may_be_null = |column: &&String| from.column(column).is_none_or(|column| !column.is_not_null);
    let mut set = set_columns(foreign_key).iter().filter(|column| is_key(key, column));
    match foreign_key.on_delete {
        ForeignKeyAction::SetsNull => set.any(|column| may_be_null(&column)),
        ForeignKeyAction::SetsDefault => set.next().is_some(),
        ForeignKeyAction::Looks | ForeignKeyAction::Cascades => false,
    }
}
