//! How a proxy follows the map: change by change, from notifications, from the poll, and across another map server.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use shardgate::shard_key::KeyType;
use shardgate::shardmap::{Bound, Epoch, LookupError, MapOptions, ShardMap, Store, StoreError, StoreError::Older};

use super::{
    ACTOR, add_shard, connect_map, distribute_hash, distribute_lookup, eventually, map_cluster, map_with_shards, options, text_key,
};
use crate::support::Cluster;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_change_by_one_proxy_reaches_the_other_within_a_second() {
    let cluster = map_cluster().await;
    let one = connect_map(&cluster).await;
    let other = connect_map(&cluster).await;
    for number in 0..10 {
        add_shard(one.store(), &format!("s{number}")).await;
        let epoch = one.store().epoch().await.expect("epoch");
        tokio::time::timeout(SECOND, other.reached(epoch)).await.expect("the other proxy within a second");
        assert_eq!(other.snapshot().shards.len(), number + 1);
    }
    one.refresh().await.expect("refresh");
    assert_eq!(one.snapshot().shards, other.snapshot().shards);
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_change_whose_notification_was_lost_is_found() {
    let cluster = map_cluster().await;
    let one = map_with_shards(&cluster).await;
    let polling = MapOptions { poll_interval: Duration::from_millis(200), ..options(&cluster) };
    let other = ShardMap::connect(polling).await.expect("connect");
    let client = cluster.connect_map().await;
    for number in 0..3 {
        // The connections that listen; they come back by themselves.
        client
            .batch_execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND pid <> pg_backend_pid()",
            )
            .await
            .expect("terminate");
        add_shard(one.store(), &format!("s{number}")).await;
        let epoch = one.store().epoch().await.expect("epoch");
        let mut epochs = other.subscribe();
        let seen = tokio::time::timeout(SECOND, epochs.wait_for(|now| *now >= epoch)).await;
        seen.expect("within a second").expect("the map is there");
    }
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn one_change_reads_only_its_own_rows() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let hash = distribute_hash(&map, "t", 1000).await;
    let group = map.snapshot().group(hash).expect("the group").clone();
    let before = map.statistics();
    let at = Bound::Hash(12345);
    map.store().split_partition(ACTOR, &group, group.partition_at(&at).id, &at).await.expect("split");
    map.refresh().await.expect("refresh");
    let after = map.statistics();
    assert_eq!(after.full_loads, before.full_loads);
    assert!(after.rows_read - before.rows_read <= 2, "{before:?} {after:?}");
    assert_eq!(map.snapshot().group(hash).map(|group| group.partitions.len()), Some(1001));
    // The version of the tables is not that of the partitions.
    assert!(map.snapshot().tables_version < map.snapshot().epoch.counter);
    map.close().await;
}

#[tokio::test]
async fn that_rows_may_lie_where_they_are_not_owned_is_followed() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let hash = distribute_hash(&map, "t", 10).await;
    let before = map.statistics();
    let client = cluster.connect_map().await;
    for has_residues in [true, false] {
        let script = format!(
            "BEGIN; SELECT shardgate_map.begin_change('x', 'test', '{{}}');
             UPDATE shardgate_map.colocation_group SET has_residues = {has_residues} WHERE group_id = {}; COMMIT",
            hash.0
        );
        client.batch_execute(&script).await.expect("changed");
        map.refresh().await.expect("refresh");
        assert_eq!(map.snapshot().has_residues(), has_residues);
        assert_eq!(map.snapshot().group(hash).map(|group| group.partitions.len()), Some(10));
    }
    let after = map.statistics();
    assert_eq!((after.full_loads, after.rows_read - before.rows_read), (before.full_loads, 2));
    map.close().await;
}

