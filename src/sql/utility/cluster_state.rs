//! What PostgreSQL says of its sessions, their locks and statements, and of the bytes that relations occupy: asked of the cluster.
//!
//! One server knows that of itself alone. The home shard's `pg_stat_activity` has the proxy's connections, by process ids that no client
//! was given, and `pg_relation_size` counts the rows of one shard. The proxy knows the sessions and asks the shards for the rest. It
//! writes what it knows into the client's text, in the place of the relation or the call, and PostgreSQL computes what is left of the
//! statement:
//!
//! ```text
//!   FROM pg_stat_activity a          FROM (SELECT … jsonb_populate_record(NULL::pg_stat_activity, …)) a
//!   pg_backend_pid()                 the process id that the client was given
//!   pg_table_size(oid)               pg_table_size(oid) + what the other shards have of it
//!   pg_terminate_backend(pid)        whether pid is one of those that the proxy has ended just now
//!   pg_get_expr(d.adbin, …)          the default, which is nextval(…) where it is shardgate.next_id(…)
//! ```
//! Columns keep their names and types. Not seen: the same in functions and views of users, which show what their server says.
//!
//! The statement that ends or cancels sessions runs twice: once to learn which ([`Places::collecting`]), once for the answer.

mod rendering;
mod shadowing;
mod signals;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

pub use rendering::{Answers, Rewritten};

use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::parse::tree;
use crate::sql::query::column_name;
use shadowing::{is_function_of_users, is_relation_of_users};
use signals::Signals;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// `pg_stat_activity`
    Activity,
    /// `pg_locks`
    Locks,
    /// `pg_prepared_statements`
    Prepared,
    /// `pg_backend_pid()`
    OwnProcess,
    /// `pg_blocking_pids(pid)`
    Blocking,
    /// `pg_export_snapshot()`
    Snapshot,
    /// `pg_cancel_backend(pid)`
    Cancel,
    /// `pg_terminate_backend(pid)`
    Terminate,
    /// Of the relation in the first argument; by the function.
    Size(&'static str),
    /// `pg_database_size(name or oid)`
    DatabaseSize,
    /// `pg_get_expr(adbin, relation)`: numbers of the whole cluster are drawn by nobody who restores what a tool has written down.
    Default,
    /// `information_schema.columns`
    Columns,
}

/// With their schemas.
const RELATIONS: [(&str, &str, Asked); 4] = [
    ("pg_catalog", "pg_stat_activity", Asked::Activity),
    ("pg_catalog", "pg_locks", Asked::Locks),
    ("pg_catalog", "pg_prepared_statements", Asked::Prepared),
    ("information_schema", "columns", Asked::Columns),
];

const FUNCTIONS: [(&str, Asked); 11] = [
    ("pg_get_expr", Asked::Default),
    ("pg_backend_pid", Asked::OwnProcess),
    ("pg_blocking_pids", Asked::Blocking),
    ("pg_export_snapshot", Asked::Snapshot),
    ("pg_cancel_backend", Asked::Cancel),
    ("pg_terminate_backend", Asked::Terminate),
    ("pg_relation_size", Asked::Size("pg_relation_size")),
    ("pg_table_size", Asked::Size("pg_table_size")),
    ("pg_indexes_size", Asked::Size("pg_indexes_size")),
    ("pg_total_relation_size", Asked::Size("pg_total_relation_size")),
    ("pg_database_size", Asked::DatabaseSize),
];

/// Does the statement name one of them? What it defines is for those who use it. Neither literals nor comments count.
pub fn may_ask(statement: Node<'_>, text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut names = RELATIONS.iter().map(|(schema, name, _)| if *schema == "pg_catalog" { *name } else { *schema });
    let mut functions = FUNCTIONS.iter().map(|(name, _)| *name);
    if !may_spell_names(text) && !names.any(|name| lower.contains(name)) && !functions.any(|name| lower.contains(name)) {
        return false;
    }
    let found = Found::within(query_of(statement));
    let is_relation = |relation: &&nodes::RangeVar| relation_asked(relation, text).is_some();
    let is_function = |call: &&nodes::FuncCall| {
        let (Some("pg_catalog") | None, Some(name)) = named(call) else { return false };
        FUNCTIONS.iter().any(|(known, asked)| *known == name && (*asked != Asked::Default || is_of_default(call, text)))
    };
    found.relations.iter().any(is_relation) || found.calls.iter().any(is_function)
}

