//! The home shard describes: parameter types and row descriptions are PostgreSQL's own.
//!
//! A statement's own text is parsed and described on the home shard, whatever shards will run it; the answer is kept, so that
//! the next client that prepares the text costs no trip. Outside the session's transaction, unless it has touched the home
//! shard, where it may have changed the schema.

use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};

use super::statement::Statement;
use super::told::hold_to;
use crate::backend::{ColumnsDigest, Connection, ConnectionError, Own, Pooled, Reply, StatementName, is_record, is_user_type};
use crate::error::{PgError, SqlState};
use crate::session::commands::map_database;
use crate::session::cursor::{is_fetch, whereabouts};
use crate::session::reads::ask;
use crate::session::reads::gather::release;
use crate::session::transaction::participant::Participant;
use crate::session::transaction::shard_state::any_in_maintenance;
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId, ShardState};
use crate::sql::analysis::Scope;
use crate::sql::utility::own_relations;
use crate::wire::{self, DecodeError, FRAME_HEADER_BYTES, FieldDescription, Reader, shard_tag};

/// What the home shard said of a statement.
#[derive(Clone, Debug, Default)]
pub struct Description {
    pub parameter_types: Vec<u32>,
    /// Body of the RowDescription, all formats text; `None` when the statement returns no rows.
    pub rows: Option<Bytes>,
    system_types_only: OnceLock<bool>,
    columns: OnceLock<ColumnsDigest>,
}

impl Description {
    pub fn new(parameter_types: Vec<u32>, rows: Option<Bytes>) -> Self {
        Self { parameter_types, rows, system_types_only: OnceLock::new(), columns: OnceLock::new() }
    }

    pub fn columns(&self) -> ColumnsDigest {
        *self.columns.get_or_init(|| ColumnsDigest::of(self.rows.as_deref()))
    }

    /// `None`: it returns no rows.
    pub fn column_count(&self) -> Option<usize> {
        let count = self.rows.as_deref()?.first_chunk::<2>()?;
        Some(usize::from(u16::from_be_bytes(*count)))
    }

