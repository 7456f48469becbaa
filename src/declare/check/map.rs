//! What `shardgate check` finds in the map itself: what waits for a person there, passwords, and proxies of different versions.

use std::collections::BTreeSet;

use super::Finding;
use crate::config::ShardUrl;
use crate::shardmap::{RunningProxy, Standing, StandingMove, Store, StoreError};

pub(super) async fn findings(store: &Store) -> Result<Vec<Finding>, StoreError> {
    let mut found: Vec<Finding> = store.standing_moves().await?.iter().map(standing).collect();
    found.extend(store.pieces_in_trouble().await?.into_iter().map(|piece| {
        Finding::new(
            format!("table \"{}\"", piece.table),
            format!("its next piece by time ({}) is not where it should be: {}", piece.every, piece.error),
            "Mend that, and call shardgate.time_partitions() again; move_partition() carries a piece that is there already.",
        )
    }));
    found.extend(store.replication_urls().await?.into_iter().filter_map(|(shard, url)| password(&shard, &url)));
    found.extend(versions(&store.running_proxies().await?));
    Ok(found)
}

fn standing(the_move: &StandingMove) -> Finding {
    let StandingMove { partitions, source, target, state, .. } = the_move;
    let id = the_move.id.0;
    let subject = format!("move {id}");
    let what = format!("of partitions {partitions} from \"{source}\" to \"{target}\"");
    let because = the_move.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    match the_move.standing {
        Standing::Failed => Finding::new(
            subject,
            format!("it has failed, {what}{because}"),
            format!("\"shard-rebalance show {id}\" says more; \"shard-rebalance resume {id}\" lets it go on when that is mended."),
        ),
        Standing::Abandoned(seconds) => Finding::new(
            subject,
            format!("nobody has driven it for {seconds} s, {what}, in state {state}{because}"),
            format!("Start a proxy that reaches the map database, or drive it: \"shard-rebalance resume {id}\"."),
        ),
        Standing::Paused => Finding::new(
            subject,
            format!("it is paused, {what}, in state {state}"),
            format!("When it is to go on: \"shard-rebalance resume {id}\"."),
        )
        .warning(),
        Standing::Waits => Finding::new(
            subject,
            format!("it waits, {what}, in state {state}{because}"),
            format!("\"shard-rebalance show {id}\" says how far it is, and what ends it."),
        )
        .warning(),
    }
}

fn password(shard: &str, url: &str) -> Option<Finding> {
    ShardUrl::parse(url).ok()?.password?;
    Some(
        Finding::new(
            format!("shard \"{shard}\""),
            "the password of its replication_url stands in the map, where whoever may read the map database, or a dump of it, can read it",
            format!(
                "Put it into a file on each proxy's machine: \
                 SELECT shardgate.alter_shard('{shard}', replication_url => 'postgres://…?passfile=…')."
            ),
        )
        .warning(),
    )
}

/// A rolling upgrade mixes two for a while.
fn versions(proxies: &[RunningProxy]) -> Option<Finding> {
    let named = |proxy: &RunningProxy| proxy.version.clone().unwrap_or_else(|| "unknown".to_owned());
    let versions: BTreeSet<String> = proxies.iter().map(named).collect();
    (versions.len() > 1).then(|| {
        let shown: Vec<String> = proxies.iter().map(|proxy| format!("{} of version {}", proxy.address, named(proxy))).collect();
        Finding::new(
            "map",
            format!("proxies of different versions run: {}", shown.join(", ")),
            "Upgrade the others; until then declare nothing, change no schema and move no partition.",
        )
        .warning()
    })
}
