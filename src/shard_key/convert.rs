//! From what a client sends (text or binary, of some type) to a key column's value.
//!
//! A value means something only for a use: compared by `=` ([`KeyDatum::convert`]), ordered by `<` and its kind
//! ([`KeyDatum::position`]), or stored by INSERT ([`KeyDatum::assign`], which converts by other rules: 1.5 is rounded where a
//! comparison would find nothing). The type is the one that PostgreSQL inferred, never the client's guess; which operator
//! PostgreSQL then picks is what the tables below say. Whatever depends on a setting, would raise an error or is not proven
//! is unknown, and the caller goes on as if nothing had been said about the key.
//!
//! Text comes as UTF-8, and the shards' encoding is UTF-8 too; anything else is the caller's to rule out.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::calendar::{
    MICROS_PER_DAY, TIMESTAMP_END, checked_date, checked_timestamp, date_from_text, day_of, midnight, near, timestamp_from_text,
    timestamptz_from_text,
};
use super::decimal::{Decimal, StoredDecimal};
use super::input::{bool_from_text, bytea_from_text, uuid_from_text};
use super::number::{Number, Stored};
use super::{DatumRef, KeyDatum, KeyType, Oid, oid};

/// Wire format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Binary,
}

/// What a value means for a comparison with a key column.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Equal to exactly this value of the key type.
    Exactly(KeyDatum),
    /// Cannot equal any value of the key type (out of range, 1.5 against an integer).
    NoValue,
    /// Depends on settings, would fail, or is not proven: the condition is unknown.
    Unknown,
}

