//! A bound parameter of the extended protocol as an argument of a call.

use super::Argument;
use crate::error::{PgError, SqlState};
use crate::shard_key::{Conversion, Format, KeyDatum, KeyType, Oid, oid};

const TEXT_ARRAYS: [Oid; 2] = [1009, 1015];

/// `type_oid`: what the client declared for the parameter, else what [`super::parameter_type`] says.
pub fn argument_from_wire(type_oid: Oid, format: Format, bytes: Option<&[u8]>) -> Result<Argument, PgError> {
    let Some(bytes) = bytes else { return Ok(Argument::Null) };
    match format {
        Format::Text => text(bytes).map(Argument::Text),
        Format::Binary => binary(type_oid, bytes),
    }
}

fn binary(type_oid: Oid, bytes: &[u8]) -> Result<Argument, PgError> {
    let number = |printed: Option<String>| printed.map(Argument::Text).ok_or_else(malformed);
    match type_oid {
        oid::INT2 => number(bytes.try_into().ok().map(|bytes| i16::from_be_bytes(bytes).to_string())),
        oid::INT4 => number(bytes.try_into().ok().map(|bytes| i32::from_be_bytes(bytes).to_string())),
        oid::INT8 => number(bytes.try_into().ok().map(|bytes| i64::from_be_bytes(bytes).to_string())),
        oid::FLOAT4 => number(bytes.try_into().ok().map(|bytes| f32::from_be_bytes(bytes).to_string())),
        oid::FLOAT8 => number(bytes.try_into().ok().map(|bytes| f64::from_be_bytes(bytes).to_string())),
        oid::TEXT | oid::VARCHAR | oid::NAME | oid::BPCHAR | oid::UNKNOWN | 0 => text(bytes).map(Argument::Text),
        oid::BOOL => number(bytes.first().filter(|_| bytes.len() == 1).map(|byte| (*byte != 0).to_string())),
        oid::JSON => text(bytes).map(Argument::Text),
        // The version of the format comes first.
        oid::JSONB => text(bytes.strip_prefix(&[1]).ok_or_else(malformed)?).map(Argument::Text),
        texts if TEXT_ARRAYS.contains(&texts) => array(bytes, text).map(Argument::Array),
        oid::INT4_ARRAY => array(bytes, number_text).map(Argument::Array),
        other => of_key_type(other, bytes).ok_or_else(|| {
            let message = format!("no function of the schema \"shardgate\" takes type {other}");
            PgError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint("Pass the argument as text.")
        }),
    }
}

/// A key as a driver has it that knows the column's type.
fn of_key_type(type_oid: Oid, bytes: &[u8]) -> Option<Argument> {
    let key_type = KeyType::of_column(type_oid)?;
    match KeyDatum::convert(key_type, type_oid, Format::Binary, bytes) {
        Conversion::Exactly(datum) => Some(Argument::Text(datum.to_text(key_type))),
        Conversion::NoValue | Conversion::Unknown => None,
    }
}

/// The dimensions (none or one), whether there are nulls, the element type; then the length of the dimension and its lower
/// bound; then each element with its length, -1 for null.
fn array(bytes: &[u8], read: impl Fn(&[u8]) -> Result<String, PgError>) -> Result<Vec<Option<String>>, PgError> {
    let mut rest = bytes;
    let mut next = || -> Result<i32, PgError> {
        let (first, after) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        rest = after;
        Ok(i32::from_be_bytes(*first))
    };
    let (dimensions, _has_nulls, _element_type) = (next()?, next()?, next()?);
    match dimensions {
        0 => return Ok(Vec::new()),
        1 => {}
        _ => return Err(malformed()),
    }
    let (length, _lower_bound) = (next()?, next()?);
    let mut elements = Vec::new();
    for _ in 0..length {
        let (size, after) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        rest = after;
        let size = i32::from_be_bytes(*size);
        if size == -1 {
            elements.push(None);
            continue;
        }
        let (element, after) = usize::try_from(size).ok().and_then(|size| rest.split_at_checked(size)).ok_or_else(malformed)?;
        rest = after;
        elements.push(Some(read(element)?));
    }
    if rest.is_empty() { Ok(elements) } else { Err(malformed()) }
}

fn number_text(bytes: &[u8]) -> Result<String, PgError> {
    bytes.try_into().map(|bytes| i32::from_be_bytes(bytes).to_string()).map_err(|_| malformed())
}

fn text(bytes: &[u8]) -> Result<String, PgError> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| PgError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\""))
}

fn malformed() -> PgError {
    PgError::new(SqlState(*b"22P03"), "incorrect binary data format in bind parameter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary_of(type_oid: Oid, bytes: &[u8]) -> Option<Argument> {
        argument_from_wire(type_oid, Format::Binary, Some(bytes)).ok()
    }

    fn some_text(text: &str) -> Option<Argument> {
        Some(Argument::Text(text.to_owned()))
    }

    #[test]
    fn values_are_read_by_their_types() {
        assert_eq!(binary_of(oid::INT4, &(-7_i32).to_be_bytes()), some_text("-7"));
        assert_eq!(binary_of(oid::INT2, &7_i16.to_be_bytes()), some_text("7"));
        assert_eq!(binary_of(oid::INT8, &7_i64.to_be_bytes()), some_text("7"));
        assert_eq!(binary_of(oid::FLOAT8, &1.5_f64.to_be_bytes()), some_text("1.5"));
        assert_eq!(binary_of(oid::TEXT, b"name"), some_text("name"));
        assert_eq!(argument_from_wire(oid::INT4, Format::Text, Some(b"12")).ok(), some_text("12"));
        assert_eq!(argument_from_wire(oid::INT4, Format::Binary, None).ok(), Some(Argument::Null));
    }

    #[test]
    fn arrays_are_read_and_malformed_ones_refused() {
        let mut array = Vec::new();
        for field in [1_i32, 1, 25, 2, 1, 1] {
            array.extend(field.to_be_bytes());
        }
        array.push(b'a');
        array.extend((-1_i32).to_be_bytes());
        assert_eq!(binary_of(1009, &array), Some(Argument::Array(vec![Some("a".to_owned()), None])));
        for length in 0..array.len() {
            assert_eq!(binary_of(1009, array.get(..length).unwrap()), None, "{length}");
        }
        array.push(0);
        assert_eq!(binary_of(1009, &array), None);
        let empty: Vec<u8> = [0_i32, 0, 25].iter().flat_map(|field| field.to_be_bytes()).collect();
        assert_eq!(binary_of(1009, &empty), Some(Argument::Array(Vec::new())));
    }

    #[test]
    fn values_of_other_types_and_lengths_are_refused() {
        assert_eq!(binary_of(oid::INT4, &[0, 1]), None);
        assert_eq!(binary_of(oid::UUID, &[0; 16]), some_text("00000000-0000-0000-0000-000000000000"));
        assert_eq!(binary_of(oid::UUID, &[0; 15]), None);
        assert_eq!(binary_of(600, &[0; 16]), None, "a point is no key");
        assert_eq!(binary_of(oid::TEXT, &[0xff]), None);
    }
}
