//! `"$user"` in a search path is who a statement runs as on the shards, not who the client is at the proxy.

use super::stage::succeed;
use crate::support::{Cluster, Proxy, ProxyOptions, ProxyUser, WireClient};

async fn start(cluster: &Cluster, urls: [String; 2]) -> (Proxy, WireClient) {
    let users = vec![ProxyUser { name: "app".to_owned(), password: None, admin: false }];
    let proxy = Proxy::start(cluster, ProxyOptions { users, ..ProxyOptions::default() });
    let mut admin = WireClient::connect(proxy.address()).await;
    for (shard, url) in urls.iter().enumerate() {
        succeed(&mut admin, &format!("SELECT shardgate.add_shard('s{shard}', '{url}')")).await;
    }
    (proxy, admin)
}

async fn app(proxy: &Proxy) -> WireClient {
    WireClient::connect_with(proxy.address(), &[("user", "app"), ("database", "app")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_shards_own_logins_it_is_their_user() {
    let cluster = Cluster::start(2).await;
    cluster.connect_shard(0).await.batch_execute("CREATE ROLE app").await.expect("a role");
    let (proxy, mut admin) = start(&cluster, [cluster.shard_url(0), cluster.shard_url(1)]).await;
    for statement in [
        "CREATE SCHEMA app",
        "CREATE TABLE app.t (id int PRIMARY KEY, place text)",
        "CREATE TABLE public.t (id int PRIMARY KEY, place text)",
        "GRANT ALL ON SCHEMA app TO app",
        "GRANT ALL ON app.t TO app",
        "SELECT shardgate.distribute_table('app.t', 'id')",
        "INSERT INTO app.t SELECT n, 'app' FROM generate_series(1, 20) n",
        "INSERT INTO public.t VALUES (1, 'public')",
    ] {
        succeed(&mut admin, statement).await;
    }
    let mut client = app(&proxy).await;
    let places = "SELECT string_agg(DISTINCT place, ',') || count(*) FROM t";
    assert_eq!(client.value("SELECT current_user::text").await, "postgres");
    for _ in 0..2 {
        assert_eq!(client.value(places).await, "public1");
        assert_eq!(client.value("SELECT place FROM t WHERE id = 1").await, "public");
    }
    succeed(&mut client, "INSERT INTO t VALUES (2, 'public')").await;
    succeed(&mut client, "SET ROLE app").await;
    assert_eq!(client.value(places).await, "app20");
    succeed(&mut client, "RESET ROLE").await;
    assert_eq!(client.value(places).await, "public2");
    succeed(&mut admin, "CREATE SCHEMA postgres; CREATE TABLE postgres.t (id int PRIMARY KEY, place text)").await;
    succeed(&mut admin, "INSERT INTO t VALUES (1, 'postgres')").await;
    assert_eq!(client.value(places).await, "postgres1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_shards_users_differ_it_is_refused_once_it_matters() {
    let cluster = Cluster::start(2).await;
    cluster.connect_shard(0).await.batch_execute("CREATE ROLE other SUPERUSER LOGIN").await.expect("a role");
    let by_another = cluster.shard_url(1).replace("postgres://postgres@", "postgres://other@");
    let (proxy, mut admin) = start(&cluster, [cluster.shard_url(0), by_another]).await;
    for statement in [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "SELECT shardgate.distribute_table('t', 'id')",
        "INSERT INTO t SELECT n FROM generate_series(1, 20) n",
    ] {
        succeed(&mut admin, statement).await;
    }
    let mut client = app(&proxy).await;
    assert_eq!(client.value("SELECT count(*) FROM t").await, "20");
    client.parse("s", "SELECT id FROM t WHERE id = $1").sync().answers().await;
    for id in ["1", "2", "3"] {
        client.bind("", "s", &[id]).execute("", 0).sync();
        assert!(client.transcript().await.contains(&format!("D({id})")));
    }
    succeed(&mut admin, "CREATE SCHEMA other").await;
    for statement in
        ["SELECT count(*) FROM t", "SELECT id FROM t WHERE id = 1", "CREATE TABLE u (id int)", "DELETE FROM t WHERE id = 1"]
    {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(0A000 \"$user\" in search_path"), "{statement}: {told}");
        client.unnamed(statement, &[]).sync();
        assert!(client.transcript().await.contains("E(0A000 \"$user\" in search_path"), "{statement}");
    }
    client.bind("", "s", &["1"]).execute("", 0).sync();
    assert!(client.transcript().await.contains("E(0A000 "));
    assert_eq!(client.value("SELECT count(*) FROM shardgate.shards").await, "2");
    succeed(&mut client, "SET search_path = public").await;
    assert_eq!(client.value("SELECT count(*) FROM t").await, "20");
    succeed(&mut client, "RESET search_path").await;
    succeed(&mut client, "SET ROLE postgres").await;
    assert_eq!(client.value("SELECT count(*) FROM t").await, "20");
    assert!(admin.ask("SELECT count(*) FROM t").await.contains("E(0A000 "));
}
