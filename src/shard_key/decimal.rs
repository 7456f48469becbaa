//! Values of numeric: exact, and in one form, which equal values share.
//!
//! `1.0` and `1.00` are equal for PostgreSQL and have one hash; here they are one [`Decimal`]. It is kept as bytes that sort as
//! PostgreSQL's btree operators sort numeric, and no value's bytes begin with those of another one:
//!
//! | value | bytes |
//! |---|---|
//! | -Infinity, zero, Infinity, NaN | `00`, `02`, `04`, `05` |
//! | above zero | `03`, weight, digits, `00 00` |
//! | below zero | `01`, then the bytes of the absolute value after its `03`, each inverted |
//!
//! The digits are of base 10,000, as in PostgreSQL, without zeros at either end; each is written plus one, in 2 bytes, big-endian. The
//! weight is the power of 10,000 of the first one: 4 bytes, big-endian, sign bit flipped.

use smallvec::SmallVec;

use super::number::{Number, Written, digit_value, group_value, split_sign, trim_blanks};
use super::{Format, Oid, oid};

/// One value of numeric. Its bytes are those of the module's table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Decimal(Box<[u8]>);

/// What a number becomes when it is stored in a column of numeric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoredDecimal {
    Exactly(Decimal),
    /// Certain: too large for the column, or no number.
    Error,
}

/// Digits of base 10,000, from the most significant on.
pub(super) struct Groups {
    pub(super) weight: i32,
    pub(super) digits: SmallVec<[u16; 16]>,
}

impl Decimal {
    /// A value of numeric or of an integer type. `None`: not known.
    pub(super) fn read(oid: Oid, format: Format, bytes: &[u8]) -> Option<Self> {
        Self::rounded(oid, format, bytes, None).and_then(|stored| match stored {
            StoredDecimal::Exactly(decimal) => Some(decimal),
            StoredDecimal::Error => None,
        })
    }

    /// The same as a column of this `atttypmod` stores it. `None`: not known.
    pub(super) fn assign(typmod: i32, oid: Oid, format: Format, bytes: &[u8]) -> Option<StoredDecimal> {
        Self::rounded(oid, format, bytes, Precision::of(typmod))
    }

    fn rounded(oid: Oid, format: Format, bytes: &[u8], precision: Option<Precision>) -> Option<StoredDecimal> {
        let text;
        let written = match oid {
            oid::NUMERIC => match Written::read(format, bytes) {
                Some(written) => written,
                None => return is_word(format, bytes).then_some(StoredDecimal::Error),
            },
            _ => match Number::read(oid, format, bytes)? {
                Number::Integer(value) => {
                    text = value.to_string();
                    Written::read(Format::Text, text.as_bytes())?
                }
                Number::JustBelow(_) | Number::AboveAll | Number::BelowAll => return None,
            },
        };
        let stored = |bytes: &[u8]| Some(StoredDecimal::Exactly(Self(bytes.into())));
        let mut digits = match written {
            Written::NotANumber => return stored(&[NOT_A_NUMBER]),
            Written::Infinity { .. } if precision.is_some() => return Some(StoredDecimal::Error),
            Written::Infinity { is_negative: false } => return stored(&[INFINITY]),
            Written::Infinity { is_negative: true } => return stored(&[MINUS_INFINITY]),
            Written::Decimal { .. } | Written::Groups { .. } => Digits::of(&written)?,
        };
        if let Some(precision) = precision {
            digits.round(precision.scale);
            digits.trim();
            let digits_before_point = if digits.digits.is_empty() { i64::MIN } else { digits.places };
            if digits_before_point > precision.digits - precision.scale {
                return Some(StoredDecimal::Error);
            }
        }
        digits.trim();
        Some(StoredDecimal::Exactly(digits.encoded()?))
    }

