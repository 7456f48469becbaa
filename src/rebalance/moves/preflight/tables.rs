//! What is in the way at one sharded table, with its partitions: partitions of one table that have the same in the way are named
//! together.

use super::super::moved_table::{MovedTable, members_sql};
use super::super::moving::Moving;
use super::super::site::{Site, SiteError};
use super::{Finding, Findings, WITHOUT_A_WAY_BACK};
use crate::catalog::quoted_name;
use crate::shardmap::{MovedTableFacts, MovedTableQuestion, in_the_way, named, replica_triggers, which};

/// `copier`: as whom the target asks the source for rows, where that is not the user of the shard's url.
pub(super) async fn look(
    moving: &mut Moving,
    table: &MovedTable,
    copier: Option<&str>,
    found: &mut Findings,
) -> Result<(), SiteError> {
    let is_there = on_target(moving, table, found).await?;
    on_source(&mut moving.source, table, copier, found).await?;
    if is_there && moving.the_move.options.can_go_back() {
        on_way_back(&mut moving.target, table, found).await?;
    }
    if is_there && found.0.is_empty() {
        residue(moving, table, found).await?;
    }
    Ok(())
}

/// The table and its partitions, on one shard.
async fn members(site: &mut Site, table: &MovedTable, copier: Option<&str>) -> Result<Vec<MovedTableFacts>, SiteError> {
    let members = members_sql(std::slice::from_ref(table));
    let question = MovedTableQuestion { members: &members, key: &names_of_key(table), copier, is_planned: false };
    site.rows::<MovedTableFacts>(&question.sql()).await
}

fn names_of_key(table: &MovedTable) -> Vec<String> {
    table.key.iter().map(|key| key.column.clone()).collect()
}

/// What the schema of the source says against the move.
pub(super) async fn on_source(
    source: &mut Site,
    table: &MovedTable,
    copier: Option<&str>,
    found: &mut Findings,
) -> Result<(), SiteError> {
    let members = members(source, table, copier).await?;
    for (what, remedy) in in_the_way(&members, &names_of_key(table)) {
        let finding = Finding { what, remedy };
        // Publications are no table's own.
        if !found.0.contains(&finding) {
            found.0.push(finding);
        }
    }
    Ok(())
}

/// What the target publishes for a rollback. Without the key in the replica identity the application's own UPDATE would fail there.
async fn on_way_back(target: &mut Site, table: &MovedTable, found: &mut Findings) -> Result<(), SiteError> {
    let members = members(target, table, None).await?;
    let on_shard = format!(" on shard \"{}\"", target.name);
    if let Some(names) = which(&members, |facts| facts.holds_rows && !facts.covers_key) {
        found.add(
            format!("the primary key of {names}{on_shard}, or its replica identity, lacks the shard key, or is DEFERRABLE"),
            format!("Make it as it is on the source; {WITHOUT_A_WAY_BACK}"),
        );
    }
    if let Some((what, remedy)) = replica_triggers(&members, &on_shard) {
        found.add(what, remedy);
    }
    Ok(())
}

/// Schema, name, columns and how it is partitioned, of the table and each of its partitions.
type Shape = (String, String, String);

async fn on_target(moving: &mut Moving, table: &MovedTable, found: &mut Findings) -> Result<bool, SiteError> {
    let sql = format!(
        "SELECT s.nspname::text, c.relname::text,
                concat_ws(' ', (SELECT string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attname)
                                FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
                          (SELECT i.inhparent::regclass::text FROM pg_inherits i WHERE i.inhrelid = c.oid),
                          pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid))
         FROM ({}) m JOIN pg_class c ON c.oid = m.oid JOIN pg_namespace s ON s.oid = c.relnamespace ORDER BY c.relispartition, 1, 2",
        members_sql(std::slice::from_ref(table))
    );
    let (source, target) = (moving.source.rows::<Shape>(&sql).await?, moving.target.rows::<Shape>(&sql).await?);
    if source == target {
        return Ok(true);
    }
    let same_name = |one: &Shape, other: &Shape| one.0 == other.0 && one.1 == other.1;
    let lacks = |there: &[Shape], shape: &&Shape| !there.iter().any(|other| same_name(shape, other));
    let names = |shapes: Vec<&Shape>| named(shapes.into_iter().map(|shape| quoted_name(&shape.0, &shape.1)).collect());
    let differs = |shape: &&Shape| !lacks(&target, shape) && !target.contains(shape);
    let (from, to) = (&moving.source.name, &moving.target.name);
    let remedy = "shardgate check shows the differences; make the tables alike";
    if let Some(names) = names(source.iter().filter(|shape| lacks(&target, shape)).collect()) {
        found.add(format!("shard \"{to}\" lacks {names}"), remedy);
    }
    if let Some(names) = names(target.iter().filter(|shape| lacks(&source, shape)).collect()) {
        found.add(format!("shard \"{from}\" lacks {names}, and shard \"{to}\" does not"), remedy);
    }
    if let Some(names) = names(source.iter().filter(differs).collect()) {
        found.add(format!("columns or partition bounds of {names} differ on shard \"{to}\""), remedy);
    }
    Ok(false)
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
