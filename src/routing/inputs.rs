//! The values of one execution: its parameters and its text's literals, as the key conditions name them.
//!
//! A value here is what PostgreSQL's analysis would make of it: bytes in text or binary form and the type that decides what
//! they mean, with a cast applied where the cast cannot change the value's meaning. Any other cast makes it unknown.

use std::borrow::Cow;

use crate::error::{PgError, SqlState};
use crate::shard_key::{Conversion, Format, KeyDatum, KeyType, Oid, oid};
use crate::sql::analysis::{Count, KeyValue};
use crate::sql::parse::lexer::Literal;
use crate::wire::Bind;

/// A bound parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// As PostgreSQL inferred it (ParameterDescription), not as the client declared it.
    pub oid: Oid,
    pub format: Format,
    /// `None`: NULL. Text is UTF-8.
    pub value: Option<&'a [u8]>,
}

/// Everything that an analysis leaves open.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The statement's text, in which `literals` lie.
    text: &'a str,
    literals: &'a [Literal],
    parameters: Parameters<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Parameters<'a> {
    Listed(&'a [Parameter<'a>]),
    /// Found in the message when they are asked for: a route needs one of them, mostly.
    Bound {
        bind: &'a Bind<'a>,
        types: &'a [Oid],
    },
}

/// A value, or that there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Typed {
        /// 0: the column's type decides.
        oid: Oid,
        format: Format,
        bytes: Cow<'a, [u8]>,
    },
    Unknown,
}

/// PostgreSQL infers int8.
fn is_count(oid: Oid) -> bool {
    oid::is_untyped(oid) || matches!(oid, oid::INT2 | oid::INT4 | oid::INT8)
}

fn count_of_other_type() -> PgError {
    PgError::unsupported(
        "LIMIT or OFFSET with a parameter that is no integer is not supported across shards",
        "The proxy cuts the merged rows, and would have to round the value as the server does.",
        "Declare or cast the parameter as bigint.",
    )
}

/// As the input function of the integer's type reads it.
fn written_count(oid: Oid, bytes: &[u8]) -> Result<i64, PgError> {
    let text = String::from_utf8_lossy(bytes);
    let (name, range) = match oid {
        oid::INT2 => ("smallint", i64::from(i16::MIN)..=i64::from(i16::MAX)),
        oid::INT4 => ("integer", i64::from(i32::MIN)..=i64::from(i32::MAX)),
        _ => ("bigint", i64::MIN..=i64::MAX),
    };
    let number = text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_of_base = ["0x", "0X", "0o", "0O", "0b", "0B"].iter().any(|base| digits.starts_with(base));
    let is_later = digits
        .bytes()
        .all(|digit| digit == b'_' || if is_of_base { digit.is_ascii_alphanumeric() } else { digit.is_ascii_digit() });
    match number.parse::<i64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ if is_decimal => {
            let message = format!("value \"{text}\" is out of range for type {name}");
            Err(PgError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))
        }
        // From PostgreSQL 16 on it may be a number: 0x1F, 1_000.
        _ if is_later && digits.starts_with(|first: char| first.is_ascii_digit()) => Err(count_of_other_form()),
        _ => {
            let message = format!("invalid input syntax for type {name}: \"{text}\"");
            Err(PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, message))
        }
    }
}

