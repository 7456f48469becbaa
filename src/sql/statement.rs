//! One statement of a text: from its parse tree to its [`Analysis`].

use std::sync::Arc;

use pg_raw_parse::{Node, nodes};

use super::analysis::{
    Analysis, Command, CopyDirection, Effect, Merge, Numbers, Part, QueryKind, Scope, Scroll, SessionCall, ShardgateCall,
};
use super::context::Context;
use super::ddl::named_relations::{self, mentioned};
use super::ddl::redefined::{self, Redefined, redefined};
use super::ddl::{ddl_locks, in_bodies, schema_guard, truncate};
use super::parse::lexer::{self, Literal, TokenKind};
use super::placing::{self, Placement};
use super::query::{Draws, Reader, Resolved, is_of_server, resolve};
use super::rewrite::{clock, drawing};
use super::utility::materialized::{self, Refresh};
use super::utility::shardgate_call::{self, Naming};
use super::utility::table_as::{self, TableAs};
use super::utility::{cluster_state, execute, own_relations, session_command, set_config, set_sequence};
use super::{ddl, parse, temporary_parts};
use crate::catalog::Relation;
use crate::error::{PgError, SqlState};

/// The text and where the statement is in it.
#[derive(Clone, Copy)]
pub struct Source<'t> {
    pub text: &'t str,
    pub literals: &'t [Literal],
    /// Where the statement before it ended: comments in between belong to this one.
    pub lead: usize,
    pub start: usize,
    pub end: usize,
}

