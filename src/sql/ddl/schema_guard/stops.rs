//! A definition that would have every use of a distributed table refused is refused itself, when it is made and not when the
//! application reads or writes.
//!
//! What the statements of one row need is read twice, of the schema as it is and of the schema as it would be. Whatever only the second
//! refuses is the definition's doing. Nothing is proven by it: what passes here, the statements themselves are still looked at for.

use std::sync::Arc;

use pg_raw_parse::nodes;

use crate::catalog::{
    Access, Catalog, Closure, ClosureCache, Function, PartClosure, References, Relation, RelationKind, TriggerEvents,
    quoted_identifier, quoted_name,
};
use crate::error::PgError;
use crate::shard_key::KeyColumn;
use crate::shardmap::TableKind;
use crate::sql::Analyzer;
use crate::sql::analysis::{KeyCondition, Part, Scope};
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::query::{Resolved, placed, resolve};
use crate::sql::utility::shardgate_call;

/// What the definition belongs to.
pub(super) struct Used<'c> {
    pub(super) relation: &'c Relation,
    pub(super) kind: Kind<'c>,
}

#[derive(Clone, Copy)]
pub(super) enum Kind<'c> {
    /// A sharded table, or a partition of one.
    Sharded(&'c [KeyColumn]),
    Reference,
    View,
}

/// The statements that a definition takes part in.
pub(super) struct Uses<'d> {
    pub(super) reads: bool,
    pub(super) writes: TriggerEvents,
    /// The columns that its UPDATEs are limited to; none: any.
    pub(super) columns: &'d [&'d str],
}

impl<'d> Uses<'d> {
    pub(super) fn writes(writes: TriggerEvents) -> Self {
        Uses { reads: false, writes, columns: &[] }
    }
}

/// A use that would be refused.
pub(super) struct Stopped {
    pub(super) verb: &'static str,
    pub(super) refusal: PgError,
}

impl<'c> Used<'c> {
    /// `None`: no distributed table, nor a view.
    pub(super) fn named(name: Option<&nodes::RangeVar>, context: &'c Context) -> Option<Self> {
        Self::resolved(resolve(context, name?, &context.search_path))
    }

    pub(super) fn of(relation: &'c Relation, context: &'c Context) -> Option<Self> {
        Self::resolved(placed(context, relation, true))
    }

    fn resolved(resolved: Resolved<'c>) -> Option<Self> {
        match resolved {
            Resolved::Sharded { table, relation, .. } => match &table.kind {
                TableKind::Sharded { key, .. } => Some(Used { relation, kind: Kind::Sharded(key) }),
                TableKind::Reference => Some(Used { relation, kind: Kind::Reference }),
            },
            Resolved::Reference(relation) => Some(Used { relation, kind: Kind::Reference }),
            Resolved::View(relation) => Some(Used { relation, kind: Kind::View }),
            Resolved::Home(_) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => None,
        }
    }

    pub(super) fn keys(&self) -> Vec<&'c str> {
        match self.kind {
            Kind::Sharded(key) => key.iter().map(|key| key.column.as_str()).collect(),
            Kind::Reference | Kind::View => Vec::new(),
        }
    }

    /// `sharded table "t"`.
    pub(super) fn shown(&self) -> String {
        let kind = match self.kind {
            Kind::Sharded(_) => "sharded table",
            Kind::Reference => "reference table",
            Kind::View => "view",
        };
        format!("{kind} \"{}\"", self.relation.name)
    }

    /// The first of these uses that only the changed schema refuses; none where one shard has all rows. Of a view: that it refuses, since the definition is what lets a
    /// view be written to that PostgreSQL could not write to.
    pub(super) fn stopped(&self, uses: &Uses<'_>, changed: &Context, now: &Context) -> Option<Stopped> {
        let is_view = matches!(self.kind, Kind::View);
        if now.map.shards.len() < 2 {
            return None;
        }
        self.probes(uses).into_iter().find_map(|(verb, probe)| {
            let refusal = refusal(&probe, changed).filter(|_| is_view || refusal(&probe, now).is_none())?;
            Some(Stopped { verb, refusal })
        })
    }

    /// Reads and writes of the rows of one key.
    fn probes(&self, uses: &Uses<'_>) -> Vec<(&'static str, String)> {
        let keys = self.keys();
        let table = quoted_name(&self.relation.schema, &self.relation.name);
        let names = self.relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.as_str());
        let may_change = |name: &&str| !keys.contains(name) && (uses.columns.is_empty() || uses.columns.contains(name));
        let updated = names.clone().find(may_change).map(quoted_identifier);
        let stored = match keys.as_slice() {
            [] => names.take(1).map(quoted_identifier).collect::<Vec<_>>(),
            keys => keys.iter().map(|key| quoted_identifier(key)).collect(),
        };
        let conditions: Vec<String> =
            (1..).zip(&keys).map(|(number, key)| format!("{} = ${number}", quoted_identifier(key))).collect();
        let condition = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
        let mut probes = Vec::new();
        if uses.reads {
            probes.push(("SELECT", format!("SELECT * FROM {table} WHERE {condition}")));
        }
        if uses.writes.insert && !stored.is_empty() {
            let values: Vec<String> = (1..=stored.len()).map(|number| format!("${number}")).collect();
            probes.push(("INSERT", format!("INSERT INTO {table} ({}) VALUES ({})", stored.join(", "), values.join(", "))));
        }
        if let Some(column) = updated.filter(|_| uses.writes.update) {
            probes.push(("UPDATE", format!("UPDATE {table} SET {column} = NULL WHERE {condition}")));
        }
        if uses.writes.delete {
            probes.push(("DELETE", format!("DELETE FROM {table} WHERE {condition}")));
        }
        probes
    }
}

