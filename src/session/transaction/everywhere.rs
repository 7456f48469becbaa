//! Transactions that concern every shard: writes to reference tables, and schema changes.
//!
//! A shard that joins meanwhile would miss them. [`crate::declare`] waits, when a shard is added beside several, for the proxies whose
//! lease is valid; one that was frozen or cut off from the map is not waited for. So these statements need the lease when they begin,
//! and once more when they are committed: what has been written on the home shard by then, the copy for the new shard has waited
//! for. On the only shard reference tables are written without a lease, and the second one waits for every proxy.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{PgError, SqlState};
use crate::session::commands::command;
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;

impl Session {
    /// At the commit of what was meant for all shards: the transaction has been on all that there are now.
    pub(in crate::session) async fn check_everywhere(&self) -> Result<(), PgError> {
        self.await_lease().await?;
        let map = self.gateway.map.load();
        let takes_part = |shard: ShardId| self.transaction.participants.iter().any(|known| known.has_begun && known.shard == shard);
        match map.shards.iter().find(|shard| shard.state.is_ready() && !takes_part(shard.id)) {
            None => Ok(()),
            Some(shard) => Err(PgError::new(
                SqlState::SERIALIZATION_FAILURE,
                format!("shard \"{}\" has joined since the transaction wrote to all shards", shard.name),
            )
            .with_hint("Repeat the transaction.")),
        }
    }

    /// Before a statement that is meant for all shards. A proxy that was only frozen, or a map database that is only restarted, has
    /// the lease again in a moment.
    pub(in crate::session) async fn await_lease(&self) -> Result<(), PgError> {
        let deadline = Instant::now() + LEASE_PATIENCE;
        while !self.gateway.map.lease().is_valid() {
            if Instant::now() >= deadline {
                return Err(shards_not_known());
            }
            sleep(LEASE_CHECK).await;
        }
        Ok(())
    }

    /// Where no commit over several shards is possible: a schema change is committed on one shard after the other, the home shard
    /// first, and who asked is told where it ended.
    pub(in crate::session) async fn commit_one_by_one(&mut self) -> Result<(), Failure> {
        let home = self.home()?.id;
        let mut left: Vec<ShardId> = self
            .transaction
            .participants()
            .iter()
            .filter(|participant| participant.has_begun)
            .map(|participant| participant.shard)
            .collect();
        left.sort_by_key(|shard| (*shard != home, *shard));
        let mut done: Vec<String> = Vec::new();
        while !left.is_empty() {
            let shard = left.remove(0);
            let Some(index) = self.transaction.index_of(shard) else { continue };
            let name = self.gateway.shard(shard)?.name.clone();
            let has_written = self.transaction.participants.get(index).is_some_and(|participant| participant.has_written);
            if !has_written {
                self.end_reader(index).await?;
                continue;
            }
            match command::commit_on(self, index).await {
                Ok(()) => done.push(name),
                Err(failure) => {
                    if !done.is_empty() {
                        let undone: Vec<String> =
                            left.iter().filter_map(|shard| Some(self.gateway.shard(*shard).ok()?.name.clone())).collect();
                        self.warn(SqlState::WARNING, &report(&done, &name, &undone));
                    }
                    command::rollback_everywhere(self).await?;
                    return Err(command::commit_failure(self, failure));
                }
            }
        }
        Ok(())
    }
}

fn report(done: &[String], failed: &str, undone: &[String]) -> String {
    let undone = if undone.is_empty() { String::new() } else { format!(", not on {}", undone.join(", ")) };
    format!("committed on {}, failed on {failed}{undone}: the shards differ now", done.join(", "))
}

/// It is renewed every second.
const LEASE_PATIENCE: Duration = Duration::from_secs(2);
const LEASE_CHECK: Duration = Duration::from_millis(20);

fn shards_not_known() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "this statement concerns all shards, and which these are is not known now")
        .with_detail("The map database does not answer, so a shard may have joined unseen.")
        .with_hint("Repeat the statement when the map database is back.")
}
