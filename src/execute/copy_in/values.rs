//! The values of the shard key in a row, as `CopyReadAttributesText` and `CopyReadAttributesCSV` of PostgreSQL read them.

use std::borrow::Cow;

use memchr::memchr2;
use smallvec::SmallVec;

use super::added::AddedCell;
use super::tuples;
use crate::sql::utility::copy_in::{CopyFormat, CopyIn, CopyKey, KeySource};

/// What a row has in one column of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'r> {
    Null,
    /// In the text form of the column's type, or in its binary form.
    Bytes(Cow<'r, [u8]>),
    /// The row has fewer columns.
    Missing,
}

/// The values of the key, in its order. `row`: the client's, without what ends it. `added`: what is put before it.
pub fn values<'r>(copy: &CopyIn, row: &'r [u8], added: &'r [AddedCell]) -> SmallVec<[Value<'r>; 2]> {
    copy.key.iter().map(|key| value(&copy.format, key, row, added)).collect()
}

fn value<'r>(format: &CopyFormat, key: &CopyKey, row: &'r [u8], added: &'r [AddedCell]) -> Value<'r> {
    let position = match key.source {
        KeySource::Row(position) => position,
        KeySource::Added(index) => {
            let cell = added.get(index).and_then(Option::as_deref);
            return cell.map_or(Value::Null, |cell| Value::Bytes(Cow::Borrowed(cell)));
        }
        KeySource::Null => return Value::Null,
    };
    match format {
        CopyFormat::Text { delimiter, null } => match text_field(row, *delimiter, position) {
            None => Value::Missing,
            Some(field) if field == null.as_slice() => Value::Null,
            Some(field) => Value::Bytes(unescaped(field)),
        },
        CopyFormat::Csv { delimiter, quote, escape, null } => {
            let field = Csv { delimiter: *delimiter, quote: *quote, escape: *escape }.field(row, position);
            match field {
                None => Value::Missing,
                Some(Field { is_quoted: false, value }) if *value == **null && !key.is_forced_not_null => Value::Null,
                Some(Field { value, .. }) if key.is_forced_null && *value == **null => Value::Null,
                Some(Field { value, .. }) => Value::Bytes(value),
            }
        }
        CopyFormat::Binary => match tuples::field(row, position) {
            None => Value::Missing,
            Some(None) => Value::Null,
            Some(Some(bytes)) => Value::Bytes(Cow::Borrowed(bytes)),
        },
    }
}

fn text_field(row: &[u8], delimiter: u8, position: usize) -> Option<&[u8]> {
    let (mut start, mut at, mut index) = (0, 0, 0);
    while let Some(offset) = memchr2(delimiter, b'\\', row.get(at..).unwrap_or_default()) {
        at += offset;
        if row.get(at) == Some(&b'\\') {
            at += 2;
            continue;
        }
        if index == position {
            return row.get(start..at);
        }
        at += 1;
        (start, index) = (at, index + 1);
    }
    if index == position { row.get(start..) } else { None }
}

/// Without backslashes.
fn unescaped(field: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', field).is_none() {
        return Cow::Borrowed(field);
    }
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some(escaped) = bytes.next() else { break };
        out.push(match escaped {
            b'0'..=b'7' => {
                let mut value = u32::from(escaped - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|byte| matches!(byte, b'0'..=b'7')) else { break };
                    value = value * 8 + u32::from(digit - b'0');
                }
                u8::try_from(value & 0xff).unwrap_or(0)
            }
            b'x' => match bytes.next_if(u8::is_ascii_hexdigit) {
                None => b'x',
                Some(first) => {
                    let second = bytes.next_if(u8::is_ascii_hexdigit);
                    second.map_or(hex(first), |second| hex(first) * 16 + hex(second))
                }
            },
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            other => other,
        });
    }
    Cow::Owned(out)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10) & 0x0f,
    }
}

pub(super) struct Csv {
    pub delimiter: u8,
    pub quote: u8,
    pub escape: u8,
}

struct Field<'r> {
    value: Cow<'r, [u8]>,
    is_quoted: bool,
}

