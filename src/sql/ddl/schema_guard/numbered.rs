//! Columns that number rows, and are added to a distributed table, or begin to: which can be, and what has to be known of them.
//!
//! Each shard numbers its own rows by a sequence of its own, and the session makes one sequence of these, so that a column is
//! added as PostgreSQL adds it and by nothing else in the same statement: what changes its numbers or takes its default away again
//! would come before that.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::altered;
use crate::catalog::{Column, Relation, SequenceName};
use crate::error::{PgError, SqlState};
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve};

/// Of one ALTER TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedColumns {
    /// (schema, name).
    pub table: SequenceName,
    /// In the order in which they are added; at least one.
    pub columns: Vec<String>,
    /// Each shard has a copy of the rows, in an order of its own.
    pub is_reference: bool,
}

/// Those that this statement adds to a distributed table. Which of them are there already, IF NOT EXISTS, its shards know: the
/// transaction may have dropped one.
pub fn numbered_columns(node: Node<'_>, context: &Context) -> Option<NumberedColumns> {
    let Node::AlterTableStmt(alter) = node else { return None };
    let (relation, is_reference) = distributed(alter.relation()?, context)?;
    let columns: Vec<String> = commands(alter)
        .filter_map(|command| match (command.subtype, command.def()) {
            (nodes::AlterTableType::AT_AddColumn, Node::ColumnDef(column)) if source(column) != Source::None => column.colname(),
            (nodes::AlterTableType::AT_AddIdentity, _) => command.name(),
            (_, _) => None,
        })
        .map(str::to_owned)
        .collect();
    let table = (relation.schema.clone(), relation.name.clone());
    (!columns.is_empty()).then_some(NumberedColumns { table, columns, is_reference })
}

/// Refuses what would number the rows of a distributed table twice.
pub(super) fn guard(alter: &nodes::AlterTableStmt, context: &Context) -> Result<(), PgError> {
    let Some((relation, _)) = alter.relation().and_then(|name| distributed(name, context)) else { return Ok(()) };
    for command in commands(alter) {
        let identity = relation.columns.iter().find(|column| Some(column.name.as_str()) == command.name());
        if let Some(column) = identity.filter(|column| column.identity.is_some() && column.cluster_sequence().is_some()) {
            check_identity(command, column, relation)?;
        }
        if command.subtype == nodes::AlterTableType::AT_ColumnDefault && draws(command.def()) {
            return Err(refused(relation, NUMBERED_LATER));
        }
    }
    altered::guard_table(alter, relation)?;
    let sources: Vec<_> = added(alter).map(source).chain(identities_of_columns(alter)).collect();
    if sources.contains(&Source::Expression) {
        return Err(refused(relation, OTHER_SEQUENCE));
    }
    if sources.iter().all(|source| *source == Source::None) {
        return Ok(());
    }
    if sources.contains(&Source::Identity { is_plain: false }) {
        return Err(refused(relation, SET_BACK));
    }
    if !relation.children.is_empty() && sources.contains(&Source::Identity { is_plain: true }) {
        return Err(refused(relation, IN_CHILDREN));
    }
    let is_alone = |command: &nodes::AlterTableCmd| {
        use nodes::AlterTableType as Type;
        matches!(command.subtype, Type::AT_AddColumn | Type::AT_AddConstraint | Type::AT_AddIdentity)
    };
    if !commands(alter).all(is_alone) || added(alter).any(is_generated) {
        return Err(refused(relation, TOGETHER));
    }
    Ok(())
}

/// ALTER COLUMN ... ADD GENERATED ... AS IDENTITY: the rows that are there keep what they have.
fn identities_of_columns(alter: &nodes::AlterTableStmt) -> impl Iterator<Item = Source> {
    commands(alter).filter_map(|command| match (command.subtype, command.def()) {
        (nodes::AlterTableType::AT_AddIdentity, Node::Constraint(constraint)) => {
            Some(Source::Identity { is_plain: !is_set_back(constraint.options()) })
        }
        (_, _) => None,
    })
}

