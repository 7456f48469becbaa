//! What a transaction has defined itself: the proxy knows where its rows are when it is committed, and until then says so.

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_not_answered_by_what_its_definitions_meant_before() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE VIEW few AS SELECT id::bigint AS id, 'x'::text AS body FROM notes").await;
    succeed(&mut client, "CREATE FUNCTION one() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'").await;
    for (change, asked) in [
        ("CREATE VIEW every AS SELECT * FROM accounts", "SELECT count(*) FROM every"),
        ("CREATE OR REPLACE VIEW few AS SELECT id, owner AS body FROM accounts", "SELECT count(*) FROM few"),
        ("CREATE VIEW every AS SELECT * FROM accounts", "UPDATE every SET balance = 0"),
        ("CREATE FUNCTION total() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM accounts'", "SELECT total()"),
        ("CREATE OR REPLACE FUNCTION one() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM accounts'", "SELECT one()"),
        ("CREATE TABLE child () INHERITS (accounts)", "INSERT INTO child VALUES (1000, 'x', 1)"),
        ("ALTER TABLE currencies ALTER name SET DEFAULT random()::text", "INSERT INTO currencies VALUES ('XXX')"),
        (
            "CREATE RULE r AS ON INSERT TO accounts DO ALSO INSERT INTO notes VALUES (new.id, 'x')",
            "INSERT INTO accounts VALUES (1001)",
        ),
        ("DO $$ BEGIN CREATE VIEW every AS SELECT * FROM accounts; END $$", "SELECT count(*) FROM every"),
    ] {
        let refused = "E(0A000 a statement cannot use what its own transaction has defined) Z(E)";
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, change).await;
        assert_eq!(client.ask(asked).await, refused, "{change}");
        succeed(&mut client, "ROLLBACK").await;
        let told = client.ask(&format!("{change}; {asked}")).await;
        assert!(told.contains("E(0A000 ") && told.ends_with("Z(I)"), "in one message: {change}: {told}");
    }
    // A pipeline is one transaction, too.
    client.unnamed("CREATE VIEW piped AS SELECT * FROM accounts", &[]).unnamed("SELECT count(*) FROM piped", &[]).sync();
    let told = client.transcript().await;
    assert!(told.starts_with("1 2 C(CREATE VIEW) 1 E(0A000 a statement cannot use what its own"), "{told}");
    assert!(told.ends_with("Z(I)"), "{told}");
    assert!(client.ask("SELECT count(*) FROM piped").await.starts_with("E(42P01 "));
    client.unnamed("CREATE VIEW piped AS SELECT * FROM accounts", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(CREATE VIEW) Z(I)");
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
