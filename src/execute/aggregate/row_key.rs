//! What tells rows apart: the values of some columns as bytes that are equal where PostgreSQL finds the values equal.
//!
//! Most types have one form for each value; of the others (numeric with its scale, padded text, zeros of both signs) a form of
//! ours is taken. In text, values of timestamptz are told apart only in ISO form, which names the offset, and floats not at all:
//! how many of their digits are printed is a setting.

use super::{CombineError, inexact};
use crate::execute::numeric::Numeric;
use crate::execute::sort_key::{SortValue, decode, without_blanks};
use crate::shard_key::Format;
use crate::shard_key::oid::{
    BOOL, BPCHAR, BYTEA, CHAR, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, NAME, NUMERIC, OID, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ,
    UUID, VARCHAR,
};
use crate::sql::analysis::RowKeyColumn;
use crate::wire::FieldDescription;

/// The key columns of one statement's rows.
#[derive(Debug)]
pub struct RowKey {
    columns: Vec<KeyColumn>,
}

#[derive(Debug)]
struct KeyColumn {
    column: usize,
    form: Form,
    type_oid: u32,
    format: Format,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// The value's own bytes.
    Same,
    /// Without trailing blanks.
    Trimmed,
    Numeric,
    /// In binary.
    Float,
    /// In text, if it is ISO.
    Instant,
}

impl RowKey {
    pub fn new(keys: &[RowKeyColumn], columns: &[FieldDescription]) -> Result<Self, CombineError> {
        let column = |key: &RowKeyColumn| {
            let described = columns.get(key.column).ok_or_else(|| inexact("a key column is missing"))?;
            let format = if described.format == 0 { Format::Text } else { Format::Binary };
            let form = form(described.type_oid, format, key)
                .ok_or_else(|| inexact(format!("equality of column {} is not known to the proxy", key.column + 1)))?;
            Ok(KeyColumn { column: key.column, form, type_oid: described.type_oid, format })
        };
        Ok(Self { columns: keys.iter().map(column).collect::<Result<_, CombineError>>()? })
    }

    /// Writes the key of a row.
    pub fn write(&self, row: &[Option<&[u8]>], key: &mut Vec<u8>) -> Result<(), CombineError> {
        key.clear();
        for column in &self.columns {
            let value = row.get(column.column).copied().ok_or_else(|| inexact("a row is too short"))?;
            let Some(bytes) = value else {
                key.push(0);
                continue;
            };
            key.push(1);
            let at = key.len();
            key.extend_from_slice(&[0; 4]);
            column
                .write_value(bytes, key)
                .ok_or_else(|| inexact(format!("a value of column {} cannot be read", column.column + 1)))?;
            let length = u32::try_from(key.len() - at - 4).map_err(|_| inexact("a value is too long"))?;
            if let Some(field) = key.get_mut(at..at + 4) {
                field.copy_from_slice(&length.to_be_bytes());
            }
        }
        Ok(())
    }
}

impl KeyColumn {
    fn write_value(&self, bytes: &[u8], key: &mut Vec<u8>) -> Option<()> {
        match self.form {
            Form::Same => key.extend_from_slice(bytes),
            Form::Trimmed => key.extend_from_slice(without_blanks(bytes)),
            Form::Numeric => {
                let SortValue::Numeric(value) = decode(self.type_oid, self.format, false, Some(bytes))? else { return None };
                write_numeric(&value, key);
            }
            Form::Float => {
                let SortValue::Float(value) = decode(self.type_oid, self.format, false, Some(bytes))? else { return None };
                let value = if value.is_nan() { f64::NAN } else { value };
                key.extend_from_slice(&value.to_be_bytes());
            }
            Form::Instant => {
                decode(self.type_oid, self.format, false, Some(bytes))?;
                key.extend_from_slice(bytes);
            }
        }
        Some(())
    }
}

