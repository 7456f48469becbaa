//! What would keep a move from being done, found before anything is changed: all of it at once, each with what to do.
//!
//! Rights are tried by doing, in a transaction that is rolled back.

use sqlx::FromRow;

use super::covering_views;
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
    statement_timeout: String,
}

const LIMITS: &str = "SELECT current_setting('wal_level') AS wal_level,
    current_setting('max_replication_slots')::int8 - (SELECT count(*) FROM pg_replication_slots) AS slots,
    current_setting('max_wal_senders')::int8 - (SELECT count(*) FROM pg_stat_replication) AS senders,
    least(current_setting('max_logical_replication_workers')::int8, current_setting('max_worker_processes')::int8)
        - (SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL) AS workers,
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
    let id = moving.the_move.id;
    let rolled_back = |sql: &str| format!("BEGIN; SET LOCAL lock_timeout = '2s'; {sql}; ROLLBACK");
    let published = objects::publication(id, &moving.tables).replacen(", shardgate.marker WHERE", ", shardgate.identity WHERE", 1);
    // The marker's table is not there yet: any other of ours will do.
    let published = published.replace(&format!("(move_id = {})", id.0), "(one)");
    let tries = [
        (
            true,
            rolled_back(&published),
            "may not publish the tables",
            "Give the shard's url a user who owns the tables and has CREATE on the database",
        ),
        (
            true,
            rolled_back("SET LOCAL session_replication_role = replica"),
            "may not set session_replication_role",
            "GRANT SET ON PARAMETER session_replication_role TO the user of the shard's url",
        ),
        (
            false,
            rolled_back("SET LOCAL session_replication_role = replica"),
            "may not set session_replication_role",
            "GRANT SET ON PARAMETER session_replication_role TO the user of the shard's url",
        ),
        (
            false,
            rolled_back(&probe_subscription(id, &moving.connection)),
            "cannot subscribe to the source",
            "Its server must reach the source under shardgate.alter_shard(…, replication_url => …), and its user may need pg_create_subscription",
        ),
    ];
    for (is_source, sql, what, remedy) in tries {
        let site = if is_source { &mut moving.source } else { &mut moving.target };
        match site.send(&sql).await {
            Ok(()) => {}
            Err(SiteError::Refused { shard, reason, .. } | SiteError::Busy { shard, reason }) => {
                found.add(format!("the mover's user on shard \"{shard}\" {what}: {reason}"), remedy);
            }
            Err(error @ SiteError::Overtaken) => return Err(error),
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

/// Connects, and warns of the publication that is not there.
fn probe_subscription(id: crate::shardmap::MoveId, connection: &str) -> String {
    let name = objects::name(id);
    format!(
        "CREATE SUBSCRIPTION {name}_probe CONNECTION {} PUBLICATION {name} \
         WITH (create_slot = false, slot_name = '{name}', enabled = false, copy_data = false)",
        quoted_literal(connection)
    )
}

/// One for the subscription and two for the tables that are copied at one time.
const SLOTS_NEEDED: i64 = 3;
const WORKERS_NEEDED: i64 = 3;
