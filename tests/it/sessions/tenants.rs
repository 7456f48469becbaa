//! Row security by a setting that a function sets, the usual way of many tenants in one database: the function is proven by its body,
//! what it sets is the session's by PostgreSQL's rule, every shard has it, and no other client sees it.
//!
//! The same scripts run beside plain PostgreSQL. Pools of two connections: clients follow each other on them.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

const SCHEMA: &[&str] = &[
    "CREATE TABLE docs (id bigint PRIMARY KEY, tenant_id int NOT NULL, text text)",
    "ALTER TABLE docs ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON docs USING (tenant_id = current_setting('app.tenant_id')::int)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON docs, currencies, notes TO reader",
    "SELECT shardgate.distribute_table('docs', 'id', partitions => 12)",
    "INSERT INTO docs SELECT g, g % 10, 'd' || g FROM generate_series(1, 60) g",
    "CREATE FUNCTION set_tenant(t int) RETURNS void LANGUAGE plpgsql AS \
     $$ BEGIN PERFORM set_config('app.tenant_id', t::text, false); END $$",
    "CREATE FUNCTION set_tenant_sql(t int) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant_id', t::text, false) $$",
    "CREATE FUNCTION set_tenant_stable(t int) RETURNS text STABLE LANGUAGE sql AS \
     $$ SELECT set_config('app.tenant_id', t::text, false) $$",
    "CREATE FUNCTION set_tenant_locally(t int) RETURNS void LANGUAGE plpgsql AS \
     $$ BEGIN PERFORM set_config('app.tenant_id', t::text, true); END $$",
    "CREATE FUNCTION log_in(t int, s int) RETURNS int LANGUAGE plpgsql AS \
     $$ BEGIN IF t < 0 THEN RAISE 'nobody'; END IF; PERFORM set_tenant(t); SET app.since = 'now'; \
        PERFORM set_config('app.person', s::text, false); RETURN t; END $$",
    "CREATE FUNCTION log_out() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RESET app.tenant_id; RESET app.person; END $$",
    "CREATE PROCEDURE enter(t int) LANGUAGE plpgsql AS $$ BEGIN PERFORM set_tenant(t); END $$",
];