/// On the shards it is a column with a default, and would be changed like one.
fn check_identity(command: &nodes::AlterTableCmd, column: &Column, relation: &Relation) -> Result<(), PgError> {
    let is_identity = || {
        PgError::new(
            SqlState::SYNTAX_ERROR,
            format!("column \"{}\" of relation \"{}\" is an identity column", column.name, relation.name),
        )
    };
    match command.subtype {
        nodes::AlterTableType::AT_ColumnDefault if matches!(command.def(), Node::None) => {
            Err(is_identity().with_hint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead."))
        }
        nodes::AlterTableType::AT_ColumnDefault | nodes::AlterTableType::AT_DropNotNull => Err(is_identity()),
        _ => Ok(()),
    }
}

/// Where the values of a new column come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Not from a sequence.
    None,
    Serial,
    /// Not `is_plain`: its numbers do not follow one another from the start on.
    Identity {
        is_plain: bool,
    },
    /// A default with `nextval`.
    Expression,
}

fn source(column: &nodes::ColumnDef) -> Source {
    let names: Vec<&str> =
        column.type_name().map(|name| name.names().iter().filter_map(|part| part.sval()).collect()).unwrap_or_default();
    if matches!(names.as_slice(), ["serial" | "bigserial" | "smallserial" | "serial2" | "serial4" | "serial8"]) {
        return Source::Serial;
    }
    let constraints = column.constraints().iter().filter_map(|constraint| match constraint {
        Node::Constraint(constraint) => Some(constraint),
        _ => None,
    });
    constraints.fold(Source::None, |found, constraint| match constraint.contype {
        nodes::ConstrType::CONSTR_IDENTITY => Source::Identity { is_plain: !is_set_back(constraint.options()) },
        nodes::ConstrType::CONSTR_DEFAULT if draws(constraint.raw_expr()) => Source::Expression,
        _ => found,
    })
}

/// RESTART and CYCLE.
fn is_set_back(options: &NodeList) -> bool {
    options.iter().any(|option| match option {
        Node::DefElem(option) => {
            let is_off = matches!(option.arg(), Node::Boolean(value) if !value.boolval);
            matches!(option.defname(), Some("restart" | "cycle")) && !is_off
        }
        _ => true,
    })
}

fn is_generated(column: &nodes::ColumnDef) -> bool {
    column.constraints().iter().any(
        |constraint| matches!(constraint, Node::Constraint(constraint) if constraint.contype == nodes::ConstrType::CONSTR_GENERATED),
    )
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

pub(super) fn distributed<'c>(name: &nodes::RangeVar, context: &'c Context) -> Option<(&'c Relation, bool)> {
    match resolve(context, name, &context.search_path) {
        Resolved::Sharded { relation, .. } => Some((relation, false)),
        Resolved::Reference(relation) => Some((relation, true)),
        Resolved::Home(_) | Resolved::View(_) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => {
            None
        }
    }
}

pub(super) fn commands(alter: &nodes::AlterTableStmt) -> impl Iterator<Item = &nodes::AlterTableCmd> {
    alter.cmds().iter().filter_map(|command| match command {
        Node::AlterTableCmd(command) => Some(command),
        _ => None,
    })
}

fn added(alter: &nodes::AlterTableStmt) -> impl Iterator<Item = &nodes::ColumnDef> {
    commands(alter).filter_map(|command| match (command.subtype, command.def()) {
        (nodes::AlterTableType::AT_AddColumn, Node::ColumnDef(column)) => Some(column),
        (_, _) => None,
    })
}

/// DETAIL and HINT.
type Reason = (&'static str, &'static str);

fn refused(relation: &Relation, (detail, hint): Reason) -> PgError {
    PgError::unsupported(
        format!("this change of the columns that number the rows of distributed table \"{}\" is not supported", relation.name),
        detail,
        hint,
    )
}

const NUMBERED_LATER: Reason = (
    "A column that is there already would be numbered by each shard for itself.",
    "Give it a sequence of its own: ALTER TABLE ... ALTER COLUMN ... ADD GENERATED BY DEFAULT AS IDENTITY.",
);
const OTHER_SEQUENCE: Reason = (
    "The rows that are there would be numbered by a sequence that each shard has for itself.",
    "Let the column have a sequence of its own: ALTER TABLE ... ADD COLUMN ... bigserial, or GENERATED ... AS IDENTITY.",
);
const SET_BACK: Reason = (
    "With RESTART or CYCLE the numbers of the rows that are there would not follow one another.",
    "Leave them out; START WITH says what the first number is.",
);
const IN_CHILDREN: Reason =
    ("An identity column cannot be added to a table with partitions or children.", "Add the column as bigserial.");
const TOGETHER: Reason = (
    "A column that numbers rows is added together with a generated column, or with other changes of the table.",
    "Add it by an ALTER TABLE of its own, which may add other columns and constraints.",
);
