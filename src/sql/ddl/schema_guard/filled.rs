//! Columns that ALTER TABLE adds with a default, or gives another type USING an expression, that is evaluated for the rows that are
//! there: each shard would do so for its own.
//!
//! The clock of the transaction is one for all rows of one PostgreSQL, and each shard has its own. What is drawn for each row differs
//! from copy to copy of a reference table. A default that is a string like `'now'` is a time once and for all, another on each shard.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::Place;
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tree;
use crate::sql::query::Reader;
use crate::sql::rewrite::clock_literals::is_special_text;

pub(super) fn guard(alter: &nodes::AlterTableStmt, context: &Context) -> Result<(), PgError> {
    use nodes::AlterTableType as Type;
    let Some(table) = alter.relation() else { return Ok(()) };
    let place = Place::of(table, context);
    if !place.is_distributed() {
        return Ok(());
    }
    let commands = alter.cmds().iter().filter_map(|command| match command {
        Node::AlterTableCmd(command) => Some(command),
        _ => None,
    });
    let values = Values { context, is_copied: matches!(place, Place::Reference) };
    let name = table.relname().unwrap_or_default();
    for command in commands {
        match (command.subtype, command.def()) {
            (Type::AT_AddColumn, Node::ColumnDef(column)) if values.fill(column) => return Err(default_of_its_own(name)),
            (Type::AT_ColumnDefault, default) if has_time(default) => return Err(default_of_its_own(name)),
            (Type::AT_AlterColumnType, Node::ColumnDef(column)) if values.differ(column.raw_default()) => {
                return Err(PgError::unsupported(
                    format!(
                        "values that shards compute each for itself cannot be given to column \"{}\" of distributed table \"{name}\"",
                        command.name().unwrap_or_default()
                    ),
                    "USING reads the clock, the server or other tables, or draws another value on every copy of a reference table.",
                    "Change the type without it, and give the values with UPDATE.",
                ));
            }
            (_, _) => {}
        }
    }
    Ok(())
}

fn default_of_its_own(table: &str) -> PgError {
    PgError::unsupported(
        format!("a default that shards evaluate each for itself cannot be added to distributed table \"{table}\""),
        "It reads the clock, the server or other tables, or draws another value on every copy of a reference table, and the rows that are there would get it.",
        "Add the column without it, give the values with UPDATE, then: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT.",
    )
}

/// What is computed for the rows of a distributed table.
struct Values<'c> {
    context: &'c Context,
    /// Of a reference table.
    is_copied: bool,
}

impl Values<'_> {
    /// A new column's.
    fn fill(&self, column: &nodes::ColumnDef) -> bool {
        let mut own = column.constraints().iter().filter_map(default_of).peekable();
        match own.peek() {
            Some(_) => own.any(|default| self.differ(default)),
            None => self.fill_by_type(column),
        }
    }

    /// The default of a domain, which a column has that has none of its own. Any domain of this name may be meant.
    fn fill_by_type(&self, column: &nodes::ColumnDef) -> bool {
        let name = column.type_name().and_then(|name| name.names().iter().next_back()?.sval());
        let mut domains = self.context.catalog.types.values().filter(|known| Some(known.name.as_str()) == name);
        domains.any(|domain| {
            domain.default.as_deref().is_some_and(|default| {
                parse::parse(&format!("SELECT {default}")).map_or(true, |tree| {
                    tree.stmts().into_iter().any(|statement| match statement {
                        Node::SelectStmt(select) => select.target_list().iter().any(|target| self.differ(target.val())),
                        _ => true,
                    })
                })
            })
        })
    }

    /// Not what one server would compute: another time, another server's answer, other rows, or, of copies, other draws.
    fn differ(&self, expression: Node<'_>) -> bool {
        if has_time(expression) {
            return true;
        }
        let mut reader = Reader::new(self.context, "", &[]);
        let is_read = reader.value_of_rows(expression).is_ok();
        let notes = &reader.notes;
        let reads_elsewhere = notes.touches_anything.is_some()
            || notes.home_reason.is_some()
            || notes.has_system
            || notes.hidden_sharded_table().is_some()
            || !reader.parts.is_empty();
        let is_drawn = self.is_copied && (notes.volatile.is_some() || notes.of_one_copy.is_some());
        !is_read || reads_elsewhere || is_drawn || notes.pushdown.is_some() || notes.refused.is_some()
    }
}

fn default_of(constraint: Node<'_>) -> Option<Node<'_>> {
    match constraint {
        Node::Constraint(constraint) if constraint.contype == nodes::ConstrType::CONSTR_DEFAULT => Some(constraint.raw_expr()),
        _ => None,
    }
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
