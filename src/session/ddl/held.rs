//! Definitions that this proxy has not read yet, since another transaction holds their tables: a statement that names one waits.
//!
//! They are new, or have changed, and what they are printed from is held: `BEGIN; LOCK TABLE t` by one session after another one
//! has changed a view of `t`. All else goes on. Who uses the view would wait for the lock of `t` in PostgreSQL, too. One of those
//! who wait looks again, in the queue of that lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::redefined::until;
use super::{own_catalog, redefined};
use crate::backend::schema_reader::OPENS_SOON;
use crate::error::{PgError, SqlState};
use crate::session::gateway::Gateway;
use crate::session::{Failure, Session};

/// The context is current, and lacks what the text names.
pub(in crate::session) async fn wait_while_held(session: &mut Session, text: &str) -> Result<(), Failure> {
    if own_catalog::own_catalog(session).is_some() {
        return Err(not_known().into());
    }
    let is_under_way = redefined::is_under_way(session);
    let held_until = is_under_way.then(|| Instant::now() + HELD_PATIENCE);
    let (gateway, cancel, patience) = (Arc::clone(&session.gateway), Arc::clone(&session.cancel), redefined::patience(session));
    while session.context.catalog.held.may_concern(text) {
        if !is_under_way {
            // Changes of the schema wait for those who hold an older map.
            session.transaction.pinned_map.unpin();
        }
        tokio::select! {
            biased;
            looked = gateway.look_for_held() => looked?,
            failure = patience.ends(&cancel) => return Err(failure.into()),
            () = until(held_until) => return Err(not_known().into()),
        }
        session.refresh_context().await?;
    }
    Ok(())
}

/// What has not waited, such as a text that another one has led to, is not planned by half of what it uses.
#[inline]
pub(in crate::session) fn check_not_held(session: &Session, text: &str) -> Result<(), PgError> {
    if session.context.catalog.held.may_concern(text) { Err(not_known()) } else { Ok(()) }
}

impl Gateway {
    /// Cancel safe.
    async fn look_for_held(&self) -> Result<(), PgError> {
        if let Some(reader) = self.control.schema_readers().home_at_once() {
            Box::pin(self.read_catalog(reader, OPENS_SOON)).await?;
        }
        sleep(PAUSE).await;
        Ok(())
    }
}

fn not_known() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "the definition of what this statement uses cannot be read")
        .with_detail("It is new or has changed, and another transaction holds a table that it uses, or this one does.")
        .with_hint("Repeat the transaction when the other one has ended.")
}

/// What a transaction holds on shards may be what the other one waits for, and it may hold the table itself.
const HELD_PATIENCE: Duration = Duration::from_secs(5);
/// Until the next look, at what a session has found that looks just now.
const PAUSE: Duration = Duration::from_millis(50);
