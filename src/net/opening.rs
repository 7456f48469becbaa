//! Reads what a client sends before login and leaves a stream to log in on.
//!
//! ```text
//!             ┌─ SSLRequest: N ─────────────┐
//!  accepted ──┼─ GSSENCRequest: N ──────────┼─► StartupMessage ─► Opening::Startup
//!             ├─ SSLRequest: S, handshake ──┤   CancelRequest  ─► Opening::Cancel
//!             └─ TLS at once (ALPN) ────────┘
//! ```
//! Each request for encryption is answered once. No byte that arrived before the handshake reaches what comes after it: such
//! bytes were not encrypted and anyone could have put them there (CVE-2021-23214). Nothing is read beyond one buffer, which holds
//! at most one packet of the configured length and what came with it.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pgwire::messages::Message;
use pgwire::messages::startup::NegotiateProtocolVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::startup::{StartupError, StartupPacket, StartupParameters};
use super::tls::{self, Offer};
use super::{ClientSocket, ClientStream, ServerTls, write_error};
use crate::error::{PgError, SqlState};

/// What a connection turned out to be.
#[derive(Debug)]
pub enum Opening {
    /// Somebody asks to cancel the query of the session that was given this key. Nothing is answered; drop the connection when
    /// the cancel has been passed on.
    Cancel {
        key: Bytes,
        stream: ClientStream,
    },
    Startup(Startup),
}

/// A client that wants to log in. Protocol versions are negotiated; nothing else is checked yet.
#[derive(Debug)]
pub struct Startup {
    pub stream: ClientStream,
    /// What the client sent after its StartupMessage without waiting.
    pub buffer: BytesMut,
    pub parameters: StartupParameters,
    /// The certificate's hash for SCRAM-SHA-256-PLUS; only under TLS.
    pub end_point: Option<Arc<[u8]>>,
}

