//! What would keep a move from being done, found before anything is changed: all of it at once, each with what to do.
//!
//! Rights are tried by doing, in a transaction that is rolled back.

use sqlx::FromRow;

use super::covering_views;
use super::direction::Direction;
use super::fencing;
use super::moved_table::MovedTable;
use super::moving::Moving;
use super::objects;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::catalog::quoted_literal;

/// One reason why the move cannot be done now.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
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
    for table in moving.tables.clone() {
        let is_there = table_on_target(moving, &table, &mut found).await?;
        table_on_source(&mut moving.source, &table, &mut found).await?;
        if is_there && moving.the_move.options.can_go_back() {
            table_on_way_back(&mut moving.target, &table, &mut found).await?;
        }
        if is_there && found.0.is_empty() {
            residue(moving, &table, &mut found).await?;
        }
    }
    found.0.extend(Box::pin(covering_views::findings(moving)).await?);
    // Otherwise a right would be missed for what was found already.
    if found.0.is_empty() {
        rights(moving, &mut found).await?;
    }
    Ok(found.0)
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

#[derive(FromRow)]
struct TableFacts {
    relkind: String,
    persistence: String,
    has_row_security: bool,
    covers_key: bool,
    has_generated_key: bool,
    replica_triggers: Vec<String>,
    all_tables_publications: Vec<String>,
    cascading: Vec<String>,
    grantees_without_key: Vec<String>,
}

fn facts_sql(table: &MovedTable) -> String {
    let key: Vec<String> = table.key.iter().map(|key| quoted_literal(&key.column)).collect();
    let key = format!("ARRAY[{}]::name[]", key.join(", "));
    format!(
        "SELECT c.relkind::text, c.relpersistence::text AS persistence,
            c.relforcerowsecurity AS has_row_security,
            coalesce((SELECT array_agg(a.attname) @> {key}
                      FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                      WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END),
                     false) AS covers_key,
            EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = ANY ({key}) AND a.attgenerated <> '') AS has_generated_key,
            array(SELECT t.tgname::text FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')) AS replica_triggers,
            array(SELECT p.pubname::text FROM pg_publication p WHERE p.puballtables) AS all_tables_publications,
            array(SELECT f.conname::text FROM pg_constraint f WHERE f.contype = 'f' AND f.confrelid = c.oid
                    AND f.confupdtype IN ('c', 'n', 'd')) AS cascading,
            array(SELECT DISTINCT r.rolname::text FROM pg_attribute a, aclexplode(a.attacl) g, pg_roles r
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND g.privilege_type = 'SELECT' AND r.oid = g.grantee
                    AND EXISTS (SELECT FROM unnest({key}) k WHERE NOT has_column_privilege(r.oid, c.oid, k::text, 'SELECT'))) AS grantees_without_key
         FROM pg_class c WHERE c.oid = {}",
        table.regclass()
    )
}

