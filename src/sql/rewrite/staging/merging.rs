//! MERGE whose source is not sharded like its target: the source is answered first, and becomes constants.
//!
//! Where nothing is inserted all shards get all of these rows: a row of the target is on one shard and meets them all there. A row
//! that is inserted must be met by one shard alone, the one of its key: else it would be missing on the others, and inserted by
//! each. So the rows are split by the columns that ON compares with the key, and each shard merges its own.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::{Answer, AnswerColumn, ColumnList, Defaults, Finder, Stage, StageKind, Stages, clock_default, type_name};
use crate::catalog::{Catalog, Oid, Relation, quoted_identifier, quoted_literal, quoted_name};
use crate::error::PgError;
use crate::shard_key::oid;
use crate::shardmap::TableKind;
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve};

/// A MERGE that inserts into a sharded table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merging {
    pub source: Stage,
    /// As SQL names it anywhere.
    target: String,
    /// Of the target: those that take values.
    columns: Vec<String>,
    key: Vec<MergedKey>,
    /// Names that the alias gives to the source's first columns.
    renamed: Vec<String>,
    /// What is joined, where the source is a join: the columns of each stand after [`SIDE`].
    joined: Vec<Joined>,
}

/// One of what a source joins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Joined {
    name: String,
    /// With what stands before it.
    by: JoinedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum JoinedBy {
    /// A condition, or nothing: columns of one name are two.
    Condition,
    /// USING: columns of these names are one.
    Columns { names: Vec<String>, is_left: bool },
    /// NATURAL: all columns of one name are one.
    Natural { is_left: bool },
}

impl Joined {
    /// Of its columns those that are one with a column before it.
    fn merged(&self, own: &[AnswerColumn], before: &[&str]) -> Vec<String> {
        match &self.by {
            JoinedBy::Condition => Vec::new(),
            JoinedBy::Columns { names, .. } => names.clone(),
            JoinedBy::Natural { .. } => {
                own.iter().filter(|column| before.contains(&column.name.as_str())).map(|column| column.name.clone()).collect()
            }
        }
    }

    /// Of a stand-in for it, with those before it. `key`: its columns that are the whole key; `first`: those of the first one that
    /// has them, and its name. Columns that are one stay so, as a name alone may mean them.
    fn stand_in_join(&self, table: &str, merged: &[String], key: &[String], first: Option<&(String, Vec<String>)>) -> String {
        let quoted = |names: &[String]| names.iter().map(|name| quoted_identifier(name)).collect::<Vec<_>>();
        match first {
            Some((_, first)) if !key.is_empty() && first == key && key.iter().all(|column| merged.contains(column)) => {
                format!("JOIN {table} USING ({})", quoted(key).join(", "))
            }
            Some((name, first)) if !key.is_empty() => {
                let own = quoted_identifier(&self.name);
                let pairs = quoted(first).into_iter().zip(quoted(key)).map(|(one, other)| format!("{name}.{one} = {own}.{other}"));
                format!("JOIN {table} ON {}", pairs.collect::<Vec<_>>().join(" AND "))
            }
            Some(_) | None => format!("CROSS JOIN {table}"),
        }
    }

    fn word(&self) -> &'static str {
        match self.by {
            JoinedBy::Columns { is_left: true, .. } | JoinedBy::Natural { is_left: true } => LEFT_JOIN,
            JoinedBy::Condition | JoinedBy::Columns { .. } | JoinedBy::Natural { .. } => "JOIN",
        }
    }
}

/// A column of the shard key, and the source's that ON compares with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MergedKey {
    column: String,
    type_oid: Oid,
    source: String,
    /// Of what is joined.
    side: Option<String>,
}