/// Where a value lies in the order of a key type's values. Text: of the bytes, so only for columns that sort bytewise.
#[derive(Clone, Debug, PartialEq)]
pub enum Position<'a> {
    At(DatumRef<'a>),
    /// Between this value and the one before it.
    JustBelow(DatumRef<'a>),
    AboveAll,
    BelowAll,
    /// Equal to no value; where it lies is not proven.
    Elsewhere,
    Unknown,
}

impl KeyDatum {
    /// What a value of type `oid` (0: an untyped literal) means when compared by `=` with a column of `key_type`.
    pub fn convert(key_type: KeyType, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
        match Self::position(key_type, oid, format, bytes) {
            Position::At(datum) => Conversion::Exactly(datum.to_datum()),
            Position::JustBelow(_) | Position::AboveAll | Position::BelowAll | Position::Elsewhere => Conversion::NoValue,
            Position::Unknown => Conversion::Unknown,
        }
    }

    /// A day or time as PostgreSQL prints it under `DateStyle = ISO`, of any year. Not for what clients write: they are read as
    /// settings say.
    pub fn printed(key_type: KeyType, bytes: &[u8]) -> Option<Self> {
        let (text, later_days) = near(std::str::from_utf8(bytes).ok()?)?;
        match Self::position(key_type, key_type.oid(), Format::Text, text.as_bytes()) {
            Position::At(DatumRef::Date(days)) => {
                checked_date(i32::try_from(i64::from(days) + later_days).ok()?).map(KeyDatum::Date)
            }
            Position::At(DatumRef::Timestamp(micros)) => {
                checked_timestamp(micros.checked_add(later_days.checked_mul(MICROS_PER_DAY)?)?).map(KeyDatum::Timestamp)
            }
            _ => None,
        }
    }

    /// Where a value of type `oid` (0: an untyped literal) lies among the values of `key_type`. Borrows; allocates only for a
    /// bytea in text form and for a numeric.
    pub fn position(key_type: KeyType, oid: Oid, format: Format, bytes: &[u8]) -> Position<'_> {
        let oid = match (oid::is_untyped(oid), format) {
            (true, Format::Text) => key_type.oid(),
            (true, Format::Binary) => return Position::Unknown,
            (false, _) => oid,
        };
        match key_type {
            KeyType::Int2 => integer(oid, format, bytes, i64::from(i16::MIN), i64::from(i16::MAX)),
            KeyType::Int4 => integer(oid, format, bytes, i64::from(i32::MIN), i64::from(i32::MAX)),
            KeyType::Int8 => integer(oid, format, bytes, i64::MIN, i64::MAX),
            KeyType::Text => text(oid, bytes),
            KeyType::Bpchar => bpchar(oid, bytes),
            KeyType::Date => date(oid, format, bytes),
            KeyType::Timestamp => timestamp(oid, format, bytes),
            // Against date and timestamp PostgreSQL uses the session's TimeZone.
            KeyType::Timestamptz if oid == oid::TIMESTAMPTZ => at(read_timestamptz(format, bytes).map(DatumRef::Timestamp)),
            KeyType::Uuid if oid == oid::UUID => at(read_uuid(format, bytes).map(DatumRef::Uuid)),
            KeyType::Bool if oid == oid::BOOL => at(read_bool(format, bytes).map(DatumRef::Bool)),
            KeyType::Bytea if oid == oid::BYTEA => at(match format {
                Format::Text => bytea_from_text(bytes).map(DatumRef::Bytea),
                Format::Binary => Some(DatumRef::Bytea(bytes.into())),
            }),
            // Integers are compared with it as numeric; against the floats it becomes one of them.
            KeyType::Numeric => at(Decimal::read(oid, format, bytes).map(|decimal| DatumRef::Numeric(Cow::Owned(decimal)))),
            KeyType::Timestamptz | KeyType::Uuid | KeyType::Bool | KeyType::Bytea => Position::Unknown,
        }
    }

    /// What a value of type `oid` (0: an untyped literal) becomes when it is stored in a column of `key_type` and of this
    /// `atttypmod`. Where PostgreSQL would raise an error, the shard that is found may raise it; `NoValue`: it is certain to
    /// raise one, whichever shard it is.
    pub fn assign(key_type: KeyType, typmod: i32, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
        match key_type {
            KeyType::Text => assign_text(typmod, oid, format, bytes),
            // Blanks are added or cut off, and do not count.
            KeyType::Bpchar if oid == oid::TEXT => Self::convert(key_type, oid::BPCHAR, format, bytes),
            // Towards the past, as timestamp_date does.
            KeyType::Date if oid == oid::TIMESTAMP => match read_timestamp(format, bytes) {
                Some(i64::MIN | i64::MAX) | None => Self::convert(key_type, oid, format, bytes),
                Some(micros) => day_of(micros).map_or(Conversion::Unknown, |days| exactly(DatumRef::Date(days))),
            },
            KeyType::Timestamp | KeyType::Timestamptz => match Self::position(key_type, oid, format, bytes) {
                Position::At(DatumRef::Timestamp(micros)) => {
                    round_to_precision(micros, typmod).map_or(Conversion::Unknown, |micros| exactly(DatumRef::Timestamp(micros)))
                }
                _ => Conversion::Unknown,
            },
            KeyType::Numeric => assign_numeric(typmod, oid, format, bytes),
            KeyType::Int2 => assign_integer(key_type, i64::from(i16::MIN)..=i64::from(i16::MAX), oid, format, bytes),
            KeyType::Int4 => assign_integer(key_type, i64::from(i32::MIN)..=i64::from(i32::MAX), oid, format, bytes),
            KeyType::Int8 => assign_integer(key_type, i64::MIN..=i64::MAX, oid, format, bytes),
            // The input function of date drops a time without looking at it.
            KeyType::Date if (oid::is_untyped(oid) || oid == oid::DATE) && format == Format::Text => {
                let days = date_from_text(bytes).or_else(|| match timestamp_from_text(bytes)? {
                    i64::MIN | i64::MAX => None,
                    micros => day_of(micros),
                });
                days.map_or(Conversion::Unknown, |days| exactly(DatumRef::Date(days)))
            }
            KeyType::Bpchar | KeyType::Uuid | KeyType::Date | KeyType::Bool | KeyType::Bytea => {
                match Self::position(key_type, oid, format, bytes) {
                    Position::At(datum) => exactly(datum),
                    // Rounded, or an error.
                    Position::JustBelow(_) | Position::AboveAll | Position::BelowAll | Position::Elsewhere | Position::Unknown => {
                        Conversion::Unknown
                    }
                }
            }
        }
    }
}

/// Assignment to an integer type rounds; a value out of range is an error on any shard.
fn assign_integer(key_type: KeyType, range: RangeInclusive<i64>, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
    let oid = match (oid::is_untyped(oid), format) {
        (true, Format::Text) => key_type.oid(),
        (true, Format::Binary) => return Conversion::Unknown,
        (false, _) => oid,
    };
    match Stored::read(oid, format, bytes) {
        Some(Stored::Integer(value)) if range.contains(&value) => exactly(DatumRef::Int(value)),
        Some(Stored::Integer(_) | Stored::Error) => Conversion::NoValue,
        None => Conversion::Unknown,
    }
}

