//! REPEATABLE READ READ ONLY over several shards: one moment for all statements, in which no commit over several shards is half
//! there; and commits go on, whatever becomes of who takes the snapshots.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::kills::Points;
use crate::sessions::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient, volume};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// A scatter whose sums are added, rows that are joined where they are gathered, and a home table beside sharded ones.
const TOTAL: &str = "SELECT sum(balance) FROM accounts";
const JOINED: &str = "SELECT sum(a.balance) FROM accounts a JOIN accounts b ON b.owner = a.owner";
const WITH_HOME: &str = "SELECT (SELECT sum(balance) FROM accounts) + (SELECT sum(balance) FROM purse)";
const ROUNDS_IN_TEST: usize = 10;
const ROUNDS_IN_SOAK: usize = 500;
const CLIENTS: usize = 4;
/// Of each report, by their keys.
const ACCOUNTS_READ: usize = 8;

/// Money moves between accounts of all shards and a home table, through two proxies.
struct Payers {
    is_over: AtomicBool,
    transfers: AtomicUsize,
}

impl Payers {
    async fn pay(self: Arc<Self>, address: SocketAddr, accounts: Vec<i64>, number: usize) {
        let mut client = WireClient::connect(address).await;
        let mut step = number;
        while !self.is_over.load(Ordering::Relaxed) {
            step += 1;
            let (a, b) = (accounts[step % accounts.len()], accounts[(step * 7 + number + 1) % accounts.len()]);
            let (a, b) = (a.min(b), a.max(b));
            // There and back, so that there is money everywhere however long it goes on.
            let amount = if (step / accounts.len()).is_multiple_of(2) { 1 } else { -1 };
            let take = format!("UPDATE accounts SET balance = balance - {amount} WHERE id = {a}");
            let give = match step.is_multiple_of(3) {
                true => format!("UPDATE purse SET balance = balance + {amount} WHERE id = 1"),
                false => format!("UPDATE accounts SET balance = balance + {amount} WHERE id = {b}"),
            };
            let mut is_whole = true;
            for text in ["BEGIN", &take, &give] {
                is_whole &= client.ask(text).await.ends_with("Z(T)");
            }
            // Accounts may run out of money, and rows may be wanted crosswise.
            let told = client.ask(if is_whole { "COMMIT" } else { "ROLLBACK" }).await;
            assert!(told.starts_with("C("), "{told}");
            self.transfers.fetch_add(usize::from(is_whole), Ordering::Relaxed);
        }
    }

    async fn report(self: Arc<Self>, address: SocketAddr, accounts: Vec<i64>, number: usize) {
        let whole = "9000";
        let mut client = WireClient::connect(address).await;
        for round in number..number + volume(ROUNDS_IN_TEST, ROUNDS_IN_SOAK) {
            succeed(&mut client, BEGIN).await;
            // Whatever comes first takes the snapshots.
            match round % 5 {
                0 => assert_eq!(client.value(WITH_HOME).await, whole),
                1 => succeed(&mut client, "SELECT 1").await,
                2 => succeed(&mut client, "SELECT * FROM currencies").await,
                3 => succeed(&mut client, "SELECT count(*) FROM pg_class").await,
                _ => succeed(&mut client, "SELECT * FROM purse").await,
            }
            self.until_more(3).await;
            let total = client.value(TOTAL).await;
            let purse = client.value("SELECT balance FROM purse").await;
            assert_eq!(total.parse::<i64>().expect("a sum") + purse.parse::<i64>().expect("a sum"), 9000);
            let listed = balances(&mut client).await;
            self.until_more(1).await;
            for (id, balance) in listed.iter().filter(|(id, _)| accounts.contains(id)).take(ACCOUNTS_READ) {
                assert_eq!(client.value(&format!("SELECT balance FROM accounts WHERE id = {id}")).await, *balance);
            }
            assert_eq!(client.value(JOINED).await, total);
            assert_eq!(client.value(WITH_HOME).await, whole);
            assert_eq!(client.value(TOTAL).await, total);
            succeed(&mut client, "COMMIT").await;
        }
    }