#[tokio::test]
async fn who_is_too_far_behind_loads_everything() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let lookup = distribute_lookup(&map, "l").await;
    let before = map.statistics().full_loads;
    let client = cluster.connect_map().await;
    let script = "BEGIN; SELECT shardgate_map.begin_change('x', 'test', '{}');
                  SELECT shardgate_map.forget_removals((SELECT counter FROM shardgate_map.cluster)); COMMIT";
    client.batch_execute(script).await.expect("forget");
    map.refresh().await.expect("refresh");
    assert_eq!(map.statistics().full_loads, before + 1);
    assert_eq!(map.snapshot().group(lookup.id).map(|group| (**group).clone()), Some((*lookup).clone()));
    map.close().await;
}

#[tokio::test]
async fn changes_of_the_shards_schema_are_announced() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let before = map.snapshot();
    let epoch = map.snapshot().epoch;
    let change = map.store().begin_schema_change(ACTOR, "ALTER TABLE", map.lease().proxy_id(), epoch).await.expect("begin");
    map.refresh().await.expect("refresh");
    assert_eq!(map.snapshot().schema_version, before.schema_version);
    assert_eq!(map.snapshot().open_schema_changes, 1);
    let between = map.snapshot().schema_version;
    map.store().finish_schema_change(ACTOR, change).await.expect("finish");
    map.refresh().await.expect("refresh");
    assert!(map.snapshot().schema_version > between);
    assert_eq!(map.snapshot().open_schema_changes, 0);
    assert_eq!(map.snapshot().tables_version, before.tables_version);
    map.close().await;
}

#[tokio::test]
async fn an_older_map_is_refused_and_the_last_snapshot_stays() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let lookup = distribute_lookup(&map, "l").await;
    let known = map.snapshot().epoch;
    let client = cluster.connect_map().await;
    client.batch_execute("UPDATE shardgate_map.cluster SET incarnation = incarnation - 1").await.expect("an older map");
    assert!(matches!(map.refresh().await, Err(Older { known: refused, .. }) if refused == known));
    assert_eq!(map.lookup(&lookup, &[text_key("k")]).await, Err(LookupError::MapUnreachable));
    eventually("the lease ends", Duration::from_secs(7), || !map.lease().is_valid()).await;
    assert_eq!(map.snapshot().epoch, known);
    assert!(!map.is_reachable());
    client.batch_execute("UPDATE shardgate_map.cluster SET incarnation = incarnation + 1").await.expect("the newer map");
    map.refresh().await.expect("refresh");
    assert_eq!(map.lookup(&lookup, &[text_key("k")]).await, Ok(vec![None]));
    eventually("the lease is renewed", Duration::from_secs(3), || map.lease().is_valid()).await;
    map.close().await;
}

/// A renewal waits in the map for a lock while a change is made and heard of: its answer has the epoch before, and the map is no
/// older one for that. The next renewal is made to wait too, so that nothing mends what this answer has done.
#[tokio::test]
async fn an_answer_from_before_what_was_heard_since_ends_no_lease() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    for round in 0.. {
        eventually("the lease is renewed", MINUTE, || map.lease().is_valid()).await;
        let began = Instant::now();
        let (first, second) = (cluster.connect_map().await, cluster.connect_map().await);
        let lock = "BEGIN; SELECT FROM shardgate_map.proxy FOR UPDATE";
        first.batch_execute(lock).await.expect("locked");
        until_waiting(&cluster, 1).await;
        let second = tokio::spawn(async move { second.batch_execute(lock).await.map(|()| second) });
        until_waiting(&cluster, 2).await;
        add_shard(map.store(), &format!("later{round}")).await;
        map.refresh().await.expect("heard");
        first.batch_execute("COMMIT").await.expect("unlocked");
        let second = second.await.expect("no panic").expect("locked");
        until_waiting(&cluster, 1).await;
        let is_valid = map.lease().is_valid();
        second.batch_execute("COMMIT").await.expect("unlocked");
        // On a busy machine no renewal may have come through in time.
        if is_valid || began.elapsed() < Duration::from_secs(2) {
            assert!(is_valid, "the lease has ended");
            break;
        }
    }
    map.close().await;
}

