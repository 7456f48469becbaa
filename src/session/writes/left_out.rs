//! Sub-selects that are answered before a write, and that one PostgreSQL might not have come to: in a branch of CASE that is not
//! taken, behind an AND that is false already.
//!
//! That they are answered is seen by nobody, unless they fail. Whether PostgreSQL would have failed too is not known then, and the
//! statement is refused.

use super::staged::sqlstate;
use crate::error::{PgError, SqlState};
use crate::session::Failure;
use crate::sql::rewrite::staging::{Stage, Stages};
use crate::wire::{self, FRAME_HEADER_BYTES};

/// What has become of a query. More rows than there may be become constants, of which PostgreSQL says so if it gets there.
pub(in crate::session) fn unless_left_out<T>(stages: &Stages, stage: &Stage, told: Result<T, Failure>) -> Result<T, Failure> {
    if !stages.conditional.contains(&stage.start) {
        return told;
    }
    told.map_err(|failure| match &failure {
        Failure::Error(error) if is_of_evaluation(error.code) => refused(&error.message).into(),
        Failure::Shard(frame) if sqlstate(frame).is_some_and(is_of_evaluation) => refused(&message(frame)).into(),
        _ => failure,
    })
}

/// PostgreSQL finds it when it computes values, and not when it reads the statement: 21, 22, and what functions raise.
fn is_of_evaluation(code: SqlState) -> bool {
    matches!(code.0, [b'2', b'1' | b'2', ..] | [b'P', b'0', ..])
}

fn message(frame: &[u8]) -> String {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let fields = wire::error_fields(body).ok();
    let message = fields.as_ref().and_then(|fields| fields.get(b'M')).unwrap_or_default();
    String::from_utf8_lossy(message).into_owned()
}

fn refused(message: &str) -> PgError {
    PgError::unsupported(
        "a sub-select that fails is not supported in a part of a write that may not be evaluated",
        format!("It is answered before the rows are looked at, and says: {message}."),
        "Let it not fail, as by LIMIT 1 or nullif(), or run it by itself and write its value into the statement.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::rewrite::staging::StageKind;

    #[test]
    fn what_fails_is_told_unless_it_might_not_have_been_evaluated() {
        let stage = |start| Stage { start, end: start + 1, query: String::new(), kind: StageKind::Scalar };
        let stages = Stages { conditional: vec![7], ..Stages::default() };
        let told = |start, code| {
            let failed: Result<(), Failure> = Err(PgError::new(code, "no").into());
            match unless_left_out(&stages, &stage(start), failed) {
                Err(Failure::Error(error)) => error.code,
                _ => panic!("no error"),
            }
        };
        assert_eq!(told(7, SqlState::CARDINALITY_VIOLATION), SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(told(8, SqlState::CARDINALITY_VIOLATION), SqlState::CARDINALITY_VIOLATION);
        assert_eq!(told(7, SqlState::UNDEFINED_TABLE), SqlState::UNDEFINED_TABLE);
        assert_eq!(told(7, SqlState::QUERY_CANCELED), SqlState::QUERY_CANCELED);
    }
}
