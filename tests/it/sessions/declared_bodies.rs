//! What is declared of a function counts for the function that was there then, and for no other one of its name.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

const DECLARE: &str = "SELECT shardgate.declare_function('set_all', writes => '{accounts}', key_argument => 1)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_counts_for_the_function_that_was_declared() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let key = stage.key(1, 0);
    let of_one_key = |verb: &str| {
        format!(
            "{verb} FUNCTION set_all(k bigint) RETURNS bigint LANGUAGE plpgsql AS \
             $$DECLARE n bigint; BEGIN EXECUTE 'UPDATE accounts SET balance = 1 WHERE id = $1' USING k; GET DIAGNOSTICS n = ROW_COUNT; RETURN n; END$$"
        )
    };
    let of_all_rows = "CREATE OR REPLACE FUNCTION set_all(k bigint) RETURNS bigint LANGUAGE plpgsql AS \
                       $$DECLARE n bigint; BEGIN EXECUTE 'UPDATE accounts SET balance = 0'; GET DIAGNOSTICS n = ROW_COUNT; RETURN n; END$$";
    let call = format!("SELECT set_all({key})");
    succeed(&mut client, &of_one_key("CREATE")).await;
    succeed(&mut client, DECLARE).await;
    assert_eq!(client.value(&call).await, "1");
    // The same again is the same.
    succeed(&mut client, &of_one_key("CREATE OR REPLACE")).await;
    assert_eq!(client.value(&call).await, "1");
    // Another one of the name.
    succeed(
        &mut client,
        "CREATE FUNCTION set_all(low bigint, high bigint) RETURNS bigint LANGUAGE plpgsql AS \
         $$DECLARE n bigint; BEGIN EXECUTE 'SELECT count(*) FROM accounts' INTO n; RETURN n; END$$",
    )
    .await;
    refused(&mut client, &format!("SELECT set_all({key}, {key})")).await;
    assert_eq!(client.value(&call).await, "1");
    succeed(&mut client, "DROP FUNCTION set_all(bigint, bigint)").await;
    // One that has replaced it, has come in its place, or has other settings.
    succeed(&mut client, of_all_rows).await;
    refused(&mut client, &call).await;
    succeed(&mut client, "DROP FUNCTION set_all(bigint)").await;
    succeed(&mut client, &of_all_rows.replace("k bigint", "k integer")).await;
    refused(&mut client, "SELECT set_all(7)").await;
    succeed(&mut client, "DROP FUNCTION set_all(integer)").await;
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE balance = 0").await, "0");
    succeed(&mut client, &of_one_key("CREATE")).await;
    assert_eq!(client.value(&call).await, "1");
    succeed(&mut client, "ALTER FUNCTION set_all(bigint) SET search_path = pg_catalog").await;
    refused(&mut client, &call).await;
    succeed(&mut client, "ALTER FUNCTION set_all(bigint) RESET search_path").await;
    assert_eq!(client.value(&call).await, "1");
    renamed(&mut client, key).await;
    stage.assert_log_is_clean();
}

/// A table that the body names gets another name: the function is what it was.
async fn renamed(client: &mut WireClient, key: i64) {
    for statement in [
        "CREATE FUNCTION owned(k bigint) RETURNS text LANGUAGE sql BEGIN ATOMIC SELECT owner FROM accounts WHERE id = k + 0; END",
        "SELECT shardgate.declare_function('owned', reads => '{accounts}', key_argument => 1)",
        "ALTER TABLE accounts RENAME TO people",
    ] {
        succeed(client, statement).await;
    }
    assert_eq!(client.value(&format!("SELECT owned({key})")).await, format!("o{key}"));
}

/// With the declaration ready to be run again.
async fn refused(client: &mut WireClient, call: &str) {
    client.query(call);
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').unwrap_or_else(|| panic!("{call} is not refused"));
    assert_eq!(error.field(b'C'), "0A000", "{call}");
    let hint = error.field(b'H');
    assert!(
        hint.ends_with("SELECT shardgate.declare_function('public.set_all', writes => '{public.accounts}', key_argument => 1);"),
        "{hint}"
    );
}

/// What is declared of a function is also said of those that it calls, and cannot be said against what its body shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_ends_with_what_its_function_calls() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in [
        "CREATE FUNCTION \"Helper\"(k bigint) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM 1; END'",
        "CREATE FUNCTION audits() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE 'SELECT 1'; PERFORM \"Helper\"(NEW.id); RETURN NEW; END$$",
        "SELECT shardgate.declare_function('audits')",
        "CREATE TRIGGER audits AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION audits()",
        "UPDATE accounts SET balance = 1",
    ] {
        succeed(&mut client, statement).await;
    }
    let at_home = "CREATE OR REPLACE FUNCTION \"Helper\"(k bigint) RETURNS void LANGUAGE plpgsql AS \
                   $$BEGIN INSERT INTO notes VALUES (k, 'x'); END$$";
    let told = client.ask(at_home).await;
    assert!(told.contains("this body of function \"Helper\" would stop UPDATE on sharded table \"accounts\""), "{told}");
    for statement in ["ALTER TABLE accounts DISABLE TRIGGER audits", at_home, "ALTER TABLE accounts ENABLE TRIGGER audits"] {
        succeed(&mut client, statement).await;
    }
    let told = client.ask("UPDATE accounts SET balance = 2").await;
    assert!(told.starts_with("E(0A000 "), "{told}");
    for (body, why) in [
        ("INSERT INTO notes VALUES (1, 'x')", "It writes the home table \"notes\""),
        ("PERFORM nextval('numbers')", "It draws from sequence \"numbers\""),
    ] {
        succeed(&mut client, "CREATE SEQUENCE IF NOT EXISTS numbers").await;
        let function = format!("CREATE OR REPLACE FUNCTION jots() RETURNS void LANGUAGE plpgsql AS $$BEGIN {body}; END$$");
        succeed(&mut client, &function).await;
        client.query("SELECT shardgate.declare_function('jots')");
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
        assert!(error.field(b'D').starts_with(why), "{}", error.field(b'D'));
    }
    // A trigger that is disabled is no part of a write, nor its condition.
    for statement in [
        "DROP TRIGGER audits ON accounts",
        "CREATE FUNCTION notes() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$",
        "CREATE TRIGGER kept AFTER UPDATE ON accounts FOR EACH ROW WHEN (NEW.balance < 0) EXECUTE FUNCTION notes()",
        "ALTER TABLE accounts DISABLE TRIGGER kept",
        "CREATE OR REPLACE FUNCTION notes() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO notes VALUES (NEW.id, 'x'); RETURN NEW; END$$",
        "UPDATE accounts SET balance = 3",
    ] {
        succeed(&mut client, statement).await;
    }
    // A body that PostgreSQL keeps as a tree names its arguments by its own name.
    let key = stage.key(1, 0);
    succeed(
        &mut client,
        "CREATE FUNCTION owner_of(a bigint) RETURNS text LANGUAGE sql BEGIN ATOMIC SELECT owner FROM accounts WHERE id = a; END",
    )
    .await;
    assert_eq!(client.value(&format!("SELECT owner_of({key})")).await, format!("o{key}"));
    stage.assert_log_is_clean();
}