impl<'t> Source<'t> {
    /// The text of the statement.
    pub fn alone(self) -> &'t str {
        self.text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A statement that was read, with what its template depends on.
#[derive(Debug)]
pub struct Reading {
    pub analysis: Analysis,
    /// Ordinals of literals whose values decided the reading: a template serves only texts that have the same.
    pub fixed_literals: Vec<u32>,
}

/// Reads one statement. What is refused whatever its keys are is an analysis too.
pub fn read(node: Node<'_>, source: Source<'_>, context: &Context) -> Reading {
    let mut placement = place(node, source, context).unwrap_or_else(|refusal| failed(node, context, refusal));
    if matches!(placement.scope, Scope::Map | Scope::Proxy(_))
        && let Err(refusal) = own_relations::check(node, context)
    {
        placement.scope = Scope::Refused(refusal);
    }
    if let Some(change) = placement.changes_schema.take().filter(|_| context.map.shards.len() > 1) {
        placement = in_bodies::place(node, source, change, context).unwrap_or_else(|refusal| failed(node, context, refusal));
    }
    let Placement {
        command,
        scope,
        effect,
        merge,
        why,
        mut session_calls,
        fixed_literals,
        is_template,
        has_unknown_names,
        split_rows,
        numbers,
        copy_in,
        opinion,
        notifies,
        shows_one_of_equals,
        changes_schema: _,
    } = placement;
    let effects = super::effects::of_statement(node, source.text, context, has_unknown_names);
    let words = super::effects::of_words(node, source, effects.as_deref());
    if cluster_state::may_ask(node, source.alone()) {
        session_calls.push(SessionCall::ClusterState);
    }
    if let Command::Show(name) = &command
        && is_of_server(&name.to_ascii_lowercase())
    {
        session_calls.push(SessionCall::OneServer);
    }
    let is_query = matches!(command, Command::Query(_));
    let is_template = is_template && is_query;
    let analysis = Analysis {
        start: source.start,
        end: source.end,
        command,
        scope,
        effect,
        merge: merge.map(Arc::new),
        parameter_count: parameter_count(source),
        why,
        shard_hint: shard_hint(source),
        is_template,
        session_calls,
        has_unknown_names,
        split_rows,
        // What stands in another statement is numbered where that runs.
        numbers: if numbers == Numbers::Drawn && !is_query && copy_in.is_none() { Numbers::Unseen } else { numbers },
        copy_in,
        opinion,
        notifies,
        effects,
        words,
        shows_one_of_equals,
    };
    Reading { analysis, fixed_literals }
}

fn place(node: Node<'_>, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    if let Some(command) = session_command::classify(node) {
        return Ok(match command? {
            Command::TwoPhase => Placement::new(Command::TwoPhase, Scope::Refused(two_phase()), Effect::Write),
            Command::SetConstraints => Placement::new(Command::SetConstraints, Scope::EveryShard, Effect::Read),
            command => Placement::new(command, Scope::Session, Effect::Read),
        });
    }
    match node {
        Node::None => Ok(Placement::new(Command::Empty, Scope::Session, Effect::Read)),
        Node::SelectStmt(select) => place_select(select, source, context),
        Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => place_write(node, source, context),
        Node::PrepareStmt(prepare) => {
            let start = after_word(source, "as").unwrap_or(source.start);
            let name = prepare.name().unwrap_or_default().to_owned();
            Ok(Placement::new(Command::Prepare { name, start, end: source.end }, Scope::Session, Effect::Read))
        }
        Node::ExecuteStmt(statement) => execute::place(statement, source, context),
        Node::ExplainStmt(explain) => Ok(place_explain(explain, source, context)),
        Node::DeclareCursorStmt(cursor) => place_cursor(cursor, source, context),
        Node::CopyStmt(copy) => place_copy(copy, source, context),
        Node::CallStmt(call) => place_call(call, source, context),
        Node::NotifyStmt(_) => {
            let placement = Placement::new(Command::Notify, Scope::Tableless, Effect::Write);
            Ok(Placement { notifies: Some("NOTIFY".to_owned()), ..placement })
        }
        Node::DoStmt(block) => {
            schema_guard::guard_block(block)?;
            if let Some(changes) = in_bodies::changes_of_block(block, context) {
                return place_changes(&changes, ddl::Ddl::of_call("DO", false), context);
            }
            let mut reader = Reader::new(context, source.text, source.literals);
            reader.anonymous_block(block);
            Ok(placing::finish(reader, Command::Do, Ok(Merge::default())))
        }
        Node::TruncateStmt(truncate) => {
            schema_guard::guard(node, source.alone(), context)?;
            let relations: Vec<&nodes::RangeVar> = truncate.relations().iter().filter_map(range_variable).collect();
            let is_cascading = truncate.behavior == nodes::DropBehavior::DROP_CASCADE;
            let command = Command::Truncate { restarts: Vec::new() };
            let placement = placing::of_relations(relations.iter().copied(), command, Effect::Write, context, source);
            let options = truncate::Options { is_cascading, restarts: truncate.restart_seqs };
            Ok(truncate::of_all_that_is_emptied(placement, &relations, options, context, source))
        }
        Node::LockStmt(lock) => {
            let relations = lock.relations().iter().filter_map(range_variable);
            Ok(placing::of_relations(relations, Command::Lock, Effect::ReadLocking, context, source))
        }
        Node::VacuumStmt(_) | Node::ClusterStmt(_) | Node::ReindexStmt(_)
            if let Some(found) = ddl::maintenance_of_temporary(node, context) =>
        {
            Ok(Placement::new(found.into_command(), at_home(), Effect::Write))
        }
        Node::VacuumStmt(vacuum) => {
            let relations = vacuum.rels().iter().filter_map(|relation| relation.relation());
            Ok(placing::of_relations(relations, Command::Maintenance, Effect::Write, context, source))
        }
        Node::ClusterStmt(cluster) => {
            Ok(placing::of_relations(cluster.relation().into_iter(), Command::Maintenance, Effect::Write, context, source))
        }
        Node::ReindexStmt(reindex) => {
            Ok(placing::of_relations(reindex.relation().into_iter(), Command::Maintenance, Effect::Write, context, source))
        }
        Node::CheckPointStmt(_) => Ok(Placement::new(Command::Maintenance, Scope::EveryShard, Effect::Write)),
        Node::RefreshMatViewStmt(refresh) => place_refresh(refresh, source, context),
        _ => place_ddl(node, source, context),
    }
}

