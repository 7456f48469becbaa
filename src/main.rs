//! The command line of the proxy: reads the arguments, hands over to the library, turns errors into an exit code.
//!
//! Exit codes: 0 fine; 1 failed, or `check` has findings that are no warnings; 2 wrong usage.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use shardgate::config::Config;
use shardgate::declare;
use shardgate::declare::check::PlanAsked;
use shardgate::demo::{self, DemoOptions, ShardAddress};
use shardgate::{server, telemetry};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A gateway in front of PostgreSQL shards.
#[derive(Parser)]
#[command(name = "shardgate", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The proxy, until SIGTERM or Ctrl-C; SIGHUP reads the settings again
    Serve(ConfigArgument),
    /// Create or upgrade the schema of the map database, and stop
    Init(ConfigArgument),
    /// Look at the configuration, the map database and every shard; one line for each finding
    Check {
        #[command(flatten)]
        config: ConfigArgument,
        /// The findings, or the script, as JSON
        #[arg(long)]
        json: bool,
        /// Print the script that declares the tables by these keys instead, as JSON: '{"customers": "id", "invoices": "customer_id"}';
        /// without keys, those that are proposed, and the script of the best
        #[arg(long, value_name = "KEYS", num_args = 0..=1, default_missing_value = "")]
        plan_tables: Option<String>,
        /// Tables that are to be reference tables, separated by commas
        #[arg(long, value_name = "TABLES", value_delimiter = ',', requires = "plan_tables")]
        reference_tables: Vec<String>,
    },
    /// A local cluster of real PostgreSQL servers with a book catalogue, until Ctrl-C
    Demo(DemoCommand),
}

#[derive(Args)]
struct ConfigArgument {
    /// TOML file; without one, the environment alone (SHARDGATE__SECTION__KEY)
    #[arg(long, value_name = "FILE", env = "SHARDGATE_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct DemoCommand {
    #[command(subcommand)]
    verb: Option<DemoVerb>,
    #[command(flatten)]
    directory: DemoDirectoryArgument,
    /// How many shards
    #[arg(long, default_value_t = 3)]
    shards: usize,
    /// Port of the proxy on 127.0.0.1; the next one is its admin port
    #[arg(long, default_value_t = 6432, value_parser = clap::value_parser!(u16).range(1..65535))]
    port: u16,
    /// Return when it is ready; "shardgate demo stop" ends it
    #[arg(long)]
    detach: bool,
    /// How --detach starts the process that stays
    #[arg(long, hide = true, conflicts_with = "detach")]
    in_background: bool,
}

#[derive(Args)]
struct DemoDirectoryArgument {
    /// Where the cluster's data lies
    #[arg(long, default_value = ".shardgate")]
    dir: PathBuf,
}

#[derive(Subcommand)]
enum DemoVerb {
    /// End a demo that was started with --detach
    Stop(DemoDirectoryArgument),
    /// Make the book catalogue in any cluster, through its proxy
    #[command(hide = true)]
    Load {
        /// URL of the proxy, for an admin
        #[arg(long)]
        proxy: String,
        /// NAME=URL, once for each shard
        #[arg(long = "shard", required = true, value_parser = parse_shard)]
        shards: Vec<ShardAddress>,
    },
}

fn main() -> ExitCode {
    match run(CommandLine::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // The causes on one line, and no backtrace: these are messages for the operator.
            eprintln!("shardgate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    // First of all: two providers in one dependency graph would make the choice at the first use a panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("a TLS provider is installed already");
    }
    match command {
        Command::Serve(ConfigArgument { config }) => serve(config),
        Command::Init(ConfigArgument { config }) => init(config),
        Command::Check { config: ConfigArgument { config }, json, plan_tables, reference_tables } => {
            check(config, json, plan_tables.map(|keys| PlanAsked { keys, reference_tables }))
        }
        Command::Demo(command) => run_demo(command),
    }
}

fn serve(path: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let config = Config::load(path.as_deref())?;
    let logs = telemetry::init_logs(&config.log)?;
    telemetry::log_panics();
    let runtime = current_thread_runtime()?;
    let served = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let signals = Signals::listen()?;
        let (reload, reloads) = watch::channel(None);
        let watching = tokio::spawn(signals.watch(Reloader { path, reload }, shutdown.clone()));
        let served = server::serve(config, logs, reloads, shutdown).await;
        watching.abort();
        served
    });
    // A name that is being resolved is not waited for.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}