/// `~` parts messages; what begins with `&` is one pipeline of statements between `;`, anything else a text of its own.
const SCRIPTS: &[&str] = &[
    "SELECT set_tenant(7)~{all}~{one}~{other}~{joined}~{count}",
    "SELECT set_tenant_sql(7)~{all}~SELECT set_tenant_sql(3)~{all}~{one}",
    "SELECT set_tenant_stable(7)~{all}~SELECT * FROM set_tenant(3)~{all}",
    "SELECT log_in(7, 1)~{all}~{settings}~SELECT log_in(-1, 2)~{settings}~{all}",
    "CALL enter(4)~{all}~DO $$ BEGIN PERFORM set_config('app.tenant_id', '5', false); END $$~{all}",
    "DO $$ BEGIN SET app.tenant_id = '5'; END $$~{all}",
    // Writes, as the policy lets them.
    "SELECT set_tenant(7)~UPDATE docs SET text = text || '!'~{all}~INSERT INTO docs VALUES (907, 7, 'new')~\
     INSERT INTO docs VALUES (908, 8, 'new')~{all}~DELETE FROM docs WHERE id = 907",
    // In a transaction.
    "SELECT set_tenant(2)~BEGIN~SELECT set_tenant(7)~{all}~{other}~ROLLBACK~{all}~{other}",
    "SELECT set_tenant(2)~BEGIN~{all}~SELECT set_tenant(7)~{all}~{one}~COMMIT~{all}",
    "SELECT set_tenant(2)~BEGIN~{other}~SAVEPOINT a~SELECT set_tenant(7)~{all}~ROLLBACK TO a~{all}~COMMIT~{all}",
    "SELECT set_tenant(2)~BEGIN~SELECT set_tenant(7)~SELECT 1/0~{all}~ROLLBACK~{all}",
    "SELECT set_tenant(2)~BEGIN~SELECT set_tenant(7)~UPDATE docs SET text = 'x'~ROLLBACK~{all}~\
     BEGIN~SELECT set_tenant(7)~UPDATE docs SET text = text~COMMIT~{all}",
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY~SELECT set_tenant(7)~{one}~COMMIT~{all}",
    // For the transaction alone.
    "SELECT set_tenant(2)~BEGIN~SELECT set_tenant_locally(7)~{all}~{other}~{one}~COMMIT~{all}",
    "SELECT set_tenant(2)~BEGIN~{other}~SELECT set_tenant_locally(7)~{all}~{count}~ROLLBACK~{all}",
    "SELECT set_tenant(2)~BEGIN~SELECT set_tenant_locally(7)~SELECT set_tenant(5)~{all}~COMMIT~{all}",
    "SELECT set_tenant(2)~BEGIN~SELECT set_tenant(5)~SELECT set_tenant_locally(7)~{all}~COMMIT~{all}",
    "SELECT set_tenant(2)~BEGIN~DO $$ BEGIN SET LOCAL app.tenant_id = '5'; END $$~{all}~COMMIT~{all}",
    "SELECT set_tenant(2)~SELECT set_tenant_locally(7)~{all}",
    "SELECT set_tenant(2)~BEGIN~SAVEPOINT a~SELECT set_tenant_locally(7)~{all}~ROLLBACK TO a~{all}~COMMIT",
    // Several statements in one text, and in one pipeline.
    "SELECT set_tenant(2)~SELECT set_tenant(7); {all}; {other}~{all}",
    "SELECT set_tenant(2)~SELECT set_tenant(7); {all}; SELECT 1/0~{all}",
    "SELECT set_tenant(2)~SELECT set_tenant_locally(7); {all}~{all}",
    "SELECT set_tenant(2)~&SELECT set_tenant(7);{all};{other}~{all}",
    "SELECT set_tenant(2)~&SELECT set_tenant(7);{all};SELECT 1/0~{all}",
    "SELECT set_tenant(2)~&SELECT set_tenant(7);SELECT 1/0~{all}",
    "SELECT set_tenant(2)~&SELECT set_tenant_locally(7);{all}~{all}",
    "SELECT set_tenant(2)~&{all};SELECT set_tenant(7);{one};UPDATE docs SET text = text;{count}~{all}",
    // Prepared.
    "PREPARE p(int) AS SELECT set_tenant($1)~EXECUTE p(7)~{all}~EXECUTE p(3)~{all}~BEGIN~EXECUTE p(4)~{all}~ROLLBACK~{all}",
    "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT set_tenant_stable(7)~{all}",
    "COPY (SELECT set_tenant_sql(7)) TO STDOUT~{all}",
    // On one shard, wherever it is.
    "SELECT set_tenant(7)~SELECT set_tenant_sql(tenant_id + 1) FROM docs WHERE id = 7~{all}",
    "SELECT set_tenant_sql(6), (SELECT count(*) FROM currencies)~{all}",
    "INSERT INTO currencies VALUES ('USD', set_tenant_sql(6))~{all}~TABLE currencies",
    "INSERT INTO notes VALUES (1, set_tenant_sql(6))~{all}~TABLE notes",
    "SELECT set_tenant(1)~SELECT log_out()~SELECT coalesce(current_setting('app.person', true), 'null')",
];

const PARTS: &[(&str, &str)] = &[
    ("{all}", "SELECT id, text FROM docs ORDER BY id"),
    ("{one}", "SELECT text FROM docs WHERE id = 7"),
    ("{other}", "SELECT text FROM docs WHERE id = 12"),
    ("{joined}", "SELECT a.id, b.text FROM docs a JOIN docs b ON b.id = a.id + 10 ORDER BY a.id"),
    ("{count}", "SELECT count(*), min(text) FROM docs"),
    ("{settings}", "SELECT current_setting('app.tenant_id'), current_setting('app.since'), current_setting('app.person')"),
];

