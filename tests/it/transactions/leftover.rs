//! What a proxy leaves that has died in mid-commit: said by the test itself, in the words of the commit, under the name of a proxy
//! that is not there. So recovery takes it up in its next round, without a lease that has to end.

use std::time::{Duration, Instant};

use shardgate::execute::commit::{Secret, TransactionId, rules};
use tokio_postgres::Client;

use super::Ledger;
use super::kills::{found_now, uuid};
use crate::sessions::Stage;

/// A transaction over three shards whose proxy is gone; the first shard decides.
pub struct Leftover {
    pub id: TransactionId,
    /// Its rows in the ledger.
    pub row: String,
}

impl Leftover {
    /// Prepared on two shards, and decided on the first one or not.
    pub async fn make(stage: &Stage, number: usize, is_decided: bool) -> Self {
        Self::make_for(stage, number, is_decided, &decider_uuid(stage).await).await
    }

    /// The same in the name of this decider.
    pub async fn make_for(stage: &Stage, number: usize, is_decided: bool, decider: &str) -> Self {
        let secret = Secret::random();
        let left = Self::named(stage, number, decider, &secret).await;
        // Decided first: recovery makes an abort of what it finds prepared and not decided.
        if is_decided {
            left.decide(stage, &secret).await;
        }
        for shard in 1..3 {
            let client = left.write(stage, shard).await;
            client.batch_execute(&rules::prepare(&left.id, &secret, shard)).await.expect("prepared");
        }
        left
    }

    /// Decided, and prepared nowhere.
    pub async fn make_finished(stage: &Stage, number: usize) -> Self {
        let secret = Secret::random();
        let left = Self::named(stage, number, &decider_uuid(stage).await, &secret).await;
        left.decide(stage, &secret).await;
        left
    }

    async fn named(stage: &Stage, number: usize, decider: &str, secret: &Secret) -> Self {
        let map = stage.cluster.connect_map().await;
        let cluster: String = map.query_one("SELECT cluster_id FROM shardgate_map.cluster", &[]).await.expect("a cluster").get(0);
        let serial = u64::try_from(number).expect("small");
        Self { id: TransactionId::new(&cluster, decider, DEAD_PROXY, serial, secret), row: uuid(number) }
    }

    async fn decide(&self, stage: &Stage, secret: &Secret) {
        let decider = self.write(stage, 0).await;
        decider.batch_execute(&rules::decide(&self.id, secret)).await.expect("decided");
    }

    /// A connection in the transaction, which has written.
    async fn write(&self, stage: &Stage, shard: usize) -> Client {
        let client = stage.cluster.connect_shard(shard).await;
        let sql = format!("BEGIN; INSERT INTO ledger VALUES ('{}', {}, 1)", self.row, stage.key(shard, 0));
        client.batch_execute(&sql).await.expect("written");
        client
    }

    /// As if it had been decided the day before yesterday.
    pub async fn make_old(&self, stage: &Stage) {
        let sql = format!("UPDATE shardgate.decisions SET at = at - interval '40 hours' WHERE gtx = '{}'", self.id);
        stage.cluster.connect_shard(0).await.batch_execute(&sql).await.expect("made old");
    }

    pub async fn is_remembered(&self, stage: &Stage) -> bool {
        let sql = "SELECT FROM shardgate.decisions WHERE gtx = $1";
        !stage.cluster.connect_shard(0).await.query(sql, &[&self.id.as_str()]).await.expect("rows").is_empty()
    }

    pub async fn until_forgotten(&self, stage: &Stage) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_remembered(stage).await {
            assert!(Instant::now() < deadline, "an old decision is not removed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Once nothing is prepared any more it is on so many shards.
    pub async fn assert_found(&self, stage: &Stage, wanted: usize, when: &str) {
        Ledger::until_nothing_is_prepared(stage, PATIENCE).await;
        assert_eq!(found_now(stage, &self.row).await, wanted, "{when}");
    }
}

async fn decider_uuid(stage: &Stage) -> String {
    let sql = "SELECT shard::text FROM shardgate.identity";
    stage.cluster.connect_shard(0).await.query_one(sql, &[]).await.expect("a uuid").get(0)
}

/// Nobody has ever renewed its lease.
const DEAD_PROXY: i64 = 1;
/// A shard that comes back is recovered within this, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(15);