    /// Money moves while a report is written.
    async fn until_more(&self, count: usize) {
        let (before, deadline) = (self.transfers.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(60));
        while self.transfers.load(Ordering::Relaxed) < before + count {
            assert!(Instant::now() < deadline, "no money moves");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn balances(client: &mut WireClient) -> Vec<(i64, String)> {
    client.query("SELECT id, balance FROM accounts ORDER BY id DESC");
    let answers = client.answers().await;
    let rows = answers.iter().filter(|message| message.tag == b'D').map(|row| row.columns());
    rows.map(|row| (row[0].as_deref().expect("an id").parse().expect("a number"), row[1].clone().expect("a balance"))).collect()
}

async fn with_purse(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TABLE purse (id int PRIMARY KEY, balance int)").await;
    succeed(&mut client, "INSERT INTO purse VALUES (1, 0)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_sees_one_moment_while_money_moves() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    with_purse(&stage).await;
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let addresses = [stage.proxy.address(), other.address()];
    let accounts: Vec<i64> = (0..3).flat_map(|shard| (0..8).map(move |nth| (shard, nth))).map(|(s, n)| stage.key(s, n)).collect();
    let payers = Arc::new(Payers { is_over: AtomicBool::new(false), transfers: AtomicUsize::new(0) });
    let paying: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(Arc::clone(&payers).pay(addresses[number % 2], accounts.clone(), number))).collect();
    // Those of two proxies, and two of one, are at it at the same time.
    let reporting: Vec<_> =
        (0..3).map(|number| tokio::spawn(Arc::clone(&payers).report(addresses[number % 2], accounts.clone(), number))).collect();
    for report in reporting {
        report.await.expect("every report is right");
    }
    payers.is_over.store(true, Ordering::Relaxed);
    for paying in paying {
        paying.await.expect("no panic");
    }
    stage.assert_log_is_clean();
}

/// Between the decision and the last COMMIT PREPARED others may see a part: a report waits for the whole, and while it waits other
/// commits pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_decided_is_waited_for() {
    let (points, planted) = (Points::new(), Points::new());
    let stage = Stage::start(3, points.options()).await;
    let other = Proxy::start(&stage.cluster, planted.options());
    // At its first look at a shard a proxy finishes what it finds.
    assert_eq!(WireClient::connect(other.address()).await.value(JOINED).await, "9000");
    points.arm("after_decision", "hold");
    let mut payer = stage.client().await;
    for text in ["BEGIN", &pay(&stage, 0, -5), &pay(&stage, 1, 5), &pay(&stage, 2, 7)] {
        succeed(&mut payer, text).await;
    }
    let paying = tokio::spawn(async move { payer.ask("COMMIT").await });
    points.until_reached("after_decision").await;
    let mut impatient = WireClient::connect(other.address()).await;
    succeed(&mut impatient, "SET statement_timeout = '700ms'").await;
    succeed(&mut impatient, BEGIN).await;
    let told = impatient.ask(TOTAL).await;
    assert!(told.starts_with("E(57014 canceling statement due to statement timeout)"), "{told}");
    succeed(&mut impatient, "ROLLBACK").await;
    // The mistake of not waiting is seen.
    planted.arm("planted.unfinished_not_waited_for", "");
    succeed(&mut impatient, BEGIN).await;
    assert_eq!(impatient.value(TOTAL).await, "8995");
    succeed(&mut impatient, "COMMIT").await;
    planted.release("planted.unfinished_not_waited_for");
    let mut client = WireClient::connect(other.address()).await;
    succeed(&mut client, BEGIN).await;
    let cancel = client.cancel();
    let reporting = tokio::spawn(async move {
        let told = client.ask(TOTAL).await;
        (client, told)
    });
    until_locked(&stage).await;
    cancel.await;
    let (mut client, told) = reporting.await.expect("no panic");
    assert!(told.starts_with("E(57014 canceling statement due to user request)"), "{told}");
    succeed(&mut client, "ROLLBACK").await;
    succeed(&mut client, BEGIN).await;
    let reporting = tokio::spawn(async move { client.value(TOTAL).await });
    until_locked(&stage).await;
    // The decision is for all.
    let mut another = WireClient::connect(other.address()).await;
    for text in ["BEGIN", &pay_to(&stage, 0, 1, -3), &pay_to(&stage, 2, 1, 3)] {
        succeed(&mut another, text).await;
    }
    assert_eq!(another.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert!(!reporting.is_finished());
    points.release("after_decision");
    assert_eq!(reporting.await.expect("no panic"), "9007");
    assert_eq!(paying.await.expect("no panic"), "C(COMMIT) Z(I)");
    stage.assert_log_is_clean();
}

/// The shards themselves end the barrier of a proxy that says nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_go_on_when_a_proxy_is_frozen_while_it_holds_them() {
    let points = Points::new();
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut frozen = Proxy::start(&stage.cluster, points.options());
    let mut client = WireClient::connect(frozen.address()).await;
    succeed(&mut client, BEGIN).await;
    points.arm("snapshot_barrier", "hold");
    let reporting = tokio::spawn(async move { (client.value(TOTAL).await, client.value(TOTAL).await) });
    points.until_reached("snapshot_barrier").await;
    frozen.signal(Signal::STOP);
    let mut payer = stage.client().await;
    for text in ["SET lock_timeout = '10ms'", "BEGIN", &pay(&stage, 0, -5), &pay(&stage, 1, 6)] {
        succeed(&mut payer, text).await;
    }
    assert_eq!(barriers(&stage).await, 1);
    let began_at = Instant::now();
    assert_eq!(payer.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert!(began_at.elapsed() < Duration::from_secs(8), "{:?}", began_at.elapsed());
    assert_eq!(barriers(&stage).await, 0, "it has waited for the end of the barrier");
    frozen.signal(Signal::CONT);
    points.release("snapshot_barrier");
    // What it had taken meanwhile does not count.
    assert_eq!(reporting.await.expect("no panic"), ("9001".to_owned(), "9001".to_owned()));
    // A proxy that ends takes its barrier with it.
    let mut client = WireClient::connect(frozen.address()).await;
    succeed(&mut client, BEGIN).await;
    points.arm("snapshot_barrier", "abort");
    assert_eq!(client.ask(TOTAL).await, "end");
    for text in ["BEGIN", &pay(&stage, 0, -5), &pay(&stage, 1, 6)] {
        succeed(&mut payer, text).await;
    }
    assert_eq!(payer.ask("COMMIT").await, "C(COMMIT) Z(I)");
    stage.assert_log_is_clean();
}

/// A transaction on one shard stays as it was, and what it cannot do is still refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_for_one_shard_writes_or_is_serializable_is_as_ever() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut client, mut other) =
        (WireClient::connect_with(stage.proxy.address(), &[("user", "rr"), ("database", "app")]).await, stage.client().await);
    let held = "SELECT shards FROM shardgate.clients WHERE \"user\" = 'rr'";
    let by_key = |shard: usize| format!("SELECT balance FROM accounts WHERE id = {}", stage.key(shard, 0));
    let refused = |told: &str| told.starts_with("E(0A000 cannot use a second shard in a REPEATABLE READ");
    succeed(&mut client, &format!("{BEGIN}; {}", by_key(1))).await;
    assert_eq!(other.value(held).await, "{shard1}", "as cheap as ever");
    let told = client.ask(TOTAL).await;
    assert!(refused(&told), "{told}");
    succeed(&mut client, "ROLLBACK").await;
    for begin in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
        "SET default_transaction_read_only = on; BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
    ] {
        for text in begin.split("; ") {
            succeed(&mut client, text).await;
        }
        let told = client.ask(TOTAL).await;
        assert!(refused(&told), "{begin}: {told}");
        succeed(&mut client, "ROLLBACK").await;
    }
    succeed(&mut client, "RESET ALL").await;
    for (write, what) in [
        (format!("UPDATE accounts SET balance = 1 WHERE id = {}", stage.key(0, 0)), "UPDATE"),
        ("UPDATE accounts SET balance = 1".to_owned(), "UPDATE"),
        ("INSERT INTO notes VALUES (1, 'x')".to_owned(), "INSERT"),
        ("DELETE FROM currencies".to_owned(), "DELETE"),
        (format!("SELECT * FROM accounts WHERE id = {} FOR UPDATE", stage.key(0, 0)), "SELECT FOR UPDATE"),
    ] {
        for first in ["", "SELECT count(*) FROM accounts;"] {
            let told = client.ask(&format!("{BEGIN}; {first} {write}")).await;
            assert!(
                told.contains(&format!("E(25006 cannot execute {what} in a read-only transaction)")),
                "{first} {write}: {told}"
            );
            succeed(&mut client, "ROLLBACK").await;
        }
    }
    assert_eq!(client.value(TOTAL).await, "9000");
    assert_eq!(other.value(held).await, "{}");
    assert_eq!(barriers(&stage).await, 0);
    stage.assert_log_is_clean();
}

/// However the transaction came by its modes, and whatever comes before the first statement and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_snapshots_are_those_of_the_whole_transaction() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "PREPARE kept (int) AS SELECT count(*) FROM accounts WHERE balance > $1").await;
    for begin in [
        BEGIN,
        "BEGIN; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; BEGIN",
        "BEGIN; SET LOCAL work_mem = '3MB'; SAVEPOINT s; SHOW work_mem",
    ] {
        for text in begin.split("; ") {
            succeed(&mut client, text).await;
        }
        one_moment(&stage, &mut client).await;
        if begin.contains("SAVEPOINT s") {
            assert_eq!(client.value("SHOW work_mem").await, "3MB");
            assert!(client.ask("SELECT 1 / 0").await.ends_with("Z(E)"));
            succeed(&mut client, "ROLLBACK TO s").await;
            assert_eq!(client.value(TOTAL).await, "9000");
        }
        succeed(&mut client, "COMMIT").await;
        put_back(&stage).await;
    }
    // In one packet, with the transaction's beginning.
    client.unnamed(BEGIN, &[]).unnamed(TOTAL, &[]).unnamed("SELECT balance FROM accounts WHERE id = $1", &["1"]);
    client.unnamed(JOINED, &[]).sync();
    let told = client.transcript().await;
    assert_eq!(told.matches("D(").count(), 3, "{told}");
    assert_eq!(told.matches("D(9000)").count(), 2, "{told}");
    succeed(&mut client, "COMMIT").await;
    stage.assert_log_is_clean();
}

