//! What a client may send after login: none of it may panic, hang, grow, or disturb who else is there.
//!
//! A thousand sequences are made from a seed (printed on failure): messages of an honest client with their lengths falsified,
//! cut short, their bytes changed, out of order, of unknown types, or plain rubbish. Each connection must end by itself when the
//! client stops sending, with an error or without a word, and its transaction with it.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sessions::Stage;
use crate::support::{ProxyOptions, WireClient};

/// A visit that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[tag][..], &length, body].concat()
}

fn startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0postgres\0database\0app\0\0";
    [&u32::try_from(body.len() + 4).expect("short").to_be_bytes()[..], body].concat()
}

/// What honest clients send, in pieces that can be spoilt.
fn honest_pieces(stage: &Stage) -> Vec<Vec<u8>> {
    let key = stage.key(0, 0).to_string();
    let bound = [b"\0s\0\0\0\0\x01\0\0\0".as_slice(), &[u8::try_from(key.len()).expect("short")], key.as_bytes(), b"\0\0"].concat();
    let query = |sql: &str| message(b'Q', &[sql.as_bytes(), b"\0"].concat());
    vec![
        query("BEGIN"),
        query("ROLLBACK"),
        query("SAVEPOINT s"),
        query("SELECT 1; SELECT 2"),
        query(&stage.fill_in("SELECT owner FROM accounts WHERE id = {a}")),
        query(&stage.fill_in("UPDATE accounts SET balance = 77 WHERE id = {z}")),
        query("SELECT owner FROM accounts ORDER BY id LIMIT 3"),
        query("COPY notes FROM STDIN"),
        query("COPY (SELECT 1) TO STDOUT"),
        query("SELECT shardgate.locate('accounts', '5')"),
        query("SET work_mem = '1MB'"),
        message(b'P', b"s\0SELECT owner FROM accounts WHERE id = $1\0\0\x01\0\0\0\x14"),
        message(b'P', b"\0SELECT 1\0\0\0"),
        message(b'B', &bound),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'D', b"Ss\0"),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'E', b"\0\0\0\0\x01"),
        message(b'C', b"Ss\0"),
        message(b'C', b"P\0"),
        message(b'S', b""),
        message(b'S', b""),
        message(b'H', b""),
        message(b'd', b"1\tone\n"),
        message(b'c', b""),
        message(b'f', b"no\0"),
        message(b'F', b"\0\0\0\x01\0\0\0\0\0\0"),
        message(b'X', b""),
        message(b'p', b"password\0"),
        startup(),
    ]
}

fn hostile_sequence(pieces: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let count = random.random_range(1..12);
    let mut sequence = Vec::new();
    for _ in 0..count {
        let mut piece = pieces.choose(random).expect("some").clone();
        match random.random_range(0..12) {
            0 => piece.truncate(random.random_range(0..piece.len())),
            1 => falsify_length(&mut piece, random),
            2 => {
                let at = random.random_range(0..piece.len());
                piece[at] = random.random();
            }
            // A shorter or longer body under a length that fits it.
            3 => {
                let body: Vec<u8> = piece.get(5..).unwrap_or_default().iter().copied().take(random.random_range(0..40)).collect();
                piece = message(piece[0], &body);
            }
            4 => {
                let mut body = piece.get(5..).unwrap_or_default().to_vec();
                body.extend((0..random.random_range(1..30)).map(|_| random.random::<u8>()));
                piece = message(piece[0], &body);
            }
            5 => piece = message(random.random(), piece.get(5..).unwrap_or_default()),
            6 => piece = (0..random.random_range(0..2000)).map(|_| random.random()).collect(),
            _ => {}
        }
        sequence.extend(piece);
    }
    sequence
}

/// Negative, zero, just wrong, huge.
fn falsify_length(piece: &mut [u8], random: &mut StdRng) {
    let length: i32 =
        *[i32::MIN, -1, 0, 1, 3, 4, 5, 9, 100, 1 << 20, 1 << 26, (1 << 26) + 5, i32::MAX].choose(random).expect("some");
    if let Some(bytes) = piece.get_mut(1..5) {
        bytes.copy_from_slice(&length.to_be_bytes());
    }
}

/// Everything that comes back until the proxy closes.
async fn visit(stage: &Stage, sequence: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(stage.proxy.address()).await.expect("connected");
    let mut answer = Vec::new();
    // The other side may close in the middle of either.
    drop(stream.write_all(&startup()).await);
    drop(stream.write_all(sequence).await);
    drop(stream.shutdown().await);
    drop(stream.read_to_end(&mut answer).await);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_malformed_sequences_end_and_disturb_nobody() {
    let settings = [("pool.size_per_shard", "4".to_owned()), ("log.level", "info".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    let pieces = honest_pieces(&stage);
    let mut guest = stage.client().await;
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut memory = 0;
    for round in 0..1000 {
        let sequence = hostile_sequence(&pieces, &mut random);
        let answer = tokio::time::timeout(PATIENCE, visit(&stage, &sequence)).await;
        assert!(answer.is_ok_and(|answer| answer.starts_with(b"R")), "seed {seed}, round {round}: {sequence:?}");
        if round % 50 == 0 {
            undisturbed(&stage, &mut guest, &format!("seed {seed}, round {round}")).await;
        }
        if round == 200 {
            memory = resident_kib(&stage);
        }
    }
    undisturbed(&stage, &mut guest, &format!("seed {seed}")).await;
    let grown = resident_kib(&stage).saturating_sub(memory);
    assert!(grown < 32 * 1024, "seed {seed}: {grown} KiB more after eight hundred sequences");
    stage.assert_log_is_clean();
}

/// Connections are free, and nothing of what was cut off has been kept.
async fn undisturbed(stage: &Stage, guest: &mut WireClient, when: &str) {
    for text in [
        "SELECT owner, current_setting('work_mem') FROM accounts WHERE id = {a}",
        "SELECT id FROM accounts WHERE id = {z} FOR UPDATE",
    ] {
        let told = guest.ask(&stage.fill_in(text)).await;
        assert!(told.contains("C(SELECT 1) Z(I)") && !told.contains("1MB"), "{when}: {told}");
    }
}

fn resident_kib(stage: &Stage) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", stage.proxy.pid())).expect("the proxy's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
async fn a_message_over_the_limit_ends_the_session_before_it_is_read() {
    let settings = [("cross_shard.statement_bytes_max", "100000".to_owned())];
    let stage = Stage::start(1, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    assert!(client.ask(&format!("SELECT length('{}')", "x".repeat(90_000))).await.contains("D(90000)"));
    let mut header = b"Q".to_vec();
    header.extend(200_000_u32.to_be_bytes());
    client.output.extend_from_slice(&header);
    let told = client.rest().await;
    assert_eq!(told.iter().map(|message| message.field(b'C')).collect::<Vec<_>>(), ["08P01"], "{told:?}");
}
