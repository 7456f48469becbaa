//! Temporary tables: they live on the home shard's connection, which the session keeps from the first one on.
//!
//! Their names hide those of tables, so the session must know them exactly. It does not follow what creates and drops them (a
//! rollback, ON COMMIT DROP, DROP OWNED …): whenever they may have changed, it asks the connection before the next statement is
//! read. What they look like it asks when a statement needs their rows together with those of several shards.

use std::sync::Arc;

use super::table_as;
use crate::backend::{Own, Reply, ShardText, StatementName, temporary_tables};
use crate::catalog::{Relation, mentions};
use crate::error::{PgError, SqlState};
use crate::routing::{Inputs, Reach};
use crate::session::ddl::every_shard;
use crate::session::protocol::describe::prepare_on;
use crate::session::protocol::statement::Statement;
use crate::session::route::Route;
use crate::session::transaction::decider::TEMPORARY_OBJECTS;
use crate::session::transaction::participant::Participant;
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::analysis::{Analysis, Command, Part, Scope};
use crate::wire;

/// What the session knows of its temporary tables.
#[derive(Default)]
pub(in crate::session) struct TemporaryTables {
    /// Of indexes too, which hide tables of their names like these.
    pub names: Vec<String>,
    /// The connection has, or had, some.
    is_used: bool,
    /// Triggers, defaults, views and the like of them may call functions, which may leave something in the session.
    call_functions: bool,
    /// `names` may be out of date.
    is_stale: bool,
    /// Something was created, changed or dropped since `version` was taken, or this was taken back.
    has_changed: bool,
    /// Stands for what the names mean; no other state of any session has the same. `None`: there are none.
    version: Option<u64>,
    /// What those tables look like whose rows other connections can have, and the version at which they were asked for.
    shapes: Option<(Option<u64>, Vec<Relation>)>,
}

impl TemporaryTables {
    /// The connection has, or had, some.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// There are some now.
    pub fn are_there(&self) -> bool {
        !self.names.is_empty()
    }

    /// A statement that works on them may call functions that it does not name.
    pub fn call_functions(&self) -> bool {
        self.call_functions
    }

    /// One of them may be meant somewhere in a text.
    pub fn are_named(&self, text: &[u8]) -> bool {
        mentions(&String::from_utf8_lossy(text), &self.names.iter().cloned().collect())
    }

    /// Those that a statement may combine with rows of several shards, as far as they have been asked for.
    pub fn shapes(&self) -> &[Relation] {
        self.shapes.as_ref().map(|(_, shapes)| shapes.as_slice()).unwrap_or_default()
    }

    /// A function makes some, or may.
    pub fn may_have_changed(&mut self) {
        self.is_used = true;
        self.is_stale = true;
        self.has_changed = true;
    }

