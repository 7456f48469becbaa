//! The operator's command line: reads the arguments, hands over to the library, turns the outcome into an exit code.
//!
//! Exit codes: 0 done; 1 failed; 2 wrong usage; 3 refused by a check; 4 waits for a person.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use shardgate::rebalance::apply::apply;
use shardgate::rebalance::doctor::{DoctorOptions, doctor};
use shardgate::rebalance::history::{HistoryOptions, history};
use shardgate::rebalance::move_verbs::{self, IsolationRequest, MoveRequest};
use shardgate::rebalance::partition_verbs::{self, Cuts};
use shardgate::rebalance::plan::Cost;
use shardgate::rebalance::plan_verbs::{self, PlanOptions};
use shardgate::rebalance::units::parse_duration;
use shardgate::rebalance::verify_verb;
use shardgate::rebalance::{RebalanceError, StatusOptions, WatchOptions, watch};
use shardgate::shardmap::{Asked, Emptied, Lost, MoveOptions};

/// Looks at the shards of a Shardgate cluster, and moves partitions between them while they are in use.
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
    /// The splits and moves that would make the shards even; changes nothing
    Plan {
        /// What to even out; "rows" counts them, which reads every sharded table
        #[arg(long, value_enum, default_value = "bytes")]
        by: By,
        /// How far a shard may be above its fair share
        #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share, allow_negative_numbers = true)]
        threshold: f64,
        /// A shard that is to give away all its partitions
        #[arg(long, value_name = "SHARD")]
        drain: Option<String>,
        /// Write the plan to a file, for "apply"
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Do exactly what a plan says that was written with "plan --out"
    Apply { file: PathBuf },
    /// Move a set of partitions of one group from their shard to another, online
    Move {
        /// Partitions of one group and one shard; "status --partitions" lists them
        #[arg(long, value_name = "ID", value_delimiter = ',', required = true)]
        partition: Vec<i32>,
        /// The shard that is to own them
        #[arg(long, value_name = "SHARD")]
        to: String,
        #[command(flatten)]
        how: HowToMove,
    },
    /// Give one key a partition of its own, and move it to a shard, online
    Isolate {
        /// The sharded table, with its schema if need be; the key moves in all tables of its colocation group
        #[arg(long, value_name = "TABLE")]
        table: String,
        /// The shard key, after its key function; of several columns written as a row: (eu,42)
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        key: String,
        /// The shard that is to own it
        #[arg(long, value_name = "SHARD")]
        to: String,
        #[command(flatten)]
        how: HowToMove,
    },
    /// Cut a partition into pieces, which stay on its shard
    #[command(group(clap::ArgGroup::new("where").required(true).args(["at", "into"])))]
    Split {
        #[arg(long, value_name = "ID")]
        partition: i32,
        /// Where the upper piece begins: a key of a range partition, a hash of a hash partition
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        at: Option<String>,
        /// Into this many equal pieces of the hash space
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
        into: Option<u32>,
    },
    /// Make two neighbouring partitions of one shard one; of lookup partitions any two of one shard
    Merge {
        #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, required = true)]
        partitions: Vec<i32>,
    },
    /// One move: how far it is, and what an abort would do now
    Show { move_id: i32 },
    /// End a move before its switch, and remove what it has made
    Abort {
        move_id: i32,
        /// This side's shard is lost for good: end the move without it. Refused where it owns the partitions
        #[arg(long, value_name = "SIDE", value_enum)]
        lost: Option<Side>,
    },
    /// Keep a move from being cut over
    Pause { move_id: i32 },
    /// Let a move go on that was paused
    Resume { move_id: i32 },
    /// Cut a move over that waits for it
    Cutover { move_id: i32 },
    /// After the switch: make the source own the partitions again, with what was written at the target
    Rollback {
        move_id: i32,
        /// Of a rollback that has failed, since the source failed over and may lack rows: delete the target's rows all the same
        #[arg(long)]
        unverified: bool,
    },
    /// After the switch: compare both sides once more, and delete the source's rows. Exit 4 where they differ
    Finish {
        move_id: i32,
        /// Do not compare both sides: what the source has is deleted, whatever it is
        #[arg(long)]
        unverified: bool,
        /// This side's shard is lost for good: end the move without it. Refused where it owns the partitions
        #[arg(long, value_name = "SIDE", value_enum, conflicts_with = "unverified")]
        lost: Option<Side>,
    },
    /// Compare rows that lie twice: both sides of a running move, or else the copies of reference tables. Exit 1 where they differ
    Verify {
        /// A move whose copy is complete, before its switch or after it
        #[arg(long = "move", value_name = "MOVE", conflicts_with = "partition")]
        move_id: Option<i32>,
        /// The move of this partition
        #[arg(long, value_name = "ID")]
        partition: Option<i32>,
    },
    /// What is left over or inconsistent on the shards: slots, publications, subscriptions, gates, rows. Exit 1 where something is
    Doctor {
        /// Remove what is left of moves that have ended
        #[arg(long)]
        fix: bool,
    },
    /// Every change of the shard map: who made it, and when
    History {
        /// Only the last N changes
        #[arg(long, value_name = "N")]
        last: Option<u32>,
    },
}

