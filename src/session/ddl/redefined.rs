//! A view or function gets another definition: no statement is answered by the new one that was planned by the old one.
//!
//! Where a view's rows lie its definition says, so a statement that was planned before and runs after the change may ask the
//! wrong shards and be merged wrongly, and PostgreSQL, to which it is a statement like any other, cannot tell. Hence:
//!
//! ```text
//! who changes:  announce the names ─► every proxy knows, and what it had begun before is over ─► the shards ─► finish
//! the others:   a statement with one of the names in it waits for the end, and is read anew
//! ```
//! As on one server, where it would wait for the lock. A statement that runs for longer than [`AWAITED_FOR`] is not waited for:
//! by then it has its locks. A transaction that is under way on shards waits no longer than [`HELD_PATIENCE`], since the change
//! may be waiting for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::schema::FOLLOWED_WITHIN;
use super::{held, schema};
use crate::backend::STATEMENT_TIMEOUT;
use crate::catalog::{mentions, quoted_literal};
use crate::error::{PgError, SqlState};
use crate::session::cancel::CancelTarget;
use crate::session::reads::gather::duration;
use crate::session::{Failure, Session};
use crate::shardmap::{AWAITED_FOR, MapSnapshot, Silent, TableName};
use crate::sql::analysis::DistributedRename;
use crate::sql::ddl::redefined::Redefined;
use crate::sql::utility::shardgate_call::alters_shard;

/// Before the change, which was announced, does anything on a shard.
pub(in crate::session) async fn announce_redefinition(session: &mut Session, redefined: &Redefined) -> Result<(), Failure> {
    if !redefine(session, redefined).await? {
        return Ok(());
    }
    let map = &session.gateway.map;
    let epoch = map.refresh().await.map_err(PgError::from)?;
    let behind = map
        .reached_by_all(epoch, session.transaction.pinned_map.get(), Silent::Ignored, AWAITED_FOR)
        .await
        .map_err(PgError::from)?;
    if !behind.is_empty() && !map.seen_by_all(epoch, FOLLOWED_WITHIN).await.map_err(PgError::from)? {
        tracing::warn!(%epoch, "a proxy does not know of a schema change that begins");
    }
    Ok(())
}

/// The map knows it; the other proxies hear of it. `false`: there is nothing to be known.
pub(super) async fn redefine(session: &mut Session, redefined: &Redefined) -> Result<bool, Failure> {
    let names: Option<BTreeSet<String>> = match redefined {
        Redefined::Nothing => return Ok(false),
        Redefined::These(names) => {
            // Each body of a function is looked through: elsewhere, since others wait for this core.
            let (catalog, names) = (session.gateway.catalog.load_full(), Arc::clone(names));
            let found = tokio::task::spawn_blocking(move || catalog.names_that_use(&names)).await;
            found.map_err(|_| PgError::internal("the names that use a definition could not be found"))?
        }
        Redefined::Anything => None,
    };
    let Some(change) = session.transaction.schema_change.as_ref().map(|change| change.id) else { return Ok(false) };
    session.gateway.map.store().redefine(&session.login.identity.user, change, names).await.map_err(PgError::from)?;
    Ok(true)
}

/// Before a name of the map is given to something new. Nothing else has it while its table is there; and where the transaction
/// has dropped or renamed that, the map would go on placing rows by the name. The table that a savepoint has taken it from may have it
/// again.
pub(in crate::session) async fn check_not_dropped(
    session: &mut Session,
    taken: &[TableName],
    renames: Option<&DistributedRename>,
) -> Result<(), Failure> {
    let map = session.gateway.map.snapshot();
    let named = |name: &TableName| map.tables.get(name)?.renamed.as_ref().map(|renamed| (renamed.change, renamed.oid));
    let is_own = |name: &&TableName| match renames {
        Some(DistributedRename::Table { from, to }) => to == *name && named(from).is_some() && named(from) == named(to),
        _ => false,
    };
    let taken: Vec<&TableName> = taken.iter().filter(|name| !is_own(name)).collect();
    if taken.is_empty() || session.begun_on_shard().is_none() {
        return Ok(());
    }
    let home = session.home()?;
    let Some(index) =
        session.transaction.participants().iter().position(|participant| participant.has_begun && participant.shard == home.id)
    else {
        return Ok(());
    };
    for (schema, name) in taken {
        let is_there = format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n \
                 ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
                 WHERE n.nspname OPERATOR(pg_catalog.=) {}::pg_catalog.name AND c.relname OPERATOR(pg_catalog.=) {}::pg_catalog.name)",
            quoted_literal(schema),
            quoted_literal(name)
        );
        if session.ask_participant_one(index, &is_there).await?.as_deref() == Some("f") {
            return Err(PgError::unsupported(
                format!("the name of table \"{name}\" cannot be used anew in the transaction that drops or renames it"),
                "The shard map knows it as a sharded or reference table until that is committed.",
                "Commit first, then give the name to something else.",
            )
            .into());
        }
    }
    Ok(())
}

