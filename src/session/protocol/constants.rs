//! What a text's constants mean is decided when it is prepared: by some of the session's settings, and for a few by the clock. Texts
//! whose constants may differ are not one prepared statement, though they are the same letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::session::Session;
use crate::sql::rewrite::clock;

impl Session {
    /// Are constants read as they were when this was noted?
    pub(in crate::session) fn reads_constants_alike(&self, noted: &str) -> bool {
        noted.is_empty() || noted.split('\0').eq(READ_BY.iter().map(|name| self.effective(name).unwrap_or_default()))
    }

    /// See [`crate::backend::StatementText`].
    pub(in crate::session) fn constants_of(&self, text: &[u8]) -> (Arc<str>, u64) {
        if !has_constants(text) {
            return (Arc::default(), 0);
        }
        let read_by: Vec<&str> = READ_BY.iter().map(|name| self.effective(name).unwrap_or_default()).collect();
        let is_of_now = std::str::from_utf8(text).is_ok_and(clock::has_relative_constant);
        (read_by.join("\0").into(), if is_of_now { PARSED.fetch_add(1, Ordering::Relaxed) } else { 0 })
    }
}

/// Strings, in dollars too. `$1` is no constant.
fn has_constants(text: &[u8]) -> bool {
    let next = text.iter().skip(1).map(Some).chain([None]);
    text.iter().zip(next).any(|(byte, next)| match byte {
        b'\'' => true,
        b'$' => next.is_none_or(|next| !next.is_ascii_digit()),
        _ => false,
    })
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

#[cfg(test)]
mod tests {
    use super::has_constants;

    #[test]
    fn parameters_are_no_constants() {
        for text in ["SELECT 'now'", "SELECT $$now$$", "SELECT $1, $t$now$t$", "SELECT $1::text || E'x'"] {
            assert!(has_constants(text.as_bytes()), "{text}");
        }
        for text in ["SELECT a FROM t WHERE k = $1 AND b < $23", "SELECT 1", ""] {
            assert!(!has_constants(text.as_bytes()), "{text}");
        }
    }
}
