//! What is meant for the client, kept for the statement around it instead.
//!
//! ```text
//!   messages ─┬─ rows that may overflow ─► memory ─► full ─► pieces on the home shard ─► the last bytes, in memory
//!             ├─ other rows ─────────────► memory ─► full ─► thrown away, and so is the answer
//!             └─ all else ───────────────► memory ─► full ─► thrown away, but for errors
//! ```
//!
//! An error that a shard has sent is always kept: a statement that has failed is answered with it, however much came before.

use bytes::{Bytes, BytesMut};

use crate::error::{PgError, SqlState};
use crate::session::reads::overflow;
use crate::session::reads::overflow::{Overflow, PIECE_BYTES};
use crate::session::writes::staged::{answer_columns, row_of};
use crate::session::{Failure, Session};
use crate::sql::rewrite::staging::{Answer, AnswerColumn};
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, shard_tag};

/// Messages that a statement has for the client, kept.
#[derive(Default)]
pub(in crate::session) struct Diverted {
    /// All but the rows.
    pub frames: BytesMut,
    /// DataRow messages, the first ones. The last one may have been cut off.
    pub rows: BytesMut,
    /// Bytes that are still to come of the row that came last.
    row_left: usize,
    /// Nothing was thrown away.
    pub is_whole: bool,
    /// Of `frames`, and of `rows`.
    bytes_max: usize,
    /// For rows beyond that.
    rest: Option<Box<Rest>>,
}

/// What was there when what is meant for the client began to be kept.
pub(in crate::session) struct Kept {
    output: BytesMut,
    /// A part of a statement may have parts of its own.
    outer: Option<Box<Diverted>>,
}

/// The rows that are too many for memory.
struct Rest {
    overflow: Overflow,
    last: BytesMut,
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
        let rest = overflow.map(|overflow| Box::new(Rest { overflow, last: BytesMut::new() }));
        Self { is_whole: true, bytes_max, rest, ..Self::default() }
    }

    /// Takes what was to be sent. A row may come in parts; the beginning of another message stays until it is whole.
    pub fn keep(&mut self, output: &mut BytesMut) {
        loop {
            let (rows, frame) = self.measure(output);
            self.keep_rows(output.split_to(rows));
            match frame {
                Some(header) => self.keep_frame(header.tag, output.split_to(header.total)),
                None => return,
            }
        }
    }

    /// Bytes of rows at the front, and the whole message behind them.
    fn measure(&mut self, output: &[u8]) -> (usize, Option<FrameHeader>) {
        let mut rows = self.row_left.min(output.len());
        self.row_left -= rows;
        while self.row_left == 0 {
            let rest = output.get(rows..).unwrap_or_default();
            match FrameHeader::peek(rest, usize::MAX / 2) {
                Ok(Some(header)) if header.tag == shard_tag::DATA_ROW => {
                    let here = header.total.min(rest.len());
                    rows += here;
                    self.row_left = header.total - here;
                }
                Ok(Some(header)) if rest.len() >= header.total => return (rows, Some(header)),
                Ok(_) | Err(_) => break,
            }
        }
        (rows, None)
    }

    fn keep_rows(&mut self, rows: BytesMut) {
        let is_first = self.rest.as_ref().map_or(self.is_whole, |rest| rest.last.is_empty() && rest.overflow.is_empty());
        let fits = self.rows.len().saturating_add(rows.len()) <= self.bytes_max;
        match &mut self.rest {
            _ if is_first && fits => self.rows.unsplit(rows),
            Some(rest) => rest.last.unsplit(rows),
            None => self.is_whole = false,
        }
    }

    fn keep_frame(&mut self, tag: u8, frame: BytesMut) {
        if tag == shard_tag::ERROR {
            return self.frames.unsplit(frame);
        }
        self.is_whole &= self.frames.len().saturating_add(frame.len()) <= self.bytes_max;
        if self.is_whole {
            self.frames.unsplit(frame);
        }
    }

    /// Puts aside what is too much for memory.
    pub async fn put_aside(&mut self) {
        let Some(rest) = &mut self.rest else { return };
        while rest.last.len() >= PIECE_BYTES {
            let piece = rest.last.split_to(PIECE_BYTES);
            rest.overflow.put(&piece).await;
        }
    }

    pub fn has_too_much(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.last.len() >= PIECE_BYTES)
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
            answer.rows.push(row_of(&self.buffer.split_to(header.total).freeze().slice(FRAME_HEADER_BYTES..))?);
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
        let overflow = overflow::overflow(self)?;
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
        let mut diverted = self.end_diversion(kept);
        let columns = self.columns_of(&mut diverted, run)?;
        let rows = frames_of(diverted.rows.freeze()).map(|(_, row)| row_of(&row.slice(FRAME_HEADER_BYTES..)));
        Ok(Answer { columns, rows: rows.collect::<Result<_, _>>()? })
    }

    /// The same since [`Session::divert_many`].
    pub(in crate::session) fn diverted_many(&mut self, kept: Kept, run: Result<(), Failure>) -> Result<StoredRows, Failure> {
        let mut diverted = self.end_diversion(kept);
        let columns = self.columns_of(&mut diverted, run)?;
        let rest = diverted.rest.ok_or_else(|| PgError::internal("rows that were not kept"))?;
        let Rest { mut overflow, last } = *rest;
        overflow.check()?;
        Ok(StoredRows { columns, buffer: diverted.rows, overflow, next_piece: 0, last })
    }

    /// What was told of the rows, all of which are there; notices go on to the client.
    fn columns_of(&mut self, diverted: &mut Diverted, run: Result<(), Failure>) -> Result<Vec<AnswerColumn>, Failure> {
        if let Err(Failure::End(end)) = run {
            return Err(end.into());
        }
        let mut columns = Vec::new();
        for (tag, frame) in frames_of(diverted.frames.split().freeze()) {
            match tag {
                shard_tag::ROW_DESCRIPTION => columns = answer_columns(&frame.slice(FRAME_HEADER_BYTES..))?,
                shard_tag::ERROR => return Err(Failure::Shard(frame)),
                shard_tag::NOTICE | shard_tag::PARAMETER_STATUS | shard_tag::NOTIFICATION => {
                    self.client.output.extend_from_slice(&frame);
                }
                _ => {}
            }
        }
        outcome(run, false)?;
        if diverted.is_whole { Ok(columns) } else { Err(too_many(diverted.bytes_max).into()) }
    }
}

