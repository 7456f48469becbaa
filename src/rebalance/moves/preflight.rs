//! What would keep a move from being done, found before anything is changed: all of it at once, each with what to do.
//!
//! Rights are tried by doing, in a transaction that is rolled back.

use sqlx::FromRow;

use super::covering_views;
use super::direction::Direction;
use super::fencing;
use super::key_set::KeySet;
use super::moved_table::MovedTable;
use super::moving::Moving;
use super::objects;
use super::references;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::catalog::quoted_literal;
use crate::config::ShardUrl;
use crate::shardmap::{Group, MapSnapshot, MoveId, PartitionId, Shard, Store, Term};

mod tables;

/// One reason why the move cannot be done now.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}. {}", self.what, self.remedy)
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { what: what.into(), remedy: remedy.into() });
    }
}

pub(super) async fn findings(moving: &mut Moving) -> Result<Vec<Finding>, Stop> {
    let mut found = Findings::default();
    servers(moving, &mut found).await?;
    known_already(moving, &mut found).await?;
    let copier = copier(&moving.store, &moving.source.name).await?;
    for table in moving.sharded.clone() {
        tables::look(moving, &table, copier.as_deref(), &mut found).await?;
    }
    found.0.extend(Box::pin(covering_views::findings(moving)).await?);
    // Otherwise a right would be missed for what was found already.
    if found.0.is_empty() {
        rights(moving, &mut found).await?;
    }
    Ok(found.0)
}

/// What the schema says against moves of the group from this shard, before one is begun: the part of [`findings`] that needs no target.
/// A shard that cannot be asked is a finding.
pub(in crate::rebalance) async fn of_schema(store: &Store, map: &MapSnapshot, group: &Group, source: &Shard) -> Vec<Finding> {
    let mut found = Findings::default();
    if let Err(stop) = look_at_schema(store, map, (group, source), &mut found).await {
        found.add(
            format!("whether the schema lets rows move from shard \"{}\" is not known: {}", source.name, stop.reason()),
            "A move looks again before it begins",
        );
    }
    found.0
}

async fn look_at_schema(
    store: &Store,
    map: &MapSnapshot,
    (group, source): (&Group, &Shard),
    found: &mut Findings,
) -> Result<(), Stop> {
    let some: Vec<PartitionId> = group.partitions.iter().map(|partition| partition.id).take(1).collect();
    let keys = KeySet::read(store, group, &some).await?;
    let sharded = MovedTable::of_group(map, group, &keys).map_err(|reason| Stop::Abort(reason.0))?;
    let copier = copier(store, &source.name).await?;
    // It only looks.
    let (id, term) = (MoveId(0), Term(0));
    let mut site = Site::open(source, id, term).await?;
    for table in &sharded {
        tables::on_source(&mut site, table, copier.as_deref(), found).await?;
    }
    let home = map.home().ok_or_else(|| Stop::Again("there is no home shard".to_owned()))?;
    let mut home = Site::open(home, id, term).await?;
    found.0.extend(Box::pin(covering_views::of_schema(&mut home, map, group.id)).await?);
    Ok(())
}

/// Why moves of the group would wait for a shard that they neither leave nor come to, which does not answer. `None`: they would not, or it is
/// not known.
pub(in crate::rebalance) async fn waits_for(map: &MapSnapshot, group: &Group, away: &str) -> Option<Finding> {
    let mut home = Box::pin(Site::open(map.home()?, MoveId(0), Term(0))).await.ok()?;
    let is_needed = Box::pin(covering_views::are_needed(&mut home, map, group.id)).await.ok()?;
    is_needed.then(|| Finding {
        what: format!(
            "moves of group {} need every shard, for views of its tables or types of its keys, and wait for shard \"{away}\"",
            group.id.0
        ),
        remedy: "Let shardgate.alter_shard() name a server for it that answers, or drop these views for the time of the moves"
            .to_owned(),
    })
}

/// The user of the source's replication_url, where it has one.
async fn copier(store: &Store, source: &str) -> Result<Option<String>, Stop> {
    let urls = store.replication_urls().await?;
    let url = urls.iter().find(|(name, _)| name == source).map(|(_, url)| ShardUrl::parse(url));
    Ok(url.and_then(Result::ok).map(|url| url.user))
}

