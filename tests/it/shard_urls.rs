//! What stands in the URLs of shards: what is refused before it can do harm, and what the connections make of the rest.

use shardgate::demo::servers::Server;

use crate::support::{Certificates, Cluster, Proxy, ProxyOptions, WireClient};

async fn stage(settings: &[(&'static str, &str)], shards: usize) -> (Cluster, Proxy, WireClient) {
    let cluster = Cluster::start(shards).await;
    let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let client = WireClient::connect(proxy.address()).await;
    (cluster, proxy, client)
}

fn add(name: &str, url: &str) -> String {
    format!("SELECT shardgate.add_shard('{name}', '{url}')")
}

/// The home shard cannot be given another URL later: one that sessions could not use would be the end of the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_shard_whose_url_sessions_could_not_use_is_refused() {
    let (cluster, _proxy, mut client) = stage(&[], 1).await;
    let url = cluster.shard_url(0);
    let certificates = Certificates::new();
    let missing = certificates.authority_path().with_file_name("missing.crt");
    for (parameters, reason) in [
        ("hostaddr=127.0.0.1".to_owned(), "parameter \"hostaddr\" is not known: allowed are host, port, target_session_attrs,"),
        ("target_session_attrs=read-only".to_owned(), "which leads to servers that take no writes"),
        ("sslmode=verify-full".to_owned(), "sslmode verify-full needs sslrootcert"),
        ("sslmode=require&sslrootcert=system".to_owned(), "use verify-full"),
        (format!("sslmode=verify-ca&sslrootcert={}", missing.display()), "missing.crt"),
    ] {
        client.query(&add("shard0", &format!("{url}?{parameters}")));
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!((error.field(b'C').as_str(), error.field(b'M').as_str()), ("22023", "the url of shard \"shard0\" is not valid"));
        assert!(error.field(b'D').contains(reason), "{parameters}: {}", error.field(b'D'));
        assert!(!error.field(b'H').is_empty());
    }
    client.ask(&add("shard0", &url)).await;
    assert_eq!(client.value("SELECT current_database()").await, "shard0");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_the_application_name_reach_the_shard() {
    let (cluster, _proxy, mut client) = stage(&[], 1).await;
    let url = format!("{}?options=-c%20geqo%3Doff%20-c%20client_encoding%3DLATIN1&application_name=books", cluster.shard_url(0));
    assert!(client.ask(&add("shard0", &url)).await.ends_with("Z(I)"));
    assert_eq!(client.value("SELECT current_setting('geqo')").await, "off");
    assert_eq!(client.value("SELECT current_setting('application_name')").await, "books");
    // What statements are read by stays.
    assert_eq!(client.value("SELECT current_setting('client_encoding')").await, "UTF8");
    client.ask("SET application_name = 'own'").await;
    assert_eq!(client.value("SELECT current_setting('application_name')").await, "own");
    client.ask("RESET application_name").await;
    assert_eq!(client.value("SELECT current_setting('application_name')").await, "books");
    client.ask("CREATE TABLE t (id int)").await;
    assert_eq!(client.ask("INSERT INTO t VALUES (1)").await, "C(INSERT 0 1) Z(I)");
}

/// The schema that is copied to a new shard may hold passwords of foreign servers.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_of_a_declaration_is_logged() {
    let (cluster, proxy, mut client) = stage(&[("log.level", "info,sqlx=debug")], 2).await;
    let home: &Server = cluster.shard_server(0);
    let direct = crate::support::connect(&home.url("shard0")).await;
    let script = "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER elsewhere FOREIGN DATA WRAPPER w;
        CREATE USER MAPPING FOR postgres SERVER elsewhere OPTIONS (password 'hunter2'); CREATE TABLE t (id int)";
    direct.batch_execute(script).await.expect("a schema");
    for shard in 0..2 {
        let told = client.ask(&add(&format!("shard{shard}"), &cluster.shard_url(shard))).await;
        assert!(told.ends_with("Z(I)") && !told.contains("E("), "{told}");
    }
    let there = cluster.connect_shard(1).await;
    let count = there.query_one("SELECT count(*) FROM pg_user_mapping", &[]).await.expect("a count").get::<_, i64>(0);
    assert_eq!(count, 1, "the mapping was copied");
    let log = proxy.log();
    assert!(!log.contains("hunter2") && !log.contains("pg_catalog"), "{log}");
}
