//! The home shard describes: parameter types and row descriptions are PostgreSQL's own.
//!
//! A statement's own text is parsed and described on the home shard, whatever shards will run it; the answer is kept, so that
//! the next client that prepares the text costs no trip. Outside the session's transaction, unless it has touched the home
//! shard, where it may have changed the schema.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};

use super::participant::Participant;
use super::{Failure, Session};
use crate::backend::{Connection, Reply, is_record};
use crate::error::{PgError, SqlState};
use crate::session::statement::Statement;
use crate::shardmap::{Shard, ShardId, ShardState};
use crate::sql::analysis::Scope;
use crate::wire::{self, FRAME_HEADER_BYTES, Reader, originate, shard_tag};

/// Whose oids the declared parameter types are. Types that users make have other oids on each shard: where they mean nothing, the
/// shard infers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeNames {
    Home,
    Foreign,
}

/// What the home shard said of a statement.
#[derive(Clone, Debug, Default)]
pub struct Description {
    pub parameter_types: Vec<u32>,
    /// Body of the RowDescription, all formats text; `None` when the statement returns no rows.
    pub rows: Option<Bytes>,
    system_types_only: OnceLock<bool>,
}

impl Description {
    pub fn new(parameter_types: Vec<u32>, rows: Option<Bytes>) -> Self {
        Self { parameter_types, rows, system_types_only: OnceLock::new() }
    }

    /// No parameter and no column is of a type that users made, or of one that can hold values of such types.
    pub fn has_system_types_only(&self) -> bool {
        *self.system_types_only.get_or_init(|| {
            let Ok(columns) = self.rows.as_deref().map_or(Ok(Vec::new()), wire::row_description) else { return false };
            let mut types = self.parameter_types.iter().copied().chain(columns.iter().map(|column| column.type_oid));
            types.all(|oid| !is_user_type(oid) && !is_record(oid))
        })
    }
}

impl Session {
    /// Clients know types by their oids on the home shard.
    pub(super) fn type_names(&self, shard: ShardId, statement: &Statement) -> Result<TypeNames, PgError> {
        let has_user_types = statement.key.types.iter().any(|oid| is_user_type(*oid));
        Ok(if has_user_types && self.home()?.id != shard { TypeNames::Foreign } else { TypeNames::Home })
    }

    pub(super) async fn describe(&mut self, statement: &Arc<Statement>) -> Result<Arc<Description>, Failure> {
        if let Some(known) = statement.description.get() {
            return Ok(Arc::clone(known));
        }
        if let Some(known) = self.gateway.descriptions.get(&statement.id) {
            return Ok(Arc::clone(statement.description.get_or_init(|| known)));
        }
        let described = self.ask_for_description(statement).await;
        if described.is_err() {
            self.forget_unproven(statement.id);
        }
        described
    }

    async fn ask_for_description(&mut self, statement: &Arc<Statement>) -> Result<Arc<Description>, Failure> {
        let home = match statement.analysis().map(|analysis| &analysis.scope) {
            Some(Scope::Map | Scope::Proxy(_)) => Arc::clone(&self.gateway.map_database),
            Some(_) | None => self.home()?,
        };
        let is_own = |participant: &Participant| participant.has_begun || participant.pinned_by.is_some();
        let in_transaction = self.participants.iter().any(|participant| participant.shard == home.id && is_own(participant));
        let description = match in_transaction {
            true => {
                // With the savepoints that it has missed: a refusal fails the transaction there.
                self.keep_pipeline();
                let index = self.join(home.id).await?;
                self.drain_with_flush(index).await?;
                let participant = self.participants.get_mut(index).ok_or_else(|| PgError::internal("participant is gone"))?;
                participant.needs_sync = false;
                describe_on(
                    &mut participant.connection,
                    statement,
                    self.gateway.config.cross_shard.prepared_statements_max as usize,
                )
                .await?
            }
            false => match self.describe_outside(&home, statement).await {
                Err(Failure::Error(error)) if is_away(&error) => return self.describe_without_home(&home, statement, error).await,
                described => described?,
            },
        };
        let description = Arc::new(description);
        if !in_transaction {
            self.gateway.descriptions.insert(statement.id, Arc::clone(&description));
        }
        Ok(description)
    }

    /// What the home shard says against a text, on a connection that has nothing to do with the transaction, which may have
    /// failed.
    pub(super) async fn describe_apart(&mut self, text: &[u8]) -> Result<Description, Failure> {
        let home = self.home()?;
        let statement = self.prepare(text, Box::default()).await?;
        self.describe_outside(&home, &statement).await
    }

    /// On a connection that has nothing to do with the transaction.
    async fn describe_outside(&mut self, shard: &Arc<Shard>, statement: &Arc<Statement>) -> Result<Description, Failure> {
        let mut connection = self.checkout_any(shard, &self.settings_now()).await?;
        let prepared_max = self.gateway.config.cross_shard.prepared_statements_max as usize;
        let described = describe_on(&mut connection, statement, prepared_max).await;
        connection.release();
        described
    }

