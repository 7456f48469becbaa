//! SELECT statements drawn from a seed.
//!
//! Every answer is determined: what LIMIT cuts is ordered by all of its columns, aggregates that see an order are given one, sums
//! of floats are exact. What is not ordered is compared as a bag.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::expression::{Scope, Source, keys};
use super::schema::Schema;
use super::tree::{Sort, Tree, all};
use super::values::Kind;
use crate::parity::answer::RowOrder;

pub struct Generator<'s> {
    pub random: StdRng,
    pub schema: &'s Schema,
    aliases: usize,
    /// WITH queries that are visible.
    pub named: Vec<Source>,
}

pub struct Statement {
    pub tree: Tree,
    pub order: RowOrder,
    /// It changes rows.
    pub writes: bool,
}

impl<'s> Generator<'s> {
    pub fn new(schema: &'s Schema, seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), schema, aliases: 0, named: Vec::new() }
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.random.random_ratio(percent, 100)
    }

    pub fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    pub fn statement(&mut self) -> Statement {
        if self.chance(20) {
            return self.changing();
        }
        if self.chance(8) {
            return self.equals();
        }
        if self.chance(5) {
            return self.guards();
        }
        if self.chance(6) {
            return self.distinct_on();
        }
        if self.chance(6) {
            return self.locking();
        }
        if self.chance(12) {
            return self.by_key();
        }
        let depth = *[1, 2, 2, 3].choose(&mut self.random).expect("depths");
        let with = match self.random.random_range(0..20) {
            0..=2 => Some(self.with(depth)),
            3 => Some(self.recursion()),
            _ => None,
        };
        let (query, kinds) = self.query(None, &Scope::default(), depth);
        let (end, order) = self.end(kinds.len());
        Statement { tree: all![with.unwrap_or(Tree::from("")), query, end], order, writes: false }
    }

    /// One key, in the many forms in which a key may be pinned or seem to be.
    fn by_key(&mut self) -> Statement {
        let (from, sources) = self.from(&Scope::default(), 1);
        let scope = Scope::default().with(sources);
        let filter = all![" WHERE ", Tree::Items(vec![self.pinned(&scope), self.condition(&scope, 2)], " AND ")];
        let kinds: Vec<Kind> = (0..self.random.random_range(1..4)).map(|_| self.any_kind(&scope)).collect();
        let (select, _) = self.outputs(&kinds, &scope, 1);
        let (end, order) = self.end(kinds.len());
        Statement { tree: all!["SELECT ", select, " FROM ", from, filter, end], order, writes: false }
    }

    /// A key, said in one of many ways.
    pub fn pinned(&mut self, scope: &Scope) -> Tree {
        let key = keys(scope.inner()).choose(&mut self.random).cloned();
        match key {
            Some((name, kind)) => {
                let mut of =
                    || Tree::Constant(super::tree::Constant { value: Some(kind.key(&mut self.random)), kind, is_literal: false });
                let (one, two) = (of(), of());
                match self.random.random_range(0..11) {
                    6 => all![name, " IS NOT DISTINCT FROM ", one],
                    7 => all![name, " BETWEEN ", one, " AND ", two],
                    8 => all!["coalesce(", name, ", ", one, ") = ", two],
                    9 => all!["NOT (", name, " <> ", one, ")"],
                    10 => all!["(", name.as_str(), " = ", one, " AND ", name.as_str(), " = ", two, ")"],
                    0 => all![name, " IN (", Tree::Items(vec![one, two], ", "), ")"],
                    1 => all!["(", name.as_str(), " = ", one, " OR ", name.as_str(), " = ", two, ")"],
                    2 => all![name, " = ANY (ARRAY[", one, ", ", two, "])"],
                    3 => all!["(", name, ", 1) = (", one, ", 1)"],
                    _ => all![name, " = ", one],
                }
            }
            None => Tree::from("true"),
        }
    }

    /// ORDER BY and LIMIT of the whole.
    fn end(&mut self, columns: usize) -> (Tree, RowOrder) {
        match self.random.random_range(0..10) {
            0..=3 => (Tree::from(""), RowOrder::Free),
            4 => (Tree::from(format!(" LIMIT {}", self.random.random_range(0..9))), RowOrder::CountOnly),
            _ => {
                let order = Tree::from(self.total_order(columns));
                let limit = if self.chance(55) { self.limit().optional() } else { Tree::from("") };
                (all![order, limit], RowOrder::Total)
            }
        }
    }

