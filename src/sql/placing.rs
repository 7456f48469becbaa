//! From what was noted while reading to where a statement may run.

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_raw_parse::nodes;

use super::analysis::{Command, Effect, Fact, KeyCondition, Merge, Numbers, Opinion, Part, QueryKind, Scope, SessionCall};
use super::context::Context;
use super::ddl::named_relations::{beside_lasting, temporary_among};
use super::notes::Notes;
use super::query::{Reader, Resolved, is_own_relation, resolve};
use super::second::{self, Claims, Name};
use super::statement::Source;
use super::utility::copy_in::CopyIn;
use crate::catalog::{Oid, SchemaEffect};
use crate::error::PgError;
use crate::shardmap::{GroupId, MapSnapshot, TableKind};

/// Everything of an analysis but the offsets.
#[derive(Debug)]
pub struct Placement {
    pub command: Command,
    pub scope: Scope,
    pub effect: Effect,
    pub merge: Result<Merge, PgError>,
    pub why: Vec<Fact>,
    pub session_calls: Vec<SessionCall>,
    pub fixed_literals: Vec<u32>,
    pub is_template: bool,
    pub has_unknown_names: bool,
    pub split_rows: Option<Arc<[KeyCondition]>>,
    pub numbers: Numbers,
    pub copy_in: Option<Arc<CopyIn>>,
    /// Of the second reading, where one was asked for.
    pub opinion: Option<Opinion>,
    pub notifies: Option<String>,
    pub shows_one_of_equals: bool,
    /// It calls, or is, what may change the schema.
    pub changes_schema: Option<(SchemaEffect, Oid)>,
}

impl Placement {
    pub fn new(command: Command, scope: Scope, effect: Effect) -> Self {
        Self {
            command,
            scope,
            effect,
            merge: Ok(Merge::default()),
            why: Vec::new(),
            session_calls: Vec::new(),
            fixed_literals: Vec::new(),
            is_template: false,
            has_unknown_names: false,
            split_rows: None,
            numbers: Numbers::None,
            copy_in: None,
            opinion: None,
            notifies: None,
            shows_one_of_equals: false,
            changes_schema: None,
        }
    }
}

/// The placement of a statement whose queries were read.
pub fn finish(mut reader: Reader<'_>, command: Command, merge: Result<Merge, PgError>) -> Placement {
    reader.note_hidden();
    let may_touch_anything = reader.notes.touches_anything.is_some();
    let scope = scope(&mut reader);
    if matches!(scope, Scope::Tableless) && reader.notes.asks_one_server {
        reader.notes.session_call(SessionCall::OneServer);
    }
    Placement {
        command,
        scope,
        effect: reader.notes.effect(),
        merge,
        why: std::mem::take(&mut reader.why),
        session_calls: std::mem::take(&mut reader.notes.session_calls),
        fixed_literals: reader.notes.fixed_literals.iter().copied().collect(),
        is_template: !reader.notes.is_bound_to_text,
        has_unknown_names: reader.notes.has_unknown_names,
        split_rows: reader.notes.split_rows.take().map(Arc::from),
        // What may touch any table may draw from any sequence.
        numbers: if may_touch_anything { reader.notes.numbers.max(Numbers::AtHome) } else { reader.notes.numbers },
        copy_in: None,
        opinion: None,
        notifies: reader.notes.notifies.take(),
        shows_one_of_equals: reader.notes.shows_one_of_equals,
        changes_schema: reader.notes.changes_schema.take(),
    }
}

/// The placement after a second reading of the statement: one that differs leaves nothing of what was claimed.
pub fn seen_twice(mut placement: Placement, named: &BTreeSet<Name>, source: Source<'_>, context: &Context) -> Placement {
    let Source { text, literals, start, end, .. } = source;
    let opinion = match &placement.scope {
        Scope::Placed { parts, .. } if second::is_narrowed(parts) => {
            second::opinion(Claims { text, start, end, literals, context, named, parts })
        }
        _ => return placement,
    };
    placement.opinion = Some(opinion);
    let reason = match opinion {
        Opinion::Agrees | Opinion::Unsure => return placement,
        Opinion::Differs(reason) => reason,
    };
    let refusal = PgError::unsupported(
        "the statement is not routed by its shard key",
        format!("Two readings of it differ: {reason}."),
        "Write it more plainly, or, if it only reads, set shardgate.shard to send it to one shard unchanged.",
    );
    placement.scope = if placement.effect == Effect::Write {
        Scope::Refused(refusal)
    } else {
        let parts = std::iter::once(Part::Home).chain(every_group(&context.map)).collect();
        Scope::Placed { parts, pushdown: Err(refusal) }
    };
    placement.why = vec![Fact::Sentence(format!("Two readings of the statement differ: {reason}."))];
    placement
}

