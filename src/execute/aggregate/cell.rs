//! One column of one group: takes the shards' parts, gives the whole.

use super::decimal::DecimalSum;
use super::{CombineError, inexact};
use crate::error::{PgError, SqlState};
use crate::execute::numeric::Numeric;
use crate::execute::ranks::Ranks;
use crate::execute::sort_key::{Printing, SortValue, compare_values, compared_text, decode, is_text};
use crate::shard_key::Format;
use crate::shard_key::oid::{
    BOOL, BPCHAR, BYTEA, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, NUMERIC, OID, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR,
};
use crate::sql::analysis::{Combination, TextOrder};
use crate::wire::FieldDescription;

/// How a column is combined, with the types that the shards have described.
#[derive(Debug)]
pub struct Column {
    kind: Kind,
    type_oid: u32,
    format: Format,
    /// How its values sort, where PostgreSQL has said it.
    ranks: Ranks,
    printing: Printing,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    First,
    Count,
    /// Of int2 and int4: an int8.
    IntegerSum,
    NumericSum,
    Extreme {
        is_minimum: bool,
        /// By their ranks.
        is_ranked: bool,
    },
    All,
    Any,
    /// The sums; the counts are in that column.
    Average {
        counts: usize,
    },
}

#[derive(Debug)]
pub enum Cell {
    First(Option<Box<[u8]>>),
    Count(i64),
    Integer(Option<i128>),
    Decimal(Option<Box<DecimalSum>>),
    Extreme(Option<(SortValue, Box<[u8]>)>),
    Truth(Option<bool>),
}

impl Column {
    pub fn new(combination: &Combination, described: &FieldDescription, printing: Printing) -> Result<Self, CombineError> {
        let type_oid = described.type_oid;
        let format = if described.format == 0 { Format::Text } else { Format::Binary };
        let kind = match combination {
            Combination::First => Some(Kind::First),
            Combination::Count => (type_oid == INT8).then_some(Kind::Count),
            Combination::Sum => match type_oid {
                INT8 => Some(Kind::IntegerSum),
                NUMERIC => Some(Kind::NumericSum),
                _ => None,
            },
            Combination::Minimum(order) => extreme(type_oid, true, order),
            Combination::Maximum(order) => extreme(type_oid, false, order),
            Combination::All => (type_oid == BOOL).then_some(Kind::All),
            Combination::Any => (type_oid == BOOL).then_some(Kind::Any),
            Combination::Average { counts } => matches!(type_oid, INT8 | NUMERIC).then_some(Kind::Average { counts: *counts }),
        };
        let name = String::from_utf8_lossy(&described.name);
        let kind = kind.ok_or_else(|| {
            inexact(format!("column \"{name}\" has a type of which parts of several shards do not make the exact whole"))
        })?;
        if let Kind::Extreme { is_ranked, .. } = kind
            // Of floats that look alike either may be it.
            && !matches!(type_oid, FLOAT4 | FLOAT8)
            && printing.hides_order(type_oid, format, is_ranked)
        {
            return Err(inexact(format!("column \"{name}\" does not show how its values sort")));
        }
        Ok(Self { kind, type_oid, format, ranks: Ranks::default(), printing })
    }

    pub fn set_ranks(&mut self, ranks: Ranks) {
        self.ranks = ranks;
    }

    /// What the client is told of the column.
    pub fn describe(&self, described: &mut FieldDescription) {
        if let Kind::Average { .. } = self.kind {
            described.type_oid = NUMERIC;
            described.type_size = -1;
            described.typmod = -1;
        }
    }

    pub fn empty(&self) -> Cell {
        match self.kind {
            Kind::First => Cell::First(None),
            Kind::Count => Cell::Count(0),
            Kind::IntegerSum => Cell::Integer(None),
            Kind::NumericSum | Kind::Average { .. } => Cell::Decimal(None),
            Kind::Extreme { .. } => Cell::Extreme(None),
            Kind::All | Kind::Any => Cell::Truth(None),
        }
    }

