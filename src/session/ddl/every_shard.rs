//! Schema changes: the same statement on every shard, the home shard first.
//!
//! All shards run it in one transaction each, and these are committed only when all have succeeded: an error anywhere leaves the
//! schema as it was everywhere. What PostgreSQL does not allow in a transaction runs shard by shard ([`super::outside`]).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::keys_left::{keys_that_are_gone, may_cascade};
use super::renamed::{Renaming, not_at_once, on_one_shard};
use super::{calls, outside, patient, redefined, schema};
use crate::auth::stored_password;
use crate::backend::{Own, Reply, ShardText, Stored};
use crate::catalog::{quoted_identifier, quoted_literal};
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState};
use crate::session::commands::command;
use crate::session::ddl::drift::as_of_drift;
use crate::session::sequences::{altered, numbered};
use crate::session::transaction::time_of_other::Timed;
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId};
use crate::sql::analysis::{Analysis, Command, DistributedRename, Splice, TimedColumns, TransactionModes};
use crate::sql::ddl::ddl_locks::TableLocks;
use crate::sql::ddl::key_change;
use crate::sql::ddl::own_database::databases;
use crate::sql::ddl::role_password::password;
use crate::sql::rewrite::blanks::{behind_blanks, in_its_place};
use crate::sql::rewrite::staging::spliced;
use crate::wire::{self, shard_tag};