    pub fn total_order(&mut self, columns: usize) -> String {
        let mut ordinals: Vec<usize> = (1..=columns).collect();
        ordinals.shuffle(&mut self.random);
        let items: Vec<String> = ordinals
            .into_iter()
            .map(|ordinal| {
                let direction = ["", "", " DESC", " ASC"].choose(&mut self.random).expect("directions");
                let nulls = ["", "", " NULLS FIRST", " NULLS LAST"].choose(&mut self.random).expect("places");
                format!("{ordinal}{direction}{nulls}")
            })
            .collect();
        format!(" ORDER BY {}", items.join(", "))
    }

    pub fn limit(&mut self) -> Tree {
        match self.random.random_range(0..4) {
            0 => all![" OFFSET ", self.count(12)],
            1 => Tree::from(format!(" FETCH FIRST {} ROWS WITH TIES", self.random.random_range(1..13))),
            _ => self.plain_limit(),
        }
    }

    pub fn plain_limit(&mut self) -> Tree {
        let offset = if self.chance(30) { all![" OFFSET ", self.count(5)].optional() } else { Tree::from("") };
        all![" LIMIT ", self.count(12), offset]
    }

    /// A number of rows, as text or as a parameter.
    fn count(&mut self, end: u32) -> Tree {
        let count = self.random.random_range(0..end).to_string();
        match self.chance(50) {
            true => Tree::from(count),
            false => Tree::Constant(super::tree::Constant { value: Some(count), kind: Kind::Int8, is_literal: false }),
        }
    }

    pub fn with(&mut self, depth: usize) -> Tree {
        let mut queries = Vec::new();
        for _ in 0..self.random.random_range(1..3) {
            let (query, kinds) = self.query(None, &Scope::default(), depth.saturating_sub(1));
            let alias = self.alias();
            let columns: Vec<(String, Kind)> =
                kinds.iter().enumerate().map(|(index, kind)| (format!("{alias}_{index}"), *kind)).collect();
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            let kept = *["", "MATERIALIZED ", "NOT MATERIALIZED "].choose(&mut self.random).expect("words");
            queries.push(all![format!("{alias} ({}) AS {kept}(", names.join(", ")), query, ")"]);
            self.named.push(Source { alias, columns });
        }
        all!["WITH ", Tree::Items(queries, ", "), " "]
    }

    /// A query with columns of these types, or of any.
    pub fn query(&mut self, kinds: Option<&[Kind]>, outer: &Scope, depth: usize) -> (Tree, Vec<Kind>) {
        if depth > 0 && self.chance(12) {
            let kinds = match kinds {
                Some(kinds) => kinds.to_vec(),
                None => (0..self.random.random_range(1..4)).map(|_| *Kind::ALL.choose(&mut self.random).expect("kinds")).collect(),
            };
            // Equal numbers of another scale would be spelt in one of two ways.
            let (left, _) = self.query(Some(&kinds), outer, depth - 1);
            let (right, _) = self.query(Some(&kinds), outer, depth - 1);
            let words = ["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"];
            let word = words.choose(&mut self.random).expect("words");
            let tree = all!["(", left, format!(") {word} ("), right, ")"];
            return (Tree::Of(Sort::Query, Box::new(tree), String::new()), kinds);
        }
        let (from, sources) = self.from(outer, depth.saturating_sub(1));
        let scope = outer.with(sources);
        let filter = self.filter(&scope, depth);
        let wanted = kinds.map(<[Kind]>::to_vec);
        let (tree, kinds) = match self.random.random_range(0..10) {
            0..=2 => self.grouped(wanted, &scope, from, filter),
            3 if wanted.is_none() => self.windowed(&scope, from, filter),
            _ => {
                let kinds = wanted.unwrap_or_else(|| (0..self.random.random_range(1..5)).map(|_| self.any_kind(&scope)).collect());
                let distinct = if self.chance(15) { "DISTINCT " } else { "" };
                let (select, kinds) = self.outputs(&kinds, &scope, depth);
                (all!["SELECT ", distinct, select, " FROM ", from, filter], kinds)
            }
        };
        (Tree::Of(Sort::Query, Box::new(tree), String::new()), kinds)
    }

