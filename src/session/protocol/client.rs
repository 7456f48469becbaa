//! The client's side of a session: its socket and its two buffers.
//!
//! Buffers of more than a few hundred bytes exist only while there is something in them, so that ten thousand idle clients cost their
//! sockets and little else.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use super::diversion::Diverted;
use crate::error::PgError;
use crate::execute::CopyRows;
use crate::net::{ClientSocket, ClientStream};
use crate::session::SessionEnd;
use crate::shardmap::MapInUse;
use crate::wire::{FrameHeader, originate};

pub(in crate::session) struct Client {
    stream: ClientStream,
    pub input: BytesMut,
    pub output: BytesMut,
    /// How often `output` has been sent, or kept.
    pub flushes: u64,
    /// There is a ReadyForQuery in `output`, for which the client may wait before it sends more.
    pub is_due: bool,
    /// Bodies longer than this end the session.
    frame_bytes_max: usize,
    is_at_end: bool,
    /// What is sent is kept instead.
    diversion: Option<Box<Diverted>>,
    /// Rows of several shards go out as COPY data.
    pub copy_rows: Option<Box<CopyRows>>,
    /// By which the statement was planned that several shards answer: dropped when all of them have proven their snapshots.
    pub map_until_proven: Option<Arc<MapInUse>>,
}

impl Client {
    pub fn new(stream: ClientStream, input: BytesMut, output: BytesMut, frame_bytes_max: usize) -> Self {
        Self {
            stream,
            input,
            output,
            flushes: 0,
            is_due: false,
            frame_bytes_max,
            is_at_end: false,
            diversion: None,
            copy_rows: None,
            map_until_proven: None,
        }
    }

    /// To be looked at while the session works.
    pub fn socket(&self) -> ClientSocket {
        self.stream.socket().clone()
    }

    /// Nothing more is said.
    pub async fn end(&mut self) {
        self.stream.end().await;
    }

    /// The header of the next message, when its whole frame is in `input`. Does not wait.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<FrameHeader>, SessionEnd> {
        match FrameHeader::peek(&self.input, self.frame_bytes_max)? {
            Some(header) if self.input.len() >= header.total => Ok(Some(header)),
            Some(header) => {
                self.input.reserve((header.total - self.input.len()).min(FRAME_RESERVE_BYTES_MAX));
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// So many Syncs come before what else has come: they were taken for part of something else.
    pub fn put_back_syncs(&mut self, count: u32) {
        if count > 0 {
            let rest = self.input.split();
            (0..count).for_each(|_| originate::sync(&mut self.input));
            self.input.unsplit(rest);
        }
    }

    /// These messages come before what else has come.
    pub fn put_back(&mut self, messages: &[Bytes]) {
        let rest = self.input.split();
        messages.iter().for_each(|message| self.input.extend_from_slice(message));
        self.input.unsplit(rest);
    }

    /// Reads at least one byte. Gives the buffers back before it waits with nothing in them.
    ///
    /// Errors: [`SessionEnd::ClientGone`] at the end of the stream.
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SessionEnd>> {
        if self.is_at_end {
            return Poll::Ready(Err(SessionEnd::ClientGone));
        }
        match self.stream.poll_receive(context, &mut self.input) {
            Poll::Pending => {
                self.release_buffers();
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(0)) => {
                self.is_at_end = true;
                Poll::Ready(Err(SessionEnd::ClientGone))
            }
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
        }
    }

    /// Sends everything in `output`. Cancel safe.
    pub async fn flush(&mut self) -> Result<(), SessionEnd> {
        self.flushes += u64::from(!self.output.is_empty());
        if let Some(diverted) = &mut self.diversion {
            diverted.keep(&mut self.output);
            if diverted.has_too_much() {
                Box::pin(diverted.put_aside()).await;
            }
            return Ok(());
        }
        self.is_due = false;
        poll_fn(|context| {
            while !self.output.is_empty() {
                match self.stream.poll_send(context, &self.output) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(SessionEnd::from(error))),
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(SessionEnd::ClientGone)),
                    Poll::Ready(Ok(written)) => self.output.advance(written),
                }
            }
            match &self.stream {
                ClientStream::Plain(_) => Poll::Ready(Ok(())),
                ClientStream::Tls(_) => Pin::new(&mut self.stream).poll_flush(context).map_err(SessionEnd::from),
            }
        })
        .await
    }

    /// The reason why the session ends, after what is due, if the client takes it within [`LAST_WORDS_TIMEOUT`].
    pub async fn say_last(&mut self, error: &PgError) {
        if self.diversion.take().is_some() {
            // Not meant for the client.
            self.output.clear();
        }
        originate::error(&mut self.output, error);
        match timeout(LAST_WORDS_TIMEOUT, self.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::debug!("client gone before its last message"),
            Err(_) => tracing::debug!("client does not read its last message"),
        }
    }

    pub fn is_diverted(&self) -> bool {
        self.diversion.is_some()
    }

    /// From now on what is sent is kept, until [`Client::end_diversion`]. Returns what is kept already for a statement around
    /// this one.
    pub fn divert(&mut self, diverted: Diverted) -> Option<Box<Diverted>> {
        self.diversion.replace(Box::new(diverted))
    }

    pub fn end_diversion(&mut self, outer: Option<Box<Diverted>>) -> Diverted {
        if let Some(diverted) = &mut self.diversion {
            diverted.keep(&mut self.output);
        }
        *std::mem::replace(&mut self.diversion, outer).unwrap_or_default()
    }

    fn release_buffers(&mut self) {
        if self.input.is_empty() && self.input.capacity() > IDLE_BUFFER_BYTES {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() && self.output.capacity() > IDLE_BUFFER_BYTES {
            self.output = BytesMut::new();
        }
    }
}

impl From<io::Error> for SessionEnd {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "client connection lost");
        SessionEnd::ClientGone
    }
}

/// Buffers of this size are kept while the client is idle: most requests and answers are no longer.
const IDLE_BUFFER_BYTES: usize = 512;
/// A client cannot make us reserve more than this ahead of what it has sent.
const FRAME_RESERVE_BYTES_MAX: usize = 1024 * 1024;
/// How long a session that is over waits for a client that does not read.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlState;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (Client, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let peer = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        (Client::new(ClientStream::plain(stream), BytesMut::new(), BytesMut::new(), 1024), peer)
    }

    fn reason() -> PgError {
        PgError::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
    }

    #[tokio::test]
    async fn last_words_come_after_what_is_due_and_not_after_what_is_diverted() {
        for (is_diverted, expected) in [(false, b'Z'), (true, b'E')] {
            let (mut client, mut peer) = pair().await;
            originate::ready(&mut client.output, b'I');
            if is_diverted {
                client.divert(Diverted::default());
            }
            client.say_last(&reason()).await;
            drop(client);
            let mut told = Vec::new();
            peer.read_to_end(&mut told).await.expect("read");
            assert_eq!(told.first(), Some(&expected));
            assert!(told.windows(5).any(|code| code == b"57P01"));
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_last_message_is_not_waited_for() {
        let (mut client, _peer) = pair().await;
        // More than two kernels keep.
        client.output.resize(64 << 20, 0);
        let ended = timeout(LAST_WORDS_TIMEOUT * 3, client.say_last(&reason())).await;
        assert!(ended.is_ok() && !client.output.is_empty());
    }
}