/// `text`: all that the statement came with.
pub(in crate::session) async fn on_every_shard(session: &mut Session, statement: &Analysis, text: &str) -> Result<(), Failure> {
    session.check_user_schema()?;
    let whole = text;
    let text = text.get(statement.start..statement.end).unwrap_or(text);
    // One shard alone, where a client asks for that: to mend what is missing there.
    let mut shards = shards_home_first(session)?;
    let named = session.hinted(statement)?.filter(|_| matches!(statement.command, Command::Ddl { .. }));
    if let Some(named) = &named {
        if matches!(statement.command, Command::Ddl { numbered: Some(_), .. } | Command::Ddl { altered: Some(_), .. }) {
            return Err(numbers_of_all().into());
        }
        shards.retain(|shard| named.shards().contains(&shard.id));
    }
    let outside = matches!(statement.command, Command::Maintenance | Command::Ddl { outside_transaction: true, .. });
    let renames = match &statement.command {
        Command::Ddl { renames: Some(rename), .. } => Some(&**rename),
        _ => None,
    };
    let renames_known = renames.is_some_and(|rename| !matches!(rename, DistributedRename::Numbered { .. }));
    if renames_known && named.is_some() {
        return Err(on_one_shard().into());
    }
    let ids: Vec<ShardId> = shards.iter().map(|shard| shard.id).collect();
    session.wait_for_shards(&ids).await?;
    if let Command::Ddl { tag, redefines, takes, .. } = &statement.command {
        session.check_all_writable(tag, &ids)?;
        redefined::check_not_dropped(session, takes, renames).await?;
        schema::announce_schema_change(session, tag).await?;
        if renames.is_none() {
            redefined::announce_redefinition(session, redefines).await?;
        }
    }
    let is_meant_for_all = named.is_none() && matches!(statement.command, Command::Ddl { once_per_server: false, .. });
    if is_meant_for_all {
        Box::pin(session.await_lease()).await?;
    }
    let (answered, flushes) = (session.client.output.len(), session.client.flushes);
    if !outside {
        session.keep_pipeline();
    }
    let begins_here = !outside && !session.transaction.is_open();
    if begins_here {
        session.transaction.begin(TransactionModes::default(), &session.settings);
    }
    let (shards, text, is_atomic) = match ways_to_commit(session, statement, shards, text, outside).await {
        Err(failure) if begins_here => {
            command::rollback_everywhere(session).await?;
            return Err(failure);
        }
        found => found?,
    };
    let text = &*text;
    let run = match &statement.command {
        _ if outside => outside::run_outside(session, &shards, text).await,
        Command::Ddl { renames: Some(_), .. } if !is_atomic && renames_known => Err(not_at_once().into()),
        Command::Ddl { numbered: Some(numbered), .. } if !is_atomic => Err(numbered::not_at_once(numbered).into()),
        Command::Ddl { numbered: Some(numbered), .. } => Box::pin(numbered::add_numbered(session, numbered, &shards, text)).await,
        Command::Ddl { altered: Some(altered), .. } if altered.sets_generated && !begins_here => {
            Err(crate::session::sequences::altered::generated_in_a_block().into())
        }
        Command::Ddl { timed: Some(timed), locks, .. } => {
            let before = whole.get(..statement.start).map_or(0, |before| before.chars().count());
            Box::pin(add_timed(session, (timed, locks.as_deref()), &shards, text, before)).await
        }
        command => {
            // Error positions are those of the client's text.
            let padded = in_its_place(whole, statement.start, text);
            match command {
                Command::Ddl { renames: Some(rename), redefines, locks, .. } => {
                    let renaming = Renaming { session: &mut *session, rename };
                    Box::pin(renaming.run(redefines, locks.as_deref(), &shards, &padded)).await
                }
                Command::Ddl { altered: Some(altered), locks, .. } => {
                    Box::pin(altered::alter_sequences(session, altered, locks.as_deref(), &shards, &padded)).await
                }
                Command::Ddl { locks: Some(locks), .. } if shards.len() > 1 => run_locked(session, &shards, locks, &padded).await,
                Command::Ddl { tag, .. } if DATABASE_TAGS.contains(&tag.as_str()) => {
                    run_by_database(session, &shards, &padded).await
                }
                Command::Ddl { by_body: true, .. } => calls::run_body_on_each(session, &shards, &padded).await,
                _ => run_on_each(session, &shards, &padded).await,
            }
        }
    };
    let run = with_afterwards(session, run, &shards, &statement.command).await;
    // What a body does does not stand in the text.
    let may_take_more = may_cascade(text) || matches!(statement.command, Command::Ddl { by_body: true, .. });
    let run = if may_take_more { Box::pin(with_keys_left(session, run)).await } else { run };
    // One shard may be two when it is committed.
    session.transaction.is_everywhere |= !outside && is_meant_for_all;
    if !outside {
        session.transaction.is_piecemeal |= !is_atomic;
        session.transaction.participants_mut().iter_mut().filter(|participant| participant.has_begun).for_each(|participant| {
            participant.has_written |= shards.iter().any(|shard| shard.id == participant.shard);
        });
    }
    let run = session.end_one_statement(begins_here, run).await;
    if run.is_err() && flushes == session.client.flushes {
        // What the home shard has done is undone, or at least not all.
        keep_frames(&mut session.client.output, answered, |tag, _| tag != shard_tag::COMMAND_COMPLETE);
    }
    run
}

/// The shards and the text of each, and whether all can commit at once.
async fn ways_to_commit<'t>(
    session: &mut Session,
    statement: &Analysis,
    shards: Vec<Arc<Shard>>,
    text: &'t str,
    outside: bool,
) -> Result<(Vec<Arc<Shard>>, Cow<'t, str>, bool), Failure> {
    if matches!(&statement.command, Command::Ddl { tag, .. } if tag == "ALTER ROLE") {
        session.gateway.expect_default(text).await;
    }
    let (shards, text) = match &statement.command {
        Command::Ddl { once_per_server: true, .. } if shards.len() > 1 => once_per_server(session, shards, text).await?,
        _ => (shards, Cow::Borrowed(text)),
    };
    let is_atomic = !outside && can_commit_on_all(session, &shards).await?;
    Ok((shards, text, is_atomic))
}

