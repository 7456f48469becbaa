//! Values of ORDER BY columns, decoded just far enough to be compared as PostgreSQL compares them.
//!
//! Types whose order is not listed here are never merged: [`decode`] says so, and the statement fails rather than come out in a
//! wrong order.

use std::cmp::Ordering;

use super::numeric::Numeric;
use crate::shard_key::oid::{
    BOOL, BPCHAR, BYTEA, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, NAME, NUMERIC, OID, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ, UUID,
    VARCHAR,
};
use crate::shard_key::{Conversion, Format, KeyDatum, KeyType};
use crate::sql::analysis::SortKey;

/// One column's value of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum SortValue {
    Null,
    Int(i64),
    Float(f64),
    Numeric(Numeric),
    Bytes(Vec<u8>),
    Datum(KeyDatum),
}

/// Decodes a value of a type whose order is known; `None` for any other type, or bytes that do not fit it.
pub fn decode(type_oid: u32, format: Format, is_bytewise: bool, value: Option<&[u8]>) -> Option<SortValue> {
    // Or rows would be on their way before the first value that cannot be put in order is met.
    let Some(bytes) = value else { return is_ordered(type_oid, is_bytewise).then_some(SortValue::Null) };
    let datum = |key_type: KeyType| match (KeyDatum::convert(key_type, type_oid, format, bytes), format) {
        (Conversion::Exactly(datum), _) => Some(SortValue::Datum(datum)),
        (Conversion::NoValue | Conversion::Unknown, Format::Text) => KeyDatum::printed(key_type, bytes).map(SortValue::Datum),
        (Conversion::NoValue | Conversion::Unknown, Format::Binary) => None,
    };
    match (type_oid, format) {
        (INT2 | INT4 | INT8 | OID, Format::Text) => std::str::from_utf8(bytes).ok()?.parse().ok().map(SortValue::Int),
        (INT2, Format::Binary) => Some(SortValue::Int(i64::from(i16::from_be_bytes(bytes.try_into().ok()?)))),
        (INT4, Format::Binary) => Some(SortValue::Int(i64::from(i32::from_be_bytes(bytes.try_into().ok()?)))),
        (OID, Format::Binary) => Some(SortValue::Int(i64::from(u32::from_be_bytes(bytes.try_into().ok()?)))),
        (INT8, Format::Binary) => Some(SortValue::Int(i64::from_be_bytes(bytes.try_into().ok()?))),
        (FLOAT4 | FLOAT8, Format::Text) => float(std::str::from_utf8(bytes).ok()?.parse().ok()?),
        (FLOAT4, Format::Binary) => float(f64::from(f32::from_be_bytes(bytes.try_into().ok()?))),
        (FLOAT8, Format::Binary) => float(f64::from_be_bytes(bytes.try_into().ok()?)),
        (NUMERIC, Format::Text) => Numeric::from_text(bytes).map(SortValue::Numeric),
        (NUMERIC, Format::Binary) => Numeric::from_binary(bytes).ok().map(SortValue::Numeric),
        (BOOL, Format::Text) => Some(SortValue::Int(i64::from(bytes == b"t"))),
        (BOOL, Format::Binary) => Some(SortValue::Int(i64::from(bytes == [1]))),
        (DATE, _) => datum(KeyType::Date),
        (TIMESTAMP, _) => datum(KeyType::Timestamp),
        (TIMESTAMPTZ, _) => datum(KeyType::Timestamptz),
        (UUID, _) => datum(KeyType::Uuid),
        // `HH:MM:SS` and a fraction without trailing zeros; microseconds in binary, never negative.
        (TIME, _) => Some(SortValue::Bytes(bytes.to_vec())),
        // `\x` and two digits a byte, or the bytes themselves: either way bytewise.
        (BYTEA, _) => Some(SortValue::Bytes(bytes.to_vec())),
        (TEXT | VARCHAR | BPCHAR | NAME, _) if is_bytewise => Some(SortValue::Bytes(compared_text(type_oid, bytes).to_vec())),
        _ => None,
    }
}

/// Whether values of this type can be put in order at all.
pub fn is_ordered(type_oid: u32, is_bytewise: bool) -> bool {
    match type_oid {
        INT2 | INT4 | INT8 | OID | FLOAT4 | FLOAT8 | NUMERIC | BOOL | DATE | TIME | TIMESTAMP | TIMESTAMPTZ | UUID | BYTEA => true,
        TEXT | VARCHAR | BPCHAR | NAME => is_bytewise,
        _ => false,
    }
}

/// What the session's settings do to values that are sent: as they are sent they may sort in another order, or look alike where
/// they are not equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printing {
    /// Floats in text are cut to fewer digits than they have.
    pub cuts_floats: bool,
    /// `bytea_output = escape`.
    pub escapes_bytes: bool,
    /// Text is in another encoding than the servers'.
    pub recodes_text: bool,
}

impl Printing {
    /// Values of this type do not show how they sort. Text that PostgreSQL ranks does not have to.
    pub fn hides_order(self, type_oid: u32, format: Format, is_ranked: bool) -> bool {
        match type_oid {
            FLOAT4 | FLOAT8 => self.cuts_floats && format == Format::Text,
            BYTEA => self.escapes_bytes && format == Format::Text,
            TEXT | VARCHAR | BPCHAR | NAME => self.recodes_text && !is_ranked,
            _ => false,
        }
    }
}

pub fn is_text(type_oid: u32) -> bool {
    matches!(type_oid, TEXT | VARCHAR | BPCHAR | NAME)
}

