//! Whether the copies of reference tables are alike.
//!
//! Read in one snapshot of each shard, which the caller has taken at a moment when no commit is half done. On connections of the
//! shards' own credentials: the client may not be allowed to read what it writes.

use std::sync::Arc;

use super::Control;
use super::rows_copy::fingerprint;
use super::shard_connection::ShardConnection;
use crate::catalog::Relation;
use crate::error::PgError;
use crate::shardmap::Shard;

/// The shards that have them.
pub struct Copies {
    shards: Vec<ShardConnection>,
}

impl Control {
    /// Connections to read the copies by.
    pub async fn open_copies(&self, shards: &[Arc<Shard>]) -> Result<Copies, PgError> {
        let mut opened = Vec::with_capacity(shards.len());
        for shard in shards {
            opened.push(self.open(shard).await?);
        }
        Ok(Copies { shards: opened })
    }
}

impl Copies {
    /// What is read from here on is what is there now.
    pub async fn take_snapshots(&mut self) -> Result<(), PgError> {
        for shard in &mut self.shards {
            shard.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1").await?;
        }
        Ok(())
    }

    /// Every shard has the same rows of each of these tables. Takes the connections with it.
    pub async fn are_alike(mut self, tables: &[Relation]) -> Result<bool, PgError> {
        for table in tables {
            let mut known = None;
            for shard in &mut self.shards {
                let found = fingerprint(shard, table).await?;
                if *known.get_or_insert_with(|| found.clone()) != found {
                    return Ok(false);
                }
            }
        }
        for shard in self.shards {
            shard.close().await;
        }
        Ok(true)
    }
}
