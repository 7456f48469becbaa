//! Real PostgreSQL servers on this machine, owned by the process that starts them.
//!
//! The demo keeps its servers in a directory and finds them again at the next start; a test starts its own from a cached
//! template directory in well under a second. In both cases a server never outlives its owner: a small `sh` watchdog
//! (`watched`) ends it when the owner dies in whatever way, `SIGKILL` included.
//!
//! Servers listen on 127.0.0.1 only (a test may add an address), have no Unix socket, and trust every connection: they are for demos and tests, never
//! for production. All calls block, so that they also work in `Drop`, except [`Server::create_database`], which talks to
//! the server.

mod account;
mod data_directory;
mod error;
mod installation;
mod port;
mod server;
mod settings;
mod watched;

pub use account::Account;
pub use error::ServerError;
pub use installation::PostgresInstallation;
pub use port::{free_port, is_free_port};
pub use server::{Server, ServerOptions, StopMode};
pub use settings::{demo_settings, test_settings};
pub use watched::{WatchOptions, Watched};
