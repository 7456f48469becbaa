//! The answers of several shards to one statement, as one.
//!
//! ```text
//!   every shard: BindComplete, or its row    ──►  all have their snapshots: a move does not wait for the rest
//!   every shard: first row, end, or error    ──►  nothing goes to the client before all have answered
//!   no order: shard after shard              ──►  rows as they come, so that pages repeat from call to call
//!   ORDER BY: the least of the front rows    ──►  ties by shard order
//!   DISTINCT: a row that was there before    ──►  dropped
//!   groups: every shard's parts, to the end  ──►  then sorted and cut, and only then handed on
//!   text whose order PostgreSQL knows       ──►  kept to the end, and handed over as [`Pieces`]
//!   OFFSET skipped, LIMIT reached            ──►  what is left is read and thrown away, or cancelled by the caller
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::join_all;
use thiserror::Error;
use tokio::time::timeout;

use super::aggregate::{CombineError, GroupRow, Groups, Seen, last_step_text};
use super::pieces::Pieces;
use super::proof::AskedBy;
use super::ranks::unranked_columns;
use super::sort_key::{Printing, SortValue, compare, decode};
use super::watch::{FAILURE_PATIENCE, first_failure};
use crate::backend::{ColumnsDigest, Connection, ConnectionError, Frame, NestedValues};
use crate::error::PgError;
use crate::shard_key::Format;
use crate::sql::analysis::{self as sql, Combine, DistinctRows, SortKey};
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, data_row_columns, originate, row_description, shard_tag};

/// How the rows become one answer.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Order, ties, groups and rows that count once. What it says of rows and columns to leave out is below, with its values.
    pub merge: Arc<sql::Merge>,
    pub limit: Rows,
    pub offset: Rows,
    /// Bytes that groups and distinct rows may take.
    pub combine_bytes_max: usize,
    /// Columns at the end of each row that are not the client's.
    pub hidden_columns: usize,
    /// The simple protocol: the client gets a RowDescription.
    pub describes: bool,
    /// What the client was told of its columns.
    pub told: Option<ColumnsDigest>,
    /// The columns by the client's own text, where the shards' come of other views.
    pub described: Option<Arc<[FieldDescription]>>,
    pub printing: Printing,
}

impl Spec {
    /// What the client is told of these columns.
    pub fn described<'c>(&'c self, columns: &'c [FieldDescription]) -> &'c [FieldDescription] {
        self.described.as_deref().filter(|described| described.len() == columns.len()).unwrap_or(columns)
    }
}

/// The value of LIMIT or OFFSET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// Not given, or NULL.
    #[default]
    Unsaid,
    Known(u64),
    /// In this column of every row.
    Column(usize),
}

/// Where rows go. The session's client.
pub trait RowSink {
    type Gone;
    fn buffer(&mut self) -> &mut BytesMut;
    /// Every shard has proven its snapshot.
    fn note_proven(&mut self) {}
    /// Sends what is in the buffer; waits for a slow client.
    fn send(&mut self) -> impl Future<Output = Result<(), Self::Gone>> + Send;
}

/// What came of it.
pub enum ScatterEnd {
    /// So many rows went to the client.
    Answered(u64),
    /// The query over the whole groups that makes the answer: the client got nothing yet.
    LastStep(String),
    /// All rows, which wait for PostgreSQL to say how their text sorts: the client got nothing yet.
    Unranked(Box<Pieces>),
}

#[derive(Debug, Error)]
pub enum ScatterError<G> {
    /// An ErrorResponse of the shard at this index: the whole frame. The other shards have been read to their end.
    /// `is_answered`: rows may be on their way to the client already.
    #[error("a shard refused the statement")]
    Shard { index: usize, frame: Bytes, is_answered: bool },
    #[error("a shard was lost")]
    Lost { index: usize, error: ConnectionError },
    /// A value whose place in the order is not known, or a row that cannot be read, among rows that are being sent.
    #[error("rows cannot be put in order: {0}")]
    Order(String),
    /// Rows that cannot be merged or combined exactly, and nothing has been sent.
    #[error("rows cannot be combined: {0}")]
    Inexact(String),
    /// The rows have other columns than the client was told; nothing has been sent.
    #[error("the columns have changed")]
    Changed,
    #[error("{0}")]
    Error(PgError),
    #[error("the client has gone")]
    Gone(G),
}

