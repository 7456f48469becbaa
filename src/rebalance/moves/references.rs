//! Foreign keys from a moving table to a table that every shard has: rows that a shard has and does not own are in nobody's way.
//!
//! PostgreSQL checks a key that is deleted or changed on each shard, and carries the change on to the rows that refer to it there. The
//! owner's rows say whether it may be, and what becomes of them comes to the copies by replication. The copies themselves are as old as
//! replication is late: they would refuse a key that nothing refers to any more, and a cascade would change or delete rows that refer
//! to another key by now. So where a shard does not own the set, they are set aside for the rest of the transaction:
//!
//! ```text
//! key changed ─► copies that refer to it set aside ─► PostgreSQL checks, cascades ─► … ─► commit: what is deferred ─► copies put back
//! ```
//! What is put back may refer to nothing until replication has followed. Both are triggers of the table that is referred to. Triggers
//! of one row fire in the order of their names, those of foreign keys are called `RI_ConstraintTrigger_…`, and what is deferred is done
//! in the order in which it was put off: so ours come before and behind each check, whether it is deferred or not.
//!
//! Whether ours are deferred is not left to SET CONSTRAINTS, which may name all constraints at once and the application's own by
//! themselves: a trigger before each statement says so again.
//!
//! Replication must not bring others between that and the check: triggers of the copies hold what follows back until the change has
//! ended, and the change waits for what is being followed. The first copy of a table may take long and is not waited for: its rows
//! come all at once, and only the moment in which they do waits.
//!
//! Whoever changes a key waits for rows only while replication does not wait for him: with what he has set aside before he would
//! wait for ever, and gets `40001`.
//!
//! What is set aside must not be published. From a switch until replication has turned round the side that has given the set away
//! still publishes: a change of the key waits there. That all parts of such a change find the same owner is the proxies' matter: who
//! changes a key counts as a writer of the set, and a cut-over waits for it.

use sqlx::FromRow;

use super::direction::Direction;
use super::moved_table::{MovedTable, members_sql};
use super::moving::Moving;
use super::objects;
use super::set_aside::FUNCTIONS;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::catalog::quoted_literal;
use crate::shardmap::{Group, MoveId};

/// One foreign key of a moving table, on one shard.
#[derive(FromRow)]
struct Reference {
    number: i64,
    /// Both quoted.
    referring: String,
    referred: String,
    is_deferrable: bool,
    /// Of `x`, a row that refers, and `$1`, the row before the change.
    matches: String,
    /// The columns of the key, before and after.
    old_key: String,
    new_key: String,
    /// In the list of sharded tables, from 1.
    place: i64,
}

fn references_sql(sharded: &[MovedTable]) -> String {
    let members = members_sql(sharded);
    let key = |of: &str| format!("string_agg(format('{of}.%I', k.attname), ', ' ORDER BY p.place)");
    format!(
        "SELECT c.oid::int8 AS number, c.conrelid::regclass::text AS referring, c.confrelid::regclass::text AS referred,
                c.condeferrable AS is_deferrable, m.place, f.matches, f.old_key, f.new_key
         FROM pg_constraint c JOIN ({members}) m ON m.oid = c.conrelid
         CROSS JOIN LATERAL (
             SELECT string_agg(format('$1.%I%s OPERATOR(%I.%s) x.%I', k.attname,
                                      ' COLLATE ' || nullif(k.attcollation, 0)::regcollation::text, n.nspname, o.oprname, a.attname), ' AND ') AS matches,
                    {} AS old_key, {} AS new_key
             FROM unnest(c.confkey, c.conkey, c.conpfeqop) WITH ORDINALITY p (key, referring, operator, place)
             JOIN pg_attribute k ON k.attrelid = c.confrelid AND k.attnum = p.key
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = p.referring
             JOIN pg_operator o ON o.oid = p.operator JOIN pg_namespace n ON n.oid = o.oprnamespace) f
         WHERE c.contype = 'f' AND c.conparentid = 0 AND c.confrelid NOT IN (SELECT m.oid FROM ({members}) m)
         ORDER BY c.oid",
        key("old"),
        key("new")
    )
}

/// On both sides, before the first copied row.
pub(super) async fn guard(moving: &mut Moving) -> Result<(), Stop> {
    let (id, group, sharded, tables) = (moving.the_move.id, moving.group.clone(), moving.sharded.clone(), moving.tables.clone());
    for side in [Direction::Forward, Direction::Back] {
        let conditions = conditions(moving, &group, &sharded)?;
        let site = moving.publisher(side);
        let references = site.rows::<Reference>(&references_sql(&sharded)).await?;
        if references.is_empty() {
            continue;
        }
        site.act(FUNCTIONS).await?;
        for reference in &references {
            let condition = usize::try_from(reference.place - 1).ok().and_then(|place| conditions.get(place));
            let condition = condition.ok_or_else(|| Stop::Again("a table of the move has changed".to_owned()))?;
            site.act_patiently(&reference.triggers(id, side, condition)).await?;
        }
        let referring = site.rows::<(String, String)>(&referring_sql(&sharded)).await?;
        let is_referring =
            |table: &&MovedTable| referring.iter().any(|(schema, name)| *schema == table.schema && *name == table.name);
        for table in tables.iter().filter(is_referring) {
            site.act_patiently(&follow_triggers(id, table)).await?;
        }
    }
    Ok(())
}

