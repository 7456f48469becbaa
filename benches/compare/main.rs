//! What the proxy adds: pgbench against PostgreSQL directly, PgBouncer (where installed) and Shardgate, in turn, in one run.
//!
//! Every target gets every workload in every round, so that a machine that grows slower slows them all; the medians over the
//! rounds are printed. CPU is the proxy process's own accounting by the kernel, all its threads, divided by the transactions
//! that pgbench counted. One server hosts every database, without flushing to disk: the server is not what is measured.
//!
//! Set by the environment: `BENCH_SECONDS` (of each run), `BENCH_ROUNDS`, `BENCH_CLIENTS`, `BENCH_SCALE` (of pgbench),
//! `BENCH_SHARDS` (as in `3,48`), `BENCH_IDLE_CLIENTS`, `BENCH_ONLY` (a part of the workloads' names).

#[allow(dead_code, unused_imports, reason = "the tests need more of it")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

mod data;
mod idle;
mod measure;
mod neighbours;
#[path = "../report.rs"]
mod report;
mod schema_changes;
mod targets;
mod workloads;

use std::collections::BTreeMap;

use self::measure::Sample;
use self::report::{median, number, print_table};
use self::targets::Target;
use self::workloads::Workload;

/// What a run is made of.
pub struct Settings {
    pub seconds: u64,
    pub rounds: usize,
    pub clients: usize,
    pub scale: usize,
    pub shards: Vec<usize>,
    pub idle_clients: usize,
    pub only: String,
}

fn main() {
    let settings = Settings {
        seconds: number("BENCH_SECONDS", 6.0) as u64,
        rounds: number("BENCH_ROUNDS", 3.0) as usize,
        clients: number("BENCH_CLIENTS", 16.0) as usize,
        scale: number("BENCH_SCALE", 10.0) as usize,
        shards: std::env::var("BENCH_SHARDS")
            .unwrap_or_else(|_| "3,48".to_owned())
            .split_terminator(',')
            .map(|part| part.trim().parse().unwrap_or_else(|_| panic!("BENCH_SHARDS: {part:?} is no number")))
            .collect(),
        idle_clients: number("BENCH_IDLE_CLIENTS", 10_000.0) as usize,
        only: std::env::var("BENCH_ONLY").unwrap_or_default(),
    };
    idle::raise_open_files_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    println!("preparing {} rows on one server and on {:?} shards", settings.scale * data::ROWS_PER_SCALE, settings.shards);
    let cluster = runtime.block_on(targets::start_plain(&settings));
    let targets = runtime.block_on(targets::start_all(&cluster, &settings));
    for workload in workloads::all().iter().filter(|workload| workload.name.contains(&settings.only)) {
        let samples = run_workload(workload, &targets, &settings);
        print_samples(workload, &samples, &settings);
    }
    if "schema changes".contains(&settings.only) {
        runtime.block_on(schema_changes::print());
    }
    if "neighbours".contains(&settings.only) {
        let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
        several.block_on(neighbours::print(&targets));
    }
    if "idle clients".contains(&settings.only) {
        print_idle(&targets, settings.idle_clients);
    }
}

/// Target name, in the order of the targets → one sample a round.
fn run_workload<'a>(workload: &Workload, targets: &'a [Target], settings: &Settings) -> Vec<(&'a str, Vec<Sample>)> {
    let mut samples: BTreeMap<usize, Vec<Sample>> = BTreeMap::new();
    for _ in 0..settings.rounds {
        for (at, target) in targets.iter().enumerate() {
            match measure::run(workload, target, settings) {
                Ok(sample) => samples.entry(at).or_default().push(sample),
                Err(error) => println!("{}: {}: {error}", workload.name, target.name),
            }
        }
    }
    samples.into_iter().filter_map(|(at, samples)| Some((targets.get(at)?.name.as_str(), samples))).collect()
}

fn print_samples(workload: &Workload, samples: &[(&str, Vec<Sample>)], settings: &Settings) {
    println!("\n{}: {} clients, {} s, median of {} rounds", workload.name, settings.clients, settings.seconds, settings.rounds);
    let header = ["", "tps", "tps min..max", "p50 ms", "p99 ms", "CPU µs/tx", "user", "system", "RSS MiB"];
    print_table(&header, samples.iter().map(|(name, rounds)| sample_row(name, rounds)));
}

fn sample_row(name: &str, rounds: &[Sample]) -> Vec<String> {
    let of = |field: fn(&Sample) -> f64| median(rounds.iter().map(field));
    let least = rounds.iter().map(|sample| sample.tps).fold(f64::INFINITY, f64::min);
    let most = rounds.iter().map(|sample| sample.tps).fold(0.0, f64::max);
    let mut row = vec![
        name.to_owned(),
        format!("{:.0}", of(|sample| sample.tps)),
        format!("{least:.0}..{most:.0}"),
        format!("{:.2}", of(|sample| sample.p50_ms)),
        format!("{:.2}", of(|sample| sample.p99_ms)),
    ];
    match rounds.iter().all(|sample| sample.proxy.is_some()) {
        true => {
            let proxy =
                |field: fn(&measure::ProxyCost) -> f64| median(rounds.iter().filter_map(|sample| sample.proxy.as_ref()).map(field));
            row.push(format!("{:.1}", proxy(|cost| cost.user_us + cost.system_us)));
            row.push(format!("{:.1}", proxy(|cost| cost.user_us)));
            row.push(format!("{:.1}", proxy(|cost| cost.system_us)));
            row.push(format!("{:.0}", proxy(|cost| cost.rss_kib) / 1024.0));
        }
        false => row.extend(std::iter::repeat_n(String::new(), 4)),
    }
    row
}

fn print_idle(targets: &[Target], clients: usize) {
    println!("\n{clients} idle clients");
    let rows = targets.iter().filter_map(|target| {
        let pid = target.proxy_pid?;
        let row = match idle::measure(target.port, &target.idle_database, pid, clients) {
            Ok(idle) => {
                let each = (idle.after_kib - idle.before_kib) / clients as f64;
                [idle.before_kib / 1024.0, idle.after_kib / 1024.0, each].map(|value| format!("{value:.1}")).to_vec()
            }
            Err(error) => vec![error.to_string()],
        };
        Some([vec![target.name.clone()], row].concat())
    });
    print_table(&["", "RSS before, MiB", "RSS after, MiB", "KiB a client"], rows);
}