impl<G> From<CombineError> for ScatterError<G> {
    fn from(error: CombineError) -> Self {
        match error {
            CombineError::Inexact(reason) => ScatterError::Inexact(reason),
            CombineError::Error(error) => ScatterError::Error(error),
        }
    }
}

impl Spec {
    /// The shards compute rows that the answer may not have.
    pub fn evaluates_more(&self) -> bool {
        self.limit != Rows::Unsaid || self.leaves_out_groups()
    }

    /// HAVING is evaluated when the groups are whole.
    pub fn leaves_out_groups(&self) -> bool {
        matches!(&self.merge.combine, Some(Combine::Groups(groups)) if groups.is_filtered)
    }

    /// The shards' rows are parts of groups, which are sorted when they are whole.
    pub(super) fn has_groups(&self) -> bool {
        matches!(self.merge.combine, Some(Combine::Groups(_)))
    }
}

/// What is at the front of one shard's input.
enum Head {
    /// A whole message of so many bytes.
    Row {
        total: usize,
    },
    End,
}

struct Input<'a> {
    connection: &'a mut Connection,
    head: Head,
    /// What the row at the front is sorted by.
    values: Vec<SortValue>,
    /// ReadyForQuery has come.
    is_ready: bool,
    /// Columns whose values name types by this shard's oids.
    nested: NestedValues,
}

/// Reads every connection, which was asked in this way, to its ReadyForQuery. On an error the others are told to stop, and read to their end, so that they stay
/// usable; not for a client that has gone.
pub async fn scatter<S: RowSink>(
    connections: Vec<&mut Connection>,
    asked: AskedBy,
    spec: &Spec,
    sink: &mut S,
) -> Result<ScatterEnd, ScatterError<S::Gone>> {
    let input =
        |connection| Input { connection, head: Head::End, values: Vec::new(), is_ready: false, nested: NestedValues::default() };
    let inputs = connections.into_iter().map(input).collect();
    let mut merge = Merge { inputs, spec, columns: Vec::new(), seen: None, is_answered: false };
    let result = merge.run(asked, sink).await;
    if matches!(result, Err(ScatterError::Gone(_))) {
        return result;
    }
    // What cannot be merged is answered in another way, perhaps in the same transaction.
    let is_over = match &result {
        Err(ScatterError::Shard { .. }) => !spec.evaluates_more(),
        Err(ScatterError::Lost { .. } | ScatterError::Order(_) | ScatterError::Error(_) | ScatterError::Gone(_)) => true,
        Err(ScatterError::Inexact(_) | ScatterError::Changed) | Ok(_) => false,
    };
    let is_lost = |index: usize| matches!(&result, Err(ScatterError::Lost { index: lost, .. }) if *lost == index);
    let left = merge.inputs.iter_mut().enumerate().filter(|(index, _)| !is_lost(*index));
    let ended = join_all(left.map(|(index, input)| async move {
        let ended = if is_over { input.stop().await } else { input.read_to_end().await };
        ended.map_err(|error| error.at(index))
    }));
    let ended: Result<Vec<()>, _> = ended.await.into_iter().collect();
    if result.is_ok() {
        ended?;
    }
    result
}

struct Merge<'a, 's> {
    inputs: Vec<Input<'a>>,
    spec: &'s Spec,
    /// Of the fragments' rows, hidden ones included.
    columns: Vec<FieldDescription>,
    /// Rows that count once.
    seen: Option<Seen>,
    /// The client has been given something.
    is_answered: bool,
}

