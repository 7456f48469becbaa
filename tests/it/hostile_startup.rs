//! What strangers may send before login: none of it may panic, hang, or disturb who is already in.
//!
//! A thousand sequences are made from a seed (printed on failure): well-formed packets with their lengths falsified, cut short,
//! doubled, followed by plaintext, or plain rubbish. Each connection must end by itself, with an error or without a word.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use shardgate::config::{Config, Secret, TlsMode, UserConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Certificates, Doorman};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30];
/// A visit that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> Config {
    let mut config = Config::default();
    config.auth.users = vec![UserConfig { name: "app".into(), password: Some(Secret::new("p")), ..UserConfig::default() }];
    config
}

fn startup(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).expect("short").to_be_bytes();
    [&length[..], &[0, 3, 0, 0], body].concat()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[tag][..], &length, body].concat()
}

/// What an honest client would send, in pieces that can be spoilt.
fn honest_pieces() -> Vec<Vec<u8>> {
    let first = b"SCRAM-SHA-256\0\0\0\0\x0dn,,n=,r=nonce";
    vec![
        SSL_REQUEST.to_vec(),
        GSS_REQUEST.to_vec(),
        startup(b"user\0app\0database\0app\0\0"),
        startup(b"user\0app\0database\0app\0options\0-c a=b\0\0"),
        [&[0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e][..], &[0; 8]].concat(),
        message(b'p', first),
        message(b'p', b"c=biws,r=nonce,p=AAAA"),
        message(b'Q', b"SELECT 1\0"),
        message(b'X', b""),
    ]
}

fn hostile_sequence(random: &mut StdRng) -> Vec<u8> {
    let pieces = honest_pieces();
    let count = random.random_range(1..5);
    let mut sequence = Vec::new();
    for _ in 0..count {
        let mut piece = pieces.choose(random).expect("some").clone();
        match random.random_range(0..8) {
            0 => piece.truncate(random.random_range(0..piece.len())),
            1 => falsify_length(&mut piece, random),
            2 => {
                let at = random.random_range(0..piece.len());
                piece[at] = random.random();
            }
            3 => {
                let rubbish: Vec<u8> = (0..random.random_range(1..300)).map(|_| random.random()).collect();
                piece.extend(rubbish);
            }
            4 => piece = (0..random.random_range(0..12_000)).map(|_| random.random()).collect(),
            5 => piece.insert(0, random.random()),
            // TLS records, whole and torn.
            6 => piece = [&[0x16, 3, 1, 0, random.random()][..], &piece].concat(),
            _ => {}
        }
        sequence.extend(piece);
    }
    sequence
}

/// Negative, zero, just wrong, huge.
fn falsify_length(piece: &mut [u8], random: &mut StdRng) {
    let at = usize::from(piece[0] != 0);
    let length: i32 = *[i32::MIN, -1, 0, 1, 3, 4, 5, 7, 8, 9, 10_000, 10_001, 1 << 20, i32::MAX].choose(random).expect("some");
    piece[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

async fn visit(door: &Doorman, sequence: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(door.address()).await.expect("connected");
    let mut answer = Vec::new();
    // The other side may close in the middle of either.
    drop(stream.write_all(sequence).await);
    drop(stream.shutdown().await);
    drop(stream.read_to_end(&mut answer).await);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_malformed_openings_end_and_disturb_nobody() {
    let certificates = Certificates::new();
    let files = certificates.issue("proxy", "127.0.0.1");
    let mut tls = config();
    tls.listen.tls.mode = TlsMode::Allow;
    (tls.listen.tls.cert, tls.listen.tls.key) = (Some(files.cert), Some(files.key));
    let doors = [Doorman::start(&config()).await, Doorman::start(&tls).await];
    let conninfo = doors[0].conninfo("app", "password=p");
    let (guest, connection) = tokio_postgres::connect(&conninfo, tokio_postgres::NoTls).await.expect("an honest guest");
    tokio::spawn(connection);

    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..1000 {
        let sequence = hostile_sequence(&mut random);
        for door in &doors {
            let outcome = tokio::time::timeout(PATIENCE, visit(door, &sequence)).await;
            assert!(outcome.is_ok(), "seed {seed}, round {round}: still open after {sequence:?}");
        }
        if round % 100 == 0 {
            guest.simple_query("SELECT").await.expect("the honest guest goes on");
        }
    }
    guest.simple_query("SELECT").await.expect("the honest guest goes on");
    for door in &doors {
        assert_eq!(door.record(|record| record.panicked), 0, "seed {seed}");
        assert!(door.record(|record| record.logins.len()) <= 1, "seed {seed}: nobody got in without a password");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_after_an_ssl_request_is_refused() {
    let door = Doorman::start(&config()).await;
    for request in [SSL_REQUEST, GSS_REQUEST] {
        let answer = visit(&door, &[&request[..], &startup(b"user\0app\0database\0app\0\0")].concat()).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with('E') && text.contains("C08P01\0Mreceived unencrypted data after"), "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_put_before_the_handshake_never_reaches_the_session() {
    let certificates = Certificates::new();
    let files = certificates.issue("proxy", "127.0.0.1");
    let mut config = config();
    config.listen.tls.mode = TlsMode::Allow;
    (config.listen.tls.cert, config.listen.tls.key) = (Some(files.cert), Some(files.key));
    let door = Doorman::start(&config).await;
    let mut stream = TcpStream::connect(door.address()).await.expect("connected");
    stream.write_all(&SSL_REQUEST).await.expect("written");
    let mut answer = [0];
    stream.read_exact(&mut answer).await.expect("read");
    assert_eq!(&answer, b"S");
    // Where a ClientHello should be.
    stream.write_all(&startup(b"user\0app\0database\0app\0\0")).await.expect("written");
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest).await);
    // At most a TLS alert; no startup packet was read.
    assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_encryption_request_is_answered_once() {
    let door = Doorman::start(&config()).await;
    let mut stream = TcpStream::connect(door.address()).await.expect("connected");
    for request in [SSL_REQUEST, GSS_REQUEST] {
        stream.write_all(&request).await.expect("written");
        let mut answer = [0];
        stream.read_exact(&mut answer).await.expect("read");
        assert_eq!(&answer, b"N");
    }
    stream.write_all(&SSL_REQUEST).await.expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("read");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("C0A000\0Munsupported frontend protocol 1234.5679: server supports 3.0 to 3.0"), "{text:?}");
}
