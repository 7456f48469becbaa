//! Writes whose sub-selects are answered first: where these stand in the text, and what is put in their places.
//!
//! `DELETE FROM t WHERE id IN (SELECT …)` whose sub-select reads other shards' rows, `INSERT INTO t SELECT …` whose rows change
//! their shard, `UPDATE t SET … FROM other …`: the queries that do not depend on the rows of the outer statement are run by
//! themselves, and their rows are spliced into the client's text as constants. What is left is a statement that shards can
//! run, each for itself. PostgreSQL too evaluates such a sub-select once.
//!
//! Whether a query stands by itself is PostgreSQL's to say: one that names a column of the outer statement is an error alone.
//! A name that it finds inside means the same outside, but for names of rows (`row_names`). Pure; knows no shard.

mod conditional;
mod constants;
mod defaults;
mod given_back;
mod inserted;
mod merging;
mod row_names;
mod writing;

use std::collections::HashSet;
use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::clock_literals::{ClockLiteral, clock_literals};
use super::value_rows::value_rows;
use crate::catalog::quoted_identifier;
use crate::error::PgError;
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::parse::tree;
use crate::sql::query::conditions_only_compare;
pub use constants::{Answer, AnswerColumn, type_name};
pub use defaults::{ColumnList, Defaults, clock_default, clock_defaults};
use inserted::{casts_text, may_batch};
pub use merging::Merging;
use row_names::Around;
pub use writing::returned;
use writing::{Part, are_apart, reads_first};

/// A query in a text, which constants can stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Byte offsets of what is replaced.
    pub start: usize,
    pub end: usize,
    /// The query alone, and where it begins.
    pub query: String,
    pub kind: StageKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// What an INSERT inserts.
    Source,
    /// `IN (query)`; with `NOT` before it.
    In {
        is_not: bool,
    },
    /// `op ANY (query)`, `op ALL (query)`, with `ARRAY` before it too.
    List,
    /// `ARRAY(query)` elsewhere.
    Array,
    Exists,
    /// A sub-select of one value.
    Scalar,
    /// The same, compared with a column as it is.
    Compared,
    /// An expression, made a query: of VALUES, a default, a clock.
    Value,
    /// `SET (a, b) = (query)`.
    Row,
    /// `name AS (query)` of WITH.
    Cte,
    /// A table or sub-select of FROM or USING; `alias`: what it is called, unless the text says so after it.
    From {
        alias: Option<String>,
    },
}

/// What can be answered first, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Queries of WITH, which those after them may name. Each is run once.
    pub ctes: Vec<CteStage>,
    /// Of an INSERT: WITH and all that belongs to it, which only sub-selects that stay in the text may name when the rows are
    /// constants.
    pub dropped: Option<(usize, usize)>,
    /// Sub-selects in expressions, and the source of an INSERT.
    pub queries: Vec<Stage>,
    /// Where those of `queries` begin that PostgreSQL may not come to evaluate.
    pub conditional: Vec<usize>,
    /// Tables beside the target.
    pub tables: Vec<Stage>,
    /// Columns that an INSERT leaves to defaults.
    pub defaults: Option<Defaults>,
    /// A MERGE whose source's rows are split.
    pub merging: Option<Merging>,
    /// The source of a MERGE whose rows are not split, since none of its columns is the target's key: without rows nothing is done.
    pub unsplit: Option<Stage>,
    /// The statement is a query: its WITH writes, or it locks rows.
    pub is_query: bool,
    /// A query takes row locks or writes: it runs in the transaction of the whole.
    pub needs_transaction: bool,
    /// An INSERT whose rows may go in several statements: nothing tells that from one.
    pub may_batch: bool,
    /// Conditions of the statement ask for more than how values compare: they may tell apart what is equal.
    pub tells_equals_apart: bool,
}

/// A query of WITH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CteStage {
    pub stage: Stage,
    pub name: String,
    /// Its text up to the parenthesis before the query.
    pub head: String,
    /// INSERT, UPDATE or DELETE.
    pub writes: bool,
}

