//! What is meant for the client, kept for the statement around it instead.
//!
//! ```text
//!   messages ─┬─ rows that may overflow ─► memory ─► full ─► pieces on the home shard ─► the last bytes, in memory
//!             └─ all else ───────────────► memory; what is more than the bound is thrown away, and so is the answer
//! ```

use bytes::{Bytes, BytesMut};

use crate::error::{PgError, SqlState};
use crate::session::reads::overflow::{Overflow, PIECE_BYTES};
use crate::session::{Failure, Session};
use crate::sql::rewrite::staging::{Answer, AnswerColumn};
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, shard_tag};

/// Messages that a statement has for the client, kept.
#[derive(Default)]
pub(in crate::session) struct Diverted {
    pub frames: BytesMut,
    /// They were not more than the bound.
    pub is_whole: bool,
    /// Rows that may be more than that.
    rows: Option<Box<Rows>>,
    bytes_max: usize,
}

/// What was there when what is meant for the client began to be kept.
pub(in crate::session) struct Kept {
    output: BytesMut,
    /// A part of a statement may have parts of its own.
    outer: Option<Diverted>,
}

/// The DataRow messages of a query.
struct Rows {
    first: BytesMut,
    overflow: Overflow,
    last: BytesMut,
    /// Bytes that are still to come of the row that came last.
    row_left: usize,
}

/// The rows of a query that has run to its end, read few at a time.
pub(in crate::session) struct StoredRows {
    pub columns: Vec<AnswerColumn>,
    /// From where they are read.
    buffer: BytesMut,
    overflow: Overflow,
    next_piece: u64,
    last: BytesMut,
}

impl Diverted {
    fn new(bytes_max: usize, overflow: Option<Overflow>) -> Self {
        let rows = overflow.map(|overflow| Box::new(Rows { first: BytesMut::new(), overflow, last: BytesMut::new(), row_left: 0 }));
        Self { frames: BytesMut::new(), is_whole: true, rows, bytes_max }
    }

    /// Takes what was to be sent.
    pub fn keep(&mut self, output: &mut BytesMut) {
        if let Some(rows) = &mut self.rows {
            rows.keep(output, &mut self.frames, self.bytes_max);
            return;
        }
        self.is_whole &= self.frames.len().saturating_add(output.len()) <= self.bytes_max;
        if self.is_whole {
            self.frames.unsplit(output.split());
        }
        output.clear();
    }

    /// Puts aside what is too much for memory.
    pub async fn put_aside(&mut self) {
        let Some(rows) = &mut self.rows else { return };
        while rows.last.len() >= PIECE_BYTES {
            let piece = rows.last.split_to(PIECE_BYTES);
            rows.overflow.put(&piece).await;
        }
    }

    pub fn has_too_much(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.last.len() >= PIECE_BYTES)
    }
}

impl Rows {
    /// Rows stay here, other messages go to `frames`. A row may come in parts.
    fn keep(&mut self, output: &mut BytesMut, frames: &mut BytesMut, bytes_max: usize) {
        while !output.is_empty() {
            let mut run = self.row_left.min(output.len());
            self.row_left -= run;
            let mut other = None;
            while self.row_left == 0 {
                let rest = output.get(run..).unwrap_or_default();
                match FrameHeader::peek(rest, usize::MAX / 2) {
                    Ok(Some(header)) if header.tag == shard_tag::DATA_ROW => {
                        let here = header.total.min(rest.len());
                        run += here;
                        self.row_left = header.total - here;
                    }
                    Ok(Some(header)) if rest.len() >= header.total => {
                        other = Some(header.total);
                        break;
                    }
                    Ok(_) | Err(_) => break,
                }
            }
            self.put(output.split_to(run), bytes_max);
            match other {
                Some(length) => frames.unsplit(output.split_to(length)),
                None => return,
            }
        }
    }

    fn put(&mut self, rows: BytesMut, bytes_max: usize) {
        let is_first = self.last.is_empty() && self.overflow.is_empty();
        if is_first && self.first.len().saturating_add(rows.len()) <= bytes_max {
            self.first.unsplit(rows);
        } else {
            self.last.unsplit(rows);
        }
    }
}

impl StoredRows {
    pub fn is_at_end(&self) -> bool {
        self.buffer.is_empty() && self.last.is_empty()
    }