/// A write to a reference table: the same on every shard, or refused.
pub fn finish_replicated_write(mut reader: Reader<'_>, kind: QueryKind) -> Placement {
    reader.note_hidden();
    let refusal = if let Some(refusal) = reader.notes.refused.take() {
        Some(refusal)
    } else if let Some(reason) = reader.notes.touches_anything.take() {
        Some(reference_refusal(&reason))
    } else if let Some(reason) = reader.notes.home_reason.take() {
        Some(reference_refusal(&reason))
    } else if !reader.parts.is_empty() || reader.notes.hidden_sharded_table().is_some() || reader.notes.has_system {
        Some(reference_refusal("The statement also reads tables that not every shard has in full."))
    } else if let Some(name) = reader.notes.volatile.take().or(reader.notes.of_one_copy.take()) {
        Some(reference_refusal(&format!("Each shard would get a value of its own from {name}.")))
    } else {
        reader.notes.pushdown.take()
    };
    let scope = refusal.map_or(Scope::EveryShard, Scope::Refused);
    Placement {
        why: vec![Fact::Sentence("The target is a reference table: every shard has a copy.".to_owned())],
        fixed_literals: reader.notes.fixed_literals.iter().copied().collect(),
        is_template: !reader.notes.is_bound_to_text,
        has_unknown_names: reader.notes.has_unknown_names,
        numbers: reader.notes.numbers,
        notifies: reader.notes.notifies.take(),
        changes_schema: reader.notes.changes_schema.take(),
        ..Placement::new(Command::Query(kind), scope, Effect::Write)
    }
}

fn reference_refusal(reason: &str) -> PgError {
    PgError::unsupported(
        "this write to a reference table is not supported",
        reason,
        "Write the same constant values everywhere: evaluate functions and read other tables first.",
    )
}

/// LOCK, TRUNCATE, VACUUM, COPY and their kind: the relations that they name.
pub fn of_relations<'n>(
    names: impl Iterator<Item = &'n nodes::RangeVar>,
    command: Command,
    effect: Effect,
    context: &Context,
    source: Source<'_>,
) -> Placement {
    let mut reader = Reader::new(context, source.text, source.literals);
    let (mut has_sharded, mut has_reference, mut has_view, mut has_any) = (false, false, false, false);
    let (mut refused, mut temporary) = (None, None);
    for name in names {
        has_any = true;
        temporary = temporary.or(temporary_among([name], context));
        match resolve(context, name, &context.search_path) {
            Resolved::Sharded { group, relation, .. } => {
                has_sharded = true;
                reader.notes.touches(relation.oid);
                reader.parts.push(Part::Sharded { group: group.id, condition: KeyCondition::All, stores: false });
            }
            Resolved::Reference(relation) => {
                has_reference = true;
                reader.notes.touches(relation.oid);
            }
            Resolved::Home(relation) => {
                reader.notes.has_unknown_names |= relation.is_none();
                reader.parts.push(Part::Home);
            }
            Resolved::View(_) => {
                has_view = true;
                reader.parts.push(Part::Home);
            }
            Resolved::System => reader.parts.push(Part::Home),
            // The proxy's own tables on the shards, which pg_dump and vacuumdb find in the catalogue.
            Resolved::Map(name) if matches!(command, Command::Lock | Command::Maintenance) && !is_own_relation(&name) => {
                has_reference = true;
            }
            Resolved::Map(name) | Resolved::Proxy(name) => refused = Some(own_relation(&name)),
            Resolved::Mixed(detail) => {
                refused = Some(PgError::unsupported("the table cannot be placed", detail, "Distribute the parent table."));
            }
        }
    }
    let is_everywhere = match &command {
        Command::Copy(_) => has_reference && !has_sharded,
        // With a view its tables are locked, wherever they are.
        Command::Lock => has_sharded || has_reference || (has_view && !context.map.tables.is_empty()),
        Command::Maintenance => has_sharded || has_reference || !has_any,
        _ => has_sharded || has_reference,
    };
    if let Some(table) = temporary.filter(|_| is_everywhere && context.map.shards.len() > 1) {
        refused.get_or_insert_with(|| beside_lasting(table));
    }
    let scope = match refused {
        Some(refusal) => Scope::Refused(refusal),
        None if is_everywhere => Scope::EveryShard,
        None if has_sharded && reader.parts.contains(&Part::Home) => {
            Scope::Placed { parts: distinct(reader.parts), pushdown: Err(mixed(None, false)) }
        }
        None => Scope::Placed { parts: distinct(reader.parts), pushdown: Ok(()) },
    };
    Placement { has_unknown_names: reader.notes.has_unknown_names, ..Placement::new(command, scope, effect) }
}