/// Its name, and what is asked of it: those of PostgreSQL's catalogue are found without their schema, too. Columns that are named by
/// `information_schema.columns.` are those of the view alone.
fn relation_asked(relation: &nodes::RangeVar, text: &str) -> Option<(&'static str, Asked)> {
    let (schema, name) = (relation.schemaname(), relation.relname()?);
    let is_meant = |known: &str| schema == Some(known) || schema.is_none() && known == "pg_catalog";
    let (_, name, asked) = RELATIONS.into_iter().find(|(of, known, _)| *known == name && is_meant(of))?;
    let is_whole = || text.replace('"', "").to_ascii_lowercase().contains("information_schema.columns.");
    (asked != Asked::Columns || !is_whole()).then_some((name, asked))
}

/// The default of a column. Who asks for `next_id` itself, as for a dump, means it as it is.
fn is_of_default(call: &nodes::FuncCall, text: &str) -> bool {
    let Some(Node::ColumnRef(column)) = call.args().first() else { return false };
    column.fields().iter().next_back().and_then(Node::as_str) == Some("adbin") && !text.contains("next_id")
}

/// A function's schema, where it is written, and its name.
fn named(call: &nodes::FuncCall) -> (Option<&str>, Option<&str>) {
    match tree::names(call.funcname()).unwrap_or_default().as_slice() {
        [name] => (None, Some(*name)),
        [.., schema, name] => (Some(*schema), Some(*name)),
        [] => (None, None),
    }
}

/// Where in a text the cluster is asked.
#[derive(Clone, Debug)]
pub struct Places {
    /// In the order of the text; one may be among the arguments of another.
    list: Vec<Place>,
    signals: Option<Signals>,
    /// EXPLAIN that runs nothing: a plan needs no answers.
    is_plan: bool,
}

#[derive(Clone, Debug)]
struct Place {
    /// Byte offsets of what is replaced.
    range: Range<usize>,
    name: &'static str,
    asked: Asked,
    arguments: Vec<Range<usize>>,
    /// The first argument, where it is a constant.
    constant: Option<String>,
    naming: Naming,
}

/// What the replacement has to do for the name of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Naming {
    #[default]
    Nothing,
    /// It is all of a column without an alias.
    Column,
    /// A column without an alias gets its name from it.
    Within,
    /// A relation without an alias.
    Relation,
    /// The same after the word TABLE.
    Table,
}

impl Places {
    /// `None`: nothing is asked after all.
    pub fn of(text: &str, context: &Context) -> Result<Option<Self>, PgError> {
        let tree = parse::parse(text)?;
        let mut statements = tree.stmts();
        let (Some(statement), None) = (statements.next(), statements.next()) else { return Ok(None) };
        let query = query_of(statement);
        let found = Found::within(query);
        let tokens = Tokens::of(text);
        let mut list = Vec::new();
        for relation in &found.relations {
            list.extend(relation_place(relation, &tokens, context));
        }
        for call in &found.calls {
            list.extend(call_place(call, &found, &tokens, context)?);
        }
        list.sort_by_key(|place| (place.range.start, std::cmp::Reverse(place.range.end)));
        if list.is_empty() {
            return Ok(None);
        }
        let signals = match list.iter().filter(|place| place.is_signal()).count() {
            0 => None,
            count => Some(signals::of(statement, count, &tokens)?),
        };
        Ok(Some(Self { list, signals, is_plan: is_plan(statement) }))
    }

    pub fn is_plan(&self) -> bool {
        self.is_plan
    }

