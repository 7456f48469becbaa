//! `doctor`: what is left over or inconsistent on the shards, and with `--fix` its removal.
//!
//! What bears the name of a move that runs is the move's own and never a finding. What bears the name of one that has ended, or of
//! none, is left over: it is removed by its name. Rows on a shard that does not own them are told and never deleted here.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sqlx::FromRow;

use super::RebalanceError;
use super::cluster::{self, Cluster, Detail};
use super::moves;
use super::moves::site::{Site, SiteError};
use super::sizes;
use crate::catalog::quoted_identifier;
use crate::shardmap::{MapSnapshot, MoveId, Shard, Store, Term};

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

/// Gives whether anything was found that is not fixed.
pub async fn doctor(map_url: &str, options: DoctorOptions) -> Result<bool, RebalanceError> {
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    let map = store.load().await?.snapshot;
    let running: BTreeMap<i32, &'static str> =
        store.running_moves().await?.iter().map(|the_move| (the_move.id.0, the_move.state.name())).collect();
    let cluster = cluster::read(map_url, Detail::Keys).await?;
    let mut found = in_the_map(&cluster, &running);
    for shard in map.shards.iter().filter(|shard| shard.state.is_ready()) {
        found.extend(on_shard(shard, (&store, &map), &cluster, &running, options.fixes).await);
    }
    print(&found, options.is_json)?;
    Ok(found.iter().any(|leftover| !leftover.is_fixed))
}

fn in_the_map(cluster: &Cluster, running: &BTreeMap<i32, &'static str>) -> Vec<Leftover> {
    let moving: Vec<i32> = cluster.moves.iter().map(|the_move| the_move.partition_id).collect();
    let mut found = Vec::new();
    for partition in cluster.partitions.iter().filter(|partition| partition.state != "online") {
        if !moving.contains(&partition.partition_id) {
            found.push(Leftover {
                shard: None,
                what: format!("partition {} is {} without a move", partition.partition_id, partition.state),
                remedy: "tell the developers how it came to that; the history of the map says who changed it".to_owned(),
                is_fixed: false,
                sql: None,
                move_id: None,
            });
        }
    }
    for (move_id, _) in running.iter().filter(|(_, state)| **state == "failed") {
        found.push(Leftover {
            shard: None,
            what: format!("move {move_id} has failed"),
            remedy: format!("\"shard-rebalance show {move_id}\" says why"),
            is_fixed: false,
            sql: None,
            move_id: None,
        });
    }
    found
}

async fn on_shard(
    shard: &Shard,
    (store, map): (&Store, &MapSnapshot),
    cluster: &Cluster,
    running: &BTreeMap<i32, &'static str>,
    fixes: bool,
) -> Vec<Leftover> {
    let unreachable = |error: String| {
        vec![Leftover {
            shard: Some(shard.name.clone()),
            what: format!("the shard cannot be looked at: {error}"),
            remedy: "run doctor again when it is back".to_owned(),
            is_fixed: false,
            sql: None,
            move_id: None,
        }]
    };
    let mut site = match Box::pin(Site::open(shard, MoveId(0), Term(0))).await {
        Ok(site) => site,
        Err(error) => return unreachable(error.to_string()),
    };
    let mut found = match leftovers(&mut site, running).await {
        Ok(found) => found,
        Err(error) => return unreachable(error.to_string()),
    };
    // A move is planned before it makes anything: what has come since is of one that runs by now.
    let now = match store.running_moves().await {
        Ok(now) => now,
        Err(error) => return unreachable(error.to_string()),
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
    found.extend(strays(&mut site, shard, map, cluster, running).await);
    found
}

#[derive(FromRow)]
struct Named {
    kind: String,
    move_id: i32,
    name: String,
    on_table: Option<String>,
    bytes: Option<i64>,
}

const NAMED: &str = r"SELECT kind, substring(name FROM '(?:move|gate)_(\d+)')::int4 AS move_id, name, on_table, bytes FROM (
        SELECT 'slot' AS kind, slot_name::text AS name, NULL AS on_table,
               pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 AS bytes
        FROM pg_replication_slots WHERE database = current_database() AND slot_name ~ '^shardgate_move_\d+(_back)?$'
        UNION ALL SELECT 'publication', pubname::text, NULL, NULL FROM pg_publication WHERE pubname ~ '^shardgate_move_\d+(_back)?$'
        UNION ALL SELECT 'subscription', subname::text, NULL, NULL FROM pg_subscription
            WHERE subname ~ '^shardgate_move_\d+(_back)?$' AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        UNION ALL SELECT 'trigger', tgname::text, tgrelid::regclass::text, NULL FROM pg_trigger
            WHERE tgname ~ '^(00|zz)_shardgate_move_\d+_' AND tgparentid = 0
        UNION ALL SELECT 'gate', relname::text, NULL, NULL FROM pg_class
            WHERE relnamespace = to_regnamespace('shardgate') AND relname ~ '^gate_\d+$' AND relkind = 'r'
     ) named ORDER BY CASE kind WHEN 'subscription' THEN 0 WHEN 'slot' THEN 1 WHEN 'publication' THEN 2 WHEN 'trigger' THEN 3 ELSE 4 END";