impl Stages {
    pub fn is_empty(&self) -> bool {
        self.ctes.is_empty()
            && self.queries.is_empty()
            && self.tables.is_empty()
            && self.defaults.is_none()
            && self.merging.is_none()
    }

    /// All queries.
    pub fn stages(&self) -> impl Iterator<Item = &Stage> {
        let source = self.merging.iter().map(|merging| &merging.source).chain(&self.unsplit);
        self.ctes.iter().map(|cte| &cte.stage).chain(&self.queries).chain(&self.tables).chain(source)
    }

    pub fn stages_mut(&mut self) -> impl Iterator<Item = &mut Stage> {
        let source = self.merging.iter_mut().map(|merging| &mut merging.source).chain(&mut self.unsplit);
        self.ctes.iter_mut().map(|cte| &mut cte.stage).chain(&mut self.queries).chain(&mut self.tables).chain(source)
    }
}

/// A query may name one of these queries of WITH. `definitions`: each one's name and text.
pub fn is_under_with(definitions: &[(String, String)], query: &str) -> bool {
    let tokens = Tokens::of(query);
    (0..tokens.count()).filter_map(|index| tokens.identifier(index)).any(|word| definitions.iter().any(|(name, _)| *name == word))
}

/// For each query of WITH whether it is run: one that only reads, and that nothing names which is run, PostgreSQL leaves out.
/// `text`: the statement.
pub fn are_run(ctes: &[CteStage], text: &str) -> Vec<bool> {
    let end = ctes.iter().map(|cte| cte.stage.end).max().unwrap_or_default();
    let main = text.get(end..).unwrap_or_default();
    let names = |query: &str, cte: &CteStage| is_under_with(&[(cte.name.clone(), String::new())], query);
    // They stand in the order in which they run: each may name those before it in the text.
    let mut order: Vec<(usize, &CteStage)> = ctes.iter().enumerate().collect();
    order.sort_by_key(|(_, cte)| std::cmp::Reverse(cte.stage.start));
    let mut are_run = vec![false; ctes.len()];
    let mut run: Vec<&CteStage> = Vec::new();
    for (place, cte) in order {
        if cte.writes || names(main, cte) || run.iter().any(|later| names(&later.stage.query, cte)) {
            run.push(cte);
            are_run.get_mut(place).into_iter().for_each(|is_run| *is_run = true);
        }
    }
    are_run
}

/// A query under queries of WITH, if it may name one of them: they are put before its own.
pub fn under_with(definitions: &[(String, String)], query: &str) -> Result<String, PgError> {
    if !is_under_with(definitions, query) {
        return Ok(query.to_owned());
    }
    let texts: Vec<&str> = definitions.iter().map(|(_, text)| text.as_str()).collect();
    let texts = texts.join(", ");
    let parsed = parse::parse(query)?;
    let own = match parsed.stmts().next() {
        Some(Node::SelectStmt(select)) => select.with_clause(),
        Some(Node::InsertStmt(insert)) => insert.with_clause(),
        Some(Node::UpdateStmt(update)) => update.with_clause(),
        Some(Node::DeleteStmt(delete)) => delete.with_clause(),
        _ => None,
    };
    let Some(own) = own else { return Ok(format!("WITH {texts} {query}")) };
    let names = || definitions.iter().map(|(name, _)| name.as_str());
    let same = own.ctes().iter().filter_map(nodes::CommonTableExpr::ctename).find(|name| names().any(|known| known == *name));
    if let Some(name) = same {
        return Err(PgError::unsupported(
            "two queries of WITH of one name are not supported in a write over several shards",
            format!("\"{name}\" is the name of one of the statement and of one inside of it."),
            "Give them different names.",
        ));
    }
    let with = usize::try_from(own.location).ok().and_then(|start| query.get(start..).map(|rest| (start, rest)));
    let (start, rest) = with.ok_or_else(|| PgError::internal("WITH is not where it was read"))?;
    let words = if own.recursive { 2 } else { 1 };
    let last = lexer::tokens(rest).filter(|token| token.kind == TokenKind::Word).take(words).last();
    let end = start + last.map_or(0, |token| token.end);
    Ok(spliced(query, &[Splice { start: end, end, text: format!(" {texts},") }]))
}

