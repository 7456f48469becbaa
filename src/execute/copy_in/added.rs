//! Values that are put before those of a row, in the format of the data.
//!
//! They read back as they are whatever the options say: in text what has a meaning is escaped, in CSV each value is quoted. A shard
//! that tells a line in an error tells them too, and there they are taken out again.

use super::values::Csv;
use crate::error::{PgError, SqlState};
use crate::shard_key::oid;
use crate::sql::utility::copy_in::{CopyFormat, CopyIn};

/// In the format of the data; `None`: NULL.
pub type AddedCell = Option<Vec<u8>>;

/// A number in the format of the data, for a column of this type.
pub fn number_cell(format: &CopyFormat, number: i64, type_oid: u32) -> Result<AddedCell, PgError> {
    let out_of_range = |_| PgError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value \"{number}\" is out of range"));
    Ok(Some(match (format, type_oid) {
        (CopyFormat::Text { .. } | CopyFormat::Csv { .. }, _) => number.to_string().into_bytes(),
        (CopyFormat::Binary, oid::INT2) => i16::try_from(number).map_err(out_of_range)?.to_be_bytes().to_vec(),
        (CopyFormat::Binary, oid::INT4) => i32::try_from(number).map_err(out_of_range)?.to_be_bytes().to_vec(),
        (CopyFormat::Binary, oid::INT8) => number.to_be_bytes().to_vec(),
        (CopyFormat::Binary, _) => return Err(not_binary("A number is drawn for a column that is no integer.")),
    }))
}

/// A random uuid (version 4) of these bytes, in the format of the data.
pub fn uuid_cell(format: &CopyFormat, random: u128) -> Vec<u8> {
    // The version and the variant have places of their own.
    let uuid = (random & !((0xf << 76) | (0x3 << 62))) | (0x4 << 76) | (0x2 << 62);
    match format {
        CopyFormat::Binary => uuid.to_be_bytes().to_vec(),
        CopyFormat::Text { .. } | CopyFormat::Csv { .. } => {
            let digits = format!("{uuid:032x}");
            let part = |range| digits.get(range).unwrap_or_default();
            [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-").into_bytes()
        }
    }
}

pub fn not_binary(detail: &str) -> PgError {
    PgError::unsupported(
        "COPY in binary format is not supported for this table",
        detail,
        "Copy in text format, or give the values of all columns.",
    )
}

/// The row with the cells before it. Errors: a tuple of the binary format that has another number of fields than the statement
/// says, of which a shard would name its own.
pub fn put_row(copy: &CopyIn, cells: &[AddedCell], row: &[u8], out: &mut Vec<u8>) -> Result<(), PgError> {
    if copy.format == CopyFormat::Binary {
        return put_tuple(copy.column_count, cells, row, out);
    }
    for cell in cells {
        put_cell(&copy.format, cell.as_deref(), out);
    }
    out.extend_from_slice(row);
    Ok(())
}

/// The first line, which names the columns, with the added ones.
pub fn put_header(copy: &CopyIn, line: &[u8], out: &mut Vec<u8>) {
    for column in &copy.added {
        put_cell(&copy.format, Some(column.name.as_bytes()), out);
    }
    out.extend_from_slice(line);
}

fn put_cell(format: &CopyFormat, cell: Option<&[u8]>, out: &mut Vec<u8>) {
    match (format, cell) {
        (CopyFormat::Text { delimiter, null } | CopyFormat::Csv { delimiter, null, .. }, None) => {
            out.extend_from_slice(null);
            out.push(*delimiter);
        }
        (CopyFormat::Text { delimiter, null }, Some(cell)) => {
            let start = out.len();
            for byte in cell {
                match byte {
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    b'\\' => out.extend_from_slice(b"\\\\"),
                    byte if byte == delimiter => out.extend_from_slice(&[b'\\', *byte]),
                    byte => out.push(*byte),
                }
            }
            if let (Some(first), true) = (cell.first(), out.get(start..) == Some(null)) {
                // The same in other letters.
                let escaped = format!("\\{first:03o}");
                out.splice(start..=start, escaped.into_bytes());
            }
            out.push(*delimiter);
        }
        (CopyFormat::Csv { delimiter, quote, escape, .. }, Some(cell)) => {
            out.push(*quote);
            for byte in cell {
                if byte == quote || byte == escape {
                    out.push(*escape);
                }
                out.push(*byte);
            }
            out.extend_from_slice(&[*quote, *delimiter]);
        }
        (CopyFormat::Binary, _) => {}
    }
}

fn put_tuple(column_count: usize, cells: &[AddedCell], tuple: &[u8], out: &mut Vec<u8>) -> Result<(), PgError> {
    let Some((count, fields)) = tuple.split_first_chunk::<2>() else { return Err(PgError::internal("a tuple without a count")) };
    let count = i16::from_be_bytes(*count);
    if usize::try_from(count) != Ok(column_count) {
        let message = format!("row field count is {count}, expected {column_count}");
        return Err(PgError::new(SqlState::BAD_COPY_FILE_FORMAT, message));
    }
    let too_many = || PgError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too many columns to copy");
    let total = i16::try_from(column_count + cells.len()).map_err(|_| too_many())?;
    out.extend_from_slice(&total.to_be_bytes());
    for cell in cells {
        match cell {
            None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(cell) => {
                out.extend_from_slice(&i32::try_from(cell.len()).map_err(|_| too_many())?.to_be_bytes());
                out.extend_from_slice(cell);
            }
        }
    }
    out.extend_from_slice(fields);
    Ok(())
}

/// What a shard shows of a line, without the added cells before it.
pub fn without_cells<'l>(copy: &CopyIn, shown: &'l str) -> &'l str {
    let start = match &copy.format {
        CopyFormat::Text { delimiter, .. } => text_start(shown.as_bytes(), *delimiter, copy.added.len()),
        CopyFormat::Csv { delimiter, quote, escape, .. } => {
            Csv { delimiter: *delimiter, quote: *quote, escape: *escape }.start(shown.as_bytes(), copy.added.len())
        }
        CopyFormat::Binary => None,
    };
    start.and_then(|start| shown.get(start..)).unwrap_or(shown)
}

