//! What a client that is no admin may do with the relations of the schema `shardgate`: read them, whatever its settings and its role
//! are, and nothing else. The map database belongs to the proxy, whose login there may be a superuser's.

use shardgate::sql::utility::own_relations::COMPUTING;

use crate::sessions::succeed;
use crate::support::{Cluster, Message, Proxy, ProxyOptions, ProxyUser, WireClient};

/// In the URL of the second shard, where the server asks for none.
const SECRET: &str = "hidden-from-all";

/// Roles belong to a server: the map database's may not know it.
const ROLE: &str = "DO $$ BEGIN CREATE ROLE stranger; EXCEPTION WHEN duplicate_object THEN NULL; END $$";

/// Two shards, a table of either kind, and the user `mallory`, who is no admin.
async fn start(cluster: &Cluster) -> Proxy {
    let users = vec![ProxyUser { name: "mallory".to_owned(), password: None, admin: false }];
    let proxy = Proxy::start(cluster, ProxyOptions { users, ..ProxyOptions::default() });
    let admin = proxy.connect().await;
    let with_secret = cluster.shard_url(1).replace("postgres://postgres@", &format!("postgres://postgres:{SECRET}@"));
    assert!(with_secret.contains(SECRET), "{with_secret}");
    for statement in [
        &format!("SELECT shardgate.add_shard('s1', '{}')", cluster.shard_url(0)),
        &format!("SELECT shardgate.add_shard('s2', '{with_secret}')"),
        "CREATE TABLE t (id int PRIMARY KEY)",
        "SELECT shardgate.distribute_table('t', 'id', partitions => 2)",
    ] {
        admin.batch_execute(statement).await.expect(statement);
    }
    for shard in 0..2 {
        cluster.connect_shard(shard).await.batch_execute(ROLE).await.expect("a role");
    }
    proxy
}

async fn mallory(proxy: &Proxy) -> WireClient {
    WireClient::connect_with(proxy.address(), &[("user", "mallory"), ("database", "app")]).await
}

/// Rows, or the success of anything, and what is told of it.
fn successes(messages: &[Message]) -> Vec<String> {
    let is_success = |message: &&Message| matches!(message.tag, b'D' | b'd' | b'C');
    messages.iter().filter(is_success).map(Message::describe).collect()
}

