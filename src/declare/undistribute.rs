//! `undistribute_table`: a sharded table becomes a table of the home shard again.
//!
//! Moves bring its rows there first, while applications read and write. Once all of a table's partitions lie on the home shard, a statement
//! that was planned by the older map does there what it would do by the newer one, so nothing has to wait for the change of the map.

use std::collections::BTreeSet;

use super::arguments::Arguments;
use super::checks::Obstacle;
use super::functions::no_shard;
use super::home_moves::{bring_home, refuse_company};
use super::moves::row;
use super::sharding::{refuse, refuse_changed_schema};
use super::shards::{read_committed, read_schema};
use super::turn::{Turn, Unmade, repeated};
use super::{BODY_READER, Caller, Control, names, rows_copy};
use crate::catalog::{Access, Catalog, Closure, Oid, Relation, quoted_literal, quoted_name, shown_name};
use crate::error::{PgError, SqlState};
use crate::shardmap::{Group, GroupId, MapSnapshot, Shard, TableKind, TableName};

/// One row a move that has brought rows to the home shard, or would.
pub(super) async fn undistribute(
    control: &Control,
    caller: &Caller,
    arguments: &Arguments,
) -> Result<Vec<Vec<Option<String>>>, PgError> {
    let (table, cascades) = (arguments.text("table_name")?, arguments.boolean("cascade_via_foreign_keys")?);
    let (is_dry_run, with_colocated) = (arguments.boolean("dry_run")?, arguments.boolean("with_colocated")?);
    // What stands in the way is heard before anything moves.
    let groups = Box::pin(groups_to_bring(control, caller, table, (cascades, with_colocated))).await?;
    let moved = Box::pin(bring_home(control, caller, &groups, is_dry_run)).await?;
    if !is_dry_run {
        Box::pin(repeated(|| undistribute_once(control, caller, table, cascades))).await?;
    }
    Ok(moved.into_iter().map(row).collect())
}

/// Those whose partitions have to be on the home shard.
async fn groups_to_bring(
    control: &Control,
    caller: &Caller,
    table: &str,
    (cascades, with_colocated): (bool, bool),
) -> Result<Vec<GroupId>, PgError> {
    let map = control.fresh_snapshot().await?;
    let catalog = home_catalog(control, &map).await?;
    let relation = names::find_table(&catalog, caller, table)?;
    let schema = Schema { catalog: &catalog, map: &map };
    let leaving = schema.leaving(relation, cascades)?;
    refuse(&format!("cannot make \"{}\" a home table", relation.name), &schema.obstacles(&leaving))?;
    let mut groups: Vec<GroupId> = Vec::new();
    for relation in &leaving {
        groups.push(schema.group(relation)?.id);
    }
    groups.sort_unstable();
    groups.dedup();
    if !with_colocated {
        let names: Vec<TableName> = leaving.iter().map(|relation| (relation.schema.clone(), relation.name.clone())).collect();
        let cascade = if cascades { ", cascade_via_foreign_keys => true" } else { "" };
        let table = quoted_literal(&shown_name(&relation.schema, &relation.name));
        let call = format!("shardgate.undistribute_table({}{cascade}, with_colocated => true)", table.trim_start());
        refuse_company(&map, &groups, &names, (&relation.name, &call))?;
    }
    Ok(groups)
}

/// As the home shard has it now.
pub(super) async fn home_catalog(control: &Control, map: &MapSnapshot) -> Result<Catalog, PgError> {
    read_committed(control, map.home().ok_or_else(no_shard)?).await
}

async fn undistribute_once(control: &Control, caller: &Caller, table: &str, cascades: bool) -> Result<(), Unmade> {
    let mut turn = Turn::take(control).await?.ok_or_else(no_shard)?;
    let catalog = read_schema(control, &turn.home_shard, &mut turn.home).await?;
    let relation = names::find_table(&catalog, caller, table)?;
    let schema = Schema { catalog: &catalog, map: &turn.snapshot };
    let leaving = schema.leaving(relation, cascades)?;
    for relation in &leaving {
        require_at_home(relation, schema.group(relation)?, &turn.home_shard)?;
    }
    refuse(&format!("cannot make \"{}\" a home table", relation.name), &schema.obstacles(&leaving))?;
    refuse_rows_elsewhere(control, &turn.snapshot, &leaving).await?;
    refuse_changed_schema(control, &turn.home_shard, &catalog).await?;
    let names: Vec<(&str, &str)> = leaving.iter().map(|relation| (relation.schema.as_str(), relation.name.as_str())).collect();
    control.map.store().undistribute_tables(turn.planned()?, &caller.user, &names).await?;
    control.reached().await?;
    turn.end().await;
    Ok(())
}

