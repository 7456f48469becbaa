//! Waits until every proxy works by a change of the map.
//!
//! A proxy has reached an epoch when none of its statements is planned under an older one any more; it tells in its row. One
//! whose row has not changed for [`LEASE`] by our clock has lost its lease: it does nothing that needs one, and goes on with
//! the rest by the map that it knows. Whether that matters the caller knows ([`Silent`]). Our own state is asked directly, since
//! our row lags by up to a second.
//!
//! One that a move goes on without has no row any more, but a fence ([`super::fences`]), by which it counts as behind until the shards
//! have shut it out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::types::Json;
use sqlx::{AssertSqlSafe, FromRow};
use tokio::time::{Instant, sleep};

use super::ShardMap;
use super::changes::read;
use super::current::MapInUse;
use super::error::StoreError;
use super::fences::{FENCES, Fence};
use super::lease::{ABANDONED_AFTER, LEASE, ProxyId};
use super::model::{Epoch, ShardId};
use super::process;
use super::store::{Kept, Store};

/// Proxies whose lease has run out, and which may run all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// What they could do wrong needs the lease.
    Ignored,
    /// What they could do wrong needs the lease and this shard, which shuts them out first: of a machine that stood still the clock did
    /// too, and the lease seems valid when it goes on.
    ShutOutOf(ShardId),
    /// What they do by an older map would be wrong: they are waited for until their process has ended for certain, which only a
    /// proxy on the same machine can see, or they are taken for gone, after an hour.
    Awaited,
}

/// A proxy that may work by an older map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyBehind {
    pub id: ProxyId,
    pub address: String,
    /// It has lost its lease; by the map database's clock.
    pub silent_for: Option<Duration>,
    /// With which renewals it was seen, where shards can shut it out.
    pub renewals: Option<i64>,
}

/// One reading.
#[derive(Debug)]
pub struct ProxiesSeen {
    pub behind: Vec<ProxyBehind>,
    /// Of every proxy that has a row, how often it has renewed its lease.
    pub renewals: Vec<(i64, i64)>,
    /// Those that some shard has not shut out yet.
    pub fences: Vec<Fence>,
}

/// One row of the proxies, for judging leases.
#[derive(FromRow)]
struct ProxyRow {
    proxy_id: i64,
    address: String,
    incarnation: i64,
    counter: i64,
    renewals: i64,
    drained: i64,
    /// Seconds since it was heard of last.
    silent: f64,
    /// Of [`process`].
    process: Option<String>,
    generation: Option<i64>,
    /// It has no row but a fence: shards that have shut it out.
    fenced_on: Option<Vec<i32>>,
}

impl ProxyRow {
    fn reached(&self) -> Epoch {
        Epoch { incarnation: self.incarnation, counter: self.counter }
    }

    fn silent_for(&self) -> Duration {
        Duration::try_from_secs_f64(self.silent).unwrap_or_default()
    }

    /// Its process has ended for certain, or has said nothing for so long that it is taken for gone.
    fn is_gone(&self) -> bool {
        let is_abandoned = self.fenced_on.is_none() && self.silent_for() > ABANDONED_AFTER;
        is_abandoned || self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.silent_for() > LEASE && self.process.as_deref().is_some_and(process::has_ended)
    }

    /// May a statement that it has planned before an epoch still reach these shards? `is_behind`: as far as its row says.
    fn may_reach(&self, shards: &[ShardId], is_behind: impl Fn(&Self) -> bool) -> bool {
        match (&self.fenced_on, self.generation) {
            (Some(fenced_on), _) => shards.iter().any(|shard| !fenced_on.contains(&shard.0)),
            // However long it is silent: it is shut out first.
            (None, Some(_)) => is_behind(self) && !self.has_ended(),
            (None, None) => is_behind(self) && !self.is_gone(),
        }
    }

