//! A proxy that is frozen, cut off or dead does not stop a move: the shards shut it out, and the mover goes on.
//!
//! ```text
//!   its row has not changed for so long, from reading to reading ─► the row is deleted, a fence begun      (one change of the map)
//!     ─► each shard: the process is written to shardgate.shut_out ─► its registered connections are ended ─► they are gone
//!     ─► the source and the target have shut it out: the mover goes on; the others follow
//! ```
//! # Why no statement of such a proxy is wrong afterwards
//!
//! What the proxy has planned before, it has planned in an earlier generation of its lease: without the row it cannot renew that one, and
//! whatever it plans in the next one it plans by a map that was read after it had registered again, which movers wait for.
//!
//! * *It reaches no shard of the move.* Its connections there have ended, new ones of this generation are refused, and a connection of a
//!   later generation takes no statement that was planned before: a transaction, or a cycle outside of one, gets no connection of a later
//!   generation than its own (`Session::wait_for_ready`).
//! * *Answers that it already has* are of snapshots that were taken before their connections ended, so before anything that the mover does
//!   next: neither the copy, nor the switch, nor the clean-up shows in any of them. Where only a part of the shards has answered, the
//!   others' connections are gone, and the statement fails. A late answer is as old as one of a slow network, and as right.
//! * *Other shards* own the same rows before and after. What the old map says of them is still true, and no row that they do not own lies
//!   there: another move that they take part in waits until they have shut the process out as well.
//! * *What it has written or locked* in an open transaction is rolled back with its connections; what is prepared keeps its locks, and
//!   is finished by recovery. Its COMMIT fails where one of its shards has ended the connection.
//!
//! While the map is away for everybody nobody is shut out, and all proxies go on. One that alone does not reach the map is told by the
//! shards: what it plans for them gets 57P03 until it has registered again.
//!
//! Connections of others are never ended: which connection is whose, the connection has registered itself. A driver that is frozen in
//! the middle, and thaws, only repeats what holds for that generation for ever.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::shardmap::{Fence, LEASE, Leases, Lost, MapSnapshot, Move, MoveId, ProxyBehind, Shard, Store, StoreError, Term};

/// Why a shard cannot shut a proxy out, if one cannot.
pub(super) type Trouble = Mutex<Option<String>>;

/// Runs beside a driver: source and target shut out whoever is silent, and what others have begun is finished there.
pub(super) async fn keep_shutting_out(store: &Store, the_move: &Move, trouble: &Trouble) {
    let mut leases = Leases::new(GAP_MAX);
    loop {
        match Box::pin(one_look(store, the_move, &mut leases)).await {
            Ok(()) => *trouble.lock() = None,
            Err(Stop::Again(reason)) => *trouble.lock() = Some(reason),
            Err(stop) => {
                // The map is away: nobody can renew.
                leases.note_failure();
                tracing::debug!(?stop, "which proxies are silent could not be read");
            }
        }
        sleep(LOOK_INTERVAL).await;
    }
}

async fn one_look(store: &Store, the_move: &Move, leases: &mut Leases) -> Result<(), Stop> {
    let seen = store.proxies_silent(LEASE, &[]).await.map_err(unread)?;
    leases.note(&seen.renewals, Instant::now());
    let mut has_begun = false;
    for proxy in &seen.behind {
        let Some(renewals) = proxy.renewals else { continue };
        if leases.silent_for(proxy.id.0) > SHUT_OUT_AFTER && store.fence_proxy(proxy.id, renewals).await.map_err(unread)? {
            tracing::warn!(proxy_id = %proxy.id, address = proxy.address, "proxy has lost its lease and is shut out");
            has_begun = true;
        }
    }
    if seen.fences.is_empty() && !has_begun {
        return Ok(());
    }
    let seen = store.proxies_silent(LEASE, &[]).await.map_err(unread)?;
    let map = store.load().await.map_err(unread)?.snapshot;
    for fence in &seen.fences {
        let lost = Lost::of(the_move).map(|lost| lost.shard(the_move));
        let is_needed =
            |shard: &&Shard| [&the_move.source, &the_move.target].contains(&&shard.name) && lost != Some(shard.name.as_str());
        for shard in missing(&map, fence).filter(is_needed) {
            shut_out_in_time(store, fence, shard).await?;
        }
    }
    Ok(())
}

fn unread(error: StoreError) -> Stop {
    Stop::Failed(error.to_string())
}

/// What others have begun, on all shards that answer.
pub(in crate::rebalance) async fn finish_all(store: &Store) -> Result<(), StoreError> {
    let fences = store.proxies_silent(LEASE, &[]).await?.fences;
    if fences.is_empty() {
        return Ok(());
    }
    let map = store.load().await?.snapshot;
    for fence in &fences {
        for shard in missing(&map, fence) {
            if let Err(error) = shut_out_in_time(store, fence, shard).await {
                tracing::debug!(proxy_id = %fence.proxy, shard = shard.name, ?error, "a shard does not shut a proxy out yet");
            }
        }
    }
    Ok(())
}