/// What no partition owns would appear, or be lost from sight, by another declaration.
pub(super) async fn refuse_rows_elsewhere(control: &Control, map: &MapSnapshot, relations: &[&Relation]) -> Result<(), PgError> {
    for shard in map.shards.iter().filter(|shard| !shard.is_home && shard.state.is_ready()) {
        let mut connection = control.open(shard).await?;
        for relation in relations {
            if rows_copy::has_rows(&mut connection, relation).await? {
                return Err(rows_elsewhere(relation, shard));
            }
        }
        connection.close().await;
    }
    Ok(())
}

pub(super) fn require_at_home(relation: &Relation, group: &Group, home: &Shard) -> Result<(), PgError> {
    let elsewhere = group.partitions.iter().filter(|partition| partition.shard != home.id).count();
    let error = |message: String| PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    let table = &relation.name;
    if elsewhere > 0 {
        return Err(error(format!("cannot make \"{table}\" a home table because its rows are on several shards"))
            .with_detail(format!(
                "{elsewhere} of its {} partitions are not on the home shard \"{}\".",
                group.partitions.len(),
                home.name
            ))
            .with_hint(format!(
                "Call the function through a proxy, which moves them; or move them with \"shard-rebalance move --partition … --to {}\": \
                 \"shard-rebalance status --partitions\" lists them.",
                home.name
            )));
    }
    if group.has_residues {
        return Err(error(format!("cannot make \"{table}\" a home table while a move of its partitions ends"))
            .with_detail("Rows that have moved to the home shard are still deleted elsewhere.")
            .with_hint("Call the function again when SELECT * FROM shardgate.moves shows no running move."));
    }
    Ok(())
}

fn rows_elsewhere(relation: &Relation, shard: &Shard) -> PgError {
    let message = format!("cannot make \"{}\" a home table because shard \"{}\" has rows of it", relation.name, shard.name);
    PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail("All of its partitions are on the home shard: these rows belong to none of them.")
        .with_hint(format!(
            "\"shard-rebalance doctor\" tells what they are. Look at them after SET shardgate.shard = '{}', and delete them on a connection to that shard's own server.",
            shard.name
        ))
}

/// The home shard's schema, and what is declared of it.
pub(super) struct Schema<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) map: &'a MapSnapshot,
}

