//! Compares source and target row by row, by hash, while the application writes.
//!
//! ```text
//! source: S1 ─► marker ─► arrived ─► target: T ─► source: S2
//! ```
//! T is at least as new as S1 and no newer than S2. What is the same in S1 and S2 was not written in between, and has to be the same
//! in T; what differs is looked at again, and is a difference only if it lasts: a row may have been written and written back. First by
//! buckets of rows, then row by row in the buckets that are not settled.

use std::collections::{BTreeMap, BTreeSet};

use super::direction::Direction;
use super::marker;
use super::moved_table::{Columns, MovedTable};
use super::moving::Moving;
use super::site::{Site, SiteError};
use super::stop::Stop;

/// Two sites with the same rows, of which the target comes after the source.
pub(super) trait Sides {
    fn source(&mut self) -> &mut Site;
    fn target(&mut self) -> &mut Site;
    /// Waits until the target has what the source has now.
    async fn catch_up(&mut self) -> Result<(), Stop>;
}

struct Following<'m> {
    moving: &'m mut Moving,
    direction: Direction,
}

impl Sides for Following<'_> {
    fn source(&mut self) -> &mut Site {
        self.moving.publisher(self.direction)
    }

    fn target(&mut self) -> &mut Site {
        self.moving.subscriber(self.direction)
    }

    async fn catch_up(&mut self) -> Result<(), Stop> {
        marker::round_trip(self.moving, self.direction).await.map(drop)
    }
}

/// Gives the number of rows. Differences stop the move.
pub(super) async fn compare(moving: &mut Moving, direction: Direction) -> Result<i64, Stop> {
    let mut rows = 0;
    for table in moving.tables.clone() {
        rows += compare_table(&mut Following { moving, direction }, &table).await?;
    }
    Ok(rows)
}

pub(super) async fn compare_table(sides: &mut impl Sides, table: &MovedTable) -> Result<i64, Stop> {
    let columns = table.columns(sides.source()).await?;
    let mut rows = 0;
    let mut open: Option<BTreeSet<i32>> = None;
    for round in 0..ROUNDS_OF_BUCKETS {
        let before = buckets(sides.source(), table, &columns, open.as_ref()).await?;
        sides.catch_up().await?;
        let target = buckets(sides.target(), table, &columns, open.as_ref()).await?;
        let after = buckets(sides.source(), table, &columns, open.as_ref()).await?;
        if round == 0 {
            rows = after.values().map(|(count, _)| count).sum();
        }
        let unsettled = unsettled(&before, &target, &after);
        if unsettled.is_empty() {
            return Ok(rows);
        }
        open = Some(unsettled);
    }
    compare_rows(sides, table, &columns, &open.unwrap_or_default()).await?;
    Ok(rows)
}

/// Row by row. A row that was written and written back in between looks like a difference once, not in each of the rounds.
async fn compare_rows(sides: &mut impl Sides, table: &MovedTable, columns: &Columns, buckets: &BTreeSet<i32>) -> Result<(), Stop> {
    let mut suspects: Option<BTreeMap<String, Contrast>> = None;
    for _ in 0..ROUNDS_OF_ROWS {
        let before = row_hashes(sides.source(), table, columns, buckets).await?;
        sides.catch_up().await?;
        let target = row_hashes(sides.target(), table, columns, buckets).await?;
        let after = row_hashes(sides.source(), table, columns, buckets).await?;
        let mut differing = differing(&before, &target, &after);
        if let Some(earlier) = &suspects {
            differing.retain(|key, sides| earlier.get(key) == Some(sides));
        }
        if differing.is_empty() {
            return Ok(());
        }
        suspects = Some(differing);
    }
    let keys: Vec<String> = suspects.unwrap_or_default().into_keys().take(5).collect();
    Err(Stop::Differ(format!("source and target differ: table {}, rows {}", table.quoted, keys.join(", "))))
}

/// What source and target have of a row.
type Contrast = (Option<String>, Option<String>);

/// By bucket: how many rows, and the sum of their hashes. By row: its hash.
type Contents<K, V> = BTreeMap<K, V>;

