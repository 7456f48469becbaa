//! A client's socket, which its session reads and writes, and which whoever watches over the session can look at meanwhile.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

#[derive(Clone, Debug)]
pub struct ClientSocket(Arc<TcpStream>);

impl ClientSocket {
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.0
    }

    /// Has the client closed its side, or has the connection broken? Whatever it has sent before need not have been read. Does not wait;
    /// by what the reactor of the socket has seen.
    pub fn has_left(&self, context: &mut Context<'_>) -> bool {
        match pin!(self.0.ready(Interest::READABLE)).poll(context) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl ClientSocket {
    fn poll_write_by(
        &self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.0, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_client_that_has_left_is_seen_behind_what_it_has_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let mut peer = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let mut socket = ClientSocket::new(listener.accept().await.expect("accepted").0);
        assert!(!poll_fn(|context| Poll::Ready(socket.has_left(context))).await);
        peer.write_all(b"unread").await.expect("written");
        socket.tcp().readable().await.expect("readable");
        assert!(!poll_fn(|context| Poll::Ready(socket.has_left(context))).await);
        peer.shutdown().await.expect("closed");
        while !poll_fn(|context| Poll::Ready(socket.has_left(context))).await {
            tokio::task::yield_now().await;
        }
        let mut sent = Vec::new();
        socket.read_to_end(&mut sent).await.expect("read");
        assert_eq!(sent, b"unread");
        socket.write_all(b"answer").await.expect("half of it is open");
        socket.shutdown().await.expect("closed");
        let mut told = Vec::new();
        peer.read_to_end(&mut told).await.expect("read");
        assert_eq!(told, b"answer");
    }
}
