//! Logs and metrics.
//!
//! Logs go to standard error by `tracing`; the subscriber is the process's, so only `main` sets it up. Metrics belong to one
//! proxy: [`Metrics`] is made by `server` and handed down, and what is counted often holds its counter instead of looking it up.
//! Neither carries keys, values, SQL literals or secrets.

mod counters;
mod histogram;
mod logs;
mod metrics;
pub mod names;
mod panics;

pub use counters::{CancelOutcome, ConnectionOutcome, Counters, PoolCounters, RouteKind, set_map_counters};
pub use logs::{LogControl, LogError, init_logs};
pub use metrics::Metrics;
pub use panics::log_panics;
