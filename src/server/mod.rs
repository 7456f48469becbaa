//! Builds everything once from the settings, accepts clients, drains and stops.
//!
//! ```text
//!   serve: map ─ catalogue ─ pools ─ control ─ gateway          (this runtime: map, schema watch, admin HTTP)
//!             └─ one thread a core: runtime, listener, sessions (SO_REUSEPORT: the kernel spreads the clients)
//!   stop:  no new clients ─ idle sessions end ─ transactions may finish until the drain deadline ─ the rest is cancelled and told
//! ```
//! A session lives on the thread that accepted it and never moves; only idle connections to shards do.

pub mod admin;
mod auth_query;
mod build;
mod client;
mod clients_watch;
mod deadlocks;
mod drift;
mod moves;
mod notify;
mod numbers;
mod operations;
mod pools_watch;
mod primaries_watch;
mod recovery;
mod schema_watch;
mod shards_watch;
mod time_partitions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::keep_running;
use crate::config::{Config, UserConfig};
use crate::net::{Listener, descriptors};
use crate::session::Gateway;
use crate::telemetry::{LogControl, Metrics};
use admin::Readiness;
use client::Doorkeeper;
use notify::{Notifier, Pulse};

/// A proxy that runs.
pub struct Server {
    /// Where it listens: the port that was found when the settings say 0.
    pub address: SocketAddr,
    /// The settings that are in force.
    config: Arc<Config>,
    doorkeeper: Arc<Doorkeeper>,
    readiness: watch::Sender<Readiness>,
    gateway: Arc<Gateway>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// One for each of them.
    pulses: Vec<Arc<Pulse>>,
    /// No new clients.
    stop: CancellationToken,
    /// Sessions are closed, whatever they do.
    abort: CancellationToken,
    drain_timeout: Duration,
}

/// Runs a proxy until `shutdown`, then drains it. Meanwhile takes over what comes by `reloads`, of which the newest counts.
pub async fn serve(
    config: Config,
    logs: LogControl,
    mut reloads: watch::Receiver<Option<Config>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let notifier = Notifier::from_environment();
    let starting = Box::pin(Server::start(config));
    let mut server = tokio::select! {
        biased;
        () = shutdown.cancelled() => {
            tracing::info!("stopped while it started");
            return Ok(());
        }
        started = starting => started?,
    };
    tokio::spawn(notifier.clone().keep_watchdog(server.pulses.clone(), server.abort.clone()));
    notifier.ready();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => {
                notifier.stopping();
                // Who sends another one hears that it comes too late.
                drop(reloads);
                return server.drain().await;
            }
            Ok(()) = reloads.changed() => {
                let Some(config) = reloads.borrow_and_update().clone() else { continue };
                notifier.reloading();
                match take_over(&mut server, &logs, config) {
                    Ok(()) => tracing::info!("settings reloaded"),
                    Err(error) => tracing::error!(error = format!("{error:#}"), "settings not reloaded"),
                }
                notifier.ready();
            }
        }
    }
}

/// All of it or nothing: the level of the logs was found valid when the settings were read.
fn take_over(server: &mut Server, logs: &LogControl, config: Config) -> anyhow::Result<()> {
    let level = config.log.level.clone();
    server.reload(config)?;
    Ok(logs.set_level(&level)?)
}

/// Creates or upgrades the map's schema and stops.
pub async fn init(config: &Config) -> anyhow::Result<crate::shardmap::Migrated> {
    let store = crate::shardmap::Store::new(config.map.url.reveal()).context("map.url")?;
    let migrated = store.migrate().await.context("the map's schema could not be made")?;
    store.close().await;
    Ok(migrated)
}

