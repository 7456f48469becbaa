//! Work grows with the size of what a client sends, and not with its square.
//!
//! Each kind of request is sent in two sizes, of which one is four times the other. What is quadratic takes sixteen times as long; what is
//! not takes less than [`RATIO_MAX`] times, with room for a machine that does other things, in one of a few attempts.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

struct Kind {
    name: &'static str,
    /// The smaller of the two sizes.
    size: usize,
    /// Puts a request of this size; returns how many ReadyForQuery end its answers.
    put: fn(&mut WireClient, usize) -> usize,
}

const RATIO_MAX: f64 = 9.0;
const ATTEMPTS: usize = 4;
/// A quarter of a second more or less is no growth.
const NOISE: Duration = Duration::from_millis(250);

const KINDS: &[Kind] = &[
    Kind { name: "parameters of IN", size: 4_000, put: in_parameters },
    Kind { name: "literals of IN", size: 10_000, put: in_literals },
    Kind { name: "elements of ANY", size: 10_000, put: any_elements },
    Kind { name: "conditions of OR", size: 1_500, put: or_conditions },
    Kind { name: "rows of VALUES", size: 6_000, put: |client, size| query(client, &insert("grown (id, v)", size)) },
    Kind { name: "rows of VALUES with parameters", size: 4_000, put: insert_parameters },
    Kind { name: "rows of VALUES with numbers", size: 4_000, put: |client, size| query(client, &insert("numbered (k, v)", size)) },
    Kind { name: "rows of VALUES with numbers, refused at the end", size: 4_000, put: insert_refused },
    Kind {
        name: "rows of VALUES in a reference table",
        size: 4_000,
        put: |client, size| query(client, &insert("copied (id, v)", size)),
    },
    Kind { name: "rows to update from", size: 2_000, put: update_from_values },
    Kind { name: "statements of a text that read", size: 250, put: script_of_selects },
    Kind { name: "statements of a text that write", size: 250, put: script_of_inserts },
    Kind { name: "statements of a text for one shard", size: 2_000, put: script_for_one_shard },
    Kind { name: "settings in a text", size: 300, put: script_of_settings },
    Kind { name: "messages of a pipeline", size: 400, put: pipeline },
    Kind { name: "prepared statements", size: 300, put: prepared },
    Kind { name: "savepoints", size: 150, put: savepoints },
    Kind { name: "columns of groups", size: 100, put: columns },
    Kind { name: "columns of rows", size: 300, put: plain_columns },
    Kind { name: "queries of UNION", size: 20, put: unions },
    Kind { name: "queries of WITH", size: 20, put: with_queries },
    Kind {
        name: "groups",
        size: 5_000,
        put: |client, size| query(client, &format!("SELECT v, count(*) FROM grown WHERE id <= {size} GROUP BY v")),
    },
    Kind {
        name: "rows in order",
        size: 5_000,
        put: |client, size| query(client, &format!("SELECT id, v FROM grown WHERE id <= {size} ORDER BY v")),
    },
    Kind {
        name: "distinct rows",
        size: 5_000,
        put: |client, size| query(client, &format!("SELECT DISTINCT v FROM grown WHERE id <= {size}")),
    },
    Kind { name: "rows that are gathered", size: 4_000, put: gathered },
    Kind { name: "rows of INSERT ... SELECT", size: 4_000, put: insert_select },
    Kind { name: "bytes of a literal", size: 500_000, put: long_literal },
    Kind { name: "bytes of a comment", size: 500_000, put: long_comment },
    Kind { name: "rows of COPY", size: 8_000, put: copy },
];

