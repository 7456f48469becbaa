//! What a transaction has defined itself is what its later statements mean, and nobody else's.

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_answered_by_what_it_has_defined() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE VIEW few AS SELECT id::bigint AS id, 'x'::text AS body FROM notes").await;
    succeed(&mut client, "CREATE FUNCTION one() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'").await;
    let not_proven = "E(0A000 ";
    for (change, asked, answer) in [
        ("CREATE VIEW every AS SELECT * FROM accounts", "SELECT count(*) FROM every", "T(count) D(90) C(SELECT 1) Z("),
        (
            "CREATE OR REPLACE VIEW few AS SELECT id, owner AS body FROM accounts",
            "SELECT count(*) FROM few",
            "T(count) D(90) C(SELECT 1) Z(",
        ),
        ("CREATE VIEW every AS SELECT * FROM accounts", "UPDATE every SET balance = 0", "C(UPDATE 90) Z("),
        ("CREATE FUNCTION total() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM accounts'", "SELECT total()", not_proven),
        (
            "CREATE OR REPLACE FUNCTION one() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM accounts'",
            "SELECT one()",
            not_proven,
        ),
        ("CREATE TABLE child () INHERITS (accounts)", "INSERT INTO child VALUES (1000, 'x', 1)", "C(INSERT 0 1) Z("),
        (
            "ALTER TABLE currencies ALTER name SET DEFAULT random()::text",
            "INSERT INTO currencies VALUES ('XXX')",
            "C(INSERT 0 1) Z(",
        ),
        (
            "DO $$ BEGIN CREATE VIEW every AS SELECT * FROM accounts; END $$",
            "SELECT count(*) FROM every",
            "T(count) D(90) C(SELECT 1) Z(",
        ),
    ] {
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, change).await;
        let told = client.ask(asked).await;
        assert!(told.starts_with(answer), "{change}: {told}");
        succeed(&mut client, "ROLLBACK").await;
        // In one message, which ends as it began: with an error, so that nothing stays.
        let told = client.ask(&format!("{change}; {asked}; SELECT 1 / 0")).await;
        let answer = answer.trim_end_matches("Z(");
        assert!(told.contains(answer) && told.contains("E(") && told.ends_with("Z(I)"), "in one message: {change}: {told}");
    }
    // A pipeline is one transaction, too.
    client.unnamed("CREATE VIEW piped AS SELECT * FROM accounts", &[]).unnamed("SELECT count(*) FROM piped", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(CREATE VIEW) 1 2 D(90) C(SELECT 1) Z(I)");
    assert_eq!(client.value("SELECT count(*) FROM piped").await, "90");
    // What is undone counts no more, nor does what others are about.
    succeed(&mut client, "BEGIN; SAVEPOINT s; CREATE OR REPLACE VIEW few AS SELECT id, owner AS body FROM accounts; ROLLBACK TO s")
        .await;
    assert_eq!(client.value("SELECT count(*) FROM few").await, "0");
    for statement in
        ["CREATE VIEW every AS SELECT * FROM accounts", "COMMENT ON VIEW every IS 'all'", "GRANT SELECT ON every TO reader"]
    {
        succeed(&mut client, statement).await;
    }
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
    succeed(
        &mut client,
        "CREATE TABLE fresh (id int PRIMARY KEY); INSERT INTO fresh VALUES (1); INSERT INTO notes VALUES (1, 'x')",
    )
    .await;
    succeed(&mut client, "COMMIT").await;
    assert_eq!(client.value("SELECT count(*) FROM every").await, "90");
    stage.assert_log_is_clean();
}
