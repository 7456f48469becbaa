//! COPY FROM STDIN to one shard: the client's data goes through as it comes.
//!
//! The shard may refuse a row at any time, so its answers are read while the data is sent. Syncs go through as well: a shard that
//! reads the data of a COPY swallows them, and the client sends another one at the end. One that has failed before it has read them
//! answers them, and so does the proxy then: it asks the shard which they were, and handles them as if they came only now.

pub(super) mod copy_out;
pub(super) mod copy_rows;

use std::future::poll_fn;
use std::task::Poll;

use super::{Failure, Session, SessionEnd};
use crate::backend::{ConnectionError, Reply};
use crate::error::{PgError, SqlState};
use crate::wire::client_tag;

/// What woke the copy.
enum Event {
    Client(Result<(), SessionEnd>),
    Shard(Result<(), ConnectionError>),
}

/// Data come for a COPY that the shard has not been asked for yet: it takes them.
pub(super) async fn send_copy(session: &mut Session) -> Result<(), SessionEnd> {
    match session.drain_current().await {
        Ok(()) => Ok(()),
        Err(failure) => session.fail_batch(failure).await,
    }
}

/// True: the COPY has failed.
pub(super) async fn copy_in(session: &mut Session, index: usize) -> Result<bool, Failure> {
    swallow_sync(session, index);
    session.transaction.pinned_map.note_copy();
    session.client.flush().await?;
    loop {
        // What it has said with its readiness is here already.
        let (is_over, has_failed) = is_copy_over(session, index)?;
        if is_over {
            return Ok(has_failed);
        }
        if session.client.output.len() >= NOTICE_BYTES {
            session.client.flush().await?;
        }
        match forward_copy(session, index)? {
            Copied::All => return Ok(false),
            Copied::Unexpected(tag) => return stop_copy(session, index, tag).await,
            Copied::Some => {}
        }
        let participant = session.transaction.at(index)?;
        let (client, connection) = (&mut session.client, &mut *participant.connection);
        session.cancel.rest(true);
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
        session.cancel.rest(false);
        match event {
            Event::Client(Ok(())) | Event::Shard(Ok(())) => {}
            Event::Client(Err(end)) => return Err(end.into()),
            Event::Shard(Err(error)) => return Err(session.participant_lost(index, &error)),
        }
    }
}

fn swallow_sync(session: &mut Session, index: usize) {
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        let connection = &mut *participant.connection;
        let before = connection.pending.len();
        connection.pending.retain(|pending| pending.reply != Reply::Sync);
        let swallowed = before - connection.pending.len();
        if swallowed > 0 {
            connection.syncs_in_copy += u32::try_from(swallowed).unwrap_or(u32::MAX);
            participant.needs_sync = true;
            session.batch.is_sync_swallowed = true;
        }
    }
}

/// Moves whole COPY messages from the client to the shard's output.
fn forward_copy(session: &mut Session, index: usize) -> Result<Copied, Failure> {
    let participant = session.transaction.at(index)?;
    let connection = &mut *participant.connection;
    while let Some(header) = session.client.peek()? {
        match header.tag {
            client_tag::COPY_DATA | client_tag::COPY_DONE | client_tag::COPY_FAIL | client_tag::SYNC | client_tag::FLUSH => {}
            client_tag::TERMINATE => return Err(SessionEnd::Terminated.into()),
            tag => return Ok(Copied::Unexpected(tag)),
        }
        let frame = session.client.input.split_to(header.total);
        connection.output.copy_message(&frame);
        match header.tag {
            client_tag::SYNC => connection.syncs_in_copy += 1,
            client_tag::COPY_DONE | client_tag::COPY_FAIL => {
                // In the extended protocol the shard keeps its answer until it is asked; the Sync may have gone before.
                if connection.pending.front().is_some_and(|pending| pending.reply == Reply::Execute) {
                    connection.output.flush();
                }
                return Ok(Copied::All);
            }
            _ => {}
        }
    }
    Ok(Copied::Some)
}

/// A message that is no part of a COPY ends the session, unless the shard has failed before: then it skips what comes.
async fn stop_copy(session: &mut Session, index: usize, tag: u8) -> Result<bool, Failure> {
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        participant.connection.output.copy_fail(UNEXPECTED);
    }
    let mut before = session.client.output.len();
    loop {
        let (is_over, has_failed) = is_copy_over(session, index)?;
        if is_over {
            let told = session.client.output.split_off(before.min(session.client.output.len()));
            if told.windows(UNEXPECTED.len()).any(|part| part == UNEXPECTED.as_bytes()) {
                let message = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                return Err(SessionEnd::Fatal(PgError::fatal(SqlState::PROTOCOL_VIOLATION, message)).into());
            }
            session.client.output.unsplit(told);
            return Ok(has_failed);
        }
        if session.client.output.len() >= NOTICE_BYTES {
            session.client.flush().await?;
            before = 0;
        }
        session.fill(index).await?;
    }
}

/// Has the shard ended the COPY by an error?
fn is_copy_over(session: &mut Session, index: usize) -> Result<(bool, bool), Failure> {
    let (_, has_failed) = session.step(index)?;
    let Some(participant) = session.transaction.participants_mut().get_mut(index) else { return Ok((true, has_failed)) };
    let is_over = has_failed || participant.connection.pending.is_empty();
    if is_over {
        session.transaction.fail();
    }
    Ok((is_over, has_failed))
}

enum Copied {
    /// CopyDone or CopyFail has been forwarded.
    All,
    Some,
    /// A message of this type comes next.
    Unexpected(u8),
}

/// By which the shard's answer to the proxy's own CopyFail is known.
const UNEXPECTED: &str = "unexpected message type during COPY from stdin";

/// Notices that wait for the client, at most.
const NOTICE_BYTES: usize = 32 * 1024;
/// Data waiting for the shard, at most.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
