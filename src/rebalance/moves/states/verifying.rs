//! `verifying`: both sides are compared row by row, by hash.

use serde_json::json;

use super::super::direction::Direction;
use super::super::moved_table;
use super::super::moving::Moving;
use super::super::stop::Stop;
use super::super::verify;
use crate::shardmap::MoveState;

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let rows = verify::compare(moving, Direction::Forward).await?;
    moved_table::analyze(&moving.sharded, &mut moving.target).await?;
    moving.reach("verified").await;
    moving.progress().rows_copied = Some(rows);
    moving.the_move.journal["verified"] = json!(rows);
    moving.advance(MoveState::CatchingUp, json!({ "verified": rows })).await
}
