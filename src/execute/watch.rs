//! Which of several connections fails while others are still silent: an error is told when it comes, not when it is its turn.

use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::backend::Connection;
use crate::wire::{FrameHeader, shard_tag};

/// Reads until every connection has begun to answer, or one has refused or is lost: the place of that one. What was read stays in
/// the inputs, and a loss is met again by who reads there. Cancel safe.
pub async fn first_failure(mut connections: Vec<&mut Connection>) -> Option<usize> {
    let mut begun = vec![Begun::default(); connections.len()];
    poll_fn(|context| {
        for (index, (connection, begun)) in connections.iter_mut().zip(&mut begun).enumerate() {
            if begun.has_failed(connection, context) {
                return Poll::Ready(Some(index));
            }
        }
        if begun.iter().all(|begun| begun.is_answering) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// How far one of them has come.
#[derive(Clone, Default)]
struct Begun {
    is_answering: bool,
    /// Bytes of its input that say nothing yet.
    walked: usize,
}

impl Begun {
    fn has_failed(&mut self, connection: &mut Connection, context: &mut Context<'_>) -> bool {
        loop {
            if self.is_answering {
                return false;
            }
            if self.has_refused(&connection.input) {
                return true;
            }
            if self.is_answering {
                return false;
            }
            match connection.poll_fill(context) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return true,
            }
        }
    }

    fn has_refused(&mut self, input: &[u8]) -> bool {
        while let Some(rest) = input.get(self.walked..).filter(|rest| !rest.is_empty()) {
            // A header that cannot be read is for who reads the frames.
            let Ok(Some(header)) = FrameHeader::peek(rest, usize::MAX - 8) else { return false };
            match header.tag {
                shard_tag::ERROR => return true,
                shard_tag::DATA_ROW | shard_tag::COMMAND_COMPLETE | shard_tag::EMPTY_QUERY | shard_tag::READY => {
                    self.is_answering = true;
                    return false;
                }
                _ => self.walked += header.total,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{PgError, SqlState};
    use crate::wire::originate;
    use bytes::BytesMut;

    #[test]
    fn the_first_frame_that_says_anything_counts() {
        let mut input = BytesMut::new();
        originate::parameter_status(&mut input, "a", "b");
        let mut begun = Begun::default();
        assert!(!begun.has_refused(&input) && !begun.is_answering);
        let mut refused = input.clone();
        originate::error(&mut refused, &PgError::new(SqlState::UNDEFINED_TABLE, "no"));
        assert!(begun.clone().has_refused(&refused));
        // Half a header.
        assert!(!begun.has_refused(&refused[..input.len() + 3]) && !begun.is_answering);
        originate::command_complete(&mut input, "SELECT 0");
        assert!(!begun.has_refused(&input) && begun.is_answering);
    }
}
