//! CREATE TRIGGER and CREATE RULE on a distributed table: one that would have the table's writes refused is refused itself, when it is
//! made and not when the application writes.
//!
//! What a write of one row needs is read twice, of the schema as it is and with the trigger. Whatever only the second refuses is the
//! trigger's doing.

use std::sync::Arc;

use pg_raw_parse::nodes;

use crate::catalog::{
    Catalog, Closure, ClosureCache, Function, Relation, RelationKind, Trigger, TriggerEvents, quoted_identifier, quoted_literal,
    quoted_name, shown_name,
};
use crate::error::PgError;
use crate::shardmap::TableKind;
use crate::sql::Analyzer;
use crate::sql::analysis::{KeyCondition, Part, Scope};
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, placed, resolve};
use crate::sql::utility::shardgate_call;

/// `text`: of the statement alone.
pub(super) fn guard(create: &nodes::CreateTrigStmt, text: &str, context: &Context) -> Result<(), PgError> {
    let Some((relation, kind)) = distributed(create.relation(), context) else { return Ok(()) };
    // A function that is not known PostgreSQL refuses.
    let Some(function) = function_of(create, context) else { return Ok(()) };
    let added = Added { trigger: trigger_of(create, text, function), relation, kind, function };
    let changed: Vec<&str> = create.columns().iter().filter_map(|column| column.as_str()).collect();
    let with = with_trigger(context, relation, added.trigger.clone());
    for (verb, probe) in probes(relation, &added.keys(), &changed, added.trigger.fires_on) {
        if let (Some(refusal), None) = (refusal(&probe, &with), refusal(&probe, context)) {
            return Err(stops_writes(verb, &added, refusal, context));
        }
    }
    Ok(())
}

/// What a rule makes of a statement is not read. Of the statements that it is not for nothing is said.
pub(super) fn guard_rule(rule: &nodes::RuleStmt, context: &Context) -> Result<(), PgError> {
    let Some((relation, _)) = distributed(rule.relation(), context) else { return Ok(()) };
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

/// The table, or the partition of one.
fn distributed<'c>(name: Option<&nodes::RangeVar>, context: &'c Context) -> Option<(&'c Relation, &'c TableKind)> {
    match resolve(context, name?, &context.search_path) {
        Resolved::Sharded { table, relation, .. } => Some((relation, &table.kind)),
        Resolved::Reference(relation) => Some((relation, &context.map.table(&relation.schema, &relation.name)?.kind)),
        Resolved::Home(_) | Resolved::View(_) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => {
            None
        }
    }
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

fn with_trigger(context: &Context, relation: &Relation, trigger: Trigger) -> Context {
    let mut catalog = Catalog { closures: ClosureCache::default(), ..Catalog::clone(&context.catalog) };
    if let Some(changed) = catalog.relations.get_mut(&relation.oid) {
        changed.triggers.retain(|known| known.name != trigger.name);
        changed.triggers.push(trigger);
    }
    Context {
        catalog: Arc::new(catalog),
        map: Arc::clone(&context.map),
        search_path: context.search_path.clone(),
        temporary_tables: Vec::new(),
        brought: context.brought.clone(),
        id: 0,
        user: context.user.clone(),
    }
}

/// Writes of the rows of one key, for which it fires. `changed`: the columns that it is limited to.
fn probes(relation: &Relation, keys: &[&str], changed: &[&str], fires_on: TriggerEvents) -> Vec<(&'static str, String)> {
    let table = quoted_name(&relation.schema, &relation.name);
    let names = relation.columns.iter().map(|column| column.name.as_str());
    let mut updated = names.clone().filter(|name| !keys.contains(name) && (changed.is_empty() || changed.contains(name)));
    let stored = match keys {
        [] => names.take(1).map(quoted_identifier).collect::<Vec<_>>(),
        keys => keys.iter().map(|key| quoted_identifier(key)).collect(),
    };
    let conditions: Vec<String> = (1..).zip(keys).map(|(number, key)| format!("{} = ${number}", quoted_identifier(key))).collect();
    let condition = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
    let mut probes = Vec::new();
    if fires_on.insert && !stored.is_empty() {
        let values: Vec<String> = (1..=stored.len()).map(|number| format!("${number}")).collect();
        probes.push(("INSERT", format!("INSERT INTO {table} ({}) VALUES ({})", stored.join(", "), values.join(", "))));
    }
    if let Some(column) = updated.next().filter(|_| fires_on.update).map(quoted_identifier) {
        probes.push(("UPDATE", format!("UPDATE {table} SET {column} = NULL WHERE {condition}")));
    }
    if fires_on.delete {
        probes.push(("DELETE", format!("DELETE FROM {table} WHERE {condition}")));
    }
    probes
}

/// Why the write is not run, or only where its key's shard is the home shard.
fn refusal(probe: &str, context: &Context) -> Option<PgError> {
    let read = match Analyzer::new().analyze(probe, context) {
        Ok(read) => read,
        Err(refusal) => return Some(refusal),
    };
    match read.statements.first().map(|statement| &statement.scope) {
        Some(Scope::Refused(refusal)) => Some(refusal.clone()),
        Some(Scope::Placed { parts, pushdown: Err(refusal) }) if parts.len() > 1 && parts.iter().any(is_elsewhere) => {
            Some(refusal.clone())
        }
        _ => None,
    }
}

/// Not the part of the row's own key.
fn is_elsewhere(part: &Part) -> bool {
    matches!(part, Part::Home | Part::Sharded { condition: KeyCondition::All, .. })
}

fn stops_writes(verb: &str, added: &Added<'_>, refusal: PgError, context: &Context) -> PgError {
    let Added { trigger, relation, kind, .. } = added;
    let is_reference = matches!(kind, TableKind::Reference);
    let table = if is_reference { "reference table" } else { "sharded table" };
    let hint = match refusal.hint {
        Some(hint) if is_reference => hint,
        _ => added.way_out(context),
    };
    let reason = refusal.detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    PgError::unsupported(
        format!("trigger \"{}\" would stop {verb} on {table} \"{}\"", trigger.name, relation.name),
        format!("{verb} would be refused: {}.{reason}", refusal.message),
        hint,
    )
}

/// The trigger, and what it is added to.
struct Added<'c> {
    trigger: Trigger,
    relation: &'c Relation,
    kind: &'c TableKind,
    function: &'c Function,
}