    fn outputs(&mut self, kinds: &[Kind], scope: &Scope, depth: usize) -> (Tree, Vec<Kind>) {
        let depth = depth.min(2);
        let items: Vec<Tree> = kinds.iter().map(|kind| self.expression(*kind, scope, depth)).collect();
        (Tree::Items(items, ", "), kinds.to_vec())
    }

    /// WHERE, mostly.
    pub fn filter(&mut self, scope: &Scope, depth: usize) -> Tree {
        if self.chance(35) {
            return Tree::from("");
        }
        let conditions = (0..self.random.random_range(1..3)).map(|_| self.condition(scope, depth.min(2))).collect();
        all![" WHERE ", Tree::Items(conditions, " AND ")].optional()
    }

    /// Aggregates, over groups or not.
    fn grouped(&mut self, wanted: Option<Vec<Kind>>, scope: &Scope, from: Tree, filter: Tree) -> (Tree, Vec<Kind>) {
        // Arguments do not refer to outer levels: the aggregate would be one of theirs.
        let own = Scope { levels: vec![scope.inner().to_vec()] };
        let (mut items, mut kinds, mut groups) = (Vec::new(), Vec::new(), 0);
        let mut has_sets = self.chance(30);
        match wanted {
            Some(wanted) => {
                for kind in wanted {
                    let (tree, cast) = self.aggregate_of(kind, &own);
                    items.push(all![tree, cast]);
                    kinds.push(kind);
                }
            }
            None => {
                groups = self.random.random_range(0..3);
                for _ in 0..groups {
                    let kind = self.any_kind(&own);
                    // PostgreSQL does not sort by what is constant, also where a grouping set leaves it out.
                    let column = has_sets.then(|| self.column(kind, &own)).flatten();
                    has_sets &= column.is_some();
                    let item = column.unwrap_or_else(|| self.expression(kind, &own, 1).fixed());
                    items.push(item);
                    kinds.push(kind);
                }
                // Nor does it sort by both of two that are one column: what one set leaves out, another does not.
                let column = |item: &Tree| item.write(false).text.rsplit('.').next().map(str::to_owned);
                has_sets &= !matches!(&items[..], [first, second] if column(first) == column(second));
                for _ in 0..self.random.random_range(1..4) {
                    let (tree, kind) = self.aggregate(&own);
                    items.push(tree);
                    kinds.push(kind);
                }
            }
        }
        let list: Vec<String> = (1..=groups).map(|ordinal| ordinal.to_string()).collect();
        let group_by = match groups {
            0 => String::new(),
            _ if !has_sets => format!(" GROUP BY {}", list.join(", ")),
            _ => match self.random.random_range(0..3) {
                0 => format!(" GROUP BY ROLLUP ({})", list.join(", ")),
                1 => format!(" GROUP BY CUBE ({})", list.join(", ")),
                _ => format!(" GROUP BY GROUPING SETS (({}), ())", list.join(", ")),
            },
        };
        let having = match self.random.random_range(0..5) {
            0 => {
                let (aggregate, kind) = self.aggregate(&own);
                all![" HAVING ", aggregate, " IS DISTINCT FROM ", self.constant(kind)].optional()
            }
            1 => all![" HAVING count(*) > ", self.constant(Kind::Int4)].optional(),
            _ => Tree::from(""),
        };
        (all!["SELECT ", Tree::Items(items, ", "), " FROM ", from, filter, group_by, having], kinds)
    }