/// Until so many wait for the rows of proxies.
async fn until_waiting(cluster: &Cluster, count: i64) {
    let deadline = Instant::now() + MINUTE;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%shardgate_map.proxy%'";
    let client = cluster.connect_map().await;
    while client.query_one(waiting, &[]).await.expect("activity").get::<_, i64>(0) < count {
        assert!(Instant::now() < deadline, "{count} do not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts the map's server again on another timeline, as a promoted standby or a restored backup is.
fn change_timeline(cluster: &mut Cluster) {
    let server = cluster.map_server_mut();
    let signal = server.dir().join("data").join("recovery.signal");
    server.stop(shardgate::demo::servers::StopMode::Fast).expect("stop");
    std::fs::write(&signal, "").expect("recovery.signal");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&signal, everyone).expect("permissions");
    server.start_again().expect("start again");
}

#[tokio::test]
async fn another_map_server_has_a_new_incarnation_and_everything_is_loaded_again() {
    let mut cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let before = (map.snapshot().epoch, map.statistics().full_loads);
    let ids = map.store().reserve_unique_ids(10).await.expect("a block");
    assert!(map.store().reserve_unique_ids(10).await.expect("a block").start - ids.start < MINUTE_OF_IDS);
    let client = cluster.connect_map().await;
    client.batch_execute("ALTER SYSTEM SET restore_command = 'false'").await.expect("restore_command");
    // By the clock of the server before, which is ahead of the next one's.
    let driven = "INSERT INTO shardgate_map.move (group_id, source, target, state, driver, driver_seen, finish_at)
                  SELECT 1, 'a', 'b', 'switched', 77, now() + interval '1 day', now() + interval '1 day 1 minute' RETURNING move_id";
    let driven: i32 = client.query_one(driven, &[]).await.expect("a move").get(0);
    let heard = "INSERT INTO shardgate_map.proxy (proxy_id, address, last_seen) VALUES (5, 'gone', now() + interval '1 day')";
    client.execute(heard, &[]).await.expect("a clock ahead");
    change_timeline(&mut cluster);
    let mut epochs = map.subscribe();
    let is_newer = |now: &Epoch| now.incarnation > before.0.incarnation;
    let now = *tokio::time::timeout(Duration::from_secs(20), epochs.wait_for(is_newer)).await.expect("in time").expect("there");
    assert!(now > before.0);
    assert_eq!(map.statistics().full_loads, before.1 + 1);
    assert_eq!(map.snapshot().shards.len(), 3);
    let client = cluster.connect_map().await;
    let row = client.query_one("SELECT count(*) FROM shardgate.history WHERE change = 'adopt'", &[]).await;
    assert_eq!(row.expect("history").get::<_, i64>(0), 1);
    // Who was heard of there was heard of when this one began, and no later.
    let left = "SELECT finish_at - now() BETWEEN interval '0' AND interval '5 minutes' FROM shardgate_map.move WHERE move_id = $1";
    assert!(client.query_one(left, &[&driven]).await.expect("the move").get::<_, bool>(0), "its grace period");
    let take = "SELECT shardgate_map.take_move($1, 78, interval '0', interval '0')";
    let term: Option<i64> = client.query_one(take, &[&driven]).await.expect("taken").get(0);
    assert!(term.is_some(), "a driver that is gone keeps the move for a day");
    // Its clock may lag behind, and what was given away last may be forgotten.
    let later = map.store().reserve_unique_ids(10).await.expect("a block");
    assert!(later.start - ids.start > MINUTE_OF_IDS, "{later:?} after {ids:?}");
    assert_eq!(map.store().reserve_unique_ids(10).await.expect("a block").start, later.end, "once");
    map.close().await;
}

/// Milliseconds are in the upper bits.
const MINUTE_OF_IDS: i64 = 60_000 << 22;

#[tokio::test]
async fn the_lease_tells_the_epoch_that_no_statement_is_older_than() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    assert!(map.lease().is_valid());
    map.lease().set_clients(17);
    let client = cluster.connect_map().await;
    let proxy_id = map.lease().proxy_id().0;
    let version = "SELECT version FROM shardgate.proxies WHERE proxy_id = $1";
    let version: String = client.query_one(version, &[&proxy_id]).await.expect("the lease").get(0);
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let told = || async {
        let row = client.query_one("SELECT epoch, clients FROM shardgate.proxies WHERE proxy_id = $1", &[&proxy_id]).await;
        let row = row.expect("the lease");
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    let reaches = |epoch: i64| async move {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        loop {
            let now = told().await;
            if now == (epoch, 17) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "the lease tells {now:?}, not {epoch}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let held = map.in_use();
    reaches(held.epoch.counter).await;
    distribute_hash(&map, "t", 2).await;
    let renewals =
        || async { client.query_one("SELECT max(renewals) FROM shardgate_map.proxy", &[]).await.expect("row").get::<_, i64>(0) };
    let before = renewals().await;
    while renewals().await < before + 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A statement that was planned under the old map is still running.
    assert_eq!(told().await.0, held.epoch.counter);
    drop(held);
    reaches(map.snapshot().epoch.counter).await;
    map.close().await;
    let row = client.query_one("SELECT count(*) FROM shardgate.proxies", &[]).await.expect("proxies");
    assert_eq!(row.get::<_, i64>(0), 0, "a closed map leaves no lease");
    assert!(!map.lease().is_valid());
}

#[tokio::test]
async fn a_lease_that_was_removed_is_taken_again_with_the_newest_map() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let client = cluster.connect_map().await;
    client.batch_execute("DELETE FROM shardgate_map.proxy").await.expect("remove the lease");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    loop {
        let rows = client.query("SELECT epoch FROM shardgate.proxies WHERE epoch > 0", &[]).await.expect("proxies");
        if !rows.is_empty() && map.lease().is_valid() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no lease again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    map.close().await;
}

#[tokio::test]
async fn a_map_without_a_database_serves_what_it_was_given() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let lookup = distribute_lookup(&map, "l").await;
    let snapshot = (*map.snapshot()).clone();
    map.close().await;
    let partition = lookup.partitions[1].id;
    let fixed = ShardMap::fixed_with_keys(snapshot, [(lookup.id, text_key("k"), partition)]);
    assert_eq!(fixed.lookup(&lookup, &[text_key("x"), text_key("k")]).await, Ok(vec![None, Some(partition)]));
    assert!(fixed.lease().is_valid());
    let refused = fixed.store().map_key(ACTOR, ("public", "l"), &text_key("x"), &[KeyType::Text], "a").await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))));
}

/// Whoever reads may be gone in the middle, as a client's session is.
#[tokio::test]
async fn a_reading_that_is_given_up_leaves_no_transaction_open() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let watcher = cluster.connect_map().await;
    let store = Store::new(&cluster.map_url()).expect("a store");
    for wakes in 1.. {
        let read = {
            let mut reading = pin!(store.load());
            let mut seen = 0;
            let given_up = poll_fn(|context| {
                seen += 1;
                match reading.as_mut().poll(context) {
                    Poll::Ready(read) => Poll::Ready(Some(read)),
                    Poll::Pending if seen == wakes => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            });
            given_up.await
        };
        // The connection is given back at the next turn of the runtime.
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        let deadline = Instant::now() + Duration::from_secs(10);
        tokio::task::yield_now().await;
        while watcher.query_one(open, &[]).await.expect("count").get::<_, i64>(0) > 0 {
            assert!(Instant::now() < deadline, "given up after {wakes} wakes, it stays open");
        }
        if let Some(read) = read {
            read.expect("the map");
            break;
        }
    }
    map.close().await;
}
