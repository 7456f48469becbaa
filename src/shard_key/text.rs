//! Keys as text: what PostgreSQL prints under `DateStyle = ISO`, `TimeZone = UTC`, numeric without zeros at its end; and the way back.
//!
//! For arguments of the declaring functions (`map_key`, `split_partition`, `locate`) and for the relations that show keys.
//! A key of several columns is written as PostgreSQL writes a row: `(eu,42)`, `("a, b",7)`.

use std::fmt::{self, Write};

use super::calendar::{write_date, write_timestamp};
use super::{Format, Key, KeyDatum, KeyType, Position};
use crate::error::{PgError, SqlState};

impl Key {
    /// One column: as PostgreSQL prints it; several: as a row. A bound that names the first columns only shows these.
    pub fn to_text(&self, types: &[KeyType]) -> String {
        let mut fields = self.data().iter().zip(types).map(|(datum, key_type)| datum.to_text(*key_type));
        if types.len() == 1 {
            return fields.next().unwrap_or_default();
        }
        let mut out = String::from("(");
        for (index, field) in fields.enumerate() {
            if index > 0 {
                out.push(',');
            }
            push_field(&mut out, &field);
        }
        out.push(')');
        out
    }

    /// One text a column.
    pub fn parse(types: &[KeyType], texts: &[&str]) -> Result<Self, PgError> {
        if types.len() != texts.len() || types.is_empty() {
            return Err(PgError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("the shard key has {} columns, but {} values were given", types.len(), texts.len()),
            ));
        }
        let data = types.iter().zip(texts).map(|(key_type, text)| KeyDatum::parse(*key_type, text));
        Ok(Self::new(data.collect::<Result<_, _>>()?))
    }

    /// The reverse of [`Key::to_text`].
    pub fn parse_text(types: &[KeyType], text: &str) -> Result<Self, PgError> {
        if types.len() == 1 {
            return Self::parse(types, &[text]);
        }
        let fields = split_fields(text).ok_or_else(|| {
            PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, "malformed key of several columns")
                .with_detail(format!("The shard key has {} columns.", types.len()))
                .with_hint("Write the key as a row, such as (eu,42), with double quotes around values that need them.")
        })?;
        Self::parse(types, &fields.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl KeyDatum {
    /// As PostgreSQL prints it. `key_type` tells timestamptz from timestamp.
    pub fn to_text(&self, key_type: KeyType) -> String {
        let mut out = String::new();
        let written = match self {
            KeyDatum::Int(value) => write!(out, "{value}"),
            KeyDatum::Text(text) => out.write_str(text),
            KeyDatum::Uuid(bytes) => write_uuid(&mut out, bytes),
            KeyDatum::Date(days) => write_date(&mut out, *days),
            KeyDatum::Timestamp(micros) => {
                write_timestamp(&mut out, *micros, if key_type == KeyType::Timestamptz { "+00" } else { "" })
            }
            KeyDatum::Bool(value) => out.write_str(if *value { "t" } else { "f" }),
            KeyDatum::Bytea(bytes) => {
                out.push_str("\\x");
                bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
            KeyDatum::Numeric(decimal) => out.write_str(&decimal.to_text()),
        };
        written.expect("writing to a String does not fail");
        out
    }

    /// The value that PostgreSQL's input function would read, where no setting decides it.
    pub fn parse(key_type: KeyType, text: &str) -> Result<Self, PgError> {
        match Self::position(key_type, 0, Format::Text, text.as_bytes()) {
            Position::At(datum) => Ok(datum.to_datum()),
            Position::JustBelow(_) | Position::AboveAll | Position::BelowAll | Position::Elsewhere | Position::Unknown => {
                let error = PgError::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    format!("invalid shard key value for type {}", key_type.name()),
                );
                Err(match expected_form(key_type) {
                    Some(form) => error.with_hint(form),
                    None => error,
                })
            }
        }
    }
}

/// Types of which PostgreSQL reads more spellings than are accepted here.
fn expected_form(key_type: KeyType) -> Option<&'static str> {
    match key_type {
        KeyType::Date => Some("Write the date as YYYY-MM-DD."),
        KeyType::Timestamp => Some("Write the timestamp as YYYY-MM-DD HH:MM:SS, without time zone."),
        KeyType::Timestamptz => Some("Write the timestamp as YYYY-MM-DD HH:MM:SS+00, with its offset from UTC."),
        KeyType::Bytea => Some("Write the bytes in hexadecimal, such as \\xdeadbeef."),
        KeyType::Int2
        | KeyType::Int4
        | KeyType::Int8
        | KeyType::Numeric
        | KeyType::Text
        | KeyType::Bpchar
        | KeyType::Uuid
        | KeyType::Bool => None,
    }
}

