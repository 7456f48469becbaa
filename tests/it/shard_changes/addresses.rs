//! A shard under another password, on another port, behind another shard's address.

use shardgate::demo::servers::StopMode;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::load::Load;
use super::told;
use crate::sessions::{Stage, succeed};
use crate::support::{Cable, Cluster, Proxy, ProxyOptions, WireClient};

async fn two_proxies(cluster: Cluster, options: ProxyOptions, role: &str) -> (Stage, Proxy) {
    let stage = Stage::on_as(cluster, options.clone(), role).await;
    let second = Proxy::start(&stage.cluster, options);
    (stage, second)
}

fn addresses(stage: &Stage, second: &Proxy) -> [SocketAddr; 2] {
    [stage.proxy.address(), second.address()]
}

/// The server wants a password of the role `app`.
async fn want_password(cluster: &Cluster) {
    let direct = cluster.connect_shard(0).await;
    direct.batch_execute("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'p0'").await.expect("a role");
    let file: String = direct.query_one("SHOW hba_file", &[]).await.expect("a path").get(0);
    let rules = std::fs::read_to_string(&file).expect("its rules");
    std::fs::write(&file, format!("host all app 127.0.0.1/32 scram-sha-256\n{rules}")).expect("written");
    direct.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
}

#[tokio::test]
async fn a_password_is_changed_under_load_without_an_error() {
    let cluster = Cluster::start(2).await;
    want_password(&cluster).await;
    let environment = vec![("SHARDGATE_PASSWORD_APP", "p6".to_owned())];
    // For so long the new password is waited for.
    let settings = vec![("pool.checkout_timeout_ms", "30000".to_owned())];
    let options = ProxyOptions { environment, settings, ..ProxyOptions::default() };
    let (stage, second) = two_proxies(cluster, options, "app:p0").await;
    let direct = stage.cluster.connect_shard(0).await;
    let mut admin = stage.client().await;
    let mut listener = WireClient::connect(second.address()).await;
    succeed(&mut listener, "LISTEN news").await;
    let load = Load::start(&addresses(&stage, &second), 0);
    for round in 1..=3 {
        load.until_written(50).await;
        direct.batch_execute(&format!("ALTER ROLE app PASSWORD 'p{round}'")).await.expect("altered");
        // More sessions at once than there are connections: some need new ones before the map has the new password.
        let crowd = crowd(&stage, &second);
        until_refused(&stage, round).await;
        alter_urls(&stage, &mut admin, &format!("app:p{round}"), "").await;
        all_are_answered(crowd).await;
    }
    by_a_file(&stage, &second, &mut admin).await;
    after_its_turn(&stage, &mut admin).await;
    by_a_commit_over_two(&stage, &mut admin).await;
    load.until_written(50).await;
    // Whoever else connects does so by the new password: declarations, changes of the schema, new sessions, recovery.
    let mut other = WireClient::connect(second.address()).await;
    for statement in [
        "CREATE TABLE later (id bigint PRIMARY KEY)",
        "SELECT shardgate.distribute_table('later', 'id')",
        "INSERT INTO later SELECT generate_series(1, 20)",
        "CREATE INDEX ON accounts (owner)",
    ] {
        succeed(&mut other, statement).await;
    }
    // The session's connections have stayed.
    succeed(&mut other, "NOTIFY news, 'heard'").await;
    assert_eq!(listener.some(1).await, "A");
    let written = load.end(&stage).await;
    assert!(written.errors.is_empty(), "{:#?}", written.errors);
    let history = admin.value("SELECT string_agg(arguments::text, ';') FROM shardgate.history WHERE change = 'alter_shard'").await;
    assert!(history.contains("\"url\": \"changed\"") && !history.contains("app:p"), "{history}");
}

/// First on the server and then in the file, and the other way round; in the end it stands in the environment.
async fn by_a_file(stage: &Stage, second: &Proxy, admin: &mut WireClient) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pass");
    let direct = stage.cluster.connect_shard(0).await;
    let server_says = async |password: &str| {
        direct.batch_execute(&format!("ALTER ROLE app PASSWORD '{password}'")).await.expect("altered");
    };
    let file_says = |password: &str| {
        // As a whole, or a proxy could read half of it.
        let new = path.with_extension("new");
        std::fs::write(&new, format!("# of the shards\n*:*:shard1:app:{password}\n127.0.0.1:*:*:app:{password}\n"))
            .expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("private");
        std::fs::rename(&new, &path).expect("in place");
    };
    file_says("p3");
    alter_urls(stage, admin, "app", &format!("?passfile={}", path.display())).await;
    assert_eq!(admin.value("SELECT count(*) FROM accounts WHERE id <= 90").await, "90");
    for (old, new) in [("p3", "p4"), ("p4", "p5")] {
        let refused = refusals(stage);
        match new {
            "p4" => server_says(new).await,
            _ => file_says(new),
        }
        let crowd = crowd(stage, second);
        until_refused(stage, refused + 1).await;
        match old {
            "p3" => file_says(new),
            _ => server_says(new).await,
        }
        all_are_answered(crowd).await;
    }
    server_says("p6").await;
    alter_urls(stage, admin, "app", "?password_env=SHARDGATE_PASSWORD_APP").await;
    all_are_answered(crowd(stage, second)).await;
}

