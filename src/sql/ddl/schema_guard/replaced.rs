//! CREATE OR REPLACE FUNCTION of what triggers, policies, checks and defaults of distributed tables call: another body that would have
//! the tables' reads or writes refused is refused itself. Triggers that are disabled do not count, nor policies while row security is off.
//!
//! What a declaration would allow is let through: a function is declared as it is, so that it has to be there first.

use std::collections::HashSet;

use pg_raw_parse::{Node, nodes};

use super::stops::{Used, Uses, WRITE_COPIES, at_home, changed, shard_it_too, stops, writes_copies};
use super::triggers;
use crate::catalog::{
    Catalog, Closure, Dependency, DependencyTarget, DependentKind, Function, Oid, Relation, Trigger, TriggerEvents,
};
use crate::error::PgError;
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::parse::tree;

pub(super) fn guard(create: &nodes::CreateFunctionStmt, context: &Context) -> Result<(), PgError> {
    let Some(replaced) = replaced(create, context) else { return Ok(()) };
    let Some((language, body)) = given(create) else { return Ok(()) };
    let catalog = &context.catalog;
    let callers = callers(catalog, replaced);
    let mut users = catalog.relations.values().filter(|relation| calls(catalog, relation, &callers)).peekable();
    if users.peek().is_none() {
        return Ok(());
    }
    let with = changed(context, |catalog| {
        if let Some(function) = catalog.functions.get_mut(&replaced.oid) {
            function.language = language;
            function.body = body.to_owned();
            function.search_path = None;
            function.relations.clear();
            function.tree_digest = None;
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
        false if writes_copies(references, with) => Some(WRITE_COPIES.to_owned()),
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
    use nodes::FunctionParameterMode as Mode;
    let given = create.parameters().iter().filter(|it| !matches!(it.mode, Mode::FUNC_PARAM_OUT | Mode::FUNC_PARAM_TABLE));
    let count = given.count();
    let all = catalog.function_names.get(name)?.iter().filter_map(|oid| catalog.functions.get(oid));
    let mut found = all.filter(|function| function.schema == schema && function.argument_count == count);
    found.next().filter(|_| found.next().is_none())
}

/// The language and the body, where that is a text that is read by no search path of its own.
fn given(create: &nodes::CreateFunctionStmt) -> Option<(String, &str)> {
    let sets_path =
        |option: &nodes::DefElem| matches!(option.arg(), Node::VariableSetStmt(set) if set.name() == Some("search_path"));
    if create.options().iter().any(sets_path) {
        return None;
    }
    let option = |name: &str| create.options().iter().find(|option| option.defname() == Some(name));
    let language = option("language").and_then(|option| option.arg().as_str()).unwrap_or("sql").to_ascii_lowercase();
    let body = option("as")?.arg().as_node_list()?.first()?.as_str()?;
    Some((language, body))
}

/// The function and all that may call it, by the names in their bodies.
fn callers(catalog: &Catalog, function: &Function) -> HashSet<Oid> {
    let calls: Vec<(Oid, Vec<Oid>)> = catalog
        .functions
        .values()
        .map(|caller| (caller.oid, catalog.functions_named_in(&caller.body).iter().map(|called| called.oid).collect()))
        .collect();
    let mut found = HashSet::from([function.oid]);
    let mut before = 0;
    while found.len() > before {
        before = found.len();
        for (caller, called) in &calls {
            if called.iter().any(|called| found.contains(called)) {
                found.insert(*caller);
            }
        }
    }
    found
}

/// In a trigger, a policy, a check or a default of its own. What is under a view is looked at by itself.
fn calls(catalog: &Catalog, relation: &Relation, functions: &HashSet<Oid>) -> bool {
    let dependencies = catalog.relation_dependencies.get(&relation.oid).into_iter().flatten();
    let mut parts = dependencies.filter(|dependency| dependency.of != DependentKind::View);
    let is_called = |dependency: &Dependency| matches!(dependency.on, DependencyTarget::Function(oid) if functions.contains(&oid));
    relation.triggers.iter().any(|trigger| functions.contains(&trigger.function)) || parts.any(is_called)
}
