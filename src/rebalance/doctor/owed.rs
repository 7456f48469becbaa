//! What a shard has of moves that were given up while it was away, which is back now: its rows lie at their owner, and are deleted here.
//!
//! The map says which: it has written that down when the move ended, and no statement has reached the shard since. Rows are deleted by
//! [`given_up::clean`] alone, when what bears the move's name is gone, no proxy works by an older map, and the owner answers.

use tokio::time::{Instant, sleep};

use super::records::{LOOK_AGAIN_AFTER, REMOVED_WITHIN};
use super::{Leftover, Look};
use crate::rebalance::moves::given_up;
use crate::shardmap::{Lost, Owed, Shard};

/// Of one shard, which answers. `found`: what else is left on it, and whether it is removed.
pub(super) async fn find(shard: &Shard, look: &Look<'_>, (found, fixes): (&[Leftover], bool)) -> Vec<Leftover> {
    let mut owing = Vec::new();
    let of_shard = look.owed.iter().filter(|owed| owed.shard == shard.id && !look.running.contains_key(&owed.move_id.0));
    for owed in of_shard {
        let id = owed.move_id.0;
        let what = format!("rows and records of move {id}, which was given up while the shard was away");
        let mut leftover =
            Leftover::on(&shard.name, what, "doctor --fix deletes them; then alter_shard(…, state => 'online') puts it into use");
        if fixes {
            let is_left = found.iter().any(|other| other.move_id == Some(id) && !other.is_fixed);
            let cleaned = match is_left {
                true => Err("other things of the move are left".to_owned()),
                false => Box::pin(clean(shard, look, *owed)).await,
            };
            match cleaned {
                Ok(()) => leftover.is_fixed = true,
                Err(reason) => leftover.remedy = format!("{} (it failed: {reason})", leftover.remedy),
            }
        }
        owing.push(leftover);
    }
    owing
}

async fn clean(shard: &Shard, look: &Look<'_>, owed: Owed) -> Result<(), String> {
    let told = |error: crate::shardmap::StoreError| crate::rebalance::RebalanceError::from(error).to_string();
    no_older_map(shard, look).await?;
    let known = look.store.move_by_id(owed.move_id).await.map_err(told)?;
    let the_move = known.filter(|the_move| the_move.state.is_over()).ok_or("the move has not ended")?;
    let owner = Lost::of(&the_move).and_then(|lost| look.map.shard_by_name(lost.kept(&the_move)));
    let owner = owner.ok_or("the other shard of the move is gone")?;
    given_up::clean(shard, owner, &the_move).await?;
    look.store.settle_owed("shard-rebalance doctor", owed).await.map_err(told)
}

/// From an older one a proxy could still send statements there.
async fn no_older_map(shard: &Shard, look: &Look<'_>) -> Result<(), String> {
    let read = |error: crate::shardmap::StoreError| error.to_string();
    let epoch = look.store.epoch().await.map_err(read)?;
    let until = Instant::now() + REMOVED_WITHIN;
    loop {
        let behind = look.store.proxies_behind(epoch, &[shard.id]).await.map_err(read)?.behind;
        if behind.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let proxies: Vec<String> = behind.iter().map(|proxy| proxy.address.clone()).collect();
            return Err(format!("proxies still work by an older map: {}", proxies.join(", ")));
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}
