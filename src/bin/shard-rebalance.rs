//! The operator's command line: reads the arguments, hands over to the library, turns the outcome into an exit code.
//!
//! Exit codes: 0 done; 1 failed; 2 wrong usage; 3 refused by a check; 4 waits for a person. The verbs so far end with 0, 1 or 2.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use shardgate::rebalance::history::{HistoryOptions, history};
use shardgate::rebalance::units::parse_duration;
use shardgate::rebalance::{RebalanceError, StatusOptions, WatchOptions, watch};

/// Looks at the shards of a Shardgate cluster and at its shard map.
#[derive(Parser)]
#[command(name = "shard-rebalance", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Shards, partitions, rows, bytes, imbalance, running moves, in-doubt transactions
    Status {
        /// Again and again: redrawn on a terminal, lines elsewhere, until Ctrl-C
        #[arg(long)]
        watch: bool,
        /// From one reading to the next, as in 500ms or 2s
        #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration, requires = "watch")]
        interval: Duration,
        /// Count rows, by partition with --partitions, instead of estimating: reads every sharded table. Needs a longer --deadline
        #[arg(long)]
        exact: bool,
        /// List the partitions one by one
        #[arg(long)]
        partitions: bool,
    },
    /// Every change of the shard map: who made it, and when
    History {
        /// Only the last N changes
        #[arg(long, value_name = "N")]
        last: Option<u32>,
    },
}

/// What every verb takes, before it or after it.
#[derive(Args)]
struct Common {
    /// URL of the map database: postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, value_name = "URL", env = "SHARDMAP_URL", hide_env_values = true, global = true)]
    map: Option<String>,
    /// For machines
    #[arg(long, global = true)]
    json: bool,
    /// How long the map database, and each shard, may take to answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration, global = true)]
    deadline: Duration,
}

fn main() -> ExitCode {
    let CommandLine { common, verb } = CommandLine::parse();
    // An argument that may stand in two places cannot be a required one.
    let Some(map) = common.map.as_deref() else {
        let message = "which map database? Give --map URL, or set SHARDMAP_URL";
        CommandLine::command().error(ErrorKind::MissingRequiredArgument, message).exit()
    };
    match run(map, &common, verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.downcast_ref::<RebalanceError>().is_some_and(RebalanceError::is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes on one line, and no backtrace: these are messages for the operator.
            eprintln!("shard-rebalance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(map: &str, common: &Common, verb: Verb) -> anyhow::Result<()> {
    // First of all: two providers in one dependency graph would make the choice at the first use a panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("a TLS provider is installed already");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("could not start the runtime")?;
    runtime.block_on(async {
        match verb {
            Verb::Status { watch: is_watched, interval, exact, partitions } => {
                let status = StatusOptions { is_exact: exact, with_partitions: partitions, deadline: common.deadline };
                let options = WatchOptions { status, is_json: common.json, interval: is_watched.then_some(interval) };
                watch(map, &options, interrupted()).await?;
            }
            Verb::History { last } => {
                let options = HistoryOptions { last, is_json: common.json, deadline: common.deadline };
                history(map, &options, &mut io::BufWriter::new(io::stdout().lock())).await?;
            }
        }
        Ok(())
    })
}

/// Ctrl-C. Where it cannot be heard the process is ended by it anyway.
async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "Ctrl-C cannot be heard");
        std::future::pending::<()>().await;
    }
}
