//! Key functions: `right(isbn, 1)` and its kind, evaluated as PostgreSQL would.
//!
//! Only functions that are immutable for the column's type and proven here bit for bit. The text of a declaration is parsed by
//! layer 2, which hands over the call's name and arguments ([`KeyFunction::from_call`]); [`KeyFunction::to_sql`] is the way back, for a
//! shard's row filter and for messages.

use super::calendar::{Civil, MICROS_PER_DAY, MICROS_PER_SECOND, checked_timestamp, day_of, midnight};
use super::{DatumRef, KeyDatum, KeyType};

/// A deterministic, immutable function from a column's value to a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyFunction {
    Left(i32),
    Right(i32),
    /// `substr(column, from, length)`
    Substr(i32, i32),
    /// `column % divisor` on integers; the divisor is positive and the result has the dividend's sign.
    Modulo(i32),
    /// `date_trunc('month', column)` on timestamp without time zone.
    DateTrunc(DateUnit),
}

/// First argument of `date_trunc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DateUnit {
    Hour,
    Day,
    Month,
    Year,
}

/// An argument of a call, as layer 2 reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionArgument<'a> {
    /// The key's column.
    Column,
    Integer(i64),
    Text(&'a str),
}

impl KeyFunction {
    /// The function that `name(arguments)` calls; the operator `%` is a name too. `None`: not a key function. Whether it takes
    /// the column's type is [`KeyFunction::result_type`]'s to say.
    pub fn from_call(name: &str, arguments: &[FunctionArgument<'_>]) -> Option<Self> {
        use FunctionArgument::{Column, Integer, Text};
        let int4 = |value: &i64| i32::try_from(*value).ok();
        match (name, arguments) {
            ("left", [Column, Integer(length)]) => Some(Self::Left(int4(length)?)),
            ("right", [Column, Integer(length)]) => Some(Self::Right(int4(length)?)),
            ("substr" | "substring", [Column, Integer(from), Integer(length)]) if *length >= 0 => {
                Some(Self::Substr(int4(from)?, int4(length)?))
            }
            ("%" | "mod", [Column, Integer(divisor)]) if *divisor > 0 => Some(Self::Modulo(int4(divisor)?)),
            ("date_trunc", [Text(unit), Column]) => Some(Self::DateTrunc(DateUnit::from_name(unit)?)),
            _ => None,
        }
    }

    /// Type of the key for a column of this type; `None`: not for such a column.
    pub fn result_type(&self, column: KeyType) -> Option<KeyType> {
        match (self, column) {
            (Self::Left(_) | Self::Right(_) | Self::Substr(..), KeyType::Text | KeyType::Bpchar) => Some(KeyType::Text),
            // The divisor is an int4, and the smaller type is widened.
            (Self::Modulo(_), KeyType::Int2 | KeyType::Int4) => Some(KeyType::Int4),
            (Self::Modulo(_), KeyType::Int8) => Some(KeyType::Int8),
            (Self::DateTrunc(_), KeyType::Timestamp) => Some(KeyType::Timestamp),
            (Self::Left(_) | Self::Right(_) | Self::Substr(..) | Self::Modulo(_) | Self::DateTrunc(_), _) => None,
        }
    }

    /// The key that a column's value has. `None`: the value is not of a type that the function takes, or PostgreSQL would
    /// raise an error.
    pub fn apply(&self, value: &KeyDatum) -> Option<KeyDatum> {
        let value = value.as_ref();
        self.apply_ref(&value).map(|key| key.to_datum())
    }

    /// The same without allocating.
    pub fn apply_ref<'a>(&self, value: &DatumRef<'a>) -> Option<DatumRef<'a>> {
        match (self, value) {
            (Self::Left(length), DatumRef::Text(text)) => Some(DatumRef::Text(left(text, *length))),
            (Self::Right(length), DatumRef::Text(text)) => Some(DatumRef::Text(right(text, *length))),
            (Self::Substr(from, length), DatumRef::Text(text)) => Some(DatumRef::Text(substr(text, *from, *length)?)),
            (Self::Modulo(divisor), DatumRef::Int(value)) => value.checked_rem(i64::from(*divisor)).map(DatumRef::Int),
            (Self::DateTrunc(unit), DatumRef::Timestamp(micros)) => unit.truncate(*micros).map(DatumRef::Timestamp),
            (Self::Left(_) | Self::Right(_) | Self::Substr(..) | Self::Modulo(_) | Self::DateTrunc(_), _) => None,
        }
    }

    /// Whether the function may have this result; `true` where that cannot be told.
    pub fn can_give(&self, result: &KeyDatum) -> bool {
        !self.is_idempotent() || self.apply(result).is_none_or(|again| again == *result)
    }

    /// Gives its own results again.
    fn is_idempotent(&self) -> bool {
        match self {
            Self::Left(length) | Self::Right(length) => *length >= 0,
            Self::Substr(from, _) => *from == 1,
            Self::Modulo(_) | Self::DateTrunc(_) => true,
        }
    }

    /// The function as an SQL expression over `column` (quoted already), as PostgreSQL reads it back.
    pub fn to_sql(&self, column: &str) -> String {
        match self {
            Self::Left(length) => format!("\"left\"({column}, {length})"),
            Self::Right(length) => format!("\"right\"({column}, {length})"),
            Self::Substr(from, length) => format!("substr({column}, {from}, {length})"),
            Self::Modulo(divisor) => format!("({column} % {divisor})"),
            Self::DateTrunc(unit) => format!("date_trunc('{}', {column})", unit.name()),
        }
    }
}

