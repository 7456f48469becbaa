//! HTTP for operators: `/metrics` (Prometheus), `/livez`, `/readyz`.
//!
//! Live means that the process answers; ready means that clients may be sent here, which the server says through a watch
//! channel. No login and no secrets: the address is meant for operators only. Connections are bounded; one more waits in the
//! kernel's queue until another ends, which none keeps from doing so: what is silent or does not read for `PATIENCE` is closed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;

/// Whether clients may be sent here, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// With the reason, as a phrase for operators: `the map database cannot be reached`.
    NotReady(String),
    /// SIGTERM has come; running transactions end, new clients are to go elsewhere.
    Draining,
}

/// What the endpoints need.
#[derive(Clone)]
pub struct Admin {
    pub metrics: Metrics,
    pub readiness: watch::Receiver<Readiness>,
    /// Sets gauges that nobody keeps up to date (sizes of pools) before they are read.
    pub before_scrape: Arc<dyn Fn() + Send + Sync>,
}

/// Serves until `stop`, then finishes the requests that are running. Bind the listener before, so that a taken port is an error
/// at start.
pub async fn serve(listener: TcpListener, admin: Admin, stop: CancellationToken) -> io::Result<()> {
    serve_with(listener, admin, stop, PATIENCE).await
}

async fn serve_with(listener: TcpListener, admin: Admin, stop: CancellationToken, patience: Duration) -> io::Result<()> {
    let listener = BoundedListener { inner: listener, free: Arc::new(Semaphore::new(CONNECTIONS_MAX)), patience };
    axum::serve(listener, router(admin)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(admin: Admin) -> Router {
    Router::new().route("/metrics", get(scrape)).route("/livez", get(livez)).route("/readyz", get(readyz)).with_state(admin)
}

async fn scrape(State(admin): State<Admin>) -> impl IntoResponse {
    (admin.before_scrape)();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.metrics.render())
}

async fn livez() -> &'static str {
    "live\n"
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    match &*admin.readiness.borrow() {
        Readiness::Ready => (StatusCode::OK, "ready\n".into()),
        Readiness::NotReady(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into()),
    }
}

/// Accepts only while fewer than [`CONNECTIONS_MAX`] connections are open.
struct BoundedListener {
    inner: TcpListener,
    free: Arc<Semaphore>,
    patience: Duration,
}

impl axum::serve::Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else {
                // The semaphore is never closed.
                return std::future::pending().await;
            };
            match self.inner.accept().await {
                Ok((stream, address)) => {
                    let deadline = Box::pin(tokio::time::sleep(self.patience));
                    return (BoundedStream { stream, deadline, patience: self.patience, _permit: permit }, address);
                }
                Err(error) => {
                    tracing::warn!(error = %error, "could not accept an admin connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// Gives its place back when it is dropped.
struct BoundedStream {
    stream: TcpStream,
    /// A whole request has come, and is being answered, by then. Bytes of a request do not move it: one that trickles is as bad as none.
    deadline: Pin<Box<Sleep>>,
    patience: Duration,
    _permit: OwnedSemaphorePermit,
}

impl BoundedStream {
    /// Nothing can be done now: for how long?
    fn poll_patience<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => self.poll_patience(cx),
            read => read,
        }
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Pending => self.poll_patience(cx),
            written => {
                let deadline = Instant::now() + self.patience;
                self.deadline.as_mut().reset(deadline);
                written
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const CONNECTIONS_MAX: usize = 64;
/// From accept, or from the last bytes of an answer, to the next answer's first.
const PATIENCE: Duration = Duration::from_secs(10);
/// After an error of accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::names;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn request(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    #[tokio::test]
    async fn the_endpoints_say_what_the_server_tells_them() {
        let metrics = Metrics::new().expect("built");
        let gauge = metrics.gauge(names::CLIENTS, &[]);
        let (tell, readiness) = watch::channel(Readiness::NotReady("the map is not loaded".into()));
        let admin = Admin { metrics, readiness, before_scrape: Arc::new(move || gauge.set(7.0)) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, admin, stop.clone()));

        assert!(request(address, "/livez").await.starts_with("HTTP/1.1 200"));
        let answer = request(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("not ready: the map is not loaded\n"), "{answer}");
        tell.send(Readiness::Ready).expect("heard");
        assert!(request(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        tell.send(Readiness::Draining).expect("heard");
        assert!(request(address, "/readyz").await.ends_with("draining\n"));
        assert!(request(address, "/metrics").await.contains("\nshardgate_clients 7\n"));
        assert!(request(address, "/other").await.starts_with("HTTP/1.1 404"));

        stop.cancel();
        serving.await.expect("no panic").expect("ended");
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn one_connection_too_many_waits_until_another_ends() {
        let metrics = Metrics::new().expect("built");
        let (_tell, readiness) = watch::channel(Readiness::Ready);
        let admin = Admin { metrics, readiness, before_scrape: Arc::new(|| {}) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, admin, stop.clone()));
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            held.push(TcpStream::connect(address).await.expect("connected"));
        }
        let waiting = tokio::spawn(request(address, "/livez"));
        held.pop();
        assert!(waiting.await.expect("no panic").starts_with("HTTP/1.1 200"));
        drop(held);
        stop.cancel();
        serving.await.expect("no panic").expect("ended");
    }

    #[tokio::test]
    async fn silent_and_trickling_connections_give_their_places_back() {
        let metrics = Metrics::new().expect("built");
        let (_tell, readiness) = watch::channel(Readiness::Ready);
        let admin = Admin { metrics, readiness, before_scrape: Arc::new(|| {}) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(serve_with(listener, admin, CancellationToken::new(), Duration::from_millis(200)));
        let mut held = Vec::new();
        for number in 0..CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            if number % 2 == 0 {
                stream.write_all(b"GET /livez HTTP/1.1\r\n").await.expect("written");
            }
            held.push(stream);
        }
        let answer = tokio::time::timeout(Duration::from_secs(10), request(address, "/livez")).await;
        assert!(answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
        for mut stream in held {
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "it is still open");
        }
        serving.abort();
    }
}
