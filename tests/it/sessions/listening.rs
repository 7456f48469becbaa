//! Notifications: triggers send them on the shard of their row, and who listens, through whichever proxy, hears each once.

use std::time::Duration;

use super::stage::{Stage, succeed};
use crate::support::{Message, Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_hears_every_shard_once() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    create_trigger(&stage).await;
    let (mut teller, mut listener) = (stage.client().await, stage.client().await);
    let mut beside = WireClient::connect(second.address()).await;
    for client in [&mut listener, &mut beside] {
        succeed(client, "LISTEN changed").await;
    }
    rows_of_every_shard(&stage, &mut teller, &mut [&mut listener, &mut beside]).await;
    own_notifications_come_with_the_answer(&stage, &mut listener, &mut beside).await;
    transactions_of_the_listener(&stage, &mut teller, &mut listener).await;
    listening_is_undone_with_its_transaction(&stage, &mut teller).await;
    own_notifications_of_the_same_transaction(&stage).await;
    transactions_over_several_shards(&stage).await;
    silence(&stage, &mut teller, listener).await;
    stage.assert_log_is_clean();
}

async fn create_trigger(stage: &Stage) {
    let mut client = stage.client().await;
    for statement in [
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('changed', NEW.id::text); RETURN NULL; END $$",
        "CREATE TRIGGER tell AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION tell()",
    ] {
        succeed(&mut client, statement).await;
    }
}

fn touch(stage: &Stage, key: &str) -> String {
    stage.fill_in(&format!("UPDATE accounts SET owner = owner WHERE id = {key}"))
}

/// Channel and payload.
fn told(message: &Message) -> (String, String) {
    assert_eq!(message.tag, b'A', "{}", message.describe());
    let text = String::from_utf8_lossy(&message.body[4..]).into_owned();
    let mut fields = text.split('\0').map(str::to_owned);
    (fields.next().expect("a channel"), fields.next().expect("a payload"))
}

async fn payload(client: &mut WireClient) -> String {
    let message = client.next_within(Duration::from_secs(10)).await.expect("a notification");
    told(&message).1
}

/// Whatever was sent before is here: a notification of the home shard's and of the other one's own, and nothing else.
async fn assert_nothing_more(stage: &Stage, teller: &mut WireClient, client: &mut WireClient) {
    for key in ["{b}", "{y}"] {
        succeed(teller, &touch(stage, key)).await;
        assert_eq!(payload(client).await, stage.fill_in(key));
    }
}

async fn rows_of_every_shard(stage: &Stage, teller: &mut WireClient, listeners: &mut [&mut WireClient]) {
    for key in ["{a}", "{z}", "{y}", "{b}"] {
        succeed(teller, &touch(stage, key)).await;
        for listener in listeners.iter_mut() {
            assert_eq!(payload(listener).await, stage.fill_in(key));
        }
    }
    for statement in ["NOTIFY changed, 'by hand'", "SELECT pg_notify('changed', 'by hand')"] {
        succeed(teller, statement).await;
        for listener in listeners.iter_mut() {
            assert_eq!(payload(listener).await, "by hand");
        }
    }
    succeed(teller, "NOTIFY others, 'unheard'").await;
    for key in ["{b}", "{y}"] {
        succeed(teller, &touch(stage, key)).await;
        for listener in listeners.iter_mut() {
            assert_eq!(payload(listener).await, stage.fill_in(key));
        }
    }
}

/// As from PostgreSQL: after the statement that sent it, before the client may go on.
async fn own_notifications_come_with_the_answer(stage: &Stage, listener: &mut WireClient, beside: &mut WireClient) {
    for key in ["{a}", "{z}"] {
        assert_eq!(listener.ask(&touch(stage, key)).await, "C(UPDATE 1) A Z(I)");
        assert_eq!(payload(beside).await, stage.fill_in(key));
    }
    assert_eq!(listener.ask("NOTIFY changed").await, "C(NOTIFY) A Z(I)");
    assert_eq!(payload(beside).await, "");
    listener.unnamed(&touch(stage, "{z}"), &[]).sync();
    let answer = listener.transcript().await;
    assert!(answer.ends_with("C(UPDATE 1) A Z(I)"), "{answer}");
    assert_eq!(payload(beside).await, stage.fill_in("{z}"));
}

