//! Sums and averages of `numeric` values, exact, with PostgreSQL's rules for the digits that are shown.
//!
//! A sum shows as many digits after the point as the value that shows most. A quotient shows what `select_div_scale` gives it:
//! at least sixteen significant digits, and no fewer after the point than its dividend; it is rounded half away from zero.
//! NaN wins over everything; infinities of both signs make NaN.

use bytes::{BufMut, BytesMut};

use crate::execute::numeric::{Finite, Numeric};

/// A numeric value with the digits after the point that it is shown with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub value: Numeric,
    pub scale: u16,
}

/// Base-10,000 digits that have not been carried yet: the first is of the power `lowest`.
#[derive(Debug, Default)]
pub struct DecimalSum {
    has_nan: bool,
    has_infinity: bool,
    has_negative_infinity: bool,
    scale: u16,
    lowest: i32,
    /// Each stays below 10,000 times the number of values added, of which there are as many as shards.
    digits: Vec<i64>,
}

impl DecimalSum {
    pub fn add(&mut self, value: &Numeric, scale: u16) {
        self.scale = self.scale.max(scale);
        match value {
            Numeric::NaN => self.has_nan = true,
            Numeric::Infinity => self.has_infinity = true,
            Numeric::NegativeInfinity => self.has_negative_infinity = true,
            Numeric::Finite(finite) => self.add_finite(finite),
        }
    }

