//! Which tables take part, by which key, and where the key comes from that a table does not have.
//!
//! ```text
//! keys given ─► tables that have them ─► tables that lack them, or are not named: by their foreign keys, until nothing is added
//! ```
//! A table that is not named takes part when a foreign key of its own refers to one that does: its rows belong to the other's. Its key is
//! then what refers to the other's key, or the column of the same name, or a new column, filled along the foreign key. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::foreign_keys::{definition, pairs_to_add};
use crate::catalog::{Catalog, Column, ForeignKey, Oid, Relation, RelationKind, Unique, shown_name};
use crate::declare::checks::Obstacle;
use crate::declare::key::{KeyItem, column_text};
use crate::shard_key::KeyType;
use crate::shardmap::{GroupId, MapSnapshot, TableKind};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// By table; `None`: it stays a table of the home shard, without its foreign keys to sharded tables.
    pub(super) keys: BTreeMap<Oid, Option<Vec<KeyItem>>>,
    pub(super) references: BTreeSet<Oid>,
}

/// A table that is sharded at the end.
#[derive(Clone, Debug)]
pub(super) struct Member<'c> {
    pub(super) relation: &'c Relation,
    pub(super) key: Vec<KeyItem>,
    /// Where the columns of the key come from that it lacks.
    pub(super) filled: Option<Filled<'c>>,
    pub(super) is_declared: bool,
    /// By what a table takes part that is not named.
    pub(super) because: Option<&'c ForeignKey>,
}

/// New columns, with values from the rows that a foreign key refers to.
#[derive(Clone, Debug)]
pub(super) struct Filled<'c> {
    pub(super) by: &'c ForeignKey,
    pub(super) parent: Oid,
    /// Places in the key, the same in both tables.
    pub(super) missing: Vec<usize>,
}

/// Tables that take part, in the order in which their keys are known.
#[derive(Debug)]
pub(super) struct Members<'c> {
    catalog: &'c Catalog,
    map: &'c MapSnapshot,
    wishes: &'c Wishes,
    /// The colocation group that others of them are in already.
    pub(super) group: Option<GroupId>,
    pub(super) list: Vec<Member<'c>>,
    pub(super) obstacles: Vec<Obstacle>,
}

/// How the key of a table that is not named, or a part of it, is found.
enum Found<'c> {
    Member(Member<'c>),
    /// Several columns refer to the key, and nothing says which one it is.
    Ambiguous(Vec<Vec<String>>),
    No,
}

impl<'c> Members<'c> {
    pub(super) fn find(catalog: &'c Catalog, map: &'c MapSnapshot, wishes: &'c Wishes) -> Self {
        let mut members = Self { catalog, map, wishes, group: None, list: Vec::new(), obstacles: Vec::new() };
        members.add_declared();
        let mut lacking = members.add_named();
        members.follow(&mut lacking);
        for (relation, key) in lacking {
            members.obstacles.push(no_way_to_key(relation, &key));
        }
        members.compare_types();
        members
    }

