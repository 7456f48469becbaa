//! What statements over several shards cost: TPC-H in two layouts against one PostgreSQL, and the proxy's share of scans, sorted
//! pages and aggregates.
//!
//! One server hosts every database, so both sides have the same processors and the same memory. Every query runs on both in turn,
//! in every round; the medians are printed. CPU is the proxy process's own accounting by the kernel.
//!
//! Set by the environment: `BENCH_TPCH_SCALE` (1: 8.6 million rows), `BENCH_ROUNDS`, `BENCH_ONLY` (`tpch` or `rows`),
//! `BENCH_QUERY` (a number).

#[path = "../../tests/it/support/mod.rs"]
mod support;

mod rows;
mod tpch;

use comfy_table::{CellAlignment, Table, presets};

fn main() {
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let rounds = number("BENCH_ROUNDS", 3.0) as usize;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    if "rows".contains(&only) {
        runtime.block_on(rows::run());
    }
    if "tpch".contains(&only) {
        let query = std::env::var("BENCH_QUERY").ok().map(|_| number("BENCH_QUERY", 0.0) as usize);
        runtime.block_on(tpch::run(number("BENCH_TPCH_SCALE", 1.0), rounds, query));
    }
}

fn print_table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).map_or(default, |text| text.trim().parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

const SERVER_SETTINGS: &[(&str, &str)] = &[("shared_buffers", "512MB"), ("max_connections", "200"), ("autovacuum", "off")];
