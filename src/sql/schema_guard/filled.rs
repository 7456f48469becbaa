//! Columns that ALTER TABLE adds with a default that is evaluated for the rows that are there: each shard would do so for its own.
//!
//! The clock of the transaction is one for all rows of one PostgreSQL, and each shard has its own. What is drawn for each row differs
//! from copy to copy of a reference table. A default that is a string like `'now'` is a time once and for all, another on each shard.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::Place;
use crate::error::PgError;
use crate::sql::clock_literals::is_special_text;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::staging::{is_clock_of_transaction, is_drawn};
use crate::sql::tree;

pub(super) fn guard(alter: &nodes::AlterTableStmt, context: &Context) -> Result<(), PgError> {
    use nodes::AlterTableType as Type;
    let Some(table) = alter.relation() else { return Ok(()) };
    let place = Place::of(table, context);
    if !place.is_distributed() {
        return Ok(());
    }
    let is_reference = matches!(place, Place::Reference);
    let commands = alter.cmds().iter().filter_map(|command| match command {
        Node::AlterTableCmd(command) => Some(command),
        _ => None,
    });
    for command in commands {
        let differs = match (command.subtype, command.def()) {
            (Type::AT_AddColumn, Node::ColumnDef(column)) => {
                let mut own = column.constraints().iter().filter(|constraint| is_default(*constraint)).peekable();
                match own.peek() {
                    Some(_) => own.any(|constraint| fills(constraint, is_reference)),
                    None => type_fills(column, context, is_reference),
                }
            }
            (Type::AT_ColumnDefault, default) => has_time(default),
            (_, _) => false,
        };
        if differs {
            return Err(PgError::unsupported(
                format!(
                    "a default that shards evaluate each for itself cannot be added to distributed table \"{}\"",
                    table.relname().unwrap_or_default()
                ),
                "It reads the clock, or draws another value on every copy of a reference table, and the rows that are there would get it.",
                "Add the column without it, give the values with UPDATE, then: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT.",
            ));
        }
    }
    Ok(())
}

fn is_default(constraint: Node<'_>) -> bool {
    matches!(constraint, Node::Constraint(constraint) if constraint.contype == nodes::ConstrType::CONSTR_DEFAULT)
}

fn fills(constraint: Node<'_>, is_reference: bool) -> bool {
    match constraint {
        Node::Constraint(constraint) => differs(constraint.raw_expr(), is_reference),
        _ => false,
    }
}

/// The default of a domain, which a column has that has none of its own. Any domain of this name may be meant.
fn type_fills(column: &nodes::ColumnDef, context: &Context, is_reference: bool) -> bool {
    let name = column.type_name().and_then(|name| name.names().iter().next_back()?.sval());
    let mut domains = context.catalog.types.values().filter(|known| Some(known.name.as_str()) == name);
    domains.any(|domain| {
        domain.default.as_deref().is_some_and(|default| {
            parse::parse(&format!("SELECT {default}")).map_or(true, |tree| {
                tree.stmts().into_iter().any(|statement| match statement {
                    Node::SelectStmt(select) => select.target_list().iter().any(|target| differs(target.val(), is_reference)),
                    _ => true,
                })
            })
        })
    })
}

fn differs(default: Node<'_>, is_reference: bool) -> bool {
    let mut found = has_time(default);
    tree::walk(default, &mut |node| {
        found |= is_clock_of_transaction(node) || (is_reference && is_drawn(node));
        true
    });
    found
}

/// A string that a column of times would read by the clock.
fn has_time(expression: Node<'_>) -> bool {
    let mut found = false;
    tree::walk(expression, &mut |node| {
        if let Node::A_Const(constant) = node
            && let Some(ConstValue::String(text)) = constant.val()
        {
            found |= is_special_text(text);
        }
        true
    });
    found
}
