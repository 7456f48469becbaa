//! Rows of an answer, as COPY TO STDOUT writes them.
//!
//! Values are those of DataRow messages: COPY's text and CSV have the same text forms between their delimiters, COPY's binary
//! format the same bytes. The header, the trailer and the columns' formats are PostgreSQL's, of a COPY without rows.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::sql::utility::copy_in::CopyFormat;
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, data_row_columns, originate, shard_tag};

/// What PostgreSQL says around the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyModel {
    /// The CopyOutResponse, the whole frame.
    pub response: Bytes,
    /// Bodies of the CopyData messages: the line of the header, or the binary header with its trailer.
    pub data: Vec<Bytes>,
}

/// Turns rows into COPY data on their way to the client.
pub struct CopyRows {
    /// Messages of the answer that wait to be turned.
    pub frames: BytesMut,
    model: CopyModel,
    format: CopyFormat,
    /// For each column: CSV quotes its values always.
    quoted: Vec<bool>,
    has_begun: bool,
    rows: u64,
    line: BytesMut,
}

impl CopyRows {
    pub fn new(model: CopyModel, format: CopyFormat, quoted: Vec<bool>) -> Self {
        Self { frames: BytesMut::new(), model, format, quoted, has_begun: false, rows: 0, line: BytesMut::new() }
    }

    /// Turns what waits.
    pub fn turn(&mut self, out: &mut BytesMut) {
        while let Ok(Some(header)) = FrameHeader::peek(&self.frames, usize::MAX / 2) {
            if self.frames.len() < header.total {
                return;
            }
            let frame = self.frames.split_to(header.total);
            match header.tag {
                shard_tag::DATA_ROW => self.row(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default(), out),
                shard_tag::NOTICE => out.extend_from_slice(&frame),
                // What describes and ends a SELECT.
                _ => {}
            }
        }
    }

    /// What waits, and the end.
    pub fn finish(mut self, out: &mut BytesMut) {
        self.turn(out);
        self.begin(out);
        if self.format == CopyFormat::Binary {
            self.line.put_i16(-1);
            put_data(out, &mut self.line);
        }
        originate::bare(out, shard_tag::COPY_DONE);
        originate::command_complete(out, &format!("COPY {}", self.rows));
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        out.extend_from_slice(&self.model.response);
        for data in &self.model.data {
            match self.format {
                // Together with the first row, as PostgreSQL sends it.
                CopyFormat::Binary => self.line.extend_from_slice(data.get(..BINARY_HEADER_BYTES).unwrap_or(data)),
                CopyFormat::Text { .. } | CopyFormat::Csv { .. } => {
                    self.line.extend_from_slice(data);
                    put_data(out, &mut self.line);
                }
            }
        }
    }

    fn row(&mut self, body: &[u8], out: &mut BytesMut) {
        self.begin(out);
        self.rows += 1;
        let line = &mut self.line;
        let values = data_row_columns(body).map_while(Result::ok).enumerate();
        match &self.format {
            // The values of a DataRow are those of a tuple, and so is their count.
            CopyFormat::Binary => line.extend_from_slice(body),
            CopyFormat::Text { delimiter, null } => {
                for (index, value) in values {
                    if index > 0 {
                        line.put_u8(*delimiter);
                    }
                    match value {
                        None => line.extend_from_slice(null),
                        Some(value) => put_text(line, value, *delimiter),
                    }
                }
                line.put_u8(b'\n');
            }
            CopyFormat::Csv { delimiter, quote, escape, null } => {
                let is_single = self.quoted.len() == 1;
                for (index, value) in values {
                    if index > 0 {
                        line.put_u8(*delimiter);
                    }
                    let Some(value) = value else {
                        line.extend_from_slice(null);
                        continue;
                    };
                    let is_special = |byte: &u8| matches!(*byte, b'\n' | b'\r') || *byte == *delimiter || *byte == *quote;
                    let needs_quotes = self.quoted.get(index).copied().unwrap_or(false)
                        || value == &**null
                        || is_single && value == b"\\."
                        || value.iter().any(is_special);
                    if needs_quotes { put_quoted(line, value, *quote, *escape) } else { line.extend_from_slice(value) }
                }
                line.put_u8(b'\n');
            }
        }
        put_data(out, line);
    }
}

/// A CopyData message of what has been written.
fn put_data(out: &mut BytesMut, line: &mut BytesMut) {
    out.put_u8(shard_tag::COPY_DATA);
    out.put_u32(u32::try_from(line.len() + 4).unwrap_or(u32::MAX));
    out.extend_from_slice(line);
    line.advance(line.len());
    line.clear();
}

/// As PostgreSQL escapes: what has a letter by its letter, the backslash and the delimiter by a backslash.
fn put_text(line: &mut BytesMut, value: &[u8], delimiter: u8) {
    for &byte in value {
        let letter = match byte {
            b'\x08' => b'b',
            b'\x0c' => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            b'\x0b' => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            byte => {
                line.put_u8(byte);
                continue;
            }
        };
        line.put_slice(&[b'\\', letter]);
    }
}

fn put_quoted(line: &mut BytesMut, value: &[u8], quote: u8, escape: u8) {
    line.put_u8(quote);
    for &byte in value {
        if byte == quote || byte == escape {
            line.put_u8(escape);
        }
        line.put_u8(byte);
    }
    line.put_u8(quote);
}

/// Signature, flags, length of the extension.
const BINARY_HEADER_BYTES: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: CopyFormat, quoted: Vec<bool>, rows: &[&[Option<&str>]]) -> Vec<u8> {
        let mut copy = CopyRows::new(CopyModel::default(), format, quoted);
        let mut out = BytesMut::new();
        for row in rows {
            originate::data_row(&mut copy.frames, row);
        }
        copy.turn(&mut out);
        out.to_vec()
    }

    fn data(lines: &[&[u8]]) -> Vec<u8> {
        let mut out = BytesMut::new();
        lines.iter().for_each(|line| put_data(&mut out, &mut BytesMut::from(*line)));
        out.to_vec()
    }

    #[test]
    fn text_escapes_what_could_be_mistaken() {
        let format = CopyFormat::Text { delimiter: b';', null: b"-".to_vec() };
        let row: &[Option<&str>] = &[Some("a;b\\"), None, Some("\t\n\u{1}"), Some("")];
        assert_eq!(written(format, vec![], &[row]), data(&[b"a\\;b\\\\;-;\\t\\n\x01;\n"]));
    }

    #[test]
    fn csv_quotes_where_it_must() {
        let csv = |quoted: Vec<bool>, row: &[Option<&str>]| {
            let format = CopyFormat::Csv { delimiter: b',', quote: b'"', escape: b'\\', null: b"x".to_vec() };
            written(format, quoted, &[row])
        };
        assert_eq!(csv(vec![false; 3], &[Some("a,b"), Some("x"), None]), data(&[b"\"a,b\",\"x\",x\n"]));
        assert_eq!(csv(vec![false, true], &[Some("q\"\\"), Some("y")]), data(&[b"\"q\\\"\\\\\",\"y\"\n"]));
        assert_eq!(csv(vec![false], &[Some("\\.")]), data(&[b"\"\\\\.\"\n"]));
        assert_eq!(csv(vec![false; 2], &[Some("\\."), Some("")]), data(&[b"\\.,\n"]));
    }
}