/// Where rows are gathered the statement runs in a session that has neither the transaction's snapshot nor its changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_read_reference_tables_do_not_read_another_moment() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let function =
        "CREATE FUNCTION euro() RETURNS text STABLE LANGUAGE sql AS $$ SELECT name FROM currencies WHERE code = 'EUR' $$";
    succeed(&mut client, function).await;
    let scattered = "SELECT euro(), count(*) FROM accounts";
    let gathered = "SELECT euro(), count(*) FROM accounts a JOIN accounts b USING (owner)";
    let pushed = format!("SELECT euro() FROM accounts WHERE id = {}", stage.key(1, 0));
    assert_eq!(client.value(&pushed).await, "Euro");
    for (begin, change) in [(BEGIN, "SELECT 1"), ("BEGIN", "UPDATE currencies SET name = 'Changed' WHERE code = 'EUR'")] {
        succeed(&mut client, begin).await;
        succeed(&mut client, change).await;
        if begin == BEGIN {
            succeed(&mut stage.client().await, "UPDATE currencies SET name = 'Later' WHERE code = 'EUR'").await;
        }
        assert_eq!(client.value(&pushed).await, if begin == BEGIN { "Euro" } else { "Changed" });
        succeed(&mut client, "SAVEPOINT s").await;
        for text in [scattered, gathered] {
            let told = client.ask(text).await;
            let is_right = told.contains(if begin == BEGIN { "D(Euro,90)" } else { "D(Changed,90)" });
            assert!(is_right || told.starts_with("E(0A000 "), "{begin}: {text}: {told}");
            succeed(&mut client, "ROLLBACK TO s").await;
        }
        succeed(&mut client, "ROLLBACK").await;
    }
    assert!(client.ask(gathered).await.contains("D(Later,90)"));
    stage.assert_log_is_clean();
}