fn place_select(select: &nodes::SelectStmt, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    if let Some(call) = shardgate_call::select(select, &naming(context, &|name| is_user_function(context, name))) {
        return Ok(shardgate_command(call?));
    }
    if let Some(calls) = set_config::select(select) {
        return Ok(Placement::new(Command::SetConfig(calls), Scope::Session, Effect::Read));
    }
    if set_sequence::is_one(select, context) {
        return Ok(Placement::new(Command::SetSequence, Scope::Session, Effect::Write));
    }
    if let Some(into) = select.into_clause() {
        return place_table_as(Node::SelectStmt(select), Some(into), "SELECT INTO", false, source, context);
    }
    let mut reader = Reader::new(context, source.text, source.literals);
    if drawing::is_of_numbers(select, context) {
        reader.draws = Draws::Select;
        reader.note_numbers(Numbers::Drawn);
    }
    reader.moves_clocks = clock::is_movable(source.alone(), Some(context));
    reader.may_declare = shardgate_call::is_only_source(select);
    let merge = reader.outermost(select)?;
    let named = std::mem::take(&mut reader.named);
    let placement = placing::finish(reader, Command::Query(QueryKind::Select), merge);
    Ok(placing::seen_twice(placement, &named, source, context))
}

fn place_write(node: Node<'_>, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    let mut reader = Reader::new(context, source.text, source.literals);
    let (kind, modified) = reader.modification(node, &None)?;
    if !matches!(node, Node::InsertStmt(insert) if insert.with_clause().is_none()) && reader.notes.numbers == Numbers::Drawn {
        reader.notes.numbers = Numbers::Unseen;
    }
    if modified.is_replicated {
        return Ok(placing::finish_replicated_write(reader, kind));
    }
    let named = std::mem::take(&mut reader.named);
    let placement = placing::finish(reader, Command::Query(kind), Ok(Merge::default()));
    Ok(placing::seen_twice(placement, &named, source, context))
}

fn place_explain(explain: &nodes::ExplainStmt, source: Source<'_>, context: &Context) -> Placement {
    let shards = session_command::option_is_on(explain.options(), "shards");
    let analyze = session_command::option_is_on(explain.options(), "analyze");
    let format = session_command::explain_format(explain.options());
    let start = after_explain(source, !explain.options().is_empty()).unwrap_or(source.start);
    let inner = read(explain.query(), Source { lead: source.lead, start, ..source }, context).analysis;
    let effect = if analyze { inner.effect } else { Effect::Read };
    let scope = if shards { Scope::Session } else { inner.scope.clone() };
    let why = inner.why.clone();
    let session_calls = inner.session_calls.clone();
    let has_unknown_names = inner.has_unknown_names;
    let mut placement = Placement::new(Command::Explain { shards, analyze, format, inner: Box::new(inner) }, scope, effect);
    placement.why = why;
    placement.session_calls = session_calls;
    placement.has_unknown_names = has_unknown_names;
    placement
}

/// A query whose rows something else takes: what the session answers by itself is not one.
fn of_rows(mut inner: Placement) -> Result<Placement, PgError> {
    match &inner.command {
        Command::SetConfig(_) => inner.session_calls.push(SessionCall::SetConfig),
        Command::Query(_) => {
            if let Scope::Proxy(rows) = &inner.scope
                && let Some(call) = shardgate_call::declaration_among(rows)
            {
                return Err(shardgate_call::not_alone(&call.function));
            }
        }
        _ => {
            inner.scope = Scope::Refused(PgError::unsupported(
                "this function is not supported in COPY or a cursor",
                "The proxy answers it by itself.",
                "Call it by a SELECT of its own.",
            ));
        }
    }
    Ok(inner)
}

fn place_cursor(cursor: &nodes::DeclareCursorStmt, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    const BINARY: i32 = 0x0001;
    const SCROLL: i32 = 0x0002;
    const NO_SCROLL: i32 = 0x0004;
    const HOLD: i32 = 0x0020;
    let inner = of_rows(place(cursor.query(), source, context)?)?;
    let scroll = match cursor.options {
        options if options & SCROLL != 0 => Scroll::Yes,
        options if options & NO_SCROLL != 0 => Scroll::No,
        _ => Scroll::Unsaid,
    };
    let command = Command::DeclareCursor {
        name: cursor.portalname().unwrap_or_default().to_owned(),
        is_hold: cursor.options & HOLD != 0,
        is_binary: cursor.options & BINARY != 0,
        scroll,
        start: after_word(source, "for").unwrap_or(source.start),
    };
    let merge = Err(PgError::unsupported(
        "a cursor over several shards is not supported",
        "Its position would have to be kept on every shard.",
        "Run the query itself, or restrict it to one shard key.",
    ));
    Ok(Placement { command, merge, ..inner })
}

