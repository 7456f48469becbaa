//! Fills the temporary tables: what the shards send goes to the scratch session frame by frame, undecoded.
//!
//! One row is one CopyData message, so the messages of several shards may alternate in one COPY. Memory: what one read of each
//! shard brings, the buffer towards the scratch session, and one row where it is larger.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use super::script::{Columns, Fragments, Script, TableLoad};
use super::{Final, GatherError, Side, Stage, error_frame, note};
use crate::backend::{Connection, ConnectionError, Frame, Output, Own, Reply, ShardText};
use crate::sql::gather::{Found, KnownKeys};
use crate::sql::residues::Covered;
use crate::wire::{self, FRAME_HEADER_BYTES, shard_tag};

/// A shard that sends rows.
pub struct Part<'a> {
    connection: &'a mut Connection,
    fragments: &'a Fragments,
    /// How many of its inputs have ended.
    done: usize,
    is_ready: bool,
}

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Of COPY data, and of the home shard's own rows on its disk.
    pub bytes: u64,
    /// By input, then by side.
    pub fragments: BTreeMap<(usize, Side), Sent>,
    /// By which later inputs were restricted.
    pub keys: KnownKeys,
    /// Of inputs whose rows were sent to the shards, as SQL.
    pub rows: BTreeMap<String, Found>,
}

/// What one side has sent for one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub rows: u64,
    pub bytes: u64,
    /// Since it was asked, until the last row was there.
    pub elapsed: Duration,
}

impl<'a> Part<'a> {
    pub fn new(connection: &'a mut Connection, fragments: &'a Fragments) -> Self {
        Self { connection, fragments, done: 0, is_ready: false }
    }

    /// Whether rows of this input may still come.
    fn is_sending(&self, input: usize) -> bool {
        self.fragments.serves.get(self.done..).is_some_and(|left| left.contains(&input))
    }
}

