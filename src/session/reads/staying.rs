//! Which input of a statement over several shards stays where it is, and which are brought to it.
//!
//! Nothing is known of sizes but what PostgreSQL expects: one shard, which has its share of every table, is asked by EXPLAIN for what
//! it would send for each input. That is one trip, and only for statements of which an input may stay. Where the biggest one is far
//! bigger than all that would be brought to it, it stays. A wrong guess costs time: what turns out to be too much is gathered after
//! all, and the session remembers the statement.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::gather;
use super::gather::release;
use crate::backend::{ConnectionError, Own};
use crate::error::{PgError, SqlState};
use crate::plan::Gathering;
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::gather::{BROUGHT_BYTES_MAX, BROUGHT_ROWS_MAX, Choice, Input, KnownKeys, Recipe, Source};

/// Statements that have been tried in vain, by their hashes.
#[derive(Debug, Default)]
pub(in crate::session) struct NotStaying {
    hashes: HashSet<u64>,
    hasher: foldhash::fast::RandomState,
}

impl NotStaying {
    pub fn note(&mut self, text: &str) {
        if self.hashes.len() == REMEMBERED_MAX {
            self.hashes.clear();
        }
        self.hashes.insert(self.hasher.hash_one(text));
    }

    fn has(&self, text: &str) -> bool {
        !self.hashes.is_empty() && self.hashes.contains(&self.hasher.hash_one(text))
    }
}

/// What PostgreSQL expects of an input, on all shards.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    rows: f64,
    bytes: f64,
}

/// The recipe by which an input stays where it is, where that is worth it. `value`: of a parameter, as SQL.
pub(in crate::session) async fn staying(
    session: &mut Session,
    gathering: &Gathering,
    text: &str,
    value: &(dyn Fn(u16, Option<u32>) -> Option<String> + Sync),
) -> Result<Option<Recipe>, Failure> {
    let scope = session.transaction_scope();
    let is_own = scope.holds_any || session.transaction.schema_change.is_some() || (scope.is_open && scope.has_snapshot);
    let recipe = &gathering.recipe;
    let is_tried = !is_own && !recipe.has_clock && !recipe.reads(Source::Temporary) && !session.staging.not_staying.has(text);
    if !is_tried || text.len() > TEXT_MAX || !gather::computes_in_transport(session) {
        return Ok(None);
    }
    let Some(choice) = Choice::of(text, &session.context) else { return Ok(None) };
    let inputs: Option<Vec<Input>> = choice.inputs().iter().map(|input| input.bound(value)).collect();
    let Some(inputs) = inputs else { return Ok(None) };
    let Some(sizes) = Box::pin(sizes(session, &inputs, gathering.reach.shards())).await? else { return Ok(None) };
    let sized: Vec<(&Input, Size)> = inputs.iter().zip(sizes).collect();
    let Some(mut brought) = brought(session, &sized) else { return Ok(None) };
    let recipe_by = |brought: &[String]| choice.recipe(&session.context, &|name| brought.iter().any(|brought| brought == name));
    let mut chosen = recipe_by(&brought);
    // Colocated with what stays, a small one may stay too; the biggest of them first.
    for index in (0..brought.len()).rev() {
        let mut fewer = brought.clone();
        fewer.remove(index);
        if let Some(recipe) = recipe_by(&fewer) {
            (brought, chosen) = (fewer, Some(recipe));
        }
    }
    let bound = chosen.and_then(|recipe| {
        let inputs = recipe.inputs.iter().map(|input| input.bound(value)).collect::<Option<_>>()?;
        Some(Recipe { inputs, ..recipe })
    });
    if bound.is_none() {
        session.staging.not_staying.note(text);
    }
    Ok(bound)
}

/// The inputs that are far smaller than the rest.
fn brought(session: &Session, sized: &[(&Input, Size)]) -> Option<Vec<String>> {
    let stay_bytes_min = session.gateway.config.cross_shard.stay_bytes_min as f64;
    let mut ordered: Vec<&(&Input, Size)> = sized.iter().collect();
    // What can only be brought comes first.
    let is_sharded = |input: &Input| input.source == Source::Shards;
    ordered.sort_by(|(left, left_size), (right, right_size)| {
        is_sharded(left).cmp(&is_sharded(right)).then(left_size.bytes.total_cmp(&right_size.bytes))
    });
    let (mut brought, mut bytes) = (Vec::new(), 0.0);
    let (_, candidates) = ordered.split_last()?;
    for (input, size) in candidates.iter().copied() {
        let is_small = size.rows <= BROUGHT_ROWS_MAX as f64 && bytes + size.bytes <= BROUGHT_BYTES_MAX as f64;
        match (is_small, is_sharded(input)) {
            (true, _) => {
                bytes += size.bytes;
                brought.push(input.name.clone());
            }
            (false, true) => break,
            (false, false) => return None,
        }
    }
    let rest = ordered.iter().skip(brought.len()).map(|(_, size)| size.bytes).sum::<f64>();
    let is_far_bigger = rest >= stay_bytes_min && (rest >= bytes * BIGGER_TIMES || stay_bytes_min == 0.0);
    tracing::debug!(brought = brought.len(), bytes, rest, is_far_bigger, "sizes of inputs");
    (is_far_bigger && !brought.is_empty()).then_some(brought)
}

