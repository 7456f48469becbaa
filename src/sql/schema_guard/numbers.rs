//! Schema changes that would number rows twice: of sequences that the whole cluster draws from, and columns that each shard would
//! number by itself.

use pg_raw_parse::{Node, nodes};

use super::Place;
use crate::catalog::SequenceName;
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::{drawing, tree};

pub(super) fn guard(node: Node<'_>, context: &Context) -> Result<(), PgError> {
    refuse_unique_defaults(node, context)?;
    match node {
        Node::AlterSeqStmt(alter) => match alter.sequence().and_then(|name| declared(name, context)) {
            Some((_, name)) => Err(altered(&name)),
            None => Ok(()),
        },
        Node::RenameStmt(rename) => refuse_renamed(rename.relation(), context),
        Node::AlterObjectSchemaStmt(alter) => refuse_renamed(alter.relation(), context),
        Node::AlterTableStmt(alter) => {
            let Some(table) = alter.relation() else { return Ok(()) };
            let is_distributed = Place::of(table, context).is_distributed();
            let mut commands = alter.cmds().iter().filter_map(|command| match command {
                Node::AlterTableCmd(command) => Some(command),
                _ => None,
            });
            match commands.find(|command| is_distributed && numbers_by_shard(command)) {
                Some(_) => Err(numbered_by_shard(table.relname().unwrap_or_default())),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// DEFAULT of a column. A shard has no unique ids: rows that it makes itself would have none.
fn refuse_unique_defaults(node: Node<'_>, context: &Context) -> Result<(), PgError> {
    let mut defaults = Vec::new();
    let mut add_column = |column: Node<'_>| {
        let Node::ColumnDef(column) = column else { return };
        for constraint in column.constraints() {
            if let Node::Constraint(constraint) = constraint
                && constraint.contype == nodes::ConstrType::CONSTR_DEFAULT
            {
                defaults.push(gives_unique_ids(constraint.raw_expr(), context));
            }
        }
    };
    match node {
        Node::CreateStmt(create) => create.table_elts().iter().for_each(add_column),
        Node::AlterTableStmt(alter) => {
            for command in alter.cmds() {
                match command {
                    Node::AlterTableCmd(command) if command.subtype == nodes::AlterTableType::AT_AddColumn => {
                        add_column(command.def())
                    }
                    Node::AlterTableCmd(command)
                        if command.subtype == nodes::AlterTableType::AT_ColumnDefault
                            && gives_unique_ids(command.def(), context) =>
                    {
                        return Err(unique_default());
                    }
                    _ => {}
                }
            }
        }
        _ => return Ok(()),
    }
    if defaults.contains(&true) { Err(unique_default()) } else { Ok(()) }
}

fn gives_unique_ids(expression: Node<'_>, context: &Context) -> bool {
    let mut found = false;
    tree::walk(expression, &mut |node| {
        found |= matches!(node, Node::FuncCall(call) if drawing::is_unique_id(call, context));
        true
    });
    found
}

fn unique_default() -> PgError {
    PgError::unsupported(
        "shardgate.unique_id() is not supported as a default",
        "The proxy gives its numbers; rows that a shard makes by itself (triggers, INSERT ... SELECT) would have none.",
        "Give it in VALUES, or use bigserial: distributed tables number their rows over the whole cluster.",
    )
}

fn declared(name: &nodes::RangeVar, context: &Context) -> Option<SequenceName> {
    let found = context.catalog.resolve(name.schemaname(), name.relname()?, &context.search_path)?;
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

fn altered(name: &str) -> PgError {
    PgError::unsupported(
        format!("ALTER SEQUENCE of \"{name}\" is not supported"),
        "It is a sequence of the whole cluster, whose numbers the proxies give in blocks.",
        format!("To set it: SELECT setval('{name}', 123)."),
    )
}

/// Does the command give rows, those that are there among them, numbers of each shard's own?
fn numbers_by_shard(command: &nodes::AlterTableCmd) -> bool {
    use nodes::AlterTableType as Type;
    match command.subtype {
        Type::AT_AddIdentity => true,
        Type::AT_ColumnDefault => draws(command.def()),
        Type::AT_AddColumn => match command.def() {
            Node::ColumnDef(column) => is_serial(column) || column.constraints().iter().any(is_numbering),
            _ => false,
        },
        _ => false,
    }
}

fn is_numbering(constraint: Node<'_>) -> bool {
    match constraint {
        Node::Constraint(constraint) => match constraint.contype {
            nodes::ConstrType::CONSTR_IDENTITY => true,
            nodes::ConstrType::CONSTR_DEFAULT => draws(constraint.raw_expr()),
            _ => false,
        },
        _ => false,
    }
}

fn is_serial(column: &nodes::ColumnDef) -> bool {
    let names: Vec<&str> =
        column.type_name().map(|name| name.names().iter().filter_map(|part| part.sval()).collect()).unwrap_or_default();
    matches!(names.as_slice(), ["serial" | "bigserial" | "smallserial" | "serial2" | "serial4" | "serial8"])
}

fn draws(expression: Node<'_>) -> bool {
    let mut found = false;
    tree::walk(expression, &mut |node| {
        if let Node::FuncCall(call) = node {
            found |= tree::names(call.funcname()).is_some_and(|names| names.last() == Some(&"nextval"));
        }
        true
    });
    found
}

fn numbered_by_shard(table: &str) -> PgError {
    PgError::unsupported(
        format!("a column that numbers rows cannot be added to distributed table \"{table}\""),
        "Each shard would number its own rows, with the same numbers as the others.",
        "Add a plain column, and give its values: SELECT shardgate.unique_id(), or SELECT nextval() of another table's sequence.",
    )
}
