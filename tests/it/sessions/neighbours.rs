//! Long work of one session does not keep others waiting: texts of megabytes are read, and keys by the hundred thousand routed, beside
//! the sessions of the same thread or in pieces between them.
//!
//! What works in one piece keeps a neighbour waiting for about as long as the request takes. How long he waits otherwise is for
//! `make bench`.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

struct Kind {
    name: &'static str,
    /// Puts the request.
    put: fn(&mut WireClient),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "a literal of 10 MB",
        put: |client| _ = client.query(&format!("SELECT length('{}') FROM accounts", "x".repeat(10_000_000))),
    },
    Kind {
        name: "a comment of 10 MB",
        put: |client| _ = client.query(&format!("SELECT owner FROM accounts /* {} */", "x ".repeat(5_000_000))),
    },
    Kind {
        name: "100,000 literals of IN",
        put: |client| _ = client.query(&format!("SELECT count(*) FROM accounts WHERE id IN ({})", numbers(100_000))),
    },
    Kind {
        name: "an array of 100,000 keys",
        put: |client| {
            _ = client
                .unnamed("SELECT count(*) FROM accounts WHERE id = ANY($1::bigint[])", &[&format!("{{{}}}", numbers(100_000))])
                .sync()
        },
    },
    Kind { name: "60,000 parameters of IN", put: in_parameters },
    Kind { name: "100,000 rows of VALUES", put: |client| _ = client.query(&insert("many (id, v)")) },
    Kind { name: "100,000 rows of VALUES with numbers", put: |client| _ = client.query(&insert("numbered (k, v)")) },
    Kind { name: "5,000 statements", put: |client| _ = client.query(&"SELECT owner FROM accounts WHERE id = 1;".repeat(5_000)) },
    Kind { name: "100,000 rows of COPY", put: copy },
];

fn numbers(count: usize) -> String {
    (1..=count).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

fn in_parameters(client: &mut WireClient) {
    let places = (1..=60_000).map(|number| format!("${number}")).collect::<Vec<_>>().join(",");
    let values: Vec<String> = (1..=60_000).map(|number| number.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    client.unnamed(&format!("SELECT count(*) FROM accounts WHERE id IN ({places})"), &values).sync();
}

fn insert(into: &str) -> String {
    let rows = (1..=100_000).map(|number| format!("({number},'v')")).collect::<Vec<_>>().join(",");
    format!("BEGIN; INSERT INTO {into} VALUES {rows}; ROLLBACK")
}

fn copy(client: &mut WireClient) {
    let rows: String = (1..=100_000).map(|number| format!("{number}\tv\n")).collect();
    client.query("COPY many FROM STDIN").put(b'd', rows.as_bytes()).put(b'c', b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_work_of_one_session_keeps_no_other_waiting() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in [
        "CREATE TABLE many (id bigint PRIMARY KEY, v text)",
        "CREATE TABLE numbered (id bigserial, k bigint, v text, PRIMARY KEY (k, id))",
        "SELECT shardgate.distribute_table('many', 'id')",
        "SELECT shardgate.distribute_table('numbered', 'k')",
    ] {
        succeed(&mut client, statement).await;
    }
    let mut neighbours = Vec::new();
    for _ in 0..NEIGHBOURS {
        neighbours.push(stage.client().await);
    }
    let mut slow = Vec::new();
    for kind in KINDS {
        let mut seen = Vec::new();
        for _ in 0..ATTEMPTS {
            succeed(&mut client, "TRUNCATE many").await;
            let (longest, took) = longest_wait(&stage, kind, &mut neighbours).await;
            println!("{}: {longest:?} of {took:?}", kind.name);
            seen.push((longest, took));
            if longest < WAIT_MAX || longest < took / 3 {
                break;
            }
        }
        if seen.len() == ATTEMPTS {
            slow.push(format!("{}: {seen:?}", kind.name));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
    stage.assert_log_is_clean();
}

/// The longest that any of them has waited for an answer while the request was worked on, and how long that was.
async fn longest_wait(stage: &Stage, kind: &Kind, neighbours: &mut [WireClient]) -> (Duration, Duration) {
    let mut client = stage.client().await;
    (kind.put)(&mut client);
    let name = kind.name;
    let mut working = tokio::spawn(async move {
        client.flush().await;
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E');
        assert!(error.is_none(), "{name}: {:?}", error.map(|error| error.describe()));
    });
    let (mut longest, began_at) = (Duration::ZERO, Instant::now());
    loop {
        for neighbour in neighbours.iter_mut() {
            let asked_at = Instant::now();
            assert_eq!(neighbour.value("SELECT 1").await, "1");
            longest = longest.max(asked_at.elapsed());
        }
        tokio::select! {
            biased;
            done = &mut working => {
                done.expect("it was answered");
                return (longest, began_at.elapsed());
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
}

/// Enough to be on every thread of the proxy.
const NEIGHBOURS: usize = 6;
const ATTEMPTS: usize = 3;
const WAIT_MAX: Duration = Duration::from_millis(200);