/// Can the change be committed on all these shards at once, and with what the transaction has written before? Where
/// transactions over several shards are not possible, it is committed on one after the other.
async fn can_commit_on_all(session: &mut Session, shards: &[Arc<Shard>]) -> Result<bool, Failure> {
    let written = session
        .transaction
        .participants()
        .iter()
        .filter(|participant| participant.has_written)
        .map(|participant| participant.shard);
    let mut ids: Vec<_> = shards.iter().map(|shard| shard.id).chain(written).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() < 2 {
        return Ok(true);
    }
    if !session.may_write_on_several() {
        return Ok(false);
    }
    match Box::pin(session.check_commit_support(&ids)).await {
        Ok(()) => Ok(true),
        Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// On which shards it runs, and what, where the databases of a server share what it changes.
async fn once_per_server<'t>(
    session: &mut Session,
    shards: Vec<Arc<Shard>>,
    text: &'t str,
) -> Result<(Vec<Arc<Shard>>, Cow<'t, str>), Failure> {
    let shards = one_of_each_server(session, shards).await?;
    let text = if shards.len() > 1 { with_stored_password(session, &shards, text).await? } else { Cow::Borrowed(text) };
    Ok((shards, text))
}

/// The first of those that are databases of the same server. By the server's own words: two addresses may lead to one, and a
/// copy of a server has its identifier.
async fn one_of_each_server(session: &mut Session, shards: Vec<Arc<Shard>>) -> Result<Vec<Arc<Shard>>, Failure> {
    let mut servers = Vec::with_capacity(shards.len());
    let mut chosen = Vec::with_capacity(shards.len());
    for shard in shards {
        let server = outside::ask_shard(session, &shard, &Own::Catalog.text(SERVER)).await?;
        if !servers.contains(&server) {
            servers.push(server);
            chosen.push(shard);
        }
    }
    Ok(chosen)
}

/// A role's password as it is stored, the same on every server.
async fn with_stored_password<'t>(session: &mut Session, shards: &[Arc<Shard>], text: &'t str) -> Result<Cow<'t, str>, Failure> {
    let (Some((place, value)), Some(shard)) = (password(text), shards.first()) else { return Ok(Cow::Borrowed(text)) };
    let encryption =
        outside::ask_shard(session, shard, &Own::Setting.text("SELECT pg_catalog.current_setting('password_encryption')")).await?;
    let encryption = encryption.first().and_then(|row| row.first()).and_then(Option::as_deref);
    if encryption != Some(b"scram-sha-256") {
        return Ok(Cow::Borrowed(text));
    }
    let stored = quoted_literal(&stored_password(&value));
    Ok(Cow::Owned(spliced(text, &[Splice { start: place.start, end: place.end, text: stored }])))
}

pub(in crate::session) fn shards_home_first(session: &Session) -> Result<Vec<Arc<Shard>>, PgError> {
    let home = session.home()?;
    let snapshot = session.gateway.map.snapshot();
    let others = snapshot.shards.iter().filter(|shard| !shard.is_home).cloned();
    Ok(std::iter::once(home).chain(others).collect())
}

/// `run`: what became of the change, which is not committed yet.
async fn with_keys_left(session: &mut Session, run: Result<(), Failure>) -> Result<(), Failure> {
    run?;
    if !session.transaction.is_open() {
        return Ok(());
    }
    let Some(sql) = keys_that_are_gone(&session.context.map) else { return Ok(()) };
    let home = session.home()?;
    let gone = outside::ask_shard(session, &home, &Own::Catalog.text(&sql)).await?;
    match gone.first().and_then(|row| row.first()?.as_deref()) {
        Some(column) => Err(key_change(&String::from_utf8_lossy(column)).into()),
        None => Ok(()),
    }
}

async fn with_afterwards(
    session: &mut Session,
    run: Result<(), Failure>,
    shards: &[Arc<Shard>],
    command: &Command,
) -> Result<(), Failure> {
    run?;
    let Command::Ddl { afterwards, .. } = command else { return Ok(()) };
    for shard in shards {
        for statement in afterwards.iter() {
            run_on_one(session, shard, &Stored::SchemaChange.text(statement), false).await?;
        }
    }
    Ok(())
}

