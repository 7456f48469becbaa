//! How a connection ends, and with it what its backend still runs.
//!
//! A backend that runs a statement, or waits for a lock, does not look at its socket: what nobody waits for any more would run on, and
//! keep its locks. So it is asked to cancel. A request that comes before the backend has begun with the statement has no effect: the
//! requests are repeated until the backend has closed its side. Nobody waits for this, and nothing of an answer is kept.
//!
//! What prepares or commits is never asked to cancel: a commit that waits for a synchronous standby would be seen before it is there, and
//! a fail-over would lose what others have relied on.
//!
//! ```text
//!   close ─► Terminate ─┬─ nothing is owed, or the end of a transaction ──────────────────────────────► dropped
//!                       └─ another answer is owed ─► end of the stream ─► cancel ⇄ pause ─► the backend has gone ─► dropped
//! ```

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Connection;

impl Connection {
    /// Tells the shard that the connection ends, as far as the socket takes it without waiting. What it still runs is cancelled,
    /// by a task of its own.
    pub fn close(mut self) {
        // Of a statement that was sent in part it would be the last bytes, and make another one of it.
        if self.output.is_empty() {
            self.output.terminate();
            let mut context = Context::from_waker(std::task::Waker::noop());
            // The shard notices the closed socket anyway; Terminate only spares it a log line.
            if self.poll_flush(&mut context).is_pending() {
                tracing::trace!("terminate not sent");
            }
        }
        if self.owes()
            && !self.ends_transaction
            && self.cancel_handle.is_some()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(self.until_its_backend_ends());
        }
    }

    async fn until_its_backend_ends(mut self) {
        // A backend that waits for more of us ends by it.
        if timeout(PAUSE_MAX, poll_fn(|context| Pin::new(&mut self.stream).poll_shutdown(context))).await.is_err() {
            return;
        }
        let mut pause = PAUSE_MIN;
        while pause <= PAUSE_MAX {
            self.stop().await;
            if timeout(pause, self.until_closed()).await.is_ok() {
                return;
            }
            pause *= 2;
        }
        tracing::debug!("a backend goes on though it was asked to cancel");
    }

    async fn until_closed(&mut self) {
        while let Ok(1..) = poll_fn(|context| self.stream.poll_receive(context, &mut self.input)).await {
            self.input.clear();
        }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The last request comes after half a minute.
const PAUSE_MAX: Duration = Duration::from_secs(13);

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::auth::{BackendKey, Greeting};
    use crate::backend::Own;
    use crate::config::ShardUrl;
    use crate::net::{ShardEndpoint, ShardStream};

    /// That has been asked for something, its shard's side, and where cancel requests come.
    async fn asked() -> (Connection, TcpStream, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("connected");
        let (shard, _) = listener.accept().await.expect("accepted");
        let url = ShardUrl::parse(&format!("postgres://postgres@{address}/app?sslmode=disable")).expect("valid");
        let endpoint = ShardEndpoint::of(url).expect("usable").remove(0);
        let key = BackendKey { process_id: 7, bytes: Bytes::from_static(&[0, 0, 0, 7, 0, 0, 0, 9]) };
        let greeting = Greeting { parameter_status: Vec::new(), backend_key: Some(key), leftover: BytesMut::new() };
        let mut connection = Connection::new(ShardStream::Plain(stream), &endpoint, greeting, 0);
        connection.output.query(&Own::Constants.text("SELECT"));
        connection.flush().await.expect("sent");
        assert!(connection.owes());
        (connection, shard, listener)
    }

    #[tokio::test]
    async fn what_runs_is_asked_to_cancel_until_it_has_ended() {
        let (connection, mut shard, listener) = asked().await;
        let ended = tokio::spawn(connection.until_its_backend_ends());
        for _ in 0..3 {
            let (mut request, _) = listener.accept().await.expect("a cancel request");
            let mut packet = [0; 16];
            request.read_exact(&mut packet).await.expect("a whole one");
            assert_eq!(packet, [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 7, 0, 0, 0, 9]);
        }
        let mut asked = Vec::new();
        shard.read_to_end(&mut asked).await.expect("its end, before the backend's");
        assert!(!asked.is_empty());
        drop(shard);
        timeout(Duration::from_secs(20), ended).await.expect("it goes on").expect("no panic");
    }
    #[tokio::test]
    async fn the_end_of_a_transaction_is_not_asked_to_cancel() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        for (ends_transaction, wanted) in [(true, 0), (false, 1)] {
            let (mut connection, _shard, _listener) = asked().await;
            connection.ends_transaction = ends_transaction;
            connection.close();
            assert_eq!(tasks(), wanted);
        }
    }
}