/// A map that has failed over, or was restored, may give the number of a move a second time.
async fn known_already(moving: &mut Moving, found: &mut Findings) -> Result<(), SiteError> {
    let id = moving.the_move.id.0;
    for site in [&mut moving.source, &mut moving.target] {
        let can_know = site.value::<bool>("SELECT pg_catalog.to_regclass('shardgate.switched') IS NOT NULL").await?;
        let knows = format!("SELECT EXISTS (SELECT FROM shardgate.switched WHERE move_id = {id})");
        if can_know && site.value::<bool>(&knows).await? {
            found.add(
                format!("shard \"{}\" has a record of another move {id}, which the map has forgotten", site.name),
                "Compare both shards and delete the record from shardgate.switched there, or plan the move again: it gets another number",
            );
        }
    }
    Ok(())
}

#[derive(FromRow)]
struct Limits {
    wal_level: String,
    slots: i64,
    senders: i64,
    workers: i64,
    origins: i64,
    statement_timeout: String,
}

const LIMITS: &str = "SELECT current_setting('wal_level') AS wal_level,
    current_setting('max_replication_slots')::int8 - (SELECT count(*) FROM pg_replication_slots) AS slots,
    current_setting('max_wal_senders')::int8 - (SELECT count(*) FROM pg_stat_replication) AS senders,
    least(current_setting('max_logical_replication_workers')::int8, current_setting('max_worker_processes')::int8)
        - (SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL) AS workers,
    coalesce(current_setting('max_active_replication_origins', true), current_setting('max_replication_slots'))::int8
        - (SELECT count(*) FROM pg_replication_origin_status) AS origins,
    (SELECT reset_val FROM pg_settings WHERE name = 'statement_timeout') AS statement_timeout";

async fn servers(moving: &mut Moving, found: &mut Findings) -> Result<(), SiteError> {
    let source = moving.source.rows::<Limits>(LIMITS).await?;
    let target = moving.target.rows::<Limits>(LIMITS).await?;
    let (source_name, target_name) = (moving.source.name.clone(), moving.target.name.clone());
    for limits in &source {
        if limits.wal_level != "logical" {
            found.add(
                format!("wal_level of shard \"{source_name}\" is {}", limits.wal_level),
                "Set wal_level = logical there, and restart the server",
            );
        }
        if limits.slots < SLOTS_NEEDED || limits.senders < SLOTS_NEEDED {
            found.add(
                format!("shard \"{source_name}\" has {} replication slots and {} WAL senders left", limits.slots, limits.senders),
                format!("Raise max_replication_slots and max_wal_senders: a move needs {SLOTS_NEEDED}"),
            );
        }
    }
    for limits in &target {
        if limits.workers < WORKERS_NEEDED {
            found.add(
                format!("shard \"{target_name}\" has {} workers of logical replication left", limits.workers),
                format!("Raise max_logical_replication_workers and max_worker_processes: a move needs {WORKERS_NEEDED}"),
            );
        }
    }
    if moving.the_move.options.can_go_back() {
        way_back(&source, &target, (&source_name, &target_name), found);
    }
    for (limits, name) in
        source.iter().map(|limits| (limits, &source_name)).chain(target.iter().map(|limits| (limits, &target_name)))
    {
        if limits.statement_timeout != "0" {
            found.add(
                format!(
                    "statement_timeout of the mover's user on shard \"{name}\" is {} ms: it would end the copy",
                    limits.statement_timeout
                ),
                "ALTER ROLE … SET statement_timeout = 0 for that user",
            );
        }
    }
    Ok(())
}

/// One slot at the target and one worker at the source.
fn way_back(source: &[Limits], target: &[Limits], (source_name, target_name): (&str, &str), found: &mut Findings) {
    for limits in target {
        if limits.wal_level != "logical" {
            found.add(
                format!("wal_level of shard \"{target_name}\" is {}, and a rollback needs \"logical\"", limits.wal_level),
                format!("Set wal_level = logical there, and restart the server; {WITHOUT_A_WAY_BACK}"),
            );
        }
        if limits.slots < 1 || limits.senders < 1 {
            found.add(
                format!(
                    "shard \"{target_name}\" has {} replication slots and {} WAL senders left, and a rollback needs one of each",
                    limits.slots, limits.senders
                ),
                format!("Raise max_replication_slots and max_wal_senders, or finish earlier moves; {WITHOUT_A_WAY_BACK}"),
            );
        }
    }
    for limits in source.iter().filter(|limits| limits.workers < 1 || limits.origins < 1) {
        found.add(
            format!(
                "shard \"{source_name}\" has {} workers of logical replication and {} replication origins left, and a rollback needs one of each",
                limits.workers, limits.origins
            ),
            format!(
                "Raise max_logical_replication_workers, max_worker_processes and max_replication_slots (from 18 on \
                 max_active_replication_origins), or finish earlier moves; {WITHOUT_A_WAY_BACK}"
            ),
        );
    }
}