/// The stages of one INSERT, UPDATE, DELETE or MERGE, or of a query whose WITH writes or that locks rows; `text` is the statement
/// alone. Empty: there is nothing to answer first, or its form is not known.
pub fn stages(text: &str, context: &Context) -> Result<Stages, PgError> {
    if may_spell_names(text) {
        return Ok(Stages::default());
    }
    let parsed = parse::parse(text)?;
    let mut statements = parsed.stmts();
    let (Some(statement), None) = (statements.next(), statements.next()) else { return Ok(Stages::default()) };
    let (with, target, from) = match statement {
        Node::InsertStmt(insert) => (insert.with_clause(), insert.relation(), Vec::new()),
        Node::UpdateStmt(update) => (update.with_clause(), update.relation(), update.from_clause().iter().collect()),
        Node::DeleteStmt(delete) => (delete.with_clause(), delete.relation(), delete.using_clause().iter().collect()),
        Node::MergeStmt(merge) => (merge.with_clause(), merge.relation(), vec![merge.source_relation()]),
        Node::SelectStmt(select) if has_writes(select) => (select.with_clause(), None, Vec::new()),
        Node::SelectStmt(select) if locks_rows(select) => (select.with_clause(), None, select.from_clause().iter().collect()),
        _ => return Ok(Stages::default()),
    };
    let mut finder = Finder {
        text,
        tokens: Tokens::of(text),
        main: 0,
        stages: Stages { tells_equals_apart: !conditions_only_compare(statement), ..Stages::default() },
        rows: Vec::new(),
        around: Around::of(target, from.into_iter(), context),
        is_unknown: false,
    };
    if let Some(with) = with
        && (finder.with(with).is_none() || !finder.order_parts(with, statement, context))
    {
        return Ok(Stages::default());
    }
    match statement {
        Node::InsertStmt(insert) => {
            finder.insert(insert, context);
            finder.drop_with();
        }
        Node::UpdateStmt(update) => {
            finder.expression(update.where_clause());
            update.target_list().iter().for_each(|target| finder.expression(target.val()));
            finder.returning(update.returning_clause());
            finder.from(update.from_clause().iter());
        }
        Node::DeleteStmt(delete) => {
            finder.expression(delete.where_clause());
            finder.returning(delete.returning_clause());
            finder.from(delete.using_clause().iter());
        }
        Node::MergeStmt(merge) => finder.merge(merge, context),
        Node::SelectStmt(select) => {
            finder.stages.is_query = true;
            if has_writes(select) {
                return Ok(finder.finish());
            }
            finder.expression(select.where_clause());
            select.target_list().iter().for_each(|target| finder.expression(target.val()));
        }
        _ => return Ok(Stages::default()),
    }
    finder.clock_literals(context, matches!(statement, Node::MergeStmt(_)));
    Ok(finder.finish())
}

/// The text with these pieces replaced.
pub fn spliced(text: &str, splices: &[Splice]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut position = 0;
    let mut ordered: Vec<&Splice> = splices.iter().collect();
    ordered.sort_by_key(|splice| splice.start);
    for splice in ordered {
        out.push_str(text.get(position..splice.start).unwrap_or_default());
        out.push_str(&splice.text);
        position = splice.end;
    }
    out.push_str(text.get(position..).unwrap_or_default());
    out
}

/// The text with `value` in the places of its parameters; `None`: one of them has no such form.
pub fn with_parameters(text: &str, value: &dyn Fn(u16) -> Option<String>) -> Option<String> {
    let mut splices = Vec::new();
    for token in lexer::tokens(text).filter(|token| token.kind == TokenKind::Parameter) {
        let number = text.get(token.start + 1..token.end)?.parse().ok()?;
        splices.push(Splice { start: token.start, end: token.end, text: format!("({})", value(number)?) });
    }
    Some(spliced(text, &splices))
}