/// Of `move` and `isolate`.
#[derive(Args)]
struct HowToMove {
    /// Longest time for which statements may wait at the cut-over; it is tried again until it fits
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_pause)]
    max_pause: Duration,
    /// Wait for the verb "cutover" when everything is copied and compared
    #[arg(long)]
    manual_cutover: bool,
    /// How long the source's rows follow what is written after the switch, so that the verb "rollback" can move them back
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_grace, conflicts_with_all = ["keep", "finish"])]
    grace: Duration,
    /// Keep the source's rows, and the way back, until the verb "finish"
    #[arg(long, conflicts_with = "finish")]
    keep: bool,
    /// Delete the source's rows right after the switch and wait for it: no way back
    #[arg(long)]
    finish: bool,
    /// Leave the driving to the proxies
    #[arg(long)]
    detach: bool,
}

impl HowToMove {
    fn options(&self) -> MoveOptions {
        let max_pause_ms = u64::try_from(self.max_pause.as_millis()).unwrap_or(u64::MAX);
        let grace = if self.finish { Duration::ZERO } else { self.grace };
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        MoveOptions { max_pause_ms, manual_cutover: self.manual_cutover, keep: self.keep, grace_ms }
    }
}

/// Statements wait for a cut-over for five seconds.
fn parse_pause(text: &str) -> Result<Duration, String> {
    let pause = parse_duration(text)?;
    match (Duration::from_millis(20)..=Duration::from_secs(4)).contains(&pause) {
        true => Ok(pause),
        false => Err("a pause is between 20ms and 4s: statements wait for five seconds at most".to_owned()),
    }
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    let grace = parse_duration(text)?;
    match grace <= GRACE_MAX {
        true => Ok(grace),
        false => Err("a grace period is 30 days at most; --keep waits for the verb \"finish\"".to_owned()),
    }
}

const GRACE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Of `plan`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    Bytes,
    Rows,
    Load,
    Count,
}

/// Of a move.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Side {
    Source,
    Target,
}

impl From<Side> for Lost {
    fn from(side: Side) -> Self {
        match side {
            Side::Source => Lost::Source,
            Side::Target => Lost::Target,
        }
    }
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

/// As `rebalance(threshold => …)` takes it.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=100.0).contains(&share) => Ok(share),
        Ok(_) | Err(_) => Err("expected a number from 0 to 100, such as 0.1 for a tenth".to_owned()),
    }
}

fn main() -> ExitCode {
    let CommandLine { common, verb } = CommandLine::parse();
    // An argument that may stand in two places cannot be a required one.
    let Some(map) = common.map.as_deref() else {
        let message = "which map database? Give --map URL, or set SHARDMAP_URL";
        CommandLine::command().error(ErrorKind::MissingRequiredArgument, message).exit()
    };
    match run(map, &common, verb) {
        Ok(exit) => exit,
        Err(error) if error.downcast_ref::<RebalanceError>().is_some_and(RebalanceError::is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes on one line, and no backtrace: these are messages for the operator.
            eprintln!("shard-rebalance: {error:#}");
            ExitCode::from(error.downcast_ref::<RebalanceError>().map_or(1, RebalanceError::exit_code))
        }
    }
}

