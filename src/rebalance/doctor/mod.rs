//! `doctor`: what is left over or inconsistent on the shards, and with `--fix` its removal.
//!
//! What bears the name of a move that runs is the move's own and never a finding. What bears the name of one that has ended, or of
//! none, is left over: it is removed by its name. Rows on a shard that does not own them are told and never deleted here; nor is what a
//! shard knows of a move that the map has forgotten. Only what a shard owes that was lost when a move was given up is deleted, by what the map has
//! written down of it (`owed`).

mod copies;
mod declarations;
mod fences;
mod named;
mod owed;
mod records;
mod schemas;
mod strays;
mod transactions;
mod waiting;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::RebalanceError;
use super::cluster::{self, Cluster, Detail};
use super::moves::site::{Site, SiteError};
use crate::shardmap::{MapSnapshot, Move, MoveId, Owed, Shard, Store, Term};

#[derive(Clone, Copy, Debug)]
pub struct DoctorOptions {
    pub fixes: bool,
    pub is_json: bool,
}

/// One thing that should not be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// `None`: in the map.
    pub shard: Option<String>,
    pub what: String,
    /// What removes it, or what to do.
    pub remedy: String,
    pub is_fixed: bool,
    #[serde(skip)]
    sql: Option<String>,
    /// Of which it is left.
    #[serde(skip)]
    move_id: Option<i32>,
}

impl Leftover {
    fn in_map(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { shard: None, what: what.into(), remedy: remedy.into(), is_fixed: false, sql: None, move_id: None }
    }

    fn on(shard: &str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { shard: Some(shard.to_owned()), ..Self::in_map(what, remedy) }
    }

    /// What removes it is the remedy.
    fn removable(shard: &str, what: impl Into<String>, sql: String) -> Self {
        Self { sql: Some(sql.clone()), ..Self::on(shard, what, sql) }
    }

    fn of_move(self, id: i32) -> Self {
        Self { move_id: Some(id), ..self }
    }
}

/// Moves that have not ended, and their states.
type Running = BTreeMap<i32, &'static str>;

/// Gives whether anything was found that is not fixed.
pub async fn doctor(map_url: &str, options: DoctorOptions) -> Result<bool, RebalanceError> {
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    let map = store.load().await?.snapshot;
    let moves = store.running_moves().await?;
    let running: Running = moves.iter().map(|the_move| (the_move.id.0, the_move.state.name())).collect();
    let cluster = cluster::read(map_url, Detail::Keys).await?;
    let mut found = in_the_map(&cluster);
    found.extend(waiting::find(&store, &moves).await?);
    found.extend(fences::find(&store, &map, options.fixes).await?);
    let copies = copies::Copies::read(&map).await;
    let owed = store.owed().await?;
    for shard in map.shards.iter().filter(|shard| shard.state.is_ready()) {
        let look =
            Look { store: &store, map: &map, cluster: &cluster, moves: &moves, running: &running, copies: &copies, owed: &owed };
        found.extend(Box::pin(look.on_shard(shard, options.fixes)).await);
    }
    print(&found, options.is_json)?;
    Ok(found.iter().any(|leftover| !leftover.is_fixed))
}

fn in_the_map(cluster: &Cluster) -> Vec<Leftover> {
    let moving: Vec<i32> = cluster.moves.iter().map(|the_move| the_move.partition_id).collect();
    let stuck =
        cluster.partitions.iter().filter(|partition| partition.state != "online" && !moving.contains(&partition.partition_id));
    let stuck = stuck.map(|partition| {
        Leftover::in_map(
            format!("partition {} is {} without a move", partition.partition_id, partition.state),
            "tell the developers how it came to that; the history of the map says who changed it",
        )
    });
    stuck.collect()
}

/// By what shards are looked at.
struct Look<'a> {
    store: &'a Store,
    map: &'a MapSnapshot,
    cluster: &'a Cluster,
    moves: &'a [Move],
    running: &'a Running,
    copies: &'a copies::Copies,
    owed: &'a [Owed],
}

impl Look<'_> {
    async fn on_shard(&self, shard: &Shard, fixes: bool) -> Vec<Leftover> {
        let mut site = match Box::pin(Site::open(shard, MoveId(0), Term(0))).await {
            Ok(site) => site,
            Err(error) => return vec![self.unreachable(shard, &error.to_string())],
        };
        let mut found = match self.leftovers(&mut site).await {
            Ok(found) => found,
            Err(error) => return vec![self.unreachable(shard, &error.to_string())],
        };
        // A move is planned before it makes anything: what has come since is of one that runs by now.
        let now = match self.store.running_moves().await {
            Ok(now) => now,
            Err(error) => return vec![self.unreachable(shard, &error.to_string())],
        };
        found.retain(|leftover| now.iter().all(|the_move| leftover.move_id != Some(the_move.id.0)));
        if fixes {
            for leftover in &mut found {
                if let Some(sql) = &leftover.sql {
                    match site.send(sql).await {
                        Ok(()) => leftover.is_fixed = true,
                        Err(error) => leftover.remedy = format!("{} (it failed: {error})", leftover.remedy),
                    }
                }
            }
        }
        match declarations::find(shard, &mut site, self, fixes).await {
            Ok(left) => found.extend(left),
            Err(error) => found.push(self.unreachable(shard, &error.to_string())),
        }
        match schemas::find(shard, self).await {
            Ok(differing) => found.extend(differing),
            Err(error) => found.push(Leftover::on(
                &shard.name,
                format!("its schema could not be compared with the home shard's: {error}"),
                "run doctor again",
            )),
        }
        let owed = owed::find(shard, self, (&found, fixes)).await;
        // What it owes lies where it is not owned.
        let is_settled = owed.iter().all(|owed| owed.is_fixed);
        found.extend(owed);
        if is_settled {
            found.extend(strays::find(shard, self).await);
        }
        found
    }

    fn unreachable(&self, shard: &Shard, error: &str) -> Leftover {
        Leftover::on(&shard.name, format!("the shard cannot be looked at: {error}"), waiting::remedy(self.map, shard, self.moves))
    }

    /// In the order in which they can be removed.
    async fn leftovers(&self, site: &mut Site) -> Result<Vec<Leftover>, SiteError> {
        let mut found = named::find(site, self.running).await?;
        found.extend(records::find(site, self).await?);
        found.extend(copies::find(site, self.copies).await?);
        found.extend(transactions::find(site, &self.cluster.cluster_id).await?);
        Ok(found)
    }
}

fn print(found: &[Leftover], is_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(found)?)?;
        return out.flush();
    }
    if found.is_empty() {
        writeln!(out, "Nothing is left over.")?;
    }
    for leftover in found {
        let place = leftover.shard.as_deref().map_or_else(|| "map".to_owned(), |shard| format!("shard {shard}"));
        match leftover.is_fixed {
            true => writeln!(out, "{place}: {}: removed", leftover.what)?,
            false => writeln!(out, "{place}: {}\n    {}", leftover.what, leftover.remedy)?,
        }
    }
    out.flush()
}