fn place_copy(copy: &nodes::CopyStmt, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    let direction = match (copy.filename(), copy.is_program, copy.is_from) {
        (Some(_), ..) | (None, true, _) => CopyDirection::Server,
        (None, false, true) => CopyDirection::FromStdin,
        (None, false, false) => CopyDirection::ToStdout,
    };
    let effect = if copy.is_from { Effect::Write } else { Effect::Read };
    let refusal = PgError::unsupported(
        "COPY over several shards is not supported",
        if copy.is_from { "Its rows belong to several shards." } else { "The rows are on several shards." },
        if copy.is_from { "Insert the rows, or copy those of one shard at a time." } else { "Use SELECT instead." },
    );
    let Some(relation) = copy.relation() else {
        let mut inner = of_rows(place(copy.query(), source, context)?)?;
        inner.command = Command::Copy(direction);
        inner.merge = Err(refusal);
        return Ok(inner);
    };
    if direction == CopyDirection::FromStdin
        && let Some(placement) = place_copy_in(copy, relation, source, context)?
    {
        return Ok(placement);
    }
    if let Some(placement) = place_copy_of_one_server(copy, relation, direction, source, context)? {
        return Ok(placement);
    }
    let mut placement = placing::of_relations([relation].into_iter(), Command::Copy(direction), effect, context, source);
    match &mut placement.scope {
        Scope::Placed { pushdown, .. } if pushdown.is_ok() => *pushdown = Err(refusal),
        Scope::EveryShard if !copy.is_from => placement.scope = Scope::Replicated,
        Scope::EveryShard => {
            placement.scope = Scope::Refused(PgError::unsupported(
                "COPY into a reference table is not supported",
                "The rows would have to be written on every shard.",
                "Insert the rows instead.",
            ));
        }
        _ => {}
    }
    Ok(placement)
}

/// Of a table of the home shard, or of the copy that it has: where what triggers, defaults and policies touch is there too. `None`: of
/// another table, or one that none of these are of.
fn place_copy_of_one_server(
    copy: &nodes::CopyStmt,
    name: &nodes::RangeVar,
    direction: CopyDirection,
    source: Source<'_>,
    context: &Context,
) -> Result<Option<Placement>, PgError> {
    let mut reader = Reader::new(context, source.text, source.literals);
    let is_read = match copy.is_from {
        true => reader.copy_in_at_home(copy, name)?,
        false => reader.copy_out_of_one_server(name),
    };
    if !is_read {
        return Ok(None);
    }
    let refusal = PgError::unsupported(
        "COPY over several shards is not supported",
        "A trigger, default, function or policy of the table reads or writes tables of other shards.",
        if copy.is_from { "Insert the rows, and write what belongs to other shards yourself." } else { "Use SELECT instead." },
    );
    let mut placement = placing::finish(reader, Command::Copy(direction), Ok(Merge::default()));
    if matches!(placement.scope, Scope::Placed { pushdown: Err(_), .. }) && context.map.shards.len() > 1 {
        placement.scope = Scope::Refused(refusal);
    }
    Ok(Some(placement))
}

/// `None`: the table is neither sharded nor a reference table.
fn place_copy_in(
    copy: &nodes::CopyStmt,
    relation: &nodes::RangeVar,
    source: Source<'_>,
    context: &Context,
) -> Result<Option<Placement>, PgError> {
    let mut reader = Reader::new(context, source.text, source.literals);
    let Some(copy_in) = reader.copy_in(copy, relation)? else { return Ok(None) };
    let command = Command::Copy(CopyDirection::FromStdin);
    let placement = if copy_in.key.is_empty() {
        Placement { command, ..placing::finish_replicated_write(reader, QueryKind::Insert) }
    } else {
        placing::finish(reader, command, Ok(Merge::default()))
    };
    Ok(Some(Placement { copy_in: Some(Arc::new(copy_in)), ..placement }))
}

