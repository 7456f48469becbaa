//! What would stop moves of the tables once they are declared, as far as it can be known before: the pre-flight's own questions, asked
//! of the schema as it will be.
//!
//! Nothing of it is in the way of the declaration: tables may stay on the home shard. So it is a warning of the script, each with the
//! statement that mends it.

use super::changes::Changes;
use super::definitions::ForeignKeyText;
use super::facts::rows;
use super::foreign_keys::{self, definition};
use super::members::{Member, Members};
use crate::catalog::{Catalog, ForeignKey, ForeignKeyAction, Relation, quoted_identifier, quoted_name};
use crate::declare::shard_connection::ShardConnection;
use crate::error::PgError;
use crate::error::capitalised;
use crate::shardmap::{GroupId, InTheWay, MovedTableFacts, MovedTableQuestion, cascading, in_the_way, named};
use crate::sql::Context;
use crate::sql::residues::{covering_query, reading_besides_views, uncovered, views_to_cover};

/// Some of it is known; the rest is asked.
#[derive(Debug, Default)]
pub(super) struct AgainstMoves {
    known: Vec<InTheWay>,
    /// A question, and the columns of the key.
    questions: Vec<(String, Vec<String>)>,
}

impl AgainstMoves {
    /// `declared`: the schema as it will be, under the map with the tables in this group.
    pub(super) fn find(
        members: &Members<'_>,
        changes: &Changes<'_, '_>,
        later: &Catalog,
        declared: Option<&(Context, GroupId)>,
    ) -> Self {
        let new: Vec<&Member<'_>> = members.list.iter().filter(|member| !member.is_declared).collect();
        let mut found =
            Self { known: following(members, changes, later), questions: new.iter().map(|member| question(member)).collect() };
        if let Some((context, group)) = declared {
            found.known.extend(reading_besides_views(context, *group));
            found.known.extend(views_to_cover(context, *group).into_iter().filter_map(|view| {
                let error = covering_query(view.view_definition.as_deref()?, context).err()?;
                Some(uncovered(&quoted_name(&view.schema, &view.name), &error))
            }));
        }
        found
    }

    /// As warnings. Not known is what the shard's user may not ask: a move looks again before it begins.
    pub(super) async fn warnings(self, home: &mut ShardConnection) -> Result<Vec<String>, PgError> {
        let mut found = self.known;
        for (sql, key) in &self.questions {
            let facts = rows::<MovedTableFacts>(home, sql).await?;
            for one in in_the_way(&facts, key) {
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        Ok(found.iter().map(warning).collect())
    }
}

fn warning((what, remedy): &InTheWay) -> String {
    let end = if remedy.ends_with([';', '.']) { "" } else { "." };
    format!("Before rows can move: {what}. {}{end}", capitalised(remedy))
}

fn question(member: &Member<'_>) -> (String, Vec<String>) {
    let oid = member.relation.oid;
    let members = format!("SELECT {oid}::oid AS oid UNION SELECT t.relid::oid FROM pg_partition_tree({oid}::oid::regclass) t");
    let key: Vec<String> = member.key.iter().map(|item| item.column.clone()).collect();
    let question = MovedTableQuestion { members: &members, key: &key, copier: None, is_planned: true };
    (question.sql(), key)
}

/// Foreign keys that change what refers to a changed key, as they will be.
fn following(members: &Members<'_>, changes: &Changes<'_, '_>, later: &Catalog) -> Vec<InTheWay> {
    let (mut tables, mut names, mut statements) = (Vec::new(), Vec::new(), Vec::new());
    for member in &members.list {
        for relation in later.family(member.relation) {
            for foreign_key in relation.foreign_keys.iter().filter(|foreign_key| is_following(foreign_key)) {
                let referenced = members.relation(foreign_key.referenced).map(|referenced| members.root(referenced));
                let is_moved = referenced.filter(|referenced| members.get(referenced.oid).is_some());
                let (Some(referenced), false) = (is_moved, foreign_keys::is_inherited(later, relation, foreign_key)) else {
                    continue;
                };
                tables.push(quoted_name(&referenced.schema, &referenced.name));
                names.push(foreign_key.name.clone());
                statements.extend(without_following(members, changes, relation, foreign_key));
            }
        }
    }
    tables.sort_unstable();
    tables.dedup();
    named(tables).map(|tables| cascading(&tables, &names.join(", "), statements)).into_iter().collect()
}

fn is_following(foreign_key: &ForeignKey) -> bool {
    !matches!(foreign_key.on_update, ForeignKeyAction::Looks)
}

/// The statement that makes it again.
fn without_following(
    members: &Members<'_>,
    changes: &Changes<'_, '_>,
    relation: &Relation,
    foreign_key: &ForeignKey,
) -> Option<String> {
    let remade = changes.remade.iter().find(|(of, name, _)| of.oid == relation.oid && *name == foreign_key.name);
    let text = match remade {
        Some((_, _, remade)) => remade.text.clone(),
        None => ForeignKeyText::read(definition(members.catalog(), relation, &foreign_key.name)?, &[])?,
    };
    let (table, name) = (quoted_name(&relation.schema, &relation.name), quoted_identifier(&foreign_key.name));
    Some(format!("ALTER TABLE {table} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {};", text.without_following()))
}
