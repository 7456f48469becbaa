//! The client's prepared statements and portals, by the client's own names.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use super::describe::Description;
use super::named::Weight;
use crate::backend::{NestedValues, ShardText, StatementId, StatementText};
use crate::error::PgError;
use crate::plan::Gathering;
use crate::routing::Reach;
use crate::session::commands::clients;
use crate::session::writes::write::Writing;
use crate::shardmap::ShardId;
use crate::sql::Analyzed;
use crate::sql::analysis::{Analysis, Effect};
use crate::sql::parse::lexer::Literals;
use crate::sql::residues::Covered;

/// A text that was prepared: by Parse, or by SQL's PREPARE.
pub(in crate::session) struct Statement {
    pub id: StatementId,
    pub key: Arc<StatementText>,
    pub analyzed: Arc<Analyzed>,
    /// The context it was analysed in; analysed again when the session's differs.
    pub context_id: u64,
    pub literals: Literals,
    /// What the home shard said of it, kept here since it is asked for at every Bind.
    pub description: OnceLock<Arc<Description>>,
    /// What a shard first said of it, whose parameters and columns it keeps through all readings.
    pub told: Arc<OnceLock<Arc<Description>>>,
    /// `text` was covered, to run on several shards.
    pub covered: Option<Covered>,
    /// What each of several shards runs of it, where that is the same at every execution.
    pub fragment: ArcSwapOption<Statement>,
    pub made: Made,
}

/// What `pg_prepared_statements` says of where it comes from.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct Made {
    /// Microseconds since 1970; 0: it has no name of the client's.
    pub at: i64,
    /// The PREPARE; `None`: by the protocol.
    pub sql: Option<Box<str>>,
}

impl Made {
    pub fn now(sql: Option<&str>) -> Self {
        Self { at: clients::now(), sql: sql.map(Into::into) }
    }
}

impl Statement {
    pub fn new(id: StatementId, key: Arc<StatementText>, analyzed: Arc<Analyzed>, context_id: u64, literals: Literals) -> Self {
        Self {
            id,
            key,
            analyzed,
            context_id,
            literals,
            description: OnceLock::new(),
            told: Arc::default(),
            covered: None,
            fragment: ArcSwapOption::empty(),
            made: Made::default(),
        }
    }

    /// By the protocol.
    pub fn made_now(self) -> Self {
        Self { made: Made::now(None), ..self }
    }

    /// The text as it runs on these shards.
    pub fn text_for(&self, reach: &Reach) -> Result<ShardText<'_>, PgError> {
        match (&self.covered, reach.proof()) {
            (Some(covered), _) => Ok(ShardText::covered(covered)),
            (None, Some(proof)) => Ok(ShardText::proven(&self.key.text, proof)),
            (None, None) => Err(PgError::internal("a statement over several shards is not covered")),
        }
    }

    /// The statement, or `None` for an empty text. A prepared text holds at most one.
    pub fn analysis(&self) -> Option<&Analysis> {
        self.analyzed.statements.first()
    }

    /// FOR UPDATE, FOR SHARE.
    pub fn has_locks(&self) -> bool {
        self.analysis().is_some_and(|analysis| analysis.effect == Effect::ReadLocking)
    }

    /// The text where it has literals: without any nobody reads it.
    pub fn text_of_literals(&self) -> &str {
        if self.literals.is_empty() { "" } else { self.text() }
    }

    pub fn text(&self) -> &str {
        // Checked when it was prepared.
        std::str::from_utf8(&self.key.text).unwrap_or_default()
    }
}

impl Weight for Arc<Statement> {
    fn bytes(&self) -> usize {
        size_of::<Statement>() + self.key.text.len() + self.made.sql.as_ref().map_or(0, |sql| sql.len())
    }
}

/// A bound statement.
#[derive(Clone)]
pub(in crate::session) enum Portal {
    /// Lives on one shard's connection under the same name. Its rows hold values that name types in `nested` columns. `number`: how
    /// many unnamed portals that connection had seen then, this one among them. `may_set`: its functions may change settings.
    Shard { shard: ShardId, nested: NestedValues, number: u32, run: Run, may_set: bool },
    /// The proxy runs it by itself when it is executed.
    Own { statement: Arc<Statement>, bind: Bytes },
    /// Runs on several shards when it is executed.
    Scatter { statement: Arc<Statement>, bind: Bytes, reach: Reach },
    /// Writes on several shards when it is executed.
    Write { statement: Arc<Statement>, bind: Bytes, writing: Arc<Writing> },
    /// Runs over rows of several shards when it is executed.
    Gather { statement: Arc<Statement>, bind: Bytes, gathering: Arc<Gathering> },
    /// Ran on several shards; no row is left.
    Finished { statement: Arc<Statement>, bind: Bytes },
    /// Was run by the proxy, or has written on several shards, or has failed: not a second time.
    Spent { statement: Arc<Statement>, bind: Bytes, has_failed: bool },
}

/// How far a portal on a shard has been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Run {
    NotYet,
    /// With a limit: there may be rows left.
    InPart,
    Whole,
}

impl Weight for Portal {
    fn bytes(&self) -> usize {
        self.bound().map_or(0, |(_, bind)| bind.len())
    }
}

impl Portal {
    /// The shard whose connection has it under its name; `None`: it is the proxy's own.
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Portal::Shard { shard, .. } => Some(*shard),
            Portal::Own { .. }
            | Portal::Scatter { .. }
            | Portal::Write { .. }
            | Portal::Gather { .. }
            | Portal::Finished { .. }
            | Portal::Spent { .. } => None,
        }
    }

    /// It has run, or has failed. PostgreSQL answers an empty one as often as it is asked.
    pub fn spend(&mut self, has_failed: bool) {
        if let Some((statement, bind)) = self.bound()
            && statement.analysis().is_some()
        {
            *self = Portal::Spent { statement: Arc::clone(statement), bind: bind.clone(), has_failed };
        }
    }

    /// The statement and the Bind of one that is the proxy's own.
    pub fn bound(&self) -> Option<(&Arc<Statement>, &Bytes)> {
        match self {
            Portal::Shard { .. } => None,
            Portal::Own { statement, bind }
            | Portal::Scatter { statement, bind, .. }
            | Portal::Write { statement, bind, .. }
            | Portal::Gather { statement, bind, .. }
            | Portal::Finished { statement, bind }
            | Portal::Spent { statement, bind, .. } => Some((statement, bind)),
        }
    }
}
