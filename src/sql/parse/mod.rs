//! PostgreSQL's own grammar (libpg_query) over a text, with errors as PostgreSQL reports them.
//!
//! The only module that calls the parser. Its trees live in an arena: no text makes building or dropping one recurse. Its scanner
//! has one flaw that a text could use to keep a thread for minutes, and such texts are refused unread (`scanning_work`).

pub mod lexer;
pub mod literal;
pub mod tokens;
pub(super) mod tree;

use pg_raw_parse::{Owned, StmtList};

use crate::error::{PgError, SqlState};
use lexer::TokenKind;

/// The statements of a text.
pub type Tree = Owned<StmtList>;

/// Texts longer than this get no position with a syntax error: finding it parses the text several times.
const POSITION_BYTES_MAX: usize = 64 * 1024;

/// Parses; a text that PostgreSQL would refuse is its error, with SQLSTATE, message and position.
pub fn parse(text: &str) -> Result<Tree, PgError> {
    if scanning_work(text) > SCANNING_WORK_MAX {
        return Err(PgError::new(SqlState::STATEMENT_TOO_COMPLEX, "statement is too complex to be read")
            .with_detail("It has very long runs of operator characters, or of nested comments.")
            .with_hint("Put blanks between the operators."));
    }
    match pg_raw_parse::parse(text) {
        Ok(result) => Ok(result.into_inner()),
        Err(pg_raw_parse::Error::StatementContainedNul(_)) => {
            Err(PgError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\": 0x00"))
        }
        Err(pg_raw_parse::Error::Parse(error)) => Err(syntax_error(text, error.to_string())),
        Err(error @ pg_raw_parse::Error::PgError(_)) => Err(PgError::internal(error.to_string())),
    }
}

/// Steps; some ten milliseconds.
const SCANNING_WORK_MAX: usize = 10_000_000;

/// Characters that PostgreSQL's scanner looks at more than once: it takes a run of operator characters as a whole, to give back
/// all but the first of `+++…` and all but two of a `/*` inside of a comment. Quadratic, so 100 kB of either take a minute.
fn scanning_work(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_operator = |position: usize| bytes.get(position).is_some_and(|byte| b"~!@#^&|`?+-*/%<>=".contains(byte));
    let mut work = 0_usize;
    let mut run_end = 0;
    let mut visit = |position: usize| {
        if position >= run_end {
            run_end = position;
            while is_operator(run_end) {
                run_end += 1;
            }
        }
        work = work.saturating_add(run_end - position);
    };
    for token in lexer::tokens(text) {
        match token.kind {
            TokenKind::Symbol => visit(token.start),
            TokenKind::Comment => {
                let comment = bytes.get(token.start..token.end).unwrap_or_default();
                let openings = comment.windows(2).enumerate().filter(|(_, pair)| pair == b"/*");
                openings.for_each(|(offset, _)| visit(token.start + offset));
            }
            TokenKind::Literal(_) | TokenKind::Word | TokenKind::QuotedIdentifier | TokenKind::Parameter => {}
        }
    }
    work
}

fn syntax_error(text: &str, message: String) -> PgError {
    let position = (text.len() <= POSITION_BYTES_MAX).then(|| error_offset(text, &message)).flatten();
    let position = position.and_then(|offset| character_position(text, offset));
    PgError::new(SqlState::SYNTAX_ERROR, message).with_position(position)
}

/// 1-based position in characters of a byte offset.
pub fn character_position(text: &str, offset: usize) -> Option<u32> {
    u32::try_from(text.get(..offset)?.chars().count() + 1).ok()
}

/// Where the parser stopped. It does not say so itself, but the text up to the end of the token at fault fails with the same
/// message and the text up to its beginning does not, and whether a prefix reaches the fault is monotone: a binary search.
fn error_offset(text: &str, message: &str) -> Option<usize> {
    if message.ends_with("at end of input") {
        return Some(text.len());
    }
    let near = message.split_once(" at or near \"").and_then(|(_, near)| near.strip_suffix('"'))?;
    let candidates: Vec<usize> = lexer::tokens(text)
        .filter(|token| token.kind != TokenKind::Comment && text.get(token.start..).is_some_and(|rest| rest.starts_with(near)))
        .map(|token| token.start)
        .collect();
    let reaches = |offset: &usize| {
        let prefix = text.get(..offset + near.len()).unwrap_or(text);
        pg_raw_parse::parse(prefix).err().is_some_and(|error| error_message(&error) == message)
    };
    let first = candidates.partition_point(|offset| !reaches(offset));
    candidates.get(first).copied()
}

fn error_message(error: &pg_raw_parse::Error) -> String {
    match error {
        pg_raw_parse::Error::Parse(error) => error.to_string(),
        pg_raw_parse::Error::PgError(error) => error.to_string(),
        pg_raw_parse::Error::StatementContainedNul(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (String, Option<u32>) {
        let error = parse(text).expect_err(text);
        (error.message, error.position)
    }

    #[test]
    fn what_the_scanner_would_look_at_again_and_again_is_refused() {
        let is_refused = |text: &str| parse(text).is_err_and(|error| error.code == SqlState::STATEMENT_TOO_COMPLEX);
        assert!(is_refused(&format!("select {}1", "+".repeat(80_000))));
        assert!(is_refused(&format!("select 1 {}", "/*".repeat(50_000))));
        assert!(is_refused(&format!("select 1 {}{}", "/*".repeat(50_000), "*/".repeat(50_000))));
        assert!(!is_refused(&format!("select {}1", "+ ".repeat(80_000))));
        assert!(!is_refused(&format!("select 1{}", "+1".repeat(80_000))));
        assert!(!is_refused(&format!("select 1 /{}/", "*".repeat(80_000))));
        assert!(!is_refused(&format!("select 1 --{}", "+".repeat(80_000))));
        assert!(!is_refused(&format!("select '{}'", "+".repeat(80_000))));
    }

    #[test]
    fn syntax_errors_have_postgresqls_message_and_position() {
        let near = |what: &str| format!("syntax error at or near \"{what}\"");
        assert_eq!(error("selec 1"), (near("selec"), Some(1)));
        assert_eq!(error("select 1 from from t"), (near("from"), Some(15)));
        assert_eq!(error("select 'é' from where a"), (near("where"), Some(17)));
        assert_eq!(error("select ("), ("syntax error at end of input".to_owned(), Some(9)));
        assert_eq!(error("select a, a, a a a a from t"), (near("a"), Some(18)));
        assert_eq!(error("select 'open").0, "unterminated quoted string at or near \"'open\"");
        assert_eq!(error("select 'open").1, Some(8));
        assert_eq!(error("select 1\0").0, "invalid byte sequence for encoding \"UTF8\": 0x00");
    }
}