async fn rights(moving: &mut Moving, found: &mut Findings) -> Result<(), SiteError> {
    let replica_role = rolled_back("SET LOCAL session_replication_role = replica");
    for site in [&mut moving.source, &mut moving.target] {
        let tried = site.send(&replica_role).await;
        may(
            tried,
            found,
            "may not set session_replication_role",
            "GRANT SET ON PARAMETER session_replication_role TO the user of the shard's url",
        )?;
    }
    for direction in directions(moving) {
        let name = direction.name(moving.the_move.id);
        let published = rolled_back(&format!("CREATE PUBLICATION {name} FOR TABLE {}", objects::published(&moving.tables)));
        let tried = moving.publisher(direction).send(&published).await;
        may(
            tried,
            found,
            "may not publish the tables",
            "Give the shard's url a user who owns the tables and has CREATE on the database",
        )?;
        let subscribed = rolled_back(&probe_subscription(&name, moving.connection(direction)));
        let tried = moving.subscriber(direction).send(&subscribed).await;
        let remedy = "Its server must reach the other's under shardgate.alter_shard(…, replication_url => …), and its user may need pg_create_subscription";
        match direction {
            Direction::Forward => may(tried, found, "cannot subscribe to the source", remedy)?,
            Direction::Back => {
                may(
                    tried,
                    found,
                    "cannot subscribe to the target, as a rollback needs",
                    &format!("{remedy}; {WITHOUT_A_WAY_BACK}"),
                )?;
            }
        }
    }
    if moving.the_move.options.can_go_back() {
        let origins = "SELECT has_function_privilege('pg_replication_origin_advance(text, pg_lsn)', 'EXECUTE')
                          AND has_function_privilege('pg_replication_origin_progress(text, bool)', 'EXECUTE')";
        if !moving.source.value::<bool>(origins).await? {
            found.add(
                format!("the mover's user on shard \"{}\" may not set where a subscription begins", moving.source.name),
                format!(
                    "GRANT EXECUTE ON FUNCTION pg_replication_origin_advance(text, pg_lsn), \
                     pg_replication_origin_progress(text, boolean) to it; {WITHOUT_A_WAY_BACK}"
                ),
            );
        }
    }
    for site in [&mut moving.source, &mut moving.target] {
        let referred = references::not_owned(site, &moving.sharded).await?;
        if !referred.is_empty() {
            found.add(
                format!("the mover's user on shard \"{}\" does not own {referred}, to which moving tables refer", site.name),
                "Give the shard's url a user who owns it: a move makes triggers there",
            );
        }
        let roles = fencing::untouchable_roles(site).await?;
        if !roles.is_empty() {
            found.add(
                format!("the mover's user on shard \"{}\" may not end connections of {roles}, which are a proxy's", site.name),
                "GRANT pg_signal_backend, pg_read_all_stats TO the user of the shard's url: a proxy that is frozen would stop the move",
            );
        }
    }
    Ok(())
}

/// Both where the move can be rolled back.
fn directions(moving: &Moving) -> Vec<Direction> {
    match moving.the_move.options.can_go_back() {
        true => vec![Direction::Forward, Direction::Back],
        false => vec![Direction::Forward],
    }
}

fn rolled_back(sql: &str) -> String {
    format!("BEGIN; SET LOCAL lock_timeout = '2s'; {sql}; ROLLBACK")
}

fn may(tried: Result<(), SiteError>, found: &mut Findings, what: &str, remedy: &str) -> Result<(), SiteError> {
    match tried {
        Ok(()) => Ok(()),
        Err(SiteError::Refused { shard, reason, .. } | SiteError::Busy { shard, reason }) => {
            found.add(format!("the mover's user on shard \"{shard}\" {what}: {reason}"), remedy);
            Ok(())
        }
        Err(error @ SiteError::Overtaken) => Err(error),
    }
}

/// Connects, and warns of the publication that is not there.
fn probe_subscription(name: &str, connection: &str) -> String {
    format!(
        "CREATE SUBSCRIPTION {name}_probe CONNECTION {} PUBLICATION {name} \
         WITH (create_slot = false, slot_name = '{name}', enabled = false, copy_data = false)",
        quoted_literal(connection)
    )
}

/// One for the subscription and two for the tables that are copied at one time.
const SLOTS_NEEDED: i64 = 3;
const WORKERS_NEEDED: i64 = 3;
const WITHOUT_A_WAY_BACK: &str = "or move with --finish, which cannot be rolled back";
