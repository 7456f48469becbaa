//! A ledger under load: every acknowledged write is there once, on the shard that owns it, and no reader saw a wrong total.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::{leftovers, move_partitions, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy, ProxyOptions, volume};

/// Two shards, the first with 2,000 rows of two tables that are sharded together.
async fn started() -> (Cluster, Proxy) {
    let cluster = Cluster::start(3).await;
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let admin = proxy.connect().await;
    let url = cluster.shard_url(0);
    admin.execute("SELECT shardgate.add_shard('a', $1)", &[&url]).await.expect("add_shard");
    admin
        .batch_execute(
            "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, note text);
             CREATE TABLE entries (id bigint, number bigint, amount bigint NOT NULL, PRIMARY KEY (id, number));
             INSERT INTO accounts SELECT g, 100, repeat('x', 200) FROM generate_series(1, 2000) g;
             INSERT INTO entries SELECT g, 0, 100 FROM generate_series(1, 2000) g;
             CREATE VIEW opened AS SELECT a.id, a.balance, e.amount FROM accounts a LEFT JOIN entries e ON e.id = a.id AND e.number = 0;
             CREATE VIEW totals AS SELECT count(*) AS accounts, sum(balance) AS balance, sum(amount) AS amount FROM opened;
             CREATE VIEW notes AS SELECT id, note FROM accounts;
             CREATE VIEW first_entries AS SELECT id, number, amount FROM entries WHERE number = 0;",
        )
        .await
        .expect("tables");
    for call in
        ["distribute_table('accounts', 'id', partitions => 16)", "distribute_table('entries', 'id', colocate_with => 'accounts')"]
    {
        admin.batch_execute(&format!("SELECT shardgate.{call}")).await.expect(call);
    }
    for (shard, name) in [(1, "b"), (2, "c")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
    }
    (cluster, proxy)
}

#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    next_number: AtomicI64,
    /// Entries that were sent, and those that were acknowledged.
    sent: AtomicI64,
    acknowledged: AtomicI64,
    reads: AtomicI64,
}

/// Books into two tables of one account, in autocommit statements and in transactions, and for two accounts at once.
async fn write(client: Client, load: Arc<Load>, seed: i64) {
    let book = client.prepare("INSERT INTO entries VALUES ($1, $2, $3)").await.expect("prepare");
    let mut state = seed;
    while !load.is_over.load(Ordering::Relaxed) {
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
        let (id, number) = (state % 2000 + 1, load.next_number.fetch_add(1, Ordering::Relaxed) + 1);
        let entries = if number % 5 == 4 { 2 } else { 1 };
        load.sent.fetch_add(entries, Ordering::Relaxed);
        match number % 5 {
            0 => {
                client.batch_execute("BEGIN").await.expect("begin");
                client.execute(&book, &[&id, &number, &0_i64]).await.expect("insert in a transaction");
                let update = format!("UPDATE accounts SET note = 'n{number}' WHERE id = {id}");
                client.batch_execute(&update).await.expect("update in a transaction");
                client.batch_execute("COMMIT").await.expect("commit");
            }
            1 => {
                let update = format!("UPDATE accounts SET note = note || 'y' WHERE id = {id}");
                client.batch_execute(&update).await.expect("update");
                client.execute(&book, &[&id, &number, &0_i64]).await.expect("insert");
            }
            2 => {
                client.execute(&book, &[&id, &number, &7_i64]).await.expect("insert");
                let delete = format!("DELETE FROM entries WHERE id = {id} AND number = {number}");
                assert_eq!(client.execute(&delete, &[]).await.expect("delete"), 1);
                client.execute(&book, &[&id, &number, &0_i64]).await.expect("insert again");
            }
            3 => drop(client.execute(&book, &[&id, &number, &0_i64]).await.expect("insert")),
            _ => book_twice(&client, [id, id % 2000 + 1], number).await,
        }
        load.acknowledged.fetch_add(entries, Ordering::Relaxed);
    }
}

/// Accounts that may lie on two shards, in one transaction: what comes while one of them is held may have to be repeated, as a whole.
async fn book_twice(client: &Client, ids: [i64; 2], number: i64) {
    let [one, other] = ids.map(|id| format!("INSERT INTO entries VALUES ({id}, {number}, 0)"));
    let note = format!("UPDATE accounts SET note = 'n{number}' WHERE id = {}", ids[0]);
    loop {
        match client.batch_execute(&format!("BEGIN; {one}; {note}; {other}; COMMIT")).await {
            Ok(()) => return,
            Err(error) => {
                assert_eq!(error.code().map(|code| code.code()), Some("40001"), "in a transaction over two accounts: {error:?}");
                client.batch_execute("ROLLBACK").await.expect("rolled back");
            }
        }
    }
}

