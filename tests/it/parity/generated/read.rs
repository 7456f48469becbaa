//! SELECTs of forms of their own: DISTINCT ON, row locks, recursion.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::expression::{Scope, Source};
use super::query::{Generator, Statement};
use super::schema::Table;
use super::tree::{Tree, all};
use super::values::Kind;
use crate::parity::answer::RowOrder;

impl Generator<'_> {
    /// The first row of each group, by an order of all columns.
    pub fn distinct_on(&mut self) -> Statement {
        let (from, sources) = self.from(&Scope::default(), 1);
        let scope = Scope::default().with(sources);
        let filter = self.filter(&scope, 2);
        let kinds: Vec<Kind> = (0..self.random.random_range(1..5)).map(|_| self.any_kind(&scope)).collect();
        let items: Vec<Tree> = kinds.iter().map(|kind| self.expression(*kind, &scope, 1)).collect();
        let distinct = self.random.random_range(1..=kinds.len());
        let ordinals = |range: std::ops::RangeInclusive<usize>| range.map(|ordinal| ordinal.to_string()).collect::<Vec<_>>();
        let on = ordinals(1..=distinct).join(", ");
        let order = ordinals(1..=kinds.len()).join(if self.chance(30) { " DESC, " } else { ", " });
        let limit = if self.chance(40) { self.limit().optional() } else { Tree::from("") };
        // Of columns that were left out there would be no ordinals.
        let mut select = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            select.push(Tree::from(if index > 0 { ", " } else { "" }));
            select.push(item);
        }
        let tree = all![
            format!("SELECT DISTINCT ON ({on}) "),
            Tree::All(select),
            " FROM ",
            from,
            filter,
            format!(" ORDER BY {order}"),
            limit
        ];
        Statement { tree, order: RowOrder::Total, writes: false }
    }

    /// Rows of one table, locked.
    pub fn locking(&mut self) -> Statement {
        let tables: Vec<&Table> = self.schema.tables.iter().filter(|table| table.name != "shown").collect();
        let table = (*tables.choose(&mut self.random).expect("tables")).clone();
        let alias = self.alias();
        let scope = Scope::default().with(vec![Source { alias: alias.clone(), columns: table.columns.clone() }]);
        let filter = match self.chance(50) {
            true => all![" WHERE ", self.pinned(&scope)].optional(),
            false => self.filter(&scope, 2),
        };
        let kinds: Vec<Kind> = (0..self.random.random_range(1..4)).map(|_| self.any_kind(&scope)).collect();
        let items: Vec<Tree> = kinds.iter().map(|kind| self.expression(*kind, &scope, 1)).collect();
        let (end, order) = match self.chance(60) {
            true => {
                let order = Tree::from(self.total_order(kinds.len()));
                let limit = if self.chance(50) { self.plain_limit().optional() } else { Tree::from("") };
                (all![order, limit], RowOrder::Total)
            }
            false => (Tree::from(""), RowOrder::Free),
        };
        let words = [" FOR UPDATE", " FOR NO KEY UPDATE", " FOR SHARE", " FOR KEY SHARE", " FOR UPDATE SKIP LOCKED"];
        let lock = Tree::from(*words.choose(&mut self.random).expect("locks"));
        let tree =
            all!["SELECT ", Tree::Items(items, ", "), format!(" FROM {} AS {alias}", table.name), filter, end, lock.optional()];
        Statement { tree, order, writes: false }
    }

    /// A query of WITH that goes on from its own rows, a few steps far.
    pub fn recursion(&mut self) -> Tree {
        let alias = self.alias();
        let has_number = |table: &&Table| table.columns.iter().any(|(_, kind)| *kind == Kind::Int4);
        let tables: Vec<Table> = self.schema.tables.iter().filter(has_number).cloned().collect();
        let (first, next) = (self.numbers(&tables), self.numbers(&tables));
        let word = if self.chance(70) { "UNION" } else { "UNION ALL" };
        let begin = Scope::default().with(vec![first.1]);
        let (start, from) = (self.expression(Kind::Int4, &begin, 0), first.0);
        let filter = self.filter(&begin, 1);
        let own = Source { alias: alias.clone(), columns: vec![("x".to_owned(), Kind::Int4), ("step".to_owned(), Kind::Int4)] };
        let scope = Scope::default().with(vec![next.1, own.clone()]);
        let of_next = Scope::default().with(vec![scope.inner()[0].clone()]);
        let found = self.column(Kind::Int4, &of_next).unwrap_or(Tree::from("1"));
        let value = self.expression(Kind::Int4, &of_next, 0);
        let tree = all![
            format!("WITH RECURSIVE {alias} (x, step) AS (SELECT "),
            start,
            ", 0 FROM ",
            from,
            filter,
            format!(" {word} SELECT "),
            value,
            format!(", {alias}.step + 1 FROM "),
            next.0,
            format!(" JOIN {alias} ON {alias}.x = "),
            found,
            format!(" WHERE {alias}.step < 2) ")
        ];
        self.named.push(own);
        tree
    }

    fn numbers(&mut self, tables: &[Table]) -> (Tree, Source) {
        let table = tables.choose(&mut self.random).expect("tables").clone();
        let alias = self.alias();
        (Tree::from(format!("{} AS {alias}", table.name)), Source { alias, columns: table.columns })
    }
}
