//! Rows of several shards that come in pieces, as one answer: what a cursor over several shards reads.
//!
//! Pure: says which shards must give more rows ([`Next::Needs`]), takes them, and hands out the rows of the answer one by one,
//! in the order and with the cuts that [`Spec`] says. [`super::scatter`] does the same for answers that come whole; a cursor
//! cannot leave the rest on the wire, since other statements use the connections in between.
//!
//! ```text
//!   Unranked ── text that PostgreSQL must put in order: all rows, then their ranks ──► Counting
//!   Counting ── the first rows say LIMIT and OFFSET ──► Merging ── LIMIT reached, all shards ended ──► Ended
//!       └── groups ──► every shard's parts, to the end ──► Rows (sorted and cut) ─────────────────────────┘
//!                                                   └────► LastStep: PostgreSQL makes the answer of them
//! ```
//!
//! Memory: a piece of each shard, which gets smaller where rows are large; groups, distinct rows and rows that wait for their ranks
//! within their own bound.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::aggregate::{CombineError, GroupRow, Groups, Seen, last_step_text};
use super::ranks::{Ranks, Unranked, UnrankedColumn, unranked_columns};
use super::scatter::{Rows, Spec, put_without_last_columns, sort_values};
use super::sort_key::{Printing, SortValue, compare, is_ordered};
use crate::error::{PgError, SqlState};
use crate::shard_key::Format;
use crate::sql::analysis::{Combine, SortKey};
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, data_row_columns, originate};

/// The rows of one cursor.
pub struct Pieces {
    spec: Spec,
    /// Of the fragments' rows, hidden ones included, with the formats in which they come.
    columns: Vec<FieldDescription>,
    inputs: Vec<Input>,
    stage: Stage,
    /// Rows handed out, and those that OFFSET left out.
    given: u64,
    to_skip: u64,
    limit: Option<u64>,
    /// Of the last row within LIMIT, where rows equal to it come too.
    last: Option<Vec<SortValue>>,
    /// The shard of the row that was handed out last.
    origin: usize,
    /// Columns of text whose order is not known yet.
    unranked: Vec<UnrankedColumn>,
    /// Of the columns by which groups are combined.
    group_ranks: Vec<(usize, Ranks)>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A DataRow, the whole frame.
    Row(Bytes),
    /// First these shards must give rows.
    Needs(Vec<Need>),
    /// First PostgreSQL must say how these sort: [`Pieces::rank`].
    Unranked(Vec<Unranked>),
    /// PostgreSQL makes the answer, by this query over the whole groups.
    LastStep(String),
    End,
}

/// So many rows of the shard at this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub input: usize,
    pub rows: u32,
}

#[derive(Default)]
struct Input {
    rows: VecDeque<Row>,
    /// Of what is in `rows`.
    bytes: usize,
    /// Of all rows so far, for the size of the next piece.
    row_count: u64,
    byte_count: u64,
    has_ended: bool,
}

struct Row {
    frame: Bytes,
    values: Vec<SortValue>,
}

enum Stage {
    Counting,
    Merging { seen: Option<Seen> },
    Grouping { groups: Box<Groups>, parts: Vec<usize> },
    Rows(VecDeque<Bytes>),
    Ended,
}

impl Pieces {
    /// `columns`: as the shards describe the fragment.
    ///
    /// Errors: rows of these types cannot be merged or combined exactly.
    pub fn new(spec: Spec, columns: Vec<FieldDescription>, shard_count: usize) -> Result<Self, CombineError> {
        let unranked = unranked_columns(&spec.merge, &columns);
        let mut pieces = Self {
            spec,
            columns,
            inputs: (0..shard_count).map(|_| Input::default()).collect(),
            stage: Stage::Counting,
            given: 0,
            to_skip: 0,
            limit: None,
            last: None,
            origin: 0,
            unranked,
            group_ranks: Vec::new(),
        };
        pieces.check_types()?;
        Ok(pieces)
    }

