//! `preparing`: gates on both sides, the residue announced at the target, and what is needed to copy.
//!
//! The target's gate is closed from before the copy until after the switch: replication passes it. The residue is known at the
//! target before its first row is there, and every proxy leaves it out before that, by texts that may name covering views: these are
//! on every shard before.

use serde_json::json;

use super::super::direction::Direction;
use super::super::moved_table::members_sql;
use super::super::moving::Moving;
use super::super::stop::Stop;
use super::super::{covering_views, objects, references, replication, terms};
use crate::shardmap::MoveState;

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let (id, group) = (moving.the_move.id, moving.group_id());
    terms::begin(moving).await?;
    exclude(moving).await?;
    moving.reach("excluding").await;
    let residue = objects::add_residue(id, group, &moving.keys.residue_values(&moving.group.key_types));
    moving.target.act(&format!("{residue}{}", objects::gate(id, moving.has_planted("no_gate_at_target")))).await?;
    moving.source.act(&objects::gate(id, true)).await?;
    for table in &moving.tables {
        let triggers = objects::gate_triggers(id, table);
        moving.target.act_patiently(&triggers).await?;
        moving.source.act_patiently(&triggers).await?;
    }
    Box::pin(references::guard(moving)).await?;
    moving.reach("gated").await;
    // Later than the beginning of the exclusion.
    let epoch = moving.store.epoch().await?;
    moving.all_reached(epoch).await?;
    replication::publish(moving, Direction::Forward).await?;
    // What follows may wait for transactions at the target for long.
    if let Some(reason) = replication::excess(&mut moving.source, Direction::Forward, &moving.the_move).await? {
        return Err(Stop::Abort(reason));
    }
    moving.reach("published").await;
    let mut remembered = json!({ "shapes": shapes(moving, Direction::Forward).await? });
    if moving.the_move.options.can_go_back() {
        replication::publish(moving, Direction::Back).await?;
        moving.reach("reverse_published").await;
        remembered["reverse_prepared"] = json!(true);
        remembered["shapes_at_target"] = json!(shapes(moving, Direction::Back).await?);
    }
    moving.advance(MoveState::Copying, remembered).await
}

/// Copies are left out by every text from the map's next epoch on.
pub(in super::super) async fn exclude(moving: &mut Moving) -> Result<(), Stop> {
    Box::pin(covering_views::make(moving)).await?;
    Ok(moving.store.begin_exclusion(&moving.actor, moving.the_move.id, moving.term).await?)
}

/// What must not change until the switch: which tables and partitions there are, which file holds each, which columns it has, which of
/// our triggers are on.
pub(in super::super) async fn shapes(moving: &mut Moving, direction: Direction) -> Result<String, Stop> {
    let sql = format!("SELECT {}", shapes_sql(moving));
    Ok(moving.publisher(direction).value(&sql).await?)
}

/// As they were at the preparation.
pub(in super::super) fn known_shapes(moving: &Moving, direction: Direction) -> &str {
    let known = match direction {
        Direction::Forward => "shapes",
        Direction::Back => "shapes_at_target",
    };
    moving.the_move.journal.get(known).and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// An expression: a digest, since a table may have many partitions.
pub(in super::super) fn shapes_sql(moving: &Moving) -> String {
    format!(
        "(SELECT pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.string_agg(pg_catalog.format('%s %s %s %s %s', c.oid,
             c.relfilenode,
             (SELECT pg_catalog.string_agg(i.inhparent::pg_catalog.text, ',' ORDER BY i.inhparent) FROM pg_catalog.pg_inherits i
              WHERE i.inhrelid = c.oid),
             (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', a.attnum, a.atttypid, a.attisdropped), ',' ORDER BY a.attnum)
              FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
             (SELECT pg_catalog.string_agg(pg_catalog.concat(t.tgname, t.tgenabled), ',' ORDER BY t.tgname)
              FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND {triggers})),
             ';' ORDER BY c.oid), 'UTF8')), 'hex')
          FROM ({members}) m JOIN pg_catalog.pg_class c ON c.oid = m.oid)",
        triggers = objects::is_trigger_of(moving.the_move.id),
        members = members_sql(&moving.sharded)
    )
}
