//! What becomes of each foreign key: it stays, gets the shard key on both sides, or goes.

use super::definitions::ForeignKeyText;
use super::members::{Member, Members, Wishes, is_on_every_row, root};
use crate::catalog::{Catalog, ForeignKey, ForeignKeyAction, ObjectName, Relation, quoted_identifier, quoted_name, shown_name};
use crate::declare::checks::Obstacle;
use crate::shardmap::{MapSnapshot, TableKind};

/// What is done with a foreign key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    Stays,
    Remade(Remade),
    /// Why it cannot be checked on one shard, and what its absence means.
    Dropped(String),
    Obstacle(Obstacle),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Remade {
    pub(super) text: ForeignKeyText,
    /// As the catalogue will know it.
    pub(super) foreign_key: ForeignKey,
    /// Of the columns that were added: own and referenced.
    pub(super) added: Vec<(String, String)>,
    pub(super) warning: Option<String>,
}

/// Where the rows of a table will be.
enum Place<'m, 'c> {
    Member(&'m Member<'c>),
    Reference,
    /// In another colocation group.
    Apart,
    Home {
        /// It is said to stay there.
        is_wished: bool,
    },
}

pub(super) struct ForeignKeys<'m, 'c> {
    pub(super) catalog: &'c Catalog,
    pub(super) map: &'c MapSnapshot,
    pub(super) wishes: &'c Wishes,
    pub(super) members: &'m Members<'c>,
}

