//! Defaults that an INSERT leaves out and that the proxy puts into it: what the shards would each compute for themselves.
//!
//! Clocks of the transaction, which all rows of a statement share. Of the shard key, and of a reference table, also what is drawn
//! for each row: the key decides where the row goes, and copies get the same value.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::row_names::Around;
use super::{Finder, Stage, StageKind, Stages, is_clock};
use crate::catalog::{Column, Relation, quoted_identifier};
use crate::error::PgError;
use crate::shardmap::TableKind;
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, hides_clock, is_star, resolve, sets_default};
use crate::sql::rewrite::clock;
use crate::sql::rewrite::value_rows::value_rows;

/// Columns that an INSERT does not name, and whose defaults are put into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Their expressions.
    values: Vec<String>,
    /// Each row has values of its own.
    is_drawn: bool,
    pub names: Vec<String>,
    pub list: ColumnList,
    /// Where each row of VALUES ends; empty with another source.
    pub row_ends: Vec<usize>,
}

/// Where the names of more columns go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnList {
    /// After the client's own, which end here.
    After(usize),
    /// There is no list; one with these columns first begins here.
    New { at: usize, columns: Vec<String> },
}

impl Defaults {
    /// The same values for all rows, which have a single place.
    pub(super) fn of_clock(values: Vec<String>, names: Vec<String>, list: ColumnList, row_end: usize) -> Self {
        Self { values, is_drawn: false, names, list, row_ends: vec![row_end] }
    }

    /// The columns, in the list of the INSERT's.
    pub fn names_put(&self) -> Splice {
        let names = self.names.iter().map(|name| quoted_identifier(name));
        match &self.list {
            ColumnList::After(end) => Splice { start: *end, end: *end, text: names.map(|name| format!(", {name}")).collect() },
            ColumnList::New { at, columns } => {
                let all: Vec<String> = columns.iter().map(|name| quoted_identifier(name)).chain(names).collect();
                Splice { start: *at, end: *at, text: format!("({}) ", all.join(", ")) }
            }
        }
    }

    /// Their expressions.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// One row of their values for all rows, or one for each.
    pub fn query(&self, row_count: usize) -> String {
        let values = self.values.join(", ");
        match self.is_drawn {
            true => format!("SELECT {values} FROM pg_catalog.generate_series(1, {row_count})"),
            false => format!("SELECT {values}"),
        }
    }
}