    fn add_finite(&mut self, value: &Finite) {
        let count = i32::try_from(value.digits.len()).unwrap_or(i32::MAX);
        if count == 0 {
            return;
        }
        let lowest = value.weight - (count - 1);
        if self.digits.is_empty() {
            self.lowest = lowest;
        }
        if let Ok(missing) = usize::try_from(self.lowest - lowest) {
            self.digits.splice(0..0, std::iter::repeat_n(0, missing));
            self.lowest = self.lowest.min(lowest);
        }
        let highest = usize::try_from(value.weight - self.lowest).unwrap_or(0);
        if highest >= self.digits.len() {
            self.digits.resize(highest + 1, 0);
        }
        for (offset, &digit) in value.digits.iter().enumerate() {
            if let Some(place) = highest.checked_sub(offset).and_then(|place| self.digits.get_mut(place)) {
                *place += if value.is_negative { -i64::from(digit) } else { i64::from(digit) };
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.digits.capacity() * size_of::<i64>()
    }

    pub fn total(&self) -> Decimal {
        let value = match (self.has_nan, self.has_infinity, self.has_negative_infinity) {
            (true, ..) | (false, true, true) => Numeric::NaN,
            (false, true, false) => Numeric::Infinity,
            (false, false, true) => Numeric::NegativeInfinity,
            (false, false, false) => return Decimal { value: Numeric::Finite(self.finite()), scale: self.scale },
        };
        Decimal { value, scale: 0 }
    }

    fn finite(&self) -> Finite {
        let (mut digits, mut carry) = carried(self.digits.iter().copied());
        let is_negative = carry < 0;
        if is_negative {
            (digits, carry) = carried(self.digits.iter().map(|digit| -digit));
        }
        while carry > 0 {
            digits.push(u16::try_from(carry % BASE).unwrap_or(0));
            carry /= BASE;
        }
        let weight = self.lowest + i32::try_from(digits.len()).unwrap_or(i32::MAX) - 1;
        digits.reverse();
        Finite::normalised(is_negative, weight, &digits)
    }
}

/// Digits from 0 to 9999, from the lowest on, and what is left beyond them; negative when the whole is.
fn carried(digits: impl Iterator<Item = i64>) -> (Vec<u16>, i64) {
    let mut carry = 0;
    let digits = digits
        .map(|digit| {
            let sum = digit + carry;
            carry = sum.div_euclid(BASE);
            u16::try_from(sum.rem_euclid(BASE)).unwrap_or(0)
        })
        .collect();
    (digits, carry)
}

impl Decimal {
    /// As `numeric_div` by a whole number. `None` for a division by zero.
    pub fn divided_by(&self, count: u64) -> Option<Self> {
        if count == 0 {
            return None;
        }
        let Numeric::Finite(finite) = &self.value else { return Some(self.clone()) };
        let scale = self.quotient_scale(finite, count);
        Some(Self { value: Numeric::Finite(quotient(finite, count, scale)), scale })
    }

    /// `select_div_scale`.
    fn quotient_scale(&self, finite: &Finite, count: u64) -> u16 {
        let (weight, first) = finite.digits.first().map_or((0, 0), |first| (finite.weight, u64::from(*first)));
        let (mut count_weight, mut count_first) = (0, count);
        while count_first >= BASE.unsigned_abs() {
            count_first /= BASE.unsigned_abs();
            count_weight += 1;
        }
        let quotient_weight = weight - count_weight - i32::from(first <= count_first);
        let wanted = (SIGNIFICANT_DIGITS_MIN - quotient_weight * DIGITS_EACH).max(i32::from(self.scale));
        u16::try_from(wanted.clamp(0, SCALE_MAX)).unwrap_or(0)
    }

    /// As `numeric_out` prints it.
    pub fn to_text(&self) -> Vec<u8> {
        let finite = match &self.value {
            Numeric::NaN => return b"NaN".to_vec(),
            Numeric::Infinity => return b"Infinity".to_vec(),
            Numeric::NegativeInfinity => return b"-Infinity".to_vec(),
            Numeric::Finite(finite) => finite,
        };
        let mut text = String::new();
        if finite.is_negative && !finite.digits.is_empty() {
            text.push('-');
        }
        if finite.weight < 0 || finite.digits.is_empty() {
            text.push('0');
        } else {
            let whole: String = (0..=finite.weight).rev().map(|power| format!("{:04}", digit(finite, power))).collect();
            let trimmed = whole.trim_start_matches('0');
            text.push_str(if trimmed.is_empty() { "0" } else { trimmed });
        }
        if self.scale > 0 {
            let groups = i32::from(self.scale).div_euclid(DIGITS_EACH) + 1;
            let fraction: String = (1..=groups).map(|group| format!("{:04}", digit(finite, -group))).collect();
            text.push('.');
            text.push_str(fraction.get(..usize::from(self.scale)).unwrap_or_default());
        }
        text.into_bytes()
    }

    /// As `numeric_send` writes it.
    pub fn to_binary(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        let mut header = |count: usize, weight: i32, sign: u16, scale: u16| {
            out.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
            out.put_i16(i16::try_from(weight).unwrap_or(i16::MAX));
            out.put_u16(sign);
            out.put_u16(scale);
        };
        match &self.value {
            Numeric::NaN => header(0, 0, 0xC000, 0),
            // What their headers say when they are read as those of short values.
            Numeric::Infinity => header(0, 0, 0xD000, 0x20),
            Numeric::NegativeInfinity => header(0, 0, 0xF000, 0x20),
            Numeric::Finite(finite) => {
                let is_negative = finite.is_negative && !finite.digits.is_empty();
                header(finite.digits.len(), finite.weight, if is_negative { 0x4000 } else { 0 }, self.scale);
                finite.digits.iter().for_each(|digit| out.put_u16(*digit));
            }
        }
        out.to_vec()
    }
}

/// The digit of a power of 10,000.
fn digit(finite: &Finite, power: i32) -> u16 {
    usize::try_from(finite.weight - power).ok().and_then(|index| finite.digits.get(index)).copied().unwrap_or(0)
}

/// Long division, cut after `scale` digits and rounded by the next one.
fn quotient(finite: &Finite, count: u64, scale: u16) -> Finite {
    let groups = i32::from(scale) / DIGITS_EACH;
    let kept = u32::from(scale) % 4;
    let weight = finite.weight.max(0);
    let mut remainder: u128 = 0;
    let mut digits: Vec<i64> = Vec::new();
    for power in (-groups - 1..=weight).rev() {
        let dividend = remainder * u128::from(BASE.unsigned_abs()) + u128::from(digit(finite, power));
        digits.push(i64::try_from(dividend / u128::from(count)).unwrap_or(0));
        remainder = dividend % u128::from(count);
    }
    // Of the last group only the first digits are kept.
    if let Some(last) = digits.last_mut() {
        let unit = 10_i64.pow(4 - kept);
        let dropped = *last % unit;
        *last += if dropped * 2 >= unit { unit - dropped } else { -dropped };
    }
    digits.reverse();
    let (mut digits, carry) = carried(digits.into_iter());
    digits.push(u16::try_from(carry).unwrap_or(0));
    digits.reverse();
    Finite::normalised(finite.is_negative, weight + 1, &digits)
}

const BASE: i64 = 10_000;
const DIGITS_EACH: i32 = 4;
/// NUMERIC_MIN_SIG_DIGITS.
const SIGNIFICANT_DIGITS_MIN: i32 = 16;
/// NUMERIC_MAX_DISPLAY_SCALE.
const SCALE_MAX: i32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[&str]) -> Decimal {
        let mut sum = DecimalSum::default();
        for value in values {
            let (value, scale) = Numeric::with_scale_from_text(value.as_bytes()).unwrap();
            sum.add(&value, scale);
        }
        sum.total()
    }

