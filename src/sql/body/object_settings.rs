//! Custom settings that a schema change gives to a function, a role or a database: the server looks at each, and has its name on this
//! connection afterwards, with no value.

use pg_raw_parse::{Node, nodes};

/// In lower case.
pub fn custom_settings_given(node: Node<'_>) -> Vec<String> {
    let of_option = |option: &nodes::DefElem| match option.arg() {
        Node::VariableSetStmt(set) => custom(set),
        _ => None,
    };
    match node {
        Node::CreateFunctionStmt(create) => create.options().iter().filter_map(of_option).collect(),
        Node::AlterFunctionStmt(alter) => alter.actions().iter().filter_map(of_option).collect(),
        Node::AlterRoleSetStmt(alter) => alter.setstmt().and_then(custom).into_iter().collect(),
        Node::AlterDatabaseSetStmt(alter) => alter.setstmt().and_then(custom).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn custom(set: &nodes::VariableSetStmt) -> Option<String> {
    set.name().filter(|name| name.contains('.')).map(str::to_ascii_lowercase)
}
