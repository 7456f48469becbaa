//! Portals that were bound before a setting was changed by which their statement is read.
//!
//! PostgreSQL reads names and values of a portal at Bind. A portal on one shard is bound there, and has them as of then. What the proxy
//! runs by itself, or on several shards, is sent at Execute: `Bind p1, Bind p2, Execute p1` that sets the search path, `Execute p2`.
//! Such a portal is refused.
//!
//! ```text
//!   Bind ─► Portal::Shard { may_set } ─ Execute ─► settings are unread ─► Execute of another: read back ─► on record ─► outdated
//!                                                                     └─► Bind: read back
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::error::{PgError, SqlState};
use crate::session::protocol::statement::{Portal, Statement};
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Command, Scope};

/// What portals have been run, and what they were bound under.
#[derive(Default)]
pub(in crate::session) struct BoundPortals {
    /// Bound before a setting was changed by which their statement is read.
    outdated: BTreeSet<Bytes>,
    /// Where portals have been executed since the last Bind; `None`: on any shard.
    executed_on: BTreeSet<Option<ShardId>>,
    /// What they run may only run in a transaction block.
    of_block: BTreeMap<Bytes, &'static str>,
}

impl Session {
    /// Before the Execute of a portal: what the portals before it have set counts for it.
    pub(in crate::session) async fn settle_portal(&mut self, name: &[u8]) -> Result<(), Failure> {
        let shard = self.portals.get(name).and_then(Portal::shard);
        let was_elsewhere = |executed: &Option<ShardId>| executed.is_none() || *executed != shard;
        if self.has_unread_settings() && self.running.portals.executed_on.iter().any(was_elsewhere) {
            Box::pin(self.read_back_settings()).await?;
        }
        let is_outdated = self.running.portals.outdated.contains(name) && !self.open_cursors.contains(name);
        if is_outdated && self.portals.get(name).is_some_and(is_read_at_execute) {
            return Err(bound_before().into());
        }
        match self.portals.get(name) {
            Some(Portal::Shard { may_set: false, .. }) | None => {}
            Some(Portal::Shard { may_set: true, .. }) => {
                self.settings_may_have_changed();
                self.running.portals.executed_on.insert(shard);
            }
            Some(_) => {
                self.running.portals.executed_on.insert(None);
            }
        }
        Ok(())
    }

    /// The settings are those that the next portal is bound under.
    #[inline]
    pub(in crate::session) fn portals_are_settled(&mut self) {
        self.running.portals.executed_on.clear();
    }

    /// A portal of this name is bound.
    pub(in crate::session) fn portal_is_of_now(&mut self, name: &[u8]) {
        self.running.portals.outdated.remove(name);
        self.running.portals.of_block.remove(name);
    }

    /// What this portal runs, which was just bound, may only run in a transaction block.
    #[inline]
    pub(in crate::session) fn note_needs_block(&mut self, portal: Option<(Bytes, &'static str)>) {
        if let Some((name, what)) = portal {
            let portals = &self.portals;
            self.running.portals.of_block.retain(|name, _| portals.contains_key(name));
            self.running.portals.of_block.insert(name, what);
        }
    }

    pub(in crate::session) fn check_block_of_portal(&self, name: &[u8]) -> Result<(), PgError> {
        self.running.portals.of_block.get(name).map_or(Ok(()), |what| self.check_no_pipeline(what))
    }

    /// The shard takes a pipeline that has begun a transaction here for a transaction block. So does PostgreSQL from version 18 on.
    pub(in crate::session) fn check_no_pipeline(&self, what: &str) -> Result<(), PgError> {
        let of_pipeline = self.transaction.is_open() && self.batch.is_implicit && self.batch.is_open;
        let version = self.reported.iter().find(|(name, _)| &**name == "server_version");
        let major = version.and_then(|(_, version)| version.split(['.', ' ', 'b', 'r', 'd']).next()?.parse::<u32>().ok());
        match of_pipeline && major.is_some_and(|major| major < PIPELINES_ARE_BLOCKS) {
            true => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(PgError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message))
            }
            false => Ok(()),
        }
    }

    /// A setting has another value.
    pub(super) fn outdate_portals(&mut self, setting: &str) {
        if self.portals.is_empty() {
            self.running.portals.outdated.clear();
        } else if READ_BY.contains(&setting) {
            let portals = self.portals.iter().filter(|(_, portal)| is_read_at_execute(portal));
            self.running.portals.outdated.extend(portals.map(|(name, _)| Bytes::copy_from_slice(name)));
        }
    }
}

/// What runs in a transaction block only, as PostgreSQL calls it.
pub(in crate::session) fn needs_block(statement: &Statement) -> Option<&'static str> {
    match &statement.analysis()?.command {
        Command::Lock => Some("LOCK TABLE"),
        Command::DeclareCursor { is_hold: false, .. } => Some("DECLARE CURSOR"),
        _ => None,
    }
}

/// The version of PostgreSQL in which the second statement of a pipeline is in a transaction block.
const PIPELINES_ARE_BLOCKS: u32 = 18;

fn is_read_at_execute(portal: &Portal) -> bool {
    match portal {
        Portal::Scatter { .. } | Portal::Write { .. } | Portal::Gather { .. } => true,
        Portal::Own { statement, .. } => statement.analysis().is_some_and(|analysis| !matches!(analysis.scope, Scope::Session)),
        Portal::Shard { .. } | Portal::Finished { .. } | Portal::Spent { .. } => false,
    }
}

/// Names, rights and the values of parameters hang on these.
const READ_BY: [&str; 7] =
    ["search_path", "role", "session_authorization", "row_security", "datestyle", "intervalstyle", "timezone"];

fn bound_before() -> PgError {
    PgError::unsupported(
        "a portal that was bound before a setting was changed is not supported across shards",
        "PostgreSQL reads names and values at Bind. The shards would read them under the settings of Execute.",
        "Send Bind and Execute of a statement one after the other.",
    )
}