    /// The next rows, of at most so many values and about so many bytes; at least one unless it is at the end.
    pub async fn next(&mut self, values_max: usize, bytes_max: usize) -> Result<Answer, Failure> {
        let rows_max = (values_max / self.columns.len().max(1)).max(1);
        let mut answer = Answer { columns: self.columns.clone(), rows: Vec::new() };
        let mut bytes = 0;
        while answer.rows.len() < rows_max && bytes < bytes_max {
            let header = FrameHeader::peek(&self.buffer, usize::MAX / 2).map_err(broken)?;
            let Some(header) = header.filter(|header| header.total <= self.buffer.len()) else {
                match self.fill().await? {
                    true => continue,
                    false => break,
                }
            };
            bytes += header.total;
            answer.rows.push(crate::session::writes::staged::row_of(
                &self.buffer.split_to(header.total).freeze().slice(FRAME_HEADER_BYTES..),
            )?);
        }
        // So that the end is seen now.
        if self.buffer.is_empty() {
            self.fill().await?;
        }
        Ok(answer)
    }

    /// More to read; false: there is no more.
    async fn fill(&mut self) -> Result<bool, Failure> {
        if let Some(piece) = self.overflow.piece(self.next_piece).await? {
            self.next_piece += 1;
            self.buffer.extend_from_slice(&piece);
            return Ok(true);
        }
        if self.last.is_empty() {
            return if self.buffer.is_empty() { Ok(false) } else { Err(PgError::internal("a row that is cut short").into()) };
        }
        self.buffer.unsplit(std::mem::take(&mut self.last));
        Ok(true)
    }

    pub async fn end(self) -> Result<(), Failure> {
        self.overflow.end().await
    }
}

impl Session {
    /// From here on what is meant for the client is kept; what waited for it already is returned.
    pub(in crate::session) fn divert(&mut self) -> Kept {
        self.divert_to(Diverted::new(self.kept_bytes_max(), None))
    }

    /// The same for a query whose rows may be many.
    pub(in crate::session) fn divert_many(&mut self) -> Result<Kept, Failure> {
        let overflow = self.overflow()?;
        Ok(self.divert_to(Diverted::new(self.kept_bytes_max(), Some(overflow))))
    }

    fn divert_to(&mut self, diverted: Diverted) -> Kept {
        let output = self.client.output.split();
        let outer = self.client.divert(diverted);
        Kept { output, outer }
    }

    /// What was kept since [`Session::divert`].
    pub(in crate::session) fn end_diversion(&mut self, kept: Kept) -> Diverted {
        let diverted = self.client.end_diversion(kept.outer);
        self.client.output = kept.output;
        diverted
    }

    pub(in crate::session) fn kept_bytes_max(&self) -> usize {
        usize::try_from(self.gateway.config.cross_shard.merge_bytes_max).unwrap_or(usize::MAX)
    }

    /// The rows that were kept since [`Session::divert`]. `run`: what became of the statement.
    pub(in crate::session) fn diverted(&mut self, kept: Kept, run: Result<(), Failure>) -> Result<Answer, Failure> {
        let diverted = self.end_diversion(kept);
        let answer = self.answer_of(diverted.frames.freeze(), run)?;
        if diverted.is_whole { Ok(answer) } else { Err(too_many(diverted.bytes_max).into()) }
    }

    /// The same since [`Session::divert_many`].
    pub(in crate::session) fn diverted_many(&mut self, kept: Kept, run: Result<(), Failure>) -> Result<StoredRows, Failure> {
        let diverted = self.end_diversion(kept);
        let Answer { columns, .. } = self.answer_of(diverted.frames.freeze(), run)?;
        let rows = diverted.rows.ok_or_else(|| PgError::internal("rows that were not kept"))?;
        let Rows { first, mut overflow, last, .. } = *rows;
        overflow.check()?;
        Ok(StoredRows { columns, buffer: first, overflow, next_piece: 0, last })
    }

    fn answer_of(&mut self, frames: Bytes, run: Result<(), Failure>) -> Result<Answer, Failure> {
        match (run, self.read_answer(frames)) {
            (Err(Failure::End(end)), _) => Err(end.into()),
            (_, Err(failure)) => Err(failure),
            (Err(failure), _) => Err(failure),
            (Ok(()), answer) => answer,
        }
    }
}

fn too_many(bytes_max: usize) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("a sub-select has more than {bytes_max} bytes of rows"))
        .with_detail("Its rows are kept until the write that they are for is sent. The limit is cross_shard.merge_bytes_max.")
        .with_hint("Write fewer rows at a time, or raise the limit.")
}

fn broken(error: crate::wire::DecodeError) -> PgError {
    PgError::internal(format!("a diverted answer: {error}"))
}
