//! What PostgreSQL looks at before a write does anything: that its transaction may write, and that its user may.
//!
//! A write in parts may find nothing to write, and then no shard would have looked. Whether the transaction may write is known here;
//! whether the user may, the home shard says, by `EXPLAIN`, which runs nothing.

use crate::backend::{ConnectionError, Own};
use crate::error::{PgError, SqlState};
use crate::session::protocol::describe::error_frame;
use crate::session::writes::staged;
use crate::session::writes::staged::Asked;
use crate::session::{Failure, Session};
use crate::sql::written::WriteOf;

/// Before any of its parts runs. A transaction that only reads may still write temporary tables.
pub(in crate::session) fn check_not_read_only(session: &Session, text: &str) -> Result<(), PgError> {
    if !is_read_only(session) {
        return Ok(());
    }
    match WriteOf::read(text, &session.context)? {
        Some(write) if write.is_of_lasting_tables => Err(PgError::new(
            SqlState::READ_ONLY_SQL_TRANSACTION,
            format!("cannot execute {} in a read-only transaction", write.verb),
        )),
        Some(_) | None => Ok(()),
    }
}

pub(in crate::session) fn is_read_only(session: &Session) -> bool {
    const DEFAULT: &str = "default_transaction_read_only";
    let settings = session.transaction.settings_before().unwrap_or(&session.settings);
    let by_default = || {
        let reported = || session.login.greeting.parameters.iter().find(|(name, _)| &**name == DEFAULT).map(|(_, value)| &**value);
        settings.get(DEFAULT).or_else(reported).is_some_and(is_on)
    };
    session.transaction.modes.is_read_only.unwrap_or_else(by_default)
}

/// May the user run this statement? `text`: alone, in the client's words or what has been made of them.
pub(in crate::session) async fn check_privileges(session: &mut Session, text: &str, asked: &Asked<'_>) -> Result<(), Failure> {
    let text = staged::with_values_of(session, asked, &[text]).await?.concat();
    let mut aside = session.open_aside().await?;
    let explained = session.connection_of(&mut aside)?.simple(&Own::Plan.text(&format!("EXPLAIN {text}"))).await;
    session.close_aside(aside).await?;
    match explained {
        Err(ConnectionError::Refused { sqlstate, body, .. }) if sqlstate.as_bytes() == SqlState::INSUFFICIENT_PRIVILEGE.0 => {
            Err(Failure::Shard(error_frame(&body)))
        }
        // Of whatever else is wrong the statement's own parts tell.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn is_on(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let is_start_of = |word: &str| !value.is_empty() && word.starts_with(&value);
    is_start_of("true") || is_start_of("yes") || matches!(value.as_str(), "on" | "1")
}
