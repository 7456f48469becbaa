//! Looks through an expression for what matters beyond its value: sub-selects, functions, aggregates and windows, system
//! columns, the clock.
//!
//! What this does not know is noted, and the statement is then not run on several shards.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::found_first::Asked;
use super::predicate::Operand;
use super::scope::{Frame, Level, Resolution};
use super::with::CteList;
use super::{Facts, Subquery, Term};
use crate::error::PgError;
use crate::sql::parse::tree;

/// Where an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Evaluated once for each row of the answer.
    Output,
    /// WHERE, ON, GROUP BY, arguments of functions in FROM, LIMIT.
    Inside,
    /// The ON of an outer join.
    OuterOn,
    /// What a write stores: VALUES and SET.
    Stored,
}

/// What is visible to an expression.
pub struct Scope<'s, 'n> {
    pub frame: &'s Frame<'s>,
    pub ctes: &'s CteList<'n>,
    /// The WINDOW clause.
    pub windows: Option<&'n NodeList>,
}

/// What was found in expressions of one query level.
#[derive(Debug, Default)]
pub struct Findings {
    pub has_aggregate: bool,
    pub windows: Vec<Vec<Term>>,
    /// The columns among the arguments of each aggregate with DISTINCT.
    pub distinct_arguments: Vec<Vec<Term>>,
    pub subqueries: Vec<Subquery>,
    /// Those of RETURNING: they see the rows as they are written.
    pub returned: Vec<Subquery>,
}

impl<'c> Reader<'c> {
    pub fn scan<'n>(
        &mut self,
        node: Node<'n>,
        scope: &Scope<'_, 'n>,
        place: Place,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        let mut sublinks = Vec::new();
        let mut calls = Vec::new();
        let mut aggregates: Vec<(Node<'n>, Option<&nodes::WindowDef>)> = Vec::new();
        let mut unknown = None;
        let mut columns = Vec::new();
        let mut fields: Vec<&str> = Vec::new();
        let mut clock = None;
        let mut names_database = false;
        let mut casts = Vec::new();
        let mut operators: Vec<&str> = Vec::new();
        let mut asks_whether_inserted: Vec<(&nodes::ColumnRef, i32)> = Vec::new();
        let is_of_insert = self.returns_inserted == Some(self.depth) && self.operators_are_plain();
        tree::walk(node, &mut |node| {
            if let Node::A_Expr(e) = node
                && is_of_insert
            {
                asks_whether_inserted.extend(whether_inserted(e));
            }
            match node {
                Node::SubLink(sublink) => {
                    operators.extend(tree::operators_of(node));
                    sublinks.push(sublink);
                }
                Node::FuncCall(call) => calls.push(call),
                Node::ColumnRef(column) => columns.push(column),
                Node::A_Indirection(e) => fields.extend(e.indirection().iter().filter_map(Node::as_str)),
                Node::A_Expr(_) | Node::CaseExpr(_) => operators.extend(tree::operators_of(node)),
                Node::SQLValueFunction(function) => {
                    clock = clock.or(clock_name(function));
                    names_database |= function.op == nodes::SQLValueFunctionOp::SVFOP_CURRENT_CATALOG;
                }
                Node::TypeCast(cast) => casts.push(cast),
                Node::JsonObjectAgg(e) => aggregates.push((node, e.constructor().and_then(|constructor| constructor.over()))),
                Node::JsonArrayAgg(e) => aggregates.push((node, e.constructor().and_then(|constructor| constructor.over()))),
                other if !tree::is_known(other) => unknown = Some("an SQL construct of a newer PostgreSQL"),
                _ => {}
            }
            tree::is_known(node)
        });
        if let Some(unknown) = unknown {
            self.notes.touches_anything.get_or_insert_with(|| format!("The statement has {unknown}, which may read any table."));
        }
        if let Some(name) = clock {
            self.note_clock(name);
        }
        if names_database {
            self.note_server("current_catalog");
        }
        for cast in casts {
            self.note_cast(cast, place);
        }
        for (_, location) in &asks_whether_inserted {
            self.fix_literal(*location);
        }
        for column in columns {
            if !asks_whether_inserted.iter().any(|(asked, _)| std::ptr::eq(*asked, column)) {
                self.note_column(column);
            }
            fields.extend(self.possible_call(column, scope.frame));
        }
        for field in fields {
            self.note_field(field, place);
        }
        self.note_operators(&mut operators, place);
        for (aggregate, window) in aggregates {
            if window.is_none() {
                self.check_aggregate_level(aggregate, scope.frame);
            }
            self.aggregate_or_window(window, scope, findings);
        }
        for call in calls {
            let is_aggregate = self.note_call(call, scope.frame, place)?;
            if is_aggregate || call.over().is_some() {
                if call.over().is_none() {
                    self.check_aggregate_level(Node::FuncCall(call), scope.frame);
                }
                if call.agg_distinct {
                    let terms = self.terms(call.args(), scope.frame);
                    findings.distinct_arguments.push(terms);
                }
                self.aggregate_or_window(call.over(), scope, findings);
            }
        }
        for sublink in sublinks {
            let subquery = self.subquery(sublink, scope, Facts::new(), place == Place::OuterOn)?;
            findings.subqueries.push(subquery);
        }
        Ok(())
    }