/// Reads by every way that there is, before and after rows of every kind of table have changed.
async fn one_moment(stage: &Stage, client: &mut WireClient) {
    let ways = [
        TOTAL,
        JOINED,
        "SELECT count(*), min(n.text) FROM accounts a, notes n WHERE a.balance = n.id",
        "SELECT c.name, count(*) FROM accounts a JOIN currencies c ON c.code = 'EUR' GROUP BY 1",
        "SELECT c.name, n.text FROM currencies c LEFT JOIN notes n ON n.text = c.name ORDER BY 1",
        "SELECT count(*), (SELECT max(name) FROM currencies), (SELECT count(*) FROM notes) FROM accounts a JOIN accounts b USING (owner)",
        "COPY (SELECT balance FROM accounts ORDER BY id DESC LIMIT 40) TO STDOUT",
        "COPY accounts TO STDOUT",
        "SELECT max(balance) FROM accounts WHERE owner LIKE 'o1%'",
        "EXECUTE kept(99)",
        "FETCH 5 FROM merged",
        "FETCH 5 FROM gathered",
        "SELECT count(*) FROM notes",
        "SELECT * FROM currencies ORDER BY code",
    ];
    succeed(client, "DECLARE merged SCROLL CURSOR FOR SELECT balance FROM accounts ORDER BY id").await;
    let declare = "DECLARE gathered SCROLL CURSOR FOR SELECT a.balance FROM accounts a JOIN accounts b USING (owner) ORDER BY a.id";
    succeed(client, declare).await;
    let mut before = Vec::new();
    for way in ways {
        let told = client.ask(way).await;
        assert!(!told.contains("E("), "{way}: {told}");
        before.push(told);
    }
    succeed(client, "MOVE ABSOLUTE 0 FROM merged; MOVE ABSOLUTE 0 FROM gathered").await;
    let mut other = stage.client().await;
    for text in [
        "BEGIN",
        "UPDATE accounts SET balance = balance + 1",
        "INSERT INTO notes VALUES (101, 'Euro')",
        "UPDATE currencies SET name = 'Other' WHERE code = 'EUR'",
        "COMMIT",
    ] {
        succeed(&mut other, text).await;
    }
    for (way, before) in ways.iter().zip(&before) {
        assert_eq!(client.ask(way).await, *before, "{way}");
        if way.starts_with("EXECUTE") || way.starts_with("FETCH") {
            continue;
        }
        assert_ne!(other.ask(way).await, *before, "{way}: something has changed");
        client.unnamed(way, &[]).sync();
        let told = client.transcript().await;
        let rows = |told: &str| told.split_once(" D(").map(|(_, rows)| rows.to_owned());
        assert_eq!(rows(&told), rows(before), "{way}");
    }
    succeed(client, "EXPLAIN SELECT count(*) FROM accounts").await;
    succeed(client, "EXPLAIN ANALYZE SELECT count(*) FROM accounts a JOIN accounts b USING (owner)").await;
}