impl Finder<'_> {
    /// `rows`: of VALUES, `None` for another source.
    pub(super) fn defaults(&mut self, insert: &nodes::InsertStmt, context: &Context, rows: Option<&[(usize, usize)]>) {
        let Some(name) = insert.relation() else { return };
        let (relation, key, is_copied) = match resolve(context, name, &context.search_path) {
            Resolved::Sharded { table, relation, .. } => match &table.kind {
                TableKind::Sharded { key, .. } => (relation, key.as_slice(), false),
                TableKind::Reference => return,
            },
            Resolved::Reference(relation) => (relation, &[][..], true),
            Resolved::Home(_)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => return,
        };
        let may_draw = |column: &Column| is_copied || key.iter().any(|key| key.column == column.name);
        let default_of = |column: &'_ Column| nature(column, context).filter(|nature| *nature == Nature::Clock || may_draw(column));
        let taken: Vec<(&Column, Nature)> =
            relation.columns.iter().filter_map(|column| Some((column, default_of(column)?))).collect();
        self.take_defaults(insert, (name, relation), &taken, rows);
    }

    /// Those of these columns that the INSERT leaves out, or has as DEFAULT.
    fn take_defaults(
        &mut self,
        insert: &nodes::InsertStmt,
        (name, relation): (&nodes::RangeVar, &Relation),
        taken: &[(&Column, Nature)],
        rows: Option<&[(usize, usize)]>,
    ) {
        let Some(listed) = self.listed(insert, relation, rows.is_some()) else { return };
        if let (Node::SelectStmt(select), Some(_)) = (insert.select_stmt(), rows) {
            self.replace_defaults(select, &listed, taken);
        }
        let left_out: Vec<&(&Column, Nature)> = taken.iter().filter(|(column, _)| !listed.contains(&column.name)).collect();
        if left_out.is_empty() {
            return;
        }
        let Some(list) = self.column_list(insert, name, rows, listed) else { return };
        self.stages.defaults = Some(Defaults {
            values: left_out.iter().filter_map(|(column, _)| column.default.clone()).collect(),
            is_drawn: left_out.iter().any(|(_, nature)| *nature == Nature::Drawn),
            names: left_out.iter().map(|(column, _)| column.name.clone()).collect(),
            list,
            // Before the parenthesis.
            row_ends: rows.unwrap_or_default().iter().map(|(_, end)| end - 1).collect(),
        });
    }

    /// The columns that the rows have. `None`: how many is not in the text.
    fn listed(&self, insert: &nodes::InsertStmt, relation: &Relation, is_values: bool) -> Option<Vec<String>> {
        if !insert.cols().is_empty() {
            let column = |node: Node<'_>| match node {
                Node::ResTarget(column) => column.name().unwrap_or_default().to_owned(),
                _ => String::new(),
            };
            return Some(insert.cols().iter().map(column).collect());
        }
        let Node::SelectStmt(select) = insert.select_stmt() else { return None };
        let count = match is_values {
            true => select.values_lists().first()?.as_node_list()?.len(),
            false => output_count(select)?,
        };
        Some(relation.columns.iter().take(count).map(|column| column.name.clone()).collect())
    }

    fn column_list(
        &self,
        insert: &nodes::InsertStmt,
        name: &nodes::RangeVar,
        rows: Option<&[(usize, usize)]>,
        columns: Vec<String>,
    ) -> Option<ColumnList> {
        if !insert.cols().is_empty() {
            return self.end_of_columns(name).map(ColumnList::After);
        }
        // OVERRIDING stands after the list.
        if insert.override_ != nodes::OverridingKind::OVERRIDING_NOT_SET {
            return None;
        }
        let at = match rows {
            Some(rows) => self.tokens.get(self.tokens.at(rows.first()?.0)?.checked_sub(1)?)?.start,
            None => self.stages.queries.iter().find(|stage| stage.kind == StageKind::Source)?.start,
        };
        Some(ColumnList::New { at, columns })
    }

    /// DEFAULT among the values.
    fn replace_defaults(&mut self, select: &nodes::SelectStmt, listed: &[String], taken: &[(&Column, Nature)]) {
        for (row, range) in select.values_lists().iter().zip(self.rows.clone()) {
            let (Some(row), Some(elements)) = (row.as_node_list(), self.elements(range.0, range.1)) else { return };
            for ((value, name), Range { start, end }) in row.iter().zip(listed).zip(elements) {
                let default =
                    taken.iter().find(|(column, _)| column.name == *name).and_then(|(column, _)| column.default.as_deref());
                if let (Node::SetToDefault(_), Some(default)) = (value, default) {
                    let query = format!("SELECT {default}");
                    self.stages.queries.push(Stage { start, end, query, kind: StageKind::Value });
                }
            }
        }
    }

    /// Where the parenthesis stands that ends the list of columns.
    fn end_of_columns(&self, name: &nodes::RangeVar) -> Option<usize> {
        let mut index = self.tokens.at_location(name.location)?;
        while self.tokens.piece(index) != "(" {
            index += 1;
            self.tokens.get(index)?;
        }
        Some(self.tokens.get(self.tokens.closing(index)?)?.start)
    }
}

/// Defaults that read the clock of the transaction, and where they go in an INSERT's text.
#[derive(Debug, Default)]
pub struct ClockDefaults {
    /// In place of DEFAULT: the bytes of the word, and the default.
    pub given: Vec<(Range<usize>, String)>,
    pub left_out: Option<Defaults>,
}