/// As its receive function reads it. PostgreSQL infers int8 unless the client declares another integer.
fn sent_count(parameter: u16, oid: Oid, bytes: &[u8]) -> Result<i64, PgError> {
    let size = match oid {
        oid::INT2 => 2,
        oid::INT4 => 4,
        _ => 8,
    };
    match bytes.get(..size) {
        None => Err(PgError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message")),
        Some(_) if bytes.len() > size => {
            let message = format!("incorrect binary data format in bind parameter {parameter}");
            Err(PgError::new(SqlState::INVALID_BINARY_REPRESENTATION, message))
        }
        Some(bytes) => {
            let sign = if bytes.first().is_some_and(|byte| *byte >= 0x80) { u8::MAX } else { 0 };
            let mut whole = [sign; 8];
            whole.iter_mut().rev().zip(bytes.iter().rev()).for_each(|(to, from)| *to = *from);
            Ok(i64::from_be_bytes(whole))
        }
    }
}

fn count_of_other_form() -> PgError {
    PgError::unsupported(
        "LIMIT or OFFSET with a parameter of this form is not supported across shards",
        "The proxy cuts the merged rows, and reads decimal digits only.",
        "Send the number in decimal digits.",
    )
}

impl<'a> Inputs<'a> {
    /// A statement without parameters; `literals` as [`crate::sql::parse::lexer::scan`] finds them in the text.
    pub fn literals(text: &'a str, literals: &'a [Literal]) -> Self {
        Self::listed(text, literals, &[])
    }

    pub fn listed(text: &'a str, literals: &'a [Literal], parameters: &'a [Parameter<'a>]) -> Self {
        Self { text, literals, parameters: Parameters::Listed(parameters) }
    }

    /// The parameters of a Bind message; `types` as in [`Parameter::oid`]. One whose type is missing or 0 is unknown.
    pub fn bound(text: &'a str, literals: &'a [Literal], bind: &'a Bind<'a>, types: &'a [Oid]) -> Self {
        Self { text, literals, parameters: Parameters::Bound { bind, types } }
    }

    /// Nothing in it means something else in another encoding.
    pub fn is_ascii(&self) -> bool {
        let is_text = |oid: Oid| matches!(oid, 0 | oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::UNKNOWN);
        let parameters_are = match self.parameters {
            Parameters::Listed(parameters) => {
                parameters.iter().all(|parameter| !is_text(parameter.oid) || parameter.value.is_none_or(<[u8]>::is_ascii))
            }
            Parameters::Bound { bind, types } => bind
                .parameters()
                .enumerate()
                .all(|(index, value)| !is_text(types.get(index).copied().unwrap_or(0)) || value.1.is_none_or(<[u8]>::is_ascii)),
        };
        parameters_are && self.text.is_ascii()
    }

    /// The constants of the text, and the values of the parameters that may be text: the same bytes in either format.
    pub fn constants(&self) -> impl Iterator<Item = String> {
        let is_text = |oid: Oid| oid::is_untyped(oid) || matches!(oid, oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME);
        let of_text = self.literals.iter().filter_map(|literal| literal.value(self.text)).map(|value| value.to_string());
        let count = match self.parameters {
            Parameters::Listed(parameters) => parameters.len(),
            Parameters::Bound { bind, .. } => bind.parameter_count,
        };
        let given = (1..=u16::try_from(count).unwrap_or(u16::MAX)).filter_map(|number| self.parameter(number));
        let given = given.filter(move |parameter| is_text(parameter.oid)).filter_map(|parameter| parameter.value);
        of_text.chain(given.map(|value| String::from_utf8_lossy(value).into_owned()))
    }

    /// The text in which the literals lie.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The value of a LIMIT or OFFSET; `None`: NULL, which is no limit.
    pub fn count(&self, count: &Count) -> Result<Option<i64>, PgError> {
        let number = match count {
            Count::Constant(value) => i64::try_from(*value).ok(),
            // In the rows of the shards.
            Count::Column(_) => None,
            Count::Literal(ordinal) => {
                let literal = self.literals.get(*ordinal as usize).and_then(|literal| literal.value(self.text));
                literal.and_then(|text| text.parse::<i64>().ok())
            }
            Count::Parameter(number) => match self.parameter(*number) {
                Some(Parameter { value: None, .. }) => return Ok(None),
                // It is rounded as its type rounds.
                Some(Parameter { oid, .. }) if !is_count(oid) => return Err(count_of_other_type()),
                Some(Parameter { format: Format::Text, value: Some(bytes), oid }) => return written_count(oid, bytes).map(Some),
                Some(Parameter { format: Format::Binary, value: Some(bytes), oid }) => {
                    return sent_count(*number, oid, bytes).map(Some);
                }
                None => None,
            },
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(PgError::internal("a LIMIT or OFFSET without a value")),
        }
    }

    /// Those of the parameters, as far as they are known or declared; 0: not known.
    pub fn parameter_types(&self) -> Box<[Oid]> {
        match self.parameters {
            Parameters::Listed(parameters) => parameters.iter().map(|parameter| parameter.oid).collect(),
            Parameters::Bound { types, .. } => types.into(),
        }
    }

    /// As PostgreSQL has found it; `None`: not known.
    pub fn parameter_type(&self, number: u16) -> Option<Oid> {
        self.parameter(number).map(|parameter| parameter.oid).filter(|oid| !oid::is_untyped(*oid))
    }

    /// `$1` and on; `None`: no value was given for it.
    pub fn parameter(&self, number: u16) -> Option<Parameter<'a>> {
        let index = usize::from(number).checked_sub(1)?;
        match self.parameters {
            Parameters::Listed(parameters) => parameters.get(index).copied(),
            Parameters::Bound { bind, types } => {
                let (format, value) = bind.parameter(index)?;
                Some(Parameter { oid: types.get(index).copied().unwrap_or(0), format, value })
            }
        }
    }

    pub(super) fn value(&self, value: &'a KeyValue) -> Value<'a> {
        match value {
            KeyValue::Null => Value::Null,
            KeyValue::Bool(true) => Value::text(oid::BOOL, Cow::Borrowed(b"t")),
            KeyValue::Bool(false) => Value::text(oid::BOOL, Cow::Borrowed(b"f")),
            KeyValue::Constant { text, oid } => Value::text(*oid, Cow::Borrowed(text.as_bytes())),
            KeyValue::Parameter { number, cast } => {
                match self.parameter(*number) {
                    None => Value::Unknown,
                    Some(Parameter { value: None, .. }) => Value::Null,
                    // Inferred by PostgreSQL from another place of the statement, perhaps.
                    Some(Parameter { oid, .. }) if oid::is_untyped(oid) => Value::Unknown,
                    Some(Parameter { oid, format, value: Some(bytes) }) => {
                        Value::Typed { oid, format, bytes: Cow::Borrowed(bytes) }.cast(*cast)
                    }
                }
            }
            KeyValue::Literal { ordinal, negative, cast } => self.literal(*ordinal, *negative).cast(*cast),
        }
    }

    /// What a parameter of this type holds when it is given the value by assignment, as text. `None`: not certain; inside: NULL.
    pub fn assigned(&self, value: &KeyValue, parameter_type: Oid) -> Option<Option<Vec<u8>>> {
        match self.value(value).cast(Some(parameter_type)) {
            Value::Null => Some(None),
            Value::Typed { oid, format: Format::Text, bytes } => {
                let is_integer = |oid| matches!(oid, oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC);
                // A cast that changes nothing keeps the type that it is looked through for.
                let is_assigned = oid == parameter_type || (is_integer(oid) && is_integer(parameter_type));
                is_assigned.then(|| Some(bytes.into_owned()))
            }
            Value::Typed { .. } | Value::Unknown => None,
        }
    }

    fn literal(&self, ordinal: u32, is_negative: bool) -> Value<'a> {
        let Some(literal) = self.literals.get(ordinal as usize) else {
            return Value::Unknown;
        };
        let oid = literal.class.type_oid();
        match (literal.value(self.text), is_negative) {
            (None, _) => Value::Unknown,
            (Some(text), false) => Value::text(oid, into_bytes(text)),
            // `- '5'` is not a constant.
            (Some(_), true) if oid::is_untyped(oid) => Value::Unknown,
            (Some(text), true) => Value::text(oid, Cow::Owned([b"-", text.as_bytes()].concat())),
        }
    }
}

