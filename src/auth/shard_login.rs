//! Logs in to a shard: from StartupMessage to the first ReadyForQuery.
//!
//! Speaks what PostgreSQL asks for: nothing (trust, peer certificates), a password in the clear, MD5, SCRAM. What the shard says
//! on the way is kept: its settings (ParameterStatus), the key for cancels, its error. Messages are bounded in size and number; the
//! deadline is the caller's. A connection on which this fails is good for nothing but closing.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::ShardError;
use super::frame::{Frame, FrameError, read_frame};
use super::scram::ScramKeys;
use super::scram_client::{ClientFinal, ClientFirst, ScramClientError};
use crate::config::{Host, PasswordError, Secret, ShardUrl};
use crate::net::ShardStream;

/// As whom to log in, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendCredentials {
    pub user: Arc<str>,
    pub secret: BackendSecret,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendSecret {
    /// The shard must let the user in without one.
    None,
    Password(Secret),
    /// That of the shard's URL for the host, as it is when a connection is opened.
    OfUrl,
    /// Taken from the client's proof: good where the shard's verifier has the same salt and iterations.
    Keys(Arc<ScramKeys>),
}

impl BackendCredentials {
    /// Those of the shard's own URL.
    pub fn from_url(url: &ShardUrl) -> Self {
        let secret = match (&url.password, &url.password_source) {
            (Some(password), _) => BackendSecret::Password(password.clone()),
            (None, Some(_)) => BackendSecret::OfUrl,
            (None, None) => BackendSecret::None,
        };
        Self { user: url.user.as_str().into(), secret }
    }

    /// With the password that the URL has for this host now.
    pub fn for_host(&self, url: &ShardUrl, host: &Host) -> Result<Self, PasswordError> {
        let secret = match &self.secret {
            BackendSecret::OfUrl => url.password_for(host)?.map_or(BackendSecret::None, BackendSecret::Password),
            secret => secret.clone(),
        };
        Ok(Self { user: Arc::clone(&self.user), secret })
    }
}

/// What the shard said at login.
#[derive(Debug)]
pub struct Greeting {
    /// The last value of each setting, in the order in which they first came.
    pub parameter_status: Vec<(String, String)>,
    /// None from a pooler that does not support cancels.
    pub backend_key: Option<BackendKey>,
    /// What came after ReadyForQuery: normally nothing.
    pub leftover: BytesMut,
}

/// Names a backend to [`crate::net::ShardEndpoint::cancel`].
#[derive(Clone, PartialEq, Eq)]
pub struct BackendKey {
    pub process_id: i32,
    /// Process id and secret as they came.
    pub bytes: Bytes,
}

