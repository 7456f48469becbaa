//! Columns that a COPY leaves out: numbers of cluster-wide sequences, drawn row by row in the order of the data, and what reads the
//! clock of the transaction, evaluated once.

use rand::Rng;

use super::{Failure, Session, Stream};
use crate::catalog::SequenceName;
use crate::error::PgError;
use crate::execute::copy_in::{AddedCell, not_binary, number_cell, put_header, put_row, uuid_cell};
use crate::session::copy::copy_rows;
use crate::session::sequences::numbers::with_position;
use crate::session::sequences::sequence_rights::Right;
use crate::session::sequences::{numbers, sequence_rights};
use crate::session::writes::{exact, staged};
use crate::shard_key::Oid;
use crate::shardmap::ShardId;
use crate::sql::rewrite::staging::{StageKind, type_name};
use crate::sql::utility::copy_in::{AddedValue, CopyFormat, CopyIn};

/// What is put before each row.
#[derive(Debug, Default)]
pub(super) struct Adding {
    /// Of each added column; those that are drawn are of the row that came last.
    cells: Vec<AddedCell>,
    numbers: Vec<(usize, SequenceName, Oid)>,
    unique_ids: Vec<(usize, Oid)>,
    uuids: Vec<usize>,
    /// The user may not draw from one of the sequences: told when there is a row, which it would be for.
    denial: Option<PgError>,
    /// The row that came last, with its cells.
    line: Vec<u8>,
}

impl Adding {
    pub fn cells(&self) -> &[AddedCell] {
        &self.cells
    }

    /// There may be no row.
    pub fn denial(&self) -> Option<&PgError> {
        self.denial.as_ref()
    }

    pub fn header<'b>(&'b mut self, copy: &CopyIn, line: &'b [u8]) -> &'b [u8] {
        if self.cells.is_empty() || copy.format == CopyFormat::Binary {
            return line;
        }
        self.line.clear();
        put_header(copy, line, &mut self.line);
        &self.line
    }

    pub fn row<'b>(&'b mut self, copy: &CopyIn, row: &'b [u8]) -> Result<&'b [u8], PgError> {
        if self.cells.is_empty() {
            return Ok(row);
        }
        self.line.clear();
        put_row(copy, &self.cells, row, &mut self.line)?;
        Ok(&self.line)
    }
}

pub(super) async fn adding_of(session: &mut Session, copy: &CopyIn, shards: &[ShardId]) -> Result<Adding, Failure> {
    let mut adding = Adding { cells: vec![None; copy.added.len()], ..Adding::default() };
    let mut constants = Vec::new();
    for (index, column) in copy.added.iter().enumerate() {
        match &column.value {
            AddedValue::Number(sequence) | AddedValue::Identity(sequence) => {
                if matches!(column.value, AddedValue::Number(_)) && adding.denial.is_none() {
                    adding.denial = sequence_rights::denial_of(session, sequence, Right::Draw).await?;
                }
                adding.numbers.push((index, sequence.clone(), column.type_oid));
            }
            AddedValue::UniqueId => adding.unique_ids.push((index, column.type_oid)),
            AddedValue::Uuid => adding.uuids.push(index),
            AddedValue::Constant(expression) => {
                // As the column gets it: an assignment converts alike.
                let value = format!("CAST(({expression}) AS {})", type_name(column.type_oid, &session.context.catalog)?);
                constants.push((index, sent(session, copy, column.type_oid, value)?));
            }
        }
    }
    if constants.is_empty() {
        return Ok(adding);
    }
    exact::check_text_is_exact(session)?;
    let expressions: Vec<&str> = constants.iter().map(|(_, expression)| expression.as_str()).collect();
    let query = format!("SELECT {}", expressions.join(", "));
    let query = session.instant(shards).await?.fixed(&query, None).unwrap_or(query);
    let answer = staged::answer_query(session, &query, &StageKind::Source).await?;
    let values = answer.rows.into_iter().next().unwrap_or_default();
    for ((index, _), value) in constants.into_iter().zip(values) {
        let value = match copy.format {
            CopyFormat::Binary => value.map(|value| unhex(&value)).transpose()?,
            CopyFormat::Text { .. } | CopyFormat::Csv { .. } => value.map(String::into_bytes),
        };
        if let Some(cell) = adding.cells.get_mut(index) {
            *cell = value;
        }
    }
    Ok(adding)
}

/// SQL for the value in the format of the data; of the binary one in hexadecimal digits.
fn sent(session: &Session, copy: &CopyIn, type_oid: Oid, value: String) -> Result<String, PgError> {
    if copy.format != CopyFormat::Binary {
        return Ok(value);
    }
    let base = session.context.catalog.types.get(&type_oid).map(|found| found.base).filter(|base| *base != 0).unwrap_or(type_oid);
    let send = SEND.iter().find(|(oid, _)| *oid == base).map(|(_, send)| send);
    let send = send.ok_or_else(|| not_binary("A default reads the clock, and is of another type than a time's."))?;
    Ok(format!("pg_catalog.encode(pg_catalog.{send}({value}), 'hex')"))
}

/// What the next row has of its own.
pub(super) async fn draw_for_row(session: &mut Session, copy: &CopyIn, adding: &mut Adding) -> Result<(), Failure> {
    for (index, sequence, type_oid) in &adding.numbers {
        let number = numbers::draw_number(session, sequence).await?;
        if let Some(cell) = adding.cells.get_mut(*index) {
            *cell = number_cell(&copy.format, number, *type_oid)?;
        }
    }
    for (index, type_oid) in &adding.unique_ids {
        let id = numbers::next_unique_id(session).await?;
        if let Some(cell) = adding.cells.get_mut(*index) {
            *cell = number_cell(&copy.format, id, *type_oid)?;
        }
    }
    for index in &adding.uuids {
        if let Some(cell) = adding.cells.get_mut(*index) {
            *cell = Some(uuid_cell(&copy.format, rand::rng().random()));
        }
    }
    Ok(())
}

/// The statement with more columns; errors have the places of the client's own.
pub(super) async fn begin_longer_copies(session: &mut Session, stream: &mut Stream<'_>, text: &str) -> Result<(), Failure> {
    let (longer, names) = stream.copy.with_added_names(text)?;
    let characters = |end: usize| longer.get(..end).unwrap_or_default().chars().count();
    let (first, added) = (characters(names.start), characters(names.end) - characters(names.start));
    match copy_rows::begin_copies(session, stream, &longer).await {
        Err(Failure::Shard(frame)) => Err(Failure::Shard(with_position(frame, |position| match position > first {
            true => position.saturating_sub(added).max(first),
            false => position,
        }))),
        begun => begun,
    }
}

fn unhex(digits: &str) -> Result<Vec<u8>, PgError> {
    let broken = || PgError::internal("a value that is not hexadecimal");
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2).ok_or_else(broken)?, 16).map_err(|_| broken())).collect()
}

/// What gives a type's binary form: bool, int8, text, varchar, date, time, timestamp, timestamptz, timetz.
const SEND: [(Oid, &str); 9] = [
    (16, "boolsend"),
    (20, "int8send"),
    (25, "textsend"),
    (1043, "varcharsend"),
    (1082, "date_send"),
    (1083, "time_send"),
    (1114, "timestamp_send"),
    (1184, "timestamptz_send"),
    (1266, "timetz_send"),
];