    /// Adds one shard's part; how many bytes more the cell takes. `is_first`: it makes the group.
    pub fn add(&self, cell: &mut Cell, part: Option<&[u8]>, is_first: bool) -> Result<usize, CombineError> {
        let unreadable = || inexact("a part of an aggregate cannot be read");
        let Some(bytes) = part else { return Ok(0) };
        match cell {
            Cell::First(value) => {
                if is_first {
                    *value = Some(bytes.into());
                    return Ok(bytes.len());
                }
            }
            Cell::Count(count) => {
                let more = self.integer(bytes).ok_or_else(unreadable)?;
                *count = count.checked_add(more).ok_or_else(out_of_range)?;
            }
            Cell::Integer(sum) => {
                let more = self.integer(bytes).ok_or_else(unreadable)?;
                *sum = Some(sum.unwrap_or(0) + i128::from(more));
            }
            Cell::Decimal(sum) => {
                let (value, scale) = self.numeric(bytes).ok_or_else(unreadable)?;
                let sum = sum.get_or_insert_default();
                let before = sum.bytes();
                sum.add(&value, scale);
                return Ok(sum.bytes().saturating_sub(before));
            }
            Cell::Extreme(known) => {
                let Kind::Extreme { is_minimum, is_ranked } = self.kind else { return Err(unreadable()) };
                let value = match is_ranked {
                    true => self.ranks.of(compared_text(self.type_oid, bytes)).map(SortValue::Int),
                    false => decode(self.type_oid, self.format, true, Some(bytes)),
                };
                let value = value.ok_or_else(unreadable)?;
                let is_better = known.as_ref().is_none_or(|(known, _)| {
                    let ordering = compare_values(&value, known);
                    if is_minimum { ordering.is_lt() } else { ordering.is_gt() }
                });
                if is_better {
                    *known = Some((value, bytes.into()));
                    return Ok(bytes.len() * 2);
                }
            }
            Cell::Truth(known) => {
                let value = match (self.format, bytes) {
                    (Format::Text, b"t") | (Format::Binary, [1]) => true,
                    (Format::Text, b"f") | (Format::Binary, [0]) => false,
                    _ => return Err(unreadable()),
                };
                let is_all = matches!(self.kind, Kind::All);
                *known = Some(known.map_or(value, |known| if is_all { known && value } else { known || value }));
            }
        }
        Ok(0)
    }

    /// The whole, in the column's format. `cells`: of the same group.
    pub fn finish(&self, cell: &Cell, cells: &[Cell]) -> Result<Option<Vec<u8>>, CombineError> {
        Ok(match cell {
            Cell::First(value) => value.as_deref().map(<[u8]>::to_vec),
            Cell::Count(count) => Some(self.write_integer(*count)),
            Cell::Integer(None) | Cell::Decimal(None) | Cell::Extreme(None) | Cell::Truth(None) => None,
            Cell::Integer(Some(sum)) => Some(self.write_integer(i64::try_from(*sum).map_err(|_| out_of_range())?)),
            Cell::Decimal(Some(sum)) => {
                let total = sum.total();
                let whole = match self.kind {
                    Kind::Average { counts } => match cells.get(counts) {
                        Some(Cell::Count(count)) => u64::try_from(*count).ok().and_then(|count| total.divided_by(count)),
                        _ => return Err(inexact("the counts of an average are missing")),
                    },
                    _ => Some(total),
                };
                whole.map(|whole| if self.format == Format::Text { whole.to_text() } else { whole.to_binary() })
            }
            Cell::Extreme(Some((_, bytes))) => Some(bytes.to_vec()),
            Cell::Truth(Some(value)) => Some(match self.format {
                Format::Text => {
                    if *value {
                        b"t".to_vec()
                    } else {
                        b"f".to_vec()
                    }
                }
                Format::Binary => vec![u8::from(*value)],
            }),
        })
    }

    /// Of the column as it is after [`Column::finish`].
    pub fn sort_value(&self, is_bytewise: bool, value: Option<&[u8]>) -> Option<SortValue> {
        let type_oid = if matches!(self.kind, Kind::Average { .. }) { NUMERIC } else { self.type_oid };
        if self.printing.hides_order(type_oid, self.format, !is_bytewise) {
            return None;
        }
        decode(type_oid, self.format, is_bytewise, value)
    }

    fn integer(&self, bytes: &[u8]) -> Option<i64> {
        match self.format {
            Format::Text => std::str::from_utf8(bytes).ok()?.parse().ok(),
            Format::Binary => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        }
    }

    fn write_integer(&self, value: i64) -> Vec<u8> {
        match self.format {
            Format::Text => value.to_string().into_bytes(),
            Format::Binary => value.to_be_bytes().to_vec(),
        }
    }

    /// A part of a sum or an average: numeric, or the int8 that a sum of smaller integers is.
    fn numeric(&self, bytes: &[u8]) -> Option<(Numeric, u16)> {
        match (self.type_oid, self.format) {
            (INT8, _) => Numeric::with_scale_from_text(self.integer(bytes)?.to_string().as_bytes()),
            (_, Format::Text) => Numeric::with_scale_from_text(bytes),
            (_, Format::Binary) => Numeric::with_scale_from_binary(bytes).ok(),
        }
    }
}

/// Types whose order `decode` knows.
fn extreme(type_oid: u32, is_minimum: bool, order: &TextOrder) -> Option<Kind> {
    let is_known = match type_oid {
        INT2 | INT4 | INT8 | OID | FLOAT4 | FLOAT8 | NUMERIC | DATE | TIME | TIMESTAMP | TIMESTAMPTZ | BYTEA => true,
        TEXT | VARCHAR | BPCHAR => order.is_known(),
        _ => false,
    };
    is_known.then_some(Kind::Extreme { is_minimum, is_ranked: is_text(type_oid) && !order.is_bytewise })
}

/// As the sum of int4 values says it.
fn out_of_range() -> CombineError {
    CombineError::Error(PgError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))
}
