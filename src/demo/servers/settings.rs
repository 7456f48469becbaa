//! The settings that a server gets: which, and how they reach it.
//!
//! They are written to `data/shardgate.conf` at every start; `postgresql.conf` includes that file at its end, so that they win
//! over what is above. Unix sockets are off, and no settings but the options' address adds one to 127.0.0.1.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use super::{Account, ServerError, ServerOptions};

/// Settings for a demo: as durable as a production server, with what online moves and distributed commits need.
pub fn demo_settings() -> Vec<(String, String)> {
    owned(COMMON_SETTINGS)
}

/// Settings for tests: the same, but nothing is flushed to disk. A server that is killed keeps what it wrote (the kernel
/// has it); only a crash of the machine would lose it.
pub fn test_settings() -> Vec<(String, String)> {
    [owned(COMMON_SETTINGS), owned(UNFLUSHED_SETTINGS)].concat()
}

/// Once, when a data directory is made.
pub(super) fn include_settings(account: Account, data: &Path) -> Result<(), ServerError> {
    let path = data.join("postgresql.conf");
    let text = fs::read_to_string(&path).map_err(ServerError::file("read", &path))?;
    write_owned(account, &path, &format!("{text}\ninclude = '{FILE}'\n"))?;
    write_owned(account, &data.join(FILE), "")
}

/// Before each start; the port may have changed.
pub(super) fn write_settings(account: Account, options: &ServerOptions, port: u16) -> Result<(), ServerError> {
    let data = options.dir.join("data");
    let mut text = String::new();
    for (name, value) in &options.settings {
        text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
    }
    let addresses: Vec<String> = [Some(Ipv4Addr::LOCALHOST), options.address].iter().flatten().map(ToString::to_string).collect();
    let addresses = addresses.join(", ");
    text.push_str(&format!("listen_addresses = '{addresses}'\nport = {port}\nunix_socket_directories = ''\n"));
    write_owned(account, &data.join(FILE), &text)?;
    write_hba(account, &data.join("pg_hba.conf"), &options.hba)
}

/// Puts lines that are not there yet before the others.
fn write_hba(account: Account, path: &Path, lines: &[String]) -> Result<(), ServerError> {
    let mut text = fs::read_to_string(path).map_err(ServerError::file("read", path))?;
    for line in lines.iter().rev() {
        if !text.lines().any(|present| present == line) {
            text = format!("{line}\n{text}");
            write_owned(account, path, &text)?;
        }
    }
    Ok(())
}

fn write_owned(account: Account, path: &Path, text: &str) -> Result<(), ServerError> {
    fs::write(path, text).map_err(ServerError::file("write", path))?;
    account.take_over(path)
}

fn owned(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const FILE: &str = "shardgate.conf";
const COMMON_SETTINGS: &[(&str, &str)] = &[
    ("wal_level", "logical"),
    ("max_prepared_transactions", "100"),
    ("max_connections", "200"),
    ("max_replication_slots", "50"),
    ("max_wal_senders", "50"),
    ("max_worker_processes", "32"),
    ("max_logical_replication_workers", "16"),
    ("timezone", "UTC"),
];
/// A server of a test lives for seconds, and what it compiles is run once.
const UNFLUSHED_SETTINGS: &[(&str, &str)] =
    &[("fsync", "off"), ("full_page_writes", "off"), ("shared_buffers", "32MB"), ("jit", "off")];