/// It has never read the schema, and nobody else may be there to tell the map.
#[tokio::test]
async fn a_proxy_that_cannot_reach_the_home_shard_is_told_its_new_url() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let url = stage.cluster.shard_url(0);
    let map = stage.cluster.connect_map().await;
    let wrong = "BEGIN; SELECT shardgate_map.lock_map(); SELECT shardgate_map.begin_change('test', 'by hand', '{}');
         UPDATE shardgate_map.shard SET url = 'postgres://postgres@127.0.0.1:1/shard0' WHERE is_home; COMMIT";
    for has_parameters in [false, true] {
        map.batch_execute(wrong).await.expect("a wrong url");
        let late = Proxy::start(&stage.cluster, ProxyOptions::default());
        let mut admin = WireClient::connect(late.address()).await;
        let said = told(&mut admin, "SELECT count(*) FROM accounts").await;
        assert!(said.starts_with("57P03 | the schema of the home shard \"shard0\" cannot be read | "), "{said}");
        assert!(said.ends_with("SELECT shardgate.alter_shard('shard0', url => 'postgres://…')."), "{said}");
        // Only by itself, where nothing else could mean something.
        for text in
            ["SELECT shardgate.alter_shard('shard0', region => 'x'), 1", "SELECT 'alter_shard'", "SELECT shardgate.alter_shard"]
        {
            let said = told(&mut admin, text).await;
            assert!(said.starts_with("57P03 | the schema of the home shard"), "{text}: {said}");
        }
        let said =
            told(&mut admin, "SELECT shardgate.alter_shard('shard0', url => 'postgres://postgres@127.0.0.1:1/shard0')").await;
        assert!(!said.contains("the schema of the home shard"), "{said}");
        if has_parameters {
            let call = "SELECT shardgate.alter_shard('shard0', url => $1)";
            let said = admin.parse("", call).bind("", "", &[url.as_str()]).execute("", 0).sync().transcript().await;
            assert!(said.ends_with("C(SELECT 1) Z(I)"), "{said}");
        } else {
            succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard0', url => '{url}')")).await;
        }
        assert_eq!(admin.value("SELECT count(*) FROM accounts").await, "90");
    }
}

/// The wait for the other password begins when the one before is refused, however long a session has waited for a connection before.
async fn after_its_turn(stage: &Stage, admin: &mut WireClient) {
    let patience = Duration::from_secs(2);
    let settings = vec![("pool.size_per_shard", "2".to_owned()), ("pool.checkout_timeout_ms", patience.as_millis().to_string())];
    let environment = vec![("SHARDGATE_PASSWORD_APP", "p6".to_owned())];
    let proxy = Proxy::start(&stage.cluster, ProxyOptions { environment, settings, ..ProxyOptions::default() });
    let mut waiting = WireClient::connect(proxy.address()).await;
    let read = format!("SELECT owner FROM accounts WHERE id = {}", stage.key(0, 0));
    succeed(&mut waiting, &read).await;
    // Their connections are closed with them.
    let mut holders = [WireClient::connect(proxy.address()).await, WireClient::connect(proxy.address()).await];
    for holder in &mut holders {
        succeed(holder, "CREATE TEMPORARY TABLE held (n int)").await;
    }
    let refused = refusals(stage);
    stage.cluster.connect_shard(0).await.batch_execute("ALTER ROLE app PASSWORD 'p7'").await.expect("altered");
    let waiting = tokio::spawn(async move { waiting.ask(&read).await });
    tokio::time::sleep(patience * 8 / 10).await;
    drop(holders);
    until_refused(stage, refused + 1).await;
    tokio::time::sleep(patience * 3 / 10).await;
    alter_urls(stage, admin, "app:p7", "").await;
    all_are_answered(vec![waiting]).await;
}

