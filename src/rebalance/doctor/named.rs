//! Objects that bear the name of a move: slots, publications, subscriptions, triggers, gates, covering views.

use sqlx::FromRow;

use super::{Leftover, Running};
use crate::catalog::quoted_identifier;
use crate::rebalance::moves;
use crate::rebalance::moves::site::{Site, SiteError};
use crate::rebalance::units;
use crate::shardmap::MoveId;

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

pub(super) async fn find(site: &mut Site, running: &Running) -> Result<Vec<Leftover>, SiteError> {
    let named = site.rows::<Named>(NAMED).await?;
    let stray = named.into_iter().filter(|named| !running.contains_key(&named.move_id));
    let mut found: Vec<Leftover> = stray.map(|named| named.into_leftover(&site.name)).collect();
    found.extend(covering_views(site, running).await?);
    Ok(found)
}

/// Those that no running move uses.
async fn covering_views(site: &mut Site, running: &Running) -> Result<Vec<Leftover>, SiteError> {
    // A use is noted before its view is made.
    let views = site.rows::<(String,)>(COVERING_VIEWS).await?;
    let has_uses = site.value::<bool>("SELECT to_regclass('shardgate.covering_view') IS NOT NULL").await?;
    let uses = match has_uses {
        true => site.rows::<(i32, String)>("SELECT move_id, name::text FROM shardgate.covering_view ORDER BY 1, 2").await?,
        false => Vec::new(),
    };
    let mut ended: Vec<i32> = uses.iter().map(|(id, _)| *id).filter(|id| !running.contains_key(id)).collect();
    ended.dedup();
    let mut found: Vec<Leftover> = ended
        .into_iter()
        .map(|id| {
            let sql = moves::covering_views::remove_sql(MoveId(id));
            Leftover::removable(&site.name, format!("covering views of move {id}, which has ended"), sql).of_move(id)
        })
        .collect();
    let unused = views.into_iter().filter(|(view,)| uses.iter().all(|(_, used)| used != view));
    found.extend(unused.map(|(view,)| {
        let sql = format!("DROP VIEW IF EXISTS shardgate.{view} CASCADE");
        Leftover::removable(&site.name, format!("covering view {view}, which no move uses"), sql)
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
                // Short: whoever wants the table waits behind it.
                format!("SET lock_timeout = '200ms'; DROP TRIGGER {name} ON {}", self.on_table.as_deref().unwrap_or_default())
            }
            _ => format!("DROP FUNCTION IF EXISTS shardgate.{name}(); DROP TABLE shardgate.{name}"),
        };
        let held =
            self.bytes.map(|bytes| format!(", which keeps {} of WAL", units::bytes(u64::try_from(bytes).unwrap_or_default())));
        let what = format!("{} {}{} of move {}, which has ended", self.kind, self.name, held.unwrap_or_default(), self.move_id);
        Leftover::removable(shard, what, sql).of_move(self.move_id)
    }
}