pub(super) async fn run_locked(
    session: &mut Session,
    shards: &[Arc<Shard>],
    locks: &TableLocks,
    text: &str,
) -> Result<(), Failure> {
    Box::pin(patient::lock_ahead(session, shards, locks)).await?;
    run_on_each(session, shards, text).await
}

/// Where the client names the database that it is in, each shard is told its own.
pub(in crate::session) fn naming_its_own(
    session: &Session,
    shard: &Shard,
    text: &str,
    named: &[(Range<usize>, String)],
) -> Result<String, PgError> {
    let database = |shard: &Shard| match ShardUrl::parse(&shard.url) {
        Ok(url) => Ok(url.database),
        Err(_) => Err(PgError::internal("a shard's url cannot be read")),
    };
    let (home, own) = (database(&*session.home()?)?, database(shard)?);
    let is_own = |name: &str| name == session.gateway.config.database.name || name == home;
    let splice = |(place, _): &(Range<usize>, String)| Splice { start: place.start, end: place.end, text: quoted_identifier(&own) };
    let splices: Vec<Splice> = named.iter().filter(|(_, name)| is_own(name)).map(splice).collect();
    Ok(spliced(text, &splices))
}

/// ALTER TABLE ... ADD COLUMN ... DEFAULT now(): the rows that are there get one time on all shards, as a constant, and the column
/// its own default after that.
/// `before`: characters of the client's text before it.
async fn add_timed(
    session: &mut Session,
    (timed, locks): (&TimedColumns, Option<&TableLocks>),
    shards: &[Arc<Shard>],
    text: &str,
    before: usize,
) -> Result<(), Failure> {
    if let Some(locks) = locks {
        Box::pin(patient::lock_ahead(session, shards, locks)).await?;
    }
    let ids: Vec<ShardId> = shards.iter().map(|shard| shard.id).collect();
    let instant = session.instant(&ids).await?;
    let splices = timed.at_once(&session.context, &|setting| instant.of(setting).to_owned())?;
    let at_once = behind_blanks(before, &spliced(text, &splices));
    for (place, shard) in shards.iter().enumerate() {
        let existed = outside::ask_shard(session, shard, &Own::Catalog.text(&timed.that_exist())).await?;
        let existed: Vec<Bytes> = existed.into_iter().flatten().flatten().collect();
        session.transaction.timed = Some(Timed::by_splices(text, before, &splices));
        let run = run_part(session, shard, &at_once, place == 0).await;
        session.transaction.timed = None;
        run?;
        if let Some(defaults) = timed.with_defaults(&existed) {
            run_part(session, shard, &defaults, false).await?;
        }
    }
    Ok(())
}

async fn run_by_database(session: &mut Session, shards: &[Arc<Shard>], text: &str) -> Result<(), Failure> {
    let named = databases(text);
    for (place, shard) in shards.iter().enumerate() {
        let text = naming_its_own(session, shard, text, &named)?;
        run_part(session, shard, &text, place == 0).await?;
    }
    Ok(())
}

/// The first shard's answer is the client's, which is the home shard where it is among them; of the others only errors and warnings
/// are.
pub(in crate::session) async fn run_on_each(session: &mut Session, shards: &[Arc<Shard>], text: &str) -> Result<(), Failure> {
    for (place, shard) in shards.iter().enumerate() {
        run_part(session, shard, text, place == 0).await?;
    }
    Ok(())
}

/// `is_told`: the answer is the client's.
pub(in crate::session) async fn run_part(
    session: &mut Session,
    shard: &Arc<Shard>,
    text: &str,
    is_told: bool,
) -> Result<(), Failure> {
    let before = session.client.output.len();
    let result = patient::run_patiently(session, shard, text, is_told).await;
    if !is_told {
        drop_notices(&mut session.client.output, before);
        tell_shard(&mut session.client.output, before, &shard.name);
    }
    result
}