/// The part of a text that counts where it is compared.
pub fn compared_text(type_oid: u32, bytes: &[u8]) -> &[u8] {
    if type_oid == BPCHAR { without_blanks(bytes) } else { bytes }
}

/// -0 equals 0 for PostgreSQL.
#[expect(clippy::unnecessary_wraps, reason = "an arm of decode")]
fn float(value: f64) -> Option<SortValue> {
    Some(SortValue::Float(if value == 0.0 { 0.0 } else { value }))
}

/// Blanks at the end of a char(n) do not count; other white space does.
pub fn without_blanks(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}

/// Compares two rows' values as ORDER BY does.
pub fn compare(keys: &[SortKey], a: &[SortValue], b: &[SortValue]) -> Ordering {
    for ((key, a), b) in keys.iter().zip(a).zip(b) {
        let ordering = match (a, b) {
            (SortValue::Null, SortValue::Null) => Ordering::Equal,
            (SortValue::Null, _) => nulls(key.is_nulls_first),
            (_, SortValue::Null) => nulls(key.is_nulls_first).reverse(),
            _ => {
                let ordering = compare_values(a, b);
                if key.is_descending { ordering.reverse() } else { ordering }
            }
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    Ordering::Equal
}

fn nulls(is_first: bool) -> Ordering {
    if is_first { Ordering::Less } else { Ordering::Greater }
}

pub fn compare_values(a: &SortValue, b: &SortValue) -> Ordering {
    match (a, b) {
        (SortValue::Int(a), SortValue::Int(b)) => a.cmp(b),
        // NaN is above everything and equal to itself.
        (SortValue::Float(a), SortValue::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
        (SortValue::Numeric(a), SortValue::Numeric(b)) => a.cmp(b),
        (SortValue::Bytes(a), SortValue::Bytes(b)) => a.cmp(b),
        (SortValue::Datum(a), SortValue::Datum(b)) => a.cmp(b),
        // One column has one type on every shard.
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::analysis::TextOrder;

    fn key(is_descending: bool, is_nulls_first: bool) -> SortKey {
        SortKey { column: 0, is_descending, is_nulls_first, text: TextOrder::default() }
    }

    #[test]
    fn nulls_go_where_they_were_asked_to_go_whatever_the_direction() {
        let (null, one) = ([SortValue::Null], [SortValue::Int(1)]);
        assert_eq!(compare(&[key(false, false)], &null, &one), Ordering::Greater);
        assert_eq!(compare(&[key(true, true)], &null, &one), Ordering::Less);
        assert_eq!(compare(&[key(true, false)], &null, &one), Ordering::Greater);
    }

    #[test]
    fn floats_put_nan_last_and_do_not_tell_zeros_apart() {
        let value = |text: &str| vec![decode(FLOAT8, Format::Text, false, Some(text.as_bytes())).unwrap()];
        let keys = [key(false, false)];
        assert_eq!(compare(&keys, &value("NaN"), &value("Infinity")), Ordering::Greater);
        assert_eq!(compare(&keys, &value("NaN"), &value("NaN")), Ordering::Equal);
        assert_eq!(compare(&keys, &value("-0"), &value("0")), Ordering::Equal);
        assert_eq!(compare(&keys, &value("-1e300"), &value("1e-300")), Ordering::Less);
    }

    #[test]
    fn days_of_far_years_have_their_place() {
        let value = |type_oid: u32, text: &str| vec![decode(type_oid, Format::Text, false, Some(text.as_bytes())).unwrap()];
        let keys = [key(false, false)];
        for (type_oid, texts) in [
            (DATE, ["-infinity", "4713-11-24 BC", "0044-03-15 BC", "0001-01-01", "20044-02-29", "5874897-12-31", "infinity"]),
            (
                TIMESTAMP,
                [
                    "0044-03-14 23:59:59.5 BC",
                    "0044-03-15 00:00:00 BC",
                    "0001-12-31 00:00:00 BC",
                    "0001-01-01 00:00:00",
                    "9999-12-31 23:59:59",
                    "10000-01-01 00:00:00",
                    "294276-12-31 23:59:59",
                ],
            ),
            (
                TIMESTAMPTZ,
                [
                    "0044-03-15 00:00:00+00:53:28 BC",
                    "0044-03-15 00:00:00+00 BC",
                    "2000-01-01 00:00:00+00",
                    "9999-12-31 23:00:00-02",
                    "10000-01-01 02:00:00+00",
                    "20044-02-29 00:00:00+00",
                    "infinity",
                ],
            ),
        ] {
            for (low, high) in texts.iter().zip(texts.iter().skip(1)) {
                assert_eq!(compare(&keys, &value(type_oid, low), &value(type_oid, high)), Ordering::Less, "{low}, {high}");
            }
        }
        for text in ["5874898-01-01", "20044-02-30", "20043-02-29", "01-15-20044", "20044-01-01 AD"] {
            assert_eq!(decode(DATE, Format::Text, false, Some(text.as_bytes())), None, "{text}");
        }
    }

    #[test]
    fn types_of_unknown_order_are_refused() {
        assert_eq!(decode(TEXT, Format::Text, false, Some(b"a")), None, "a linguistic collation");
        assert!(!is_ordered(NAME, false) && is_ordered(NAME, true), "a name may have another collation than C");
        assert_eq!(decode(3802, Format::Text, true, Some(b"{}")), None, "jsonb");
        assert_eq!(decode(3802, Format::Text, true, None), None, "a NULL of such a type");
        assert_eq!(decode(INT8, Format::Text, false, None), Some(SortValue::Null));
        assert_eq!(decode(INT8, Format::Binary, false, Some(b"123")), None, "cut short");
    }
}
