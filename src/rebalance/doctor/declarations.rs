//! What a declaration that ended half-way has left: tables whose writes it refuses, and a shard that is registered and not prepared.
//!
//! Such a gate is opened as calling the declaration again would open it: while nobody declares, when the map takes no change of an earlier
//! declaration any more, and no proxy works by an older map. The shard is finished, or dropped, by a person.

use tokio::time::{Instant, sleep};

use super::records::{LOOK_AGAIN_AFTER, REMOVED_WITHIN};
use super::{Leftover, Look};
use crate::rebalance::moves::site::{Site, SiteError};
use crate::shardmap::{DECLARATION_LOCK, DECLARING_TRIGGER, Shard, ShardId, StoreError};

/// Of one shard.
pub(super) async fn find(shard: &Shard, site: &mut Site, look: &Look<'_>, fixes: bool) -> Result<Vec<Leftover>, SiteError> {
    // A declaration that runs has the lock, and opens them itself.
    let until = Instant::now() + REMOVED_WITHIN;
    let may_be_unprepared = shard.is_home && look.map.shards.iter().any(|shard| !shard.state.is_ready());
    loop {
        if !may_be_unprepared && site.rows::<(String,)>(&gates_sql()).await?.is_empty() {
            return Ok(Vec::new());
        }
        if site.value::<bool>(&format!("SELECT pg_try_advisory_lock({DECLARATION_LOCK})")).await? {
            break;
        }
        if Instant::now() >= until {
            return Ok(Vec::new());
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
    let mut found = opened(shard, site, look, fixes).await;
    if may_be_unprepared
        && let Ok(found) = &mut found
        && let Ok(now) = look.store.load().await
    {
        found.extend(now.snapshot.shards.iter().filter(|shard| !shard.state.is_ready()).map(|shard| unprepared(shard)));
    }
    site.send(&format!("SELECT pg_advisory_unlock({DECLARATION_LOCK})")).await?;
    found
}

fn unprepared(shard: &Shard) -> Leftover {
    let name = &shard.name;
    let remedy = format!("call add_shard() again with the same arguments, or drop_shard('{}')", name.replace('\'', "''"));
    Leftover::in_map(format!("shard \"{name}\" is registered, and add_shard() has not ended"), remedy)
}

/// Nobody else declares.
async fn opened(shard: &Shard, site: &mut Site, look: &Look<'_>, fixes: bool) -> Result<Vec<Leftover>, SiteError> {
    let mut found = Vec::new();
    let gates = site.rows::<(String,)>(&gates_sql()).await?;
    let may_open = match fixes && shard.is_home && !gates.is_empty() {
        true => Some(no_older_map(look).await.unwrap_or_else(|error| Err(error.to_string()))),
        false => None,
    };
    for (table,) in gates {
        let what = format!("writes to table {table} are refused by a declaration that did not end");
        let remedy = "call the function again, or let doctor --fix open it".to_owned();
        let mut leftover = Leftover::on(&shard.name, what, remedy);
        match &may_open {
            Some(Ok(())) => {
                match site.send(&format!("SET lock_timeout = '200ms'; DROP TRIGGER IF EXISTS {DECLARING_TRIGGER} ON {table}")).await
                {
                    Ok(()) => leftover.is_fixed = true,
                    Err(error) => leftover.remedy = format!("{} (it failed: {error})", leftover.remedy),
                }
            }
            Some(Err(reason)) => leftover.remedy = format!("{} ({reason})", leftover.remedy),
            None => {}
        }
        found.push(leftover);
    }
    Ok(found)
}

/// The map takes no change of a declaration that has begun before, and no proxy works by what it was before such a change. Errors: who
/// does.
async fn no_older_map(look: &Look<'_>) -> Result<Result<(), String>, StoreError> {
    look.store.begin_declaration().await?;
    let epoch = look.store.epoch().await?;
    let all: Vec<ShardId> = look.map.shards.iter().map(|shard| shard.id).collect();
    let until = Instant::now() + REMOVED_WITHIN;
    loop {
        let behind = look.store.proxies_behind(epoch, &all).await?.behind;
        if behind.is_empty() {
            return Ok(Ok(()));
        }
        if Instant::now() >= until {
            let proxies: Vec<String> = behind.iter().map(|proxy| proxy.address.clone()).collect();
            return Ok(Err(format!("proxies still work by an older map: {}", proxies.join(", "))));
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

fn gates_sql() -> String {
    format!("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = '{DECLARING_TRIGGER}' AND tgparentid = 0 ORDER BY 1")
}
