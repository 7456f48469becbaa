//! CREATE TRIGGER and CREATE RULE on a distributed table, and INSTEAD OF triggers: one that would have the writes refused is refused
//! itself.

use pg_raw_parse::nodes;

use super::stops::{Kind, Stopped, Used, Uses, changed, remedy, stops};
use crate::catalog::{Closure, Function, Trigger, TriggerEvents, quoted_literal, shown_name};
use crate::error::PgError;
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::parse::tree;

/// `text`: of the statement alone.
pub(super) fn guard(create: &nodes::CreateTrigStmt, text: &str, context: &Context) -> Result<(), PgError> {
    let Some(used) = Used::named(create.relation(), context) else { return Ok(()) };
    // A function that is not known PostgreSQL refuses.
    let Some(function) = function_of(create, context) else { return Ok(()) };
    let trigger = trigger_of(create, text, function);
    let with = changed(context, |catalog| {
        if let Some(changed) = catalog.relations.get_mut(&used.relation.oid) {
            changed.triggers.retain(|known| known.name != trigger.name);
            changed.triggers.push(trigger.clone());
        }
    });
    let columns: Vec<&str> = create.columns().iter().filter_map(|column| column.as_str()).collect();
    let uses = Uses { columns: &columns, ..Uses::writes(trigger.fires_on) };
    match used.stopped(&uses, &with, context) {
        None => Ok(()),
        Some(stopped) => {
            let hint = way_out(&trigger, function, &used, &stopped, context);
            Err(stops(&format!("trigger \"{}\"", trigger.name), &used, stopped, hint))
        }
    }
}

/// What a rule makes of a statement is not read. Of the statements that it is not for nothing is said.
pub(super) fn guard_rule(rule: &nodes::RuleStmt, context: &Context) -> Result<(), PgError> {
    let relation = match Used::named(rule.relation(), context) {
        Some(Used { relation, kind: Kind::Sharded(_) | Kind::Reference }) => relation,
        Some(Used { kind: Kind::View, .. }) | None => return Ok(()),
    };
    let verb = match rule.event {
        nodes::CmdType::CMD_INSERT => "INSERT",
        nodes::CmdType::CMD_UPDATE => "UPDATE",
        nodes::CmdType::CMD_DELETE => "DELETE",
        // PostgreSQL has it for views only.
        _ => return Ok(()),
    };
    Err(PgError::unsupported(
        "rules on distributed tables are not supported",
        format!(
            "A rule rewrites statements, each of which may then concern rows of other shards: {verb} on table \"{}\" would be refused.",
            relation.name
        ),
        "Use a trigger, or let the application send the other statement.",
    ))
}

fn function_of<'c>(create: &nodes::CreateTrigStmt, context: &'c Context) -> Option<&'c Function> {
    let names = tree::names(create.funcname())?;
    let (schema, name) = match names.as_slice() {
        [name] => (None, *name),
        [schema, name] => (Some(*schema), *name),
        _ => return None,
    };
    let catalog = &context.catalog;
    let found = || catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    match schema {
        Some(schema) => found().find(|function| function.schema == schema),
        None => context.search_path.iter().find_map(|schema| found().find(|function| function.schema == *schema)),
    }
}

fn trigger_of(create: &nodes::CreateTrigStmt, text: &str, function: &Function) -> Trigger {
    let fires = |event| create.events & event != 0;
    Trigger {
        name: create.trigname().unwrap_or_default().to_owned(),
        function: function.oid,
        is_before: create.timing & BEFORE != 0,
        is_row: create.row,
        is_instead: create.timing & INSTEAD_OF != 0,
        fires_on: TriggerEvents { insert: fires(INSERT), update: fires(UPDATE), delete: fires(DELETE), truncate: fires(TRUNCATE) },
        has_transition_tables: !create.transition_rels().is_empty(),
        definition: text.to_owned(),
    }
}

pub(super) const LEAVE_KEY: &str =
    "Let its function leave the shard key alone: a row goes where the key leads that the statement gives it.";

/// What to do about a trigger that stops the writes of what it is on.
fn way_out(trigger: &Trigger, function: &Function, used: &Used<'_>, stopped: &Stopped, context: &Context) -> String {
    match used.kind {
        Kind::Sharded(_) => {}
        Kind::Reference => return stopped.refusal.hint.clone().unwrap_or_default(),
        Kind::View => return "Let the application write the tables themselves, or call a function that does.".to_owned(),
    }
    let catalog = &context.catalog;
    let name = quoted_literal(&shown_name(&function.schema, &function.name));
    let name = name.trim_start();
    if trigger.is_before && trigger.is_row && !trigger.fires_on.delete {
        match catalog.assigned_new_columns(function.oid, &SqlBodyReader) {
            Some(assigned) if used.keys().iter().any(|key| assigned.iter().any(|column| column == key)) => {
                return LEAVE_KEY.to_owned();
            }
            None => {
                return format!(
                    "If its function leaves the shard key alone, say so first: SELECT shardgate.declare_function({name});"
                );
            }
            Some(_) => {}
        }
    }
    match &*catalog.closure_of_function(function.oid, &SqlBodyReader) {
        Closure::Known(references) => remedy(references, Some(function), context).unwrap_or_default(),
        Closure::Unknown(_) => format!(
            "Say first what it touches of the rows of its row's key, without the lists that are empty: \
             SELECT shardgate.declare_function({name}, reads => '{{...}}', writes => '{{...}}');"
        ),
    }
}

/// Bits of `pg_trigger.tgtype`.
const BEFORE: i16 = 1 << 1;
const INSERT: i16 = 1 << 2;
const DELETE: i16 = 1 << 3;
const UPDATE: i16 = 1 << 4;
const TRUNCATE: i16 = 1 << 5;
const INSTEAD_OF: i16 = 1 << 6;
