//! Who a client is, and how the proxy logs in to a shard.
//!
//! [`Authenticator`] (made once from the settings) takes a client from its StartupMessage to AuthenticationOk and gives a
//! [`Login`]; [`login`] takes a connection to a shard from its StartupMessage to the first ReadyForQuery.
//!
//! SCRAM is written here, in both directions, on ring's primitives. pgwire's mechanism does not compare in constant time, does
//! not give out the ClientKey that lets the proxy log in to a shard as the client, and answers at once for users that do not
//! exist; postgres-protocol's client needs a password and cannot start from a ClientKey. The exchanges are pure (bytes in, bytes
//! out), so they are tested without sockets, against postgres-protocol and against real servers.

mod client_login;
mod frame;
mod scram;
mod scram_client;
mod scram_server;
mod shard_error;
mod shard_login;
mod users;
mod verifier_source;

pub use client_login::{AuthError, Authenticator, Login};
pub use scram::{ScramKeys, stored_password};
pub use scram_client::ScramClientError;
pub use shard_error::ShardError;
pub use shard_login::{BackendCredentials, BackendKey, BackendSecret, Greeting, LoginError, login, login_over};
pub use verifier_source::VerifierSource;
