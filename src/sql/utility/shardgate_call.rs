//! Calls of the functions of the schema `shardgate`: `SELECT shardgate.f(…)`, `SELECT * FROM shardgate.f(…)`, `CALL`.
//!
//! They are recognised when the statement is one such call and nothing else, with arguments that are constants, parameters or
//! arrays of these. Those that answer with rows, or with a value, may also be selected from, with columns and conditions: the proxy
//! calls the function and gives its rows to the map database, where the statement runs. One that changes nothing may stand beside
//! relations of the schema and in sub-selects; one that changes the map is the only item of FROM, so that it runs once.
//! What each function takes is the callee's knowledge, not this module's.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{Catalog, Function, Oid, References, RelationKind, quoted_literal, shown_name};
use crate::error::{PgError, SqlState};
use crate::sql::analysis::{ArgumentValue, CallArgument, ProxyRows, ShardgateCall};
use crate::sql::parse::{self, tree};

/// The schema that belongs to the proxy.
pub const SCHEMA: &str = "shardgate";

pub const UNIQUE_ID: &str = "unique_id";

/// What a call answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// `void`.
    Nothing,
    /// One value, in a column that has the function's name.
    Value,
    /// Rows with these columns.
    Rows(&'static [&'static str]),
}

const MOVES: Answers = Answers::Rows(&["move_id", "source", "target", "partitions", "rows", "bytes", "expected_seconds", "state"]);
const PLAN: Answers = Answers::Rows(&["step", "kind", "table_name", "statement", "reason", "warning"]);
const PLACE: Answers = Answers::Rows(&["partition_id", "shard", "epoch"]);

/// Every function of the schema, sorted.
pub const FUNCTIONS: [(&str, Answers); 26] = [
    ("add_shard", Answers::Nothing),
    ("alter_shard", Answers::Nothing),
    ("citus_move_shard_placement", Answers::Nothing),
    ("create_distributed_table", Answers::Nothing),
    ("create_reference_table", Answers::Nothing),
    ("declare_function", Answers::Nothing),
    ("distribute_table", Answers::Nothing),
    ("distribute_tables", Answers::Nothing),
    ("drop_shard", Answers::Nothing),
    ("isolate_key", Answers::Value),
    ("locate", PLACE),
    ("map_key", Answers::Value),
    ("map_keys", Answers::Value),
    ("merge_partitions", Answers::Value),
    ("move_partition", Answers::Value),
    ("move_partitions", Answers::Value),
    ("plan_tables", PLAN),
    ("rebalance", MOVES),
    ("rebalance_table_shards", Answers::Nothing),
    ("redistribute_table", MOVES),
    ("reference_table", Answers::Nothing),
    ("set_default_shard", Answers::Value),
    ("split_partition", Answers::Value),
    ("time_partitions", Answers::Nothing),
    ("undistribute_table", MOVES),
    (UNIQUE_ID, Answers::Value),
];

/// They change nothing of the map.
const QUERIES: [&str; 3] = ["locate", "plan_tables", UNIQUE_ID];

/// `None`: there is no such function.
pub fn answers(name: &str) -> Option<Answers> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, answers)| *answers)
}

/// May it stand in FROM of a statement of its own? What answers with nothing has no rows to select from.
pub fn has_rows(name: &str) -> bool {
    matches!(answers(name), Some(Answers::Value | Answers::Rows(_)))
}

/// Does a call change the map?
pub fn is_declaration(name: &str) -> bool {
    answers(name).is_some() && !QUERIES.contains(&name)
}

/// The call that changes the map, of those that a statement selects from.
pub fn declaration_among(rows: &ProxyRows) -> Option<&ShardgateCall> {
    rows.calls.iter().find(|call| is_declaration(&call.function))
}

/// FROM is one call and nothing else, so that it runs once: what changes the map may only stand there.
pub fn is_only_source(statement: &nodes::SelectStmt) -> bool {
    let is_call = |from: Node<'_>| matches!(from, Node::RangeFunction(_));
    statement.from_clause().len() == 1
        && statement.from_clause().first().is_some_and(is_call)
        && statement.op == nodes::SetOperation::SETOP_NONE
        && statement.with_clause().is_none()
        && statement.locking_clause().is_empty()
}

/// A call in FROM of a statement with columns, conditions or joins; `None`: of something else, or of what has no rows.
/// `may_declare`: it runs once, and so may be one that changes the map.
pub fn in_from(from: &nodes::RangeFunction, naming: &Naming<'_>, may_declare: bool) -> Option<Result<ShardgateCall, PgError>> {
    let item = from.functions().first().filter(|_| from.functions().len() == 1)?;
    let function = match item.as_node_list().and_then(|item| item.first()).unwrap_or(item) {
        Node::FuncCall(function) => function,
        _ => return None,
    };
    let name = naming.function(function).filter(|name| has_rows(name))?;
    match may_declare || !is_declaration(name) {
        true => Some(call(function, name, true, None)),
        false => Some(Err(not_alone(name))),
    }
}