impl Server {
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let runtimes = match config.listen.threads {
            0 => threads_for(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
            threads => threads as usize,
        };
        let config = Arc::new(config);
        let metrics = Metrics::new()?;
        let files_max = descriptors::raise_limit();
        let gateway = build::gateway(&config, runtimes, &metrics).await?;
        warn_of_few_descriptors(files_max, &config, gateway.map.load().shards.len());
        let doorkeeper = Arc::new(Doorkeeper::new(&config, Arc::clone(&gateway))?);
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        start_background(&gateway, &metrics, &stop, &abort);
        let opened = match operations::start(&config, metrics, &gateway, abort.clone()).await {
            Ok(readiness) => sockets(&config, runtimes).map(|sockets| (readiness, sockets)),
            Err(error) => Err(error),
        };
        let (readiness, (address, sockets)) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // Others would wait for what they take for a proxy that is cut off.
                stop.cancel();
                abort.cancel();
                gateway.map.close().await;
                return Err(error);
            }
        };
        let mut threads = Vec::with_capacity(runtimes);
        let pulses: Vec<Arc<Pulse>> = (0..runtimes).map(|_| Pulse::new()).collect();
        for ((runtime, socket), pulse) in sockets.into_iter().enumerate().zip(&pulses) {
            let (doorkeeper, pulse) = (Arc::clone(&doorkeeper), Arc::clone(pulse));
            let thread = Thread { runtime, doorkeeper, pulse, stop: stop.clone(), abort: abort.clone() };
            let spawned = std::thread::Builder::new().name(format!("sessions-{runtime}")).spawn(move || thread.run(socket));
            threads.push(spawned.context("a thread could not be started")?);
        }
        tracing::info!(%address, threads = runtimes, "accepting clients");
        let drain_timeout = config.listen.drain_timeout();
        Ok(Self { address, config, doorkeeper, readiness, gateway, threads, pulses, stop, abort, drain_timeout })
    }

    /// Takes over users and certificates. The rest of what has changed is named in the log: it waits for a restart.
    pub fn reload(&mut self, new: Config) -> anyhow::Result<()> {
        let waiting = self.config.changes_for_restart(&new);
        if !waiting.is_empty() {
            tracing::warn!(settings = waiting.join(", "), "changed settings wait for a restart");
        }
        // Users and their method belong together: under another method they may lack a password.
        anyhow::ensure!(new.auth.method == self.config.auth.method, "auth.method changes at a restart only, and users with it");
        let mut config = Config::clone(&self.config);
        config.auth.users = new.auth.users;
        config.auth.query = new.auth.query;
        config.listen.tls = new.listen.tls;
        self.doorkeeper.reload(&config)?;
        let is_changed = |user: &&UserConfig| !config.auth.users.contains(user);
        self.gateway.forget_pools_of(self.config.auth.users.iter().filter(is_changed).map(|user| user.name.as_str()));
        self.config = Arc::new(config);
        Ok(())
    }

    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Ends idle sessions at once, waits for transactions up to the deadline, then closes what is left.
    pub async fn drain(self) -> anyhow::Result<()> {
        tracing::info!("draining");
        self.readiness.send_replace(Readiness::Draining);
        self.stop.cancel();
        self.gateway.cancels.stop_all();
        let abort = self.abort.clone();
        let deadline = tokio::spawn(async move {
            tokio::time::sleep(self.drain_timeout).await;
            abort.cancel();
        });
        tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                if thread.join().is_err() {
                    tracing::error!("a session thread has panicked");
                }
            }
        })
        .await?;
        deadline.abort();
        self.abort.cancel();
        self.gateway.map.close().await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// What recovers and breaks deadlocks goes on until the last session has ended.