impl Merge<'_, '_> {
    async fn run<S: RowSink>(&mut self, asked: AskedBy, sink: &mut S) -> Result<ScatterEnd, ScatterError<S::Gone>> {
        let waited_for = self.inputs.iter_mut().map(|input| &mut *input.connection).collect();
        if let Some(index) = first_failure(waited_for, asked, FAILURE_PATIENCE).await {
            self.advance(index, sink).await?;
        }
        sink.note_proven();
        match timeout(FAILURE_PATIENCE, self.begin(sink)).await {
            Ok(begun) => begun?,
            Err(_) => {
                let waiting: Vec<usize> =
                    self.inputs.iter().enumerate().filter(|(_, input)| input.is_waited_for()).map(|(index, _)| index).collect();
                let watched = self.inputs.iter_mut().filter(|input| input.is_waited_for()).map(|input| &mut *input.connection);
                let failing = first_failure(watched.collect(), AskedBy::Other, Duration::ZERO).await;
                if let Some(index) = failing.and_then(|place| waiting.get(place)) {
                    self.advance(*index, sink).await?;
                }
                self.begin(sink).await?;
            }
        }
        if !unranked_columns(&self.spec.merge, &self.columns).is_empty() {
            return self.collect(sink).await;
        }
        let (limit, mut to_skip) = self.counts()?;
        match &self.spec.merge.combine {
            Some(Combine::Groups(groups)) => {
                let last_step = groups.last_step.as_ref();
                let groups = Groups::new(groups, &mut self.columns, self.spec.combine_bytes_max, self.spec.printing)?;
                let groups = self.take_groups(groups, sink).await?;
                let rows = groups.finish(&self.spec.merge.order_by)?;
                return match last_step {
                    Some(step) => Ok(ScatterEnd::LastStep(last_step_text(step, &self.columns, &rows)?)),
                    None => self.put_groups(&rows, (limit, to_skip), sink).await,
                };
            }
            Some(Combine::Distinct(distinct)) => self.seen = Some(self.nothing_seen(distinct)?),
            None => {}
        }
        self.describe(sink)?;
        let mut rows = 0_u64;
        let mut last: Option<Vec<SortValue>> = None;
        while let Some(index) = self.least() {
            let is_over = limit.is_some_and(|limit| rows >= limit);
            if is_over && !self.ties(index, last.as_deref()) {
                break;
            }
            let is_new = self.is_new(index).map_err(|error| match error {
                CombineError::Inexact(reason) => ScatterError::Order(reason),
                CombineError::Error(error) => ScatterError::Error(error),
            })?;
            if !is_new {
                self.drop_row(index);
            } else if to_skip > 0 {
                to_skip -= 1;
                self.drop_row(index);
            } else {
                if self.spec.merge.has_ties && limit == Some(rows + 1) {
                    last = self.front(index).map(<[SortValue]>::to_vec);
                }
                self.move_row(index, sink.buffer());
                rows += 1;
            }
            if sink.buffer().len() >= BUFFER_BYTES {
                sink.send().await.map_err(ScatterError::Gone)?;
            }
            self.advance(index, sink).await?;
        }
        Ok(ScatterEnd::Answered(rows))
    }

    /// Up to the first row of each. Cancel safe: it goes on where it was.
    async fn begin<S: RowSink>(&mut self, sink: &mut S) -> Result<(), ScatterError<S::Gone>> {
        for index in 0..self.inputs.len() {
            if self.inputs.get(index).is_some_and(Input::is_waited_for) {
                self.advance(index, sink).await?;
            }
        }
        Ok(())
    }

    /// Keeps every row, within the bound: there is another way for more.
    async fn collect<S: RowSink>(&mut self, sink: &mut S) -> Result<ScatterEnd, ScatterError<S::Gone>> {
        let mut pieces = Pieces::new(self.spec.clone(), self.columns.clone(), self.inputs.len())?;
        for index in 0..self.inputs.len() {
            while let Some(Input { connection, head: Head::Row { total }, .. }) = self.inputs.get_mut(index) {
                pieces.take(index, vec![connection.input.split_to(*total).freeze()], false)?;
                if pieces.is_full() {
                    return Err(ScatterError::Inexact("the rows take more than cross_shard.merge_bytes_max".to_owned()));
                }
                self.advance(index, sink).await?;
            }
            pieces.take(index, Vec::new(), true)?;
        }
        Ok(ScatterEnd::Unranked(Box::new(pieces)))
    }

