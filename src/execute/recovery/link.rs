//! A connection of the proxy's own to one shard, for recovery and for snapshot barriers: outside the pools and their budgets, with
//! the shard's own credentials. It works when no client has logged in, and when all pooled connections are in use.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::backend::identity::Misdirected;
use crate::backend::{Connection, OpenError, ShardAddress};
use crate::error::SqlState;
use crate::execute::commit::{Answer, TransactionId, ask, rules};
use crate::shardmap::Shard;

/// Why a shard could not be asked.
#[derive(Debug, Error)]
pub enum LinkError {
    #[error("the shard's URL cannot be used")]
    Url,
    #[error("the shard cannot be reached: {0}")]
    Unreachable(String),
    /// It has never been made ready for transactions over several shards.
    #[error("the shard has no schema \"shardgate\"")]
    NotReady,
    /// What is prepared there cannot be finished, nor decided, before it is promoted.
    #[error("the shard's server is a standby")]
    Standby,
    #[error("the shard refused: {message} ({sqlstate})")]
    Refused { sqlstate: String, message: String },
}

impl LinkError {
    pub fn is_lock_timeout(&self) -> bool {
        self.is(SqlState::LOCK_NOT_AVAILABLE)
    }

    /// What Shardgate keeps on the shard is of an earlier version.
    pub fn is_undefined(&self) -> bool {
        self.is(SqlState::UNDEFINED_FUNCTION)
    }

    fn is(&self, code: SqlState) -> bool {
        matches!(self, LinkError::Refused { sqlstate, .. } if sqlstate.as_bytes() == code.0)
    }
}

pub struct Link {
    pub shard: Arc<Shard>,
    connection: Option<Connection>,
    /// Between [`Link::begin`] and [`Link::end`]: another connection would not be in the transaction.
    is_in_transaction: bool,
    /// Of the database behind the URL, as last seen.
    pub uuid: Option<String>,
    /// When the last attempt failed that the shard did not answer.
    pub(super) unanswered_at: Option<Instant>,
}

/// A prepared transaction of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub id: TransactionId,
    pub gid: String,
    pub age: Duration,
}

impl Link {
    pub fn new(shard: Arc<Shard>) -> Self {
        Self { shard, connection: None, is_in_transaction: false, uuid: None, unanswered_at: None }
    }

    /// The prepared transactions of this cluster in this database; others are never looked at.
    pub async fn prepared(&mut self, cluster: &str) -> Result<Vec<Prepared>, LinkError> {
        let prefix = TransactionId::prefix(cluster);
        let rows = self
            .values(format!(
                "SELECT gid || ' ' || greatest(0, extract(epoch FROM now() - prepared) * 1000)::bigint FROM pg_prepared_xacts \
                 WHERE database = current_database() AND starts_with(gid, '{prefix}') ORDER BY prepared"
            ))
            .await?;
        Ok(rows.iter().filter_map(|row| prepared_of(row, cluster)).collect())
    }

    /// Makes the decision an abort unless it is made, and says what it is: true is committed. Waits for a decider that is in
    /// progress up to the lock timeout.
    pub async fn resolve(&mut self, id: &TransactionId) -> Result<bool, LinkError> {
        let sql = format!("SELECT shardgate.resolve('{id}','{}')", id.decider_uuid());
        let outcome = self.values(sql).await?;
        match outcome.first().map(String::as_str) {
            Some("committed") => Ok(true),
            Some("aborted") => Ok(false),
            _ => Err(LinkError::Unreachable("it gave no outcome".to_owned())),
        }
    }

    /// The decision as far as it is made.
    pub async fn decision(&mut self, id: &TransactionId) -> Result<Option<bool>, LinkError> {
        let found = self.values(format!("SELECT outcome FROM shardgate.decisions WHERE gtx = '{id}'")).await?;
        Ok(found.first().map(|outcome| outcome == "committed"))
    }