    /// A transaction, or a part of one, has ended.
    pub fn transaction_ended(&mut self) {
        self.is_stale |= self.is_used;
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// A schema change that concerns temporary tables only. What they are filled from must be on the home shard.
pub(in crate::session) async fn change_temporary(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
    bound: Option<(&Arc<Statement>, &wire::Bind<'_>)>,
) -> Result<(), Failure> {
    let bound = bound.filter(|_| statement.parameter_count > 0);
    let types = match bound {
        Some((prepared, _)) => session.describe(prepared).await?.parameter_types.clone(),
        None => Vec::new(),
    };
    let read = session.read(text).await?;
    let inputs = match bound {
        Some((_, bind)) => Inputs::bound(text, &read.literals, bind, &types),
        None => Inputs::literals(text, &read.literals),
    };
    let home = session.home()?;
    let at_home = match session.route(statement, &inputs).await {
        Ok(Route::Shard(reach)) => Some(reach).filter(|reach| reach.single() == Some(home.id)),
        Ok(Route::Scatter(_) | Route::Write(_) | Route::Gather(_)) => None,
        Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED => None,
        Err(failure) => return Err(failure),
    };
    let Some(reach) = at_home else {
        let Command::Ddl { table_as: Some(table), .. } = &statement.command else { return Err(not_at_home().into()) };
        return Box::pin(table_as::create_table_as(session, table, statement, text)).await;
    };
    let index = keep_temporary(session, &home).await?;
    session.pin_if_needed(index, statement);
    if let Some((prepared, bind)) = bound {
        return run_bound(session, &reach, index, prepared, bind).await;
    }
    let alone = text.get(statement.start..statement.end).unwrap_or(text);
    let context = Arc::clone(&session.context);
    every_shard::run_on_one(session, &home, &ShardText::of(&reach, alone.as_bytes(), &context)?, true).await
}

/// The connection of the temporary tables, which are about to change.
pub(in crate::session) async fn keep_temporary(session: &mut Session, home: &Shard) -> Result<usize, Failure> {
    session.transaction.decide_on(home.id, TEMPORARY_OBJECTS, &session.gateway, session.batch.is_open)?;
    let index = session.join(home.id).await?;
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        pin(participant);
    }
    session.temporary_tables.may_have_changed();
    Ok(index)
}

/// With its parameters, within the client's pipeline. By the name of the client's portal, which the shard names in errors.
async fn run_bound(
    session: &mut Session,
    reach: &Reach,
    index: usize,
    prepared: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<(), Failure> {
    let prepared_max = session.gateway.prepared_max();
    let participant = session.transaction.at(index)?;
    participant.needs_sync = true;
    let connection = &mut *participant.connection;
    prepare_on(connection, prepared, false, prepared_max);
    let text = prepared.text_for(reach)?;
    connection.output.bind(bind.portal, StatementName::Registered(prepared.id), &text, bind.after_names);
    connection.expect(Reply::Bind, false);
    connection.output.execute(bind.portal, 0);
    connection.expect(Reply::Execute, true);
    connection.output.close_portal(bind.portal);
    connection.expect(Reply::Close, false);
    connection.output.flush();
    session.drain(index).await
}

/// Statements prepared under another version may not be used: their plans are for other tables.
pub(in crate::session) fn schema_version(session: &Session) -> u64 {
    let own = session.transaction.schema_change.as_ref().map(|change| change.version).or(session.temporary_tables.version);
    own.unwrap_or(session.context.catalog.version)
}

/// What others change, the session's own version stands for too.
pub(in crate::session) fn note_schema_around_temporary_tables(session: &mut Session) {
    if let Some(version) = &mut session.temporary_tables.version {
        *version = session.gateway.own_version();
    }
}

/// DISCARD TEMP, on the connection that has the tables.
pub(in crate::session) async fn discard_temporary(session: &mut Session) -> Result<(), Failure> {
    let home = session.home()?;
    if session.temporary_tables.is_used && session.transaction.participants().iter().any(|participant| participant.shard == home.id)
    {
        every_shard::run_on_one(session, &home, &Own::OwnTables.text("DISCARD TEMP"), false).await?;
    }
    session.temporary_tables.is_stale = session.temporary_tables.is_used;
    Ok(())
}

/// Asks for the names when they may have changed. In a failed transaction nothing can be asked, and nothing is resolved.
pub(in crate::session) async fn refresh_temporary_tables(session: &mut Session) -> Result<(), Failure> {
    if !session.temporary_tables.is_stale || session.transaction.status == crate::session::transaction::Status::Failed {
        return Ok(());
    }
    let home = session.home()?.id;
    let Some(index) = session.transaction.index_of(home) else {
        session.temporary_tables.forget();
        return Ok(());
    };
    session.drain_with_flush(index).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    let rows = participant
        .connection
        .simple(&Own::Catalog.text(NAMES))
        .await
        .map_err(|error| crate::session::settings::setting::refused("home", error))?;
    let name = |row: &Vec<Option<bytes::Bytes>>| {
        row.first().and_then(Option::as_ref).map(|name| String::from_utf8_lossy(name).into_owned())
    };
    let names: Vec<String> = rows.iter().filter_map(name).collect();
    session.temporary_tables.call_functions = rows.iter().any(|row| matches!(row.get(1), Some(Some(calls)) if **calls == *b"t"));
    session.temporary_tables.shapes = None;
    if session.temporary_tables.has_changed || names != session.temporary_tables.names {
        session.temporary_tables.version = Some(session.gateway.own_version());
        session.temporary_tables.names = names;
    }
    // What was changed in an open transaction may yet be taken back.
    session.temporary_tables.has_changed &= session.transaction.is_open();
    session.temporary_tables.is_stale = false;
    Ok(())
}

/// What the tables look like, before a statement that may read them over rows of several shards is planned.
pub(in crate::session) async fn learn_temporary_tables(session: &mut Session, statement: &Analysis) -> Result<(), Failure> {
    let reads_home = matches!(&statement.scope, Scope::Placed { parts, .. } if parts.contains(&Part::Home));
    let version = session.temporary_tables.version;
    let is_known = session.temporary_tables.shapes.as_ref().is_some_and(|(known, _)| *known == version);
    let is_known = is_known && !session.temporary_tables.is_stale;
    if !reads_home || is_known || !session.temporary_tables.are_there() {
        return Ok(());
    }
    let home = session.home()?.id;
    let Some(index) = session.transaction.index_of(home) else { return Ok(()) };
    session.drain_with_flush(index).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    // Outside of a transaction the text is one by itself.
    let text = match participant.has_begun {
        true => format!("{SAVEPOINT};{};{BACK}", temporary_tables::QUERY),
        false => temporary_tables::QUERY.to_owned(),
    };
    let rows = participant
        .connection
        .simple(&Own::Catalog.text(&text))
        .await
        .map_err(|error| crate::session::settings::setting::refused("home", error))?;
    let shapes = temporary_tables::read(&rows, session.context.catalog.is_collation_c);
    let shapes = shapes.map_err(|error| PgError::internal(error.to_string()))?;
    session.temporary_tables.shapes = Some((version, shapes));
    Ok(())
}

/// Takes the values of parameters from a query: CREATE TEMP TABLE … AS.
pub(in crate::session) fn has_parameters(statement: &Analysis) -> bool {
    matches!((&statement.command, &statement.scope), (Command::Ddl { .. }, Scope::Placed { .. })) && statement.parameter_count > 0
}

fn not_at_home() -> PgError {
    PgError::unsupported(
        "a temporary table cannot be filled from tables of other shards",
        "Temporary tables are on the home shard.",
        "Create the table first, read the rows, and insert them.",
    )
}

fn pin(participant: &mut Participant) {
    participant.pin(crate::session::route::TEMPORARY_TABLE);
}

const SAVEPOINT: &str = "SAVEPOINT shardgate_aside";
const BACK: &str = "ROLLBACK TO SAVEPOINT shardgate_aside;RELEASE SAVEPOINT shardgate_aside";
// Functions of PostgreSQL itself are in no pg_depend: a view may call set_config().
const NAMES: &str = "SELECT c.relname, c.relkind = 'v' \
     OR EXISTS (SELECT FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_depend f ON f.classid = p.classid AND f.objid = p.objid \
                WHERE p.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND p.refobjid = c.oid \
                  AND f.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass) \
     OR EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_constraint d ON d.contypid = a.atttypid \
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND d.contypid <> 0) \
    FROM pg_catalog.pg_class c \
    WHERE c.relnamespace = pg_catalog.pg_my_temp_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'i', 'I') ORDER BY c.relname";
