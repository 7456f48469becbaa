//! Dates and timestamps: PostgreSQL's binary values, and the texts whose meaning no setting changes.
//!
//! Reads only `YYYY-MM-DD[ T]HH:MM[:SS[.ffffff]]` with, for timestamptz, an explicit offset, and the infinities. Everything
//! else that PostgreSQL reads (`today`, `1/2/2020`, zone names, a missing offset, BC) depends on DateStyle, TimeZone or the
//! clock, or is rare: it is unknown here. Prints as PostgreSQL does under `DateStyle = ISO`, `TimeZone = UTC`. The calendar is
//! the proleptic Gregorian one; the day arithmetic is Howard Hinnant's `days_from_civil`.

use std::fmt::{self, Write};

/// Days since 2000-01-01, PostgreSQL's epoch.
pub(super) type Days = i32;
/// Microseconds since 2000-01-01 00:00:00.
pub(super) type Micros = i64;

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(super) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// `None` outside PostgreSQL's range (4713 BC to 5874897 AD); the infinities are inside.
pub(super) fn checked_date(days: Days) -> Option<Days> {
    (matches!(days, Days::MIN | Days::MAX) || (DATE_MIN..DATE_END).contains(&days)).then_some(days)
}

/// `None` outside PostgreSQL's range (4713 BC to 294276 AD); the infinities are inside.
pub(super) fn checked_timestamp(micros: Micros) -> Option<Micros> {
    (matches!(micros, Micros::MIN | Micros::MAX) || (TIMESTAMP_MIN..TIMESTAMP_END).contains(&micros)).then_some(micros)
}

pub(super) fn date_from_text(bytes: &[u8]) -> Option<Days> {
    match infinity(bytes) {
        Some(true) => return Some(Days::MAX),
        Some(false) => return Some(Days::MIN),
        None => {}
    }
    let (days, rest) = civil_date(bytes)?;
    rest.is_empty().then_some(days)
}

/// Without any zone: PostgreSQL would ignore one silently.
pub(super) fn timestamp_from_text(bytes: &[u8]) -> Option<Micros> {
    match infinity(bytes) {
        Some(true) => return Some(Micros::MAX),
        Some(false) => return Some(Micros::MIN),
        None => {}
    }
    let (days, rest) = civil_date(bytes)?;
    if rest.is_empty() {
        return Some(midnight(days));
    }
    let (time, rest) = time_of_day(rest)?;
    rest.is_empty().then(|| midnight(days) + time)
}

/// With an explicit offset only.
pub(super) fn timestamptz_from_text(bytes: &[u8]) -> Option<Micros> {
    match infinity(bytes) {
        Some(true) => return Some(Micros::MAX),
        Some(false) => return Some(Micros::MIN),
        None => {}
    }
    let (days, rest) = civil_date(bytes)?;
    let (time, rest) = time_of_day(rest)?;
    Some(midnight(days) + time - offset(rest)?)
}

/// Of a text that PostgreSQL prints under `DateStyle = ISO`, of any year: the same in a year of four digits that has the same
/// calendar, and by how many days what is meant is later.
pub(super) fn near(text: &str) -> Option<(String, i64)> {
    let (text, is_before_christ) = text.strip_suffix(" BC").map_or((text, false), |text| (text, true));
    let (year, rest) = text.split_once('-').filter(|(year, _)| YEAR_DIGITS.contains(&year.len()))?;
    let (year, _) = number(year.as_bytes(), year.len())?;
    let year = if is_before_christ { 1 - year } else { year };
    let cycles = (year - 2000).div_euclid(400);
    Some((format!("{:04}-{rest}", year - cycles * 400), cycles * DAYS_OF_400_YEARS))
}

/// Midnight of a finite day that is a timestamp too.
pub(super) fn midnight(days: Days) -> Micros {
    i64::from(days) * MICROS_PER_DAY
}

/// The day of a finite timestamp.
pub(super) fn day_of(micros: Micros) -> Option<Days> {
    Days::try_from(micros.div_euclid(MICROS_PER_DAY)).ok()
}

pub(super) fn write_date(out: &mut String, days: Days) -> fmt::Result {
    match days {
        Days::MIN => out.write_str("-infinity"),
        Days::MAX => out.write_str("infinity"),
        days => {
            let civil = Civil::from_days(days);
            civil.write(out)?;
            civil.write_era(out)
        }
    }
}

/// `zone`: what follows the time (`+00` for timestamptz).
pub(super) fn write_timestamp(out: &mut String, micros: Micros, zone: &str) -> fmt::Result {
    match micros {
        Micros::MIN => return out.write_str("-infinity"),
        Micros::MAX => return out.write_str("infinity"),
        _ => {}
    }
    let civil = Civil::from_days(day_of(micros).unwrap_or_default());
    let time = micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (time / MICROS_PER_SECOND, time % MICROS_PER_SECOND);
    civil.write(out)?;
    write!(out, " {:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        write!(out, ".{}", digits.trim_end_matches('0'))?;
    }
    out.write_str(zone)?;
    civil.write_era(out)
}

