//! `SELECT set_config(…)`: a SET in disguise, by which drivers and frameworks give values as parameters.
//!
//! Recognised when the statement is nothing but such calls with constants and parameters, and `current_setting` beside them
//! (asyncpg asks so for what was set). In any other place the proxy could not
//! know what has been set, and the call is refused by the session.

use pg_raw_parse::{Node, nodes};

use super::shardgate_call::{is_bare, is_bare_but_for_where};
use crate::sql::analysis::{ArgumentValue, ConfigCall, SetConfig};
use crate::sql::parse::tree;

/// `None`: something else than such calls.
pub fn select(statement: &nodes::SelectStmt) -> Option<Vec<SetConfig>> {
    if let Some(call) = where_it_exists(statement) {
        return Some(vec![call]);
    }
    if !is_bare(statement) || !statement.from_clause().is_empty() || statement.target_list().is_empty() {
        return None;
    }
    let calls: Vec<SetConfig> =
        statement.target_list().iter().map(|target| call(target.val(), target.name())).collect::<Option<_>>()?;
    calls.iter().any(|call| matches!(call.what, ConfigCall::Set { .. })).then_some(calls)
}

/// `SELECT set_config(name, …) FROM pg_settings WHERE name = 'x'`: pg_dump sets so what not every server has.
fn where_it_exists(statement: &nodes::SelectStmt) -> Option<SetConfig> {
    let (Some(Node::RangeVar(from)), 1, 1) =
        (statement.from_clause().first(), statement.from_clause().len(), statement.target_list().len())
    else {
        return None;
    };
    let is_settings = from.relname() == Some("pg_settings") && from.schemaname().is_none_or(|schema| schema == "pg_catalog");
    let is_name = |node: Node<'_>| matches!(node, Node::ColumnRef(column) if tree::names(column.fields()) == Some(vec!["name"]));
    let Node::A_Expr(equal) = statement.where_clause() else { return None };
    let is_equal = tree::single_name(equal.name()) == Some("=") && is_name(equal.lexpr());
    let target = statement.target_list().first()?;
    let Node::FuncCall(function) = target.val() else { return None };
    let mut arguments = function.args().iter();
    let is_plain = is_settings && is_equal && from.alias().is_none() && is_bare_but_for_where(statement);
    if !is_plain || !arguments.next().is_some_and(is_name) || !matches!(equal.rexpr(), Node::A_Const(_)) {
        return None;
    }
    let called = tree::names(function.funcname())?;
    if !matches!(called.as_slice(), ["set_config"] | ["pg_catalog", "set_config"]) {
        return None;
    }
    let (value, is_local) = (argument(arguments.next()?)?, argument(arguments.next()?)?);
    Some(SetConfig {
        name: ArgumentValue::Text(tree::constant_text(equal.rexpr())?),
        what: ConfigCall::SetWhereItExists { value, is_local },
        column: target.name().unwrap_or("set_config").to_owned(),
    })
}

fn call(node: Node<'_>, alias: Option<&str>) -> Option<SetConfig> {
    let Node::FuncCall(function) = node else { return None };
    let names = tree::names(function.funcname())?;
    let called = match names.as_slice() {
        [name] | ["pg_catalog", name] => *name,
        _ => return None,
    };
    let arguments: Vec<ArgumentValue> = function.args().iter().map(argument).collect::<Option<_>>()?;
    let (name, what) = match (called, <[ArgumentValue; 3]>::try_from(arguments)) {
        ("set_config", Ok([name, value, is_local])) => (name, ConfigCall::Set { value, is_local }),
        ("current_setting", Err(arguments)) => {
            let mut arguments = arguments.into_iter();
            let (name, missing_ok) = (arguments.next()?, arguments.next().unwrap_or(ArgumentValue::Text("false".to_owned())));
            (name, ConfigCall::Read { missing_ok })
        }
        _ => return None,
    };
    Some(SetConfig { name, what, column: alias.unwrap_or(called).to_owned() })
}

fn argument(node: Node<'_>) -> Option<ArgumentValue> {
    match node {
        Node::TypeCast(cast) => {
            let cast_to = cast.type_name()?;
            let names: Vec<&str> = cast_to.names().iter().filter_map(|part| part.sval()).collect();
            let is_plain = matches!(names.last(), Some(&("text" | "varchar" | "bool")))
                && cast_to.typmods().is_empty()
                && cast_to.array_bounds().is_empty();
            is_plain.then(|| argument(cast.arg())).flatten()
        }
        Node::A_Const(constant) if constant.isnull => Some(ArgumentValue::Null),
        Node::ParamRef(parameter) => u16::try_from(parameter.number).ok().map(ArgumentValue::Parameter),
        scalar => tree::constant_text(scalar).map(ArgumentValue::Text),
    }
}
