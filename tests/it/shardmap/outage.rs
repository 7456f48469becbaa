//! Without the map database: what is known goes on, what is not says so within a second, and all heals by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shardgate::demo::servers::StopMode;
use shardgate::error::PgError;
use shardgate::shardmap::{Bound, LookupError, MapOptions, ShardMap};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{Proxy, ProxyOptions};

use super::{ACTOR, add_shard, distribute_hash, distribute_lookup, eventually, map_cluster, map_with_shards, options, text_key};

#[tokio::test]
async fn known_keys_go_on_without_the_map_and_unknown_ones_say_so_within_a_second() {
    let mut cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let hash = distribute_hash(&map, "t", 4).await;
    let group = distribute_lookup(&map, "l").await;
    let known = map.store().map_key(ACTOR, ("public", "l"), &text_key("known"), &group.key_types, "b").await.expect("map");
    map.refresh().await.expect("refresh");
    assert_eq!(map.lookup(&group, &[text_key("known"), text_key("none")]).await, Ok(vec![Some(known), None]));

    cluster.map_server_mut().stop(StopMode::Immediate).expect("stop the map");
    eventually("the outage is noticed", Duration::from_secs(5), || !map.is_reachable()).await;
    assert_eq!(map.lookup(&group, &[text_key("known"), text_key("none")]).await, Ok(vec![Some(known), None]));
    let snapshot = map.snapshot();
    assert!(snapshot.group(hash).is_some_and(|group| snapshot.shard(group.partition_at(&Bound::Hash(7)).shard).is_some()));
    for _ in 0..3 {
        let asked_at = Instant::now();
        assert_eq!(map.lookup(&group, &[text_key("unknown")]).await, Err(LookupError::MapUnreachable));
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    }
    assert_eq!(PgError::from(LookupError::MapUnreachable).code.as_str(), "57P03");
    let asked_at = Instant::now();
    let error = super::refusal(map.store().set_default_shard(ACTOR, ("public", "l"), "a").await);
    assert_eq!(error.code.as_str(), "57P03");
    assert!(asked_at.elapsed() < Duration::from_secs(1));
    eventually("the lease ends", Duration::from_secs(7), || !map.lease().is_valid()).await;

    cluster.map_server_mut().start_again().expect("start the map again");
    eventually("the map is found again", Duration::from_secs(5), || map.is_reachable() && map.lease().is_valid()).await;
    assert_eq!(map.lookup(&group, &[text_key("unknown")]).await, Ok(vec![None]));
    // Changes are heard of again, though the poll is slow.
    let client = cluster.connect_map().await;
    client.batch_execute("SELECT shardgate_map.begin_change('x', 'test', '{}')").await.expect("a change");
    let epoch = map.store().epoch().await.expect("epoch");
    let mut epochs = map.subscribe();
    let heard = tokio::time::timeout(Duration::from_secs(2), epochs.wait_for(|now| *now >= epoch)).await;
    heard.expect("in time").expect("there");
    map.close().await;
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_not_called_failed() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let client = cluster.connect_map().await;
    client.batch_execute("BEGIN; SELECT shardgate_map.lock_map()").await.expect("hold the map's lock");
    let killer = cluster.connect_map().await;
    let change = map.store().drop_shard(ACTOR, "c");
    let kill = async {
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%drop_shard%'";
        let pid: i32 = loop {
            if let Some(row) = killer.query_opt(waiting, &[]).await.expect("activity") {
                break row.get(0);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        // The server's own farewell says that nothing was done.
        killer.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("terminate");
    };
    let (outcome, ()) = tokio::join!(change, kill);
    assert_eq!(super::refusal(outcome).code.as_str(), "57P03");
    client.batch_execute("ROLLBACK").await.expect("let go");
    map.store().drop_shard(ACTOR, "c").await.expect("drop c");
    map.close().await;
}

#[tokio::test]
async fn a_proxy_does_not_start_without_the_map() {
    let mut cluster = map_cluster().await;
    cluster.map_server_mut().stop(StopMode::Fast).expect("stop");
    let error = super::refusal(ShardMap::connect(options(&cluster)).await);
    assert_eq!(error.code.as_str(), "57P03");
}

/// A host that vanishes: connections neither answer nor end. Those made after its return work.
struct Line {
    address: SocketAddr,
    /// Connections of an earlier number are dead.
    generation: watch::Sender<u64>,
}

impl Line {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let (generation, generations) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server, generations.clone()));
            }
        });
        Self { address, generation }
    }

    /// Odd: nothing gets through at all.
    fn next_generation(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr, mut generations: watch::Receiver<u64>) {
    let own = *generations.borrow_and_update();
    let forwarding = async {
        if own.is_multiple_of(2) {
            let mut server = TcpStream::connect(server).await.expect("connect");
            tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = forwarding => {}
        _ = generations.changed() => {
            // Silent from now on, but not closed.
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test]
async fn connections_that_died_without_a_word_are_given_up() {
    let cluster = map_cluster().await;
    let setup = map_with_shards(&cluster).await;
    let group = distribute_lookup(&setup, "l").await;
    let port = cluster.map_server().port();
    let line = Line::to(SocketAddr::from(([127, 0, 0, 1], port))).await;
    let url = cluster.map_url().replace(&format!(":{port}/"), &format!(":{}/", line.address.port()));
    assert_ne!(url, cluster.map_url());
    let poll_interval = Duration::from_millis(300);
    let map: Arc<ShardMap> = ShardMap::connect(MapOptions { url, poll_interval, ..options(&cluster) }).await.expect("connect");
    assert_eq!(map.lookup(&group, &[text_key("x")]).await, Ok(vec![None]));

    line.next_generation();
    let asked_at = Instant::now();
    assert_eq!(map.lookup(&group, &[text_key("y")]).await, Err(LookupError::MapUnreachable));
    assert!(asked_at.elapsed() < Duration::from_secs(1));
    eventually("the outage is noticed", Duration::from_secs(5), || !map.is_reachable()).await;
    eventually("the lease ends", Duration::from_secs(8), || !map.lease().is_valid()).await;

    line.next_generation();
    eventually("the map is found again", Duration::from_secs(5), || map.is_reachable() && map.lease().is_valid()).await;
    assert_eq!(map.lookup(&group, &[text_key("y")]).await, Ok(vec![None]));
    add_shard(setup.store(), "d").await;
    let epoch = setup.store().epoch().await.expect("epoch");
    tokio::time::timeout(Duration::from_secs(2), map.reached(epoch)).await.expect("in time");
    map.close().await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_waits_for_a_map_database_that_is_not_there_yet() {
    let cluster = map_cluster().await;
    let port = cluster.map_server().port();
    let door = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let url = cluster.map_url().replace(&format!(":{port}/"), &format!(":{}/", door.local_addr().expect("address").port()));
    let serving = tokio::spawn(async move {
        // The first attempt finds nobody.
        drop(door.accept().await.expect("an attempt"));
        while let Ok((mut client, _)) = door.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
            });
        }
    });
    let options = ProxyOptions { settings: vec![("map.url", url)], ..Default::default() };
    let proxy = tokio::task::block_in_place(|| Proxy::start(&cluster, options));
    assert!(proxy.log().contains("waiting for the map database"), "{}", proxy.log());
    serving.abort();
}