struct Finder<'t> {
    text: &'t str,
    tokens: Tokens<'t>,
    /// Where the statement begins, after its WITH.
    main: usize,
    stages: Stages,
    /// Of VALUES.
    rows: Vec<(usize, usize)>,
    around: Around,
    /// Something does not look as expected: nothing is replaced.
    is_unknown: bool,
}

impl Finder<'_> {
    fn finish(mut self) -> Stages {
        if self.is_unknown {
            return Stages::default();
        }
        self.stages.queries.sort_by_key(|stage| stage.start);
        // The columns of `SET (a, b) = (query)` share it.
        self.stages.queries.dedup();
        // What stands after it in the text is answered after it.
        self.stages.may_batch &= self.stages.queries.last().is_some_and(|stage| stage.kind == StageKind::Source);
        // Wherever it is said: what is locked stays locked until it is written.
        self.stages.needs_transaction |= (0..self.tokens.count())
            .any(|index| self.tokens.is_word(index, "for") && self.tokens.is_one_of(index + 1, &["update", "share", "no", "key"]));
        self.stages
    }

    /// Queries of WITH, and where the statement begins after them. `None`: some are not known.
    fn with(&mut self, clause: &nodes::WithClause) -> Option<()> {
        for cte in clause.ctes() {
            let writes = match cte.ctequery() {
                Node::SelectStmt(_) => false,
                Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) => true,
                _ => return None,
            };
            if cte.search_clause().is_some() || cte.cycle_clause().is_some() {
                return None;
            }
            let first = self.tokens.at_location(cte.location)?;
            let mut open = first + 1;
            if self.tokens.piece(open) == "(" {
                open = self.tokens.closing(open)? + 1;
            }
            while self.tokens.is_one_of(open, &["as", "not", "materialized"]) {
                open += 1;
            }
            let close = self.tokens.closing(open)?;
            let (start, end) = (self.tokens.get(open)?.end, self.tokens.get(close)?.start);
            let mut query = self.tokens.between(open, close)?.to_owned();
            let head = self.text.get(self.tokens.get(first)?.start..start)?.to_owned();
            let name = cte.ctename()?.to_owned();
            if clause.recursive && !writes {
                query = format!("WITH RECURSIVE {head}{query}) SELECT * FROM {}", quoted_identifier(&name));
            }
            let stage = Stage { start, end, query, kind: StageKind::Cte };
            self.stages.needs_transaction |= writes;
            self.stages.ctes.push(CteStage { stage, name, head, writes });
            self.main = close + 1;
        }
        // RECURSIVE lets a query name one that stands after it.
        let ctes = &self.stages.ctes;
        let names_later = |(place, cte): (usize, &CteStage)| {
            ctes.iter().skip(place + 1).any(|later| is_under_with(&[(later.name.clone(), String::new())], &cte.stage.query))
        };
        if clause.recursive && ctes.iter().enumerate().any(names_later) {
            return None;
        }
        self.tokens.is_one_of(self.main, &["insert", "update", "delete", "merge", "select"]).then_some(())
    }

    /// May queries of WITH that write run before the statement? Those that do not name what is written come first of all.
    fn order_parts(&mut self, clause: &nodes::WithClause, statement: Node<'_>, context: &Context) -> bool {
        if !self.stages.ctes.iter().any(|cte| cte.writes) {
            return true;
        }
        let order = reads_first(&self.stages.ctes);
        let ctes: Vec<CteStage> = order.iter().filter_map(|place| self.stages.ctes.get(*place).cloned()).collect();
        let nodes: Vec<_> = clause.ctes().iter().collect();
        let main = self.tokens.get(self.main).and_then(|token| self.text.get(token.start..)).unwrap_or_default();
        let queries = order.iter().zip(&ctes).filter_map(|(place, cte)| {
            let node = nodes.get(*place)?;
            let name = Some(cte.name.as_str()).filter(|_| node.aliascolnames().is_empty());
            Some(Part { name, text: &cte.stage.query, node: node.ctequery() })
        });
        let parts: Vec<Part<'_>> = queries.chain([Part { name: None, text: main, node: statement }]).collect();
        let are_apart = are_apart(&parts, context);
        self.stages.ctes = ctes;
        are_apart
    }

    fn drop_with(&mut self) {
        if let (Some(first), Some(main), false) = (self.tokens.get(0), self.tokens.get(self.main), self.stages.ctes.is_empty()) {
            self.stages.dropped = Some((first.start, main.start));
        }
    }

    fn insert(&mut self, insert: &nodes::InsertStmt, context: &Context) {
        self.returning(insert.returning_clause());
        if let Some(conflict) = insert.on_conflict_clause() {
            conflict.target_list().iter().for_each(|target| self.expression(target.val()));
            self.expression(conflict.where_clause());
        }
        match insert.select_stmt() {
            Node::SelectStmt(select) if !select.values_lists().is_empty() => {
                self.values(select);
                let rows = self.rows.clone();
                self.defaults(insert, context, Some(&rows));
            }
            // Rows without columns cannot be written as VALUES.
            Node::SelectStmt(select) if select.target_list().is_empty() && select.larg().is_none() => self.is_unknown = true,
            Node::SelectStmt(_) => match self.source_range().filter(|_| !casts_text(insert, context)) {
                Some((start, end)) => {
                    self.add(start, end, (start, end), StageKind::Source);
                    self.defaults(insert, context, None);
                    self.stages.may_batch = may_batch(insert, context);
                }
                None => self.is_unknown = true,
            },
            _ => {}
        }
    }

    /// Values of VALUES that are not constants: each is evaluated once.
    fn values(&mut self, select: &nodes::SelectStmt) {
        let rows = select.values_lists();
        let Some(ranges) = value_rows(self.text, rows.len()) else {
            self.is_unknown = true;
            return;
        };
        self.rows = ranges.iter().map(|range| (range.start, range.end)).collect();
        for (row, range) in rows.iter().zip(ranges) {
            let (Some(row), Some(elements)) = (row.as_node_list(), self.elements(range.start, range.end)) else {
                self.is_unknown = true;
                return;
            };
            if row.len() != elements.len() || self.stages.queries.len() > VALUES_MAX {
                self.is_unknown = true;
                return;
            }
            for (value, Range { start, end }) in row.iter().zip(elements) {
                if is_constant(value) {
                    continue;
                }
                match self.text.get(start..end) {
                    Some(value) => {
                        let query = format!("SELECT {value}");
                        self.stages.queries.push(Stage { start, end, query, kind: StageKind::Value });
                    }
                    None => self.is_unknown = true,
                }
            }
        }
    }

    /// The ranges between the commas of a parenthesised list.
    fn elements(&self, start: usize, end: usize) -> Option<Vec<Range<usize>>> {
        let open = self.tokens.at(start)?;
        let close = self.tokens.closing(open).filter(|close| self.tokens.get(*close).is_some_and(|token| token.end == end))?;
        let elements = self.tokens.elements(open + 1, close)?;
        elements.into_iter().map(|(first, last)| self.tokens.range(first, last)).collect()
    }

    fn returning(&mut self, clause: Option<&nodes::ReturningClause>) {
        for expression in clause.into_iter().flat_map(|clause| clause.exprs().iter()) {
            self.expression(expression);
        }
    }

    /// The sub-selects of an expression, and what reads the clock of the transaction.
    fn expression(&mut self, root: Node<'_>) {
        let mut found = Vec::new();
        let mut clocks = Vec::new();
        let (mut compared, mut listed) = (HashSet::new(), HashSet::new());
        tree::walk(root, &mut |node| {
            match node {
                Node::A_Expr(e) => {
                    compared.extend(compared_with_column(e));
                    listed.extend(listed_array(e));
                }
                Node::SubLink(sublink) => found.push((sublink, false)),
                Node::MultiAssignRef(assignment) => match assignment.source() {
                    Node::SubLink(sublink) => {
                        found.push((sublink, true));
                        return false;
                    }
                    _ => return true,
                },
                Node::FuncCall(call) if is_clock(call) => clocks.push(call.location),
                Node::SQLValueFunction(value) if tree::is_clock(value) => clocks.push(value.location),
                _ => {}
            }
            true
        });
        for location in clocks {
            if self.clock(location).is_none() {
                self.is_unknown = true;
            }
        }
        let conditional = conditional::conditional(root);
        for (sublink, is_row) in found {
            let before = self.stages.queries.len();
            let value = match sublink.sub_link_type {
                nodes::SubLinkType::ARRAY_SUBLINK if listed.contains(&sublink.location) => StageKind::List,
                nodes::SubLinkType::ARRAY_SUBLINK => StageKind::Array,
                _ if is_row => StageKind::Row,
                _ if compared.contains(&sublink.location) => StageKind::Compared,
                _ => StageKind::Scalar,
            };
            if self.sublink(sublink, value).is_none() {
                self.is_unknown = true;
            }
            if conditional.contains(&sublink.location) {
                self.stages.conditional.extend(self.stages.queries.iter().skip(before).map(|stage| stage.start));
            }
        }
    }

    /// `value`: what it is as one value.
    fn sublink(&mut self, sublink: &nodes::SubLink, value: StageKind) -> Option<()> {
        let first = self.tokens.at_location(sublink.location)?;
        let Node::SelectStmt(select) = sublink.subselect() else { return None };
        if self.around.changes(select) {
            return Some(());
        }
        let (kind, replaced_from, open) = match sublink.sub_link_type {
            nodes::SubLinkType::EXPR_SUBLINK => (value, first, first),
            nodes::SubLinkType::EXISTS_SUBLINK => (StageKind::Exists, first, first + 1),
            nodes::SubLinkType::ARRAY_SUBLINK => (value, first, first + 1),
            nodes::SubLinkType::ANY_SUBLINK if sublink.oper_name().is_empty() => {
                let is_not = self.tokens.is_word(first, "not");
                let keyword = if is_not { first + 1 } else { first };
                if !self.tokens.is_word(keyword, "in") {
                    return None;
                }
                (StageKind::In { is_not }, first, keyword + 1)
            }
            nodes::SubLinkType::ANY_SUBLINK | nodes::SubLinkType::ALL_SUBLINK => {
                let last = (first..self.tokens.count().min(first + QUANTIFIER_TOKENS_MAX))
                    .find(|index| self.tokens.is_one_of(*index, &["any", "some", "all"]))?;
                (StageKind::List, last + 1, last + 1)
            }
            _ => return None,
        };
        let close = self.tokens.closing(open)?;
        let inner = (self.tokens.get(open)?.end, self.tokens.get(close)?.start);
        let (start, end) = (self.tokens.get(replaced_from)?.start, self.tokens.get(close)?.end);
        self.add(start, end, inner, kind);
        Some(())
    }

    /// `now()`, `pg_catalog.now()`, `CURRENT_TIMESTAMP`, `LOCALTIME(0)`.
    fn clock(&mut self, location: i32) -> Option<()> {
        let first = self.tokens.at_location(location)?;
        let mut last = self.tokens.name_end(first);
        if self.tokens.piece(last + 1) == "(" {
            last = self.tokens.closing(last + 1)?;
        }
        let (start, end) = (self.tokens.get(first)?.start, self.tokens.get(last)?.end);
        let query = format!("SELECT {}", self.text.get(start..end)?);
        self.stages.queries.push(Stage { start, end, query, kind: StageKind::Value });
        Some(())
    }

    /// Strings that are read as a time, but for those in what is answered first. `has_source`: its tables are a source, which is.
    fn clock_literals(&mut self, context: &Context, has_source: bool) {
        let Ok(literals) = clock_literals(self.text, context) else {
            self.is_unknown = true;
            return;
        };
        for ClockLiteral { start, end, expression } in literals {
            let is_inside = |stage: &Stage| stage.start <= start && end <= stage.end;
            let is_answered = self.stages.stages().any(is_inside);
            if !has_source && self.stages.tables.iter().any(is_inside) {
                self.is_unknown = true;
            }
            if !is_answered {
                let query = format!("SELECT {expression}");
                self.stages.queries.push(Stage { start, end, query, kind: StageKind::Value });
            }
        }
    }

    fn from<'n>(&mut self, items: impl Iterator<Item = Node<'n>>) {
        let mut waiting: Vec<Node<'_>> = items.collect();
        while let Some(item) = waiting.pop() {
            let is_known = match item {
                Node::RangeVar(table) => self.table(table).is_some(),
                Node::RangeSubselect(query) => !query.lateral && self.subselect(query).is_some(),
                Node::JoinExpr(join) => {
                    waiting.extend([join.larg(), join.rarg()]);
                    true
                }
                _ => false,
            };
            if !is_known {
                // Then the sub-selects alone may do.
                self.stages.tables.clear();
                return;
            }
        }
        self.stages.tables.sort_by_key(|stage| stage.start);
    }

    fn table(&mut self, table: &nodes::RangeVar) -> Option<()> {
        let first = self.tokens.at_location(table.location)?;
        let last = self.tokens.name_end(first);
        // ONLY, and the star that says the opposite, stand around the name.
        if !table.inh
            || self.tokens.piece(last + 1) == "*"
            || first.checked_sub(1).is_some_and(|before| self.tokens.is_word(before, "only"))
        {
            return None;
        }
        let (start, end) = (self.tokens.get(first)?.start, self.tokens.get(last)?.end);
        let alias = match table.alias() {
            Some(_) => None,
            None => Some(table.relname()?.to_owned()),
        };
        let query = format!("SELECT * FROM {}", self.text.get(start..end)?);
        self.stages.tables.push(Stage { start, end, query, kind: StageKind::From { alias } });
        Some(())
    }

    fn subselect(&mut self, query: &nodes::RangeSubselect) -> Option<()> {
        let alias = query.alias()?;
        // The tree does not say where it stands: the alias is looked for after each parenthesis.
        let name = alias.aliasname()?;
        let mut found = None;
        for open in 0..self.tokens.count() {
            let begins = self.tokens.is_one_of(open + 1, &["select", "with", "values", "table"]);
            if self.tokens.piece(open) != "(" || !begins {
                continue;
            }
            let close = self.tokens.closing(open)?;
            let after = if self.tokens.is_word(close + 1, "as") { close + 2 } else { close + 1 };
            let called = self.tokens.identifier(after);
            if called.as_deref() == Some(name) {
                if found.is_some() {
                    return None;
                }
                found = Some((open, close));
            }
        }
        let (open, close) = found?;
        let (start, end) = (self.tokens.get(open)?.start, self.tokens.get(close)?.end);
        let query = self.tokens.between(open, close)?.to_owned();
        self.stages.tables.push(Stage { start, end, query, kind: StageKind::From { alias: None } });
        Some(())
    }

    fn add(&mut self, start: usize, end: usize, inner: (usize, usize), kind: StageKind) {
        match self.text.get(inner.0..inner.1) {
            Some(query) => {
                self.stages.queries.push(Stage { start, end, query: query.to_owned(), kind });
            }
            None => self.is_unknown = true,
        }
    }

    /// Where the query of an INSERT stands: after the target and its columns, before ON CONFLICT and RETURNING.
    fn source_range(&self) -> Option<(usize, usize)> {
        let begins = |index: usize| self.tokens.is_one_of(index, &["select", "with", "table"]);
        let mut index = self.main;
        let start = loop {
            match self.tokens.piece(index) {
                "" => return None,
                "(" => {
                    let mut inside = index + 1;
                    while self.tokens.piece(inside) == "(" {
                        inside += 1;
                    }
                    if begins(inside) {
                        break index;
                    }
                    index = self.tokens.closing(index)? + 1;
                }
                _ if begins(index) => break index,
                _ => index += 1,
            }
        };
        let mut last = start;
        let mut index = start;
        while index < self.tokens.count() {
            match self.tokens.piece(index) {
                "(" | "[" => index = self.tokens.closing(index)?,
                _ if self.tokens.is_word(index, "returning") => break,
                _ if self.tokens.is_word(index, "on") && self.tokens.is_word(index + 1, "conflict") => break,
                ";" => break,
                _ => {}
            }
            last = index;
            index += 1;
        }
        Some((self.tokens.get(start)?.start, self.tokens.get(last)?.end))
    }
}