    /// As the module's table has it.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value at the beginning of these bytes, and what follows. `None`: there is none.
    pub(super) fn from_ordered(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let length = match *bytes.first()? {
            MINUS_INFINITY | ZERO | INFINITY | NOT_A_NUMBER => 1,
            kind @ (BELOW_ZERO | ABOVE_ZERO) => {
                let end = if kind == BELOW_ZERO { [0xff, 0xff] } else { [0, 0] };
                let (digits, _) = bytes.get(HEAD_BYTES..)?.as_chunks::<2>();
                HEAD_BYTES + 2 * (digits.iter().position(|digit| *digit == end)? + 1)
            }
            _ => return None,
        };
        let (own, rest) = bytes.split_at_checked(length)?;
        let decimal = Self(own.into());
        let is_canonical = decimal.groups().is_none_or(|groups| {
            let ends = [groups.digits.first(), groups.digits.last()];
            ends.iter().all(|digit| digit.is_some_and(|digit| *digit != 0))
                && groups.digits.iter().all(|digit| *digit < 10_000)
                && groups.weight.unsigned_abs() <= WEIGHT_MAX
        });
        is_canonical.then_some((decimal, rest))
    }

    /// Of a number that is finite and not zero.
    pub(super) fn groups(&self) -> Option<Groups> {
        let inverted = match *self.0.first()? {
            BELOW_ZERO => u8::MAX,
            ABOVE_ZERO => 0,
            _ => return None,
        };
        let (weight, digits) = self.0.get(1..)?.split_first_chunk::<4>()?;
        let weight = (u32::from_be_bytes(weight.map(|byte| byte ^ inverted)) ^ SIGN).cast_signed();
        let (digits, _) = digits.as_chunks::<2>();
        let digits = digits.iter().map(|digit| u16::from_be_bytes(digit.map(|byte| byte ^ inverted)).wrapping_sub(1));
        let mut digits: SmallVec<[u16; 16]> = digits.collect();
        digits.pop();
        Some(Groups { weight, digits })
    }

    /// What no number is below.
    pub fn least() -> Self {
        Self([MINUS_INFINITY].into())
    }

    pub(super) fn is_zero(&self) -> bool {
        *self.0 == [ZERO]
    }

    /// As PostgreSQL prints it, without zeros at the end of the fraction.
    pub(super) fn to_text(&self) -> String {
        let Some(Groups { weight, digits }) = self.groups() else {
            return match self.0.first() {
                Some(&MINUS_INFINITY) => "-Infinity",
                Some(&INFINITY) => "Infinity",
                Some(&NOT_A_NUMBER) => "NaN",
                _ => "0",
            }
            .to_owned();
        };
        let group = |place: i32| {
            let index = usize::try_from(weight.saturating_sub(place)).ok();
            index.and_then(|index| digits.get(index)).copied().unwrap_or(0)
        };
        let last = weight.saturating_sub(i32::try_from(digits.len()).unwrap_or(i32::MAX)) + 1;
        let whole: String = (0..=weight.max(0)).rev().map(|place| format!("{:04}", group(place))).collect();
        let fraction: String = (last..0).rev().map(|place| format!("{:04}", group(place))).collect();
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let sign = if self.0.first() == Some(&BELOW_ZERO) { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{}{point}{fraction}", if whole.is_empty() { "0" } else { whole })
    }
}

/// No input function of any version reads it as a number.
fn is_word(format: Format, bytes: &[u8]) -> bool {
    let (_, unsigned) = split_sign(trim_blanks(bytes));
    format == Format::Text && unsigned.first().is_none_or(u8::is_ascii_alphabetic)
}

/// Of `numeric(digits, scale)`.
#[derive(Clone, Copy)]
struct Precision {
    digits: i64,
    /// Digits behind the point; below zero, of zeros before it.
    scale: i64,
}

impl Precision {
    /// As make_numeric_typmod packs them.
    fn of(typmod: i32) -> Option<Self> {
        let packed = typmod.checked_sub(VARLENA_HEADER).filter(|packed| *packed >= 0)?;
        Some(Self { digits: i64::from((packed >> 16) & 0xffff), scale: i64::from(((packed & 0x7ff) ^ 1024) - 1024) })
    }
}

/// Decimal digits.
struct Digits {
    is_negative: bool,
    digits: SmallVec<[u8; 48]>,
    /// How many of them stand before the point; below zero, how many zeros stand between it and the first.
    places: i64,
}

impl Digits {
    fn of(written: &Written<'_>) -> Option<Self> {
        let mut digits = match *written {
            Written::Decimal { is_negative, whole, fraction, exponent } => {
                let places = i64::try_from(whole.len()).ok()? + exponent;
                let digit = |byte: &u8| u8::try_from(digit_value(*byte)).unwrap_or_default();
                Self { is_negative, digits: whole.iter().chain(fraction).map(digit).collect(), places }
            }
            Written::Groups { is_negative, weight, groups } => {
                let decimals = |group: &[u8; 2]| {
                    let value = group_value(*group);
                    [1_000, 100, 10, 1].map(|power| u8::try_from(value / power % 10).unwrap_or_default())
                };
                Self { is_negative, digits: groups.iter().flat_map(decimals).collect(), places: (weight + 1) * 4 }
            }
            Written::NotANumber | Written::Infinity { .. } => return None,
        };
        digits.trim();
        (digits.digits.len() <= DIGITS_MAX).then_some(digits)
    }