    fn describe<S: RowSink>(&mut self, sink: &mut S) -> Result<(), ScatterError<S::Gone>> {
        let columns = self.columns.get(..self.visible_columns()).unwrap_or_default();
        if self.spec.told.is_some_and(|told| told != ColumnsDigest::of_columns(columns)) {
            // The statement has waited for the change.
            return Err(ScatterError::Changed);
        }
        self.is_answered = true;
        if self.spec.describes {
            originate::row_description(sink.buffer(), self.spec.described(columns));
        }
        Ok(())
    }

    fn visible_columns(&self) -> usize {
        self.columns.len() - self.spec.hidden_columns.min(self.columns.len())
    }

    fn nothing_seen(&self, distinct: &DistinctRows) -> Result<Seen, CombineError> {
        Seen::new(distinct, &self.columns, self.spec.hidden_columns, self.spec.combine_bytes_max)
    }

    /// LIMIT and OFFSET. Where rows carry them, any row will do, and without a row they do not matter.
    fn counts<G>(&self) -> Result<(Option<u64>, u64), ScatterError<G>> {
        let read = |rows: Rows| match rows {
            Rows::Unsaid => Ok(None),
            Rows::Known(count) => Ok(Some(count)),
            Rows::Column(column) => self.count_in(column).map_err(ScatterError::Inexact),
        };
        Ok((read(self.spec.limit)?, read(self.spec.offset)?.unwrap_or(0)))
    }