/// Assignment to numeric rounds to the column's scale.
fn assign_numeric(typmod: i32, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
    let oid = match (oid::is_untyped(oid), format) {
        (true, Format::Text) => oid::NUMERIC,
        (true, Format::Binary) => return Conversion::Unknown,
        (false, _) => oid,
    };
    match Decimal::assign(typmod, oid, format, bytes) {
        Some(StoredDecimal::Exactly(decimal)) => Conversion::Exactly(KeyDatum::Numeric(decimal)),
        Some(StoredDecimal::Error) => Conversion::NoValue,
        None => Conversion::Unknown,
    }
}

/// Assignment to text (`typmod` -1) or varchar(n).
fn assign_text(typmod: i32, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
    let text = match (oid, format) {
        (oid::TEXT | oid::VARCHAR, _) | (0 | oid::UNKNOWN, Format::Text) => valid_text(bytes),
        (oid::BPCHAR, _) => valid_text(bytes).map(strip_blanks),
        (oid::NAME, _) if bytes.len() < NAME_LENGTH_MAX => valid_text(bytes),
        (oid::INT2 | oid::INT4 | oid::INT8, _) => {
            return match Number::read(oid, format, bytes) {
                Some(Number::Integer(value)) => Conversion::Exactly(KeyDatum::Text(value.to_string().into())),
                Some(Number::JustBelow(_) | Number::AboveAll | Number::BelowAll) | None => Conversion::Unknown,
            };
        }
        _ => None,
    };
    match text.map(|text| cut_blanks_to_length(text, typmod)) {
        Some(Some(text)) => exactly(DatumRef::Text(text)),
        // Too long.
        Some(None) => Conversion::NoValue,
        None => Conversion::Unknown,
    }
}

/// Assignment to varchar(n) cuts surplus blanks off and refuses other surplus characters (`None`).
fn cut_blanks_to_length(text: &str, typmod: i32) -> Option<&str> {
    let Some(length) = typmod.checked_sub(VARLENA_HEADER).and_then(|length| usize::try_from(length).ok()) else {
        return Some(text);
    };
    let Some((cut, _)) = text.char_indices().nth(length) else {
        return Some(text);
    };
    let (kept, surplus) = text.split_at_checked(cut)?;
    surplus.bytes().all(|byte| byte == b' ').then_some(kept)
}

/// As AdjustTimestampForTypmod: half away from zero, where zero is the year 2000.
fn round_to_precision(micros: i64, typmod: i32) -> Option<i64> {
    let Some(dropped_digits) = u32::try_from(typmod).ok().and_then(|precision| 6_u32.checked_sub(precision)) else {
        return Some(micros);
    };
    if dropped_digits == 0 || matches!(micros, i64::MIN | i64::MAX) {
        return Some(micros);
    }
    let scale = 10_i64.pow(dropped_digits);
    let rounded = micros.checked_add(micros.signum() * (scale / 2))? / scale * scale;
    checked_timestamp(rounded)
}

fn exactly(datum: DatumRef<'_>) -> Conversion {
    Conversion::Exactly(datum.to_datum())
}

fn at(datum: Option<DatumRef<'_>>) -> Position<'_> {
    datum.map_or(Position::Unknown, Position::At)
}

/// int2, int4 and int8 compare with each other as integers and with numeric as numeric: exactly. float8 would round.
fn integer<'a>(oid: Oid, format: Format, bytes: &[u8], min: i64, max: i64) -> Position<'a> {
    match Number::read(oid, format, bytes) {
        None => Position::Unknown,
        Some(Number::AboveAll) => Position::AboveAll,
        Some(Number::BelowAll) => Position::BelowAll,
        Some(Number::Integer(value) | Number::JustBelow(value)) if value > max => Position::AboveAll,
        Some(Number::Integer(value)) if value < min => Position::BelowAll,
        Some(Number::JustBelow(value)) if value <= min => Position::BelowAll,
        Some(Number::Integer(value)) => Position::At(DatumRef::Int(value)),
        Some(Number::JustBelow(value)) => Position::JustBelow(DatumRef::Int(value)),
    }
}

/// A varchar column is compared with a char(n) value as char(n), so that trailing blanks do not count: not proven.
fn text(oid: Oid, bytes: &[u8]) -> Position<'_> {
    match oid {
        oid::TEXT | oid::VARCHAR => at(valid_text(bytes).map(DatumRef::Text)),
        // Longer ones are cut.
        oid::NAME if bytes.len() < NAME_LENGTH_MAX => at(valid_text(bytes).map(DatumRef::Text)),
        _ => Position::Unknown,
    }
}

