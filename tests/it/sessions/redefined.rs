//! A view or function gets another definition while others use it: through the same proxy and through another one.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_are_answered_by_the_definitions_that_they_were_planned_by() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let other_proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = stage.client().await;
    for sql in [
        "CREATE TABLE pairs (id bigint PRIMARY KEY, account bigint)",
        "SELECT shardgate.distribute_table('pairs', 'id')",
        // Rows that belong together are mostly on different shards.
        "INSERT INTO pairs SELECT g, 91 - g FROM generate_series(1, 90) AS g",
        SEEN_AS_TABLE,
        "CREATE VIEW seen_too AS SELECT * FROM seen",
        "UPDATE accounts SET owner = upper(owner) WHERE id % 2 = 0",
    ] {
        succeed(&mut client, sql).await;
    }
    for proxy in [&stage.proxy, &other_proxy] {
        for text in ["SELECT count(*) FROM seen", "SELECT count(*) FROM seen_too", "SELECT count(*) FROM public.\"seen\""] {
            for end in ["COMMIT", "ROLLBACK"] {
                waits_for_the_change(&stage, proxy, SEEN_AS_JOIN, (text, "D(90)"), end).await;
                succeed(&mut client, SEEN_AS_TABLE).await;
            }
        }
        let first = "SELECT owner FROM accounts ORDER BY owner LIMIT 3";
        let sorts = |collation: &str| format!("ALTER TABLE accounts ALTER owner TYPE text COLLATE \"{collation}\"");
        waits_for_the_change(&stage, proxy, &sorts("und-x-icu"), (first, "D(o1) D(O10) D(o11)"), "COMMIT").await;
        waits_for_the_change(&stage, proxy, &sorts("C"), (first, "D(O10) D(O12) D(O14)"), "COMMIT").await;
        a_wait_ends_with_its_limits(&stage, proxy).await;
        who_holds_what_the_change_waits_for_goes_on(&stage, proxy).await;
    }
    stage.assert_log_is_clean();
}

const SEEN_AS_TABLE: &str = "CREATE OR REPLACE VIEW seen AS SELECT a.id FROM accounts AS a";
const SEEN_AS_JOIN: &str = "CREATE OR REPLACE VIEW seen AS SELECT a.id FROM accounts AS a JOIN pairs AS p ON p.account = a.id";

/// Another proxy closes the change of one that is killed in the middle: who waits for it is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_proxy_does_not_keep_others_waiting() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut other_proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (mut client, mut reader) = (stage.client().await, reader_of(&stage.proxy).await);
    succeed(&mut client, SEEN_AS_TABLE).await;
    let mut changer = WireClient::connect(other_proxy.address()).await;
    succeed(&mut changer, "BEGIN").await;
    succeed(&mut changer, "CREATE OR REPLACE VIEW seen AS SELECT a.id FROM accounts AS a WHERE a.balance < 0").await;
    let text = "SELECT count(*) FROM seen";
    reader.query(text).flush().await;
    until_at_work(&stage.proxy).await;
    other_proxy.signal(Signal::KILL);
    let told = reader.next_within(Duration::from_secs(60)).await.expect("an answer");
    assert_eq!(told.tag, b'T', "{}", told.describe());
    assert!(reader.transcript().await.contains("D(90)"));
    assert_eq!(client.value(text).await, "90");
}

pub(super) async fn reader_of(proxy: &Proxy) -> WireClient {
    WireClient::connect_with(proxy.address(), &[("user", "reader"), ("database", "app")]).await
}

/// The proxy works at a statement of this client.
pub(super) async fn until_at_work(proxy: &Proxy) {
    let mut watcher = WireClient::connect(proxy.address()).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while watcher.value("SELECT count(*) FROM shardgate.clients WHERE \"user\" = 'reader' AND state LIKE 'active%'").await == "0" {
        assert!(Instant::now() < deadline, "the statement does not begin");
    }
}

async fn waits_for_the_change(stage: &Stage, proxy: &Proxy, change: &str, (text, answer): (&str, &str), end: &str) {
    let (mut changer, mut beside) = (stage.client().await, WireClient::connect(proxy.address()).await);
    for is_prepared in [false, true] {
        let mut reader = reader_of(proxy).await;
        if is_prepared {
            let before = reader.parse("p", text).bind("", "p", &[]).execute("", 0).sync().transcript().await;
            assert!(before.contains("D("), "{before}");
        }
        succeed(&mut changer, "BEGIN").await;
        succeed(&mut changer, change).await;
        match is_prepared {
            true => reader.bind("", "p", &[]).execute("", 0).sync().flush().await,
            false => reader.query(text).flush().await,
        }
        until_at_work(proxy).await;
        assert_eq!(beside.value("SELECT count(*) FROM pairs").await, "90", "others go on");
        succeed(&mut changer, end).await;
        let told = reader.transcript().await;
        assert!(told.contains(answer), "{text}, {end}: {told}");
    }
}

async fn a_wait_ends_with_its_limits(stage: &Stage, proxy: &Proxy) {
    let (mut changer, mut reader) = (stage.client().await, reader_of(proxy).await);
    let text = "SELECT count(*) FROM seen";
    succeed(&mut changer, "BEGIN").await;
    succeed(&mut changer, SEEN_AS_JOIN).await;
    for (name, told) in [
        ("lock_timeout", "E(55P03 canceling statement due to lock timeout) Z(I)"),
        ("statement_timeout", "E(57014 canceling statement due to statement timeout) Z(I)"),
    ] {
        succeed(&mut reader, &format!("SET {name} = '20ms'")).await;
        assert_eq!(reader.ask(text).await, told);
        succeed(&mut reader, &format!("RESET {name}")).await;
    }
    reader.query(text).flush().await;
    until_at_work(proxy).await;
    reader.cancel().await;
    assert_eq!(reader.transcript().await, "E(57014 canceling statement due to user request) Z(I)");
    // A client that leaves leaves nothing behind.
    reader.query(text).flush().await;
    until_at_work(proxy).await;
    drop(reader);
    succeed(&mut changer, "ROLLBACK").await;
}

async fn who_holds_what_the_change_waits_for_goes_on(stage: &Stage, proxy: &Proxy) {
    let (mut changer, mut reader) = (stage.client().await, reader_of(proxy).await);
    succeed(&mut reader, "BEGIN").await;
    succeed(&mut reader, "SELECT count(*) FROM seen").await;
    let changing = tokio::spawn(async move { changer.ask(SEEN_AS_TABLE).await });
    stage.until_active(0, "CREATE OR REPLACE VIEW seen").await;
    assert_eq!(reader.value("SELECT count(*) FROM seen").await, "90");
    succeed(&mut reader, "COMMIT").await;
    assert_eq!(changing.await.expect("no panic"), "C(CREATE VIEW) Z(I)");
}
