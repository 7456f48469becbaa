//! What can go wrong while finding, starting and ending PostgreSQL servers.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "no PostgreSQL {minimum} or newer found: {found}; install PostgreSQL's server programs, or put their directory on PATH"
    )]
    NotInstalled { minimum: u32, found: String },
    #[error("servers must not run as root, and neither account \"postgres\" nor \"nobody\" exists")]
    NoAccount,
    #[error("account with uid {uid} cannot reach {}: use a directory below one that everybody may enter", path.display())]
    OutOfReach { uid: u32, path: PathBuf },
    #[error("could not {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not run {}", program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} failed: {output}", program.display())]
    Program { program: PathBuf, output: String },
    #[error("server in {} ended while starting: {log}", dir.display())]
    EndedAtStart { dir: PathBuf, log: String },
    #[error("server in {} was not ready after {seconds} s: {log}", dir.display())]
    NotReady { dir: PathBuf, seconds: u64, log: String },
    #[error("process {pid} did not end within {seconds} s")]
    DoesNotEnd { pid: i32, seconds: u64 },
    #[error("could not signal process {pid}")]
    Signal {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("no free port found on 127.0.0.1")]
    NoFreePort,
    #[error("port {port} is taken by another process")]
    PortTaken { port: u16 },
    #[error("could not {action} database \"{database}\"")]
    Database {
        action: &'static str,
        database: String,
        #[source]
        source: sqlx::Error,
    },
}

impl ServerError {
    /// For `map_err` at file operations.
    pub(super) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| ServerError::File { action, path, source }
    }
}
