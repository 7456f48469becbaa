//! Takes the gates of a move away when it ends.
//!
//! Dropping a trigger waits for everybody who has read its table in an open transaction, a dump say, and all who come later would queue
//! behind it. So it is tried for a moment; then the triggers are disabled, beside which readers go on, and the move ends. What is left
//! is dropped by the next move that ends on that shard, or by `doctor --fix`.

use std::collections::BTreeSet;

use super::moving::Moving;
use super::objects;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::shardmap::MoveId;

/// On both sides.
pub(super) async fn remove(moving: &mut Moving) -> Result<(), Stop> {
    let id = moving.the_move.id;
    let running: BTreeSet<MoveId> = moving.store.running_moves().await?.into_iter().map(|running| running.id).collect();
    for site in [&mut moving.source, &mut moving.target] {
        for (table,) in site.rows::<(String,)>(&gated(id)).await? {
            if !is_dropped(site, id, &table, ATTEMPTS).await? {
                site.act_patiently(&objects::disable_triggers(id, &table)).await?;
            }
        }
        site.act_patiently(&format!("DELETE FROM shardgate.marker WHERE move_id = {};", id.0)).await?;
        remove_left(site, |other| other == id || !running.contains(&other)).await?;
    }
    Ok(())
}

/// `false`: others hold locks of the table.
async fn is_dropped(site: &mut Site, id: MoveId, table: &str, attempts: usize) -> Result<bool, SiteError> {
    for _ in 0..attempts {
        match site.act_briefly(&objects::drop_triggers(id, table)).await {
            Err(SiteError::Busy { .. }) => {}
            outcome => return outcome.map(|()| true),
        }
    }
    Ok(false)
}

/// Of moves that have ended.
async fn remove_left(site: &mut Site, has_ended: impl Fn(MoveId) -> bool) -> Result<(), SiteError> {
    for (id, table) in site.rows::<(i32, String)>(DISABLED).await? {
        if has_ended(MoveId(id)) {
            is_dropped(site, MoveId(id), &table, 1).await?;
        }
    }
    for (id,) in site.rows::<(i32,)>(UNUSED).await? {
        if has_ended(MoveId(id)) {
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
/// Gates that no trigger looks at.
const UNUSED: &str = r"SELECT substring(relname FROM '\d+')::int4 FROM pg_class c
     WHERE relnamespace = to_regnamespace('shardgate') AND relname ~ '^gate_\d+$' AND relkind = 'r'
       AND NOT EXISTS (SELECT FROM pg_trigger t
                       WHERE t.tgname LIKE '__\_shardgate\_move\_' || substring(c.relname FROM '\d+') || '\_%') ORDER BY 1";
const ATTEMPTS: usize = 5;