/// Makes the tables, proves that the statement means over them what it means to the home shard, and loads the rows. On an
/// error the connections are in the middle of something. Not cancel safe.
pub async fn load<G>(
    scratch: &mut Connection,
    parts: &mut [Part<'_>],
    script: &Script,
    statement: &Final<'_>,
    bytes_max: u64,
) -> Result<Loaded, GatherError<G>> {
    // Every shard takes its snapshot before the first row is read.
    let texts = parts.iter().map(|part| statement.covered(part.fragments.text.clone()));
    let texts: Vec<Covered> = texts.collect::<Result<_, _>>()?;
    for (part, text) in parts.iter_mut().zip(&texts) {
        part.connection.output.query(&ShardText::covered(text));
        part.connection.unnamed = None;
        // Until its last answer has been read it is nobody else's.
        part.connection.expect(Reply::Query, false);
        part.connection.send().await;
    }
    prepare(scratch, script, statement).await?;
    let mut feed = Feed { scratch, parts, statement, loaded: Loaded::default(), asked_at: Instant::now(), bytes_max };
    let last = script.loads.iter().map(|table| table.round).max().unwrap_or(0);
    for round in 0..=last {
        feed.round(script, round, round == last).await?;
    }
    let indexes: String = script.loads.iter().map(|table| table.indexes.as_str()).collect();
    if feed.loaded.bytes >= INDEX_BYTES_MIN && !indexes.is_empty() {
        feed.run(&indexes).await?;
    }
    if feed.loaded.bytes >= ANALYZE_BYTES_MIN {
        // The small ones too: taken for a single row, one would have the others read again and again.
        let all = script.loads.iter().map(|table| table.analyze.as_str()).chain([LARGE]);
        feed.run(&all.collect::<Vec<_>>().join(";")).await?;
    }
    feed.read_to_end().await?;
    Ok(feed.loaded)
}

/// The scratch transaction up to the first row, in one trip.
async fn prepare<G>(scratch: &mut Connection, script: &Script, statement: &Final<'_>) -> Result<(), GatherError<G>> {
    scratch.output.query(&Own::Transaction.text(&script.begin));
    let mut stages = vec![Stage::Tables];
    if !statement.is_permitted {
        statement.put_rights(&mut scratch.output);
        stages.push(Stage::Rights);
    }
    scratch.output.query(&Own::OwnTables.text(&script.tables));
    statement.put_analysis(&mut scratch.output);
    scratch.output.query(&Own::Setting.text(&script.transport));
    scratch.unnamed = None;
    scratch.expect(Reply::Query, false);
    stages.extend([Stage::Tables, Stage::Analysis, Stage::Load]);
    let mut failure = None;
    let mut has_columns = false;
    for stage in stages {
        loop {
            let (tag, body) = next(scratch).await?;
            match tag {
                shard_tag::ERROR if failure.is_none() => {
                    failure = Some(GatherError::Shard { side: Side::Scratch, stage, frame: error_frame(&body) });
                }
                shard_tag::ROW_DESCRIPTION if stage == Stage::Analysis && failure.is_none() => {
                    has_columns = statement.describes_same(&body);
                }
                shard_tag::READY => break,
                _ => {}
            }
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None if !has_columns => Err(GatherError::Differs),
        None => Ok(()),
    }
}

async fn next<G>(scratch: &mut Connection) -> Result<(u8, Bytes), GatherError<G>> {
    let lost = |error| GatherError::Lost { side: Side::Scratch, error };
    let (tag, body) = scratch.next_frame().await.map_err(lost)?;
    note(scratch, tag, &body);
    Ok((tag, body))
}

struct Feed<'f, 'p> {
    scratch: &'f mut Connection,
    parts: &'f mut [Part<'p>],
    statement: &'f Final<'f>,
    loaded: Loaded,
    /// The shards were asked for what is loaded now.
    asked_at: Instant,
    bytes_max: u64,
}

impl Feed<'_, '_> {
    /// The tables of one round. In a later one the shards are asked for them first, with the keys of what has been loaded, in the
    /// same snapshots.
    async fn round<G>(&mut self, script: &Script, round: usize, is_last: bool) -> Result<(), GatherError<G>> {
        let tables: Vec<(usize, &TableLoad)> = script.loads.iter().enumerate().filter(|(_, table)| table.round == round).collect();
        for keys in tables.iter().flat_map(|(_, table)| table.keys()) {
            let is_loaded = |table: &TableLoad| table.round < round && table.is_of(keys);
            if !self.loaded.keys.contains_key(keys) && script.loads.iter().any(is_loaded) {
                let found = self.keys_of(&keys.query()).await?;
                self.loaded.keys.insert(keys.clone(), found);
            }
        }
        for brought in tables.iter().flat_map(|(_, table)| table.brought()) {
            match self.keys_of(&brought.query).await?.filter(|found| found.list.len() <= BROUGHT_TEXT_MAX) {
                Some(found) => self.loaded.rows.insert(brought.input.clone(), found),
                None => {
                    // The shards have sent all that was asked, and wait.
                    self.ask("", &[], true).await?;
                    self.read_to_end().await?;
                    return Err(GatherError::TooLarge);
                }
            };
        }
        let Loaded { keys, rows, .. } = &self.loaded;
        let queries: Vec<(usize, String)> = tables.iter().map(|(input, table)| (*input, table.query(keys, rows))).collect();
        if round > 0 {
            self.asked_at = Instant::now();
            let brings = |(_, table): &&(usize, &TableLoad)| !table.brought().is_empty();
            let first = match tables.iter().zip(&queries).find(|(table, _)| brings(table)) {
                Some((_, (_, query))) if self.is_better_without_nested_loops(query).await? => NO_NESTED_LOOPS,
                Some(_) | None => "",
            };
            self.ask(first, &queries, is_last).await?;
        }
        for ((input, table), (_, query)) in tables.iter().zip(&queries) {
            self.load(table, *input, query).await?;
        }
        Ok(())
    }

    /// One table. `query`: the home shard's own rows.
    async fn load<G>(&mut self, table: &TableLoad, input: usize, query: &str) -> Result<(), GatherError<G>> {
        if let Some(home) = table.home(query) {
            let (began_at, before) = (Instant::now(), self.loaded.bytes);
            let rows = self.run(&home).await?;
            let sent = Sent { rows, bytes: self.loaded.bytes - before, elapsed: began_at.elapsed() };
            self.loaded.fragments.insert((input, Side::Scratch), sent);
        }
        if self.parts.iter().any(|part| part.is_sending(input)) {
            self.table(table, input).await?;
        }
        match &table.combine {
            Some(combine) => self.run(combine).await.map(drop),
            None => Ok(()),
        }
    }

    /// Of constants PostgreSQL knows no statistics: it expects too few rows of joins with them, and a nested loop that is good for
    /// two rows is ruin for hundreds. A plan without them costs what it says. So it is preferred, unless it costs far more: then
    /// there is an index for a few rows of many.
    async fn is_better_without_nested_loops<G>(&mut self, query: &str) -> Result<bool, GatherError<G>> {
        let Some((index, part)) = self.parts.iter_mut().enumerate().find(|(_, part)| part.fragments.is_begun_only) else {
            return Ok(false);
        };
        let costs = part.costs(query).await.map_err(|failure| failure.at(index))?;
        tracing::debug!(?costs, "with nested loops and without");
        Ok(matches!(costs[..], [with, without] if without <= with * CERTAINTY_TIMES))
    }

    /// Each shard for what it serves of these inputs. `first`: a setting.
    async fn ask<G>(&mut self, first: &str, queries: &[(usize, String)], is_last: bool) -> Result<(), GatherError<G>> {
        for (index, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.fragments.is_begun_only) {
            let text = format!("{first}{}", part.fragments.round(queries, is_last));
            let text = self.statement.covered(text)?;
            part.read_to_end().await.map_err(|failure| failure.at(index))?;
            part.is_ready = false;
            part.connection.output.query(&ShardText::covered(&text));
            part.connection.expect(Reply::Query, false);
            part.connection.send().await;
        }
        Ok(())
    }

    async fn read_to_end<G>(&mut self) -> Result<(), GatherError<G>> {
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.read_to_end().await.map_err(|failure| failure.at(index))?;
        }
        Ok(())
    }

    /// `None` when they are too many.
    async fn keys_of<G>(&mut self, query: &str) -> Result<Option<Found>, GatherError<G>> {
        self.scratch.output.query(&ShardText::covered(&self.statement.covered(query.to_owned())?));
        let (mut keys, mut failure) = (None, None);
        loop {
            let (tag, body) = next(self.scratch).await?;
            match tag {
                shard_tag::ERROR => failure = Some(scratch_error(&body)),
                shard_tag::DATA_ROW => keys = found(&body),
                shard_tag::READY => return failure.map_or(Ok(keys), Err),
                _ => {}
            }
        }
    }

    /// A statement of the scratch session: the home shard's rows, which it copies by itself in its own snapshot. How many it has
    /// inserted.
    async fn run<G>(&mut self, text: &str) -> Result<u64, GatherError<G>> {
        self.scratch.output.query(&ShardText::covered(&self.statement.covered(text.to_owned())?));
        let (mut failure, mut inserted) = (None, 0);
        loop {
            let (tag, body) = next(self.scratch).await?;
            match tag {
                shard_tag::ERROR => {
                    failure = Some(GatherError::Shard { side: Side::Scratch, stage: Stage::Load, frame: error_frame(&body) });
                }
                shard_tag::DATA_ROW => self.count(size(&body))?,
                shard_tag::COMMAND_COMPLETE => inserted += inserted_by(&body),
                shard_tag::READY => return failure.map_or(Ok(inserted), Err),
                _ => {}
            }
        }
    }

    fn count<G>(&mut self, bytes: u64) -> Result<(), GatherError<G>> {
        self.loaded.bytes = self.loaded.bytes.saturating_add(bytes);
        if self.loaded.bytes > self.bytes_max { Err(GatherError::TooLarge) } else { Ok(()) }
    }

    /// One table, from all parts at once.
    async fn table<G>(&mut self, table: &TableLoad, input: usize) -> Result<(), GatherError<G>> {
        self.scratch.output.query(&Own::OwnTables.text(&table.copy));
        loop {
            let (tag, body) = next(self.scratch).await?;
            match tag {
                shard_tag::COPY_IN => break,
                shard_tag::ERROR => return Err(scratch_error(&body)),
                _ => {}
            }
        }
        loop {
            for index in 0..self.parts.len() {
                self.take(index, input)?;
            }
            self.check_scratch()?;
            if !self.parts.iter().any(|part| part.is_sending(input)) {
                break;
            }
            self.wait(input).await?;
        }
        self.scratch.output.copy_done();
        let mut failure = None;
        loop {
            let (tag, body) = next(self.scratch).await?;
            match tag {
                shard_tag::ERROR => failure = Some(scratch_error(&body)),
                shard_tag::READY => return failure.map_or(Ok(()), Err),
                _ => {}
            }
        }
    }

    /// Moves the rows of this input that have arrived from one part.
    fn take<G>(&mut self, index: usize, input: usize) -> Result<(), GatherError<G>> {
        let lost = |error| GatherError::Lost { side: Side::Part(index), error };
        let (mut moved, mut rows) = (0, 0);
        let Some(part) = self.parts.get_mut(index) else { return Ok(()) };
        while part.is_sending(input) && self.scratch.output.len() < OUTPUT_BYTES {
            let Some(Frame { header, is_complete }) = part.connection.peek().map_err(lost)? else { break };
            let is_row = header.tag == shard_tag::COPY_DATA;
            let size = u64::try_from(header.total).unwrap_or(u64::MAX);
            if is_row && self.loaded.bytes.saturating_add(moved).saturating_add(size) > self.bytes_max {
                return Err(GatherError::TooLarge);
            }
            if !is_complete {
                break;
            }
            if !is_row {
                part.consume(header.total).map_err(|failure| failure.at(index))?;
            } else if part.put_row(header.total, input, &mut self.scratch.output).map_err(lost)? {
                moved += size;
                rows += 1;
            }
        }
        let has_ended = !part.is_sending(input);
        let sent = self.loaded.fragments.entry((input, Side::Part(index))).or_default();
        sent.rows += rows;
        sent.bytes += moved;
        if has_ended && sent.elapsed.is_zero() {
            sent.elapsed = self.asked_at.elapsed();
        }
        self.count(moved)
    }

    /// An error of the scratch session in the middle of a COPY.
    fn check_scratch<G>(&mut self) -> Result<(), GatherError<G>> {
        let lost = |error| GatherError::Lost { side: Side::Scratch, error };
        while let Some(Frame { header, is_complete: true }) = self.scratch.peek().map_err(lost)? {
            let frame = self.scratch.input.split_to(header.total);
            let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
            if header.tag == shard_tag::ERROR {
                return Err(scratch_error(body));
            }
            note(self.scratch, header.tag, body);
        }
        Ok(())
    }

    /// Until something has arrived, or room has been made towards the scratch session.
    async fn wait<G>(&mut self, input: usize) -> Result<(), GatherError<G>> {
        poll_fn(|context| {
            let waiting = self.scratch.output.len();
            let mut has_progress = match self.scratch.poll_fill(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(GatherError::Lost { side: Side::Scratch, error })),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            has_progress |= self.scratch.output.len() < waiting;
            // A scratch session that does not keep up holds back the shards: what one has sent is handed on before more is read.
            if self.scratch.output.len() < OUTPUT_BYTES {
                for (index, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.is_sending(input)) {
                    if matches!(part.connection.peek(), Ok(Some(Frame { is_complete: true, .. }))) {
                        has_progress = true;
                        continue;
                    }
                    match part.connection.poll_fill(context) {
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(GatherError::Lost { side: Side::Part(index), error })),
                        Poll::Ready(Ok(())) => has_progress = true,
                        Poll::Pending => {}
                    }
                }
            }
            if has_progress { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}

fn scratch_error<G>(body: &[u8]) -> GatherError<G> {
    GatherError::Shard { side: Side::Scratch, stage: Stage::Load, frame: error_frame(body) }
}

/// Throws away what is left of an answer, up to its end.
pub async fn read_to_end(connection: &mut Connection) -> Result<(), ConnectionError> {
    loop {
        let (tag, body) = connection.next_frame().await?;
        note(connection, tag, &body);
        if tag == shard_tag::READY {
            connection.pending.clear();
            return Ok(());
        }
    }
}

/// Of the tag `INSERT 0 n`.
fn inserted_by(tag: &[u8]) -> u64 {
    let tag = std::str::from_utf8(tag).unwrap_or_default().trim_end_matches('\0');
    tag.strip_prefix("INSERT 0 ").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// How many keys there are, and they; no rows, no keys: NULL. Those that are no text cannot be sent.
fn found(row: &[u8]) -> Option<Found> {
    let mut values = wire::data_row_columns(row).map(|value| value.ok().flatten());
    let (count, list) = (values.next()??, values.next()?);
    let count = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some(Found { count, list: std::str::from_utf8(list.unwrap_or(b"{}")).ok()?.to_owned() })
}

/// The one value of a row, a number.
fn size(row: &[u8]) -> u64 {
    let value = wire::data_row_columns(row).next().and_then(Result::ok).flatten();
    value.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
}

/// What ends a part.
enum PartFailure {
    Refused(Bytes),
    Lost(ConnectionError),
}

impl PartFailure {
    fn at<G>(self, index: usize) -> GatherError<G> {
        let side = Side::Part(index);
        match self {
            PartFailure::Refused(frame) => GatherError::Shard { side, stage: Stage::Load, frame },
            PartFailure::Lost(error) => GatherError::Lost { side, error },
        }
    }
}

impl Part<'_> {
    /// Hands a row on when it is one of this input; a row of a later one says that this input has ended here.
    fn put_row(&mut self, total: usize, input: usize, output: &mut Output) -> Result<bool, ConnectionError> {
        let frame = self.connection.input.get(..total).unwrap_or_default();
        let Some(columns) = &self.fragments.tagged else {
            output.copy_message(frame);
            self.connection.input.advance(total);
            return Ok(true);
        };
        let line = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let (tag, row) = untagged(line, columns).ok_or(wire::DecodeError::Invalid(i64::from(shard_tag::COPY_DATA)))?;
        if tag < self.done {
            // The branches of UNION ALL run one after the other.
            return Err(wire::DecodeError::Invalid(i64::try_from(tag).unwrap_or(-1)).into());
        }
        self.done = tag;
        if self.fragments.serves.get(tag) != Some(&input) {
            return Ok(false);
        }
        output.copy_data(row, b"\n");
        self.connection.input.advance(total);
        Ok(true)
    }

    /// A whole message that is no row.
    fn consume(&mut self, total: usize) -> Result<(), PartFailure> {
        let frame = self.connection.input.split_to(total).freeze();
        let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let tag = frame.first().copied().unwrap_or_default();
        note(self.connection, tag, body);
        match tag {
            shard_tag::ERROR => return Err(PartFailure::Refused(frame)),
            shard_tag::COPY_DONE if self.fragments.tagged.is_some() => self.done = self.fragments.serves.len(),
            shard_tag::COPY_DONE => self.done += 1,
            shard_tag::READY => {
                self.is_ready = true;
                self.connection.pending.clear();
            }
            _ => {}
        }
        Ok(())
    }

    async fn read_to_end(&mut self) -> Result<(), PartFailure> {
        self.rows_to_end(|_| {}).await
    }

    /// `row`: gets the rows of queries.
    async fn rows_to_end(&mut self, mut row: impl FnMut(&[u8])) -> Result<(), PartFailure> {
        while !self.is_ready {
            match self.connection.peek().map_err(PartFailure::Lost)? {
                Some(Frame { header, is_complete: true }) => {
                    if header.tag == shard_tag::DATA_ROW {
                        row(self.connection.input.get(FRAME_HEADER_BYTES..header.total).unwrap_or_default());
                    }
                    self.consume(header.total)?;
                }
                Some(_) | None => self.connection.fill().await.map_err(PartFailure::Lost)?,
            }
        }
        Ok(())
    }

    /// What PostgreSQL expects a query to cost, and what without nested loops. It has sent all that was asked.
    async fn costs(&mut self, query: &str) -> Result<Vec<f64>, PartFailure> {
        self.read_to_end().await?;
        self.is_ready = false;
        let text = format!(
            "EXPLAIN (FORMAT JSON) {query}\n;{NO_NESTED_LOOPS}EXPLAIN (FORMAT JSON) {query}\n;SET LOCAL enable_nestloop = on"
        );
        self.connection.output.query(&Own::Plan.text(&text));
        self.connection.expect(Reply::Query, false);
        self.connection.send().await;
        let mut costs = Vec::new();
        self.rows_to_end(|row| costs.extend(cost(row))).await?;
        Ok(costs)
    }
}

/// Of the plan in a row.
fn cost(row: &[u8]) -> Option<f64> {
    let document = wire::data_row_columns(row).next()?.ok()??;
    let plans: serde_json::Value = serde_json::from_slice(document).ok()?;
    plans.get(0)?.get("Plan")?.get("Total Cost")?.as_f64()
}

/// The index in front of a line of COPY's text format, and the columns of the input that it stands for. A tab is never part of
/// a value.
fn untagged<'l>(line: &'l [u8], inputs: &[Columns]) -> Option<(usize, &'l [u8])> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (tag, values) = line.split_at(line.iter().position(|byte| *byte == b'\t')?);
    let tag: usize = std::str::from_utf8(tag).ok()?.parse().ok()?;
    let columns = inputs.get(tag)?;
    // Each value is preceded by a tab.
    let mut tabs = values.iter().enumerate().filter(|(_, byte)| **byte == b'\t').map(|(place, _)| place);
    let start = tabs.nth(columns.first)? + 1;
    let end = tabs.nth(columns.count - 1).unwrap_or(values.len());
    Some((tag, values.get(start..end)?))
}

/// A few pages are read as fast as an index.
const INDEX_BYTES_MIN: u64 = 8 * 1024;
/// Below this, any plan is good enough.
const ANALYZE_BYTES_MIN: u64 = 128 * 1024;
/// Temporary tables have no indexes to join by: a nested loop over them is good for few rows only, and what PostgreSQL expects of
/// joins of many tables is often far too little. It still makes one where nothing else will do; its price in the plan is then so
/// high that everything would be compiled.
const LARGE: &str = "SET LOCAL enable_nestloop = off;SET LOCAL jit = off";
const NO_NESTED_LOOPS: &str = "SET LOCAL enable_nestloop = off;";
/// How many times what the cheapest plan seems to cost one may cost that hangs on no guess.
const CERTAINTY_TIMES: f64 = 10.0;
/// Rows that are sent to every shard, written as constants.
const BROUGHT_TEXT_MAX: usize = 4 * 1024 * 1024;
/// Towards the scratch session; above this the shards are not read.
const OUTPUT_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagged_line_yields_the_columns_of_its_input() {
        let inputs = [Columns { first: 0, count: 2 }, Columns { first: 2, count: 1 }, Columns { first: 3, count: 2 }];
        assert_eq!(untagged(b"0\ta\t\\N\t\\N\t\\N\t\\N\n", &inputs), Some((0, &b"a\t\\N"[..])));
        assert_eq!(untagged(b"1\t\\N\t\\N\tx\\ty\t\\N\t\\N\n", &inputs), Some((1, &b"x\\ty"[..])));
        assert_eq!(untagged(b"2\t\\N\t\\N\t\\N\t\tz\n", &inputs), Some((2, &b"\tz"[..])));
        assert_eq!(untagged(b"3\ta\n", &inputs), None);
        assert_eq!(untagged(b"0\n", &inputs), None);
        assert_eq!(untagged(b"", &inputs), None);
    }
}
