//! What is said to the shards at each step of a commit over several shards, and what their answers mean. Pure.
//!
//! ```text
//!            all prepared, decider ready            COMMIT, no warning
//!   prepare ─────────────────────────────► decide ─────────────────────► finish (COMMIT PREPARED) ─► readers ─► success
//!      │ anything else                       │  │ EOF, warning, no answer
//!      ▼                                     │  └──────────► resolve: the decision row is read ──► committed │ aborted
//!   roll back everywhere ◄───────────────────┘                                       └ not in time: 08007, recovery goes on
//!                          an error and ReadyForQuery
//! ```
//! The decider's local commit, with the row that `shardgate.decide` writes, is the decision. It and the row are one Query: when
//! the row cannot be written, the COMMIT behind it is skipped. Each rule wants to see exactly what success looks like, since
//! PREPARE and COMMIT in a failed transaction "succeed" as ROLLBACK.

use super::answer::Answer;
use super::transaction_id::{Secret, TransactionId};
use crate::catalog::quoted_literal;
use crate::error::{PgError, SqlState};

/// Whether a participant is where the decision may be made.
#[derive(Debug, PartialEq, Eq)]
pub enum Preparation {
    Ready,
    /// It has refused, and is not prepared.
    Refused,
    /// Prepared, though perhaps not on its standby.
    Unreplicated,
    /// Prepared or not: nobody knows.
    Unknown,
}

/// What the decider's answer means.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    Committed,
    Aborted,
    Unknown,
}

/// What became of COMMIT PREPARED or ROLLBACK PREPARED.
#[derive(Debug, PartialEq, Eq)]
pub enum Finish {
    Done,
    /// No such prepared transaction: done by somebody else, or lost.
    Gone,
    /// Not now: another backend is at it, or the statement was cancelled.
    Busy,
    Lost,
}

/// The first words to the decider. From here on the server itself bounds how long its proxy may stay silent, so that a proxy
/// that was frozen cannot decide what others have given up.
pub fn ready_decider(idle_max_ms: u128) -> String {
    format!("SET LOCAL idle_in_transaction_session_timeout = {idle_max_ms};SET CONSTRAINTS ALL IMMEDIATE;{SECURE}")
}

/// Deferred triggers run before the role changes; the role without rights then owns the prepared transaction, so that whoever
/// may take it can finish it.
pub fn prepare(transaction: &TransactionId, secret: &Secret, participant: usize) -> String {
    format!(
        "SET CONSTRAINTS ALL IMMEDIATE;{SECURE};SELECT shardgate.joined('{transaction}','{}');\
         SET LOCAL ROLE shardgate_2pc;PREPARE TRANSACTION '{}'",
        secret.reveal(),
        transaction.gid(participant),
    )
}

pub fn decide(transaction: &TransactionId, secret: &Secret) -> String {
    format!("SELECT shardgate.decide('{transaction}','{}');COMMIT", secret.reveal())
}

/// Three Queries: COMMIT PREPARED runs in no transaction with others. `role`: what the session has as its own.
pub fn finish(gid: &str, is_committed: bool, role: Option<&str>) -> [String; 3] {
    let verb = if is_committed { "COMMIT" } else { "ROLLBACK" };
    let mut back = String::from("RESET ROLE");
    if let Some(role) = role {
        back = String::from("SELECT pg_catalog.set_config('role',");
        back.push_str(&quoted_literal(role));
        back.push_str(",false)");
    }
    ["SET ROLE shardgate_2pc".to_owned(), format!("{verb} PREPARED '{gid}'"), back]
}

pub fn decider_preparation(answer: &Answer) -> Preparation {
    match answer.is_lost() {
        true => Preparation::Unknown,
        false if answer.is_ready(b'T') && answer.error.is_none() && answer.tags.len() == 3 => Preparation::Ready,
        false => Preparation::Refused,
    }
}

pub fn preparation(answer: &Answer) -> Preparation {
    if answer.is_lost() {
        return Preparation::Unknown;
    }
    let is_prepared = answer.error.is_none() && answer.last_tag() == "PREPARE TRANSACTION" && answer.is_ready(b'I');
    match (is_prepared, answer.has_warned_at_end) {
        (true, false) => Preparation::Ready,
        (true, true) => Preparation::Unreplicated,
        (false, _) => Preparation::Refused,
    }
}