    fn aggregate(&mut self, scope: &Scope) -> (Tree, Kind) {
        let filter = match self.chance(15) {
            true => all![" FILTER (WHERE ", self.condition(scope, 1), ")"].optional(),
            false => Tree::from(""),
        };
        let kind = self.any_kind(scope);
        let (tree, result) = match self.random.random_range(0..17) {
            0 | 1 => (Tree::from("count(*)"), Kind::Int8),
            2 => (all!["count(", self.expression(kind, scope, 1), ")"], Kind::Int8),
            3 => (all!["count(DISTINCT ", self.expression(kind, scope, 0), ")"], Kind::Int8),
            4 => (all!["sum(", self.expression(Kind::Int4, scope, 1), ")"], Kind::Int8),
            5 => (all!["sum(", self.expression(Kind::Int8, scope, 1), ")"], Kind::Wide),
            6 => (all!["sum(", self.expression(Kind::Money, scope, 1), ")"], Kind::Wide),
            7 => (all!["avg(", self.expression(Kind::Int4, scope, 1), ")"], Kind::Wide),
            8 => (all!["avg(", self.expression(Kind::Money, scope, 1), ")"], Kind::Wide),
            9 => (all!["sum(", self.column(Kind::Wide, scope).unwrap_or(Tree::from("1.5")), ")"], Kind::Wide),
            10 => (all!["bool_or(", self.condition(scope, 1), ")"], Kind::Bool),
            11 => {
                let argument = self.expression(Kind::Text, scope, 0).fixed();
                (all!["string_agg(", argument.clone(), ", ',' ORDER BY ", argument, ")"], Kind::Text)
            }
            12 => {
                let argument = self.expression(Kind::Int4, scope, 0).fixed();
                (all!["array_agg(", argument.clone(), " ORDER BY ", argument, ")"], Kind::Array)
            }
            13 => (all!["sum(", self.expression(Kind::Float, scope, 0), ")"], Kind::Float),
            14 | 15 => match self.random.random_range(0..4) {
                0 => {
                    let argument = self.expression(Kind::Float, scope, 0);
                    (all!["percentile_cont(0.25) WITHIN GROUP (ORDER BY ", argument, ")"], Kind::Float)
                }
                1 => (all!["mode() WITHIN GROUP (ORDER BY ", self.expression(Kind::Text, scope, 0), ")"], Kind::Text),
                2 => (all!["mode() WITHIN GROUP (ORDER BY ", self.expression(Kind::Int4, scope, 0), " DESC)"], Kind::Int4),
                _ => (all!["percentile_disc(0.5) WITHIN GROUP (ORDER BY ", self.expression(Kind::Int4, scope, 0), ")"], Kind::Int4),
            },
            _ => {
                let kind = if kind.has_min() && kind != Kind::Char { kind } else { Kind::Int4 };
                let name = if self.chance(50) { "min(" } else { "max(" };
                (all![name, self.expression(kind, scope, 1), ")"], kind)
            }
        };
        (all![tree, filter], result)
    }

    /// An aggregate of this type, with a cast where it has another one.
    fn aggregate_of(&mut self, kind: Kind, scope: &Scope) -> (Tree, &'static str) {
        match kind {
            Kind::Int8 => (all!["count(", self.expression(Kind::Text, scope, 0), ")"], ""),
            Kind::Bool => (all!["bool_and(", self.condition(scope, 1), ")"], ""),
            Kind::Uuid => (all!["max(", self.expression(kind, scope, 0), "::text)"], "::uuid"),
            Kind::Json => (all!["max(", self.expression(kind, scope, 0), "::text)"], "::jsonb"),
            Kind::Char => (all!["max(", self.expression(kind, scope, 0), ")"], "::char(3)"),
            _ => (all!["max(", self.expression(kind, scope, 0), ")"], ""),
        }
    }

    fn windowed(&mut self, scope: &Scope, from: Tree, filter: Tree) -> (Tree, Vec<Kind>) {
        let own = Scope { levels: vec![scope.inner().to_vec()] };
        let kind = self.any_kind(&own);
        let (mut items, mut kinds) = (vec![self.expression(kind, &own, 0)], vec![kind]);
        for _ in 0..self.random.random_range(1..3) {
            let (call, result) = match self.random.random_range(0..7) {
                0 => (Tree::from("rank()"), Kind::Int8),
                1 => (Tree::from("dense_rank()"), Kind::Int8),
                2 => (Tree::from("count(*)"), Kind::Int8),
                3 => (all!["sum(", self.expression(Kind::Int4, &own, 0), ")"], Kind::Int8),
                4 => (all!["count(", self.expression(Kind::Text, &own, 0), ")"], Kind::Int8),
                5 => (all!["max(", self.expression(Kind::Int4, &own, 0), ")"], Kind::Int4),
                _ => (Tree::from("percent_rank()"), Kind::Float),
            };
            let part = self.any_kind(&own);
            let sort = self.any_kind(&own);
            let keys = keys(own.inner());
            let by = match keys.choose(&mut self.random) {
                Some((name, _)) if self.chance(50) => Tree::from(name.as_str()),
                Some(_) | None => self.expression(part, &own, 0),
            };
            let partition = if self.chance(60) { all!["PARTITION BY ", by].optional() } else { Tree::from("") };
            let direction = if self.chance(30) { " DESC" } else { "" };
            let order = match self.random.random_range(0..3) {
                0 => self.framed(&own),
                _ => all![" ORDER BY ", self.expression(sort, &own, 0), direction].optional(),
            };
            items.push(all![call, " OVER (", partition, order, ")"]);
            kinds.push(result);
        }
        (all!["SELECT ", Tree::Items(items, ", "), " FROM ", from, filter], kinds)
    }

