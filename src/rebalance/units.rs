//! Numbers for people, and durations as people write them.

use std::time::Duration;

/// `12`, `1,234`, `12.3 k`, `4.56 M`, `7.89 G`: four figures are enough to compare by.
pub fn count(number: u64) -> String {
    if number < 10_000 {
        let text = number.to_string();
        return match text.split_at_checked(text.len().saturating_sub(3)) {
            Some((thousands, rest)) if !thousands.is_empty() => format!("{thousands},{rest}"),
            Some(_) | None => text,
        };
    }
    scaled(number, 1000.0, &[" k", " M", " G", " T"])
}

/// `12 B`, `1.50 KiB`, `3.25 GiB`.
pub fn bytes(number: u64) -> String {
    if number < 1024 {
        return format!("{number} B");
    }
    scaled(number, 1024.0, &[" KiB", " MiB", " GiB", " TiB", " PiB"])
}

#[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
fn scaled(number: u64, base: f64, units: &[&str]) -> String {
    let mut value = number as f64;
    let mut shown = "";
    for unit in units {
        // So that 1,023.99 KiB is shown as 1.00 MiB and not as 1024 KiB.
        if !shown.is_empty() && value < base - 0.5 {
            break;
        }
        value /= base;
        shown = unit;
    }
    match value {
        value if value < 9.995 => format!("{value:.2}{shown}"),
        value if value < 99.95 => format!("{value:.1}{shown}"),
        value => format!("{value:.0}{shown}"),
    }
}

/// A share as percents with its sign: `+12.5 %`.
pub fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// `250 ms`, `5 s`, `1.5 s`, `3 min`.
pub fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        1000..60_000 => format!("{:.1} s", duration.as_secs_f64()),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// Reads `500ms`, `2s`, `1.5s`, `3min`, `1h`. A bare number is refused: nobody knows its unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wanted = || format!("expected a number with a unit (ms, s, min or h), such as 500ms: {text:?}");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wanted)?;
    let (number, unit) = text.split_at_checked(end).ok_or_else(wanted)?;
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wanted()),
    };
    let number: f64 = number.parse().map_err(|_| wanted())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wanted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes_keep_their_figures() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (9_999, "9,999"),
            (10_000, "10.0 k"),
            (123_456, "123 k"),
            (999_999, "1.00 M"),
            (4_560_000, "4.56 M"),
            (u64::MAX, "18446744 T"),
        ] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1_048_575, "1.00 MiB"),
            (10 << 20, "10.0 MiB"),
            (3 << 40, "3.00 TiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("3min"), Ok(Duration::from_secs(180)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "5", "s", "-1s", "1.2.3s", "5 fortnights", "9999999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_shown_by_their_size() {
        for (ms, text) in [(5, "5 ms"), (2000, "2 s"), (1500, "1.5 s"), (61_000, "1 min 1 s")] {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }
}
