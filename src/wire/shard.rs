//! The parts of messages from shards that the proxy reads: error fields, row descriptions, parameter values.

use super::{DecodeError, Reader};

/// Fields of an ErrorResponse or NoticeResponse: (code, value).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    fields: Vec<(u8, &'a [u8])>,
}

impl<'a> ErrorFields<'a> {
    pub fn get(&self, code: u8) -> Option<&'a [u8]> {
        self.fields.iter().find(|(field, _)| *field == code).map(|(_, value)| *value)
    }

    pub fn sqlstate(&self) -> Option<&'a [u8]> {
        self.get(b'C')
    }

    pub fn message(&self) -> String {
        String::from_utf8_lossy(self.get(b'M').unwrap_or_default()).into_owned()
    }

    pub fn is_fatal(&self) -> bool {
        matches!(self.get(b'V').or_else(|| self.get(b'S')), Some(b"FATAL" | b"PANIC"))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + '_ {
        self.fields.iter().copied()
    }
}

pub fn error_fields(body: &[u8]) -> Result<ErrorFields<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let mut fields = Vec::with_capacity(12);
    loop {
        match reader.u8()? {
            0 => return Ok(ErrorFields { fields }),
            code => fields.push((code, reader.cstr()?)),
        }
    }
}

/// (name, value) of a ParameterStatus.
pub fn parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut reader = Reader::new(body);
    Ok((reader.cstr()?, reader.cstr()?))
}

/// One column of a RowDescription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDescription {
    pub name: Vec<u8>,
    pub table_oid: u32,
    pub attnum: i16,
    pub type_oid: u32,
    pub type_size: i16,
    pub typmod: i32,
    /// 0 text, 1 binary.
    pub format: i16,
}

pub fn row_description(body: &[u8]) -> Result<Vec<FieldDescription>, DecodeError> {
    let mut reader = Reader::new(body);
    let count = reader.count()?;
    (0..count)
        .map(|_| {
            Ok(FieldDescription {
                name: reader.cstr()?.to_vec(),
                table_oid: reader.u32()?,
                attnum: reader.i16()?,
                type_oid: reader.u32()?,
                type_size: reader.i16()?,
                typmod: reader.i32()?,
                format: reader.i16()?,
            })
        })
        .collect()
}

/// What follows each name in the body of a RowDescription: table, column, type, its size, its modifier, format.
pub type ColumnNumbers = [u8; 18];

/// Changes a RowDescription where it lies. One that cannot be read stays as it is from there on.
pub fn for_each_column(body: &mut [u8], mut change: impl FnMut(&mut ColumnNumbers)) -> Result<(), DecodeError> {
    let (count, mut rest) = body.split_first_chunk_mut::<2>().ok_or(DecodeError::Truncated)?;
    for _ in 0..u16::from_be_bytes(*count) {
        let name_end = rest.iter().position(|&byte| byte == 0).ok_or(DecodeError::Truncated)?;
        let numbers = rest.get_mut(name_end + 1..).and_then(|numbers| numbers.split_first_chunk_mut());
        let (numbers, after) = numbers.ok_or(DecodeError::Truncated)?;
        change(numbers);
        rest = after;
    }
    Ok(())
}

/// The columns of a DataRow, in order; `None` is NULL.
pub fn data_row_columns(body: &[u8]) -> impl Iterator<Item = Result<Option<&[u8]>, DecodeError>> {
    let mut reader = Reader::new(body);
    let count = reader.count().unwrap_or(0);
    (0..count).map(move |_| reader.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_fields_are_found_by_code() {
        let fields = error_fields(b"SERROR\0VERROR\0C42P01\0Mno table\0\0").unwrap();
        assert_eq!(fields.sqlstate(), Some(&b"42P01"[..]));
        assert_eq!(fields.message(), "no table");
        assert!(!fields.is_fatal());
        assert!(error_fields(b"SERROR").is_err());
        assert!(error_fields(b"").is_err());
    }

    #[test]
    fn a_cut_row_description_is_an_error() {
        let body = b"\0\x01id\0\0\0\0\x01\0\x02\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0";
        let fields = row_description(body).unwrap();
        assert_eq!((fields[0].table_oid, fields[0].attnum, fields[0].type_oid), (1, 2, 20));
        for end in 0..body.len() {
            assert!(row_description(&body[..end]).is_err());
        }
    }

    #[test]
    fn data_rows_yield_nulls_and_stop_at_damage() {
        let row = b"\0\x02\xff\xff\xff\xff\0\0\0\x01x";
        let columns: Result<Vec<_>, _> = data_row_columns(row).collect();
        assert_eq!(columns.unwrap(), [None, Some(&b"x"[..])]);
        let damaged: Result<Vec<_>, _> = data_row_columns(&row[..8]).collect();
        assert!(damaged.is_err());
    }
}
