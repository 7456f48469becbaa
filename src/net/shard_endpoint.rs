//! Connects to one host of a shard: TCP, then TLS as the URL's `sslmode` says. Also carries cancels there.
//!
//! Made once for each host, since certificates are read and TLS is configured here; connecting then touches no file. Does not log in
//! (`auth` does) and has no deadline: the caller's covers connecting and login together.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::shard_stream::MovableSocket;
use super::{ShardStream, TlsError, shard_tls, socket};
use crate::config::{Host, ShardUrl, SslMode};

/// One host of a shard's URL, ready to connect to.
#[derive(Clone)]
pub struct ShardEndpoint {
    url: Arc<ShardUrl>,
    host: Host,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// Why there is no connection. Texts name no address: the shard's name is what a user may read.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the host's name could not be resolved")]
    Resolve(#[source] io::Error),
    #[error("the host's name has no address")]
    NoAddress,
    #[error("the connection could not be made")]
    Connect(#[source] io::Error),
    #[error("the server does not offer TLS, but sslmode is \"{0}\"")]
    TlsRefused(&'static str),
    #[error("the server answered the request for TLS with byte {0:#04x}: it may not be PostgreSQL")]
    UnexpectedAnswer(u8),
    /// Somebody in between may have put them there.
    #[error("the server sent more than its answer to the request for TLS")]
    BytesBeforeTls,
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
}

impl ShardEndpoint {
    /// Those of the URL's hosts, in their order; at least one. Reads the certificates that the URL names.
    pub fn of(url: ShardUrl) -> Result<Vec<Arc<Self>>, TlsError> {
        let connector = shard_tls::connector(&url)?;
        let url = Arc::new(url);
        let endpoint = |host: &Host| {
            let named = |connector: &TlsConnector| match ServerName::try_from(host.name.clone()) {
                Ok(name) => Ok((connector.clone(), name)),
                Err(_) => Err(TlsError::HostName(host.name.clone())),
            };
            let tls = connector.as_ref().map(named).transpose()?;
            Ok(Arc::new(Self { url: Arc::clone(&url), host: host.clone(), tls }))
        };
        url.hosts.iter().map(endpoint).collect()
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn url(&self) -> &ShardUrl {
        &self.url
    }

    /// A connection to log in on. Cancel safe: a half-made one is closed.
    pub async fn connect(&self) -> Result<ShardStream, ConnectError> {
        let tcp = self.connect_tcp().await?;
        match &self.tls {
            None => Ok(ShardStream::Plain(tcp)),
            Some((connector, name)) => self.negotiate(tcp, connector, name.clone()).await,
        }
    }

    /// Asks the shard to cancel what the backend with this key (process id and secret, as in BackendKeyData) is doing, and waits
    /// until the shard has closed the connection: from then on no late cancel can hit that backend's next statement.
    pub async fn cancel(&self, key: &[u8]) -> Result<(), ConnectError> {
        let mut stream = self.connect().await?;
        let mut packet = BytesMut::with_capacity(8 + key.len());
        packet.put_u32(u32::try_from(8 + key.len()).unwrap_or(u32::MAX));
        packet.put_u32(CANCEL_REQUEST);
        packet.put_slice(key);
        stream.write_all(&packet).await.map_err(ConnectError::Connect)?;
        stream.flush().await.map_err(ConnectError::Connect)?;
        let mut rest = [0; 64];
        loop {
            match stream.read(&mut rest).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // Closed without ceremony, also by a TLS peer that sends no close_notify.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
                    return Ok(());
                }
                Err(error) => return Err(ConnectError::Connect(error)),
            }
        }
    }

    /// The first of the host's addresses that answers.
    async fn connect_tcp(&self) -> Result<TcpStream, ConnectError> {
        let addresses = lookup_host((self.host.name.as_str(), self.host.port)).await.map_err(ConnectError::Resolve)?;
        let mut outcome = Err(ConnectError::NoAddress);
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    socket::set_options(&tcp).map_err(ConnectError::Connect)?;
                    socket::bound_acknowledgement(&tcp, true).map_err(ConnectError::Connect)?;
                    return Ok(tcp);
                }
                Err(error) => outcome = Err(ConnectError::Connect(error)),
            }
        }
        outcome
    }

    async fn negotiate(
        &self,
        mut tcp: TcpStream,
        connector: &TlsConnector,
        name: ServerName<'static>,
    ) -> Result<ShardStream, ConnectError> {
        tcp.write_all(&SSL_REQUEST).await.map_err(ConnectError::Connect)?;
        // Room for one byte too many, to see whether it comes.
        let mut answer = [0; 2];
        let count = tcp.read(&mut answer).await.map_err(ConnectError::Connect)?;
        match (count, answer[0]) {
            (0, _) => Err(ConnectError::Connect(io::ErrorKind::UnexpectedEof.into())),
            (1, b'S') => {
                let stream = connector.connect(name, MovableSocket::new(tcp)).await.map_err(ConnectError::Tls)?;
                Ok(ShardStream::Tls(Box::new(stream)))
            }
            (_, b'S' | b'N') if count > 1 => Err(ConnectError::BytesBeforeTls),
            (1, b'N') if self.url.ssl_mode == SslMode::Prefer => Ok(ShardStream::Plain(tcp)),
            (_, b'N') => Err(ConnectError::TlsRefused(self.url.ssl_mode.as_str())),
            (_, other) => Err(ConnectError::UnexpectedAnswer(other)),
        }
    }
}

impl std::fmt::Debug for ShardEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ShardEndpoint").field(&self.host).finish()
    }
}

/// Length 8, code 1234.5679.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const CANCEL_REQUEST: u32 = (1234 << 16) | 5678;
