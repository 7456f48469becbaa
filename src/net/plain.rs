//! Reads and writes of a socket in the clear, for the way of every statement.
//!
//! What tokio's own way adds is spared: room in every connection's buffer for a read that mostly brings a few bytes (one
//! scratch buffer of the thread takes them, and stays in the processor's cache), a registration with the reactor before each
//! write (it is asked for only when the socket is full), and the C library's cancellation points.
//!
//! A read that brings less than there was room for has emptied the socket: as tokio does, it is then marked as not readable,
//! which spares the read that would only say so. New bytes are a new event of the reactor.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into());
}

/// Appends what has arrived; 0 at the end of the stream.
pub(super) fn poll_receive(stream: &TcpStream, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        match try_receive(stream, input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return Poll::Ready(received),
        }
    }
}

/// As [`poll_receive`], without a waker; [`io::ErrorKind::WouldBlock`] when the reactor has seen nothing.
pub(super) fn try_receive(stream: &TcpStream, input: &mut BytesMut) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut emptied = None;
        let received = stream.try_io(Interest::READABLE, || {
            let (received, _) = rustix::net::recv(stream, &mut scratch[..], RecvFlags::empty())?;
            if (1..SCRATCH_BYTES).contains(&received) {
                emptied = Some(received);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(received)
        });
        let received = emptied.map_or(received, Ok)?;
        input.extend_from_slice(scratch.get(..received).unwrap_or_default());
        Ok(received)
    })
}

/// The same by a system call of its own, whatever the reactor has seen.
pub(super) fn try_receive_now(stream: &TcpStream, input: &mut BytesMut) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        let (received, _) = rustix::net::recv(stream, &mut scratch[..], RecvFlags::DONTWAIT)?;
        input.extend_from_slice(scratch.get(..received).unwrap_or_default());
        Ok(received)
    })
}

/// Is the stream at its end? By a system call of its own; false where there is something to be read first.
pub(super) fn is_at_end(stream: &TcpStream) -> bool {
    match rustix::net::recv(stream, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((received, _)) => received == 0,
        Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
    }
}

/// Sends as much as the socket takes.
pub(super) fn poll_send(stream: &TcpStream, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    loop {
        match stream.try_io(Interest::WRITABLE, || Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_write_ready(context))?,
            sent => return Poll::Ready(sent),
        }
    }
}

/// Several of the shards' own send buffers of 8 KiB.
const SCRATCH_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (connected.expect("connected"), accepted.expect("accepted").0)
    }

    async fn receive(stream: &TcpStream, input: &mut BytesMut) -> usize {
        poll_fn(|context| poll_receive(stream, context, input)).await.expect("received")
    }

    #[tokio::test]
    async fn what_is_sent_arrives_piece_by_piece_and_then_the_end() {
        let (mut peer, stream) = pair().await;
        let mut input = BytesMut::new();
        for piece in [&b"a"[..], b"bc", b"def"] {
            let nothing = try_receive(&stream, &mut input).expect_err("nothing has come");
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            peer.write_all(piece).await.expect("written");
            assert_eq!(receive(&stream, &mut input).await, piece.len());
        }
        drop(peer);
        assert_eq!(receive(&stream, &mut input).await, 0);
        assert_eq!(receive(&stream, &mut input).await, 0, "and stays at its end");
        assert_eq!(&input[..], b"abcdef");
    }

    /// More than the scratch buffer and than the socket's own buffers, both ways at once.
    #[tokio::test]
    async fn a_full_socket_waits_for_its_reader() {
        let (mut peer, stream) = pair().await;
        let sent: Vec<u8> = (0..20_000_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let sender = async {
            let mut rest = &sent[..];
            let mut has_waited = false;
            while !rest.is_empty() {
                let taken = poll_fn(|context| {
                    let polled = poll_send(&stream, context, rest);
                    has_waited |= polled.is_pending();
                    polled
                });
                rest = &rest[taken.await.expect("sent")..];
            }
            assert!(has_waited);
            let mut answer = BytesMut::new();
            while answer.len() < expected.len() {
                assert_ne!(receive(&stream, &mut answer).await, 0);
            }
            assert!(answer[..] == expected[..]);
        };
        let echo = async {
            let mut bytes = vec![0; expected.len()];
            peer.read_exact(&mut bytes).await.expect("read");
            peer.write_all(&bytes).await.expect("written");
        };
        tokio::join!(sender, echo);
    }
}
