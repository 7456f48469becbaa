//! `SELECT … FOR UPDATE` and its kind over several shards: each row is locked where it is, and no other one.
//!
//! The locking query is a portal on each shard: PostgreSQL locks a row when it is fetched, so what is fetched decides what is
//! locked. The shards' connections are in one transaction, in the client's or in one of the statement's own.
//!
//! ```text
//!   no LIMIT          every row is locked: shard after shard, so that two such statements wait for each other on the first
//!                     shard and not crosswise
//!   LIMIT             the same query without locks says on which shards the first rows are; so many are fetched for locking
//!                     there, in their order. Where they stand at another place of it, since rows have changed in between or are
//!                     gone, all is taken back to a savepoint, and begun again
//!   LIMIT, SKIP       each shard's next row is locked under a savepoint of its own; the first of them in order counts, and
//!                     what is left over at the end is unlocked by going back to its savepoint
//! ```
//!
//! The two queries have plans of their own, which may give rows that are tied in another order: the answer is what was locked.
//!
//! With LIMIT the rows are kept until all are locked, within `cross_shard.merge_bytes_max`. What is skipped by OFFSET is
//! locked too, as in PostgreSQL.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::scatter::fragment_text;
use super::{ask, scatter};
use crate::backend::{ColumnsDigest, Own, StatementName};
use crate::error::{PgError, SqlState};
use crate::execute::{Next, Pieces, RowSink, Rows, Spec, without_last_columns};
use crate::routing::{Inputs, Reach};
use crate::session::cursor::Heard;
use crate::session::cursor::merged;
use crate::session::protocol::describe::{Description, prepare_on, put_with_formats};
use crate::session::protocol::statement::Statement;
use crate::session::protocol::told::check_columns;
use crate::session::transaction::participant::Participant;
use crate::session::writes::staged;
use crate::session::writes::staged::Asked;
use crate::session::{Failure, Session};
use crate::sql::analysis::{Analysis, Fragment, LockWait, Locking, Merge, Splice};
use crate::sql::rewrite::staging::StageKind;
use crate::wire::{self, FieldDescription, originate};

/// The statement as it runs on the shards.
struct Plan {
    reach: Reach,
    /// With locks.
    locking: Statement,
    /// Without; what is first.
    guide: Option<Statement>,
    wait: LockWait,
    spec: Spec,
    /// What the client was told of its columns.
    told: ColumnsDigest,
    /// Of the client's parameters: the rest of a Bind of their values.
    values: Vec<u8>,
    /// The rest of a Bind of nothing with the formats of the fragments' rows.
    formats: Vec<u8>,
    codes: Vec<i16>,
    /// What the client is told before the first row, when all shards have their snapshots; empty: nothing.
    described: BytesMut,
    number: u64,
}

/// Outside of a transaction the statement is one by itself.
pub(in crate::session) async fn lock_rows_alone(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    reach: &Reach,
) -> Result<(), Failure> {
    let begins_here = !session.transaction.is_open();
    if begins_here {
        session.begin_one_statement();
    }
    let locked = Box::pin(lock_rows(session, statement, bind, reach, true)).await;
    session.end_one_statement(begins_here, locked).await
}

/// In the transaction that is open. `describes`: the simple protocol.
pub(in crate::session) async fn lock_rows(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    reach: &Reach,
    describes: bool,
) -> Result<(), Failure> {
    let description = session.describe(statement).await?;
    let mut plan = lock_plan(session, statement, bind, reach, &description).await?;
    if describes {
        let rows = description.rows.as_deref().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
        put_with_formats(&mut plan.described, rows, bind.result_formats)?;
    }
    let count = match (plan.spec.limit, plan.wait) {
        (Rows::Known(0), _) => put_locked(session, &plan, Vec::new()).await?,
        (Rows::Known(limit), LockWait::Skip) => lock_first_free(session, &plan, limit).await?,
        (Rows::Known(limit), LockWait::Wait | LockWait::Error) => lock_first(session, &plan, limit).await?,
        (Rows::Unsaid, _) => lock_all(session, &plan).await?,
        (Rows::Column(_), _) => return Err(PgError::internal("LIMIT that is not known").into()),
    };
    originate::command_complete(session.client.buffer(), &format!("SELECT {count}"));
    Ok(())
}

