//! Sockets and TLS: how connections begin, on the clients' side and on the shards'.
//!
//! Clients: [`Listener`] accepts, [`Opening::read`] reads what comes before login (SSLRequest, CancelRequest, StartupMessage)
//! and leaves a [`ClientStream`]. Shards: [`ShardEndpoint`], made once for each host of a [`ShardUrl`](crate::config::ShardUrl), connects and leaves a
//! [`ShardStream`]; sqlx gets the same by [`connect_options`], and [`Attempts`] at all hosts. Who the client is, and the log-in to a shard, is `auth`'s; frames after that are `wire`'s.
//!
//! Everything here reads bytes of strangers: lengths are checked before they are used, buffers are bounded, and TLS never sees
//! a byte that came before its handshake. Time limits are the caller's: it wraps the whole of connecting and logging in, since
//! a limit on each step would let a slow peer have the sum.

mod attempts;
mod channel_binding;
mod client_socket;
mod client_stream;
mod connect_options;
pub mod descriptors;
mod listener;
mod opening;
mod plain;
mod refusal;
mod shard_endpoint;
mod shard_stream;
mod shard_tls;
mod socket;
mod startup;
mod tls;

pub use attempts::{AttemptError, Attempts, NEXT_HOST_AFTER, connect_to, io_reason};
pub use client_socket::ClientSocket;
pub use client_stream::ClientStream;
pub use connect_options::{ConnectOptionsError, connect_options};
pub use listener::Listener;
pub use opening::{Opening, OpeningError, Startup};
pub use refusal::write_error;
pub use shard_endpoint::{ConnectError, ShardEndpoint};
pub use shard_stream::{DetachedShardStream, ShardStream};
pub use startup::{StartupError, StartupPacket, StartupParameters};
pub use tls::{ServerTls, TlsError};
