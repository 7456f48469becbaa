//! Panics in the log: where, and not with which values.
//!
//! Rust's own message may hold what a client has sent: a text that was cut in the middle of a character is printed whole.

use std::backtrace::{Backtrace, BacktraceStatus};

/// Replaces Rust's message on standard error by a line in the log. With `RUST_BACKTRACE=1` the line has the calls too.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        // A message without values is part of the program.
        let message = panic.payload().downcast_ref::<&str>().copied().unwrap_or("(not shown: it may hold values)");
        let calls = Backtrace::capture();
        match calls.status() {
            BacktraceStatus::Captured => tracing::error!(place, message, %calls, "panicked"),
            _ => tracing::error!(place, message, "panicked"),
        }
    }));
}
