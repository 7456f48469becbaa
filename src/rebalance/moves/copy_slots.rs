//! Slots that PostgreSQL makes at the source while it copies tables: one for each table, which outlives its connection.
//!
//! They bear the number of the subscription and of the subscriber's server, and nothing of the move:
//!
//! ```text
//! subscription made, disabled ─► its number in the journal ─► enabled: slots pg_<subscription>_sync_<table>_<server> at the source
//! ```
//! Both numbers can be read at the subscriber alone. It may be gone for good when the slots have to go, and they would keep WAL until the
//! source's disk is full: so no table is copied before the journal has the numbers.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::FromRow;

use super::direction::Direction;
use super::moving::Moving;
use super::replication::{SYSTEM_IDENTIFIER, end_slot};
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::catalog::quoted_literal;
use crate::shardmap::Move;

/// In whose name tables are copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, FromRow)]
pub(super) struct Subscriber {
    subscription: i64,
    /// The server's, as slots are named after it.
    system_identifier: String,
}

/// Of a subscription that is there, in the subscriber's own words.
pub(super) async fn subscriber(site: &mut Site, subscription: &str) -> Result<Option<Subscriber>, SiteError> {
    let sql = format!(
        "SELECT s.oid::int8 AS subscription, {SYSTEM_IDENTIFIER} AS system_identifier FROM pg_subscription s
         WHERE s.subname = '{subscription}' AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    Ok(site.rows::<Subscriber>(&sql).await?.pop())
}

/// Those that the journal has: another one where the target was restored meanwhile, say.
pub(super) fn known(the_move: &Move) -> Vec<Subscriber> {
    let known = the_move.journal.get(SUBSCRIBERS).map(Vec::deserialize);
    known.and_then(Result::ok).unwrap_or_default()
}

/// Before the subscription is enabled. `false`: it was remembered before.
pub(super) async fn remember(moving: &mut Moving) -> Result<bool, Stop> {
    let name = Direction::Forward.name(moving.the_move.id);
    let mut subscribers = known(&moving.the_move);
    match subscriber(&mut moving.target, &name).await? {
        Some(subscriber) if !subscribers.contains(&subscriber) => {
            subscribers.push(subscriber);
            moving.remember(SUBSCRIBERS, json!(subscribers)).await?;
            Ok(true)
        }
        Some(_) | None => Ok(false),
    }
}

/// At the publisher, whether or not the subscriber answers.
pub(super) async fn end(publisher: &mut Site, subscribers: &[Subscriber]) -> Result<(), Stop> {
    for Subscriber { subscription, system_identifier } in subscribers {
        let ours = format!(
            "starts_with(slot_name, 'pg_{subscription}_sync_') AND right(slot_name, {}) = {}",
            system_identifier.len() + 1,
            quoted_literal(&format!("_{system_identifier}"))
        );
        let slots = format!("SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() AND {ours}");
        for (slot,) in publisher.rows::<(String,)>(&slots).await? {
            end_slot(publisher, &slot).await?;
        }
    }
    Ok(())
}

const SUBSCRIBERS: &str = "copied_by";