impl Added<'_> {
    fn keys(&self) -> Vec<&str> {
        match self.kind {
            TableKind::Sharded { key, .. } => key.iter().map(|key| key.column.as_str()).collect(),
            TableKind::Reference => Vec::new(),
        }
    }

    /// Of a sharded table's.
    fn way_out(&self, context: &Context) -> String {
        let catalog = &context.catalog;
        let name = quoted_literal(&shown_name(&self.function.schema, &self.function.name));
        let name = name.trim_start();
        if self.trigger.is_before && self.trigger.is_row && !self.trigger.fires_on.delete {
            match catalog.assigned_new_columns(self.function.oid, &SqlBodyReader) {
                Some(assigned) if self.keys().iter().any(|key| assigned.iter().any(|column| column == key)) => {
                    return "Let its function leave the shard key alone: a row goes where the key leads that the statement gives it.".to_owned();
                }
                None => {
                    return format!(
                        "If its function leaves the shard key alone, say so first: SELECT shardgate.declare_function({name});"
                    );
                }
                Some(_) => {}
            }
        }
        let closure = catalog.closure_of_function(self.function.oid, &SqlBodyReader);
        let Closure::Known(references) = &*closure else {
            return format!(
                "Say first what it touches of the rows of its row's key, without the lists that are empty: \
                 SELECT shardgate.declare_function({name}, reads => '{{...}}', writes => '{{...}}');"
            );
        };
        let at_home = references.reads.iter().chain(&references.writes).find_map(|oid| {
            let touched = catalog.relations.get(oid).filter(|touched| touched.kind != RelationKind::Sequence)?;
            matches!(placed(context, touched, true), Resolved::Home(_)).then_some(touched)
        });
        match at_home {
            Some(table) => format!(
                "Shard table \"{}\" by the same key first, with colocate_with, or make it a reference table if it is only read.",
                table.name
            ),
            None => format!(
                "If it touches rows of its row's key only, say so first: {}",
                shardgate_call::declaration(catalog, self.function, references, None)
            ),
        }
    }
}

/// Bits of `pg_trigger.tgtype`.
const BEFORE: i16 = 1 << 1;
const INSERT: i16 = 1 << 2;
const DELETE: i16 = 1 << 3;
const UPDATE: i16 = 1 << 4;
const TRUNCATE: i16 = 1 << 5;
const INSTEAD_OF: i16 = 1 << 6;
