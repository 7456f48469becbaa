//! The schema as the open transaction has changed it: what its later statements are planned by.
//!
//! ```text
//! BEGIN ─► schema changes ─► a statement that is planned ─► … ─► COMMIT, ROLLBACK
//!              │                 └─ the catalogue is read in the transaction, on the home shard
//!              └─ another change, ROLLBACK TO: what was read counts no more
//! ```
//! Private to the session, and gone with the transaction: others plan by what is committed. Read when a statement needs it, not
//! after each change, so a script of changes alone reads nothing. Counts only as long as the shared catalogue is the one that it was
//! read beside: after a change by somebody else it is read again. A transaction with one snapshot cannot do that, and says so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::backend::ConnectionError;
use crate::backend::catalog_reader::{self, CatalogError, InTransaction, Known, WhenHeld};
use crate::backend::schema_reader::READ_TIMEOUT;
use crate::catalog::Catalog;
use crate::error::{PgError, SqlState};
use crate::session::ddl::schema::same_oids;
use crate::session::gateway::Gateway;
use crate::session::protocol::describe::error_frame;
use crate::session::transaction::Status;
use crate::session::{Failure, Session};
use crate::sql::Analyzed;
use crate::sql::analysis::{Analysis, Command, Scope};

/// What the transaction has read.
pub(in crate::session) struct OwnCatalog {
    catalog: Arc<Catalog>,
    /// What everybody else planned by then.
    shared: Arc<Catalog>,
    /// Which state of the transaction's schema it shows: `SchemaChange::version`.
    version: u64,
    /// It has made or changed functions, types or the like, which other connections do not have.
    has_other_code: bool,
    /// For the next reading.
    known: Known,
}

/// The transaction's own, where it has one that shows what it has done so far.
pub(in crate::session) fn own_catalog(session: &Session) -> Option<&Arc<Catalog>> {
    let change = session.transaction.schema_change.as_ref()?;
    let own = change.own.as_ref()?;
    let is_current =
        own.version == change.version && session.transaction.is_open() && Arc::ptr_eq(&own.shared, &session.gateway.catalog.load());
    is_current.then_some(&own.catalog)
}

/// Another connection may compute with rows of the transaction: it has the same functions and types.
pub(in crate::session) fn has_shared_code(session: &Session) -> bool {
    let own = session.transaction.schema_change.as_ref().map(|change| change.own.as_ref());
    own.is_none_or(|own| own.is_some_and(|own| !own.has_other_code && own_catalog(session).is_some()))
}

/// The version of the shared catalogue that the context goes with: by it all sessions know the oids of the shards.
pub(in crate::session) fn shared_catalog_version(session: &Session) -> u64 {
    let own = session.transaction.schema_change.as_ref().and_then(|change| change.own.as_ref());
    let own = own.filter(|own| Arc::ptr_eq(&own.catalog, &session.context.catalog));
    own.map_or(session.context.catalog.version, |own| own.shared.version)
}

/// The transaction has changed the schema, and these statements were read by what was there before.
pub(in crate::session) fn lacks_own_catalog(session: &Session, analyzed: &Analyzed) -> bool {
    session.transaction.schema_change.is_some()
        && session.transaction.status == Status::Open
        && own_catalog(session).is_none()
        && analyzed.statements.iter().any(|statement| is_planned(statement) || is_guarded(session, statement))
}

/// A change of the schema about names that the transaction has given to tables of the map: what guards these would miss it.
fn is_guarded(session: &Session, statement: &Analysis) -> bool {
    let renames = session.transaction.schema_change.as_ref().is_some_and(|change| change.renames);
    renames && matches!(statement.command, Command::Ddl { .. })
}