    /// Does an answer of other items depend on the rows by which sessions are found? See [`Places::collecting`].
    pub fn loses_list(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| !signals.is_list_kept)
    }

    pub fn asks(&self, asked: Asked) -> bool {
        self.list.iter().any(|place| place.asked == asked)
    }

    /// Functions of sizes of relations, and whether one has the name of a fork.
    pub fn sizes(&self) -> BTreeMap<&'static str, bool> {
        let mut sizes = BTreeMap::new();
        for place in &self.list {
            if let Asked::Size(function) = place.asked {
                *sizes.entry(function).or_default() |= place.arguments.len() > 1;
            }
        }
        sizes
    }

    /// The names of the relations whose sizes are asked for; `None`: they are not all known, or may be numbers.
    pub fn sized_relations(&self) -> Option<Vec<String>> {
        let sizes = self.list.iter().filter(|place| matches!(place.asked, Asked::Size(_)));
        let is_name = |name: &String| !name.bytes().all(|byte| byte.is_ascii_digit());
        sizes.map(|place| place.constant.clone().filter(is_name)).collect()
    }

    /// What the calls do that end or cancel sessions, in their order.
    pub fn signals(&self) -> Vec<Asked> {
        self.list.iter().filter(|place| place.is_signal()).map(|place| place.asked).collect()
    }
}

impl Place {
    fn is_signal(&self) -> bool {
        matches!(self.asked, Asked::Cancel | Asked::Terminate)
    }
}

fn query_of(statement: Node<'_>) -> Node<'_> {
    match statement {
        Node::SelectStmt(_) | Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => statement,
        Node::ExplainStmt(explain) => query_of(explain.query()),
        Node::DeclareCursorStmt(cursor) => query_of(cursor.query()),
        Node::CopyStmt(copy) => query_of(copy.query()),
        Node::CreateTableAsStmt(create) if create.objtype != nodes::ObjectType::OBJECT_MATVIEW => query_of(create.query()),
        _ => Node::None,
    }
}

fn is_plan(statement: Node<'_>) -> bool {
    let Node::ExplainStmt(explain) = statement else { return false };
    let has = |name: &str| explain.options().iter().any(|option| option.defname() == Some(name));
    has("shards") || !has("analyze")
}

/// The nodes that matter, by what they are.
#[derive(Default)]
struct Found<'n> {
    /// Without those that are WITH queries.
    relations: Vec<&'n nodes::RangeVar>,
    calls: Vec<&'n nodes::FuncCall>,
    /// By where a call is.
    naming: HashMap<i32, Naming>,
    /// Calls that are themselves in FROM.
    in_from: BTreeSet<i32>,
}

impl<'n> Found<'n> {
    fn within(query: Node<'n>) -> Self {
        let mut found = Self::default();
        let mut stack: Vec<(Node<'n>, WithQueries<'n>)> = vec![(query, WithQueries::default())];
        while let Some((node, mut seen)) = stack.pop() {
            match node {
                // COPY of a table has no query; there is nothing to walk through.
                Node::None => continue,
                Node::RangeVar(relation) => {
                    let is_with_query =
                        relation.schemaname().is_none() && relation.relname().is_some_and(|name| seen.contains(&name));
                    found.relations.extend((!is_with_query).then_some(relation));
                }
                Node::FuncCall(call) => found.calls.push(call),
                Node::ResTarget(target) if target.name().is_none() => found.note_column(target.val()),
                Node::RangeFunction(function) => found.note_in_from(function),
                _ => {}
            }
            if let Some(clause) = with_clause(node) {
                let (all, each) = scopes(clause, &seen);
                stack.extend(each);
                seen = all;
            }
            walk_manual::<()>(node, |child| {
                if !matches!(child, Node::WithClause(_)) {
                    stack.push((child, Rc::clone(&seen)));
                }
                Recurse::no()
            });
        }
        found
    }

    fn note_column(&mut self, value: Node<'n>) {
        if let Node::FuncCall(call) = value {
            self.naming.insert(call.location, Naming::Column);
            return;
        }
        let name = column_name(value);
        tree::walk(value, &mut |node| {
            if let Node::FuncCall(call) = node
                && call.funcname().iter().filter_map(Node::as_str).next_back() == Some(name.as_str())
            {
                self.naming.insert(call.location, Naming::Within);
            }
            true
        });
    }

    fn note_in_from(&mut self, function: &nodes::RangeFunction) {
        for item in function.functions().iter() {
            if let Node::FuncCall(call) = item.as_node_list().and_then(|item| item.first()).unwrap_or(item) {
                self.in_from.insert(call.location);
            }
        }
    }
}

/// The names of WITH queries that are seen from a place.
type WithQueries<'n> = Rc<Vec<&'n str>>;