async fn put_back(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "UPDATE accounts SET balance = 100").await;
    succeed(&mut client, "DELETE FROM notes").await;
    succeed(&mut client, "UPDATE currencies SET name = 'Euro' WHERE code = 'EUR'").await;
}

/// One shard is away: what is decided there cannot be known, and no transaction that needs only another one suffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_shard_there_are_no_snapshots_of_all() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, &format!("{BEGIN}; {TOTAL}; COMMIT")).await;
    stage.cluster.shard_server_mut(1).kill().expect("killed");
    let told = client.ask(&format!("{BEGIN}; {TOTAL}")).await;
    assert!(told.contains("E(57P03 cannot take one snapshot of all shards now) Z(E)"), "{told}");
    succeed(&mut client, "ROLLBACK").await;
    for first in ["SELECT count(*) FROM notes", "SELECT 1", "SELECT count(*) FROM pg_class", "SELECT * FROM currencies"] {
        succeed(&mut client, &format!("{BEGIN}; {first}; SELECT * FROM notes")).await;
        let told = client.ask(TOTAL).await;
        assert!(told.starts_with("E(57P03 cannot take one snapshot of all shards now)"), "{first}: {told}");
        succeed(&mut client, "ROLLBACK").await;
    }
    stage.cluster.shard_server_mut(1).start_again().expect("started again");
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.ask(&format!("{BEGIN}; {TOTAL}")).await.contains("E(") {
        assert!(Instant::now() < deadline, "the shard is back");
        succeed(&mut client, "ROLLBACK").await;
    }
    // What is lost takes its snapshot with it.
    stage.cluster.shard_server_mut(1).kill().expect("killed");
    stage.cluster.shard_server_mut(1).start_again().expect("started again");
    let told = client.ask(TOTAL).await;
    assert!(told.starts_with("E(08006 ") || told.starts_with("E(57P01 "), "{told}");
    succeed(&mut client, "ROLLBACK").await;
}

