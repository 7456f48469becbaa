//! Columns that ALTER TABLE adds with a default, or gives another type USING an expression, that is evaluated for the rows that are
//! there: each shard would do so for its own.
//!
//! The clock of the transaction is one for all rows of one PostgreSQL, and each shard has its own. What is drawn for each row differs
//! from copy to copy of a reference table. A default that is a string like `'now'` is a time once and for all, another on each shard.
//!
//! A default that reads the transaction's clock and nothing else of the kind is known before it is evaluated: the column is added with
//! the time as a constant, and gets its default afterwards ([`TimedColumns`]).

use std::ops::Range;

use pg_raw_parse::{ConstValue, Node, nodes};

use super::Place;
use super::altered::altered_sequences;
use super::numbered::{commands, distributed, numbered_columns};
use crate::catalog::{quoted_identifier, quoted_literal, quoted_name};
use crate::error::PgError;
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;
use crate::sql::query::Reader;
use crate::sql::rewrite::clock;
use crate::sql::rewrite::clock_literals::is_special_text;

/// Columns that an ALTER TABLE adds to a distributed table, and whose defaults read the clock of the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedColumns {
    /// As SQL, with its schema.
    table: String,
    /// At least one.
    columns: Vec<TimedColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TimedColumn {
    name: String,
    /// Where its default stands in the statement's text.
    place: Range<usize>,
    default: String,
}

impl TimedColumns {
    /// What makes it the statement with the time in place of the clocks of its defaults. `value`: as in [`clock::fixed`].
    pub fn at_once(&self, context: &Context, value: &dyn Fn(&str) -> String) -> Result<Vec<Splice>, PgError> {
        self.columns.iter().map(|column| column.splice(context, value)).collect()
    }

    /// A query: the names of those that are there. The table's own name may be unknown.
    pub fn that_exist(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| quoted_literal(&column.name)).collect();
        format!(
            "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass({}) \
             AND NOT attisdropped AND attname OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.name[])",
            quoted_literal(&self.table),
            names.join(", ")
        )
    }

    /// What gives them their defaults; `None`: all of them were there before.
    pub fn with_defaults(&self, existed: &[impl AsRef<[u8]>]) -> Option<String> {
        let is_new = |column: &&TimedColumn| !existed.iter().any(|name| name.as_ref() == column.name.as_bytes());
        let added = self.columns.iter().filter(is_new);
        let set = |column: &TimedColumn| format!("ALTER COLUMN {} SET DEFAULT {}", quoted_identifier(&column.name), column.default);
        let commands: Vec<String> = added.map(set).collect();
        (!commands.is_empty()).then(|| format!("ALTER TABLE {} {}", self.table, commands.join(", ")))
    }
}

impl TimedColumn {
    fn splice(&self, context: &Context, value: &dyn Fn(&str) -> String) -> Result<Splice, PgError> {
        let fixed = clock::fixed_in_default(&self.default, context, value)?.ok_or_else(clock::not_replaced)?;
        Ok(Splice { start: self.place.start, end: self.place.end, text: format!("({fixed})") })
    }
}

/// Those of this statement, if the time can be given to all that would need it. `text`: of the statement alone.
pub fn timed_columns(node: Node<'_>, text: &str, context: &Context) -> Option<TimedColumns> {
    let Node::AlterTableStmt(alter) = node else { return None };
    let (relation, is_copied) = distributed(alter.relation()?, context)?;
    let values = Values { context, is_copied };
    let tokens = Tokens::of(text);
    let last = if tokens.piece(tokens.count().checked_sub(1)?) == ";" { tokens.count() - 1 } else { tokens.count() };
    let elements = tokens.elements(0, last)?;
    let mut columns = Vec::new();
    for (command, (first, end)) in commands(alter).zip(&elements) {
        if let (nodes::AlterTableType::AT_AddColumn, Node::ColumnDef(column)) = (command.subtype, command.def())
            && values.fill(column)
        {
            columns.push(values.timed(column, &tokens, *first, *end)?);
        }
    }
    let is_of_other =
        |command: &nodes::AlterTableCmd| command.name().is_none_or(|name| columns.iter().all(|known| known.name != name));
    let is_plain = commands(alter).count() == elements.len()
        && commands(alter).all(is_of_other)
        && numbered_columns(node, context).is_none()
        && altered_sequences(node, context).is_none();
    let table = quoted_name(&relation.schema, &relation.name);
    (!columns.is_empty() && is_plain).then_some(TimedColumns { table, columns })
}

/// `text`: of the statement alone.
pub(super) fn guard(node: Node<'_>, alter: &nodes::AlterTableStmt, text: &str, context: &Context) -> Result<(), PgError> {
    use nodes::AlterTableType as Type;
    let Some(table) = alter.relation() else { return Ok(()) };
    let place = Place::of(table, context);
    if !place.is_distributed() {
        return Ok(());
    }
    let values = Values { context, is_copied: matches!(place, Place::Reference) };
    let name = table.relname().unwrap_or_default();
    for command in commands(alter) {
        match (command.subtype, command.def()) {
            (Type::AT_AddColumn, Node::ColumnDef(column)) if values.fill(column) => {
                if timed_columns(node, text, context).is_none() {
                    return Err(default_of_its_own(name));
                }
            }
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

    /// A new column whose default is one value for all once the time is; `None`: it is not. The statement's tokens of this column are
    /// given.
    fn timed(&self, column: &nodes::ColumnDef, tokens: &Tokens<'_>, first: usize, last: usize) -> Option<TimedColumn> {
        let mut own = column.constraints().iter().filter_map(default_of);
        let is_special = own.next().is_none_or(has_time) || own.next().is_some();
        let word = tokens.word_at_top(first, &["default"]).filter(|word| *word < last && !is_special)?;
        let end = tokens.word_at_top(word + 1, &COLUMN_CONSTRAINTS).map_or(last, |next| last.min(next - 1));
        let place = tokens.range(word + 1, end)?;
        let timed =
            TimedColumn { name: column.colname()?.to_owned(), default: tokens.text().get(place.clone())?.to_owned(), place };
        let example = timed.splice(self.context, &|_| "2000-01-01 00:00:00+00".to_owned()).ok()?;
        let is_known = |text: &str| self.all_values(text, |value| !self.differ(value));
        (self.all_values(&timed.default, |_| true) && is_known(&example.text)).then_some(timed)
    }

    /// Does this hold of the expression with this text?
    fn all_values(&self, text: &str, holds: impl Fn(Node<'_>) -> bool) -> bool {
        parse::parse(&format!("SELECT {text}")).is_ok_and(|tree| {
            tree.stmts().all(|statement| match statement {
                Node::SelectStmt(select) => select.target_list().iter().all(|target| holds(target.val())),
                _ => false,
            })
        })
    }

    /// The default of a domain, which a column has that has none of its own. Any domain of this name may be meant.
    fn fill_by_type(&self, column: &nodes::ColumnDef) -> bool {
        let name = column.type_name().and_then(|name| name.names().iter().next_back()?.sval());
        let mut domains = self.context.catalog.types.values().filter(|known| Some(known.name.as_str()) == name);
        domains
            .any(|domain| domain.default.as_deref().is_some_and(|default| !self.all_values(default, |value| !self.differ(value))))
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

/// What follows a default.
const COLUMN_CONSTRAINTS: [&str; 11] =
    ["not", "null", "check", "unique", "primary", "references", "constraint", "generated", "default", "deferrable", "initially"];