    fn text(decimal: &Decimal) -> String {
        String::from_utf8(decimal.to_text()).unwrap()
    }

    /// What PostgreSQL 15 answers.
    #[test]
    fn sums_are_exact_and_show_the_most_digits_of_any() {
        for (values, expected) in [
            (&["1.0", "2.00"][..], "3.00"),
            (&["0.1", "0.2"], "0.3"),
            (&["-5", "3"], "-2"),
            (&["-5.25", "5.25"], "0.00"),
            (&["99999999999999999999", "0.00000000000000000001"], "99999999999999999999.00000000000000000001"),
            (&["9999", "1"], "10000"),
            (&["-9999.9999", "-0.0001"], "-10000.0000"),
            (&["10000", "-0.0001"], "9999.9999"),
            (&["0", "0.000"], "0.000"),
            (&["NaN", "1"], "NaN"),
            (&["Infinity", "1"], "Infinity"),
            (&["Infinity", "-Infinity"], "NaN"),
            (&["-Infinity", "5"], "-Infinity"),
            (&["100000000", "-99990000"], "10000"),
        ] {
            assert_eq!(text(&sum(values)), expected, "{values:?}");
        }
    }

    #[test]
    fn quotients_have_postgresqls_digits() {
        for (value, count, expected) in [
            ("3", 2, "1.5000000000000000"),
            ("1", 3, "0.33333333333333333333"),
            ("2", 3, "0.66666666666666666667"),
            ("-2", 3, "-0.66666666666666666667"),
            ("0", 7, "0.00000000000000000000"),
            ("0.00", 1, "0.00000000000000000000"),
            ("100", 3, "33.3333333333333333"),
            ("10000", 3, "3333.3333333333333333"),
            ("20000", 3, "6666.6666666666666667"),
            ("123456789012345678901234567890", 7, "17636684144620811271604938270"),
            ("99999999", 10000, "9999.9999000000000000"),
            ("1.23", 12345, "0.000099635479951397326853"),
            ("0.0000000000000000000000001", 3, "0.00000000000000000000000003333333333333333333"),
            ("NaN", 3, "NaN"),
            ("-Infinity", 3, "-Infinity"),
        ] {
            let divided = sum(&[value]).divided_by(count).unwrap();
            assert_eq!(text(&divided), expected, "{value} / {count}");
        }
        assert_eq!(sum(&["1"]).divided_by(0), None);
    }

    #[test]
    fn binary_forms_are_read_back() {
        for value in ["0", "0.000", "-12345.678", "10000", "0.00001", "123456789.987654321"] {
            let whole = sum(&[value]);
            let (read, scale) = Numeric::with_scale_from_binary(&whole.to_binary()).unwrap();
            assert_eq!(text(&Decimal { value: read, scale }), value);
        }
    }
}
