//! One PostgreSQL server: its directory, its settings, its process.
//!
//! Layout of a server's directory: `data` (made by `initdb` or copied), `server.log`.

use crate::catalog::quoted_identifier;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{ConnectOptions, Connection, Executor};

use super::settings::write_settings;
use super::watched::{WatchOptions, Watched};
use super::{Account, PostgresInstallation, ServerError, data_directory, port};

/// Where and how a server runs.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The server's own directory; made where missing. A second start finds the data of the first.
    pub dir: PathBuf,
    /// Directory of the server's programs; `None`: those that are found on this machine.
    pub programs: Option<PathBuf>,
    /// Beside 127.0.0.1, and in its URLs: of a machine in a network.
    pub address: Option<Ipv4Addr>,
    /// `None`: a free one, chosen anew at every `start` but kept over restarts.
    pub port: Option<u16>,
    /// For `shardgate.conf`; a later one of the same name wins. See [`super::demo_settings`] and [`super::test_settings`].
    pub settings: Vec<(String, String)>,
    /// Lines put before those of `pg_hba.conf`, where the first match counts.
    pub hba: Vec<String>,
    /// Copy the data from a template kept in this directory instead of running `initdb`.
    pub template_cache: Option<PathBuf>,
    /// Remove `dir` when the server is dropped or its owner dies.
    pub ephemeral: bool,
}

/// How to end a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Ends sessions, writes a checkpoint.
    Fast,
    /// Ends at once, as a crash would; the next start recovers.
    Immediate,
}

/// A running, or stopped, server. Dropping it ends the process.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct Server {
    installation: PostgresInstallation,
    account: Account,
    options: ServerOptions,
    port: u16,
    process: Option<Watched>,
}

impl Server {
    /// Makes the data directory where it is missing, starts the server and waits until it takes connections.
    pub fn start(options: &ServerOptions) -> Result<Self, ServerError> {
        let installation = match &options.programs {
            Some(directory) => PostgresInstallation::at(directory)?,
            None => PostgresInstallation::find()?,
        };
        let account = Account::for_servers()?;
        account.create_directory(&options.dir)?;
        // Kept as an absolute path: the server runs in another working directory.
        let dir = fs::canonicalize(&options.dir).map_err(ServerError::file("find", &options.dir))?;
        let options = ServerOptions { dir, ..options.clone() };
        prepare_data(&installation, account, &options)?;
        let mut server = Server { installation, account, port: 0, process: None, options };
        match server.options.port {
            Some(port) => {
                server.port = port;
                server.launch_after_predecessor()?;
            }
            None => server.launch_on_free_port()?,
        }
        Ok(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    pub fn log_path(&self) -> PathBuf {
        self.options.dir.join("server.log")
    }

    pub fn installation(&self) -> &PostgresInstallation {
        &self.installation
    }

    /// For a database of this server, as its superuser.
    pub fn url(&self, database: &str) -> String {
        let address = self.options.address.unwrap_or(Ipv4Addr::LOCALHOST);
        format!("postgres://postgres@{address}:{}/{database}", self.port)
    }

    /// Process id of the postmaster while the server runs.
    pub fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Watched::pid)
    }

    /// Creates an empty database from `template0`; an existing one of that name stays as it is.
    pub async fn create_database(&self, database: &str) -> Result<(), ServerError> {
        let failed = |source| ServerError::Database { action: "create", database: database.to_owned(), source };
        let mut connection = self.superuser().await.map_err(failed)?;
        let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(database)
            .fetch_one(&mut connection)
            .await
            .map_err(failed)?;
        if !exists {
            let statement = format!("CREATE DATABASE {} TEMPLATE template0", quoted_identifier(database));
            connection.execute(sqlx::AssertSqlSafe(statement)).await.map_err(failed)?;
        }
        connection.close().await.map_err(failed)
    }