/// A `timestamptz` as text, of microseconds since 1970.
pub fn timestamp_text(unix_micros: Micros) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _written = write_timestamp(&mut text, unix_micros.saturating_sub(MICROS_FROM_1970_TO_2000), "+00");
    text
}

/// A day of the proleptic Gregorian calendar; year 0 is 1 BC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
}

impl Civil {
    pub(super) fn from_days(days: Days) -> Self {
        let shifted = i64::from(days) + DAYS_FROM_MARCH_0000_TO_EPOCH;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
        }
    }

    /// `None` when there is no such day, or none that fits.
    pub(super) fn to_days(self) -> Option<Days> {
        let Self { year, month, day } = self;
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        let year = if month <= 2 { year - 1 } else { year };
        let month_from_march = if month > 2 { month - 3 } else { month + 9 };
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Days::try_from(year.div_euclid(400) * 146_097 + day_of_era - DAYS_FROM_MARCH_0000_TO_EPOCH).ok()
    }

    fn write(self, out: &mut String) -> fmt::Result {
        let year = if self.year > 0 { self.year } else { 1 - self.year };
        write!(out, "{year:04}-{:02}-{:02}", self.month, self.day)
    }

    fn write_era(self, out: &mut String) -> fmt::Result {
        if self.year > 0 { Ok(()) } else { out.write_str(" BC") }
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `Some(true)`: infinity, `Some(false)`: -infinity.
fn infinity(bytes: &[u8]) -> Option<bool> {
    if bytes.eq_ignore_ascii_case(b"infinity") {
        Some(true)
    } else if bytes.eq_ignore_ascii_case(b"-infinity") {
        Some(false)
    } else {
        None
    }
}

/// `YYYY-MM-DD` at the front: four digits of year come first under every DateStyle. Returns what follows.
fn civil_date(bytes: &[u8]) -> Option<(Days, &[u8])> {
    let (year, rest) = number(bytes, 4)?;
    let (month, rest) = number(expect(rest, b'-')?, 2)?;
    let (day, rest) = number(expect(rest, b'-')?, 2)?;
    if year == 0 {
        return None;
    }
    Some((Civil { year, month, day }.to_days()?, rest))
}

/// `[ T]HH:MM[:SS[.ffffff]]` at the front, without 24:00 and leap seconds. Returns what follows.
fn time_of_day(bytes: &[u8]) -> Option<(Micros, &[u8])> {
    let rest = expect(bytes, b' ').or_else(|| expect(bytes, b'T'))?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(expect(rest, b':')?, 2)?;
    let (second, rest) = match expect(rest, b':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let (fraction, rest) = match expect(rest, b'.') {
        Some(rest) => fraction(rest)?,
        None => (0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + fraction, rest))
}

/// One to six digits; more would be rounded.
fn fraction(bytes: &[u8]) -> Option<(Micros, &[u8])> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=6).contains(&length) {
        return None;
    }
    let (value, rest) = number(bytes, length)?;
    let missing = u32::try_from(6 - length).ok()?;
    Some((value * 10_i64.pow(missing), rest))
}

/// The whole of `Z`, `±HH`, `±HHMM`, `±HH:MM` or `±HH:MM:SS`: how far local time is ahead of UTC.
fn offset(bytes: &[u8]) -> Option<Micros> {
    if bytes == b"Z" {
        return Some(0);
    }
    let (sign, rest) = match bytes.split_first()? {
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = number(rest, 2)?;
    let (minutes, rest) = match rest {
        [] => (0, rest),
        [b':', rest @ ..] | rest => number(rest, 2)?,
    };
    let (seconds, rest) = match rest {
        [] => (0, rest),
        // Only after `HH:MM`: run together PostgreSQL does not read them.
        [b':', digits @ ..] if bytes.get(3) == Some(&b':') => number(digits, 2)?,
        _ => return None,
    };
    if !rest.is_empty() || hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(sign * ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND)
}

/// Exactly `length` digits at the front.
fn number(bytes: &[u8], length: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(length)?;
    let value = digits.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))?;
    Some((value, rest))
}

fn expect(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    bytes.split_first().filter(|(first, _)| **first == wanted).map(|(_, rest)| rest)
}

const YEAR_DIGITS: std::ops::RangeInclusive<usize> = 4..=7;
/// After which the calendar repeats.
const DAYS_OF_400_YEARS: i64 = 146_097;
/// From 0000-03-01, where the arithmetic's years begin, to 2000-01-01.
const DAYS_FROM_MARCH_0000_TO_EPOCH: i64 = 730_425;
const MICROS_FROM_1970_TO_2000: Micros = 946_684_800_000_000;

