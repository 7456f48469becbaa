//! Which database is at the other end: every connection to a shard shows the shard's identity before anybody uses it.
//!
//! A URL may lead to another database than it did: an address was swapped, a server was replaced, a name resolves differently. A
//! statement there would find no rows, or another shard's, and nobody would notice. So each database of a shard has a uuid in its
//! table `shardgate.identity`, the map knows it, and a connection that shows another one, none, or a standby is closed.
//!
//! A session's connection asks in the packet that ends its login, so that where a password is sent it costs no round trip of its
//! own. Connections by sqlx ask once they are made. The map database is not asked: it has an incarnation of its own.

use bytes::Bytes;
use sqlx::postgres::{PgConnection, PgDatabaseError};
use thiserror::Error;

use super::{Connection, ConnectionError};
use crate::error::{PgError, SqlState};
use crate::wire::{error_fields, shard_tag};

/// Why a connection does not lead to its shard.
#[derive(Clone, Debug, Error)]
pub enum Misdirected {
    #[error("the url leads to another database than the shard's")]
    OtherDatabase,
    #[error("the url leads to a standby server")]
    Standby,
    /// The user may not read it, say.
    #[error("the identity of the database cannot be read: {0}")]
    Unreadable(String),
}

impl Misdirected {
    /// For statements of this shard.
    pub fn into_error(self, shard: &str) -> PgError {
        let hint = match &self {
            Misdirected::OtherDatabase | Misdirected::Standby => {
                format!("Let shardgate.alter_shard('{shard}', url => ...) name the server on which the shard's database is now.")
            }
            Misdirected::Unreadable(_) => {
                "Every user of the shard needs USAGE on its schema shardgate and SELECT on shardgate.identity.".to_owned()
            }
        };
        let detail = self.to_string();
        let detail = format!("{}{}.", detail.get(..1).unwrap_or_default().to_uppercase(), detail.get(1..).unwrap_or_default());
        PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("shard \"{shard}\" is not available now"))
            .with_detail(detail)
            .with_hint(hint)
    }
}

/// The simple query whose answer [`check_answer`] reads.
pub(super) const QUERY: &str =
    "SELECT shard::pg_catalog.text, pg_catalog.pg_is_in_recovery()::pg_catalog.text FROM shardgate.identity";

/// Reads the answer to [`QUERY`], which is on its way.
pub(super) async fn check_answer(connection: &mut Connection, expected: &str) -> Result<Result<(), Misdirected>, ConnectionError> {
    let mut shown = Err(Misdirected::OtherDatabase);
    loop {
        let (tag, body) = connection.next_frame().await?;
        match tag {
            shard_tag::DATA_ROW => shown = judge(&columns(&body)?, expected),
            shard_tag::ERROR => {
                let fields = error_fields(&body)?;
                shown = Err(of_error(fields.sqlstate().unwrap_or_default(), fields.message()));
            }
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return Ok(shown);
            }
            _ => {}
        }
    }
}

fn columns(body: &Bytes) -> Result<Vec<Option<String>>, ConnectionError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    crate::wire::data_row_columns(body).map(|column| Ok(column?.map(text))).collect()
}

fn judge(columns: &[Option<String>], expected: &str) -> Result<(), Misdirected> {
    match columns {
        [Some(uuid), _] if uuid != expected => Err(Misdirected::OtherDatabase),
        [Some(_), Some(is_standby)] if is_standby == "false" => Ok(()),
        [Some(_), Some(_)] => Err(Misdirected::Standby),
        _ => Err(Misdirected::Unreadable("it has no value".to_owned())),
    }
}

/// A database without the table, or with another one of that name, is no shard of ours.
fn of_error(sqlstate: &[u8], message: String) -> Misdirected {
    match sqlstate {
        b"42P01" | b"3F000" | b"42703" => Misdirected::OtherDatabase,
        _ => Misdirected::Unreadable(message),
    }
}

/// The same by a connection of the proxy's own.
pub async fn check(connection: &mut PgConnection, expected: &str) -> Result<Result<(), Misdirected>, sqlx::Error> {
    let asked = sqlx::query_as::<_, (Option<String>, Option<String>)>(QUERY).fetch_optional(connection).await;
    let database = |error: &sqlx::Error| {
        let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
        Some(of_error(error.code().as_bytes(), error.message().to_owned()))
    };
    match asked {
        Ok(Some((uuid, is_standby))) => Ok(judge(&[uuid, is_standby], expected)),
        Ok(None) => Ok(Err(Misdirected::OtherDatabase)),
        Err(error) => database(&error).map_or(Err(error), |misdirected| Ok(Err(misdirected))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_database_on_a_primary_is_right() {
        let shown = |uuid: Option<&str>, is_standby: &str| judge(&[uuid.map(str::to_owned), Some(is_standby.to_owned())], "a");
        assert!(shown(Some("a"), "false").is_ok());
        assert!(matches!(shown(Some("b"), "false"), Err(Misdirected::OtherDatabase)));
        assert!(matches!(shown(Some("b"), "true"), Err(Misdirected::OtherDatabase)));
        assert!(matches!(shown(Some("a"), "true"), Err(Misdirected::Standby)));
        assert!(matches!(shown(None, "false"), Err(Misdirected::Unreadable(_))));
        assert!(matches!(judge(&[], "a"), Err(Misdirected::Unreadable(_))));
        assert!(matches!(of_error(b"42P01", String::new()), Misdirected::OtherDatabase));
        assert!(matches!(of_error(b"42501", String::new()), Misdirected::Unreadable(_)));
    }

    #[test]
    fn the_error_says_what_to_do() {
        let error = Misdirected::OtherDatabase.into_error("s1");
        assert_eq!((error.code, error.message.as_str()), (SqlState::CANNOT_CONNECT_NOW, "shard \"s1\" is not available now"));
        assert_eq!(error.detail.as_deref(), Some("The url leads to another database than the shard's."));
        assert!(error.hint.is_some_and(|hint| hint.contains("shardgate.alter_shard('s1', url => ...)")));
    }
}