fn text_start(row: &[u8], delimiter: u8, position: usize) -> Option<usize> {
    let (mut at, mut index) = (0, 0);
    while index < position {
        match row.get(at)? {
            b'\\' => at += 2,
            byte => {
                index += usize::from(*byte == delimiter);
                at += 1;
            }
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::super::values::{Value, values};
    use super::*;
    use crate::shard_key::KeyType;
    use crate::sql::utility::copy_in::{AddedColumn, AddedValue, CopyKey, KeySource};

    fn copy(format: CopyFormat) -> CopyIn {
        let column = |name: &str| AddedColumn {
            name: name.to_owned(),
            type_oid: oid::INT8,
            value: AddedValue::Number(("public".to_owned(), "s".to_owned())),
        };
        let key = |position| CopyKey {
            source: KeySource::Row(position),
            column_type: KeyType::Int8,
            function: None,
            typmod: -1,
            is_not_null: true,
            is_forced_not_null: false,
            is_forced_null: false,
        };
        CopyIn {
            table: "t".to_owned(),
            qualified: "t".to_owned(),
            format,
            has_header: false,
            encoding: None,
            key: (0..4).map(key).collect(),
            column_count: 2,
            added: vec![column("a"), column("b")],
            fires_per_statement: false,
            skips_bad_rows: false,
        }
    }

    /// The row with the cells, read as PostgreSQL reads it, and what is shown of it.
    fn read(format: CopyFormat, cells: &[Option<&str>], row: &str) -> (Vec<Option<String>>, String) {
        let copy = copy(format);
        let cells: Vec<AddedCell> = cells.iter().map(|cell| cell.map(|cell| cell.as_bytes().to_vec())).collect();
        let mut line = Vec::new();
        put_row(&copy, &cells, row.as_bytes(), &mut line).expect("a row");
        let value = |value: Value<'_>| match value {
            Value::Bytes(bytes) => Some(String::from_utf8(bytes.into_owned()).expect("UTF-8")),
            Value::Null => None,
            Value::Missing => Some("missing".to_owned()),
        };
        let shown = String::from_utf8(line.clone()).expect("UTF-8");
        (values(&copy, &line, &[]).into_iter().map(value).collect(), without_cells(&copy, &shown).to_owned())
    }

    #[test]
    fn cells_read_back_as_they_are() {
        let some = |values: &[&str]| values.iter().map(|value| Some((*value).to_owned())).collect::<Vec<_>>();
        let text = |delimiter, null: &str| CopyFormat::Text { delimiter, null: null.as_bytes().to_vec() };
        let csv = |delimiter, quote, escape| CopyFormat::Csv { delimiter, quote, escape, null: b"7".to_vec() };
        for format in [text(b'\t', "\\N"), text(b'-', "7"), text(b':', ""), csv(b',', b'"', b'"'), csv(b'7', b'1', b'\\')] {
            let delimiter = match &format {
                CopyFormat::Text { delimiter, .. } | CopyFormat::Csv { delimiter, .. } => char::from(*delimiter),
                CopyFormat::Binary => unreachable!(),
            };
            let row = format!("x{delimiter}y");
            assert_eq!(
                read(format.clone(), &[Some("7"), Some("2024-01-02 03:04:05+00\\\"")], &row),
                (some(&["7", "2024-01-02 03:04:05+00\\\"", "x", "y"]), row),
                "{format:?}"
            );
        }
        let (values, shown) = read(text(b'\t', "\\N"), &[None, Some("a\nb")], "x");
        assert_eq!(values, [None, Some("a\nb".to_owned()), Some("x".to_owned()), Some("missing".to_owned())]);
        assert_eq!(shown, "x");
    }

    #[test]
    fn tuples_get_more_fields_when_they_have_as_many_as_they_should() {
        let copy = copy(CopyFormat::Binary);
        let cells = [number_cell(&copy.format, -2, oid::INT8).expect("a number"), None];
        let tuple = [&2_i16.to_be_bytes()[..], &1_i32.to_be_bytes(), b"x", &(-1_i32).to_be_bytes()].concat();
        let mut out = Vec::new();
        put_row(&copy, &cells, &tuple, &mut out).expect("a tuple");
        let fields = [&8_i32.to_be_bytes()[..], &(-2_i64).to_be_bytes(), &(-1_i32).to_be_bytes()].concat();
        assert_eq!(out, [&4_i16.to_be_bytes()[..], &fields, tuple.get(2..).expect("fields")].concat());
        let error = put_row(&copy, &cells, &3_i16.to_be_bytes(), &mut out).expect_err("another number of fields");
        assert_eq!(error.message, "row field count is 3, expected 2");
        assert!(number_cell(&copy.format, 40_000, oid::INT2).is_err());
    }
}