/// What such a commit needs of the shards is looked at by a connection of its own, whose errors are those of the others.
async fn by_a_commit_over_two(stage: &Stage, admin: &mut WireClient) {
    let settings = vec![("pool.checkout_timeout_ms", "500".to_owned())];
    let proxy = Proxy::start(&stage.cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let mut client = WireClient::connect(proxy.address()).await;
    let update = |shard: usize| format!("UPDATE accounts SET owner = owner WHERE id = {}", stage.key(shard, 0));
    for shard in 0..2 {
        succeed(&mut client, &update(shard)).await;
    }
    stage.cluster.connect_shard(0).await.batch_execute("ALTER ROLE app PASSWORD 'p8'").await.expect("altered");
    let both = format!("BEGIN; {}; {}; COMMIT", update(0), update(1));
    let said = told(&mut client, &both).await;
    assert!(said.starts_with("28P01 | could not connect to shard \"shard"), "{said}");
    client.ask("ROLLBACK").await;
    alter_urls(stage, admin, "app:p8", "").await;
    succeed(&mut client, &both).await;
}

async fn alter_urls(stage: &Stage, admin: &mut WireClient, login: &str, parameters: &str) {
    for shard in 0..2 {
        let url = stage.cluster.shard_url(shard).replace("//postgres@", &format!("//{login}@"));
        succeed(admin, &format!("SELECT shardgate.alter_shard('shard{shard}', url => '{url}{parameters}')")).await;
    }
}

fn crowd(stage: &Stage, second: &Proxy) -> Vec<tokio::task::JoinHandle<String>> {
    let proxies = addresses(stage, second);
    (0..12).map(|nth| tokio::spawn(slow_read(proxies[nth % 2], stage.key(nth % 2, nth)))).collect()
}

async fn all_are_answered(crowd: Vec<tokio::task::JoinHandle<String>>) {
    for client in crowd {
        let told = client.await.expect("no panic");
        assert!(told.contains("C(SELECT 1) Z(I)") && !told.contains("E("), "{told}");
    }
}

async fn slow_read(proxy: SocketAddr, id: i64) -> String {
    WireClient::connect(proxy).await.ask(&format!("SELECT pg_sleep(0.3), owner FROM accounts WHERE id = {id}")).await
}

fn refusals(stage: &Stage) -> usize {
    let log = std::fs::read_to_string(stage.cluster.shard_server(0).log_path()).expect("a log");
    log.matches("password authentication failed").count()
}

/// The server has refused the password from before, again since the last round.
async fn until_refused(stage: &Stage, round: usize) {
    let began_at = Instant::now();
    loop {
        if refusals(stage) >= round {
            return;
        }
        assert!(began_at.elapsed() < Duration::from_secs(20), "nobody has needed a new connection");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_server_moves_to_another_port_under_load() {
    let mut cluster = Cluster::separate_servers(2).await;
    cluster.lay_cable(1).await;
    let (mut stage, second) = two_proxies(cluster, ProxyOptions::default(), "postgres").await;
    let mut admin = stage.client().await;
    let load = Load::start(&addresses(&stage, &second), 0);
    load.until_written(100).await;

    // In maintenance statements wait for the move.
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard1', state => 'maintenance')").await;
    until_quiet(&stage, 1).await;
    move_server(&mut stage).await;
    let url = stage.cluster.public_url(1);
    succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', '{url}', state => 'online')")).await;
    load.until_written(100).await;
    let written = load.end(&stage).await;
    assert!(written.errors.is_empty(), "{:#?}", written.errors);

    // Without it they fail, and go on as soon as the new url is known.
    let load = Load::start(&addresses(&stage, &second), 1);
    load.until_written(50).await;
    move_server(&mut stage).await;
    let url = stage.cluster.public_url(1);
    succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', '{url}')")).await;
    load.until_written(100).await;
    let written = load.end(&stage).await;
    written.assert_errors_are_named();
    written.assert_errors_are_of(&stage, "shard1").await;
}

/// Nothing that clients have begun runs there any more.
async fn until_quiet(stage: &Stage, shard: usize) {
    let direct = stage.cluster.connect_shard(shard).await;
    let busy = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' \
                UNION ALL SELECT FROM pg_prepared_xacts WHERE database = current_database()";
    let began_at = Instant::now();
    while !direct.query(busy, &[]).await.expect("activity").is_empty() {
        assert!(began_at.elapsed() < Duration::from_secs(10), "shard {shard} does not come to rest");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The address from before answers no more.
async fn move_server(stage: &mut Stage) {
    stage.cluster.shard_server_mut(1).stop(StopMode::Fast).expect("stopped");
    stage.cluster.cable(1).refuse();
    stage.cluster.shard_server_mut(1).start_again().expect("started");
    stage.cluster.lay_cable(1).await;
}

/// What a session has on its own connection is not on another server.
#[tokio::test]
async fn sessions_that_are_bound_to_an_address_end_with_it() {
    for mode in ["transaction", "session"] {
        let options = ProxyOptions { settings: vec![("pool.mode", mode.to_owned())], ..ProxyOptions::default() };
        let stage = Stage::start(2, options).await;
        let mut admin = stage.client().await;
        let (mut kept, mut free, mut listener) = (stage.client().await, stage.client().await, stage.client().await);
        succeed(&mut kept, "CREATE TEMPORARY TABLE kept (n int)").await;
        succeed(&mut listener, "LISTEN news").await;
        succeed(&mut free, "INSERT INTO notes VALUES (1, 'x')").await;
        succeed(&mut free, "BEGIN; UPDATE notes SET text = 'y'").await;
        // The same place, written in another way: nobody is disturbed.
        let url = format!("{}?application_name=shardgate", stage.cluster.shard_url(0));
        succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard0', '{url}')")).await;
        succeed(&mut kept, "INSERT INTO kept VALUES (1)").await;
        assert_eq!(listener.next_within(Duration::from_millis(100)).await.map(|message| message.describe()), None);

        let mut target = SocketAddr::from(([127, 0, 0, 1], stage.cluster.shard_server(0).port()));
        let cable = Cable::to(target).await;
        target.set_port(cable.address().port());
        let url = stage
            .cluster
            .shard_url(0)
            .replace(&format!(":{}/", stage.cluster.shard_server(0).port()), &format!(":{}/", target.port()));
        succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard0', '{url}')")).await;
        let said = kept.ask("INSERT INTO kept VALUES (2)").await;
        assert!(
            said.starts_with("E(57P01 terminating connection because shard \"shard0\" is on another server now) end"),
            "{mode}: {said}"
        );
        let said = listener.rest().await.iter().map(crate::support::Message::describe).collect::<Vec<_>>().join(" ");
        assert!(
            said.starts_with("E(57P01 terminating connection because the shards of the cluster have changed)"),
            "{mode}: {said}"
        );
        // A transaction ends where it has begun; what comes then is on the new address.
        succeed(&mut free, "UPDATE notes SET text = 'z'; COMMIT").await;
        let port = "SELECT (inet_client_port() IS NOT NULL)::text || text FROM notes";
        assert_eq!(free.value(port).await, "truez");
        cable.refuse();
        cable.release();
        let said = free.ask("SELECT text FROM notes").await;
        assert!(
            said.contains("D(z)") || said.contains("E(08006 ") || said.contains("E(57P0"),
            "it did not go by the cable: {said}"
        );
        stage.assert_no_panic();
    }
}

#[tokio::test]
async fn addresses_that_were_swapped_give_errors_and_no_answers() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (home, other) = (stage.key(0, 0), stage.key(1, 0));
    let mut client = stage.client().await;
    // By mistake in the map: refused.
    let url = stage.cluster.shard_url(0);
    let said = told(&mut client, &format!("SELECT shardgate.alter_shard('shard1', '{url}?application_name=x')")).await;
    assert!(
        said.starts_with("22023 | the url of shard \"shard1\" leads to another database | The database there is shard \"shard0\"."),
        "{said}"
    );

    // Behind its back: seen by every connection.
    swap_databases(&stage).await;
    // While connecting is not tried again, too.
    for id in [home, home, other, other] {
        let mut client = stage.client().await;
        let said = told(&mut client, &format!("SELECT owner FROM accounts WHERE id = {id}")).await;
        assert!(said.contains("57P03 | shard \"shard"), "{said}");
        assert!(said.contains("The url leads to another database than the shard's."), "{said}");
        assert!(said.contains("Let shardgate.alter_shard('shard"), "{said}");
    }
    let said = told(&mut client, "SELECT count(*) FROM accounts").await;
    assert!(said.contains("57P03 ") || said.contains("57P01 ") || said.contains("08006 "), "{said}");
    swap_databases(&stage).await;
    let began_at = Instant::now();
    loop {
        let mut client = stage.client().await;
        let told = client.ask("SELECT count(*) FROM accounts").await;
        if told.contains("D(90)") {
            break;
        }
        assert!(began_at.elapsed() < Duration::from_secs(10), "{told}");
    }
}

/// Each gets the other's name.
async fn swap_databases(stage: &Stage) {
    let direct = stage.cluster.connect_map().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ('shard0', 'shard1')";
    for (from, to) in [("shard0", "aside"), ("shard1", "shard0"), ("aside", "shard1")] {
        let began_at = Instant::now();
        loop {
            direct.query(end, &[]).await.expect("ended");
            match direct.batch_execute(&format!("ALTER DATABASE {from} RENAME TO {to}")).await {
                Ok(()) => break,
                Err(error) => assert!(began_at.elapsed() < Duration::from_secs(20), "{error}"),
            }
        }
    }
}