    /// While the home shard is away another shard's word counts where all types are PostgreSQL's own: those of users have other
    /// numbers there. It is not kept, since tables have other numbers too.
    async fn describe_without_home(
        &mut self,
        home: &Arc<Shard>,
        statement: &Arc<Statement>,
        reason: PgError,
    ) -> Result<Arc<Description>, Failure> {
        let snapshot = self.gateway.map.snapshot();
        let is_other = |shard: &&Arc<Shard>| shard.id != home.id && shard.state == ShardState::Online;
        let others: Vec<Arc<Shard>> = snapshot.shards.iter().filter(is_other).cloned().collect();
        drop(snapshot);
        for shard in others {
            match self.describe_outside(&shard, statement).await {
                Ok(description) if description.has_system_types_only() => return Ok(Arc::new(description)),
                Ok(_) => break,
                Err(Failure::Error(error)) if is_away(&error) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(reason.into())
    }
}

fn is_away(error: &PgError) -> bool {
    matches!(error.code, SqlState::CANNOT_CONNECT_NOW | SqlState::CONNECTION_FAILURE)
}

/// Parse (unless the connection has it), Describe, Sync.
pub(super) async fn describe_on(
    connection: &mut Connection,
    statement: &Statement,
    prepared_max: usize,
) -> Result<Description, Failure> {
    prepare_on(connection, statement, TypeNames::Home, false, prepared_max);
    statement.id.with_name(|name| originate::describe(&mut connection.output, b'S', name));
    originate::sync(&mut connection.output);
    // Read here, not by the relay: nothing of it goes to the client as it comes.
    connection.pending.clear();
    let mut description = Description::default();
    let mut refusal = None;
    loop {
        let (tag, body) = connection.next_frame().await.map_err(|error| Failure::Error(super::lost("home", &error)))?;
        match tag {
            shard_tag::PARAMETER_DESCRIPTION => description.parameter_types = parameter_types(&body)?,
            shard_tag::ROW_DESCRIPTION => description.rows = Some(body),
            shard_tag::ERROR => {
                connection.prepared.doubt(statement.id);
                refusal = Some(error_frame(&body));
            }
            shard_tag::READY => {
                connection.status = body.first().copied().unwrap_or(b'E');
                return match refusal {
                    Some(frame) => Err(Failure::Shard(frame)),
                    None => Ok(description),
                };
            }
            _ => {}
        }
    }
}

/// Puts a Parse before what follows when the connection does not have the statement.
pub(super) fn prepare_on(
    connection: &mut Connection,
    statement: &Statement,
    types: TypeNames,
    is_visible: bool,
    prepared_max: usize,
) -> bool {
    if connection.prepared.has(statement.id) {
        return false;
    }
    for unwanted in connection.prepared.insert(statement.id, prepared_max) {
        unwanted.with_name(|name| originate::close(&mut connection.output, b'S', name));
        connection.expect(Reply::Close, false);
    }
    let types: Cow<'_, [u32]> = match types {
        TypeNames::Home => Cow::Borrowed(&statement.key.types),
        TypeNames::Foreign => statement.key.types.iter().map(|oid| if is_user_type(*oid) { 0 } else { *oid }).collect(),
    };
    statement.id.with_name(|name| originate::parse(&mut connection.output, name, &statement.key.text, &types));
    connection.expect(Reply::Parse(statement.id), is_visible);
    true
}

fn is_user_type(oid: u32) -> bool {
    oid >= FIRST_USER_OID
}

fn parameter_types(body: &[u8]) -> Result<Vec<u32>, PgError> {
    let mut reader = Reader::new(body);
    let read = |reader: &mut Reader<'_>| {
        let count = reader.count()?;
        (0..count).map(|_| reader.u32()).collect::<Result<Vec<_>, _>>()
    };
    read(&mut reader).map_err(|error| PgError::internal(format!("parameter description from shard: {error}")))
}

pub(super) fn error_frame(body: &[u8]) -> Bytes {
    frame(shard_tag::ERROR, body)
}

pub(super) fn frame(tag: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(body.len() + FRAME_HEADER_BYTES);
    frame.put_u8(tag);
    frame.put_u32(u32::try_from(body.len() + 4).unwrap_or(u32::MAX));
    frame.put_slice(body);
    frame.freeze()
}

/// Writes a RowDescription with these result formats: none is text, one is for all columns, else one each. `rows`: its body.
pub(super) fn put_with_formats(out: &mut BytesMut, rows: &[u8], formats: &[u8]) -> Result<(), PgError> {
    let length = u32::try_from(rows.len() + 4).map_err(|error| PgError::internal(error.to_string()))?;
    out.put_u8(shard_tag::ROW_DESCRIPTION);
    out.put_u32(length);
    let start = out.len();
    out.extend_from_slice(rows);
    let mut codes = formats.chunks_exact(2);
    let all = if codes.len() == 1 { codes.next() } else { None };
    let changed = wire::for_each_column(out.get_mut(start..).unwrap_or_default(), |[.., high, low]| {
        (*high, *low) = (0, all.or_else(|| codes.next()).and_then(|code| code.get(1)).copied().unwrap_or(0));
    });
    changed.map_err(|error| PgError::internal(format!("row description: {error}")))
}

/// FirstNormalObjectId: types below are the same in every database.
const FIRST_USER_OID: u32 = 16_384;
