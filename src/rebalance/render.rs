//! A status as text: tables with units for people, one line at a time for logs.
//!
//! Every figure that is an estimate is marked with `~` and explained under the table; what is not known is a `?`.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::cluster::{Move, OpenTransaction};
use super::status::{ShardStatus, Status};
use super::units;

/// For a terminal or a file.
pub(super) fn tables(status: &Status) -> String {
    let mut text = format!("Shard map at epoch {}:{}, {} UTC\n\n", status.epoch.incarnation, status.epoch.counter, status.taken_at);
    match status.shards.is_empty() {
        true => text.push_str("There is no shard yet.\n"),
        false => text.push_str(&shards(status)),
    }
    for shard in &status.shards {
        if let Some(error) = &shard.error {
            writeln_to(&mut text, format_args!("Shard \"{}\" is unreachable: {error}", shard.name));
        }
    }
    for shard in &status.shards {
        if let Some(rows @ 1..) = shard.misplaced_rows {
            writeln_to(&mut text, format_args!("Shard \"{}\" holds {rows} rows of keys that belong elsewhere.", shard.name));
        }
    }
    if !status.shards.is_empty() {
        text.push_str(&sharded_tables(status));
    }
    if let Some(partitions) = partitions(status) {
        text.push_str(&partitions);
    }
    if !status.shards.is_empty() {
        text.push_str(&footnotes(status));
    }
    text.push_str(&imbalance(status));
    text.push_str(&moves(&status.moves));
    text.push_str(&transactions(&status.in_doubt_transactions));
    text
}

/// One line, and one for each shard that is away and each move: for a log.
pub(super) fn lines(status: &Status) -> String {
    let unreachable = status.shards.iter().filter(|shard| !shard.is_reachable).count();
    let sum = |of: fn(&ShardStatus) -> Option<u64>| {
        status.shards.iter().map(of).sum::<Option<u64>>().map_or_else(unknown, |sum| sum.to_string())
    };
    let partitions: u64 = status.shards.iter().map(|shard| shard.partitions).sum();
    let imbalance = status.imbalance.bytes.map_or_else(unknown, |share| format!("{share:.3}"));
    let mut text = format!(
        "{} epoch={}:{} shards={} unreachable={unreachable} partitions={partitions} {}={} bytes={} imbalance={imbalance} moves={} in_doubt={}\n",
        status.taken_at.replace(' ', "T") + "Z",
        status.epoch.incarnation,
        status.epoch.counter,
        status.shards.len(),
        if status.rows_are_exact { "rows" } else { "rows_estimated" },
        sum(|shard| shard.rows),
        sum(|shard| shard.bytes),
        status.moves.len(),
        status.in_doubt_transactions.len(),
    );
    for shard in &status.shards {
        if let Some(error) = &shard.error {
            writeln_to(&mut text, format_args!("  shard={} unreachable: {error}", shard.name));
        }
    }
    for running in &status.moves {
        writeln_to(&mut text, format_args!("  {}", move_line(running)));
    }
    text
}

fn shards(status: &Status) -> String {
    let rows = if status.rows_are_exact { "rows" } else { "rows ~" };
    let header = ["shard", "state", "home", "region", "capacity", "partitions", rows, "bytes", "of fair share", "database"];
    let row = |shard: &ShardStatus| {
        vec![
            shard.name.clone(),
            if shard.is_reachable { shard.state.clone() } else { "unreachable".to_owned() },
            if shard.is_home { "yes".to_owned() } else { String::new() },
            shard.region.clone().unwrap_or_default(),
            shard.capacity.to_string(),
            shard.partitions.to_string(),
            shard.rows.map_or_else(unknown, units::count),
            shard.bytes.map_or_else(unknown, units::bytes),
            shard.above_fair_share.map_or_else(unknown, units::signed_percent),
            shard.database_bytes.map_or_else(unknown, units::bytes),
        ]
    };
    table(&header, 4, status.shards.iter().map(row))
}