impl<'c> ForeignKeys<'_, 'c> {
    pub(super) fn fate(&self, from: &'c Relation, foreign_key: &'c ForeignKey) -> Fate {
        let Some(to) = self.catalog.relations.get(&foreign_key.referenced) else { return Fate::Stays };
        let (from_root, to_root) = (root(self.catalog, from), root(self.catalog, to));
        match (self.place(from_root), self.place(to_root)) {
            (Place::Member(one), Place::Member(other)) if one.is_declared && other.is_declared => Fate::Stays,
            (Place::Member(one), Place::Member(other)) => self.between(from, foreign_key, one, other),
            (Place::Member(_), Place::Home { is_wished: true }) => {
                Fate::Dropped(format!("Table {} stays on the home shard.", shown(to_root)))
            }
            (Place::Home { .. }, Place::Member(_)) => Fate::Dropped(format!("Table {} stays on the home shard.", shown(from_root))),
            (Place::Member(_), Place::Home { is_wished: false }) => Fate::Obstacle(Obstacle {
                what: format!("{} and nothing is said of that table.", refers(foreign_key, from_root, to_root)),
                remedy:
                    "Name it in reference_tables where it is small and changes rarely, or in keys where it has the shard key; with \
                         null as its key it stays on the home shard, and the foreign key is dropped."
                        .to_owned(),
            }),
            (Place::Reference, Place::Home { .. }) => Fate::Obstacle(Obstacle {
                what: format!("{} which is on the home shard only.", refers(foreign_key, from_root, to_root)),
                remedy: "Name that table in reference_tables, too, or drop the foreign key first.".to_owned(),
            }),
            (Place::Reference, Place::Member(_) | Place::Apart) => Fate::Obstacle(Obstacle {
                what: format!(
                    "{} and a reference table is on every shard, where the rows of a sharded one are not.",
                    refers(foreign_key, from_root, to_root)
                ),
                remedy: format!("{} first, or give the table a key.", dropped(from, foreign_key)),
            }),
            (Place::Member(_), Place::Apart) | (Place::Apart, Place::Member(_)) => Fate::Obstacle(Obstacle {
                what: format!("{} which is in another colocation group.", refers(foreign_key, from_root, to_root)),
                remedy: format!("{} first.", dropped(from, foreign_key)),
            }),
            (Place::Member(_) | Place::Reference | Place::Home { .. } | Place::Apart, Place::Reference)
            | (Place::Home { .. } | Place::Apart, Place::Home { .. } | Place::Apart) => Fate::Stays,
        }
    }

    fn place(&self, root: &Relation) -> Place<'_, 'c> {
        if let Some(member) = self.members.get(root.oid) {
            return Place::Member(member);
        }
        match self.map.table(&root.schema, &root.name).map(|table| &table.kind) {
            Some(TableKind::Sharded { .. }) => Place::Apart,
            Some(TableKind::Reference) => Place::Reference,
            None if self.wishes.references.contains(&root.oid) => Place::Reference,
            None => Place::Home { is_wished: matches!(self.wishes.keys.get(&root.oid), Some(None)) },
        }
    }

    fn between(&self, from: &'c Relation, foreign_key: &'c ForeignKey, one: &Member<'c>, other: &Member<'c>) -> Fate {
        let Some(added) = pairs_to_add(foreign_key, one, other) else {
            return Fate::Dropped(format!(
                "Rows of {} refer to rows of {} with other shard keys, which may be on other shards.",
                shown(one.relation),
                shown(other.relation)
            ));
        };
        let Some(definition) = definition(self.catalog, from, &foreign_key.name) else {
            return Fate::Obstacle(unreadable("Foreign key", &foreign_key.name, from));
        };
        match self.remade(from, foreign_key, one, definition, &added) {
            Ok(Some(remade)) => Fate::Remade(remade),
            Ok(None) => Fate::Stays,
            Err(obstacle) => Fate::Obstacle(obstacle),
        }
    }

    /// `None`: it is already as it has to be.
    fn remade(
        &self,
        from: &Relation,
        foreign_key: &ForeignKey,
        one: &Member<'c>,
        definition: &str,
        added: &[(&str, &str)],
    ) -> Result<Option<Remade>, Obstacle> {
        let mut text = ForeignKeyText::read(definition, added).ok_or_else(|| unreadable("Foreign key", &foreign_key.name, from))?;
        let mut made = foreign_key.clone();
        let mut warning = None;
        let sets = |action| matches!(action, ForeignKeyAction::SetsNull | ForeignKeyAction::SetsDefault);
        let is_key = |column: &String| one.key.iter().any(|item| item.column == *column);
        if sets(foreign_key.on_delete) {
            let set = if foreign_key.columns_set_on_delete.is_empty() {
                &foreign_key.columns
            } else {
                &foreign_key.columns_set_on_delete
            };
            let rest: Vec<String> = set.iter().filter(|column| !is_key(column)).cloned().collect();
            if rest.is_empty() {
                return Err(sets_key("ON DELETE", from, foreign_key, definition));
            }
            if rest.len() < set.len() || (!added.is_empty() && foreign_key.columns_set_on_delete.is_empty()) {
                text = text.setting_only(&rest.iter().map(String::as_str).collect::<Vec<_>>());
                made.columns_set_on_delete = rest;
            }
        }
        if sets(foreign_key.on_update) && (!added.is_empty() || foreign_key.columns.iter().any(is_key)) {
            return Err(sets_key("ON UPDATE", from, foreign_key, definition));
        }
        if added.is_empty() && made == *foreign_key {
            return Ok(None);
        }
        if !added.is_empty() && text.has_match_full() && !is_on_every_row(from, foreign_key) {
            text = text.without_match_full();
            warning = (foreign_key.columns.len() > 1).then(|| {
                format!(
                    "Foreign key \"{}\" does not refuse rows any more in which only some of its columns are NULL (MATCH FULL).",
                    foreign_key.name
                )
            });
        }
        made.columns.extend(added.iter().map(|(own, _)| (*own).to_owned()));
        made.referenced_columns.extend(added.iter().map(|(_, referred)| (*referred).to_owned()));
        let added = added.iter().map(|(own, referred)| ((*own).to_owned(), (*referred).to_owned())).collect();
        Ok(Some(Remade { text, foreign_key: made, added, warning }))
    }
}

