//! Durations by bucket, cheap enough for every statement: two atomic additions.
//!
//! Not the exporter's own histograms: those keep each recorded value until the next scrape.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::names::BUCKETS_SECONDS;

#[derive(Debug, Default)]
pub struct Histogram {
    /// Values of at most each of [`BUCKETS_SECONDS`] and above the bound before it; the last bucket has no bound.
    buckets: [AtomicU64; BUCKETS_SECONDS.len() + 1],
    sum_nanoseconds: AtomicU64,
}

impl Histogram {
    #[inline]
    pub fn record(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let place = BOUNDS_NANOSECONDS.iter().position(|bound| nanoseconds <= *bound).unwrap_or(BUCKETS_SECONDS.len());
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum_nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// In Prometheus's text format. `labels`: `route="scatter"`, or nothing.
    pub(super) fn render(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let bounds = BUCKETS_SECONDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, bucket) in bounds.zip(&self.buckets) {
            count += bucket.load(Relaxed);
            out.push_str(&format!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}\n"));
        }
        let sum = Duration::from_nanos(self.sum_nanoseconds.load(Relaxed)).as_secs_f64();
        out.push_str(&format!("{name}_sum{braced} {sum}\n{name}_count{braced} {count}\n"));
    }
}

const BOUNDS_NANOSECONDS: [u64; BUCKETS_SECONDS.len()] = {
    let mut bounds = [0; BUCKETS_SECONDS.len()];
    let mut place = 0;
    while place < bounds.len() {
        bounds[place] = (BUCKETS_SECONDS[place] * 1e9) as u64;
        place += 1;
    }
    bounds
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_its_bucket_and_in_all_above() {
        let histogram = Histogram::default();
        for microseconds in [100, 101, 3_000, 20_000_000] {
            histogram.record(Duration::from_micros(microseconds));
        }
        let mut text = String::new();
        histogram.render("x_seconds", "shard=\"one\"", &mut text);
        for line in [
            "x_seconds_bucket{shard=\"one\",le=\"0.0001\"} 1",
            "x_seconds_bucket{shard=\"one\",le=\"0.00025\"} 2",
            "x_seconds_bucket{shard=\"one\",le=\"0.0025\"} 2",
            "x_seconds_bucket{shard=\"one\",le=\"0.005\"} 3",
            "x_seconds_bucket{shard=\"one\",le=\"10\"} 3",
            "x_seconds_bucket{shard=\"one\",le=\"+Inf\"} 4",
            "x_seconds_sum{shard=\"one\"} 20.003201",
            "x_seconds_count{shard=\"one\"} 4",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is missing in\n{text}");
        }
        let mut text = String::new();
        Histogram::default().render("y_seconds", "", &mut text);
        assert!(text.ends_with("y_seconds_bucket{le=\"+Inf\"} 0\ny_seconds_sum 0\ny_seconds_count 0\n"), "{text}");
    }
}