impl<'a> Value<'a> {
    fn text(oid: Oid, bytes: Cow<'a, [u8]>) -> Self {
        Value::Typed { oid, format: Format::Text, bytes }
    }

    fn cast(self, target: Option<Oid>) -> Self {
        let (Value::Typed { oid, format, bytes }, Some(target)) = (&self, target) else {
            return self;
        };
        let (oid, format) = (*oid, *format);
        if oid == target {
            return self;
        }
        // A cast to char(n) without a length that shows here may cut.
        if target == oid::BPCHAR {
            return Value::Unknown;
        }
        let reads_text = oid::is_untyped(oid) && format == Format::Text;
        if reads_text || (matches!(oid, oid::TEXT | oid::VARCHAR) && is_read_from_text(target)) {
            let Value::Typed { bytes, .. } = self else { return Value::Unknown };
            return Value::text(target, bytes);
        }
        if !matches!(oid, oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC) {
            return Value::Unknown;
        }
        match (oid, target) {
            (oid::INT2 | oid::INT4 | oid::INT8, oid::NUMERIC) => self,
            (_, oid::INT2 | oid::INT4 | oid::INT8) => match KeyDatum::convert(integer_type(target), oid, format, bytes) {
                // In range and without a fraction: the cast changes nothing.
                Conversion::Exactly(_) => self,
                Conversion::NoValue | Conversion::Unknown => Value::Unknown,
            },
            (oid::INT2 | oid::INT4 | oid::INT8, oid::TEXT | oid::VARCHAR) => {
                match KeyDatum::convert(KeyType::Int8, oid, format, bytes) {
                    Conversion::Exactly(KeyDatum::Int(value)) => Value::text(target, Cow::Owned(value.to_string().into_bytes())),
                    Conversion::Exactly(_) | Conversion::NoValue | Conversion::Unknown => Value::Unknown,
                }
            }
            _ => Value::Unknown,
        }
    }
}

