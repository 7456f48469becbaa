//! The verifiers of users who are not listed: a query of the operator's, on the home shard.
//!
//! It has a connection of its own, as the user of the shard's URL, under a fixed search path, so that no client's session can turn its
//! names to other objects; the user's name is a parameter, never a part of the text. What it gives is kept for [`KEPT_FOR`], and a
//! name that nobody has for a shorter time still: whoever was dropped, or has another password, is noticed within seconds, and a
//! wrong password asks at once for the next login. Sessions that are open go on, as PostgreSQL's do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use moka::Expiry;
use moka::future::Cache;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::VerifierSource;
use crate::backend::{Connection, ConnectionError, Own, ShardAddress};
use crate::config::ScramVerifier;
use crate::error::{PgError, SqlState};
use crate::session::Gateway;
use crate::shardmap::Shard;

pub(super) struct AuthQuery {
    asked: Arc<Asked>,
    known: Cache<String, Option<ScramVerifier>>,
    /// Where the connection lives, whichever thread a client is on.
    runtime: Handle,
}

/// The one connection, and what is asked on it.
struct Asked {
    gateway: Arc<Gateway>,
    query: String,
    /// Places in the queue for the connection: a crowd of strangers keeps the others waiting for no longer than this many questions.
    places: Semaphore,
    connection: Mutex<Option<Open>>,
}

struct Open {
    connection: Connection,
    address: ShardAddress,
}

/// Why there is no answer. For the log: a stranger hears only that there is none.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("the home shard cannot be reached: {0}")]
    Unreachable(String),
    #[error("auth.query failed: {0}")]
    Failed(String),
    #[error("auth.query has given {0}: expected the name and its verifier, in one row")]
    Shape(&'static str),
}

impl AuthQuery {
    pub(super) fn new(gateway: Arc<Gateway>, query: String, runtime: Handle) -> Self {
        let known = Cache::builder().max_capacity(KNOWN_MAX).expire_after(Kept).build();
        let asked = Asked { gateway, query, places: Semaphore::new(WAITING_MAX), connection: Mutex::new(None) };
        Self { asked: Arc::new(asked), known, runtime }
    }
}

impl VerifierSource for AuthQuery {
    fn verifier<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Option<ScramVerifier>, PgError>> {
        let ask = async move {
            let (asked, name) = (Arc::clone(&self.asked), user.to_owned());
            // Nobody is asked for who has gone meanwhile.
            let asking = AbortOnDropHandle::new(self.runtime.spawn(async move { Box::pin(asked.verifier(&name)).await }));
            asking.await.unwrap_or_else(|error| Err(AskError::Failed(error.to_string())))
        };
        async move {
            self.known.try_get_with(user.to_owned(), ask).await.map_err(|error| {
                tracing::warn!(user, %error, "a user who is not listed cannot be checked");
                PgError::fatal(SqlState::CANNOT_CONNECT_NOW, format!("the password of user \"{user}\" cannot be checked now"))
                    .with_detail(
                        "The user is not listed in the proxy's settings, and the query that looks others up has no answer.",
                    )
                    .with_hint("The proxy's log has the reason.")
            })
        }
        .boxed()
    }

    fn forget(&self, user: &str) {
        self.known.invalidate(user).now_or_never();
    }
}

impl Asked {
    async fn verifier(&self, user: &str) -> Result<Option<ScramVerifier>, AskError> {
        // Before the first shard there is nobody but the listed.
        let snapshot = self.gateway.map.snapshot();
        let Some(home) = snapshot.home() else { return Ok(None) };
        let busy = || AskError::Unreachable("others wait for it".to_owned());
        let _place = self.places.try_acquire().map_err(|_| busy())?;
        let mut kept = timeout(PATIENCE, self.connection.lock()).await.map_err(|_| busy())?;
        // One that was kept may have ended meanwhile: then once more, on a new one.
        if let Some(mut open) = kept.take_if(|open| open.address.is_of(home))
            && let Ok(answer) = timeout(PATIENCE, open.connection.bound(&Own::Catalog.text(&self.query), user)).await
            && !matches!(&answer, Err(error) if !matches!(error, ConnectionError::Refused { .. }))
        {
            *kept = Some(open);
            return of_answer(user, answer);
        }
        *kept = None;
        let mut open = timeout(PATIENCE, open(home)).await.map_err(|_| AskError::Unreachable("no answer in time".to_owned()))??;
        let text = Own::Catalog.text(&self.query);
        let answer = timeout(PATIENCE, open.connection.bound(&text, user)).await;
        let answer = answer.map_err(|_| AskError::Unreachable("no answer in time".to_owned()))?;
        *kept = Some(open);
        of_answer(user, answer)
    }
}

async fn open(home: &Shard) -> Result<Open, AskError> {
    let unreachable = |error: &dyn std::fmt::Display| AskError::Unreachable(error.to_string());
    let (address, credentials) = ShardAddress::of(home).map_err(|error| unreachable(&error))?;
    let opening = Box::pin(crate::backend::open(&address, &credentials, 0, None));
    let mut connection = opening.await.map_err(|error| unreachable(&error))?;
    connection.simple(&Own::Setting.text(SETTINGS)).await.map_err(|error| unreachable(&error))?;
    Ok(Open { connection, address })
}

fn of_answer(user: &str, answer: Result<Vec<Vec<Option<Bytes>>>, ConnectionError>) -> Result<Option<ScramVerifier>, AskError> {
    let rows = answer.map_err(|error| AskError::Failed(error.to_string()))?;
    let (name, verifier) = match rows.as_slice() {
        [] => return Ok(None),
        [row] => match row.as_slice() {
            [Some(name), verifier] => (name, verifier),
            [_, _] => return Err(AskError::Shape("no name")),
            _ => return Err(AskError::Shape("another number of columns")),
        },
        _ => return Err(AskError::Shape("several rows")),
    };
    // A name that PostgreSQL would cut short is another's.
    if name != user.as_bytes() {
        return Ok(None);
    }
    let Some(verifier) = verifier else { return Ok(None) };
    let parsed = std::str::from_utf8(verifier).ok().and_then(ScramVerifier::parse);
    if parsed.is_none() {
        tracing::warn!(user, "auth.query has given no SCRAM verifier: the user cannot log in until its password is set again");
    }
    Ok(parsed)
}

/// How long an answer counts.
struct Kept;

impl Expiry<String, Option<ScramVerifier>> for Kept {
    fn expire_after_create(&self, _: &String, found: &Option<ScramVerifier>, _: std::time::Instant) -> Option<Duration> {
        Some(if found.is_some() { KEPT_FOR } else { NOBODY_KEPT_FOR })
    }
}

const KEPT_FOR: Duration = Duration::from_secs(5);
/// A user who has just been created is let in soon, and a stranger who tries names does not reach the shard with each.
const NOBODY_KEPT_FOR: Duration = Duration::from_secs(1);
const KNOWN_MAX: u64 = 10_000;
/// Together they are asked within a fraction of a second.
const WAITING_MAX: usize = 256;
/// For each step: an answer takes about a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);
const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp; SET statement_timeout = '5s'; SET lock_timeout = '5s'; \
     SET idle_session_timeout = 0; SET application_name = 'shardgate auth.query'";
