//! Schema changes inside of functions, procedures and DO blocks, as migrations write them: they leave the same schema on every shard,
//! PostgreSQL's, or are refused before anything is done.

use super::stage::succeed;
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_change_the_schema_leave_it_alike_on_every_shard() {
    let cluster = Cluster::start(3).await;
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let mut client = WireClient::connect(proxy.address()).await;
    for shard in 0..3 {
        succeed(&mut client, &format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.public_url(shard))).await;
    }
    cluster.map_server().create_database("plain").await.expect("a database");
    let plain = connect(&cluster.map_server().url("plain")).await;
    for statement in MIGRATIONS {
        succeed(&mut client, statement).await;
        plain.batch_execute(statement).await.expect(statement);
    }
    let expected = schema(&plain).await;
    for shard in 0..3 {
        assert_eq!(schema(&cluster.connect_shard(shard).await).await, expected, "shard{shard}");
    }
    answers_are_postgresqls(&mut client).await;
    taken_back(&cluster, &mut client, &expected).await;
    refused(&cluster, &mut client).await;
    made_otherwise(&cluster, &mut client).await;
    mended(&cluster, &mut client).await;
    beside_what_others_hold(&cluster, &mut client).await;
    beside_distributed_tables(&cluster, &mut client).await;
    let log = proxy.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Rows, types and errors of a call are those of the home shard, once.
async fn answers_are_postgresqls(client: &mut WireClient) {
    assert_eq!(client.ask("SELECT make('answer_1') AS made").await, "T(made) D(answer_1) C(SELECT 1) Z(I)");
    client.parse("", "SELECT make('answer_2') AS made").describe(b'S', "").bind("", "", &[]).execute("", 0).sync();
    assert_eq!(client.transcript().await, "1 t(0 parameters) T(made) 2 D(answer_2) C(SELECT 1) Z(I)");
    let told = client.ask("SELECT make('answer_1')").await;
    assert!(told.contains("E(42P07 relation \"answer_1\" already exists)"), "{told}");
    succeed(client, "DROP TABLE answer_1, answer_2").await;
}

/// In the client's own transaction, with everything else in it.
async fn taken_back(cluster: &Cluster, client: &mut WireClient, expected: &str) {
    succeed(client, "BEGIN; SELECT make('never'); CALL build('never_too'); ROLLBACK").await;
    for shard in 0..3 {
        assert_eq!(schema(&cluster.connect_shard(shard).await).await, expected, "shard{shard}");
    }
}