/// A cast from text is the type's input function. Not for bytea, name and char(n), which have casts of their own.
fn is_read_from_text(target: Oid) -> bool {
    matches!(
        target,
        oid::INT2
            | oid::INT4
            | oid::INT8
            | oid::NUMERIC
            | oid::TEXT
            | oid::VARCHAR
            | oid::UUID
            | oid::DATE
            | oid::TIMESTAMP
            | oid::TIMESTAMPTZ
            | oid::BOOL
    )
}

fn integer_type(oid: Oid) -> KeyType {
    match oid {
        oid::INT2 => KeyType::Int2,
        oid::INT4 => KeyType::Int4,
        _ => KeyType::Int8,
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse::lexer::scan;

    /// The first literal of the text, perhaps negated and cast: its type, its text.
    fn literal(text: &str, negative: bool, cast: Option<Oid>) -> Option<(Oid, String)> {
        let scanned = scan(text);
        let inputs = Inputs::literals(text, &scanned.literals);
        typed(inputs.value(&KeyValue::Literal { ordinal: 0, negative, cast }))
    }

    fn parameter(oid: Oid, format: Format, bytes: &[u8], cast: Option<Oid>) -> Option<(Oid, String)> {
        let parameters = [Parameter { oid, format, value: Some(bytes) }];
        let inputs = Inputs::listed("", &[], &parameters);
        typed(inputs.value(&KeyValue::Parameter { number: 1, cast }))
    }

    fn typed(value: Value<'_>) -> Option<(Oid, String)> {
        match value {
            Value::Typed { oid, format: Format::Text, bytes } => Some((oid, String::from_utf8(bytes.into_owned()).unwrap())),
            Value::Typed { oid, format: Format::Binary, bytes } => Some((oid, format!("{bytes:02x?}"))),
            Value::Null | Value::Unknown => None,
        }
    }

    fn some(oid: Oid, text: &str) -> Option<(Oid, String)> {
        Some((oid, text.to_owned()))
    }

    #[test]
    fn a_count_is_read_as_its_type_reads_it() {
        let count = |oid: Oid, format: Format, bytes: &[u8]| {
            let parameters = [Parameter { oid, format, value: Some(bytes) }];
            Inputs::listed("", &[], &parameters).count(&Count::Parameter(1)).map_err(|error| error.message)
        };
        let written = |oid: Oid, text: &str| count(oid, Format::Text, text.as_bytes());
        for (text, number) in [("7", 7), (" +07\n", 7), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(written(0, text), Ok(Some(number)), "{text:?}");
        }
        for (oid, text, told) in [
            (0, "", "invalid input syntax for type bigint: \"\""),
            (oid::INT8, "1.0", "invalid input syntax for type bigint: \"1.0\""),
            (oid::INT8, "5x", "invalid input syntax for type bigint: \"5x\""),
            (oid::INT4, "- 5", "invalid input syntax for type integer: \"- 5\""),
            (oid::INT2, "32768", "value \"32768\" is out of range for type smallint"),
            (oid::INT4, "-2147483649", "value \"-2147483649\" is out of range for type integer"),
            (oid::INT8, "9223372036854775808", "value \"9223372036854775808\" is out of range for type bigint"),
        ] {
            assert_eq!(written(oid, text), Err(told.to_owned()));
        }
        for text in ["0x1f", "1_000", "0b_1"] {
            assert!(written(oid::INT8, text).is_err_and(|told| told.contains("not supported")), "{text}");
        }
        let sent = |oid: Oid, bytes: &[u8]| count(oid, Format::Binary, bytes);
        assert_eq!(sent(oid::INT2, &[0xff, 0xfe]), Ok(Some(-2)));
        assert_eq!(sent(oid::INT4, &[0, 1, 0, 0]), Ok(Some(65_536)));
        assert_eq!(sent(oid::INT8, &i64::MIN.to_be_bytes()), Ok(Some(i64::MIN)));
        assert_eq!(sent(oid::INT8, &[0; 4]), Err("insufficient data left in message".to_owned()));
        assert_eq!(sent(oid::INT4, &[0; 8]), Err("incorrect binary data format in bind parameter 1".to_owned()));
    }

    #[test]
    fn literals_have_the_type_that_postgresql_gives_them() {
        assert_eq!(literal("select 42", false, None), some(oid::INT4, "42"));
        assert_eq!(literal("select - 42", true, None), some(oid::INT4, "-42"));
        assert_eq!(literal("select 3000000000", false, None), some(oid::INT8, "3000000000"));
        assert_eq!(literal("select 1.5", false, None), some(oid::NUMERIC, "1.5"));
        assert_eq!(literal("select 'it''s'", false, None), some(0, "it's"));
        assert_eq!(literal("select 0x1f", false, None), None);
        assert_eq!(literal("select - '5'", true, None), None);
        assert_eq!(literal("select", false, None), None, "no such literal");
    }

    #[test]
    fn a_cast_that_changes_nothing_is_looked_through() {
        assert_eq!(literal("'5'", false, Some(oid::INT8)), some(oid::INT8, "5"));
        assert_eq!(literal("5", false, Some(oid::INT8)), some(oid::INT4, "5"));
        assert_eq!(literal("5.0", false, Some(oid::INT4)), some(oid::NUMERIC, "5.0"));
        assert_eq!(literal("007", false, Some(oid::TEXT)), some(oid::TEXT, "7"));
        assert_eq!(parameter(oid::TEXT, Format::Binary, b"5", Some(oid::INT4)), some(oid::INT4, "5"));
        assert_eq!(parameter(oid::INT4, Format::Binary, &[0, 0, 0, 5], Some(oid::INT2)), some(oid::INT4, "[00, 00, 00, 05]"));
    }

    #[test]
    fn a_cast_that_may_change_the_value_makes_it_unknown() {
        assert_eq!(literal("1.5", false, Some(oid::INT4)), None, "rounds");
        assert_eq!(literal("70000", false, Some(oid::INT2)), None, "an error");
        assert_eq!(literal("'abc'", false, Some(oid::BPCHAR)), None, "cuts");
        assert_eq!(literal("5", false, Some(701)), None, "rounds");
        assert_eq!(literal("1.50", false, Some(oid::TEXT)), None);
        assert_eq!(parameter(oid::TIMESTAMP, Format::Text, b"2000-01-01 10:00:00", Some(oid::DATE)), None);
        assert_eq!(parameter(oid::TEXT, Format::Text, b"\\x00", Some(oid::BYTEA)), None);
        assert_eq!(parameter(0, Format::Binary, b"5", Some(oid::INT4)), None);
    }

    #[test]
    fn null_stays_null_and_a_parameter_that_is_not_there_is_unknown() {
        let parameters = [Parameter { oid: oid::INT4, format: Format::Text, value: None }];
        let inputs = Inputs::listed("", &[], &parameters);
        let value = |number| inputs.value(&KeyValue::Parameter { number, cast: Some(oid::INT8) }) == Value::Null;
        assert!(value(1));
        assert!(!value(2) && !value(0));
    }
}