/// Reads it in the transaction, which goes on as it was.
pub(in crate::session) async fn read_own_catalog(session: &mut Session) -> Result<(), Failure> {
    let home = session.home()?.id;
    let has_begun = |index: &usize| session.transaction.participants().get(*index).is_some_and(|participant| participant.has_begun);
    // One shard alone was changed: for all others the schema is what it was.
    let Some(index) = session.transaction.index_of(home).filter(has_begun) else { return Ok(()) };
    check_snapshot_shows_schema(session)?;
    let shared = session.gateway.catalog.load_full();
    let known = session.transaction.schema_change.as_mut().and_then(|change| change.own.take()).map(|own| own.known);
    let mut known = session.gateway.compared_with(known).await;
    let mut catalog = read_catalog_within(session, index, &mut known, Instant::now() + READ_TIMEOUT).await?;
    catalog.version = session.gateway.own_version();
    if !same_oids(&shared, &catalog) {
        Box::pin(session.learn_own_oids(catalog.version)).await?;
    }
    let has_other_code = !shared.definitions.agree_outside_relations(&catalog.definitions);
    if let Some(change) = &mut session.transaction.schema_change {
        let catalog = Arc::new(catalog);
        change.own = Some(OwnCatalog { catalog, shared, version: change.version, has_other_code, known });
    }
    Ok(())
}

/// What the open transaction sees on this participant, where it goes on as it was; without definitions that others hold. One that
/// has not answered by then is lost: its server may stand still, and the transaction holds its locks on the others.
pub(super) async fn read_catalog_within(
    session: &mut Session,
    index: usize,
    known: &mut Known,
    deadline: Instant,
) -> Result<Catalog, Failure> {
    session.transaction.catch_up(index, &session.gateway.registry);
    session.sync(index).await?;
    let mut source = InTransaction(&mut session.transaction.at(index)?.connection);
    let reading = Box::pin(catalog_reader::read_changes(&mut source, known, WhenHeld::LeaveOut));
    match timeout_at(deadline, reading).await {
        Ok(read) => read.map_err(|error| own_catalog_unread(session, index, error)),
        Err(_) => Err(session.participant_lost(index, &ConnectionError::Io(io::ErrorKind::TimedOut.into()))),
    }
}

fn own_catalog_unread(session: &mut Session, index: usize, error: CatalogError) -> Failure {
    let CatalogError::Query { source, .. } = &error else { return PgError::internal(error.to_string()).into() };
    match source.downcast_ref() {
        // Such as a timeout of the client's.
        Some(ConnectionError::Refused { body, .. }) => Failure::Shard(error_frame(body)),
        Some(lost) => session.participant_lost(index, lost),
        None => PgError::internal(error.to_string()).into(),
    }
}

/// Statements are planned by PostgreSQL as others have defined things meanwhile, which an older snapshot does not show.
fn check_snapshot_shows_schema(session: &Session) -> Result<(), PgError> {
    if !session.has_snapshot() {
        return Ok(());
    }
    let begun = session.transaction.schema_change.as_ref().map(|change| change.schema_version);
    let known = session.transaction.snapshots.map().map(|map| map.schema_version).or(begun);
    if known == Some(session.gateway.map.load().schema_version) {
        return Ok(());
    }
    Err(PgError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to a concurrent schema change")
        .with_hint("Retry the transaction."))
}

impl Gateway {
    /// What has been read last. `own`: in this transaction.
    pub(super) async fn compared_with(&self, own: Option<Known>) -> Known {
        match (timeout(READER_PATIENCE, self.control.schema_readers().home()).await, own) {
            (Ok(reader), Some(own)) => own.compared_with(reader.known()),
            (Ok(reader), None) => reader.known().clone(),
            (Err(_), own) => own.unwrap_or_default(),
        }
    }
}

/// Somebody else reads just now. Without what he knows, all is read.
pub(super) const READER_PATIENCE: Duration = Duration::from_millis(100);

/// By the definitions of what it names. A change of the schema is not: every shard runs it as it is.
fn is_planned(statement: &Analysis) -> bool {
    match &statement.command {
        Command::Query(_)
        | Command::Copy(_)
        | Command::Call
        | Command::Do
        | Command::DeclareCursor { .. }
        | Command::Truncate { .. }
        | Command::Lock
        | Command::Explain { .. }
        | Command::Maintenance
        | Command::Refresh(_)
        | Command::SetSequence => true,
        Command::Ddl { tag, .. } => tag.ends_with("MATERIALIZED VIEW") || !matches!(statement.scope, Scope::EveryShard),
        _ => false,
    }
}
