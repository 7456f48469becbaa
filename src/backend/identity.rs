//! Which database is at the other end, and on which server: every connection to a shard shows both before anybody uses it.
//!
//! A URL may lead to another database than it did: an address was swapped, a server was replaced, a name resolves differently. A
//! statement there would find no rows, or another shard's, and nobody would notice. So each database of a shard has a uuid in its
//! table `shardgate.identity`, the map knows it, and a connection that shows another one, none, or a standby is closed.
//!
//! A server that was the primary and is none any more shows the right uuid, and may be alive. It is known by its timeline, which is
//! older than that of the server that was promoted: [`Primary`] has the newest that this proxy, or by the map any other, has seen.
//!
//! A session's connection asks in the packet that ends its login, so that where a password is sent it costs no round trip of its
//! own. Connections by sqlx ask once they are made. The map database has no uuid: it has an incarnation of its own.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::postgres::{PgConnection, PgDatabaseError};
use thiserror::Error;

use super::{Connection, ConnectionError};
use crate::error::{PgError, SqlState};
use crate::shardmap::{NotPrimary, Pledge, Primary, PrimaryServer, Shard};
use crate::wire::{error_fields, shard_tag};

/// What a connection must show.
#[derive(Clone, Debug)]
pub struct Expected {
    /// `None`: the map does not know it.
    pub uuid: Option<Arc<str>>,
    pub primary: Arc<Primary>,
}

impl Expected {
    pub fn of(shard: &Shard) -> Self {
        Self { uuid: shard.identity.clone(), primary: Arc::clone(&shard.primary) }
    }
}

/// Why a connection does not lead to its shard.
#[derive(Clone, Debug, Error)]
pub enum Misdirected {
    #[error("the url leads to another database than the shard's")]
    OtherDatabase,
    #[error("the url leads to a standby server")]
    Standby,
    #[error("the url leads to a former primary server: another one was promoted since")]
    FormerPrimary,
    #[error("the url leads to another server than before, which is no promoted standby of it")]
    OtherServer,
    #[error("two servers of the shard are primaries of the same timeline at once")]
    TwoPrimaries,
    #[error("the server's sessions are read-only by default, and the url wants target_session_attrs=read-write")]
    ReadOnly,
    /// The user may not read it, say.
    #[error("the identity of the database cannot be read: {0}")]
    Unreadable(String),
}

impl From<NotPrimary> for Misdirected {
    fn from(reason: NotPrimary) -> Self {
        match reason {
            NotPrimary::Former => Misdirected::FormerPrimary,
            NotPrimary::OtherSystem => Misdirected::OtherServer,
            NotPrimary::Split => Misdirected::TwoPrimaries,
        }
    }
}

impl Misdirected {
    /// For statements of this shard.
    pub fn into_error(self, shard: &str) -> PgError {
        let hint = match &self {
            Misdirected::OtherDatabase | Misdirected::Standby | Misdirected::FormerPrimary => format!(
                "Let shardgate.alter_shard('{shard}', url => ...) name the server on which the shard's database is now, or all of its \
                 servers: postgres://user@host1,host2/database."
            ),
            Misdirected::OtherServer => format!(
                "If the database was moved there by pg_upgrade or by a dump, shardgate.alter_shard('{shard}', url => ...) with this url \
                 makes it the shard's server."
            ),
            Misdirected::TwoPrimaries => {
                "Stop the one that was not meant to be a primary, and take it out of the url: each may have rows that the \
                 other one has not."
                    .to_owned()
            }
            Misdirected::ReadOnly => {
                "Let the server's default_transaction_read_only be off, or leave target_session_attrs out.".to_owned()
            }
            Misdirected::Unreadable(_) => {
                "Every user of the shard needs USAGE on its schema shardgate, SELECT on shardgate.identity, and EXECUTE on \
                 pg_catalog.pg_control_system(), which PostgreSQL gives to everybody by default."
                    .to_owned()
            }
        };
        let detail = self.to_string();
        let detail = format!("{}{}.", detail.get(..1).unwrap_or_default().to_uppercase(), detail.get(1..).unwrap_or_default());
        PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("shard \"{shard}\" is not available now"))
            .with_detail(detail)
            .with_hint(hint)
    }
}

/// The simple query whose answer [`check_answer`] reads. The timeline is that of the WAL that is being written: pg_control_checkpoint()
/// has the one before until the first checkpoint after a promotion.
macro_rules! query {
    ($uuid:literal, $from:literal) => {
        concat!(
            "SELECT ",
            $uuid,
            ", pg_catalog.pg_is_in_recovery()::pg_catalog.text, c.system_identifier::pg_catalog.text, \
             CASE pg_catalog.pg_is_in_recovery() WHEN false \
             THEN pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) END, \
             pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())::pg_catalog.text \
             FROM ",
            $from,
            "pg_catalog.pg_control_system() c"
        )
    };
}

