//! What a text's constants mean is decided when it is prepared: by some of the session's settings, and for a few by the clock. Texts
//! whose constants may differ are not one prepared statement, though they are the same letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Session;
use crate::sql::clock;

impl Session {
    /// Are constants read as they were when this was noted?
    pub(super) fn reads_constants_alike(&self, noted: &str) -> bool {
        noted.is_empty() || noted.split('\0').eq(READ_BY.iter().map(|name| self.effective(name).unwrap_or_default()))
    }

    /// See [`crate::backend::StatementText`].
    pub(super) fn constants_of(&self, text: &[u8]) -> (Arc<str>, u64) {
        if !text.iter().any(|byte| matches!(byte, b'\'' | b'$')) {
            return (Arc::default(), 0);
        }
        let read_by: Vec<&str> = READ_BY.iter().map(|name| self.effective(name).unwrap_or_default()).collect();
        let is_of_now = std::str::from_utf8(text).is_ok_and(clock::has_relative_constant);
        (read_by.join("\0").into(), if is_of_now { PARSED.fetch_add(1, Ordering::Relaxed) } else { 0 })
    }
}

/// What constants are read by.
const READ_BY: [&str; 8] = [
    "timezone",
    "datestyle",
    "intervalstyle",
    "array_nulls",
    "xmloption",
    "lc_monetary",
    "client_encoding",
    "timezone_abbreviations",
];
/// Texts with constants of the moment.
static PARSED: AtomicU64 = AtomicU64::new(1);