/// In the extended protocol: outside of a transaction, the pipeline is one up to Sync.
pub(in crate::session) async fn lock_rows_bound(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    reach: &Reach,
) -> Result<(), Failure> {
    if !session.transaction.is_open() {
        session.begin_for_pipeline();
    }
    Box::pin(lock_rows(session, statement, bind, reach, false)).await
}

async fn lock_plan(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    reach: &Reach,
    description: &Description,
) -> Result<Plan, Failure> {
    let types = description.parameter_types.as_slice();
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement locked"))?;
    let merge = analysis.merge.clone()?;
    let locking = merge.locking.clone().ok_or_else(|| PgError::internal("a statement without locks"))?;
    let mut spec = scatter::spec(session, &merge, &Inputs::bound(statement.text(), &statement.literals, bind, types))?;
    compute_counts(session, &mut spec, &locking, &Asked::Bound { bind, description }).await?;
    if matches!(spec.limit, Rows::Column(_)) || matches!(spec.offset, Rows::Column(_)) {
        return Err(PgError::unsupported(
            "row locks with this LIMIT or OFFSET are not supported across shards",
            "It is an expression, whose value is not known before a row is locked.",
            "Compute the number first and pass it.",
        )
        .into());
    }
    let has_limit = matches!(spec.limit, Rows::Known(_));
    let make = |session: &Session, text: String| session.fragment_of_text(statement, text, types, reach);
    let guide = match has_limit && locking.wait != LockWait::Skip {
        true => {
            let text = text_without_locks(analysis, &merge, &locking, statement.text());
            let text = session.with_instant(text, reach.shards()).await?;
            Some(make(session, text)?)
        }
        false => None,
    };
    let text = session.with_instant(fragment_text(analysis, &merge, statement.text()), reach.shards()).await?;
    let fragment = make(session, text)?;
    let rows = description.rows.as_deref().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let columns = wire::row_description(rows).map_err(|error| PgError::internal(format!("row description: {error}")))?.len();
    let codes = codes(bind.result_formats, columns, merge.hidden_columns);
    let mut formats = vec![0, 0, 0, 0];
    formats.extend(u16::try_from(codes.len()).unwrap_or(u16::MAX).to_be_bytes());
    codes.iter().for_each(|code| formats.extend(code.to_be_bytes()));
    Ok(Plan {
        reach: reach.clone(),
        locking: fragment,
        guide,
        wait: locking.wait,
        spec,
        told: description.columns(),
        values: bind.with_result_formats(&[]),
        formats,
        codes,
        described: BytesMut::new(),
        number: session.open_cursors.number(),
    })
}

/// LIMIT and OFFSET that are expressions, evaluated once.
async fn compute_counts(session: &mut Session, spec: &mut Spec, locking: &Locking, asked: &Asked<'_>) -> Result<(), Failure> {
    // In this order PostgreSQL looks at them.
    for (rows, expression, name, code) in
        [(&mut spec.offset, &locking.offset, "OFFSET", b"2201X"), (&mut spec.limit, &locking.limit, "LIMIT", b"2201W")]
    {
        let (Rows::Column(_), Some(expression)) = (&rows, expression) else { continue };
        let query = format!("SELECT ({expression})::pg_catalog.int8");
        let query = staged::with_values_of(session, asked, &[query.as_str()]).await?.concat();
        let answer = Box::pin(staged::answer_query(session, &query, &StageKind::Source)).await?;
        let value = answer.rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        *rows = match value.map(|value| value.parse::<i64>()) {
            None => Rows::Unsaid,
            Some(Ok(count)) => Rows::Known(
                u64::try_from(count).map_err(|_| PgError::new(SqlState(*code), format!("{name} must not be negative")))?,
            ),
            Some(Err(error)) => return Err(PgError::internal(error.to_string()).into()),
        };
    }
    Ok(())
}