/// Those of one INSERT of rows. An error: one that is read all the same cannot be put into the text.
pub fn clock_defaults(text: &str, context: &Context) -> Result<ClockDefaults, PgError> {
    let parsed = parse::parse(text)?;
    let mut statements = parsed.stmts();
    let (Some(statement), None) = (statements.next(), statements.next()) else { return Ok(ClockDefaults::default()) };
    for with in with_clause(statement).into_iter().flat_map(|with| with.ctes().iter()) {
        check_no_defaults(with.ctequery(), context)?;
    }
    let Node::InsertStmt(insert) = statement else {
        check_no_defaults(statement, context)?;
        return Ok(ClockDefaults::default());
    };
    check_no_set_default(statement, context)?;
    let Some((name, relation)) = insert.relation().and_then(|name| Some((name, table(name, context)?))) else {
        return Ok(ClockDefaults::default());
    };
    let select = match insert.select_stmt() {
        Node::SelectStmt(select) if !select.values_lists().is_empty() => select,
        _ => {
            check_no_defaults(statement, context)?;
            return Ok(ClockDefaults::default());
        }
    };
    let read: Vec<&Column> = relation.columns.iter().filter(|column| reads_clock(column)).collect();
    if read.is_empty() {
        return Ok(ClockDefaults::default());
    }
    let rows = value_rows(text, select.values_lists().len()).ok_or_else(not_put)?;
    let rows: Vec<(usize, usize)> = rows.into_iter().map(|range| (range.start, range.end)).collect();
    let mut finder = Finder {
        text,
        tokens: Tokens::of(text),
        main: 0,
        stages: Stages::default(),
        rows: rows.clone(),
        around: Around::of(Some(name), std::iter::empty(), context),
        is_unknown: false,
    };
    let taken: Vec<(&Column, Nature)> = read.iter().map(|column| (*column, Nature::Clock)).collect();
    finder.take_defaults(insert, (name, relation), &taken, Some(&rows));
    let left_out = finder.stages.defaults.take();
    let listed = finder.listed(insert, relation, true).ok_or_else(not_put)?;
    let is_put = |name: &str| left_out.as_ref().is_some_and(|defaults| defaults.names.iter().any(|known| known == name));
    let is_plain = |column: &&Column| nature(column, context) == Some(Nature::Clock);
    let has_default = |name: &str| {
        let place = listed.iter().position(|known| known == name);
        let row_has = |row: Node<'_>| {
            let value = row.as_node_list().zip(place).and_then(|(row, place)| row.iter().nth(place));
            matches!(value, Some(Node::SetToDefault(_)))
        };
        place.is_some() && select.values_lists().iter().any(row_has)
    };
    for column in read {
        let is_left_out = !listed.contains(&column.name);
        if (is_left_out && !is_put(&column.name)) || ((is_left_out || has_default(&column.name)) && !is_plain(&column)) {
            return Err(not_put_of(&column.name));
        }
    }
    let given = finder.stages.queries.into_iter().map(|stage| (stage.start..stage.end, stage.query)).collect();
    Ok(ClockDefaults { given, left_out })
}

/// The time of a transaction, under any name.
fn reads_clock(column: &Column) -> bool {
    let default = column.default.as_deref().filter(|_| !column.is_generated && column.identity.is_none());
    default.is_some_and(|default| hides_clock(default) || !matches!(clock::replaced(default, None), Ok(None)))
}

fn table<'c>(name: &nodes::RangeVar, context: &'c Context) -> Option<&'c Relation> {
    resolve(context, name, &context.search_path).table()
}

