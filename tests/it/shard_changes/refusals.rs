//! Wrong calls of `alter_shard`, and calls that change nothing.

use super::told;
use crate::sessions::{Stage, succeed};
use crate::support::{ProxyOptions, ProxyUser, WireClient};

#[tokio::test]
async fn wrong_calls_say_what_to_do_and_right_ones_are_idempotent() {
    let users = vec![ProxyUser { name: "nobody".to_owned(), password: None, admin: false }];
    let stage = Stage::start(2, ProxyOptions { users, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    stage.cluster.create_database("foreign_one").await;
    let url = stage.cluster.shard_url(1);
    let foreign = stage.cluster.url_on_shard(1, "foreign_one");
    let nowhere = "postgres://postgres:s3cret@127.0.0.1:1/shard1";
    let history = "SELECT count(*) FROM shardgate.history";
    let before = client.value(history).await;
    for (arguments, expected) in WRONG_CALLS {
        let proxy = format!("postgres://postgres@{}/app", stage.proxy.address());
        let arguments = arguments
            .replace("{proxy}", &proxy)
            .replace("{nowhere}", nowhere)
            .replace("{foreign}", &foreign)
            .replace("{home}", &stage.cluster.shard_url(0));
        let said = told(&mut client, &format!("SELECT shardgate.alter_shard({arguments})")).await;
        assert!(said.starts_with(expected), "{arguments}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
        if arguments.contains("s3cret@") {
            assert!(said.contains("Nothing was changed: the server has to let this proxy in"), "{said}");
        }
    }
    let mut nobody = WireClient::connect_with(stage.proxy.address(), &[("user", "nobody"), ("database", "app")]).await;
    let said = told(&mut nobody, "SELECT shardgate.alter_shard('shard1', state => 'draining')").await;
    assert!(said.starts_with("42501 | permission denied for function alter_shard"), "{said}");
    succeed(&mut client, "BEGIN").await;
    let said = told(&mut client, "SELECT shardgate.alter_shard('shard1', region => 'x')").await;
    assert!(said.starts_with("25001 | shardgate.alter_shard cannot run inside a transaction block"), "{said}");
    client.ask("ROLLBACK").await;
    // It has none.
    succeed(&mut client, "SELECT shardgate.alter_shard('shard1', region => '')").await;
    assert_eq!(client.value(history).await, before);

    let all = format!("SELECT shardgate.alter_shard('shard1', '{url}', 'eu', 2.5, 'postgres://r@h/d', 'draining')");
    succeed(&mut client, &all).await;
    let row = "SELECT region, capacity, state, is_home, partitions > 0 FROM shardgate.shards WHERE name = 'shard1'";
    assert_eq!(client.row(row).await, ["eu", "2.5", "draining", "f", "t"]);
    let changes = "SELECT arguments - 'name' FROM shardgate.history ORDER BY epoch DESC LIMIT 1";
    assert_eq!(
        client.value(changes).await,
        r#"{"state": "draining", "region": "eu", "capacity": 2.5, "replication_url": "changed"}"#
    );
    let known = client.value(history).await;
    succeed(&mut client, &all).await;
    assert_eq!(client.value(history).await, known);
    // Nothing but the state goes back, by the extended protocol.
    client.unnamed("SELECT shardgate.alter_shard($1, state => $2)", &["shard1", "online"]).sync();
    let told = client.transcript().await;
    assert!(told.ends_with("C(SELECT 1) Z(I)"), "{told}");
    assert_eq!(client.row(row).await, ["eu", "2.5", "online", "f", "t"]);
    stage.assert_log_is_clean();
}

/// The arguments, and how the answer begins.
const WRONG_CALLS: &[(&str, &str)] = &[
    (
        "'shard9', state => 'online'",
        "42704 | shard \"shard9\" does not exist |  | SELECT name FROM shardgate.shards lists the shards.",
    ),
    (
        "'shard1', state => 'offline'",
        "22023 | invalid shard state \"offline\" |  | The states are online, read_only, draining and maintenance.",
    ),
    ("'shard1', state => 'preparing'", "22023 | invalid shard state \"preparing\""),
    ("'shard1'", "22023 | nothing of the shard is to be changed |  | Give at least one of url, region, capacity"),
    ("'shard1', capacity => 0", "22023 | capacity must be a number greater than zero"),
    ("'shard1', url => 'mysql://h/d'", "22023 | the url of shard \"shard1\" is not valid"),
    (
        "'shard1', url => 'postgres://postgres@h:1,h:2/d?target_session_attrs=standby'",
        "22023 | the url of shard \"shard1\" is not valid | The URL's target_session_attrs is \"standby\", which leads to servers that \
             take no writes: allowed are any, primary, read-write.",
    ),
    (
        "'shard1', url => 'postgres://postgres@h/d?passfile=/nowhere/pass'",
        "22023 | the url of shard \"shard1\" is not valid | The password file \"/nowhere/pass\" cannot be read. | Every proxy must be \
             able to read the files that passfile",
    ),
    (
        "'shard1', url => 'postgres://postgres@h/d?password_env=HOME'",
        "22023 | the url of shard \"shard1\" is not valid | The URL's password_env is \"HOME\": the name of the variable must begin with \
             SHARDGATE_PASSWORD.",
    ),
    (
        "'shard1', url => 'postgres://postgres@h/d?sslcert=/c&sslkey=/k&sslpassword=s3cret'",
        "22023 | the url of shard \"shard1\" is not valid | The URL's parameter \"sslpassword\" is not supported: use a key that is not",
    ),
    ("'shard1', replication_url => 'nothing'", "22023 | the replication_url of shard \"shard1\" is not valid"),
    (
        "'shard1', url => 'postgres://postgres@h:99999/d'",
        "22023 | the url of shard \"shard1\" is not valid | The URL's port \"99999\" is not a number from 1 to 65535.",
    ),
    ("'shard1', url => 'postgres://postgres@nobody.invalid/d'", "08001 | could not connect to shard \"shard1\" | Failed to lookup"),
    ("'shard1', url => '{proxy}'", "22023 | the url of shard \"shard1\" leads to a Shardgate proxy |  | Give the address of the"),
    ("'shard1', url => '{nowhere}'", "08001 | could not connect to shard \"shard1\" | "),
    (
        "'shard1', url => '{foreign}'",
        "22023 | the url of shard \"shard1\" leads to another database | The database there has never been a shard. | Give the url of the same database",
    ),
    (
        "'shard1', url => '{home}'",
        "22023 | the url of shard \"shard1\" leads to another database | The database there is shard \"shard0\".",
    ),
    (
        "'shard1', replication_url => '{home}'",
        "22023 | the replication_url of shard \"shard1\" leads to another database | The database there is shard \"shard0\".",
    ),
];

/// A database that an earlier version has registered is known by its identity as soon as it was looked at.
#[tokio::test]
async fn identities_that_the_map_lacks_are_read_before_an_address_changes() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let map = stage.cluster.connect_map().await;
    for shard in 0..2 {
        stage
            .cluster
            .connect_shard(shard)
            .await
            .batch_execute("REVOKE SELECT ON shardgate.identity FROM PUBLIC")
            .await
            .expect("revoked");
    }
    map.batch_execute("SELECT shardgate_map.begin_change('test', 'test', '{}'); UPDATE shardgate_map.shard SET identity = NULL")
        .await
        .expect("as before");
    let mut client = stage.client().await;
    let home = stage.cluster.shard_url(0);
    let said = told(&mut client, &format!("SELECT shardgate.alter_shard('shard1', '{home}?application_name=x')")).await;
    assert!(said.starts_with("22023 | the url of shard \"shard1\" leads to another database"), "{said}");
    let known = "SELECT count(identity) FROM shardgate_map.shard";
    assert_eq!(map.query_one(known, &[]).await.expect("a count").get::<_, i64>(0), 2);
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
}