fn own_relation(name: &str) -> PgError {
    PgError::unsupported(
        format!("this command is not supported for \"shardgate.{name}\""),
        "It shows the shard map, or the proxy itself.",
        "Use SELECT.",
    )
}

fn scope(reader: &mut Reader<'_>) -> Scope {
    if let Some(refusal) = reader.notes.refused.take() {
        return Scope::Refused(refusal);
    }
    let mut parts = std::mem::take(&mut reader.parts);
    let reads_sharded =
        parts.iter().any(|part| matches!(part, Part::Sharded { .. })) || reader.notes.hidden_sharded_table().is_some();
    if let Some(reason) = reader.notes.may_be_of_query_around.take().filter(|_| reads_sharded) {
        reader.notes.touches_anything.get_or_insert(reason);
    }
    if let Some(reason) = reader.notes.touches_anything.take()
        && let Some(scope) = anything(reader, &mut parts, reason)
    {
        return scope;
    }
    add_hidden(reader, &mut parts);
    let has_proxy = !reader.notes.proxy.is_empty();
    if reader.notes.has_map || has_proxy {
        return own_scope(reader, &parts);
    }
    let mut home_reason = None;
    if let Some(reason) = reader.notes.home_reason.take() {
        reader.why.push(Fact::Sentence(reason.clone()));
        home_reason = Some(reason);
        parts.push(Part::Home);
    }
    let has_sharded = parts.iter().any(|part| matches!(part, Part::Sharded { .. }));
    if reader.notes.has_system && (has_sharded || reader.notes.has_replicated) {
        let reason = "Catalogue relations are read on the home shard.".to_owned();
        reader.why.push(Fact::Sentence(reason.clone()));
        home_reason = Some(reason);
        parts.push(Part::Home);
    }
    if let Some(refusal) = reader.notes.locks_copies.take() {
        if has_sharded && reader.context.map.shards.len() > 1 {
            return Scope::Refused(refusal);
        }
        if !has_sharded {
            reader.why.push(Fact::Sentence("Rows of reference tables are locked on the home shard.".to_owned()));
            parts.push(Part::Home);
        }
    }
    let parts = distinct(parts);
    let has_home = parts.contains(&Part::Home);
    match (has_sharded, has_home) {
        (false, true) => Scope::Placed { parts, pushdown: Ok(()) },
        (true, true) => {
            let calls_home = reader.notes.calls_home;
            let through_view = reader.notes.through_view.take();
            Scope::Placed { parts, pushdown: Err(through_view.unwrap_or_else(|| mixed(home_reason.as_deref(), calls_home))) }
        }
        (true, false) => {
            let pushdown = reader.notes.pushdown.take().map_or(Ok(()), Err);
            Scope::Placed { parts, pushdown }
        }
        (false, false) if reader.notes.has_replicated => Scope::Replicated,
        (false, false) if reader.notes.has_system => Scope::System,
        (false, false) => Scope::Tableless,
    }
}

/// Something that is not known may touch any table: right only where everything is.
fn anything(reader: &mut Reader<'_>, parts: &mut Vec<Part>, reason: String) -> Option<Scope> {
    let map = &reader.context.map;
    if map.tables.is_empty() {
        parts.push(Part::Home);
        return None;
    }
    let hint = match &reader.notes.declared_before {
        Some(declaration) => {
            format!(
                "It is not the function that was declared, or one that it calls is not. If that is true of what it is now, say so again: {declaration}"
            )
        }
        None if reason.starts_with("rule ") => "Use a trigger instead of the rule, or send its statements.".to_owned(),
        None => "Declare what it touches with shardgate.declare_function(), or restrict the call to tables of the home shard."
            .to_owned(),
    };
    let refusal = PgError::unsupported("the statement calls something whose tables are not known", with_full_stop(&reason), hint);
    let has_reference_tables = map.tables.values().any(|table| table.kind == TableKind::Reference);
    if reader.notes.effect() == Effect::Write && has_reference_tables && map.shards.len() > 1 {
        return Some(Scope::Refused(refusal));
    }
    parts.push(Part::Home);
    parts.extend(every_group(map));
    reader.why.push(Fact::Sentence(with_full_stop(&reason)));
    Some(Scope::Placed { parts: distinct(std::mem::take(parts)), pushdown: Err(refusal) })
}

