//! From the tables that take part to the script, and to the schema as it will be, by which the declarations are checked.
//!
//! ```text
//! reference tables ─► BEGIN ─► foreign keys off ─► columns, filled ─► views off ─► keys ─► views, foreign keys on ─► COMMIT ─► the declaration
//! ```
//! The changes of the schema are one transaction, on all shards: it is made as a whole or not at all, whatever fails. They come before
//! the declaration, which then finds foreign keys that hold the key, as it wants them.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::foreign_keys::{self, Fate, ForeignKeys, Remade, shown};
use super::members::{Member, Members, in_order};
use super::script::{Kind, Row};
use super::triggers::Silenced;
use super::uniques::{self, Rekeyed, missing, rekeyed};
use super::views::Views;
use crate::catalog::{Catalog, ClosureCache, Column, Oid, Relation, quoted_identifier, quoted_literal, quoted_name, type_anywhere};
use crate::declare::checks::Obstacle;

/// What has to be done to the schema.
pub(super) struct Changes<'m, 'c> {
    catalog: &'c Catalog,
    members: &'m Members<'c>,
    facts: &'m Facts,
    /// Of tables whose foreign key is made again, in the order of the tables.
    pub(super) remade: Vec<(&'c Relation, &'c str, Remade)>,
    dropped: Vec<(&'c Relation, &'c str, String)>,
    views: Views<'c>,
    /// How many keys say less than before.
    weakened: usize,
    rows: Vec<Row>,
    /// The schema afterwards.
    pub(super) planned: Catalog,
    pub(super) obstacles: Vec<Obstacle>,
}

impl<'m, 'c> Changes<'m, 'c> {
    pub(super) fn find(members: &'m Members<'c>, keys: &ForeignKeys<'m, 'c>, facts: &'m Facts) -> Self {
        let catalog = keys.catalog;
        // What walks have found holds for the schema as it is.
        let planned = Catalog { closures: ClosureCache::default(), ..catalog.clone() };
        let mut changes = Self {
            catalog,
            members,
            facts,
            remade: Vec::new(),
            dropped: Vec::new(),
            views: Views::default(),
            weakened: 0,
            rows: Vec::new(),
            planned,
            obstacles: Vec::new(),
        };
        for relation in in_order(catalog) {
            changes.foreign_keys(relation, keys);
        }
        changes.views = Views::find(catalog, facts, members, &changes.remade);
        changes.drop_foreign_keys();
        for member in members.list.iter().filter(|member| !member.is_declared) {
            changes.columns(member);
        }
        changes.rows.extend(changes.views.forgotten());
        for member in members.list.iter().filter(|member| !member.is_declared) {
            changes.keys(member);
        }
        changes.rows.extend(changes.views.written_anew());
        for (view, query) in changes.views.queries() {
            if let Some(planned) = changes.planned.relations.get_mut(&view) {
                planned.view_definition = Some(query.to_owned());
            }
        }
        changes.add_foreign_keys();
        changes
    }

    pub(super) fn dropped_count(&self) -> usize {
        self.dropped.len()
    }

    pub(super) fn weakened_count(&self) -> usize {
        self.weakened
    }

