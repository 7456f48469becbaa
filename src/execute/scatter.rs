//! The answers of several shards to one statement, as one.
//!
//! ```text
//!   every shard: first row, end, or error    ──►  nothing goes to the client before all have answered
//!   no order: shard after shard              ──►  rows as they come, so that pages repeat from call to call
//!   ORDER BY: the least of the front rows    ──►  ties by shard order
//!   OFFSET skipped, LIMIT reached            ──►  what is left is read and thrown away, or cancelled by the caller
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::sort_key::{SortValue, compare, decode};
use crate::backend::{Connection, ConnectionError, Frame};
use crate::shard_key::Format;
use crate::sql::analysis::SortKey;
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, data_row_columns, originate, row_description, shard_tag};

/// How the rows become one answer.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    pub order_by: Vec<SortKey>,
    pub limit: Option<u64>,
    pub offset: u64,
    /// Columns at the end of each row that are not the client's.
    pub hidden_columns: usize,
    /// The simple protocol: the client gets a RowDescription.
    pub describes: bool,
}

/// Where rows go. The session's client.
pub trait RowSink {
    type Gone;
    fn buffer(&mut self) -> &mut BytesMut;
    /// Sends what is in the buffer; waits for a slow client.
    fn send(&mut self) -> impl Future<Output = Result<(), Self::Gone>> + Send;
}

/// What came of it.
#[derive(Debug)]
pub struct ScatterEnd {
    /// Rows that the client got.
    pub rows: u64,
}

#[derive(Debug, Error)]
pub enum ScatterError<G> {
    /// An ErrorResponse of the shard at this index: the whole frame. The other shards have been read to their end.
    #[error("a shard refused the statement")]
    Shard { index: usize, frame: Bytes },
    #[error("a shard was lost")]
    Lost { index: usize, error: ConnectionError },
    /// A column whose order the proxy does not know, or a row that cannot be read.
    #[error("rows cannot be put in order: {0}")]
    Order(String),
    #[error("the client has gone")]
    Gone(G),
}

/// What is at the front of one shard's input.
enum Head {
    Row { total: usize, values: Vec<SortValue> },
    End,
}

struct Input<'a> {
    connection: &'a mut Connection,
    head: Head,
    /// ReadyForQuery has come.
    is_ready: bool,
}

/// Reads every connection to its ReadyForQuery. On an error the others are read to their end too, so that they stay usable.
pub async fn scatter<S: RowSink>(
    connections: Vec<&mut Connection>,
    spec: &Spec,
    sink: &mut S,
) -> Result<ScatterEnd, ScatterError<S::Gone>> {
    let inputs = connections.into_iter().map(|connection| Input { connection, head: Head::End, is_ready: false }).collect();
    let mut merge = Merge { inputs, spec, columns: Vec::new() };
    let mut result = merge.run(sink).await;
    for (index, input) in merge.inputs.iter_mut().enumerate() {
        if matches!(&result, Err(ScatterError::Lost { index: lost, .. }) if *lost == index) {
            continue;
        }
        if let Err(error) = input.read_to_end().await
            && result.is_ok()
        {
            result = Err(error.at(index));
        }
    }
    result
}

struct Merge<'a, 's> {
    inputs: Vec<Input<'a>>,
    spec: &'s Spec,
    /// Of the fragments' rows, hidden ones included.
    columns: Vec<FieldDescription>,
}

impl Merge<'_, '_> {
    async fn run<S: RowSink>(&mut self, sink: &mut S) -> Result<ScatterEnd, ScatterError<S::Gone>> {
        for index in 0..self.inputs.len() {
            self.advance(index, sink.buffer()).await?;
        }
        if self.spec.describes {
            let visible = self.columns.len() - self.spec.hidden_columns.min(self.columns.len());
            originate::row_description(sink.buffer(), self.columns.get(..visible).unwrap_or_default());
        }
        let (mut to_skip, mut rows) = (self.spec.offset, 0_u64);
        while self.spec.limit.is_none_or(|limit| rows < limit) {
            let Some(index) = self.least() else { break };
            if to_skip > 0 {
                to_skip -= 1;
                self.drop_row(index);
            } else {
                self.move_row(index, sink.buffer());
                rows += 1;
            }
            if sink.buffer().len() >= BUFFER_BYTES {
                sink.send().await.map_err(ScatterError::Gone)?;
            }
            self.advance(index, sink.buffer()).await?;
        }
        Ok(ScatterEnd { rows })
    }