#[tokio::test]
async fn work_grows_with_the_size_of_a_request() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in [
        "CREATE TABLE grown (id bigint PRIMARY KEY, v text COLLATE \"C\")",
        "CREATE TABLE numbered (id bigserial, k bigint, v text, PRIMARY KEY (k, id))",
        "CREATE TABLE copied (id bigint PRIMARY KEY, v text)",
        "SELECT shardgate.distribute_table('grown', 'id')",
        "SELECT shardgate.distribute_table('numbered', 'k')",
        "SELECT shardgate.reference_table('copied')",
        "SET statement_timeout = '60s'",
    ] {
        succeed(&mut client, statement).await;
    }
    succeed(&mut client, &insert("grown (id, v)", 20_000)).await;
    let mut too_slow = Vec::new();
    for kind in KINDS {
        if let Err(slow) = grows(&mut client, kind).await {
            too_slow.push(slow);
        }
    }
    assert!(too_slow.is_empty(), "{too_slow:#?}");
    stage.assert_log_is_clean();
}

async fn grows(client: &mut WireClient, kind: &Kind) -> Result<(), String> {
    let mut seen = String::new();
    for _ in 0..ATTEMPTS {
        let (one, four) = (time(client, kind, kind.size).await, time(client, kind, kind.size * 4).await);
        println!("{}: {one:?}, {four:?} ({:.1})", kind.name, four.as_secs_f64() / one.as_secs_f64());
        if four < one.mul_f64(RATIO_MAX) || four < NOISE {
            return Ok(());
        }
        write!(seen, " {one:?} and {four:?};").expect("written");
    }
    Err(format!("{}:{seen}", kind.name))
}

async fn time(client: &mut WireClient, kind: &Kind, size: usize) -> Duration {
    succeed(client, "BEGIN").await;
    let ends = (kind.put)(client, size);
    let began_at = Instant::now();
    for _ in 0..ends {
        let answers = client.answers().await;
        assert_eq!(answers.last().map(|last| last.tag), Some(b'Z'), "{}: no answer within the client's patience", kind.name);
        let error = answers.iter().find(|message| message.tag == b'E');
        let is_expected = kind.name.contains("refused");
        assert_eq!(error.is_some(), is_expected, "{}: {}", kind.name, error.map(|error| error.describe()).unwrap_or_default());
    }
    let took = began_at.elapsed();
    succeed(client, "ROLLBACK").await;
    succeed(client, "DEALLOCATE ALL").await;
    took
}

fn query(client: &mut WireClient, sql: &str) -> usize {
    client.query(sql);
    1
}

/// Pieces of text, parted by this.
fn list(size: usize, separator: &str, piece: impl Fn(usize) -> String) -> String {
    (1..=size).map(piece).collect::<Vec<_>>().join(separator)
}

fn numbers(size: usize) -> Vec<String> {
    (1..=size).map(|number| number.to_string()).collect()
}

fn extended(client: &mut WireClient, sql: &str, parameters: &[String]) -> usize {
    let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
    client.unnamed(sql, &parameters).sync();
    1
}

fn in_parameters(client: &mut WireClient, size: usize) -> usize {
    let places = list(size, ",", |number| format!("${number}"));
    extended(client, &format!("SELECT count(*) FROM accounts WHERE id IN ({places})"), &numbers(size))
}

fn in_literals(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("SELECT count(*) FROM accounts WHERE id IN ({})", numbers(size).join(",")))
}

fn any_elements(client: &mut WireClient, size: usize) -> usize {
    let array = format!("{{{}}}", numbers(size).join(","));
    extended(client, "SELECT count(*) FROM accounts WHERE id = ANY($1::bigint[])", &[array])
}

fn or_conditions(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("SELECT count(*) FROM accounts WHERE {}", list(size, " OR ", |number| format!("id = {number}"))))
}

fn insert(into: &str, size: usize) -> String {
    let rows = list(size, ",", |number| format!("({number},'v{number}')"));
    format!("INSERT INTO {into} VALUES {rows} ON CONFLICT DO NOTHING")
}

fn insert_parameters(client: &mut WireClient, size: usize) -> usize {
    let rows = list(size, ",", |number| format!("(${},${})", number * 2 - 1, number * 2));
    let values: Vec<String> = (1..=size).flat_map(|number| [number.to_string(), format!("v{number}")]).collect();
    extended(client, &format!("INSERT INTO grown (id, v) VALUES {rows} ON CONFLICT DO NOTHING"), &values)
}