    fn fence(&self) -> Option<Fence> {
        let shards = self.fenced_on.as_ref()?.iter().copied().map(ShardId).collect();
        Some(Fence {
            proxy: ProxyId(self.proxy_id),
            generation: self.generation?,
            address: self.address.clone(),
            shards,
            begun: self.silent_for(),
        })
    }

    fn into_behind(self) -> ProxyBehind {
        let silent_for = Some(self.silent_for()).filter(|silent| *silent > LEASE || self.fenced_on.is_some());
        let renewals = Some(self.renewals).filter(|_| self.generation.is_some() && self.fenced_on.is_none());
        ProxyBehind { id: ProxyId(self.proxy_id), address: self.address, silent_for, renewals }
    }
}

impl ShardMap {
    /// Gives those that are still behind after `patience`; none: all have reached it. `own`: the one snapshot that the caller itself
    /// holds, which may be older; with any other it would wait for itself. Cancel safe.
    pub async fn reached_by_all(
        &self,
        epoch: Epoch,
        own: Option<&Arc<MapInUse>>,
        silent: Silent,
        patience: Duration,
    ) -> Result<Vec<ProxyBehind>, StoreError> {
        self.reached(epoch).await;
        let deadline = Instant::now() + patience;
        let this = self.lease().proxy_id();
        let mut seen: HashMap<i64, (i64, Instant)> = HashMap::new();
        loop {
            let own_reached = self.shared.current.reached_but_for(own);
            let mut behind = self.store.proxies().await?;
            let mut to_shut_out = Vec::new();
            behind.retain(|row| {
                if let Some(fenced_on) = &row.fenced_on {
                    let is_in = match silent {
                        Silent::Ignored => false,
                        Silent::ShutOutOf(shard) => !fenced_on.contains(&shard.0),
                        Silent::Awaited => true,
                    };
                    return is_in && row.proxy_id != this.0;
                }
                let (renewals, since) = seen.entry(row.proxy_id).or_insert((row.renewals, Instant::now()));
                if *renewals != row.renewals {
                    (*renewals, *since) = (row.renewals, Instant::now());
                }
                let is_over = match silent {
                    Silent::Ignored => since.elapsed() > LEASE,
                    // One of an earlier version cannot be shut out.
                    Silent::ShutOutOf(_) => row.has_ended() || (row.generation.is_none() && since.elapsed() > LEASE),
                    Silent::Awaited => row.is_gone(),
                };
                let is_behind = row.proxy_id != this.0 && row.reached() < epoch && !is_over;
                if is_behind && matches!(silent, Silent::ShutOutOf(_)) && since.elapsed() > SHUT_OUT_AFTER {
                    to_shut_out.push((ProxyId(row.proxy_id), row.renewals));
                }
                is_behind
            });
            for (proxy, renewals) in to_shut_out {
                if self.store.fence_proxy(proxy, renewals).await? {
                    tracing::warn!(proxy_id = %proxy, "proxy has lost its lease and is shut out");
                }
            }
            let mut behind: Vec<ProxyBehind> = behind.into_iter().map(ProxyRow::into_behind).collect();
            if own_reached < epoch {
                behind.push(ProxyBehind { id: this, address: self.lease().address().to_owned(), silent_for: None, renewals: None });
            }
            if behind.is_empty() || Instant::now() >= deadline {
                return Ok(behind);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Those others that have lost their lease by the map database's clock, and are not gone for certain.
    pub async fn silent_proxies(&self) -> Result<Vec<ProxyBehind>, StoreError> {
        let this = self.lease().proxy_id();
        let is_silent = |row: &ProxyRow| row.proxy_id != this.0 && row.silent_for() > LEASE && !row.is_gone();
        Ok(self.store.proxies().await?.into_iter().filter(is_silent).map(ProxyRow::into_behind).collect())
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
    /// Proxies that may have statements which were planned before this epoch and may still reach these shards, for who is none itself.
    /// One that has lost its lease counts until it is gone for certain, or is shut out there.
    pub async fn proxies_behind(&self, epoch: Epoch, shards: &[ShardId]) -> Result<ProxiesSeen, StoreError> {
        let rows = self.proxies().await?;
        Ok(ProxiesSeen::of(rows, |row| row.may_reach(shards, |row| row.reached() < epoch)))
    }

    /// Those that have not renewed their leases for a while, by the map database's clock, and may still reach these shards.
    pub async fn proxies_silent(&self, for_longer_than: Duration, shards: &[ShardId]) -> Result<ProxiesSeen, StoreError> {
        let rows = self.proxies().await?;
        Ok(ProxiesSeen::of(rows, |row| row.may_reach(shards, |row| row.silent_for() > for_longer_than)))
    }

    /// Every proxy's id and how often it has renewed its lease: one that does not renew for [`LEASE`] is gone.
    pub async fn proxy_renewals(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        Ok(renewals(&self.proxies().await?))
    }

    /// Tells of this proxy's waiting transactions; those of the others.
    pub async fn tell_waiters(&self, proxy: i64, waiters: serde_json::Value) -> Result<serde_json::Value, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.tell_waiters($1, $2)").bind(proxy).bind(Json(waiters));
        read::<Json<serde_json::Value>>(&self.change(query).await?, 0).map(|told| told.0)
    }

    /// Is there another proxy whose lease holds?
    pub async fn has_other_proxy(&self, own: ProxyId) -> Result<bool, StoreError> {
        self.has_proxy_behind(own, Epoch { incarnation: i64::MAX, counter: i64::MAX }).await
    }

    async fn has_proxy_behind(&self, own: ProxyId, epoch: Epoch) -> Result<bool, StoreError> {
        self.answered(
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
            .fetch_one(&self.pool()?),
        )
        .await
    }

    async fn proxies(&self) -> Result<Vec<ProxyRow>, StoreError> {
        self.answered(sqlx::query_as(AssertSqlSafe(proxies_sql())).fetch_all(&self.pool()?)).await
    }
}

fn proxies_sql() -> String {
    format!(
        "SELECT proxy_id, address, incarnation, counter, renewals, drained, process, generation, NULL::int[] AS fenced_on,
                extract(epoch FROM clock_timestamp() - last_seen)::float8 AS silent
         FROM shardgate_map.proxy
         UNION ALL {FENCES}"
    )
}

impl ProxiesSeen {
    /// As [`Store::proxies_behind`], and those that have transactions which pass the hold of this epoch.
    pub(super) async fn not_drained(kept: &mut Kept, held: Epoch, shards: &[ShardId]) -> Result<Self, StoreError> {
        let rows = kept.rows(sqlx::query(AssertSqlSafe(proxies_sql()))).await?;
        let rows: Result<Vec<ProxyRow>, sqlx::Error> = rows.iter().map(ProxyRow::from_row).collect();
        let rows = rows.map_err(StoreError::reading)?;
        Ok(Self::of(rows, |row| row.may_reach(shards, |row| row.reached() < held || row.drained < held.counter)))
    }

    fn of(rows: Vec<ProxyRow>, is_behind: impl Fn(&ProxyRow) -> bool) -> Self {
        let (renewals, fences) = (renewals(&rows), rows.iter().filter_map(ProxyRow::fence).collect());
        let behind = rows.into_iter().filter(is_behind).map(ProxyRow::into_behind).collect();
        Self { behind, renewals, fences }
    }
}

fn renewals(rows: &[ProxyRow]) -> Vec<(i64, i64)> {
    rows.iter().filter(|row| row.fenced_on.is_none()).map(|row| (row.proxy_id, row.renewals)).collect()
}

/// A proxy sees a change within milliseconds.
const SEEN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// One that still lives has ended its lease by then.
const SHUT_OUT_AFTER: Duration = LEASE.saturating_add(Duration::from_secs(1));
