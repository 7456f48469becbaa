//! The pause of a cut-over: since when statements are held, and how long each of its steps took.
//!
//! Logged and kept in the move's journal, so that whoever finds a pause too long sees what it was spent on.

use std::fmt;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

/// Not `Clone`: there is one a cut-over.
#[derive(Debug)]
pub(super) struct Pause {
    began: Instant,
    last: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Pause {
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, steps: Vec::new() }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// What was done since the last step.
    pub(super) fn passed(&mut self, step: &'static str) {
        self.passed_at(step, Instant::now());
    }

    fn passed_at(&mut self, step: &'static str, now: Instant) {
        self.steps.push((step, now - self.last));
        self.last = now;
    }

    pub(super) fn length(&self) -> Duration {
        self.began.elapsed()
    }

    /// Each step with its milliseconds, in their order.
    pub(super) fn to_json(&self) -> serde_json::Value {
        self.steps.iter().map(|(step, took)| json!({ "step": step, "ms": milliseconds(*took) })).collect()
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (step, took)) in self.steps.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{step} {:.1} ms", milliseconds(*took))?;
        }
        Ok(())
    }
}

/// With tenths.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_takes_the_time_since_the_one_before() {
        let mut pause = Pause::begin();
        for (step, at) in [("hold", 3), ("drain", 15)] {
            pause.passed_at(step, pause.began() + Duration::from_millis(at));
        }
        assert_eq!(pause.to_string(), "hold 3.0 ms, drain 12.0 ms");
        assert_eq!(pause.to_json(), json!([{ "step": "hold", "ms": 3.0 }, { "step": "drain", "ms": 12.0 }]));
    }
}
