//! COPY FROM STDIN to one shard: the client's data goes through as it comes.
//!
//! The shard may refuse a row at any time, so its answers are read while the data is sent. A Sync that came together with the
//! statement has been swallowed by the shard, which ignores it during COPY; the client sends another one at the end.

use std::future::poll_fn;
use std::task::Poll;

use super::{Failure, Session, SessionEnd};
use crate::backend::{ConnectionError, Reply};
use crate::error::{PgError, SqlState};
use crate::wire::{client_tag, originate};

/// What woke the copy.
enum Event {
    Client(Result<(), SessionEnd>),
    Shard(Result<(), ConnectionError>),
}

impl Session {
    pub(super) async fn copy_in(&mut self, index: usize) -> Result<bool, Failure> {
        self.swallow_sync(index);
        self.client.flush().await?;
        loop {
            match self.forward_copy(index)? {
                Copied::All => return Ok(false),
                Copied::Some => {}
            }
            let Some(participant) = self.participants.get_mut(index) else {
                return Err(PgError::internal("participant is gone").into());
            };
            let (client, connection) = (&mut self.client, &mut *participant.connection);
            let event = poll_fn(|context| {
                if let Poll::Ready(filled) = connection.poll_fill(context) {
                    return Poll::Ready(Event::Shard(filled));
                }
                // A shard that does not keep up holds back the client.
                if connection.output.len() < OUTPUT_BYTES_MAX
                    && let Poll::Ready(filled) = client.poll_fill(context)
                {
                    return Poll::Ready(Event::Client(filled));
                }
                Poll::Pending
            })
            .await;
            match event {
                Event::Client(Ok(())) => {}
                Event::Client(Err(end)) => return Err(end.into()),
                // The shard says something before the data is complete: an error, or a notice. The relay looks at it.
                Event::Shard(Ok(())) => {
                    let (is_over, has_failed) = self.is_copy_over(index)?;
                    if is_over {
                        return Ok(has_failed);
                    }
                    if self.client.output.len() >= NOTICE_BYTES {
                        self.client.flush().await?;
                    }
                }
                Event::Shard(Err(error)) => return Err(self.participant_lost(index, &error)),
            }
        }
    }

    fn swallow_sync(&mut self, index: usize) {
        if let Some(participant) = self.participants.get_mut(index) {
            let before = participant.connection.pending.len();
            participant.connection.pending.retain(|pending| pending.reply != Reply::Sync);
            let swallowed = before - participant.connection.pending.len();
            if swallowed > 0 {
                participant.connection.forget_owed(swallowed);
                participant.needs_sync = true;
                self.batch.is_sync_swallowed = true;
            }
        }
    }

    /// Moves whole COPY messages from the client to the shard's output.
    fn forward_copy(&mut self, index: usize) -> Result<Copied, Failure> {
        let Some(participant) = self.participants.get_mut(index) else {
            return Err(PgError::internal("participant is gone").into());
        };
        while let Some(header) = self.client.peek()? {
            let frame = self.client.input.split_to(header.total);
            match header.tag {
                client_tag::COPY_DATA => participant.connection.output.extend_from_slice(&frame),
                client_tag::COPY_DONE | client_tag::COPY_FAIL => {
                    participant.connection.output.extend_from_slice(&frame);
                    // In the extended protocol the shard keeps its answer until it is asked; the Sync may have gone before.
                    if participant.connection.pending.front().is_some_and(|pending| pending.reply == Reply::Execute) {
                        originate::flush(&mut participant.connection.output);
                    }
                    return Ok(Copied::All);
                }
                client_tag::SYNC | client_tag::FLUSH => {}
                client_tag::TERMINATE => return Err(SessionEnd::Terminated.into()),
                tag => {
                    originate::copy_fail(&mut participant.connection.output, "unexpected message type during COPY from stdin");
                    let message = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                    return Err(SessionEnd::Fatal(PgError::fatal(SqlState::PROTOCOL_VIOLATION, message)).into());
                }
            }
        }
        Ok(Copied::Some)
    }

    /// Has the shard ended the COPY by an error?
    fn is_copy_over(&mut self, index: usize) -> Result<(bool, bool), Failure> {
        let (_, has_failed) = self.step(index)?;
        let Some(participant) = self.participants.get_mut(index) else { return Ok((true, has_failed)) };
        let is_over = has_failed || participant.connection.pending.is_empty();
        if is_over {
            self.transaction.fail();
        }
        Ok((is_over, has_failed))
    }
}

enum Copied {
    /// CopyDone or CopyFail has been forwarded.
    All,
    Some,
}

/// Notices that wait for the client, at most.
const NOTICE_BYTES: usize = 32 * 1024;
/// Data waiting for the shard, at most.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