impl fmt::Debug for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendKey({}, ***)", self.process_id)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The shard's own words.
    #[error("the shard refused the login: {0}")]
    Shard(ShardError),
    #[error("the connection failed during login")]
    Io(#[source] io::Error),
    #[error("the shard closed the connection during login")]
    Closed,
    #[error("the shard sent something unexpected during login: {0}")]
    Protocol(&'static str),
    #[error("the shard asks for an authentication method that is not supported (code {0})")]
    Method(u32),
    /// The shard wants a password and there is none, or none that fits.
    #[error("no password for the shard: {0}")]
    Secret(&'static str),
    #[error(transparent)]
    Scram(#[from] ScramClientError),
}

/// Logs in. `parameters` are further startup parameters (client_encoding, options, …). `behind`: requests that travel with the last
/// message of the login, whose answers the caller reads after it. Not cancel safe.
pub async fn login(
    stream: &mut ShardStream,
    credentials: &BackendCredentials,
    database: &str,
    parameters: &[(&str, &str)],
    behind: &[u8],
) -> Result<Greeting, LoginError> {
    let end_point = stream.end_point();
    login_over(stream, end_point, credentials, database, parameters, behind).await
}

/// The same over any stream. `end_point`: the hash of the server's certificate, under TLS.
pub async fn login_over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    end_point: Option<Vec<u8>>,
    credentials: &BackendCredentials,
    database: &str,
    parameters: &[(&str, &str)],
    behind: &[u8],
) -> Result<Greeting, LoginError> {
    let buffer = BytesMut::with_capacity(1024);
    let mut dialogue = Dialogue { stream, end_point, buffer, frames_left: FRAMES_MAX, behind };
    let mut packet = BytesMut::with_capacity(256);
    let all = [("user", &*credentials.user), ("database", database)].into_iter().chain(parameters.iter().copied());
    frontend::startup_message(all, &mut packet).map_err(LoginError::Io)?;
    dialogue.send(&packet).await?;
    dialogue.authenticate(credentials).await?;
    // Where no password was asked for, nothing could go with it.
    dialogue.send_last(&[]).await?;
    dialogue.greeting().await
}

struct Dialogue<'a, S> {
    stream: &'a mut S,
    end_point: Option<Vec<u8>>,
    buffer: BytesMut,
    frames_left: usize,
    /// Not sent yet.
    behind: &'a [u8],
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dialogue<'_, S> {
    async fn send(&mut self, packet: &[u8]) -> Result<(), LoginError> {
        self.stream.write_all(packet).await.map_err(LoginError::Io)?;
        self.stream.flush().await.map_err(LoginError::Io)
    }

    /// The last message of the login: what goes behind it is in its packet.
    async fn send_last(&mut self, packet: &[u8]) -> Result<(), LoginError> {
        let behind = std::mem::take(&mut self.behind);
        if packet.is_empty() && behind.is_empty() {
            return Ok(());
        }
        self.send(&[packet, behind].concat()).await
    }

    /// The next message that is neither an error nor a notice.
    async fn receive(&mut self) -> Result<Frame, LoginError> {
        loop {
            self.frames_left = self.frames_left.checked_sub(1).ok_or(LoginError::Protocol("too many messages"))?;
            let frame = read_frame(self.stream, &mut self.buffer, FRAME_BYTES_MAX).await.map_err(|error| match error {
                FrameError::Io(error) => LoginError::Io(error),
                FrameError::Closed => LoginError::Closed,
                FrameError::Length => LoginError::Protocol("a message of invalid length"),
            })?;
            match frame.tag {
                b'E' => return Err(LoginError::Shard(ShardError::new(frame.body))),
                b'N' => {}
                _ => return Ok(frame),
            }
        }
    }

    /// The next authentication request: its code and the rest.
    async fn receive_request(&mut self) -> Result<(u32, Bytes), LoginError> {
        let mut frame = self.receive().await?;
        if frame.tag != b'R' {
            return Err(LoginError::Protocol("not an authentication request"));
        }
        let code = frame.body.try_get_u32().map_err(|_| LoginError::Protocol("an authentication request without code"))?;
        Ok((code, frame.body))
    }

    async fn authenticate(&mut self, credentials: &BackendCredentials) -> Result<(), LoginError> {
        let (code, body) = self.receive_request().await?;
        match code {
            AUTHENTICATION_OK => return Ok(()),
            AUTHENTICATION_CLEARTEXT => self.send_password(password(credentials)?.as_bytes()).await?,
            AUTHENTICATION_MD5 => {
                let salt = body[..].try_into().map_err(|_| LoginError::Protocol("an MD5 request without salt"))?;
                let hash = md5_hash(credentials.user.as_bytes(), password(credentials)?.as_bytes(), salt);
                self.send_password(hash.as_bytes()).await?;
            }
            AUTHENTICATION_SASL => self.scram(&body, &credentials.secret).await?,
            other => return Err(LoginError::Method(other)),
        }
        match self.receive_request().await? {
            (AUTHENTICATION_OK, _) => Ok(()),
            (other, _) => Err(LoginError::Method(other)),
        }
    }

    async fn send_password(&mut self, password: &[u8]) -> Result<(), LoginError> {
        let mut packet = BytesMut::new();
        frontend::password_message(password, &mut packet).map_err(LoginError::Io)?;
        self.send_last(&packet).await
    }

    async fn scram(&mut self, mechanisms: &[u8], secret: &BackendSecret) -> Result<(), LoginError> {
        let offered: Vec<&str> = mechanisms.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok()).collect();
        let first =
            ClientFirst::new(&offered, self.end_point.take()).ok_or(LoginError::Protocol("no SASL mechanism that is supported"))?;
        let mut packet = BytesMut::new();
        frontend::sasl_initial_response(first.mechanism(), first.first_message().as_bytes(), &mut packet)
            .map_err(LoginError::Io)?;
        self.send(&packet).await?;

        let server_first = self.expect(AUTHENTICATION_SASL_CONTINUE).await?;
        let last: ClientFinal = first.answer(&server_first, secret)?;
        packet.clear();
        frontend::sasl_response(last.message.as_bytes(), &mut packet).map_err(LoginError::Io)?;
        self.send_last(&packet).await?;
        let server_final = self.expect(AUTHENTICATION_SASL_FINAL).await?;
        Ok(last.verify(&server_final)?)
    }

    async fn expect(&mut self, expected: u32) -> Result<Bytes, LoginError> {
        match self.receive_request().await? {
            (code, body) if code == expected => Ok(body),
            _ => Err(LoginError::Protocol("another step of SASL")),
        }
    }

    async fn greeting(mut self) -> Result<Greeting, LoginError> {
        let mut parameter_status: Vec<(String, String)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut backend_key = None;
        loop {
            let frame = self.receive().await?;
            match frame.tag {
                b'S' => {
                    let (name, value) = setting(&frame.body)?;
                    match places.get(&name).and_then(|place| parameter_status.get_mut(*place)) {
                        Some(known) => known.1 = value,
                        None => {
                            places.insert(name.clone(), parameter_status.len());
                            parameter_status.push((name, value));
                        }
                    }
                }
                b'K' => backend_key = Some(key(frame.body)?),
                b'Z' if frame.body[..] == *b"I" => {
                    return Ok(Greeting { parameter_status, backend_key, leftover: self.buffer });
                }
                _ => return Err(LoginError::Protocol("a message that does not belong to a login")),
            }
        }
    }
}

