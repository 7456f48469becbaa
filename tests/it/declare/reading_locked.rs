//! Reading a shard's schema beside others who change it: no open transaction is waited for, and what has been committed is seen.

use std::time::Duration;

use shardgate::backend::catalog_reader::{self, CatalogError, Known, WhenHeld};
use shardgate::catalog::{Catalog, Held, ObjectName};
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;

use crate::support::Cluster;

/// Something of each kind that PostgreSQL prints under a lock, and in each of them names of every kind.
const SCHEMA: &str = "
    CREATE SCHEMA app;
    CREATE TYPE app.mood AS ENUM ('good', 'bad');
    CREATE TYPE app.pair AS (a int, feels app.mood);
    CREATE TYPE app.line AS (a int, b int);
    CREATE COLLATION app.plain (provider = icu, locale = 'und');
    CREATE FUNCTION app.twice(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x * 2; END';
    CREATE FUNCTION app.lines() RETURNS SETOF app.line LANGUAGE plpgsql AS 'BEGIN RETURN; END';
    CREATE FUNCTION app.act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
    CREATE OPERATOR app.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
    CREATE SEQUENCE app.counter;
    CREATE TABLE base (
        id int PRIMARY KEY, price int NOT NULL, note text, pair app.pair,
        doubled int GENERATED ALWAYS AS (app.twice(price)) STORED,
        CONSTRAINT dear CHECK (app.twice(price) > id), CONSTRAINT apart EXCLUDE USING gist (int4range(0, app.twice(price)) WITH &&));
    CREATE TABLE other (id int, note text);
    CREATE INDEX twices ON base (app.twice(price)) WHERE note COLLATE app.plain > 'a';
    CREATE VIEW seen AS
        SELECT id, b.note, app.twice(b.price) AS twice, 'good'::app.mood AS mood, '(1,bad)'::app.pair AS pair, (b.pair).feels,
               o.note COLLATE app.plain AS other_note, nextval('app.counter'::regclass)
        FROM base b JOIN other o USING (id) WHERE b.price OPERATOR(app.===) 3;
    CREATE VIEW lines AS SELECT * FROM app.lines();
    CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM seen;
    CREATE RULE copies AS ON INSERT TO other WHERE new.note = 'x' DO ALSO INSERT INTO base (id, price) VALUES (new.id, app.twice(1));
    CREATE POLICY reads ON base USING (EXISTS (SELECT FROM other o WHERE o.note = base.note)) WITH CHECK (app.twice(price) > 3);
    CREATE TRIGGER acts BEFORE UPDATE ON base FOR EACH ROW WHEN (app.twice(new.price) > 3) EXECUTE FUNCTION app.act();
    CREATE FUNCTION total() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM base WHERE (pair).feels = 'good'::app.mood; END;
    CREATE TABLE parted (a int, b int) PARTITION BY RANGE (app.twice(a));
    CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (1) TO (10);";

/// All of them, alone, and some changed; not committed.
const HOLD: &str = "
    BEGIN; LOCK TABLE base, other, seen, lines, parted, parted1 IN ACCESS EXCLUSIVE MODE;
    ALTER TABLE base RENAME price TO cost; ALTER TABLE base ADD COLUMN later int; ALTER TABLE other RENAME TO another;
    DROP VIEW lines; DROP MATERIALIZED VIEW counted; CREATE OR REPLACE RULE copies AS ON INSERT TO another DO ALSO NOTHING";

async fn connect(cluster: &Cluster) -> PgConnection {
    PgConnection::connect(&cluster.shard_url(0)).await.expect("connect")
}

async fn run(cluster: &Cluster, sql: &str) {
    cluster.connect_shard(0).await.batch_execute(sql).await.expect(sql);
}

/// With what earlier readings have left; nothing that is held is waited for.
async fn try_read(connection: &mut PgConnection, printed: &mut Known) -> Result<Catalog, CatalogError> {
    catalog_reader::read(connection, printed, WhenHeld::Wait(Duration::ZERO)).await
}

async fn read_anew(connection: &mut PgConnection) -> Catalog {
    try_read(connection, &mut Known::default()).await.expect("nothing is held")
}

fn assert_same(one: &Catalog, other: &Catalog, when: &str) {
    assert_eq!(one.diff(other), Vec::<String>::new(), "{when}");
    assert_eq!(one.digest, other.digest, "{when}");
    for (oid, relation) in &one.relations {
        assert_eq!(relation.view_definition, other.relations[oid].view_definition, "{when}: {}", relation.name);
    }
    for (oid, function) in &one.functions {
        assert_eq!(function.body, other.functions[oid].body, "{when}: {}", function.name);
    }
}

#[tokio::test]
async fn what_is_kept_reads_as_what_is_printed_anew() {
    let cluster = Cluster::start(1).await;
    run(&cluster, SCHEMA).await;
    let (mut connection, mut printed) = (connect(&cluster).await, Known::default());
    let mut before = try_read(&mut connection, &mut printed).await.expect("read");
    for change in [
        "ALTER FUNCTION app.twice(int) RENAME TO double",
        "ALTER TABLE base RENAME price TO cost",
        "ALTER TABLE base RENAME cost TO price",
        "ALTER TABLE base RENAME note TO remark",
        "ALTER TABLE other RENAME TO another",
        "ALTER TABLE another ADD COLUMN price int",
        "ALTER TABLE another DROP COLUMN price",
        "ALTER TYPE app.mood RENAME VALUE 'good' TO 'fine'",
        "ALTER TYPE app.mood RENAME VALUE 'bad' TO 'worse'",
        "ALTER TYPE app.mood RENAME TO temper",
        "ALTER TYPE app.pair RENAME ATTRIBUTE feels TO felt",
        "ALTER TYPE app.pair RENAME TO two",
        "ALTER TYPE app.line ADD ATTRIBUTE c int",
        "ALTER TYPE app.line RENAME ATTRIBUTE b TO bb",
        "ALTER COLLATION app.plain RENAME TO simple",
        "ALTER OPERATOR app.=== (int, int) SET SCHEMA public",
        "ALTER SEQUENCE app.counter RENAME TO counted_by",
        "ALTER SCHEMA app RENAME TO application",
        "ALTER VIEW seen RENAME COLUMN mood TO temper",
        "ALTER VIEW seen RENAME TO looked_at",
        "CREATE OR REPLACE VIEW lines AS SELECT a, bb AS b FROM application.lines() WHERE a > 3",
        "DROP MATERIALIZED VIEW counted",
        "CREATE OR REPLACE RULE copies AS ON INSERT TO another DO ALSO DELETE FROM base WHERE id = new.id",
        "ALTER TABLE another DISABLE RULE copies",
        "ALTER POLICY reads ON base USING (price > 1)",
        "ALTER POLICY reads ON base WITH CHECK (price > 2)",
        "ALTER INDEX twices RENAME TO doubles",
        "ALTER INDEX doubles SET (fillfactor = 50)",
        "ALTER TRIGGER acts ON base RENAME TO acted",
        "ALTER TABLE base RENAME CONSTRAINT dear TO expensive",
        "ALTER TABLE base DROP CONSTRAINT expensive, ADD CONSTRAINT expensive CHECK (price > 0) NO INHERIT NOT VALID",
        "ALTER TABLE base VALIDATE CONSTRAINT expensive",
        "CREATE OR REPLACE FUNCTION total() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT 1 + count(*) FROM base; END",
        "ALTER FUNCTION total() STABLE",
        "ALTER TABLE parted RENAME a TO aa",
        "DROP TABLE parted",
        "DROP TABLE base CASCADE",
    ] {
        run(&cluster, change).await;
        let kept = try_read(&mut connection, &mut printed).await.expect(change);
        let anew = read_anew(&mut connection).await;
        assert_same(&kept, &anew, change);
        assert_ne!(before.digest, anew.digest, "{change} makes no difference");
        before = anew;
    }
}

#[tokio::test]
async fn open_transactions_are_not_waited_for() {
    let cluster = Cluster::start(1).await;
    run(&cluster, SCHEMA).await;
    let (mut connection, mut printed) = (connect(&cluster).await, Known::default());
    let before = try_read(&mut connection, &mut printed).await.expect("read");
    let holder = cluster.connect_shard(0).await;
    for end in ["ROLLBACK", "COMMIT"] {
        holder.batch_execute(HOLD).await.expect("locks");
        let held = try_read(&mut connection, &mut printed).await.expect("all is known");
        assert_same(&held, &before, "while held");
        // What else is new is printed.
        run(&cluster, "CREATE TABLE made (id int CHECK (id > 3)); CREATE VIEW made_too AS SELECT id AS made_id FROM made").await;
        let held = try_read(&mut connection, &mut printed).await.expect("only what nobody holds is new");
        let made = held.resolve(None, "made_too", &["public".to_owned()]).expect("seen");
        assert!(made.view_definition.as_ref().is_some_and(|text| text.contains("made_id")), "{made:?}");
        // A right on what is held changes no definition.
        run(&cluster, "GRANT EXECUTE ON FUNCTION app.twice(int) TO public; DROP TABLE made CASCADE").await;
        let held = try_read(&mut connection, &mut printed).await.expect("all is known");
        assert_same(&held, &before, "while held");
        holder.batch_execute(end).await.expect(end);
        let after = try_read(&mut connection, &mut printed).await.expect("read");
        assert_same(&after, &read_anew(&mut connection).await, end);
        assert_eq!(after.digest == before.digest, end == "ROLLBACK");
    }
}

/// Before the first reading: tables with keys, foreign keys, defaults, indexes, partitions, triggers and functions.
#[tokio::test]
async fn what_is_plain_is_read_under_any_lock() {
    let cluster = Cluster::start(1).await;
    run(
        &cluster,
        "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
         CREATE SEQUENCE counter;
         CREATE TABLE base (id bigserial PRIMARY KEY, a int DEFAULT nextval('counter') UNIQUE, \"B c\" text COLLATE \"C\" DEFAULT 'x', d int GENERATED ALWAYS AS IDENTITY);
         CREATE TABLE other (id int REFERENCES base (a) ON DELETE CASCADE, at timestamptz DEFAULT now());
         CREATE TRIGGER acts AFTER INSERT OR UPDATE OF a ON base FOR EACH ROW EXECUTE FUNCTION act();
         CREATE TABLE parted (a int, b text COLLATE \"C\") PARTITION BY LIST (b COLLATE \"POSIX\" text_pattern_ops);
         CREATE TABLE parted1 PARTITION OF parted FOR VALUES IN ('x', 'y'); CREATE TABLE rest PARTITION OF parted DEFAULT;
         CREATE INDEX one ON base (a); CREATE INDEX two ON base (a DESC, \"B c\" NULLS FIRST); CREATE UNIQUE INDEX three ON base (a DESC NULLS LAST) INCLUDE (d, id) NULLS NOT DISTINCT;
         CREATE INDEX four ON base USING hash (\"B c\"); CREATE INDEX five ON base (\"B c\" COLLATE \"POSIX\" text_pattern_ops DESC);
         CREATE INDEX six ON parted (a); CREATE INDEX \"Se\"\"ven\" ON base (\"B c\" text_pattern_ops NULLS FIRST); CREATE INDEX eight ON base USING brin (a)",
    )
    .await;
    let (mut connection, holder) = (connect(&cluster).await, cluster.connect_shard(0).await);
    let lock = "BEGIN; LOCK TABLE base, other, parted, parted1, rest IN ACCESS EXCLUSIVE MODE";
    holder.batch_execute(lock).await.expect("locks");
    let catalog = try_read(&mut connection, &mut Known::default()).await.expect("nothing of it is locked");
    holder.batch_execute("COMMIT; SET search_path = pg_catalog").await.expect("commit");
    let indexes = "SELECT format('table %s', indrelid::regclass), relname::text, pg_get_indexdef(indexrelid)
                   FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_namespace n ON n.oid = relnamespace
                   WHERE nspname = 'public' AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))";
    let rows = holder.query(indexes, &[]).await.expect("definitions");
    assert_eq!(rows.len(), 10);
    for row in rows {
        let [table, index, expected]: [String; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!(catalog.definitions.get(&ObjectName::part_of(table, "index", index)), Some(expected.as_str()));
    }
    let parted = catalog.definitions.get(&ObjectName::new("table", "public.parted"));
    assert_eq!(parted, Some("partitioned by LIST (b COLLATE \"POSIX\" text_pattern_ops)"));
    let rest = catalog.definitions.get(&ObjectName::new("table", "public.rest"));
    assert_eq!(rest, Some("ordinary, partition DEFAULT"));
}

/// What is held is named, with what uses it; the rest is known.
#[tokio::test]
async fn what_is_held_is_left_out() {
    let cluster = Cluster::start(1).await;
    run(&cluster, SCHEMA).await;
    run(
        &cluster,
        "CREATE VIEW free AS SELECT b FROM parted; CREATE FUNCTION behind() RETURNS int LANGUAGE sql AS 'SELECT id FROM seen'",
    )
    .await;
    let (mut connection, mut printed) = (connect(&cluster).await, Known::default());
    let holder = cluster.connect_shard(0).await;
    for lock in ["LOCK TABLE base IN ACCESS EXCLUSIVE MODE", "ALTER TABLE base RENAME price TO cost"] {
        holder.batch_execute(&format!("BEGIN; {lock}")).await.expect(lock);
        let catalog = catalog_reader::read(&mut connection, &mut printed, WhenHeld::LeaveOut).await.expect("read");
        let named = |text: &str| catalog.held.may_concern(text);
        for text in
            ["SELECT * FROM base", "SELECT * FROM seen", "SELECT total()", "REFRESH MATERIALIZED VIEW counted", "SELECT behind()"]
        {
            assert!(named(text), "{text}");
        }
        for text in ["SELECT * FROM free", "SELECT * FROM lines", "INSERT INTO parted VALUES (1)", "SELECT app.twice(1)"] {
            assert!(!named(text), "{text}");
        }
        let free = catalog.resolve(None, "free", &["public".to_owned()]).expect("known");
        assert!(free.view_definition.is_some());
        assert!(catalog.relation_names.contains_key(&("public".to_owned(), "seen".to_owned())));
        holder.batch_execute("COMMIT").await.expect("commit");
        let catalog = catalog_reader::read(&mut connection, &mut printed, WhenHeld::LeaveOut).await.expect("read");
        assert_eq!(catalog.held, Held::Nothing);
        assert_same(&catalog, &read_anew(&mut connection).await, lock);
        printed = Known::default();
    }
}

/// Nothing is kept: the end of the transaction is waited for, and its outcome is what is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_new_is_waited_for_and_read_as_it_was_committed() {
    let cluster = Cluster::start(1).await;
    run(&cluster, SCHEMA).await;
    let (mut connection, holder) = (connect(&cluster).await, cluster.connect_shard(0).await);
    for (change, end) in [
        ("LOCK TABLE base IN ACCESS EXCLUSIVE MODE", "ROLLBACK"),
        ("ALTER TABLE base RENAME price TO cost", "COMMIT"),
        ("DROP VIEW seen CASCADE", "COMMIT"),
        ("DROP TABLE base CASCADE", "COMMIT"),
    ] {
        holder.batch_execute(&format!("BEGIN; {change}")).await.expect(change);
        let refused = try_read(&mut connection, &mut Known::default()).await.expect_err("it is held");
        assert!(refused.is_locked(), "{change}: {refused:?}");
        let mut reader = connect(&cluster).await;
        let reading = tokio::spawn(async move { catalog_reader::read(&mut reader, &mut Known::default(), PATIENCE).await });
        until_waiting(&cluster).await;
        holder.batch_execute(end).await.expect(end);
        let read = reading.await.expect("no panic").expect("read");
        assert_same(&read, &read_anew(&mut connection).await, change);
    }
}

const PATIENCE: WhenHeld = WhenHeld::Wait(Duration::from_secs(60));

async fn until_waiting(cluster: &Cluster) {
    let client = cluster.connect_shard(0).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.query("SELECT FROM pg_locks WHERE NOT granted", &[]).await.expect("locks").is_empty() {
        assert!(Instant::now() < deadline, "nobody waits");
    }
}
