//! From what a client sends (text or binary, of some type) to a key column's value.
//!
//! A value means something only for a use: compared by `=` ([`KeyDatum::convert`]), ordered by `<` and its kind
//! ([`KeyDatum::position`]), or stored by INSERT ([`KeyDatum::assign`], which converts by other rules: 1.5 is rounded where a
//! comparison would find nothing). The type is the one that PostgreSQL inferred, never the client's guess; which operator
//! PostgreSQL then picks is what the tables below say. Whatever depends on a setting, would raise an error or is not proven
//! is unknown, and the caller goes on as if nothing had been said about the key.
//!
//! Text comes as UTF-8, and the shards' encoding is UTF-8 too; anything else is the caller's to rule out.

use super::calendar::{
    MICROS_PER_DAY, TIMESTAMP_END, checked_date, checked_timestamp, date_from_text, day_of, midnight, timestamp_from_text,
    timestamptz_from_text,
};
use super::input::{bool_from_text, bytea_from_text, uuid_from_text};
use super::number::Number;
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

    /// Where a value of type `oid` (0: an untyped literal) lies among the values of `key_type`. Borrows; allocates only for a
    /// bytea in text form.
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
            KeyType::Timestamptz | KeyType::Uuid | KeyType::Bool | KeyType::Bytea => Position::Unknown,
        }
    }

    /// What a value of type `oid` (0: an untyped literal) becomes when it is stored in a column of `key_type`.
    pub fn assign(key_type: KeyType, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
        match (key_type, oid) {
            // varchar(n) cuts surplus blanks off, and the length of the column is not known here.
            (KeyType::Text, _) if bytes.ends_with(b" ") && oid != oid::BPCHAR => Conversion::Unknown,
            (KeyType::Text, oid::INT2 | oid::INT4 | oid::INT8) => match Number::read(oid, format, bytes) {
                Some(Number::Integer(value)) => Conversion::Exactly(KeyDatum::Text(value.to_string().into())),
                Some(Number::JustBelow(_) | Number::AboveAll | Number::BelowAll) | None => Conversion::Unknown,
            },
            (KeyType::Text | KeyType::Bpchar, oid::TEXT | oid::VARCHAR | oid::BPCHAR) => {
                let blank_padded = if key_type == KeyType::Bpchar { oid::BPCHAR } else { oid };
                match valid_text(bytes) {
                    Some(text) if blank_padded == oid::BPCHAR => exactly(DatumRef::Text(strip_blanks(text))),
                    Some(text) => exactly(DatumRef::Text(text)),
                    None => Conversion::Unknown,
                }
            }
            // Towards the past, as timestamp_date does.
            (KeyType::Date, oid::TIMESTAMP) => match read_timestamp(format, bytes) {
                Some(i64::MIN | i64::MAX) | None => Self::convert(key_type, oid, format, bytes),
                Some(micros) => day_of(micros).map_or(Conversion::Unknown, |days| exactly(DatumRef::Date(days))),
            },
            // A value that does not fit is an error or rounded.
            _ => match Self::position(key_type, oid, format, bytes) {
                Position::At(datum) => exactly(datum),
                Position::JustBelow(_) | Position::AboveAll | Position::BelowAll | Position::Elsewhere | Position::Unknown => {
                    Conversion::Unknown
                }
            },
        }
    }
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

/// NAMEDATALEN.
const NAME_LENGTH_MAX: usize = 64;
