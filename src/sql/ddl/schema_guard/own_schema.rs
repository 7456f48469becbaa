//! The objects of the schema `shardgate`, which are the proxy's own: nobody makes, changes or drops one by a statement.

use pg_raw_parse::{Node, nodes};

use crate::error::PgError;
use crate::sql::parse::tree;
use crate::sql::utility::shardgate_call;

pub(super) fn guard(node: Node<'_>) -> Result<(), PgError> {
    match node {
        Node::DropStmt(s) => s.objects().iter().try_for_each(|object| named(s.remove_type, object)),
        Node::CommentStmt(s) => named(s.objtype, s.object()),
        Node::AlterOwnerStmt(s) => relation(s.relation()).and_then(|()| named(s.object_type, s.object())),
        Node::RenameStmt(s) => relation(s.relation()).and_then(|()| named(s.rename_type, s.object())),
        Node::AlterObjectSchemaStmt(s) => relation(s.relation()).and_then(|()| named(s.object_type, s.object())),
        Node::CreateFunctionStmt(s) => qualified(&tree::names(s.funcname()).unwrap_or_default()),
        Node::AlterFunctionStmt(s) => qualified(&s.func().and_then(|function| tree::names(function.objname())).unwrap_or_default()),
        Node::GrantStmt(s) => {
            // The objects of other kinds are no relations.
            let has_relations = s.targtype == nodes::GrantTargetType::ACL_TARGET_OBJECT
                && matches!(s.objtype, nodes::ObjectType::OBJECT_TABLE | nodes::ObjectType::OBJECT_SEQUENCE);
            if has_relations { s.objects().iter().try_for_each(|table| relation(Some(table))) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

pub(super) fn relation(relation: Option<&nodes::RangeVar>) -> Result<(), PgError> {
    check(relation.and_then(|relation| relation.schemaname()))
}

fn named(kind: nodes::ObjectType::Type, object: Node<'_>) -> Result<(), PgError> {
    match object {
        Node::ObjectWithArgs(function) => qualified(&tree::names(function.objname()).unwrap_or_default()),
        Node::TypeName(name) => qualified(&name.names().iter().filter_map(nodes::String::sval).collect::<Vec<_>>()),
        Node::String(name) if kind == nodes::ObjectType::OBJECT_SCHEMA => check(name.sval()),
        other => {
            let names = other.as_node_list().and_then(tree::names).unwrap_or_default();
            // Behind the name of a table stands that of its part.
            qualified(if is_part(kind) { names.split_last().map_or(&[], |(_, table)| table) } else { &names })
        }
    }
}

fn is_part(kind: nodes::ObjectType::Type) -> bool {
    use nodes::ObjectType as Kind;
    matches!(
        kind,
        Kind::OBJECT_COLUMN
            | Kind::OBJECT_ATTRIBUTE
            | Kind::OBJECT_TABCONSTRAINT
            | Kind::OBJECT_TRIGGER
            | Kind::OBJECT_RULE
            | Kind::OBJECT_POLICY
    )
}

/// A name with that of its schema before it.
fn qualified(names: &[&str]) -> Result<(), PgError> {
    check(names.first().filter(|_| names.len() > 1).copied())
}

fn check(schema: Option<&str>) -> Result<(), PgError> {
    match schema {
        Some(shardgate_call::SCHEMA) => Err(PgError::unsupported(
            "the schema shardgate cannot be changed",
            "It belongs to the proxy.",
            "Use the functions of the schema.",
        )),
        _ => Ok(()),
    }
}