fn insert_refused(client: &mut WireClient, size: usize) -> usize {
    let rows = list(size, ",", |number| format!("({number},'v{number}')"));
    query(client, &format!("INSERT INTO numbered (k, v) VALUES {rows}, (1, nothing)"))
}

fn update_from_values(client: &mut WireClient, size: usize) -> usize {
    let rows = list(size, ",", |number| format!("({number},{number})"));
    query(client, &format!("UPDATE accounts SET balance = s.b FROM (VALUES {rows}) AS s (id, b) WHERE accounts.id = s.id"))
}

fn script_of_selects(client: &mut WireClient, size: usize) -> usize {
    query(client, &list(size, ";", |number| format!("SELECT owner FROM accounts WHERE id = {number}")))
}

fn script_of_inserts(client: &mut WireClient, size: usize) -> usize {
    query(client, &list(size, ";", |number| format!("INSERT INTO grown VALUES ({}, 'x')", 100_000 + number)))
}

fn script_for_one_shard(client: &mut WireClient, size: usize) -> usize {
    query(client, &list(size, ";", |_| "SELECT owner FROM accounts WHERE id = 1".to_owned()))
}

fn script_of_settings(client: &mut WireClient, size: usize) -> usize {
    query(client, &list(size, ";", |number| format!("SET LOCAL work_mem = {}", 1_000 + number)))
}

fn pipeline(client: &mut WireClient, size: usize) -> usize {
    client.parse("p", "SELECT owner FROM accounts WHERE id = $1::bigint");
    for number in 1..=size {
        client.bind("", "p", &[&number.to_string()]).execute("", 0);
    }
    client.sync();
    1
}

fn prepared(client: &mut WireClient, size: usize) -> usize {
    for number in 1..=size {
        client.parse(&format!("s{number}"), &format!("SELECT owner, {number} AS n{number} FROM accounts WHERE id = $1::bigint"));
        client.bind("", &format!("s{number}"), &["1"]).execute("", 0);
    }
    client.sync();
    1
}

fn savepoints(client: &mut WireClient, size: usize) -> usize {
    let pieces =
        list(size, ";", |number| format!("SAVEPOINT s{number}; UPDATE accounts SET balance = 1 WHERE id = {}", number % 90 + 1));
    query(client, &pieces)
}

fn columns(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("SELECT {} FROM accounts", list(size, ",", |number| format!("sum(balance + {number}) AS c{number}"))))
}

fn plain_columns(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("SELECT {} FROM accounts", list(size, ",", |number| format!("balance + {number} AS c{number}"))))
}

fn unions(client: &mut WireClient, size: usize) -> usize {
    query(client, &list(size, " UNION ALL ", |number| format!("SELECT count(*) FROM accounts WHERE balance > {number}")))
}

fn with_queries(client: &mut WireClient, size: usize) -> usize {
    let with = list(size, ", ", |number| format!("w{number} AS (SELECT count(*) AS n FROM accounts WHERE balance > {number})"));
    query(client, &format!("WITH {with} SELECT * FROM {}", list(size, ", ", |number| format!("w{number}"))))
}

fn gathered(client: &mut WireClient, size: usize) -> usize {
    let part = format!("(SELECT * FROM grown WHERE id <= {size})");
    query(client, &format!("SELECT count(*) FROM {part} a JOIN {part} b ON a.v = b.v AND a.id + 0 = b.id + 0"))
}

fn insert_select(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("INSERT INTO numbered (k, v) SELECT id + 1000000, v FROM grown WHERE id <= {size}"))
}

fn long_literal(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("SELECT length('{}') FROM accounts", "é".repeat(size / 2)))
}

fn long_comment(client: &mut WireClient, size: usize) -> usize {
    query(client, &format!("/* {} */ SELECT owner FROM accounts", "é ".repeat(size / 3)))
}

fn copy(client: &mut WireClient, size: usize) -> usize {
    client.query("COPY grown FROM STDIN");
    client.put(b'd', list(size, "\n", |number| format!("{}\tv{number}", 1_000_000 + number)).as_bytes());
    client.put(b'c', b"");
    1
}