/// Of a shard that an earlier version has made ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_of_an_earlier_version_is_made_ready() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let direct = stage.cluster.connect_shard(1).await;
    let earlier = "DROP FUNCTION shardgate.hold_decisions();
        CREATE OR REPLACE FUNCTION shardgate.decide(gtx text, secret text) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            PERFORM shardgate.require_secret(gtx, secret);
            INSERT INTO shardgate.decisions (gtx, outcome) VALUES (decide.gtx, 'committed');
        END $$";
    let waits = "SELECT strpos(prosrc, 'advisory') > 0 FROM pg_proc WHERE oid = 'shardgate.decide(text,text)'::regprocedure";
    for earlier in [earlier, earlier.split_once(';').expect("two statements").1] {
        direct.batch_execute(earlier).await.expect("as it was");
        let mut client = stage.client().await;
        succeed(&mut client, BEGIN).await;
        assert_eq!(client.value(TOTAL).await, "9000");
        succeed(&mut client, "COMMIT").await;
        assert!(direct.query_one(waits, &[]).await.expect("a row").get::<_, bool>(0));
    }
    stage.assert_log_is_clean();
}

fn pay(stage: &Stage, shard: usize, amount: i32) -> String {
    pay_to(stage, shard, 0, amount)
}

fn pay_to(stage: &Stage, shard: usize, nth: usize, amount: i32) -> String {
    format!("UPDATE accounts SET balance = balance + {amount} WHERE id = {}", stage.key(shard, nth))
}

/// Barriers on the home shard, closed or about to be.
async fn barriers(stage: &Stage) -> i64 {
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() \
               AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND (classid::bigint, objid::bigint) = (1936224868, 1650553458)";
    stage.cluster.connect_shard(0).await.query_one(sql, &[]).await.expect("a count").get(0)
}

async fn until_locked(stage: &Stage) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while barriers(stage).await == 0 {
        assert!(Instant::now() < deadline, "no barrier");
    }
}
