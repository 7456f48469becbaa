//! An open transaction holds tables exclusively: other definitions are made at once, through its proxy and through another one.

use super::redefined::{reader_of, until_at_work};
use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

/// What PostgreSQL prints under the lock of a table.
const DEFINED: &[&str] = &[
    "CREATE VIEW seen AS SELECT id, owner FROM accounts WHERE balance > 0",
    "CREATE VIEW noted AS SELECT n.id, n.text, c.name FROM notes n, currencies c",
    "CREATE INDEX by_upper ON accounts (upper(owner)) WHERE balance > 0",
    "ALTER TABLE notes ADD COLUMN twice int GENERATED ALWAYS AS (id * 2) STORED",
    "ALTER TABLE notes ADD CHECK (id <> 13)",
    "CREATE FUNCTION noted() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM notes; END",
    "CREATE POLICY reads ON notes USING (EXISTS (SELECT FROM currencies))",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_do_not_wait_for_open_transactions() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let other_proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (mut client, mut other) = (stage.client().await, WireClient::connect(other_proxy.address()).await);
    for definition in DEFINED {
        succeed(&mut client, definition).await;
    }
    // Both proxies know these before anything is held.
    assert_eq!(other.value("SELECT count(*) FROM seen").await, "90");
    let mut holder = stage.client().await;
    let mut made = 0;
    for change in [
        "ALTER TABLE notes ADD COLUMN later int",
        "ALTER TABLE accounts ADD COLUMN later int",
        "DROP TABLE notes CASCADE",
        "LOCK TABLE notes, currencies",
    ] {
        succeed(&mut holder, "BEGIN").await;
        succeed(&mut holder, change).await;
        for beside in [&mut client, &mut other] {
            made += 1;
            makes_a_table(beside, made, change).await;
        }
        // Its own change is under way, and so is somebody else's: what is not known is looked up anew.
        succeed(&mut client, "BEGIN; CREATE TABLE unseen (id int)").await;
        assert_eq!(holder.ask(&format!("CREATE TABLE own (id int CHECK (id > 0)); INSERT INTO own VALUES ({made})")).await, OWN);
        assert_eq!(holder.ask("SELECT count(*) FROM own").await, "T(count) D(1) C(SELECT 1) Z(T)", "{change}");
        succeed(&mut client, "ROLLBACK").await;
        succeed(&mut holder, "ROLLBACK").await;
    }
    a_committed_change_is_seen_beside_another(&stage, &mut client, &mut other).await;
    what_is_held_before_it_is_read_is_waited_for(&stage, &mut client, &mut other).await;
    a_proxy_begins_beside_an_open_transaction(&stage).await;
    stage.assert_log_is_clean();
}

const OWN: &str = "C(CREATE TABLE) C(INSERT 0 1) Z(T)";

async fn makes_a_table(client: &mut WireClient, number: usize, beside: &str) {
    let table = format!("made{number}");
    let told = client.ask(&format!("CREATE TABLE {table} (id int PRIMARY KEY, n int CHECK (n > 0))")).await;
    assert_eq!(told, "C(CREATE TABLE) Z(I)", "beside {beside}");
    assert_eq!(client.ask(&format!("CREATE VIEW {table}_view AS SELECT * FROM {table}")).await, "C(CREATE VIEW) Z(I)", "{beside}");
    assert_eq!(client.value(&format!("SELECT count(*) FROM {table}_view")).await, "0");
}

