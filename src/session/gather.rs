//! Statements that PostgreSQL computes over gathered rows: connections, limits, and what their errors mean to the client.
//!
//! The scratch session and the shards' fragments have connections of their own, never the transaction's: a connection that has
//! touched a temporary table cannot prepare a commit. They go back to their pools when their part is over; on an error those
//! that are in the middle of something are cancelled and closed.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::elsewhere::with_shard_named;
use super::statement::Statement;
use super::{Failure, Session, SessionEnd, lost};
use crate::backend::{Checkout, Pooled};
use crate::error::{PgError, SqlState};
use crate::execute::gather::{self, Final, GatherError, Part, RIGHTS_OFFSET, Script, Side, Stage};
use crate::plan::Gathering;
use crate::sql::analysis::{Analysis, Splice};
use crate::wire;

/// The client's statement as it is to be answered.
struct Asked<'a> {
    gathering: &'a Gathering,
    /// The statement alone.
    text: &'a str,
    /// Characters of the client's text before it.
    lead: usize,
    bind: wire::Bind<'a>,
    /// The simple protocol.
    describes: bool,
}

/// The connections of one gathering.
struct Hands {
    scratch: Pooled,
    /// With the names of their shards.
    parts: Vec<(String, Pooled)>,
}

impl Session {
    /// A statement of the simple protocol.
    pub(super) async fn gather_text(&mut self, gathering: &Gathering, statement: &Analysis, text: &str) -> Result<(), Failure> {
        let alone = statement.alone(text);
        let lead = text.get(..statement.start).map_or(0, |before| before.chars().count());
        let prepared = self.prepare(alone.as_bytes(), Box::default()).await?;
        // An empty portal, an empty statement name, no parameters, results in text.
        let bind = wire::bind(BIND).map_err(|error| PgError::internal(error.to_string()))?;
        self.gather(&prepared, Asked { gathering, text: alone, lead, bind, describes: true }).await
    }

    /// Execute of a portal.
    pub(super) async fn gather_bound(
        &mut self,
        statement: &Arc<Statement>,
        bind: &Bytes,
        gathering: &Gathering,
        row_limit: i32,
    ) -> Result<(), Failure> {
        if row_limit > 0 {
            return Err(PgError::unsupported(
                "a row limit on a result of several shards is not supported",
                "Execute asked for part of the rows, and the rest would have to be kept.",
                "Fetch the whole result (a fetch size of 0), or limit it by LIMIT.",
            )
            .into());
        }
        let bind = wire::bind(bind).map_err(SessionEnd::from)?;
        let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement gathered"))?;
        let text = analysis.alone(statement.text());
        let lead = statement.text().get(..analysis.start).map_or(0, |before| before.chars().count());
        self.gather(statement, Asked { gathering, text, lead, bind, describes: false }).await
    }