/// A materialised view is filled on the home shard, where its rows are. What its query reads may have been distributed since.
fn place_refresh(refresh: &nodes::RefreshMatViewStmt, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    let resolved = refresh.relation().map(|name| resolve(context, name, &context.search_path));
    let view = match resolved {
        Some(Resolved::Home(Some(view))) if view.view_definition.is_some() && !refresh.skip_data => view,
        _ => {
            let relations = refresh.relation().into_iter();
            return Ok(placing::of_relations(relations, Command::Refresh(None), Effect::Write, context, source));
        }
    };
    if let Some(refresh) = Refresh::of(view, &context.catalog) {
        return Ok(Placement::new(Command::Refresh(Some(Arc::new(refresh))), at_home(), Effect::Write));
    }
    let mut reader = Reader::new(context, source.text, source.literals);
    reader.refreshed(view)?;
    let mut placement = placing::finish(reader, Command::Refresh(None), Ok(Merge::default()));
    let is_elsewhere = matches!(placement.scope, Scope::Placed { pushdown: Err(_), .. }) && context.map.shards.len() > 1;
    placement.scope = match placement.scope {
        Scope::Refused(refusal) => Scope::Refused(refusal),
        _ if is_elsewhere => Scope::Refused(PgError::unsupported(
            format!("REFRESH of materialized view \"{}\" is not supported", view.name),
            "It was made when the rows that it reads were on one shard, and is filled by that shard's alone.",
            made_anew(context, view),
        )),
        _ => Scope::Placed { parts: vec![Part::Home], pushdown: Ok(()) },
    };
    Ok(placement)
}

fn place_call(call: &nodes::CallStmt, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    let function = call.funccall().ok_or_else(|| PgError::internal("CALL without a procedure"))?;
    if let Some(call) = shardgate_call::procedure(function, &naming(context, &|name| is_user_function(context, name))) {
        return Ok(shardgate_command(call?));
    }
    let mut reader = Reader::new(context, source.text, source.literals);
    reader.procedure(function)?;
    Ok(placing::finish(reader, Command::Call, Ok(Merge::default())))
}

fn place_ddl(node: Node<'_>, source: Source<'_>, context: &Context) -> Result<Placement, PgError> {
    if let Some(refusal) = ddl::refusal(node).or_else(|| ddl::temporary_refusal(node, context)) {
        return Err(refusal);
    }
    if let Node::CreateTableAsStmt(create) = node {
        let is_view = create.objtype == nodes::ObjectType::OBJECT_MATVIEW;
        let tag = if is_view { MATERIALIZED_VIEW } else { "CREATE TABLE AS" };
        return place_table_as(create.query(), create.into(), tag, is_view, source, context);
    }
    let Some(found) = ddl::classify(node) else {
        return Err(PgError::unsupported(
            "this statement is not supported",
            "The proxy does not know what it does on several servers.",
            "Run it on each server directly, if it must be run.",
        ));
    };
    schema_guard::guard(node, source.alone(), context)?;
    if let Node::ViewStmt(view) = node {
        match view.view().is_some_and(ddl::is_temporary) {
            true => temporary_parts::check_view(view, source, context)?,
            false if mentioned(source, context).is_some() => return Err(of_temporary("CREATE VIEW")),
            false => {}
        }
    }
    let is_temporary = found.creates_temporary.is_some() || named_relations::is_of_temporary(node, source, context)?;
    if is_temporary {
        temporary_parts::check(node, source, context)?;
    }
    let scope = if is_temporary { at_home() } else { Scope::EveryShard };
    let mut command = found.into_command();
    if let Command::Ddl { renames, numbered, timed, altered, locks, redefines, takes, afterwards, .. } = &mut command {
        *afterwards = materialized::with_those_beside(node, context).into();
        *redefines = redefined(node, context);
        *takes = redefined::taken(node, context).into();
        *renames = schema_guard::distributed_rename(node, context).map(Arc::new);
        *numbered = schema_guard::numbered_columns(node, context).map(Arc::new);
        *timed = schema_guard::timed_columns(node, source.alone(), context).map(Arc::new);
        *altered = schema_guard::altered_sequences(node, context).map(Arc::new);
        *locks = ddl_locks::table_locks(node, context).map(Arc::new);
    }
    Ok(Placement::new(command, scope, Effect::Write))
}

fn at_home() -> Scope {
    Scope::Placed { parts: vec![Part::Home], pushdown: Ok(()) }
}