/// As one shard expects them; those of the home shard's tables there.
async fn sizes(session: &mut Session, inputs: &[Input], shards: &[ShardId]) -> Result<Option<Vec<Size>>, Failure> {
    let home = session.home()?.id;
    let asked = shards.iter().copied().find(|shard| *shard != home).unwrap_or(home);
    let of = |is_sharded: bool| -> Vec<&Input> {
        inputs.iter().filter(|input| (input.source == Source::Shards) == is_sharded).collect()
    };
    let (Some(on_shards), Some(at_home)) = (expected(session, asked, &of(true)).await?, expected(session, home, &of(false)).await?)
    else {
        return Ok(None);
    };
    let (mut on_shards, mut at_home) = (on_shards.into_iter(), at_home.into_iter());
    let count = shards.len() as f64;
    let size = |input: &Input| match input.source == Source::Shards {
        true => on_shards.next().map(|Size { rows, bytes }| Size { rows: rows * count, bytes: bytes * count }),
        false => at_home.next(),
    };
    Ok(inputs.iter().map(size).collect())
}

/// What PostgreSQL expects of these on one shard. `None`: it does not say.
async fn expected(session: &mut Session, shard: ShardId, inputs: &[&Input]) -> Result<Option<Vec<Size>>, Failure> {
    if inputs.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let known = KnownKeys::new();
    let queries: Vec<String> = inputs.iter().map(|input| format!("EXPLAIN (FORMAT JSON) {}", input.query(&known))).collect();
    let shard = session.gateway.shard(shard)?;
    let settings = session.settings_now();
    let mut connection = session.checkout(&shard, &settings).await?;
    session.cancel.started(&connection);
    let answered = timeout(TIME_MAX, connection.simple(&Own::Plan.text(&queries.join(";")))).await;
    if !connection.is_clean() {
        connection.stop().await;
    }
    release(&session.cancel, connection);
    match answered {
        Ok(Ok(rows)) => {
            let size = |row: &Vec<Option<bytes::Bytes>>| size(row.first()?.as_deref()?);
            Ok(rows.iter().map(size).collect::<Option<Vec<Size>>>().filter(|sizes| sizes.len() == inputs.len()))
        }
        Ok(Err(ConnectionError::Refused { sqlstate, message, .. })) if sqlstate.as_bytes() == SqlState::QUERY_CANCELED.0 => {
            Err(PgError::new(SqlState::QUERY_CANCELED, message).into())
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "sizes of inputs not found");
            Ok(None)
        }
        Err(_) => Ok(None),
    }
}

/// Of the rows of a plan.
fn size(document: &[u8]) -> Option<Size> {
    let document: Value = serde_json::from_slice(document).ok()?;
    let plan = document.get(0)?.get("Plan")?;
    let (rows, width) = (plan.get("Plan Rows")?.as_f64()?, plan.get("Plan Width")?.as_f64()?);
    Some(Size { rows, bytes: rows * (width + ROW_BYTES) })
}

/// How many times what is brought the rest must be.
const BIGGER_TIMES: f64 = 4.0;
/// Besides its values.
const ROW_BYTES: f64 = 8.0;
/// Of a text that is read once more, several times.
const TEXT_MAX: usize = 16 * 1024;
const REMEMBERED_MAX: usize = 256;
/// A lock may be in the way.
const TIME_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_that_of_the_topmost_plan() {
        let found = size(br#"[{"Plan": {"Plan Rows": 100, "Plan Width": 12, "Plans": [{"Plan Rows": 5, "Plan Width": 1}]}}]"#);
        assert_eq!(found.map(|size| (size.rows, size.bytes)), Some((100.0, 2000.0)));
        assert!(size(b"[]").is_none() && size(b"x").is_none());
    }
}
