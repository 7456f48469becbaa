//! Rows on a shard that does not own them, and that no move accounts for.

use super::{Leftover, Look};
use crate::rebalance::sizes;
use crate::shardmap::Shard;

/// They are told, and never deleted.
pub(super) async fn find(shard: &Shard, look: &Look<'_>) -> Vec<Leftover> {
    let Look { store, map, cluster, running, .. } = *look;
    let Some(registered) = cluster.shards.iter().find(|registered| registered.name == shard.name) else { return Vec::new() };
    let Ok(sizes) = sizes::read(registered, cluster, true).await else { return Vec::new() };
    let owned: Vec<i32> = cluster
        .partitions
        .iter()
        .filter(|partition| partition.shard_id == shard.id.0)
        .map(|partition| partition.partition_id)
        .collect();
    // What moves may lie on both sides, and may have begun to move before it was counted.
    let Ok(now) = store.running_moves().await else { return Vec::new() };
    let before = cluster.moves.iter().filter(|the_move| running.contains_key(&the_move.move_id));
    let before = before.map(|the_move| (&the_move.source, &the_move.target, the_move.partition_id));
    let now = now.iter().flat_map(|now| now.partitions.iter().map(|id| (&now.source, &now.target, id.0)));
    let is_here = |(source, target, _): &(&String, &String, i32)| [*source, *target].contains(&&shard.name);
    let moving: Vec<i32> = before.chain(now).filter(is_here).map(|(_, _, partition)| partition).collect();
    let counts = sizes.counts.unwrap_or_default();
    let strays = cluster.tables.iter().zip(counts).filter_map(|(table, counts)| {
        let rows = counts.outside(|partition| owned.contains(&partition) || moving.contains(&partition));
        (rows > 0 && map.table(&table.schema_name, &table.table_name).is_some()).then(|| {
            Leftover::on(
                &shard.name,
                format!("{rows} rows of table \"{}\" lie where they are not owned", table.display_name()),
                "look at them with SET shardgate.shard, and delete on the shard what nobody needs; rows with a NULL key count as well. \
                 If the map has failed over and has forgotten changes, they are the right ones: see \"What a map forgets\" in \
                 docs/failing-over.md",
            )
        })
    });
    strays.collect()
}
