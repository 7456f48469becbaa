//! Follows the map: hears of changes by LISTEN on a connection of its own, and looks by itself every now and then.
//!
//! ```text
//!            ┌────────────── connection lost: back off ◄─────────────┐
//!            ▼                                                       │
//!   connect and LISTEN ─► refresh (what was missed) ─► wait for ─────┤
//!                                    ▲                  NOTIFY, a nudge, the poll
//!                                    └───────────────── refresh
//! ```
//! A notification only says that there is something to read: what is read is everything since the epoch that is known, so lost
//! notifications cost time and nothing else. While the map cannot be reached the last snapshot goes on being served.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::error::StoreError;
use super::primary::{Pledge, primary_changes};
use super::store::Store;

/// Runs until cancelled.
pub(super) async fn follow(shared: Arc<Shared>, store: Store, poll_interval: Duration, cancel: CancellationToken) {
    tokio::select! {
        () = cancel.cancelled() => {}
        () = follow_for_ever(&shared, &store, poll_interval) => {}
    }
}

async fn follow_for_ever(shared: &Shared, store: &Store, poll_interval: Duration) {
    let mut failures = 0;
    loop {
        match store.listen().await {
            Ok((listener, pledge)) => {
                failures = 0;
                Box::pin(hear(shared, store, poll_interval, listener, pledge)).await;
            }
            Err(error) => {
                shared.note_failure(&error);
                failures += 1;
                store.find_primary().await;
            }
        }
        let retry_at = Instant::now() + back_off(failures);
        tokio::select! {
            () = sleep_until(retry_at) => {}
            // Another connection to the map works: try at once, and read by it meanwhile.
            () = shared.nudge.notified() => drop(refresh(shared, store).await),
        }
    }
}

/// Until the connection is lost or another server is the primary, or the map cannot be read: then this connection may be as dead,
/// without saying so.
async fn hear(shared: &Shared, store: &Store, poll_interval: Duration, mut listener: PgListener, pledge: Option<Pledge>) {
    loop {
        if refresh(shared, store).await.is_err() {
            return;
        }
        let poll_at = Instant::now() + poll_interval;
        tokio::select! {
            heard = listener.try_recv() => match heard {
                Ok(Some(_)) => while listener.next_buffered().is_some() {},
                Ok(None) => return,
                Err(error) => return shared.note_failure(&StoreError::reading(error)),
            },
            () = primary_changes(pledge.as_ref()) => return,
            () = shared.nudge.notified() => {}
            () = sleep_until(poll_at) => {}
        }
    }
}

async fn refresh(shared: &Shared, store: &Store) -> Result<(), StoreError> {
    let outcome = shared.refresh(store).await;
    match &outcome {
        Ok(()) => shared.note_success(),
        Err(error) => {
            shared.note_failure(error);
            if let StoreError::Unreachable(_) = error {
                store.replace_connections();
            }
        }
    }
    outcome
}

/// Looks every second whether another server of the map database was promoted, while the one before may still answer.
pub(super) async fn watch_hosts(shared: Arc<Shared>, store: Store, cancel: CancellationToken) {
    while store.has_several_hosts() {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(HOSTS_EVERY) => {}
        }
        if store.find_primary().await {
            shared.nudge.notify_one();
        }
    }
    cancel.cancelled().await;
}

/// Doubles from one failure to the next. No jitter: the few proxies of a cluster do not crowd a map database.
fn back_off(failures: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1 << failures.min(10)).min(BACK_OFF_MAX)
}

const HOSTS_EVERY: Duration = Duration::from_secs(1);
const BACK_OFF_FIRST: Duration = Duration::from_millis(50);
/// Half of the second in which changes are to be seen everywhere.
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_grows_to_its_maximum() {
        assert_eq!(back_off(0), BACK_OFF_FIRST);
        assert_eq!(back_off(1), BACK_OFF_FIRST * 2);
        assert_eq!(back_off(u32::MAX), BACK_OFF_MAX);
    }
}