    /// Empty where the schema is as it has to be.
    pub(super) fn into_rows(self) -> Vec<Row> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let begin =
            "What follows is one transaction: it is made on all shards, or not at all. Its tables are locked until it ends.";
        let mut rows = vec![Row::statement(Kind::Transaction, None, "BEGIN;".to_owned(), begin)];
        rows.extend(self.rows);
        rows.push(Row::statement(Kind::Transaction, None, "COMMIT;".to_owned(), "All changes of the schema are made together."));
        rows
    }

    fn foreign_keys(&mut self, relation: &'c Relation, keys: &ForeignKeys<'m, 'c>) {
        for foreign_key in &relation.foreign_keys {
            let is_own = !foreign_keys::is_inherited(self.catalog, relation, foreign_key);
            let fate = keys.fate(relation, foreign_key);
            let Some(planned) = self.planned.relations.get_mut(&relation.oid) else { continue };
            let place = planned.foreign_keys.iter().position(|other| other == foreign_key);
            match fate {
                Fate::Stays => {}
                Fate::Remade(remade) => {
                    if let Some(found) = place.and_then(|place| planned.foreign_keys.get_mut(place)) {
                        found.clone_from(&remade.foreign_key);
                    }
                    if is_own {
                        self.remade.push((relation, &foreign_key.name, remade));
                    }
                }
                Fate::Dropped(why) => {
                    place.map(|place| planned.foreign_keys.remove(place));
                    if is_own {
                        self.dropped.push((relation, &foreign_key.name, why));
                    }
                }
                Fate::Obstacle(obstacle) => {
                    // It is told once.
                    place.map(|place| planned.foreign_keys.remove(place));
                    if is_own {
                        self.obstacles.push(obstacle);
                    }
                }
            }
        }
    }

    fn drop_foreign_keys(&mut self) {
        let mut by_table: ByTable<'_, (&str, Option<&str>)> = BTreeMap::new();
        for (relation, name, _) in &self.remade {
            by_table.entry((&relation.schema, &relation.name)).or_default().push((name, None));
        }
        for (relation, name, why) in &self.dropped {
            by_table.entry((&relation.schema, &relation.name)).or_default().push((name, Some(why)));
        }
        for ((schema, name), constraints) in by_table {
            let parts: Vec<String> =
                constraints.iter().map(|(name, _)| format!("DROP CONSTRAINT {}", quoted_identifier(name))).collect();
            let lost: Vec<String> = constraints
                .iter()
                .filter_map(|(name, why)| {
                    why.map(|why| {
                        format!("Foreign key \"{name}\" is not made again: {why} Nothing checks it, and nothing acts on it.")
                    })
                })
                .collect();
            let reason = match lost.len() {
                0 => "They refer to keys that change, and are made again with the shard key in them.",
                count if count == constraints.len() => "They cannot be checked on one shard.",
                _ => "They refer to keys that change, or cannot be checked on one shard.",
            };
            let statement = alter(&quoted_name(schema, name), &parts);
            let table = Some(crate::catalog::shown_name(schema, name));
            self.rows.push(Row::statement(Kind::DropForeignKeys, table, statement, reason).with_warnings(&lost));
        }
    }

    fn columns(&mut self, member: &Member<'c>) {
        let Some(filled) = &member.filled else { return };
        let Some(parent) = self.members.get(filled.parent) else { return };
        let (mut added, mut pairs, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for place in &filled.missing {
            let (Some(own), Some(from), Some(column)) =
                (member.key.get(*place), parent.key.get(*place), self.members.key_column(member, *place))
            else {
                continue;
            };
            added.push(format!("ADD COLUMN {} {}", quoted_identifier(&own.column), column_type(column)));
            pairs.push((own.column.as_str(), from.column.as_str()));
            names.push(format!("\"{}\"", own.column));
            let new = Column { name: own.column.clone(), default: None, identity: None, is_generated: false, ..column.clone() };
            self.add_planned_column(member.relation, &new);
        }
        let (table, shown_table) = (quoted_name(&member.relation.schema, &member.relation.name), shown(member.relation));
        let names = names.join(", ");
        let reason = format!("The shard key, which the table does not have; foreign key \"{}\" leads to it.", filled.by.name);
        let warning = format!("INSERT has to give {names} from now on: the proxy finds the row's shard by it.");
        let row = Row::statement(Kind::AddColumn, Some(shown_table.clone()), alter(&table, &added), reason);
        self.rows.push(row.with_warnings(&[warning]));
        let triggers = Silenced::find(self.catalog, member.relation);
        self.push_triggers(&triggers.off, "Filling the column is no change that the triggers are for.");
        let update = fill(&table, filled.by, self.catalog, &pairs);
        let reason = format!("From {}, as foreign key \"{}\" says.", shown(parent.relation), filled.by.name);
        self.rows.push(Row::statement(Kind::FillColumn, Some(shown_table), update, reason));
        self.push_triggers(&triggers.on, "As they were.");
    }

    fn push_triggers(&mut self, by_relation: &[(&Relation, Vec<String>)], reason: &str) {
        for (relation, parts) in by_relation {
            let statement = alter(&quoted_name(&relation.schema, &relation.name), parts);
            self.rows.push(Row::statement(Kind::FillColumn, Some(shown(relation)), statement, reason));
        }
    }

    fn add_planned_column(&mut self, relation: &Relation, column: &Column) {
        for member in self.catalog.family(relation) {
            if let Some(planned) = self.planned.relations.get_mut(&member.oid) {
                let attnum = planned.columns.iter().map(|column| column.attnum).max().unwrap_or_default() + 1;
                planned.columns.push(Column { attnum, is_not_null: true, ..column.clone() });
            }
        }
    }

    /// Uniqueness with the key, and a key in every row.
    fn keys(&mut self, member: &Member<'c>) {
        for relation in self.catalog.family(member.relation) {
            let mut work = Rekeyed::default();
            let mut warnings = Vec::new();
            if relation.oid == member.relation.oid {
                work.alter = self.not_null(member);
            }
            for unique in relation.uniques.iter().filter(|unique| !missing(unique, member).is_empty()) {
                if let Some(planned) = self.planned.relations.get_mut(&relation.oid) {
                    for other in planned.uniques.iter_mut().filter(|other| other.name == unique.name) {
                        other.columns.extend(missing(unique, member).into_iter().map(|column| Some(column.to_owned())));
                    }
                }
                if uniques::is_inherited(self.catalog, relation, unique) {
                    continue;
                }
                if let Some(obstacle) = self.views.others(self.catalog, self.facts, member, relation, unique) {
                    self.obstacles.push(obstacle);
                    continue;
                }
                match rekeyed(self.catalog, self.facts, (self.members, member), relation, unique) {
                    Ok(rekeyed) => {
                        self.weakened += usize::from(rekeyed.is_weaker);
                        warnings.extend(rekeyed.warning.clone());
                        work.extend(rekeyed);
                    }
                    Err(obstacle) => self.obstacles.push(obstacle),
                }
            }
            self.push_keys(relation, work, &warnings);
        }
    }

    fn not_null(&mut self, member: &Member<'c>) -> Vec<String> {
        let mut parts = Vec::new();
        for item in &member.key {
            let is_not_null = member.relation.column(&item.column).is_some_and(|column| column.is_not_null);
            if !is_not_null {
                parts.push(format!("ALTER COLUMN {} SET NOT NULL", quoted_identifier(&item.column)));
                for relation in self.catalog.family(member.relation) {
                    let Some(planned) = self.planned.relations.get_mut(&relation.oid) else { continue };
                    let columns = planned.columns.iter_mut().filter(|column| column.name == item.column);
                    columns.for_each(|column| column.is_not_null = true);
                }
            }
        }
        parts
    }

    fn push_keys(&mut self, relation: &Relation, work: Rekeyed, warnings: &[String]) {
        let (table, shown_table) = (quoted_name(&relation.schema, &relation.name), Some(shown(relation)));
        let mut push = |kind: Kind, statement: String, reason: &str| {
            self.rows.push(Row::statement(kind, shown_table.clone(), statement, reason));
        };
        if !work.alter.is_empty() {
            push(
                Kind::Keys,
                alter(&table, &work.alter),
                "Every row has a shard key, which is in every key that the rows are unique by.",
            );
        }
        for index in work.indexes {
            push(Kind::Keys, index, "A unique index holds the shard key.");
        }
        if !work.alter_behind.is_empty() {
            push(Kind::Keys, alter(&table, &work.alter_behind), "As it was.");
        }
        for comment in work.comments {
            push(Kind::Comment, comment, "As it was.");
        }
        // Said once, where it happens.
        let mut own = self.rows.iter_mut().rev().take_while(|row| row.table_name == shown_table);
        if let Some(row) = own.by_ref().filter(|row| row.kind == Kind::Keys.word()).last()
            && !warnings.is_empty()
        {
            row.warning = Some(warnings.join(" "));
        }
    }

    fn add_foreign_keys(&mut self) {
        let mut by_table: ByTable<'_, (Oid, &str, &Remade)> = BTreeMap::new();
        for (relation, name, remade) in &self.remade {
            by_table.entry((&relation.schema, &relation.name)).or_default().push((relation.oid, name, remade));
        }
        for ((schema, name), constraints) in by_table {
            let table = quoted_name(schema, name);
            let part =
                |(_, name, remade): &(Oid, &str, &Remade)| format!("ADD CONSTRAINT {} {}", quoted_identifier(name), remade.text);
            let parts: Vec<String> = constraints.iter().map(part).collect();
            let warnings: Vec<String> = constraints.iter().filter_map(|(_, _, remade)| remade.warning.clone()).collect();
            let shown_table = Some(crate::catalog::shown_name(schema, name));
            let reason = "With the shard key in them: a row and what it refers to are on one shard.";
            let row = Row::statement(Kind::AddForeignKeys, shown_table.clone(), alter(&table, &parts), reason);
            self.rows.push(row.with_warnings(&warnings));
            for (oid, name, _) in &constraints {
                if let Some(comment) = self.facts.comments.get(&(*oid, (*name).to_owned())) {
                    let statement =
                        format!("COMMENT ON CONSTRAINT {} ON {table} IS {};", quoted_identifier(name), quoted_literal(comment));
                    self.rows.push(Row::statement(Kind::Comment, shown_table.clone(), statement, "As it was."));
                }
            }
        }
    }
}