pub(in crate::rebalance) fn missing<'m>(map: &'m MapSnapshot, fence: &'m Fence) -> impl Iterator<Item = &'m Shard> {
    map.shards.iter().map(AsRef::as_ref).filter(|shard| !fence.shards.contains(&shard.id))
}

/// Those that are waited for, and why it may take long.
pub(super) fn waited_for(behind: &[ProxyBehind], trouble: &Trouble) -> String {
    let name = |proxy: &ProxyBehind| match proxy.silent_for {
        Some(silent) => format!("{} (not heard of for {} s)", proxy.address, silent.as_secs()),
        None => format!("{} (statements that began before)", proxy.address),
    };
    let names = behind.iter().map(name).collect::<Vec<_>>().join(", ");
    let trouble = trouble.lock().as_ref().map(|reason| format!("; {reason}")).unwrap_or_default();
    format!("waits for proxies: {names}{trouble}")
}

/// Errors: [`Stop::Again`] with the reason.
async fn shut_out_in_time(store: &Store, fence: &Fence, shard: &Shard) -> Result<(), Stop> {
    let reason = match timeout(SHUT_OUT_WITHIN, Box::pin(shut_out(store, fence, shard))).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(
            Stop::Again(reason)
            | Stop::Slow(reason)
            | Stop::Abort(reason)
            | Stop::Differ(reason)
            | Stop::Withdraw(reason)
            | Stop::Failed(reason),
        )) => reason,
        Ok(Err(Stop::Overtaken | Stop::Rest(_))) => "another driver has taken over".to_owned(),
        Err(_) => "it does not answer".to_owned(),
    };
    Err(Stop::Again(format!("shard \"{}\" cannot shut out proxy {}: {reason}", shard.name, fence.address)))
}

async fn shut_out(store: &Store, fence: &Fence, shard: &Shard) -> Result<(), Stop> {
    let mut site = Box::pin(Site::open(shard, MoveId(0), Term(0))).await?;
    let again = Stop::Again;
    if !site.value::<bool>("SELECT pg_catalog.to_regclass('shardgate.shut_out') IS NOT NULL").await? {
        return Err(again("it lacks tables that a proxy of this version makes".to_owned()));
    }
    let (proxy, generation) = (fence.proxy.0, fence.generation);
    site.send(&format!(
        "INSERT INTO shardgate.shut_out AS s (proxy_id, generation) VALUES ({proxy}, {generation}) \
         ON CONFLICT (proxy_id) DO UPDATE SET generation = greatest(s.generation, excluded.generation)"
    ))
    .await?;
    let registered = format!(
        "FROM shardgate.backend b JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid AND a.backend_type = 'client backend' \
         WHERE b.proxy_id = {proxy} AND b.generation <= {generation} AND coalesce(a.backend_start = b.started, true)"
    );
    loop {
        let left = site.value::<String>(&format!("SELECT coalesce(string_agg(DISTINCT a.usename, ', '), '') {registered}")).await?;
        if left.is_empty() {
            store.note_fenced(fence, shard.id).await?;
            return Ok(());
        }
        // Of another role's connection the start shows only to who may see it.
        let end = format!("SELECT count(pg_terminate_backend(a.pid)) {registered} AND a.backend_start = b.started");
        match site.value::<i64>(&end).await {
            Ok(0) => return Err(again(lacks_rights(&left))),
            Ok(_) => sleep(POLL_INTERVAL).await,
            Err(SiteError::Refused { code, .. }) if code == "42501" => return Err(again(lacks_rights(&left))),
            Err(error) => return Err(error.into()),
        }
    }
}

fn lacks_rights(users: &str) -> String {
    format!("the user of its url may not end connections of {users}; grant it pg_signal_backend and pg_read_all_stats")
}

/// Roles with connections of proxies that the user of the shard's url may not end. Superusers' may be ended by superusers only.
pub(super) async fn untouchable_roles(site: &mut Site) -> Result<String, SiteError> {
    if !site.value::<bool>("SELECT pg_catalog.to_regclass('shardgate.backend') IS NOT NULL").await? {
        return Ok(String::new());
    }
    site.value(
        "SELECT coalesce(string_agg(DISTINCT r.rolname, ', '), '')
         FROM shardgate.backend b JOIN pg_stat_activity a ON a.pid = b.pid AND coalesce(a.backend_start = b.started, true)
         JOIN pg_roles r ON r.oid = a.usesysid
         WHERE NOT pg_has_role(r.oid, 'USAGE')
           AND (r.rolsuper OR NOT pg_has_role('pg_signal_backend', 'USAGE') OR NOT pg_has_role('pg_read_all_stats', 'USAGE'))",
    )
    .await
}

/// By the mover's own clock, and longer than a proxy needs that lives: its renewals follow each other by a second, and are given up after
/// two.
const SHUT_OUT_AFTER: Duration = LEASE.saturating_add(Duration::from_secs(1));
/// In a longer gap between two readings the map may have been away, and nobody could renew.
const GAP_MAX: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// On one shard.
const SHUT_OUT_WITHIN: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