impl<'a> Schema<'a> {
    pub(super) fn group(&self, relation: &Relation) -> Result<&'a Group, PgError> {
        match self.map.table(&relation.schema, &relation.name).map(|table| &table.kind) {
            Some(TableKind::Sharded { group, .. }) => {
                self.map.group(*group).map(AsRef::as_ref).ok_or_else(|| PgError::internal("a table without its group"))
            }
            Some(TableKind::Reference) => Err(PgError::unsupported(
                format!("\"{}\" is a reference table", relation.name),
                "It has a copy on every shard, which statements and foreign keys rely on.",
                "Create a home table with its rows, and drop it.",
            )),
            None => {
                Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("table \"{}\" is not sharded", relation.name))
                    .with_hint("SELECT * FROM shardgate.tables shows which tables are."))
            }
        }
    }

    /// The table that a partition belongs to; others are their own.
    fn root(&self, relation: &'a Relation) -> &'a Relation {
        let parent = relation.parents.iter().find_map(|parent| self.catalog.relations.get(parent));
        parent.filter(|_| self.map.table(&relation.schema, &relation.name).is_none()).map_or(relation, |parent| self.root(parent))
    }

    fn is_sharded(&self, root: &Relation) -> bool {
        let table = self.map.table(&root.schema, &root.name);
        table.is_some_and(|table| matches!(table.kind, TableKind::Sharded { .. }))
    }

    /// Foreign keys between sharded tables: name, the table that refers, the one that is referred to. Sorted.
    fn foreign_keys(&self) -> Vec<(&'a str, &'a Relation, &'a Relation)> {
        let mut found: Vec<(&str, &Relation, &Relation)> = Vec::new();
        for relation in self.catalog.relations.values() {
            for foreign_key in &relation.foreign_keys {
                let Some(referenced) = self.catalog.relations.get(&foreign_key.referenced) else { continue };
                let (from, to) = (self.root(relation), self.root(referenced));
                if from.oid != to.oid && self.is_sharded(from) && self.is_sharded(to) {
                    found.push((foreign_key.name.as_str(), from, to));
                }
            }
        }
        found.sort_by_key(|(name, from, to)| (&from.schema, &from.name, *name, &to.name));
        found.dedup_by_key(|(name, from, to)| (*name, from.oid, to.oid));
        found
    }

    /// The table and, where that is wanted, those that foreign keys connect it with.
    fn leaving(&self, relation: &'a Relation, cascades: bool) -> Result<Vec<&'a Relation>, PgError> {
        self.group(relation)?;
        let mut leaving = vec![relation];
        let foreign_keys = self.foreign_keys();
        if !cascades {
            return Ok(leaving);
        }
        loop {
            let has = |one: &Relation| leaving.iter().any(|relation| relation.oid == one.oid);
            let next = foreign_keys.iter().find_map(|(_, from, to)| match (has(from), has(to)) {
                (true, false) => Some(*to),
                (false, true) => Some(*from),
                (true, true) | (false, false) => None,
            });
            match next {
                Some(next) => leaving.push(next),
                None => return Ok(leaving),
            }
        }
    }

    /// What ties them to tables that stay sharded.
    fn obstacles(&self, leaving: &[&Relation]) -> Vec<Obstacle> {
        let oids: BTreeSet<Oid> =
            leaving.iter().flat_map(|relation| self.catalog.family(relation)).map(|member| member.oid).collect();
        let tables: Vec<String> = leaving.iter().map(|relation| shown_name(&relation.schema, &relation.name)).collect();
        let mut found: Vec<Obstacle> = Vec::new();
        for (name, from, to) in self.foreign_keys() {
            if oids.contains(&from.oid) == oids.contains(&to.oid) {
                continue;
            }
            let what = format!(
                "Foreign key \"{name}\" of table \"{}\" refers to table \"{}\", and one of them stays sharded.",
                from.name, to.name
            );
            let first = tables.first().map(String::as_str).unwrap_or_default();
            let remedy = format!(
                "Take the tables along that foreign keys connect it with: SELECT shardgate.undistribute_table({}, \
                 cascade_via_foreign_keys => true); or ALTER TABLE {} DROP CONSTRAINT {}.",
                quoted_literal(first),
                quoted_name(&from.schema, &from.name),
                crate::catalog::quoted_identifier(name)
            );
            found.push(Obstacle { what, remedy });
        }
        found.extend(self.used_by_others(leaving));
        found
    }

    /// Triggers, defaults and the like of other sharded tables that touch these.
    pub(super) fn used_by_others(&self, leaving: &[&Relation]) -> Vec<Obstacle> {
        let oids: BTreeSet<Oid> =
            leaving.iter().flat_map(|relation| self.catalog.family(relation)).map(|member| member.oid).collect();
        let mut found: Vec<Obstacle> = Vec::new();
        let mut staying: Vec<&Relation> =
            self.catalog.relations.values().filter(|relation| self.is_sharded(self.root(relation))).collect();
        staying.retain(|relation| !oids.contains(&relation.oid));
        staying.sort_by_key(|relation| (&relation.schema, &relation.name));
        for relation in staying {
            for part in self.catalog.closures_by_part(relation.oid, Access::Write, &BODY_READER) {
                let Closure::Known(references) = &part.closure else { continue };
                if references.reads.iter().chain(&references.writes).any(|oid| oids.contains(oid)) {
                    found.push(Obstacle {
                        what: format!("The {} of sharded table \"{}\" uses it.", part.name, relation.name),
                        remedy: "Drop it first, or undistribute that table too.".to_owned(),
                    });
                }
            }
        }
        found
    }
}