/// What became of a statement whose messages were kept. `has_error`: an error was among them, and has gone on to the client. Without
/// one nobody would hear of the failure.
pub(in crate::session) fn outcome(run: Result<(), Failure>, has_error: bool) -> Result<(), Failure> {
    match run {
        Err(Failure::Forwarded) if !has_error => Err(PgError::internal("a statement has failed without an error").into()),
        run => run,
    }
}

/// Whole messages with their tags.
pub(in crate::session) fn frames_of(mut frames: Bytes) -> impl Iterator<Item = (u8, Bytes)> {
    std::iter::from_fn(move || {
        let header = FrameHeader::peek(&frames, usize::MAX / 2).ok()?.filter(|header| header.total <= frames.len())?;
        Some((header.tag, frames.split_to(header.total)))
    })
}

fn too_many(bytes_max: usize) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("a sub-select has more than {bytes_max} bytes of rows"))
        .with_detail("Its rows are kept until the write that they are for is sent. The limit is cross_shard.merge_bytes_max.")
        .with_hint("Write fewer rows at a time, or raise the limit.")
}

fn broken(error: crate::wire::DecodeError) -> PgError {
    PgError::internal(format!("a diverted answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::originate;

    fn kept(bytes_max: usize, messages: &[u8], piece: usize) -> Diverted {
        let mut diverted = Diverted::new(bytes_max, None);
        let mut output = BytesMut::new();
        for part in messages.chunks(piece) {
            output.extend_from_slice(part);
            diverted.keep(&mut output);
        }
        assert!(output.is_empty());
        diverted
    }

    #[test]
    fn an_error_is_kept_however_much_came_before() {
        let mut messages = BytesMut::new();
        originate::error(&mut messages, &PgError::warning(SqlState::WARNING, "a notice"));
        (0..10).for_each(|_| originate::data_row(&mut messages, &[Some(&[b'x'; 50])]));
        originate::error(&mut messages, &PgError::warning(SqlState::WARNING, "another one"));
        originate::error(&mut messages, &PgError::new(SqlState::QUERY_CANCELED, "cancelled"));
        for piece in [1, 7, 1000] {
            for (bytes_max, rows, tags, is_whole) in [(10_000, 10, &b"NNE"[..], true), (200, 3, b"NE", false), (0, 0, b"E", false)]
            {
                let diverted = kept(bytes_max, &messages, piece);
                let told: Vec<u8> = frames_of(diverted.frames.freeze()).map(|(tag, _)| tag).collect();
                assert_eq!((told.as_slice(), diverted.is_whole), (tags, is_whole), "{bytes_max} bytes in pieces of {piece}");
                let there = frames_of(diverted.rows.freeze()).count();
                assert!(
                    if is_whole { there == rows } else { there <= rows },
                    "{bytes_max} bytes in pieces of {piece}: {there} rows"
                );
            }
        }
    }

    #[test]
    fn a_failure_without_an_error_is_told() {
        assert!(matches!(outcome(Err(Failure::Forwarded), false), Err(Failure::Error(_))));
        assert!(matches!(outcome(Err(Failure::Forwarded), true), Err(Failure::Forwarded)));
        assert!(outcome(Ok(()), false).is_ok());
    }
}
