//! Sets a connection back before another client has it.
//!
//! A statement that is not proven to leave nothing behind (see [`SessionEffects`]) marks the connection. A marked connection does
//! not go back to its pool as it is: its settings are read and put on record, or it is reset, or it is closed. A setting that the
//! shard reports and that is not on record marks it as well, whatever was proven.
//!
//! The reset is sent when its session gives the connection back, and its answer is read by who takes it next: mostly it has come by then,
//! and nobody waits for it. What was left is gone from the server at once, whether anybody comes or not.
//!
//! After the reset the connection has the settings that are on record. The reset begins with the session's user, since another one may
//! not have the right to the rest, and names pg_catalog, since the search path may have been changed too. Where any part of it fails,
//! the connection is closed.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;

use super::{Connection, ConnectionError, Own, Settings};
use crate::catalog::{SessionEffects, quoted_literal};

impl Connection {
    /// A statement is sent that may leave this behind.
    pub fn note_effects(&mut self, effects: &Arc<SessionEffects>) {
        match &mut self.effects {
            Some(known) if Arc::ptr_eq(known, effects) => {}
            Some(known) => Arc::make_mut(known).add(effects),
            None => self.effects = Some(Arc::clone(effects)),
        }
    }

    /// Something may be on the connection that is not on record.
    pub(super) fn needs_reset(&mut self) -> bool {
        let has_reported = std::mem::take(&mut self.has_reported);
        self.effects.is_some() || (has_reported && !self.reports_what_is_on_record())
    }

    /// It keeps what no reset takes away.
    pub(super) fn keeps_something(&self) -> bool {
        self.effects.as_ref().is_some_and(|effects| effects.is_closed || !effects.kept.is_empty())
    }

    /// The connection had this value when it was opened, or a custom setting has none: as far as is known.
    pub fn has_by_default(&self, name: &str, value: &str) -> bool {
        let at_first = self.parameters_at_first.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        (name.contains('.') && value.is_empty()) || at_first.is_some_and(|(_, known)| &**known == value)
    }

    /// Does the shard report the values that the settings on record, or at first, have?
    fn reports_what_is_on_record(&self) -> bool {
        self.parameters.iter().filter(|(name, _)| !NOT_SET.contains(&&**name)).all(|(name, value)| {
            let on_record = self.settings.get(&name.to_ascii_lowercase());
            let at_first = || self.parameters_at_first.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
            on_record.or_else(at_first).is_none_or(|expected| expected == &**value)
        })
    }

    /// Takes back whatever a session may have left, but for what is on record. An error: the connection is of no use any more. Not
    /// cancel safe.
    pub async fn reset(&mut self) -> Result<(), ConnectionError> {
        if self.has_planted_reset {
            return self.reset_by_path().await;
        }
        if self.reset_sent_at.is_none() {
            self.put_reset();
        }
        let rows = self.rows_to_ready().await?;
        self.reset_sent_at = None;
        let told = Told::read(&rows).ok_or_else(|| not_reset("its answer is not understood"))?;
        // Those of clients are made by messages.
        if told.of_sql != 0 || told.of_protocol < self.prepared.count() {
            return Err(not_reset("prepared statements were made or dropped by a function"));
        }
        match &self.reset_values {
            Some(known) if known.loaded_at == told.loaded_at => {}
            Some(_) => return Err(not_reset("the server's configuration was loaded since the last time")),
            None => self.learn_reset_values(told.loaded_at).await?,
        }
        self.is_reset();
        Ok(())
    }

    fn put_reset(&mut self) {
        // What random() gives next was perhaps fixed.
        let mut sql = RESET.replace("$seed", &format!("{:?}", rand::random::<f64>()));
        if let Some(known) = &self.reset_values {
            push(&mut sql, &self.settings.but_for(&known.values).statements_of_all());
        }
        self.output.query(&Own::Setting.text(&sql));
        self.reset_sent_at = Some(Instant::now());
    }

    /// Sends the reset without a wait. False: it is not sent as a whole, or more has to be asked after it; [`Connection::reset`] is to be
    /// awaited then.
    pub(super) fn send_reset(&mut self) -> bool {
        if self.has_planted_reset || self.reset_values.is_none() {
            return false;
        }
        self.put_reset();
        let mut context = Context::from_waker(Waker::noop());
        matches!(self.poll_flush(&mut context), Poll::Ready(Ok(())))
    }

    pub(super) fn is_being_reset(&self) -> bool {
        self.reset_sent_at.is_some()
    }

    /// Until when the answer to the reset that was sent is waited for.
    pub(super) fn reset_until(&self) -> Option<Instant> {
        self.reset_sent_at.map(|sent_at| sent_at + RESET_TIMEOUT)
    }

    /// What has become of a reset that was sent, without a wait.
    pub(super) fn settle_reset(&mut self) -> Settled {
        let Some(until) = self.reset_until() else { return Settled::Ready };
        match self.receive_due() {
            Err(error) => {
                tracing::debug!(%error, "a connection was lost while it was reset");
                Settled::Useless
            }
            Ok(()) if !self.owes() => match self.reset().now_or_never() {
                Some(Ok(())) if self.is_clean() => Settled::Ready,
                reset => {
                    tracing::debug!(?reset, "a connection that could not be reset is closed");
                    Settled::Useless
                }
            },
            Ok(()) if Instant::now() < until => Settled::Due,
            Ok(()) => Settled::Useless,
        }
    }