/// What is sent to every shard as it is and makes these schema changes, perhaps among others.
pub(super) fn place_changes(changes: &[String], call: ddl::Ddl, context: &Context) -> Result<Placement, PgError> {
    let mut redefines = Redefined::Nothing;
    let mut concerns_roles: Option<bool> = None;
    let (mut drops, mut taken) = (false, Vec::new());
    for text in changes {
        let tree = parse::parse(text)?;
        let Some(node) = tree.stmts().next() else { continue };
        let source = Source { text, literals: &[], lead: 0, start: 0, end: text.len() };
        let Placement { command, scope, .. } = place_ddl(node, source, context)?;
        let is_plain = matches!(scope, Scope::EveryShard)
            && matches!(
                command,
                Command::Ddl {
                    creates_temporary: None,
                    outside_transaction: false,
                    renames: None,
                    table_as: None,
                    numbered: None,
                    timed: None,
                    altered: None,
                    ..
                }
            );
        let Command::Ddl { redefines: these, once_per_server, takes, afterwards, .. } = command else {
            return Err(in_bodies::not_in_a_block(""));
        };
        drops |= redefined::drops_tables(node);
        taken.extend(takes.iter().cloned());
        redefines = redefines.with(these);
        // Not both on every shard and on one of each server.
        let is_mixed = concerns_roles.replace(once_per_server).is_some_and(|before| before != once_per_server);
        if !is_plain || !afterwards.is_empty() || is_mixed || matches!(node, Node::CreateTableAsStmt(_)) {
            let tag = ddl::classify(node).map_or_else(String::new, |found| found.tag);
            return Err(in_bodies::not_in_a_block(&tag));
        }
    }
    if drops && !taken.is_empty() {
        return Err(in_bodies::not_in_a_block("DROP TABLE"));
    }
    let redefines = redefines.with(call.redefines.clone());
    let call = ddl::Ddl { redefines, takes: taken, once_per_server: concerns_roles == Some(true), ..call };
    let command = call.into_command();
    Ok(Placement::new(command, Scope::EveryShard, Effect::Write))
}

/// CREATE TABLE AS, SELECT INTO, CREATE MATERIALIZED VIEW: a table of the home shard with rows from a query.
fn place_table_as(
    query: Node<'_>,
    into: Option<&nodes::IntoClause>,
    tag: &str,
    is_view: bool,
    source: Source<'_>,
    context: &Context,
) -> Result<Placement, PgError> {
    let Node::SelectStmt(select) = query else { return Err(execute_refusal(tag)) };
    let relation = into.and_then(|into| into.rel());
    let temporary = relation.filter(|relation| ddl::is_temporary(relation)).and_then(|relation| relation.relname());
    let command = |table_as: Option<TableAs>| Command::Ddl {
        tag: tag.to_owned(),
        creates_temporary: temporary.map(str::to_owned),
        outside_transaction: false,
        once_per_server: false,
        renames: None,
        table_as: table_as.map(Arc::new),
        numbered: None,
        timed: None,
        altered: None,
        locks: None,
        afterwards: Arc::default(),
        gives_rows: false,
        by_body: false,
        redefines: redefined::relation(relation, context),
        takes: redefined::taken_by(relation, context).into(),
    };
    if into.is_some_and(|into| into.skip_data && !is_view) {
        let scope = match temporary {
            Some(_) => at_home(),
            None => Scope::EveryShard,
        };
        return Ok(Placement::new(command(None), scope, Effect::Write));
    }
    if temporary.is_none() && mentioned(source, context).is_some() {
        return Err(of_temporary(tag));
    }
    let mut reader = Reader::new(context, source.text, source.literals);
    reader.outermost(select)?.ok();
    let is_read = reader.notes.effect() == Effect::Read;
    // Its rows are on the home shard, and on another it may not be filled.
    let reads_stored = reader.notes.reads_stored_view && context.map.shards.len() > 1;
    reader.notes.writes();
    let alone = source.alone();
    let kind = match tag {
        "SELECT INTO" => table_as::Kind::SelectInto,
        _ if is_view => table_as::Kind::View,
        _ => table_as::Kind::Table,
    };
    let table_as = into.filter(|_| is_read);
    let table_as = table_as.and_then(|into| table_as::table_as(alone, source.start, into, temporary.is_some(), kind));
    if table_as.is_some() {
        // Pieces of this text.
        reader.notes.is_bound_to_text = true;
    }
    if temporary.is_some() {
        reader.parts.push(Part::Home);
        return Ok(placing::finish(reader, command(table_as), Ok(Merge::default())));
    }
    // Each shard runs it. Elsewhere than at home, home tables are empty, and so is what is made from them.
    let placement = placing::finish(reader, command(None), Ok(Merge::default()));
    let is_home_only = match &placement.scope {
        Scope::Placed { parts, .. } => parts.iter().all(|part| matches!(part, Part::Home)),
        Scope::Replicated | Scope::Tableless | Scope::System => is_view,
        _ => false,
    };
    let table_as = table_as.map(|mut table| {
        table.view.iter_mut().for_each(|view| view.is_of_home = is_home_only);
        table
    });
    match (is_home_only && !reads_stored, table_as, &placement.scope) {
        (true, _, _) => Ok(Placement { scope: Scope::EveryShard, ..placement }),
        (false, Some(table_as), Scope::Placed { .. } | Scope::Replicated | Scope::Tableless | Scope::System) => {
            Ok(Placement { command: command(Some(table_as)), scope: Scope::EveryShard, ..placement })
        }
        (false, _, _) => Err(table_as_refusal(tag)),
    }
}