/// The location of a sub-select that is compared with a column, or with a row of columns: a constant in its place restricts the
/// rows, and the planner can compute nothing of it.
fn compared_with_column(e: &nodes::A_Expr) -> Option<i32> {
    let is_comparison = e.kind == nodes::A_Expr_Kind::AEXPR_OP
        && tree::single_name(e.name()).is_some_and(|name| matches!(name, "=" | "<>" | "<" | ">" | "<=" | ">="));
    let is_column = |node: Node<'_>| match node {
        Node::RowExpr(row) => row.args().iter().all(|part| matches!(part, Node::ColumnRef(_))),
        node => matches!(node, Node::ColumnRef(_)),
    };
    match (e.lexpr(), e.rexpr()) {
        (column, Node::SubLink(sublink)) | (Node::SubLink(sublink), column) if is_comparison && is_column(column) => {
            Some(sublink.location)
        }
        _ => None,
    }
}

/// The location of a sub-select that is all of the array in `op ANY (ARRAY(…))`: a sub-select in its place would be another list.
fn listed_array(e: &nodes::A_Expr) -> Option<i32> {
    let is_list = matches!(e.kind, nodes::A_Expr_Kind::AEXPR_OP_ANY | nodes::A_Expr_Kind::AEXPR_OP_ALL);
    match e.rexpr() {
        Node::SubLink(sublink) if is_list => Some(sublink.location),
        _ => None,
    }
}