impl DateUnit {
    fn from_name(name: &str) -> Option<Self> {
        [Self::Hour, Self::Day, Self::Month, Self::Year].into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// As PostgreSQL spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    fn truncate(self, micros: i64) -> Option<i64> {
        if matches!(micros, i64::MIN | i64::MAX) {
            return Some(micros);
        }
        let first_of = |civil: Civil| civil.to_days().map(midnight);
        let civil = Civil::from_days(day_of(micros)?);
        let truncated = match self {
            Self::Hour => micros - micros.rem_euclid(3_600 * MICROS_PER_SECOND),
            Self::Day => micros - micros.rem_euclid(MICROS_PER_DAY),
            Self::Month => first_of(Civil { day: 1, ..civil })?,
            Self::Year => first_of(Civil { day: 1, month: 1, ..civil })?,
        };
        checked_timestamp(truncated)
    }
}

/// The first `length` characters; negative: all but the last ones.
fn left(text: &str, length: i32) -> &str {
    let count = match usize::try_from(length) {
        Ok(count) => count,
        Err(_) => text.chars().count().saturating_sub(magnitude(length)),
    };
    text.split_at_checked(byte_offset(text, count)).map_or(text, |(start, _)| start)
}

/// The last `length` characters; negative: all but the first ones.
fn right(text: &str, length: i32) -> &str {
    let skipped = match usize::try_from(length) {
        Ok(count) => text.chars().count().saturating_sub(count),
        Err(_) => magnitude(length),
    };
    text.split_at_checked(byte_offset(text, skipped)).map_or("", |(_, end)| end)
}

/// `from` counts from 1 and may lie before the text; the length counts from there all the same. Negative lengths are an error.
fn substr(text: &str, from: i32, length: i32) -> Option<&str> {
    if length < 0 {
        return None;
    }
    let start = i64::from(from) - 1;
    let end = usize::try_from((start + i64::from(length)).max(0)).ok()?;
    let start = usize::try_from(start.max(0)).ok()?;
    text.get(byte_offset(text, start)..byte_offset(text, end))
}

fn magnitude(length: i32) -> usize {
    usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX)
}