async fn leftovers(site: &mut Site, running: &BTreeMap<i32, &'static str>) -> Result<Vec<Leftover>, SiteError> {
    let named = site.rows::<Named>(NAMED).await?;
    let stray = named.into_iter().filter(|named| !running.contains_key(&named.move_id));
    let mut found: Vec<Leftover> = stray.map(|named| named.into_leftover(&site.name)).collect();
    // The function is dropped with the gate's table.
    if site.value::<bool>("SELECT to_regclass('shardgate.residue') IS NOT NULL").await? {
        let residues = site.rows::<(i32, i32)>("SELECT move_id, group_id FROM shardgate.residue").await?;
        for (move_id, group) in residues.into_iter().filter(|(move_id, _)| !running.contains_key(move_id)) {
            found.push(Leftover {
                shard: Some(site.name.clone()),
                what: format!("rows of group {group} count as residues of move {move_id}, which has ended"),
                remedy: "nothing reads it; it is removed".to_owned(),
                is_fixed: false,
                sql: Some(format!("DELETE FROM shardgate.residue WHERE move_id = {move_id}")),
                move_id: Some(move_id),
            });
        }
    }
    found.extend(covering_views(site, running).await?);
    Ok(found)
}

/// Those that no running move uses.
async fn covering_views(site: &mut Site, running: &BTreeMap<i32, &'static str>) -> Result<Vec<Leftover>, SiteError> {
    // A use is noted before its view is made.
    let views = site.rows::<(String,)>(COVERING_VIEWS).await?;
    let has_uses = site.value::<bool>("SELECT to_regclass('shardgate.covering_view') IS NOT NULL").await?;
    let uses = match has_uses {
        true => site.rows::<(i32, String)>("SELECT move_id, name::text FROM shardgate.covering_view ORDER BY 1, 2").await?,
        false => Vec::new(),
    };
    let leftover = |what: String, sql: String, move_id: Option<i32>| Leftover {
        shard: Some(site.name.clone()),
        what,
        remedy: sql.clone(),
        is_fixed: false,
        sql: Some(sql),
        move_id,
    };
    let mut ended: Vec<i32> = uses.iter().map(|(id, _)| *id).filter(|id| !running.contains_key(id)).collect();
    ended.dedup();
    let mut found: Vec<Leftover> = ended
        .into_iter()
        .map(|id| {
            let sql = moves::covering_views::remove_sql(MoveId(id));
            leftover(format!("covering views of move {id}, which has ended"), sql, Some(id))
        })
        .collect();
    let unused = views.into_iter().filter(|(view,)| uses.iter().all(|(_, used)| used != view));
    found.extend(unused.map(|(view,)| {
        let sql = format!("DROP VIEW IF EXISTS shardgate.{view} CASCADE");
        leftover(format!("covering view {view}, which no move uses"), sql, None)
    }));
    Ok(found)
}

const COVERING_VIEWS: &str = r"SELECT relname::text FROM pg_class
    WHERE relnamespace = to_regnamespace('shardgate') AND relkind = 'v' AND relname ~ '^view_[0-9a-f]{16}$' ORDER BY 1";

impl Named {
    fn into_leftover(self, shard: &str) -> Leftover {
        let name = quoted_identifier(&self.name);
        let sql = match self.kind.as_str() {
            "slot" => format!("SELECT pg_drop_replication_slot('{}')", self.name),
            "publication" => format!("DROP PUBLICATION {name}"),
            "subscription" => {
                format!(
                    "ALTER SUBSCRIPTION {name} DISABLE; ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}"
                )
            }
            "trigger" => {
                format!("SET lock_timeout = '2s'; DROP TRIGGER {name} ON {}", self.on_table.as_deref().unwrap_or_default())
            }
            _ => format!("DROP FUNCTION IF EXISTS shardgate.{name}(); DROP TABLE shardgate.{name}"),
        };
        let held = self
            .bytes
            .map(|bytes| format!(", which keeps {} of WAL", super::units::bytes(u64::try_from(bytes).unwrap_or_default())));
        Leftover {
            shard: Some(shard.to_owned()),
            what: format!("{} {}{} of move {}, which has ended", self.kind, self.name, held.unwrap_or_default(), self.move_id),
            remedy: sql.clone(),
            is_fixed: false,
            sql: Some(sql),
            move_id: Some(self.move_id),
        }
    }
}

/// Rows on a shard that does not own them, and that no move accounts for.
async fn strays(
    site: &mut Site,
    shard: &Shard,
    map: &MapSnapshot,
    cluster: &Cluster,
    running: &BTreeMap<i32, &'static str>,
) -> Vec<Leftover> {
    let Some(registered) = cluster.shards.iter().find(|registered| registered.name == shard.name) else { return Vec::new() };
    let Ok(sizes) = sizes::read(registered, cluster, true).await else { return Vec::new() };
    let owned: Vec<i32> = cluster
        .partitions
        .iter()
        .filter(|partition| partition.shard_id == shard.id.0)
        .map(|partition| partition.partition_id)
        .collect();
    // What moves may lie on both sides.
    let moving: Vec<i32> = cluster
        .moves
        .iter()
        .filter(|the_move| running.contains_key(&the_move.move_id) && [&the_move.source, &the_move.target].contains(&&site.name))
        .map(|the_move| the_move.partition_id)
        .collect();
    let counts = sizes.counts.unwrap_or_default();
    let strays = cluster.tables.iter().zip(counts).filter_map(|(table, counts)| {
        let rows = counts.outside(|partition| owned.contains(&partition) || moving.contains(&partition));
        (rows > 0 && map.table(&table.schema_name, &table.table_name).is_some()).then(|| Leftover {
            shard: Some(shard.name.clone()),
            what: format!("{rows} rows of table \"{}\" lie where they are not owned", table.display_name()),
            remedy: "look at them with SET shardgate.shard, and delete them; rows with a NULL key count as well".to_owned(),
            is_fixed: false,
            sql: None,
            move_id: None,
        })
    });
    strays.collect()
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
