//! The protocol as PostgreSQL speaks it: scripts of messages, run on one plain PostgreSQL and on the proxy; every answer must be
//! the same, message by message, with its SQLSTATE, its text, its tag and its status.
//!
//! The scripts are `parity/*.txt`. A line that starts with `#` names a case by what it claims; each case is a connection of its
//! own. The lines of a case, where `_` stands for nothing and `|` parts fields:
//!
//! ```text
//! Q sql                     a Query, and its answer              q sql   the same, not waiting for the answer
//! P name|sql                Parse                                S       Sync, and the answer
//! B portal|name|value|…     Bind, all as text                    s       the same, not waiting
//! D S|name, D P|portal      Describe                             R       the answer to one Query or Sync
//! E portal|row limit        Execute                              H n     Flush, and n messages
//! C S|name, C P|portal      Close                                d text, c, f message   CopyData, CopyDone, CopyFail
//! M tag|hex                 any message, with this body
//! X                         Terminate, and whatever comes until the end
//! ```
//! `{a}`, `{b}`: ids of `accounts` on one shard, `{z}`: on another one.

use super::mixed::server_major;
use super::stage::Stage;
use crate::support::{ProxyOptions, WireClient};

#[tokio::test]
async fn messages_are_answered_as_by_one_postgresql() {
    // Two connections for each shard at a time: what a session leaves behind is met by the next one.
    let settings = [("pool.size_per_shard", "2".to_owned()), ("pool.late_joiner_share", "0.5".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    stage.create_plain().await;
    assert_same(&stage, FILES).await;
}

/// Tools send it as it stands there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_are_answered_as_by_one_postgresql() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    stage.create_plain().await;
    assert_same(&stage, &[("migrations.txt", include_str!("parity/migrations.txt"))]).await;
}

async fn assert_same(stage: &Stage, files: &[(&str, &str)]) {
    let mut failures = Vec::new();
    let major = server_major(&mut stage.plain_client().await).await;
    for (file, text) in files {
        // See there.
        let is_other = |case: &Case<'_>| major >= 18 && case.claim == "a simple query inside an open pipeline";
        for case in cases(text).into_iter().filter(|case| !is_other(case)) {
            let plain = run(stage.plain_client().await, stage, &case).await;
            let proxied = run(stage.client().await, stage, &case).await;
            if plain != proxied {
                let lines = plain.iter().zip(&proxied).filter(|(plain, proxied)| plain != proxied);
                let told: Vec<String> =
                    lines.map(|(plain, proxied)| format!("  PostgreSQL: {plain}\n  proxy:      {proxied}")).collect();
                failures.push(format!("{file}: {}\n{}", case.claim, told.join("\n")));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases differ\n{}", failures.len(), failures.join("\n"));
    stage.assert_log_is_clean();
}

struct Case<'a> {
    claim: &'a str,
    lines: Vec<&'a str>,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match (line.strip_prefix("# "), cases.last_mut()) {
            (Some(claim), _) => cases.push(Case { claim, lines: Vec::new() }),
            (None, Some(case)) => case.lines.push(line),
            (None, None) => panic!("a line before the first case: {line}"),
        }
    }
    cases
}

/// One line for each answer that was waited for.
async fn run(mut client: WireClient, stage: &Stage, case: &Case<'_>) -> Vec<String> {
    let mut told = Vec::new();
    for line in &case.lines {
        let line = stage.fill_in(line);
        let (operation, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let fields: Vec<&str> = rest.split('|').map(|field| if field == "_" { "" } else { field }).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        match operation {
            "Q" | "q" => client.query(rest),
            "P" => client.parse(field(0), field(1)),
            "B" => client.bind(field(0), field(1), fields.get(2..).unwrap_or_default()),
            "D" => client.describe(field(0).as_bytes()[0], field(1)),
            "E" => client.execute(field(0), field(1).parse().unwrap_or(0)),
            "C" => client.close(field(0).as_bytes()[0], field(1)),
            "S" | "s" => client.sync(),
            "H" => client.flush_message(),
            "d" => client.put(b'd', format!("{rest}\n").as_bytes()),
            "c" => client.put(b'c', b""),
            "f" => client.put(b'f', format!("{rest}\0").as_bytes()),
            "X" => client.put(b'X', b""),
            "M" => client.put(field(0).as_bytes()[0], &unhex(field(1))),
            "R" => &mut client,
            _ => panic!("{}: {line}", case.claim),
        };
        match operation {
            "Q" | "S" | "R" => told.push(format!("{line}: {}", client.transcript().await)),
            "H" => told.push(format!("{line}: {}", client.some(rest.parse().expect("a count")).await)),
            "X" => told.push(format!("{line}: {:?}", client.rest().await)),
            _ => {}
        }
        if told.last().is_some_and(|told| told.ends_with("nothing")) {
            break;
        }
    }
    told
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).expect("two digits")).collect()
}

const FILES: &[(&str, &str)] = &[
    ("simple.txt", include_str!("parity/simple.txt")),
    ("extended.txt", include_str!("parity/extended.txt")),
    ("transactions.txt", include_str!("parity/transactions.txt")),
    ("settings.txt", include_str!("parity/settings.txt")),
    ("copy.txt", include_str!("parity/copy.txt")),
];