/// Portals on every shard, and a savepoint before them where it may be needed. Columns of the fragments' rows.
async fn open_locks(session: &mut Session, plan: &Plan, has_savepoint: bool) -> Result<Vec<FieldDescription>, Failure> {
    let prepared_max = session.gateway.prepared_max();
    for shard in plan.reach.shards() {
        ask::join_clean(session, *shard).await?;
    }
    for participant in session.transaction.on_all(plan.reach.shards()) {
        if has_savepoint {
            put_command(participant, STATEMENT_SAVEPOINT);
        }
        let guide = plan.guide.as_ref().map(|guide| (guide, plan.guide_portal()));
        for (statement, portal) in std::iter::once((&plan.locking, plan.portal())).chain(guide) {
            let connection = &mut *participant.connection;
            prepare_on(connection, statement, false, prepared_max);
            let there = connection.oids.bind_there(&statement.key.types, &plan.values);
            let text = statement.text_for(&plan.reach)?;
            connection.output.bind(portal.as_bytes(), StatementName::Registered(statement.id), &text, &there);
        }
        let connection = &mut *participant.connection;
        // The answers are read here, up to ReadyForQuery.
        connection.pending.clear();
        connection.output.describe_portal(plan.portal().as_bytes());
        connection.output.sync();
    }
    match merged::hear_all(session, plan.reach.shards()).await {
        Ok(heard) => {
            check_columns(&heard, plan.spec.hidden_columns, plan.told)?;
            Ok(heard.into_iter().next().map(|heard| heard.columns).unwrap_or_default())
        }
        Err(failure) => {
            for participant in session.transaction.on_all(plan.reach.shards()) {
                participant.connection.prepared.doubt(plan.locking.id);
                if let Some(guide) = &plan.guide {
                    participant.connection.prepared.doubt(guide.id);
                }
            }
            Err(failure)
        }
    }
}

fn lock_pieces(plan: &Plan, spec: Spec, columns: Vec<FieldDescription>) -> Result<Pieces, PgError> {
    let mut pieces = Pieces::new(spec, columns, plan.reach.shards().len()).map_err(|error| error.told())?;
    pieces.set_formats(plan.codes.iter().copied());
    Ok(pieces)
}

/// Fetches from one shard's portal. `commands`: before it.
async fn fetch_locks(session: &mut Session, plan: &Plan, input: usize, fetch: LockFetch<'_>) -> Result<Vec<Bytes>, Failure> {
    let shard = *plan.reach.shards().get(input).ok_or_else(|| PgError::internal("a shard is gone"))?;
    let index = session.join(shard).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    fetch.before.iter().for_each(|command| put_command(participant, command));
    let out = &mut participant.connection.output;
    if fetch.rows > 0 {
        let text = format!("FETCH FORWARD {} FROM \"{}\"", fetch.rows, fetch.portal);
        let text = Own::Cursor.text(&text);
        out.parse(StatementName::Unnamed, &text, &[]);
        out.bind(b"", StatementName::Unnamed, &text, &plan.formats);
        out.execute(b"", 0);
    }
    out.sync();
    participant.connection.unnamed = None;
    Ok(merged::hear_all(session, &[shard]).await?.pop().map(|heard: Heard| heard.rows).unwrap_or_default())
}

