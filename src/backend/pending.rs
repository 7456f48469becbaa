//! What a connection has asked for and its shard has not answered yet.

use super::StatementId;

/// An answer that the shard still owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub reply: Reply,
    /// Forwarded to the client; otherwise swallowed, except errors.
    pub is_visible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// ParseComplete; an error means the connection does not have the statement.
    Parse(StatementId),
    /// ParseComplete of the unnamed statement.
    ParseUnnamed,
    Bind,
    Close,
    /// Of a statement that is not wanted any more.
    CloseStatement(StatementId),
    /// ParameterDescription, then RowDescription or NoData: what the connection has of this statement.
    Columns(StatementId),
    DescribePortal,
    /// Rows, then CommandComplete, PortalSuspended or EmptyQueryResponse.
    Execute,
    /// The same; the values of each row are translated as [`super::Connection::expect_nested`] was told.
    ExecuteNested(u16),
    /// Everything up to ReadyForQuery.
    Query,
    /// The same, of a text that another shard answers for all: only an error is news.
    Echo,
    /// ReadyForQuery.
    Sync,
    /// An error, which fails an implicit transaction on purpose.
    Abort,
    /// CloseComplete of nothing, after a COPY that has failed. While the shard read its data it was sent so many Syncs, which come
    /// before this in `pending`: those that are still there now have been read as part of the data, and are not answered.
    SyncsOfCopy(u32),
    /// Nothing comes from the shard: the proxy answers the client itself, in order, with this bodyless message.
    Local(u8),
}