    async fn gather(&mut self, statement: &Arc<Statement>, asked: Asked<'_>) -> Result<(), Failure> {
        let description = match self.describe(statement).await {
            Ok(description) => description,
            Err(Failure::Shard(frame)) => return Err(Failure::Shard(moved(&frame, |position| position + asked.lead))),
            Err(failure) => return Err(failure),
        };
        let rows = description.rows.as_deref().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
        let columns = wire::row_description(rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
        let home = self.home()?;
        let has_home = asked.gathering.shards.contains(&home.id);
        let lock_timeout_ms = self.transaction.is_open().then_some(LOCK_TIMEOUT_MS);
        let recipe = &asked.gathering.recipe;
        let script = Script::new(recipe, has_home, lock_timeout_ms);
        let mut hands = self.take_connections(&asked.gathering.shards).await?;
        let statement = Final {
            client_text: asked.text,
            text: &recipe.text,
            types: &description.parameter_types,
            after_names: asked.bind.after_names,
            result_formats: asked.bind.result_formats,
            columns: &columns,
            describes: asked.describes,
        };
        let run = self.run_gathering(&mut hands, &script, &statement).await;
        let ended = run.map_err(|error| self.gather_failure(error, &hands, &asked));
        self.give_back(hands, ended.is_ok()).await;
        ended
    }

    /// The scratch session, and a connection to each shard but home, whose rows the scratch session reads by itself.
    async fn take_connections(&mut self, shards: &[crate::shardmap::ShardId]) -> Result<Hands, Failure> {
        let home = self.home()?;
        let settings = self.settings_now();
        let scratch = self.checkout(&home, &settings).await?;
        let mut parts = Vec::with_capacity(shards.len());
        for id in shards.iter().filter(|id| **id != home.id) {
            let shard = self.gateway.shard(*id)?;
            // The scratch session is held meanwhile.
            let connection = self.checkout_as(Checkout::LateJoiner, &shard, &settings).await?;
            parts.push((shard.name.clone(), connection));
        }
        for connection in std::iter::once(&scratch).chain(parts.iter().map(|(_, connection)| connection)) {
            self.cancel.started(connection);
        }
        Ok(Hands { scratch, parts })
    }

    /// Loads and answers, before the client's deadline, as long as it is there.
    async fn run_gathering(&mut self, hands: &mut Hands, script: &Script, statement: &Final<'_>) -> Result<(), GatherError<Ended>> {
        let deadline = self.effective("statement_timeout").and_then(duration).map(|limit| Instant::now() + limit);
        let bytes_max = self.gateway.config.cross_shard.gather_bytes_max;
        let mut parts: Vec<Part<'_>> =
            hands.parts.iter_mut().map(|(_, connection)| Part::new(connection, &script.fragments)).collect();
        let client = &mut self.client;
        let loading = gather::load(&mut hands.scratch, &mut parts, script, statement, bytes_max);
        let watched = async {
            tokio::select! {
                biased;
                loaded = loading => loaded,
                end = poll_fn(|context| client.poll_gone(context)) => Err(GatherError::Gone(Ended::Session(end))),
            }
        };
        let loaded = before(deadline, watched).await?;
        tracing::debug!(bytes = loaded.bytes, shards = hands.parts.len() + 1, "rows gathered");
        for (_, connection) in hands.parts.drain(..) {
            release(&self.cancel, connection);
        }
        let answering = gather::answer(&mut hands.scratch, &script.finish, statement, &mut self.client);
        before(deadline, async { answering.await.map_err(in_session) }).await
    }

    fn gather_failure(&self, error: GatherError<Ended>, hands: &Hands, asked: &Asked<'_>) -> Failure {
        let name = |side: Side| match side {
            Side::Scratch => hands.scratch.pool().address.name.clone(),
            Side::Part(index) => hands.parts.get(index).map(|(name, _)| name.clone()).unwrap_or_default(),
        };
        match error {
            GatherError::Shard { side, stage, frame } => refused(side, stage, &frame, &name(side), asked),
            GatherError::Lost { side, error } => lost(&name(side), &error).into(),
            GatherError::TooLarge => {
                let limit = self.gateway.config.cross_shard.gather_bytes_max;
                let message = format!("statement needs more than {limit} bytes of rows of several shards");
                PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                    .with_detail("The limit is cross_shard.gather_bytes_max.")
                    .with_hint("Restrict the tables by conditions, or raise the limit.")
                    .into()
            }
            GatherError::Differs => PgError::unsupported(
                "this statement is not supported over the rows of several shards",
                "Over gathered rows its columns would be of other types or names.",
                "Name columns instead of whole rows, or cast them.",
            )
            .into(),
            GatherError::Gone(Ended::Session(end)) => end.into(),
            GatherError::Gone(Ended::Deadline) => {
                PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout").into()
            }
        }
    }

    /// Connections that are in the middle of something are told to stop, and closed.
    async fn give_back(&mut self, mut hands: Hands, is_done: bool) {
        if !is_done && gather::is_between_statements(&hands.scratch) {
            // An error here closes the connection, which ends the transaction too.
            if let Ok(Err(error)) = timeout(CANCEL_TIMEOUT, gather::roll_back(&mut hands.scratch)).await {
                tracing::debug!(%error, "scratch session not rolled back");
            }
        }
        for connection in std::iter::once(hands.scratch).chain(hands.parts.into_iter().map(|(_, connection)| connection)) {
            if !connection.is_clean()
                && let Some(handle) = &connection.cancel_handle
            {
                match timeout(CANCEL_TIMEOUT, handle.endpoint.cancel(&handle.key.bytes)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "cancel request not delivered"),
                    Err(_) => tracing::debug!("cancel request not delivered in time"),
                }
            }
            release(&self.cancel, connection);
        }
        self.cancel.finished();
    }
}

/// What ends a gathering from outside.
enum Ended {
    Session(SessionEnd),
    /// `statement_timeout`.
    Deadline,
}

fn in_session(error: GatherError<SessionEnd>) -> GatherError<Ended> {
    match error {
        GatherError::Gone(end) => GatherError::Gone(Ended::Session(end)),
        GatherError::Shard { side, stage, frame } => GatherError::Shard { side, stage, frame },
        GatherError::Lost { side, error } => GatherError::Lost { side, error },
        GatherError::TooLarge => GatherError::TooLarge,
        GatherError::Differs => GatherError::Differs,
    }
}

async fn before<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, GatherError<Ended>>>,
) -> Result<T, GatherError<Ended>> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.unwrap_or(Err(GatherError::Gone(Ended::Deadline))),
        None => work.await,
    }
}

fn release(cancel: &super::cancel::CancelTarget, mut connection: Pooled) {
    connection.is_cancel_pending |= cancel.was_sent_to(connection.process_id());
    connection.release();
}

