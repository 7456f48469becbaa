//! The order of text in collations that the proxy does not know: PostgreSQL says how the values sort that are there.
//!
//! Each value gets a rank, the same one for values that are equal. By its ranks the rows are then merged, cut and told to be tied
//! like any others, whatever else they are sorted by; none of them goes to PostgreSQL.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};

use super::sort_key::{compared_text, is_text};
use crate::backend::{Connection, ConnectionError, Frame, Own, StatementName};
use crate::shard_key::oid::{TEXT, TEXT_ARRAY};
use crate::sql::analysis::{Combination, Combine, Merge};
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, data_row_columns, shard_tag};

/// A column of the shards' rows that is text in such a collation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrankedColumn {
    pub column: usize,
    type_oid: u32,
    collation: String,
    /// The rows are sorted by it: the n-th item of ORDER BY. `None`: groups are combined by it.
    pub sort_key: Option<usize>,
}

/// Values to be ranked, each once.
#[derive(Debug, PartialEq, Eq)]
pub struct Unranked {
    /// As SQL names it.
    pub collation: String,
    pub values: Vec<Bytes>,
}

/// The place of each value among the others.
#[derive(Clone, Debug, Default)]
pub struct Ranks(Arc<HashMap<Bytes, i64>>);

impl Ranks {
    pub fn of(&self, value: &[u8]) -> Option<i64> {
        self.0.get(value).copied()
    }
}

impl FromIterator<(Bytes, i64)> for Ranks {
    fn from_iter<I: IntoIterator<Item = (Bytes, i64)>>(ranks: I) -> Self {
        Self(Arc::new(ranks.into_iter().collect()))
    }
}

/// What PostgreSQL must be asked for before rows with these columns are merged.
pub fn unranked_columns(merge: &Merge, columns: &[FieldDescription]) -> Vec<UnrankedColumn> {
    let unranked = |column: usize, collation: Option<&str>, sort_key: Option<usize>| {
        let type_oid = columns.get(column)?.type_oid;
        let collation = collation.filter(|_| is_text(type_oid))?.to_owned();
        Some(UnrankedColumn { column, type_oid, collation, sort_key })
    };
    match &merge.combine {
        Some(Combine::Groups(groups)) => {
            let extremes = groups.columns.iter().enumerate().filter_map(|(column, combination)| match combination {
                Combination::Minimum(order) | Combination::Maximum(order) => unranked(column, order.asked(), None),
                _ => None,
            });
            extremes.collect()
        }
        Some(Combine::Distinct(_)) | None => {
            let keys = merge.order_by.iter().enumerate();
            keys.filter_map(|(place, key)| unranked(key.column, key.text.asked(), Some(place))).collect()
        }
    }
}

impl UnrankedColumn {
    /// What the rows have there. `rows`: whole frames.
    pub fn values<'r>(&self, rows: impl Iterator<Item = &'r [u8]>) -> Unranked {
        let value = |frame: &'r [u8]| {
            let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
            data_row_columns(body).nth(self.column).and_then(Result::ok).flatten()
        };
        let values: HashSet<&[u8]> = rows.filter_map(value).map(|value| compared_text(self.type_oid, value)).collect();
        Unranked { collation: self.collation.clone(), values: values.into_iter().map(Bytes::copy_from_slice).collect() }
    }
}

impl Unranked {
    fn query(&self) -> String {
        format!(
            "SELECT pg_catalog.dense_rank() OVER (ORDER BY v COLLATE {}) FROM pg_catalog.unnest($1) WITH ORDINALITY AS r (v, n) ORDER BY n",
            self.collation
        )
    }

    /// The rest of a Bind: one array of text in binary, since its text form would have to be escaped in the client's encoding.
    fn bind(&self) -> Vec<u8> {
        let mut array = Vec::new();
        array.put_i32(1);
        array.put_i32(0);
        array.put_u32(TEXT);
        array.put_i32(i32::try_from(self.values.len()).unwrap_or(i32::MAX));
        array.put_i32(1);
        for value in &self.values {
            array.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
            array.put_slice(value);
        }
        let mut out = Vec::with_capacity(array.len() + 16);
        // One format for all, binary; one value; results in text.
        [1, 1, 1].into_iter().for_each(|count| out.put_i16(count));
        out.put_i32(i32::try_from(array.len()).unwrap_or(i32::MAX));
        out.put_slice(&array);
        out.put_i16(0);
        out
    }
}

/// Asks for the order of all. An ErrorResponse comes back as its whole frame. Reads to the end, also after an error, so that the
/// connection stays usable. Not cancel safe.
pub async fn ranks(connection: &mut Connection, columns: &[Unranked]) -> Result<Result<Vec<Ranks>, Bytes>, ConnectionError> {
    connection.unnamed = None;
    connection.pending.clear();
    for column in columns {
        let query = column.query();
        let text = Own::Constants.text(&query);
        connection.output.parse(StatementName::Unnamed, &text, &[TEXT_ARRAY]);
        connection.output.bind(b"", StatementName::Unnamed, &text, &column.bind());
        connection.output.execute(b"", 0);
    }
    connection.output.sync();
    connection.flush().await?;
    let mut told: Vec<Vec<i64>> = vec![Vec::new()];
    let mut refusal = None;
    loop {
        let Some(Frame { header, is_complete: true }) = connection.peek()? else {
            connection.fill().await?;
            continue;
        };
        let frame = connection.input.get(..header.total).unwrap_or_default();
        let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        match header.tag {
            shard_tag::DATA_ROW => told.last_mut().into_iter().for_each(|ranks| ranks.extend(rank(body))),
            shard_tag::COMMAND_COMPLETE => told.push(Vec::new()),
            shard_tag::ERROR => refusal = Some(Bytes::copy_from_slice(frame)),
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                connection.input.advance(header.total);
                break;
            }
            _ => {}
        }
        connection.input.advance(header.total);
    }
    // A value whose rank has not come has none, which is found out where it is compared.
    let ranked = |(column, ranks): (&Unranked, Vec<i64>)| column.values.iter().cloned().zip(ranks).collect::<Ranks>();
    Ok(refusal.map_or_else(|| Ok(columns.iter().zip(told).map(ranked).collect()), Err))
}

fn rank(body: &[u8]) -> Option<i64> {
    let value = data_row_columns(body).next()?.ok()??;
    std::str::from_utf8(value).ok()?.parse().ok()
}