    /// Rows have come that were not handed out yet.
    pub fn is_ahead(&self) -> bool {
        let is_made = match &self.stage {
            Stage::Grouping { .. } => true,
            Stage::Rows(rows) => !rows.is_empty(),
            Stage::Counting | Stage::Merging { .. } | Stage::Ended => false,
        };
        is_made || self.inputs.iter().any(|input| !input.rows.is_empty())
    }

    /// Columns of the fragments' rows.
    pub fn column_count(&self) -> usize {
        self.columns.len()
    }

    /// No row of this shard is at hand, and there may be more.
    pub fn lacks_row(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|input| input.rows.is_empty() && !input.has_ended)
    }

    /// The shard whose row was handed out last.
    pub fn origin(&self) -> usize {
        self.origin
    }

    /// Those that the client sees. Certain when [`Self::next`] has given the first row.
    pub fn visible_columns(&self) -> &[FieldDescription] {
        let visible = self.columns.len().saturating_sub(self.spec.hidden_columns);
        self.columns.get(..visible).unwrap_or_default()
    }

    /// The rows that wait take more than they may.
    pub fn is_full(&self) -> bool {
        !self.unranked.is_empty() && self.bytes() > self.spec.combine_bytes_max
    }

    /// Columns at the end that the client does not see.
    pub fn hidden_columns(&self) -> usize {
        self.spec.hidden_columns
    }

    /// The groups go to PostgreSQL, which reads them as text.
    pub fn has_last_step(&self) -> bool {
        matches!(&self.spec.merge.combine, Some(Combine::Groups(groups)) if groups.last_step.is_some())
    }

    /// In which format the shards send each column, from now on. Before the first row only.
    pub fn set_formats(&mut self, formats: impl Iterator<Item = i16>) {
        for (column, format) in self.columns.iter_mut().zip(formats) {
            column.format = format;
        }
    }

    /// Looked at before the first row, so that there is still another way.
    fn check_types(&mut self) -> Result<(), CombineError> {
        match &self.spec.merge.combine {
            Some(Combine::Groups(groups)) => {
                let mut columns = self.columns.clone();
                Groups::new(groups, &mut columns, self.spec.combine_bytes_max, self.spec.printing)?;
                if let Some(step) = &groups.last_step {
                    last_step_text(step, &columns, &[])?;
                    return Ok(());
                }
                // How text sorts is asked for when the groups are there.
                let type_of = |key: &SortKey| columns.get(key.column).map_or(0, |column| column.type_oid);
                return match self.spec.merge.order_by.iter().find(|key| !is_ordered(type_of(key), true)) {
                    Some(key) => Err(unordered(key.column)),
                    None => Ok(()),
                };
            }
            Some(Combine::Distinct(distinct)) => {
                Seen::new(distinct, &self.columns, self.spec.hidden_columns, self.spec.combine_bytes_max)?;
            }
            None => {}
        }
        for key in &self.spec.merge.order_by {
            let type_oid = self.columns.get(key.column).map_or(0, |column| column.type_oid);
            let hides_order = self.spec.printing.hides_order(type_oid, Format::Text, !key.text.is_bytewise);
            if !is_ordered(type_oid, key.text.is_known()) || hides_order {
                return Err(unordered(key.column));
            }
        }
        Ok(())
    }

    /// Rows of a shard: bodies with their headers. `has_ended`: it has no more.
    pub fn take(&mut self, input: usize, rows: Vec<Bytes>, has_ended: bool) -> Result<(), CombineError> {
        let order_by = if self.spec.has_groups() { &[] } else { self.spec.merge.order_by.as_slice() };
        let Some(known) = self.inputs.get_mut(input) else { return Ok(()) };
        known.has_ended |= has_ended;
        for frame in rows {
            let values = values_of(order_by, &self.columns, &frame, self.spec.printing)?;
            known.bytes += frame.len();
            known.row_count += 1;
            known.byte_count += frame.len() as u64;
            known.rows.push_back(Row { frame, values });
        }
        Ok(())
    }

    /// Do these two rows, whole frames, stand at the same place of the order?
    pub fn are_tied(&self, one: &[u8], other: &[u8]) -> Result<bool, CombineError> {
        let order_by = &self.spec.merge.order_by;
        let values = |frame| values_of(order_by, &self.columns, frame, self.spec.printing);
        Ok(one == other || compare(order_by, &values(one)?, &values(other)?).is_eq())
    }

    /// What there is still to come of the first shard, whoever asks for it; `None`: nothing.
    pub fn next_piece(&self) -> Option<Need> {
        self.inputs.first().filter(|input| !input.has_ended).map(|input| Need { input: 0, rows: input.piece(u64::MAX) })
    }

    /// Of the rows that wait.
    pub fn bytes(&self) -> usize {
        self.inputs.iter().map(|input| input.bytes).sum()
    }

    /// The next row of the answer. `wanted`: how many more the client asks for, this one included.
    pub fn next(&mut self, wanted: u64) -> Result<Next, CombineError> {
        if let Some(next) = self.next_unranked()? {
            return Ok(next);
        }
        loop {
            match &mut self.stage {
                Stage::Counting => {
                    if let Some(needs) = self.needs(wanted, true) {
                        return Ok(needs);
                    }
                    self.begin()?;
                }
                Stage::Grouping { .. } => match self.group()? {
                    Some(next) => return Ok(next),
                    None => continue,
                },
                Stage::Rows(rows) => match rows.pop_front() {
                    Some(row) => return Ok(Next::Row(row)),
                    None => self.stage = Stage::Ended,
                },
                Stage::Merging { .. } => match self.merge(wanted)? {
                    Some(next) => return Ok(next),
                    None => continue,
                },
                Stage::Ended => return Ok(Next::End),
            }
        }
    }

    /// What it takes to know how text sorts; `None`: it is known.
    fn next_unranked(&mut self) -> Result<Option<Next>, CombineError> {
        if self.unranked.is_empty() {
            return Ok(None);
        }
        if self.is_full() {
            return Err(rows_too_large(self.spec.combine_bytes_max));
        }
        let lacking = self.inputs.iter().enumerate().filter(|(_, input)| !input.has_ended);
        let needs: Vec<Need> = lacking.map(|(input, known)| Need { input, rows: known.piece(u64::MAX) }).collect();
        if !needs.is_empty() {
            return Ok(Some(Next::Needs(needs)));
        }
        let rows = || self.inputs.iter().flat_map(|input| &input.rows).map(|row| row.frame.as_ref());
        let unranked: Vec<Unranked> = self.unranked.iter().map(|column| column.values(rows())).collect();
        if unranked.iter().any(|column| !column.values.is_empty()) {
            return Ok(Some(Next::Unranked(unranked)));
        }
        self.rank(vec![Ranks::default(); unranked.len()])?;
        Ok(None)
    }

    /// What PostgreSQL has said, in the order of [`Next::Unranked`].
    pub fn rank(&mut self, ranks: Vec<Ranks>) -> Result<(), CombineError> {
        for (column, ranks) in std::mem::take(&mut self.unranked).into_iter().zip(ranks) {
            let Some(place) = column.sort_key else {
                self.group_ranks.push((column.column, ranks));
                continue;
            };
            for value in self.inputs.iter_mut().flat_map(|input| &mut input.rows).filter_map(|row| row.values.get_mut(place)) {
                if let SortValue::Bytes(bytes) = value {
                    *value = ranks.of(bytes).map(SortValue::Int).ok_or_else(|| unordered(column.column))?;
                }
            }
        }
        // Each shard has sorted its own rows, and cut them: with another version of the collation perhaps not the right ones.
        let order_by = if self.spec.has_groups() { &[] } else { self.spec.merge.order_by.as_slice() };
        let is_sorted = |input: &Input| input.rows.iter().is_sorted_by(|a, b| compare(order_by, &a.values, &b.values).is_le());
        match self.inputs.iter().all(is_sorted) {
            true => Ok(()),
            false => Err(CombineError::Inexact("a shard sorts text otherwise than another one".to_owned())),
        }
    }

    /// The first rows are here.
    fn begin(&mut self) -> Result<(), CombineError> {
        self.limit = self.count(self.spec.limit)?;
        self.to_skip = self.count(self.spec.offset)?.unwrap_or(0);
        self.stage = match &self.spec.merge.combine {
            Some(Combine::Groups(groups)) => {
                let mut groups = Groups::new(groups, &mut self.columns, self.spec.combine_bytes_max, self.spec.printing)?;
                self.group_ranks.drain(..).for_each(|(column, ranks)| groups.set_ranks(column, ranks));
                Stage::Grouping { groups: Box::new(groups), parts: vec![0; self.inputs.len()] }
            }
            Some(Combine::Distinct(distinct)) => {
                let seen = Seen::new(distinct, &self.columns, self.spec.hidden_columns, self.spec.combine_bytes_max)?;
                Stage::Merging { seen: Some(seen) }
            }
            None => Stage::Merging { seen: None },
        };
        Ok(())
    }

    /// LIMIT or OFFSET. Where rows carry it, any row will do, and without a row it does not matter.
    fn count(&self, rows: Rows) -> Result<Option<u64>, CombineError> {
        let column = match rows {
            Rows::Unsaid => return Ok(None),
            Rows::Known(count) => return Ok(Some(count)),
            Rows::Column(column) => column,
        };
        let Some(row) = self.inputs.iter().find_map(|input| input.rows.front()) else { return Ok(None) };
        let unreadable = || CombineError::Inexact("a number of rows cannot be read".to_owned());
        let body = row.frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let value = data_row_columns(body).nth(column).and_then(Result::ok).ok_or_else(unreadable)?;
        let Some(bytes) = value else { return Ok(None) };
        let count = match self.columns.get(column).map_or(0, |described| described.format) {
            0 => std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()),
            _ => bytes.try_into().ok().map(i64::from_be_bytes),
        };
        count.and_then(|count| u64::try_from(count).ok()).map(Some).ok_or_else(unreadable)
    }

    /// Shards without a row at hand that have not ended; with them those that will soon be without. `None`: none is needed.
    fn needs(&self, wanted: u64, all: bool) -> Option<Next> {
        let is_empty = |input: &Input| input.rows.is_empty() && !input.has_ended;
        if !self.inputs.iter().any(is_empty) {
            return None;
        }
        let wanted = wanted.saturating_add(self.to_skip);
        let lacks = |input: &Input| !input.has_ended && (input.rows.is_empty() || all && input.bytes < PIECE_BYTES / 4);
        let needs = self.inputs.iter().enumerate().filter(|(_, input)| lacks(input));
        Some(Next::Needs(needs.map(|(input, known)| Need { input, rows: known.piece(wanted) }).collect()))
    }

    fn merge(&mut self, wanted: u64) -> Result<Option<Next>, CombineError> {
        let is_over = self.limit.is_some_and(|limit| self.given >= limit);
        if is_over && self.last.is_none() {
            self.end();
            return Ok(None);
        }
        let index = match self.spec.merge.order_by.is_empty() {
            // One shard after the other.
            true => match self.inputs.iter().position(|input| !input.has_ended || !input.rows.is_empty()) {
                Some(index) => index,
                None => {
                    self.end();
                    return Ok(None);
                }
            },
            false => {
                if let Some(needs) = self.needs(wanted, true) {
                    return Ok(Some(needs));
                }
                match self.least() {
                    Some(index) => index,
                    None => {
                        self.end();
                        return Ok(None);
                    }
                }
            }
        };
        let Some(input) = self.inputs.get_mut(index) else { return Ok(None) };
        let Some(row) = input.rows.pop_front() else {
            let rows = input.piece(wanted.saturating_add(self.to_skip));
            return Ok(Some(Next::Needs(vec![Need { input: index, rows }])));
        };
        input.bytes -= row.frame.len();
        if is_over && !self.last.as_ref().is_some_and(|last| compare(&self.spec.merge.order_by, &row.values, last).is_eq()) {
            self.end();
            return Ok(None);
        }
        if let Stage::Merging { seen: Some(seen) } = &mut self.stage
            && !seen.is_new(row.frame.get(FRAME_HEADER_BYTES..).unwrap_or_default())?
        {
            return Ok(None);
        }
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return Ok(None);
        }
        self.given += 1;
        self.origin = index;
        if self.spec.merge.has_ties && self.limit == Some(self.given) {
            self.last = Some(row.values);
        }
        Ok(Some(Next::Row(without_last_columns(row.frame, self.spec.hidden_columns))))
    }

    /// The shard whose front row is next; ties by shard.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, &Row)> = None;
        for (index, input) in self.inputs.iter().enumerate() {
            let Some(row) = input.rows.front() else { continue };
            if least.is_none_or(|(_, known)| compare(&self.spec.merge.order_by, &row.values, &known.values).is_lt()) {
                least = Some((index, row));
            }
        }
        least.map(|(index, _)| index)
    }

    fn end(&mut self) {
        self.stage = Stage::Ended;
        self.inputs.iter_mut().for_each(|input| input.rows = VecDeque::new());
    }

    /// Takes the parts that are here; when all are in, the groups are rows.
    fn group(&mut self) -> Result<Option<Next>, CombineError> {
        if let Stage::Grouping { groups, parts } = &mut self.stage {
            for (index, input) in self.inputs.iter_mut().enumerate() {
                for row in input.rows.drain(..) {
                    groups.add(index, row.frame.get(FRAME_HEADER_BYTES..).unwrap_or_default())?;
                    if let Some(parts) = parts.get_mut(index) {
                        *parts += 1;
                    }
                }
                input.bytes = 0;
            }
        }
        if let Some(needs) = self.needs(u64::MAX, true) {
            return Ok(Some(needs));
        }
        let Stage::Grouping { groups, parts } = std::mem::replace(&mut self.stage, Stage::Ended) else { return Ok(None) };
        for parts in parts {
            groups.end_of_shard(parts)?;
        }
        let rows = groups.finish(&self.spec.merge.order_by)?;
        if let Some(Combine::Groups(groups)) = &self.spec.merge.combine
            && let Some(step) = &groups.last_step
        {
            return Ok(Some(Next::LastStep(last_step_text(step, &self.columns, &rows)?)));
        }
        self.stage = Stage::Rows(self.cut(&rows));
        Ok(None)
    }

    fn cut(&self, rows: &[GroupRow]) -> VecDeque<Bytes> {
        let skipped = usize::try_from(self.to_skip).unwrap_or(usize::MAX);
        let wanted = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let last = skipped.saturating_add(wanted).checked_sub(1).and_then(|last| rows.get(last)).filter(|_| wanted > 0);
        let is_tie =
            |row: &GroupRow| self.spec.merge.has_ties && last.is_some_and(|last| row.ties_with(last, &self.spec.merge.order_by));
        let visible = self.columns.len().saturating_sub(self.spec.hidden_columns);
        let kept = rows.iter().skip(skipped).enumerate().take_while(|(place, row)| *place < wanted || is_tie(row));
        kept.map(|(_, row)| {
            let mut frame = BytesMut::new();
            originate::data_row(&mut frame, row.values.get(..visible).unwrap_or_default());
            frame.freeze()
        })
        .collect()
    }
}

