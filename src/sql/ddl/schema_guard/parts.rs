//! Policies, checks and defaults of distributed tables that call functions or read tables: one that would have the table's reads or
//! writes refused is refused itself.
//!
//! A function is known here by its name and the number of its arguments. Where several could be meant nothing is said.

use pg_raw_parse::{Node, nodes};

use super::stops::{Kind, Used, Uses, changed, remedy_of_part, stops};
use crate::catalog::{Dependency, DependencyTarget, DependentKind, Function, Policy, TriggerEvents};
use crate::error::PgError;
use crate::sql::body;
use crate::sql::context::Context;
use crate::sql::parse::tokens::Tokens;

/// `text`: of the statement alone.
pub(super) fn guard_policy(create: &nodes::CreatePolicyStmt, text: &str, context: &Context) -> Result<(), PgError> {
    let Some(name) = create.policy_name() else { return Ok(()) };
    let writes = |command: Option<&str>| match command {
        Some("insert") => TriggerEvents::INSERT,
        Some("update") => TriggerEvents::UPDATE,
        Some("delete") => TriggerEvents::DELETE,
        Some("select") => TriggerEvents::NONE,
        Some(_) | None => TriggerEvents::ALL,
    };
    let command = create.cmd_name();
    let reads = matches!(command, Some("select" | "all") | None);
    policy(create.table(), name, &Uses { reads, ..Uses::writes(writes(command)) }, text, context)
}

/// `text`: of the statement alone. What the policy is for is not in it.
pub(super) fn guard_altered_policy(alter: &nodes::AlterPolicyStmt, text: &str, context: &Context) -> Result<(), PgError> {
    let Some(name) = alter.policy_name() else { return Ok(()) };
    policy(alter.table(), name, &Uses { reads: true, ..Uses::writes(TriggerEvents::ALL) }, text, context)
}

fn policy(table: Option<&nodes::RangeVar>, name: &str, uses: &Uses<'_>, text: &str, context: &Context) -> Result<(), PgError> {
    let Some(used) = Used::named(table, context).filter(|used| !matches!(used.kind, Kind::View)) else { return Ok(()) };
    let tokens = Tokens::of(text);
    let expression = |word: &str| {
        let open = tokens.word_at_top(0, &[word])? + 1;
        tokens.slice(open, tokens.closing(open)?).map(str::to_owned)
    };
    let expressions: Vec<String> = ["using", "check"].into_iter().filter_map(expression).collect();
    // As though row security were on: it is often switched on afterwards.
    let now = changed(context, |catalog| {
        if let Some(changed) = catalog.relations.get_mut(&used.relation.oid) {
            changed.has_row_security = true;
        }
    });
    let with = changed(&now, |catalog| {
        if let Some(changed) = catalog.relations.get_mut(&used.relation.oid) {
            changed.policies.retain(|known| known.name != name);
            changed.policies.push(Policy { name: name.to_owned(), expressions, relations: Vec::new() });
        }
    });
    judge(&format!("policy \"{name}\""), &used, uses, &with, &now)
}

pub(super) fn guard_check(
    check: &nodes::Constraint,
    table: &nodes::RangeVar,
    text: &str,
    context: &Context,
) -> Result<(), PgError> {
    let writes = TriggerEvents { delete: false, truncate: false, ..TriggerEvents::ALL };
    let name = check.conname().unwrap_or("of the column");
    expression(table, (DependentKind::Check, name), check.raw_expr(), &Uses::writes(writes), text, context)
}

pub(super) fn guard_default(
    column: &str,
    default: Node<'_>,
    table: &nodes::RangeVar,
    text: &str,
    context: &Context,
) -> Result<(), PgError> {
    let uses = Uses::writes(TriggerEvents::INSERT);
    expression(table, (DependentKind::Default, column), default, &uses, text, context)
}

fn expression(
    table: &nodes::RangeVar,
    (kind, name): (DependentKind, &str),
    node: Node<'_>,
    uses: &Uses<'_>,
    text: &str,
    context: &Context,
) -> Result<(), PgError> {
    let Some(used) = Used::named(Some(table), context).filter(|used| !matches!(used.kind, Kind::View)) else { return Ok(()) };
    let called = called(node, text, context);
    if called.is_empty() {
        return Ok(());
    }
    let dependencies =
        called.iter().map(|function| Dependency { of: kind, name: name.to_owned(), on: DependencyTarget::Function(function.oid) });
    let with = changed(context, |catalog| catalog.relation_dependencies.or_default(used.relation.oid).extend(dependencies));
    let what = match kind {
        DependentKind::Default => format!("default of column \"{name}\""),
        _ => format!("check \"{name}\""),
    };
    judge(&what, &used, uses, &with, context)
}

fn judge(what: &str, used: &Used<'_>, uses: &Uses<'_>, with: &Context, context: &Context) -> Result<(), PgError> {
    match used.stopped(uses, with, context) {
        None => Ok(()),
        Some(stopped) => {
            let hint = remedy_of_part(what, used, &stopped, with);
            Err(stops(what, used, stopped, hint))
        }
    }
}

/// Functions of users that the expression calls.
fn called<'c>(node: Node<'_>, text: &str, context: &'c Context) -> Vec<&'c Function> {
    let catalog = &context.catalog;
    let names = body::references_of_expression(node, text).functions;
    let meant = names.iter().filter_map(|name| {
        let all = catalog.function_names.get(&name.name)?;
        let mut found = all.iter().filter_map(|oid| catalog.functions.get(oid)).filter(|function| match &name.schema {
            Some(schema) => function.schema == *schema,
            None => function.built_in.is_empty() && context.search_path.contains(&function.schema),
        });
        found.next().filter(|_| found.next().is_none())
    });
    meant.collect()
}
