//! What a schema change computes for the rows that are there, and what an event trigger does: on each shard, by what that shard has.
//!
//! A default, a USING, a generated column, a check, an index expression that calls a function over a sharded table would be computed by
//! the home shard's part of its rows, and stored. An event trigger fires on every shard: what it writes is written as often, and a
//! notification keeps the change from being committed. Of distributed tables the other guards speak. With one shard all of it is as in
//! PostgreSQL.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::Place;
use crate::catalog::{Closure, DependencyTarget, DependentKind, Function, Oid, References, Relation, RelationKind, SchemaEffect};
use crate::error::PgError;
use crate::sql::body::{self, SqlBodyReader};
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, placed, resolve};
use crate::sql::utility::shardgate_call;

/// `text`: of the statement alone.
pub(super) fn guard(node: Node<'_>, text: &str, context: &Context) -> Result<(), PgError> {
    if context.map.shards.len() < 2 {
        return Ok(());
    }
    match node {
        Node::AlterTableStmt(alter) if is_elsewhere(alter.relation(), context) => {
            alter.cmds().iter().try_for_each(|command| match command {
                Node::AlterTableCmd(command) => altered(command, alter.relation(), text, context),
                _ => Ok(()),
            })
        }
        Node::IndexStmt(index) if is_elsewhere(index.relation(), context) => {
            let expressions = index.index_params().iter().map(|element| element.expr());
            expressions.chain([index.where_clause()]).try_for_each(|expression| computed(expression, text, OF_VALUES, context))
        }
        Node::AlterDomainStmt(alter) => match alter.def() {
            Node::Constraint(check) if !check.skip_validation => computed(check.raw_expr(), text, OF_VALUES, context),
            Node::None if u8::try_from(alter.subtype) == Ok(b'V') => validated_domain(alter.type_name(), context),
            _ => Ok(()),
        },
        Node::CreateEventTrigStmt(create) => event_trigger(create, context),
        _ => Ok(()),
    }
}

/// A home table, or one that is not known yet.
fn is_elsewhere(table: Option<&nodes::RangeVar>, context: &Context) -> bool {
    table.is_some_and(|table| !Place::of(table, context).is_distributed())
}

fn altered(command: &nodes::AlterTableCmd, table: Option<&nodes::RangeVar>, text: &str, context: &Context) -> Result<(), PgError> {
    use nodes::AlterTableType as Type;
    match (command.subtype, command.def()) {
        (Type::AT_AddColumn, Node::ColumnDef(column)) => column.constraints().iter().try_for_each(|constraint| match constraint {
            Node::Constraint(constraint) => {
                let is_default = constraint.contype == nodes::ConstrType::CONSTR_DEFAULT;
                computed(constraint.raw_expr(), text, if is_default { BY_UPDATE } else { OF_VALUES }, context)
            }
            _ => Ok(()),
        }),
        (Type::AT_AlterColumnType, Node::ColumnDef(column)) => computed(column.raw_default(), text, BY_UPDATE, context),
        (Type::AT_AddConstraint, Node::Constraint(check)) if !check.skip_validation => {
            computed(check.raw_expr(), text, OF_VALUES, context)
        }
        (Type::AT_SetExpression, expression) => computed(expression, text, OF_VALUES, context),
        (Type::AT_ValidateConstraint, _) => {
            let relation = table.and_then(|table| resolve(context, table, &context.search_path).table());
            relation.zip(command.name()).map_or(Ok(()), |(relation, name)| validated(relation, name, context))
        }
        (_, _) => Ok(()),
    }
}

fn validated(relation: &Relation, name: &str, context: &Context) -> Result<(), PgError> {
    let dependencies = context.catalog.relation_dependencies.get(&relation.oid).into_iter().flatten();
    let of_check = dependencies.filter(|dependency| dependency.of == DependentKind::Check && dependency.name == name);
    of_check.into_iter().try_for_each(|dependency| match dependency.on {
        DependencyTarget::Function(oid) => {
            context.catalog.functions.get(&oid).map_or(Ok(()), |called| refuse(called, OF_VALUES, context))
        }
        DependencyTarget::Relation(_) => Ok(()),
    })
}

fn validated_domain(name: &NodeList, context: &Context) -> Result<(), PgError> {
    let name = tree::names(name).and_then(|names| names.last().copied()).unwrap_or_default();
    let functions = context.catalog.type_functions.get(name).into_iter().flatten();
    functions.filter_map(|oid| context.catalog.functions.get(oid)).try_for_each(|called| refuse(called, OF_VALUES, context))
}

