//! What the rows themselves may have against the script: keys that are missing, and references to rows with other keys.
//!
//! Each question is one query on the home shard, where all rows of tables are that are not sharded yet. One that takes too long stays
//! open, which the script says: its transaction would fail as a whole, and change nothing.

use super::changes::{Changes, join_condition};
use super::facts::rows;
use super::foreign_keys::{Remade, shown};
use super::members::{Member, Members};
use super::of_table;
use crate::catalog::{ForeignKey, Relation, quoted_identifier, quoted_name};
use crate::declare::checks::Obstacle;
use crate::declare::sequences;
use crate::declare::shard_connection::ShardConnection;
use crate::error::{PgError, SqlState};

/// A question about rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// One boolean: is it so?
    sql: String,
    /// What is in the way if it is.
    obstacle: Obstacle,
}

/// What is known of the rows.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) obstacles: Vec<Obstacle>,
    /// Not answered in time.
    pub(super) open: Vec<String>,
}

pub(super) async fn ask(home: &mut ShardConnection, questions: &[Question]) -> Result<Answers, PgError> {
    let mut answers = Answers::default();
    home.run(&format!("SET statement_timeout = '{PATIENCE_SECONDS}s'")).await?;
    for question in questions {
        match rows::<(bool,)>(home, &question.sql).await {
            Ok(found) if found.iter().any(|(is_so,)| *is_so) => answers.obstacles.push(question.obstacle.clone()),
            Ok(_) => {}
            // Row security, or a lock that is held for long.
            Err(error) if OPEN.contains(&error.code) => answers.open.push(question.obstacle.what.clone()),
            Err(error) => return Err(error),
        }
    }
    home.settle().await?;
    Ok(answers)
}

/// For one question.
const PATIENCE_SECONDS: u32 = 60;
const OPEN: [SqlState; 3] = [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE, SqlState::INSUFFICIENT_PRIVILEGE];

pub(super) fn questions(members: &Members<'_>, changes: &Changes<'_, '_>) -> Vec<Question> {
    let asker = Asker { members };
    let new = || members.list.iter().filter(|member| !member.is_declared);
    let mut found: Vec<Question> = new().filter_map(|member| asker.without_key(member)).collect();
    found.extend(new().flat_map(cycling));
    found.extend(changes.remade.iter().filter_map(|(relation, name, remade)| asker.other_key(relation, name, remade)));
    found
}

/// Tables with rows, where the group's partitions are elsewhere.
pub(super) fn questions_of_spread(members: &Members<'_>) -> Vec<Question> {
    let question = |member: &Member<'_>| Question {
        sql: format!("SELECT EXISTS (SELECT FROM {})", name(member.relation)),
        obstacle: Obstacle {
            what: format!("Table {} holds rows, and its colocation group has partitions on other shards.", shown(member.relation)),
            remedy: "Make an empty table like it, let the plan have that, and insert the rows into it afterwards.".to_owned(),
        },
    };
    members.list.iter().filter(|member| !member.is_declared).map(question).collect()
}

/// Sequences that would begin anew.
fn cycling(member: &Member<'_>) -> Vec<Question> {
    let relation = member.relation;
    let numbered = relation.columns.iter().filter(|column| column.is_numbered_by_shard());
    numbered
        .map(|column| Question {
            sql: sequences::cycles_sql(relation, column),
            obstacle: of_table(relation, sequences::cycle_obstacle(relation, column)),
        })
        .collect()
}

struct Asker<'m, 'c> {
    members: &'m Members<'c>,
}

