//! `reference_table`: copies, their equality, and writers meanwhile.

use super::{Declarer, code, told};

const SCHEMA: &str = "CREATE TABLE languages (code text PRIMARY KEY, name text, n numeric, at timestamptz DEFAULT now(),
        up text GENERATED ALWAYS AS (upper(name)) STORED, big int GENERATED ALWAYS AS IDENTITY);
    INSERT INTO languages (code, name, n, at) SELECT 'c' || i, E'name\\t\\\\' || i, i / 7.0, '2024-01-01'::timestamptz + i * interval '1 hour'
    FROM generate_series(1, 1000) i; INSERT INTO languages (code) VALUES ('null');";

const DIGEST: &str = "SELECT count(*) || ' ' || sum(hashtextextended(l::text, 0)) FROM languages l";

#[tokio::test]
async fn rows_are_copied_to_every_shard_and_to_later_ones() {
    let d = Declarer::start(3).await;
    d.on_shard(0, SCHEMA).await;
    d.add(0).await.unwrap();
    d.add(1).await.unwrap();
    d.call("reference_table", &["languages"]).await.expect("reference");
    assert_eq!(d.value_on_shard(0, DIGEST).await, d.value_on_shard(1, DIGEST).await);
    d.add(2).await.expect("a later shard");
    assert_eq!(d.value_on_shard(0, DIGEST).await, d.value_on_shard(2, DIGEST).await);
    assert_eq!(d.value_on_map("SELECT kind FROM shardgate.tables WHERE table_name = 'languages'").await, "reference");
    // No proxy runs that would number a row.
    d.on_shard(0, "INSERT INTO languages (code, big) VALUES ('new', 0)").await;
    assert_eq!(code(&d.call("reference_table", &["languages"]).await.unwrap_err()), "42710");
}

#[tokio::test]
async fn other_rows_on_a_shard_are_not_overwritten() {
    let d = Declarer::with_schema(2, SCHEMA).await;
    d.on_shard(1, "INSERT INTO languages (code) VALUES ('mine')").await;
    let error = d.call("reference_table", &["languages"]).await.unwrap_err();
    assert!(told(&error).contains("It has 1 rows there and 1001 on shard \"shard0\"."), "{}", told(&error));
    // Nothing is left behind: writers go on, the table is declared once the way is free.
    d.on_shard(0, "UPDATE languages SET n = 1 WHERE code = 'c1'").await;
    d.on_shard(1, "TRUNCATE languages").await;
    d.call("reference_table", &["languages"]).await.expect("reference");
    assert_eq!(d.value_on_shard(0, DIGEST).await, d.value_on_shard(1, DIGEST).await);
}

#[tokio::test]
async fn triggers_do_not_fire_for_copied_rows() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE r (id int PRIMARY KEY, n int); INSERT INTO r VALUES (1, 1);
         CREATE FUNCTION add_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.n := new.n + 1; RETURN new; END $$;
         CREATE TRIGGER tr BEFORE INSERT ON r FOR EACH ROW EXECUTE FUNCTION add_one()",
    )
    .await;
    d.call("reference_table", &["r"]).await.expect("reference");
    assert_eq!(d.value_on_shard(1, "SELECT n FROM r").await, "1");
}

#[tokio::test]
async fn a_writer_that_waited_is_refused_and_may_repeat() {
    let d = Declarer::with_schema(2, "CREATE TABLE r (id int PRIMARY KEY); INSERT INTO r VALUES (1)").await;
    // The writer holds its lock until the declaration waits for it; a second one queues behind the declaration. It is sent as one
    // message: between Parse and Execute of a driver it would hold no lock, and Execute alone may come when all is done.
    let mut first = d.cluster.connect_shard(0).await;
    let second = d.cluster.connect_shard(0).await;
    let watcher = d.cluster.connect_shard(0).await;
    let transaction = first.transaction().await.unwrap();
    transaction.execute("INSERT INTO r VALUES (2)", &[]).await.unwrap();
    let waiting = async |n: i64| loop {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = 'r'::regclass AND NOT granted";
        if watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == n {
            break;
        }
        tokio::task::yield_now().await;
    };
    let declaring = d.call("reference_table", &["r"]);
    let writing = async {
        waiting(1).await;
        let (result, ()) = tokio::join!(second.batch_execute("INSERT INTO r VALUES (3)"), async {
            waiting(2).await;
            transaction.commit().await.unwrap();
        });
        result
    };
    let (declared, written) = tokio::join!(declaring, writing);
    declared.expect("declared");
    let copied = d.value_on_shard(1, "SELECT string_agg(id::text, ',' ORDER BY id) FROM r").await;
    // A declaration that has to be planned anew lets those in who wait: their rows are copied then.
    let Err(error) = written else { return assert_eq!(copied, "1,2,3") };
    assert_eq!(error.code().map(|code| code.code().to_owned()).as_deref(), Some("40001"));
    assert_eq!(copied, "1,2");
    second.execute("INSERT INTO r VALUES (3)", &[]).await.expect("the gate is open again");
}
