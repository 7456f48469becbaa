//! A table that remembers what was written where, and refuses a row without amount only at the commit.

use std::time::{Duration, Instant};

use crate::sessions::Stage;

pub struct Ledger;

impl Ledger {
    pub async fn create(stage: &Stage) {
        let mut client = stage.client().await;
        for statement in SCHEMA {
            let told = client.ask(statement).await;
            assert!(!told.contains("E("), "{statement}: {told}");
        }
    }

    /// Rows on each shard, read past the proxy.
    pub async fn rows(stage: &Stage) -> Vec<i64> {
        let mut rows = Vec::new();
        for shard in 0..stage.cluster.shard_count() {
            let client = stage.cluster.connect_shard(shard).await;
            rows.push(client.query_one("SELECT count(*) FROM ledger", &[]).await.expect("a count").get(0));
        }
        rows
    }

    /// Waits until no shard has anything prepared.
    pub async fn until_nothing_is_prepared(stage: &Stage, patience: Duration) {
        let deadline = Instant::now() + patience;
        for shard in 0..stage.cluster.shard_count() {
            let client = stage.cluster.connect_shard(shard).await;
            let sql = "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'sg:%' AND database = current_database()";
            while let Some(row) = client.query(sql, &[]).await.expect("prepared").first() {
                assert!(Instant::now() < deadline, "{} is still prepared on shard {shard}", row.get::<_, String>(0));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

const SCHEMA: [&str; 5] = [
    "CREATE TABLE ledger (id uuid, account bigint, amount int, PRIMARY KEY (account, id))",
    "CREATE FUNCTION has_amount() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.amount IS NULL THEN RAISE 'an amount is missing'; END IF; RETURN NULL; END $$",
    "SELECT shardgate.distribute_table('ledger', 'account', colocate_with => 'accounts')",
    "CREATE CONSTRAINT TRIGGER has_amount AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION has_amount()",
    "SELECT 1",
];