fn password(credentials: &BackendCredentials) -> Result<&str, LoginError> {
    match &credentials.secret {
        BackendSecret::Password(password) => Ok(password.reveal()),
        BackendSecret::None | BackendSecret::OfUrl => Err(LoginError::Secret("it asks for one, and none is known for this user")),
        BackendSecret::Keys(_) => Err(LoginError::Secret("it asks for the password itself, and only its SCRAM keys are known")),
    }
}

fn setting(body: &[u8]) -> Result<(String, String), LoginError> {
    let malformed = LoginError::Protocol("a malformed ParameterStatus");
    let mut parts = body.split(|byte| *byte == 0);
    let (Some(name), Some(value), Some([]), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(malformed);
    };
    match (std::str::from_utf8(name), std::str::from_utf8(value)) {
        (Ok(name), Ok(value)) => Ok((name.into(), value.into())),
        (Ok(_), Err(_)) | (Err(_), _) => Err(LoginError::Protocol("a ParameterStatus that is not UTF-8")),
    }
}

fn key(body: Bytes) -> Result<BackendKey, LoginError> {
    let Some((process_id, secret)) = body.split_first_chunk::<4>() else {
        return Err(LoginError::Protocol("a malformed BackendKeyData"));
    };
    if !(4..=256).contains(&secret.len()) {
        return Err(LoginError::Protocol("a BackendKeyData of invalid length"));
    }
    Ok(BackendKey { process_id: i32::from_be_bytes(*process_id), bytes: body })
}

/// ParameterStatus and errors with much context fit many times over.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Some 15 settings are usual; extensions add a few, and notices come on top.
const FRAMES_MAX: usize = 1000;

const AUTHENTICATION_OK: u32 = 0;
const AUTHENTICATION_CLEARTEXT: u32 = 3;
const AUTHENTICATION_MD5: u32 = 5;
const AUTHENTICATION_SASL: u32 = 10;
const AUTHENTICATION_SASL_CONTINUE: u32 = 11;
const AUTHENTICATION_SASL_FINAL: u32 = 12;
