//! Takes a client from its StartupMessage to AuthenticationOk.
//!
//! ```text
//!  trust:          ─────────────────────────────────────────────────────► AuthenticationOk (not yet sent)
//!  scram-sha-256:  ─ SASL ─► client-first ─ SASLContinue ─► client-final ─► SASLFinal, AuthenticationOk (not yet sent)
//! ```
//! The last messages are left in the caller's buffer: they leave with the settings and ReadyForQuery in one packet. As in
//! PostgreSQL the database is looked at only after the password, so that a stranger learns nothing about it. Has no deadline;
//! the caller's runs since the connection was accepted. Does not write errors: the caller does, with [`crate::net::write_error`].

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pgwire::messages::Message;
use pgwire::messages::startup::Authentication;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::frame::{FrameError, read_frame};
use super::scram::{MECHANISM, MECHANISM_PLUS};
use super::scram_server::{Binding, ScramFailure, ServerFirst, Subject};
use super::shard_login::{BackendCredentials, BackendSecret};
use super::users::Users;
use super::verifier_source::VerifierSource;
use crate::config::{AuthConfig, AuthMethod};
use crate::error::{PgError, SqlState};
use crate::net::StartupParameters;

/// Checks logins. One for the whole proxy; a reload makes a new one.
pub struct Authenticator {
    method: AuthMethod,
    users: Users,
    unlisted: Option<Arc<dyn VerifierSource>>,
    database: String,
}

/// A client that has been let in.
#[derive(Clone, Debug)]
pub struct Login {
    pub user: Arc<str>,
    pub is_admin: bool,
    /// For shards, where the proxy logs in as the client's user.
    pub backend_credentials: BackendCredentials,
}

/// Why a client was not let in.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// To be told to the client.
    #[error("login refused: {0}")]
    Refused(PgError),
    /// Nobody is there to be told.
    #[error("the client left during login")]
    Closed,
    #[error("the client's connection failed during login")]
    Io(#[from] io::Error),
}

impl Authenticator {
    /// Hashes the passwords of the settings: about a millisecond each.
    pub fn new(settings: &AuthConfig, database: &str) -> Self {
        Self { method: settings.method, users: Users::new(settings), unlisted: None, database: database.into() }
    }

    /// Asks this for users who are not listed.
    pub fn with_unlisted(self, source: Arc<dyn VerifierSource>) -> Self {
        Self { unlisted: Some(source), ..self }
    }

    /// Runs the dialogue. `buffer` holds what the client has sent so far and takes what it sends; on success `reply` ends with
    /// what the client must get next, AuthenticationOk last, not yet sent; on an error it is empty. `end_point` is the
    /// certificate's hash under TLS. Not cancel safe.
    pub async fn authenticate<S>(
        &self,
        stream: &mut S,
        buffer: &mut BytesMut,
        reply: &mut BytesMut,
        startup: &StartupParameters,
        end_point: Option<&Arc<[u8]>>,
    ) -> Result<Login, AuthError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let outcome = self.log_in(Dialogue { stream, buffer, reply: &mut *reply }, startup, end_point).await;
        if outcome.is_err() {
            reply.clear();
        }
        outcome
    }

    async fn log_in<S>(
        &self,
        mut dialogue: Dialogue<'_, S>,
        startup: &StartupParameters,
        end_point: Option<&Arc<[u8]>>,
    ) -> Result<Login, AuthError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = startup.get("user").unwrap_or_default();
        let known = self.users.find(name);
        let secret = match self.method {
            AuthMethod::Trust => known.map_or(BackendSecret::None, |user| user.backend_secret()),
            AuthMethod::ScramSha256 => {
                let unlisted = self.unlisted.as_ref().filter(|_| known.is_none());
                let found = match unlisted {
                    Some(source) => source.verifier(name).await.map_err(AuthError::Refused)?,
                    None => None,
                };
                let proven = dialogue.scram(self.users.subject(name, found), name, end_point).await;
                if let (Err(_), Some(source)) = (&proven, unlisted) {
                    source.forget(name);
                }
                match known {
                    Some(user) => user.backend_secret_with(proven?),
                    None => BackendSecret::Keys(Arc::new(proven?)),
                }
            }
        };
        self.check_database(startup)?;
        put(Authentication::Ok, dialogue.reply)?;
        let user: Arc<str> = name.into();
        let backend_credentials = BackendCredentials { user: user.clone(), secret };
        Ok(Login { user, is_admin: known.is_some_and(|user| user.is_admin), backend_credentials })
    }

    fn check_database(&self, startup: &StartupParameters) -> Result<(), AuthError> {
        if let Some(replication) = startup.get("replication")
            && !matches!(replication, "false" | "off" | "no" | "0")
        {
            let error = PgError::fatal(SqlState::FEATURE_NOT_SUPPORTED, "replication connections are not supported")
                .with_detail("The rows of this database are on several servers, each with a write-ahead log of its own.")
                .with_hint("Connect to the shards themselves.");
            return Err(AuthError::Refused(error));
        }
        // As PostgreSQL, an absent database is the user's name.
        let given = startup.get("database").filter(|name| !name.is_empty()).or_else(|| startup.get("user"));
        let given = given.unwrap_or_default();
        match given == self.database {
            true => Ok(()),
            false => {
                let message = format!("database \"{given}\" does not exist");
                Err(AuthError::Refused(PgError::fatal(SqlState::INVALID_CATALOG_NAME, message)))
            }
        }
    }
}