/// Evaluated by whoever gets it, it is the same.
fn is_constant(value: Node<'_>) -> bool {
    match value {
        Node::A_Const(_) | Node::ParamRef(_) | Node::SetToDefault(_) => true,
        // A length may cut.
        Node::TypeCast(cast) => {
            cast.type_name().is_some_and(|name| name.typmods().is_empty())
                && matches!(cast.arg(), Node::A_Const(_) | Node::ParamRef(_))
        }
        // A sign.
        Node::A_Expr(operation) => {
            tree::single_name(operation.name()) == Some("-")
                && matches!(operation.lexpr(), Node::None)
                && matches!(operation.rexpr(), Node::A_Const(_))
        }
        _ => false,
    }
}

fn is_clock(call: &nodes::FuncCall) -> bool {
    let name = match tree::names(call.funcname()).as_deref() {
        Some([name] | ["pg_catalog", name]) => *name,
        _ => return false,
    };
    call.args().is_empty() && CLOCKS.contains(&name)
}

/// Queries of its own WITH write.
fn has_writes(select: &nodes::SelectStmt) -> bool {
    let mut ctes = select.with_clause().into_iter().flat_map(|with| with.ctes());
    ctes.any(|cte| !matches!(cte.ctequery(), Node::SelectStmt(_)))
}

/// Rows of its own tables: a query below it that locks is answered as it stands there.
fn locks_rows(select: &nodes::SelectStmt) -> bool {
    !select.locking_clause().is_empty()
}

/// The same for all of a statement.
const CLOCKS: [&str; 3] = ["now", "statement_timestamp", "transaction_timestamp"];
/// Each is a query of its own.
const VALUES_MAX: usize = 200;
/// `OPERATOR(schema.<=>) ANY` has few tokens.
const QUANTIFIER_TOKENS_MAX: usize = 16;

#[cfg(test)]
mod tests;