impl Finder<'_> {
    pub(super) fn merge(&mut self, merge: &nodes::MergeStmt, context: &Context) {
        if self.find_merge(merge, context).is_none() {
            self.is_unknown = true;
        }
    }

    fn find_merge(&mut self, merge: &nodes::MergeStmt, context: &Context) -> Option<()> {
        let name = merge.relation().filter(|_| merge.returning_clause().is_none())?;
        let sharded = match resolve(context, name, &context.search_path) {
            Resolved::Sharded { table, relation, .. } => Some((table, relation)),
            Resolved::Home(_) | Resolved::Reference(_) => None,
            Resolved::View(_) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => return None,
        };
        let renamed = self.source_of_merge(merge, name)?;
        if let Some((table, relation)) = sharded.filter(|_| has_action(merge, nodes::CmdType::CMD_INSERT)) {
            // Rows of the target without a source may be where no row of the source is.
            let is_by_target =
                |clause: &nodes::MergeWhenClause| clause.match_kind != nodes::MergeMatchKind::MERGE_WHEN_NOT_MATCHED_BY_SOURCE;
            merge.merge_when_clauses().iter().all(is_by_target).then_some(())?;
            let TableKind::Sharded { key, .. } = &table.kind else { return None };
            let called = name.alias().and_then(|alias| alias.aliasname()).or(name.relname())?;
            let joined = self.joined(merge, name)?;
            let sources = match joined.is_empty() {
                true => vec![source_name(merge.source_relation())?.to_owned()],
                false => joined.iter().map(|joined| joined.name.clone()).collect(),
            };
            let sides = Sides { called, relation, sources: &sources };
            let merged = |column: &str| {
                let type_oid = relation.column(column)?.type_oid;
                let (side, source) = sides.compared(merge.join_condition(), column)?;
                let side = side.map(str::to_owned).filter(|_| !joined.is_empty());
                Some(MergedKey { column: column.to_owned(), type_oid, source: source.to_owned(), side })
            };
            let Some(key) = key.iter().map(|key| merged(&key.column)).collect::<Option<_>>() else {
                let is_alone = merge.with_clause().is_none() && joined.is_empty();
                self.stages = Stages { unsplit: self.stages.tables.pop().filter(|_| is_alone), ..Stages::default() };
                return Some(());
            };
            let columns = taking_values(relation);
            let target = quoted_name(&relation.schema, &relation.name);
            let source = self.stages.tables.pop()?;
            self.stages.merging = Some(Merging { source, target, columns, key, renamed, joined });
            self.drop_with();
        }
        self.actions(merge);
        self.defaults_of_merge(merge, name, context);
        Some(())
    }

    /// The source as tables to be answered. Names that its alias gives to its first columns.
    fn source_of_merge(&mut self, merge: &nodes::MergeStmt, target: &nodes::RangeVar) -> Option<Vec<String>> {
        let alias = match merge.source_relation() {
            Node::RangeVar(table) => {
                self.table(table)?;
                table.alias()
            }
            Node::RangeSubselect(query) if !query.lateral => {
                self.subselect(query)?;
                query.alias()
            }
            Node::RangeFunction(_) => {
                // With its alias, which may say of which columns its rows are.
                let Range { start, end } = self.source_range_of_merge(target)?;
                let alias = source_name(merge.source_relation())?.to_owned();
                let query = format!("SELECT * FROM {}", self.text.get(start..end)?);
                self.stages.tables.push(Stage { start, end, query, kind: StageKind::From { alias: Some(alias) } });
                None
            }
            // Each shard may join them where nothing is inserted.
            Node::JoinExpr(join) if !has_action(merge, nodes::CmdType::CMD_INSERT) => {
                self.from(std::iter::once(Node::JoinExpr(join)));
                (!self.stages.tables.is_empty()).then_some(())?;
                None
            }
            Node::JoinExpr(join) => {
                let joined = joined(join)?;
                let Range { start, end } = self.source_range_of_merge(target)?;
                let side = quoted_identifier(SIDE);
                let columns: Vec<String> = joined
                    .iter()
                    .map(|joined| format!("NULL::pg_catalog.bool AS {side}, {}.*", quoted_identifier(&joined.name)))
                    .collect();
                let query = format!("SELECT {} FROM {}", columns.join(", "), self.text.get(start..end)?);
                self.stages.tables.push(Stage { start, end, query, kind: StageKind::From { alias: None } });
                None
            }
            _ => return None,
        };
        let names = alias.map(nodes::Alias::colnames).into_iter().flat_map(|names| names.iter());
        Some(names.filter_map(Node::as_str).map(str::to_owned).collect())
    }

    /// Between USING and the ON of the MERGE, which is the last one.
    fn source_range_of_merge(&self, target: &nodes::RangeVar) -> Option<Range<usize>> {
        let using = self.tokens.word_at_top(self.tokens.at_location(target.location)?, &["using"])?;
        self.tokens.range(using + 1, self.last_on(using)?.checked_sub(1)?)
    }

    fn last_on(&self, from: usize) -> Option<usize> {
        let mut on = self.tokens.word_at_top(from, &["on"])?;
        while let Some(next) = self.tokens.word_at_top(on + 1, &["on"]) {
            on = next;
        }
        Some(on)
    }

    /// What a source joins, if the MERGE names only columns of it: rows as a whole would have one column more.
    fn joined(&self, merge: &nodes::MergeStmt, target: &nodes::RangeVar) -> Option<Vec<Joined>> {
        let Node::JoinExpr(join) = merge.source_relation() else { return Some(Vec::new()) };
        let joined = joined(join)?;
        let on = self.last_on(self.tokens.at_location(target.location)?)?;
        let is_whole = |index: usize| {
            let is_name = self.tokens.identifier(index).is_some_and(|word| joined.iter().any(|joined| joined.name == word));
            is_name && (self.tokens.piece(index + 1) != "." || self.tokens.piece(index + 2) == "*")
        };
        (!(on..self.tokens.count()).any(is_whole)).then_some(joined)
    }

    /// Sub-selects and clocks of the condition and of what is done, each evaluated once.
    fn actions(&mut self, merge: &nodes::MergeStmt) {
        self.expression(merge.join_condition());
        for clause in merge.merge_when_clauses() {
            self.expression(clause.condition());
            clause.values().iter().for_each(|value| self.expression(value));
            for target in clause.target_list() {
                if let Node::ResTarget(target) = target {
                    self.expression(target.val());
                }
            }
        }
    }

    /// Columns that its INSERT leaves to the clock.
    fn defaults_of_merge(&mut self, merge: &nodes::MergeStmt, name: &nodes::RangeVar, context: &Context) {
        let mut inserts = merge.merge_when_clauses().iter().filter(|clause| clause.command_type == nodes::CmdType::CMD_INSERT);
        let (Some(insert), None, Some(relation)) =
            (inserts.next(), inserts.next(), resolve(context, name, &context.search_path).table())
        else {
            return;
        };
        let listed: Vec<&str> = match insert.target_list().is_empty() {
            true => relation.columns.iter().take(insert.values().len()).map(|column| column.name.as_str()).collect(),
            false => insert.target_list().iter().filter_map(target_name).collect(),
        };
        let left_out = relation.columns.iter().filter(|column| !listed.contains(&column.name.as_str()));
        let (names, values): (Vec<String>, Vec<String>) =
            left_out.filter_map(|column| Some((column.name.clone(), clock_default(column, context)?.to_owned()))).unzip();
        if names.is_empty() || insert.values().is_empty() {
            return;
        }
        let places = self.places_of_insert(name, insert);
        if let Some((list, row_end)) = places {
            let columns = listed.into_iter().map(str::to_owned).collect();
            let list = match list {
                Ok(end) => ColumnList::After(end),
                Err(at) => ColumnList::New { at, columns },
            };
            self.stages.defaults = Some(Defaults::of_clock(values, names, list, row_end));
        }
    }

    /// Where the list of columns of the only INSERT ends, or one may begin; and where its values end.
    fn places_of_insert(&self, name: &nodes::RangeVar, insert: &nodes::MergeWhenClause) -> Option<(Result<usize, usize>, usize)> {
        let word = self.tokens.word_at_top(self.tokens.at_location(name.location)?, &["insert"])?;
        let values = self.tokens.word_at_top(word, &["values"])?;
        let row_end = self.tokens.get(self.tokens.closing(values + 1)?)?.start;
        if !insert.target_list().is_empty() {
            return Some((Ok(self.tokens.get(self.tokens.closing(word + 1)?)?.start), row_end));
        }
        // OVERRIDING stands after the list.
        (values == word + 1).then_some((Err(self.tokens.get(values)?.start), row_end))
    }
}

