//! The schema that an application brings along: extension types, enums, domains, functions that share names with PostgreSQL's own, views.
//! Statements ask no more shards and fetch no more rows than they have to, and are answered as by one PostgreSQL.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

const SCHEMA: &[&str] = &[
    "CREATE EXTENSION citext",
    "CREATE TYPE status AS ENUM ('open', 'done')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE FUNCTION round(float8, int) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT pg_catalog.round($1::numeric, $2)::float8'",
    "CREATE SCHEMA legacy",
    "CREATE FUNCTION legacy.count(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION legacy.sum(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE tenants (id int PRIMARY KEY, name text, plan citext)",
    "CREATE TABLE users (tenant_id int NOT NULL, id int NOT NULL, email citext, PRIMARY KEY (tenant_id, id))",
    "CREATE TABLE tasks (tenant_id int NOT NULL, id int NOT NULL, user_id int, title text, st status, points positive, \
     amount numeric, ratio float8, PRIMARY KEY (tenant_id, id))",
    "CREATE VIEW open_tasks AS SELECT t.tenant_id, t.id, t.title, u.email FROM tasks t \
     JOIN users u ON u.tenant_id = t.tenant_id AND u.id = t.user_id WHERE t.st = 'open'",
    "CREATE VIEW totals AS SELECT tenant_id, max(points) AS top, min(amount) AS low, count(*) AS n FROM tasks GROUP BY tenant_id",
    "CREATE VIEW highest AS SELECT max(id) AS id, min(title) AS title, count(*) AS n FROM tasks",
    "CREATE VIEW ranked AS SELECT tenant_id, id, title, row_number() OVER (PARTITION BY tenant_id ORDER BY id) AS place FROM tasks",
    "CREATE VIEW names AS SELECT tenant_id, title AS name FROM tasks UNION ALL SELECT tenant_id, email::text FROM users",
    "CREATE VIEW latest AS SELECT DISTINCT ON (tenant_id) tenant_id, id, title FROM tasks ORDER BY tenant_id, id DESC",
    "CREATE VIEW with_tenant AS SELECT n.name AS tenant, t.* FROM tasks t LEFT JOIN tenants n ON n.id = t.tenant_id",
    "SELECT shardgate.distribute_table('users', 'tenant_id')",
    "SELECT shardgate.distribute_table('tasks', 'tenant_id', colocate_with => 'users')",
    "SELECT shardgate.reference_table('tenants')",
    "INSERT INTO tenants SELECT g, 't' || g, CASE WHEN g % 2 = 0 THEN 'Free' ELSE 'paid' END FROM generate_series(1, 20) g",
    "INSERT INTO users SELECT t, g, 'U' || g || '@T' || t FROM generate_series(1, 20) t, generate_series(1, 4) g",
    "INSERT INTO tasks SELECT t, g, g % 4 + 1, 'task ' || g, CASE WHEN g % 3 = 0 THEN 'open' ELSE 'done' END::status, g, g * 1.5, \
     g / 7.0 FROM generate_series(1, 20) t, generate_series(1, 12) g",
];