fn init(path: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let config = Config::load(path.as_deref())?;
    telemetry::init_logs(&config.log)?;
    let migrated = current_thread_runtime()?.block_on(server::init(&config))?;
    match migrated.before {
        None => println!("the map database has the shard map now, at version {}", migrated.after),
        Some(before) if before == migrated.after => println!("the shard map is at version {before} already: nothing was changed"),
        Some(before) => println!("the shard map was upgraded from version {before} to {}", migrated.after),
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: Option<PathBuf>, is_json: bool, plan: Option<PlanAsked>) -> anyhow::Result<ExitCode> {
    let code = match Config::load(path.as_deref()) {
        Ok(config) => current_thread_runtime()?.block_on(async {
            match &plan {
                Some(asked) => declare::check::plan(&config, asked, is_json).await,
                None => declare::check::run(&config, is_json).await,
            }
        })?,
        Err(error) if is_json => declare::check::report_bad_settings(&anyhow::Error::from(error))?,
        Err(error) => return Err(error.into()),
    };
    Ok(if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the operating system tells the proxy.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("could not listen for signals");
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The first SIGTERM or SIGINT drains; a second SIGINT ends the process at once, for a person who does not want to wait.
    async fn watch(mut self, reloader: Reloader, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => shutdown.cancel(),
                _ = self.interrupt.recv() => {
                    if shutdown.is_cancelled() {
                        std::process::exit(130);
                    }
                    shutdown.cancel();
                }
                _ = self.hang_up.recv() => reloader.reload(),
            }
        }
    }
}

/// Reads the settings again.
struct Reloader {
    path: Option<PathBuf>,
    /// Settings that are not taken over yet give way to newer ones.
    reload: watch::Sender<Option<Config>>,
}

impl Reloader {
    /// Hands them to the server. Does not wait for it: a signal that comes next is heard at once.
    fn reload(&self) {
        match Config::load(self.path.as_deref()) {
            Ok(config) => {
                if self.reload.send(Some(config)).is_err() {
                    tracing::info!("settings not reloaded, the proxy is stopping");
                }
            }
            Err(error) => tracing::error!(error = format!("{:#}", anyhow::Error::from(error)), "settings not reloaded"),
        }
    }
}

fn run_demo(command: DemoCommand) -> anyhow::Result<ExitCode> {
    let DemoCommand { verb, directory, shards, port, detach, in_background } = command;
    let options = DemoOptions { dir: directory.dir, shards, port };
    match verb {
        Some(DemoVerb::Stop(directory)) => match demo::stop(&directory.dir)? {
            true => println!("shardgate demo: stopped"),
            false => println!("shardgate demo: none runs in {}", directory.dir.display()),
        },
        Some(DemoVerb::Load { proxy, shards }) => {
            let size = current_thread_runtime()?.block_on(demo::load(&proxy, &shards, |step| println!("{step}")))?;
            println!("{} books, {} orders and {} readers", size.books, size.orders, size.readers);
        }
        None if detach => println!("{}", demo::start_detached(&options)?),
        None => {
            if in_background {
                demo::leave_session()?;
            }
            current_thread_runtime()?.block_on(demo::run(&options))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn current_thread_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("could not start the runtime")
}

fn parse_shard(text: &str) -> Result<ShardAddress, String> {
    match text.split_once('=') {
        Some((name, url)) if !name.is_empty() && !url.is_empty() => Ok(ShardAddress { name: name.to_owned(), url: url.to_owned() }),
        _ => Err("expected NAME=URL".to_owned()),
    }
}
