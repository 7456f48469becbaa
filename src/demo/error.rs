//! What can go wrong with the demo.

use std::io;
use std::path::PathBuf;

use super::catalogue::CatalogueError;
use super::servers::ServerError;

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("--shards must be between 1 and {max}")]
    ShardCount { max: usize },
    #[error("a demo runs in {} already, as process {pid}; end it with \"shardgate demo stop\"", dir.display())]
    AlreadyRunning { dir: PathBuf, pid: i32 },
    #[error("could not {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("port {port} on 127.0.0.1 is taken; choose another one with --port")]
    ProxyPortTaken { port: u16 },
    #[error(
        "port {port} of {server} is taken by another process; end that one, or remove {} to begin anew",
        dir.display()
    )]
    ServerPortTaken { server: String, port: u16, dir: PathBuf },
    #[error("could not start {server}")]
    Server {
        server: String,
        #[source]
        source: ServerError,
    },
    #[error("could not start the proxy")]
    Proxy(#[source] ServerError),
    #[error("the proxy ended: {log}")]
    ProxyEnded { log: String },
    #[error("the proxy was not ready after {seconds} s: {log}")]
    ProxyNotReady { seconds: u64, log: String },
    #[error("could not make the book catalogue")]
    Catalogue(#[from] CatalogueError),
    #[error("the demo ended while starting: {log}")]
    DetachedEnded { log: String },
    #[error("the demo was not ready after {seconds} s; it is still starting, see {}", log.display())]
    DetachedNotReady { seconds: u64, log: PathBuf },
    #[error("process {pid} did not end within {seconds} s")]
    DoesNotEnd { pid: i32, seconds: u64 },
    #[error("a task of the demo failed")]
    Task(#[source] tokio::task::JoinError),
}

impl DemoError {
    /// For `map_err` at file operations.
    pub(super) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| DemoError::File { action, path, source }
    }
}