    /// What the settings on record are where nobody has set them: then they need not be set after the next reset.
    async fn learn_reset_values(&mut self, loaded_at: Bytes) -> Result<(), ConnectionError> {
        let mut sql = String::new();
        for (name, _) in self.settings.iter().filter(|(name, _)| !name.contains('.')) {
            let name = quoted_literal(name);
            let before = if sql.is_empty() { "" } else { " UNION ALL " };
            sql.push_str(&format!("{before}SELECT {name}, pg_catalog.current_setting({name}, true)"));
        }
        let mut values = Settings::default();
        for row in self.simple(&Own::Setting.text(&sql)).await? {
            if let [Some(name), Some(value)] = row.as_slice() {
                values = values.with(&String::from_utf8_lossy(name), &String::from_utf8_lossy(value));
            }
        }
        let mut sql = String::new();
        push(&mut sql, &self.settings.but_for(&values).statements_of_all());
        self.simple(&Own::Setting.text(&sql)).await?;
        self.reset_values = Some(ResetValues { loaded_at, values });
        Ok(())
    }

    async fn reset_by_path(&mut self) -> Result<(), ConnectionError> {
        let mut sql = RESET_BY_PATH.to_owned();
        push(&mut sql, &self.settings.statements_of_all());
        self.simple(&Own::Setting.text(&sql)).await?;
        self.is_reset();
        Ok(())
    }

    fn is_reset(&mut self) {
        self.drawn_by = None;
        self.effects = None;
        self.has_reported = false;
        for (name, value) in &mut self.parameters_at_first {
            // The server's own configuration may be another by now.
            let now = self.parameters.iter().find(|(known, _)| known == name);
            if let (None, Some((_, now))) = (self.settings.get(&name.to_ascii_lowercase()), now) {
                value.clone_from(now);
            }
        }
    }
}

/// A connection that may be being reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Ready,
    /// The answer has not come.
    Due,
    Useless,
}

/// Values that settings have after a reset.
pub(super) struct ResetValues {
    /// When the server has read its configuration: another one may have others.
    loaded_at: Bytes,
    values: Settings,
}

/// The answer to [`RESET`], which ends with a SELECT.
struct Told {
    of_sql: usize,
    of_protocol: usize,
    loaded_at: Bytes,
}

impl Told {
    fn read(rows: &[Vec<Option<Bytes>>]) -> Option<Self> {
        let [Some(of_sql), Some(of_protocol), Some(loaded_at), ..] = rows.first()?.as_slice() else { return None };
        let number = |text: &Bytes| -> Option<usize> { std::str::from_utf8(text).ok()?.parse().ok() };
        Some(Self { of_sql: number(of_sql)?, of_protocol: number(of_protocol)?, loaded_at: loaded_at.clone() })
    }
}

fn not_reset(why: &str) -> ConnectionError {
    ConnectionError::Refused { sqlstate: "55000".to_owned(), message: why.to_owned(), body: Bytes::new() }
}

fn push(sql: &mut String, statements: &[String]) {
    for statement in statements {
        sql.push(';');
        sql.push_str(statement);
    }
}

/// Reported, and not by a setting of the session.
const NOT_SET: [&str; 6] =
    ["is_superuser", "in_hot_standby", "server_version", "server_encoding", "integer_datetimes", "scram_iterations"];

/// DISCARD ALL without the statements that are prepared for everybody: these are counted.
const RESET: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;CLOSE ALL;UNLISTEN *;DISCARD TEMP;DISCARD SEQUENCES;\
SELECT pg_catalog.count(*) FILTER (WHERE from_sql), pg_catalog.count(*) FILTER (WHERE NOT from_sql), \
pg_catalog.pg_conf_load_time(), pg_catalog.pg_advisory_unlock_all(), pg_catalog.setseed($seed) \
FROM pg_catalog.pg_prepared_statement()";
/// A connection that is not reset by then is closed.
pub(super) const RESET_TIMEOUT: Duration = Duration::from_secs(5);
/// As it must not be.
const RESET_BY_PATH: &str = "SELECT pg_advisory_unlock_all();RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL";

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::shard_tag;

    /// As one whose reset was sent ahead.
    pub(in crate::backend) fn begin_reset(connection: &mut Connection) {
        connection.reset_values = Some(ResetValues { loaded_at: Bytes::from_static(LOADED_AT), values: Settings::default() });
        assert!(connection.send_reset());
    }

    /// Everything up to ReadyForQuery.
    pub(in crate::backend) fn answer_to_reset() -> Vec<u8> {
        let message = |tag: u8, body: &[u8]| {
            let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
            [&[tag][..], &length, body].concat()
        };
        let column = |value: &[u8]| [&u32::try_from(value.len()).expect("short").to_be_bytes()[..], value].concat();
        let row = [&[0, 4][..], &column(b"0"), &column(b"0"), &column(LOADED_AT), &column(b"")].concat();
        [
            message(b'C', b"RESET\0"),
            message(b'T', &[0, 0]),
            message(shard_tag::DATA_ROW, &row),
            message(b'C', b"SELECT 1\0"),
            message(shard_tag::READY, b"I"),
        ]
        .concat()
    }

    const LOADED_AT: &[u8] = b"2026-01-01 00:00:00+00";
}
