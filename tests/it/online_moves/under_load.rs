//! A ledger under load: every acknowledged write is there once, on the shard that owns it, and no reader saw a wrong total.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::{leftovers, move_partitions, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy, ProxyOptions};

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
    /// Entries that were acknowledged, per account at this place.
    next_number: AtomicI64,
    acknowledged: AtomicI64,
    reads: AtomicI64,
}

/// Books a transfer into two tables of one account, in autocommit statements and in transactions.
async fn write(client: Client, load: Arc<Load>, seed: i64) {
    let book = client.prepare("INSERT INTO entries VALUES ($1, $2, $3)").await.expect("prepare");
    let mut state = seed;
    while !load.is_over.load(Ordering::Relaxed) {
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
        let (id, number) = (state % 2000 + 1, load.next_number.fetch_add(1, Ordering::Relaxed) + 1);
        match number % 4 {
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
            _ => drop(client.execute(&book, &[&id, &number, &0_i64]).await.expect("insert")),
        }
        load.acknowledged.fetch_add(1, Ordering::Relaxed);
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
    let load = Arc::new(Load::default());
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
    assert!(clients.try_join_next().is_none(), "a client has ended early");
    assert_eq!(partitions_on(&proxy, "accounts", "c").await.len(), 10);
    load.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no client saw an error or a wrong answer");
    }
    let (written, reads) = (load.acknowledged.load(Ordering::Relaxed), load.reads.load(Ordering::Relaxed));
    assert!(written > 100 && reads > 10, "{written} writes, {reads} reads");
    let client = proxy.connect().await;
    let booked: i64 = client.query_one("SELECT count(*) FROM entries WHERE number > 0", &[]).await.expect("count").get(0);
    assert_eq!(booked, written);
    stored_where_owned(&cluster, &proxy, 2000, written + 2000).await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

async fn there_and_back(cluster: &Cluster, partitions: &[i32], others: &[i32]) {
    let list: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let shown = async |arguments: &[&str]| {
        let output = rebalance(cluster, &[arguments, &["--json"]].concat()).await;
        assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let arguments = ["move", "--partition", &list.join(","), "--to", "c"];
    let moved = shown(&arguments).await;
    assert_eq!((&moved["state"], &moved["can_roll_back"]), (&"switched".into(), &true.into()), "{moved}");
    let ended = move_partitions(cluster, others, "c").await;
    assert_eq!(ended["state"], "done", "{ended}");
    let back = shown(&["rollback", &moved["move_id"].to_string()]).await;
    assert_eq!(back["error"], "rolled back", "{back}");
    let again = shown(&arguments).await;
    let finished = shown(&["finish", &again["move_id"].to_string()]).await;
    assert_eq!(finished["state"], "done", "{finished}");
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