/// One row for each table and shard: a column for each shard would be too wide for many.
fn sharded_tables(status: &Status) -> String {
    let rows_title = if status.rows_are_exact { "rows" } else { "rows ~" };
    let mut rows: Vec<Vec<String>> = status
        .shards
        .iter()
        .flat_map(|shard| shard.tables.iter().map(move |table| (shard, table)))
        .map(|(shard, table)| {
            vec![
                table.table.clone(),
                shard.name.clone(),
                table.rows.map_or_else(unknown, units::count),
                table.bytes.map_or_else(unknown, units::bytes),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort();
    format!("\n{}", table(&["table", "shard", rows_title, "bytes"], 2, rows.into_iter()))
}

fn partitions(status: &Status) -> Option<String> {
    let partitions = status.partitions.as_ref()?;
    let rows = partitions.iter().map(|partition| {
        vec![
            partition.partition_id.to_string(),
            partition.colocation_group.to_string(),
            partition.shard.clone(),
            partition.state.clone(),
            partition.rows.map_or_else(unknown, units::count),
            partition.bytes.map_or_else(unknown, units::bytes),
        ]
    });
    let rows_title = if status.rows_are_exact { "rows" } else { "rows ~" };
    Some(format!("\n{}", table(&["partition", "group", "shard", "state", rows_title, "bytes ~"], 4, rows)))
}

fn footnotes(status: &Status) -> String {
    let mut text =
        "\nRows and bytes are those of sharded tables; bytes include TOAST and indexes, and space that is free inside.\n"
            .to_owned();
    if !status.rows_are_exact {
        text.push_str("~ Rows are estimated from each shard's statistics; --exact counts them.\n");
    }
    match (status.partitions.is_some(), status.rows_are_exact) {
        (false, _) => {}
        (true, false) => {
            text.push_str("~ A partition's rows and bytes are an even share of its tables on its shard, not measured.\n")
        }
        (true, true) => text.push_str("~ A partition's bytes are its tables' by its share of their rows, not measured.\n"),
    }
    text
}

fn imbalance(status: &Status) -> String {
    let shown = |share: Option<f64>| share.map_or_else(unknown, units::signed_percent);
    format!(
        "\nImbalance (fullest shard against its fair share by capacity): bytes {}, rows {}, partitions {}\n",
        shown(status.imbalance.bytes),
        shown(status.imbalance.rows),
        shown(status.imbalance.partitions),
    )
}

fn moves(moves: &[Move]) -> String {
    if moves.is_empty() {
        return "Running moves: none\n".to_owned();
    }
    let mut text = format!("Running moves: {}\n", moves.len());
    for running in moves {
        writeln_to(&mut text, format_args!("  {}", move_line(running)));
    }
    text
}

fn move_line(running: &Move) -> String {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
    let mut line = format!(
        "move {}: partition {} from {} to {}, {}, {} rows and {} copied",
        running.move_id,
        running.partition_id,
        running.source,
        running.target,
        running.state,
        units::count(unsigned(running.rows_copied)),
        units::bytes(unsigned(running.bytes_copied)),
    );
    if let Some(lag) = running.lag_bytes {
        line += &format!(", {} behind", units::bytes(unsigned(lag)));
    }
    if let Some(error) = &running.error {
        line += &format!(", error: {error}");
    }
    line
}

fn transactions(transactions: &[OpenTransaction]) -> String {
    if transactions.is_empty() {
        return "In-doubt transactions: none\n".to_owned();
    }
    let mut text = format!("In-doubt transactions: {}\n", transactions.len());
    for open in transactions {
        let participants = open.participants.join(", ");
        writeln_to(&mut text, format_args!("  {} {} on {participants}, {:.0} s old", open.gid, open.state, open.age_seconds));
    }
    text
}

/// The first columns are texts, the others numbers.
fn table(header: &[&str], text_columns: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

fn unknown() -> String {
    "?".to_owned()
}

fn writeln_to(text: &mut String, line: std::fmt::Arguments<'_>) {
    let written = writeln!(text, "{line}");
    assert!(written.is_ok(), "a string takes every text");
}
