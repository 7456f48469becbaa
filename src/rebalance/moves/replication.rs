//! A move's replication: what publishes it, what keeps it going, and its end, after which nothing of it is left on either side, or
//! nothing is said to be.
//!
//! A slot that is left keeps WAL until the disk is full, and one that is alive at the clean-up would publish its deletions to the
//! new owner.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::copy_slots;
use super::direction::Direction;
use super::moving::Moving;
use super::objects;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::catalog::quoted_literal;
use crate::shardmap::{Move, MoveId};

/// In both directions.
pub(super) async fn end_all(moving: &mut Moving) -> Result<(), Stop> {
    end(moving, Direction::Forward).await?;
    end(moving, Direction::Back).await?;
    confirm_gone(moving).await
}

pub(super) async fn end(moving: &mut Moving, direction: Direction) -> Result<(), Stop> {
    let name = direction.name(moving.the_move.id);
    end_subscription(moving, direction, &name).await?;
    match direction {
        Direction::Forward => end_copy(&mut moving.source, &moving.the_move).await,
        Direction::Back => unpublish(&mut moving.target, &name).await,
    }
}

/// A subscription connects by what it was told when it was made: it is told where the publisher is now, and by which password. Where that is the
/// same its worker goes on undisturbed.
pub(super) async fn follow_addresses(moving: &mut Moving) -> Result<(), Stop> {
    for direction in [Direction::Forward, Direction::Back] {
        let name = direction.name(moving.the_move.id);
        if moving.subscriber(direction).value::<bool>(&has_subscription(&name)).await? {
            let connection = quoted_literal(moving.connection(direction));
            moving.subscriber(direction).act(&format!("ALTER SUBSCRIPTION {name} CONNECTION {connection}")).await?;
        }
    }
    Ok(())
}

fn has_subscription(name: &str) -> String {
    format!(
        "SELECT EXISTS (SELECT FROM pg_subscription
                        WHERE subname = '{name}' AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    )
}

/// What is said of a subscription whose worker does not read from the publisher. `None`: it reads, or the publisher has no slot.
pub(super) async fn disconnected(moving: &mut Moving, direction: Direction) -> Result<Option<String>, Stop> {
    let idle = format!(
        "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '{}' AND NOT active)",
        direction.name(moving.the_move.id)
    );
    if !moving.publisher(direction).value::<bool>(&idle).await? {
        return Ok(None);
    }
    let (publisher, subscriber) = (&moving.publisher(direction).name.clone(), &moving.subscriber(direction).name);
    Ok(Some(format!(
        "shard \"{subscriber}\" has no connection to shard \"{publisher}\", whose rows it copies: the log of its server says why. It connects by \
         the replication_url of \"{publisher}\", or by its url where there is none"
    )))
}

/// All that the source has of the copy. The target is not asked: it may be gone.
pub(super) async fn end_copy(source: &mut Site, the_move: &Move) -> Result<(), Stop> {
    unpublish(source, &Direction::Forward.name(the_move.id)).await?;
    // Without the slot of the whole nobody begins to copy a table.
    copy_slots::end(source, &copy_slots::known(the_move)).await
}

/// Slot and publication, of which nobody reads any more.
pub(super) async fn unpublish(publisher: &mut Site, name: &str) -> Result<(), Stop> {
    end_slot(publisher, name).await?;
    publisher.act_patiently(&format!("DROP PUBLICATION IF EXISTS {name}")).await?;
    Ok(())
}

/// Without asking the publisher: it may be away, and the slot is dropped by itself.
async fn end_subscription(moving: &mut Moving, direction: Direction, name: &str) -> Result<(), Stop> {
    if !stop_subscription(moving.subscriber(direction), name).await? {
        return Ok(());
    }
    // These go first, while the subscription's number can be read.
    if let Some(subscriber) = copy_slots::subscriber(moving.subscriber(direction), name).await? {
        copy_slots::end(moving.publisher(direction), &[subscriber]).await?;
    }
    Ok(moving.subscriber(direction).act(&drop_subscription(name)).await?)
}

/// The same where the publisher is lost for good.
pub(super) async fn unsubscribe(subscriber: &mut Site, name: &str) -> Result<(), Stop> {
    if stop_subscription(subscriber, name).await? {
        subscriber.act(&drop_subscription(name)).await?;
    }
    Ok(())
}

fn drop_subscription(name: &str) -> String {
    format!("ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}")
}