/// What a shard's error means to the client, who knows nothing of temporary tables.
fn refused(side: Side, stage: Stage, frame: &Bytes, shard: &str, asked: &Asked<'_>) -> Failure {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let (sqlstate, message) = match wire::error_fields(body) {
        Ok(fields) => (fields.sqlstate().unwrap_or_default().to_vec(), fields.message()),
        Err(_) => (Vec::new(), String::new()),
    };
    let is_cancelled = sqlstate == SqlState::QUERY_CANCELED.0;
    let is_denied = sqlstate == SqlState::INSUFFICIENT_PRIVILEGE.0;
    match (side, stage) {
        _ if is_cancelled => Failure::Shard(frame.clone()),
        (_, Stage::Rights) => Failure::Shard(moved(frame, |position| (position + asked.lead).saturating_sub(RIGHTS_OFFSET))),
        (_, Stage::Tables) if is_denied => PgError::unsupported(
            "this statement needs temporary tables, which this user may not create",
            format!("It needs rows of several shards, which are brought together on the home shard. The shard said: {message}."),
            "Grant the privilege TEMPORARY on the home shard's database.",
        )
        .into(),
        (_, Stage::Load) if is_denied => PgError::unsupported(
            "rows of several shards cannot be brought together with this user's rights",
            format!("Shard \"{shard}\" said: {message}."),
            "Grant SELECT on the tables that the statement reads, on those below its views too.",
        )
        .into(),
        (Side::Scratch, Stage::Analysis) => PgError::unsupported(
            "this statement is not supported over the rows of several shards",
            format!("Over temporary tables that hold the rows, PostgreSQL says: {}.", without_names(&message)),
            "Restrict the statement to one shard key, or write it without whole rows.",
        )
        .into(),
        (Side::Part(_), _) => Failure::Shard(with_shard_named(frame, shard)),
        (Side::Scratch, Stage::Answer) => Failure::Shard(moved(frame, |position| asked.lead + original_position(position, asked))),
        (Side::Scratch, Stage::Tables | Stage::Load) => Failure::Shard(moved(frame, |_| 0)),
    }
}

/// Names of temporary tables are ours.
fn without_names(message: &str) -> String {
    message.replace("shardgate_input_", "rows ").replace("pg_temp.", "")
}

/// A position in the spliced text, in the client's; 0 for what the client has not written. Both count characters from 1.
fn original_position(position: usize, asked: &Asked<'_>) -> usize {
    let spliced = &asked.gathering.recipe.text;
    let Some((offset, _)) = spliced.char_indices().nth(position.saturating_sub(1)) else { return 0 };
    match original_offset(offset, &asked.gathering.recipe.splices) {
        Some(offset) => asked.text.get(..offset).map_or(0, |before| before.chars().count() + 1),
        None => 0,
    }
}

/// A byte offset in the spliced text, in the original; `None` inside of what was put in.
fn original_offset(offset: usize, splices: &[Splice]) -> Option<usize> {
    let (mut original, mut spliced) = (0, 0);
    for splice in splices {
        let kept = splice.start - original;
        if offset < spliced + kept {
            break;
        }
        spliced += kept + splice.text.len();
        original = splice.end;
        if offset < spliced {
            return None;
        }
    }
    Some(original + (offset - spliced))
}

/// The error with its position changed; 0 leaves it out. Without its context, which is about our own statements.
fn moved(frame: &Bytes, place: impl Fn(usize) -> usize) -> Bytes {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return frame.clone() };
    let mut out = Vec::with_capacity(body.len());
    for (code, value) in fields.iter() {
        let is_position = code == b'P';
        let position = std::str::from_utf8(value).ok().filter(|_| is_position).and_then(|text| text.parse().ok()).map(&place);
        if position == Some(0) {
            continue;
        }
        out.push(code);
        match position {
            Some(position) => out.extend_from_slice(position.to_string().as_bytes()),
            None => out.extend_from_slice(without_names(&String::from_utf8_lossy(value)).as_bytes()),
        }
        out.push(0);
    }
    out.push(0);
    super::describe::error_frame(&out)
}

/// A time as `SHOW` prints it: `0`, `1500ms`, `30s`, `2min`, `1h`, `1d`. `None`: no limit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let milliseconds = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.saturating_mul(milliseconds)))
}

/// A Bind of nothing to nothing, results in text.
const BIND: &[u8] = b"\0\0\0\0\0\0\0\0";
/// In a transaction block, other connections may wait for a lock of its own, which never ends.
const LOCK_TIMEOUT_MS: u64 = 10_000;
/// A shard that does not take a cancel request for so long is left to notice the closed connection.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_show_prints_it() {
        assert_eq!(duration("0"), None);
        assert_eq!(duration("1500ms"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
        assert_eq!(duration("soon"), None);
    }

    #[test]
    fn offsets_after_a_splice_are_moved_back_and_those_inside_are_none() {
        let splices = [Splice { start: 5, end: 8, text: "0123456789".to_owned() }];
        assert_eq!(original_offset(4, &splices), Some(4));
        assert_eq!(original_offset(5, &splices), None);
        assert_eq!(original_offset(14, &splices), None);
        assert_eq!(original_offset(15, &splices), Some(8));
        assert_eq!(original_offset(20, &splices), Some(13));
    }
}
