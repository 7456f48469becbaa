//! Reads numbers in PostgreSQL's text and binary forms, as integers where they are integers.
//!
//! Exact: nothing goes through floating point. What PostgreSQL's input function would reject, or what a newer version may
//! read differently (`1_000`, `0x10`), is `None`: unknown to us.

use super::{Format, Oid, oid};

/// A number, as seen from the integers of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Integer(i64),
    /// No integer; this one is the smallest above it.
    JustBelow(i64),
    /// Greater than every integer of 64 bits; also NaN, which PostgreSQL sorts last.
    AboveAll,
    BelowAll,
}

/// What a number becomes when it is stored as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Rounded half away from zero; it may still be too large for a smaller type.
    Integer(i64),
    /// Certain: out of range, NaN, infinite.
    Error,
}

impl Stored {
    /// A value of the type `oid`, which must be int2, int4, int8 or numeric; `None`: not known.
    pub(super) fn read(oid: Oid, format: Format, bytes: &[u8]) -> Option<Self> {
        match (oid, format) {
            (oid::NUMERIC, _) => Written::read(format, bytes).map(|written| written.stored()),
            (oid::INT2 | oid::INT4 | oid::INT8, Format::Text) => {
                let (_, digits) = split_sign(trim_blanks(bytes));
                match Number::read(oid, format, bytes) {
                    Some(Number::Integer(value)) => Some(Self::Integer(value)),
                    // Too many digits, a fraction, or words.
                    _ => (is_decimal(digits) || digits.first().is_none_or(u8::is_ascii_alphabetic)).then_some(Self::Error),
                }
            }
            (oid::INT2 | oid::INT4 | oid::INT8, Format::Binary) => match Number::read(oid, format, bytes) {
                Some(Number::Integer(value)) => Some(Self::Integer(value)),
                // Too many bytes, or too few.
                _ => Some(Self::Error),
            },
            _ => None,
        }
    }
}

impl Number {
    /// A value of the type `oid`, which must be int2, int4, int8 or numeric.
    pub(super) fn read(oid: Oid, format: Format, bytes: &[u8]) -> Option<Self> {
        let integer = match (oid, format) {
            (oid::INT2, Format::Binary) => i64::from(i16::from_be_bytes(bytes.try_into().ok()?)),
            (oid::INT4, Format::Binary) => i64::from(i32::from_be_bytes(bytes.try_into().ok()?)),
            (oid::INT8, Format::Binary) => i64::from_be_bytes(bytes.try_into().ok()?),
            (oid::INT2, Format::Text) => i64::from(i16::try_from(integer_from_text(bytes)?).ok()?),
            (oid::INT4, Format::Text) => i64::from(i32::try_from(integer_from_text(bytes)?).ok()?),
            (oid::INT8, Format::Text) => integer_from_text(bytes)?,
            (oid::NUMERIC, _) => return Written::read(format, bytes).map(|written| written.number()),
            _ => return None,
        };
        Some(Self::Integer(integer))
    }
}

/// As isspace() in the C locale, which the input functions skip around numbers and booleans.
pub(super) fn trim_blanks(bytes: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    bytes.get(start..end).unwrap_or_default()
}

/// The input syntax of int8 in PostgreSQL 15: blanks, sign, digits, blanks.
pub(super) fn integer_from_text(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = split_sign(trim_blanks(bytes));
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i64, |value, byte| {
        let digit = digit(*byte)?;
        let shifted = value.checked_mul(10)?;
        // Downwards for negative numbers, since the smallest int8 has no positive counterpart.
        if is_negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
    })
}

/// A value of numeric, taken apart.
pub(super) enum Written<'a> {
    /// `[sign] digits [. digits] [e [sign] digits]`
    Decimal {
        is_negative: bool,
        whole: &'a [u8],
        fraction: &'a [u8],
        exponent: i64,
    },
    /// The wire form: digits of base 10,000, big-endian; the power of 10,000 of the first.
    Groups {
        is_negative: bool,
        weight: i64,
        groups: &'a [[u8; 2]],
    },
    NotANumber,
    Infinity {
        is_negative: bool,
    },
}

impl<'a> Written<'a> {
    pub(super) fn read(format: Format, bytes: &'a [u8]) -> Option<Self> {
        match format {
            Format::Text => Self::from_text(bytes),
            Format::Binary => Self::from_binary(bytes),
        }
    }

