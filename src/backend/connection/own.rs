//! Statements of the proxy's own: asked and answered in one call, while nothing of a session's is due.

use bytes::{Buf, Bytes};

use super::{Connection, ConnectionError, Frame, owned_columns};
use crate::backend::{ShardText, StatementName};
use crate::wire::{error_fields, shard_tag};

impl Connection {
    /// Runs a text of the proxy's own as a simple query and waits for its end. Rows come back as text.
    ///
    /// Errors: [`ConnectionError::Refused`] with the shard's error; the connection is then still usable.
    pub async fn simple(&mut self, text: &ShardText<'_>) -> Result<Vec<Vec<Option<Bytes>>>, ConnectionError> {
        debug_assert!(self.pending.is_empty(), "answers of the session are still due");
        self.output.query(text);
        self.rows_to_ready().await
    }

    /// The same with one parameter, of the type that PostgreSQL takes it for, given as text.
    pub async fn bound(&mut self, text: &ShardText<'_>, parameter: &str) -> Result<Vec<Vec<Option<Bytes>>>, ConnectionError> {
        debug_assert!(self.pending.is_empty(), "answers of the session are still due");
        let mut after_names = vec![0, 0, 0, 1];
        after_names.extend_from_slice(&u32::try_from(parameter.len()).unwrap_or(u32::MAX).to_be_bytes());
        after_names.extend_from_slice(parameter.as_bytes());
        after_names.extend_from_slice(&[0, 0]);
        self.output.parse(StatementName::Unnamed, text, &[]);
        self.output.bind(b"", StatementName::Unnamed, text, &after_names);
        self.output.execute(b"", 0);
        self.output.sync();
        self.rows_to_ready().await
    }

    /// Takes what has come of an answer that is due, without a wait.
    pub(in crate::backend) fn receive_due(&mut self) -> Result<(), ConnectionError> {
        while self.owes() {
            if let Some(disorder) = &self.disorder {
                return Err(disorder.clone().into());
            }
            let before = self.input.len();
            let end = match self.stream.try_receive_now(&mut self.input) {
                Ok(1..) => {
                    self.check_received(before);
                    continue;
                }
                Ok(0) => ConnectionError::Closed,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => error.into(),
            };
            if let Some(farewell) = self.farewell() {
                return Err(farewell);
            }
            self.note_loss(&end);
            return Err(end);
        }
        Ok(())
    }

    /// The shard's own words of why it has ended the connection, behind whatever else has come. Of an answer that does not end nobody
    /// wants the rest.
    fn farewell(&mut self) -> Option<ConnectionError> {
        loop {
            match self.peek() {
                Ok(Some(Frame { header, is_complete: true })) => self.input.advance(header.total),
                Ok(_) => return None,
                Err(error) => return matches!(error, ConnectionError::Ended(_)).then_some(error),
            }
        }
    }

    /// The answer to a Query that was sent, or is in the output.
    pub(in crate::backend) async fn rows_to_ready(&mut self) -> Result<Vec<Vec<Option<Bytes>>>, ConnectionError> {
        self.unnamed = None;
        let mut rows = Vec::new();
        let mut refusal = None;
        loop {
            let (tag, body) = self.next_frame().await?;
            match tag {
                shard_tag::DATA_ROW => rows.push(owned_columns(&body)?),
                shard_tag::ERROR if refusal.is_none() => {
                    let fields = error_fields(&body)?;
                    let sqlstate = String::from_utf8_lossy(fields.sqlstate().unwrap_or(b"XX000")).into_owned();
                    refusal = Some(ConnectionError::Refused { sqlstate, message: fields.message(), body: body.clone() });
                }
                shard_tag::READY => {
                    self.note_ready(body.first().copied().unwrap_or(b'E'));
                    return match refusal {
                        Some(refusal) => Err(refusal),
                        None => Ok(rows),
                    };
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::super::tests::{message, pair};
    use super::*;
    use crate::backend::{ConnectionLimits, Own};

    fn farewell(code: &str) -> Vec<u8> {
        message(shard_tag::ERROR, format!("SFATAL\0C{code}\0Mgoodbye\0\0").as_bytes())
    }

    #[tokio::test]
    async fn a_connection_that_ends_while_an_answer_is_due_is_lost_for_the_reason_that_the_shard_gives() {
        let row = [message(b'T', &[0, 0]), message(shard_tag::DATA_ROW, &[0, 0])].concat();
        let closed = ConnectionError::Closed.to_string();
        for (sent, loss) in [
            ([row.clone(), farewell("57P01")].concat(), Some("goodbye")),
            (farewell("08006"), Some("goodbye")),
            // By a limit of the session on the shard.
            (farewell("57P05"), None),
            (row, Some(closed.as_str())),
        ] {
            let (mut connection, mut shard) = pair(ConnectionLimits::OWN).await;
            connection.output.query(&Own::Constants.text("SELECT"));
            connection.flush().await.expect("sent");
            shard.write_all(&sent).await.expect("sent");
            shard.shutdown().await.expect("ended");
            while connection.receive_due().is_ok() {
                tokio::task::yield_now().await;
            }
            assert_eq!(connection.loss(), loss);
        }
    }

    #[tokio::test]
    async fn a_farewell_that_comes_unasked_ends_the_connection() {
        let (mut connection, mut shard) = pair(ConnectionLimits::OWN).await;
        assert!(!connection.has_ended_unseen());
        shard.write_all(&farewell("57P01")).await.expect("sent");
        assert!(connection.has_ended_unseen());
    }
}
