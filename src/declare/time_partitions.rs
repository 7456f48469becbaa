//! `time_partitions`: a range table by time whose next pieces are made ahead of now, so that new rows do not all come to one shard.
//!
//! ```text
//!   set in the map ─► any proxy, twice a minute: claim the next piece ─► split the last piece ─► carry the new one, which is empty, to the
//!                                                    ▲                                           shard whose turn it is
//!                                                    └──────────────── until enough begin later than now
//! ```
//! The map says where the next piece begins, and gives it to one proxy at a time; a proxy that dies meanwhile loses its claim after two
//! minutes. Each step can be repeated: a piece that is there already is not asked for again. One that cannot be carried is tried again
//! every two minutes until it begins, unless somebody has moved it; the relation `shardgate.time_partitions` says why.

use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep};

use super::arguments::Arguments;
use super::keys::find;
use super::{Caller, Control, moves, placement};
use crate::error::{PgError, SqlState};
use crate::shard_key::KeyType;
use crate::shardmap::{Bound, PartitionId, Strategy, TimePiece};

/// The pieces are made behind the call.
pub(super) async fn declare(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<(), PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    let name = table.name().1;
    let is_by_time = matches!(table.group.key_types.as_slice(), [KeyType::Date | KeyType::Timestamp | KeyType::Timestamptz]);
    if table.group.strategy != Strategy::Range || !is_by_time {
        return Err(PgError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("table \"{name}\" is not sharded by range of one date or timestamp"),
        )
        .with_hint("Only such a table has a next piece in time: see shardgate.distribute_table(..., strategy => 'range')."));
    }
    let every = arguments.optional_text("every")?;
    let on_shards = arguments.text("on_shards")?;
    let snapshot = control.fresh_snapshot().await?;
    if every.is_some() && placement::parse_shards(&snapshot, on_shards)?.is_empty() {
        return Err(placement::no_shard_takes_partitions());
    }
    let store = control.map.store();
    store.set_time_partitions(&caller.user, table.group.id, every, arguments.integer("ahead")?, on_shards).await?;
    control.reached().await?;
    control.time_partitions.notify_one();
    Ok(())
}

impl Control {
    /// Ready when this proxy has been told of a table by time.
    pub fn time_partitions_due(&self) -> Notified<'_> {
        self.time_partitions.notified()
    }

    /// Makes the pieces that are due, one after the other, and says how many. One that cannot be made does not keep back those of other
    /// tables: the first error is told in the end. Not cancel safe: what is given up in the middle is made when its claim has run out; a
    /// piece that is made and not carried is carried two minutes later.
    pub async fn make_time_partitions(&self) -> Result<i32, PgError> {
        let (mut made, mut first_error) = (0, None);
        for _ in 0..PIECES_MAX {
            let Some(piece) = self.map.store().claim_time_partition().await? else { break };
            let outcome = Box::pin(make_one(self, &piece)).await;
            let failure = match &outcome {
                Ok(Made::On) => None,
                Ok(Made::NotOn(partition, shard, error)) => {
                    self.map.store().time_piece_not_carried(*partition, shard, &reason(error)).await?;
                    None
                }
                Ok(Made::Nowhere(error)) | Err(error) => Some(reason(error)),
            };
            self.map.store().release_time_partition(piece.group, outcome.is_ok(), failure.as_deref()).await?;
            match outcome {
                Ok(_) => made += 1,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        self.carry_time_pieces().await?;
        first_error.map_or(Ok(made), Err)
    }

    /// Those that could not be carried when they were made. As not cancel safe as [`Control::make_time_partitions`].
    async fn carry_time_pieces(&self) -> Result<(), PgError> {
        for _ in 0..PIECES_MAX {
            let Some((partition, shard)) = self.map.store().claim_time_piece().await? else { break };
            if let Err(error) = Box::pin(moves::carry(self, ACTOR, partition, &shard)).await {
                tracing::info!(partition = partition.0, reason = error.detail, "a piece of a table by time cannot be carried yet");
                self.map.store().time_piece_not_carried(partition, &shard, &reason(&error)).await?;
            }
        }
        Ok(())
    }
}

fn reason(error: &PgError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    }
}

/// A piece that is there.
enum Made {
    /// On the shard whose turn it is.
    On,
    /// That shard, and why it is not there.
    NotOn(PartitionId, String, PgError),
    /// No shard takes it.
    Nowhere(PgError),
}

async fn make_one(control: &Control, piece: &TimePiece) -> Result<Made, PgError> {
    let snapshot = control.fresh_snapshot().await?;
    let gone = || PgError::new(SqlState::UNDEFINED_OBJECT, format!("colocation group {} does not exist any more", piece.group.0));
    let group = snapshot.group(piece.group).ok_or_else(gone)?;
    let last = group.partitions.last().ok_or_else(gone)?;
    let at = Bound::parse(group, &piece.bound)?;
    let upper = control.map.store().split_partition(ACTOR, group, last.id, &at).await?;
    control.reached().await?;
    let shards = match placement::parse_shards(&snapshot, &piece.on_shards) {
        Ok(shards) => shards,
        Err(error) => return Ok(Made::Nowhere(error)),
    };
    let turn = usize::try_from(piece.turn).unwrap_or_default();
    let Some(shard) = placement::turns(&shards, turn + 1).pop() else {
        return Ok(Made::Nowhere(placement::no_shard_takes_partitions()));
    };
    // Whoever dies while it is carried leaves this, and another proxy takes it up.
    if snapshot.shard(last.shard).is_some_and(|made_on| made_on.name != shard) {
        control.map.store().time_piece_not_carried(upper, &shard, UNDER_WAY).await?;
    }
    let deadline = Instant::now() + CARRIED_AGAIN_FOR;
    loop {
        match moves::carry(control, ACTOR, upper, &shard).await {
            Ok(()) => return Ok(Made::On),
            // Moves give way to changes of the schema, of which an application that starts makes many.
            Err(error) if error.code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE && Instant::now() < deadline => {
                tracing::info!(partition = upper.0, reason = error.detail, "a piece of a table by time is carried again");
                sleep(CARRIED_AGAIN_AFTER).await;
            }
            Err(error) => return Ok(Made::NotOn(upper, shard, error)),
        }
    }
}

/// Within the claim.
const CARRIED_AGAIN_FOR: Duration = Duration::from_secs(60);
const CARRIED_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// Why a piece is not on its shard yet.
const UNDER_WAY: &str = "its move has not ended";

/// In the history of the map.
const ACTOR: &str = "shardgate";
/// By one call.
const PIECES_MAX: i32 = 1000;