fn write_uuid(out: &mut String, bytes: &[u8; 16]) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        write!(out, "{byte:02x}")?;
    }
    Ok(())
}

/// As record_out: quoted when empty or when it holds anything of meaning, quotes and backslashes doubled.
fn push_field(out: &mut String, field: &str) {
    let is_special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',' | ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    if !field.is_empty() && !field.contains(is_special) {
        out.push_str(field);
        return;
    }
    out.push('"');
    for c in field.chars() {
        if matches!(c, '"' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('"');
}

/// As record_in, but for NULL fields and blanks around the parentheses.
fn split_fields(text: &str) -> Option<Vec<String>> {
    let inner = text.strip_prefix('(')?;
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.last_mut()?;
        match (c, is_quoted) {
            ('\\', _) => field.push(chars.next()?),
            ('"', true) if chars.next_if_eq(&'"').is_some() => field.push('"'),
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => fields.push(String::new()),
            (')', false) => return chars.next().is_none().then_some(fields),
            ('(', false) => return None,
            (c, _) => field.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shard_key::strategies::{any_datum, any_key_type};

    #[test]
    fn one_column_is_printed_bare_and_several_as_a_row() {
        let types = [KeyType::Text, KeyType::Int4];
        let key = Key::parse(&types, &["a, \"b", "7"]).unwrap();
        assert_eq!(key.to_text(&types), "(\"a, \"\"b\",7)");
        assert_eq!(Key::parse(&types[..1], &["a, b"]).unwrap().to_text(&types[..1]), "a, b");
        assert_eq!(Key::new(vec![KeyDatum::Text("".into())]).to_text(&types), "(\"\")");
    }

    #[test]
    fn a_value_that_is_not_of_the_type_is_refused_without_showing_it() {
        let error = Key::parse(&[KeyType::Int2], &["70000"]).unwrap_err();
        assert_eq!(error.code, SqlState::INVALID_TEXT_REPRESENTATION);
        assert_eq!(error.message, "invalid shard key value for type smallint");
        let error = Key::parse(&[KeyType::Timestamptz], &["2020-01-01 00:00:00"]).unwrap_err();
        assert!(error.hint.unwrap().contains("+00"));
        assert_eq!(Key::parse(&[KeyType::Int4], &["1", "2"]).unwrap_err().code, SqlState::INVALID_PARAMETER_VALUE);
        assert!(Key::parse(&[], &[]).is_err());
    }

    #[test]
    fn malformed_rows_are_refused() {
        let types = [KeyType::Int4, KeyType::Int4];
        for text in ["", "1,2", "(1,2", "(1)", "(1,2,3)", "(1,2)x", "(1,\"2)", "((1,2)", "(1,2\\"] {
            assert!(Key::parse_text(&types, text).is_err(), "{text:?}");
        }
        assert_eq!(Key::parse_text(&types, "(1,\"2\")").unwrap(), Key::new(vec![KeyDatum::Int(1), KeyDatum::Int(2)]));
    }

    fn any_key() -> impl Strategy<Value = (Vec<KeyType>, Key)> {
        proptest::collection::vec(any_key_type(), 1..4).prop_flat_map(|types| {
            let data = types.iter().map(|key_type| any_datum(*key_type)).collect::<Vec<_>>();
            (Just(types), data.prop_map(Key::new))
        })
    }

    proptest! {
        #[test]
        fn printed_keys_are_read_back((types, key) in any_key()) {
            let text = key.to_text(&types);
            prop_assert_eq!(Key::parse_text(&types, &text).unwrap(), key, "{}", text);
        }
    }
}