struct Dialogue<'a, S> {
    stream: &'a mut S,
    buffer: &'a mut BytesMut,
    reply: &'a mut BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dialogue<'_, S> {
    async fn scram(&mut self, subject: Subject, name: &str, end_point: Option<&Arc<[u8]>>) -> Result<super::ScramKeys, AuthError> {
        let refuse = |failure| match failure {
            ScramFailure::Refused(error) => AuthError::Refused(error),
            ScramFailure::WrongPassword => {
                let message = format!("password authentication failed for user \"{name}\"");
                AuthError::Refused(PgError::fatal(SqlState::INVALID_PASSWORD, message))
            }
        };
        // The stronger first: libpq takes the first that it can.
        let mechanisms = end_point.map(|_| MECHANISM_PLUS).into_iter().chain([MECHANISM]).map(str::to_owned).collect();
        put(Authentication::SASL(mechanisms), self.reply)?;
        self.send().await?;

        let initial = self.receive().await?;
        let (mechanism, client_first) = initial_response(&initial)?;
        let binding = match (mechanism, end_point) {
            (MECHANISM_PLUS, Some(hash)) => Binding::Bound(hash.clone()),
            (MECHANISM, Some(_)) => Binding::Declined,
            (MECHANISM, None) => Binding::NotOffered,
            (_, _) => return protocol_violation("client selected an invalid SASL authentication mechanism"),
        };
        let first = ServerFirst::answer(client_first, subject, binding).map_err(refuse)?;
        put(Authentication::SASLContinue(Bytes::copy_from_slice(first.message.as_bytes())), self.reply)?;
        self.send().await?;

        let client_final = self.receive().await?;
        let proven = first.finish(&client_final).map_err(refuse)?;
        put(Authentication::SASLFinal(Bytes::from(proven.server_final)), self.reply)?;
        Ok(proven.keys)
    }

    async fn send(&mut self) -> Result<(), AuthError> {
        self.stream.write_all(self.reply).await?;
        self.stream.flush().await?;
        self.reply.clear();
        Ok(())
    }

    /// The body of the next message, which must be an answer to our request.
    async fn receive(&mut self) -> Result<Bytes, AuthError> {
        match read_frame(self.stream, self.buffer, ANSWER_BYTES_MAX).await {
            Ok(frame) if frame.tag == b'p' => Ok(frame.body),
            // The client asks its user for the password and comes again.
            Ok(frame) if frame.tag == b'X' => Err(AuthError::Closed),
            Ok(frame) => protocol_violation(&format!("expected SASL response, got message type {}", frame.tag)),
            Err(FrameError::Length) => protocol_violation("invalid message length"),
            Err(FrameError::Closed) => Err(AuthError::Closed),
            Err(FrameError::Io(error)) => Err(AuthError::Io(error)),
        }
    }
}

/// SASLInitialResponse: the mechanism's name, and the first message with its length (-1: none).
fn initial_response(body: &[u8]) -> Result<(&str, &[u8]), AuthError> {
    let malformed = "malformed SASLInitialResponse message";
    let Some(end) = body.iter().position(|byte| *byte == 0) else { return protocol_violation(malformed) };
    let (mechanism, rest) = body.split_at(end);
    let Some((length, data)) = rest.get(1..).and_then(|rest| rest.split_first_chunk::<4>()) else {
        return protocol_violation(malformed);
    };
    match (std::str::from_utf8(mechanism), usize::try_from(i32::from_be_bytes(*length))) {
        (Ok(mechanism), Ok(length)) if length == data.len() => Ok((mechanism, data)),
        (Ok(_), Ok(_) | Err(_)) | (Err(_), _) => protocol_violation(malformed),
    }
}

fn protocol_violation<T>(message: &str) -> Result<T, AuthError> {
    Err(AuthError::Refused(PgError::fatal(SqlState::PROTOCOL_VIOLATION, message)))
}

fn put(message: Authentication, reply: &mut BytesMut) -> Result<(), AuthError> {
    reply.reserve(64);
    message.encode(reply).map_err(|error| AuthError::Io(io::Error::other(error)))
}

/// SCRAM's messages have some hundred bytes.
const ANSWER_BYTES_MAX: usize = 8192;
