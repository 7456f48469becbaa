//! Who may draw from a cluster-wide sequence, look at what was drawn, or set it: PostgreSQL's rights, which nobody else looks at,
//! since the proxy gives the numbers.
//!
//! A shard says what a role may. That is kept for all sessions until the map knows of another change of the shards' schema: GRANT,
//! REVOKE and changes of roles through any proxy are such, and every proxy has heard of them before they are answered. While somebody
//! changes the schema, this session's own transaction too, nothing is kept. What was changed on the shards directly is seen after
//! [`KEPT_FOR`]; no longer where no shard can be asked, so that rows are numbered while the home shard is away.

use std::time::{Duration, Instant};

use crate::catalog::{SequenceName, quoted_literal};
use crate::error::{PgError, SqlState};
use crate::session::{Failure, Session};
use crate::sql::rewrite::drawing::{Drawing, Number};

/// What one does with a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Right {
    /// `nextval`, also as the default of a column, but for an identity column's.
    Draw,
    /// `currval`, `lastval`.
    Look,
    /// `setval`.
    Set,
    /// Reading it like a table.
    Read,
}

/// What a role may do with a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Rights {
    draw: bool,
    look: bool,
    set: bool,
    read: bool,
}

impl Rights {
    fn allow(self, right: Right) -> bool {
        match right {
            Right::Draw => self.draw,
            Right::Look => self.look,
            Right::Set => self.set,
            Right::Read => self.read,
        }
    }

    /// As [`query`] gives them.
    fn read(text: &str) -> Option<Self> {
        let mut letters = text.chars().map(|letter| letter == 't');
        Some(Self { draw: letters.next()?, look: letters.next()?, set: letters.next()?, read: letters.next()? })
    }
}

/// Whose rights they are, and in which state of the schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::session) struct RightsKey {
    user: String,
    role: Option<String>,
    authorization: Option<String>,
    sequence: SequenceName,
    incarnation: i64,
    schema_version: i64,
}

/// What the statement does with sequences is the user's to do.
pub(in crate::session) async fn check_rights_of(session: &mut Session, drawing: &Drawing) -> Result<(), Failure> {
    let mut checked: Vec<(&SequenceName, Right)> = Vec::new();
    for number in drawing.numbers() {
        let asked = match number {
            Number::Next(sequence) => (sequence, Right::Draw),
            Number::Current(sequence) => (sequence, Right::Look),
            // Of lastval() the sequence is not known yet, and setval() looks by itself.
            Number::Identity(_) | Number::Last | Number::Unique | Number::Set { .. } => continue,
        };
        if !checked.contains(&asked) {
            checked.push(asked);
            check_right(session, asked.0, asked.1).await?;
        }
    }
    Ok(())
}

pub(in crate::session) async fn check_right(session: &mut Session, sequence: &SequenceName, right: Right) -> Result<(), Failure> {
    denial_of(session, sequence, right).await?.map_or(Ok(()), |denial| Err(denial.into()))
}

/// `None`: the user may.
pub(in crate::session) async fn denial_of(
    session: &mut Session,
    sequence: &SequenceName,
    right: Right,
) -> Result<Option<PgError>, Failure> {
    let is_allowed = rights_to(session, sequence).await?.allow(right);
    let message = || format!("permission denied for sequence {}", sequence.1);
    Ok((!is_allowed).then(|| PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, message())))
}

async fn rights_to(session: &mut Session, sequence: &SequenceName) -> Result<Rights, Failure> {
    let Some(key) = rights_key(session, sequence) else { return Box::pin(ask_rights(session, sequence)).await };
    let known = session.gateway.rights.get(&key);
    if let Some((rights, asked_at)) = known
        && asked_at.elapsed() < KEPT_FOR
    {
        return Ok(rights);
    }
    match (Box::pin(ask_rights(session, sequence)).await, known) {
        (Ok(rights), _) => {
            session.gateway.rights.insert(key, (rights, Instant::now()));
            Ok(rights)
        }
        (Err(Failure::Error(_)), Some((rights, _))) => Ok(rights),
        (Err(failure), _) => Err(failure),
    }
}

/// `None`: what is told now may not hold any more in a moment.
fn rights_key(session: &Session, sequence: &SequenceName) -> Option<RightsKey> {
    let map = session.gateway.map.load();
    let own = |name: &str| session.effective(name).map(str::to_owned);
    (map.open_schema_changes == 0).then(|| RightsKey {
        user: session.login.identity.user.clone(),
        role: own("role"),
        authorization: own("session_authorization"),
        sequence: sequence.clone(),
        incarnation: map.epoch.incarnation,
        schema_version: map.schema_version,
    })
}

/// In the open transaction where it is on a shard; else on any shard, the home shard first.
async fn ask_rights(session: &mut Session, sequence: &SequenceName) -> Result<Rights, Failure> {
    let sql = query(sequence);
    let mut asked = session.ask_as_session(&sql).await;
    if matches!(asked, Err(Failure::Error(_))) && session.begun_on_shard().is_none() {
        let shards = session.gateway.map.snapshot().shards.clone();
        for shard in shards.iter().filter(|shard| !shard.is_home && shard.state.is_ready()) {
            if let Ok(told) = session.ask_beside(shard, &sql).await {
                asked = Ok(told);
                break;
            }
        }
    }
    let told = asked?;
    let missing = || PgError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", sequence.1));
    Ok(told.as_deref().and_then(Rights::read).ok_or_else(missing)?)
}

/// Four letters, `t` or `f`. By its oid: a default has no need of the schema's name.
fn query(sequence: &SequenceName) -> String {
    let may = |privileges: &str| format!("pg_catalog.has_sequence_privilege(c.oid, '{privileges}')");
    format!(
        "SELECT pg_catalog.concat({}, {}, {}, {}) FROM pg_catalog.pg_class c \
         WHERE c.relname = {} AND c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = {})",
        may("USAGE, UPDATE"),
        may("USAGE, SELECT"),
        may("UPDATE"),
        may("SELECT"),
        quoted_literal(&sequence.1),
        quoted_literal(&sequence.0)
    )
}

/// As changes of the schema itself that were made behind the proxy's back.
const KEPT_FOR: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_as_they_are_asked() {
        let rights = Rights::read("tftf").expect("rights");
        assert!(rights.allow(Right::Draw) && !rights.allow(Right::Look) && rights.allow(Right::Set) && !rights.allow(Right::Read));
        assert_eq!(Rights::read("tft"), None);
    }
}