/// The sums that no write changes, by scatter, by join, by views, and by key. `writes`: rows that nobody else writes, through a view.
async fn read(client: Client, load: Arc<Load>, writes: bool) {
    let by_key = client.prepare("SELECT balance FROM accounts WHERE id = $1").await.expect("prepare");
    let of_view = client.prepare("SELECT accounts, balance::bigint, amount::bigint FROM totals").await.expect("prepare");
    let mut id = 1_i64;
    while !load.is_over.load(Ordering::Relaxed) {
        let row = client.query_one("SELECT count(*), sum(balance)::bigint FROM accounts", &[]).await.expect("scatter");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (2000, 200_000));
        let joined = "SELECT count(*) FROM accounts a JOIN entries e ON e.id = a.id AND e.number = 0";
        assert_eq!(client.query_one(joined, &[]).await.expect("join").get::<_, i64>(0), 2000);
        let row = client.query_one(&of_view, &[]).await.expect("a view");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (2000, 200_000, 200_000));
        let viewed = "SELECT count(*) FROM opened o JOIN public.notes ON public.notes.id = o.id WHERE o.amount = 100";
        assert_eq!(client.query_one(viewed, &[]).await.expect("views").get::<_, i64>(0), 2000);
        if writes {
            let update = "UPDATE first_entries SET amount = 100 WHERE id % 500 = 7";
            assert_eq!(client.execute(update, &[]).await.expect("write of a view"), 4);
        }
        // The running total: what was acknowledged before is there, and nothing that was not sent yet.
        let acknowledged = load.acknowledged.load(Ordering::Relaxed);
        let booked = client.query_one("SELECT count(*) FROM entries WHERE number > 0", &[]).await.expect("total").get::<_, i64>(0);
        let sent = load.sent.load(Ordering::Relaxed);
        assert!((acknowledged..=sent).contains(&booked), "{booked} entries, of {acknowledged} acknowledged and {sent} sent");
        let row = client.query_one(&by_key, &[&id]).await.expect("by key");
        assert_eq!(row.get::<_, i64>(0), 100);
        id = id % 2000 + 1;
        load.reads.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_partitions_move_under_load() {
    let (cluster, proxy) = started().await;
    let other = Proxy::start(&cluster, ProxyOptions::default());
    let (load, began) = (Arc::new(Load::default()), Instant::now());
    let mut clients = JoinSet::new();
    for seed in 0..4 {
        let client = if seed % 2 == 0 { proxy.connect().await } else { other.connect().await };
        clients.spawn(write(client, Arc::clone(&load), seed * 7919 + 1));
    }
    for (through, writes) in [(&proxy, false), (&other, true)] {
        clients.spawn(read(through.connect().await, Arc::clone(&load), writes));
    }
    let all = partitions_on(&proxy, "accounts", "a").await;
    assert_eq!(all.len(), 16);
    for (partitions, target) in [(&all[..5], "b"), (&all[5..10], "c"), (&all[..2], "c"), (&all[8..10], "a")] {
        let ended = move_partitions(&cluster, partitions, target).await;
        assert_eq!(ended["state"], "done", "{ended}");
        assert!(clients.try_join_next().is_none(), "a client has ended early");
    }
    // There and back again, and there for good; another one moves meanwhile.
    there_and_back(&cluster, &all[10..14], &all[14..15]).await;
    assert_eq!(partitions_on(&proxy, "accounts", "c").await.len(), 10);
    cut_and_join(&cluster, &proxy, "a").await;
    for turn in 0..volume(0, MORE_TURNS_IN_SOAK) {
        more_moves(&cluster, &proxy, turn).await;
        assert!(clients.try_join_next().is_none(), "a client has ended early");
    }
    let took = began.elapsed().as_secs_f64();
    load.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no client saw an error or a wrong answer");
    }
    let (written, reads) = (load.acknowledged.load(Ordering::Relaxed), load.reads.load(Ordering::Relaxed));
    assert!(written > 100 && reads > 10, "{written} writes, {reads} reads");
    let client = proxy.connect().await;
    let booked: i64 = client.query_one("SELECT count(*) FROM entries WHERE number > 0", &[]).await.expect("count").get(0);
    assert_eq!(booked, written);
    println!("{:.0} entries acknowledged a second, {reads} rounds of reads, {}", written as f64 / took, pauses(&cluster).await);
    stored_where_owned(&cluster, &proxy, 2000, written + 2000).await;
    // Triggers that readers were in the way of are disabled, for the next move that ends, or for this.
    let left = leftovers(&cluster).await;
    assert!(left.iter().all(|left| left.contains(": trigger zz_shardgate_move_") || left.contains(": gate ")), "{left:?}");
    let doctor = rebalance(&cluster, &["doctor", "--fix"]).await;
    assert!(doctor.status.success(), "{}", text(&doctor.stdout));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

