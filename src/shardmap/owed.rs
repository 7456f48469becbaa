//! Moves that are given up since one of their shards is lost for good, and what the lost server has of them, should it come back.
//!
//! ```text
//!   give_up_move: shard in maintenance, owed ─► the move ends without it ─► the server is back: its rows deleted ─► settle_owed
//!                                                                        └► drop_shard: nothing is owed any more
//! ```
//! While a shard owes something no statement reaches it, and it cannot be set online: its rows would be counted twice.

use sqlx::FromRow;

use super::changes::read;
use super::error::StoreError;
use super::model::ShardId;
use super::moves::{Move, MoveId, MoveState, state_named};
use super::store::Store;

/// The side of a move that is lost for good. The other one owns the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Source,
    Target,
}

impl Lost {
    pub fn name(self) -> &'static str {
        match self {
            Lost::Source => "source",
            Lost::Target => "target",
        }
    }

    /// `None`: the move is not given up.
    pub fn of(the_move: &Move) -> Option<Self> {
        let name = the_move.journal.get("lost")?.as_str()?;
        [Lost::Source, Lost::Target].into_iter().find(|lost| lost.name() == name)
    }

    /// The shard that is lost.
    pub fn shard(self, the_move: &Move) -> &str {
        match self {
            Lost::Source => &the_move.source,
            Lost::Target => &the_move.target,
        }
    }

    /// The shard that is there, and owns the partitions.
    pub fn kept(self, the_move: &Move) -> &str {
        match self {
            Lost::Source => &the_move.target,
            Lost::Target => &the_move.source,
        }
    }

    /// The verb by which a person says so.
    pub fn verb(self) -> &'static str {
        match self {
            Lost::Source => "finish",
            Lost::Target => "abort",
        }
    }
}

/// A shard may have rows and other things of a move that it took part in, and does not own them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    pub move_id: MoveId,
    pub shard: ShardId,
}

#[derive(FromRow)]
struct OwedRow {
    move_id: i32,
    shard_id: i32,
}

impl Store {
    /// The move ends without this side, whose shard is in maintenance from now on. Refused where the other one does not own the partitions,
    /// and where `verb` is not the one by which such a move ends. Gives the state that the move is in.
    pub async fn give_up_move(
        &self,
        actor: &str,
        id: MoveId,
        (verb, lost): (&str, Lost),
        driver: i64,
    ) -> Result<MoveState, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.give_up_move($1, $2, $3, $4, $5)")
            .bind(actor)
            .bind(id.0)
            .bind(verb)
            .bind(lost.name())
            .bind(driver);
        state_named(read(&self.change(query).await?, 0)?)
    }

    /// By move.
    pub async fn owed(&self) -> Result<Vec<Owed>, StoreError> {
        let query = sqlx::query_as::<_, OwedRow>("SELECT move_id, shard_id FROM shardgate_map.owed ORDER BY move_id");
        let rows = self.answered(query.fetch_all(&self.pool()?)).await?;
        Ok(rows.into_iter().map(|row| Owed { move_id: MoveId(row.move_id), shard: ShardId(row.shard_id) }).collect())
    }

    /// Nothing of the move is on the shard any more.
    pub async fn settle_owed(&self, actor: &str, owed: Owed) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.settle_owed($1, $2)::text").bind(actor).bind(owed.move_id.0);
        self.change(query).await.map(drop)
    }
}
