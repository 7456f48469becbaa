//! Removes decision rows that nobody can need any more.
//!
//! A row is kept for a day, committed or aborted: a proxy that was frozen must still find its transaction aborted, and a shard
//! that failed over may bring back what it had prepared. After that it goes, unless its transaction is prepared anywhere: so
//! every shard must have answered first.

use std::collections::HashSet;

use tokio::time::Instant;

use super::Recovery;
use crate::execute::commit::TransactionId;

impl Recovery {
    /// The mistake that tests plant: rows go as soon as nothing is prepared, in every round.
    fn collects_early(&self) -> bool {
        self.registry.failpoints.has_planted("collected_early")
    }

    /// Tests do not wait for the interval.
    pub fn collects_in_every_round(&self) -> bool {
        self.collects_early() || self.registry.failpoints.is_armed("collect_in_every_round")
    }

    /// Returns how many rows have gone. Does nothing while a shard cannot be asked.
    pub async fn collect(&self) -> usize {
        let (asked_at, mut limits) = (Instant::now(), Vec::new());
        for link in self.links().into_iter().filter(|link| !link.has_left()) {
            let now = link.values(asked_at, "SELECT now()::text".to_owned()).await;
            let Ok(Some(now)) = now.map(|rows| rows.into_iter().next()) else { return 0 };
            limits.push((link, now));
        }
        self.registry.failpoints.reach("before_collect").await;
        let look = self.look(asked_at).await;
        if !look.is_complete {
            return 0;
        }
        let listed: HashSet<TransactionId> = look.prepared.into_iter().map(|(_, prepared)| prepared.id).collect();
        let kept: Vec<String> = listed.iter().map(|id| format!("'{id}'")).collect();
        let kept = if kept.is_empty() { "''".to_owned() } else { kept.join(",") };
        let prefix = TransactionId::prefix(self.registry.cluster());
        let keep = if self.collects_early() { "0 seconds" } else { KEEP };
        let mut count = 0;
        for (link, now) in limits {
            for table in ["decisions", "applied"] {
                let sql = format!(
                    "DELETE FROM shardgate.{table} WHERE ctid IN (SELECT ctid FROM shardgate.{table} \
                     WHERE at < '{now}'::timestamptz - interval '{keep}' AND starts_with(gtx, '{prefix}') AND gtx NOT IN ({kept}) \
                     LIMIT {BATCH}) RETURNING 1"
                );
                match link.values(asked_at, sql).await {
                    Ok(rows) => count += rows.len(),
                    Err(error) => tracing::debug!(%error, "old decisions were not removed"),
                }
            }
        }
        count
    }
}

const KEEP: &str = "24 hours";
/// Rows that one call removes from one table.
const BATCH: usize = 50_000;
