//! INSERT, UPDATE, DELETE and MERGE drawn from a seed.
//!
//! What they leave is determined: where rows conflict with each other, the source says in which order they come.

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::expression::{Scope, Source};
use super::query::{Generator, Statement};
use super::schema::Table;
use super::tree::{Constant, Tree, all};
use super::values::Kind;
use crate::parity::answer::RowOrder;

impl Generator<'_> {
    pub fn changing(&mut self) -> Statement {
        let tables: Vec<&Table> = self.schema.tables.iter().filter(|table| table.name != "shown").collect();
        let table = (*tables.choose(&mut self.random).expect("tables")).clone();
        let tree = match self.random.random_range(0..12) {
            0 | 1 => self.update(&table),
            2 | 3 => self.delete(&table),
            4..=6 => self.insert_values(&table),
            7..=9 => self.insert_select(&table),
            _ => self.merge(&table),
        };
        Statement { tree, order: RowOrder::Free, writes: true }
    }

    /// Of what one key has, or what a condition over other tables finds.
    fn target(&mut self, table: &Table) -> (String, Scope, Tree) {
        let alias = self.alias();
        let scope = Scope::default().with(vec![Source { alias: alias.clone(), columns: table.columns.clone() }]);
        let filter = match self.random.random_range(0..4) {
            0 => self.condition(&scope, 2),
            1 => all![self.pinned(&scope), all![" OR ", self.condition(&scope, 1)].optional()],
            _ => all![self.pinned(&scope), all![" AND ", self.condition(&scope, 2)].optional()],
        };
        (alias, scope, filter)
    }

    fn update(&mut self, table: &Table) -> Tree {
        if self.chance(15) {
            return self.update_of_key(table);
        }
        let (alias, scope, filter) = self.target(table);
        let Some(set) = self.assignments(table, &scope) else { return self.delete(table) };
        all![format!("UPDATE {} AS {alias} SET ", table.name), set, " WHERE ", filter, self.returning(&scope)]
    }

    /// Of one key, so that no order of the rows makes two of them alike for a while.
    fn update_of_key(&mut self, table: &Table) -> Tree {
        let alias = self.alias();
        let scope = Scope::default().with(vec![Source { alias: alias.clone(), columns: table.columns.clone() }]);
        let (name, kind) = table.columns[0].clone();
        let (before, after) = (self.new_key(&name, kind), self.new_key(&name, kind));
        let set = match self.assignments(table, &scope).filter(|_| self.chance(50)) {
            Some(others) => all![", ", others].optional(),
            None => Tree::from(""),
        };
        let head = format!("UPDATE {} AS {alias} SET {name} = ", table.name);
        let filter = all![" AND ", self.condition(&scope, 1)].optional();
        all![head, after, set, format!(" WHERE {alias}.{name} = "), before, filter, self.returning(&scope)]
    }

    fn delete(&mut self, table: &Table) -> Tree {
        let (alias, scope, filter) = self.target(table);
        all![format!("DELETE FROM {} AS {alias} WHERE ", table.name), filter, self.returning(&scope)]
    }

    /// Not of the key. `None`: there is nothing else.
    fn assignments(&mut self, table: &Table, scope: &Scope) -> Option<Tree> {
        let mut others: Vec<(String, Kind)> = table.columns.iter().filter(|(name, _)| !is_key(name)).cloned().collect();
        others.shuffle(&mut self.random);
        others.truncate(self.random.random_range(1..3));
        let sets = others.into_iter().map(|(name, kind)| all![format!("{name} = "), self.expression(kind, scope, 1)]);
        let sets: Vec<Tree> = sets.collect();
        (!sets.is_empty()).then_some(Tree::Items(sets, ", "))
    }

    /// Mostly nothing.
    fn returning(&mut self, scope: &Scope) -> Tree {
        match self.random.random_range(0..5) {
            0 => Tree::from(" RETURNING *").optional(),
            1 => {
                let items = (0..self.random.random_range(1..4)).map(|_| {
                    let kind = self.any_kind(scope);
                    self.expression(kind, scope, 1)
                });
                let items: Vec<Tree> = items.collect();
                all![" RETURNING ", Tree::Items(items, ", ")].optional()
            }
            _ => Tree::from(""),
        }
    }

    /// The columns that the statement names, the key among them; whether it has to name them.
    fn listed(&mut self, table: &Table) -> (Vec<(String, Kind)>, String) {
        if self.chance(25) {
            return (table.columns.clone(), String::new());
        }
        let mut columns = table.columns.clone();
        let count = columns.iter().filter(|(name, _)| is_key(name)).count();
        columns.shuffle(&mut self.random);
        columns.sort_by_key(|(name, _)| !is_key(name));
        columns.truncate(count + self.random.random_range(0..4));
        columns.shuffle(&mut self.random);
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let list = format!(" ({})", names.join(", "));
        (columns, list)
    }

    fn insert_values(&mut self, table: &Table) -> Tree {
        let (columns, list) = self.listed(table);
        let mut rows = Vec::new();
        for _ in 0..self.random.random_range(1..6) {
            let values = columns.iter().map(|(name, kind)| match is_key(name) {
                true => self.new_key(name, *kind),
                false if self.chance(10) => Tree::from("DEFAULT"),
                false => self.expression(*kind, &Scope::default(), 1),
            });
            let values: Vec<Tree> = values.collect();
            let mut row = vec![Tree::from("(")];
            for (index, value) in values.into_iter().enumerate() {
                row.push(Tree::from(if index > 0 { ", " } else { "" }));
                row.push(value);
            }
            row.push(Tree::from(")"));
            rows.push(Tree::All(row));
        }
        let alias = self.alias();
        let scope = Scope::default().with(vec![Source { alias: alias.clone(), columns: table.columns.clone() }]);
        let conflict = self.on_conflict(table, &scope);
        let head = format!("INSERT INTO {} AS {alias}{list} VALUES ", table.name);
        all![head, Tree::Items(rows, ", "), conflict, self.returning(&scope)]
    }

    /// One that may be there already.
    fn new_key(&mut self, name: &str, kind: Kind) -> Tree {
        let value = match name {
            "n" => self.random.random_range(0..60).to_string(),
            _ => kind.key(&mut self.random),
        };
        Tree::Constant(Constant { value: Some(value), kind, is_literal: self.chance(50) })
    }

    fn insert_select(&mut self, table: &Table) -> Tree {
        let (columns, list) = self.listed(table);
        let alias = self.alias();
        let scope = Scope::default().with(vec![Source { alias: alias.clone(), columns: table.columns.clone() }]);
        let head = format!("INSERT INTO {} AS {alias}{list} ", table.name);
        let conflict = self.on_conflict(table, &scope);
        let with = if self.chance(10) { self.with(1) } else { Tree::from("") };
        let query = match self.chance(70) {
            true => self.rows_with_new_keys(&columns),
            false => {
                let kinds: Vec<Kind> = columns.iter().map(|(_, kind)| *kind).collect();
                self.query(Some(&kinds), &Scope::default(), 1).0
            }
        };
        all![head, with, query, self.total_order(columns.len()), conflict, self.returning(&scope)]
    }

    /// Rows of other tables whose keys are moved out of the way.
    fn rows_with_new_keys(&mut self, columns: &[(String, Kind)]) -> Tree {
        let (from, sources) = self.from(&Scope::default(), 0);
        let scope = Scope::default().with(sources);
        let filter = self.filter(&scope, 1);
        let shift = self.random.random_range(0..3) * 100;
        let values = columns.iter().map(|(name, kind)| match is_key(name) {
            true => {
                let column = self.key_among(scope.inner(), name, *kind).or_else(|| self.column(*kind, &scope));
                let column = column.unwrap_or_else(|| self.new_key(name, *kind));
                match kind {
                    Kind::Int4 | Kind::Int8 | Kind::Date => all!["(", column, format!(" + {shift})")],
                    Kind::Int2 => all!["(", column, format!(" % 1000 + {shift})::int2")],
                    Kind::Text => all!["(", column, format!(" || '{shift}')")],
                    _ => column,
                }
            }
            false => self.expression(*kind, &scope, 1),
        });
        let values: Vec<Tree> = values.collect();
        let mut select = vec![Tree::from(if self.chance(30) { "SELECT DISTINCT " } else { "SELECT " })];
        for (index, value) in values.into_iter().enumerate() {
            select.push(Tree::from(if index > 0 { ", " } else { "" }));
            select.push(value);
        }
        all![Tree::All(select), " FROM ", from, filter]
    }

    fn key_among(&mut self, sources: &[Source], name: &str, kind: Kind) -> Option<Tree> {
        let fitting = sources.iter().filter(|source| source.columns.iter().any(|(own, other)| own == name && *other == kind));
        let aliases: Vec<&str> = fitting.map(|source| source.alias.as_str()).collect();
        aliases.choose(&mut self.random).map(|alias| Tree::from(format!("{alias}.{name}")))
    }

    fn on_conflict(&mut self, table: &Table, scope: &Scope) -> Tree {
        let target = if table.columns.iter().any(|(name, _)| name == "n") { "(k, n)" } else { "(k)" };
        match self.random.random_range(0..5) {
            0 => Tree::from(" ON CONFLICT DO NOTHING").optional(),
            1 => Tree::from(format!(" ON CONFLICT {target} DO NOTHING")).optional(),
            2 => {
                let excluded = Source { alias: "excluded".to_owned(), columns: table.columns.clone() };
                let scope = Scope { levels: vec![[scope.inner(), &[excluded]].concat()] };
                let Some(set) = self.assignments(table, &scope) else { return Tree::from("") };
                let filter = match self.chance(30) {
                    true => all![" WHERE ", self.condition(&scope, 1)].optional(),
                    false => Tree::from(""),
                };
                all![format!(" ON CONFLICT {target} DO UPDATE SET "), set, filter].optional()
            }
            _ => Tree::from(""),
        }
    }

    fn merge(&mut self, table: &Table) -> Tree {
        let alias = self.alias();
        let own = Source { alias: alias.clone(), columns: table.columns.clone() };
        let (from, source) = self.merged(table);
        let both = Scope::default().with(vec![own, source.clone()]);
        let of_source = Scope::default().with(vec![source.clone()]);
        let keys: Vec<&(String, Kind)> = table.columns.iter().filter(|(name, _)| is_key(name)).collect();
        let on: Vec<Tree> = keys.iter().map(|(name, _)| Tree::from(format!("{alias}.{name} = {}.{name}", source.alias))).collect();
        let mut actions = Vec::new();
        if self.chance(80) {
            let condition = self.merge_condition(&both);
            let action = match self.assignments(table, &both).filter(|_| self.chance(60)) {
                Some(set) => all!["UPDATE SET ", set],
                None => Tree::from(*["DELETE", "DELETE", "DO NOTHING"].choose(&mut self.random).expect("actions")),
            };
            actions.push(all![" WHEN MATCHED", condition, " THEN ", action]);
        }
        if actions.is_empty() || self.chance(70) {
            let condition = self.merge_condition(&of_source);
            let (columns, list) = self.listed(table);
            let mut row = vec![Tree::from(format!(" THEN INSERT{list} VALUES ("))];
            for (index, (name, kind)) in columns.iter().enumerate() {
                row.push(Tree::from(if index > 0 { ", " } else { "" }));
                row.push(match is_key(name) {
                    true => Tree::from(format!("{}.{name}", source.alias)),
                    false => self.expression(*kind, &of_source, 1),
                });
            }
            row.push(Tree::from(")"));
            actions.push(all![" WHEN NOT MATCHED", condition, Tree::All(row)]);
        }
        let on = all![Tree::Items(on, " AND ")];
        all![format!("MERGE INTO {} AS {alias} USING ", table.name), from, " ON ", on, Tree::Items(actions, "")]
    }

    fn merge_condition(&mut self, scope: &Scope) -> Tree {
        match self.chance(30) {
            true => all![" AND ", self.condition(scope, 1)].optional(),
            false => Tree::from(""),
        }
    }

    /// What is merged: a table that has the columns of the key, or rows of VALUES.
    fn merged(&mut self, table: &Table) -> (Tree, Source) {
        let alias = self.alias();
        let keys: Vec<(String, Kind)> = table.columns.iter().filter(|(name, _)| is_key(name)).cloned().collect();
        let fitting: Vec<Table> =
            self.schema.tables.iter().filter(|other| keys.iter().all(|key| other.columns.contains(key))).cloned().collect();
        match fitting.choose(&mut self.random) {
            Some(other) if self.chance(60) => {
                (Tree::from(format!("{} AS {alias}", other.name)), Source { alias, columns: other.columns.clone() })
            }
            Some(_) | None => {
                let mut rows = Vec::new();
                for _ in 0..self.random.random_range(1..5) {
                    let mut row = vec![Tree::from("(")];
                    for (name, kind) in &keys {
                        row.extend([self.new_key(name, *kind).fixed(), Tree::from(format!("::{}, ", kind.type_name()))]);
                    }
                    row.extend([self.constant(Kind::Text), Tree::from(")")]);
                    rows.push(Tree::All(row));
                }
                let mut columns = keys;
                columns.push(("s".to_owned(), Kind::Text));
                let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
                let named = format!(") AS {alias} ({})", names.join(", "));
                (all!["(VALUES ", Tree::Items(rows, ", "), named], Source { alias, columns })
            }
        }
    }
}

fn is_key(name: &str) -> bool {
    name == "k" || name == "n"
}