/// Compared with char(n) and varchar as char(n), without trailing blanks; with text as text, where the column has none left
/// and the value keeps its own.
fn bpchar(oid: Oid, bytes: &[u8]) -> Position<'_> {
    match oid {
        oid::BPCHAR | oid::VARCHAR => at(valid_text(bytes).map(|text| DatumRef::Text(strip_blanks(text)))),
        oid::TEXT if bytes.ends_with(b" ") => valid_text(bytes).map_or(Position::Unknown, |_| Position::Elsewhere),
        oid::TEXT => at(valid_text(bytes).map(DatumRef::Text)),
        _ => Position::Unknown,
    }
}

/// A date is compared with a timestamp as its midnight; with timestamptz by the session's TimeZone.
fn date<'a>(oid: Oid, format: Format, bytes: &[u8]) -> Position<'a> {
    match oid {
        oid::DATE => at(read_date(format, bytes).map(DatumRef::Date)),
        oid::TIMESTAMP => match read_timestamp(format, bytes) {
            None => Position::Unknown,
            Some(i64::MAX) => Position::At(DatumRef::Date(i32::MAX)),
            Some(i64::MIN) => Position::At(DatumRef::Date(i32::MIN)),
            Some(micros) => match day_of(micros) {
                None => Position::Unknown,
                Some(days) if micros % MICROS_PER_DAY == 0 => Position::At(DatumRef::Date(days)),
                Some(days) => Position::JustBelow(DatumRef::Date(days + 1)),
            },
        },
        _ => Position::Unknown,
    }
}

/// See [`date`]. Dates after the last timestamp lie between it and infinity.
fn timestamp<'a>(oid: Oid, format: Format, bytes: &[u8]) -> Position<'a> {
    match oid {
        oid::TIMESTAMP => at(read_timestamp(format, bytes).map(DatumRef::Timestamp)),
        oid::DATE => match read_date(format, bytes) {
            None => Position::Unknown,
            Some(i32::MAX) => Position::At(DatumRef::Timestamp(i64::MAX)),
            Some(i32::MIN) => Position::At(DatumRef::Timestamp(i64::MIN)),
            Some(days) if i64::from(days) >= TIMESTAMP_END / MICROS_PER_DAY => Position::JustBelow(DatumRef::Timestamp(i64::MAX)),
            Some(days) => Position::At(DatumRef::Timestamp(midnight(days))),
        },
        _ => Position::Unknown,
    }
}

fn read_date(format: Format, bytes: &[u8]) -> Option<i32> {
    match format {
        Format::Text => date_from_text(bytes),
        Format::Binary => checked_date(i32::from_be_bytes(bytes.try_into().ok()?)),
    }
}

fn read_timestamp(format: Format, bytes: &[u8]) -> Option<i64> {
    match format {
        Format::Text => timestamp_from_text(bytes),
        Format::Binary => checked_timestamp(i64::from_be_bytes(bytes.try_into().ok()?)),
    }
}

fn read_timestamptz(format: Format, bytes: &[u8]) -> Option<i64> {
    match format {
        Format::Text => timestamptz_from_text(bytes),
        Format::Binary => checked_timestamp(i64::from_be_bytes(bytes.try_into().ok()?)),
    }
}

fn read_uuid(format: Format, bytes: &[u8]) -> Option<[u8; 16]> {
    match format {
        Format::Text => uuid_from_text(bytes),
        Format::Binary => bytes.try_into().ok(),
    }
}

fn read_bool(format: Format, bytes: &[u8]) -> Option<bool> {
    match (format, bytes) {
        (Format::Text, _) => bool_from_text(bytes),
        (Format::Binary, [byte]) => Some(*byte != 0),
        (Format::Binary, _) => None,
    }
}