/// Outside of a transaction. `is_told`: its command tag is the client's.
pub(in crate::session) async fn run_quietly(
    session: &mut Session,
    shard: &Arc<Shard>,
    text: &str,
    is_told: bool,
) -> Result<(), Failure> {
    let before = session.client.output.len();
    let result = run_on_one(session, shard, &Stored::SchemaChange.text(text), is_told).await;
    if !is_told {
        drop_notices(&mut session.client.output, before);
    }
    result
}

pub(in crate::session) async fn run_on_one(
    session: &mut Session,
    shard: &Arc<Shard>,
    text: &ShardText<'_>,
    is_visible: bool,
) -> Result<(), Failure> {
    session.keep_pipeline();
    let index = if is_visible { session.join(shard.id).await? } else { session.join_for_change(shard.id).await? };
    let participant = session.transaction.at(index)?;
    let connection = &mut *participant.connection;
    // What was filled may have been numbered.
    connection.drawn_by = None;
    connection.output.query(text);
    connection.unnamed = None;
    connection.expect(if is_visible { Reply::Query } else { Reply::Echo }, is_visible);
    let drained = session.drain(index).await;
    if let Some(participant) = session.transaction.participants_mut().get_mut(index)
        && drained.is_ok()
    {
        participant.needs_sync = false;
    }
    drained
}

/// No two servers of one port have been started in the same microsecond.
const SERVER: &str = "SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time()), pg_catalog.current_setting('port')";
/// Of statements that may name databases.
const DATABASE_TAGS: [&str; 6] = ["GRANT", "REVOKE", "COMMENT", "SECURITY LABEL", "ALTER DATABASE", "ALTER ROLE"];

fn numbers_of_all() -> PgError {
    PgError::unsupported(
        "this schema change on one shard is not supported",
        "It is about numbers that the whole cluster gives.",
        "Send it without a routing hint.",
    )
}

/// Notices of shards other than the home shard say again what that one has said. Warnings stay: they may concern one shard.
fn drop_notices(output: &mut BytesMut, from: usize) {
    keep_frames(output, from, |tag, body| {
        let is_notice = tag == shard_tag::NOTICE
            && wire::error_fields(body).is_ok_and(|fields| fields.get(b'V').or_else(|| fields.get(b'S')) == Some(b"NOTICE"));
        !is_notice
    });
}

/// An error names the shard, since others have done the same without one.
fn tell_shard(output: &mut BytesMut, from: usize, shard: &str) {
    change_frames(output, from, |tag, frame| match tag {
        shard_tag::ERROR => Some(Cow::Owned(as_of_drift(frame, shard).to_vec())),
        _ => Some(Cow::Borrowed(frame)),
    });
}

/// Of the messages from there on, those for which this holds.
pub(in crate::session) fn keep_frames(output: &mut BytesMut, from: usize, is_kept: impl Fn(u8, &[u8]) -> bool) {
    change_frames(output, from, |tag, frame| {
        is_kept(tag, frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default()).then_some(Cow::Borrowed(frame))
    });
}

/// The messages from there on become what this makes of them.
fn change_frames(output: &mut BytesMut, from: usize, change: impl Fn(u8, &[u8]) -> Option<Cow<'_, [u8]>>) {
    let Some(added) = output.get(from..).map(BytesMut::from) else { return };
    let mut rest = added.as_ref();
    let mut kept = BytesMut::with_capacity(rest.len());
    while let Some(header) = wire::FrameHeader::peek(rest, usize::MAX - 8).ok().flatten() {
        let Some((frame, after)) = rest.split_at_checked(header.total) else { break };
        if let Some(frame) = change(header.tag, frame) {
            kept.extend_from_slice(&frame);
        }
        rest = after;
    }
    kept.extend_from_slice(rest);
    output.truncate(from);
    output.unsplit(kept);
}