/// A statement, and what EXPLAIN (SHARDS) says of it: what begins with `!` is not there. `{one}` is the shard of tenant 5.
const CASES: &[(&str, &[&str])] = &[
    // Overloads for types of their own, and off the search path, are not what these mean.
    ("SELECT min(id), max(id), max(amount), count(id), sum(id) FROM tasks", &["Route: scatter"]),
    ("SELECT max(points + 1), min(id * 2), max(title), min(st) FROM tasks", &["Route: scatter"]),
    ("SELECT tenant_id % 3, max(coalesce(user_id, 0)) FROM tasks GROUP BY 1 HAVING min(id) < 5 ORDER BY 1", &["Route: scatter"]),
    ("SELECT round(amount, 0), count(*) FROM tasks GROUP BY 1 ORDER BY 1", &["Route: scatter"]),
    ("SELECT max(length(title)), max(lower(title)), min(abs(id)) FROM tasks", &["Route: scatter"]),
    ("SELECT * FROM highest", &["Route: "]),
    ("SELECT h.n, t.name FROM highest h JOIN tenants t ON t.id = h.id ORDER BY 2", &["Route: "]),
    // These are.
    ("SELECT min(email), max(email) FROM users", &["Route: gather"]),
    ("SELECT max(round(ratio, 2)) FROM tasks WHERE tenant_id = 5", &["Route: single shard"]),
    // Conditions on citext, enums and domains go along to the shards.
    (
        "SELECT a.title, b.email FROM tasks a JOIN users b ON b.id = a.id + 1 WHERE a.st = 'open' AND a.points = 3 \
         AND b.email IN ('u4@t5', 'U4@t6') AND b.email <> 'U4@T6' ORDER BY a.tenant_id, 1, 2",
        &[
            "Route: gather",
            "\"points\" OPERATOR(pg_catalog.=) (3)",
            "\"st\" OPERATOR(pg_catalog.=) 'open'",
            "IN ('u4@t5', 'U4@t6')",
            "\"email\" OPERATOR(\"public\".<>) 'U4@T6'",
            "!\"amount\"",
        ],
    ),
    (
        "SELECT n.plan, u.email FROM users u RIGHT JOIN tenants n ON n.id = u.id AND u.email = 'U1@t7' WHERE n.plan = 'FREE' ORDER BY n.id",
        &["Route: gather", "\"email\" OPERATOR(\"public\".=) 'U1@t7'"],
    ),
    // By text it is another comparison.
    (
        "SELECT count(*) FROM tasks a JOIN users b ON b.id = a.id WHERE b.email = 'u1@t5'::text",
        &["Route: gather", "!\"email\" OPERATOR"],
    ),
    // A star is of the tables beside it alone, and a domain's column that nobody names stays where it is.
    ("SELECT * FROM highest h", &["!\"user_id\"", "!\"points\""]),
    (
        "SELECT h.*, t.user_id FROM highest h JOIN tasks t ON t.id = h.id ORDER BY 4",
        &["Route: gather", "\"user_id\"", "!\"amount\""],
    ),
    (
        "SELECT u.*, t.id FROM tasks t JOIN users u ON u.id = t.id ORDER BY 1, 2",
        &["Route: gather", "SELECT \"id\" FROM \"public\".\"tasks\""],
    ),
    // What the tenant's condition says of one table it says of all that are joined by the key, through views too.
    ("SELECT id, title, email FROM open_tasks WHERE tenant_id = 5 ORDER BY id", &["Route: single shard", "Shards: {one}"]),
    ("SELECT o.title, n.name FROM open_tasks o JOIN tenants n ON n.id = o.tenant_id WHERE n.id = 5 ORDER BY 1", &["Shards: {one}"]),
    ("SELECT * FROM totals WHERE tenant_id = 5", &["Route: single shard", "Shards: {one}"]),
    ("SELECT * FROM ranked WHERE tenant_id = 5 AND place < 3 ORDER BY id", &["Shards: {one}"]),
    ("SELECT * FROM names WHERE tenant_id = 5 ORDER BY name", &["Shards: {one}"]),
    // EXPLAIN says which tables a view reads, whatever becomes of it.
    (
        "SELECT * FROM names ORDER BY 1, 2",
        &["Table \"tasks\" is not restricted", "Table \"users\" is not restricted", "!names no sharded table"],
    ),
    ("SELECT count(*) FROM names", &["Table \"tasks\" is not restricted", "!names no sharded table"]),
    ("SELECT * FROM latest WHERE tenant_id = 5", &["Shards: {one}"]),
    ("SELECT tenant, title FROM with_tenant WHERE tenant_id = 5 ORDER BY id", &["Shards: {one}"]),
    (
        "SELECT t.id, u.email FROM tasks t LEFT JOIN users u ON u.tenant_id = t.tenant_id AND u.id = t.user_id WHERE t.tenant_id = 5 ORDER BY 1",
        &["Shards: {one}"],
    ),
    (
        "SELECT count(*) FROM (SELECT tenant_id, max(id) m FROM tasks GROUP BY 1) x JOIN open_tasks USING (tenant_id) WHERE x.tenant_id = 5",
        &["Shards: {one}"],
    ),
    (
        "SELECT (SELECT count(*) FROM users u WHERE u.tenant_id = t.tenant_id) FROM tasks t WHERE t.tenant_id = 5 AND t.id = 1",
        &["Shards: {one}"],
    ),
    (
        "SELECT * FROM open_tasks o JOIN users u ON u.id = o.id WHERE o.tenant_id = 5 ORDER BY o.id, u.tenant_id",
        &["Route: gather", "FROM \"public\".\"open_tasks\" WHERE \"tenant_id\" OPERATOR(pg_catalog.=) (5)"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applications_schema_is_answered_as_narrowly_as_it_can_be() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    stage.create_plain().await;
    let (mut sharded, mut plain) = (stage.client().await, stage.plain_client().await);
    for statement in SCHEMA {
        succeed(&mut sharded, statement).await;
        if !statement.contains("shardgate.") {
            succeed(&mut plain, statement).await;
        }
    }
    let one = sharded.value("SELECT shard FROM shardgate.locate('tasks', '5')").await;
    let mut wrong = Vec::new();
    for (sql, expected) in CASES {
        wrong.extend(plan_differs(&mut sharded, sql, expected, &one).await);
        let (told, right) = (sharded.ask(sql).await, plain.ask(sql).await);
        if told != right {
            wrong.push(format!("{sql}\n    {told}\n    {right}"));
        }
    }
    for sql in WRITES {
        for sql in [sql, "SELECT * FROM users ORDER BY tenant_id, id"] {
            let (told, right) = (sharded.ask(sql).await, plain.ask(sql).await);
            if told != right {
                wrong.push(format!("{sql}\n    {told}\n    {right}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let told = sharded.ask("INSERT INTO users VALUES (1, 1, 'a'), (2, 1, 'b') ON CONFLICT DO NOTHING RETURNING xmax = 5").await;
    assert!(told.starts_with("E(0A000 system column \"xmax\""), "{told}");
    by_hand(&stage, &one).await;
    stage.assert_log_is_clean();
}

async fn plan_differs(client: &mut WireClient, sql: &str, expected: &[&str], one: &str) -> Option<String> {
    let told = client.ask(&format!("EXPLAIN (SHARDS) {sql}")).await;
    let is_told = |line: &&&str| match line.strip_prefix('!') {
        Some(absent) => !told.contains(&absent.replace("{one}", one)),
        None => told.contains(&line.replace("{one}", one)),
    };
    let missing: Vec<&&str> = expected.iter().filter(|line| !is_told(line)).collect();
    (!missing.is_empty()).then(|| format!("{sql}\n    {missing:?} in {told}"))
}

/// Writes, which say the same as on one PostgreSQL, and leave the same rows.
const WRITES: &[&str] = &[
    "INSERT INTO users VALUES (1, 1, 'New@T1'), (2, 9, 'U9@T2'), (3, 2, 'x'), (4, 9, 'y'), (5, 9, 'z') \
     ON CONFLICT (tenant_id, id) DO UPDATE SET email = excluded.email RETURNING tenant_id, (xmax = 0) AS inserted",
    "INSERT INTO users AS u VALUES (1, 9, 'a'), (5, 9, 'Z') ON CONFLICT (tenant_id, id) DO UPDATE SET email = excluded.email \
     RETURNING email, u.xmax::text <> '0', xmax::text::int = 0",
    "INSERT INTO users SELECT tenant_id, id + 8, 'c' FROM users WHERE id < 3 ON CONFLICT (tenant_id, id) DO NOTHING",
    "UPDATE users SET email = 'd' WHERE email = 'C' AND tenant_id < 9",
    "DELETE FROM users WHERE email = 'D' AND tenant_id = 5",
];

/// What a session does that names its shard by hand, `{one}` or `{other}`: `!` before a step, it is refused.
const BY_HAND: &[&str] = &[
    "SET shardgate.shard = '{other}'",
    "!INSERT INTO tasks (tenant_id, id) VALUES (5, 100)",
    "!INSERT INTO tasks (tenant_id, id) SELECT 5, 101",
    "!UPDATE tasks SET title = 'y' WHERE tenant_id = 5",
    "!UPDATE tasks SET title = 'y'",
    "!UPDATE tasks SET tenant_id = 5 WHERE id = 1",
    "!DELETE FROM tasks WHERE tenant_id = 5",
    "!COPY tasks (tenant_id, id) FROM STDIN",
    "!MERGE INTO tasks t USING (SELECT 5 AS a, 105 AS b) s ON t.tenant_id = s.a AND t.id = s.b \
     WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (a, b)",
    "!WITH w AS (INSERT INTO tasks (tenant_id, id) VALUES (5, 106) RETURNING *) SELECT * FROM w",
    "!COPY (INSERT INTO tasks (tenant_id, id) VALUES (5, 107) RETURNING id) TO STDOUT",
    "!DO $$ BEGIN INSERT INTO tasks (tenant_id, id) VALUES (5, 104); END $$",
    "PREPARE p(int) AS INSERT INTO tasks (tenant_id, id) VALUES ($1, 103)",
    "!EXECUTE p(5)",
    "SELECT id FROM tasks ORDER BY id FOR SHARE",
    "SELECT count(*) FROM tasks",
    "CREATE TABLE of_one_shard (a int); DROP TABLE of_one_shard",
    "SET shardgate.shard = '{one}'",
    "INSERT INTO tasks (tenant_id, id) VALUES (5, 100)",
    "EXECUTE p(5)",
    "COPY (INSERT INTO tasks (tenant_id, id) VALUES (5, 104) RETURNING id) TO STDOUT",
    "!INSERT INTO tasks (tenant_id, id) VALUES (5, 110), ({elsewhere}, 110)",
    "UPDATE tasks SET title = 'y' WHERE tenant_id = 5 AND id > 99",
    "DELETE FROM tasks WHERE tenant_id = 5 AND id > 99",
    "RESET shardgate.shard",
    "!/* shardgate: shard={other} */ INSERT INTO tasks (tenant_id, id) VALUES (5, 100)",
    "!/* shardgate: shard={other} */ COPY (INSERT INTO tasks (tenant_id, id) VALUES (5, 900) RETURNING id) TO STDOUT",
    "INSERT INTO tasks (tenant_id, id) VALUES (5, 100)",
    "DELETE FROM tasks WHERE id = 100",
];

/// Every row stays where its key belongs.
async fn by_hand(stage: &Stage, one: &str) {
    let mut client = stage.client().await;
    let mut places = Vec::new();
    for tenant in 1..=20 {
        let shard = client.value(&format!("SELECT shard FROM shardgate.locate('tasks', '{tenant}')")).await;
        places.push((tenant, shard));
    }
    let (elsewhere, other) = places.iter().find(|(_, shard)| shard != one).expect("a tenant of another shard");
    for step in BY_HAND {
        let is_refused = step.starts_with('!');
        let sql = step.trim_start_matches('!');
        let sql = sql.replace("{one}", one).replace("{other}", other).replace("{elsewhere}", &elsewhere.to_string());
        let told = client.ask(&sql).await;
        match is_refused {
            true => assert!(told.starts_with("E(0A000 cannot write rows on shard"), "{sql}: {told}"),
            false => assert!(!told.contains("E("), "{sql}: {told}"),
        }
    }
    let count = client.value("SELECT count(*) FROM tasks").await;
    assert_eq!(count, "240");
    rows_without_a_shard(&mut client, one).await;
}

/// Each row of a COPY is looked at where it could be one of a key that is mapped nowhere.
async fn rows_without_a_shard(client: &mut WireClient, one: &str) {
    succeed(client, "CREATE TABLE codes (code text PRIMARY KEY)").await;
    succeed(client, &format!("SELECT shardgate.distribute_table('codes', 'code', 'lookup', on_shards => '{one}')")).await;
    succeed(client, &format!("SELECT shardgate.map_keys('codes', ARRAY['a', 'b'], '{one}')")).await;
    let hint = format!("/* shardgate: shard={one} */ ");
    for (setting, comment) in [("", hint.as_str()), (one, "")] {
        succeed(client, &format!("SET shardgate.shard = '{setting}'")).await;
        for (rows, expected) in [("a\nz\n", "E(SG001 "), ("a\nb\n", "C(COPY 2)")] {
            client.query(&format!("{comment}COPY codes FROM STDIN")).put(b'd', rows.as_bytes()).put(b'c', b"");
            let told = client.transcript().await;
            assert!(told.contains(expected), "{setting}{comment}: {told}");
        }
        succeed(client, "DELETE FROM codes WHERE code IN ('a', 'b')").await;
    }
    succeed(client, "RESET shardgate.shard").await;
    assert_eq!(client.value("SELECT count(*) FROM codes").await, "0");
}