async fn transactions_of_the_listener(stage: &Stage, teller: &mut WireClient, listener: &mut WireClient) {
    succeed(listener, &stage.fill_in("BEGIN; SELECT owner FROM accounts WHERE id = {a}")).await;
    for key in ["{z}", "{a}"] {
        succeed(teller, &touch(stage, key)).await;
    }
    for key in ["{a}", "{z}"] {
        let answer = listener.ask(&stage.fill_in(&format!("SELECT id FROM accounts WHERE id = {key}"))).await;
        assert!(!answer.contains('A'), "within the transaction: {answer}");
    }
    listener.query("COMMIT");
    let mut heard = Vec::new();
    let answers = listener.answers().await;
    heard.extend(answers.iter().filter(|message| message.tag == b'A').map(|message| told(message).1));
    while heard.len() < 2 {
        heard.push(payload(listener).await);
    }
    heard.sort();
    let mut expected = [stage.fill_in("{a}"), stage.fill_in("{z}")];
    expected.sort();
    assert_eq!(heard, expected);
    assert_nothing_more(stage, teller, listener).await;
}

/// LISTEN counts from its commit on, and not when it is rolled back; so with savepoints, pipelines and several statements.
async fn listening_is_undone_with_its_transaction(stage: &Stage, teller: &mut WireClient) {
    let mut client = stage.client().await;
    const LISTENING: &str = "SELECT coalesce(string_agg(c, ',' ORDER BY c), '') FROM pg_listening_channels() c";
    for (statements, channels) in [
        ("LISTEN one; ROLLBACK", ""),
        ("BEGIN; SAVEPOINT s; LISTEN one; ROLLBACK TO s; LISTEN two; COMMIT", "two"),
        ("BEGIN; SAVEPOINT s; LISTEN changed; RELEASE s; UNLISTEN two; COMMIT", "changed"),
        ("BEGIN; UNLISTEN *; ROLLBACK", "changed"),
        ("LISTEN \"Two Words\"; SELECT 1", "Two Words,changed"),
        ("UNLISTEN \"Two Words\"", "changed"),
    ] {
        succeed(&mut client, statements).await;
        assert_eq!(client.value(LISTENING).await, channels, "{statements}");
    }
    assert!(client.ask("LISTEN three; SELECT 1/0").await.contains("E(22012 "));
    client.unnamed("LISTEN three", &[]).unnamed("SELECT 1/0", &[]).sync();
    assert!(client.transcript().await.contains("E(22012 "));
    assert_eq!(client.value(LISTENING).await, "changed");
    client.unnamed("LISTEN three", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(LISTEN) Z(I)");
    assert_eq!(client.value(LISTENING).await, "changed,three");
    assert_nothing_more(stage, teller, &mut client).await;
    // In the middle of a write on several shards, which can be prepared all the same.
    let mut other = stage.client().await;
    let delete = |key| stage.fill_in(&format!("DELETE FROM accounts WHERE id = {key}; "));
    succeed(&mut other, &format!("BEGIN; {}LISTEN changed; {}COMMIT", delete("{c}"), delete("-1"))).await;
    assert_nothing_more(stage, teller, &mut other).await;
    succeed(&mut other, "DISCARD ALL").await;
    assert_eq!(other.value(LISTENING).await, "");
    succeed(&mut client, "RESET ALL").await;
}

/// As in PostgreSQL: LISTEN counts for what its own transaction sends, and UNLISTEN too, in any order.
async fn own_notifications_of_the_same_transaction(stage: &Stage) {
    let mut client = stage.client().await;
    for (statements, is_heard) in [
        ("LISTEN fresh; NOTIFY fresh, 'x'", true),
        ("NOTIFY fresh; UNLISTEN fresh", false),
        ("NOTIFY fresh; LISTEN fresh", true),
        ("UNLISTEN *; NOTIFY fresh", false),
        ("LISTEN changed; UPDATE accounts SET owner = owner WHERE id = {z}", true),
        ("UPDATE accounts SET owner = owner WHERE id = {y}; UNLISTEN changed", false),
        ("UPDATE accounts SET owner = owner WHERE id = {a}; LISTEN changed", true),
        ("UNLISTEN changed; UPDATE accounts SET owner = owner WHERE id = {a}", false),
        ("LISTEN one; LISTEN changed; DELETE FROM accounts WHERE id = -1; UPDATE accounts SET owner = owner WHERE id = {z}", true),
        ("UNLISTEN *; UPDATE accounts SET owner = owner WHERE id = {z}", false),
        ("SAVEPOINT s; LISTEN fresh; ROLLBACK TO s; NOTIFY fresh", false),
    ] {
        let statements = stage.fill_in(statements);
        let single: Vec<&str> = statements.split("; ").collect();
        for form in ["one message", "several messages", "a pipeline"] {
            let before = client.value("SELECT coalesce(string_agg(c, ',' ORDER BY c), '') FROM pg_listening_channels() c").await;
            let told = match form {
                "one message" => client.ask(&format!("BEGIN; {statements}; COMMIT")).await,
                "several messages" => {
                    succeed(&mut client, "BEGIN").await;
                    for statement in &single {
                        succeed(&mut client, statement).await;
                    }
                    client.ask("COMMIT").await
                }
                _ if statements.contains("SAVEPOINT") => continue,
                _ => {
                    for statement in &single {
                        client.unnamed(statement, &[]);
                    }
                    client.sync();
                    client.transcript().await
                }
            };
            assert!(!told.contains("E("), "{statements} as {form}: {told}");
            assert_eq!(told.matches(" A ").count(), usize::from(is_heard), "{statements} as {form} after {before:?}: {told}");
            if form != "a pipeline" {
                // The same again, from where it was.
                succeed(&mut client, "UNLISTEN *").await;
                for channel in before.split(',').filter(|name| !name.is_empty()) {
                    succeed(&mut client, &format!("LISTEN {channel}")).await;
                }
            }
        }
    }
}

/// One shard that notifies decides; a second one is refused before anything is lost.
async fn transactions_over_several_shards(stage: &Stage) {
    let (mut client, mut listener) = (stage.client().await, stage.client().await);
    succeed(&mut listener, "LISTEN changed").await;
    let quiet = |key: &str| stage.fill_in(&format!("DELETE FROM accounts WHERE id = {key}"));
    for (before, after, heard) in [("{a}", "{y}", "{a}"), ("{z}", "{b}", "{z}")] {
        succeed(&mut client, &format!("BEGIN; {}", touch(stage, before))).await;
        succeed(&mut client, &quiet(after)).await;
        succeed(&mut client, "NOTIFY changed, 'too'").await;
        assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
        assert_eq!(payload(&mut listener).await, stage.fill_in(heard));
        assert_eq!(payload(&mut listener).await, "too");
    }
    for (first, second) in [
        (touch(stage, "{a}"), touch(stage, "{z}")),
        (touch(stage, "{z}"), touch(stage, "{a}")),
        ("NOTIFY changed, 'no'".to_owned(), touch(stage, "{z}")),
        (touch(stage, "{z}"), "CREATE TEMP TABLE too (n int)".to_owned()),
    ] {
        succeed(&mut client, &format!("BEGIN; {first}")).await;
        let refused = client.ask(&second).await;
        assert!(refused.starts_with("E(0A000 ") && refused.ends_with("Z(E)"), "{second}: {refused}");
        assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    }
    client.unnamed(&touch(stage, "{a}"), &[]).unnamed(&touch(stage, "{z}"), &[]).sync();
    assert!(client.transcript().await.contains("E(0A000 "));
    for refused in [
        "UPDATE accounts SET owner = owner".to_owned(),
        stage.fill_in("UPDATE accounts SET owner = owner WHERE id IN ({a}, {z})"),
        stage.fill_in("INSERT INTO accounts VALUES ({a}, '', 1), ({z}, '', 1) ON CONFLICT (id) DO UPDATE SET owner = 'x'"),
        stage.fill_in("UPDATE accounts SET owner = (SELECT max(owner) FROM accounts) WHERE id IN ({a}, {z})"),
    ] {
        let answer = client.ask(&refused).await;
        assert!(answer.starts_with("E(0A000 "), "{refused}: {answer}");
    }
    // What fires no trigger that notifies is free.
    let insert = stage.fill_in("INSERT INTO accounts VALUES ({b}, 'again', 1), ({y}, 'again', 1)");
    assert_eq!(client.ask(&insert).await, "C(INSERT 0 2) Z(I)");
    // None of what was refused is heard.
    assert_nothing_more(stage, &mut client, &mut listener).await;
}

async fn silence(stage: &Stage, teller: &mut WireClient, mut listener: WireClient) {
    // With what it has not read yet.
    listener.query("UNLISTEN *");
    let answer = listener.transcript().await;
    assert!(answer.ends_with("Z(I)") && answer.contains("C(UNLISTEN)"), "{answer}");
    for key in ["{a}", "{z}"] {
        succeed(teller, &touch(stage, key)).await;
    }
    assert_eq!(listener.ask("SELECT 1").await, "T(?column?) D(1) C(SELECT 1) Z(I)");
}

/// What can no longer be heard ends the session: its client knows that it may have missed something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_ends_with_a_shard_and_with_a_new_one() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = stage.client().await;
    for shard in 0..2 {
        let mut listener = WireClient::connect(second.address()).await;
        succeed(&mut listener, "LISTEN changed").await;
        let direct = stage.cluster.connect_shard(shard).await;
        let listening =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'";
        assert_eq!(direct.query(listening, &[]).await.expect("ended").len(), 1);
        assert_eq!(end(&mut listener).await, "08006");
    }
    stage.cluster.create_database("extra").await;
    let (mut listener, mut busy) = (WireClient::connect(second.address()).await, stage.client().await);
    succeed(&mut listener, "LISTEN changed").await;
    succeed(&mut busy, "LISTEN changed").await;
    succeed(&mut busy, "BEGIN").await;
    let url = stage.cluster.url_on_shard(0, "extra");
    succeed(&mut client, &format!("SELECT shardgate.add_shard('extra', '{url}')")).await;
    assert_eq!(end(&mut listener).await, "57P01");
    succeed(&mut busy, "SELECT 1").await;
    assert_eq!(busy.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(end(&mut busy).await, "57P01");
    let mut listener = WireClient::connect(second.address()).await;
    succeed(&mut listener, "LISTEN changed").await;
    for statement in [
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY changed, 'there'; RETURN NULL; END $$",
        "CREATE TRIGGER tell AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION tell()",
        "SELECT shardgate.distribute_table('orders', 'id', partitions => 12, on_shards => 'extra')",
        "INSERT INTO orders VALUES (1)",
    ] {
        succeed(&mut client, statement).await;
    }
    assert_eq!(payload(&mut listener).await, "there");
}

/// The connection's last words.
async fn end(client: &mut WireClient) -> String {
    let message = client.next_within(Duration::from_secs(10)).await.expect("its last words");
    assert_eq!((message.tag, message.field(b'S').as_str()), (b'E', "FATAL"), "{}", message.describe());
    assert!(client.next().await.is_none(), "it goes on");
    message.field(b'C')
}