impl Csv {
    /// Where the field at this position begins.
    pub fn start(&self, row: &[u8], position: usize) -> Option<usize> {
        let mut start = 0;
        for _ in 0..position {
            start += self.find(row.get(start..)?, 0)?.1?;
        }
        Some(start)
    }

    fn field<'r>(&self, row: &'r [u8], position: usize) -> Option<Field<'r>> {
        self.find(row, position).map(|(field, _)| field)
    }

    /// A field, and where the one after it begins.
    fn find<'r>(&self, row: &'r [u8], position: usize) -> Option<(Field<'r>, Option<usize>)> {
        let (mut start, mut at, mut index) = (0, 0, 0);
        let (mut is_quoted, mut is_inside) = (false, false);
        loop {
            let end = match row.get(at) {
                None => Some(None),
                Some(byte) if is_inside => {
                    match row.get(at + 1) {
                        Some(next) if *byte == self.escape && (*next == self.escape || *next == self.quote) => at += 1,
                        Some(_) | None => is_inside = *byte != self.quote,
                    }
                    None
                }
                Some(byte) if *byte == self.delimiter => Some(Some(at + 1)),
                Some(byte) => {
                    is_inside = *byte == self.quote;
                    is_quoted |= is_inside;
                    None
                }
            };
            match end {
                None => at += 1,
                Some(next) => {
                    if index == position {
                        let raw = row.get(start..at)?;
                        let value = if is_quoted { Cow::Owned(self.unquoted(raw)) } else { Cow::Borrowed(raw) };
                        return Some((Field { value, is_quoted }, next));
                    }
                    at = next?;
                    (start, index, is_quoted) = (at, index + 1, false);
                }
            }
        }
    }

    fn unquoted(&self, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(raw.len());
        let mut is_inside = false;
        let mut bytes = raw.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            if !is_inside {
                is_inside = byte == self.quote;
                if !is_inside {
                    out.push(byte);
                }
                continue;
            }
            let escaped =
                (byte == self.escape).then(|| bytes.next_if(|next| *next == self.escape || *next == self.quote)).flatten();
            match escaped {
                Some(escaped) => out.push(escaped),
                None if byte == self.quote => is_inside = false,
                None => out.push(byte),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(row: &str, position: usize) -> Option<Vec<u8>> {
        text_field(row.as_bytes(), b'\t', position).map(|field| unescaped(field).into_owned())
    }

    #[test]
    fn fields_of_text_are_told_apart_and_unescaped() {
        assert_eq!(text("a\tb\tc", 1), Some(b"b".to_vec()));
        assert_eq!(text("a\\\tb\tc", 1), Some(b"c".to_vec()));
        assert_eq!(text("a\\\tb\tc", 0), Some(b"a\tb".to_vec()));
        assert_eq!(text("", 0), Some(Vec::new()));
        assert_eq!(text("a", 1), None);
        assert_eq!(text("\\x41\\101\\n\\q\\x\\", 0), Some(b"AA\nqx".to_vec()));
    }

    #[test]
    fn fields_of_csv_are_told_apart_and_unquoted() {
        let csv = Csv { delimiter: b',', quote: b'"', escape: b'"' };
        let field =
            |row: &str, position| csv.field(row.as_bytes(), position).map(|field| (field.value.into_owned(), field.is_quoted));
        assert_eq!(field("a,\"b,\"\"c\",d", 1), Some((b"b,\"c".to_vec(), true)));
        assert_eq!(field("a,\"b,\"\"c\",d", 2), Some((b"d".to_vec(), false)));
        assert_eq!(field("a\"x,y\"b,c", 0), Some((b"ax,yb".to_vec(), true)));
        assert_eq!(field(",", 1), Some((Vec::new(), false)));
        assert_eq!(field("\"\"", 0), Some((Vec::new(), true)));
        assert_eq!(field("a", 1), None);
        let escaped = Csv { delimiter: b';', quote: b'\'', escape: b'\\' };
        let field = |row: &str, position| escaped.field(row.as_bytes(), position).map(|field| field.value.into_owned());
        assert_eq!(field("'a\\';\\\\b\\c';d", 0), Some(b"a';\\b\\c".to_vec()));
        assert_eq!(field("'a\\';\\\\b\\c';d", 1), Some(b"d".to_vec()));
    }
}