async fn run(client: &mut WireClient, step: &str) -> String {
    let step = PARTS.iter().fold(step.to_owned(), |step, (name, text)| step.replace(name, text));
    match step.strip_prefix('&') {
        None => client.query(&step),
        Some(statements) => {
            for statement in statements.split(';') {
                client.unnamed(statement, &[]);
            }
            client.sync()
        }
    };
    client.flush().await;
    client.transcript().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_a_function_sets_is_the_sessions_on_every_shard() {
    let settings = vec![("pool.size_per_shard", "2".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    stage.create_plain().await;
    let (mut sharded, mut plain) = (stage.client().await, stage.plain_client().await);
    for statement in SCHEMA {
        succeed(&mut sharded, statement).await;
        if !statement.contains("shardgate.") {
            succeed(&mut plain, statement).await;
        }
    }
    // One beside all of them has a tenant of its own.
    succeed(&mut sharded, "SET ROLE reader; SELECT set_tenant(9)").await;
    succeed(&mut plain, "SET ROLE reader; SELECT set_tenant(9)").await;
    let mut wrong = Vec::new();
    for script in SCRIPTS {
        let (mut client, mut expected) = (stage.client().await, stage.plain_client().await);
        succeed(&mut client, "SET ROLE reader").await;
        succeed(&mut expected, "SET ROLE reader").await;
        for step in script.split('~') {
            let (told, right) = (run(&mut client, step).await, run(&mut expected, step).await);
            if told != right && !step.starts_with("EXPLAIN") {
                wrong.push(format!("{script}\n    {step}\n    {told}\n    {right}"));
            }
            let (told, right) = (run(&mut sharded, "{all}").await, run(&mut plain, "{all}").await);
            assert_eq!(told, right, "beside {script}: {step}");
        }
        drop(client);
        // Two: one may get a connection that nobody had before.
        for _ in 0..2 {
            let (mut next, mut fresh) = (stage.client().await, stage.plain_client().await);
            let state = "SELECT current_setting('app.person', true), current_setting('app.tenant_id', true)";
            assert_eq!(run(&mut next, state).await, run(&mut fresh, state).await, "after {script}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    views_read_with_the_rights_that_they_have(&stage).await;
    stage.assert_log_is_clean();
}

/// Of docs, which has row security: with the rights of who reads them, of a superuser, and of `reader`.
const VIEWS: &[&str] = &[
    "CREATE VIEW invoked WITH (security_invoker) AS SELECT id, tenant_id, text FROM docs",
    "CREATE VIEW invoked_sum WITH (security_invoker = on) AS SELECT count(*) AS n, min(text) AS first FROM docs",
    "CREATE VIEW invoked_last WITH (security_invoker = true) AS SELECT id, text FROM invoked ORDER BY id DESC LIMIT 3",
    "CREATE VIEW owned AS SELECT id, tenant_id, text FROM docs",
    "CREATE VIEW owned_sum AS SELECT count(*) AS n, min(text) AS first FROM docs",
    "CREATE VIEW invoked_owned WITH (security_invoker) AS SELECT o.n, c.code FROM owned_sum o CROSS JOIN currencies c",
    "CREATE VIEW kept AS SELECT id, tenant_id, text FROM docs",
    "CREATE VIEW kept_sum AS SELECT count(*) AS n, min(text) AS first FROM docs",
    "ALTER VIEW kept OWNER TO reader",
    "ALTER VIEW kept_sum OWNER TO reader",
    "CREATE VIEW late AS SELECT id, text FROM docs ORDER BY id LIMIT 2",
    "ALTER VIEW late SET (security_invoker = yes)",
    "GRANT SELECT, UPDATE, DELETE ON invoked, invoked_sum, invoked_last, owned, owned_sum, invoked_owned, kept, kept_sum, late TO reader",
];

/// `!`: it is refused, because PostgreSQL would read the rows of all shards with the rights of the view's owner.
const OF_VIEWS: &[&str] = &[
    "SELECT id, text FROM {v} ORDER BY id",
    "SELECT text FROM {v} WHERE id = 7",
    "SELECT text FROM {v} WHERE id = 12",
    "SELECT count(*), max(text) FROM {v} WHERE tenant_id > 3",
    "SELECT a.id, b.text FROM {v} a JOIN {v} b ON b.id = a.id + 10 ORDER BY 1",
    "SELECT id FROM {v} WHERE id < 30 UNION SELECT id FROM {v} WHERE id > 20 ORDER BY 1 LIMIT 4",
    "UPDATE {v} SET text = text || '?' WHERE id < 30",
    "SELECT id, text FROM {v} WHERE id < 40 ORDER BY text DESC, id LIMIT 5",
    "DELETE FROM {v} WHERE id = 57 RETURNING text",
    "SELECT * FROM invoked_sum",
    "SELECT s.n, s.first, c.code FROM invoked_sum s CROSS JOIN currencies c ORDER BY 3",
    "SELECT * FROM invoked_last ORDER BY id",
    "SELECT * FROM late ORDER BY id",
    "SELECT l.text, c.code FROM invoked_last l JOIN currencies c ON true ORDER BY l.id, 2",
    "!SELECT s.n, c.code FROM owned_sum s CROSS JOIN currencies c",
    "!SELECT s.n, c.code FROM kept_sum s CROSS JOIN currencies c",
    "!SELECT * FROM invoked_owned",
];

async fn views_read_with_the_rights_that_they_have(stage: &Stage) {
    let (mut sharded, mut plain) = (stage.client().await, stage.plain_client().await);
    for statement in VIEWS {
        succeed(&mut sharded, statement).await;
        succeed(&mut plain, statement).await;
    }
    let mut wrong = Vec::new();
    for role in ["reader", "postgres"] {
        let (mut client, mut expected) = (stage.client().await, stage.plain_client().await);
        for client in [&mut client, &mut expected] {
            succeed(client, &format!("SET ROLE {role}; SELECT set_tenant(7)")).await;
        }
        for view in ["invoked", "owned", "kept"] {
            for sql in OF_VIEWS {
                let (told, right) = match sql.strip_prefix('!') {
                    Some(sql) => (client.ask(sql).await, None),
                    None => {
                        let sql = sql.replace("{v}", view);
                        (client.ask(&sql).await, Some(expected.ask(&sql).await))
                    }
                };
                let is_right = match &right {
                    Some(right) => told == *right,
                    None => told.starts_with("E(0A000") && told.contains("_sum\" cannot be combined with rows of several shards"),
                };
                if !is_right {
                    wrong.push(format!("{role}, {view}: {sql}\n    {told}\n    {right:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each shard would set its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_sets_is_refused_over_several_shards() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in SCHEMA {
        succeed(&mut client, statement).await;
    }
    for statement in [
        "SELECT set_tenant(1) FROM docs",
        "SELECT set_tenant_stable(tenant_id) FROM docs",
        "SELECT count(*) FROM docs WHERE set_tenant_stable(1) = '1'",
        "SELECT set_tenant_stable(1), a.text FROM docs a JOIN docs b ON b.id = a.id + 10",
        "UPDATE docs SET text = set_tenant_stable(1)",
        "INSERT INTO docs VALUES (1001, 1, set_tenant_stable(1)), (1002, 1, ''), (1003, 1, ''), (1004, 1, '')",
        "INSERT INTO notes SELECT id, set_tenant_stable(1) FROM docs",
        "COPY (SELECT set_tenant_stable(1) FROM docs) TO STDOUT",
        "BEGIN; SELECT count(set_tenant_locally(1)) FROM docs",
        "CREATE FUNCTION set_path() RETURNS text LANGUAGE sql AS $$ SELECT set_config('search_path', 'x', false) $$; SELECT set_path()",
    ] {
        let told = client.ask(statement).await;
        assert!(told.contains("E(0A000"), "{statement}: {told}");
        client.ask("ROLLBACK").await;
    }
    stage.assert_log_is_clean();
}