fn start_background(gateway: &Arc<Gateway>, metrics: &Metrics, stop: &CancellationToken, abort: &CancellationToken) {
    let (until_stop, until_abort) = ((Arc::clone(gateway), stop.clone()), (Arc::clone(gateway), abort.clone()));
    keep_running("clients watch", until_stop.clone(), |(gateway, stop)| clients_watch::run(gateway, stop));
    keep_running("pools watch", until_stop.clone(), |(gateway, stop)| pools_watch::run(gateway, stop));
    keep_running("schema watch", until_stop.clone(), |(gateway, stop)| schema_watch::run(gateway, stop));
    keep_running("primaries watch", until_stop.clone(), |(gateway, stop)| primaries_watch::run(gateway, stop));
    keep_running("shards watch", until_stop.clone(), |(gateway, stop)| shards_watch::run(gateway, stop));
    let metrics = metrics.clone();
    keep_running("moves", until_stop.clone(), move |(gateway, stop)| moves::run(gateway, metrics.clone(), stop));
    keep_running("time partitions", until_stop.clone(), |(gateway, stop)| time_partitions::run(gateway, stop));
    keep_running("drift", until_stop, |(gateway, stop)| drift::run(gateway, stop));
    keep_running("recovery", until_abort.clone(), |(gateway, abort)| recovery::run(Arc::clone(&gateway.recovery), abort));
    keep_running("deadlocks", until_abort.clone(), |(gateway, abort)| deadlocks::run(gateway, abort));
    keep_running("numbers", until_abort, |(gateway, abort)| {
        numbers::run(Arc::clone(&gateway.numbers), Arc::clone(&gateway.map), abort)
    });
}

fn warn_of_few_descriptors(files_max: u64, config: &Config, shards: usize) {
    let needed = descriptors::needed(config, shards);
    if needed > files_max {
        let settings = "listen.max_clients, pool.size_per_shard";
        tracing::warn!(files_max, needed, settings, "the limit of open files is lower than what clients and pools may need");
    }
}

/// One for each core. Of two, one is left to the kernel and to the other processes: a second thread then costs a quarter more CPU
/// for each statement, in waking the threads for fewer events each, and carries no more statements.
fn threads_for(cores: usize) -> usize {
    if cores <= 2 { 1 } else { cores }
}

/// One core: a runtime of its own, a listener, its sessions.
struct Thread {
    runtime: usize,
    doorkeeper: Arc<Doorkeeper>,
    pulse: Arc<Pulse>,
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Thread {
    fn run(self, socket: std::net::TcpListener) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "no runtime for sessions");
                return;
            }
        };
        let sessions = TaskTracker::new();
        runtime.block_on(async {
            match Listener::from_std(socket) {
                Ok(listener) => tokio::select! {
                    biased;
                    () = self.accept(listener, &sessions) => {}
                    () = self.pulse.beat() => {}
                    () = self.abort.cancelled() => self.end(&sessions).await,
                },
                Err(error) => tracing::error!(%error, "the listening socket cannot be used"),
            }
        });
        runtime.shutdown_background();
    }

    /// The drain's deadline. What does not end by itself now ends with the runtime.
    async fn end(&self, sessions: &TaskTracker) {
        tracing::warn!(count = sessions.len(), "sessions closed at the drain deadline");
        self.doorkeeper.abort_sessions();
        sessions.close();
        if tokio::time::timeout(END_TIMEOUT, sessions.wait()).await.is_err() {
            tracing::warn!(count = sessions.len(), "sessions closed without a last message");
        }
    }

    async fn accept(&self, listener: Listener, sessions: &TaskTracker) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let (doorkeeper, runtime) = (Arc::clone(&self.doorkeeper), self.runtime);
                    let (stop, abort) = (self.stop.clone(), self.abort.clone());
                    sessions.spawn(async move { doorkeeper.serve(stream, address, runtime, (stop, abort)).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    // Out of file descriptors: give sessions time to end.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        sessions.close();
        sessions.wait().await;
    }
}

/// The first one finds the port; the others share it.
fn sockets(config: &Config, count: usize) -> anyhow::Result<(SocketAddr, Vec<std::net::TcpListener>)> {
    let (wanted, backlog) = (config.listen.address, config.listen.backlog);
    let first = Listener::bind_first(wanted, backlog).map_err(|error| cannot_listen(wanted, error))?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(Listener::join_first(address, backlog).map_err(|error| cannot_listen(address, error))?);
    }
    Ok((address, sockets))
}

fn cannot_listen(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let what_to_do = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            ": another process listens there, perhaps another proxy; stop it, or let this one have another listen.address"
        }
        _ => " (listen.address)",
    };
    anyhow::Error::new(error).context(format!("cannot listen on {address}{what_to_do}"))
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For cancels on the shards, what becomes of them and the last message to the clients, after the drain's deadline.
const END_TIMEOUT: Duration = Duration::from_secs(8);
