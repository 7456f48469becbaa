//! What a move keeps on its two shards, in the schema `shardgate`, and the SQL that makes and removes it.
//!
//! * `term`: the last driver's term for each move. Every act proves it, and holds its row until the act has ended.
//! * `marker`: published to the target; a marker's arrival proves that what was written before it has arrived. And receipts, which the new
//!   owner alone has, see [`super::servers`].
//! * `switched`: on the target, that a move has switched, and up to which place of its WAL the target's rows came from the source;
//!   on the source, that it was rolled back. Outlives a map database that fails over and forgets.
//! * `covering_view` and the views themselves, on every shard: see [`super::covering_views`].
//! * `gate_N` with its triggers, for each move: see [`gate`].
//! * `set_aside`: where moving tables refer to others, see [`super::references`].
//!
//! Names carry the move's number. Everything can be made again and removed again.

use crate::catalog::quoted_literal;
use crate::shardmap::MoveId;

use super::direction::Direction;
use super::moved_table::MovedTable;

/// Idempotent, and before the first act: without a term.
pub(super) const SHARED: &str = r#"
BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('shardgate support objects', 0));
CREATE TABLE IF NOT EXISTS shardgate.term (move_id int PRIMARY KEY, term bigint NOT NULL);
CREATE TABLE IF NOT EXISTS shardgate.marker (
    move_id int NOT NULL, number bigint NOT NULL, PRIMARY KEY (move_id, number));
CREATE TABLE IF NOT EXISTS shardgate.switched (
    move_id int PRIMARY KEY, incarnation bigint NOT NULL, at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp());
-- ALTER TABLE locks out whoever reads the table, also where there is nothing to add.
DO $add$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
                   WHERE a.attrelid OPERATOR(pg_catalog.=) 'shardgate.switched'::pg_catalog.regclass
                     AND a.attname OPERATOR(pg_catalog.=) 'lsn') THEN
        ALTER TABLE shardgate.switched ADD COLUMN lsn pg_lsn;
    END IF;