/// `false`: there is none.
async fn stop_subscription(subscriber: &mut Site, name: &str) -> Result<bool, Stop> {
    if !subscriber.value::<bool>(&has_subscription(name)).await? {
        return Ok(false);
    }
    subscriber.act(&format!("ALTER SUBSCRIPTION {name} DISABLE")).await?;
    let works = format!("SELECT EXISTS (SELECT FROM pg_stat_subscription WHERE subname = '{name}' AND pid IS NOT NULL)");
    let deadline = Instant::now() + PATIENCE;
    while subscriber.value::<bool>(&works).await? {
        if Instant::now() > deadline {
            return Err(Stop::Again("waits for replication to end".to_owned()));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(true)
}

pub(super) async fn end_slot(publisher: &mut Site, name: &str) -> Result<(), Stop> {
    let exists = format!("SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '{name}')");
    // A connection that is half open may keep it for long.
    let terminate = format!(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{name}' AND active_pid IS NOT NULL"
    );
    let deadline = Instant::now() + PATIENCE;
    while publisher.value::<bool>(&exists).await? {
        let dropped = publisher.send(&format!("SELECT pg_drop_replication_slot('{name}')")).await;
        match dropped {
            Ok(()) => {}
            // Its connection is ending.
            Err(SiteError::Busy { .. }) if Instant::now() < deadline => {
                publisher.send(&terminate).await?;
                sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Enables a subscription again: a lost connection stops it as a conflict does, which comes again at the same place. `false`: it runs,
/// or has stopped for good, or there is none.
pub(super) async fn revive(moving: &mut Moving, direction: Direction) -> Result<bool, Stop> {
    let name = direction.name(moving.the_move.id);
    let sql = format!(
        "SELECT coalesce(min(coalesce(pg_replication_origin_progress('pg_' || s.oid, true), '0/0')::text), '')
         FROM pg_subscription s
         WHERE s.subname = '{name}' AND NOT s.subenabled
           AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    let place: String = moving.subscriber(direction).value(&sql).await?;
    let now: i64 = moving.subscriber(direction).value("SELECT extract(epoch FROM clock_timestamp())::int8").await?;
    // One direction runs at a time.
    let before = moving.the_move.journal.get("revived").cloned().unwrap_or_default();
    let is_same = before["at"] == json!(place) && before["when"].as_i64().is_some_and(|when| now - when < REVIVED_LATELY_S);
    let times = if is_same { before["times"].as_i64().unwrap_or_default() + 1 } else { 1 };
    if place.is_empty() || times > REVIVALS_MAX {
        return Ok(false);
    }
    moving.remember("revived", json!({ "at": place, "when": now, "times": times })).await?;
    moving.subscriber(direction).act(&format!("ALTER SUBSCRIPTION {name} ENABLE")).await?;
    Ok(true)
}

/// Of a server, as it stands in the names of slots: an unsigned number, which the type of the function's answer is not. An expression.
pub(in crate::rebalance) const SYSTEM_IDENTIFIER: &str =
    "(SELECT CASE WHEN s.id < 0 THEN s.id + 18446744073709551616 ELSE s.id END::text
      FROM (SELECT system_identifier::numeric AS id FROM pg_control_system()) s)";

/// At one place, with no more than this between two of them.
const REVIVALS_MAX: i64 = 3;
const REVIVED_LATELY_S: i64 = 60;

/// Read from both sides: nothing of the move publishes or subscribes.
async fn confirm_gone(moving: &mut Moving) -> Result<(), Stop> {
    for site in [&mut moving.source, &mut moving.target] {
        let left: String = site.value(&left_sql(moving.the_move.id)).await?;
        if !left.is_empty() {
            return Err(Stop::Again(format!("replication of the move has not ended at shard \"{}\": {left}", site.name)));
        }
    }
    Ok(())
}

fn left_sql(id: MoveId) -> String {
    let names = format!("'{}', '{}'", Direction::Forward.name(id), Direction::Back.name(id));
    format!(
        "SELECT coalesce(string_agg(left_over, ', '), '') FROM (
             SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE slot_name IN ({names}) AND database = current_database()
             UNION ALL SELECT 'publication ' || pubname FROM pg_publication WHERE pubname IN ({names})
             UNION ALL SELECT 'subscription ' || subname FROM pg_subscription
                 WHERE subname IN ({names}) AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())
         ) l (left_over)"
    )
}

/// Publication and slot at the publisher: what is written from now on is kept for the subscriber.
pub(super) async fn publish(moving: &mut Moving, direction: Direction) -> Result<(), Stop> {
    let id = moving.the_move.id;
    let name = direction.name(id);
    let publication = objects::publication(id, direction, &moving.tables);
    let publisher = moving.publisher(direction);
    let exists = format!("SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = '{name}')");
    if !publisher.value::<bool>(&exists).await? {
        publisher.act_patiently(&publication).await?;
    }
    let exists = format!("SELECT EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = '{name}')");
    if !publisher.value::<bool>(&exists).await? {
        let shard = publisher.name.clone();
        // Waits for all transactions of the server that write now.
        moving.waits_for(Some(format!("waits for transactions that write at shard \"{shard}\"")));
        moving.reach("slot").await;
        moving.publisher(direction).make_slot(&name).await?;
        moving.waits_for(None);
    }
    Ok(())
}

/// Why the slot has to go: it is lost, or keeps so much WAL that the publisher's disk comes into danger.
pub(super) async fn excess(publisher: &mut Site, direction: Direction, the_move: &Move) -> Result<Option<String>, SiteError> {
    let (shard, what) = (quoted_literal(direction.publisher(the_move)), direction.purpose());
    let sql = format!(
        "SELECT CASE
             WHEN s.slot_name IS NULL THEN format('the slot of the {what} at shard %I is gone', {shard}::text)
             WHEN s.wal_status = 'lost' THEN format('shard %I has dropped WAL that the {what} needs (max_slot_wal_keep_size)', {shard}::text)
             WHEN s.wal_status = 'unreserved' OR pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) > most.bytes
                 THEN format('shard %I has kept %s of WAL for the {what}, which does not keep up', {shard}::text,
                             pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)))
             END
         FROM (SELECT least({WAL_KEPT_MAX}, min(CASE WHEN setting::int8 >= 0 THEN setting::int8 * 1048576 / 2 END)) AS bytes
               FROM pg_settings WHERE name = 'max_slot_wal_keep_size') most
         LEFT JOIN pg_replication_slots s ON s.slot_name = '{}'",
        direction.name(the_move.id),
    );
    publisher.value(&sql).await
}

/// Long before the publisher is in danger.
const WAL_KEPT_MAX: i64 = 10 << 30;
const PATIENCE: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