    /// Which of these are decided, and committed.
    pub async fn committed(&mut self, ids: &[TransactionId]) -> Result<Vec<String>, LinkError> {
        let list: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
        let list = list.join(",");
        self.values(format!("SELECT gtx FROM shardgate.decisions WHERE outcome = 'committed' AND gtx IN ({list})")).await
    }

    /// Has this shard's part of the transaction been committed?
    pub async fn is_applied(&mut self, id: &TransactionId) -> Result<bool, LinkError> {
        let found = self.values(format!("SELECT 'yes' FROM shardgate.applied WHERE gtx = '{id}'")).await?;
        Ok(!found.is_empty())
    }

    pub async fn finish(&mut self, gid: &str, is_committed: bool) -> rules::Finish {
        let Ok(connection) = self.open().await else { return rules::Finish::Lost };
        let answers = ask(connection, &rules::finish(gid, is_committed, None), ANSWER_TIMEOUT).await;
        if answers.iter().any(Answer::is_lost) {
            self.unanswered_at = Some(Instant::now());
        }
        if let Some(refused) = answers.iter().find(|answer| answer.error.is_some()) {
            tracing::debug!(gid, shard = self.shard.name, reason = refused.message(), "a prepared transaction was not finished");
        }
        if !rules::is_usable(&answers) {
            self.connection = None;
        }
        rules::finished(&answers, is_committed)
    }

    /// Begins a transaction, with what the text says. What is asked until [`Link::end`] is asked in it, or fails.
    pub async fn begin(&mut self, text: &str) -> Result<Vec<String>, LinkError> {
        self.open().await?;
        self.is_in_transaction = true;
        self.values(format!("BEGIN;{text}")).await
    }

    /// True: the transaction has lasted until now, and no statement in it has failed.
    pub async fn end(&mut self) -> bool {
        self.is_in_transaction = false;
        let Some(connection) = self.connection.as_mut() else { return false };
        let answer = ask(connection, &["COMMIT".to_owned()], ANSWER_TIMEOUT).await.pop().unwrap_or_default();
        if answer.is_lost() {
            self.has_lost();
        }
        // Without a transaction COMMIT is a warning, in a failed one it answers ROLLBACK.
        answer.is_ready(b'I') && answer.error.is_none() && answer.last_tag() == "COMMIT" && !answer.has_warned_at_end
    }

    /// One statement; the first column of its rows.
    pub async fn values(&mut self, sql: String) -> Result<Vec<String>, LinkError> {
        let connection = self.open().await?;
        // The commit comes with the second statement: a warning of the first one, such as of a wraparound that is near, says nothing of it.
        let answer = ask(connection, &[format!("{sql};SELECT WHERE false")], ANSWER_TIMEOUT).await.pop().unwrap_or_default();
        if answer.is_lost() {
            self.has_lost();
            return Err(LinkError::Unreachable("the connection was lost".to_owned()));
        }
        if let Some(code) = answer.sqlstate() {
            return Err(LinkError::Refused { sqlstate: String::from_utf8_lossy(&code).into_owned(), message: answer.message() });
        }
        if answer.has_warned_at_end {
            // A wait for a standby that was cut short: not confirmed.
            return Err(LinkError::Unreachable("what it wrote may not be replicated".to_owned()));
        }
        let text = |value: &bytes::Bytes| String::from_utf8_lossy(value).into_owned();
        Ok(answer.values.iter().map(|value| value.as_ref().map(text).unwrap_or_default()).collect())
    }

    /// Has not ended, as far as is known without asking. On a busy machine the reactor may not have seen the end yet: the socket itself
    /// is looked at.
    pub fn is_alive(&mut self) -> bool {
        self.connection.as_mut().is_some_and(|connection| {
            connection.idle_since.get_or_insert_with(std::time::Instant::now);
            connection.is_quiet()
        })
    }

    fn has_lost(&mut self) {
        self.connection = None;
        self.unanswered_at = Some(Instant::now());
    }

