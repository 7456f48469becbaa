//! Waits for a shard's answers and sends them on, until everything that is owed has come.
//!
//! A client that does not read holds back the shard, not the proxy's memory. One that has gone is noticed by who watches over the
//! session's whole work ([`crate::session::interrupted`]).

use bytes::Bytes;

use super::relay::{self, Noticed, Step};
use super::statement::{Portal, Run};
use crate::backend::Reply;
use crate::error::PgError;
use crate::session::commands::cluster_state;
use crate::session::copy;
use crate::session::ddl::every_shard::keep_frames;
use crate::session::failure::refused_by_move;
use crate::session::sequences::numbers;
use crate::session::sequences::numbers::with_position;
use crate::session::{Failure, Session, SessionEnd};
use crate::shardmap::ShardId;
use crate::sql::analysis::Command;
use crate::wire::{FrameHeader, client_tag, shard_tag};

impl Session {
    /// Relays until nothing is owed by this participant. Errors: [`Failure::Forwarded`] when the shard reported an error; the
    /// participant is then idle, or skips until Sync when `needs_sync`.
    pub(in crate::session) async fn drain(&mut self, index: usize) -> Result<(), Failure> {
        self.note_running(index);
        let mut has_failed = false;
        loop {
            match self.step(index) {
                Ok((Step::Done, failed)) => {
                    // Not by what another shard has answered meanwhile.
                    self.batch.is_unnamed_in_doubt &= self.has_requests_waiting();
                    return if has_failed || failed { Err(Failure::Forwarded) } else { Ok(()) };
                }
                Ok((step, failed)) => {
                    has_failed |= failed;
                    match step {
                        Step::Done => {}
                        Step::Full => self.client.flush().await?,
                        Step::More => self.fill(index).await?,
                        Step::CopyIn => has_failed |= Box::pin(copy::copy_in(self, index)).await?,
                        Step::Lost(error) => return Err(self.ended_by_shard(index, error)),
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// As [`Session::drain`] when the cycle is not over: asks the shard to send what it has.
    pub(in crate::session) async fn drain_with_flush(&mut self, index: usize) -> Result<(), Failure> {
        match self.transaction.participants_mut().get_mut(index) {
            Some(participant) if !participant.connection.pending.is_empty() => {
                participant.connection.output.flush();
                self.drain(index).await
            }
            _ => Ok(()),
        }
    }

    /// Names are given and taken only when all before them is known to have succeeded: an error there skips them.
    pub(in crate::session) async fn drain_current(&mut self) -> Result<(), Failure> {
        match self.current_index() {
            Some(index) => self.drain_with_flush(index).await,
            None => Ok(()),
        }
    }

    /// The current shard owes answers.
    pub(in crate::session) fn has_requests_waiting(&self) -> bool {
        let current = self.current_index().and_then(|index| self.transaction.participants().get(index));
        !self.batch.has_failed && current.is_some_and(|participant| !participant.connection.pending.is_empty())
    }

    pub(in crate::session) fn current_index(&self) -> Option<usize> {
        let current = self.batch.current?;
        self.transaction.index_of(current)
    }

    /// Ends the extended-protocol part on a shard in the middle of the client's pipeline. What the pipeline has written there is not
    /// committed by it: what comes may fail.
    pub(in crate::session) async fn sync(&mut self, index: usize) -> Result<(), Failure> {
        self.keep_pipeline();
        if !self.transaction.is_open() && self.has_portals_waiting() {
            self.begin_for_pipeline();
        }
        self.sync_and_commit(index).await
    }

    /// Portals of this pipeline on shards, which end with the transaction there and may still be executed.
    fn has_portals_waiting(&self) -> bool {
        self.portals.values().any(|portal| {
            let Portal::Shard { shard, run: Run::NotYet | Run::InPart, .. } = portal else { return false };
            self.transaction.participants().iter().any(|participant| participant.shard == *shard && participant.needs_sync)
        })
    }

    /// Before what would commit it: what a pipeline has written becomes a transaction, which ends with the pipeline.
    pub(in crate::session) fn keep_pipeline(&mut self) {
        let has_written =
            self.transaction.participants().iter().any(|participant| participant.needs_sync && participant.has_written);
        if has_written && !self.transaction.is_open() {
            self.begin_for_pipeline();
        }
    }

    /// The same before another connection to this shard is asked, which might wait for what the pipeline has locked there.
    pub(in crate::session) fn keep_pipeline_on(&mut self, shard: ShardId) {
        let is_there = |participant: &crate::session::Participant| {
            participant.shard == shard && participant.needs_sync && participant.has_written
        };
        if self.transaction.participants().iter().any(is_there) {
            self.keep_pipeline();
        }
    }

    /// Before what a transaction undoes and the proxy does itself: what comes later in this pipeline may fail, and that with it.
    pub(in crate::session) fn begin_if_undone_with_pipeline(&mut self, command: &Command) -> Result<(), SessionEnd> {
        let is_undone = match command {
            Command::Ddl { outside_transaction, .. } => !outside_transaction,
            Command::Set { .. }
            | Command::SetConfig(_)
            | Command::Reset(_)
            | Command::ResetAll
            | Command::SetSessionCharacteristics(_)
            | Command::SetConstraints => true,
            _ => false,
        };
        if !is_undone || !self.batch.is_open || self.transaction.is_open() {
            return Ok(());
        }
        let is_last = self.client.peek()?.is_some_and(|header| header.tag == client_tag::SYNC);
        if !is_last || self.has_pipeline() {
            self.begin_for_pipeline();
        }
        Ok(())
    }

    /// Sync, and its answer swallowed: outside a transaction it commits.
    pub(in crate::session) async fn sync_and_commit(&mut self, index: usize) -> Result<(), Failure> {
        match self.transaction.participants_mut().get_mut(index) {
            Some(participant) if participant.needs_sync => {
                participant.connection.output.sync();
                participant.connection.expect(Reply::Sync, false);
                participant.needs_sync = false;
                self.drain(index).await
            }
            _ => Ok(()),
        }
    }

    /// The same at the client's Sync. False: it has failed. Where `is_told` the client has heard of a failure already: a driver takes one
    /// error for the answer to Sync, and a second one for that to its next statement.
    pub(in crate::session) async fn sync_with_one_error(&mut self, index: usize, is_told: bool) -> Result<bool, SessionEnd> {
        let (told, flushes) = (self.client.output.len(), self.client.flushes);
        let Err(failure) = self.sync_and_commit(index).await else { return Ok(true) };
        self.settle(failure)?;
        if is_told && flushes == self.client.flushes {
            keep_frames(&mut self.client.output, told, |tag, _| tag != shard_tag::ERROR);
        }
        Ok(false)
    }

    /// One pass over what has arrived. The flag: an error went to the client.
    pub(in crate::session) fn step(&mut self, index: usize) -> Result<(Step, bool), Failure> {
        let mut noticed = Noticed::default();
        let participant = self.transaction.at(index)?;
        let step = match relay::step(&mut participant.connection, &mut self.client.output, &mut noticed) {
            Ok(step) => step,
            Err(error) => return Err(self.participant_lost(index, &error)),
        };
        if noticed.has_rows {
            self.transaction.pinned_map.note_rows();
        }
        if let Some(id) = noticed.failed_parse {
            self.forget_unproven(id);
        }
        if noticed.has_failed {
            self.forget_unnamed_in_doubt();
        }
        if let Some(at) = noticed.error_at.filter(|at| *at <= self.client.output.len()) {
            let frame = self.client.output.split_off(at).freeze();
            if self.is_aborted(crate::session::failure::sqlstate(&frame)) {
                return Err(crate::session::shutting_down().into());
            }
            let met = refused_by_move(&frame).map(|refused| self.refused_by_move(refused));
            self.cycle.note_met(met);
            let frame = self.in_own_text(frame);
            let frame = self.with_deadlock(frame);
            self.client.output.extend_from_slice(&frame);
        }
        if self.running.characters_before > 0 && !self.client.is_diverted() {
            let error_at = noticed.error_at.unwrap_or(usize::MAX);
            noticed.notices_at.iter().rev().filter(|at| **at < error_at).for_each(|at| self.move_notice(*at));
        }
        if let (Some(unread), Some(participant)) = (noticed.unread_syncs, self.transaction.participants_mut().get_mut(index)) {
            participant.needs_sync = false;
            self.client.put_back_syncs(unread);
        }
        for (id, description) in noticed.described {
            self.note_told(id, description);
        }
        for sqlstate in &noticed.errors {
            self.gateway.counters.error(sqlstate);
        }
        for (name, value) in &noticed.parameters {
            self.report_parameter(name, value);
        }
        Ok((step, noticed.has_failed))
    }

    /// An error with its place in the text that the client has sent.
    fn in_own_text(&self, frame: Bytes) -> Bytes {
        let frame = cluster_state::without_answers(self, numbers::with_own_position(self, self.with_untimed_position(frame)));
        // What is kept comes back here as the failure of the statement around it.
        match self.running.characters_before {
            before if before > 0 && !self.client.is_diverted() => with_position(frame, |position| position + before),
            _ => frame,
        }
    }

    /// A notice in the output gets its place in the text that the client has sent.
    fn move_notice(&mut self, at: usize) {
        let Ok(Some(header)) = FrameHeader::peek(self.client.output.get(at..).unwrap_or_default(), usize::MAX / 2) else { return };
        let after = self.client.output.split_off((at + header.total).min(self.client.output.len()));
        let notice = self.client.output.split_off(at).freeze();
        let before = self.running.characters_before;
        self.client.output.extend_from_slice(&with_position(notice, |position| position + before));
        self.client.output.unsplit(after);
    }

    pub(in crate::session) async fn fill(&mut self, index: usize) -> Result<(), Failure> {
        let participant = self.transaction.at(index)?;
        match participant.connection.fill().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.participant_lost(index, &error)),
        }
    }

    fn ended_by_shard(&mut self, index: usize, error: PgError) -> Failure {
        let error = self.with_lost_shard(index, error);
        self.remove_lost(index, error, true)
    }

    /// The shard's own words, under the message that names it.
    pub(in crate::session) fn with_lost_shard(&self, index: usize, error: PgError) -> PgError {
        let name =
            self.transaction.participants().get(index).map(|participant| participant.connection.pool().address.name.as_str());
        let message = format!("connection to shard \"{}\" was lost", name.unwrap_or_default());
        PgError { message, ..error }
    }

    /// Cancel requests reach this backend from now on.
    pub(in crate::session) fn note_running(&mut self, index: usize) {
        let Some(participant) = self.transaction.participants().get(index) else { return };
        self.cancel.started(&participant.connection);
    }
}
