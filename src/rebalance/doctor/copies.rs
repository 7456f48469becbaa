//! What PostgreSQL itself makes for a subscription, and leaves behind where its end was interrupted: the slots of tables that were being
//! copied, at the publisher, and the origins of what was followed, at the subscriber. They bear the number of the subscription alone.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::FromRow;

use super::Leftover;
use crate::rebalance::moves::replication::SYSTEM_IDENTIFIER;
use crate::rebalance::moves::site::{Site, SiteError};
use crate::shardmap::{MapSnapshot, MoveId, Shard, Term};

/// Slots of copies whose subscription is gone, by shard.
#[derive(Default)]
pub(super) struct Copies(BTreeMap<String, Vec<CopySlot>>);

#[derive(FromRow)]
struct CopySlot {
    name: String,
    subscription: i64,
    /// Of the server that subscribes.
    system: String,
    bytes: Option<i64>,
}

impl Copies {
    /// The slots first: one that is made later has a subscription by then. Of a server that does not answer nothing is said.
    pub(super) async fn read(map: &MapSnapshot) -> Self {
        let shards = || map.shards.iter().filter(|shard| shard.state.is_ready());
        let mut slots = BTreeMap::new();
        for shard in shards() {
            if let Some(mut site) = open(shard).await
                && let Ok(found) = site.rows::<CopySlot>(COPY_SLOTS).await
            {
                slots.insert(shard.name.clone(), found);
            }
        }
        if slots.values().all(Vec::is_empty) {
            return Self::default();
        }
        let mut subscriptions: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for shard in shards() {
            let Some(mut site) = open(shard).await else { continue };
            let system = site.value::<String>(&format!("SELECT {SYSTEM_IDENTIFIER}")).await;
            let found = site.rows::<(i64,)>("SELECT oid::int8 FROM pg_subscription").await;
            if let (Ok(system), Ok(found)) = (system, found) {
                subscriptions.entry(system).or_default().extend(found.into_iter().map(|(oid,)| oid));
            }
        }
        let is_left = |slot: &CopySlot| subscriptions.get(&slot.system).is_some_and(|there| !there.contains(&slot.subscription));
        slots.values_mut().for_each(|slots| slots.retain(is_left));
        Self(slots)
    }
}

async fn open(shard: &Shard) -> Option<Site> {
    Box::pin(Site::open(shard, MoveId(0), Term(0))).await.ok()
}

pub(super) async fn find(site: &mut Site, copies: &Copies) -> Result<Vec<Leftover>, SiteError> {
    let slots = copies.0.get(&site.name).into_iter().flatten().map(|slot| {
        let held = crate::rebalance::units::bytes(slot.bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default());
        let what = format!("slot {} of a copy that has ended, which keeps {held} of WAL", slot.name);
        let sql = format!(
            "SELECT pg_drop_replication_slot(s.slot_name) FROM pg_replication_slots s WHERE s.slot_name = '{}' AND NOT s.active",
            slot.name
        );
        Leftover::removable(&site.name, what, sql)
    });
    let mut found: Vec<Leftover> = slots.collect();
    for (origin,) in site.rows::<(String,)>(ORIGINS).await? {
        let sql = format!("SELECT pg_replication_origin_drop('{origin}')");
        found.push(Leftover::removable(&site.name, format!("replication origin {origin} without a subscription"), sql));
    }
    Ok(found)
}

const COPY_SLOTS: &str = r"SELECT s.slot_name::text AS name, substring(s.slot_name FROM '^pg_(\d+)_')::int8 AS subscription,
            substring(s.slot_name FROM '\d+$') AS system, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::int8 AS bytes
     FROM pg_replication_slots s
     WHERE s.database = current_database() AND NOT s.active AND s.slot_name ~ '^pg_\d+_sync_\d+_\d+$' ORDER BY 1";
/// Of a server's databases alike: an origin and its subscription begin and end in one transaction.
const ORIGINS: &str = r"SELECT o.roname FROM pg_replication_origin o
     WHERE o.roname ~ '^pg_\d+(_\d+)?$'
       AND NOT EXISTS (SELECT FROM pg_subscription s WHERE s.oid::int8 = substring(o.roname FROM '^pg_(\d+)')::int8) ORDER BY 1";