    async fn open(&mut self) -> Result<&mut Connection, LinkError> {
        // One that ended while nobody used it says nothing about the shard.
        if !self.is_alive() {
            self.connection = None;
            if self.is_in_transaction {
                return Err(LinkError::Unreachable("the connection was lost".to_owned()));
            }
            let (connection, uuid) = match Box::pin(connect(&self.shard)).await {
                Ok(connected) => connected,
                Err(error) => {
                    if matches!(error, LinkError::Unreachable(_)) {
                        self.unanswered_at = Some(Instant::now());
                    }
                    return Err(error);
                }
            };
            if self.uuid.as_ref().is_some_and(|known| *known != uuid) {
                return Err(LinkError::Unreachable("another database is behind its URL than before".to_owned()));
            }
            self.uuid = Some(uuid);
            self.connection = Some(connection);
        }
        self.connection.as_mut().ok_or_else(|| LinkError::Unreachable("there is no connection".to_owned()))
    }

    /// The uuid of the database, asked for when it is not known.
    pub async fn known_uuid(&mut self) -> Option<&str> {
        if self.uuid.is_none()
            && let Err(error) = self.open().await
        {
            tracing::debug!(shard = self.shard.name, %error, "a shard's identity is not known");
        }
        self.uuid.as_deref()
    }
}

async fn connect(shard: &Shard) -> Result<(Connection, String), LinkError> {
    let (address, credentials) = ShardAddress::of(shard).map_err(|_| LinkError::Url)?;
    let opening = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(crate::backend::open(&address, &credentials, 0, None)));
    let mut connection = match opening.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(OpenError::Misdirected(Misdirected::Standby))) => return Err(LinkError::Standby),
        Ok(Err(error)) => return Err(LinkError::Unreachable(error.to_string())),
        Err(_) => return Err(LinkError::Unreachable("no answer in time".to_owned())),
    };
    let texts = [SETTINGS.to_owned(), IS_STANDBY.to_owned(), IS_READY.to_owned(), IDENTITY.to_owned()];
    let answers = ask(&mut connection, &texts, CONNECT_TIMEOUT).await;
    if answers.iter().take(3).any(|answer| answer.is_lost() || answer.error.is_some()) {
        let message = answers.iter().map(Answer::message).find(|message| !message.is_empty()).unwrap_or_default();
        return Err(LinkError::Unreachable(message));
    }
    let value = |index: usize| answers.get(index).and_then(|answer| answer.values.first()).cloned().flatten();
    if value(1).as_deref() == Some(b"t") {
        return Err(LinkError::Standby);
    }
    match (value(2).as_deref(), value(3)) {
        (Some(b"t"), Some(uuid)) => Ok((connection, String::from_utf8_lossy(&uuid).into_owned())),
        _ => Err(LinkError::NotReady),
    }
}

fn prepared_of(row: &str, cluster: &str) -> Option<Prepared> {
    let (gid, age_ms) = row.rsplit_once(' ')?;
    let (id, _) = TransactionId::of_gid(gid, cluster)?;
    Some(Prepared { id, gid: gid.to_owned(), age: Duration::from_millis(age_ms.parse().ok()?) })
}

// READ COMMITTED: the decision of a moment ago must be seen.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed';SET default_transaction_read_only = off;\
     SET lock_timeout = '2s';SET statement_timeout = 0;SET idle_in_transaction_session_timeout = 0;SET search_path = pg_catalog;\
     SET application_name = 'shardgate recovery';SELECT pg_catalog.set_config('synchronous_commit','on',false) \
     WHERE pg_catalog.current_setting('synchronous_commit') IN ('off','local','remote_write')";
const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";
const IS_READY: &str = "SELECT to_regclass('shardgate.identity') IS NOT NULL AND to_regclass('shardgate.decisions') IS NOT NULL";
const IDENTITY: &str = "SELECT shard::text FROM shardgate.identity";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Above the lock timeout.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