const QUERY: &str = query!("i.shard::pg_catalog.text", "shardgate.identity i, ");
/// Of a database that has no uuid, or whose uuid is not known.
const QUERY_WITHOUT: &str = query!("NULL::pg_catalog.text", "");

impl Expected {
    pub(super) fn query(&self) -> &'static str {
        if self.uuid.is_some() { QUERY } else { QUERY_WITHOUT }
    }
}

/// Reads the answer to [`Expected::query`], which is on its way.
pub(super) async fn check_answer(
    connection: &mut Connection,
    expected: &Expected,
) -> Result<Result<Pledge, Misdirected>, ConnectionError> {
    let mut shown = Err(Misdirected::OtherDatabase);
    loop {
        let (tag, body) = connection.next_frame().await?;
        match tag {
            shard_tag::DATA_ROW => shown = Shown::of(&columns(&body)?, expected),
            shard_tag::ERROR => {
                let fields = error_fields(&body)?;
                shown = Err(of_error(fields.sqlstate().unwrap_or_default(), fields.message()));
            }
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return Ok(shown.and_then(|shown| shown.accepted(expected)));
            }
            _ => {}
        }
    }
}

fn columns(body: &Bytes) -> Result<Vec<Option<String>>, ConnectionError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    crate::wire::data_row_columns(body).map(|column| Ok(column?.map(text))).collect()
}

/// A primary with the right database, as it has shown itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub server: PrimaryServer,
    /// In microseconds.
    pub started_at: i64,
}

impl Shown {
    fn of(columns: &[Option<String>], expected: &Expected) -> Result<Self, Misdirected> {
        let unreadable = |what: &str| Misdirected::Unreadable(format!("it shows no {what}"));
        let [uuid, is_standby, system_identifier, timeline, started_at] = columns else { return Err(unreadable("row")) };
        match (expected.uuid.as_deref(), uuid.as_deref()) {
            (None, _) => {}
            (Some(expected), Some(uuid)) if uuid == expected => {}
            (Some(_), Some(_)) => return Err(Misdirected::OtherDatabase),
            (Some(_), None) => return Err(unreadable("uuid")),
        }
        match is_standby.as_deref() {
            Some("false") => {}
            Some("true") => return Err(Misdirected::Standby),
            _ => return Err(unreadable("role")),
        }
        let timeline = timeline.as_deref().and_then(|text| u32::from_str_radix(text, 16).ok());
        let server = PrimaryServer {
            system_identifier: system_identifier
                .as_deref()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| unreadable("system"))?,
            timeline: timeline.and_then(|timeline| i32::try_from(timeline).ok()).ok_or_else(|| unreadable("timeline"))?,
        };
        let started_at =
            started_at.as_deref().and_then(|text| text.parse::<f64>().ok()).ok_or_else(|| unreadable("time of its start"))?;
        #[expect(clippy::cast_possible_truncation, reason = "microseconds since 1970, to be compared with each other")]
        Ok(Self { server, started_at: (started_at * 1e6) as i64 })
    }

    /// Of a connection that was just opened.
    fn accepted(self, expected: &Expected) -> Result<Pledge, Misdirected> {
        let pledge = expected.primary.accept(self.server)?;
        expected.primary.note_started_at(self.started_at);
        Ok(pledge)
    }
}

/// A database without the table, or with another one of that name, is no shard of ours.
fn of_error(sqlstate: &[u8], message: String) -> Misdirected {
    match sqlstate {
        b"42P01" | b"3F000" | b"42703" => Misdirected::OtherDatabase,
        _ => Misdirected::Unreadable(message),
    }
}

/// The same by a connection of the proxy's own, which was just opened.
pub async fn check(connection: &mut PgConnection, expected: &Expected) -> Result<Result<Pledge, Misdirected>, sqlx::Error> {
    Ok(show(connection, expected).await?.and_then(|shown| shown.accepted(expected)))
}

/// What the other end shows now, without a judgement on which primary is the newest.
pub async fn show(connection: &mut PgConnection, expected: &Expected) -> Result<Result<Shown, Misdirected>, sqlx::Error> {
    type Row = (Option<String>, Option<String>, Option<String>, Option<String>, Option<String>);
    let asked = sqlx::query_as::<_, Row>(expected.query()).fetch_optional(connection).await;
    let database = |error: &sqlx::Error| {
        let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
        Some(of_error(error.code().as_bytes(), error.message().to_owned()))
    };
    match asked {
        Ok(Some(row)) => Ok(Shown::of(&<[_; 5]>::from(row), expected)),
        Ok(None) => Ok(Err(Misdirected::OtherDatabase)),
        Err(error) => database(&error).map_or(Err(error), |misdirected| Ok(Err(misdirected))),
    }
}

