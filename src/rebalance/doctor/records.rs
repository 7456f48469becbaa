//! Rows of bookkeeping tables of moves that have ended: residues, markers, drivers' terms, what a shard knows of a switch, and copies that
//! were set aside.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Leftover, Look};
use crate::rebalance::moves::site::{Site, SiteError};
use crate::shardmap::MoveId;

pub(super) async fn find(site: &mut Site, look: &Look<'_>) -> Result<Vec<Leftover>, SiteError> {
    let mut found = Vec::new();
    for (table, what) in RECORDS {
        for (id, what) in ended(site, look, table, what).await? {
            let sql = format!("DELETE FROM shardgate.{table} WHERE move_id = {id}");
            found.push(Leftover::removable(&site.name, what, sql).of_move(id));
        }
    }
    for (id, what) in ended(site, look, "switched", "a record of the switch").await? {
        // It outlives a map that fails over and forgets: only the map's own word ends it.
        let known = look.store.move_by_id(MoveId(id)).await;
        found.push(match known {
            Ok(Some(_)) => {
                let sql = format!("DELETE FROM shardgate.switched WHERE move_id = {id}");
                Leftover::removable(&site.name, what, sql).of_move(id)
            }
            Ok(None) => forgotten(&site.name, id),
            Err(error) => {
                Leftover::on(&site.name, what, format!("run doctor again: the map does not answer ({error})")).of_move(id)
            }
        });
    }
    found.extend(set_aside(site, look).await?);
    Ok(found)
}

/// Of moves that do not run: number, and what is left. The driver removes it right after the move has ended, and is waited for.
async fn ended(site: &mut Site, look: &Look<'_>, table: &str, what: &str) -> Result<Vec<(i32, String)>, SiteError> {
    if !exists(site, table).await? {
        return Ok(Vec::new());
    }
    let until = Instant::now() + REMOVED_WITHIN;
    loop {
        let rows = site.rows::<(i32,)>(&format!("SELECT DISTINCT move_id FROM shardgate.{table} ORDER BY 1")).await?;
        let ended: Vec<i32> = rows.into_iter().map(|(id,)| id).filter(|id| !look.running.contains_key(id)).collect();
        if ended.is_empty() || Instant::now() >= until {
            return Ok(ended.into_iter().map(|id| (id, format!("{what} of move {id}, which has ended"))).collect());
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

async fn exists(site: &mut Site, table: &str) -> Result<bool, SiteError> {
    site.value(&format!("SELECT to_regclass('shardgate.{table}') IS NOT NULL")).await
}

fn forgotten(shard: &str, id: i32) -> Leftover {
    Leftover::on(
        shard,
        format!("the shard has taken over partitions in move {id}, which the map does not know"),
        "the map has failed over, or was restored, and has forgotten it: compare both shards before anything is removed",
    )
    .of_move(id)
}

/// Whoever sets copies aside puts them back in the same transaction: a row that is seen was forgotten. Without a move there are no
/// copies.
async fn set_aside(site: &mut Site, look: &Look<'_>) -> Result<Option<Leftover>, SiteError> {
    if !exists(site, "set_aside").await? {
        return Ok(None);
    }
    let rows: i64 = site.value("SELECT count(*) FROM shardgate.set_aside").await?;
    let what = format!("{rows} copies that were set aside while a key was changed were not put back");
    Ok((rows > 0).then(|| match look.running.is_empty() {
        true => Leftover::removable(&site.name, what, "DELETE FROM shardgate.set_aside".to_owned()),
        false => Leftover::on(&site.name, what, "abort the move that runs: its copies are not complete"),
    }))
}

const RECORDS: [(&str, &str); 3] =
    [("residue", "residues"), ("marker", "markers of replication"), ("term", "the term of a driver")];
pub(super) const REMOVED_WITHIN: Duration = Duration::from_secs(2);
pub(super) const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);