/// As [`Session::refresh_context`], before a text is read, or run as it was read.
#[inline]
pub(in crate::session) async fn refresh_context_for(session: &mut Session, text: &str) -> Result<(), Failure> {
    session.cycle.begin_attempt();
    if session.transaction.schema_change.is_some() && !session.transaction.is_open() {
        // Its change is committed, and the pipeline goes on.
        Box::pin(schema::finish_schema_change(session)).await?;
    }
    loop {
        let mut is_redefined = !session.gateway.map.load().redefinitions.is_empty();
        if !is_redefined {
            match session.refresh_context().await {
                // It may be what lets the home shard be read again.
                Err(Failure::Error(_)) if alters_shard(text) => {
                    session.keep_known_context();
                    return Ok(());
                }
                refreshed => refreshed?,
            }
            // By now there may be one.
            is_redefined = session.transaction.pinned_map.get().is_some_and(|map| !map.redefinitions.is_empty());
        }
        if is_redefined {
            Box::pin(refresh_when_defined(session, text)).await?;
        }
        if !session.context.catalog.held.may_concern(text) {
            return Ok(());
        }
        Box::pin(held::wait_while_held(session, text)).await?;
    }
}

async fn refresh_when_defined(session: &mut Session, text: &str) -> Result<(), Failure> {
    loop {
        let is_under_way = is_under_way(session);
        if !is_under_way {
            // The change waits for those who hold an older map, and this one may say that it has not ended.
            session.transaction.pinned_map.unpin();
        }
        wait_while_redefined(session, text, is_under_way).await?;
        session.refresh_context().await?;
        if is_under_way {
            check_names_known(session, text)?;
        }
        if is_under_way || session.transaction.pinned_map.get().is_none_or(|map| !is_redefined(session, map, text)) {
            return Ok(());
        }
    }
}

/// Others may wait for what the transaction holds, so that it goes on by the names that were there before, as on the shards.
fn check_names_known(session: &Session, text: &str) -> Result<(), PgError> {
    let own = session.transaction.schema_change.as_ref().map(|change| change.id);
    let names = session.gateway.map.load().names_in_doubt(&session.context.catalog, own);
    if names.is_empty() || !mentions(text, &names) {
        return Ok(());
    }
    Err(PgError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to a table that is being renamed")
        .with_detail("Another transaction does it, and may wait for this one.")
        .with_hint("Retry the transaction."))
}

async fn wait_while_redefined(session: &mut Session, text: &str, is_under_way: bool) -> Result<(), Failure> {
    let patience = patience(session);
    let held_until = is_under_way.then(|| Instant::now() + HELD_PATIENCE);
    let (gateway, cancel) = (Arc::clone(&session.gateway), Arc::clone(&session.cancel));
    let mut epochs = gateway.map.subscribe();
    while is_redefined(session, &gateway.map.load(), text) {
        if !gateway.map.lease().is_valid() {
            return Err(schema_not_known().into());
        }
        tokio::select! {
            biased;
            _ = epochs.changed() => {}
            failure = patience.ends(&cancel) => return Err(failure.into()),
            () = until(held_until) => return Ok(()),
            () = sleep(LEASE_CHECK) => {}
        }
    }
    Ok(())
}

/// Something of it runs on a shard: others may wait for what it holds there.
pub(in crate::session) fn is_under_way(session: &Session) -> bool {
    session.transaction.participants().iter().any(|participant| participant.has_begun || participant.needs_sync)
}

/// For how long the client waits for what others do, from now on.
pub(in crate::session) fn patience(session: &Session) -> Patience {
    let limit = |name: &str| session.effective(name).and_then(duration).map(|limit| Instant::now() + limit);
    Patience { statement_timeout: limit(STATEMENT_TIMEOUT), lock_timeout: limit("lock_timeout") }
}

/// For what no lock is waited for.
pub(in crate::session) fn patience_without_locks(session: &Session) -> Patience {
    Patience { lock_timeout: None, ..patience(session) }
}

/// By somebody else.
fn is_redefined(session: &Session, map: &MapSnapshot, text: &str) -> bool {
    let own = session.transaction.schema_change.as_ref().map(|change| change.id);
    map.redefinitions.iter().any(|redefinition| Some(redefinition.change) != own && redefinition.may_concern(text))
}

/// The client's limits of a wait.
pub(in crate::session) struct Patience {
    statement_timeout: Option<Instant>,
    lock_timeout: Option<Instant>,
}

impl Patience {
    /// Comes when the client waits no longer. Cancel safe.
    pub(in crate::session) async fn ends(&self, cancel: &CancelTarget) -> PgError {
        tokio::select! {
            biased;
            () = cancel.cancelled() => canceled("user request"),
            () = until(self.statement_timeout) => canceled("statement timeout"),
            () = until(self.lock_timeout) => {
                PgError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
            }
        }
    }
}

pub(in crate::session) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn canceled(why: &str) -> PgError {
    PgError::new(SqlState::QUERY_CANCELED, format!("canceling statement due to {why}"))
}

fn schema_not_known() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "what this statement uses is being given another definition")
        .with_detail("The map database does not answer, so it is not known whether the change has been made.")
        .with_hint("Repeat the statement when the map database is back.")
}

/// What a transaction holds on shards may be what the change waits for.
const HELD_PATIENCE: Duration = Duration::from_secs(1);
const LEASE_CHECK: Duration = Duration::from_secs(1);
