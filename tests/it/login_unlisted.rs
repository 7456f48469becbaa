//! Users who are not listed in the settings: the home shard has their passwords, and `auth.query` looks them up.

use std::time::{Duration, Instant};

use shardgate::auth::stored_password;

use crate::support::{Cluster, Proxy, ProxyOptions, psql_output};

const QUERY: &str = "SELECT rolname, rolpassword FROM pg_authid \
     WHERE rolname = $1 AND rolcanlogin AND (rolvaliduntil > now()) IS NOT FALSE";
const WRONG: &str = "password authentication failed for user";

/// Who is not listed; the shards want their passwords too.
const NAMES: [&str; 2] = ["ada", "o'hara"];

struct Place {
    cluster: Cluster,
    proxy: Proxy,
}

impl Place {
    async fn start() -> Self {
        let cluster = Cluster::separate_servers(2).await;
        for shard in 0..2 {
            let direct = cluster.connect_shard(shard).await;
            let file: String = direct.query_one("SHOW hba_file", &[]).await.expect("a path").get(0);
            let rules = std::fs::read_to_string(&file).expect("its rules");
            let own = NAMES.map(|name| format!("host all \"{name}\" 127.0.0.1/32 scram-sha-256\n")).concat();
            std::fs::write(&file, own + &rules).expect("written");
            direct.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
        }
        let settings = vec![
            ("auth.method", "scram-sha-256".to_owned()),
            ("auth.backend_user", "client".to_owned()),
            ("auth.query", QUERY.to_owned()),
            ("auth.users.0.password", "boss".to_owned()),
        ];
        let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
        let place = Self { cluster, proxy };
        for name in NAMES {
            place.everywhere(&format!("CREATE ROLE \"{name}\" LOGIN")).await;
            place.set_password(name, "first").await;
        }
        let urls = [0, 1].map(|shard| place.cluster.shard_url(shard));
        let script = format!(
            "SELECT shardgate.add_shard('a', '{}'); SELECT shardgate.add_shard('b', '{}'); CREATE TABLE t (k int PRIMARY KEY);
             SELECT shardgate.distribute_table('t', 'k'); INSERT INTO t SELECT generate_series(1, 50); GRANT SELECT ON t TO PUBLIC",
            urls[0], urls[1]
        );
        assert_eq!(place.try_as("postgres", "boss", &script).map(|_| ()), Ok(()));
        place
    }

    async fn everywhere(&self, sql: &str) {
        for shard in 0..2 {
            self.cluster.connect_shard(shard).await.batch_execute(sql).await.expect("altered");
        }
    }

    /// With the same salt on all shards: that is what lets the proxy log in to them as the client.
    async fn set_password(&self, name: &str, password: &str) {
        self.everywhere(&format!("ALTER ROLE \"{name}\" PASSWORD '{}'", stored_password(password))).await;
    }

    fn try_as(&self, name: &str, password: &str, sql: &str) -> Result<String, String> {
        let quoted = name.replace('\'', "\\'");
        let conninfo = format!("host=127.0.0.1 port={} dbname=app user='{quoted}' password={password}", self.proxy.port());
        let output = psql_output(&conninfo, &["-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(told.trim().to_owned()) } else { Err(failed.into_owned()) }
    }

    fn count_as(&self, name: &str, password: &str) -> Result<String, String> {
        self.try_as(name, password, "SELECT current_user || ' ' || count(*) FROM t")
    }

    /// What has changed on the home shard counts within half a minute.
    async fn until(&self, name: &str, password: &str, is_let_in: bool) {
        let began_at = Instant::now();
        loop {
            match self.count_as(name, password) {
                Ok(_) if is_let_in => return,
                Err(told) if !is_let_in && told.contains(WRONG) => return,
                // The shards may know it first.
                Ok(_) | Err(_) => {}
            }
            assert!(began_at.elapsed() < Duration::from_secs(30), "{name} with {password}: still not {is_let_in}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_who_are_not_listed_log_in_by_what_the_home_shard_has() {
    let mut place = Place::start().await;
    for name in NAMES {
        assert_eq!(place.count_as(name, "first"), Ok(format!("{name} 50")));
        assert!(place.count_as(name, "other").is_err_and(|told| told.contains(WRONG)), "{name}");
    }
    // A name is a name, and nobody is an admin by such a login.
    for name in ["x' OR true --", "nobody", "", &"a".repeat(64)] {
        assert!(place.count_as(name, "first").is_err(), "{name}");
    }
    let refused = place.try_as("ada", "first", "SELECT shardgate.drop_shard('b')");
    assert!(refused.as_ref().is_err_and(|told| told.contains("permission denied")), "{refused:?}");
    // Somebody whom the settings list goes by the settings.
    assert!(place.count_as("postgres", "boss").is_ok());
    assert!(place.count_as("postgres", "first").is_err_and(|told| told.contains(WRONG)));

    place.set_password("ada", "second").await;
    place.until("ada", "second", true).await;
    place.until("ada", "first", false).await;
    place.everywhere("ALTER ROLE ada VALID UNTIL '2020-01-01'").await;
    place.until("ada", "second", false).await;
    place.everywhere("ALTER ROLE ada VALID UNTIL 'infinity'").await;
    place.until("ada", "second", true).await;
    place.everywhere("ALTER ROLE ada NOLOGIN").await;
    place.until("ada", "second", false).await;

    // Without the home shard nobody can say who it is.
    place.cluster.shard_server_mut(0).stop(shardgate::demo::servers::StopMode::Immediate).expect("stopped");
    let began_at = Instant::now();
    loop {
        let told = place.count_as("o'hara", "first").expect_err("home is away");
        if told.contains("FATAL:  the password of user \"o'hara\" cannot be checked now") {
            break;
        }
        assert!(began_at.elapsed() < Duration::from_secs(30), "{told}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