    /// Binds a sub-select of an expression.
    pub fn subquery<'n>(
        &mut self,
        sublink: &'n nodes::SubLink,
        scope: &Scope<'_, 'n>,
        link: Facts,
        is_isolated: bool,
    ) -> Result<Subquery, PgError> {
        self.asked = match sublink.sub_link_type {
            nodes::SubLinkType::EXISTS_SUBLINK => Asked::Existence,
            nodes::SubLinkType::ARRAY_SUBLINK => Asked::Array,
            nodes::SubLinkType::ANY_SUBLINK if is_equality(sublink) => Asked::Membership,
            _ => Asked::Rows,
        };
        // No condition from outside is about its columns.
        let shows_one_of_equals = self.notes.shows_one_of_equals;
        let bound = self.query(sublink.subselect(), Some(scope.frame), scope.ctes)?;
        self.notes.shows_one_of_equals = shows_one_of_equals;
        Ok(Subquery { bound, link, is_required: false, is_isolated })
    }

    fn aggregate_or_window<'n>(&mut self, over: Option<&'n nodes::WindowDef>, scope: &Scope<'_, 'n>, findings: &mut Findings) {
        match over {
            None => findings.has_aggregate = true,
            Some(window) => {
                let partition = self.partition_terms(window, scope, 0);
                findings.windows.push(partition);
            }
        }
    }

    /// The columns in PARTITION BY; a named window's when it refers to one.
    fn partition_terms(&mut self, window: &nodes::WindowDef, scope: &Scope<'_, '_>, depth: usize) -> Vec<Term> {
        let mut terms = self.terms(window.partition_clause(), scope.frame);
        // OVER w has a name; OVER (w …) and a window that is based on another have a reference.
        let base = if depth == 0 { window.name().or(window.refname()) } else { window.refname() };
        if let (Some(base), Some(windows), true) = (base, scope.windows, depth < 16) {
            let named = windows.iter().find_map(|named| match named {
                Node::WindowDef(named) if named.name() == Some(base) => Some(named),
                _ => None,
            });
            if let Some(named) = named {
                terms.extend(self.partition_terms(named, scope, depth + 1));
            }
        }
        terms
    }

    /// The columns and key functions among expressions.
    pub fn terms(&mut self, list: &NodeList, frame: &Frame<'_>) -> Vec<Term> {
        list.iter()
            .filter_map(|node| match self.operand(node, frame) {
                Operand::Term(term, _) => Some(term),
                Operand::Value(_) | Operand::Other => None,
            })
            .collect()
    }

    /// An aggregate belongs to the innermost query of which its arguments, its order or its filter have a column. Where that is a
    /// query around this one, that is then one over a group, and not what it was taken for.
    fn check_aggregate_level(&mut self, aggregate: Node<'_>, frame: &Frame<'_>) {
        if frame.outer.is_none() {
            return;
        }
        let (mut columns, mut inside) = (Vec::new(), Vec::new());
        tree::walk(aggregate, &mut |node| {
            match node {
                Node::ColumnRef(column) => columns.push(column),
                Node::SubLink(sublink) => inside.push(sublink.subselect()),
                _ => {}
            }
            tree::is_known(node)
        });
        let level = |column: &nodes::ColumnRef| {
            let path: Vec<&str> = column.fields().iter().map_while(Node::as_str).collect();
            frame.level(&path, &self.leaves)
        };
        let mut levels: Vec<Level> = columns.into_iter().map(level).collect();
        if levels.contains(&Level::Here) {
            return;
        }
        if levels.is_empty() {
            // Columns in its sub-selects may be those of tables there.
            let within = inside.into_iter().flat_map(tree::columns_within).map(level);
            levels.extend(within.filter(|level| matches!(level, Level::Around | Level::Either)).map(|_| Level::Either));
        }
        // The query around is the statement: nothing is said of its rows but what it says itself.
        let is_in_statement = self.is_query && self.depth == 2 && Frame::height(Some(frame)) == 2;
        match levels.first() {
            None => {}
            Some(_) if is_in_statement && levels.iter().all(|level| *level == Level::Either) => {
                self.notes.not_pushable(PgError::unsupported(
                    "an aggregate in a sub-select may be one of the query around it",
                    "All columns in its arguments, its order and its filter may be columns of that.",
                    "Write the name of a table before each column.",
                ))
            }
            Some(_) if levels.iter().all(|level| *level == Level::Either) => {
                self.notes.may_be_of_query_around.get_or_insert_with(|| {
                    "All columns of an aggregate in a sub-select may be of the query around it, to which it then belongs."
                        .to_owned()
                });
            }
            Some(_) => {
                self.notes.touches_anything.get_or_insert_with(|| {
                    "All columns of an aggregate in a sub-select are of the query around it, to which it then belongs.".to_owned()
                });
            }
        }
    }

    /// `t.f` calls a function f of t's row where t has no such column.
    fn possible_call<'n>(&self, column: &'n nodes::ColumnRef, frame: &Frame<'_>) -> Option<&'n str> {
        let path = tree::names(column.fields())?;
        match frame.resolve(&path, &self.leaves) {
            Resolution::Unknown if path.len() > 1 => path.last().copied(),
            Resolution::Unknown | Resolution::Column(_) => None,
        }
    }

    fn note_column(&mut self, column: &nodes::ColumnRef) {
        const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "tableoid", "xmin", "xmax", "cmin", "cmax"];
        let last = column.fields().iter().next_back().and_then(Node::as_str);
        if let Some(name) = SYSTEM_COLUMNS.into_iter().find(|name| Some(*name) == last) {
            self.notes.not_pushable(PgError::unsupported(
                format!("system column \"{name}\" is not supported across shards"),
                "Its values mean something only within one server.",
                "Use the primary key, or restrict the statement to one shard key.",
            ));
        }
    }
}