fn with_clause(statement: Node<'_>) -> Option<&nodes::WithClause> {
    match statement {
        Node::InsertStmt(insert) => insert.with_clause(),
        Node::UpdateStmt(update) => update.with_clause(),
        Node::DeleteStmt(delete) => delete.with_clause(),
        Node::MergeStmt(merge) => merge.with_clause(),
        Node::SelectStmt(select) => select.with_clause(),
        _ => None,
    }
}

/// No such default is read in a place where nothing can be put.
fn check_no_defaults(statement: Node<'_>, context: &Context) -> Result<(), PgError> {
    check_no_set_default(statement, context)?;
    let (name, given) = match statement {
        Node::InsertStmt(insert) => (insert.relation(), insert.cols()),
        Node::CopyStmt(copy) if copy.is_from => (copy.relation(), copy.attlist()),
        _ => return Ok(()),
    };
    let Some(relation) = name.and_then(|name| table(name, context)) else { return Ok(()) };
    let is_named = |column: &Column| {
        let is_it = |node: Node<'_>| match node {
            Node::ResTarget(target) => target.name() == Some(column.name.as_str()),
            node => node.as_str() == Some(column.name.as_str()),
        };
        given.iter().any(is_it)
    };
    let is_copy_of_all = matches!(statement, Node::CopyStmt(_)) && given.is_empty();
    match relation.columns.iter().find(|column| reads_clock(column) && !is_copy_of_all && !is_named(column)) {
        Some(column) => Err(not_put_of(&column.name)),
        None => Ok(()),
    }
}

/// `SET column = DEFAULT`.
fn check_no_set_default(statement: Node<'_>, context: &Context) -> Result<(), PgError> {
    let mut found = Ok(());
    let mut check = |name: Option<&nodes::RangeVar>, target: Node<'_>| {
        let (Some(relation), Node::ResTarget(target)) = (name.and_then(|name| table(name, context)), target) else { return };
        let is_it = |column: &&Column| target.name() == Some(column.name.as_str()) && reads_clock(column);
        if sets_default(target.val())
            && let Some(column) = relation.columns.iter().find(is_it)
        {
            found = Err(not_put_of(&column.name));
        }
    };
    match statement {
        Node::UpdateStmt(update) => {
            update.target_list().iter().for_each(|target| check(update.relation(), Node::ResTarget(target)));
        }
        Node::InsertStmt(insert) => {
            let conflict = insert.on_conflict_clause();
            let targets = conflict.into_iter().flat_map(|conflict| conflict.target_list().iter());
            targets.for_each(|target| check(insert.relation(), Node::ResTarget(target)));
        }
        Node::MergeStmt(merge) => {
            let targets = merge.merge_when_clauses().iter().flat_map(|clause| clause.target_list().iter());
            targets.for_each(|target| check(merge.relation(), target));
            let relation = merge.relation().and_then(|name| table(name, context));
            let left_out =
                relation.and_then(|relation| relation.columns.iter().find(|column| merge_leaves_out(merge, relation, column)));
            found = left_out.map_or(found, |column| Err(not_put_of(&column.name)));
        }
        _ => {}
    }
    found
}

/// A row that it inserts gets the column's default, which reads the clock.
fn merge_leaves_out(merge: &nodes::MergeStmt, relation: &Relation, column: &Column) -> bool {
    let takes_default = |clause: &nodes::MergeWhenClause| {
        let value = match clause.target_list().is_empty() {
            true => {
                relation.columns.iter().position(|known| known.name == column.name).map(|place| clause.values().iter().nth(place))
            }
            false => {
                let is_it = |target: Node<'_>| matches!(target, Node::ResTarget(target) if target.name() == Some(&column.name));
                clause.target_list().iter().position(is_it).map(|place| clause.values().iter().nth(place))
            }
        };
        !matches!(value.flatten(), Some(value) if !matches!(value, Node::SetToDefault(_)))
    };
    let mut inserts = merge.merge_when_clauses().iter().filter(|clause| clause.command_type == nodes::CmdType::CMD_INSERT);
    reads_clock(column) && inserts.any(takes_default)
}