    /// The shard whose front row is next. With few shards a scan beats a heap, and it keeps ties in shard order.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, &[SortValue])> = None;
        for (index, input) in self.inputs.iter().enumerate() {
            let Head::Row { values, .. } = &input.head else { continue };
            let is_less = match least {
                None => true,
                Some((_, known)) => compare(&self.spec.order_by, values, known).is_lt(),
            };
            if is_less {
                least = Some((index, values));
                if self.spec.order_by.is_empty() {
                    break;
                }
            }
        }
        least.map(|(index, _)| index)
    }

    fn drop_row(&mut self, index: usize) {
        if let Some(Input { connection, head: Head::Row { total, .. }, .. }) = self.inputs.get_mut(index) {
            connection.input.advance(*total);
        }
    }

    fn move_row(&mut self, index: usize, output: &mut BytesMut) {
        let Some(Input { connection, head: Head::Row { total, .. }, .. }) = self.inputs.get_mut(index) else { return };
        let frame = connection.input.get(..*total).unwrap_or_default();
        if self.spec.hidden_columns == 0 {
            output.extend_from_slice(frame);
        } else {
            put_without_last_columns(output, frame, self.spec.hidden_columns);
        }
        connection.input.advance(*total);
    }

    /// Reads one shard up to its next row or its end.
    async fn advance<G>(&mut self, index: usize, output: &mut BytesMut) -> Result<(), ScatterError<G>> {
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
            let bytes = input.connection.input.get(..header.total).unwrap_or_default();
            let body = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
            match header.tag {
                shard_tag::DATA_ROW => {
                    let values = sort_values(&self.spec.order_by, &self.columns, body).map_err(ScatterError::Order)?;
                    input.head = Head::Row { total: header.total, values };
                    return Ok(());
                }
                shard_tag::ROW_DESCRIPTION if self.columns.is_empty() => {
                    self.columns = row_description(body).map_err(|error| ScatterError::Order(error.to_string()))?;
                    for column in &mut self.columns {
                        column.type_oid = input.connection.oids.at_home(column.type_oid);
                        column.table_oid = input.connection.oids.at_home(column.table_oid);
                    }
                }
                shard_tag::ERROR => {
                    let frame = Bytes::copy_from_slice(bytes);
                    input.connection.input.advance(header.total);
                    input.head = Head::End;
                    return Err(ScatterError::Shard { index, frame });
                }
                shard_tag::NOTICE => output.put_slice(bytes),
                shard_tag::READY => {
                    input.connection.status = body.first().copied().unwrap_or(b'E');
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
    /// Throws away what is left of the answer.
    async fn read_to_end(&mut self) -> Result<(), EndError> {
        while !self.is_ready {
            match self.connection.peek().map_err(EndError::Lost)? {
                Some(Frame { header, is_complete: true }) => {
                    let frame = self.connection.input.split_to(header.total);
                    match header.tag {
                        shard_tag::READY => {
                            self.connection.status = frame.get(FRAME_HEADER_BYTES).copied().unwrap_or(b'E');
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

fn sort_values(order_by: &[SortKey], columns: &[FieldDescription], row: &[u8]) -> Result<Vec<SortValue>, String> {
    if order_by.is_empty() {
        return Ok(Vec::new());
    }
    let values: Vec<Option<&[u8]>> = data_row_columns(row).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    order_by
        .iter()
        .map(|key| {
            let column = columns.get(key.column).ok_or("a sort column is missing")?;
            let value = values.get(key.column).copied().ok_or("a row is too short")?;
            let format = if column.format == 0 { Format::Text } else { Format::Binary };
            decode(column.type_oid, format, key.is_bytewise, value)
                .ok_or_else(|| format!("the order of column {} is not known to the proxy", key.column + 1))
        })
        .collect()
}

/// A DataRow without its last columns. A row that cannot be read is left out whole: the caller has read it before.
fn put_without_last_columns(output: &mut BytesMut, frame: &[u8], hidden: usize) {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let columns: Vec<Option<&[u8]>> = data_row_columns(body).map_while(Result::ok).collect();
    let visible = columns.len() - hidden.min(columns.len());
    originate::data_row(output, columns.get(..visible).unwrap_or_default());
}

/// Rows are handed on in pieces of this size.
const BUFFER_BYTES: usize = 32 * 1024;