/// Text is the same in both formats.
fn valid_text(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

fn strip_blanks(text: &str) -> &str {
    text.trim_end_matches(' ')
}

/// VARHDRSZ, which varchar(n) adds to n in its typmod.
const VARLENA_HEADER: i32 = 4;
/// NAMEDATALEN.
const NAME_LENGTH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shard_key::strategies::any_key_type;

    fn text(key_type: KeyType, oid: Oid, value: &str) -> Conversion {
        KeyDatum::convert(key_type, oid, Format::Text, value.as_bytes())
    }

    fn assign(key_type: KeyType, oid: Oid, value: &str) -> Conversion {
        KeyDatum::assign(key_type, -1, oid, Format::Text, value.as_bytes())
    }

    fn int(value: i64) -> Conversion {
        Conversion::Exactly(KeyDatum::Int(value))
    }

    fn string(value: &str) -> Conversion {
        Conversion::Exactly(KeyDatum::Text(value.into()))
    }

    #[test]
    fn integers_compare_exactly_or_not_at_all() {
        assert_eq!(text(KeyType::Int8, oid::NUMERIC, "9007199254740993.0"), int(9_007_199_254_740_993));
        assert_eq!(text(KeyType::Int8, oid::NUMERIC, "1.5"), Conversion::NoValue);
        assert_eq!(text(KeyType::Int8, oid::FLOAT8, "1"), Conversion::Unknown);
        assert_eq!(text(KeyType::Int2, oid::INT4, "70000"), Conversion::NoValue);
        assert_eq!(text(KeyType::Int2, 0, "70000"), Conversion::Unknown, "an error, which PostgreSQL shall raise");
        assert_eq!(text(KeyType::Int4, 0, "today"), Conversion::Unknown);
        assert_eq!(text(KeyType::Int4, oid::TEXT, "1"), Conversion::Unknown);
    }

    #[test]
    fn a_number_has_its_place_among_the_integers() {
        let place = |key_type, value: &str| match KeyDatum::position(key_type, oid::NUMERIC, Format::Text, value.as_bytes()) {
            Position::At(DatumRef::Int(value)) => format!("{value}"),
            Position::JustBelow(DatumRef::Int(value)) => format!("below {value}"),
            other => format!("{other:?}"),
        };
        assert_eq!(place(KeyType::Int4, "1.5"), "below 2");
        assert_eq!(place(KeyType::Int2, "32767.5"), "AboveAll");
        assert_eq!(place(KeyType::Int2, "32766.5"), "below 32767");
        assert_eq!(place(KeyType::Int2, "-32768.5"), "BelowAll");
        assert_eq!(place(KeyType::Int2, "-32767.5"), "below -32767");
        assert_eq!(place(KeyType::Int2, "-40000"), "BelowAll");
        assert_eq!(place(KeyType::Int8, "NaN"), "AboveAll");
    }

    #[test]
    fn blanks_at_the_end_count_as_the_operator_counts_them() {
        assert_eq!(text(KeyType::Text, oid::TEXT, "abc "), string("abc "));
        assert_eq!(text(KeyType::Text, oid::BPCHAR, "abc"), Conversion::Unknown);
        assert_eq!(text(KeyType::Bpchar, 0, "abc "), string("abc"));
        assert_eq!(text(KeyType::Bpchar, oid::BPCHAR, "abc  "), string("abc"));
        assert_eq!(text(KeyType::Bpchar, oid::TEXT, "abc "), Conversion::NoValue);
        assert_eq!(text(KeyType::Bpchar, oid::TEXT, "abc"), string("abc"));
    }

    #[test]
    fn dates_and_timestamps_meet_at_midnight() {
        assert_eq!(text(KeyType::Date, oid::TIMESTAMP, "2000-01-02 00:00:00"), Conversion::Exactly(KeyDatum::Date(1)));
        assert_eq!(text(KeyType::Date, oid::TIMESTAMP, "2000-01-02 00:00:01"), Conversion::NoValue);
        assert_eq!(text(KeyType::Timestamp, oid::DATE, "2000-01-02"), Conversion::Exactly(KeyDatum::Timestamp(MICROS_PER_DAY)));
        assert_eq!(text(KeyType::Date, oid::TIMESTAMPTZ, "2000-01-02 00:00:00+00"), Conversion::Unknown);
        assert_eq!(text(KeyType::Timestamptz, oid::TIMESTAMP, "2000-01-02 00:00:00"), Conversion::Unknown);
        assert_eq!(text(KeyType::Timestamptz, 0, "2000-01-02 00:00:00"), Conversion::Unknown, "the session's TimeZone");
    }

    #[test]
    fn what_is_stored_is_converted_by_other_rules() {
        assert_eq!(assign(KeyType::Int4, oid::NUMERIC, "1.5"), int(2));
        assert_eq!(assign(KeyType::Int4, oid::NUMERIC, "2147483647.4"), int(2_147_483_647));
        assert_eq!(assign(KeyType::Int4, oid::NUMERIC, "2147483647.5"), Conversion::NoValue);
        assert_eq!(assign(KeyType::Int4, 0, "1.5"), Conversion::NoValue, "no integer for its input function");
        assert_eq!(assign(KeyType::Int4, 0, "3000000000"), Conversion::NoValue);
        assert_eq!(assign(KeyType::Int4, 701, "1.5"), Conversion::Unknown, "float8 rounds half to even");
        assert_eq!(assign(KeyType::Int4, oid::NUMERIC, "2.0"), int(2));
        assert_eq!(assign(KeyType::Int2, oid::INT4, "70000"), Conversion::NoValue, "an error");
        assert_eq!(assign(KeyType::Date, 0, "2024-07-07 23:59:59.5"), assign(KeyType::Date, 0, "2024-07-07"));
        assert_eq!(
            assign(KeyType::Date, oid::TIMESTAMPTZ, "2024-07-07 23:59:59+00"),
            Conversion::Unknown,
            "the session's TimeZone"
        );
        assert_eq!(assign(KeyType::Text, oid::TEXT, "abc "), string("abc "));
        assert_eq!(assign(KeyType::Text, oid::BPCHAR, "abc "), string("abc"));
        assert_eq!(assign(KeyType::Text, oid::INT4, "007"), string("7"));
        assert_eq!(assign(KeyType::Bpchar, oid::TEXT, "abc "), string("abc"));
        assert_eq!(assign(KeyType::Date, oid::TIMESTAMP, "1999-12-31 00:00:01"), Conversion::Exactly(KeyDatum::Date(-1)));
    }

    #[test]
    fn a_columns_length_or_precision_decides_what_is_stored() {
        let varchar3 = |value: &str| KeyDatum::assign(KeyType::Text, 7, 0, Format::Text, value.as_bytes());
        assert_eq!(varchar3("ab "), string("ab "));
        assert_eq!(varchar3("äbc  "), string("äbc"));
        assert_eq!(varchar3("ab   "), string("ab "));
        assert_eq!(varchar3("abcd"), Conversion::NoValue, "an error");
        let seconds = |typmod, micros: i64| {
            KeyDatum::assign(KeyType::Timestamp, typmod, oid::TIMESTAMP, Format::Binary, &micros.to_be_bytes())
        };
        let at = |micros| Conversion::Exactly(KeyDatum::Timestamp(micros));
        assert_eq!(seconds(0, 1_499_999), at(1_000_000));
        assert_eq!(seconds(0, 1_500_000), at(2_000_000));
        assert_eq!(seconds(0, -1_500_000), at(-2_000_000));
        assert_eq!(seconds(5, -1_234_567), at(-1_234_570));
        assert_eq!(seconds(-1, -1_234_567), at(-1_234_567));
        assert_eq!(seconds(0, i64::MAX), at(i64::MAX));
    }

    #[test]
    fn values_of_the_wrong_length_or_encoding_are_unknown() {
        for key_type in KeyType::ALL {
            for bytes in [&b"\xff\xfe"[..], b"a\0b"] {
                let expected = if key_type == KeyType::Bytea { None } else { Some(Conversion::Unknown) };
                for format in [Format::Text, Format::Binary] {
                    let is_int2 = key_type == KeyType::Int2 && format == Format::Binary && bytes.len() == 2;
                    let conversion = KeyDatum::convert(key_type, key_type.oid(), format, bytes);
                    assert!(is_int2 || expected.as_ref().is_none_or(|expected| *expected == conversion), "{key_type:?} {bytes:?}");
                }
            }
            assert_eq!(KeyDatum::convert(key_type, 0, Format::Binary, &[0; 8]), Conversion::Unknown);
        }
    }

    proptest! {
        #[test]
        fn anything_is_converted_without_panic(
            key_type in any_key_type(),
            oid in proptest::sample::select(vec![0, 16, 17, 19, 20, 21, 23, 25, 705, 1042, 1043, 1082, 1114, 1184, 1700, 2950]),
            is_binary: bool,
            typmod: i32,
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let format = if is_binary { Format::Binary } else { Format::Text };
            let _ = (KeyDatum::convert(key_type, oid, format, &bytes), KeyDatum::assign(key_type, typmod, oid, format, &bytes));
        }
    }
}
