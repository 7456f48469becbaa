//! Schema changes: the same statement on every shard, the home shard first.
//!
//! All shards run it in one transaction each, and these are committed only when all have succeeded: an error anywhere leaves the
//! schema as it was everywhere. What PostgreSQL does not allow in a transaction runs shard by shard; when that stops half-way,
//! the error says where.

use std::sync::Arc;

use bytes::BytesMut;

use super::{Failure, Session};
use crate::backend::Reply;
use crate::error::{PgError, SqlState};
use crate::shardmap::Shard;
use crate::sql::analysis::{Analysis, Command, TransactionModes};
use crate::wire::{self, originate, shard_tag};

impl Session {
    pub(super) async fn on_every_shard(&mut self, statement: &Analysis, text: &str) -> Result<(), Failure> {
        let shards = self.shards_home_first()?;
        let outside = matches!(statement.command, Command::Maintenance | Command::Ddl { outside_transaction: true, .. });
        if let Command::Ddl { renames_distributed: true, .. } = &statement.command {
            // The shards' change and the map's are not one: between them the new name would mean the home shard's rows alone.
            return Err(PgError::unsupported(
                "a sharded or reference table cannot be renamed or moved to another schema",
                "The shard map knows it by its name.",
                "Give it another name by a view: CREATE VIEW new_name AS SELECT * FROM old_name.",
            )
            .into());
        }
        if let Command::Ddl { tag, .. } = &statement.command {
            self.announce_schema_change(tag).await?;
        }
        let begins_here = !outside && !self.transaction.is_open();
        if begins_here {
            self.transaction.begin(TransactionModes::default(), &self.settings);
        }
        let is_atomic = !outside && self.can_commit_on_all(&shards).await?;
        let run = self.run_on_each(&shards, text, outside).await;
        if is_atomic {
            self.participants.iter_mut().filter(|participant| participant.has_begun).for_each(|participant| {
                participant.has_written |= shards.iter().any(|shard| shard.id == participant.shard);
            });
        }
        if !begins_here {
            return run;
        }
        match run {
            Ok(()) => self.commit_everywhere().await,
            Err(failure) => {
                self.rollback_everywhere().await?;
                Err(failure)
            }
        }
    }

    /// Can the change be committed on all shards at once? Where transactions over several shards are not possible, it is
    /// committed on one after the other.
    async fn can_commit_on_all(&mut self, shards: &[Arc<Shard>]) -> Result<bool, Failure> {
        if !self.may_write_on_several() || shards.len() < 2 {
            return Ok(false);
        }
        let ids: Vec<_> = shards.iter().map(|shard| shard.id).collect();
        match Box::pin(self.check_commit_support(&ids)).await {
            Ok(()) => Ok(true),
            Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn shards_home_first(&self) -> Result<Vec<Arc<Shard>>, PgError> {
        let home = self.home()?;
        let snapshot = self.gateway.map.snapshot();
        let others = snapshot.shards.iter().filter(|shard| !shard.is_home).cloned();
        Ok(std::iter::once(home).chain(others).collect())
    }

    /// The home shard's answer is the client's; of the others only errors and notices are.
    async fn run_on_each(&mut self, shards: &[Arc<Shard>], text: &str, outside: bool) -> Result<(), Failure> {
        let mut done: Vec<&str> = Vec::new();
        for shard in shards {
            let before = self.client.output.len();
            let result = self.run_on_one(shard, text, shard.is_home).await;
            if !shard.is_home {
                drop_notices(&mut self.client.output, before);
            }
            if let Err(failure) = result {
                if outside && !done.is_empty() {
                    self.warn(
                        SqlState::WARNING,
                        &format!("done on {} only; the statement failed on shard \"{}\"", done.join(", "), shard.name),
                    );
                }
                return Err(failure);
            }
            done.push(&shard.name);
        }
        Ok(())
    }

    pub(super) async fn run_on_one(&mut self, shard: &Arc<Shard>, text: &str, is_visible: bool) -> Result<(), Failure> {
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
}

/// Notices of shards other than the home shard say again what that one has said. Warnings stay: they may concern one shard.
fn drop_notices(output: &mut BytesMut, from: usize) {
    let Some(added) = output.get(from..).map(BytesMut::from) else { return };
    let mut rest = added.as_ref();
    let mut kept = BytesMut::with_capacity(rest.len());
    while let Some(header) = wire::FrameHeader::peek(rest, usize::MAX - 8).ok().flatten() {
        let Some((frame, after)) = rest.split_at_checked(header.total) else { break };
        let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
        let is_notice = header.tag == shard_tag::NOTICE
            && wire::error_fields(body).is_ok_and(|fields| fields.get(b'V').or_else(|| fields.get(b'S')) == Some(b"NOTICE"));
        if !is_notice {
            kept.extend_from_slice(frame);
        }
        rest = after;
    }
    kept.extend_from_slice(rest);
    output.truncate(from);
    output.unsplit(kept);
}