/// Those that are not the same everywhere: written to in between, or different.
fn unsettled<K: Ord + Clone, V: PartialEq>(
    before: &Contents<K, V>,
    target: &Contents<K, V>,
    after: &Contents<K, V>,
) -> BTreeSet<K> {
    let all: BTreeSet<&K> = before.keys().chain(target.keys()).chain(after.keys()).collect();
    let is_same = |key: &K| before.get(key) == after.get(key) && target.get(key) == before.get(key);
    all.into_iter().filter(|key| !is_same(key)).cloned().collect()
}

/// Those that are the same at the source before and after, and something else at the target.
fn differing(
    before: &Contents<String, String>,
    target: &Contents<String, String>,
    after: &Contents<String, String>,
) -> BTreeMap<String, Contrast> {
    let unsettled = unsettled(before, target, after);
    let differs = unsettled.into_iter().filter(|key| before.get(key) == after.get(key));
    differs.map(|key| (key.clone(), (before.get(&key).cloned(), target.get(&key).cloned()))).collect()
}

/// The whole row as text: a type need not have a hash. In the order of the columns' names, which both sides share.
fn row_text(columns: &Columns) -> String {
    format!("ROW({})::pg_catalog.text", columns.all.join(", "))
}

fn identity(columns: &Columns) -> String {
    match columns.primary_key.is_empty() {
        true => row_text(columns),
        false => format!("ROW({})::pg_catalog.text", columns.primary_key.join(", ")),
    }
}

fn bucket(columns: &Columns) -> String {
    format!("(pg_catalog.hashtext({}) & {})", identity(columns), BUCKETS - 1)
}

fn only(buckets: Option<&BTreeSet<i32>>, bucket: &str) -> String {
    let listed = |buckets: &BTreeSet<i32>| buckets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    buckets.map(|buckets| format!(" AND {bucket} IN ({})", listed(buckets))).unwrap_or_default()
}

async fn buckets(
    site: &mut Site,
    table: &MovedTable,
    columns: &Columns,
    of: Option<&BTreeSet<i32>>,
) -> Result<Contents<i32, (i64, String)>, SiteError> {
    let bucket = bucket(columns);
    let sql = format!(
        "SELECT {bucket}, count(*), sum(pg_catalog.hashtextextended({}, 0)::pg_catalog.numeric)::pg_catalog.text
         FROM ONLY {} WHERE {}{} GROUP BY 1",
        row_text(columns),
        table.quoted,
        table.condition,
        only(of, &bucket)
    );
    Ok(site.rows::<(i32, i64, String)>(&sql).await?.into_iter().map(|(bucket, count, sum)| (bucket, (count, sum))).collect())
}

async fn row_hashes(
    site: &mut Site,
    table: &MovedTable,
    columns: &Columns,
    of: &BTreeSet<i32>,
) -> Result<Contents<String, String>, SiteError> {
    let sql = format!(
        "SELECT {}, pg_catalog.string_agg(pg_catalog.hashtextextended({}, 0)::pg_catalog.text, ',' ORDER BY 1)
         FROM ONLY {} WHERE {}{} GROUP BY 1",
        identity(columns),
        row_text(columns),
        table.quoted,
        table.condition,
        only(Some(of), &bucket(columns))
    );
    Ok(site.rows::<(String, String)>(&sql).await?.into_iter().collect())
}

/// A power of two.
const BUCKETS: i32 = 1024;
const ROUNDS_OF_BUCKETS: usize = 3;
const ROUNDS_OF_ROWS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_in_between_has_to_be_the_same() {
        let contents = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, hash)| ((*key).to_owned(), (*hash).to_owned())).collect::<Contents<String, String>>()
        };
        let before = contents(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let target = contents(&[("a", "1"), ("b", "9"), ("d", "4")]);
        let after = contents(&[("a", "1"), ("b", "2"), ("c", "5")]);
        let some = |hash: &str| Some(hash.to_owned());
        let expected = BTreeMap::from([("b".to_owned(), (some("2"), some("9"))), ("d".to_owned(), (None, some("4")))]);
        assert_eq!(differing(&before, &target, &after), expected);
        assert_eq!(unsettled(&before, &target, &after), BTreeSet::from(["b", "c", "d"].map(str::to_owned)));
    }
}
