//! `numeric` values from their text or binary form, with PostgreSQL's order. Arithmetic is `aggregate::decimal`'s.

use std::cmp::Ordering;

use crate::wire::{DecodeError, Reader};

/// A numeric value as far as its order needs it. NaN is above everything, as in PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numeric {
    NegativeInfinity,
    Finite(Finite),
    Infinity,
    NaN,
}

/// Base-10,000 digits without leading or trailing zeros; `weight` is the power of the first one. Zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finite {
    pub(super) is_negative: bool,
    pub(super) weight: i32,
    pub(super) digits: Vec<u16>,
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Numeric::Finite(a), Numeric::Finite(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Finite {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.signum(), other.signum()) {
            (a, b) if a != b => a.cmp(&b),
            (0, _) => Ordering::Equal,
            (1, _) => self.magnitude(other),
            _ => other.magnitude(self),
        }
    }
}

impl PartialOrd for Finite {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Finite {
    fn signum(&self) -> i8 {
        match (self.digits.is_empty(), self.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    fn magnitude(&self, other: &Self) -> Ordering {
        self.weight.cmp(&other.weight).then_with(|| self.digits.cmp(&other.digits))
    }

    /// Drops zeros at both ends, so that equal values are equal here.
    pub(super) fn normalised(is_negative: bool, weight: i32, digits: &[u16]) -> Self {
        let leading = digits.iter().take_while(|&&digit| digit == 0).count();
        let trailing = digits.iter().rev().take_while(|&&digit| digit == 0).count();
        let digits = digits.get(leading..digits.len().saturating_sub(trailing)).unwrap_or_default().to_vec();
        let weight = if digits.is_empty() { 0 } else { weight - i32::try_from(leading).unwrap_or(0) };
        Self { is_negative, weight, digits }
    }
}

impl Numeric {
    fn rank(&self) -> u8 {
        match self {
            Numeric::NegativeInfinity => 0,
            Numeric::Finite(_) => 1,
            Numeric::Infinity => 2,
            Numeric::NaN => 3,
        }
    }

    /// As `numeric_send` writes it.
    pub fn from_binary(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::with_scale_from_binary(bytes).map(|(value, _)| value)
    }

    /// The value, and how many digits after the point it is shown with.
    pub fn with_scale_from_binary(bytes: &[u8]) -> Result<(Self, u16), DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.count()?;
        let weight = i32::from(reader.i16()?);
        let sign = reader.i16()?.cast_unsigned();
        let display_scale = reader.i16()?.cast_unsigned();
        let digits = (0..count).map(|_| reader.i16().map(i16::cast_unsigned)).collect::<Result<Vec<_>, _>>()?;
        reader.end()?;
        match sign {
            0x0000 | 0x4000 => Ok((Numeric::Finite(Finite::normalised(sign == 0x4000, weight, &digits)), display_scale)),
            0xC000 => Ok((Numeric::NaN, 0)),
            0xD000 => Ok((Numeric::Infinity, 0)),
            0xF000 => Ok((Numeric::NegativeInfinity, 0)),
            other => Err(DecodeError::Invalid(i64::from(other))),
        }
    }

    /// The value, and how many digits after the point it is shown with.
    pub fn with_scale_from_text(text: &[u8]) -> Option<(Self, u16)> {
        let value = Self::from_text(text)?;
        let fraction = text.iter().position(|&byte| byte == b'.').map_or(0, |point| text.len() - point - 1);
        Some((value, u16::try_from(fraction).ok()?))
    }

    /// As `numeric_out` prints it: digits and one point, never an exponent.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        match text {
            b"NaN" => return Some(Numeric::NaN),
            b"Infinity" => return Some(Numeric::Infinity),
            b"-Infinity" => return Some(Numeric::NegativeInfinity),
            _ => {}
        }
        let (is_negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
        let (whole, fraction) = (text.get(..point)?, text.get(point + 1..).unwrap_or_default());
        if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
            return None;
        }
        // Groups of four, counted from the point.
        let first = whole.len() % 4;
        let (head, groups) = whole.split_at(first);
        let mut digits: Vec<u16> = Vec::with_capacity(whole.len() / 4 + fraction.len() / 4 + 2);
        if first > 0 {
            digits.push(group(head, 0));
        }
        digits.extend(groups.chunks(4).map(|chunk| group(chunk, 0)));
        let weight = i32::try_from(digits.len()).ok()? - 1;
        digits.extend(fraction.chunks(4).map(|chunk| group(chunk, 4 - chunk.len())));
        Some(Numeric::Finite(Finite::normalised(is_negative, weight, &digits)))
    }
}

/// Up to four ASCII digits as a number, with `zeros` appended.
fn group(digits: &[u8], zeros: usize) -> u16 {
    let value = digits.iter().fold(0_u16, |sum, &digit| sum * 10 + u16::from(digit - b'0'));
    (0..zeros).fold(value, |value, _| value * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_are_ordered_as_postgresql_orders_them() {
        let ordered = [
            "-Infinity",
            "-10000.5",
            "-10000",
            "-1.5",
            "-1.05",
            "-0.0001",
            "0",
            "0.00009",
            "0.0001",
            "0.5",
            "1",
            "1.00001",
            "9",
            "10",
            "9999",
            "10000",
            "10000.0001",
            "123456789012345678901234567890",
            "Infinity",
            "NaN",
        ];
        let values: Vec<Numeric> = ordered.iter().map(|text| Numeric::from_text(text.as_bytes()).unwrap()).collect();
        for (index, pair) in values.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{} < {}", ordered[index], ordered[index + 1]);
        }
    }

    #[test]
    fn the_scale_does_not_count() {
        for (a, b) in [("1.0", "1.00"), ("0", "-0.000"), ("10000", "10000.0000"), ("-7.50", "-7.5")] {
            assert_eq!(
                Numeric::from_text(a.as_bytes()),
                Numeric::from_text(b.as_bytes()).map(|value| match value {
                    Numeric::Finite(Finite { digits, weight, .. }) if digits.is_empty() =>
                        Numeric::Finite(Finite { is_negative: false, weight, digits }),
                    other => other,
                })
            );
            assert_eq!(Numeric::from_text(a.as_bytes()).unwrap().cmp(&Numeric::from_text(b.as_bytes()).unwrap()), Ordering::Equal);
        }
    }

    #[test]
    fn binary_and_text_agree() {
        // 12345.678 as numeric_send writes it.
        let binary = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1A, 0x7C];
        assert_eq!(Numeric::from_binary(&binary).unwrap(), Numeric::from_text(b"12345.678").unwrap());
        for end in 0..binary.len() {
            assert!(Numeric::from_binary(&binary[..end]).is_err());
        }
        assert!(Numeric::from_text(b"1e5").is_none() && Numeric::from_text(b"").is_none() && Numeric::from_text(b".").is_none());
    }
}