/// Tables with rows that refer: of a partitioned table its partitions, to which replication writes.
fn referring_sql(sharded: &[MovedTable]) -> String {
    let members = members_sql(sharded);
    format!(
        "SELECT DISTINCT n.nspname::text, r.relname::text FROM pg_constraint c
         JOIN pg_class r ON r.oid = c.conrelid AND r.relkind = 'r' JOIN pg_namespace n ON n.oid = r.relnamespace
         WHERE c.contype = 'f' AND c.conrelid IN (SELECT m.oid FROM ({members}) m)
           AND c.confrelid NOT IN (SELECT m.oid FROM ({members}) m) ORDER BY 1, 2"
    )
}

/// Fire for replication only. Of its rows where the lock that shows that it writes there cannot be had, and for rows of the set only,
/// as a part of WHEN that is looked at first: replication of another move, of other rows of the same table, takes no lock of this one.
/// Statements are those of a first copy.
fn follow_triggers(id: MoveId, table: &MovedTable) -> String {
    let (number, on, literal) = (id.0, &table.quoted, quoted_literal(&table.quoted));
    let unfollowed = "coalesce(pg_catalog.current_setting('shardgate.unfollowed', true), '') OPERATOR(pg_catalog.=)";
    let rows = |condition: &str| {
        format!(
            "FOR EACH ROW WHEN (({condition}) AND {unfollowed} '' AND NOT pg_catalog.pg_try_advisory_xact_lock(\
             pg_catalog.hashint8extended({literal}::pg_catalog.regclass::oid::int8, {number}))) \
             EXECUTE FUNCTION shardgate.follow_later({number})"
        )
    };
    let triggers = [
        ("follow", format!("AFTER INSERT OR UPDATE ON {on} {}", rows(&table.condition_new))),
        ("follow_delete", format!("AFTER DELETE ON {on} {}", rows(&table.condition_old))),
        ("copy_begins", format!("BEFORE INSERT ON {on} FOR EACH STATEMENT EXECUTE FUNCTION shardgate.copy_begins()")),
        (
            "copy_ends",
            format!(
                "AFTER INSERT ON {on} FOR EACH STATEMENT WHEN ({unfollowed} 'copy') EXECUTE FUNCTION shardgate.copy_ends({number})"
            ),
        ),
    ];
    let made = triggers.iter().map(|(suffix, rest)| {
        let name = objects::gate_trigger(id, suffix);
        format!("CREATE OR REPLACE TRIGGER {name} {rest}; ALTER TABLE ONLY {on} ENABLE REPLICA TRIGGER {name};")
    });
    made.collect()
}

/// Of each sharded table, for a row `x` of the set.
fn conditions(moving: &Moving, group: &Group, sharded: &[MovedTable]) -> Result<Vec<String>, Stop> {
    let condition = |table: &MovedTable| moving.keys.condition(&table.key, group, "x.");
    sharded.iter().map(condition).collect::<Result<_, _>>().map_err(|reason| Stop::Abort(reason.0))
}

/// Tables to which moving tables refer, and whose triggers the mover's user may not make or drop.
pub(super) async fn not_owned(site: &mut Site, sharded: &[MovedTable]) -> Result<String, SiteError> {
    let sql = format!(
        "SELECT coalesce(string_agg(DISTINCT r.referred, ', '), '') FROM ({}) r JOIN pg_class c ON c.oid = r.referred::regclass
         WHERE NOT pg_has_role(c.relowner, 'USAGE')",
        references_sql(sharded)
    );
    site.value(&sql).await
}

impl Reference {
    fn triggers(&self, id: MoveId, side: Direction, condition: &str) -> String {
        let place = if side == Direction::Forward { "source" } else { "target" };
        let arguments = [&id.0.to_string(), &self.referring, &self.matches, condition, &side.name(id), place].map(quoted_literal);
        let aside = format!("set_copies_aside({})", arguments.join(", "));
        let mut made = String::new();
        for (event, when) in [("delete", String::new()), ("update", self.is_changed())] {
            let first = format!("00_shardgate_move_{}_{}_{event}", id.0, self.number);
            made += &format!(
                "CREATE OR REPLACE TRIGGER \"{first}\" AFTER {event} ON {} FOR EACH ROW {when} EXECUTE FUNCTION shardgate.{aside};",
                self.referred
            );
            if self.is_deferrable {
                made += &self.deferred(&format!("{first}_again"), event, &when, &aside);
            }
            let back = objects::gate_trigger(id, &format!("{}_back_{event}", self.number));
            made += &self.deferred(&back, event, &when, "put_copies_back()");
        }
        made += &format!(
            "CREATE OR REPLACE TRIGGER \"00_shardgate_move_{}_deferred\" BEFORE DELETE OR UPDATE ON {} \
             FOR EACH STATEMENT EXECUTE FUNCTION shardgate.defer_again({});",
            id.0, self.referred, id.0
        );
        made
    }

    /// Another value, whether or not the type's own equality sees it.
    fn is_changed(&self) -> String {
        format!("WHEN (ROW({})::record OPERATOR(pg_catalog.*<>) ROW({})::record)", self.old_key, self.new_key)
    }

    fn deferred(&self, name: &str, event: &str, when: &str, function: &str) -> String {
        format!(
            "DO $make$ BEGIN \
                 IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t \
                                WHERE t.tgrelid = {}::pg_catalog.regclass AND t.tgname = '{name}') THEN \
                     CREATE CONSTRAINT TRIGGER \"{name}\" AFTER {event} ON {} DEFERRABLE INITIALLY DEFERRED \
                     FOR EACH ROW {when} EXECUTE FUNCTION shardgate.{function}; \
                 END IF; END $make$;",
            quoted_literal(&self.referred),
            self.referred
        )
    }
}