/// Where the character with this number begins; the text's end if there are fewer.
fn byte_offset(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(offset, _)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(function: &KeyFunction, value: &str) -> Option<String> {
        match function.apply(&KeyDatum::Text(value.into())) {
            Some(KeyDatum::Text(key)) => Some(key.into()),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn text_functions_count_characters() {
        use KeyFunction::{Left, Right, Substr};
        for (function, value, expected) in [
            (Right(1), "9780306406157", "7"),
            (Right(1), "naïveté", "é"),
            (Right(1), "", ""),
            (Right(0), "abc", ""),
            (Right(-1), "abc", "bc"),
            (Right(-5), "abc", ""),
            (Right(i32::MIN), "abc", ""),
            (Right(9), "abc", "abc"),
            (Left(2), "漢字かな", "漢字"),
            (Left(-1), "abc", "ab"),
            (Left(-5), "abc", ""),
            (Left(i32::MAX), "abc", "abc"),
            (Substr(2, 2), "abcd", "bc"),
            (Substr(0, 2), "abcd", "a"),
            (Substr(-5, 3), "abcd", ""),
            (Substr(9, 3), "abcd", ""),
            (Substr(i32::MAX, i32::MAX), "abcd", ""),
            (Substr(2, i32::MAX), "äbcd", "bcd"),
        ] {
            assert_eq!(text(&function, value).as_deref(), Some(expected), "{function:?} {value:?}");
        }
        assert_eq!(text(&Substr(1, -1), "abc"), None);
    }

    #[test]
    fn modulo_keeps_the_sign_of_the_dividend() {
        let modulo = |value| KeyFunction::Modulo(16).apply(&KeyDatum::Int(value));
        assert_eq!(modulo(35), Some(KeyDatum::Int(3)));
        assert_eq!(modulo(-35), Some(KeyDatum::Int(-3)));
    }

    #[test]
    fn date_trunc_goes_to_the_beginning_of_the_unit() {
        let truncate = |unit, value: &str| {
            let value = KeyDatum::parse(KeyType::Timestamp, value).unwrap();
            KeyFunction::DateTrunc(unit).apply(&value).unwrap().to_text(KeyType::Timestamp)
        };
        assert_eq!(truncate(DateUnit::Month, "1999-12-31 23:59:59.9"), "1999-12-01 00:00:00");
        assert_eq!(truncate(DateUnit::Year, "2024-02-29 01:02:03"), "2024-01-01 00:00:00");
        assert_eq!(truncate(DateUnit::Day, "1999-12-31 23:59:59.9"), "1999-12-31 00:00:00");
        assert_eq!(truncate(DateUnit::Hour, "1999-12-31 23:59:59.9"), "1999-12-31 23:00:00");
        assert_eq!(truncate(DateUnit::Hour, "infinity"), "infinity");
    }

    #[test]
    fn calls_are_read_by_name_and_arguments() {
        use FunctionArgument::{Column, Integer, Text};
        let call = KeyFunction::from_call;
        assert_eq!(call("right", &[Column, Integer(1)]), Some(KeyFunction::Right(1)));
        assert_eq!(call("substring", &[Column, Integer(2), Integer(3)]), Some(KeyFunction::Substr(2, 3)));
        assert_eq!(call("%", &[Column, Integer(16)]), Some(KeyFunction::Modulo(16)));
        assert_eq!(call("date_trunc", &[Text("MONTH"), Column]), Some(KeyFunction::DateTrunc(DateUnit::Month)));
        for (name, arguments) in [
            ("right", &[Integer(1), Column][..]),
            ("right", &[Column]),
            ("right", &[Column, Integer(1 << 40)]),
            ("%", &[Column, Integer(0)]),
            ("%", &[Column, Integer(-3)]),
            ("substr", &[Column, Integer(1), Integer(-1)]),
            ("date_trunc", &[Text("week"), Column]),
            ("lower", &[Column]),
        ] {
            assert_eq!(call(name, arguments), None, "{name} {arguments:?}");
        }
    }

    #[test]
    fn a_function_takes_only_its_types() {
        assert_eq!(KeyFunction::Right(1).result_type(KeyType::Bpchar), Some(KeyType::Text));
        assert_eq!(KeyFunction::Right(1).result_type(KeyType::Int4), None);
        assert_eq!(KeyFunction::Modulo(3).result_type(KeyType::Int2), Some(KeyType::Int4));
        assert_eq!(KeyFunction::DateTrunc(DateUnit::Day).result_type(KeyType::Timestamptz), None);
        assert_eq!(KeyFunction::Right(1).apply(&KeyDatum::Int(1)), None);
        assert_eq!(KeyFunction::Modulo(3).apply(&KeyDatum::Timestamp(1)), None);
    }
}
