//! Messages in orders that few drivers send: both protocols without a Sync between them, where a Query is part of what came before it
//! and ends it; answers that are due when something fails; portals that are run again; function calls. Each case is held against one
//! PostgreSQL.

use super::Stage;
use crate::support::{ProxyOptions, WireClient};

type Case = fn(&mut WireClient, &dyn Fn(&str) -> String);

const CASES: &[(&str, Case)] = &[
    ("rows for a COPY that is refused, behind Flush", |client, _| {
        client.parse("described", "SELECT 1").describe(b'S', "described").flush_message();
        client.query("COPY nowhere FROM STDIN").put(b'd', b"1\n").put(b'c', b"");
    }),
    ("Query after Flush", |client, fill| {
        client.parse("flushed", &fill("SELECT balance FROM accounts WHERE id = {a}")).flush_message();
        client.query("SELECT count(*) FROM accounts").put(b'd', b"");
    }),
    ("Query after a Parse that is wrong", |client, _| {
        client.parse("wrong", "SELEC").query("SELECT 2").sync();
    }),
    ("Query after a Bind that is wrong", |client, _| {
        client.bind("", "nothing", &[]).query("SELECT 2").query("SELECT 3").sync();
    }),
    ("Query after an Execute that fails on a shard", |client, fill| {
        client.unnamed(&fill("SELECT 1 / (balance - 100) FROM accounts WHERE id = {a}"), &[]);
        client.query(&fill("SELECT 2 FROM accounts WHERE id = {a}")).query("SELECT 3").sync();
    }),
    ("a Parse, then a portal that is not there", |client, _| {
        client.parse("right", "SELECT 1").execute("nothing", 0).sync();
    }),
    ("a Parse that a shard finds wrong, then a portal that is not there", |client, fill| {
        client.parse("", &fill("SELECT nothing FROM accounts WHERE id = {a}")).describe(b'P', "nothing").sync();
    }),
    ("a Parse, then a portal that has run", |client, fill| {
        client
            .unnamed(&fill("UPDATE accounts SET balance = balance WHERE id = {a}"), &[])
            .parse("other", "SELECT 1")
            .execute("", 0)
            .sync();
    }),
    ("a name that is taken, for a text that is wrong", |client, _| {
        client.parse("taken", "SELECT 1").parse("taken", "SELEC").sync();
    }),
    ("a write of all shards that is executed twice", |client, _| {
        client.unnamed("UPDATE accounts SET balance = balance + 1000", &[]).execute("", 0).sync();
    }),
    ("BEGIN that is executed twice", |client, _| {
        client.unnamed("BEGIN", &[]).execute("", 0).sync().query("ROLLBACK");
    }),
    ("the unnamed statement after a Parse that was wrong", |client, _| {
        client.parse("", "SELECT 1").parse("", "SELEC").sync().bind("", "", &[]).execute("", 0).sync();
    }),
    ("function call after an error", |client, _| {
        client.parse("wrong", "SELEC").put(b'F', &[0; 10]).sync();
    }),
    ("a write, then a read of all shards", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]).flush_message();
        client.query("SELECT sum(balance) FROM accounts");
    }),
    ("a write, then an error elsewhere", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 10 WHERE id = {a}"), &[]);
        client.query(&fill("SELECT 1 / (balance - balance) FROM accounts WHERE id = {z}"));
    }),
    ("a write, then an error on all shards", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 10 WHERE id = {a}"), &[]);
        client.query("SELECT nothing FROM accounts");
    }),
    ("writes on two shards", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]);
        client.query(&fill("UPDATE accounts SET balance = balance + 2 WHERE id = {z}"));
    }),
    ("writes on two shards, the second one refused", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]);
        client.query(&fill("UPDATE accounts SET balance = -1 WHERE id = {z}"));
    }),
    ("a write, then a transaction block around both", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]);
        client.query("BEGIN").query("ROLLBACK");
    }),
    ("a write, then statements in one text", |client, fill| {
        client.unnamed(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]);
        client.query(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {z}; SELECT 1"));
    }),
    ("portals end", |client, _| {
        client.parse("", "SELECT 1").bind("kept", "", &[]).query("SELECT 2").execute("kept", 0).sync();
    }),
    ("inside a transaction block", |client, fill| {
        client.query("BEGIN").unnamed(&fill("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]);
        client.query("SELECT sum(balance) FROM accounts").query("ROLLBACK");
    }),
];

/// The error comes before the Query that is skipped because of it.
#[tokio::test]
async fn what_fails_while_nobody_waits_is_skipped_up_to_sync() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for text in ["SELECT nothing", "SELECT nothing FROM accounts WHERE id = {a}"] {
        client.unnamed(&stage.fill_in(text), &[]);
        assert!(client.some(1).await.starts_with("E(42703 "), "{text}");
        client.query("SELECT 2").unnamed("SELECT 3", &[]).sync();
        assert_eq!(client.transcript().await, "Z(I)", "{text}");
        assert_eq!(client.value("SELECT 4").await, "4");
    }
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn a_query_ends_the_pipeline_before_it_as_in_one_postgresql() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let (mut plain, mut client) = (stage.plain_client().await, stage.client().await);
    if server_major(&mut plain).await >= 18 {
        // There a Query in an open pipeline leaves the pipeline's transaction open, up to the Sync. The proxy ends it, as before.
        case_ends_with_the_query(&stage, &mut client).await;
        return;
    }
    for (name, case) in CASES {
        let fill = |text: &str| stage.fill_in(text);
        let mut told = Vec::new();
        for client in [&mut plain, &mut client] {
            case(client, &fill);
            // Nothing more is sent before the first answers are here.
            let mut all = client.transcript().await;
            client.sync().query("SELECT 'end', sum(balance) FROM accounts");
            while !all.contains("D(end,") {
                all = format!("{all} {}", client.transcript().await);
            }
            told.push(all);
        }
        assert_eq!(told[1], told[0], "{name}");
    }
    stage.assert_log_is_clean();
}