    fn count_in(&self, column: usize) -> Result<Option<u64>, String> {
        let row = self.inputs.iter().find_map(|input| match input.head {
            Head::Row { total } => input.connection.input.get(FRAME_HEADER_BYTES..total),
            Head::End => None,
        });
        let Some(row) = row else { return Ok(None) };
        let value = data_row_columns(row).nth(column).and_then(Result::ok).ok_or("a row is too short")?;
        let format = self.columns.get(column).map_or(0, |described| described.format);
        let Some(bytes) = value else { return Ok(None) };
        let count = match format {
            0 => std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()),
            _ => bytes.try_into().ok().map(i64::from_be_bytes),
        };
        count.and_then(|count| u64::try_from(count).ok()).map(Some).ok_or_else(|| "a number of rows cannot be read".to_owned())
    }

    fn front(&self, index: usize) -> Option<&[SortValue]> {
        self.inputs.get(index).filter(|input| !matches!(input.head, Head::End)).map(|input| input.values.as_slice())
    }

    fn ties(&self, index: usize, last: Option<&[SortValue]>) -> bool {
        match (self.front(index), last) {
            (Some(front), Some(last)) => compare(&self.spec.merge.order_by, front, last).is_eq(),
            _ => false,
        }
    }

    /// Not a row that was there before, where that counts.
    fn is_new(&mut self, index: usize) -> Result<bool, CombineError> {
        let Some(seen) = &mut self.seen else { return Ok(true) };
        let Some(Input { connection, head: Head::Row { total }, .. }) = self.inputs.get(index) else { return Ok(true) };
        seen.is_new(connection.input.get(FRAME_HEADER_BYTES..*total).unwrap_or_default())
    }

    /// Takes every shard's parts. One shard after the other: those that wait are held by back-pressure, and compute meanwhile.
    async fn take_groups<S: RowSink>(&mut self, mut groups: Groups, sink: &mut S) -> Result<Groups, ScatterError<S::Gone>> {
        for index in 0..self.inputs.len() {
            let mut parts = 0;
            while let Some(Input { connection, head: Head::Row { total }, .. }) = self.inputs.get(index) {
                groups.add(index, connection.input.get(FRAME_HEADER_BYTES..*total).unwrap_or_default())?;
                parts += 1;
                self.drop_row(index);
                self.advance(index, sink).await?;
            }
            groups.end_of_shard(parts)?;
        }
        Ok(groups)
    }

    /// Hands on the groups, cut.
    async fn put_groups<S: RowSink>(
        &mut self,
        rows: &[GroupRow],
        (limit, offset): (Option<u64>, u64),
        sink: &mut S,
    ) -> Result<ScatterEnd, ScatterError<S::Gone>> {
        self.describe(sink)?;
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let wanted = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut sent = 0_usize;
        let last = skipped.saturating_add(wanted).checked_sub(1).and_then(|last| rows.get(last)).filter(|_| wanted > 0);
        let visible = self.visible_columns();
        for row in rows.iter().skip(skipped) {
            let is_tie = || self.spec.merge.has_ties && last.is_some_and(|last| row.ties_with(last, &self.spec.merge.order_by));
            if sent >= wanted && !is_tie() {
                break;
            }
            originate::data_row(sink.buffer(), row.values.get(..visible).unwrap_or_default());
            sent += 1;
            if sink.buffer().len() >= BUFFER_BYTES {
                sink.send().await.map_err(ScatterError::Gone)?;
            }
        }
        Ok(ScatterEnd::Answered(sent as u64))
    }

    /// The shard whose front row is next. With few shards a scan beats a heap, and it keeps ties in shard order.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, &[SortValue])> = None;
        for (index, input) in self.inputs.iter().enumerate() {
            if matches!(input.head, Head::End) {
                continue;
            }
            let values = input.values.as_slice();
            let is_less = match least {
                None => true,
                Some((_, known)) => compare(&self.spec.merge.order_by, values, known).is_lt(),
            };
            if is_less {
                least = Some((index, values));
                if self.spec.merge.order_by.is_empty() {
                    break;
                }
            }
        }
        least.map(|(index, _)| index)
    }

    fn drop_row(&mut self, index: usize) {
        if let Some(Input { connection, head: Head::Row { total }, .. }) = self.inputs.get_mut(index) {
            connection.input.advance(*total);
        }
    }

    fn move_row(&mut self, index: usize, output: &mut BytesMut) {
        let Some(Input { connection, head: Head::Row { total }, .. }) = self.inputs.get_mut(index) else { return };
        let frame = connection.input.get(..*total).unwrap_or_default();
        if self.spec.hidden_columns == 0 {
            output.extend_from_slice(frame);
        } else {
            put_without_last_columns(output, frame, self.spec.hidden_columns);
        }
        connection.input.advance(*total);
    }

    /// Reads one shard up to its next row or its end.
    async fn advance<S: RowSink>(&mut self, index: usize, sink: &mut S) -> Result<(), ScatterError<S::Gone>> {
        let Some(input) = self.inputs.get_mut(index) else { return Ok(()) };
        loop {
            let frame = match input.connection.peek() {
                Ok(frame) => frame,
                Err(error) => return Err(ScatterError::Lost { index, error }),
            };
            let Some(Frame { header, is_complete: true }) = frame else {
                if let Err(error) = input.connection.fill().await {
                    return Err(ScatterError::Lost { index, error });
                }
                continue;
            };
            if header.tag == shard_tag::DATA_ROW {
                input.connection.translate_row(&input.nested, FRAME_HEADER_BYTES..header.total);
            }
            let bytes = input.connection.input.get(..header.total).unwrap_or_default();
            let body = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
            match header.tag {
                shard_tag::DATA_ROW => {
                    let order_by = if self.spec.has_groups() { &[] } else { self.spec.merge.order_by.as_slice() };
                    read_sort_values(&mut input.values, order_by, &self.columns, body, self.spec.printing).map_err(|reason| {
                        if self.is_answered { ScatterError::Order(reason) } else { ScatterError::Inexact(reason) }
                    })?;
                    input.head = Head::Row { total: header.total };
                    return Ok(());
                }
                shard_tag::ROW_DESCRIPTION => {
                    let mut columns = row_description(body).map_err(|error| ScatterError::Order(error.to_string()))?;
                    input.nested = input.connection.oids.translate_columns(&mut columns);
                    if self.columns.is_empty() {
                        self.columns = columns;
                    } else if ColumnsDigest::of_columns(&columns) != ColumnsDigest::of_columns(&self.columns) {
                        return Err(ScatterError::Changed);
                    }
                }
                shard_tag::ERROR => {
                    let frame = Bytes::copy_from_slice(bytes);
                    input.connection.input.advance(header.total);
                    input.head = Head::End;
                    return Err(ScatterError::Shard { index, frame, is_answered: self.is_answered });
                }
                shard_tag::NOTICE => {
                    sink.buffer().put_slice(bytes);
                    input.connection.input.advance(header.total);
                    if sink.buffer().len() >= BUFFER_BYTES {
                        sink.send().await.map_err(ScatterError::Gone)?;
                    }
                    continue;
                }
                shard_tag::READY => {
                    input.connection.note_ready(body.first().copied().unwrap_or(b'E'));
                    input.is_ready = true;
                    input.head = Head::End;
                    input.connection.input.advance(header.total);
                    return Ok(());
                }
                _ => {}
            }
            input.connection.input.advance(header.total);
        }
    }
}

