//! Schema changes: the same statement on every shard, the home shard first.
//!
//! All shards run it in one transaction each, and these are committed only when all have succeeded: an error anywhere leaves the
//! schema as it was everywhere. What PostgreSQL does not allow in a transaction runs shard by shard; when that stops half-way,
//! the error says where.

use super::participant::Participant;
use super::{Failure, Session};
use crate::error::PgError;
use crate::shardmap::{Shard, ShardId};
use crate::sql::analysis::{Analysis, Command, TransactionModes};
use std::sync::Arc;

use crate::backend::Reply;
use crate::wire::originate;

impl Session {
    pub(super) async fn on_every_shard(&mut self, statement: &Analysis, text: &str) -> Result<(), Failure> {
        let shards = self.shards_home_first()?;
        let outside = matches!(statement.command, Command::Maintenance | Command::Ddl { outside_transaction: true, .. });
        if let Command::Ddl { tag, .. } = &statement.command {
            self.announce_schema_change(tag).await?;
        }
        let begins_here = !outside && !self.transaction.is_open();
        if begins_here {
            self.transaction.begin(TransactionModes::default(), &self.settings);
        }
        let run = self.run_on_each(&shards, text, outside).await;
        if !begins_here {
            return run;
        }
        match run {
            Ok(()) => self.commit_everywhere(false).await,
            Err(failure) => {
                self.rollback_everywhere().await?;
                Err(failure)
            }
        }
    }

    fn shards_home_first(&self) -> Result<Vec<Arc<Shard>>, PgError> {
        let home = self.home()?;
        let snapshot = self.gateway.map.snapshot();
        let others = snapshot.shards.iter().filter(|shard| !shard.is_home).cloned();
        Ok(std::iter::once(home).chain(others).collect())
    }

    /// The home shard's answer is the client's; of the others only errors and notices are.
    async fn run_on_each(&mut self, shards: &[Arc<Shard>], text: &str, outside: bool) -> Result<(), Failure> {
        let mut done: Vec<&str> = Vec::new();
        for shard in shards {
            let result = self.run_on_one(shard, text, shard.is_home).await;
            if let Err(failure) = result {
                if outside && !done.is_empty() {
                    self.warn(
                        crate::error::SqlState::WARNING,
                        &format!("done on {} only; the statement failed on shard \"{}\"", done.join(", "), shard.name),
                    );
                }
                return Err(failure);
            }
            done.push(&shard.name);
        }
        Ok(())
    }

    async fn run_on_one(&mut self, shard: &Arc<Shard>, text: &str, is_visible: bool) -> Result<(), Failure> {
        let index = self.join(shard.id).await?;
        let Some(participant) = self.participants.get_mut(index) else {
            return Err(PgError::internal("participant is gone").into());
        };
        let connection = &mut *participant.connection;
        originate::query(&mut connection.output, text.as_bytes());
        connection.unnamed = None;
        connection.expect(if is_visible { Reply::Query } else { Reply::Echo }, is_visible);
        let drained = self.drain(index).await;
        if let Some(participant) = self.participants.get_mut(index)
            && drained.is_ok()
        {
            participant.needs_sync = false;
        }
        drained
    }

    /// A temporary table lives on the home shard's connection, which the session keeps from now on.
    pub(super) async fn create_temporary(
        &mut self,
        _tag: &str,
        name: &str,
        statement: &Analysis,
        text: &str,
    ) -> Result<(), Failure> {
        let home: ShardId = self.home()?.id;
        let index = self.join(home).await?;
        self.pin_if_needed(index, statement);
        if let Some(participant) = self.participants.get_mut(index) {
            pin(participant);
        }
        let shard = self.home()?;
        self.run_on_one(&shard, text, true).await?;
        if !self.temporary_tables.iter().any(|known| known == name) {
            self.temporary_tables.push(name.to_owned());
        }
        Ok(())
    }
}

fn pin(participant: &mut Participant) {
    participant.pinned_by.get_or_insert(super::route::TEMPORARY_TABLE);
    participant.connection.is_pinned = true;
}
