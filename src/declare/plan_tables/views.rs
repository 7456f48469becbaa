//! Views that are written anew with the shard key in them: they join tables by a foreign key that gets it, or group by such a primary key.
//!
//! A view that joins by the shard key, too, is answered by each shard for its own rows, with the rights and policies that it has there.
//! One that groups by a primary key and shows other columns of its table keeps PostgreSQL from letting that key go:
//!
//! ```text
//! BEGIN ─► the view forgets its query: CREATE OR REPLACE VIEW … AS SELECT NULL::… ─► keys ─► its query, with the shard key in GROUP BY
//! ```
//! Views are replaced: their owners, privileges, comments and triggers stay, and the views upon them. A materialized view cannot be
//! replaced, and a function is not read here: these stay in the way, with the statements that take them out of it.

use std::collections::BTreeMap;

use super::facts::{Facts, User, UserKind};
use super::foreign_keys::{Remade, shown};
use super::members::{Member, Members, in_order};
use super::script::{Kind, Row};
use super::uniques::{missing, what};
use crate::catalog::{Catalog, ObjectName, Oid, Relation, RelationKind, Unique, quoted_identifier, quoted_name, type_anywhere};
use crate::declare::checks::Obstacle;
use crate::sql::rewrite::grouped_by_key::{RekeyedTable, regrouped};
use crate::sql::rewrite::joined_by_key::{KeyedReference, joined_by_key};
use crate::sql::utility::materialized::made_anew;

/// The views of a plan, by what they will be.
#[derive(Debug, Default)]
pub(super) struct Views<'c> {
    list: BTreeMap<Oid, (&'c Relation, Anew)>,
}

#[derive(Debug)]
struct Anew {
    /// `WITH (…)`; CREATE OR REPLACE VIEW takes them anew.
    options: String,
    query: String,
    /// A key that is made again is needed by it.
    is_grouped: bool,
}

impl<'c> Views<'c> {
    /// `remade`: the foreign keys that get the shard key.
    pub(super) fn find(
        catalog: &'c Catalog,
        facts: &Facts,
        members: &Members<'c>,
        remade: &[(&'c Relation, &'c str, Remade)],
    ) -> Self {
        let mut found = Self::default();
        let grouped = Self::grouping(catalog, facts, members);
        let references: Vec<KeyedReference<'_>> = remade.iter().filter_map(|remade| keyed_reference(catalog, remade)).collect();
        let is_own = |view: &&Relation| {
            let object = ObjectName::new("view", format!("{}.{}", view.schema, view.name));
            view.kind == RelationKind::View && (grouped.contains_key(&view.oid) || catalog.definitions.contains(&object))
        };
        for view in in_order(catalog).into_iter().filter(is_own) {
            let Some(query) = view.view_definition.as_deref().map(|text| text.trim().trim_end_matches(';')) else { continue };
            let joined = joined_by_key(query, &references);
            let tables = grouped.get(&view.oid);
            let query = match (joined.as_deref(), tables) {
                (None, None) => continue,
                (joined, None) => joined.map(str::to_owned),
                (joined, Some(tables)) => regrouped(joined.unwrap_or(query), tables),
            };
            let options = facts.view_options.get(&view.oid).map(|options| format!(" WITH ({options})")).unwrap_or_default();
            if let Some(query) = query {
                found.list.insert(view.oid, (view, Anew { options, query, is_grouped: tables.is_some() }));
            }
        }
        found
    }

    /// By view: the tables by whose primary key it groups.
    fn grouping<'f>(catalog: &'c Catalog, facts: &'f Facts, members: &'f Members<'c>) -> BTreeMap<Oid, Vec<RekeyedTable<'f>>>
    where
        'c: 'f,
    {
        let mut tables: BTreeMap<Oid, Vec<RekeyedTable<'f>>> = BTreeMap::new();
        for member in members.list.iter().filter(|member| !member.is_declared) {
            for relation in catalog.family(member.relation) {
                for unique in relation.uniques.iter().filter(|unique| !missing(unique, member).is_empty()) {
                    for user in facts.users_of(relation.oid, &unique.name).iter().filter(|user| user.kind == UserKind::View) {
                        let table = RekeyedTable {
                            schema: &relation.schema,
                            name: &relation.name,
                            columns: unique.columns.iter().flatten().map(String::as_str).collect(),
                            added: missing(unique, member),
                        };
                        tables.entry(user.oid).or_default().push(table);
                    }
                }
            }
        }
        tables
    }