fn run(map: &str, common: &Common, verb: Verb) -> anyhow::Result<ExitCode> {
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
            Verb::Plan { by: By::Load, .. } => {
                let reason = "load is not counted yet; plan --by bytes, rows or count".to_owned();
                return Err(RebalanceError::Refused(reason).into());
            }
            Verb::Plan { by, threshold, drain, out } => {
                let cost = match by {
                    By::Rows => Cost::Rows,
                    By::Count => Cost::Count,
                    By::Bytes | By::Load => Cost::Bytes,
                };
                let (emptied, deadline) = (drain.map(Emptied::Shard), common.deadline);
                let options = PlanOptions { cost, threshold, emptied, group: None, leaves_out: true, deadline };
                plan_verbs::plan(map, &options, out.as_deref(), common.json).await?;
            }
            Verb::Apply { file } => apply(map, &file, common.deadline, common.json).await?,
            Verb::Move { partition, to, how } => {
                let request = MoveRequest { partitions: partition, target: to, options: how.options(), is_detached: how.detach };
                move_verbs::start(map, &request, common.json).await?;
            }
            Verb::Isolate { table, key, to, how } => {
                let request = IsolationRequest { table, key, target: to, options: how.options(), is_detached: how.detach };
                move_verbs::isolate(map, &request, common.json).await?;
            }
            Verb::Split { partition, at, into } => {
                let cuts = match (at, into) {
                    (Some(at), _) => Cuts::At(at),
                    (None, pieces) => Cuts::Into(pieces.unwrap_or_default()),
                };
                partition_verbs::split(map, partition, &cuts, common.json).await?;
            }
            Verb::Merge { partitions } => {
                let [a, b] = partitions[..] else {
                    CommandLine::command()
                        .error(ErrorKind::WrongNumberOfValues, "merge takes two partitions: --partitions A,B")
                        .exit()
                };
                partition_verbs::merge(map, (a, b), common.json).await?;
            }
            Verb::Show { move_id } => move_verbs::show(map, move_id, common.json).await?,
            Verb::Abort { move_id, lost: Some(side) } => {
                move_verbs::give_up(map, move_id, ("abort", side.into()), common.json).await?;
            }
            Verb::Abort { move_id, lost: None } => move_verbs::ask(map, move_id, Some(Asked::Abort), common.json).await?,
            Verb::Pause { move_id } => move_verbs::ask(map, move_id, Some(Asked::Pause), common.json).await?,
            Verb::Resume { move_id } => move_verbs::ask(map, move_id, None, common.json).await?,
            Verb::Cutover { move_id } => move_verbs::ask(map, move_id, Some(Asked::Cutover), common.json).await?,
            Verb::Rollback { move_id, unverified } => {
                let asked = if unverified { Asked::RollbackUnverified } else { Asked::Rollback };
                move_verbs::ask(map, move_id, Some(asked), common.json).await?;
            }
            Verb::Finish { move_id, lost: Some(side), .. } => {
                move_verbs::give_up(map, move_id, ("finish", side.into()), common.json).await?;
            }
            Verb::Finish { move_id, unverified, lost: None } => {
                let asked = if unverified { Asked::FinishUnverified } else { Asked::Finish };
                move_verbs::ask(map, move_id, Some(asked), common.json).await?;
            }
            Verb::Verify { move_id, partition } => verify_verb::verify(map, move_id, partition, common.json).await?,
            Verb::Doctor { fix } => {
                let options = DoctorOptions { fixes: fix, is_json: common.json };
                return Ok(if doctor(map, options).await? { ExitCode::FAILURE } else { ExitCode::SUCCESS });
            }
            Verb::History { last } => {
                let options = HistoryOptions { last, is_json: common.json, deadline: common.deadline };
                history(map, &options, &mut io::BufWriter::new(io::stdout().lock())).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Ctrl-C. Where it cannot be heard the process is ended by it anyway.
async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "Ctrl-C cannot be heard");
        std::future::pending::<()>().await;
    }
}