    pub(super) fn get(&self, oid: Oid) -> Option<&Member<'c>> {
        self.list.iter().find(|member| member.relation.oid == oid)
    }

    pub(super) fn catalog(&self) -> &'c Catalog {
        self.catalog
    }

    pub(super) fn relation(&self, oid: Oid) -> Option<&'c Relation> {
        self.catalog.relations.get(&oid)
    }

    /// The table that a partition belongs to; others are their own.
    pub(super) fn root(&self, relation: &'c Relation) -> &'c Relation {
        root(self.catalog, relation)
    }

    fn declared_key(&self, relation: &Relation) -> Option<(GroupId, Vec<KeyItem>)> {
        match &self.map.table(&relation.schema, &relation.name)?.kind {
            TableKind::Sharded { group, key } => {
                let item =
                    |key: &crate::shard_key::KeyColumn| KeyItem { column: key.column.clone(), function: key.function.clone() };
                Some((*group, key.iter().map(item).collect()))
            }
            TableKind::Reference => None,
        }
    }

    /// Those of the group in which one of the named tables is.
    fn add_declared(&mut self) {
        let named = self.wishes.keys.iter().filter(|(_, key)| key.is_some());
        let relations: Vec<&Relation> = named.filter_map(|(oid, _)| self.catalog.relations.get(oid)).collect();
        self.group = relations.iter().find_map(|relation| self.declared_key(relation)).map(|(group, _)| group);
        for relation in in_order(self.catalog) {
            match self.declared_key(relation) {
                Some((group, key)) if Some(group) == self.group => {
                    self.list.push(Member { relation, key, filled: None, is_declared: true, because: None });
                }
                _ => {}
            }
        }
    }

    /// Gives back those that lack a column of their key.
    fn add_named(&mut self) -> Vec<(&'c Relation, Vec<KeyItem>)> {
        let mut lacking = Vec::new();
        for (oid, key) in &self.wishes.keys {
            let (Some(relation), Some(key)) = (self.catalog.relations.get(oid), key) else { continue };
            if let Some((group, declared)) = self.declared_key(relation) {
                if Some(group) != self.group || declared != *key {
                    self.obstacles.push(declared_otherwise(relation, &declared, Some(group) == self.group));
                }
                continue;
            }
            if self.map.table(&relation.schema, &relation.name).is_some() {
                self.obstacles.push(Obstacle {
                    what: format!("Table {} is a reference table already.", shown_name(&relation.schema, &relation.name)),
                    remedy: "Leave it out of keys.".to_owned(),
                });
                continue;
            }
            if key.iter().all(|item| relation.column(&item.column).is_some()) {
                self.list.push(Member { relation, key: key.clone(), filled: None, is_declared: false, because: None });
            } else {
                lacking.push((relation, key.clone()));
            }
        }
        lacking
    }

    fn follow(&mut self, lacking: &mut Vec<(&'c Relation, Vec<KeyItem>)>) {
        let mut told: BTreeSet<Oid> = BTreeSet::new();
        loop {
            let known = self.list.len();
            lacking.retain(|(relation, key)| match self.filled(relation, key) {
                Some(filled) => {
                    let (key, filled) = (key.clone(), Some(filled));
                    self.list.push(Member { relation, key, filled, is_declared: false, because: None });
                    false
                }
                None => true,
            });
            for relation in in_order(self.catalog) {
                if self.is_free(relation) && !lacking.iter().any(|(other, _)| other.oid == relation.oid) {
                    match self.derived(relation) {
                        Found::Member(member) => self.list.push(member),
                        Found::Ambiguous(keys) if told.insert(relation.oid) => {
                            self.obstacles.push(ambiguous(relation, &keys));
                        }
                        Found::Ambiguous(_) | Found::No => {}
                    }
                }
            }
            if self.list.len() == known {
                return;
            }
        }
    }

    /// Nothing is said of it, here or in the map.
    fn is_free(&self, relation: &Relation) -> bool {
        matches!(relation.kind, RelationKind::Table | RelationKind::PartitionedTable)
            && !relation.is_partition(self.catalog)
            && !self.wishes.keys.contains_key(&relation.oid)
            && !self.wishes.references.contains(&relation.oid)
            && self.map.table(&relation.schema, &relation.name).is_none()
            && self.get(relation.oid).is_none()
    }

    /// Foreign keys to tables that take part: those that every row has first.
    fn ways(&self, relation: &'c Relation) -> Vec<(&'c ForeignKey, &Member<'c>)> {
        let mut ways: Vec<(&ForeignKey, &Member<'c>)> = relation
            .foreign_keys
            .iter()
            .filter_map(|foreign_key| {
                let referenced = self.root(self.catalog.relations.get(&foreign_key.referenced)?);
                self.get(referenced.oid).map(|member| (foreign_key, member))
            })
            .filter(|(_, member)| member.relation.oid != relation.oid)
            .collect();
        ways.sort_by_key(|(foreign_key, _)| (!is_on_every_row(relation, foreign_key), foreign_key.name.as_str()));
        ways
    }

    /// What a table lacks of its key, from one that has it.
    fn filled(&self, relation: &'c Relation, key: &[KeyItem]) -> Option<Filled<'c>> {
        let missing: Vec<usize> =
            key.iter().enumerate().filter(|(_, item)| relation.column(&item.column).is_none()).map(|(place, _)| place).collect();
        let ways = self.ways(relation);
        let (by, parent) = ways.iter().find(|(_, parent)| parent.key.len() == key.len())?;
        Some(Filled { by, parent: parent.relation.oid, missing })
    }

    fn derived(&self, relation: &'c Relation) -> Found<'c> {
        let ways = self.ways(relation);
        let Some((first, parent)) = ways.first() else { return Found::No };
        let member = |key: Vec<KeyItem>, because: &'c ForeignKey| {
            Found::Member(Member { relation, key, filled: None, is_declared: false, because: Some(because) })
        };
        // What refers to a key is the key.
        let mut referring: Vec<(&ForeignKey, Vec<KeyItem>)> = Vec::new();
        for (foreign_key, parent) in &ways {
            if let Some(key) = referring_to_key(foreign_key, parent)
                && !referring.iter().any(|(_, known)| *known == key)
            {
                referring.push((foreign_key, key));
            }
        }
        let is_usual =
            |key: &[KeyItem]| self.list.iter().any(|other| other.key == key && other.relation.oid != parent.relation.oid);
        let certain: Vec<_> = referring.iter().filter(|(by, _)| is_on_every_row(relation, by)).collect();
        match (referring.as_slice(), certain.as_slice()) {
            ([(by, key)], _) => return member(key.clone(), by),
            (_, [(by, key)]) => return member(key.clone(), by),
            ([], _) => {}
            (several, _) => {
                return match several.iter().find(|(_, key)| is_usual(key)) {
                    Some((by, key)) => member(key.clone(), by),
                    None => {
                        let names = |(_, key): &(&ForeignKey, Vec<KeyItem>)| key.iter().map(|item| item.column.clone()).collect();
                        Found::Ambiguous(several.iter().map(names).collect())
                    }
                };
            }
        }
        // Of the table that the keys themselves are of, the key's name says nothing here.
        let key = if is_of_keys(parent) { self.usual_key(parent) } else { parent.key.clone() };
        let is_known = |item: &KeyItem| relation.column(&item.column).is_some();
        let filled = (!key.iter().all(is_known)).then(|| Filled {
            by: first,
            parent: parent.relation.oid,
            missing: key.iter().enumerate().filter(|(_, item)| !is_known(item)).map(|(place, _)| place).collect(),
        });
        Found::Member(Member { relation, key, filled, is_declared: false, because: Some(first) })
    }

    /// As most others name it that refer to the table whose rows are the keys.
    fn usual_key(&self, parent: &Member<'c>) -> Vec<KeyItem> {
        let others = self.list.iter().filter(|member| !is_of_keys(member) && member.key.len() == parent.key.len());
        let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        for other in others.clone() {
            *counts.entry(other.key.iter().map(|item| item.column.as_str()).collect()).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(names, _)| names);
        let found =
            most.and_then(|names| others.clone().find(|member| member.key.iter().map(|item| &item.column).eq(names.iter())));
        let named = |item: &KeyItem| KeyItem {
            column: format!("{}_{}", parent.relation.name, item.column),
            function: item.function.clone(),
        };
        found.map_or_else(|| parent.key.iter().map(named).collect(), |member| member.key.clone())
    }

    /// The column that gives this part of a table's key, in the table itself or in the one that it is filled from.
    pub(super) fn key_column(&self, member: &Member<'c>, place: usize) -> Option<&'c Column> {
        let mut member = member;
        // Each step leads to a member that was known before.
        for _ in 0..=self.list.len() {
            match &member.filled {
                Some(filled) if filled.missing.contains(&place) => member = self.get(filled.parent)?,
                _ => return member.relation.column(&member.key.get(place)?.column),
            }
        }
        None
    }

    /// The schema says already that no row lacks this part of the key.
    pub(super) fn is_certain(&self, member: &Member<'c>, place: usize) -> bool {
        let mut member = member;
        for _ in 0..=self.list.len() {
            match &member.filled {
                Some(filled) if filled.missing.contains(&place) => match self.get(filled.parent) {
                    Some(parent) if self.is_checked_on_every_row(member.relation, filled.by) => member = parent,
                    Some(_) | None => return false,
                },
                _ => {
                    let column = member.key.get(place).and_then(|item| member.relation.column(&item.column));
                    return column.is_some_and(|column| column.is_not_null);
                }
            }
        }
        false
    }

    /// Each row refers to one that is there.
    fn is_checked_on_every_row(&self, relation: &Relation, foreign_key: &ForeignKey) -> bool {
        let printed = definition(self.catalog, relation, &foreign_key.name);
        is_on_every_row(relation, foreign_key) && printed.is_some_and(|text| !text.ends_with(" NOT VALID"))
    }

    /// Rows that agree in it refer to the same row of another table, and have its shard key, by a foreign key that is kept: they agree
    /// in the key anyway.
    pub(super) fn is_within_parent(&self, member: &Member<'_>, unique: &Unique) -> bool {
        let holds = |column: &String| unique.columns.iter().flatten().any(|name| name == column);
        let is_kept = |by: &ForeignKey| {
            let parent = self.catalog.relations.get(&by.referenced).and_then(|to| self.get(self.root(to).oid));
            parent.is_some_and(|parent| parent.relation.oid != member.relation.oid && pairs_to_add(by, member, parent).is_some())
        };
        let leads =
            |by: &ForeignKey| is_kept(by) && self.is_checked_on_every_row(member.relation, by) && by.columns.iter().all(holds);
        member.relation.foreign_keys.iter().any(leads)
    }

    /// Rows of one group are placed by the same hash.
    fn compare_types(&mut self) {
        let types_of = |member: &Member<'c>| -> Option<Vec<KeyType>> {
            let of_item = |(place, item): (usize, &KeyItem)| {
                let column_type = KeyType::of_column(self.key_column(member, place)?.type_oid)?;
                item.function.as_ref().map_or(Some(column_type), |function| function.result_type(column_type))
            };
            member.key.iter().enumerate().map(of_item).collect()
        };
        let typed: Vec<(&Member<'c>, Vec<KeyType>)> =
            self.list.iter().filter_map(|member| Some((member, types_of(member)?))).collect();
        let Some((standard, types)) = typed.iter().rev().max_by_key(|(standard, types)| {
            let alike = typed.iter().filter(|(_, other)| are_alike(other, types)).count();
            (standard.is_declared, alike)
        }) else {
            return;
        };
        let others = typed.iter().filter(|(member, other)| !member.is_declared && !are_alike(other, types));
        let found: Vec<Obstacle> = others.map(|(member, other)| other_type(member, other, standard, types)).collect();
        self.obstacles.extend(found);
    }
}

/// Integers hash and sort alike.
pub(in crate::declare) fn are_alike(one: &[KeyType], other: &[KeyType]) -> bool {
    let class = |key_type: &KeyType| match key_type {
        KeyType::Int2 | KeyType::Int4 | KeyType::Int8 => KeyType::Int8,
        other => *other,
    };
    one.iter().map(class).eq(other.iter().map(class))
}

pub(super) fn root<'c>(catalog: &'c Catalog, relation: &'c Relation) -> &'c Relation {
    let mut found = relation;
    while let Some(parent) = found.parents.iter().find_map(|parent| catalog.relations.get(parent)) {
        if parent.kind != RelationKind::PartitionedTable {
            break;
        }
        found = parent;
    }
    found
}

pub(super) fn in_order(catalog: &Catalog) -> Vec<&Relation> {
    let mut relations: Vec<&Relation> = catalog.relations.values().collect();
    relations.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    relations
}

/// No column of it may be NULL.
pub(super) fn is_on_every_row(relation: &Relation, foreign_key: &ForeignKey) -> bool {
    foreign_key.columns.iter().all(|name| relation.column(name).is_some_and(|column| column.is_not_null))
}

/// The table's rows are the keys: its key alone is unique in it.
pub(super) fn is_of_keys(member: &Member<'_>) -> bool {
    let is_in_key = |column: &Option<String>| {
        column.as_ref().is_some_and(|name| member.key.iter().any(|item| item.function.is_none() && item.column == *name))
    };
    let unique = |unique: &Unique| !unique.is_exclusion && !unique.is_partial && unique.columns.iter().all(is_in_key);
    member.relation.uniques.iter().any(unique)
}

/// The columns of a foreign key that refer to the whole key of the other table.
fn referring_to_key(foreign_key: &ForeignKey, parent: &Member<'_>) -> Option<Vec<KeyItem>> {
    let pairs = || foreign_key.columns.iter().zip(&foreign_key.referenced_columns);
    let own = |item: &KeyItem| {
        let (column, _) = pairs().find(|(_, referenced)| **referenced == item.column)?;
        Some(KeyItem { column: column.clone(), function: item.function.clone() })
    };
    parent.key.iter().map(own).collect()
}

/// A key as `distribute_table` takes it.
pub(super) fn key_text(key: &[KeyItem]) -> String {
    key.iter().map(|item| column_text(&item.column, item.function.as_ref())).collect::<Vec<_>>().join(", ")
}

fn declared_otherwise(relation: &Relation, key: &[KeyItem], is_of_group: bool) -> Obstacle {
    let key = key_text(key);
    let table = shown_name(&relation.schema, &relation.name);
    Obstacle {
        what: match is_of_group {
            true => format!("Table {table} is sharded already, by {key}."),
            false => format!("Table {table} is sharded already, by {key}, and not in the colocation group of the other tables."),
        },
        remedy: "Leave it out, or make it a home table first: shardgate.undistribute_table().".to_owned(),
    }
}

fn no_way_to_key(relation: &Relation, key: &[KeyItem]) -> Obstacle {
    let missing: Vec<String> =
        key.iter().filter(|item| relation.column(&item.column).is_none()).map(|item| format!("\"{}\"", item.column)).collect();
    Obstacle {
        what: format!(
            "Table {} has no column {}, and no foreign key of it leads to a table that has the key.",
            shown_name(&relation.schema, &relation.name),
            missing.join(", ")
        ),
        remedy: "Add the column and fill it, name another key, leave the table on the home shard (null as its key), or name it in \
                 reference_tables."
            .to_owned(),
    }
}

fn ambiguous(relation: &Relation, keys: &[Vec<String>]) -> Obstacle {
    let columns: Vec<String> = keys.iter().map(|key| format!("\"{}\"", key.join("\", \""))).collect();
    Obstacle {
        what: format!(
            "Table {} refers to the shard key by several columns: {}.",
            shown_name(&relation.schema, &relation.name),
            columns.join(" and ")
        ),
        remedy: "Name its key, or null where it is to stay on the home shard.".to_owned(),
    }
}

fn other_type(member: &Member<'_>, types: &[KeyType], standard: &Member<'_>, wanted: &[KeyType]) -> Obstacle {
    let names = |types: &[KeyType]| types.iter().map(|key_type| key_type.name()).collect::<Vec<_>>().join(", ");
    let table = |member: &Member<'_>| shown_name(&member.relation.schema, &member.relation.name);
    let (mine, theirs) = (key_text(&member.key), key_text(&standard.key));
    let change = match (member.key.as_slice(), wanted) {
        ([item], [wanted]) if item.function.is_none() => {
            let column = crate::catalog::quoted_identifier(&item.column);
            let name = crate::catalog::quoted_name(&member.relation.schema, &member.relation.name);
            format!(
                "ALTER TABLE {name} ALTER COLUMN {column} TYPE {0} USING {column}::{0} first, if its values are such; or name",
                wanted.name()
            )
        }
        _ => "Give the columns the same types; or name".to_owned(),
    };
    Obstacle {
        what: format!(
            "The key of table {} ({mine}: {}) has another type than that of {} ({theirs}: {}).",
            table(member),
            names(types),
            table(standard),
            names(wanted)
        ),
        remedy: format!("{change} another key, or a column that it does not have yet and that a foreign key fills."),
    }
}