fn not_put() -> PgError {
    PgError::internal("the rows of an INSERT are not where they were read")
}

fn not_put_of(column: &str) -> PgError {
    PgError::unsupported(
        format!("the default of column \"{column}\" is not supported here in a transaction on several shards"),
        "It reads the time of the transaction, which is that of the shard where the transaction began, and each shard has a clock of its own.",
        "Give the column its value: now().",
    )
}

/// What a default reads that shards would each read for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    Clock,
    /// Another value for each row.
    Drawn,
}

/// `None`: nothing of the kind, or more than that. A search path that names `pg_catalog` may find other functions, operators and types
/// by the names in the default than those that it was made with: then only a call of nothing else is taken.
fn nature(column: &Column, context: &Context) -> Option<Nature> {
    let default = column.default.as_deref().filter(|_| !column.is_generated && column.identity.is_none())?;
    let parsed = parse::parse(&format!("SELECT {default}")).ok()?;
    let Some(Node::SelectStmt(select)) = parsed.stmts().next() else { return None };
    let (mut found, mut is_plain) = (None, true);
    let names_catalog = context.search_path.iter().any(|schema| schema == "pg_catalog");
    for target in select.target_list().iter() {
        is_plain &= !names_catalog || is_call_of_catalog(target.val(), context);
        tree::walk(target.val(), &mut |node| {
            match node {
                Node::FuncCall(call) if is_clock(call) => {
                    found.get_or_insert(Nature::Clock);
                }
                node if is_drawn(node) => found = Some(Nature::Drawn),
                Node::FuncCall(call) => {
                    let name = tree::names(call.funcname()).and_then(|names| names.last().copied()).unwrap_or_default();
                    is_plain &= OF_TIMES.contains(&name);
                }
                Node::SQLValueFunction(value) if tree::is_clock(value) => {
                    found.get_or_insert(Nature::Clock);
                }
                Node::SQLValueFunction(_) | Node::SubLink(_) => is_plain = false,
                node => is_plain &= tree::is_known(node),
            }
            true
        });
    }
    found.filter(|_| is_plain)
}

/// Nothing but a clock, whose place a constant takes, or a function that nothing of users hides.
fn is_call_of_catalog(value: Node<'_>, context: &Context) -> bool {
    match value {
        Node::SQLValueFunction(_) => true,
        Node::FuncCall(call) if call.args().is_empty() => {
            let name = tree::names(call.funcname()).and_then(|names| names.last().copied()).unwrap_or_default();
            is_clock(call) || context.hiding(name, &context.search_path).is_none()
        }
        _ => false,
    }
}

/// Gives another value each time.
fn is_drawn(node: Node<'_>) -> bool {
    match node {
        Node::FuncCall(call) => {
            tree::names(call.funcname()).and_then(|names| names.last().copied()).is_some_and(|name| DRAWN.contains(&name))
        }
        _ => false,
    }
}

/// The default, if all that it reads is the clock of the transaction.
pub fn clock_default<'c>(column: &'c Column, context: &Context) -> Option<&'c str> {
    column.default.as_deref().filter(|_| nature(column, context) == Some(Nature::Clock))
}

/// How many columns a query has, where its text says so.
fn output_count(select: &nodes::SelectStmt) -> Option<usize> {
    let leftmost = std::iter::successors(Some(select), |select| select.larg()).last()?;
    let mut targets = leftmost.target_list().iter();
    let has_star = targets.any(|target| is_star(target.val()));
    (leftmost.values_lists().is_empty() && !has_star).then(|| leftmost.target_list().len())
}

/// Give the same for the same.
const OF_TIMES: [&str; 4] = ["date_trunc", "timezone", "to_char", "date_part"];
const DRAWN: [&str; 5] = ["gen_random_uuid", "uuid_generate_v4", "random", "clock_timestamp", "timeofday"];