    /// Ends the server in order, or as a crash would. Stopping a stopped server does nothing.
    pub fn stop(&mut self, mode: StopMode) -> Result<(), ServerError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal(match mode {
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        })?;
        // When the server is deaf, dropping the process kills it.
        process.wait(STOP_PATIENCE).map(|_| ())
    }

    /// `SIGKILL` to the server and all its sessions, as if the machine had lost its power. Nothing is said to clients; the
    /// kernel closes their sockets.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        // Stopped first, so that it cannot start another child between the look and the kill.
        process.signal(Signal::STOP)?;
        let children = children_of(process.pid())?;
        process.signal(Signal::KILL)?;
        for child in children {
            match kill_process(child, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => return Err(ServerError::Signal { pid: child.as_raw_nonzero().get(), source: errno.into() }),
            }
        }
        process.wait(STOP_PATIENCE).map(|_| ())
    }

    /// Starts a stopped or killed server again, on the same port.
    pub fn start_again(&mut self) -> Result<(), ServerError> {
        match self.process {
            Some(_) => Ok(()),
            // Its backends may outlive a server that was killed by a moment.
            None => self.launch_after_predecessor(),
        }
    }

    /// Stops in order, then starts again on the same port.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.stop(StopMode::Fast)?;
        self.launch()
    }

    async fn superuser(&self) -> Result<sqlx::PgConnection, sqlx::Error> {
        let options: sqlx::postgres::PgConnectOptions = self.url("postgres").parse()?;
        Box::pin(options.disable_statement_logging().connect()).await
    }

    fn launch_on_free_port(&mut self) -> Result<(), ServerError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.port = port::free_port()?;
            match self.launch_after_predecessor() {
                Err(ServerError::PortTaken { .. }) if attempts < PORT_ATTEMPTS_MAX => {}
                outcome => return outcome,
            }
        }
    }

    /// A server whose owner was killed a moment ago is being ended by its watchdog and still holds the data directory.
    fn launch_after_predecessor(&mut self) -> Result<(), ServerError> {
        let deadline = Instant::now() + PREDECESSOR_PATIENCE;
        loop {
            match self.launch() {
                Err(ServerError::EndedAtStart { log, .. })
                    if PREDECESSOR_MESSAGES.iter().any(|message| log.contains(message)) && Instant::now() < deadline =>
                {
                    thread::sleep(PREDECESSOR_POLL);
                }
                outcome => return outcome,
            }
        }
    }

    fn launch(&mut self) -> Result<(), ServerError> {
        write_settings(self.account, &self.options, self.port)?;
        let log = self.log_path();
        let log_length = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let arguments = ["-D".into(), self.data().into_os_string()];
        let watch = WatchOptions {
            account: self.account,
            log,
            end_signal: "QUIT",
            remove_at_end: self.options.ephemeral.then(|| self.options.dir.clone()),
            environment: Vec::new(),
        };
        let mut process = Watched::spawn(&self.installation.program("postgres"), &arguments, &watch)?;
        self.wait_until_ready(&mut process, log_length)?;
        self.process = Some(process);
        Ok(())
    }

    /// The server writes its state into the eighth line of `postmaster.pid`; the first one is its process id, which tells a
    /// file that a crash left behind.
    fn wait_until_ready(&self, process: &mut Watched, log_length: u64) -> Result<(), ServerError> {
        let pid_file = self.data().join("postmaster.pid");
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            let mut lines = text.lines();
            if lines.next() == Some(process.pid().to_string().as_str()) && lines.nth(6).is_some_and(|state| state.trim() == "ready")
            {
                return Ok(());
            }
            if process.has_ended()?.is_some() {
                return Err(self.start_failure(log_length));
            }
            if Instant::now() >= deadline {
                let log = self.log_since(log_length);
                return Err(ServerError::NotReady { dir: self.options.dir.clone(), seconds: START_PATIENCE.as_secs(), log });
            }
            thread::sleep(POLL);
        }
    }

    fn start_failure(&self, log_length: u64) -> ServerError {
        let log = self.log_since(log_length);
        match log.contains("Address already in use") {
            true => ServerError::PortTaken { port: self.port },
            false => ServerError::EndedAtStart { dir: self.options.dir.clone(), log },
        }
    }

    fn log_since(&self, length: u64) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        let start = usize::try_from(length).unwrap_or(usize::MAX);
        String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).trim().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.options.dir.join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends the process, and lets the watchdog remove an ephemeral directory as the account that owns it; what is left is
        // the directory itself, where only this process may remove it, and everything if the server was stopped before.
        drop(self.process.take());
        if self.options.ephemeral
            && let Err(error) = data_directory::remove_tree(&self.options.dir)
        {
            tracing::warn!(error = %error, dir = %self.options.dir.display(), "directory of a server not removed");
        }
    }
}

fn prepare_data(installation: &PostgresInstallation, account: Account, options: &ServerOptions) -> Result<(), ServerError> {
    let data = options.dir.join("data");
    if data.join("PG_VERSION").is_file() {
        return Ok(());
    }
    data_directory::remove_tree(&data)?;
    match &options.template_cache {
        Some(cache) => data_directory::copy_from_template(installation, account, cache, &data),
        None => data_directory::initialise(installation, account, &data),
    }
}

/// The processes whose parent is `pid`, by the fourth field of /proc/PID/stat (after the name, which may hold anything).
fn children_of(pid: i32) -> Result<Vec<Pid>, ServerError> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").map_err(ServerError::file("read directory", "/proc"))? {
        let entry = entry.map_err(ServerError::file("read directory", "/proc"))?;
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
        // A process may end while we look.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)).and_then(|field| field.parse().ok());
        if parent == Some(pid) {
            children.push(child);
        }
    }
    Ok(children)
}

const POLL: Duration = Duration::from_millis(3);
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const PREDECESSOR_MESSAGES: [&str; 2] = ["postmaster.pid\" already exists", "pre-existing shared memory block"];
/// Longer than a watchdog takes.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(15);
const PREDECESSOR_POLL: Duration = Duration::from_millis(50);
const PORT_ATTEMPTS_MAX: u32 = 10;