fn of_temporary(tag: &str) -> PgError {
    PgError::unsupported(
        format!("{tag} of temporary tables is not supported"),
        "Every shard gets the definition, and none but the session's own connection has these tables.",
        "Make it temporary too, or create a table first and insert the rows.",
    )
}

fn execute_refusal(tag: &str) -> PgError {
    PgError::unsupported(
        format!("{tag} EXECUTE is not supported"),
        "The table is made on every shard, and the prepared statement is the session's.",
        "Write the query in place of EXECUTE.",
    )
}

fn table_as_refusal(tag: &str) -> PgError {
    let hint = match tag {
        MATERIALIZED_VIEW => "Make a table of its rows.",
        _ => "Create the table first and fill it with INSERT ... SELECT.",
    };
    PgError::unsupported(
        format!("{tag} from these tables is not supported"),
        "The rows would be stored on every shard that runs it.",
        hint,
    )
}

const MATERIALIZED_VIEW: &str = "CREATE MATERIALIZED VIEW";

/// Ready to be run.
fn made_anew(context: &Context, view: &Relation) -> String {
    let (drop, create) =
        materialized::made_anew(&context.catalog, view, view.view_definition.as_deref().unwrap_or_default(), &context.user);
    format!("Make it anew, with its privileges, its comments and what depends on it: {drop} {create}")
}

/// A statement that could not be placed: refused, or, when it is only too large to be read, kept to where everything is.
fn failed(node: Node<'_>, context: &Context, refusal: PgError) -> Placement {
    let command = match node {
        Node::SelectStmt(_) => Command::Query(QueryKind::Select),
        Node::InsertStmt(_) => Command::Query(QueryKind::Insert),
        Node::UpdateStmt(_) => Command::Query(QueryKind::Update),
        Node::DeleteStmt(_) => Command::Query(QueryKind::Delete),
        Node::MergeStmt(_) => Command::Query(QueryKind::Merge),
        Node::CallStmt(_) => Command::Call,
        Node::DoStmt(_) => Command::Do,
        Node::CopyStmt(_) => Command::Copy(CopyDirection::Server),
        Node::TransactionStmt(_) => Command::TwoPhase,
        other => ddl::classify(other).map_or(Command::Maintenance, |found| found.into_command()),
    };
    let has_reference_tables = context.map.tables.values().any(|table| table.kind == crate::shardmap::TableKind::Reference);
    if refusal.code != SqlState::STATEMENT_TOO_COMPLEX || has_reference_tables || !matches!(command, Command::Query(_)) {
        return Placement::new(command, Scope::Refused(refusal), Effect::Write);
    }
    let parts = std::iter::once(Part::Home).chain(placing::every_group(&context.map)).collect();
    Placement::new(command, Scope::Placed { parts, pushdown: Err(refusal) }, Effect::Write)
}

