//! Expressions of every type over the columns in scope; none of them can fail, so that no answer hangs on the order of evaluation.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::query::Generator;
use super::tree::{Constant, Sort, Tree, all};
use super::values::Kind;

/// What an expression may refer to.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The innermost level last.
    pub levels: Vec<Vec<Source>>,
}

/// An item of FROM.
#[derive(Clone, Debug)]
pub struct Source {
    pub alias: String,
    pub columns: Vec<(String, Kind)>,
}

impl Scope {
    pub fn with(&self, level: Vec<Source>) -> Scope {
        let mut levels = self.levels.clone();
        levels.push(level);
        Scope { levels }
    }

    pub fn inner(&self) -> &[Source] {
        self.levels.last().map(Vec::as_slice).unwrap_or_default()
    }
}

impl Generator<'_> {
    /// A column of this type, mostly of the innermost level.
    pub fn column(&mut self, kind: Kind, scope: &Scope) -> Option<Tree> {
        let of = |sources: &[Source]| -> Vec<String> {
            let names = sources.iter().flat_map(|source| {
                let own = source.columns.iter().filter(|(_, own)| *own == kind);
                own.map(|(name, _)| format!("{}.{name}", source.alias)).collect::<Vec<_>>()
            });
            names.collect()
        };
        let inner = of(scope.inner());
        let outer: Vec<String> = scope.levels.iter().rev().skip(1).flat_map(|level| of(level)).collect();
        let list = if outer.is_empty() || (!inner.is_empty() && self.chance(75)) { inner } else { outer };
        list.choose(&mut self.random).map(|name| Tree::from(self.shortened(name, scope)))
    }

    /// Without its qualifier where that is not needed.
    fn shortened(&mut self, name: &str, scope: &Scope) -> String {
        let (alias, column) = name.split_once('.').expect("a qualified name");
        let has = |source: &&Source| source.columns.iter().any(|(own, _)| own == column);
        let is_only = scope.levels.iter().flatten().filter(has).count() == 1;
        let is_inner = scope.inner().iter().any(|source| source.alias == alias);
        if is_only && is_inner && self.chance(30) { column.to_owned() } else { name.to_owned() }
    }

    pub fn constant(&mut self, kind: Kind) -> Tree {
        let value = if self.chance(8) { None } else { Some(kind.value(&mut self.random)) };
        Tree::Constant(Constant { value, kind, is_literal: self.chance(30) })
    }

    pub fn any_kind(&mut self, scope: &Scope) -> Kind {
        let kinds: Vec<Kind> = scope.inner().iter().flat_map(|source| source.columns.iter().map(|(_, kind)| *kind)).collect();
        match kinds.choose(&mut self.random) {
            Some(kind) if self.chance(80) => *kind,
            Some(_) | None => *[Kind::Int4, Kind::Text, Kind::Bool, Kind::Money].choose(&mut self.random).expect("kinds"),
        }
    }

    pub fn expression(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Tree {
        let column = self.column(kind, scope);
        if let Some(column) = column
            && (depth == 0 || self.chance(55))
        {
            return column.of(kind);
        }
        if depth == 0 || self.chance(12) {
            return self.constant(kind);
        }
        let depth = depth - 1;
        let tree = match self.random.random_range(0..10) {
            0 => all!["coalesce(", self.expression(kind, scope, depth), ", ", self.expression(kind, scope, depth), ")"],
            1 => all![
                "CASE WHEN ",
                self.condition(scope, depth),
                " THEN ",
                self.expression(kind, scope, depth),
                " ELSE ",
                self.expression(kind, scope, depth),
                " END"
            ],
            2 if depth > 0 => self.scalar(kind, scope, depth),
            3 => all!["nullif(", self.expression(kind, scope, depth), ", ", self.constant(kind), ")"],
            _ => self.operation(kind, scope, depth),
        };
        tree.of(kind)
    }

    fn operation(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Tree {
        let pick = self.random.random_range(0..4);
        let mut of = |kind: Kind| self.expression(kind, scope, depth);
        match kind {
            Kind::Int2 => all!["(", of(Kind::Int4), " % 9)::int2"],
            Kind::Int4 => match pick {
                0 => all!["(", of(Kind::Int4), " % 50 + ", of(Kind::Int4), " % 50)"],
                1 => all!["length(", of(Kind::Text), ")"],
                2 => all!["(", of(Kind::Int4), " % 7 * 3 - 2)"],
                _ => all!["abs(", of(Kind::Int4), " % 100)"],
            },
            Kind::Int8 => all![of(Kind::Int4), "::int8"],
            Kind::Money => match pick {
                0 => all!["(", of(Kind::Int4), " % 100)::numeric(12,2)"],
                1 => all!["round(", of(Kind::Money), " % 1000 / 2, 2)"],
                _ => all!["(", of(Kind::Money), " % 1000 + ", of(Kind::Money), " % 1000)"],
            },
            Kind::Float => match pick {
                0 => all!["(", of(Kind::Int4), " % 64)::float8"],
                _ => all!["greatest(", of(Kind::Float), ", ", of(Kind::Float), ")"],
            },
            Kind::Text => match pick {
                0 => all!["upper(", of(Kind::Text), ")"],
                1 => all!["(", of(Kind::Text), " || ", of(Kind::Text), ")"],
                2 => all!["substr(", of(Kind::Text), ", 1, 2)"],
                _ => all![of(Kind::Int4), "::text"],
            },
            Kind::Bool => self.condition(scope, depth),
            Kind::Date => all!["(", of(Kind::Date), " + ", of(Kind::Int4), " % 10)"],
            Kind::Time => all!["(", of(Kind::Time), " + interval '1 hour')"],
            Kind::Interval => all!["(", of(Kind::Int4), " % 10 * interval '1 day')"],
            Kind::Array => all!["(", of(Kind::Array), " || ", of(Kind::Int4), ")"],
            Kind::Mood => all!["least(", of(Kind::Mood), ", ", of(Kind::Mood), ")"],
            Kind::Wide | Kind::Code | Kind::Char | Kind::Uuid | Kind::Json => {
                all!["coalesce(", of(kind), ", ", self.constant(kind), ")"]
            }
        }
    }

    pub fn condition(&mut self, scope: &Scope, depth: usize) -> Tree {
        let kind = self.any_kind(scope);
        let inner = depth.saturating_sub(1);
        let choice = if depth == 0 { self.random.random_range(0..6) } else { self.random.random_range(0..16) };
        let mut of = |kind: Kind| self.expression(kind, scope, inner);
        let tree = match choice {
            0..=2 => {
                let left = of(kind);
                let operator = *["=", "=", "<>", "<", "<=", ">", ">="].choose(&mut self.random).expect("operators");
                let right = if self.chance(60) { self.constant(kind) } else { self.expression(kind, scope, inner) };
                all![left, format!(" {operator} "), right]
            }
            3 => {
                let left = of(kind);
                all![left, if self.chance(50) { " IS NULL" } else { " IS NOT NULL" }]
            }
            4 => {
                let left = of(kind);
                let word = if self.chance(25) { " NOT IN (" } else { " IN (" };
                let items = (0..self.random.random_range(1..4)).map(|_| self.constant(kind)).collect();
                all![left, word, Tree::Items(items, ", "), ")"]
            }
            5 => {
                let left = of(kind);
                let word = if self.chance(50) { " IS DISTINCT FROM " } else { " BETWEEN " };
                let right = self.constant(kind);
                let upper = if word == " BETWEEN " { all![" AND ", self.constant(kind)] } else { Tree::from("") };
                all![left, word, right, upper]
            }
            6 | 7 => {
                let word = if self.chance(60) { " AND " } else { " OR " };
                all!["(", Tree::Items(vec![self.condition(scope, inner), self.condition(scope, inner)], word), ")"]
            }
            8 => all!["NOT (", self.condition(scope, inner), ")"],
            9 => {
                let left = of(Kind::Text);
                let pattern = *["'a%'", "'%b'", "'_'", "'%'"].choose(&mut self.random).expect("patterns");
                all![left, if self.chance(30) { " NOT LIKE " } else { " LIKE " }, pattern]
            }
            10 | 11 => {
                let word = if self.chance(40) { "NOT EXISTS (" } else { "EXISTS (" };
                all![word, self.correlated(&[Kind::Int4], scope, inner), ")"]
            }
            12 | 13 => {
                let left = of(kind);
                let word =
                    *[" IN (", " IN (", " NOT IN (", " = ANY (", " > ALL (", " <> ALL ("].choose(&mut self.random).expect("words");
                all![left, word, self.correlated(&[kind], scope, inner), ")"]
            }
            14 => all![of(Kind::Int4), " = ANY (", of(Kind::Array), ")"],
            _ => of(Kind::Bool),
        };
        Tree::Of(Sort::Expression(Kind::Bool), Box::new(tree), "true".to_owned())
    }

    /// A sub-select that yields one value.
    fn scalar(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Tree {
        let (from, sources) = self.from(scope, depth.saturating_sub(1));
        let inner = scope.with(sources);
        let filter = self.filter(&inner, depth);
        if kind.has_min() && self.chance(60) {
            let name = if self.chance(50) { "min" } else { "max" };
            let argument = self.expression(kind, &Scope { levels: vec![inner.inner().to_vec()] }, 1);
            let cast = if matches!(kind, Kind::Char) { "::char(3)" } else { "" };
            return all!["(SELECT ", name, "(", argument, ")", cast, " FROM ", from, filter, ")"];
        }
        let value = self.expression(kind, &inner, 0);
        all!["(SELECT ", value, " AS x FROM ", from, filter, " ORDER BY 1 LIMIT 1)"]
    }

    /// A sub-select that mostly looks at the row around it.
    fn correlated(&mut self, kinds: &[Kind], scope: &Scope, depth: usize) -> Tree {
        if self.chance(20) {
            let scope = if self.chance(70) { scope.clone() } else { Scope::default() };
            return self.query(Some(kinds), &scope, depth).0;
        }
        let (from, sources) = self.from(scope, depth.saturating_sub(1));
        let outer_keys: Vec<(String, Kind)> = keys(scope.inner());
        let inner_keys = keys(&sources);
        let inner = scope.with(sources);
        let pairs: Vec<(String, String)> = inner_keys
            .iter()
            .flat_map(|(own, kind)| outer_keys.iter().filter(move |(_, other)| other == kind).map(move |(other, _)| (own, other)))
            .map(|(own, other)| (own.clone(), other.clone()))
            .collect();
        let on = pairs.choose(&mut self.random).map(|(own, other)| format!(" WHERE {own} = {other}"));
        let outputs: Vec<Tree> = kinds.iter().map(|kind| self.expression(*kind, &inner, 0)).collect();
        let filter = match on {
            Some(on) if self.chance(80) => all![on, all![" AND ", self.condition(&inner, depth.min(1))].optional()],
            Some(_) | None => self.filter(&inner, depth),
        };
        all!["SELECT ", Tree::Items(outputs, ", "), " FROM ", from, filter]
    }
}

/// Columns by which tables are sharded.
pub fn keys(sources: &[Source]) -> Vec<(String, Kind)> {
    let own = sources.iter().filter_map(|source| {
        let key = source.columns.iter().find(|(name, _)| name == "k")?;
        Some((format!("{}.k", source.alias), key.1))
    });
    own.collect()
}