impl Input<'_> {
    /// Neither a row nor the end has come.
    fn is_waited_for(&self) -> bool {
        matches!(self.head, Head::End) && !self.is_ready
    }

    /// The same, of a statement that has failed elsewhere.
    async fn stop(&mut self) -> Result<(), EndError> {
        match timeout(STOP_AFTER, self.read_to_end()).await {
            Ok(ended) => ended,
            Err(_) => {
                self.connection.stop().await;
                self.read_to_end().await
            }
        }
    }

    /// Throws away what is left of the answer.
    async fn read_to_end(&mut self) -> Result<(), EndError> {
        while !self.is_ready {
            match self.connection.peek().map_err(EndError::Lost)? {
                Some(Frame { header, is_complete: true }) => {
                    let frame = self.connection.input.split_to(header.total);
                    match header.tag {
                        shard_tag::READY => {
                            self.connection.note_ready(frame.get(FRAME_HEADER_BYTES).copied().unwrap_or(b'E'));
                            self.is_ready = true;
                        }
                        shard_tag::ERROR => self.connection.status = b'E',
                        _ => {}
                    }
                }
                Some(_) | None => self.connection.fill().await.map_err(EndError::Lost)?,
            }
        }
        Ok(())
    }
}

enum EndError {
    Lost(ConnectionError),
}

impl EndError {
    fn at<G>(self, index: usize) -> ScatterError<G> {
        let EndError::Lost(error) = self;
        ScatterError::Lost { index, error }
    }
}

pub(super) fn sort_values(
    order_by: &[SortKey],
    columns: &[FieldDescription],
    row: &[u8],
    printing: Printing,
) -> Result<Vec<SortValue>, String> {
    let mut values = Vec::new();
    read_sort_values(&mut values, order_by, columns, row, printing)?;
    Ok(values)
}

/// Puts what the row is sorted by in place of what `values` held.
fn read_sort_values(
    values: &mut Vec<SortValue>,
    order_by: &[SortKey],
    columns: &[FieldDescription],
    row: &[u8],
    printing: Printing,
) -> Result<(), String> {
    values.clear();
    for key in order_by {
        let column = columns.get(key.column).ok_or("a sort column is missing")?;
        let value = data_row_columns(row).nth(key.column).ok_or("a row is too short")?.map_err(|error| error.to_string())?;
        let format = if column.format == 0 { Format::Text } else { Format::Binary };
        if printing.hides_order(column.type_oid, format, !key.text.is_bytewise) {
            return Err(format!("column {} does not show how it sorts", key.column + 1));
        }
        // Text whose order PostgreSQL is asked for is kept as it is until then.
        let value = decode(column.type_oid, format, key.text.is_known(), value)
            .ok_or_else(|| format!("the order of column {} is not known to the proxy", key.column + 1))?;
        values.push(value);
    }
    Ok(())
}

/// A DataRow without its last columns. A row that cannot be read is left out whole: the caller has read it before.
pub(super) fn put_without_last_columns(output: &mut BytesMut, frame: &[u8], hidden: usize) {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let columns: Vec<Option<&[u8]>> = data_row_columns(body).map_while(Result::ok).collect();
    let visible = columns.len() - hidden.min(columns.len());
    originate::data_row(output, columns.get(..visible).unwrap_or_default());
}

/// Rows are handed on in pieces of this size.
const BUFFER_BYTES: usize = 32 * 1024;
/// Most answers are there, and a connection that was told to stop is closed.
pub const STOP_AFTER: Duration = Duration::from_millis(20);