    fn from_text(bytes: &'a [u8]) -> Option<Self> {
        let text = trim_blanks(bytes);
        let (is_negative, unsigned) = split_sign(text);
        if text.eq_ignore_ascii_case(b"nan") {
            return Some(Self::NotANumber);
        }
        if unsigned.eq_ignore_ascii_case(b"infinity") || unsigned.eq_ignore_ascii_case(b"inf") {
            return Some(Self::Infinity { is_negative });
        }
        let (mantissa, exponent) = match unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (unsigned.get(..at)?, integer_from_text_unpadded(unsigned.get(at + 1..)?)?),
            None => (unsigned, 0),
        };
        // PostgreSQL's limits on exponents differ between versions and contexts; nobody writes a key this way.
        if exponent.abs() > EXPONENT_MAX {
            return None;
        }
        let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
            Some(at) => (mantissa.get(..at)?, mantissa.get(at + 1..)?),
            None => (mantissa, &[][..]),
        };
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        let is_written = has_digits && whole.iter().chain(fraction).all(u8::is_ascii_digit);
        is_written.then_some(Self::Decimal { is_negative, whole, fraction, exponent })
    }

    /// Count of the digits, weight of the first, sign, display scale, digits.
    fn from_binary(bytes: &'a [u8]) -> Option<Self> {
        let (head, digits) = bytes.split_first_chunk::<8>()?;
        let [n0, n1, w0, w1, s0, s1, d0, d1] = *head;
        let count = i16::from_be_bytes([n0, n1]);
        let weight = i64::from(i16::from_be_bytes([w0, w1]));
        let scale = i64::from(u16::from_be_bytes([d0, d1]));
        let is_negative = match u16::from_be_bytes([s0, s1]) {
            0x0000 => false,
            0x4000 => true,
            0xc000 if count == 0 && digits.is_empty() => return Some(Self::NotANumber),
            0xd000 if count == 0 && digits.is_empty() => return Some(Self::Infinity { is_negative: false }),
            0xf000 if count == 0 && digits.is_empty() => return Some(Self::Infinity { is_negative: true }),
            _ => return None,
        };
        let (groups, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() || usize::try_from(count).ok()? != groups.len() || weight > EXPONENT_MAX || scale > SCALE_MAX {
            return None;
        }
        // PostgreSQL cuts off what the display scale hides; a well-behaved client hides nothing.
        let is_whole = (0..).zip(groups).all(|(index, group)| {
            let (place, digit) = (weight - index, group_value(*group));
            (0..10_000).contains(&digit) && (place >= 0 || digit == 0 || decimals_used(place, digit) <= scale)
        });
        is_whole.then_some(Self::Groups { is_negative, weight, groups })
    }

    /// Among the integers.
    fn number(&self) -> Number {
        match self.builder() {
            Ok(builder) => builder.finish(),
            Err(outside) => outside,
        }
    }

    /// As it is stored in an integer type.
    fn stored(&self) -> Stored {
        self.builder().map_or(Stored::Error, Builder::rounded)
    }

    /// Of a finite number; an infinity, or NaN, has its place.
    fn builder(&self) -> Result<Builder, Number> {
        match *self {
            Self::Decimal { is_negative, whole, fraction, exponent } => {
                let mut builder = Builder::new(is_negative);
                let mut places = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent);
                for digit in whole.iter().chain(fraction).map(|byte| digit_value(*byte)) {
                    match places {
                        1.. => builder.push_whole(10, digit),
                        _ => builder.push_fraction(digit, places == 0 && digit >= 5),
                    }
                    places -= 1;
                }
                (0..places).for_each(|_| builder.push_whole(10, 0));
                Ok(builder)
            }
            Self::Groups { is_negative, weight, groups } => {
                let mut builder = Builder::new(is_negative);
                let mut place = weight;
                for digit in groups.iter().map(|group| group_value(*group)) {
                    match place {
                        0.. => builder.push_whole(10_000, digit),
                        _ => builder.push_fraction(digit, place == -1 && digit >= 5_000),
                    }
                    place -= 1;
                }
                (0..=place).for_each(|_| builder.push_whole(10_000, 0));
                Ok(builder)
            }
            Self::NotANumber | Self::Infinity { is_negative: false } => Err(Number::AboveAll),
            Self::Infinity { is_negative: true } => Err(Number::BelowAll),
        }
    }
}

/// Of an ASCII digit.
pub(super) fn digit_value(byte: u8) -> i64 {
    i64::from(byte.wrapping_sub(b'0'))
}

pub(super) fn group_value(group: [u8; 2]) -> i64 {
    i64::from(i16::from_be_bytes(group))
}

