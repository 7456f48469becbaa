//! The end of a move's replication: nothing of it is left on either side, or nothing is said to be.
//!
//! A slot that is left keeps WAL until the disk is full, and one that is alive at the clean-up would publish its deletions to the
//! new owner.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::moving::Moving;
use super::objects;
use super::stop::Stop;

pub(super) async fn end(moving: &mut Moving) -> Result<(), Stop> {
    let name = objects::name(moving.the_move.id);
    end_subscription(moving, &name).await?;
    end_slot(moving, &name).await?;
    moving.source.act_patiently(&format!("DROP PUBLICATION IF EXISTS {name}")).await?;
    Ok(())
}

/// Without asking the source: it may be away, and the slot is dropped by itself.
async fn end_subscription(moving: &mut Moving, name: &str) -> Result<(), Stop> {
    let here = format!("subname = '{name}' AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())");
    let exists = format!("SELECT EXISTS (SELECT FROM pg_subscription WHERE {here})");
    if !moving.target.value::<bool>(&exists).await? {
        return Ok(());
    }
    moving.target.act(&format!("ALTER SUBSCRIPTION {name} DISABLE")).await?;
    let works = format!("SELECT EXISTS (SELECT FROM pg_stat_subscription WHERE subname = '{name}' AND pid IS NOT NULL)");
    let deadline = Instant::now() + PATIENCE;
    while moving.target.value::<bool>(&works).await? {
        if Instant::now() > deadline {
            return Err(Stop::Again("waits for replication to end".to_owned()));
        }
        sleep(POLL_INTERVAL).await;
    }
    end_copy_slots(moving, &here).await?;
    moving.target.act(&format!("ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}")).await?;
    Ok(())
}

/// A table that is being copied has a slot of its own, which outlives its connection. It bears the subscription's number: so these go
/// first, while that number can be read.
async fn end_copy_slots(moving: &mut Moving, here: &str) -> Result<(), Stop> {
    let prefix = format!("SELECT 'pg_' || oid || '_sync_' FROM pg_subscription WHERE {here}");
    let prefix: String = moving.target.value(&prefix).await?;
    // As an unsigned number, which the type of the function's answer is not.
    let suffix =
        "SELECT CASE WHEN system_identifier < 0 THEN system_identifier + 18446744073709551616 ELSE system_identifier END::text
                  FROM (SELECT system_identifier::numeric FROM pg_control_system()) s";
    let suffix: String = moving.target.value(suffix).await?;
    let ours = format!("starts_with(slot_name, '{prefix}') AND slot_name LIKE '%\\_{suffix}'");
    let slots = moving.source.rows::<(String,)>(&format!("SELECT slot_name::text FROM pg_replication_slots WHERE {ours}")).await?;
    for (slot,) in slots {
        end_slot(moving, &slot).await?;
    }
    Ok(())
}

async fn end_slot(moving: &mut Moving, name: &str) -> Result<(), Stop> {
    let exists = format!("SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '{name}')");
    let deadline = Instant::now() + PATIENCE;
    while moving.source.value::<bool>(&exists).await? {
        let dropped = moving.source.send(&format!("SELECT pg_drop_replication_slot('{name}')")).await;
        match dropped {
            Ok(()) => {}
            // Its connection is ending.
            Err(super::site::SiteError::Busy { .. }) if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
