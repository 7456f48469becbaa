//! The groups of one statement, while the shards' parts of them come in.

use std::collections::HashMap;

use super::cell::{Cell, Column};
use super::row_key::RowKey;
use super::{CombineError, Room, inexact};
use crate::execute::ranks::Ranks;
use crate::execute::sort_key::{Printing, SortValue, compare};
use crate::sql::analysis::{self, SortKey};
use crate::wire::{FieldDescription, data_row_columns};

/// All groups so far, in the order in which they came.
#[derive(Debug)]
pub struct Groups {
    columns: Vec<Column>,
    key: RowKey,
    is_whole: bool,
    by_key: HashMap<Box<[u8]>, usize>,
    groups: Vec<Group>,
    room: Room,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Group {
    cells: Vec<Cell>,
    /// The shards whose parts have come, a bit each: one shard has one part of a group.
    shards: Vec<u64>,
}

impl Group {
    /// Notes a part of this shard; `false`: there was one.
    fn note(&mut self, shard: usize) -> bool {
        let (word, bit) = (shard / 64, 1 << (shard % 64));
        if self.shards.len() <= word {
            self.shards.resize(word + 1, 0);
        }
        let Some(word) = self.shards.get_mut(word) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// A group that is whole: its values and what it is sorted by.
pub struct GroupRow {
    pub values: Vec<Option<Vec<u8>>>,
    sort_values: Vec<SortValue>,
}

impl Groups {
    /// `columns`: of the shards' rows; what the client is told of them is written there.
    pub fn new(
        groups: &analysis::Groups,
        columns: &mut [FieldDescription],
        bytes_max: usize,
        printing: Printing,
    ) -> Result<Self, CombineError> {
        if groups.columns.len() != columns.len() {
            return Err(inexact("the columns are not those that were expected"));
        }
        let key = RowKey::new(&groups.keys, columns)?;
        let combined = groups.columns.iter().zip(columns.iter());
        let kinds = combined
            .map(|(combination, described)| Column::new(combination, described, printing))
            .collect::<Result<Vec<_>, _>>()?;
        for (kind, described) in kinds.iter().zip(columns) {
            kind.describe(described);
        }
        Ok(Self {
            columns: kinds,
            key,
            is_whole: groups.keys.is_empty(),
            by_key: HashMap::new(),
            groups: Vec::new(),
            room: Room { taken: 0, bytes_max },
            scratch: Vec::new(),
        })
    }

    /// How the values of a column of text sort, which is combined by its order. Before the first part.
    pub fn set_ranks(&mut self, column: usize, ranks: Ranks) {
        if let Some(column) = self.columns.get_mut(column) {
            column.set_ranks(ranks);
        }
    }

    /// One shard's part of one group: the body of a DataRow.
    pub fn add(&mut self, shard: usize, row: &[u8]) -> Result<(), CombineError> {
        let values: Vec<Option<&[u8]>> =
            data_row_columns(row).collect::<Result<_, _>>().map_err(|error| inexact(error.to_string()))?;
        if values.len() != self.columns.len() {
            return Err(inexact("a row has not the columns that were described"));
        }
        self.key.write(&values, &mut self.scratch)?;
        let known = self.by_key.get(self.scratch.as_slice()).copied();
        let (group, is_first) = match known.and_then(|index| self.groups.get_mut(index)) {
            Some(group) => (group, false),
            None => {
                let cells: Vec<Cell> = self.columns.iter().map(Column::empty).collect();
                self.room
                    .take(self.scratch.len() + size_of::<Group>() + SHARDS_BYTES + ENTRY_BYTES + cells.len() * size_of::<Cell>())?;
                self.by_key.insert(self.scratch.as_slice().into(), self.groups.len());
                self.groups.push(Group { cells, shards: Vec::with_capacity(1) });
                (self.groups.last_mut().ok_or_else(|| inexact("a group is missing"))?, true)
            }
        };
        if !group.note(shard) {
            // A function in the select list that returns rows makes several of one group.
            return Err(inexact("a shard has returned several rows for one group"));
        }
        let mut more = 0;
        for ((column, cell), value) in self.columns.iter().zip(&mut group.cells).zip(values) {
            more += column.add(cell, value, is_first)?;
        }
        self.room.take(more)
    }

    /// A shard has no more parts. `parts`: how many it had.
    pub fn end_of_shard(&self, parts: usize) -> Result<(), CombineError> {
        if self.is_whole && parts != 1 {
            return Err(inexact("a shard has not returned one row for the group of all rows"));
        }
        Ok(())
    }

    /// The whole groups, sorted.
    pub fn finish(self, order_by: &[SortKey]) -> Result<Vec<GroupRow>, CombineError> {
        let mut rows = Vec::with_capacity(self.groups.len());
        for group in self.groups {
            let finished = self.columns.iter().zip(&group.cells).map(|(column, cell)| column.finish(cell, &group.cells));
            let values = finished.collect::<Result<Vec<_>, _>>()?;
            let sort_values = order_by
                .iter()
                .map(|key| {
                    let column = self.columns.get(key.column).ok_or_else(|| inexact("a sort column is missing"))?;
                    let value = values.get(key.column).and_then(Option::as_deref);
                    column
                        .sort_value(key.text.is_bytewise, value)
                        .ok_or_else(|| inexact(format!("the order of column {} is not known to the proxy", key.column + 1)))
                })
                .collect::<Result<Vec<_>, CombineError>>()?;
            rows.push(GroupRow { values, sort_values });
        }
        if !order_by.is_empty() {
            rows.sort_by(|a, b| compare(order_by, &a.sort_values, &b.sort_values));
        }
        Ok(rows)
    }
}

impl GroupRow {
    /// Neither comes before the other.
    pub fn ties_with(&self, other: &GroupRow, order_by: &[SortKey]) -> bool {
        compare(order_by, &self.sort_values, &other.sort_values).is_eq()
    }
}

/// Which shards have had their part: for up to 64 of them.
const SHARDS_BYTES: usize = 8;

/// What an entry of the map takes besides the key, about.
const ENTRY_BYTES: usize = 64;