/// A part for all rows of each group, in a fixed order.
pub fn every_group(map: &MapSnapshot) -> impl Iterator<Item = Part> {
    let mut groups: Vec<GroupId> = map.groups.keys().copied().collect();
    groups.sort_unstable();
    groups.into_iter().map(|group| Part::Sharded { group, condition: KeyCondition::All, stores: false })
}

fn with_full_stop(reason: &str) -> String {
    let mut characters = reason.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let rest = characters.as_str();
    if rest.ends_with('.') { format!("{first}{rest}") } else { format!("{first}{rest}.") }
}

/// Tables that functions, triggers and policies touch: no key restricts them.
fn add_hidden(reader: &mut Reader<'_>, parts: &mut Vec<Part>) {
    for oid in std::mem::take(&mut reader.notes.hidden_sharded) {
        let Some(relation) = reader.context.catalog.relations.get(&oid) else {
            continue;
        };
        if let Resolved::Sharded { group, .. } = super::query::placed(reader.context, relation, true) {
            let part = Part::Sharded { group: group.id, condition: KeyCondition::All, stores: false };
            let fact = format!("Table \"{}\" is touched by a function, trigger, policy or view.", relation.name);
            reader.why.push(Fact::Sentence(fact));
            let by = reader.notes.hidden_by.as_deref();
            let refusal = PgError::unsupported(
                format!("table \"{}\" is touched by a function, trigger or policy of this statement", relation.name),
                format!("What {} reads or writes may be on another shard.", by.unwrap_or("it")),
                hidden_hint(&reader.notes, &relation.name),
            );
            match reader.notes.declaration.is_some() || reader.is_modification {
                // Rather than what else keeps the statement from several shards: on one of them it would not be right either.
                true => reader.notes.pushdown = Some(refusal),
                false => reader.notes.not_pushable(refusal),
            }
            parts.push(part);
        }
    }
}

/// What to do where a function, trigger or policy touches the sharded table.
pub fn hidden_hint(notes: &Notes, table: &str) -> String {
    let by = notes.hidden_by.as_deref().unwrap_or_default();
    match &notes.declaration {
        _ if notes.lacks_key => "The function touches rows of one shard key: give that as a constant or a parameter, \
                                 or restrict the statement to one shard key."
            .to_owned(),
        Some(declaration) => format!("If these are rows of one shard key, which it is given, say so: {declaration}"),
        None if by.starts_with("policy ") => format!(
            "Make \"{table}\" a reference table, or let the policy use only columns of its own table and settings of the session."
        ),
        None => {
            "Write the statements of its body themselves, or give it the shard key as an argument, by which they are restricted."
                .to_owned()
        }
    }
}

fn own_scope(reader: &mut Reader<'_>, parts: &[Part]) -> Scope {
    let notes = &mut reader.notes;
    let has_others = !parts.is_empty() || notes.has_replicated || notes.has_system || notes.home_reason.is_some();
    if has_others || (notes.has_map && !notes.proxy.relations.is_empty()) {
        return Scope::Refused(PgError::unsupported(
            "relations of the schema shardgate cannot be combined with other tables",
            "The shard map is in a database of its own, and pools and clients are known only to the proxy.",
            "Read them in a statement of their own.",
        ));
    }
    if notes.effect() != Effect::Read {
        return Scope::Refused(PgError::unsupported(
            "relations of the schema shardgate can only be read",
            "They show the shard map, which only the functions of the schema change.",
            "Use shardgate.add_shard(), shardgate.distribute_table() and their kind.",
        ));
    }
    if notes.proxy.is_empty() { Scope::Map } else { Scope::Proxy(std::mem::take(&mut notes.proxy)) }
}

/// `is_call`: it is a function that needs the home shard, and no table.
fn mixed(reason: Option<&str>, is_call: bool) -> PgError {
    PgError::unsupported(
        "home and sharded tables in one statement are not supported across shards",
        reason.unwrap_or("Home tables are only on the home shard."),
        match is_call {
            true => "Call it in a statement of its own, or restrict the statement to one shard key.",
            false => "Make the home table a reference table, shard it by the same key, or read the tables one after the other.",
        },
    )
}

fn distinct(parts: Vec<Part>) -> Vec<Part> {
    let mut list: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        if !list.contains(&part) {
            list.push(part);
        }
    }
    list
}
