//! Frames of the PostgreSQL protocol over byte buffers: their headers, the parts of messages that the proxy reads, and the
//! messages that it originates.
//!
//! Every message is a tag byte, a big-endian length that counts itself, and a body. Forwarded messages are never decoded: the
//! relay walks headers and moves bytes. Decoders borrow from the buffer, check every length, and return an error for anything
//! that does not fit; they never panic on bytes from outside and never index past the frame.
//!
//! Messages that the proxy originates towards clients are encoded by the `pgwire` crate, those towards shards by
//! `postgres-protocol`; the few that are written for every statement are written here.

mod decode;
mod frame;
mod frontend;
pub mod originate;
mod protocol;
mod shard;

pub use decode::{DecodeError, Reader};
pub use frame::{FRAME_HEADER_BYTES, FrameHeader};
pub use frontend::{Bind, Parse, Target, bind, close, describe, execute, parse, query};
pub use protocol::ShardProtocol;
pub use shard::{
    ErrorFields, FieldDescription, data_row_columns, error_fields, for_each_column, parameter_status, row_description,
};

/// Tags of messages from clients.
pub mod client_tag {
    pub const QUERY: u8 = b'Q';
    pub const PARSE: u8 = b'P';
    pub const BIND: u8 = b'B';
    pub const DESCRIBE: u8 = b'D';
    pub const EXECUTE: u8 = b'E';
    pub const CLOSE: u8 = b'C';
    pub const SYNC: u8 = b'S';
    pub const FLUSH: u8 = b'H';
    pub const FUNCTION_CALL: u8 = b'F';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_FAIL: u8 = b'f';
    pub const TERMINATE: u8 = b'X';
}

/// Tags of messages from shards.
pub mod shard_tag {
    pub const PARSE_COMPLETE: u8 = b'1';
    pub const BIND_COMPLETE: u8 = b'2';
    pub const CLOSE_COMPLETE: u8 = b'3';
    pub const COMMAND_COMPLETE: u8 = b'C';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_IN: u8 = b'G';
    pub const COPY_OUT: u8 = b'H';
    pub const DATA_ROW: u8 = b'D';
    pub const EMPTY_QUERY: u8 = b'I';
    pub const ERROR: u8 = b'E';
    pub const FUNCTION_RESULT: u8 = b'V';
    pub const NO_DATA: u8 = b'n';
    pub const NOTICE: u8 = b'N';
    pub const NOTIFICATION: u8 = b'A';
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    pub const PARAMETER_STATUS: u8 = b'S';
    pub const PORTAL_SUSPENDED: u8 = b's';
    pub const READY: u8 = b'Z';
    pub const ROW_DESCRIPTION: u8 = b'T';
}