/// Why the statement is not run, or only where its key's shard is the home shard.
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

/// The schema after the change.
pub(super) fn changed(context: &Context, change: impl FnOnce(&mut Catalog)) -> Context {
    let mut catalog = Catalog { closures: ClosureCache::default(), ..Catalog::clone(&context.catalog) };
    change(&mut catalog);
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

/// `what`: `trigger "audit"`.
pub(super) fn stops(what: &str, used: &Used<'_>, stopped: Stopped, hint: String) -> PgError {
    let Stopped { verb, refusal } = stopped;
    let reason = refusal.detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    PgError::unsupported(
        format!("{what} would stop {verb} on {}", used.shown()),
        format!("{verb} would be refused: {}.{reason}", refusal.message),
        hint,
    )
}

/// What to do about a policy, a check or a default of this name, as [`crate::catalog::PartClosure`] has it. `changed`: the schema with it.
pub(super) fn remedy_of_part(what: &str, used: &Used<'_>, stopped: &Stopped, changed: &Context) -> String {
    let parts = changed.catalog.closures_by_part(used.relation.oid, Access::Write, &SqlBodyReader);
    let found = match parts.into_iter().find(|part| part.name == what) {
        Some(PartClosure { closure: Closure::Known(references), function, .. }) if matches!(used.kind, Kind::Sharded(_)) => {
            let function = function.and_then(|function| changed.catalog.functions.get(&function));
            remedy(&references, function, changed)
        }
        Some(_) | None => None,
    };
    found.or_else(|| stopped.refusal.hint.clone()).unwrap_or_else(|| "Let it use the columns of its row.".to_owned())
}

/// What to do about what these touch beside the rows of one key of a sharded table; `function`: what does so, where it is one.
pub(super) fn remedy(references: &References, function: Option<&Function>, context: &Context) -> Option<String> {
    if writes_copies(references, context) {
        return Some(WRITE_COPIES.to_owned());
    }
    match (at_home(references, context), function) {
        (Some(table), _) => Some(shard_it_too(table)),
        (None, Some(function)) => Some(format!(
            "If it touches rows of its row's key only, say so first: {}",
            shardgate_call::declaration(&context.catalog, function, references, None)
        )),
        (None, None) => None,
    }
}

/// A reference table is among them.
pub(super) fn writes_copies(references: &References, context: &Context) -> bool {
    references.writes.iter().any(|oid| {
        let written = context.catalog.relations.get(oid);
        written.is_some_and(|written| matches!(placed(context, written, true), Resolved::Reference(_)))
    })
}

pub(super) const WRITE_COPIES: &str = "Write the reference table by statements of its own, which reach every copy.";

/// A table of the home shard among them.
pub(super) fn at_home<'c>(references: &References, context: &'c Context) -> Option<&'c Relation> {
    references.reads.iter().chain(&references.writes).find_map(|oid| {
        let touched = context.catalog.relations.get(oid).filter(|touched| touched.kind != RelationKind::Sequence)?;
        matches!(placed(context, touched, true), Resolved::Home(_)).then_some(touched)
    })
}

pub(super) fn shard_it_too(table: &Relation) -> String {
    format!(
        "Shard table \"{}\" by the same key first, with colocate_with, or make it a reference table if it is only read.",
        table.name
    )
}