async fn table_on_source(source: &mut Site, table: &MovedTable, found: &mut Findings) -> Result<(), SiteError> {
    let Some(facts) = source.rows::<TableFacts>(&facts_sql(table)).await?.pop() else { return Ok(()) };
    let name = &table.quoted;
    if facts.relkind == "p" {
        found.add(format!("table {name} is partitioned"), "Partitioned tables cannot be moved yet");
    }
    if facts.persistence == "u" {
        found.add(format!("table {name} is unlogged, and is not replicated"), format!("ALTER TABLE {name} SET LOGGED"));
    }
    if !facts.covers_key {
        found.add(
            format!("the primary key of table {name}, or its replica identity, lacks the shard key"),
            format!(
                "ALTER TABLE {name} REPLICA IDENTITY USING INDEX … with a unique index of columns that are NOT NULL and hold {}",
                table.key_columns().join(", ")
            ),
        );
    }
    if facts.has_generated_key {
        found.add(format!("the shard key of table {name} is a generated column"), "Such a table cannot be moved");
    }
    if facts.has_row_security {
        found.add(
            format!("table {name} forces row security on its owner: rows could be hidden from the copy"),
            format!("ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY for the time of the move"),
        );
    }
    if !facts.replica_triggers.is_empty() {
        found.add(
            format!("triggers of table {name} fire on replication too: {}", facts.replica_triggers.join(", ")),
            format!("ALTER TABLE {name} ENABLE TRIGGER … makes ordinary triggers of them"),
        );
    }
    if !facts.all_tables_publications.is_empty() && found.0.iter().all(|finding| !finding.what.starts_with("publications")) {
        found.add(
            format!(
                "publications FOR ALL TABLES would publish what the move copies and deletes: {}",
                facts.all_tables_publications.join(", ")
            ),
            "Publish the tables by name",
        );
    }
    if !facts.grantees_without_key.is_empty() {
        found.add(
            format!("users may read columns of table {name}, but not its shard key: {}", facts.grantees_without_key.join(", ")),
            format!(
                "GRANT SELECT ({}) ON {name} to them: their statements over several shards leave out copies by the key",
                table.key_columns().join(", ")
            ),
        );
    }
    if !facts.cascading.is_empty() {
        found.add(
            format!("foreign keys follow changes of the key of table {name}: {}", facts.cascading.join(", ")),
            "Make them ON UPDATE NO ACTION: a changed key becomes a deletion and an insertion while it moves",
        );
    }
    Ok(())
}

/// What the target publishes for a rollback. Without the key in the replica identity the application's own UPDATE would fail there.
async fn table_on_way_back(target: &mut Site, table: &MovedTable, found: &mut Findings) -> Result<(), SiteError> {
    let Some(facts) = target.rows::<TableFacts>(&facts_sql(table)).await?.pop() else { return Ok(()) };
    let (name, shard) = (&table.quoted, &target.name);
    if !facts.covers_key {
        found.add(
            format!("the primary key of table {name} on shard \"{shard}\", or its replica identity, lacks the shard key"),
            format!("Make it as it is on the source; {WITHOUT_A_WAY_BACK}"),
        );
    }
    if !facts.replica_triggers.is_empty() {
        found.add(
            format!("triggers of table {name} on shard \"{shard}\" fire on replication too: {}", facts.replica_triggers.join(", ")),
            format!("ALTER TABLE {name} ENABLE TRIGGER … makes ordinary triggers of them"),
        );
    }
    Ok(())
}

async fn table_on_target(moving: &mut Moving, table: &MovedTable, found: &mut Findings) -> Result<bool, SiteError> {
    let sql = format!(
        "SELECT coalesce(string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attname), '')
         FROM pg_attribute a WHERE a.attrelid = pg_catalog.to_regclass({}) AND a.attnum > 0 AND NOT a.attisdropped",
        quoted_literal(&table.quoted)
    );
    let (source, target): (String, String) = (moving.source.value(&sql).await?, moving.target.value(&sql).await?);
    if source != target {
        let is_missing = target.is_empty();
        found.add(
            format!(
                "table {} {} shard \"{}\"",
                table.quoted,
                if is_missing { "is not on" } else { "has other columns on" },
                moving.target.name
            ),
            "shardgate check shows the differences; make the tables alike",
        );
    }
    Ok(source == target)
}

/// Rows of the set that lie on the target already would be doubled, or stop the copy.
async fn residue(moving: &mut Moving, table: &MovedTable, found: &mut Findings) -> Result<(), SiteError> {
    let sql = format!("SELECT EXISTS (SELECT FROM {} WHERE {})", table.quoted, table.condition);
    if moving.target.value::<bool>(&sql).await? {
        found.add(
            format!(
                "table {} has rows of these partitions on shard \"{}\", which does not own them",
                table.quoted, moving.target.name
            ),
            "They are left from something else: look at them with the routing hint, and delete them",
        );
    }
    Ok(())
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
