//! Prints the status, once or again and again.
//!
//! On a terminal each reading replaces the one before; elsewhere each is a line in a log, or with JSON an object a line. While
//! it watches, a map database that goes away is told and asked again; before the first reading it is a failure.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::status::{Status, StatusOptions, status};
use super::{RebalanceError, render};

#[derive(Clone, Debug)]
pub struct WatchOptions {
    pub status: StatusOptions,
    pub is_json: bool,
    /// From the end of one reading to the beginning of the next; `None`: once.
    pub interval: Option<Duration>,
}

/// Returns after one reading, or when `stop` does. Cancel safe.
pub async fn watch(map_url: &str, options: &WatchOptions, stop: impl Future<Output = ()>) -> Result<(), RebalanceError> {
    let Some(interval) = options.interval else {
        let status = status(map_url, &options.status).await?;
        return print_once(&status, options.is_json);
    };
    let mut stop = std::pin::pin!(stop);
    let mut has_printed = false;
    loop {
        let reading = tokio::select! {
            () = &mut stop => return Ok(()),
            reading = status(map_url, &options.status) => reading,
        };
        match reading {
            Ok(status) => print_again(&status, options.is_json)?,
            Err(error) if has_printed => eprintln!("shard-rebalance: {error}"),
            Err(error) => return Err(error),
        }
        has_printed = true;
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = tokio::time::sleep(interval) => {}
        }
    }
}

fn print_once(status: &Status, is_json: bool) -> Result<(), RebalanceError> {
    let text = match is_json {
        true => serde_json::to_string_pretty(status)? + "\n",
        false => render::tables(status),
    };
    print(&text)
}

fn print_again(status: &Status, is_json: bool) -> Result<(), RebalanceError> {
    let text = match (is_json, io::stdout().is_terminal()) {
        (true, _) => serde_json::to_string(status)? + "\n",
        (false, true) => format!("{CLEAR}{}", render::tables(status)),
        (false, false) => render::lines(status),
    };
    print(&text)
}

fn print(text: &str) -> Result<(), RebalanceError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// To the upper left corner, and everything below it away.
const CLEAR: &str = "\x1b[H\x1b[2J";
