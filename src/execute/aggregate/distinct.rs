//! Rows that have been seen: DISTINCT and UNION between shards.

use std::collections::HashSet;

use super::row_key::RowKey;
use super::{CombineError, Room, inexact};
use crate::sql::analysis::{DistinctRows, RowKeyColumn};
use crate::wire::{FieldDescription, data_row_columns};

/// The keys of the rows so far.
#[derive(Debug)]
pub struct Seen {
    key: RowKey,
    keys: HashSet<Box<[u8]>>,
    room: Room,
    scratch: Vec<u8>,
}

impl Seen {
    /// `columns`: of the client, without hidden ones for DISTINCT.
    pub fn new(
        distinct: &DistinctRows,
        columns: &[FieldDescription],
        hidden_columns: usize,
        bytes_max: usize,
    ) -> Result<Self, CombineError> {
        let key = match distinct {
            DistinctRows::On(keys) => RowKey::new(keys, columns)?,
            DistinctRows::Whole { is_deterministic, is_enum } => {
                let visible = columns.len().saturating_sub(hidden_columns);
                if is_deterministic.len() != visible || is_enum.len() != visible {
                    return Err(inexact("the columns are not those that were expected"));
                }
                let flags = is_deterministic.iter().zip(is_enum).enumerate();
                let keys: Vec<RowKeyColumn> = flags
                    .map(|(column, (&is_deterministic, &is_enum))| RowKeyColumn { column, is_deterministic, is_enum })
                    .collect();
                RowKey::new(&keys, columns)?
            }
        };
        Ok(Self { key, keys: HashSet::new(), room: Room { taken: 0, bytes_max }, scratch: Vec::new() })
    }

    /// Whether no row like this one was there before. `row`: the body of a DataRow.
    pub fn is_new(&mut self, row: &[u8]) -> Result<bool, CombineError> {
        let values: Vec<Option<&[u8]>> =
            data_row_columns(row).collect::<Result<_, _>>().map_err(|error| inexact(error.to_string()))?;
        self.key.write(&values, &mut self.scratch)?;
        if self.keys.contains(self.scratch.as_slice()) {
            return Ok(false);
        }
        self.room.take(self.scratch.len() + ENTRY_BYTES)?;
        self.keys.insert(self.scratch.as_slice().into());
        Ok(true)
    }
}

/// What an entry of the set takes besides the key, about.
const ENTRY_BYTES: usize = 48;