    /// `None`: it returns no rows.
    pub fn fields(&self) -> Result<Option<Vec<FieldDescription>>, PgError> {
        let fields = self.rows.as_deref().map(wire::row_description).transpose();
        fields.map_err(|error| PgError::internal(format!("row description: {error}")))
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
    pub(in crate::session) async fn describe(&mut self, statement: &Arc<Statement>) -> Result<Arc<Description>, Failure> {
        if let Some(known) = statement.description.get() {
            return Ok(Arc::clone(known));
        }
        if is_fetch(statement) {
            let description = Arc::new(Box::pin(whereabouts::describe_fetch(self, statement)).await?);
            return Ok(Arc::clone(statement.description.get_or_init(|| description)));
        }
        if let Some(known) = self.gateway.descriptions.get(&statement.id) {
            hold_to(statement, &known)?;
            return Ok(Arc::clone(statement.description.get_or_init(|| known)));
        }
        match Box::pin(self.ask_for_description(statement)).await {
            Ok(description) => {
                hold_to(statement, &description)?;
                Ok(description)
            }
            Err(failure) => {
                self.forget_unproven(statement.id);
                match statement.analysis().map(|analysis| &analysis.scope) {
                    Some(Scope::Refused(refusal)) if misses_own_name(&failure) || own_relations::are_named_in(statement.text()) => {
                        Err(refusal.clone().into())
                    }
                    Some(_) | None => Err(failure),
                }
            }
        }
    }

    async fn ask_for_description(&mut self, statement: &Arc<Statement>) -> Result<Arc<Description>, Failure> {
        let home = match statement.analysis().map(|analysis| &analysis.scope) {
            Some(Scope::Map | Scope::Proxy(_)) => {
                map_database::check_text_for_map(self, statement.text())?;
                Arc::clone(&self.gateway.map_database)
            }
            Some(_) | None => self.home()?,
        };
        self.keep_pipeline_on(home.id);
        let is_own = |participant: &Participant| participant.has_begun || participant.pinned_by.is_some();
        let in_transaction =
            self.transaction.participants().iter().any(|participant| participant.shard == home.id && is_own(participant));
        let description = match in_transaction {
            true => {
                // With the savepoints that it has missed: a refusal fails the transaction there.
                self.keep_pipeline();
                let index = self.join(home.id).await?;
                self.drain_with_flush(index).await?;
                let participant = self.transaction.at(index)?;
                participant.needs_sync = false;
                let prepared_max = self.gateway.prepared_max();
                self.cancel.started(&participant.connection);
                let described = describe_on(&mut participant.connection, statement, prepared_max);
                described.await?
            }
            false => {
                if let Some(reason) = self.maintenance_of(&home) {
                    match Box::pin(self.describe_without_home(&home, statement, reason)).await {
                        Err(Failure::Error(error)) if is_away(&error) => {}
                        described => return described,
                    }
                }
                match self.describe_outside(&home, statement).await {
                    Err(Failure::Error(error)) if is_away(&error) => {
                        return self.describe_without_home(&home, statement, error).await;
                    }
                    described => described?,
                }
            }
        };
        let description = Arc::new(description);
        if !in_transaction {
            self.gateway.descriptions.insert(statement.id, Arc::clone(&description));
        }
        Ok(description)
    }

    /// What the home shard says against a text, on a connection that has nothing to do with the transaction, which may have
    /// failed, and whose locks this does not wait for.
    pub(in crate::session) async fn describe_apart(&mut self, text: &[u8]) -> Result<Description, Failure> {
        let home = self.home()?;
        if self.temporary_tables.are_there() {
            let own = self.transaction.on(home.id);
            let has_failed = own.is_some_and(|participant| participant.connection.status == b'E');
            match has_failed {
                // No other connection knows them.
                false => return Box::pin(self.describe_aside(text)).await,
                true if self.temporary_tables.are_named(text) => return Err(PgError::internal("nobody can be asked").into()),
                true => {}
            }
        }
        let statement = self.prepare(text, Box::default()).await?;
        if !self.has_begun_on(home.id) {
            return self.describe_outside(&home, &statement).await;
        }
        let mut connection = self.checkout_any(&home, &self.settings_now()).await?;
        let prepared_max = self.gateway.prepared_max();
        run_own(&mut connection, BEGIN_IMPATIENT).await?;
        let described = describe_on(&mut connection, &statement, prepared_max).await;
        run_own(&mut connection, "ROLLBACK").await?;
        connection.release();
        described
    }

    /// What the home shard says of a text, which may be wrong without the transaction's end.
    pub(in crate::session) async fn describe_aside(&mut self, text: &[u8]) -> Result<Description, Failure> {
        let statement = self.prepare(text, Box::default()).await?;
        let prepared_max = self.gateway.prepared_max();
        let mut aside = self.open_aside().await?;
        let described = describe_on(self.connection_of(&mut aside)?, &statement, prepared_max).await;
        self.close_aside(aside).await?;
        described
    }

    /// A connection to the home shard for what the client does not see. Where the transaction has begun there it is that one's, with
    /// a savepoint: another would wait for its locks (of TRUNCATE, of DDL), and it for the other. The same where the session has
    /// temporary tables, which another would not know.
    pub(in crate::session) async fn open_aside(&mut self) -> Result<Aside, Failure> {
        let home = self.home()?;
        if !self.is_asked_itself(home.id) {
            return Ok(Aside::Outside(self.checkout(&home, &self.settings_now()).await?));
        }
        let index = ask::join_clean(self, home.id).await?;
        if !self.has_begun_on(home.id) {
            return Ok(Aside::Kept(index));
        }
        let mut aside = Aside::Inside(index);
        run_own(self.connection_of(&mut aside)?, SAVEPOINT).await?;
        Ok(aside)
    }

    /// The session has a connection to the shard that knows what others do not: of its transaction, or of its temporary tables.
    pub(in crate::session) fn is_asked_itself(&self, shard: ShardId) -> bool {
        let has_temporary = self.temporary_tables.are_there();
        let is_kept = |participant: &Participant| has_temporary && participant.pinned_by.is_some();
        self.transaction
            .participants()
            .iter()
            .any(|participant| participant.shard == shard && (participant.has_begun || is_kept(participant)))
    }

    pub(in crate::session) fn connection_of<'a>(&'a mut self, aside: &'a mut Aside) -> Result<&'a mut Connection, PgError> {
        match aside {
            Aside::Inside(index) | Aside::Kept(index) => {
                let participant = self.transaction.participants_mut().get_mut(*index);
                participant.map(|participant| &mut *participant.connection).ok_or_else(|| PgError::internal("participant is gone"))
            }
            Aside::Outside(connection) => Ok(connection),
        }
    }

    pub(in crate::session) async fn close_aside(&mut self, mut aside: Aside) -> Result<(), Failure> {
        if matches!(aside, Aside::Inside(_)) {
            run_own(self.connection_of(&mut aside)?, BACK).await?;
        }
        if let Aside::Outside(connection) = aside {
            connection.release();
        }
        Ok(())
    }

    fn has_begun_on(&self, shard: ShardId) -> bool {
        self.transaction.participants().iter().any(|participant| participant.shard == shard && participant.has_begun)
    }

    /// On a connection that has nothing to do with the transaction.
    async fn describe_outside(&mut self, shard: &Arc<Shard>, statement: &Arc<Statement>) -> Result<Description, Failure> {
        let mut connection = self.checkout_any(shard, &self.settings_now()).await?;
        self.learn_oids(&mut connection, shard).await?;
        let prepared_max = self.gateway.prepared_max();
        self.cancel.started(&connection);
        let described = describe_on(&mut connection, statement, prepared_max).await;
        if !matches!(described, Err(Failure::End(_))) {
            release(&self.cancel, connection);
        }
        described
    }

    /// To be asked while the home shard is away, where all say the same.
    pub(in crate::session) fn shards_beside(&self, home: ShardId) -> Vec<Arc<Shard>> {
        let is_usable = |shard: &Shard| shard.state.is_ready() && shard.state != ShardState::Maintenance;
        let is_other = |shard: &&Arc<Shard>| shard.id != home && is_usable(shard);
        self.gateway.map.snapshot().shards.iter().filter(is_other).cloned().collect()
    }

    /// The shard would be waited for, where another one can say the same. What is told if none can and it is not.
    pub(in crate::session) fn maintenance_of(&self, shard: &Shard) -> Option<PgError> {
        any_in_maintenance(&self.gateway.map.load(), &[shard.id])
    }

    /// While the home shard is away another shard's word counts where all types are PostgreSQL's own: those of users have other
    /// numbers there. It is not kept, since tables have other numbers too.
    async fn describe_without_home(
        &mut self,
        home: &Arc<Shard>,
        statement: &Arc<Statement>,
        reason: PgError,
    ) -> Result<Arc<Description>, Failure> {
        for shard in self.shards_beside(home.id) {
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

/// Where the home shard is asked without the client's knowledge.
pub(in crate::session) enum Aside {
    /// The transaction's own connection: its place among the participants.
    Inside(usize),
    /// The connection of the temporary tables, outside of a transaction.
    Kept(usize),
    Outside(Pooled),
}

async fn run_own(connection: &mut Connection, sql: &str) -> Result<(), Failure> {
    connection
        .simple(&Own::Transaction.text(sql))
        .await
        .map(drop)
        .map_err(|error| Failure::Error(crate::session::lost("home", &error)))
}

pub(in crate::session) fn is_away(error: &PgError) -> bool {
    matches!(error.code, SqlState::CANNOT_CONNECT_NOW | SqlState::CONNECTION_FAILURE)
}

/// Parse (unless the connection has it), Describe, Sync.
pub(in crate::session) async fn describe_on(
    connection: &mut Connection,
    statement: &Statement,
    prepared_max: usize,
) -> Result<Description, Failure> {
    prepare_on(connection, statement, false, prepared_max);
    connection.output.describe_statement(StatementName::Registered(statement.id));
    connection.output.sync();
    match read_description(connection).await.map_err(|error| Failure::Error(crate::session::lost("home", &error)))? {
        Ok(description) => {
            connection.prepared.note_columns(statement.id, description.columns());
            Ok(description)
        }
        Err(refusal) => {
            connection.prepared.doubt(statement.id);
            Err(Failure::Shard(refusal))
        }
    }
}

/// The same of a text without parameters that is not to stay there, by the home shard's oids. The inner error: the shard's refusal.
pub(in crate::session) async fn describe_unnamed_on(
    connection: &mut Connection,
    text: &[u8],
) -> Result<Result<Description, Bytes>, ConnectionError> {
    connection.output.parse_only(StatementName::Unnamed, text, &[]);
    connection.output.describe_statement(StatementName::Unnamed);
    connection.output.sync();
    connection.unnamed = None;
    let described = read_description(connection).await?;
    Ok(described.map(|described| {
        let rows = described.rows.map(|rows| {
            let mut rows = BytesMut::from(&rows[..]);
            connection.oids.translate(&mut rows);
            rows.freeze()
        });
        Description::new(described.parameter_types, rows)
    }))
}

/// Read here, not by the relay: nothing of it goes to the client as it comes.
async fn read_description(connection: &mut Connection) -> Result<Result<Description, Bytes>, ConnectionError> {
    connection.pending.clear();
    let mut description = Description::default();
    let mut refusal = None;
    loop {
        let (tag, body) = connection.next_frame().await?;
        match tag {
            shard_tag::PARAMETER_DESCRIPTION => description.parameter_types = parameter_types(&body)?,
            shard_tag::ROW_DESCRIPTION => description.rows = Some(body),
            shard_tag::ERROR => refusal = Some(error_frame(&body)),
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return Ok(refusal.map_or(Ok(description), Err));
            }
            _ => {}
        }
    }
}

/// Puts a Parse before what follows when the connection does not have the statement.
pub(in crate::session) fn prepare_on(
    connection: &mut Connection,
    statement: &Statement,
    is_visible: bool,
    prepared_max: usize,
) -> bool {
    if connection.prepared.has(statement.id) {
        return false;
    }
    for unwanted in connection.prepared.insert(statement.id, prepared_max) {
        connection.output.close_statement(StatementName::Registered(unwanted));
        connection.expect(Reply::CloseStatement(unwanted), false);
    }
    let types = connection.oids.types_there(&statement.key.types);
    connection.output.parse_only(StatementName::Registered(statement.id), &statement.key.text, &types);
    connection.expect(Reply::Parse(statement.id), is_visible);
    true
}

/// The body of a ParameterDescription.
pub(in crate::session) fn parameter_types(body: &[u8]) -> Result<Vec<u32>, DecodeError> {
    let mut reader = Reader::new(body);
    let count = reader.count()?;
    (0..count).map(|_| reader.u32()).collect()
}

/// A relation or function of the schema `shardgate`, which the home shard does not know.
fn misses_own_name(failure: &Failure) -> bool {
    let Failure::Shard(frame) = failure else { return false };
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    wire::error_fields(body)
        .is_ok_and(|fields| matches!(fields.sqlstate(), Some(b"42P01" | b"42883")) && fields.message().contains(OWN_SCHEMA_PREFIX))
}

/// Before the name of a relation or function that only the proxy knows.
const OWN_SCHEMA_PREFIX: &str = "shardgate.";

pub(in crate::session) fn error_frame(body: &[u8]) -> Bytes {
    frame(shard_tag::ERROR, body)
}

pub(in crate::session) fn frame(tag: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(body.len() + FRAME_HEADER_BYTES);
    frame.put_u8(tag);
    frame.put_u32(u32::try_from(body.len() + 4).unwrap_or(u32::MAX));
    frame.put_slice(body);
    frame.freeze()
}

/// Writes a RowDescription with these result formats: none is text, one is for all columns, else one each. `rows`: its body.
/// On an error nothing is written.
pub(in crate::session) fn put_with_formats(out: &mut BytesMut, rows: &[u8], formats: &[u8]) -> Result<(), PgError> {
    let length = u32::try_from(rows.len() + 4).map_err(|error| PgError::internal(error.to_string()))?;
    let before = out.len();
    out.put_u8(shard_tag::ROW_DESCRIPTION);
    out.put_u32(length);
    let start = out.len();
    out.extend_from_slice(rows);
    let mut codes = formats.chunks_exact(2);
    let all = if codes.len() == 1 { codes.next() } else { None };
    let changed = wire::for_each_column(out.get_mut(start..).unwrap_or_default(), |[.., high, low]| {
        (*high, *low) = (0, all.or_else(|| codes.next()).and_then(|code| code.get(1)).copied().unwrap_or(0));
    });
    changed.map_err(|error| {
        out.truncate(before);
        PgError::internal(format!("row description: {error}"))
    })
}

const SAVEPOINT: &str = "SAVEPOINT shardgate_aside";
const BACK: &str = "ROLLBACK TO SAVEPOINT shardgate_aside; RELEASE SAVEPOINT shardgate_aside";
/// It asks about the text of an error: that is told without it, too.
const BEGIN_IMPATIENT: &str = "BEGIN; SET LOCAL lock_timeout = '100ms'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_description_that_cannot_be_read_leaves_nothing_behind() {
        let whole = [&[0, 2][..], b"a\0", &[0; 18], b"b\0", &[0; 18]].concat();
        let mut out = BytesMut::from("before");
        for end in 0..whole.len() {
            assert!(put_with_formats(&mut out, &whole[..end], &[0, 1]).is_err(), "cut at {end}");
            assert_eq!(&out[..], b"before", "cut at {end}");
        }
        put_with_formats(&mut out, &whole, &[0, 1]).expect("written");
        assert!(out.starts_with(b"beforeT") && out.ends_with(&[0, 1]));
    }
}