/// As libpq and pgjdbc read and write large objects: messages that name a function by its number. In a transaction that also reads and writes
/// several shards, in a pipeline, in both formats, and with errors.
#[tokio::test]
async fn large_objects_are_read_and_written_by_function_calls() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let mut told = Vec::new();
    let (mut plain, mut client) = (stage.plain_client().await, stage.client().await);
    // From 18 on a call in an open pipeline leaves its transaction open, up to the Sync; the proxy ends it, as for a Query.
    let ends_a_pipeline = server_major(&mut plain).await < 18;
    for client in [&mut plain, &mut client] {
        let mut answers = Vec::new();
        for message in LARGE_OBJECT_CALLS {
            if matches!(message, Sent::Pipelined(_)) && !ends_a_pipeline {
                continue;
            }
            match message {
                Sent::Query(text) => drop(client.query(&stage.fill_in(text))),
                Sent::Pipelined(text) => drop(client.unnamed(&stage.fill_in(text), &[])),
                Sent::Call(function, format, arguments) => drop(client.put(b'F', &function_call(*function, *format, arguments))),
            }
            if !matches!(message, Sent::Pipelined(_)) {
                let all = client.answers().await;
                let shown = all.iter().filter(|message| message.tag != b'S');
                answers.push(
                    shown
                        .map(|message| if message.tag == b'V' { format!("{:?}", message.body) } else { message.describe() })
                        .collect::<Vec<_>>(),
                );
            }
        }
        told.push(answers);
    }
    assert_eq!(told[1], told[0]);
    assert_eq!(told[0].iter().flatten().filter(|answer| answer.contains("E(")).count(), 3, "{:?}", told[0]);
    stage.assert_log_is_clean();
}

enum Sent {
    Query(&'static str),
    /// Without a Sync.
    Pipelined(&'static str),
    /// The function, the format of everything, and the arguments.
    Call(u32, i16, &'static [&'static [u8]]),
}

const LARGE_OBJECT_CALLS: &[Sent] = &[
    Sent::Query("BEGIN"),
    Sent::Query("UPDATE accounts SET balance = balance + 1"),
    Sent::Call(715, 1, &[&[0, 1, 0, 7]]),                // lo_create
    Sent::Call(952, 1, &[&[0, 1, 0, 7], &[0, 6, 0, 0]]), // lo_open
    Sent::Call(955, 1, &[&[0, 0, 0, 0], b"\0'x\xff\\"]), // lowrite
    Sent::Query("SELECT count(*) FROM accounts"),
    Sent::Call(956, 1, &[&[0, 0, 0, 0], &[0, 0, 0, 1], &[0, 0, 0, 0]]), // lo_lseek
    Sent::Call(954, 1, &[&[0, 0, 0, 0], &[0, 0, 1, 0]]),                // loread
    Sent::Call(954, 1, &[&[0, 0, 0, 0], &[0, 0, 1, 0]]),
    Sent::Call(956, 0, &[b"0", b"0", b"0"]),
    Sent::Call(954, 0, &[b"0", b"3"]),
    Sent::Call(3171, 0, &[b"0"]),                                     // lo_tell64
    Sent::Call(3172, 1, &[&[0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 2]]), // lo_truncate64
    Sent::Query("SAVEPOINT s"),
    Sent::Call(952, 0, &[b"4000000000", b"262144"]),
    Sent::Call(953, 0, &[b"0"]),
    Sent::Query("ROLLBACK TO s"),
    Sent::Call(953, 1, &[&[0, 0, 0, 0]]), // lo_close
    Sent::Query("COMMIT"),
    Sent::Query("SELECT lo_get(65543)"),
    Sent::Pipelined("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"),
    Sent::Call(964, 1, &[&[0, 1, 0, 7]]), // lo_unlink
    Sent::Call(964, 1, &[&[0, 1, 0, 7]]),
];

fn function_call(function: u32, format: i16, arguments: &[&[u8]]) -> Vec<u8> {
    let mut body = [&function.to_be_bytes()[..], &1_i16.to_be_bytes(), &format.to_be_bytes()].concat();
    body.extend(u16::try_from(arguments.len()).expect("few").to_be_bytes());
    for argument in arguments {
        body.extend(u32::try_from(argument.len()).expect("short").to_be_bytes());
        body.extend_from_slice(argument);
    }
    body.extend(format.to_be_bytes());
    body
}

async fn case_ends_with_the_query(stage: &Stage, client: &mut WireClient) {
    client.unnamed(&stage.fill_in("UPDATE accounts SET balance = balance + 1 WHERE id = {a}"), &[]).query("SELECT 2");
    let told = client.transcript().await;
    assert!(told.ends_with("C(UPDATE 1) T(?column?) D(2) C(SELECT 1) Z(I)"), "{told}");
    stage.assert_log_is_clean();
}

pub async fn server_major(plain: &mut WireClient) -> i32 {
    plain.value("SELECT current_setting('server_version_num')::int / 10000").await.parse().expect("a number")
}
