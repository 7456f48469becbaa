//! `history`: every change of the map, who made it and when, in the order of the epochs.
//!
//! Printed while it is read: a map with millions of changes takes no more memory than one with ten.

use std::io::{self, Write};
use std::time::Duration;

use futures::TryStreamExt;
use serde::Serialize;
use serde_json::Value;
use sqlx::FromRow;
use tokio::time::timeout;

use super::RebalanceError;
use super::connection::Reader;

#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// Only the last changes, this many; `None`: all.
    pub last: Option<u32>,
    pub is_json: bool,
    /// How long the map database has for each step: to connect, and from one change to the next.
    pub deadline: Duration,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
pub struct HistoryEntry {
    pub incarnation: i64,
    pub epoch: i64,
    /// UTC.
    pub changed_at: String,
    pub actor: String,
    pub change: String,
    pub arguments: Value,
}

/// Writes the history to `out`. Cancel safe.
pub async fn history(map_url: &str, options: &HistoryOptions, out: &mut impl Write) -> Result<(), RebalanceError> {
    let late = |_| RebalanceError::Deadline { place: "the map database".to_owned(), deadline: options.deadline };
    let mut reader = timeout(options.deadline, Reader::open("the map database", map_url)).await.map_err(late)??;
    let outcome = write_all(&mut reader, options, out).await;
    match outcome {
        Ok(()) => {
            reader.close().await;
            Ok(())
        }
        Err(Failure::Reading(error)) => Err(reader.error(&error)),
        Err(Failure::Told(error)) => Err(error),
    }
}

/// Fails without writing the end: half a list must not pass for the whole.
async fn write_all(reader: &mut Reader, options: &HistoryOptions, out: &mut impl Write) -> Result<(), Failure> {
    let late = |_| RebalanceError::Deadline { place: "the map database".to_owned(), deadline: options.deadline };
    let mut entries = sqlx::query_as::<_, HistoryEntry>(ENTRIES).bind(options.last.map(i64::from)).fetch(&mut reader.connection);
    // The first one before a word is written: where there is no map, there is no output.
    let mut next = timeout(options.deadline, entries.try_next()).await.map_err(late)??;
    let mut writer = Writer::begin(options.is_json, out)?;
    while let Some(entry) = next {
        writer.write(&entry)?;
        next = timeout(options.deadline, entries.try_next()).await.map_err(late)??;
    }
    writer.end()?;
    Ok(())
}

enum Failure {
    Reading(sqlx::Error),
    Told(RebalanceError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Failure::Reading(error)
    }
}

impl From<RebalanceError> for Failure {
    fn from(error: RebalanceError) -> Self {
        Failure::Told(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Told(error.into())
    }
}

/// As a table whose columns do not depend on rows that are not read yet, or as a JSON array.
enum Writer<'a, W> {
    Table { out: &'a mut W },
    Json { out: &'a mut W, separator: &'static str },
}

impl<'a, W: Write> Writer<'a, W> {
    fn begin(is_json: bool, out: &'a mut W) -> io::Result<Self> {
        match is_json {
            true => {
                out.write_all(b"[")?;
                Ok(Writer::Json { out, separator: "\n" })
            }
            false => {
                writeln!(out, "{:>8}  {:<19}  {:<16}  {:<21}  arguments", "epoch", "at (UTC)", "by", "change")?;
                Ok(Writer::Table { out })
            }
        }
    }

    fn write(&mut self, entry: &HistoryEntry) -> Result<(), RebalanceError> {
        match self {
            Writer::Table { out } => writeln!(
                out,
                "{:>8}  {:<19}  {:<16}  {:<21}  {}",
                entry.epoch,
                entry.changed_at,
                entry.actor.escape_debug().to_string(),
                entry.change,
                entry.arguments
            )?,
            Writer::Json { out, separator } => {
                out.write_all(separator.as_bytes())?;
                serde_json::to_writer(&mut **out, entry)?;
                *separator = ",\n";
            }
        }
        Ok(())
    }

    fn end(self) -> io::Result<()> {
        match self {
            Writer::Table { out } => out.flush(),
            Writer::Json { out, .. } => {
                out.write_all(b"\n]\n")?;
                out.flush()
            }
        }
    }
}

const ENTRIES: &str = "
    SELECT incarnation, counter AS epoch, to_char(changed_at, 'YYYY-MM-DD HH24:MI:SS') AS changed_at, actor, change, arguments
    FROM (SELECT * FROM shardgate_map.history ORDER BY incarnation DESC, counter DESC LIMIT $1) latest
    ORDER BY incarnation, counter";
