//! Where a second shard cannot be written it is refused there, by name, and nothing is half done.

use crate::sessions::Stage;
use crate::support::{Cluster, ProxyOptions, WireClient};

#[tokio::test]
async fn a_second_writing_shard_is_refused_where_the_settings_say_so() {
    let settings = vec![("cross_shard.writes", "refuse".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    refused_everywhere(&stage, "cross_shard.writes is \"refuse\"").await;
}

#[tokio::test]
async fn a_second_writing_shard_is_refused_where_shards_prepare_nothing() {
    let cluster = Cluster::start_with(2, &[("max_prepared_transactions", "0")]).await;
    let stage = Stage::on(cluster, ProxyOptions::default()).await;
    refused_everywhere(&stage, "max_prepared_transactions is 0").await;
}

#[tokio::test]
async fn levels_with_one_snapshot_are_refused_at_the_second_shard_unless_asked_for() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (one, other) = updates(&stage);
    let mut client = stage.client().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        assert_eq!(client.ask(&format!("BEGIN ISOLATION LEVEL {level}")).await, "C(BEGIN) Z(T)");
        assert_eq!(client.ask(&one).await, "C(UPDATE 1) Z(T)");
        assert!(client.ask(&other).await.starts_with("E(0A000 "));
        assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    }
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let (one, other) = updates(&stage);
    let mut client = stage.client().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        assert_eq!(
            client.ask(&format!("BEGIN ISOLATION LEVEL {level}; {one}; {other}; COMMIT")).await,
            "C(BEGIN) C(UPDATE 1) C(UPDATE 1) C(COMMIT) Z(I)"
        );
    }
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE balance = 1").await, "2");
}

/// Every shard would wait for a safe snapshot of its own.
#[tokio::test]
async fn a_safe_snapshot_is_of_one_shard() {
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    let read = |shard| format!("SELECT balance FROM accounts WHERE id = {}", stage.key(shard, 0));
    for begin in [
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
        "SET default_transaction_deferrable = on; BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    ] {
        for several in [
            read(1),
            "SELECT count(*) FROM accounts".to_owned(),
            "SELECT a.id FROM accounts a JOIN accounts b USING (owner)".to_owned(),
        ] {
            assert!(!client.ask(begin).await.contains("E("));
            assert_eq!(client.value(&read(0)).await, "100");
            let told = client.ask(&several).await;
            assert!(told.starts_with("E(0A000 ") && told.contains("DEFERRABLE"), "{begin}: {several}: {told}");
            assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
        }
    }
    assert!(!client.ask("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY NOT DEFERRABLE").await.contains("E("));
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
}

/// Each shard's rows come from the transaction's own connection there, and so do those of home tables.
#[tokio::test]
async fn gathered_rows_are_those_of_the_snapshots_where_each_shard_has_one() {
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let (one, other) = updates(&stage);
    let read = "SELECT count(*), sum(b.balance), (SELECT count(*) FROM notes) FROM accounts a JOIN accounts b ON b.owner = a.owner";
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (mut client, mut beside) = (stage.client().await, stage.client().await);
        let before = client.row(read).await;
        assert_eq!(client.ask(&format!("BEGIN ISOLATION LEVEL {level}")).await, "C(BEGIN) Z(T)");
        assert_eq!(client.row(read).await, before);
        for text in [one.as_str(), other.as_str(), "INSERT INTO notes SELECT coalesce(max(id), 0) + 1, 'beside' FROM notes"] {
            assert!(!beside.ask(text).await.contains("E("), "{text}");
        }
        assert_ne!(beside.row(read).await, before);
        assert_eq!(client.row(read).await, before);
        assert!(client.ask("INSERT INTO notes VALUES (1000, 'own')").await.starts_with("C(INSERT 0 1)"));
        assert_ne!(client.row(read).await, before);
        let told = client.ask("SELECT count(*) FROM accounts a, accounts b, pg_class c WHERE a.balance = b.id").await;
        assert!(told.starts_with("E(0A000 "), "{told}");
        assert_eq!(client.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
        assert_eq!(client.row(read).await, beside.row(read).await);
        for text in [one.as_str(), other.as_str()] {
            beside.ask(&text.replace("balance = 1", "balance = 100")).await;
        }
    }
    stage.assert_log_is_clean();
}

