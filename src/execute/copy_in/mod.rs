//! The data of a COPY FROM STDIN, told apart into rows while it streams, so that each row can go to the shard of its key.
//!
//! ```text
//!   CopyData ─► Splitter ─┬─ header ──────────► every shard
//!                         ├─ row ─► Values ───► the key's columns, nothing else is decoded
//!                         └─ what is no row ──► an error in PostgreSQL's words
//! ```
//! Rows are handed on as the bytes they are. What ends a row, and a value in it, follows PostgreSQL's own reader (`copyfromparse.c`),
//! its state between lines included: a shard sees only some of the lines and would otherwise take a stray carriage return for
//! the end of its first one. In memory is one row, and the piece that came last.
//!
//! Pure. Does not know shards. Never changes a byte of a row; what is put before it is `added`'s.

mod added;
mod line_map;
mod lines;
mod tuples;
mod values;

use bytes::{Buf, BytesMut};

use crate::error::{PgError, SqlState};
use crate::sql::utility::copy_in::{CopyFormat, CopyIn};
pub use added::{AddedCell, not_binary, number_cell, put_header, put_row, uuid_cell};
pub use line_map::{LineMap, line_of, with_line};
use lines::{FoundLine, Lines};
use tuples::{FoundTuple, Tuples};
pub use values::{Value, values};

/// Tells rows apart.
#[derive(Debug)]
pub struct Splitter {
    reader: Reader,
    buffer: BytesMut,
    /// Bytes at the front of the buffer that have been handed out.
    taken: usize,
    has_header: bool,
    /// CopyDone has come.
    is_complete: bool,
    /// What follows does not count: the end was marked in the data.
    is_over: bool,
    /// Lines, or tuples, that have been handed out.
    lines: u64,
    row_bytes_max: usize,
}

#[derive(Debug)]
enum Reader {
    Lines(Lines),
    Tuples(Tuples),
}

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'b> {
    /// As it came, with what ends it.
    pub bytes: &'b [u8],
    pub kind: PieceKind,
    /// How many lines it takes.
    pub lines: u64,
    /// Number of its last line, from 1.
    pub last_line: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// A header or trailer, which each shard needs.
    Everywhere,
    /// `values`: how many of the bytes are the row's values.
    Row { values: usize },
    /// PostgreSQL is certain to refuse it.
    Broken,
}

impl Splitter {
    /// `row_bytes_max`: a row that is longer is refused.
    pub fn new(copy: &CopyIn, row_bytes_max: usize) -> Self {
        let reader = match copy.format {
            CopyFormat::Text { .. } => Reader::Lines(Lines::text()),
            CopyFormat::Csv { quote, escape, .. } => Reader::Lines(Lines::csv(quote, escape)),
            CopyFormat::Binary => Reader::Tuples(Tuples::default()),
        };
        Self {
            reader,
            buffer: BytesMut::new(),
            taken: 0,
            has_header: copy.has_header && copy.format != CopyFormat::Binary,
            is_complete: false,
            is_over: false,
            lines: 0,
            row_bytes_max,
        }
    }

    /// The shards are of PostgreSQL 18 or later.
    pub fn be_strict(&mut self) {
        if let Reader::Lines(lines) = &mut self.reader {
            lines.be_strict();
        }
    }

    /// More data; what was handed out before is forgotten.
    pub fn feed(&mut self, data: &[u8]) {
        self.buffer.advance(std::mem::take(&mut self.taken));
        if !self.is_over {
            self.buffer.extend_from_slice(data);
        }
    }

    /// No more data comes.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Number of the line that is being read, from 1.
    pub fn line(&self) -> u64 {
        match &self.reader {
            Reader::Lines(lines) => self.lines + 1 + lines.embedded(),
            Reader::Tuples(_) => self.lines + 1,
        }
    }

    /// The next part; `None`: more data is needed, or all has been handed out. An error is final.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, PgError> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        if self.is_over || rest.is_empty() {
            return Ok(None);
        }
        let start = self.taken;
        let (length, kind, lines) = match &mut self.reader {
            Reader::Lines(reader) => match reader.find(rest, self.is_complete)? {
                FoundLine::More => return self.none_yet(),
                FoundLine::Line { values, length, lines } => {
                    let is_header = std::mem::take(&mut self.has_header);
                    (length, if is_header { PieceKind::Everywhere } else { PieceKind::Row { values } }, lines)
                }
                FoundLine::End { values, lines } => {
                    self.is_over = true;
                    if values == 0 {
                        return Ok(None);
                    }
                    (values, PieceKind::Row { values }, lines)
                }
            },
            Reader::Tuples(reader) => match reader.find(rest, self.is_complete) {
                FoundTuple::More => return self.none_yet(),
                FoundTuple::Everywhere(length) => (length, PieceKind::Everywhere, 0),
                FoundTuple::Row(length) => (length, PieceKind::Row { values: length }, 1),
                FoundTuple::Broken(length) => (length, PieceKind::Broken, 1),
            },
        };
        self.taken += length;
        self.lines += lines;
        let bytes = self.buffer.get(start..self.taken).unwrap_or_default();
        Ok(Some(Piece { bytes, kind, lines, last_line: self.lines }))
    }

    fn none_yet(&self) -> Result<Option<Piece<'_>>, PgError> {
        if self.buffer.len() - self.taken <= self.row_bytes_max {
            return Ok(None);
        }
        Err(PgError::new(
            SqlState::CONFIGURATION_LIMIT_EXCEEDED,
            format!("a row of COPY is longer than {} bytes", self.row_bytes_max),
        )
        .with_detail("It is kept until its shard key is known. The limit is cross_shard.statement_bytes_max.")
        .with_hint("Raise the limit."))
    }
}

/// As PostgreSQL says it.
fn bad_format(message: &str) -> PgError {
    PgError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

#[cfg(test)]
mod tests;
