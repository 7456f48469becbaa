//! Asks one shard something in the commit phase and reads the whole answer: command tags, not only errors.
//!
//! PREPARE TRANSACTION in a failed transaction answers `ROLLBACK` without any error, and a wait for a standby that was cancelled
//! is a mere warning: so an answer here says everything that came, and the rules in [`super::rules`] want to see exactly what
//! success looks like.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use crate::backend::{Connection, ConnectionError, Own};
use crate::wire::{error_fields, shard_tag};

/// What a shard said to one Query.
#[derive(Debug, Default)]
pub struct Answer {
    pub tags: Vec<String>,
    /// The first ErrorResponse, its body.
    pub error: Option<Bytes>,
    /// A warning came with the last command: for PREPARE and COMMIT, that a standby may not have it.
    pub has_warned_at_end: bool,
    /// Warnings of the command that is not complete yet: PostgreSQL sends them before its tag.
    pub(super) warns: bool,
    pub end: End,
    /// First columns of the rows.
    pub values: Vec<Option<Bytes>>,
    /// Notices and warnings, their bodies.
    pub notices: Vec<Bytes>,
}

/// How an answer ended.
#[derive(Debug, Default)]
pub enum End {
    /// ReadyForQuery, with its status.
    Ready(u8),
    /// The connection broke, or the time was over: what the shard does, or has done, is not known.
    Lost(ConnectionError),
    /// Never asked: the connection was lost before.
    #[default]
    Unasked,
}

impl Answer {
    pub fn sqlstate(&self) -> Option<[u8; 5]> {
        error_fields(self.error.as_ref()?).ok()?.sqlstate()?.try_into().ok()
    }

    pub fn message(&self) -> String {
        let fields = self.error.as_ref().and_then(|body| error_fields(body).ok());
        fields.map(|fields| fields.message()).unwrap_or_default()
    }

    pub fn is_lost(&self) -> bool {
        !matches!(self.end, End::Ready(_))
    }

    pub fn is_ready(&self, status: u8) -> bool {
        matches!(self.end, End::Ready(found) if found == status)
    }

    pub fn last_tag(&self) -> &str {
        self.tags.last().map_or("", String::as_str)
    }

    fn note_tag(&mut self, tag: String) {
        self.has_warned_at_end = std::mem::take(&mut self.warns);
        self.tags.push(tag);
    }

    fn note_warning(&mut self) {
        self.warns = true;
        // After the last tag: of the end of the transaction, or of nobody knows what.
        self.has_warned_at_end = true;
    }

    fn note_frame(&mut self, tag: u8, body: &Bytes) -> Result<(), ConnectionError> {
        match tag {
            shard_tag::COMMAND_COMPLETE => {
                let text = body.strip_suffix(b"\0").unwrap_or(body);
                self.note_tag(String::from_utf8_lossy(text).into_owned());
            }
            shard_tag::DATA_ROW => {
                let value = crate::wire::data_row_columns(body).next().transpose()?.flatten();
                self.values.push(value.map(|value| body.slice_ref(value)));
            }
            shard_tag::ERROR => {
                self.error.get_or_insert_with(|| body.clone());
            }
            shard_tag::NOTICE => {
                let fields = error_fields(body)?;
                self.notices.push(body.clone());
                if fields.get(b'V').or_else(|| fields.get(b'S')) == Some(b"WARNING") {
                    self.note_warning();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Sends each text of the commit protocol as a Query of its own, all in one packet, and waits for all answers. A connection that is late by `patience`
/// counts as lost. Not cancel safe: what the shard was told it does.
pub async fn ask(connection: &mut Connection, texts: &[String], patience: Duration) -> Vec<Answer> {
    let deadline = Instant::now() + patience;
    debug_assert!(connection.pending.is_empty(), "answers of the session are still due");
    for text in texts {
        connection.output.query(&Own::Transaction.text(text));
    }
    connection.ends_transaction = true;
    connection.unnamed = None;
    let mut answers = Vec::with_capacity(texts.len());
    for _ in texts {
        let mut answer = Answer::default();
        let read = timeout_at(deadline, read_answer(connection, &mut answer)).await;
        let end = match read {
            Ok(Ok(status)) => End::Ready(status),
            Ok(Err(error)) => End::Lost(error),
            Err(_) => End::Lost(ConnectionError::Io(std::io::ErrorKind::TimedOut.into())),
        };
        let is_over = matches!(end, End::Lost(_));
        answer.end = end;
        answers.push(answer);
        if is_over {
            break;
        }
    }
    connection.ends_transaction = connection.owes();
    answers.resize_with(texts.len(), Answer::default);
    answers
}

/// One Query alone.
pub async fn ask_one(connection: &mut Connection, text: String, patience: Duration) -> Answer {
    ask(connection, &[text], patience).await.pop().unwrap_or_default()
}

async fn read_answer(connection: &mut Connection, answer: &mut Answer) -> Result<u8, ConnectionError> {
    loop {
        let (tag, body) = connection.next_frame().await?;
        if tag == shard_tag::READY {
            let status = body.first().copied().unwrap_or(b'E');
            connection.note_ready(status);
            return Ok(status);
        }
        answer.note_frame(tag, &body)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_counts_for_the_command_whose_tag_follows_it() {
        let mut answer = Answer::default();
        answer.note_warning();
        answer.note_tag("SET".to_owned());
        assert!(answer.has_warned_at_end);
        answer.note_tag("PREPARE TRANSACTION".to_owned());
        assert!(!answer.has_warned_at_end, "the warning was of SET");
        answer.note_warning();
        answer.note_tag("COMMIT".to_owned());
        assert!(answer.has_warned_at_end, "a standby may not have it");
        let mut late = Answer::default();
        late.note_tag("COMMIT".to_owned());
        late.note_warning();
        assert!(late.has_warned_at_end);
    }
}