/// Every row.
async fn lock_all(session: &mut Session, plan: &Plan) -> Result<u64, Failure> {
    let columns = open_locks(session, plan, false).await?;
    session.client.buffer().extend_from_slice(&plan.described);
    let mut pieces = lock_pieces(plan, plan.spec.clone(), columns)?;
    let portal = plan.portal();
    let mut count = 0;
    loop {
        match pieces.next(u64::MAX).map_err(|error| error.told())? {
            Next::Row(row) => {
                count += 1;
                session.client.buffer().extend_from_slice(&row);
                if session.client.buffer().len() >= OUTPUT_BYTES {
                    session.client.send().await?;
                }
            }
            Next::Needs(needs) => {
                for need in needs {
                    let fetch = LockFetch { before: &[], portal: &portal, rows: need.rows };
                    let rows = fetch_locks(session, plan, need.input, fetch).await?;
                    let has_ended = (rows.len() as u64) < u64::from(need.rows);
                    pieces.take(need.input, rows, has_ended).map_err(|error| error.told())?;
                }
            }
            Next::LastStep(_) | Next::Unranked(_) => return Err(PgError::internal("groups of locked rows").into()),
            Next::End => break,
        }
    }
    close_locks(session, plan);
    Ok(count)
}

/// The first rows, waiting for those that others hold, or not at all.
async fn lock_first(session: &mut Session, plan: &Plan, limit: u64) -> Result<u64, Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let columns = open_locks(session, plan, true).await?;
        match lock_as_guided(session, plan, limit, columns).await? {
            Some(rows) => {
                end_savepoints(session, plan, &[RELEASE_STATEMENT]).await?;
                close_locks(session, plan);
                return put_locked(session, plan, rows).await;
            }
            None => end_savepoints(session, plan, &[BACK_TO_STATEMENT, RELEASE_STATEMENT]).await?,
        }
    }
    Err(PgError::new(SqlState::SERIALIZATION_FAILURE, "could not lock the first rows, which keep changing")
        .with_hint("Retry the transaction.")
        .into())
}

/// `None`: what was locked is not at the places of what was seen.
async fn lock_as_guided(
    session: &mut Session,
    plan: &Plan,
    limit: u64,
    columns: Vec<FieldDescription>,
) -> Result<Option<Vec<Bytes>>, Failure> {
    let mut room = room(session);
    let spec = Spec {
        limit: Rows::Known(limit.saturating_add(plan.skipped())),
        offset: Rows::Unsaid,
        hidden_columns: 0,
        ..plan.spec.clone()
    };
    let mut pieces = lock_pieces(plan, spec, columns)?;
    let (portal, guide) = (plan.portal(), plan.guide_portal());
    let mut locked = Vec::new();
    // Rows of one shard that follow each other, to be locked at once.
    let mut run: (usize, Vec<Bytes>) = (0, Vec::new());
    loop {
        let next = pieces.next(u64::MAX).map_err(|error| error.told())?;
        let is_over = matches!(next, Next::End);
        if let Next::Needs(needs) = &next {
            for need in needs {
                let fetch = LockFetch { before: &[], portal: &guide, rows: need.rows };
                let rows = fetch_locks(session, plan, need.input, fetch).await?;
                let has_ended = (rows.len() as u64) < u64::from(need.rows);
                pieces.take(need.input, rows, has_ended).map_err(|error| error.told())?;
            }
            continue;
        }
        if let Next::Row(row) = &next
            && (run.1.is_empty() || run.0 == pieces.origin() && run.1.len() < RUN_MAX)
        {
            run.0 = pieces.origin();
            run.1.push(row.clone());
            continue;
        }
        if !run.1.is_empty() {
            let (input, seen) = std::mem::take(&mut run);
            let rows = u32::try_from(seen.len()).unwrap_or(u32::MAX);
            let fetch = LockFetch { before: &[], portal: &portal, rows };
            let rows = fetch_locks(session, plan, input, fetch).await?;
            if !are_at_places_of(&seen, &rows, &pieces)? {
                return Ok(None);
            }
            rows.iter().try_for_each(|row| room.take(row.len()))?;
            locked.extend(rows);
        }
        match next {
            Next::Row(row) => run = (pieces.origin(), vec![row]),
            Next::LastStep(_) | Next::Unranked(_) => return Err(PgError::internal("groups of locked rows").into()),
            Next::Needs(_) | Next::End => {}
        }
        if is_over {
            return Ok(Some(locked));
        }
    }
}

