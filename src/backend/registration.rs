//! Every connection to a shard registers there as the proxy's, and is refused where the shard shuts the proxy out.
//!
//! ```text
//!   connection:  register ─► committed ─► am I shut out?          who shuts out:  write it ─► committed ─► who is registered? ─► end them
//! ```
//! Whichever is first, one sees the other: what is shut out has no connection once those that were found are gone, and gets none. Two
//! statements, since the second needs a snapshot of its own. All of it travels in the packet that ends the login.

use super::{Connection, ConnectionError};
use crate::shardmap::Membership;
use crate::wire::{error_fields, shard_tag};

/// As what a connection registers: this process, at this generation of its lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registration {
    proxy: i64,
    pub(super) generation: i64,
}

/// What the shard says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    Welcome,
    /// The shard lacks what an upgrade makes: nobody can tell whose connection it is.
    Unknown,
    ShutOut,
}

impl Registration {
    pub(super) fn of(membership: &Membership) -> Self {
        Self { proxy: membership.proxy.0, generation: membership.generation() }
    }

    /// Simple queries, the answers to which [`Registration::check_answers`] reads. Of users to whom the server gives read-only
    /// transactions too.
    pub(super) fn queries(self) -> [String; 2] {
        let Self { proxy, generation } = self;
        [
            format!(
                "SET TRANSACTION READ WRITE; SELECT shardgate.register_backend({proxy}, {generation}, a.backend_start) \
                 FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a"
            ),
            format!("SELECT shardgate.is_shut_out({proxy}, {generation})::pg_catalog.text"),
        ]
    }

    pub(super) async fn check_answers(connection: &mut Connection) -> Result<Registered, ConnectionError> {
        let registered = answer(connection).await?;
        let is_shut_out = answer(connection).await?;
        match (registered, is_shut_out) {
            (Answer::Missing, _) | (_, Answer::Missing) => Ok(Registered::Unknown),
            (Answer::Refused(error), _) | (_, Answer::Refused(error)) => Err(error),
            (Answer::Value(_), Answer::Value(is_shut_out)) => {
                Ok(if is_shut_out.as_deref() == Some(b"false") { Registered::Welcome } else { Registered::ShutOut })
            }
        }
    }
}

enum Answer {
    Value(Option<Vec<u8>>),
    Missing,
    Refused(ConnectionError),
}

async fn answer(connection: &mut Connection) -> Result<Answer, ConnectionError> {
    let mut answer = Answer::Value(None);
    loop {
        let (tag, body) = connection.next_frame().await?;
        match tag {
            shard_tag::DATA_ROW => {
                let first = crate::wire::data_row_columns(&body).next().transpose()?.flatten();
                answer = Answer::Value(first.map(<[u8]>::to_vec));
            }
            shard_tag::ERROR => {
                let fields = error_fields(&body)?;
                let sqlstate = String::from_utf8_lossy(fields.sqlstate().unwrap_or_default()).into_owned();
                answer = match sqlstate.as_str() {
                    "42883" => Answer::Missing,
                    _ => Answer::Refused(ConnectionError::Refused { sqlstate, message: fields.message(), body: body.clone() }),
                };
            }
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return Ok(answer);
            }
            _ => {}
        }
    }
}