fn shardgate_command(call: ShardgateCall) -> Placement {
    Placement::new(Command::Shardgate(call), Scope::Session, Effect::Write)
}

fn naming<'c>(context: &Context, is_user_function: &'c dyn Fn(&str) -> bool) -> Naming<'c> {
    let is_schema_searched = context.search_path.iter().any(|schema| schema == shardgate_call::SCHEMA);
    Naming { is_schema_searched, is_user_function }
}

fn is_user_function(context: &Context, name: &str) -> bool {
    context.catalog.function_names.contains_key(name)
}

fn range_variable(node: Node<'_>) -> Option<&nodes::RangeVar> {
    match node {
        Node::RangeVar(relation) => Some(relation),
        _ => None,
    }
}

/// LOCK TABLE in the weakest mode, which only keeps the tables from being dropped, emptied or changed.
pub fn is_access_share(text: &str) -> bool {
    const ACCESS_SHARE: i32 = 1;
    let is_weakest = |node: Node<'_>| matches!(node, Node::LockStmt(lock) if lock.mode == ACCESS_SHARE);
    parse::parse(text).is_ok_and(|tree| tree.stmts().next().is_some_and(is_weakest))
}

fn two_phase() -> PgError {
    PgError::unsupported(
        "prepared transactions by the client are not supported",
        "PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED would name a transaction of one shard only.",
        "End the transaction with COMMIT.",
    )
}

/// The highest `$n` of the statement.
fn parameter_count(source: Source<'_>) -> u16 {
    let Some(text) = source.text.get(source.start..source.end).filter(|text| text.contains('$')) else {
        return 0;
    };
    lexer::tokens(text)
        .filter(|token| token.kind == TokenKind::Parameter)
        .filter_map(|token| text.get(token.start + 1..token.end)?.parse().ok())
        .max()
        .unwrap_or(0)
}

/// `/* shardgate: shard=name */`, in the statement or before it.
fn shard_hint(source: Source<'_>) -> Option<String> {
    let text = source.text.get(source.lead..source.end).filter(|text| text.contains("shardgate:"))?;
    lexer::tokens(text).filter(|token| token.kind == TokenKind::Comment).find_map(|token| {
        let comment = text.get(token.start..token.end)?.strip_prefix("/*")?.strip_suffix("*/")?;
        let hint = comment.trim().strip_prefix("shardgate:")?.trim().strip_prefix("shard")?.trim_start().strip_prefix('=')?;
        let name = hint.trim().trim_matches(['\'', '"']);
        (!name.is_empty()).then(|| name.to_owned())
    })
}

/// Where the token after the first such keyword outside parentheses begins.
fn after_word(source: Source<'_>, word: &str) -> Option<usize> {
    let text = source.text.get(source.start..source.end)?;
    let mut depth = 0usize;
    let mut is_after = false;
    for token in lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment) {
        let piece = text.get(token.start..token.end)?;
        if is_after {
            return Some(source.start + token.start);
        }
        match piece {
            "(" => depth += 1,
            ")" => depth = depth.checked_sub(1)?,
            _ => is_after = depth == 0 && token.kind == TokenKind::Word && piece.eq_ignore_ascii_case(word),
        }
    }
    None
}

/// Where the statement to be explained begins.
fn after_explain(source: Source<'_>, has_options: bool) -> Option<usize> {
    let text = source.text.get(source.start..source.end)?;
    let mut tokens = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).skip(1).peekable();
    let mut depth = 0usize;
    // A list of options comes at once or not at all: after ANALYZE, a parenthesis is the statement's own.
    let mut is_first = true;
    while let Some(token) = tokens.peek() {
        let piece = text.get(token.start..token.end)?;
        let is_option_word = ["analyze", "analyse", "verbose"].iter().any(|word| piece.eq_ignore_ascii_case(word));
        match piece {
            "(" if has_options && (is_first || depth > 0) => depth += 1,
            ")" if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    tokens.next();
                    return tokens.peek().map(|token| source.start + token.start);
                }
            }
            _ if depth > 0 || (has_options && is_option_word) => {}
            _ => return Some(source.start + token.start),
        }
        is_first = false;
        tokens.next();
    }
    None
}