/// Columns of the keys that a foreign key between two tables needs besides, own and referenced. `None`: it pairs a column of a key
/// with another column, and so refers to rows of other keys.
pub(super) fn pairs_to_add<'m>(
    foreign_key: &ForeignKey,
    one: &'m Member<'_>,
    other: &'m Member<'_>,
) -> Option<Vec<(&'m str, &'m str)>> {
    let mut added = Vec::new();
    for (own, referred) in one.key.iter().zip(&other.key) {
        let is_pair = |(column, referenced): (&String, &String)| *column == own.column && *referenced == referred.column;
        if foreign_key.columns.iter().zip(&foreign_key.referenced_columns).any(is_pair) {
            continue;
        }
        if foreign_key.columns.contains(&own.column) || foreign_key.referenced_columns.contains(&referred.column) {
            return None;
        }
        added.push((own.column.as_str(), referred.column.as_str()));
    }
    Some(added)
}

/// It has it from the table that it is a partition of.
pub(super) fn is_inherited(catalog: &Catalog, relation: &Relation, foreign_key: &ForeignKey) -> bool {
    let is_same = |other: &ForeignKey| {
        other.columns == foreign_key.columns
            && other.referenced_columns == foreign_key.referenced_columns
            && other.referenced == foreign_key.referenced
    };
    let mut parents = relation.parents.iter().filter_map(|parent| catalog.relations.get(parent));
    relation.is_partition(catalog) && parents.any(|parent| parent.foreign_keys.iter().any(is_same))
}

/// As PostgreSQL prints a constraint.
pub(super) fn definition<'c>(catalog: &'c Catalog, relation: &Relation, name: &str) -> Option<&'c str> {
    catalog.definitions.get(&ObjectName::part_of(relation.whole(), "constraint", name)).filter(|text| !text.is_empty())
}

pub(super) fn unreadable(what: &str, name: &str, relation: &Relation) -> Obstacle {
    Obstacle {
        what: format!("{what} \"{name}\" of table {} cannot be read.", shown(relation)),
        remedy: "Members of extensions are changed by their extension alone: leave the table on the home shard (null as its key)."
            .to_owned(),
    }
}

pub(super) fn shown(relation: &Relation) -> String {
    shown_name(&relation.schema, &relation.name)
}

fn refers(foreign_key: &ForeignKey, from: &Relation, to: &Relation) -> String {
    format!("Foreign key \"{}\" of table {} refers to table {},", foreign_key.name, shown(from), shown(to))
}

fn dropped(from: &Relation, foreign_key: &ForeignKey) -> String {
    format!("ALTER TABLE {} DROP CONSTRAINT {}", quoted_name(&from.schema, &from.name), quoted_identifier(&foreign_key.name))
}

/// Rows cannot be left without a shard key.
fn sets_key(when: &str, from: &Relation, foreign_key: &ForeignKey, definition: &str) -> Obstacle {
    let without = ["SET NULL", "SET DEFAULT"].iter().find_map(|action| {
        let (before, after) = definition.split_once(&format!(" {when} {action}"))?;
        // The columns that it sets.
        let after = if after.starts_with(" (") { after.split_once(')').map_or("", |(_, rest)| rest) } else { after };
        Some(format!("{before} {when} CASCADE{after}"))
    });
    let name = quoted_identifier(&foreign_key.name);
    let change = without.map(|text| format!("{}, ADD CONSTRAINT {name} {text};", dropped(from, foreign_key)));
    Obstacle {
        what: format!(
            "Foreign key \"{}\" of table {} would take the shard key from rows ({when} SET NULL or SET DEFAULT).",
            foreign_key.name,
            shown(from)
        ),
        remedy: format!(
            "Give the table another key, or null where it is to stay on the home shard; or give the foreign key another action first, \
             CASCADE for example: {}",
            change.unwrap_or_else(|| format!("{}, and add it again.", dropped(from, foreign_key)))
        ),
    }
}