impl Input {
    /// How many rows to ask for: about [`PIECE_BYTES`], and no more than the client wants.
    fn piece(&self, wanted: u64) -> u32 {
        let fitting = match self.byte_count.checked_div(self.row_count) {
            Some(row_bytes) => PIECE_BYTES as u64 / row_bytes.max(1),
            None => FIRST_ROWS,
        };
        u32::try_from(fitting.min(wanted).clamp(1, ROWS_MAX)).unwrap_or(1)
    }
}

/// What a row, a whole frame, is sorted by.
fn values_of(
    order_by: &[SortKey],
    columns: &[FieldDescription],
    frame: &[u8],
    printing: Printing,
) -> Result<Vec<SortValue>, CombineError> {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    sort_values(order_by, columns, body, printing).map_err(CombineError::Inexact)
}

/// Why this order cannot be merged.
fn unordered(column: usize) -> CombineError {
    CombineError::Inexact(format!("the order of column {} is not known to the proxy", column + 1))
}

fn rows_too_large(bytes_max: usize) -> CombineError {
    let message = format!("the rows of the statement take more than {bytes_max} bytes before they can be put in order");
    CombineError::Error(
        PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
            .with_detail("The limit is cross_shard.merge_bytes_max.")
            .with_hint("Ask for fewer rows by LIMIT, sort by the text COLLATE \"C\", or raise the limit."),
    )
}