/// The first rows that nobody else has locked.
async fn lock_first_free(session: &mut Session, plan: &Plan, limit: u64) -> Result<u64, Failure> {
    let mut room = room(session);
    let columns = open_locks(session, plan, false).await?;
    let wanted = limit.saturating_add(plan.skipped());
    let spec = Spec { limit: Rows::Known(wanted), offset: Rows::Unsaid, hidden_columns: 0, ..plan.spec.clone() };
    let mut pieces = lock_pieces(plan, spec, columns)?;
    let portal = plan.portal();
    let mut locked = Vec::new();
    let mut held = vec![Held::Nothing; plan.reach.shards().len()];
    loop {
        // One row at a time of each shard: whatever is not taken is unlocked again.
        match pieces.next(1).map_err(|error| error.told())? {
            Next::Row(row) => {
                room.take(row.len())?;
                locked.push(row);
                if let Some(held) = held.get_mut(pieces.origin()) {
                    *held = Held::Taken;
                }
            }
            Next::Needs(needs) => {
                for need in needs {
                    if !pieces.lacks_row(need.input) {
                        continue;
                    }
                    let state = held.get_mut(need.input).map(|state| std::mem::replace(state, Held::Untaken));
                    let before: &[&str] = match state {
                        Some(Held::Taken) => &[RELEASE_ROW, ROW_SAVEPOINT],
                        Some(Held::Untaken | Held::Nothing) | None => &[ROW_SAVEPOINT],
                    };
                    let rows = fetch_locks(session, plan, need.input, LockFetch { before, portal: &portal, rows: 1 }).await?;
                    let has_ended = rows.is_empty();
                    pieces.take(need.input, rows, has_ended).map_err(|error| error.told())?;
                }
            }
            Next::LastStep(_) | Next::Unranked(_) => return Err(PgError::internal("groups of locked rows").into()),
            Next::End => break,
        }
    }
    for (input, state) in held.into_iter().enumerate() {
        let before: &[&str] = match state {
            Held::Nothing => continue,
            Held::Taken => &[RELEASE_ROW],
            Held::Untaken => &[BACK_TO_ROW, RELEASE_ROW],
        };
        fetch_locks(session, plan, input, LockFetch { before, portal: &portal, rows: 0 }).await?;
    }
    close_locks(session, plan);
    put_locked(session, plan, locked).await
}

async fn end_savepoints(session: &mut Session, plan: &Plan, commands: &[&str]) -> Result<(), Failure> {
    for input in 0..plan.reach.shards().len() {
        fetch_locks(session, plan, input, LockFetch { before: commands, portal: "", rows: 0 }).await?;
    }
    Ok(())
}

fn close_locks(session: &mut Session, plan: &Plan) {
    merged::close_portals(session, &plan.portal(), plan.reach.shards());
    if plan.guide.is_some() {
        merged::close_portals(session, &plan.guide_portal(), plan.reach.shards());
    }
}

/// Those that OFFSET leaves out are locked, and not shown.
async fn put_locked(session: &mut Session, plan: &Plan, rows: Vec<Bytes>) -> Result<u64, Failure> {
    session.client.buffer().extend_from_slice(&plan.described);
    let mut count = 0;
    let skipped = usize::try_from(plan.skipped()).unwrap_or(usize::MAX);
    for row in rows.into_iter().skip(skipped) {
        count += 1;
        let row = without_last_columns(row, plan.spec.hidden_columns);
        session.client.buffer().extend_from_slice(&row);
        if session.client.buffer().len() >= OUTPUT_BYTES {
            session.client.send().await?;
        }
    }
    Ok(count)
}

fn room(session: &Session) -> Room {
    let bytes_max = session.gateway.config.cross_shard.merge_bytes_max;
    Room { left: usize::try_from(bytes_max).unwrap_or(usize::MAX), bytes_max }
}

impl Plan {
    fn portal(&self) -> String {
        format!("shardgate_lock_{}", self.number)
    }

    fn guide_portal(&self) -> String {
        format!("shardgate_first_{}", self.number)
    }