fn write_numeric(value: &Numeric, key: &mut Vec<u8>) {
    match value {
        Numeric::NegativeInfinity => key.push(b'-'),
        Numeric::Infinity => key.push(b'+'),
        Numeric::NaN => key.push(b'n'),
        Numeric::Finite(finite) => {
            key.push(if finite.is_negative && !finite.digits.is_empty() { 1 } else { 0 });
            key.extend_from_slice(&finite.weight.to_be_bytes());
            finite.digits.iter().for_each(|digit| key.extend_from_slice(&digit.to_be_bytes()));
        }
    }
}

fn form(type_oid: u32, format: Format, key: &RowKeyColumn) -> Option<Form> {
    Some(match (type_oid, format) {
        (BOOL | BYTEA | CHAR | NAME | INT2 | INT4 | INT8 | OID | DATE | TIME | TIMESTAMP | UUID, _) => Form::Same,
        (TEXT | VARCHAR, _) if key.is_deterministic => Form::Same,
        (BPCHAR, _) if key.is_deterministic => Form::Trimmed,
        (NUMERIC, _) => Form::Numeric,
        (FLOAT4 | FLOAT8, Format::Binary) => Form::Float,
        (TIMESTAMPTZ, Format::Binary) => Form::Same,
        (TIMESTAMPTZ, Format::Text) => Form::Instant,
        _ if key.is_enum => Form::Same,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(type_oid: u32, format: i16) -> FieldDescription {
        FieldDescription { name: Vec::new(), table_oid: 0, attnum: 0, type_oid, type_size: -1, typmod: -1, format }
    }

    fn key(type_oid: u32, format: i16, value: Option<&[u8]>) -> Option<Vec<u8>> {
        let column = RowKeyColumn { column: 0, is_deterministic: true, is_enum: false };
        let row_key = RowKey::new(&[column], &[described(type_oid, format)]).ok()?;
        let mut out = Vec::new();
        row_key.write(&[value], &mut out).ok()?;
        Some(out)
    }

    #[test]
    fn equal_values_have_equal_keys_whatever_they_look_like() {
        for (type_oid, format, a, b) in [
            (NUMERIC, 0, &b"1.0"[..], &b"1.00"[..]),
            (NUMERIC, 0, b"0", b"-0.00"),
            (BPCHAR, 0, b"a  ", b"a"),
            (FLOAT8, 1, &(-0.0_f64).to_be_bytes(), &0.0_f64.to_be_bytes()),
        ] {
            assert_eq!(key(type_oid, format, Some(a)), key(type_oid, format, Some(b)));
            assert!(key(type_oid, format, Some(a)).is_some());
        }
    }

    #[test]
    fn different_values_have_different_keys() {
        for (type_oid, format, a, b) in [
            (NUMERIC, 0, Some(&b"1.0"[..]), Some(&b"10"[..])),
            (NUMERIC, 0, Some(b"1"), Some(b"-1")),
            (TEXT, 0, Some(b"a"), Some(b"a ")),
            (TEXT, 0, Some(b""), None),
            (BYTEA, 0, Some(b"\\x00"), Some(b"\\x0000")),
        ] {
            assert_ne!(key(type_oid, format, a), key(type_oid, format, b));
        }
    }

    #[test]
    fn what_is_not_known_to_be_told_apart_rightly_is_refused() {
        assert_eq!(key(FLOAT8, 0, Some(b"0.3")), None, "digits depend on a setting");
        assert_eq!(key(TIMESTAMPTZ, 0, Some(b"Sat Nov 21 18:00:00 2026 IST")), None);
        assert_eq!(key(3802, 0, Some(b"{}")), None, "jsonb");
        let column = RowKeyColumn { column: 0, is_deterministic: false, is_enum: false };
        assert!(RowKey::new(&[column], &[described(TEXT, 0)]).is_err(), "a nondeterministic collation");
        assert!(RowKey::new(&[RowKeyColumn { is_enum: true, ..column }], &[described(20_000, 0)]).is_ok());
    }
}
