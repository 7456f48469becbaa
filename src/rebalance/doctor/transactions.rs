//! Prepared transactions that are not finished: they keep their locks, and a move waits for those that have written.
//!
//! One of this cluster is finished by any proxy, within seconds where all of its shards answer. What another program has prepared, that
//! program finishes.

use std::time::Duration;

use super::Leftover;
use crate::rebalance::moves::site::{Site, SiteError};
use crate::rebalance::units;

/// Of one shard. `cluster_id`: in the names of this cluster's.
pub(super) async fn find(site: &mut Site, cluster_id: &str) -> Result<Vec<Leftover>, SiteError> {
    let sql = format!(
        "SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
         WHERE database = current_database() AND clock_timestamp() - prepared > interval '{} s' ORDER BY prepared",
        FINISHED_WITHIN.as_secs()
    );
    let prepared = site.rows::<(String, f64)>(&sql).await?;
    let own = format!("sg:{cluster_id}:");
    let told = prepared.into_iter().map(|(gid, age)| {
        let age = units::duration(Duration::try_from_secs_f64(age).unwrap_or_default());
        match gid.starts_with(&own) {
            true => Leftover::on(
                &site.name,
                format!("transaction {gid} was prepared {age} ago, and is not finished"),
                "a proxy finishes it when all of its shards answer; SELECT * FROM shardgate.transactions names them",
            ),
            false => Leftover::on(
                &site.name,
                format!("transaction {gid} of another program was prepared {age} ago: its locks stay, and moves wait for it"),
                "commit it (COMMIT PREPARED) or roll it back (ROLLBACK PREPARED) on that shard, as that program would",
            ),
        }
    });
    Ok(told.collect())
}

const FINISHED_WITHIN: Duration = Duration::from_secs(10);
