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
//! Replication must not bring others between that and the check: a trigger of the copies holds what follows back until the change has
//! ended, and the change waits for what is being followed. Whoever copies a table for the first time is not waited for: those rows come
//! all at once.
//!
//! What is set aside must not be published. From a switch until replication has turned round the side that has given the set away
//! still publishes: a change of the key waits there. That all parts of such a change find the same owner is the proxies' matter: who
//! changes a key counts as a writer of the set, and a cut-over waits for it.

use sqlx::FromRow;

use super::direction::Direction;
use super::moved_table::{MovedTable, members_sql};
use super::moving::Moving;
use super::objects;
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
            site.act_patiently(&follow_trigger(id, table)).await?;
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

/// Fires for replication only, where the lock that shows that it writes there cannot be had. For rows of the set only, as a part of WHEN
/// that is looked at first: replication of another move, of other rows of the same table, takes no lock of this one.
fn follow_trigger(id: MoveId, table: &MovedTable) -> String {
    let (name, number, literal) = (objects::gate_trigger(id, "follow"), id.0, quoted_literal(&table.quoted));
    let (table, condition) = (&table.quoted, &table.condition_new);
    format!(
        "CREATE OR REPLACE TRIGGER {name} AFTER INSERT OR UPDATE ON {table} FOR EACH ROW \
         WHEN (({condition}) AND NOT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashint8extended({literal}::pg_catalog.regclass::oid::int8, {number}))) \
         EXECUTE FUNCTION shardgate.follow_later({number}); \
         ALTER TABLE ONLY {table} ENABLE REPLICA TRIGGER {name}"
    )
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
            made += &self.deferred(&objects::gate_trigger(id, &format!("back_{event}")), event, &when, "put_copies_back()");
        }
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

/// As the rows' owners may not look on, and no trigger of the application's: as the mover, who owns the tables, and as replication does.
const FUNCTIONS: &str = r#"
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('shardgate support objects', 0));
CREATE TABLE IF NOT EXISTS shardgate.set_aside (transaction xid8 NOT NULL, relation regclass NOT NULL, contents text NOT NULL);
CREATE INDEX IF NOT EXISTS set_aside_transaction ON shardgate.set_aside (transaction);
CREATE OR REPLACE FUNCTION shardgate.set_copies_aside() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET session_replication_role = replica
SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET TimeZone = 'UTC' SET extra_float_digits = 3 SET bytea_output = hex
SET array_nulls = on SET xmloption = content AS $$
DECLARE
    of_move int := TG_ARGV[0];
    copies text := format('%s AS x WHERE %s AND %s', TG_ARGV[1], TG_ARGV[2], TG_ARGV[3]);
    is_own bool := false;
    refers bool;
    waits_until timestamptz := clock_timestamp() + interval '10 s';
BEGIN
    IF NOT EXISTS (SELECT FROM shardgate.residue r WHERE r.move_id = of_move) THEN
        -- Locked to the end of the transaction: the set keeps its owner until then.
        EXECUTE format('SELECT EXISTS (SELECT FROM shardgate.gate_%s)', of_move) INTO is_own;
        IF is_own THEN
            RETURN NULL;
        END IF;
        waits_until := '-infinity';
    END IF;
    WHILE waits_until > '-infinity' LOOP
        -- All of them or none, so that nobody waits crosswise: what a block has locked that fails is unlocked again.
        BEGIN
            IF NOT (SELECT bool_and(pg_try_advisory_xact_lock_shared(hashint8extended(t.tgrelid::int8, of_move))
                                    OR NOT EXISTS (SELECT FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid
                                                   WHERE r.srrelid = t.tgrelid AND r.srsubstate = 'r' AND s.subname IN (
                                                       'shardgate_move_' || of_move, 'shardgate_move_' || of_move || '_back')))
                    FROM pg_trigger t WHERE t.tgname = 'zz_shardgate_move_' || of_move || '_follow') THEN
                RAISE SQLSTATE 'SG004';
            END IF;
            EXIT;
        EXCEPTION WHEN SQLSTATE 'SG004' THEN
            IF clock_timestamp() > waits_until THEN
                waits_until := '-infinity';
            END IF;
        END;
        PERFORM pg_sleep(0.002);
    END LOOP;
    EXECUTE 'SELECT EXISTS (SELECT FROM ' || copies || ')' INTO refers USING OLD;
    IF NOT refers THEN
        RETURN NULL;
    END IF;
    WHILE waits_until = '-infinity'
          OR EXISTS (SELECT FROM pg_publication p WHERE p.pubname = TG_ARGV[4])
             AND (TG_ARGV[5] = 'source' OR EXISTS (SELECT FROM shardgate.switched s WHERE s.move_id = of_move)) LOOP
        IF clock_timestamp() > waits_until OR current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'rows that refer to this key are being moved',
                DETAIL = 'Another shard owns them, or is about to. Nothing was changed.', HINT = 'Retry the transaction.',
                CONSTRAINT = 'shardgate_gate';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    EXECUTE format('WITH gone AS (DELETE FROM %s RETURNING x::text AS contents)
                    INSERT INTO shardgate.set_aside SELECT pg_current_xact_id(), %L::regclass, contents FROM gone', copies, TG_ARGV[1])
        USING OLD;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION shardgate.put_copies_back() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET session_replication_role = replica
SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET TimeZone = 'UTC' SET extra_float_digits = 3 SET bytea_output = hex
SET array_nulls = on SET xmloption = content
SET shardgate.puts_back = on AS $$
DECLARE
    of_table regclass;
BEGIN
    FOR of_table IN SELECT DISTINCT s.relation FROM shardgate.set_aside s WHERE s.transaction = pg_current_xact_id() LOOP
        EXECUTE (
            SELECT format('WITH kept AS (DELETE FROM shardgate.set_aside s
                                         WHERE s.transaction = pg_current_xact_id() AND s.relation = %s::oid RETURNING s.contents::%s AS copy)
                           INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM kept',
                          of_table::oid, of_table, of_table, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
                          string_agg(format('(kept.copy).%I', a.attname), ', ' ORDER BY a.attnum))
            FROM pg_attribute a WHERE a.attrelid = of_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '');
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION shardgate.follow_later() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('shardgate.puts_back', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_advisory_xact_lock(hashint8extended(TG_RELID::int8, TG_ARGV[0]::int8));
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON TABLE shardgate.set_aside FROM PUBLIC;
-- Whoever may call one may make a trigger of it with arguments of his own. To fire one needs no right.
REVOKE ALL ON FUNCTION shardgate.set_copies_aside(), shardgate.put_copies_back(), shardgate.follow_later() FROM PUBLIC
"#;