/// Only an error, or a ROLLBACK, that is followed by ReadyForQuery is an abort.
pub fn decision(answer: &Answer) -> Decision {
    if answer.is_lost() {
        return Decision::Unknown;
    }
    match (answer.error.is_some(), answer.last_tag()) {
        (false, "COMMIT") if answer.is_ready(b'I') && !answer.has_warned_at_end => Decision::Committed,
        (false, "COMMIT") => Decision::Unknown,
        (_, _) => Decision::Aborted,
    }
}

/// Of the three answers to [`finish`].
pub fn finished(answers: &[Answer], is_committed: bool) -> Finish {
    let Some(answer) = answers.get(1) else { return Finish::Lost };
    if answer.is_lost() {
        return Finish::Lost;
    }
    let wanted = if is_committed { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" };
    match answer.sqlstate() {
        None if answer.last_tag() == wanted => Finish::Done,
        Some(code) if SqlState(code) == SqlState::UNDEFINED_OBJECT => Finish::Gone,
        None | Some(_) => Finish::Busy,
    }
}

/// After the three answers to [`finish`]: is the connection as it was, with the role that it had?
pub fn is_usable(answers: &[Answer]) -> bool {
    !answers.iter().any(Answer::is_lost) && answers.get(2).is_some_and(|back| back.error.is_none() && back.is_ready(b'I'))
}

/// A participant's refusal in words that say what to do, where PostgreSQL's own would not.
pub fn explained(answer: &Answer, shard: &str) -> Option<PgError> {
    let code = SqlState(answer.sqlstate()?);
    // SET CONSTRAINTS, the setting and the participant's row have succeeded; the role has not.
    let is_role = code == SqlState::INSUFFICIENT_PRIVILEGE && answer.tags.len() == 3;
    if is_role || code == SqlState::INVALID_PARAMETER_VALUE && answer.tags.len() == 3 {
        return Some(lacks_role(shard));
    }
    // The role was taken: PREPARE itself has refused.
    (code == SqlState::FEATURE_NOT_SUPPORTED && answer.tags.len() == 4).then(|| cannot_be_prepared(shard, &answer.message()))
}

fn cannot_be_prepared(shard: &str, message: &str) -> PgError {
    PgError::unsupported(
        "the transaction cannot be committed on several shards and was rolled back",
        format!("Shard \"{shard}\" said: {message}."),
        "Write the rows of each shard in a transaction of its own.",
    )
}

pub fn lacks_role(shard: &str) -> PgError {
    PgError::unsupported(
        "cannot write on a second shard in one transaction",
        format!("On shard \"{shard}\" the session may not take the role \"shardgate_2pc\", which owns prepared transactions."),
        "GRANT shardgate_2pc TO the session's user there (from PostgreSQL 16 on WITH INHERIT FALSE, SET TRUE); \"shardgate check\" tells.",
    )
}

/// A blind `on` would lower `remote_apply`. The warning that a standby may not have a commit must not be kept back either.
const SECURE: &str = "SELECT pg_catalog.set_config('synchronous_commit',CASE WHEN pg_catalog.current_setting('synchronous_commit') \
     IN ('off','local','remote_write') THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END,true),\
     pg_catalog.set_config('client_min_messages',CASE WHEN pg_catalog.current_setting('client_min_messages') = 'error' \
     THEN 'warning' ELSE pg_catalog.current_setting('client_min_messages') END,true)";

#[cfg(test)]
mod tests {
    use super::super::answer::End;
    use super::*;
    use crate::backend::ConnectionError;
    use bytes::Bytes;

    fn answer(tags: &[&str], status: u8) -> Answer {
        Answer { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), end: End::Ready(status), ..Answer::default() }
    }

    fn failed(tags: &[&str], code: &str, status: u8) -> Answer {
        let error = Bytes::from(format!("SERROR\0VERROR\0C{code}\0Mno\0\0"));
        Answer { error: Some(error), ..answer(tags, status) }
    }

    fn lost(tags: &[&str]) -> Answer {
        Answer { end: End::Lost(ConnectionError::Closed), ..answer(tags, b'I') }
    }

    #[test]
    fn only_the_right_tag_without_a_warning_is_prepared() {
        let tags = ["SET CONSTRAINTS", "SELECT 0", "SELECT 1", "SET", "PREPARE TRANSACTION"];
        assert_eq!(preparation(&answer(&tags, b'I')), Preparation::Ready);
        // In a failed transaction, or without one.
        assert_eq!(preparation(&answer(&["ROLLBACK"], b'I')), Preparation::Refused);
        assert_eq!(preparation(&failed(&tags[..3], "42501", b'E')), Preparation::Refused);
        assert_eq!(preparation(&lost(&tags)), Preparation::Unknown);
        let warned = Answer { has_warned_at_end: true, ..answer(&tags, b'I') };
        assert_eq!(preparation(&warned), Preparation::Unreplicated);
    }

    #[test]
    fn a_decider_is_ready_in_its_transaction_only() {
        let tags = ["SET", "SET CONSTRAINTS", "SELECT 0"];
        assert_eq!(decider_preparation(&answer(&tags, b'T')), Preparation::Ready);
        assert_eq!(decider_preparation(&answer(&tags, b'I')), Preparation::Refused);
        assert_eq!(decider_preparation(&failed(&tags[..1], "23503", b'E')), Preparation::Refused);
        assert_eq!(decider_preparation(&lost(&[])), Preparation::Unknown);
    }

    #[test]
    fn what_is_not_certain_at_the_decision_is_unknown() {
        assert_eq!(decision(&answer(&["SELECT 1", "COMMIT"], b'I')), Decision::Committed);
        assert_eq!(decision(&answer(&["SELECT 1", "ROLLBACK"], b'I')), Decision::Aborted);
        assert_eq!(decision(&failed(&[], "23505", b'E')), Decision::Aborted);
        assert_eq!(decision(&failed(&["SELECT 1"], "40001", b'I')), Decision::Aborted);
        assert_eq!(decision(&lost(&[])), Decision::Unknown);
        assert_eq!(decision(&lost(&["SELECT 1", "COMMIT"])), Decision::Unknown);
        let warned = Answer { has_warned_at_end: true, ..answer(&["SELECT 1", "COMMIT"], b'I') };
        assert_eq!(decision(&warned), Decision::Unknown);
        assert_eq!(decision(&Answer::default()), Decision::Unknown);
    }

    #[test]
    fn a_prepared_transaction_that_is_not_there_is_no_success() {
        let three = |second: Answer| [answer(&["SET"], b'I'), second, answer(&["RESET"], b'I')];
        assert_eq!(finished(&three(answer(&["COMMIT PREPARED"], b'I')), true), Finish::Done);
        assert_eq!(finished(&three(answer(&["ROLLBACK PREPARED"], b'I')), true), Finish::Busy);
        assert_eq!(finished(&three(failed(&[], "42704", b'I')), true), Finish::Gone);
        assert_eq!(finished(&three(failed(&[], "55000", b'I')), true), Finish::Busy);
        assert_eq!(finished(&three(lost(&[])), true), Finish::Lost);
    }

    #[test]
    fn a_connection_that_kept_the_role_is_not_used_again() {
        let done = || [answer(&["SET"], b'I'), answer(&["COMMIT PREPARED"], b'I')];
        let with = |back: Answer| done().into_iter().chain([back]).collect::<Vec<_>>();
        assert!(is_usable(&with(answer(&["RESET"], b'I'))));
        assert!(!is_usable(&with(failed(&[], "57014", b'I'))) && !is_usable(&with(lost(&[]))) && !is_usable(&done()));
        assert_eq!(finished(&with(failed(&[], "57014", b'I')), true), Finish::Done, "committed all the same");
    }

    #[test]
    fn what_cannot_be_prepared_is_told_by_its_shard() {
        let tags = ["SET CONSTRAINTS", "SELECT 0", "SELECT 1", "SET"];
        let error = explained(&failed(&tags, "0A000", b'I'), "two").expect("explained");
        assert_eq!(error.code, SqlState::FEATURE_NOT_SUPPORTED);
        assert!(error.detail.is_some_and(|detail| detail.contains("Shard \"two\" said: no.")));
        assert!(explained(&failed(&tags[..2], "0A000", b'E'), "two").is_none(), "a deferred trigger's own error");
    }

    #[test]
    fn roles_are_quoted_when_they_are_given_back() {
        let [_, _, back] = finish("sg:c:u:1:1:h:1", true, Some("o'neil"));
        assert_eq!(back, "SELECT pg_catalog.set_config('role','o''neil',false)");
        let [take, commit, back] = finish("g", false, None);
        assert_eq!(
            (take.as_str(), commit.as_str(), back.as_str()),
            ("SET ROLE shardgate_2pc", "ROLLBACK PREPARED 'g'", "RESET ROLE")
        );
    }
}