/// Any function of a name that the expression calls may be meant.
fn computed(expression: Node<'_>, text: &str, hint: &str, context: &Context) -> Result<(), PgError> {
    if matches!(expression, Node::None) || context.catalog.functions.is_empty() {
        return Ok(());
    }
    let catalog = &context.catalog;
    for name in body::references_of_expression(expression, text).functions {
        let all = catalog.function_names.get(&name.name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
        let is_meant = |function: &&Function| match &name.schema {
            Some(schema) => function.schema == *schema,
            None => function.built_in.is_empty() && context.search_path.contains(&function.schema),
        };
        all.filter(is_meant).try_for_each(|called| refuse(called, hint, context))?;
    }
    Ok(())
}

const BY_UPDATE: &str = "Give the values with UPDATE. A default is set afterwards: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT.";
const OF_VALUES: &str = "Let it compute by the values that it is given, or read reference tables only.";

fn refuse(function: &Function, hint: &str, context: &Context) -> Result<(), PgError> {
    let (detail, hint) = match &*context.catalog.closure_of_function(function.oid, &SqlBodyReader) {
        Closure::Known(references) => {
            let mut touched =
                references.reads.iter().chain(&references.writes).filter_map(|oid| context.catalog.relations.get(oid));
            match touched.find(|relation| matches!(placed(context, relation, true), Resolved::Sharded { .. })) {
                Some(table) => (
                    format!("Function \"{}\" touches table \"{}\", whose rows are on several shards.", function.name, table.name),
                    hint.to_owned(),
                ),
                None => return Ok(()),
            }
        }
        // Its owner says that it reads no table.
        Closure::Unknown(_) if function.volatility == 'i' || touches_nothing(function, context) => return Ok(()),
        Closure::Unknown(why) => (format!("What it touches is not known: {why}."), if_it_touches_nothing(function, context)),
    };
    Err(PgError::unsupported(
        format!("a schema change that calls function \"{}\" for the rows of a table is not supported", function.name),
        detail,
        hint,
    ))
}

/// As it was declared.
fn touches_nothing(function: &Function, context: &Context) -> bool {
    context.declared(function).is_some_and(|declared| declared.reads.is_empty() && declared.writes.is_empty())
}

fn if_it_touches_nothing(function: &Function, context: &Context) -> String {
    let declaration = shardgate_call::declaration(&context.catalog, function, &References::default(), None);
    format!("If it touches no tables, say so first: {declaration}")
}

fn event_trigger(create: &nodes::CreateEventTrigStmt, context: &Context) -> Result<(), PgError> {
    let names = tree::names(create.funcname()).unwrap_or_default();
    let (schema, name) = match names.as_slice() {
        [name] => (None, *name),
        [schema, name] => (Some(*schema), *name),
        _ => return Ok(()),
    };
    let catalog = &context.catalog;
    let all = catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    let is_meant = |function: &Function| match schema {
        Some(schema) => function.schema == schema,
        None => context.search_path.contains(&function.schema),
    };
    let is_of_schema = |function: &Function| {
        let effect = catalog.function_changes_schema(function.oid, &SqlBodyReader);
        effect.is_some_and(|(effect, _)| effect == SchemaEffect::Changes)
    };
    for function in all.filter(|function| is_meant(function)) {
        if catalog.function_notifies(function.oid, &SqlBodyReader) {
            return Err(PgError::unsupported(
                "an event trigger that sends notifications is not supported",
                "It fires on every shard, and what has notified on several shards cannot be committed on all of them at once.",
                "Let the tool that changes the schema notify afterwards.",
            ));
        }
        let (detail, hint) = match &*catalog.closure_of_function(function.oid, &SqlBodyReader) {
            Closure::Known(references) => {
                let is_copied = |oid: &Oid| {
                    let relation = catalog.relations.get(oid);
                    relation.is_some_and(|relation| matches!(placed(context, relation, true), Resolved::Reference(_)))
                };
                let mut touched = references.writes.iter().chain(references.reads.iter().filter(|oid| !is_copied(oid)));
                let Some(relation) = touched.find_map(|oid| catalog.relations.get(oid)) else { continue };
                let what = if relation.kind == RelationKind::Sequence { "sequence" } else { "table" };
                (
                    format!(
                        "Its function \"{}\" touches {what} \"{}\", and would do so on each of them.",
                        function.name, relation.name
                    ),
                    "Note schema changes where they are made, by the tool that makes them; or let the function only raise."
                        .to_owned(),
                )
            }
            Closure::Unknown(_) if touches_nothing(function, context) => continue,
            // It makes schema changes of its own, on every shard as it fires there.
            Closure::Unknown(_) if is_of_schema(function) => continue,
            Closure::Unknown(why) => {
                (format!("What its function touches is not known: {why}."), if_it_touches_nothing(function, context))
            }
        };
        return Err(PgError::unsupported("an event trigger that may touch tables on every shard is not supported", detail, hint));
    }
    Ok(())
}