/// Julian day 0.
const DATE_MIN: Days = -2_451_545;
const DATE_END: Days = 2_145_031_949;
const TIMESTAMP_MIN: Micros = -211_813_488_000_000_000;
pub(super) const TIMESTAMP_END: Micros = 9_223_371_331_200_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date(text: &str) -> Option<Days> {
        date_from_text(text.as_bytes())
    }

    fn timestamp(text: &str) -> Option<Micros> {
        timestamp_from_text(text.as_bytes())
    }

    fn timestamptz(text: &str) -> Option<Micros> {
        timestamptz_from_text(text.as_bytes())
    }

    #[test]
    fn dates_count_from_the_year_2000() {
        assert_eq!(date("2000-01-01"), Some(0));
        assert_eq!(date("1999-12-31"), Some(-1));
        assert_eq!(date("2000-02-29"), Some(59));
        assert_eq!(date("2024-03-01"), Some(8_826));
        assert_eq!(date("0001-01-01"), Some(-730_119));
        assert_eq!(date("9999-12-31"), Some(2_921_939));
        assert_eq!(date("infinity"), Some(Days::MAX));
        assert_eq!(date("-Infinity"), Some(Days::MIN));
    }

    #[test]
    fn dates_that_need_a_setting_or_do_not_exist_are_unknown() {
        for text in ["", "2000-1-1", "01/02/2000", "today", "20000101", "2000-02-30", "1900-02-29", "0000-01-01", "2000-13-01"] {
            assert_eq!(date(text), None, "{text:?}");
        }
        for text in ["2000-01-01 ", " 2000-01-01", "2000-01-01 BC", "2000-01-01T", "2000-01-0", "12000-01-01", "2000-01-01 00:00"] {
            assert_eq!(date(text), None, "{text:?}");
        }
    }

    #[test]
    fn timestamps_are_read_without_zone_only() {
        assert_eq!(timestamp("2000-01-01"), Some(0));
        assert_eq!(timestamp("2000-01-01 00:00:01.5"), Some(1_500_000));
        assert_eq!(timestamp("2000-01-01T01:00"), Some(3_600_000_000));
        assert_eq!(timestamp("1999-12-31 23:59:59.999999"), Some(-1));
        for text in ["2000-01-01 00:00:00+00", "2000-01-01 00:00:00Z", "2000-01-01 24:00:00", "2000-01-01 00:00:60"] {
            assert_eq!(timestamp(text), None, "{text:?}");
        }
        for text in ["2000-01-01 00", "2000-01-01 00:00:00.", "2000-01-01 00:00:00.1234567", "2000-01-01  00:00:00", "now"] {
            assert_eq!(timestamp(text), None, "{text:?}");
        }
    }

    #[test]
    fn timestamptz_needs_an_explicit_offset() {
        assert_eq!(timestamptz("2000-01-01 00:00:00+00"), Some(0));
        assert_eq!(timestamptz("2000-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(timestamptz("2000-01-01 05:30:00+05:30"), Some(0));
        assert_eq!(timestamptz("2000-01-01 05:30:00+0530"), Some(0));
        assert_eq!(timestamptz("1999-12-31 19:00:00-05"), Some(0));
        assert_eq!(timestamptz("2000-01-01 00:19:32+00:19:32"), Some(0));
        for text in ["2000-01-01 00:00:00", "2000-01-01", "2000-01-01+00", "2000-01-01 00:00:00 UTC", "2000-01-01 00:00:00+16"] {
            assert_eq!(timestamptz(text), None, "{text:?}");
        }
        for text in
            ["2000-01-01 00:00:00+0", "2000-01-01 00:00:00+001932", "2000-01-01 00:00:00+00:", "2000-01-01 00:00:00+0019:32"]
        {
            assert_eq!(timestamptz(text), None, "{text:?}");
        }
    }

    #[test]
    fn values_outside_the_range_are_rejected_and_the_infinities_are_inside() {
        assert_eq!(checked_date(DATE_MIN - 1), None);
        assert_eq!(checked_date(DATE_END), None);
        assert_eq!(checked_date(Days::MAX), Some(Days::MAX));
        assert_eq!(checked_timestamp(TIMESTAMP_MIN - 1), None);
        assert_eq!(checked_timestamp(TIMESTAMP_END), None);
        assert_eq!(checked_timestamp(Micros::MIN), Some(Micros::MIN));
    }

    #[test]
    fn printing_is_as_under_iso_and_utc() {
        let print = |micros| {
            let mut out = String::new();
            write_timestamp(&mut out, micros, "+00").unwrap();
            out
        };
        assert_eq!(print(0), "2000-01-01 00:00:00+00");
        assert_eq!(print(-500_000), "1999-12-31 23:59:59.5+00");
        assert_eq!(print(Micros::MAX), "infinity");
        assert_eq!(print(TIMESTAMP_MIN), "4714-11-24 00:00:00+00 BC");
        assert_eq!(print(TIMESTAMP_END - 1), "294276-12-31 23:59:59.999999+00");
    }

    proptest! {
        #[test]
        fn civil_days_lead_back(days in DATE_MIN..DATE_END) {
            prop_assert_eq!(Civil::from_days(days).to_days(), Some(days));
        }

        #[test]
        fn printed_dates_are_read_back(days in -730_119..2_921_940) {
            let mut out = String::new();
            write_date(&mut out, days).unwrap();
            prop_assert_eq!(date(&out), Some(days));
        }

        #[test]
        fn anything_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (date_from_text(&bytes), timestamp_from_text(&bytes), timestamptz_from_text(&bytes));
        }
    }
}