/// The command succeeds; what it shows of the move.
async fn shown(cluster: &Cluster, arguments: &[&str]) -> serde_json::Value {
    let output = rebalance(cluster, &[arguments, &["--json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn there_and_back(cluster: &Cluster, partitions: &[i32], others: &[i32]) {
    let list: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let arguments = ["move", "--partition", &list.join(","), "--to", "c"];
    let moved = shown(cluster, &arguments).await;
    assert_eq!((&moved["state"], &moved["can_roll_back"]), (&"switched".into(), &true.into()), "{moved}");
    let ended = move_partitions(cluster, others, "c").await;
    assert_eq!(ended["state"], "done", "{ended}");
    let back = shown(cluster, &["rollback", &moved["move_id"].to_string()]).await;
    assert_eq!(back["error"], "rolled back", "{back}");
    let again = shown(cluster, &arguments).await;
    let finished = shown(cluster, &["finish", &again["move_id"].to_string()]).await;
    assert_eq!(finished["state"], "done", "{finished}");
}

/// A partition of the shard in two pieces, and in one again.
async fn cut_and_join(cluster: &Cluster, proxy: &Proxy, shard: &str) {
    let before = partitions_on(proxy, "accounts", shard).await;
    let first = before[0].to_string();
    let split = rebalance(cluster, &["split", "--partition", &first, "--into", "2"]).await;
    assert!(split.status.success(), "{}", text(&split.stderr));
    let after = partitions_on(proxy, "accounts", shard).await;
    let new = after.iter().find(|id| !before.contains(id)).expect("a new partition");
    let merge = rebalance(cluster, &["merge", "--partitions", &format!("{first},{new}")]).await;
    assert!(merge.status.success(), "{}", text(&merge.stderr));
}

/// Four, of which one is rolled back, in a circle over the three shards.
async fn more_moves(cluster: &Cluster, proxy: &Proxy, turn: usize) {
    const SHARDS: [&str; 3] = ["a", "b", "c"];
    for step in 0..3 {
        let (source, target) = (SHARDS[(turn + step) % 3], SHARDS[(turn + step + 1 + turn % 2) % 3]);
        let there = partitions_on(proxy, "accounts", source).await;
        let ended = move_partitions(cluster, &there[..there.len().min(1 + step)], target).await;
        assert_eq!(ended["state"], "done", "{ended}");
        cut_and_join(cluster, proxy, target).await;
    }
    let there = partitions_on(proxy, "accounts", SHARDS[turn % 3]).await;
    let target = SHARDS[(turn + 1) % 3];
    let moved = shown(cluster, &["move", "--partition", &there[0].to_string(), "--to", target]).await;
    let back = shown(cluster, &["rollback", &moved["move_id"].to_string()]).await;
    assert_eq!(back["error"], "rolled back", "{back}");
}

/// For how long statements were held, of moves that have switched.
async fn pauses(cluster: &Cluster) -> String {
    let sql = "SELECT count(*), sum(attempts), percentile_cont(0.5) WITHIN GROUP (ORDER BY pause_ms), max(pause_ms) FROM shardgate_map.move";
    let row = cluster.connect_map().await.query_one(sql, &[]).await.expect("pauses");
    let (moves, attempts, usual, longest): (i64, i64, f64, f64) = (row.get(0), row.get(1), row.get(2), row.get(3));
    // Beside other tests it may be as long again.
    assert!(longest <= volume(2.0, 1.0) * BUDGET_MS, "statements were held for {longest} ms");
    format!("{moves} moves, {attempts} cut-overs, held for {usual:.0} ms, {longest:.0} ms at most")
}

/// Past any proxy: each row lies once, and on its owner.
async fn stored_where_owned(cluster: &Cluster, proxy: &Proxy, accounts: i64, entries: i64) {
    let map = cluster.connect_map().await;
    let owned = map
        .query(
            "SELECT s.name, string_agg('[' || coalesce(nullif(p.low, ''), NULL)::text || ']', ',')
             FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id) GROUP BY 1",
            &[],
        )
        .await
        .expect("owners");
    assert_eq!(owned.len(), 3);
    let (mut stored_accounts, mut stored_entries) = (0, 0);
    for shard in 0..3 {
        let client = cluster.connect_shard(shard).await;
        let count = async |table: &str| {
            client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.expect("count").get::<_, i64>(0)
        };
        stored_accounts += count("accounts").await;
        stored_entries += count("entries").await;
        // Through the proxy, by key: found only where it is owned.
        let ids: Vec<i64> = client.query("SELECT id FROM accounts", &[]).await.expect("ids").iter().map(|row| row.get(0)).collect();
        let name = ["a", "b", "c"][shard];
        let located = proxy.connect().await;
        for id in ids.iter().step_by(37) {
            let sql = format!("SELECT shard FROM shardgate.locate('accounts', '{id}')");
            let owner: String = located.query_one(&sql, &[]).await.expect("locate").get(0);
            assert_eq!(owner, name, "account {id}");
        }
    }
    assert_eq!((stored_accounts, stored_entries), (accounts, entries));
}

/// With those before, more than twenty.
const MORE_TURNS_IN_SOAK: usize = 4;
/// For which statements may be held, without an option.
const BUDGET_MS: f64 = 500.0;