/// By schema and name.
type ByTable<'n, T> = BTreeMap<(&'n str, &'n str), Vec<T>>;

fn alter(table: &str, parts: &[String]) -> String {
    format!("ALTER TABLE {table} {};", parts.join(", "))
}

/// As the column has it that the values come from.
fn column_type(column: &Column) -> String {
    let collation = column.collation.as_ref().filter(|name| *name != "pg_catalog.\"default\"");
    let collation = collation.map(|name| format!(" COLLATE {name}")).unwrap_or_default();
    format!("{}{collation}", type_anywhere(&column.type_name))
}

/// Gives each row what the row has that it refers to.
fn fill(table: &str, by: &crate::catalog::ForeignKey, catalog: &Catalog, pairs: &[(&str, &str)]) -> String {
    let Some(referenced) = catalog.relations.get(&by.referenced) else { return String::new() };
    let set: Vec<String> =
        pairs.iter().map(|(own, from)| format!("{} = referred.{}", quoted_identifier(own), quoted_identifier(from))).collect();
    let on = join_condition("own", "referred", by);
    let from = quoted_name(&referenced.schema, &referenced.name);
    format!("UPDATE {table} AS own SET {} FROM {from} AS referred WHERE {on};", set.join(", "))
}

/// `own."a" = referred."b"` for each pair of a foreign key's columns.
pub(super) fn join_condition(own: &str, referred: &str, by: &crate::catalog::ForeignKey) -> String {
    let pair = |(column, referenced): (&String, &String)| {
        format!("{own}.{} = {referred}.{}", quoted_identifier(column), quoted_identifier(referenced))
    };
    by.columns.iter().zip(&by.referenced_columns).map(pair).collect::<Vec<_>>().join(" AND ")
}
