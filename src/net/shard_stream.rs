//! A connection to a shard, in the clear or under TLS, as one type; and how it moves to another thread's runtime.
//!
//! Each runtime watches its own sockets. To hand an idle connection over, its owner takes the socket out of its runtime
//! ([`ShardStream::detach`]), sends the [`DetachedShardStream`] across, and the receiver registers it with its own
//! ([`DetachedShardStream::attach`]). Only for connections with nothing under way: a reader that waits would wait for ever.
//! The TLS session cannot be taken apart from its socket, so below TLS the socket is exchanged in place.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{channel_binding, plain, socket};

#[derive(Debug)]
pub enum ShardStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<MovableSocket>>),
}

/// A [`ShardStream`] that belongs to no runtime. Holds the connection open; can only be attached or dropped.
#[derive(Debug)]
pub struct DetachedShardStream(Detached);

#[derive(Debug)]
enum Detached {
    Plain(std::net::TcpStream),
    Tls(Box<TlsStream<MovableSocket>>),
}

impl ShardStream {
    pub fn is_tls(&self) -> bool {
        matches!(self, ShardStream::Tls(_))
    }

    /// The socket below TLS: for readiness and addresses, never for reading or writing under TLS. None only while detached.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            ShardStream::Plain(stream) => Some(stream),
            ShardStream::Tls(stream) => stream.get_ref().0.attached(),
        }
    }

    /// Appends what has arrived to `input`; 0 at the end of the stream.
    #[inline]
    pub fn poll_receive(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            ShardStream::Plain(stream) => plain::poll_receive(stream, context, input),
            ShardStream::Tls(stream) => {
                input.reserve(TLS_READ_BYTES);
                tokio_util::io::poll_read_buf(Pin::new(stream.as_mut()), context, input)
            }
        }
    }

    /// What has arrived while nobody waited is appended to `input`; [`io::ErrorKind::WouldBlock`] when there is nothing. No
    /// system call when the reactor has seen nothing.
    #[inline]
    pub fn try_receive(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            ShardStream::Plain(stream) => plain::try_receive(stream, input),
            ShardStream::Tls(_) => match self.poll_receive(&mut Context::from_waker(Waker::noop()), input) {
                Poll::Ready(received) => received,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// The same, and sure: the reactor may not have seen yet what has come.
    pub fn try_receive_now(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            ShardStream::Plain(stream) => plain::try_receive_now(stream, input),
            ShardStream::Tls(stream) if stream.get_ref().0.attached().is_none_or(plain::is_at_end) => Ok(0),
            ShardStream::Tls(_) => self.try_receive(input),
        }
    }

    /// Sends as much of `bytes` as the socket takes. Under TLS some of it may stay behind until a flush.
    #[inline]
    pub fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            ShardStream::Plain(stream) => plain::poll_send(stream, context, bytes),
            ShardStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    /// Whether the connection ends when what was sent is not acknowledged for long: only where the shard's kernel has room for it.
    pub fn bound_acknowledgement(&self, is_bounded: bool) {
        if let Some(Err(error)) = self.tcp().map(|tcp| socket::bound_acknowledgement(tcp, is_bounded)) {
            tracing::debug!(%error, "an option of a connection could not be set");
        }
    }

    /// The hash of the server's certificate that SCRAM-SHA-256-PLUS binds a login to. None in the clear.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        match self {
            ShardStream::Plain(_) => None,
            ShardStream::Tls(stream) => {
                stream.get_ref().1.peer_certificates()?.first().and_then(|leaf| channel_binding::end_point_hash(leaf))
            }
        }
    }

    /// Takes the socket out of this thread's runtime. An error means that the connection is lost.
    pub fn detach(self) -> io::Result<DetachedShardStream> {
        Ok(DetachedShardStream(match self {
            ShardStream::Plain(stream) => Detached::Plain(stream.into_std()?),
            ShardStream::Tls(mut stream) => {
                stream.get_mut().0.detach()?;
                Detached::Tls(stream)
            }
        }))
    }
}

impl DetachedShardStream {
    /// Registers the socket with the runtime that this is called in.
    pub fn attach(self) -> io::Result<ShardStream> {
        Ok(match self.0 {
            Detached::Plain(stream) => ShardStream::Plain(TcpStream::from_std(stream)?),
            Detached::Tls(mut stream) => {
                stream.get_mut().0.attach()?;
                ShardStream::Tls(stream)
            }
        })
    }
}

/// The socket below TLS: in a runtime, between runtimes, or lost while it changed.
#[derive(Debug)]
pub struct MovableSocket(Place);

#[derive(Debug)]
enum Place {
    Attached(TcpStream),
    Detached(std::net::TcpStream),
    Lost,
}

impl MovableSocket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Place::Attached(stream))
    }

    fn attached(&self) -> Option<&TcpStream> {
        match &self.0 {
            Place::Attached(stream) => Some(stream),
            Place::Detached(_) | Place::Lost => None,
        }
    }

    fn attached_mut(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        match &mut self.0 {
            Place::Attached(stream) => Ok(Pin::new(stream)),
            Place::Detached(_) | Place::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn detach(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, Place::Lost) {
            Place::Attached(stream) => Place::Detached(stream.into_std()?),
            Place::Detached(stream) => Place::Detached(stream),
            Place::Lost => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, Place::Lost) {
            Place::Detached(stream) => Place::Attached(TcpStream::from_std(stream)?),
            Place::Attached(stream) => Place::Attached(stream),
            Place::Lost => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok(())
    }
}

impl AsyncRead for MovableSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().attached_mut()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for MovableSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().attached_mut()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.get_mut().attached_mut()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().attached_mut()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().attached_mut()?.poll_shutdown(cx)
    }
}

impl AsyncRead for ShardStream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ShardStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            ShardStream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ShardStream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ShardStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            ShardStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    #[inline]
    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ShardStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            ShardStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        match self {
            ShardStream::Plain(stream) => stream.is_write_vectored(),
            ShardStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ShardStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            ShardStream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ShardStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            ShardStream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}

/// One record.
const TLS_READ_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// One runtime connects, another goes on with the connection, the peer sees one stream.
    #[test]
    fn a_connection_moves_to_another_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut bytes = [0; 2];
            std::io::Read::read_exact(&mut stream, &mut bytes).expect("read");
            std::io::Write::write_all(&mut stream, &bytes).expect("written");
        });
        let first = runtime();
        let detached = first.block_on(async {
            let mut stream = ShardStream::Plain(TcpStream::connect(address).await.expect("connected"));
            stream.write_all(b"a").await.expect("written");
            stream.detach().expect("detached")
        });
        drop(first);
        let bytes = runtime().block_on(async {
            let mut stream = detached.attach().expect("attached");
            stream.write_all(b"b").await.expect("written");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.expect("read");
            bytes
        });
        peer.join().expect("the peer ends");
        assert_eq!(bytes, b"ab");
    }
}