END $add$;
CREATE OR REPLACE FUNCTION shardgate.prove_term(move int, driver_term bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shardgate.term t SET term = driver_term WHERE t.move_id = move AND t.term <= driver_term;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'SG003', MESSAGE = format('another driver has taken over move %s', move);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION shardgate.prove_term(int, bigint) FROM PUBLIC;
CREATE OR REPLACE FUNCTION shardgate.refuse_truncate_while_moving() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55006',
        MESSAGE = format('table "%s" cannot be truncated while partitions of it are being moved', TG_TABLE_NAME),
        HINT = 'Repeat it when the move has ended, or use DELETE.';
END $$;
-- An UPDATE of the key out of the moved set, or into it, is copied as an insertion, and lacks large values that it has not changed.
CREATE OR REPLACE FUNCTION shardgate.refuse_crossing() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_relation_size((SELECT c.reltoastrelid FROM pg_class c WHERE c.oid = TG_RELID)) > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = 'the shard key of this row cannot be changed while its partition is being moved',
            HINT = 'Repeat it when the move has ended, or delete the row and insert it with the new key.';
    END IF;
    RETURN NULL;
END $$;
COMMIT
"#;

/// The first that a driver does on a shard. Waits for what an earlier driver has under way there.
pub(super) fn take_term(id: MoveId, term: i64) -> String {
    format!(
        "SELECT pg_catalog.pg_advisory_xact_lock({}); \
         INSERT INTO shardgate.term AS t (move_id, term) VALUES ({id}, {term}) \
         ON CONFLICT (move_id) DO UPDATE SET term = excluded.term WHERE t.term <= excluded.term",
        slot_lock(id),
        id = id.0
    )
}

/// A slot, under a term. The transaction must not write before: the term's row is not held, but a lock that needs no transaction's number.
pub(super) fn slot(id: MoveId, term: i64, name: &str) -> String {
    format!(
        "BEGIN; SELECT pg_catalog.pg_advisory_xact_lock_shared({}); \
         DO $term$ BEGIN \
             IF NOT EXISTS (SELECT FROM shardgate.term t WHERE t.move_id = {id} AND t.term <= {term}) THEN \
                 RAISE EXCEPTION USING ERRCODE = 'SG003', MESSAGE = 'another driver has taken over move {id}'; \
             END IF; END $term$; \
         SELECT pg_catalog.pg_create_logical_replication_slot('{name}', 'pgoutput'); COMMIT",
        slot_lock(id),
        id = id.0
    )
}

fn slot_lock(id: MoveId) -> String {
    format!("pg_catalog.hashtextextended('shardgate slots of move {}', 0)", id.0)
}

/// The gate's table and functions. A row in the table: writers pass. Closing it is TRUNCATE, which waits for every writer that
/// is in, prepared ones too, and which old snapshots see as well.
pub(super) fn gate(id: MoveId, is_open: bool) -> String {
    let id = id.0;
    let opened = if is_open { open_gate(MoveId(id)) } else { String::new() };
    format!(
        "CREATE TABLE IF NOT EXISTS shardgate.gate_{id} (is_open bool PRIMARY KEY) WITH (autovacuum_enabled = false); \
         {opened} \
         CREATE OR REPLACE FUNCTION shardgate.gate_{id}() RETURNS trigger \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $gate$ \
         BEGIN \
             PERFORM FROM shardgate.gate_{id}; \
             IF NOT FOUND THEN \
                 RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the partition of this key is being moved', \
                     DETAIL = 'Another shard owns it, or is about to. Nothing was changed.', HINT = 'Retry the transaction.', \
                     CONSTRAINT = 'shardgate_gate'; \
             END IF; \
             RETURN NULL; \
         END $gate$;"
    )
}

pub(super) fn gate_table(id: MoveId) -> String {
    format!("shardgate.gate_{}", id.0)
}

pub(super) fn open_gate(id: MoveId) -> String {
    format!("INSERT INTO {} VALUES (true) ON CONFLICT DO NOTHING;", gate_table(id))
}

pub(super) fn close_gate(id: MoveId) -> String {
    format!("TRUNCATE {};", gate_table(id))
}

/// A mistake that a test plants: writers that are in are not waited for, and old snapshots see the row.
pub(super) fn delete_gate_row(id: MoveId) -> String {
    format!("DELETE FROM {};", gate_table(id))
}

/// The same where nobody has opened it, which does not wait for its readers.
pub(super) fn close_gate_again(id: MoveId) -> String {
    format!("DO $close$ BEGIN IF EXISTS (SELECT FROM {gate}) THEN TRUNCATE {gate}; END IF; END $close$;", gate = gate_table(id))
}

/// Fails where a question has another answer. Both are SQL: an expression, and a literal.
pub(super) fn require(expression: &str, expected: &str, message: &str) -> String {
    format!(
        "DO $require$ BEGIN IF ({expression}) IS DISTINCT FROM {expected} THEN \
             RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {}; \
         END IF; END $require$;",
        quoted_literal(message)
    )
}

/// The triggers of one table. They fire after the row is final, whatever the application's own triggers have made of it.
pub(super) fn gate_triggers(id: MoveId, table: &MovedTable) -> String {
    let on = &table.quoted;
    let (new, old) = (&table.condition_new, &table.condition_old);
    let trigger = |suffix: &str, event: &str, when: &str, function: &str| {
        format!(
            "CREATE OR REPLACE TRIGGER {} {event} ON {on} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION shardgate.{function}();",
            gate_trigger(id, suffix)
        )
    };
    let gate = format!("gate_{}", id.0);
    [
        trigger("insert", "AFTER INSERT", new, &gate),
        trigger("update", "AFTER UPDATE", &format!("{new} OR {old}"), &gate),
        trigger("delete", "AFTER DELETE", old, &gate),
        trigger("cross", "AFTER UPDATE", &format!("({new}) IS TRUE <> (({old}) IS TRUE)"), "refuse_crossing"),
        format!(
            "CREATE OR REPLACE TRIGGER {} BEFORE TRUNCATE ON {on} \
             FOR EACH STATEMENT EXECUTE FUNCTION shardgate.refuse_truncate_while_moving();",
            gate_trigger(id, "truncate")
        ),
    ]
    .concat()
}

/// The name of a trigger of a move that fires behind the application's own.
pub(super) fn gate_trigger(id: MoveId, suffix: &str) -> String {
    format!("zz_shardgate_move_{}_{suffix}", id.0)
}

/// Of `pg_trigger`: the triggers of a move, but for those that partitions have from their table.
pub(super) fn is_trigger_of(id: MoveId) -> String {
    format!("t.tgname LIKE '__\\_shardgate\\_move\\_{}\\_%' AND t.tgparentid = 0", id.0)
}

pub(super) fn drop_triggers(id: MoveId, table: &str) -> String {
    for_each_trigger(id, table, "DROP TRIGGER %2$I ON %1$s", "true")
}

/// Passes beside readers, not beside writers.
pub(super) fn disable_triggers(id: MoveId, table: &str) -> String {
    for_each_trigger(id, table, "ALTER TABLE %s DISABLE TRIGGER %I", "t.tgenabled <> 'D'")
}

fn for_each_trigger(id: MoveId, table: &str, act: &str, condition: &str) -> String {
    let table = quoted_literal(table);
    format!(
        "DO $each$ DECLARE name text; BEGIN FOR name IN SELECT t.tgname FROM pg_catalog.pg_trigger t \
         WHERE t.tgrelid = pg_catalog.to_regclass({table}) AND {} AND {condition} \
         LOOP EXECUTE pg_catalog.format('{act}', {table}, name); END LOOP; END $each$;",
        is_trigger_of(id)
    )
}

pub(super) fn drop_gate(id: MoveId) -> String {
    let id = id.0;
    format!("DROP FUNCTION IF EXISTS shardgate.gate_{id}(); DROP TABLE IF EXISTS shardgate.gate_{id};")
}

pub(super) fn add_residue(id: MoveId, group: i32, values: &str) -> String {
    format!(
        "INSERT INTO shardgate.residue (group_id, move_id, hashes, keys, ranges, other_keys) VALUES ({group}, {}, {values}) ON CONFLICT DO NOTHING;",
        id.0
    )
}

pub(super) fn remove_residue(id: MoveId, group: i32) -> String {
    format!("DELETE FROM shardgate.residue WHERE group_id = {group} AND move_id = {};", id.0)
}

/// The owner of the set has kept it: whatever a switch that did not come about has left there is undone.
pub(super) fn keep_owner(id: MoveId, group: i32) -> String {
    format!("{}{}", remove_residue(id, group), open_gate(id))
}

pub(super) fn marker(id: MoveId, number: i64) -> String {
    format!("INSERT INTO shardgate.marker (move_id, number) VALUES ({}, {number});", id.0)
}

pub(super) fn has_marker(id: MoveId, number: i64) -> String {
    format!("SELECT EXISTS (SELECT FROM shardgate.marker WHERE move_id = {} AND number = {number})", id.0)
}

/// This shard owns the set from now on. The place of its WAL is behind all that has come from the other side, and before what is
/// written here: the gate is closed still.
pub(super) fn decide(id: MoveId, incarnation: i64) -> String {
    format!(
        "INSERT INTO shardgate.switched (move_id, incarnation, lsn) \
         VALUES ({}, {incarnation}, pg_catalog.pg_current_wal_insert_lsn()) ON CONFLICT DO NOTHING;",
        id.0
    )
}

/// Filters stand in the publication: what is not of the set is not sent.
pub(super) fn publication(id: MoveId, direction: Direction, tables: &[MovedTable]) -> String {
    format!(
        "CREATE PUBLICATION {} FOR TABLE {}, shardgate.marker WHERE ({}) WITH (publish = 'insert, update, delete')",
        direction.name(id),
        published(tables),
        direction.marker_condition(id)
    )
}

pub(super) fn published(tables: &[MovedTable]) -> String {
    let tables: Vec<String> = tables.iter().map(|table| format!("ONLY {} WHERE ({})", table.quoted, table.condition)).collect();
    tables.join(", ")
}

/// Not enabled yet. Forward with a copy of what is there, back without one.
/// `connection`: how the subscriber reaches the publisher. Holds a password: never logged.
pub(super) fn subscription(id: MoveId, direction: Direction, connection: &str, version: i32) -> String {
    let name = direction.name(id);
    // On 16 and newer the tables' owners would be taken for each row, who may be under row security.
    let as_owner = if version >= 160_000 { ", run_as_owner = true" } else { "" };
    let follows_only = match direction {
        Direction::Forward => "",
        Direction::Back => ", copy_data = false",
    };
    format!(
        "CREATE SUBSCRIPTION {name} CONNECTION {} PUBLICATION {name} \
         WITH (create_slot = false, slot_name = '{name}', enabled = false, disable_on_error = true, streaming = on, two_phase = false{as_owner}{follows_only})",
        quoted_literal(connection)
    )
}
