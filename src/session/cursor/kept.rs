//! Portals that run to their end at their first Execute, whatever its row limit: writes, EXECUTE, FETCH, EXPLAIN and their kind, as
//! in PostgreSQL, and row locks with LIMIT.
//!
//! The rows that the client has not asked for yet are kept, within `cross_shard.merge_bytes_max`.

use std::sync::Arc;

use bytes::Bytes;

use super::super::{Failure, Session};
use super::{Cursor, Life, Source, is_fetch};
use crate::error::{PgError, SqlState};
use crate::session::commands::inner_query::has_inner_query;
use crate::session::protocol::diversion::{Kept, frames_of, outcome};
use crate::session::protocol::statement::{Portal, Statement};
use crate::sql::analysis::Scroll;
use crate::wire::{self, FRAME_HEADER_BYTES, FrameHeader, originate, shard_tag};

pub(super) struct KeptRows {
    /// DataRow messages.
    rows: Bytes,
    /// The command tag without its count: `INSERT 0 `.
    tag: String,
    /// The tag has a count, which is of the rows that an Execute has given.
    is_counted: bool,
}

impl Session {
    /// Execute of a portal that the proxy runs by itself, or that writes on several shards.
    pub(in crate::session) async fn execute_to_end(&mut self, name: &[u8], row_limit: i32) -> Result<(), Failure> {
        if !self.open_cursors.contains(name) {
            let Some(portal) = self.portals.get(name).cloned() else { return Err(PgError::internal("no such portal").into()) };
            let statement = portal.bound().map(|(statement, _)| Arc::clone(statement)).filter(|_| row_limit > 0);
            let rows = match statement {
                Some(statement) => self.rows_of(&statement).await?,
                None => None,
            };
            let Some(rows) = rows else {
                let run = self.run_to_end(&portal).await;
                self.spend(name, &run);
                return run;
            };
            self.check_cursor_count()?;
            let kept = self.divert();
            let run = self.run_to_end(&portal).await;
            let kept = self.kept_rows(kept, run);
            if kept.is_err() {
                self.spend(name, &kept);
            }
            self.keep_rows(name, rows, kept?);
        }
        self.execute_opened(&Bytes::copy_from_slice(name), row_limit).await
    }

    async fn run_to_end(&mut self, portal: &Portal) -> Result<(), Failure> {
        match portal {
            Portal::Own { statement, bind } => Box::pin(self.execute_own(statement, bind)).await,
            Portal::Write { statement, bind, writing } => Box::pin(self.write_bound(statement, bind, writing)).await,
            Portal::Shard { .. }
            | Portal::Scatter { .. }
            | Portal::Gather { .. }
            | Portal::Finished { .. }
            | Portal::Spent { .. } => Err(PgError::internal("a portal that does not run to its end").into()),
        }
    }

    /// Body of the RowDescription of what the portal gives; `None`: no rows.
    pub(in crate::session) async fn rows_of(&mut self, statement: &Arc<Statement>) -> Result<Option<Bytes>, Failure> {
        let Some(analysis) = statement.analysis() else { return Ok(None) };
        self.check_not_failed(&analysis.command)?;
        if has_inner_query(&analysis.command) && !is_fetch(statement) {
            return Ok(None);
        }
        Ok(match self.describe_by_itself(statement).await? {
            Some(own) => own.rows,
            None => self.describe(statement).await?.rows.clone(),
        })
    }

    /// The portal's rows are locked, all that its LIMIT lets through.
    pub(super) async fn open_locked(&mut self, name: &Bytes) -> Result<(), Failure> {
        let Some(Portal::Scatter { statement, bind, reach }) = self.portals.get(name) else {
            return Err(PgError::internal("not a portal that locks rows").into());
        };
        let (statement, bind, reach) = (statement.clone(), bind.clone(), reach.clone());
        self.check_cursor_count()?;
        let rows = self.describe(&statement).await?.rows.clone().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
        let bind = wire::bind(&bind)?;
        let kept = self.divert();
        let run = Box::pin(self.scatter_bound(&statement, &bind, &reach, false)).await;
        let kept = self.kept_rows(kept, run)?;
        self.keep_rows(name, rows, kept);
        Ok(())
    }

    fn keep_rows(&mut self, name: &[u8], rows: Bytes, kept: KeptRows) {
        let source = Source::Kept(Box::new(kept));
        let cursor = Cursor { source, life: Life::Transaction, savepoints: 0, scroll: Scroll::Unsaid, is_binary: false, rows };
        self.keep_cursor(Bytes::copy_from_slice(name), cursor);
    }

    /// The rows of what was meant for the client since [`Session::divert`], and their end; everything else goes on to it.
    fn kept_rows(&mut self, kept: Kept, run: Result<(), Failure>) -> Result<KeptRows, Failure> {
        let diverted = self.end_diversion(kept);
        let (mut tag, mut is_counted, mut has_error) = (String::new(), false, false);
        for (kind, frame) in frames_of(diverted.frames.freeze()) {
            match kind {
                shard_tag::COMMAND_COMPLETE => {
                    let told = String::from_utf8_lossy(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default());
                    let told = told.trim_end_matches('\0');
                    told.trim_end_matches(|last: char| last.is_ascii_digit()).clone_into(&mut tag);
                    is_counted = tag.len() < told.len();
                }
                // Describe has told it.
                shard_tag::ROW_DESCRIPTION => {}
                _ => {
                    has_error |= kind == shard_tag::ERROR;
                    self.client.output.extend_from_slice(&frame);
                }
            }
        }
        outcome(run, has_error)?;
        if !diverted.is_whole {
            return Err(too_many(self.kept_bytes_max()).into());
        }
        Ok(KeptRows { rows: diverted.rows.freeze(), tag, is_counted })
    }

    /// Hands on so many rows, or all.
    pub(super) fn give_kept(&mut self, kept: &mut KeptRows, wanted: Option<u64>) {
        let (mut given, mut bytes) = (0, 0);
        while wanted.is_none_or(|wanted| given < wanted)
            && let Some(rest) = kept.rows.get(bytes..)
            && let Ok(Some(header)) = FrameHeader::peek(rest, usize::MAX / 2)
        {
            given += 1;
            bytes += header.total;
        }
        self.client.output.extend_from_slice(&kept.rows.split_to(bytes.min(kept.rows.len())));
        match wanted == Some(given) {
            true => originate::bare(&mut self.client.output, shard_tag::PORTAL_SUSPENDED),
            false if kept.is_counted => originate::command_complete(&mut self.client.output, &format!("{}{given}", kept.tag)),
            false => originate::command_complete(&mut self.client.output, &kept.tag),
        }
    }
}

fn too_many(bytes_max: usize) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("a result that is fetched in parts has more than {bytes_max} bytes"))
        .with_detail("The rows of EXECUTE, of FETCH, and of a write or row locks over several shards are kept until they are fetched. The limit is cross_shard.merge_bytes_max.")
        .with_hint("Fetch the whole result (a fetch size of 0), or raise the limit.")
}
