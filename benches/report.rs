//! What both benchmarks need: numbers of a process, of the environment, and tables.

#![allow(dead_code, reason = "neither benchmark needs all of it")]

use std::fs;
use std::io;

use comfy_table::{CellAlignment, Table, presets};

/// User and system time of a process with all its threads, in microseconds, to a hundredth of a second.
pub fn cpu_us(pid: i32) -> io::Result<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).ok_or_else(|| io::Error::other("/proc/PID/stat"));
    let us_per_tick = 1_000_000.0 / rustix::param::clock_ticks_per_second() as f64;
    Ok((field(11)? * us_per_tick, field(12)? * us_per_tick))
}

/// A line of /proc/PID/status: `VmRSS`, what is resident; `VmHWM`, the most that ever was.
pub fn memory_kib(pid: i32, line: &str) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    let value = value.ok_or_else(|| io::Error::other(format!("no {line}")))?;
    value.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
}

pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len() / 2), sorted.len() % 2) {
        (None, _) => f64::NAN,
        (Some(upper), 1) => *upper,
        (Some(upper), _) => (upper + sorted[sorted.len() / 2 - 1]) / 2.0,
    }
}

/// Names to the left, numbers to the right.
pub fn print_table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}

/// A setting of the environment.
pub fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).map_or(default, |text| text.trim().parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}