/// What would be done on one shard, or differently on each of them.
async fn refused(cluster: &Cluster, client: &mut WireClient) {
    for statement in [
        "CREATE TABLE log (id serial, what text)",
        "INSERT INTO log (what) VALUES ('first')",
        "CREATE FUNCTION make_and_log(name text) RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE format('CREATE TABLE %I (id int)', name); INSERT INTO log (what) VALUES (name); END$$",
        "CREATE FUNCTION make_for_rows() RETURNS void LANGUAGE plpgsql AS $$DECLARE r record; BEGIN FOR r IN SELECT what FROM log LOOP EXECUTE format('CREATE TABLE %I (id int)', 'for_' || r.what); END LOOP; END$$",
        "CREATE FUNCTION make_numbered() RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE format('CREATE TABLE %I (id int)', 't' || nextval('log_id_seq')); END$$",
        "CREATE FUNCTION runs(q text) RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE q; END$$",
        "CREATE FUNCTION makes_part() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE 'CREATE TABLE part (id int)'; RETURN NEW; END$$",
        "CREATE TABLE parted (id int)",
        "CREATE TRIGGER makes_part BEFORE INSERT ON parted FOR EACH ROW EXECUTE FUNCTION makes_part()",
    ] {
        succeed(client, statement).await;
    }
    let mut before = Vec::new();
    for shard in 0..3 {
        before.push(schema(&cluster.connect_shard(shard).await).await);
    }
    for statement in [
        "SELECT make_and_log('a')",
        "SELECT make_for_rows()",
        "SELECT make_numbered()",
        "SELECT runs(what) FROM log",
        "SELECT runs('INSERT INTO log (what) VALUES (1)')",
        "SELECT runs('CREATE TABLE a (id int); INSERT INTO log (what) VALUES (1)')",
        "DO $$BEGIN EXECUTE 'CREATE TABLE ' || 'a' || ' (id int)'; EXECUTE format('INSERT INTO %I (what) VALUES (1)', 'log'); END$$",
        "SELECT make(what) FROM log",
        "SELECT count(*) FROM log WHERE make(what) IS NULL",
        "INSERT INTO parted VALUES (1)",
        "DO $$BEGIN CREATE TABLE a (id int); INSERT INTO a VALUES (1); END$$",
        "DO $$DECLARE n int; BEGIN SELECT count(*) INTO n FROM log; IF n > 0 THEN CREATE TABLE a (id int); END IF; END$$",
        "DO $$BEGIN EXECUTE 'CREATE TABLE ' || current_database() || ' (id int)'; END$$",
        "CREATE TABLE copied AS SELECT make(what) FROM log",
        "DECLARE c CURSOR FOR SELECT make('a')",
        "EXPLAIN ANALYZE SELECT make('a')",
    ] {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(0A000 "), "{statement}: {told}");
        for (shard, before) in before.iter().enumerate() {
            assert_eq!(schema(&cluster.connect_shard(shard).await).await, *before, "{statement}");
        }
    }
    assert_eq!(client.value("SELECT count(*) FROM log").await, "1");
    // What it never does it may be declared not to do; what it does it may not.
    let told = client.ask("SELECT shardgate.declare_function('make_and_log', writes => '{log}')").await;
    assert!(told.contains("make_and_log") && told.starts_with("E("), "{told}");
    assert!(client.ask("SELECT runs('SELECT 1')").await.starts_with("E(0A000 "));
    succeed(client, "SELECT shardgate.declare_function('runs')").await;
    succeed(client, "SELECT runs('SELECT 1')").await;
}

/// What decides by oids, the time or the order of rows makes something else on each shard: all of it is taken back.
async fn made_otherwise(cluster: &Cluster, client: &mut WireClient) {
    let mut before = Vec::new();
    for (shard, names) in [["b_ord", "a_ord"], ["b_ord", "a_ord"], ["a_ord", "b_ord"]].into_iter().enumerate() {
        let there = cluster.connect_shard(shard).await;
        for name in names {
            there.batch_execute(&format!("CREATE TABLE {name} (id int)")).await.expect("a table");
        }
        before.push(schema(&there).await);
    }
    for (statement, expected) in [
        ("DO $$BEGIN EXECUTE format('CREATE TABLE t_%s (a int)', to_char(now(), 'US')); END$$", "table \"public.t_"),
        (
            "DO $$DECLARE n oid; BEGIN SELECT oid INTO n FROM pg_class WHERE relname = 'account'; EXECUTE 'ALTER TABLE account ADD COLUMN c_' || n || ' int'; END$$",
            "column \"c_",
        ),
        (
            "DO $$DECLARE n text; BEGIN SELECT relname INTO n FROM pg_class WHERE relname ~ '_ord' LIMIT 1; EXECUTE format('CREATE TABLE %I (a int)', 'of_' || n); END$$",
            "table \"public.of_b_ord\" exists here and is missing there;\ntable \"public.of_a_ord\" is missing here and exists there",
        ),
    ] {
        client.query(statement);
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').unwrap_or_else(|| panic!("{statement} is not refused"));
        assert!(
            error.field(b'C') == "0A000"
                && error.field(b'D').contains(expected)
                && error.field(b'D').contains("there: shard \"shard"),
            "{} {}",
            error.describe(),
            error.field(b'D')
        );
        let told = client.ask(&format!("BEGIN; {statement}")).await;
        assert!(told.contains("E(0A000 the statement does not change the schema alike") && told.ends_with("Z(E)"), "{told}");
        assert_eq!(client.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
        for (shard, before) in before.iter().enumerate() {
            assert_eq!(schema(&cluster.connect_shard(shard).await).await, *before, "{statement}");
        }
    }
    // Roles are those of a server.
    let told = client.ask("DO $$DECLARE r text; BEGIN FOR r IN SELECT rolname FROM pg_roles LOOP EXECUTE format('GRANT SELECT ON account TO %I', r); END LOOP; END$$").await;
    assert!(told.starts_with("E(0A000 "), "{told}");
    succeed(client, "DROP TABLE a_ord, b_ord").await;
}

/// One shard lacks what the others have: a schema change that names the shard mends it.
async fn mended(cluster: &Cluster, client: &mut WireClient) {
    cluster.connect_shard(2).await.batch_execute("ALTER TABLE account DROP COLUMN kind").await.expect("drift");
    // What differed before is nothing that a body has done.
    succeed(client, "SELECT make('beside')").await;
    let there = cluster.connect_shard(2).await;
    there.batch_execute("ALTER TABLE project ALTER COLUMN note TYPE varchar(40)").await.expect("drift");
    succeed(client, "DO $$BEGIN ALTER TABLE project ALTER COLUMN note SET NOT NULL; END$$").await;
    there.batch_execute("ALTER TABLE project ALTER COLUMN note TYPE text").await.expect("no drift");
    client.query("ALTER TABLE account ALTER COLUMN kind SET DEFAULT 'ok'");
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
    assert!(
        error.field(b'C') == "42703" && error.field(b'W').contains("shard \"shard2\""),
        "{} {}",
        error.describe(),
        error.field(b'W')
    );
    assert!(error.field(b'H').contains("/* shardgate: shard=shard2 */"), "{}", error.field(b'H'));
    succeed(client, "/* shardgate: shard=shard2 */ ALTER TABLE account ADD COLUMN kind mood").await;
    let expected = schema(&cluster.connect_shard(0).await).await;
    assert_eq!(schema(&cluster.connect_shard(1).await).await, expected);
    let there = cluster.connect_shard(2).await;
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'account'::regclass AND attname = 'kind'";
    assert_eq!(there.query_one(columns, &[]).await.expect("columns").get::<_, i64>(0), 1);
}

/// Whoever has a table of one shard for himself, for however long, is not waited for.
async fn beside_what_others_hold(cluster: &Cluster, client: &mut WireClient) {
    succeed(client, "CREATE TABLE busy (id int CHECK (id > 0))").await;
    succeed(client, "CREATE VIEW of_busy AS SELECT id FROM busy WHERE id > 1").await;
    succeed(client, "CREATE FUNCTION in_busy() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM busy; END").await;
    let holder = cluster.connect_shard(1).await;
    holder.batch_execute("BEGIN; LOCK TABLE busy IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    succeed(client, "SELECT make('while_held')").await;
    // Of what is new, every text is compared.
    let told =
        client.ask("DO $$BEGIN EXECUTE format('CREATE TABLE timed (a int CHECK (a <> %s))', to_char(now(), 'US')); END$$").await;
    assert!(told.starts_with("E(0A000 the statement does not change the schema alike"), "{told}");
    holder.batch_execute("ROLLBACK").await.expect("no lock");
    succeed(client, "DROP FUNCTION in_busy(); DROP VIEW of_busy; DROP TABLE busy, while_held").await;
}

/// What the texts say that a body makes is not known beforehand, and it could be about these.
async fn beside_distributed_tables(cluster: &Cluster, client: &mut WireClient) {
    succeed(client, "CREATE TABLE spread (id int PRIMARY KEY)").await;
    succeed(client, "SELECT shardgate.distribute_table('spread', 'id')").await;
    for statement in ["SELECT make('x')", "DO $$BEGIN EXECUTE format('ALTER TABLE %I DROP COLUMN id', 'spread'); END$$"] {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(0A000 "), "{statement}: {told}");
    }
    // Where they stand in the text, they are looked at.
    succeed(client, "CREATE FUNCTION plain() RETURNS void LANGUAGE sql AS 'CREATE TABLE of_plain (id int)'").await;
    succeed(client, "SELECT plain()").await;
    for shard in 0..3 {
        let there = cluster.connect_shard(shard).await;
        there.batch_execute("SELECT * FROM of_plain").await.expect("the table");
    }
}

/// All objects, by name and definition.
async fn schema(client: &tokio_postgres::Client) -> String {
    client.query_one(SCHEMA, &[]).await.expect("schema").get(0)
}

const MIGRATIONS: &[&str] = &[
    // Plain changes, which what follows looks for.
    "CREATE TABLE account (id int PRIMARY KEY, note text, created timestamptz)",
    "CREATE TABLE project (id int PRIMARY KEY, account_id int CONSTRAINT project_account_id_fkey REFERENCES account (id), note text)",
    "CREATE TABLE member (id int PRIMARY KEY, project_id int REFERENCES project (id), created timestamptz)",
    "CREATE TABLE tree (id int PRIMARY KEY, parent_id int REFERENCES tree (id))",
    "CREATE FUNCTION make(name text) RETURNS text LANGUAGE plpgsql AS $$BEGIN EXECUTE format('create table %I (a int)', name); RETURN name; END$$",
    "SELECT make('d1')",
    "SELECT make('d2'), make('d3')",
    "SELECT make('s_' || n) FROM generate_series(1, 3) n",
    "CREATE PROCEDURE build(name text) LANGUAGE plpgsql AS $$BEGIN PERFORM make(name); EXECUTE format('CREATE INDEX %I ON %I (a)', name || '_idx', name); END$$",
    "CALL build('built')",
    // A body with plain changes.
    "CREATE FUNCTION once() RETURNS void LANGUAGE plpgsql AS $$BEGIN CREATE TABLE IF NOT EXISTS of_once (id serial PRIMARY KEY, t text); CREATE INDEX ON of_once (t); END$$",
    "SELECT once()",
    // Constraints and keys get other names, in a loop over the catalogue.
    "DO $$DECLARE r record; BEGIN
       FOR r IN SELECT c.conrelid::regclass AS tab, c.conname FROM pg_constraint c
                JOIN pg_class t ON t.oid = c.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace
                WHERE c.contype = 'f' AND n.nspname = 'public' ORDER BY c.conname
       LOOP EXECUTE format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', r.tab, r.conname, replace(r.conname, '_fkey', '_foreign')); END LOOP; END$$",
    "CREATE FUNCTION rename_constraints(wanted text) RETURNS void LANGUAGE plpgsql AS $$DECLARE r record; q text; BEGIN
       FOR r IN SELECT conrelid::regclass::text AS tab, conname FROM pg_constraint WHERE contype = 'p' AND connamespace = 'public'::regnamespace
       LOOP q := 'ALTER TABLE ' || r.tab; q := q || format(' RENAME CONSTRAINT %I TO %I', r.conname, left(r.conname, 40) || wanted); EXECUTE q; END LOOP; END$$",
    "SELECT rename_constraints('_key')",
    // A trigger factory.
    "CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.created := now(); RETURN NEW; END$$",
    "CREATE FUNCTION stamp_all() RETURNS int LANGUAGE plpgsql AS $$DECLARE name text; n int := 0; BEGIN
       FOR name IN SELECT table_name FROM information_schema.columns WHERE column_name = 'created' AND table_schema = 'public' ORDER BY 1
       LOOP EXECUTE format('CREATE TRIGGER stamp BEFORE INSERT ON %I FOR EACH ROW EXECUTE FUNCTION stamped()', name); n := n + 1; END LOOP;
       RETURN n; END$$",
    "SELECT stamp_all()",
    "CREATE PROCEDURE counters(tab text, what text) LANGUAGE plpgsql AS $a$BEGIN
       EXECUTE format($b$CREATE FUNCTION %1$s_%2$s() RETURNS trigger LANGUAGE plpgsql AS $c$BEGIN RETURN NULL; END$c$ $b$, tab, what);
       EXECUTE format($b$CREATE TRIGGER %2$s AFTER INSERT OR DELETE ON %1$s FOR EACH STATEMENT EXECUTE FUNCTION %1$s_%2$s()$b$, tab, what);
       END$a$",
    "CALL counters('account', 'aggregates')",
    "CALL counters('project', 'aggregates')",
    // Only where it is not there yet.
    "DO $$BEGIN IF NOT EXISTS (SELECT FROM pg_type WHERE typname = 'mood') THEN EXECUTE 'CREATE TYPE mood AS ENUM (''ok'')'; END IF; END$$",
    "DO $$DECLARE t text; BEGIN FOREACH t IN ARRAY ARRAY['account', 'project'] LOOP EXECUTE 'ALTER TABLE ' || quote_ident(t) || ' ADD COLUMN IF NOT EXISTS kind mood'; EXECUTE format('COMMENT ON TABLE %I IS %L', t, 'of ' || t); END LOOP; END$$",
    // A text that is handed over.
    "CREATE FUNCTION run(q text) RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE q; END$$",
    "SELECT run('CREATE VIEW accounts AS SELECT id, note FROM account')",
    "DROP FUNCTION run(text)",
];

const SCHEMA: &str = "SELECT string_agg(line, E'\\n' ORDER BY line COLLATE \"C\") FROM (
    SELECT format('relation %s %s %s', relname, relkind, obj_description(oid, 'pg_class')) AS line FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT format('column %s.%s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull)
              FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT format('trigger %s', pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal AND tgname NOT LIKE 'shardgate%'
    UNION ALL SELECT format('function %s', pg_get_functiondef(oid)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT format('index %s', pg_get_indexdef(indexrelid)) FROM pg_index JOIN pg_class c ON c.oid = indrelid WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT format('enum %s %s', enumtypid::regtype, enumlabel) FROM pg_enum
    UNION ALL SELECT format('view %s', pg_get_viewdef(oid)) FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace) lines";
