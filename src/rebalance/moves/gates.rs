//! Takes the gates of a move away when it ends.
//!
//! Dropping a trigger waits for everybody who has read its table in an open transaction, a dump say, and all who come later would queue
//! behind it. So it is tried for a moment; then the triggers are disabled, beside which readers go on, and the move ends. What is left
//! is dropped by the next move that ends on that shard, or by `doctor --fix`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::sleep;

use super::moving::Moving;
use super::objects;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::shardmap::{MoveId, Store};

/// On both sides.
pub(super) async fn remove(moving: &mut Moving) -> Result<(), Stop> {
    let id = moving.the_move.id;
    let store = moving.store.clone();
    for site in [&mut moving.source, &mut moving.target] {
        remove_from(site, id, &store).await?;
    }
    Ok(())
}

/// On one side.
pub(super) async fn remove_from(site: &mut Site, id: MoveId, store: &Store) -> Result<(), Stop> {
    for (table,) in site.rows::<(String,)>(&gated(id)).await? {
        if !is_dropped(site, &objects::drop_triggers(id, &table), ATTEMPTS).await? {
            site.act_patiently(&objects::disable_triggers(id, &table)).await?;
        }
    }
    site.act_patiently(&format!("DELETE FROM shardgate.marker WHERE move_id = {};", id.0)).await?;
    remove_left(site, id, store).await
}

/// `false`: others hold locks of the table.
async fn is_dropped(site: &mut Site, drops: &str, attempts: usize) -> Result<bool, SiteError> {
    for _ in 0..attempts {
        match site.act_within(drops, LOCK_TIMEOUT).await {
            Err(SiteError::Busy { .. }) => sleep(PAUSE).await,
            outcome => return outcome.map(|()| true),
        }
    }
    Ok(false)
}

/// Of moves that have ended, and of this one. What is there is looked at first: a move is in the map before it makes anything. A table is locked
/// once, however many moves have left something on it.
async fn remove_left(site: &mut Site, of: MoveId, store: &Store) -> Result<(), Stop> {
    let disabled = site.rows::<(i32, String)>(DISABLED).await?;
    let gates = site.rows::<(i32,)>(GATES).await?;
    let running: BTreeSet<MoveId> = store.running_moves().await?.into_iter().map(|running| running.id).collect();
    let has_ended = |id: MoveId| id == of || !running.contains(&id);
    let mut drops: BTreeMap<String, String> = BTreeMap::new();
    for (id, table) in disabled.into_iter().filter(|(id, _)| has_ended(MoveId(*id))) {
        let drop = objects::drop_triggers(MoveId(id), &table);
        drops.entry(table).or_default().push_str(&drop);
    }
    for drops in drops.values() {
        is_dropped(site, drops, 1).await?;
    }
    let used: BTreeSet<i32> = site.rows::<(i32,)>(USED).await?.into_iter().map(|(id,)| id).collect();
    for (id,) in gates {
        if has_ended(MoveId(id)) && !used.contains(&id) {
            site.act_patiently(&objects::drop_gate(MoveId(id))).await?;
        }
    }
    Ok(())
}

/// The tables that have them, whatever has become of these meanwhile.
fn gated(id: MoveId) -> String {
    format!("SELECT DISTINCT t.tgrelid::regclass::text FROM pg_trigger t WHERE {} ORDER BY 1", objects::is_trigger_of(id))
}

const DISABLED: &str = r"SELECT DISTINCT substring(tgname FROM 'move_(\d+)_')::int4, tgrelid::regclass::text
     FROM pg_trigger WHERE tgname ~ '^(00|zz)_shardgate_move_\d+_' AND tgenabled = 'D' ORDER BY 1, 2";
/// Moves whose gates triggers look at.
const USED: &str = r"SELECT DISTINCT substring(tgname FROM 'move_(\d+)_')::int4 FROM pg_trigger
     WHERE tgname ~ '^(00|zz)_shardgate_move_\d+_' AND tgparentid = 0";
const GATES: &str = r"SELECT substring(relname FROM '\d+')::int4 FROM pg_class c
     WHERE relnamespace = to_regnamespace('shardgate') AND relname ~ '^gate_\d+$' AND relkind = 'r' ORDER BY 1";
const ATTEMPTS: usize = 5;
/// All who come meanwhile queue behind us.
const LOCK_TIMEOUT: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(100);
