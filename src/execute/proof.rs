//! Which message of a shard proves that a statement has the snapshots that it reads by.
//!
//! Until all shards have proven theirs nothing of an answer goes to the client, and the statement holds the map that it was planned
//! by: a move waits for it. What fails before is repeated, and the client hears nothing of it.
//!
//! ```text
//!   Parse, Bind, Describe, Flush, Execute, Sync      BindComplete     a SELECT that writes nothing and calls nothing that reads:
//!                                                                     PostgreSQL plans it, and takes its snapshot, in Bind
//!   whatever else, and a Query                       the first row, the begin of a COPY to the client, the tag
//! ```
//! ParseComplete, notices and parameters prove nothing; neither does a RowDescription, which comes of a plan. A proxy that has lost
//! its lease is shut out by the shards themselves: its connections are closed there before a move goes on without it
//! ([`crate::shardmap`]), so that no answer has to be compared with the lease when it comes.

use crate::wire::shard_tag;

/// How a shard was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// A SELECT that writes nothing: Parse, Bind, Describe, Flush, Execute, Sync.
    SelectWithFlush,
    /// Anything else, in any way.
    Other,
}

/// What a message says of the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Nothing,
    /// It has its snapshots.
    Proof,
    Failure,
}

impl AskedBy {
    pub fn said(self, tag: u8) -> Said {
        match tag {
            shard_tag::ERROR => Said::Failure,
            shard_tag::BIND_COMPLETE if self == AskedBy::SelectWithFlush => Said::Proof,
            shard_tag::DATA_ROW
            | shard_tag::COPY_DATA
            | shard_tag::COPY_OUT
            | shard_tag::COMMAND_COMPLETE
            | shard_tag::EMPTY_QUERY
            | shard_tag::PORTAL_SUSPENDED
            | shard_tag::READY => Said::Proof,
            _ => Said::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AskedBy::{Other, SelectWithFlush};
    use Said::{Failure, Nothing, Proof};

    #[test]
    fn what_each_message_says() {
        let table = [
            (shard_tag::PARSE_COMPLETE, Nothing, Nothing),
            (shard_tag::BIND_COMPLETE, Proof, Nothing),
            (shard_tag::PARAMETER_DESCRIPTION, Nothing, Nothing),
            (shard_tag::ROW_DESCRIPTION, Nothing, Nothing),
            (shard_tag::NO_DATA, Nothing, Nothing),
            (shard_tag::NOTICE, Nothing, Nothing),
            (shard_tag::NOTIFICATION, Nothing, Nothing),
            (shard_tag::PARAMETER_STATUS, Nothing, Nothing),
            (shard_tag::CLOSE_COMPLETE, Nothing, Nothing),
            (shard_tag::COPY_IN, Nothing, Nothing),
            (shard_tag::COPY_OUT, Proof, Proof),
            (shard_tag::COPY_DATA, Proof, Proof),
            (shard_tag::COPY_DONE, Nothing, Nothing),
            (shard_tag::DATA_ROW, Proof, Proof),
            (shard_tag::COMMAND_COMPLETE, Proof, Proof),
            (shard_tag::EMPTY_QUERY, Proof, Proof),
            (shard_tag::PORTAL_SUSPENDED, Proof, Proof),
            (shard_tag::READY, Proof, Proof),
            (shard_tag::ERROR, Failure, Failure),
        ];
        for (tag, of_select, of_other) in table {
            assert_eq!((SelectWithFlush.said(tag), Other.said(tag)), (of_select, of_other), "{}", char::from(tag));
        }
    }
}
