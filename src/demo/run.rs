//! What `shardgate demo` does.
//!
//! In the foreground it owns the cluster until Ctrl-C or SIGTERM. Detached, it starts itself once more as a session of its
//! own and waits until that one says that it is ready; ending it is a SIGTERM to that process, whose id is in the lock.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::DemoError;
use super::catalogue::{self, CatalogueSize};
use super::directory::DemoDirectory;
use super::local_cluster::{DATABASE, LocalCluster, SHARDS_MAX, last_lines};

#[derive(Clone, Debug)]
pub struct DemoOptions {
    pub dir: PathBuf,
    pub shards: usize,
    /// The proxy's; its admin port is the next one.
    pub port: u16,
}

/// Runs the demo until Ctrl-C or SIGTERM, then ends it in order.
///
/// Before the cluster is ready these signals end the process as they end any other; the servers then end with it.
pub async fn run(options: &DemoOptions) -> Result<(), DemoError> {
    if !(1..=SHARDS_MAX).contains(&options.shards) {
        return Err(DemoError::ShardCount { max: SHARDS_MAX });
    }
    let directory = DemoDirectory::create(&options.dir)?;
    let lock = directory.lock()?;
    remove_if_there(&directory.ready_path())?;
    let began = Instant::now();
    say("starting PostgreSQL servers and the proxy");
    let mut cluster = LocalCluster::start(&directory, options.shards, options.port).await?;
    let size = catalogue::load(&cluster.proxy_url(), &cluster.shards(), say).await?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DemoError::file("listen for", "SIGINT"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(DemoError::file("listen for", "SIGTERM"))?;
    announce(&directory, options, size, began.elapsed())?;
    let ended_by_itself = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = proxy_end(&mut cluster) => ended,
    };
    remove_if_there(&directory.ready_path())?;
    say("stopping");
    let stopped = tokio::task::spawn_blocking(move || cluster.stop()).await.map_err(DemoError::Task)?;
    drop(lock);
    ended_by_itself.and(stopped)
}

/// Starts the demo in the background and returns when it is ready. Returns what to print. A demo that runs already is fine.
pub fn start_detached(options: &DemoOptions) -> Result<String, DemoError> {
    let directory = DemoDirectory::create(&options.dir)?;
    if let Some(pid) = directory.running()? {
        return match fs::read_to_string(directory.ready_path()) {
            Ok(text) => Ok(text),
            Err(_) => Err(DemoError::AlreadyRunning { dir: directory.root().to_owned(), pid }),
        };
    }
    remove_if_there(&directory.ready_path())?;
    let mut child = spawn_detached(&directory, options)?;
    let deadline = Instant::now() + DETACH_PATIENCE;
    loop {
        if let Ok(text) = fs::read_to_string(directory.ready_path()) {
            return Ok(text);
        }
        if child.try_wait().map_err(DemoError::file("wait for", directory.log_path()))?.is_some() {
            return Err(DemoError::DetachedEnded { log: last_lines(&directory.log_path(), 30) });
        }
        if Instant::now() >= deadline {
            return Err(DemoError::DetachedNotReady { seconds: DETACH_PATIENCE.as_secs(), log: directory.log_path() });
        }
        thread::sleep(POLL);
    }
}

/// Ends the demo that runs in this directory. `false`: none runs.
pub fn stop(dir: &Path) -> Result<bool, DemoError> {
    match dir.is_dir() {
        true => DemoDirectory::create(dir)?.stop(STOP_PATIENCE),
        false => Ok(false),
    }
}

/// Called first in the process that [`start_detached`] starts: leaves the terminal's session, so that closing it ends nothing.
pub fn leave_session() -> Result<(), DemoError> {
    match rustix::process::setsid() {
        // Refused to the leader of a process group, who has left already.
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(errno) => Err(DemoError::File { action: "leave", path: "the terminal's session".into(), source: errno.into() }),
    }
}

fn spawn_detached(directory: &DemoDirectory, options: &DemoOptions) -> Result<Child, DemoError> {
    let log_path = directory.log_path();
    let log = File::create(&log_path).map_err(DemoError::file("create", &log_path))?;
    let copy = log.try_clone().map_err(DemoError::file("open", &log_path))?;
    let program = std::env::current_exe().map_err(DemoError::file("find", "this program"))?;
    Command::new(&program)
        .args(["demo", "--in-background", "--dir"])
        .arg(directory.root())
        .args(["--shards", &options.shards.to_string(), "--port", &options.port.to_string()])
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(copy)
        .spawn()
        .map_err(DemoError::file("run", program))
}

/// Writes `ready` in one piece: whoever sees it sees all of it.
fn announce(directory: &DemoDirectory, options: &DemoOptions, size: CatalogueSize, took: Duration) -> Result<(), DemoError> {
    let text = announcement(options, size);
    println!("{text}");
    say(&format!("ready after {:.1} s; Ctrl-C ends it", took.as_secs_f64()));
    let partial = directory.root().join("ready.partial");
    fs::write(&partial, text).map_err(DemoError::file("write", &partial))?;
    fs::rename(&partial, directory.ready_path()).map_err(DemoError::file("rename", &partial))
}

fn announcement(options: &DemoOptions, size: CatalogueSize) -> String {
    let DemoOptions { shards, port, .. } = options;
    let CatalogueSize { books, orders, readers } = size;
    format!(
        "\n{books} books, {orders} orders and {readers} readers on {shards} shards. Try:\n\n    \
         psql -h 127.0.0.1 -p {port} -U postgres {DATABASE}\n\n    \
         SELECT * FROM shardgate.shards;\n    \
         SELECT title, author, price FROM books WHERE isbn = '{}';\n    \
         EXPLAIN (SHARDS) SELECT * FROM books WHERE isbn = '{}';\n",
        catalogue::SAMPLE_ISBN,
        catalogue::SAMPLE_ISBN,
    )
}

async fn proxy_end(cluster: &mut LocalCluster) -> Result<(), DemoError> {
    let mut look = tokio::time::interval(WATCH_INTERVAL);
    loop {
        look.tick().await;
        cluster.check_proxy()?;
    }
}

fn remove_if_there(path: &Path) -> Result<(), DemoError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DemoError::file("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn say(step: &str) {
    println!("shardgate demo: {step}");
}

const DETACH_PATIENCE: Duration = Duration::from_secs(180);
const STOP_PATIENCE: Duration = Duration::from_secs(60);
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(20);
