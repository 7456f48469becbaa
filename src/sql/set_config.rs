//! `SELECT set_config(…)`: a SET in disguise, by which drivers and frameworks give values as parameters.
//!
//! Recognised when the statement is nothing but such calls with constants and parameters. In any other place the proxy could not
//! know what has been set, and the call is refused by the session.

use pg_raw_parse::{Node, nodes};

use super::analysis::{ArgumentValue, SetConfig};
use super::shardgate_call::is_bare;
use super::tree;

/// `None`: something else than such calls.
pub fn select(statement: &nodes::SelectStmt) -> Option<Vec<SetConfig>> {
    if !is_bare(statement) || !statement.from_clause().is_empty() || statement.target_list().is_empty() {
        return None;
    }
    statement.target_list().iter().map(|target| call(target.val(), target.name())).collect()
}

fn call(node: Node<'_>, alias: Option<&str>) -> Option<SetConfig> {
    let Node::FuncCall(function) = node else { return None };
    if !matches!(tree::names(function.funcname())?.as_slice(), ["set_config"] | ["pg_catalog", "set_config"]) {
        return None;
    }
    let arguments: Vec<ArgumentValue> = function.args().iter().map(argument).collect::<Option<_>>()?;
    let [name, value, is_local] = <[ArgumentValue; 3]>::try_from(arguments).ok()?;
    Some(SetConfig { name, value, is_local, column: alias.unwrap_or("set_config").to_owned() })
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