/// Functions whose last argument is a list, and what it is called.
pub const VARIADIC: [(&str, &str); 1] = [("locate", "key")];

/// Names that Citus users know: also without the schema, unless the database has a function of that name. Called so outside of FROM,
/// they answer with `void`.
const CITUS_FUNCTIONS: [&str; 5] = [
    "citus_move_shard_placement",
    "create_distributed_table",
    "create_reference_table",
    "rebalance_table_shards",
    "undistribute_table",
];

/// Where an unqualified name may mean one of these functions.
pub struct Naming<'c> {
    /// The search path names the schema.
    pub is_schema_searched: bool,
    /// The database has a function of this name that would be found first.
    pub is_user_function: &'c dyn Fn(&str) -> bool,
}

impl Naming<'_> {
    /// The function's name, when the call means one of this schema.
    pub fn function<'n>(&self, call: &'n nodes::FuncCall) -> Option<&'n str> {
        let names = tree::names(call.funcname())?;
        match names.as_slice() {
            [SCHEMA, name] => Some(name),
            [name] if self.is_schema_searched && answers(name).is_some() && !(self.is_user_function)(name) => Some(name),
            [name] if CITUS_FUNCTIONS.contains(name) && !(self.is_user_function)(name) => Some(name),
            _ => None,
        }
    }
}

/// `None`: the statement is not one call of such a function.
pub fn select(statement: &nodes::SelectStmt, naming: &Naming<'_>) -> Option<Result<ShardgateCall, PgError>> {
    if !is_bare(statement) || statement.target_list().len() != 1 {
        return None;
    }
    let target = statement.target_list().first()?;
    match (target.val(), statement.from_clause().first()) {
        (Node::FuncCall(function), None) => {
            let name = naming.function(function)?;
            Some(call(function, name, false, target.name().map(str::to_owned)))
        }
        (Node::ColumnRef(_), Some(Node::RangeFunction(from))) if statement.from_clause().len() == 1 && !from.ordinality => {
            // Each item is a list of the call and its column definitions.
            let item = from.functions().first()?.as_node_list()?;
            let (Some(Node::FuncCall(function)), 1) = (item.first(), from.functions().len()) else {
                return None;
            };
            let name = naming.function(function)?;
            let alias = from.alias().and_then(|alias| alias.aliasname()).map(str::to_owned);
            is_star(target.val()).then(|| call(function, name, true, alias))
        }
        _ => None,
    }
}

/// Is the text one call of `shardgate.alter_shard`, by its full name? It means the same whatever the database's schema is.
pub fn alters_shard(text: &str) -> bool {
    // Few texts are read for it.
    if !text.contains("alter_shard") {
        return false;
    }
    let Ok(parsed) = parse::parse(text) else { return false };
    let naming = Naming { is_schema_searched: false, is_user_function: &|_| false };
    let mut statements = parsed.iter().map(|raw| raw.stmt());
    match (statements.next(), statements.next()) {
        (Some(Node::SelectStmt(only)), None) => {
            matches!(select(only, &naming), Some(Ok(call)) if call.function == "alter_shard")
        }
        _ => false,
    }
}

/// A function of this schema, called like a procedure.
pub fn procedure(function: &nodes::FuncCall, naming: &Naming<'_>) -> Option<Result<ShardgateCall, PgError>> {
    let name = naming.function(function)?;
    Some(call(function, name, false, None))
}

/// Ready to be run: what the function touches, by the key that this argument gives; `None`: that of the row that a trigger fires for.
pub fn declaration(catalog: &Catalog, function: &Function, references: &References, key_argument: Option<usize>) -> String {
    let names = |oids: &[Oid]| {
        let relations = oids.iter().filter_map(|oid| catalog.relations.get(oid));
        let tables = relations.filter(|relation| relation.kind != RelationKind::Sequence);
        tables.map(|table| shown_name(&table.schema, &table.name).replace('"', "\\\"")).collect::<Vec<_>>().join(",")
    };
    let lists = [("reads", names(&references.reads)), ("writes", names(&references.writes))];
    let lists = lists.iter().filter(|(_, names)| !names.is_empty()).map(|(list, names)| format!(", {list} => '{{{names}}}'"));
    let argument = key_argument.map(|number| format!(", key_argument => {number}")).unwrap_or_default();
    let name = quoted_literal(&shown_name(&function.schema, &function.name));
    format!("SELECT shardgate.declare_function({name}{}{argument});", lists.collect::<String>())
}

