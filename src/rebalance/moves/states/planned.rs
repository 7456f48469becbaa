//! `planned`: looks before anything is changed, then shuts out changes of the schema.

use serde_json::json;

use super::super::moved_table::bytes_sql;
use super::super::moving::Moving;
use super::super::preflight;
use super::super::servers;
use super::super::stop::Stop;

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let findings = preflight::findings(moving).await?;
    if !findings.is_empty() {
        // A finding may end with a statement.
        let all: Vec<String> = findings.iter().map(|finding| finding.to_string().trim_end_matches(';').to_owned()).collect();
        return Err(Stop::Withdraw(all.join("; ")));
    }
    let bytes = expected_bytes(moving).await?;
    let (servers, known) = servers::to_remember(moving);
    moving.advance(moving.the_move.state, json!({ "bytes_expected": bytes, servers: known.clone() })).await?;
    moving.the_move.journal[servers] = known;
    match moving.store.begin_move(&moving.actor, moving.the_move.id, moving.term).await? {
        Some(_) => {
            moving.reach("announced").await;
            Ok(())
        }
        None => Err(Stop::Again("waits for another move of these tables, or for a change of the schema".to_owned())),
    }
}

/// The set's part of the tables, by the number of partitions.
async fn expected_bytes(moving: &mut Moving) -> Result<i64, Stop> {
    let bytes: i64 = moving.source.value(&format!("SELECT {}", bytes_sql(&moving.sharded))).await?;
    let source = moving.the_move.partitions.first().and_then(|id| moving.group.partition(*id)).map(|partition| partition.shard);
    let there = moving.group.partitions.iter().filter(|partition| Some(partition.shard) == source).count().max(1);
    Ok(bytes / i64::try_from(there).unwrap_or(1) * i64::try_from(moving.the_move.partitions.len()).unwrap_or(1))
}