/// While one transaction holds `accounts`, what others commit about `notes` counts in both proxies, and so does its own in the end.
async fn a_committed_change_is_seen_beside_another(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    let mut holder = stage.client().await;
    succeed(&mut holder, "BEGIN").await;
    succeed(&mut holder, "ALTER TABLE accounts RENAME owner TO keeper").await;
    succeed(client, "INSERT INTO notes VALUES (1, 'x')").await;
    for (change, text, answer) in [
        ("ALTER TABLE notes RENAME text TO body", "SELECT count(body) FROM notes", "1"),
        ("CREATE OR REPLACE VIEW noted AS SELECT n.id, n.body AS text, c.name FROM notes n, currencies c WHERE false", NOTED, "0"),
        ("CREATE OR REPLACE VIEW noted AS SELECT n.id, n.body AS text, c.name FROM notes n, currencies c", NOTED, "2"),
    ] {
        succeed(client, change).await;
        for session in [&mut *client, &mut *other] {
            assert_eq!(session.value(text).await, answer, "{change}");
        }
    }
    assert_eq!(holder.ask("COMMIT").await, "C(COMMIT) Z(I)");
    for session in [client, other] {
        assert_eq!(session.value("SELECT count(keeper) FROM accounts").await, "90");
        assert_eq!(session.value("SELECT count(owner) FROM seen").await, "90");
    }
}

const NOTED: &str = "SELECT count(text) FROM noted";

/// The next one has the table as soon as the change is committed: the change is over, and so are others; who needs the new definitions
/// waits, as for the lock.
async fn what_is_held_before_it_is_read_is_waited_for(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    succeed(client, "BEGIN").await;
    succeed(client, "ALTER TABLE notes ADD COLUMN more int").await;
    let direct = stage.cluster.connect_shard(0).await;
    let locking = tokio::spawn(async move { direct.batch_execute("BEGIN; LOCK TABLE notes").await.map(|()| direct) });
    stage.until_waiting("LOCK TABLE").await;
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    let direct = locking.await.expect("no panic").expect("the lock");
    for session in [&mut *client, &mut *other] {
        assert_eq!(session.value("SELECT count(*) FROM currencies").await, "2");
        assert_eq!(session.value("SELECT count(*) FROM accounts").await, "90");
        assert_eq!(session.value("SELECT count(*) FROM seen").await, "90");
        succeed(session, "SET lock_timeout = '300ms'").await;
        assert_eq!(session.ask(NOTED).await, "E(55P03 canceling statement due to lock timeout) Z(I)");
        succeed(session, "RESET lock_timeout").await;
    }
    let mut reader = reader_of(&stage.proxy).await;
    reader.query(NOTED).flush().await;
    until_at_work(&stage.proxy).await;
    reader.cancel().await;
    assert_eq!(reader.transcript().await, "E(57014 canceling statement due to user request) Z(I)");
    // What a transaction has of its own others may wait for.
    succeed(client, &stage.fill_in("BEGIN; SELECT FROM accounts WHERE id = {a} FOR UPDATE")).await;
    let told = client.ask(NOTED).await;
    assert_eq!(told, "E(57P03 the definition of what this statement uses cannot be read) Z(E)");
    succeed(client, "ROLLBACK").await;
    for session in [&mut *client, &mut *other] {
        session.query(NOTED).flush().await;
    }
    stage.until_waiting("the definition").await;
    direct.batch_execute("ALTER TABLE notes RENAME more TO most; COMMIT").await.expect("commit");
    for session in [client, other] {
        assert_eq!(session.transcript().await, "T(count) D(2) C(SELECT 1) Z(I)");
        assert_eq!(session.ask("SELECT most FROM notes").await, "T(most) D(NULL) C(SELECT 1) Z(I)");
    }
}

/// Nothing has been read before.
async fn a_proxy_begins_beside_an_open_transaction(stage: &Stage) {
    let direct = stage.cluster.connect_shard(0).await;
    direct.batch_execute("BEGIN; LOCK TABLE notes").await.expect("locks");
    let proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = WireClient::connect(proxy.address()).await;
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
    assert_eq!(client.value("SELECT count(*) FROM seen").await, "90");
    makes_a_table(&mut client, 100, "a lock").await;
    client.query(NOTED).flush().await;
    stage.until_waiting("the definition").await;
    direct.batch_execute("COMMIT").await.expect("commit");
    assert_eq!(client.transcript().await, "T(count) D(2) C(SELECT 1) Z(I)");
}