/// A DataRow without what was added for the merge.
pub fn without_last_columns(frame: Bytes, hidden: usize) -> Bytes {
    if hidden == 0 {
        return frame;
    }
    let mut out = BytesMut::with_capacity(frame.len());
    put_without_last_columns(&mut out, &frame, hidden);
    out.freeze()
}

impl CombineError {
    /// What the client is told.
    pub fn told(self) -> PgError {
        match self {
            CombineError::Inexact(reason) => {
                let mut characters = reason.chars();
                let first: String = characters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
                PgError::unsupported(
                    "rows of several shards cannot be put in order",
                    format!("{first}{}.", characters.as_str()),
                    "Add a condition on the shard key, or order by a column of a simple type.",
                )
            }
            CombineError::Error(error) => error,
        }
    }
}

/// Rows are fetched in pieces of about this size from each shard.
const PIECE_BYTES: usize = 64 * 1024;
/// Before the size of a row is known.
const FIRST_ROWS: u64 = 64;
const ROWS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::sql::analysis::{Merge, SortKey, TextOrder};

    fn row(value: i64) -> Bytes {
        let mut frame = BytesMut::new();
        originate::data_row(&mut frame, &[Some(value.to_string())]);
        frame.freeze()
    }

    fn pieces(limit: Option<u64>) -> Pieces {
        let key = SortKey { column: 0, is_descending: false, is_nulls_first: false, text: TextOrder::default() };
        let limit = limit.map_or(Rows::Unsaid, Rows::Known);
        let spec = Spec { merge: Arc::new(Merge { order_by: vec![key], ..Merge::default() }), limit, ..Spec::default() };
        let column =
            FieldDescription { name: b"n".to_vec(), table_oid: 0, attnum: 0, type_oid: 20, type_size: 8, typmod: -1, format: 0 };
        Pieces::new(spec, vec![column], 2).unwrap()
    }

    /// Every row, with the shards' rows given as they are asked for. Returns how often they were asked.
    fn drain(pieces: &mut Pieces, shards: &mut [Vec<i64>; 2], wanted: u64) -> (Vec<Bytes>, usize) {
        let (mut rows, mut asked) = (Vec::new(), 0);
        while (rows.len() as u64) < wanted {
            match pieces.next(wanted - rows.len() as u64).unwrap() {
                Next::Row(row) => rows.push(row),
                Next::End => break,
                Next::LastStep(text) => panic!("{text}"),
                Next::Unranked(columns) => panic!("{columns:?}"),
                Next::Needs(needs) => {
                    asked += 1;
                    for need in needs {
                        let left = &mut shards[need.input];
                        let count = left.len().min(need.rows as usize);
                        let given: Vec<Bytes> = left.drain(..count).map(row).collect();
                        let has_ended = given.len() < need.rows as usize;
                        pieces.take(need.input, given, has_ended).unwrap();
                    }
                }
            }
        }
        (rows, asked)
    }

    #[test]
    fn rows_come_in_order_and_no_more_are_asked_for_than_the_client_wants() {
        let mut merged = pieces(None);
        let mut shards = [(1..200).step_by(2).collect::<Vec<i64>>(), (2..200).step_by(2).collect()];
        let (rows, asked) = drain(&mut merged, &mut shards, 3);
        assert_eq!((rows, asked), (vec![row(1), row(2), row(3)], 1));
        assert_eq!(shards.each_ref().map(Vec::len), [97, 96], "three of each shard");
        let (rest, _) = drain(&mut merged, &mut shards, u64::MAX);
        assert_eq!(rest, (4..200).map(row).collect::<Vec<_>>());
        assert_eq!(merged.next(1).unwrap(), Next::End);
    }

    #[test]
    fn a_limit_ends_it_without_asking_again() {
        let mut merged = pieces(Some(2));
        let (rows, asked) = drain(&mut merged, &mut [vec![5, 6, 7], vec![1, 9]], 100);
        assert_eq!((rows, asked), (vec![row(1), row(5)], 1));
    }

    /// Rows of text that sort without regard to case, as PostgreSQL is made to say.
    fn ranked(shards: [&[&str]; 2], limit: u64) -> Result<Vec<String>, CombineError> {
        let text = TextOrder { is_bytewise: false, collation: Some("folding".to_owned()) };
        let key = SortKey { column: 0, is_descending: false, is_nulls_first: false, text };
        let merge = Merge { order_by: vec![key], has_ties: true, ..Merge::default() };
        let spec = Spec { merge: Arc::new(merge), limit: Rows::Known(limit), combine_bytes_max: 1 << 20, ..Spec::default() };
        let column =
            FieldDescription { name: b"t".to_vec(), table_oid: 0, attnum: 0, type_oid: 25, type_size: -1, typmod: -1, format: 0 };
        let mut pieces = Pieces::new(spec, vec![column], 2)?;
        let mut rows = Vec::new();
        loop {
            match pieces.next(u64::MAX)? {
                Next::Needs(needs) => {
                    assert_eq!(needs.len(), 2, "all rows before their ranks");
                    for need in needs {
                        let frame = |value: &&str| {
                            let mut frame = BytesMut::new();
                            originate::data_row(&mut frame, &[Some(value)]);
                            frame.freeze()
                        };
                        pieces.take(need.input, shards[need.input].iter().map(frame).collect(), true)?;
                    }
                }
                Next::Unranked(columns) => {
                    let folded = |value: &Bytes| i64::from(value.first().unwrap().to_ascii_lowercase());
                    let of = |column: &Unranked| column.values.iter().map(|value| (value.clone(), folded(value))).collect();
                    pieces.rank(columns.iter().map(of).collect())?;
                }
                Next::Row(row) => rows.push(String::from_utf8(row[FRAME_HEADER_BYTES + 6..].to_vec()).unwrap()),
                Next::LastStep(text) => panic!("{text}"),
                Next::End => return Ok(rows),
            }
        }
    }

    #[test]
    fn text_comes_in_the_order_of_its_ranks() {
        assert_eq!(ranked([&["a", "B", "c"], &["A", "b", "D"]], 3).unwrap(), ["a", "A", "B", "b"], "with ties");
        assert_eq!(ranked([&[], &[]], 3).unwrap(), [""; 0]);
    }

    #[test]
    fn a_shard_that_has_sorted_text_otherwise_is_found_out() {
        assert!(matches!(ranked([&["A", "B", "a"], &["b"]], 3), Err(CombineError::Inexact(_))));
    }

    #[test]
    fn what_has_no_known_order_is_said_before_the_first_row() {
        let spec = pieces(None).spec;
        let column =
            FieldDescription { name: b"t".to_vec(), table_oid: 0, attnum: 0, type_oid: 25, type_size: -1, typmod: -1, format: 0 };
        assert!(Pieces::new(spec, vec![column], 2).is_err());
    }
}
