//! What ends a session from outside while its statement runs: the drain's deadline, and a client that leaves.
//!
//! Both are watched around the session's whole work, so that it does not matter on which of its ways it waits for shards.
//!
//! ```text
//!   serving ──────────────────────────────────────────────► its own end
//!      ├─ the drain's deadline ─► cancelled on the shards ─► told what has become of it, within ABORT_PATIENCE
//!      └─ the client has left ──► cancelled on the shards ─► at rest, or dropped after LEAVE_PATIENCE: its connections are closed
//! ```
//! Whether the client is there is looked at every second, and only where a statement has not ended since the message came. A commit over
//! several shards is never dropped: it comes to its end without the client.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::cancel::CancelTarget;
use super::{Session, SessionEnd, shutting_down, unanswered};
use crate::error::SqlState;
use crate::net::ClientSocket;

enum Interrupted {
    Ended(SessionEnd),
    /// The drain's deadline has come.
    Aborted,
    ClientLeft,
}

impl Session {
    pub(super) async fn until_the_end(&mut self) -> SessionEnd {
        match self.until_it_rests().await {
            Ok(end) => end,
            Err(Elapsed { .. }) if self.may_have_been_applied() => SessionEnd::Fatal(unanswered()),
            Err(Elapsed { .. }) => shutting_down(),
        }
    }

    /// To its end. At the drain's deadline what runs is cancelled, and what becomes of it is told: a client that hears of the end alone
    /// takes it for not done. An error: what becomes of it is not known.
    async fn until_it_rests(&mut self) -> Result<SessionEnd, Elapsed> {
        let (cancel, socket) = (Arc::clone(&self.cancel), self.client.socket());
        let mut serving: BoxFuture<'_, SessionEnd> = Box::pin(self.greet_and_serve());
        match until_interrupted(&mut serving, &cancel, &socket).await {
            Interrupted::Ended(end) => Ok(end),
            Interrupted::ClientLeft => {
                Box::pin(without_its_client(serving, &cancel)).await;
                Ok(SessionEnd::Terminated)
            }
            Interrupted::Aborted => {
                // While the session still holds its connections, so that no other session's statement is hit.
                Box::pin(cancel.cancel()).await;
                let resting = poll_fn(|context| match serving.as_mut().poll(context) {
                    Poll::Pending if cancel.is_at_rest() => Poll::Ready(shutting_down()),
                    ended => ended,
                });
                timeout(ABORT_PATIENCE, resting).await
            }
        }
    }

    /// What runs has been asked of a shard, and commits by itself, or is a commit.
    pub(super) fn may_have_been_applied(&self) -> bool {
        let has_written = || self.transaction.participants().iter().any(|participant| participant.has_written);
        self.transaction.is_committing || (!self.transaction.is_open() && has_written())
    }

    /// Cancelled since the drain's deadline has come: the end of the session says it all. Not in a commit, of which another shard may
    /// have done its part.
    pub(super) fn is_aborted(&self, sqlstate: &[u8]) -> bool {
        sqlstate == SqlState::QUERY_CANCELED.0 && self.cancel.abort.is_set() && !self.transaction.is_committing
    }
}

/// Cancel safe: what serves goes on where it was.
async fn until_interrupted(serving: &mut BoxFuture<'_, SessionEnd>, cancel: &CancelTarget, socket: &ClientSocket) -> Interrupted {
    let mut told: Option<Waker> = None;
    poll_fn(|context| {
        if let Poll::Ready(end) = serving.as_mut().poll(context) {
            return Poll::Ready(Interrupted::Ended(end));
        }
        if cancel.abort.takes_look() {
            // The signal has used up its waker.
            told = None;
            if !cancel.is_at_rest() && !cancel.is_committing() && socket.has_left(context) {
                return Poll::Ready(Interrupted::ClientLeft);
            }
        }
        // Every statement comes here twice: the signal hears of the waker once.
        if told.as_ref().is_some_and(|told| told.will_wake(context.waker())) {
            return if cancel.abort.is_set() { Poll::Ready(Interrupted::Aborted) } else { Poll::Pending };
        }
        told = Some(context.waker().clone());
        cancel.abort.poll(context).map(|()| Interrupted::Aborted)
    })
    .await
}

/// What runs is cancelled while the session still holds its connections. What does not end by it is dropped, and its connections with
/// it, unless it commits, or waits for no shard's connection of the session's: a declaration comes to its end, or to the drain's deadline.
async fn without_its_client(mut serving: BoxFuture<'_, SessionEnd>, cancel: &CancelTarget) {
    cancel.leave();
    let mut cancelling = Box::pin(async {
        cancel.cancel().await;
        pending::<()>().await
    });
    loop {
        let ended = poll_fn(|context| {
            if let Poll::Ready(end) = serving.as_mut().poll(context) {
                return Poll::Ready(end);
            }
            cancelling.as_mut().poll(context).map(|()| SessionEnd::Terminated)
        });
        match timeout(LEAVE_PATIENCE, ended).await {
            Ok(_) => return,
            Err(Elapsed { .. }) if !cancel.abort.is_set() && (cancel.is_committing() || !cancel.is_running()) => {}
            Err(Elapsed { .. }) => return,
        }
    }
}

/// At the drain's deadline, for what has been cancelled to end.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);
/// The same for a client that has left, who hears nothing of it.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);
