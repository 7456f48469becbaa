//! Portals that run to their end at their first Execute, whatever its row limit: writes, as in PostgreSQL, and row locks with LIMIT.
//!
//! The rows that the client has not asked for yet are kept, within `cross_shard.merge_bytes_max`.

use bytes::{Bytes, BytesMut};

use super::super::diversion::Kept;
use super::super::statement::Portal;
use super::super::{Failure, Session};
use super::{Cursor, Life, Source};
use crate::error::{PgError, SqlState};
use crate::sql::analysis::Scroll;
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, originate, shard_tag};

pub(super) struct KeptRows {
    /// DataRow messages.
    rows: Bytes,
    /// The command tag without its count, which is of the rows that an Execute has given: `INSERT 0 `.
    tag: String,
}

impl Session {
    /// Execute of a portal that writes on several shards.
    pub(in crate::session) async fn execute_writing(&mut self, name: &[u8], row_limit: i32) -> Result<(), Failure> {
        if !self.open_cursors.contains(name) {
            let Some(Portal::Write { statement, bind, writing }) = self.portals.get(name) else {
                return Err(PgError::internal("not a portal that writes").into());
            };
            let (statement, bind, writing) = (statement.clone(), bind.clone(), writing.clone());
            let rows = if row_limit > 0 { self.describe(&statement).await?.rows.clone() } else { None };
            let Some(rows) = rows else {
                Box::pin(self.write_bound(&statement, &bind, &writing)).await?;
                self.spend(name);
                return Ok(());
            };
            self.check_cursor_count()?;
            let kept = self.divert();
            let run = Box::pin(self.write_bound(&statement, &bind, &writing)).await;
            let kept = self.kept_rows(kept, run)?;
            self.keep_rows(name, rows, kept);
        }
        self.execute_opened(&Bytes::copy_from_slice(name), row_limit).await
    }

    /// The portal's rows are locked, all that its LIMIT lets through.
    pub(super) async fn open_locked(&mut self, name: &Bytes) -> Result<(), Failure> {
        let Some(Portal::Scatter { statement, bind, shards }) = self.portals.get(name) else {
            return Err(PgError::internal("not a portal that locks rows").into());
        };
        let (statement, bind, shards) = (statement.clone(), bind.clone(), shards.clone());
        self.check_cursor_count()?;
        let rows = self.describe(&statement).await?.rows.clone().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
        let kept = self.divert();
        let run = Box::pin(self.scatter_bound(&statement, &bind, &shards)).await;
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
        let (mut rows, mut tag) = (BytesMut::new(), String::new());
        let mut rest = diverted.frames.freeze();
        while let Ok(Some(header)) = FrameHeader::peek(&rest, usize::MAX / 2) {
            if rest.len() < header.total {
                break;
            }
            let frame = rest.split_to(header.total);
            match header.tag {
                shard_tag::DATA_ROW => rows.extend_from_slice(&frame),
                shard_tag::COMMAND_COMPLETE => {
                    let told = String::from_utf8_lossy(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default());
                    told.trim_end_matches(['\0', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']).clone_into(&mut tag);
                }
                _ => self.client.output.extend_from_slice(&frame),
            }
        }
        run?;
        if !diverted.is_whole {
            return Err(too_many(self.kept_bytes_max()).into());
        }
        Ok(KeptRows { rows: rows.freeze(), tag })
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
            false => originate::command_complete(&mut self.client.output, &format!("{}{given}", kept.tag)),
        }
    }
}

fn too_many(bytes_max: usize) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("a result that is fetched in parts has more than {bytes_max} bytes"))
        .with_detail("The rows of a write or of row locks over several shards are kept until they are fetched. The limit is cross_shard.merge_bytes_max.")
        .with_hint("Fetch the whole result (a fetch size of 0), or raise the limit.")
}
