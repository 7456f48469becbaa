//! Statements far behind the beginning of a long text: each road takes them, and errors and notices have PostgreSQL's positions.
//!
//! Compared with plain PostgreSQL. The statements stand behind 70,000 characters: more than 16 bits count.

use super::stage::Stage;
use crate::support::{ProxyOptions, WireClient};

/// `{pad}`: a long comment with a character of several bytes.
const CASES: &[&str] = &[
    // One statement.
    "{pad} SELECT owner FROM accounts WHERE id = {a}",
    "{pad} SELECT nothing FROM accounts WHERE id = {a}",
    "{pad} SELECT nothing FROM accounts",
    "{pad} SELECT count(*) FROM accounts a JOIN accounts b ON a.owner < nothing",
    "{pad} UPDATE accounts SET balance = nothing",
    "{pad} INSERT INTO accounts VALUES ({a}, 'x', nothing), ({z}, 'x', 1)",
    "{pad} EXPLAIN SELECT nothing FROM accounts",
    "{pad} PREPARE p AS SELECT nothing FROM accounts",
    "{pad} CREATE TABLE late (n nothing)",
    "{pad} COPY (SELECT nothing FROM accounts) TO STDOUT",
    "{pad} SELECT 1; {pad} SELECT nothing",
    // One of several, of which the others are for other shards.
    "UPDATE accounts SET balance = 7 WHERE id = {a}; {pad} UPDATE accounts SET balance = 8 WHERE id = {z}; SELECT balance FROM accounts WHERE id IN ({a}, {z}) ORDER BY 1",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} SELECT nothing FROM accounts WHERE id = {z}",
    "SELECT owner FROM accounts WHERE id = {a};;/* a */;{pad} SELECT /* é */ nothing FROM accounts",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} SELECT count(*) FROM accounts a JOIN accounts b ON a.owner < nothing",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} UPDATE accounts SET balance = nothing",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} UPDATE accounts SET balance = balance - 1000",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} INSERT INTO accounts VALUES ({a}, 'x', nothing), ({z}, 'x', 1)",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} EXPLAIN SELECT nothing FROM accounts",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} PREPARE p AS SELECT nothing FROM accounts",
    "PREPARE p AS SELECT $1::int; {pad} EXECUTE p('seven')",
    "PREPARE q AS SELECT owner FROM accounts WHERE id = $1; {pad} EXECUTE q({z})",
    "BEGIN; {pad} DECLARE c CURSOR FOR SELECT nothing FROM accounts",
    "BEGIN; {pad} DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id; {pad} FETCH 2 FROM c; COMMIT",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} COPY (SELECT nothing FROM accounts) TO STDOUT",
    "CREATE TABLE one (n int); {pad} CREATE TABLE two (n nothing)",
    "CREATE TABLE one (n int); {pad} SELECT nothing FROM one; CREATE TABLE two (n int)",
    "CREATE TABLE one (n int); {pad} INSERT INTO one VALUES (1); SELECT n FROM one; DROP TABLE one; {pad} SELECT n FROM one",
    "CREATE SCHEMA s; SET search_path = s; CREATE TABLE here (n int); {pad} SELECT n, nothing FROM here",
    "SELECT nextval('numbers') > 0; {pad} SELECT nextval('numbers') > 0, nothing FROM accounts WHERE id = {a}",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} SET work_mem = 'nonsense'",
    "SELECT owner FROM accounts WHERE id = {a}; {pad} SELECT 'x'::nothing, owner FROM accounts WHERE id = {z}",
    // A warning with a position.
    "SET plpgsql.extra_warnings = 'shadowed_variables'; {pad} CREATE FUNCTION f(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN RETURN n; END $$; DROP FUNCTION f(int)",
];

#[tokio::test]
async fn statements_behind_many_characters_are_run_and_told_in_their_place() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let pad = format!("/* {} é */", "x".repeat(70_000));
    let (mut ours, mut plain) = (stage.client().await, stage.plain_client().await);
    for client in [&mut ours, &mut plain] {
        super::succeed(client, "CREATE SEQUENCE numbers").await;
    }
    for case in CASES {
        let text = stage.fill_in(case).replace("{pad}", &pad);
        let (told, expected) = (told(&mut ours, &text).await, told(&mut plain, &text).await);
        assert_eq!(told, expected, "{case}");
        for client in [&mut ours, &mut plain] {
            client.ask("ROLLBACK").await;
            client.ask("RESET search_path; DEALLOCATE ALL; DROP SCHEMA IF EXISTS s CASCADE").await;
        }
    }
    stage.assert_log_is_clean();
}

/// The transcript, with the positions of errors and notices.
async fn told(client: &mut WireClient, text: &str) -> String {
    client.query(text);
    let answers = client.answers().await;
    let is_news = |tag: u8| !matches!(tag, b'S' | b'T');
    let told = answers.iter().filter(|message| is_news(message.tag)).map(|message| match message.tag {
        b'E' | b'N' => format!("{} at {}", message.describe(), message.field(b'P')),
        _ => message.describe(),
    });
    told.collect::<Vec<_>>().join(" ")
}