    /// ORDER BY with a frame. Where this counts rows, their order is total.
    fn framed(&mut self, scope: &Scope) -> Tree {
        let between = ["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING"];
        let end = self.random.random_range(1..between.len());
        let start = self.random.random_range(0..=end.min(between.len() - 2));
        let excluded = ["", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"];
        let excluded = excluded.choose(&mut self.random).expect("exclusions");
        let frame = format!(" BETWEEN {} AND {}{excluded}", between[start], between[end]);
        let total: Vec<String> = scope
            .inner()
            .iter()
            .flat_map(|source| source.columns.iter().map(|(name, _)| format!("{}.{name}", source.alias)).collect::<Vec<_>>())
            .collect();
        match self.random.random_range(0..3) {
            0 => all![format!(" ORDER BY {} ROWS{frame}", total.join(", "))].optional(),
            1 => {
                let kind = self.any_kind(scope);
                all![" ORDER BY ", self.expression(kind, scope, 0), format!(" GROUPS{frame}")].optional()
            }
            _ => all![" ORDER BY ", self.expression(Kind::Int4, scope, 0), format!(" RANGE{frame}")].optional(),
        }
    }

    /// FROM: one item, a join, or a list.
    pub fn from(&mut self, outer: &Scope, depth: usize) -> (Tree, Vec<Source>) {
        let (mut tree, mut sources) = self.item(outer, depth);
        while sources.len() < 3 && self.chance(if sources.len() == 1 { 40 } else { 20 }) {
            let (right, joined) = if depth > 0 && self.chance(10) {
                let scope = outer.with(sources.clone());
                let (query, kinds) = self.query(None, &scope, depth - 1);
                let (tree, source) = self.derived("LATERAL ", query, &kinds);
                (tree, vec![source])
            } else {
                self.item(outer, depth)
            };
            let is_lateral = matches!(&right, Tree::Of(_, _, word) if word == "LATERAL");
            let words = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"];
            let mut word = *words.choose(&mut self.random).expect("joins");
            if is_lateral && matches!(word, "RIGHT JOIN" | "FULL JOIN") {
                word = "LEFT JOIN";
            }
            let merged = if is_lateral || word == "CROSS JOIN" { None } else { self.merged_columns(&sources, &joined) };
            let natural = if merged.as_deref() == Some("") { "NATURAL " } else { "" };
            let on = match (word, merged) {
                ("CROSS JOIN", _) => Tree::from(""),
                (_, Some(merged)) => Tree::from(merged),
                // Such a join needs an equality.
                (_, None) => all![" ON ", self.joined_by(outer, &sources, &joined, word == "FULL JOIN")],
            };
            sources.extend(joined);
            tree = Tree::Of(Sort::Source, Box::new(all!["(", tree, format!(" {natural}{word} "), right, on, ")"]), String::new());
        }
        (tree, sources)
    }

    /// USING, where both sides have a column of one name and type; nothing for NATURAL. Rarely.
    fn merged_columns(&mut self, left: &[Source], right: &[Source]) -> Option<String> {
        let of = |sources: &[Source]| -> Vec<(String, Kind)> {
            sources.iter().flat_map(|source| source.columns.iter().cloned()).collect()
        };
        let (left, right) = (of(left), of(right));
        let is_alone = |name: &str, columns: &[(String, Kind)]| columns.iter().filter(|(own, _)| own == name).count() == 1;
        let shared: Vec<&(String, Kind)> = right.iter().filter(|(name, _)| left.iter().any(|(own, _)| own == name)).collect();
        let is_merged =
            |column: &&&(String, Kind)| left.contains(column) && is_alone(&column.0, &left) && is_alone(&column.0, &right);
        let common: Vec<&str> = shared.iter().filter(is_merged).map(|(name, _)| name.as_str()).collect();
        let name = common.choose(&mut self.random).filter(|_| self.random.random_ratio(15, 100))?;
        let is_natural = common.len() == shared.len() && self.random.random_ratio(1, 4);
        Some(if is_natural { String::new() } else { format!(" USING ({name})") })
    }

    fn joined_by(&mut self, outer: &Scope, left: &[Source], right: &[Source], needs_equality: bool) -> Tree {
        let alike = |a: &[(String, Kind)], b: &[(String, Kind)]| -> Vec<(String, String)> {
            let pairs = a.iter().flat_map(|(x, kind)| b.iter().filter(move |(_, other)| other == kind).map(move |(y, _)| (x, y)));
            pairs.map(|(x, y)| (x.clone(), y.clone())).collect()
        };
        let columns = |sources: &[Source]| -> Vec<(String, Kind)> {
            let all = sources.iter().flat_map(|source| {
                source.columns.iter().map(|(name, kind)| (format!("{}.{name}", source.alias), *kind)).collect::<Vec<_>>()
            });
            all.filter(|(_, kind)| !matches!(kind, Kind::Bool)).collect()
        };
        let by_key = alike(&keys(left), &keys(right));
        let by_any = alike(&columns(left), &columns(right));
        let pair = match by_key.choose(&mut self.random) {
            Some(pair) if self.chance(70) => Some(pair.clone()),
            Some(_) | None => by_any.choose(&mut self.random).cloned(),
        };
        let equality = pair.map(|(x, y)| Tree::from(format!("{x} = {y}")));
        let scope = outer.with([left, right].concat());
        match equality {
            Some(equality) if needs_equality || self.chance(70) => equality,
            Some(equality) => all![equality, all![" AND ", self.condition(&scope, 1)].optional()],
            None if needs_equality => Tree::from("true"),
            None => self.condition(&scope, 1),
        }
    }

    fn item(&mut self, outer: &Scope, depth: usize) -> (Tree, Vec<Source>) {
        let named = self.named.choose(&mut self.random).cloned();
        let (tree, source) = match (self.random.random_range(0..12), named) {
            (0..=2, Some(named)) => {
                let alias = self.alias();
                (Tree::from(format!("{} AS {alias}", named.alias)), Source { alias, ..named })
            }
            (3 | 4, _) if depth > 0 => {
                let scope = Scope { levels: outer.levels.iter().rev().skip(1).rev().cloned().collect() };
                let (query, kinds) = self.query(None, &scope, depth - 1);
                let (end, _) = match self.chance(20) {
                    true => (all![self.total_order(kinds.len()), self.limit().optional()], ()),
                    false => (Tree::from(""), ()),
                };
                self.derived("", all![query, end], &kinds)
            }
            (5, _) if self.chance(40) => {
                let alias = self.alias();
                let values = (0..3).map(|_| all!["(", self.constant(Kind::Int4), ", ", self.constant(Kind::Text), ")"]).collect();
                let tree = all!["(VALUES ", Tree::Items(values, ", "), format!(") AS {alias} (k, s)")];
                let columns = vec![("k".to_owned(), Kind::Int4), ("s".to_owned(), Kind::Text)];
                (tree, Source { alias, columns })
            }
            (6, _) if self.chance(30) => {
                let alias = self.alias();
                let source = Source { alias: alias.clone(), columns: vec![("k".to_owned(), Kind::Int4)] };
                (Tree::from(format!("generate_series(0, 4) AS {alias} (k)")), source)
            }
            _ => {
                let tables = &self.schema.tables;
                let table = tables.choose(&mut self.random).expect("tables");
                let alias = self.alias();
                let only = if self.random.random_ratio(1, 30) && table.name != "shown" { "ONLY " } else { "" };
                let schema = if self.random.random_ratio(1, 8) { "public." } else { "" };
                let tree = Tree::from(format!("{only}{schema}{} AS {alias}", table.name));
                (tree, Source { alias, columns: table.columns.clone() })
            }
        };
        (tree, vec![source])
    }

    fn derived(&mut self, lateral: &str, query: Tree, kinds: &[Kind]) -> (Tree, Source) {
        let alias = self.alias();
        let columns: Vec<(String, Kind)> = kinds.iter().enumerate().map(|(index, kind)| (format!("c{index}"), *kind)).collect();
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let tree = all![format!("{lateral}("), query, format!(") AS {alias} ({})", names.join(", "))];
        let word = if lateral.is_empty() { "" } else { "LATERAL" };
        (Tree::Of(Sort::Source, Box::new(tree), word.to_owned()), Source { alias, columns })
    }
}