/// How many decimals after the point this base-10,000 digit reaches to; `place` is -1 for the first one after the point.
fn decimals_used(place: i64, digit: i64) -> i64 {
    let trailing_zeros = [10, 100, 1_000].iter().filter(|power| digit % **power == 0).count();
    -place * 4 - i64::try_from(trailing_zeros).unwrap_or(0)
}

/// Digits from the most significant on, as an integer and whether a fraction is left.
struct Builder {
    is_negative: bool,
    /// Towards the sign; `None` once it has left the range of int8.
    whole: Option<i64>,
    has_fraction: bool,
    /// The fraction is a half or more.
    has_half: bool,
}

impl Builder {
    fn new(is_negative: bool) -> Self {
        Self { is_negative, whole: Some(0), has_fraction: false, has_half: false }
    }

    fn push_whole(&mut self, base: i64, digit: i64) {
        self.whole = self.whole.and_then(|whole| {
            let shifted = whole.checked_mul(base)?;
            if self.is_negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
        });
    }

    fn push_fraction(&mut self, digit: i64, is_half: bool) {
        self.has_fraction |= digit != 0;
        self.has_half |= is_half;
    }

    fn rounded(self) -> Stored {
        let step = match (self.has_half, self.is_negative) {
            (false, _) => 0,
            (true, true) => -1,
            (true, false) => 1,
        };
        self.whole.and_then(|whole| whole.checked_add(step)).map_or(Stored::Error, Stored::Integer)
    }

    fn finish(self) -> Number {
        match (self.whole, self.has_fraction, self.is_negative) {
            (Some(whole), false, _) => Number::Integer(whole),
            (Some(whole), true, true) => Number::JustBelow(whole),
            (Some(whole), true, false) => whole.checked_add(1).map_or(Number::AboveAll, Number::JustBelow),
            (None, _, true) => Number::BelowAll,
            (None, _, false) => Number::AboveAll,
        }
    }
}

/// Digits with at most one point.
fn is_decimal(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_digit)
        && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && text.iter().filter(|byte| **byte == b'.').count() <= 1
}

/// An exponent: no blanks inside the number.
fn integer_from_text_unpadded(bytes: &[u8]) -> Option<i64> {
    if trim_blanks(bytes).len() != bytes.len() {
        return None;
    }
    integer_from_text(bytes)
}

pub(super) fn split_sign(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, bytes),
    }
}

fn digit(byte: u8) -> Option<i64> {
    byte.is_ascii_digit().then(|| digit_value(byte))
}