fn with_clause(node: Node<'_>) -> Option<&nodes::WithClause> {
    match node {
        Node::SelectStmt(statement) => statement.with_clause(),
        Node::InsertStmt(statement) => statement.with_clause(),
        Node::UpdateStmt(statement) => statement.with_clause(),
        Node::DeleteStmt(statement) => statement.with_clause(),
        Node::MergeStmt(statement) => statement.with_clause(),
        _ => None,
    }
}

/// What the statement sees, and its queries with what each of them sees: those before it, or all of WITH RECURSIVE.
fn scopes<'n>(clause: &'n nodes::WithClause, outer: &WithQueries<'n>) -> (WithQueries<'n>, Vec<(Node<'n>, WithQueries<'n>)>) {
    let name = |query: &'n nodes::CommonTableExpr| query.ctename();
    let all: WithQueries<'n> = Rc::new(outer.iter().copied().chain(clause.ctes().iter().filter_map(name)).collect());
    let mut before = Rc::clone(outer);
    let mut each = Vec::new();
    for query in clause.ctes().iter() {
        each.push((query.ctequery(), Rc::clone(if clause.recursive { &all } else { &before })));
        before = Rc::new(before.iter().copied().chain(name(query)).collect());
    }
    (all, each)
}

fn relation_place(relation: &nodes::RangeVar, tokens: &Tokens<'_>, context: &Context) -> Option<Place> {
    let (name, asked) = relation_asked(relation, tokens.text())?;
    if relation.schemaname().is_none() && is_relation_of_users(name, context) {
        return None;
    }
    let mut first = tokens.at_location(relation.location)?;
    let last = tokens.name_end(first);
    let mut naming = if relation.alias().is_some() { Naming::Nothing } else { Naming::Relation };
    if let Some(before) = first.checked_sub(1).filter(|before| tokens.is_one_of(*before, &["table", "only"])) {
        naming = if tokens.is_word(before, "table") { Naming::Table } else { naming };
        first = before;
    }
    Some(Place { range: tokens.range(first, last)?, name, asked, arguments: Vec::new(), constant: None, naming })
}

fn call_place(call: &nodes::FuncCall, found: &Found<'_>, tokens: &Tokens<'_>, context: &Context) -> Result<Option<Place>, PgError> {
    let (schema, name) = match named(call) {
        (schema @ (Some("pg_catalog") | None), Some(name)) => (schema, name),
        _ => return Ok(None),
    };
    let Some((name, asked)) = FUNCTIONS.into_iter().find(|(known, _)| *known == name) else { return Ok(None) };
    if asked == Asked::Default && !is_of_default(call, tokens.text()) {
        return Ok(None);
    }
    if !is_of_count(asked, call.args().len()) || (schema.is_none() && is_function_of_users(name, call.args().len(), context)?) {
        return Ok(None);
    }
    let is_named = call.args().iter().any(|argument| matches!(argument, Node::NamedArgExpr(_)));
    if is_named || found.in_from.contains(&call.location) {
        return Err(PgError::unsupported(
            format!("{name}() in FROM or with named arguments is not supported"),
            "The proxy answers it for the whole cluster, in the place of the call.",
            "Call it in the list of a SELECT, with its arguments in their order.",
        ));
    }
    let place = || {
        let first = tokens.at_location(call.location)?;
        let open = tokens.name_end(first) + 1;
        let close = tokens.closing(open)?;
        let elements = if close == open + 1 { Vec::new() } else { tokens.elements(open + 1, close)? };
        let arguments = elements.into_iter().map(|(first, last)| tokens.range(first, last)).collect::<Option<Vec<_>>>()?;
        let naming = found.naming.get(&call.location).copied().unwrap_or_default();
        let constant = call.args().first().and_then(tree::constant_text);
        Some(Place { range: tokens.range(first, close)?, name, asked, arguments, constant, naming })
    };
    let place = place().ok_or_else(|| PgError::internal(format!("a call of {name}() is not found in its text")))?;
    Ok(Some(place).filter(|place| place.arguments.len() == call.args().len()))
}

/// With another number of arguments it is PostgreSQL's to refuse.
fn is_of_count(asked: Asked, count: usize) -> bool {
    match asked {
        Asked::OwnProcess | Asked::Snapshot => count == 0,
        Asked::Terminate | Asked::Size("pg_relation_size") => matches!(count, 1 | 2),
        Asked::Default => matches!(count, 2 | 3),
        _ => count == 1,
    }
}
