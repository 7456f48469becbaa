//! Whether the server still has a connection that waits for an answer.
//!
//! A link that is down says nothing, and neither does a machine that has lost its power: what waits for an answer would wait for ever,
//! and the move with it, while its driver tells the map that it lives. An answer may take hours (rows are compared, a slot waits for
//! transactions), so there is no deadline. Another connection asks the server now and then: whether the connection is there, and whether
//! the server has anything to do for it.
//!
//! While statements are held nothing takes long: see [`super::patience`].

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;
use tokio::time::{sleep, timeout};

use crate::config::ShardUrl;
use crate::net::{AttemptError, Attempts};
use crate::shardmap::{Pledge, primary_changes};

/// By what its server knows a connection. Not `Debug`: holds a password.
pub(super) struct Backend {
    url: ShardUrl,
    pid: i32,
    /// Seconds since 1970, as text.
    started: String,
}

/// What another connection has found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pulse {
    There,
    /// It is there, and has had nothing to do since then: the request has not come, or the answer is lost, or they are on their way.
    Idle(String),
    Gone,
    /// Nobody answers.
    Silent,
}

impl Backend {
    pub(super) async fn of(url: ShardUrl, connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let sql = format!("SELECT a.pid, {STARTED} FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()");
        let (pid, started) = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
        Ok(Self { url, pid, started })
    }

    /// Ends when the server does not have the connection any more, or does not answer for some time.
    async fn until_lost(&self) {
        let (mut silent, mut idle_since) = (0, None);
        loop {
            sleep(PULSE_INTERVAL).await;
            match timeout(PULSE_TIMEOUT, Box::pin(self.pulse())).await.unwrap_or(Pulse::Silent) {
                Pulse::There => (silent, idle_since) = (0, None),
                Pulse::Idle(since) if idle_since.as_ref() == Some(&since) => return,
                Pulse::Idle(since) => (silent, idle_since) = (0, Some(since)),
                Pulse::Gone => return,
                Pulse::Silent => silent += 1,
            }
            if silent == SILENT_MAX {
                return;
            }
        }
    }

    /// Not bounded.
    async fn pulse(&self) -> Pulse {
        let sql = format!(
            "SELECT CASE WHEN a.state LIKE 'idle%' THEN pg_catalog.date_part('epoch', a.state_change)::pg_catalog.text END
             FROM pg_catalog.pg_stat_activity a WHERE a.pid = {} AND {STARTED} = '{}'",
            self.pid, self.started
        );
        let mut attempts = Attempts::of(&self.url, "shardgate mover");
        let mut pulse = Pulse::Silent;
        while let Some((_, attempt)) = attempts.next().await {
            let found = match attempt {
                Ok(mut other) => {
                    let asked = sqlx::query_scalar::<_, Option<String>>(AssertSqlSafe(sql.clone())).persistent(false);
                    asked.fetch_optional(&mut other).await
                }
                Err(AttemptError::Connect(error)) => Err(error),
                Err(AttemptError::Options(_)) => continue,
            };
            match found {
                Ok(Some(None)) => return Pulse::There,
                Ok(Some(Some(since))) => return Pulse::Idle(since),
                Ok(None) => pulse = Pulse::Gone,
                // It answers, if only that it takes no more connections, or is not ready yet.
                Err(sqlx::Error::Database(_)) => return Pulse::There,
                Err(_) => {}
            }
        }
        pulse
    }
}

/// `None`: the connection was lost meanwhile, or the shard has another primary, and takes nothing any more. Without a backend it is not
/// looked at.
pub(super) fn unless_lost<'a, T>(
    (backend, pledge): (Option<&'a Backend>, Option<&'a Pledge>),
    answer: impl Future<Output = T> + Send + 'a,
) -> BoxFuture<'a, Option<T>> {
    Box::pin(async move {
        let Some(backend) = backend else { return Some(answer.await) };
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = primary_changes(pledge) => None,
            () = backend.until_lost() => None,
        }
    })
}

const STARTED: &str = "pg_catalog.date_part('epoch', a.backend_start)::pg_catalog.text";
const PULSE_INTERVAL: Duration = Duration::from_secs(8);
const PULSE_TIMEOUT: Duration = Duration::from_secs(5);
/// A link may be down for a moment.
const SILENT_MAX: u32 = 2;
