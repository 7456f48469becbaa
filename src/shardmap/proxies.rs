//! Waits until every proxy works by a change of the map.
//!
//! A proxy has reached an epoch when none of its statements is planned under an older one any more; it tells in its row. One
//! whose row has not changed for [`LEASE`] by our clock has lost its lease and is not waited for. Our own state is asked
//! directly, since our row lags by up to a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::types::Json;
use tokio::time::{Instant, sleep};

use super::ShardMap;
use super::changes::read;
use super::error::StoreError;
use super::lease::{LEASE, ProxyId};
use super::model::{Epoch, MapSnapshot};
use super::store::Store;

/// One row of the proxies, for judging leases.
struct ProxyRow {
    id: ProxyId,
    reached: Epoch,
    renewals: i64,
}

impl ShardMap {
    /// `false`: some proxy is still behind after `patience`. `own`: the one snapshot that the caller itself holds, which may be
    /// older; with any other it would wait for itself. Cancel safe.
    pub async fn reached_by_all(
        &self,
        epoch: Epoch,
        own: Option<&Arc<MapSnapshot>>,
        patience: Duration,
    ) -> Result<bool, StoreError> {
        self.reached(epoch).await;
        let deadline = Instant::now() + patience;
        let this = self.lease().proxy_id();
        let mut seen: HashMap<i64, (i64, Instant)> = HashMap::new();
        loop {
            let mut is_reached = self.shared.current.reached_but_for(own) >= epoch;
            for row in self.store.proxies().await? {
                let (renewals, since) = seen.entry(row.id.0).or_insert((row.renewals, Instant::now()));
                if *renewals != row.renewals {
                    (*renewals, *since) = (row.renewals, Instant::now());
                }
                let is_over = since.elapsed() > LEASE;
                is_reached &= row.id == this || row.reached >= epoch || is_over;
            }
            if is_reached {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

impl ShardMap {
    /// Waits until the next statement of every proxy is planned by this epoch or a later one; statements that run under older
    /// ones are not waited for. `false`: some proxy has not seen it after `patience`. One that has not renewed its lease by the
    /// map database's clock is not waited for. Cancel safe.
    pub async fn seen_by_all(&self, epoch: Epoch, patience: Duration) -> Result<bool, StoreError> {
        self.reached(epoch).await;
        let deadline = Instant::now() + patience;
        while self.store.has_proxy_behind(self.lease().proxy_id(), epoch).await? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(SEEN_POLL_INTERVAL).await;
        }
        Ok(true)
    }
}

impl Store {
    /// Every proxy's id and how often it has renewed its lease: one that does not renew for [`LEASE`] is gone.
    pub async fn proxy_renewals(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        Ok(self.proxies().await?.into_iter().map(|row| (row.id.0, row.renewals)).collect())
    }

    /// Tells of this proxy's waiting transactions; those of the others.
    pub async fn tell_waiters(&self, proxy: i64, waiters: serde_json::Value) -> Result<serde_json::Value, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.tell_waiters($1, $2)").bind(proxy).bind(Json(waiters));
        read::<Json<serde_json::Value>>(&self.change(query).await?, 0).map(|told| told.0)
    }

    async fn has_proxy_behind(&self, own: ProxyId, epoch: Epoch) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (
                 SELECT FROM shardgate_map.proxy
                 WHERE proxy_id <> $1 AND (seen_incarnation, seen_counter) < ($2, $3)
                   AND last_seen > clock_timestamp() - make_interval(secs => $4)
             )",
        )
        .bind(own.0)
        .bind(epoch.incarnation)
        .bind(epoch.counter)
        .bind(LEASE.as_secs_f64())
        .fetch_one(&self.pool()?)
        .await
        .map_err(StoreError::reading)
    }

    async fn proxies(&self) -> Result<Vec<ProxyRow>, StoreError> {
        let rows: Vec<(i64, i64, i64, i64)> =
            sqlx::query_as("SELECT proxy_id, incarnation, counter, renewals FROM shardgate_map.proxy")
                .fetch_all(&self.pool()?)
                .await
                .map_err(StoreError::reading)?;
        Ok(rows
            .into_iter()
            .map(|(id, incarnation, counter, renewals)| ProxyRow {
                id: ProxyId(id),
                reached: Epoch { incarnation, counter },
                renewals,
            })
            .collect())
    }
}

/// A proxy sees a change within milliseconds.
const SEEN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