    /// As they are afterwards.
    pub(super) fn queries(&self) -> impl Iterator<Item = (Oid, &str)> {
        self.list.iter().map(|(oid, (_, anew))| (*oid, anew.query.as_str()))
    }

    /// Before the keys are made again.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = Row> {
        self.list.values().filter(|(_, anew)| anew.is_grouped).map(|(view, anew)| {
            let columns: Vec<String> = view.columns.iter().map(no_value).collect();
            let statement = replace(view, anew, &format!("SELECT {}", columns.join(", ")));
            let reason = "It groups by a primary key that is made again; as long as it does, PostgreSQL keeps that key.";
            Row::statement(Kind::Views, Some(shown(view)), statement, reason)
        })
    }

    /// After that.
    pub(super) fn written_anew(&self) -> impl Iterator<Item = Row> {
        self.list.values().map(|(view, anew)| {
            let statement = replace(view, anew, &anew.query);
            let reason = match anew.is_grouped {
                true => "As it was, with the shard key in its GROUP BY: the groups are the same.",
                false => "It joins by the shard key, too, so that each shard answers for its own rows: they are the same.",
            };
            Row::statement(Kind::Views, Some(shown(view)), statement, reason)
        })
    }

    /// What needs a key of a table and is not among these.
    pub(super) fn others(
        &self,
        catalog: &Catalog,
        facts: &Facts,
        member: &Member<'_>,
        relation: &Relation,
        unique: &Unique,
    ) -> Option<Obstacle> {
        let users: Vec<&User> =
            facts.users_of(relation.oid, &unique.name).iter().filter(|user| !self.list.contains_key(&user.oid)).collect();
        if users.is_empty() {
            return None;
        }
        let columns = |names: Vec<&str>| names.into_iter().map(quoted_identifier).collect::<Vec<_>>().join(", ");
        let (own, added) =
            (columns(unique.columns.iter().flatten().map(String::as_str).collect()), columns(missing(unique, member)));
        // PostgreSQL says 42803 of the old text.
        let mut remedy = format!(
            "Drop these first, and create them again at the end, with {added} beside {own} in their GROUP BY: {own} alone does not \
             determine the other columns any more."
        );
        let materialized =
            users.iter().filter_map(|user| catalog.relations.get(&user.oid).filter(|_| user.kind == UserKind::MaterializedView));
        for view in materialized {
            let Some(query) = view.view_definition.as_deref().map(|text| text.trim().trim_end_matches(';')) else { continue };
            let table = RekeyedTable {
                schema: &relation.schema,
                name: &relation.name,
                columns: unique.columns.iter().flatten().map(String::as_str).collect(),
                added: missing(unique, member),
            };
            let later = regrouped(query, &[table]);
            let later = later.as_deref().unwrap_or(query);
            let (drop, create) = made_anew(catalog, view, later, &relation.owner);
            remedy.push_str(&format!(" {drop} And at the end, with the privileges that you give it: {create}"));
        }
        let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
        Some(Obstacle { what: format!("{} of table {} is needed by {}.", what(unique), shown(relation), names.join(", ")), remedy })
    }
}

fn replace(view: &Relation, anew: &Anew, query: &str) -> String {
    format!("CREATE OR REPLACE VIEW {}{} AS {};", quoted_name(&view.schema, &view.name), anew.options, query.trim())
}

/// Of foreign keys of one column.
fn keyed_reference<'t>(
    catalog: &'t Catalog,
    (relation, name, remade): &'t (&Relation, &str, Remade),
) -> Option<KeyedReference<'t>> {
    let foreign_key = relation.foreign_keys.iter().find(|foreign_key| foreign_key.name == *name)?;
    let referenced = catalog.relations.get(&foreign_key.referenced)?;
    let ([own], [other]) = (foreign_key.columns.as_slice(), foreign_key.referenced_columns.as_slice()) else { return None };
    Some(KeyedReference {
        own: (&relation.schema, &relation.name, own),
        referenced: (&referenced.schema, &referenced.name, other),
        added: remade.added.iter().map(|(own, other)| (own.as_str(), other.as_str())).collect(),
    })
}

/// A column of the same type that needs no table.
fn no_value(column: &crate::catalog::Column) -> String {
    let collation = column.collation.as_ref().map(|name| format!(" COLLATE {name}")).unwrap_or_default();
    format!("NULL::{}{collation} AS {}", type_anywhere(&column.type_name), quoted_identifier(&column.name))
}
