//! A client's connection, in the clear or under TLS, as one type.
//!
//! The clear case passes each call straight to the socket. Under TLS a write may stay in the TLS session's buffer: flush after
//! the last write of a batch, which costs nothing in the clear.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::{ClientSocket, plain};

#[derive(Debug)]
pub enum ClientStream {
    Plain(ClientSocket),
    Tls(Box<TlsStream<ClientSocket>>),
}

impl ClientStream {
    pub fn is_tls(&self) -> bool {
        matches!(self, ClientStream::Tls(_))
    }

    pub fn plain(stream: TcpStream) -> Self {
        ClientStream::Plain(ClientSocket::new(stream))
    }

    /// The socket below TLS: to look at, never for reading or writing under TLS.
    pub fn socket(&self) -> &ClientSocket {
        match self {
            ClientStream::Plain(socket) => socket,
            ClientStream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Ends TLS with its own farewell (close_notify), without which a client must take what it has read for cut off: libpq 17 and newer
    /// report an encrypted cancel request as failed. For a client that does not read, only as far as the socket takes it in time.
    pub async fn end(&mut self) {
        if let ClientStream::Tls(stream) = self {
            match timeout(FAREWELL_TIMEOUT, stream.shutdown()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::trace!(%error, "client gone before the end of TLS"),
                Err(_) => tracing::debug!("client does not read the end of TLS"),
            }
        }
    }

    /// Appends what has arrived to `input`; 0 at the end of the stream.
    #[inline]
    pub fn poll_receive(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            ClientStream::Plain(socket) => plain::poll_receive(socket.tcp(), context, input),
            ClientStream::Tls(stream) => {
                input.reserve(TLS_READ_BYTES);
                tokio_util::io::poll_read_buf(Pin::new(stream.as_mut()), context, input)
            }
        }
    }

    /// Sends as much of `bytes` as the socket takes. Under TLS some of it may stay behind until a flush.
    #[inline]
    pub fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            ClientStream::Plain(socket) => plain::poll_send(socket.tcp(), context, bytes),
            ClientStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }
}

impl AsyncRead for ClientStream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            ClientStream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            ClientStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    #[inline]
    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            ClientStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        match self {
            ClientStream::Plain(stream) => stream.is_write_vectored(),
            ClientStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            ClientStream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            ClientStream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}

const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// One record.
const TLS_READ_BYTES: usize = 16 * 1024;