/// `IN`, `= ANY`.
pub fn is_equality(sublink: &nodes::SubLink) -> bool {
    sublink.oper_name().is_empty() || tree::single_name(sublink.oper_name()) == Some("=")
}

/// `xmax = 0`, `xmax <> 0` and the same of its text: whether INSERT has made the row or ON CONFLICT has changed it, on every server.
/// With the place of the constant.
fn whether_inserted(e: &nodes::A_Expr) -> Option<(&nodes::ColumnRef, i32)> {
    let is_comparison = e.kind == nodes::A_Expr_Kind::AEXPR_OP && matches!(tree::single_name(e.name()), Some("=" | "<>"));
    let is_zero = tree::constant_text(e.rexpr()).is_some_and(|text| text == "0");
    let (Node::ColumnRef(column), Node::A_Const(zero)) = (tree::without_casts(e.lexpr()), tree::without_casts(e.rexpr())) else {
        return None;
    };
    let is_xmax = column.fields().iter().next_back().and_then(Node::as_str) == Some("xmax");
    (is_comparison && is_zero && is_xmax).then_some((column, zero.location))
}

fn clock_name(function: &nodes::SQLValueFunction) -> Option<&'static str> {
    use nodes::SQLValueFunctionOp as Op;
    Some(match function.op {
        Op::SVFOP_CURRENT_DATE => "CURRENT_DATE",
        Op::SVFOP_CURRENT_TIME | Op::SVFOP_CURRENT_TIME_N => "CURRENT_TIME",
        Op::SVFOP_CURRENT_TIMESTAMP | Op::SVFOP_CURRENT_TIMESTAMP_N => "CURRENT_TIMESTAMP",
        Op::SVFOP_LOCALTIME | Op::SVFOP_LOCALTIME_N => "LOCALTIME",
        Op::SVFOP_LOCALTIMESTAMP | Op::SVFOP_LOCALTIMESTAMP_N => "LOCALTIMESTAMP",
        _ => return None,
    })
}