/// Both sides of a MERGE, as its ON may name them.
struct Sides<'n> {
    called: &'n str,
    relation: &'n Relation,
    sources: &'n [String],
}

impl Sides<'_> {
    /// The column of the source that ON says is equal to this one of the target, and what it is a column of.
    fn compared<'e>(&self, on: Node<'e>, column: &str) -> Option<(Option<&'e str>, &'e str)> {
        let mut waiting = vec![on];
        while let Some(node) = waiting.pop() {
            match node {
                Node::BoolExpr(all) if all.boolop == nodes::BoolExprType::AND_EXPR => waiting.extend(all.args().iter()),
                Node::A_Expr(equality)
                    if equality.kind == nodes::A_Expr_Kind::AEXPR_OP && tree::single_name(equality.name()) == Some("=") =>
                {
                    for (own, other) in [(equality.lexpr(), equality.rexpr()), (equality.rexpr(), equality.lexpr())] {
                        if self.of_target(own) == Some(column)
                            && let Some(found) = self.of_source(other)
                        {
                            return Some(found);
                        }
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// A name alone is the target's where the target has it: PostgreSQL would not take one that both have.
    fn of_target<'e>(&self, node: Node<'e>) -> Option<&'e str> {
        match column_names(node)?.as_slice() {
            [table, name] if *table == self.called => Some(*name),
            [name] if self.relation.column(name).is_some() => Some(*name),
            _ => None,
        }
    }

    fn of_source<'e>(&self, node: Node<'e>) -> Option<(Option<&'e str>, &'e str)> {
        match column_names(node)?.as_slice() {
            [table, name] if self.sources.iter().any(|source| source == table) => Some((Some(*table), *name)),
            [name] if self.relation.column(name).is_none() => Some((None, *name)),
            _ => None,
        }
    }
}

/// What a join joins, from left to right. `None`: something has no name of its own, or columns of both sides are one in a way that
/// pairs of rows would not be: of FULL and RIGHT JOIN, of a join on the right, or under another name.
fn joined(join: &nodes::JoinExpr) -> Option<Vec<Joined>> {
    join.alias().is_none().then_some(())?;
    let mut tables = joined_on_a_side(join.larg())?;
    let mut right = joined_on_a_side(join.rarg())?;
    let is_merging = join.is_natural || !join.using_clause().is_empty();
    if is_merging {
        let is_left = match join.jointype {
            nodes::JoinType::JOIN_INNER => false,
            nodes::JoinType::JOIN_LEFT => true,
            _ => return None,
        };
        let names = join.using_clause().iter().filter_map(|name| name.sval()).map(str::to_owned).collect();
        (right.len() == 1 && join.join_using_alias().is_none()).then_some(())?;
        let by = if join.is_natural { JoinedBy::Natural { is_left } } else { JoinedBy::Columns { names, is_left } };
        right.iter_mut().for_each(|table| table.by = by.clone());
    }
    (right.iter().skip(1).all(|table| table.by == JoinedBy::Condition)).then_some(())?;
    (!right.iter().any(|table| tables.iter().any(|known| known.name == table.name))).then_some(())?;
    tables.append(&mut right);
    Some(tables)
}

fn joined_on_a_side(item: Node<'_>) -> Option<Vec<Joined>> {
    match item {
        Node::JoinExpr(join) => joined(join),
        item => Some(vec![Joined { name: source_name(item)?.to_owned(), by: JoinedBy::Condition }]),
    }
}

fn target_name(node: Node<'_>) -> Option<&str> {
    match node {
        Node::ResTarget(target) => target.name(),
        _ => None,
    }
}

fn column_names(node: Node<'_>) -> Option<Vec<&str>> {
    let Node::ColumnRef(column) = node else { return None };
    tree::names(column.fields())
}

/// What the source is called.
fn source_name(source: Node<'_>) -> Option<&str> {
    match source {
        Node::RangeVar(table) => table.alias().and_then(|alias| alias.aliasname()).or(table.relname()),
        Node::RangeSubselect(query) => query.alias()?.aliasname(),
        Node::RangeFunction(function) => match function.alias() {
            Some(alias) => alias.aliasname(),
            None => called_function(function),
        },
        _ => None,
    }
}

fn called_function(function: &nodes::RangeFunction) -> Option<&str> {
    let mut functions = function.functions().iter();
    let (Some(item), None) = (functions.next(), functions.next()) else { return None };
    match item.as_node_list().and_then(|item| item.first()).unwrap_or(item) {
        Node::FuncCall(call) => call.funcname().iter().next_back().and_then(Node::as_str),
        _ => None,
    }
}

fn has_action(merge: &nodes::MergeStmt, action: nodes::CmdType::Type) -> bool {
    merge.merge_when_clauses().iter().any(|clause| clause.command_type == action)
}

impl Merging {
    /// Rows of the source in its place; there is one.
    pub fn constant(&self, answer: &Answer, catalog: &Catalog) -> Result<String, PgError> {
        let without_rows = || PgError::internal("a source without rows");
        if self.joined.is_empty() {
            return self.source.constant(answer, catalog)?.ok_or_else(without_rows);
        }
        let row = quoted_identifier(ROW);
        let merges = self.joined.iter().any(|joined| joined.by != JoinedBy::Condition);
        let first = self.joined.first().map(|joined| quoted_identifier(&joined.name)).unwrap_or_default();
        let mut text = String::new();
        let mut before: Vec<&str> = Vec::new();
        for (joined, range) in self.joined.iter().zip(sides(answer)) {
            let columns = answer.columns.get(range.clone()).unwrap_or_default();
            let mut side = Answer { columns: columns.to_vec(), rows: Vec::new() };
            side.columns.push(AnswerColumn { name: ROW.to_owned(), type_oid: oid::INT8, collation: None });
            let numbered = |(number, values): (usize, &Vec<Option<String>>)| {
                let values = values.get(range.clone()).unwrap_or_default();
                values.iter().cloned().chain([Some(number.to_string())]).collect()
            };
            side.rows = answer.rows.iter().enumerate().map(numbered).collect();
            let kind = StageKind::From { alias: Some(joined.name.clone()) };
            let table =
                Stage { start: 0, end: 0, query: String::new(), kind }.constant(&side, catalog)?.ok_or_else(without_rows)?;
            text = match (text.is_empty(), merges) {
                (true, _) => table,
                (false, false) => format!("{text} JOIN {table} ON {first}.{row} = {}.{row} ", quoted_identifier(&joined.name)),
                // Where the left one has no partner the right one's columns are NULL, which are equal to nothing.
                (false, true) => {
                    let merged = joined.merged(columns, &before);
                    let using: Vec<String> = merged.iter().map(|name| quoted_identifier(name)).chain([row.clone()]).collect();
                    format!("{text} {} {table} USING ({}) ", joined.word(), using.join(", "))
                }
            };
            before.extend(columns.iter().map(|column| column.name.as_str()));
        }
        Ok(text)
    }

    /// A query that stands for the source where it is to be proven that each shard merges its own rows: rows of the target's own
    /// shard by the same key, of the source's columns. A column that is the key in all rows is the key.
    pub fn stand_in(&self, answer: &Answer, catalog: &Catalog) -> Result<String, PgError> {
        let places = self.places(answer)?;
        if self.joined.is_empty() {
            let alias = match &self.source.kind {
                StageKind::From { alias: Some(alias) } => format!(" AS {}", quoted_identifier(alias)),
                _ => String::new(),
            };
            let StandIn { query, .. } = self.side_of_stand_in(answer, (&places, 0..answer.columns.len()), &[], catalog)?;
            return Ok(format!(" {query}{alias} "));
        }
        let mut text = String::new();
        let mut before: Vec<&str> = Vec::new();
        let mut first: Option<(String, Vec<String>)> = None;
        for (joined, range) in self.joined.iter().zip(sides(answer)) {
            let columns = answer.columns.get(range.clone()).unwrap_or_default();
            let merged = joined.merged(columns, &before);
            before.extend(columns.iter().map(|column| column.name.as_str()));
            // Where it may be without a partner a name alone means the one before it.
            let left_out = if joined.word() == LEFT_JOIN { &merged[..] } else { &[] };
            let side = self.side_of_stand_in(answer, (&places, range), left_out, catalog)?;
            let name = quoted_identifier(&joined.name);
            let table = format!("{} AS {name}", side.query);
            text = match text.is_empty() {
                true => table,
                false => format!("{text} {}", joined.stand_in_join(&table, &merged, &side.key, first.as_ref())),
            };
            if first.is_none() && !side.key.is_empty() {
                first = Some((name, side.key));
            }
        }
        Ok(format!(" {text} "))
    }

    fn side_of_stand_in(
        &self,
        answer: &Answer,
        (places, range): (&[usize], Range<usize>),
        left_out: &[String],
        catalog: &Catalog,
    ) -> Result<StandIn, PgError> {
        let is_left_out = |place: &usize| answer.columns.get(*place).is_some_and(|column| left_out.contains(&column.name));
        // For each column of the key, those that are it.
        let mut same: Vec<Vec<usize>> = Vec::new();
        for place in places {
            let is_key = |other: &usize| other == place || is_same(answer, *place, *other);
            same.push(range.clone().filter(|other| is_key(other) && !is_left_out(other)).collect());
        }
        let is_whole = same.iter().all(|columns| !columns.is_empty());
        let is_key = |place: usize| {
            let found = same.iter().position(|columns| columns.contains(&place)).filter(|_| is_whole || places.contains(&place));
            found.and_then(|key| self.key.get(key))
        };
        let mut columns = Vec::new();
        let mut has_key = false;
        let own = answer.columns.iter().enumerate().take(range.end).skip(range.start);
        for (place, column) in own.filter(|(place, _)| !is_left_out(place)) {
            let value = match is_key(place) {
                Some(key) => {
                    has_key = true;
                    format!("shardgate_key.{}", quoted_identifier(&key.column))
                }
                None => format!("NULL::{}", type_name(column.type_oid, catalog)?),
            };
            columns.push(format!("{value} AS {}", quoted_identifier(&column.name)));
        }
        let from = if has_key { format!(" FROM {} AS shardgate_key", self.target) } else { String::new() };
        let name = |columns: &Vec<usize>| columns.first().and_then(|place| answer.columns.get(*place)).map(|it| it.name.clone());
        let key = if is_whole { same.iter().filter_map(name).collect() } else { Vec::new() };
        Ok(StandIn { query: format!("(SELECT {}{from})", columns.join(", ")), key })
    }

    /// The rows that have a key, and INSERTs, which are never run, of rows with these keys: they go where such rows go.
    pub fn routed(&self, answer: &Answer, catalog: &Catalog) -> Result<(Vec<usize>, Vec<String>), PgError> {
        let places = self.places(answer)?;
        let mut types = Vec::new();
        for key in &self.key {
            types.push(type_name(key.type_oid, catalog)?);
        }
        let value = |row: &Vec<Option<String>>, column: &String| {
            let key = self.key.iter().position(|key| key.column == *column)?;
            let value = row.get(*places.get(key)?)?.as_deref()?;
            Some(format!("{}::{}", quoted_literal(value), types.get(key)?))
        };
        let has_key = |row: &Vec<Option<String>>| places.iter().all(|place| row.get(*place).is_some_and(Option::is_some));
        let rows: Vec<usize> = answer.rows.iter().enumerate().filter(|(_, row)| has_key(row)).map(|(place, _)| place).collect();
        let names: Vec<String> = self.columns.iter().map(|column| quoted_identifier(column)).collect();
        let head = format!("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ", self.target, names.join(", "));
        let listed = |place: &usize| {
            let values = self.columns.iter().map(|column| answer.rows.get(*place).and_then(|row| value(row, column)));
            format!("({})", values.map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect::<Vec<_>>().join(", "))
        };
        let text = |places: &[usize]| {
            let mut values: Vec<String> = places.iter().map(listed).collect();
            // Rows are split where there are several.
            values.extend((values.len() == 1).then(|| values.concat()));
            format!("{head}{}", values.join(", "))
        };
        let texts = rows.chunks(ROUTED_ROWS_MAX).map(text).collect();
        Ok((rows, texts))
    }

    /// Where the key's columns are among the source's. By a name alone it is the first of those that are one.
    fn places(&self, answer: &Answer) -> Result<Vec<usize>, PgError> {
        let place_of = |key: &MergedKey| {
            let renamed = self.renamed.iter().position(|name| *name == key.source);
            let side = key.side.as_ref().and_then(|side| self.joined.iter().position(|joined| joined.name == *side));
            let range = match side {
                Some(side) => sides(answer).into_iter().nth(side)?,
                None => self.renamed.len()..answer.columns.len(),
            };
            let place = renamed.or_else(|| {
                let mut named = answer.columns.iter().enumerate().take(range.end).skip(range.start);
                named.find(|(_, column)| column.name == key.source).map(|(place, _)| place)
            })?;
            let source = answer.columns.get(place)?;
            // Other types might be equal and not go to the same shard.
            are_alike(source.type_oid, key.type_oid).then_some(place)
        };
        self.key.iter().map(place_of).collect::<Option<_>>().ok_or_else(|| {
            PgError::unsupported(
                "MERGE by a column of another type than the shard key is not supported across shards",
                "The rows of its source are split by that column, so that each goes to the shard of its key.",
                "Cast the column to the type of the shard key in a sub-select: USING (SELECT id::bigint AS id, ...) s.",
            )
        })
    }
}

/// What stands for one of what is joined.
struct StandIn {
    query: String,
    /// Its columns that are the whole key; empty: it has only a part of it, or none.
    key: Vec<String>,
}

/// Both columns have one value in each row, of types whose equal values are one key.
fn is_same(answer: &Answer, one: usize, other: usize) -> bool {
    let type_of = |place: usize| answer.columns.get(place).map(|column| column.type_oid);
    let has_both = |row: &Vec<Option<String>>| row.get(one) == row.get(other);
    matches!((type_of(one), type_of(other)), (Some(one), Some(other)) if are_alike(one, other)) && answer.rows.iter().all(has_both)
}

fn are_alike(one: Oid, other: Oid) -> bool {
    one == other || ALIKE.iter().any(|types| types.contains(&one) && types.contains(&other))
}

/// The columns of each table that is joined.
fn sides(answer: &Answer) -> Vec<Range<usize>> {
    let is_start = |(place, column): (usize, &AnswerColumn)| (column.name == SIDE).then_some(place);
    let starts: Vec<usize> = answer.columns.iter().enumerate().filter_map(is_start).collect();
    let ends = starts.iter().skip(1).copied().chain([answer.columns.len()]);
    starts.iter().zip(ends).map(|(start, end)| start + 1..end).collect()
}

fn taking_values(relation: &Relation) -> Vec<String> {
    relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.clone()).collect()
}

/// Types whose equal values are one key.
const ALIKE: [&[Oid]; 2] = [&[oid::INT2, oid::INT4, oid::INT8], &[oid::TEXT, oid::VARCHAR]];
/// Keys of one text.
const ROUTED_ROWS_MAX: usize = 1_000;
/// The column before those of a table that is joined.
const SIDE: &str = "shardgate side";
const LEFT_JOIN: &str = "LEFT JOIN";
/// By it the tables of a join are joined again.
const ROW: &str = "shardgate row";
