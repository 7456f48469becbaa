//! Which of several connections fails while others are still silent: an error is told when it comes, not when it is its turn.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::sleep;

use super::proof::{AskedBy, Said};
use crate::backend::Connection;
use crate::wire::FrameHeader;

/// Reads until every connection has proven its snapshots, has refused or is lost; after `patience` until one has failed, also one that
/// had proven them. The place of the first one that has. What was read stays in the inputs, and a loss is met again by who reads there.
/// Cancel safe.
pub async fn first_failure(mut connections: Vec<&mut Connection>, asked: AskedBy, patience: Duration) -> Option<usize> {
    let mut begun = vec![Begun::of(asked); connections.len()];
    let mut patience = pin!(sleep(patience));
    let mut is_over = false;
    poll_fn(|context| {
        for (connection, begun) in connections.iter_mut().zip(&mut begun) {
            begun.look(connection, context);
        }
        is_over = is_over || patience.as_mut().poll(context).is_ready();
        if begun.iter().all(|begun| begun.has_proven || begun.has_failed) {
            return Poll::Ready(begun.iter().position(|begun| begun.has_failed && !begun.has_proven));
        }
        let failing = begun.iter().position(|begun| begun.has_failed);
        if is_over && failing.is_some() { Poll::Ready(failing) } else { Poll::Pending }
    })
    .await
}

/// How far one of them has come.
#[derive(Clone)]
struct Begun {
    asked: AskedBy,
    has_proven: bool,
    /// Its first row, its end, or more notices than are looked through.
    is_answering: bool,
    has_failed: bool,
    /// Bytes of its input that say nothing yet.
    walked: usize,
}

impl Begun {
    fn of(asked: AskedBy) -> Self {
        Self { asked, has_proven: false, is_answering: false, has_failed: false, walked: 0 }
    }

    fn look(&mut self, connection: &mut Connection, context: &mut Context<'_>) {
        while !self.is_answering && !self.has_failed {
            self.has_failed = self.has_refused(&connection.input);
            if self.is_answering || self.has_failed {
                return;
            }
            match connection.poll_fill(context) {
                Poll::Pending => return,
                Poll::Ready(filled) => self.has_failed = filled.is_err(),
            }
        }
    }

    fn has_refused(&mut self, input: &[u8]) -> bool {
        while let Some(rest) = input.get(self.walked..).filter(|rest| !rest.is_empty()) {
            // A header that cannot be read is for who reads the frames.
            let Ok(Some(header)) = FrameHeader::peek(rest, usize::MAX - 8) else { return false };
            let said = self.asked.said(header.tag);
            if said == Said::Failure {
                return true;
            }
            // Notices: whoever reads them hands them on.
            self.is_answering = AskedBy::Other.said(header.tag) == Said::Proof || self.walked + header.total >= WALKED_BYTES_MAX;
            self.has_proven |= said == Said::Proof || self.is_answering;
            if self.is_answering {
                return false;
            }
            self.walked += header.total;
        }
        false
    }
}

const WALKED_BYTES_MAX: usize = 64 * 1024;
/// For so long errors are told in the shards' order, whichever comes first.
pub const FAILURE_PATIENCE: Duration = Duration::from_millis(200);

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
        let mut begun = Begun::of(AskedBy::Other);
        assert!(!begun.has_refused(&input) && !begun.is_answering);
        let mut refused = input.clone();
        originate::error(&mut refused, &PgError::new(SqlState::UNDEFINED_TABLE, "no"));
        assert!(begun.clone().has_refused(&refused));
        // Half a header.
        assert!(!begun.has_refused(&refused[..input.len() + 3]) && !begun.is_answering);
        originate::command_complete(&mut input, "SELECT 0");
        assert!(!begun.has_refused(&input) && begun.is_answering);
        // What has proven its snapshot may fail all the same.
        let mut begun = Begun::of(AskedBy::SelectWithFlush);
        let mut bound = BytesMut::from(&b"2\0\0\0\x04"[..]);
        assert!(!begun.has_refused(&bound) && begun.has_proven && !begun.is_answering);
        originate::error(&mut bound, &PgError::new(SqlState::UNDEFINED_TABLE, "no"));
        assert!(begun.has_refused(&bound));
    }
}