    /// Takes the zeros off both ends.
    fn trim(&mut self) {
        let leading = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..leading);
        self.places -= i64::try_from(leading).unwrap_or_default();
        let kept = self.digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        self.digits.truncate(kept);
    }

    /// Half away from zero.
    fn round(&mut self, scale: i64) {
        let kept = self.places.saturating_add(scale);
        let Ok(kept) = usize::try_from(kept) else {
            self.digits.clear();
            return;
        };
        let is_up = self.digits.get(kept).is_some_and(|digit| *digit >= 5);
        self.digits.truncate(kept);
        if !is_up {
            return;
        }
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
        self.places += 1;
    }

    /// Of digits that are trimmed.
    fn encoded(&self) -> Option<Decimal> {
        if self.digits.is_empty() {
            return Some(Decimal([ZERO].into()));
        }
        let weight = (self.places - 1).div_euclid(4);
        let padding = usize::try_from(3 - (self.places - 1).rem_euclid(4)).ok()?;
        let padded: SmallVec<[u8; 48]> = std::iter::repeat_n(0, padding).chain(self.digits.iter().copied()).collect();
        let inverted = if self.is_negative { u8::MAX } else { 0 };
        let weight = i32::try_from(weight).ok().filter(|weight| weight.unsigned_abs() <= WEIGHT_MAX)?;
        let mut bytes: SmallVec<[u8; 48]> = SmallVec::new();
        bytes.extend((weight.cast_unsigned() ^ SIGN).to_be_bytes());
        for group in padded.chunks(4) {
            let digit = (0..4).fold(0_u16, |value, index| value * 10 + u16::from(group.get(index).copied().unwrap_or(0)));
            bytes.extend((digit + 1).to_be_bytes());
        }
        bytes.extend([0, 0]);
        let kind = if self.is_negative { BELOW_ZERO } else { ABOVE_ZERO };
        Some(Decimal(std::iter::once(kind).chain(bytes.iter().map(|byte| byte ^ inverted)).collect()))
    }
}

