//! CREATE OR REPLACE FUNCTION of what triggers, policies, checks and defaults of distributed tables call: another body that would have
//! the tables' reads or writes refused is refused itself. Triggers that are disabled do not count, nor row security that is off.
//!
//! What a declaration would allow is let through: a function is declared as it is, so that it has to be there first.

use pg_raw_parse::nodes;

use super::stops::{Used, Uses, at_home, changed, shard_it_too, stops};
use super::triggers;
use crate::catalog::{Access, Closure, Function, Relation, RelationKind, Trigger, TriggerEvents};
use crate::error::PgError;
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::parse::tree;

pub(super) fn guard(create: &nodes::CreateFunctionStmt, context: &Context) -> Result<(), PgError> {
    let Some(replaced) = replaced(create, context) else { return Ok(()) };
    let Some((language, body)) = given(create) else { return Ok(()) };
    let catalog = &context.catalog;
    let may_call = |relation: &&Relation| {
        let has_parts = match relation.kind {
            // What is under a view is looked at by itself.
            RelationKind::View => !relation.triggers.is_empty(),
            _ => !relation.triggers.is_empty() || catalog.relation_dependencies.contains_key(&relation.oid),
        };
        let behind = || catalog.functions_of_relation(relation.oid, Access::Write, &SqlBodyReader);
        has_parts && Used::of(relation, context).is_some() && behind().contains(&replaced.oid)
    };
    let mut users = catalog.relations.values().filter(may_call).peekable();
    if users.peek().is_none() {
        return Ok(());
    }
    let with = changed(context, |catalog| {
        if let Some(function) = catalog.functions.get_mut(&replaced.oid) {
            function.language = language;
            function.body = body.to_owned();
        }
    });
    for used in users.filter_map(|relation| Used::of(relation, context)) {
        let uses = Uses { reads: used.relation.has_row_security, ..Uses::writes(TriggerEvents::ALL) };
        if let Some(stopped) = used.stopped(&uses, &with, context) {
            let Some(hint) = incurable(replaced, &used, &with) else { continue };
            return Err(stops(&format!("this body of function \"{}\"", replaced.name), &used, stopped, hint));
        }
    }
    Ok(())
}

/// What to do where no declaration of the function helps.
fn incurable(function: &Function, used: &Used<'_>, with: &Context) -> Option<String> {
    let catalog = &with.catalog;
    let Closure::Known(references) = &*catalog.closure_of_function(function.oid, &SqlBodyReader) else { return None };
    let is_before = |trigger: &Trigger| trigger.function == function.oid && trigger.is_before && trigger.is_row;
    let assigned = catalog.assigned_new_columns(function.oid, &SqlBodyReader).unwrap_or_default();
    let sets_key = used.keys().iter().any(|key| assigned.iter().any(|column| column == key));
    match used.relation.triggers.iter().any(is_before) && sets_key {
        true => Some(triggers::LEAVE_KEY.to_owned()),
        false => at_home(references, with).map(shard_it_too),
    }
}

/// The function that is there; `None`: none, or it is not told from others of its name.
fn replaced<'c>(create: &nodes::CreateFunctionStmt, context: &'c Context) -> Option<&'c Function> {
    let names = tree::names(create.funcname()).filter(|_| create.replace)?;
    let catalog = &context.catalog;
    let (schema, name) = match names.as_slice() {
        [name] => (context.search_path.iter().find(|schema| catalog.schemas.contains(schema))?.as_str(), *name),
        [schema, name] => (*schema, *name),
        _ => return None,
    };
    let all = catalog.function_names.get(name)?;
    let mut found = all.iter().filter_map(|oid| catalog.functions.get(oid)).filter(|function| function.schema == schema);
    found.next().filter(|_| found.next().is_none())
}

/// The language and the body, where that is a text.
fn given(create: &nodes::CreateFunctionStmt) -> Option<(String, &str)> {
    let option = |name: &str| create.options().iter().find(|option| option.defname() == Some(name));
    let language = option("language").and_then(|option| option.arg().as_str()).unwrap_or("sql").to_ascii_lowercase();
    let body = option("as")?.arg().as_node_list()?.first()?.as_str()?;
    Some((language, body))
}
