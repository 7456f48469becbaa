//! One run of pgbench against one target, and what it cost the proxy.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use shardgate::demo::servers::PostgresInstallation;

use crate::Settings;
use crate::report::{cpu_us, memory_kib};
use crate::targets::Target;
use crate::workloads::Workload;

pub struct Sample {
    pub tps: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// `None` for a direct connection.
    pub proxy: Option<ProxyCost>,
}

/// Per transaction, but for the memory.
pub struct ProxyCost {
    pub user_us: f64,
    pub system_us: f64,
    pub rss_kib: f64,
}

pub fn run(workload: &Workload, target: &Target, settings: &Settings) -> io::Result<Sample> {
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("script.sql");
    fs::write(&script, workload.script)?;
    let before = target.proxy_pid.map(cpu_us).transpose()?;
    let output = pgbench(workload, target, settings, &script)
        .args(["--log", "--sampling-rate=0.2", "--log-prefix"])
        .arg(directory.path().join("latency"))
        .output()?;
    let after = target.proxy_pid.map(cpu_us).transpose()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (Some(tps), Some(transactions)) = (number_after(&text, "\ntps = "), number_after(&text, "actually processed: ")) else {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    };
    let mut latencies = latencies_ms(directory.path())?;
    latencies.sort_by(f64::total_cmp);
    let percentile = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    let proxy = match (target.proxy_pid, before, after) {
        (Some(pid), Some(before), Some(after)) => Some(ProxyCost {
            user_us: (after.0 - before.0) / transactions,
            system_us: (after.1 - before.1) / transactions,
            rss_kib: memory_kib(pid, "VmRSS")?,
        }),
        (_, _, _) => None,
    };
    Ok(Sample { tps, p50_ms: percentile(0.5), p99_ms: percentile(0.99), proxy })
}

fn pgbench(workload: &Workload, target: &Target, settings: &Settings, script: &Path) -> Command {
    let beside_server = PostgresInstallation::find().map(|installation| installation.program("pgbench"));
    let mut command = Command::new(beside_server.ok().filter(|path| path.is_file()).unwrap_or_else(|| "pgbench".into()));
    command
        .args(["--no-vacuum", "--host=127.0.0.1", "--username=postgres", "--jobs=1"])
        .arg(format!("--port={}", target.port))
        .arg(format!("--time={}", settings.seconds))
        .arg(format!("--client={}", settings.clients))
        .arg(format!("--protocol={}", workload.protocol))
        .arg(format!("--define=scale={}", settings.scale))
        .arg("--file")
        .arg(script)
        .env("PGSSLMODE", "disable")
        .stdin(Stdio::null());
    if workload.reconnects {
        command.arg("--connect");
    }
    command.arg(match workload.protocol {
        "prepared" => &target.prepared_database,
        _ => &target.database,
    });
    command
}

/// The third field of each line of pgbench's log: microseconds.
fn latencies_ms(directory: &Path) -> io::Result<Vec<f64>> {
    let mut latencies = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("latency")) {
            let text = fs::read_to_string(path)?;
            latencies.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()).map(|us| us / 1000.0));
        }
    }
    Ok(latencies)
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    rest.split([' ', '\n', '/']).next()?.parse().ok()
}