/// Each as a Query, and by Parse: refused, and nothing of the map, of the server or of its files comes back.
const ATTACKS: &[&str] = &[
    "SELECT require_shard(name) FROM shardgate.shards",
    "SELECT (require_shard(name)).url FROM shardgate.shards",
    "SELECT drop_shard('me', name) FROM shardgate.shards WHERE name = 's2'",
    "SELECT map_key('me', 'public', 't', '', '', name) FROM shardgate.shards",
    "SELECT add_shard('me', 'evil', 'postgres://h/d', null, 1, null) FROM shardgate.shards",
    "SELECT shardgate_map.require_shard(name) FROM shardgate.shards",
    "SELECT name, url FROM shardgate.shards, shardgate_map.shard",
    "SELECT (SELECT string_agg(url, ',') FROM shardgate_map.shard) FROM shardgate.shards",
    "WITH x AS (SELECT url FROM shardgate_map.shard) SELECT name, (TABLE x LIMIT 1) FROM shardgate.shards",
    "WITH x AS (DELETE FROM shardgate_map.lookup_key RETURNING 1) SELECT name FROM shardgate.shards",
    "WITH pg_authid AS (SELECT 1) SELECT name FROM shardgate.shards, (SELECT rolpassword FROM pg_catalog.pg_authid) a",
    "SELECT rolpassword FROM shardgate.shards, pg_authid",
    "SELECT query FROM shardgate.shards, pg_stat_activity",
    "SELECT name FROM shardgate.shards, pg_class",
    "SELECT pg_read_file('PG_VERSION') FROM shardgate.shards",
    "SELECT pg_catalog.pg_read_file('PG_VERSION') FROM shardgate.shards",
    "SELECT s.name FROM shardgate.shards s, pg_read_file('PG_VERSION') f",
    "SELECT s.name FROM shardgate.shards s, ROWS FROM (pg_read_file('PG_VERSION'), unnest(ARRAY[1])) f",
    "SELECT s.name, f FROM shardgate.shards s JOIN LATERAL pg_ls_dir(s.name) f ON true",
    "SELECT name FROM shardgate.shards ORDER BY pg_read_file('PG_VERSION')",
    "SELECT name FROM shardgate.shards GROUP BY name HAVING pg_read_file('PG_VERSION') IS NULL",
    "SELECT count(*) FILTER (WHERE pg_read_file('PG_VERSION') IS NULL) FROM shardgate.shards",
    "SELECT count(*) OVER (PARTITION BY pg_read_file('PG_VERSION')) FROM shardgate.shards",
    "SELECT count(*) OVER w FROM shardgate.shards WINDOW w AS (ORDER BY pg_read_file('PG_VERSION'))",
    "SELECT name FROM shardgate.shards LIMIT length(pg_read_file('PG_VERSION'))",
    "SELECT string_agg(name, ',' ORDER BY pg_read_file('PG_VERSION')) FROM shardgate.shards",
    "SELECT CASE WHEN true THEN pg_read_file('PG_VERSION') END FROM shardgate.shards",
    "SELECT (ARRAY[pg_read_file('PG_VERSION')])[1] FROM shardgate.shards",
    "SELECT name FROM shardgate.shards WHERE name = ANY (ARRAY(SELECT pg_read_file('PG_VERSION')))",
    "SELECT f.pg_read_file FROM shardgate.shards s, unnest(ARRAY['PG_VERSION']) AS f",
    "SELECT f.pg_read_file FROM shardgate.shards s, unnest(ARRAY['PG_VERSION']) AS f (x)",
    "SELECT (f).pg_read_file FROM shardgate.shards s, unnest(ARRAY['PG_VERSION']) AS f",
    "SELECT ('PG_VERSION'::text).pg_read_file FROM shardgate.shards",
    "SELECT pg_read_file.pg_read_file FROM shardgate.shards s, jsonb_array_elements_text('[\"PG_VERSION\"]') AS pg_read_file",
    "SELECT f.pg_read_file FROM shardgate.shards s, unnest(ARRAY['PG_VERSION']) AS f (x) \
     WHERE EXISTS (SELECT f.pg_read_file FROM unnest(ARRAY[1]) AS f (pg_read_file))",
    "SELECT (s.name).pg_ls_dir FROM shardgate.shards s",
    "SELECT lo_import('/etc/passwd') FROM shardgate.shards",
    "SELECT lo_get(1) FROM shardgate.shards",
    "SELECT dblink('dbname=map', 'SELECT 1') FROM shardgate.shards",
    "SELECT set_config('search_path', 'shardgate_map', false), name FROM shardgate.shards",
    "SELECT current_setting('data_directory') FROM shardgate.shards",
    "SELECT query_to_xml('SELECT url FROM shardgate_map.shard', true, true, '') FROM shardgate.shards",
    "SELECT table_to_xml('shardgate_map.shard', true, true, '') FROM shardgate.shards",
    "SELECT * FROM shardgate.shards, ts_stat('SELECT to_tsvector(url) FROM shardgate_map.shard') z",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, to_tsquery(url) FROM shardgate_map.shard') FROM shardgate.shards",
    "SELECT cursor_to_xml('c', 1, true, true, '') FROM shardgate.shards",
    "SELECT pg_terminate_backend(1) FROM shardgate.shards",
    "SELECT pg_sleep(1000) FROM shardgate.shards",
    "SELECT nextval('shardgate_map.move_move_id_seq') FROM shardgate.shards",
    "SELECT pg_notify('a', 'b') FROM shardgate.shards",
    "SELECT pg_advisory_lock(1) FROM shardgate.shards",
    "SELECT txid_current() FROM shardgate.shards",
    "SELECT random() FROM shardgate.shards",
    "SELECT pg_get_functiondef('shardgate_map.add_shard'::regproc) FROM shardgate.shards",
    "SELECT 'shardgate_map.shard'::regclass FROM shardgate.shards",
    "SELECT regclass('shardgate_map.shard') FROM shardgate.shards",
    "SELECT CAST('shardgate_map.require_shard' AS regproc) FROM shardgate.shards",
    "SELECT regproc 'shardgate_map.require_shard' FROM shardgate.shards",
    "SELECT name::shardgate_map.shard FROM shardgate.shards",
    "SELECT name OPERATOR(shardgate_map.=) name FROM shardgate.shards",
    "SELECT name FROM shardgate.shards ORDER BY name USING OPERATOR(shardgate_map.<)",
    "SELECT name FROM shardgate.shards WHERE name OPERATOR(shardgate_map.=) ANY (ARRAY['a'])",
    "SELECT name FROM shardgate.shards TABLESAMPLE system (10)",
    "SELECT name FROM shardgate.shards FOR UPDATE",
    "SELECT name INTO stolen FROM shardgate.shards",
    "CREATE TABLE stolen AS SELECT name FROM shardgate.shards",
    "SELECT current_user, name FROM shardgate.shards",
    "SELECT session_user, current_catalog, current_schema, name FROM shardgate.shards",
    "SELECT xmlparse(document '<a/>'), name FROM shardgate.shards",
    "SELECT x.* FROM shardgate.shards s, xmltable('/a' PASSING '<a/>'::xml COLUMNS b text DEFAULT pg_read_file('PG_VERSION')) x",
    "SELECT JSON_SERIALIZE(JSON_OBJECT('a': pg_read_file('PG_VERSION')) RETURNING text), name FROM shardgate.shards",
    "SELECT name FROM shardgate.pools, shardgate.shards, pg_authid",
    "SELECT pg_read_file('PG_VERSION') FROM shardgate.pools",
    "SELECT pg_read_file('PG_VERSION') FROM shardgate.clients",
    "EXPLAIN ANALYZE SELECT pg_read_file('PG_VERSION') FROM shardgate.shards",
    "EXPLAIN VERBOSE SELECT require_shard(name) FROM shardgate.shards",
    "DECLARE c CURSOR WITH HOLD FOR SELECT pg_read_file('PG_VERSION') FROM shardgate.shards",
    "COPY (SELECT pg_read_file('PG_VERSION') FROM shardgate.shards) TO STDOUT",
    "COPY (SELECT name FROM shardgate.shards) TO '/tmp/stolen'",
    "COPY (SELECT name FROM shardgate.shards) TO PROGRAM 'cat'",
    "COPY shardgate.shards TO STDOUT",
    "INSERT INTO t SELECT length(require_shard(name)::text) FROM shardgate.shards",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) CYCLE n SET c TO true DEFAULT false USING p \
     SELECT pg_ls_dir(name) FROM shardgate.shards, r",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_the_relations_is_read_in_the_map_database() {
    let cluster = Cluster::start(2).await;
    let proxy = start(&cluster).await;
    let mut client = mallory(&proxy).await;
    let mut wrong = String::new();
    for path in ["public", "shardgate_map", "shardgate_map, shardgate, pg_catalog"] {
        succeed(&mut client, &format!("SET search_path = {path}")).await;
        for attack in ATTACKS {
            let by_query = client.query(attack).answers().await;
            let by_parse = client.unnamed(attack, &[]).sync().answers().await;
            for told in [by_query, by_parse] {
                let done = successes(&told);
                if !done.is_empty() {
                    wrong.push_str(&format!("{path}: {attack}\n    {done:?}\n"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let map = cluster.connect_map().await;
    let left: i64 = map.query_one("SELECT count(*) FROM shardgate.shards", &[]).await.expect("the shards").get(0);
    assert_eq!(left, 2);
}

/// Whatever the types of the arguments are.
#[tokio::test]
async fn functions_that_are_let_through_compute_and_look_nothing_up() {
    let cluster = Cluster::start(1).await;
    let map = cluster.connect_map().await;
    let of_name = "FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ($1)";
    let does_more =
        "(provolatile = 'v' OR EXISTS (SELECT FROM unnest(proargtypes) AS t (oid) WHERE t.oid::regtype::text ~ '^reg|^refcursor'))";
    let names: Vec<&str> = COMPUTING.to_vec();
    let found =
        map.query(&format!("SELECT oid::regprocedure::text {of_name} AND {does_more}"), &[&names]).await.expect("functions");
    let found: Vec<String> = found.iter().map(|row| row.get(0)).collect();
    assert_eq!(found, Vec::<String>::new());
    let known: i64 = map.query_one(&format!("SELECT count(DISTINCT proname) {of_name}"), &[&names]).await.expect("names").get(0);
    assert!(usize::try_from(known).expect("a count") >= names.len() - NEWER_THAN_15, "{known} of {}", names.len());
}

/// Functions on the list that PostgreSQL 15 does not have.
const NEWER_THAN_15: usize = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_view_shows_a_password() {
    let cluster = Cluster::start(2).await;
    let proxy = start(&cluster).await;
    let mut client = mallory(&proxy).await;
    for relation in
        ["shards", "tables", "partitions", "lookup_keys", "moves", "proxies", "history", "transactions", "pools", "clients"]
    {
        let told = client.ask(&format!("SELECT * FROM shardgate.{relation}")).await;
        assert!(told.contains("C(SELECT") && !told.contains(SECRET), "{relation}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_execute_are_not_computed_in_the_map_database() {
    let cluster = Cluster::start(2).await;
    let proxy = start(&cluster).await;
    let mut client = mallory(&proxy).await;
    client.parse("p", "SELECT name FROM shardgate.shards WHERE name = $1").sync().answers().await;
    client.parse("q", "SELECT $1::text, name FROM shardgate.shards").sync().answers().await;
    assert_eq!(client.value("EXECUTE p('s2')").await, "s2");
    for argument in ["pg_read_file('PG_VERSION')", "lower('A')", "current_setting('port')", "('a'::text).pg_read_file"] {
        let execute = format!("EXECUTE q({argument})");
        assert_eq!(successes(&client.query(&execute).answers().await), Vec::<String>::new(), "{execute}");
        assert_eq!(successes(&client.unnamed(&execute, &[]).sync().answers().await), Vec::<String>::new(), "{execute}");
    }
    let told = client.query("EXECUTE q(lower('A'))").answers().await;
    let refusal = told.iter().find(|message| message.tag == b'E').expect("a refusal");
    assert_eq!((refusal.field(b'C'), refusal.field(b'H')), ("0A000".to_owned(), "Give it as a constant.".to_owned()));
}

/// A character of two bytes whose second one, in UTF-8, ends another character's first byte and takes the backslash with it in
/// another encoding: what the proxy reads as a string ends there, and goes on as SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encoding_of_the_client_changes_nothing_of_what_is_read() {
    let cluster = Cluster::start(2).await;
    let proxy = start(&cluster).await;
    let mut client = mallory(&proxy).await;
    let steals = "SELECT E'\u{103}\\', url FROM shardgate_map.shard --', name FROM shardgate.shards";
    assert!(client.ask(steals).await.contains("C(SELECT 2)"), "in UTF-8 it is a string");
    client.parse("p", steals).sync().answers().await;
    client.parse("q", "SELECT name FROM shardgate.shards WHERE name = $1").sync().answers().await;
    succeed(&mut client, "SET client_encoding = 'SJIS'").await;
    for sql in [steals, "EXECUTE p", "EXECUTE q('\u{103}')", &format!("EXPLAIN {steals}")] {
        assert_eq!(successes(&client.query(sql).answers().await), Vec::<String>::new(), "{sql}");
        assert_eq!(successes(&client.unnamed(sql, &[]).sync().answers().await), Vec::<String>::new(), "{sql}");
    }
    assert_eq!(successes(&client.bind("", "p", &[]).execute("", 0).sync().answers().await), Vec::<String>::new());
    assert_eq!(client.value("SELECT name FROM shardgate.shards WHERE is_home").await, "s1", "what is ASCII is the same");
    // The same by a setting that goes along, and by a name of a user that the proxy tells the map database.
    succeed(&mut client, "SET client_encoding = 'UTF8'").await;
    let zone = "SET timezone = E'<+05\u{103}\\\\'';DROP VIEW shardgate.moves;--'>-5'";
    client.ask(zone).await;
    client.ask("SET client_encoding = 'SJIS'").await;
    client.ask("SELECT name FROM shardgate.shards").await;
    let name = "\u{103}\\',false);SET default_transaction_read_only = off;DROP VIEW shardgate.moves;--";
    let mut named = WireClient::connect_with(proxy.address(), &[("user", name), ("database", "app")]).await;
    succeed(&mut named, "SET client_encoding = 'SJIS'").await;
    named.ask("SELECT count(*) FROM shardgate.clients").await;
    succeed(&mut named, "SET client_encoding = 'UTF8'").await;
    let users = named.ask("SELECT \"user\" FROM shardgate.clients").await;
    assert!(users.contains(name), "{users}");
    cluster.connect_map().await.query("SELECT * FROM shardgate.moves", &[]).await.expect("the view is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_relations_are_read_from_any_connection() {
    let cluster = Cluster::separate_servers(2).await;
    let proxy = start(&cluster).await;
    let mut client = mallory(&proxy).await;
    let started = "SELECT changed_at FROM shardgate.history WHERE epoch = 1";
    succeed(&mut client, "SET timezone = 'UTC'").await;
    let in_utc = client.value(started).await;
    assert!(in_utc.ends_with("+00"), "{in_utc}");
    for setting in [
        "SET ROLE stranger",
        "SET SESSION AUTHORIZATION stranger",
        "SET app.tenant = 't1'",
        "SET search_path = nowhere",
        "SET search_path = ''",
        "SET default_transaction_read_only = off",
        "SET default_transaction_isolation = 'serializable'",
        "SET work_mem = '1MB'",
        "SET lc_numeric = 'C'",
        "SET timezone = 'Asia/Kolkata'",
    ] {
        succeed(&mut client, setting).await;
        assert_eq!(client.value("SELECT count(*) FROM shardgate.shards").await, "2", "{setting}");
        assert_eq!(client.value("SELECT count(*) >= 1 FROM shardgate.clients").await, "t", "{setting}");
    }
    let in_india = client.value(started).await;
    assert!(in_india.ends_with("+05:30") && in_india != in_utc, "{in_india}");
    for begin in ["BEGIN", "BEGIN READ WRITE", "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE", "BEGIN READ ONLY DEFERRABLE"] {
        succeed(&mut client, begin).await;
        succeed(&mut client, "SET LOCAL timezone = 'UTC'").await;
        succeed(&mut client, "SAVEPOINT s").await;
        succeed(&mut client, "SET LOCAL ROLE stranger").await;
        assert_eq!(client.value(started).await, in_utc, "{begin}");
        succeed(&mut client, "SET LOCAL timezone = 'Asia/Kolkata'").await;
        assert_eq!(client.value(started).await, in_india, "{begin}");
        succeed(&mut client, "ROLLBACK TO s").await;
        assert_eq!(client.value(started).await, in_utc, "{begin}");
        succeed(&mut client, "COMMIT").await;
        assert_eq!(client.value(started).await, in_india, "{begin}");
    }
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, "SET timezone = 'UTC'").await;
    assert_eq!(client.value(started).await, in_utc);
    succeed(&mut client, "COMMIT").await;
    assert_eq!(client.value(started).await, in_utc);
    succeed(&mut client, "SET search_path = shardgate").await;
    assert_eq!(client.value("SELECT count(*) FROM shards").await, "2");
}

/// What people ask of the relations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_read_with_what_computes() {
    let cluster = Cluster::start(2).await;
    let proxy = start(&cluster).await;
    let mut client = mallory(&proxy).await;
    for (query, expected) in [
        ("SELECT string_agg(name, ',' ORDER BY name) FROM shardgate.shards", "s1,s2"),
        (
            "SELECT string_agg(shard || ' ' || n, ', ' ORDER BY shard) FROM (SELECT shard, count(*) AS n FROM shardgate.partitions \
          JOIN shardgate.tables t USING (colocation_group) WHERE t.table_name = 't' GROUP BY 1) x",
            "s1 1, s2 1",
        ),
        ("WITH s AS (SELECT name FROM shardgate.shards) SELECT max(upper(s.name)) FROM s", "S2"),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) \
          SELECT max(n) FROM r WHERE EXISTS (SELECT FROM shardgate.shards)",
            "3",
        ),
        ("SELECT count(*) FROM shardgate.proxies WHERE last_seen > now() - interval '1 hour'", "1"),
        ("SELECT arguments->>'name' FROM shardgate.history WHERE change = 'add_shard' ORDER BY epoch LIMIT 1", "s1"),
        ("SELECT row_number() OVER (ORDER BY name) FROM shardgate.shards WHERE name LIKE 's_' AND name ~ '2$'", "D(1)"),
        ("SELECT coalesce(sum(cardinality(shards)), 0)::int FROM shardgate.clients WHERE 'x' = ANY (shards)", "0"),
        ("SELECT count(*) FROM shardgate.transactions t, unnest(t.participants) AS u (shard) WHERE u.shard = 's1'", "0"),
        (
            "SELECT CASE WHEN s.is_home THEN extract(epoch FROM interval '1 minute')::int END FROM shardgate.shards s WHERE name = 's1'",
            "60",
        ),
        ("SELECT count(*) FROM shardgate.shards JOIN shardgate.shards AS o USING (name)", "2"),
        ("SELECT to_char(capacity, 'FM9.0') FROM shardgate.shards WHERE region IS NULL AND name = 's1'", "1.0"),
        ("SELECT (ARRAY[name])[1] FROM shardgate.shards ORDER BY name DESC LIMIT 1", "s2"),
        ("TABLE shardgate.moves UNION ALL TABLE shardgate.moves", ""),
        ("VALUES ((SELECT count(*) FROM shardgate.shards))", "2"),
    ] {
        let told = client.ask(query).await;
        assert!(told.contains("C(SELECT") && told.contains(expected), "{query}: {told}");
    }
    for (statement, expected) in [
        ("COPY (SELECT name FROM shardgate.shards ORDER BY name) TO STDOUT", "C(COPY 2)"),
        ("EXPLAIN SELECT name FROM shardgate.shards", "C(EXPLAIN)"),
        ("BEGIN; DECLARE c CURSOR FOR SELECT name FROM shardgate.shards ORDER BY name; FETCH ALL FROM c; COMMIT", "D(s1) D(s2)"),
    ] {
        let told = client.ask(statement).await;
        assert!(told.contains(expected), "{statement}: {told}");
    }
}
