//! The client's portals that the proxy runs by itself or on several shards: what Bind has to say against them, Execute, and when they
//! can be run no more. Portals of one shard are there under their names. And how many statements and portals a session may keep, by
//! number and in bytes.
//!
//! ```text
//!   Bind ─► kept ─┬─ Execute ───────────────────────────────► run ─► spent, or finished
//!                 ├─ an error while it runs ────────────────────────► spent
//!                 └─ the transaction's end, Close, ROLLBACK TO a savepoint that is older ─► gone
//! ```

use std::sync::Arc;

use bytes::Bytes;

use super::describe::Description;
use super::statement::{Portal, Run, Statement};
use crate::backend::{Connection, Reply};
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::session::commands::{command, prepare};
use crate::session::cursor::{already_exists, kept, portal, whereabouts};
use crate::session::{Failure, Session};
use crate::shard_key::Format;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Count, QueryKind};
use crate::telemetry::RouteKind;
use crate::wire::{self, originate, shard_tag};

impl Session {
    /// For one more statement, by this name and of so many bytes.
    pub(in crate::session) fn check_name_is_free(&self, name: &[u8], bytes: usize) -> Result<(), PgError> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name));
            return Err(PgError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let limit = self.gateway.prepared_max();
        if self.statements.len() >= limit {
            let message = format!("more than {limit} prepared statements in one session");
            return Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_detail("The limit is cross_shard.prepared_statements_max.")
                .with_hint("Close statements that are no longer used, or raise the limit."));
        }
        self.check_kept_bytes(bytes)
    }

    /// For so many bytes more of statements' texts and portals' values.
    pub(super) fn check_kept_bytes(&self, bytes: usize) -> Result<(), PgError> {
        let limit = usize::try_from(self.gateway.config.cross_shard.prepared_bytes_max).unwrap_or(usize::MAX);
        if self.statements.bytes().saturating_add(self.portals.bytes()).saturating_add(bytes) > limit {
            let message = format!("prepared statements and portals of more than {limit} bytes in one session");
            return Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_detail("The limit is cross_shard.prepared_bytes_max.")
                .with_hint("Close statements that are no longer used, or raise the limit."));
        }
        Ok(())
    }

    /// It ends with the savepoint that it was made after.
    pub(super) fn keep_portal(&mut self, name: Bytes, portal: Portal) {
        self.portal_is_of_now(&name);
        self.portals.insert_after(name, portal, self.transaction.savepoints.len());
    }

    /// The proxy runs the statement by itself.
    pub(super) async fn keep_own_portal(
        &mut self,
        portal: Bytes,
        statement: Arc<Statement>,
        bind: &wire::Bind<'_>,
        body: &[u8],
    ) -> Result<(), Failure> {
        self.check_portal_is_new(&portal, None)?;
        if bind.result_format_count() > 1
            && let Some(described) = Box::pin(prepare::describe_by_itself(self, &statement)).await?
        {
            check_result_formats(bind, &described)?;
        }
        self.keep_portal(portal, Portal::Own { statement, bind: Bytes::copy_from_slice(body) });
        self.answer(shard_tag::BIND_COMPLETE);
        Ok(())
    }

    /// What PostgreSQL has to say at Bind, where no shard is asked.
    pub(super) async fn check_bound_to_several(
        &mut self,
        portal: &[u8],
        statement: &Arc<Statement>,
        bind: &wire::Bind<'_>,
    ) -> Result<(), Failure> {
        self.answer_parse().await?;
        self.check_portal_is_new(portal, None)?;
        let description = self.describe(statement).await?;
        check_counts(statement, bind, &description.parameter_types)?;
        check_result_formats(bind, &description).map_err(Failure::from)
    }

    /// A named portal must not exist, nor a cursor of its name. On the shard where it would lie, PostgreSQL knows better whether it
    /// still does. `None`: it would lie on none.
    pub(super) fn check_portal_is_new(&self, name: &[u8], shard: Option<ShardId>) -> Result<(), PgError> {
        match !name.is_empty() && whereabouts::is_cursor_elsewhere(self, name, shard) {
            true => Err(already_exists(&String::from_utf8_lossy(name))),
            false => Ok(()),
        }
    }

    pub(super) async fn on_execute(&mut self, body: &[u8]) -> Result<(), Failure> {
        let (name, limit) = wire::execute(body)?;
        self.answer_parse().await?;
        self.check_portal_is_not_failed(name)?;
        self.settle_portal(name).await?;
        self.check_block_of_portal(name)?;
        self.note_effects_of_portal(name)?;
        if matches!(self.portals.get(name), Some(Portal::Shard { .. })) {
            self.check_locks_are_right()?;
        }
        if self.portals.get(name).is_none() && Box::pin(self.execute_declared(name, limit)).await? {
            return Ok(());
        }
        match self.portals.get_mut(name).ok_or_else(|| no_portal(name))? {
            Portal::Shard { shard, nested, number, run, .. } => {
                if *run != Run::Whole {
                    *run = if limit <= 0 { Run::Whole } else { Run::InPart };
                }
                let (shard, nested, number) = (*shard, nested.clone(), *number);
                self.count_statement(RouteKind::SingleShard, Some(shard));
                let write = |connection: &mut Connection| {
                    connection.output.execute(name, limit);
                    if nested.is_empty() {
                        connection.expect(Reply::Execute, true);
                    } else {
                        connection.expect_nested(&nested);
                    }
                };
                portal::forward_to_portal(self, shard, name, number, write).await
            }
            portal @ (Portal::Own { .. } | Portal::Write { .. }) => {
                let is_write = matches!(portal, Portal::Write { .. });
                self.count_statement(if is_write { RouteKind::Scatter } else { RouteKind::Local }, None);
                if let Some(index) = self.current_index() {
                    self.drain_with_flush(index).await?;
                }
                if is_write {
                    self.batch.current = None;
                }
                Box::pin(kept::execute_to_end(self, name, limit)).await
            }
            Portal::Spent { statement, has_failed, .. } => {
                let statement = Some(Arc::clone(statement)).filter(|_| !*has_failed);
                self.execute_spent(name, statement).await
            }
            Portal::Scatter { .. } | Portal::Gather { .. } | Portal::Finished { .. } => {
                let is_gathered = matches!(self.portal(name)?, Portal::Gather { .. });
                self.count_statement(if is_gathered { RouteKind::Gather } else { RouteKind::Scatter }, None);
                if let Some(index) = self.current_index() {
                    self.drain_with_flush(index).await?;
                }
                self.batch.current = None;
                Box::pin(portal::execute_several(self, name, limit)).await
            }
        }
    }

    /// Of a cursor that DECLARE has made. False: there is none of this name.
    async fn execute_declared(&mut self, name: &[u8], limit: i32) -> Result<bool, Failure> {
        let of_shard = std::str::from_utf8(name).ok().and_then(|name| self.cursors.get(name)).map(|cursor| cursor.shard);
        if of_shard.is_none() && !self.open_cursors.contains(name) {
            return Ok(false);
        }
        command::check_transaction(self)?;
        self.note_effects_of_cursor();
        if let Some(shard) = of_shard {
            self.check_locks_are_right()?;
            let write = |connection: &mut Connection| {
                connection.output.execute(name, limit);
                connection.expect(Reply::Execute, true);
            };
            return self.forward(shard, write).await.map(|()| true);
        }
        if let Some(index) = self.current_index() {
            self.drain_with_flush(index).await?;
        }
        self.batch.current = None;
        portal::execute_opened(self, &Bytes::copy_from_slice(name), limit).await.map(|()| true)
    }

    /// Of one shard, which may not be the one that has failed, or the proxy's own.
    fn check_portal_is_not_failed(&mut self, name: &[u8]) -> Result<(), PgError> {
        let statement = match self.portals.get(name) {
            Some(Portal::Shard { .. }) => return command::check_not_failed(self, &Command::Empty),
            portal => portal.and_then(Portal::bound).map(|(statement, _)| Arc::clone(statement)),
        };
        let analysis = statement.as_ref().and_then(|statement| statement.analysis());
        analysis.map_or(Ok(()), |analysis| command::check_not_failed(self, &analysis.command))
    }

    /// Execute of a portal that was run. One that has given rows has none left. `statement`: unless it has failed.
    async fn execute_spent(&mut self, name: &[u8], statement: Option<Arc<Statement>>) -> Result<(), Failure> {
        self.drain_current().await?;
        let tag = statement.as_ref().and_then(|statement| self.tag_at_end(statement.analysis()?));
        if let (Some(statement), Some(tag)) = (statement, tag)
            && kept::rows_of(self, &statement).await?.is_some()
        {
            originate::command_complete(&mut self.client.output, tag);
            return Ok(());
        }
        Err(cannot_be_run(name).into())
    }

    /// CommandComplete of a statement that gives rows, when none is left.
    fn tag_at_end(&self, statement: &Analysis) -> Option<&'static str> {
        Some(match &statement.command {
            Command::Query(kind) => tag_of_none(*kind),
            Command::Show(_) => "SHOW",
            Command::Explain { .. } => "EXPLAIN",
            Command::Fetch { is_move: false, .. } => "FETCH 0",
            Command::Execute { name, .. } => match &self.statements.get(name.as_bytes())?.analysis()?.command {
                Command::Query(kind) => tag_of_none(*kind),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// The portal has run, if it is still there, or has failed.
    pub(in crate::session) fn spend<T>(&mut self, name: &[u8], run: &Result<T, Failure>) {
        if let Some(portal) = self.portals.get_mut(name) {
            portal.spend(run.is_err());
        }
    }

    fn portal(&self, name: &[u8]) -> Result<&Portal, PgError> {
        self.portals.get(name).ok_or_else(|| no_portal(name))
    }
}

/// CommandComplete of no row.
fn tag_of_none(kind: QueryKind) -> &'static str {
    match kind {
        QueryKind::Select => "SELECT 0",
        QueryKind::Insert => "INSERT 0 0",
        QueryKind::Update => "UPDATE 0",
        QueryKind::Delete => "DELETE 0",
        QueryKind::Merge => "MERGE 0",
    }
}

/// Values of LIMIT and OFFSET are read by the proxy, and by no shard. As PostgreSQL says it.
fn check_counts(statement: &Statement, bind: &wire::Bind<'_>, types: &[u32]) -> Result<(), PgError> {
    let merge = statement.analysis().and_then(|analysis| analysis.merge.as_ref().ok());
    let mut counts: Vec<(u16, &Count)> = merge
        .into_iter()
        .flat_map(|merge| [&merge.limit, &merge.offset])
        .filter_map(|count| match count.as_ref()? {
            count @ Count::Parameter(number) => Some((*number, count)),
            Count::Constant(_) | Count::Literal(_) | Count::Column(_) => None,
        })
        .collect();
    counts.sort_unstable_by_key(|(number, _)| *number);
    let inputs = Inputs::bound(statement.text(), &statement.literals, bind, types);
    for (number, count) in counts {
        match inputs.count(count) {
            Err(error) if error.code != SqlState::FEATURE_NOT_SUPPORTED => {
                return Err(error.with_context(of_parameter(bind, number)));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// In the words of PostgreSQL's `bind_param_error_callback`, which by default shows no part of a value.
fn of_parameter(bind: &wire::Bind<'_>, number: u16) -> String {
    let portal = match bind.portal {
        b"" => "unnamed portal".to_owned(),
        name => format!("portal \"{}\"", String::from_utf8_lossy(name)),
    };
    let value = match bind.parameter(usize::from(number).wrapping_sub(1)) {
        Some((Format::Text, Some(b""))) => " = ''",
        Some((Format::Text, _)) => " = '...'",
        Some((Format::Binary, _)) | None => "",
    };
    format!("{portal} parameter ${number}{value}")
}

/// As PostgreSQL says it.
fn check_result_formats(bind: &wire::Bind<'_>, description: &Description) -> Result<(), PgError> {
    let (formats, columns) = (bind.result_format_count(), description.column_count());
    match columns {
        Some(columns) if formats > 1 && formats != columns => {
            let message = format!("bind message has {formats} result formats but query has {columns} columns");
            Err(PgError::new(SqlState::PROTOCOL_VIOLATION, message))
        }
        Some(_) | None => Ok(()),
    }
}

pub(in crate::session) fn cannot_be_run(name: &[u8]) -> PgError {
    let message = format!("portal \"{}\" cannot be run", String::from_utf8_lossy(name));
    PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

pub(super) fn no_portal(name: &[u8]) -> PgError {
    PgError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{}\" does not exist", String::from_utf8_lossy(name)))
}