/// Why there is no login. The client has been told where it can be; the stream is closed.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// Connected and left: a health check of a load balancer.
    #[error("the client left without a word")]
    Closed,
    #[error("not a PostgreSQL client: {0}")]
    Foreign(&'static str),
    #[error("refused: {0}")]
    Refused(PgError),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the client's connection failed")]
    Io(#[from] io::Error),
}

impl Opening {
    /// Reads until it is known what the client wants. Not cancel safe: dropping it closes the connection.
    ///
    /// Has no deadline of its own; the caller's covers login too.
    pub async fn read(tcp: TcpStream, tls: &ServerTls, packet_bytes_max: u32) -> Result<Self, OpeningError> {
        let stream = match tls.offer() {
            Some(offer) if is_tls_record(&tcp).await? => accept_direct(tcp, offer).await?,
            Some(_) | None => ClientStream::plain(tcp),
        };
        let buffer = BytesMut::with_capacity(BUFFER_BYTES);
        let reader = Reader { stream, buffer, packet_bytes_max, ssl_answered: false, gss_answered: false };
        reader.run(tls.offer()).await
    }
}

struct Reader {
    stream: ClientStream,
    buffer: BytesMut,
    packet_bytes_max: u32,
    ssl_answered: bool,
    gss_answered: bool,
}

impl Reader {
    async fn run(mut self, offer: Option<&Offer>) -> Result<Opening, OpeningError> {
        loop {
            match self.packet().await {
                Ok(StartupPacket::SslRequest) if !self.ssl_answered && !self.stream.is_tls() => {
                    self.ssl_answered = true;
                    self = self.answer_ssl_request(offer).await?;
                }
                Ok(StartupPacket::GssEncRequest) if !self.gss_answered && !self.stream.is_tls() => {
                    self.gss_answered = true;
                    self.require_empty_buffer("GSSAPI encryption").await?;
                    self.stream.write_all(b"N").await?;
                }
                // PostgreSQL takes a second request for a protocol version, and so names it.
                Ok(StartupPacket::SslRequest) => return self.refuse(unsupported_protocol("1234.5679")).await,
                Ok(StartupPacket::GssEncRequest) => return self.refuse(unsupported_protocol("1234.5680")).await,
                Ok(StartupPacket::Cancel { key }) => return Ok(Opening::Cancel { key: key.into(), stream: self.stream }),
                Ok(StartupPacket::Startup(parameters)) => return self.startup(parameters, offer).await,
                Err(OpeningError::Refused(error)) => return self.refuse(error).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Exactly one packet; what follows it stays in the buffer.
    async fn packet(&mut self) -> Result<StartupPacket, OpeningError> {
        loop {
            if let Some(length) = StartupPacket::length(&self.buffer, self.packet_bytes_max)? {
                if self.buffer.len() >= length {
                    return Ok(StartupPacket::decode(&self.buffer.split_to(length))?);
                }
                self.buffer.reserve(length - self.buffer.len());
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(match self.buffer.is_empty() {
                    true => OpeningError::Closed,
                    false => OpeningError::Foreign("incomplete startup packet"),
                });
            }
        }
    }

    async fn answer_ssl_request(mut self, offer: Option<&Offer>) -> Result<Self, OpeningError> {
        self.require_empty_buffer("SSL").await?;
        let Some(offer) = offer else {
            self.stream.write_all(b"N").await?;
            return Ok(self);
        };
        match self.stream {
            ClientStream::Plain(mut tcp) => {
                tcp.write_all(b"S").await?;
                let stream = offer.acceptor.accept(tcp).await.map_err(OpeningError::Tls)?;
                Ok(Self { stream: ClientStream::Tls(Box::new(stream)), ..self })
            }
            ClientStream::Tls(_) => Err(OpeningError::Foreign("TLS within TLS")),
        }
    }

    async fn require_empty_buffer(&mut self, what: &str) -> Result<(), OpeningError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let error = PgError::fatal(SqlState::PROTOCOL_VIOLATION, format!("received unencrypted data after {what} request"))
            .with_detail("This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.");
        write_error(&mut self.stream, &error).await?;
        Err(OpeningError::Refused(error))
    }

    async fn startup(mut self, parameters: StartupParameters, offer: Option<&Offer>) -> Result<Opening, OpeningError> {
        if offer.is_some_and(|offer| offer.is_required) && !self.stream.is_tls() {
            let error = PgError::fatal(SqlState::INVALID_AUTHORIZATION, "connection is not encrypted")
                .with_detail("This server takes encrypted connections only (listen.tls.mode is \"require\").")
                .with_hint("Connect with sslmode=require or stronger.");
            return self.refuse(error).await;
        }
        if parameters.needs_negotiation() {
            let mut bytes = BytesMut::new();
            let unknown = parameters.protocol_options.clone();
            NegotiateProtocolVersion::new(NEWEST_PROTOCOL, unknown).encode(&mut bytes).map_err(io::Error::other)?;
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await?;
        }
        let end_point = offer.filter(|_| self.stream.is_tls()).and_then(|offer| offer.end_point.clone());
        Ok(Opening::Startup(Startup { stream: self.stream, buffer: self.buffer, parameters, end_point }))
    }

    async fn refuse<T>(mut self, error: PgError) -> Result<T, OpeningError> {
        write_error(&mut self.stream, &error).await?;
        Err(OpeningError::Refused(error))
    }
}

impl From<StartupError> for OpeningError {
    fn from(error: StartupError) -> Self {
        match error {
            StartupError::Foreign(reason) => OpeningError::Foreign(reason),
            StartupError::Refused(error) => OpeningError::Refused(error),
        }
    }
}

/// Whether the connection begins with a TLS handshake record, which no startup packet does: its length would be absurd.
async fn is_tls_record(tcp: &TcpStream) -> Result<bool, OpeningError> {
    let mut first = [0];
    match tcp.peek(&mut first).await? {
        0 => Err(OpeningError::Closed),
        _ => Ok(first == [TLS_HANDSHAKE]),
    }
}

/// TLS without SSLRequest, as PostgreSQL 17 has it: only when both sides name the protocol, so that no other protocol's client
/// can be made to talk to us.
async fn accept_direct(tcp: TcpStream, offer: &Offer) -> Result<ClientStream, OpeningError> {
    let stream = offer.acceptor.accept(ClientSocket::new(tcp)).await.map_err(OpeningError::Tls)?;
    if stream.get_ref().1.alpn_protocol() != Some(tls::ALPN) {
        return Err(OpeningError::Foreign("direct TLS connection without ALPN protocol \"postgresql\""));
    }
    Ok(ClientStream::Tls(Box::new(stream)))
}

fn unsupported_protocol(version: &str) -> PgError {
    let message = format!("unsupported frontend protocol {version}: server supports 3.0 to 3.0");
    PgError::fatal(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// 3.0 in full: the documentation says "minor version", servers send and drivers expect the whole number.
const NEWEST_PROTOCOL: i32 = 3 << 16;
/// Common startup packets have 50 to 200 bytes.
const BUFFER_BYTES: usize = 512;
const TLS_HANDSHAKE: u8 = 0x16;