/// Of those that are primaries, two servers of one timeline. By the time of its start a server is known under two names.
pub fn two_primaries<H: Copy>(shown: &[(H, Shown)]) -> Option<(H, H, PrimaryServer)> {
    shown.iter().enumerate().find_map(|(place, (host, one))| {
        let is_split = |(_, other): &&(H, Shown)| other.server == one.server && other.started_at != one.started_at;
        shown.get(place + 1..)?.iter().find(is_split).map(|(other, _)| (*host, *other, one.server))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(uuid: Option<&str>) -> Expected {
        Expected { uuid: uuid.map(Arc::from), primary: Primary::of(None) }
    }

    fn shown(uuid: Option<&str>, is_standby: &str, timeline: Option<&str>) -> [Option<String>; 5] {
        let text = |text: &str| Some(text.to_owned());
        [uuid.map(str::to_owned), text(is_standby), text("7712386256859869180"), timeline.map(str::to_owned), text("1764143856.71")]
    }

    #[test]
    fn only_the_expected_database_on_a_primary_is_right() {
        let judge = |columns: &[Option<String>]| Shown::of(columns, &expected(Some("a")));
        let right = judge(&shown(Some("a"), "false", Some("0000001F"))).expect("right");
        assert_eq!(right.server, PrimaryServer { system_identifier: 7_712_386_256_859_869_180, timeline: 31 });
        assert_eq!(right.started_at, 1_764_143_856_710_000);
        assert!(matches!(judge(&shown(Some("b"), "false", Some("00000001"))), Err(Misdirected::OtherDatabase)));
        assert!(matches!(judge(&shown(Some("b"), "true", None)), Err(Misdirected::OtherDatabase)));
        assert!(matches!(judge(&shown(Some("a"), "true", None)), Err(Misdirected::Standby)));
        assert!(matches!(judge(&shown(None, "false", Some("00000001"))), Err(Misdirected::Unreadable(_))));
        assert!(matches!(judge(&shown(Some("a"), "false", None)), Err(Misdirected::Unreadable(_))));
        assert!(matches!(judge(&[]), Err(Misdirected::Unreadable(_))));
        assert!(Shown::of(&shown(None, "false", Some("00000001")), &expected(None)).is_ok());
        assert!(matches!(of_error(b"42P01", String::new()), Misdirected::OtherDatabase));
        assert!(matches!(of_error(b"42501", String::new()), Misdirected::Unreadable(_)));
    }

    #[test]
    fn two_servers_of_one_timeline_are_seen_and_one_with_two_names_is_none() {
        let found = |servers: &[(i32, i64)]| {
            let shown = |(timeline, started_at): &(i32, i64)| {
                let server = PrimaryServer { system_identifier: 1, timeline: *timeline };
                Shown { server, started_at: *started_at }
            };
            let shown: Vec<(&str, Shown)> = ["a", "b", "c"].into_iter().zip(servers.iter().map(shown)).collect();
            two_primaries(&shown).map(|(one, other, server)| (one, other, server.timeline))
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(1, 10), (1, 10), (2, 20)]), None);
        assert_eq!(found(&[(1, 10), (2, 20), (2, 30)]), Some(("b", "c", 2)));
    }

    #[test]
    fn a_former_primary_is_refused() {
        let expected = expected(None);
        let accept = |timeline: &str| {
            Shown::of(&shown(None, "false", Some(timeline)), &expected).and_then(|shown| shown.accepted(&expected))
        };
        let before = accept("00000001").expect("the first");
        accept("00000002").expect("promoted");
        assert!(before.is_broken());
        assert!(matches!(accept("00000001"), Err(Misdirected::FormerPrimary)));
    }

    #[test]
    fn the_error_says_what_to_do() {
        for (reason, detail) in [
            (Misdirected::OtherDatabase, "The url leads to another database than the shard's."),
            (Misdirected::FormerPrimary, "The url leads to a former primary server: another one was promoted since."),
        ] {
            let error = reason.into_error("s1");
            assert_eq!((error.code, error.message.as_str()), (SqlState::CANNOT_CONNECT_NOW, "shard \"s1\" is not available now"));
            assert_eq!(error.detail.as_deref(), Some(detail));
            assert!(error.hint.is_some_and(|hint| hint.contains("shardgate.alter_shard('s1', url => ...)")));
        }
    }
}