const MINUS_INFINITY: u8 = 0;
const BELOW_ZERO: u8 = 1;
const ZERO: u8 = 2;
const ABOVE_ZERO: u8 = 3;
const INFINITY: u8 = 4;
const NOT_A_NUMBER: u8 = 5;
/// The kind and the weight.
const HEAD_BYTES: usize = 5;
const SIGN: u32 = 1 << 31;
/// VARHDRSZ, which is added to a typmod.
const VARLENA_HEADER: i32 = 4;
/// Nobody writes a longer key.
const DIGITS_MAX: usize = 2_000;
/// Beyond what so many digits and their exponents reach.
const WEIGHT_MAX: u32 = 4_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::read(oid::NUMERIC, Format::Text, text.as_bytes()).expect(text)
    }

    fn stored(precision: i32, scale: i32, text: &str) -> Option<String> {
        let typmod = ((precision << 16) | (scale & 0x7ff)) + VARLENA_HEADER;
        match Decimal::assign(typmod, oid::NUMERIC, Format::Text, text.as_bytes()) {
            Some(StoredDecimal::Exactly(decimal)) => Some(decimal.to_text()),
            Some(StoredDecimal::Error) => None,
            None => panic!("{text} is not known"),
        }
    }

    #[test]
    fn equal_numbers_are_one_and_are_printed_without_zeros_at_the_end() {
        for (texts, printed) in [
            (&["1", "1.0", "01.00", "+1", "10e-1", "0.001e3"][..], "1"),
            (&["0", "-0", "0.000", "0e5"], "0"),
            (&["-12000.0500", "-120000500e-4"], "-12000.05"),
            (&[".5", "0.5", "5000e-4"], "0.5"),
            (&["0.00010", "1e-4"], "0.0001"),
            (&["1e10", "10000000000"], "10000000000"),
            (&["0.00001234"], "0.00001234"),
            (&["NaN", " nan "], "NaN"),
            (&["-inf", "-Infinity"], "-Infinity"),
        ] {
            for text in texts {
                assert_eq!(decimal(text).to_text(), printed, "{text}");
                assert_eq!(decimal(text), decimal(printed), "{text}");
            }
        }
        assert_eq!(Decimal::read(oid::INT4, Format::Text, b"-70000"), Some(decimal("-70000.0")));
        assert_eq!(Decimal::read(oid::INT8, Format::Binary, &i64::MIN.to_be_bytes()), Some(decimal("-9223372036854775808")));
        for unknown in ["", "x", "1_000", "0x10", "1.2.3", "1e2000", "--1"] {
            assert_eq!(Decimal::read(oid::NUMERIC, Format::Text, unknown.as_bytes()), None, "{unknown}");
        }
        assert_eq!(Decimal::read(oid::FLOAT8, Format::Text, b"1"), None);
        assert_eq!(Decimal::read(oid::NUMERIC, Format::Text, "7".repeat(DIGITS_MAX + 1).as_bytes()), None);
    }

    #[test]
    fn bytes_sort_as_numbers_do() {
        let sorted = [
            "-Infinity",
            "-10001",
            "-10000",
            "-9999.9",
            "-9999",
            "-1.5",
            "-1",
            "-0.5",
            "-0.00001",
            "0",
            "0.00001",
            "0.5",
            "1",
            "1.0001",
            "1.5",
            "9999",
            "9999.9",
            "10000",
            "10001",
            "1e20",
            "Infinity",
            "NaN",
        ];
        for pair in sorted.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_column_rounds_to_its_scale_and_takes_no_more_digits_than_it_has() {
        for (precision, scale, text, expected) in [
            (5, 2, "1.005", Some("1.01")),
            (5, 2, "-1.005", Some("-1.01")),
            (5, 2, "1.0049", Some("1")),
            (5, 2, "999.994", Some("999.99")),
            (5, 2, "999.995", None),
            (5, 2, "0.004", Some("0")),
            (5, 0, "9999.5", Some("10000")),
            (3, -2, "12345", Some("12300")),
            (3, -2, "99949", Some("99900")),
            (3, -2, "99950", None),
            (3, -2, "49", Some("0")),
            (3, -2, "50", Some("100")),
            (2, 4, "0.0099", Some("0.0099")),
            (2, 4, "0.00994", Some("0.0099")),
            (2, 4, "0.00995", None),
            (5, 2, "NaN", Some("NaN")),
            (5, 2, "Infinity", None),
            (5, 2, "word", None),
        ] {
            assert_eq!(stored(precision, scale, text).as_deref(), expected, "numeric({precision},{scale}) := {text}");
        }
    }

    #[test]
    fn other_bytes_are_no_number() {
        let whole = decimal("-120.5");
        assert_eq!(Decimal::from_ordered(&[whole.as_bytes(), &[7]].concat()), Some((whole.clone(), &[7][..])));
        for bytes in [
            &[][..],
            &[6],
            &[3],
            &[3, 0x80, 0, 0, 0, 0, 0],
            &[3, 0x80, 0, 0, 0, 0, 1, 0, 0],
            &[3, 0x80, 0, 0, 0, 0x27, 0x11, 0, 0],
            &[3, 0xff, 0, 0, 0, 0, 2, 0, 0],
            &[3, 0x80, 0, 0, 0, 0, 2],
        ] {
            assert_eq!(Decimal::from_ordered(bytes), None, "{bytes:?}");
        }
    }
}