/// The refusal of a call that is a part of a larger statement.
pub fn not_alone(name: &str) -> PgError {
    if name == UNIQUE_ID {
        return PgError::unsupported(
            "shardgate.unique_id() is not supported in this place",
            "The proxy puts its numbers into the statement, where each call stands for one: in VALUES, and in SELECT without tables.",
            "SELECT shardgate.unique_id() first, and use its result.",
        );
    }
    PgError::unsupported(
        format!("function shardgate.{name} must be called alone"),
        "The proxy answers it by itself and cannot evaluate it inside another statement.",
        match answers(name) {
            Some(Answers::Nothing) => format!("Run SELECT shardgate.{name}(...) in a statement of its own."),
            Some(Answers::Value | Answers::Rows(_)) | None => format!("Run SELECT shardgate.{name}(...) first and use its result."),
        },
    )
}

pub(in crate::sql) fn is_bare(statement: &nodes::SelectStmt) -> bool {
    matches!(statement.where_clause(), Node::None) && is_bare_but_for_where(statement)
}

pub(in crate::sql) fn is_bare_but_for_where(statement: &nodes::SelectStmt) -> bool {
    statement.distinct_clause().is_empty()
        && statement.into_clause().is_none()
        && statement.group_clause().is_empty()
        && matches!(statement.having_clause(), Node::None)
        && statement.values_lists().is_empty()
        && statement.sort_clause().is_empty()
        && matches!(statement.limit_count(), Node::None)
        && matches!(statement.limit_offset(), Node::None)
        && statement.locking_clause().is_empty()
        && statement.with_clause().is_none()
        && statement.op == nodes::SetOperation::SETOP_NONE
}

fn is_star(node: Node<'_>) -> bool {
    matches!(node, Node::ColumnRef(column) if matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))))
}

fn call(function: &nodes::FuncCall, name: &str, is_from: bool, alias: Option<String>) -> Result<ShardgateCall, PgError> {
    if answers(name).is_none() {
        let known: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        return Err(PgError::new(SqlState::UNDEFINED_FUNCTION, format!("function shardgate.{name} does not exist"))
            .with_hint(format!("The functions of this schema are {}.", known.join(", "))));
    }
    let arguments: Result<Vec<CallArgument>, PgError> =
        function.args().iter().map(|argument| call_argument(argument, name)).collect();
    let mut arguments = arguments?;
    if let (true, Some(list)) = (function.func_variadic, arguments.last_mut()) {
        let of = VARIADIC.iter().find(|(variadic, _)| *variadic == name).map(|(_, argument)| *argument);
        list.name = Some(of.ok_or_else(|| not_variadic(name))?.to_owned());
    }
    let is_void = !is_from && CITUS_FUNCTIONS.contains(&name) && tree::single_name(function.funcname()).is_some();
    Ok(ShardgateCall { function: name.to_owned(), arguments, is_void, alias })
}

fn not_variadic(name: &str) -> PgError {
    PgError::new(SqlState::UNDEFINED_FUNCTION, format!("function shardgate.{name} has no VARIADIC argument"))
        .with_hint("Pass its arguments one by one.")
}

fn call_argument(argument: Node<'_>, function: &str) -> Result<CallArgument, PgError> {
    match argument {
        Node::NamedArgExpr(named) => {
            Ok(CallArgument { name: named.name().map(str::to_owned), value: argument_value(named.arg(), function)? })
        }
        other => Ok(CallArgument { name: None, value: argument_value(other, function)? }),
    }
}

fn argument_value(node: Node<'_>, function: &str) -> Result<ArgumentValue, PgError> {
    match tree::without_casts(node) {
        Node::A_ArrayExpr(array) => {
            let elements: Result<Vec<ArgumentValue>, PgError> =
                array.elements().iter().map(|element| scalar_value(element, function)).collect();
            Ok(ArgumentValue::Array(elements?))
        }
        scalar => scalar_value(scalar, function),
    }
}

fn scalar_value(node: Node<'_>, function: &str) -> Result<ArgumentValue, PgError> {
    // Casts change nothing: the function knows the type it wants.
    match tree::without_casts(node) {
        Node::A_Const(constant) if constant.isnull => Ok(ArgumentValue::Null),
        Node::ParamRef(parameter) => {
            u16::try_from(parameter.number).map(ArgumentValue::Parameter).map_err(|_| not_constant(function))
        }
        scalar => tree::constant_text(scalar).map(ArgumentValue::Text).ok_or_else(|| not_constant(function)),
    }
}

fn not_constant(function: &str) -> PgError {
    PgError::unsupported(
        format!("an argument of shardgate.{function} is not a constant"),
        "The proxy evaluates the call by itself and cannot compute expressions.",
        "Pass constants, parameters, or arrays of these.",
    )
}
