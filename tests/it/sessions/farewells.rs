//! The last words of a connection: TLS ends with its own farewell, so that nobody takes what was said for cut off.

use rustix::process::Signal;
use shardgate::config::ShardUrl;
use shardgate::net::{ShardEndpoint, ShardStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stage::Stage;
use crate::support::{Certificates, ProxyOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_ends_with_close_notify_however_a_connection_ends() {
    let certificates = Certificates::new();
    let files = certificates.issue("proxy", "127.0.0.1");
    let toml = format!("[listen.tls]\nmode = \"allow\"\ncert = {:?}\nkey = {:?}\n", files.cert, files.key);
    let mut stage = Stage::start(1, ProxyOptions { toml, ..ProxyOptions::default() }).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/app?sslmode=require", stage.proxy.port());
    let endpoint = ShardEndpoint::of(ShardUrl::parse(&url).expect("valid")).expect("usable").remove(0);
    let startup = |database: &str| {
        let body = [&b"\0\x03\0\0user\0postgres\0database\0"[..], database.as_bytes(), b"\0\0"].concat();
        [&u32::try_from(body.len() + 4).expect("short").to_be_bytes()[..], &body].concat()
    };

    let mut stream = endpoint.connect().await.expect("connected");
    send(&mut stream, &startup("nowhere")).await;
    assert!(rest(&mut stream).await.windows(5).any(|code| code == b"3D000"), "refused");

    let mut stream = endpoint.connect().await.expect("connected");
    send(&mut stream, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x07").await;
    assert_eq!(rest(&mut stream).await, b"", "a cancel request");

    let logged_in = async || {
        let mut stream = endpoint.connect().await.expect("connected");
        send(&mut stream, &startup("app")).await;
        let mut told = Vec::new();
        while !told.ends_with(b"Z\0\0\0\x05I") {
            assert_ne!(stream.read_buf(&mut told).await.expect("read"), 0);
        }
        stream
    };
    let mut stream = logged_in().await;
    send(&mut stream, b"X\0\0\0\x04").await;
    assert_eq!(rest(&mut stream).await, b"", "Terminate");

    let mut stream = logged_in().await;
    send(&mut stream, b"?\0\0\0\x04").await;
    assert!(rest(&mut stream).await.windows(5).any(|code| code == b"08P01"), "FATAL");

    let mut stream = logged_in().await;
    stage.proxy.signal(Signal::TERM);
    assert!(rest(&mut stream).await.windows(5).any(|code| code == b"57P01"), "the drain");
}

async fn send(stream: &mut ShardStream, bytes: &[u8]) {
    stream.write_all(bytes).await.expect("written");
    stream.flush().await.expect("sent");
}

/// An error where the stream ends without the end of TLS.
async fn rest(stream: &mut ShardStream) -> Vec<u8> {
    let mut told = Vec::new();
    stream.read_to_end(&mut told).await.expect("TLS has ended");
    told
}
