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
//! ```
//! Columns keep their names and types. Not seen: the same in functions and views of users, which show what their server says.
//!
//! The statement that ends or cancels sessions runs twice: once to learn which ([`Places::collecting`]), once for the answer.

mod rendering;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

pub use rendering::{Answers, Rewritten};

use crate::error::PgError;
use crate::sql::analysis::Command;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;
use crate::sql::query::{column_name, is_aggregate};

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
}

const RELATIONS: [(&str, Asked); 3] =
    [("pg_stat_activity", Asked::Activity), ("pg_locks", Asked::Locks), ("pg_prepared_statements", Asked::Prepared)];

const FUNCTIONS: [(&str, Asked); 10] = [
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

/// Is there one of the names in the text of such a statement? What it defines is for those who use it.
pub fn may_ask(command: &Command, text: &str) -> bool {
    let is_one = match command {
        Command::Query(_) | Command::DeclareCursor { .. } | Command::Copy(_) | Command::Explain { .. } => true,
        Command::Ddl { tag, .. } => matches!(tag.as_str(), "CREATE TABLE AS" | "SELECT INTO"),
        _ => false,
    };
    let lower = if is_one { text.to_ascii_lowercase() } else { String::new() };
    RELATIONS.iter().chain(&FUNCTIONS).any(|(name, _)| lower.contains(name))
}

/// Where in a text the cluster is asked.
#[derive(Clone, Debug)]
pub struct Places {
    /// In the order of the text; one may be among the arguments of another.
    list: Vec<Place>,
    signals: Option<Signals>,
}

#[derive(Clone, Debug)]
struct Place {
    /// Byte offsets of what is replaced.
    range: Range<usize>,
    name: &'static str,
    asked: Asked,
    arguments: Vec<Range<usize>>,
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

/// A SELECT whose list calls what ends or cancels sessions. Byte offsets.
#[derive(Clone, Debug)]
struct Signals {
    list: Range<usize>,
    /// LIMIT or ORDER BY: the list counts for the rows.
    is_list_kept: bool,
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
            list.extend(relation_place(relation, &found, &tokens));
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
            count => Some(signals(statement, count, &tokens)?),
        };
        Ok(Some(Self { list, signals }))
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

/// The nodes that matter, by what they are.
#[derive(Default)]
struct Found<'n> {
    relations: Vec<&'n nodes::RangeVar>,
    calls: Vec<&'n nodes::FuncCall>,
    /// Names of WITH queries.
    with_queries: BTreeSet<&'n str>,
    /// By where a call is.
    naming: HashMap<i32, Naming>,
    /// Calls that are themselves in FROM.
    in_from: BTreeSet<i32>,
}

impl<'n> Found<'n> {
    fn within(query: Node<'n>) -> Self {
        let mut found = Self::default();
        let mut stack = vec![query];
        while let Some(node) = stack.pop() {
            match node {
                // COPY of a table has no query; there is nothing to walk through.
                Node::None => continue,
                Node::RangeVar(relation) => found.relations.push(relation),
                Node::FuncCall(call) => found.calls.push(call),
                Node::CommonTableExpr(query) => found.with_queries.extend(query.ctename()),
                Node::ResTarget(target) if target.name().is_none() => found.note_column(target.val()),
                Node::RangeFunction(function) => found.note_in_from(function),
                _ => {}
            }
            walk_manual::<()>(node, |child| {
                stack.push(child);
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

fn relation_place(relation: &nodes::RangeVar, found: &Found<'_>, tokens: &Tokens<'_>) -> Option<Place> {
    let name = relation.relname()?;
    let is_meant = match relation.schemaname() {
        Some(schema) => schema == "pg_catalog",
        None => !found.with_queries.contains(name),
    };
    let (name, asked) = RELATIONS.into_iter().find(|(known, _)| is_meant && *known == name)?;
    let mut first = tokens.at_location(relation.location)?;
    let last = tokens.name_end(first);
    let mut naming = if relation.alias().is_some() { Naming::Nothing } else { Naming::Relation };
    if let Some(before) = first.checked_sub(1).filter(|before| tokens.is_one_of(*before, &["table", "only"])) {
        naming = if tokens.is_word(before, "table") { Naming::Table } else { naming };
        first = before;
    }
    Some(Place { range: tokens.range(first, last)?, name, asked, arguments: Vec::new(), naming })
}

fn call_place(call: &nodes::FuncCall, found: &Found<'_>, tokens: &Tokens<'_>, context: &Context) -> Result<Option<Place>, PgError> {
    let names = tree::names(call.funcname()).unwrap_or_default();
    let name = match names.as_slice() {
        ["pg_catalog", name] => *name,
        [name] if !context.catalog.function_names.contains_key(*name) => *name,
        _ => return Ok(None),
    };
    let Some((name, asked)) = FUNCTIONS.into_iter().find(|(known, _)| *known == name) else { return Ok(None) };
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
        Some(Place { range: tokens.range(first, close)?, name, asked, arguments, naming })
    };
    // With another number of arguments it is PostgreSQL's to refuse.
    let is_of_count = |place: &Place| match asked {
        Asked::OwnProcess | Asked::Snapshot => place.arguments.is_empty(),
        Asked::Terminate => matches!(place.arguments.len(), 1 | 2),
        Asked::Size("pg_relation_size") => matches!(place.arguments.len(), 1 | 2),
        _ => place.arguments.len() == 1,
    };
    Ok(place().filter(is_of_count))
}

/// `count`: of the calls, all of which have to be in the list of the outermost SELECT.
fn signals(statement: Node<'_>, count: usize, tokens: &Tokens<'_>) -> Result<Signals, PgError> {
    let Node::SelectStmt(select) = statement else { return Err(not_here()) };
    let is_plain = select.op == nodes::SetOperation::SETOP_NONE
        && select.into_clause().is_none()
        && select.distinct_clause().is_empty()
        && select.group_clause().is_empty()
        && matches!(select.having_clause(), Node::None)
        && select.locking_clause().is_empty();
    let is_list_kept = !select.sort_clause().is_empty()
        || !matches!(select.limit_count(), Node::None)
        || !matches!(select.limit_offset(), Node::None);
    let (mut in_list, mut has_aggregate) = (0, false);
    for target in select.target_list() {
        tree::walk(target.val(), &mut |node| {
            if let Node::FuncCall(call) = node
                && let Some(name) = call.funcname().iter().filter_map(Node::as_str).next_back()
            {
                in_list += usize::from(matches!(name, "pg_cancel_backend" | "pg_terminate_backend"));
                has_aggregate |= is_aggregate(name);
            }
            true
        });
    }
    if !is_plain || in_list != count || (is_list_kept && has_aggregate) {
        return Err(not_here());
    }
    let list = || {
        let mut first = tokens.word_at_top(0, &["select"])? + 1;
        first += usize::from(tokens.is_word(first, "all"));
        let ends =
            [tokens.from_at_top(first), tokens.word_at_top(first, &["where", "window", "order", "limit", "offset", "fetch"])];
        let last = match ends.into_iter().flatten().min() {
            Some(end) => end - 1,
            None => (first..tokens.count()).rev().find(|index| tokens.piece(*index) != ";")?,
        };
        tokens.range(first, last)
    };
    Ok(Signals { list: list().ok_or_else(not_here)?, is_list_kept })
}

fn not_here() -> PgError {
    PgError::unsupported(
        "pg_terminate_backend() and pg_cancel_backend() are not supported here",
        "The proxy has to know all sessions that are meant before the statement gives its answer.",
        "Call it in the list of a SELECT of its own without GROUP BY, DISTINCT or FOR UPDATE, as in SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ….",
    )
}