    fn skipped(&self) -> u64 {
        match self.spec.offset {
            Rows::Known(offset) => offset,
            Rows::Unsaid | Rows::Column(_) => 0,
        }
    }
}

/// What one shard is asked.
struct LockFetch<'a> {
    /// Commands that come first.
    before: &'a [&'a str],
    portal: &'a str,
    /// 0: none is fetched.
    rows: u32,
}

/// The row that a shard has locked last, under its savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// It may have to be unlocked again.
    Untaken,
    /// It is one of the statement's.
    Taken,
}

/// For the rows that are kept.
struct Room {
    left: usize,
    bytes_max: u64,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), PgError> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let message = format!("the locked rows of the statement take more than {} bytes", self.bytes_max);
                Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                    .with_detail("The limit is cross_shard.merge_bytes_max.")
                    .with_hint("Lock fewer rows at a time, or raise the limit."))
            }
        }
    }
}

/// They are as many, and each sorts as the one that was seen.
fn are_at_places_of(seen: &[Bytes], locked: &[Bytes], pieces: &Pieces) -> Result<bool, PgError> {
    for (seen, locked) in seen.iter().zip(locked) {
        if !pieces.are_tied(seen, locked).map_err(|error| error.told())? {
            return Ok(false);
        }
    }
    Ok(seen.len() == locked.len())
}

fn put_command(participant: &mut Participant, command: &str) {
    let out = &mut participant.connection.output;
    let text = Own::Transaction.text(command);
    out.parse(StatementName::Unnamed, &text, &[]);
    out.bind(b"", StatementName::Unnamed, &text, originate::BIND_NOTHING);
    out.execute(b"", 0);
    participant.connection.unnamed = None;
}

/// What the shards run to see which rows are first.
fn text_without_locks(analysis: &Analysis, merge: &Merge, locking: &Locking, text: &str) -> String {
    let mut splices = merge.fragment.as_ref().map(|fragment| fragment.splices.clone()).unwrap_or_default();
    splices.extend(locking.clauses.iter().map(|clause| Splice { start: clause.start, end: clause.end, text: String::new() }));
    splices.sort_by_key(|splice| splice.start);
    Fragment { splices }.of(text, analysis.start..analysis.end)
}

/// One format code for each column of the fragments' rows.
fn codes(formats: &[u8], visible: usize, hidden: usize) -> Vec<i16> {
    let code = |column: usize| match formats.len() / 2 {
        0 => 0,
        1 => formats.get(1).copied().unwrap_or(0),
        _ if column >= visible => 0,
        _ => formats.get(column * 2 + 1).copied().unwrap_or(0),
    };
    (0..visible + hidden).map(|column| i16::from(code(column))).collect()
}

/// What a locking statement over several shards cannot be combined with.
pub(in crate::session) fn no_cursor() -> PgError {
    PgError::unsupported(
        "a cursor or row limit with row locks over several shards is not supported",
        "Rows are locked before the client asks for them.",
        "Use LIMIT, or fetch the whole result (a fetch size of 0).",
    )
}

const STATEMENT_SAVEPOINT: &str = "SAVEPOINT shardgate_lock_rows";
const BACK_TO_STATEMENT: &str = "ROLLBACK TO SAVEPOINT shardgate_lock_rows";
const RELEASE_STATEMENT: &str = "RELEASE SAVEPOINT shardgate_lock_rows";
const ROW_SAVEPOINT: &str = "SAVEPOINT shardgate_lock_row";
const BACK_TO_ROW: &str = "ROLLBACK TO SAVEPOINT shardgate_lock_row";
const RELEASE_ROW: &str = "RELEASE SAVEPOINT shardgate_lock_row";
/// How often the first rows may turn out to be others.
const ATTEMPTS_MAX: usize = 100;
/// Rows that are locked in one trip.
const RUN_MAX: usize = 256;
/// Rows are handed on in pieces of this size.
const OUTPUT_BYTES: usize = 32 * 1024;