const EXPONENT_MAX: i64 = 1_000;
const SCALE_MAX: i64 = 16_383;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Option<Number> {
        Number::read(oid::NUMERIC, Format::Text, value.as_bytes())
    }

    fn binary(weight: i16, sign: u16, scale: u16, digits: &[i16]) -> Option<Number> {
        let mut bytes = Vec::new();
        bytes.extend(i16::try_from(digits.len()).unwrap().to_be_bytes());
        bytes.extend(weight.to_be_bytes());
        bytes.extend(sign.to_be_bytes());
        bytes.extend(scale.to_be_bytes());
        digits.iter().for_each(|digit| bytes.extend(digit.to_be_bytes()));
        Number::read(oid::NUMERIC, Format::Binary, &bytes)
    }

    #[test]
    fn what_is_stored_as_an_integer_is_rounded_half_away_from_zero() {
        let stored = |value: &str| Stored::read(oid::NUMERIC, Format::Text, value.as_bytes());
        for (value, expected) in [
            ("42.5", 43),
            ("42.4999999999999999999", 42),
            ("-42.5", -43),
            ("-42.49", -42),
            ("0.5", 1),
            ("5e-1", 1),
            ("5e-2", 0),
            ("4.25e1", 43),
            ("9223372036854775807.4", i64::MAX),
        ] {
            assert_eq!(stored(value), Some(Stored::Integer(expected)), "{value}");
        }
        assert_eq!(stored("9223372036854775807.5"), Some(Stored::Error));
        assert_eq!(stored("NaN"), Some(Stored::Error));
        assert_eq!(stored("1_000.5"), None);
        let integer = |value: &str| Stored::read(oid::INT4, Format::Text, value.as_bytes());
        assert_eq!(integer("3000000000"), Some(Stored::Error));
        assert_eq!(integer(" -99999999999999999999 "), Some(Stored::Error));
        assert_eq!(integer("0x10"), None, "a newer PostgreSQL reads it");
        assert_eq!(integer("1.5"), Some(Stored::Error), "an input function does not round");
        assert_eq!(integer("1_000"), None);
        assert_eq!(integer("x"), Some(Stored::Error));
        assert_eq!(integer(" "), Some(Stored::Error));
        assert_eq!(Stored::read(oid::INT4, Format::Binary, &[0; 8]), Some(Stored::Error));
    }

    #[test]
    fn integers_are_read_as_the_input_function_reads_them() {
        assert_eq!(integer_from_text(b" \t-42\n"), Some(-42));
        assert_eq!(integer_from_text(b"+007"), Some(7));
        assert_eq!(integer_from_text(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer_from_text(b"9223372036854775807"), Some(i64::MAX));
        for rejected in ["9223372036854775808", "", " ", "-", "+", "1 2", "- 1", "--1", "1.0", "1_000", "0x10", "1e3", "١"] {
            assert_eq!(integer_from_text(rejected.as_bytes()), None, "{rejected:?}");
        }
    }

    #[test]
    fn each_integer_type_has_its_own_range() {
        assert_eq!(Number::read(oid::INT2, Format::Text, b"32767"), Some(Number::Integer(32767)));
        assert_eq!(Number::read(oid::INT2, Format::Text, b"32768"), None);
        assert_eq!(Number::read(oid::INT4, Format::Text, b"-2147483649"), None);
        assert_eq!(Number::read(oid::INT4, Format::Binary, &[0xff; 4]), Some(Number::Integer(-1)));
        assert_eq!(Number::read(oid::INT4, Format::Binary, &[0xff; 8]), None);
        assert_eq!(Number::read(701, Format::Text, b"1"), None);
    }

    #[test]
    fn numeric_text_is_exact() {
        assert_eq!(text("9007199254740993.0"), Some(Number::Integer(9_007_199_254_740_993)));
        assert_eq!(text("1.5"), Some(Number::JustBelow(2)));
        assert_eq!(text("-1.5"), Some(Number::JustBelow(-1)));
        assert_eq!(text("-0.5"), Some(Number::JustBelow(0)));
        assert_eq!(text(" 12e2 "), Some(Number::Integer(1_200)));
        assert_eq!(text("1200e-2"), Some(Number::Integer(12)));
        assert_eq!(text("1205e-2"), Some(Number::JustBelow(13)));
        assert_eq!(text(".5"), Some(Number::JustBelow(1)));
        assert_eq!(text("5."), Some(Number::Integer(5)));
        assert_eq!(text("0e500"), Some(Number::Integer(0)));
        assert_eq!(text("9223372036854775807.5"), Some(Number::AboveAll));
        assert_eq!(text("-9223372036854775808.5"), Some(Number::JustBelow(i64::MIN)));
        assert_eq!(text("-9223372036854775809"), Some(Number::BelowAll));
        assert_eq!(text("NaN"), Some(Number::AboveAll));
        assert_eq!(text("-inf"), Some(Number::BelowAll));
        for rejected in ["", ".", "e5", "1e", "1e 5", "1e99999", "1.2.3", "1_0", "0x1", "nano", "1 e5", "-NaN"] {
            assert_eq!(text(rejected), None, "{rejected:?}");
        }
    }

    #[test]
    fn numeric_binary_is_exact() {
        assert_eq!(binary(0, 0, 0, &[42]), Some(Number::Integer(42)));
        assert_eq!(binary(1, 0x4000, 0, &[12]), Some(Number::Integer(-120_000)));
        assert_eq!(binary(0, 0, 1, &[1, 5_000]), Some(Number::JustBelow(2)));
        assert_eq!(binary(0, 0, 2, &[1]), Some(Number::Integer(1)));
        assert_eq!(binary(-1, 0, 4, &[1]), Some(Number::JustBelow(1)));
        assert_eq!(binary(0, 0, 0, &[]), Some(Number::Integer(0)));
        assert_eq!(binary(0, 0xc000, 0, &[]), Some(Number::AboveAll));
        assert_eq!(binary(0, 0xf000, 0, &[]), Some(Number::BelowAll));
        assert_eq!(binary(5, 0, 0, &[1]), Some(Number::AboveAll));
    }

    #[test]
    fn numeric_binary_that_hides_digits_or_is_malformed_is_unknown() {
        assert_eq!(binary(0, 0, 0, &[1, 5_000]), None, "PostgreSQL would cut it to 1");
        assert_eq!(binary(0, 0, 3, &[1, 5_001]), None);
        assert_eq!(binary(0, 0, 0, &[10_000]), None);
        assert_eq!(binary(0, 0, 0, &[-1]), None);
        assert_eq!(binary(0, 0x1234, 0, &[1]), None);
        for length in 0..10 {
            assert_eq!(Number::read(oid::NUMERIC, Format::Binary, &[0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0][..length]), None);
        }
    }
}