/// A role that may not take the one that owns prepared transactions is told which grant is missing.
#[tokio::test]
async fn a_user_without_the_role_is_told_what_to_grant() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (one, other) = updates(&stage);
    let mut client = stage.client().await;
    for text in ["GRANT SELECT, UPDATE ON accounts TO reader", "SET SESSION AUTHORIZATION reader"] {
        let told = client.ask(text).await;
        assert!(!told.contains("E("), "{told}");
    }
    assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    assert_eq!(client.ask(&one).await, "C(UPDATE 1) Z(T)");
    client.query(&other);
    let answers = client.answers().await;
    assert_eq!(answers[0].field(b'C'), "0A000");
    assert!(answers[0].field(b'H').contains("GRANT shardgate_2pc TO"), "{}", answers[0].field(b'H'));
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
}

fn updates(stage: &Stage) -> (String, String) {
    let update = |shard| format!("UPDATE accounts SET balance = 1 WHERE id = {}", stage.key(shard, 0));
    (update(0), update(1))
}

/// In whatever form the second shard would be written.
async fn refused_everywhere(stage: &Stage, why: &str) {
    let mut client = stage.client().await;
    let (one, other) = updates(stage);
    assert!(!client.ask(&format!("BEGIN; {one}")).await.contains("E("));
    client.query(&other);
    let answers = client.answers().await;
    assert_eq!(answers[0].field(b'C'), "0A000");
    assert!(answers[0].field(b'D').contains(why) && !answers[0].field(b'H').is_empty(), "{}", answers[0].field(b'D'));
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    for text in [
        format!("{one}; {other}"),
        "UPDATE accounts SET balance = 1".to_owned(),
        "INSERT INTO currencies VALUES ('X', 'x')".to_owned(),
    ] {
        let told = client.ask(&text).await;
        assert!(told.contains("E(0A000 ") && told.ends_with("Z(I)"), "{text}: {told}");
    }
    client.unnamed(&one, &[]).unnamed(&other, &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(0A000 ") && told.ends_with("Z(I)"), "{told}");
    client.unnamed("DELETE FROM accounts", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(0A000 ") && told.ends_with("Z(I)"), "{told}");
    assert!(client.ask("SELECT id FROM accounts WHERE balance <> 100").await.contains("C(SELECT 0)"));
    // Reading there is fine, and so is the second shard after a savepoint is undone.
    assert!(!client.ask(&format!("BEGIN; {one}; SAVEPOINT s")).await.contains("E("));
    assert!(client.ask(&other).await.starts_with("E(0A000 "));
    assert!(!client.ask("ROLLBACK TO s").await.contains("E("));
    let read = format!("SELECT balance FROM accounts WHERE id = {}", stage.key(1, 0));
    assert_eq!(client.value(&read).await, "100");
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    schema_changes_still_work(&mut client).await;
}

async fn schema_changes_still_work(client: &mut WireClient) {
    assert!(!client.ask("ALTER TABLE accounts ADD COLUMN colour text").await.contains("E("));
    assert!(!client.ask("SELECT colour FROM accounts").await.contains("E("));
}

/// Without commits over several shards a schema change is committed on one after the other, and where it ended is told.
#[tokio::test]
async fn a_schema_change_that_is_not_committed_on_every_shard_is_no_success() {
    let cluster = Cluster::start_with(3, &[("max_prepared_transactions", "0")]).await;
    let stage = Stage::on(cluster, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask("CREATE TABLE first (a int)").await, "C(CREATE TABLE) Z(I)");
    let direct = stage.cluster.connect_shard(1).await;
    direct.batch_execute(FAILS_AT_COMMIT).await.expect("a trigger that fails the commit");
    for changes in [&["CREATE TABLE second (a int)"][..], &["BEGIN", "CREATE TABLE third (a int)", "COMMIT"]] {
        let mut told = String::new();
        for text in changes {
            told = client.ask(text).await;
        }
        assert!(told.contains("N(01000 committed on shard0, failed on shard1, not on shard2: the shards differ now)"), "{told}");
        assert!(told.contains("E(P0001 not here)") && told.ends_with("Z(I)") && !told.contains("C("), "{told}");
    }
}

const FAILS_AT_COMMIT: &str = "
    CREATE TABLE seen (tag text);
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not here''; END';
    CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON seen DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail();
    CREATE FUNCTION see() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (tg_tag); END';
    CREATE EVENT TRIGGER see ON ddl_command_end EXECUTE FUNCTION see()";