impl<'c> Asker<'_, 'c> {
    /// Rows that have no key, or get none.
    fn without_key(&self, member: &Member<'c>) -> Option<Question> {
        let mut joins = String::new();
        let mut counter = 0;
        let mut nulls = Vec::new();
        for place in 0..member.key.len() {
            if self.members.is_certain(member, place) {
                continue;
            }
            let value = self.key_value(member, "t", place, &mut joins, &mut counter)?;
            nulls.push(format!("{value} IS NULL"));
        }
        if nulls.is_empty() {
            return None;
        }
        let sql = format!("SELECT EXISTS (SELECT FROM {} AS t{joins} WHERE {})", name(member.relation), nulls.join(" OR "));
        let table = shown(member.relation);
        Some(Question {
            sql,
            obstacle: match &member.filled {
                None => Obstacle {
                    what: format!("Rows of table {table} have no shard key: it is NULL in them."),
                    remedy: self.remedy_of_nulls(member),
                },
                Some(filled) => Obstacle {
                    what: format!(
                        "Rows of table {table} would get no shard key: foreign key \"{}\" leads to no row with one.",
                        filled.by.name
                    ),
                    remedy: "Delete these rows or let them refer to one; or add the column and fill it yourself first.".to_owned(),
                },
            },
        })
    }

    /// Ready to be run, where a foreign key leads to the key.
    fn remedy_of_nulls(&self, member: &Member<'c>) -> String {
        let ([item], Some((by, parent))) = (member.key.as_slice(), self.parent(member)) else {
            return "Give them one, or delete them.".to_owned();
        };
        let Some(from) = parent.key.first().filter(|item| parent.relation.column(&item.column).is_some()) else {
            return "Give them one, or delete them.".to_owned();
        };
        let column = quoted_identifier(&item.column);
        format!(
            "Give them one, from {} for example: UPDATE {} AS own SET {column} = referred.{} FROM {} AS referred WHERE {} AND own.{column} IS NULL;",
            shown(parent.relation),
            name(member.relation),
            quoted_identifier(&from.column),
            name(parent.relation),
            join_condition("own", "referred", by)
        )
    }

    fn parent(&self, member: &Member<'c>) -> Option<(&'c ForeignKey, &Member<'c>)> {
        let ways = member.relation.foreign_keys.iter().filter_map(|by| {
            let parent = self.members.get(self.members.root(self.members.relation(by.referenced)?).oid)?;
            let is_other = parent.relation.oid != member.relation.oid;
            let is_on_key = by.columns.iter().any(|column| member.key.iter().any(|item| item.column == *column));
            (is_other && !is_on_key).then_some((by, parent))
        });
        ways.into_iter().next()
    }

    /// Rows that refer to rows of other keys.
    fn other_key(&self, from: &'c Relation, constraint: &str, remade: &Remade) -> Option<Question> {
        if remade.added.is_empty() || remade.text.is_not_valid() {
            return None;
        }
        let to = self.members.relation(remade.foreign_key.referenced)?;
        let (one, other) = (self.members.get(self.members.root(from).oid)?, self.members.get(self.members.root(to).oid)?);
        // What was filled along it agrees with it.
        if one.filled.as_ref().is_some_and(|filled| filled.by.name == constraint && from.oid == one.relation.oid) {
            return None;
        }
        let mut joins = String::new();
        let mut counter = 0;
        let mut differs = Vec::new();
        for place in 0..one.key.len() {
            let own = self.key_value(one, "t", place, &mut joins, &mut counter)?;
            let referred = self.key_value(other, "r", place, &mut joins, &mut counter)?;
            differs.push(format!("{own} IS DISTINCT FROM {referred}"));
        }
        let before = from.foreign_keys.iter().find(|foreign_key| foreign_key.name == constraint)?;
        let sql = format!(
            "SELECT EXISTS (SELECT FROM {} AS t JOIN {} AS r ON {}{joins} WHERE {})",
            name(from),
            name(to),
            join_condition("t", "r", before),
            differs.join(" OR ")
        );
        Some(Question {
            sql,
            obstacle: Obstacle {
                what: format!(
                    "Rows of table {} refer by foreign key \"{constraint}\" to rows of {} that have another shard key.",
                    shown(from),
                    shown(to)
                ),
                remedy: format!(
                    "Correct the rows, make {} a reference table, or drop the foreign key first: ALTER TABLE {} DROP CONSTRAINT {}.",
                    shown(to),
                    name(from),
                    quoted_identifier(constraint)
                ),
            },
        })
    }

    /// An expression for a part of the key, as it will be, of the rows of an alias; joins what it comes from.
    fn key_value(&self, member: &Member<'c>, alias: &str, place: usize, joins: &mut String, counter: &mut usize) -> Option<String> {
        let (mut member, mut alias) = (member, alias.to_owned());
        for _ in 0..=self.members.list.len() {
            let Some(filled) = member.filled.as_ref().filter(|filled| filled.missing.contains(&place)) else {
                return Some(format!("{alias}.{}", quoted_identifier(&member.key.get(place)?.column)));
            };
            *counter += 1;
            let next = format!("j{counter}");
            let referenced = self.members.relation(filled.by.referenced)?;
            joins.push_str(&format!(" LEFT JOIN {} AS {next} ON {}", name(referenced), join_condition(&alias, &next, filled.by)));
            (member, alias) = (self.members.get(filled.parent)?, next);
        }
        None
    }
}

fn name(relation: &Relation) -> String {
    quoted_name(&relation.schema, &relation.name)
}
