//! How long a move will take, and for how long statements will wait: as the moves of this cluster did until now. Pure.
//!
//! Nothing is said of a move of which there was none like it: hardware, load and row sizes differ too much from one cluster to another
//! for a guess to be honest.

use crate::shardmap::PastMove;

pub(super) struct Estimates {
    /// Of small moves, which take as long whatever they carry.
    small_seconds: Option<f64>,
    /// Of larger ones.
    bytes_per_second: Option<f64>,
    pub(super) pause_ms: Option<f64>,
}

impl Estimates {
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with two figures")]
    pub(super) fn of(past: &[PastMove]) -> Self {
        let (large, small): (Vec<&PastMove>, Vec<&PastMove>) = past.iter().partition(|past| past.bytes >= LARGE_BYTES);
        Self {
            small_seconds: median(small.iter().map(|past| past.seconds).collect()),
            bytes_per_second: median(large.iter().map(|past| past.bytes as f64 / past.seconds.max(0.001)).collect()),
            pause_ms: median(past.iter().filter_map(|past| past.pause_ms).collect()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a time is shown with two figures")]
    pub(super) fn seconds(&self, bytes: u64) -> Option<f64> {
        match bytes >= LARGE_BYTES {
            true => self.bytes_per_second.map(|rate| bytes as f64 / rate),
            false => self.small_seconds,
        }
    }
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// From here on the bytes tell how long a move takes.
const LARGE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_is_expected() {
        let none = Estimates::of(&[]);
        assert_eq!((none.seconds(5), none.seconds(LARGE_BYTES), none.pause_ms), (None, None, None));
        let past = |bytes: u64, seconds: f64, pause_ms: f64| PastMove { bytes, seconds, pause_ms: Some(pause_ms) };
        let small = Estimates::of(&[past(10, 2.0, 30.0), past(20, 3.0, 50.0), past(30, 9.0, 20.0)]);
        assert_eq!((small.seconds(1 << 20), small.seconds(LARGE_BYTES), small.pause_ms), (Some(3.0), None, Some(30.0)));
        let large = Estimates::of(&[past(LARGE_BYTES, 8.0, 30.0)]);
        assert_eq!((large.seconds(LARGE_BYTES * 4), large.seconds(1)), (Some(32.0), None));
    }
}
