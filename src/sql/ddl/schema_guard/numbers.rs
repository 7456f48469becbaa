//! Schema changes that would number rows twice: of sequences that the whole cluster draws from, and columns that each shard would
//! number by itself.

use pg_raw_parse::{Node, nodes};

use super::{altered, numbered};
use crate::catalog::SequenceName;
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::resolve;
use crate::sql::rewrite::drawing;

pub(super) fn guard(node: Node<'_>, context: &Context) -> Result<(), PgError> {
    check_unique_defaults(node, context)?;
    match node {
        Node::AlterSeqStmt(alter) => altered::guard_sequence(alter, context),
        Node::RenameStmt(rename) => refuse_renamed(rename.relation(), context),
        Node::AlterObjectSchemaStmt(alter) => refuse_renamed(alter.relation(), context),
        Node::AlterTableStmt(alter) => numbered::guard(alter, context),
        _ => Ok(()),
    }
}

/// DEFAULT of a column. A shard has no unique ids: the proxy gives them to the rows to come, and to nothing that computes with them.
fn check_unique_defaults(node: Node<'_>, context: &Context) -> Result<(), PgError> {
    match node {
        Node::CreateStmt(create) => create.table_elts().iter().try_for_each(|element| match element {
            Node::ColumnDef(column) => default_of(column).map_or(Ok(()), |default| check_is_alone(default, context)),
            _ => Ok(()),
        }),
        Node::AlterTableStmt(alter) => alter.cmds().iter().try_for_each(|command| match command {
            Node::AlterTableCmd(command) => match (command.subtype, command.def()) {
                // The rows that are there would get theirs from the shards.
                (nodes::AlterTableType::AT_AddColumn, Node::ColumnDef(column))
                    if default_of(column).is_some_and(|default| gives_unique_ids(default, context)) =>
                {
                    Err(unique_default("The rows that are there would get values too, and the shards have none."))
                }
                (nodes::AlterTableType::AT_ColumnDefault, default) => check_is_alone(default, context),
                (_, _) => Ok(()),
            },
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn default_of(column: &nodes::ColumnDef) -> Option<Node<'_>> {
    column.constraints().iter().find_map(|constraint| match constraint {
        Node::Constraint(constraint) if constraint.contype == nodes::ConstrType::CONSTR_DEFAULT => Some(constraint.raw_expr()),
        _ => None,
    })
}

fn check_is_alone(default: Node<'_>, context: &Context) -> Result<(), PgError> {
    match default {
        Node::FuncCall(call) if drawing::is_unique_id(call, context) => Ok(()),
        default if gives_unique_ids(default, context) => {
            Err(unique_default("The proxy gives the number itself, and computes nothing with it."))
        }
        _ => Ok(()),
    }
}

fn gives_unique_ids(expression: Node<'_>, context: &Context) -> bool {
    let mut found = false;
    tree::walk(expression, &mut |node| {
        found |= matches!(node, Node::FuncCall(call) if drawing::is_unique_id(call, context));
        true
    });
    found
}

fn unique_default(detail: &str) -> PgError {
    PgError::unsupported(
        "this default with shardgate.unique_id() is not supported",
        detail,
        "Add the column without it, then: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT shardgate.unique_id().",
    )
}

pub(super) fn declared(name: &nodes::RangeVar, context: &Context) -> Option<SequenceName> {
    let found = resolve(context, name, &context.search_path).table()?;
    let sequence = (found.schema.clone(), found.name.clone());
    context.map.sequences.contains_key(&sequence).then_some(sequence)
}

fn refuse_renamed(name: Option<&nodes::RangeVar>, context: &Context) -> Result<(), PgError> {
    match name.and_then(|name| declared(name, context)) {
        Some((_, name)) => Err(PgError::unsupported(
            format!("sequence \"{name}\" cannot be renamed or moved to another schema"),
            "It is a sequence of the whole cluster, and the shard map knows it by its name.",
            "Leave its name; it may be used for any column.",
        )),
        None => Ok(()),
    }
}
