//! `redistribute_table`: spreads a table from the home shard, or gives a table that holds rows another key or another group.
//!
//! ```text
//! check ─► moves to the home shard ─► one change of the map: another key, another group ─► moves to all shards
//! ```
//! Applications read and write all the time: by the old declaration and by the new one all rows are on the home shard when the map
//! changes. A call that is interrupted, or whose moves take longer than it waits, is made again.

use std::sync::Arc;

use super::{Checked, Colocation, PARTITIONS_DEFAULT, Plan, Request, find_group, planned_partitions, refuse_obstacles};
use crate::catalog::{Catalog, Relation, quoted_literal, shown_name};
use crate::declare::arguments::Arguments;
use crate::declare::checks::key_text;
use crate::declare::functions::no_shard;
use crate::declare::home_moves::{bring_home, refuse_company};
use crate::declare::moves::{self, row, spread, start};
use crate::declare::sharding::{parse_strategy, refuse, refuse_changed_schema};
use crate::declare::shards::read_schema;
use crate::declare::spread::{spread_from_home, until_spread};
use crate::declare::turn::{Turn, Unmade, repeated};
use crate::declare::undistribute::{Schema, home_catalog, refuse_rows_elsewhere, require_at_home};
use crate::declare::{Caller, Control, names};
use crate::error::{PgError, SqlState};
use crate::shardmap::{GroupId, MapSnapshot, Strategy, TableKind, TableName};

/// One row a move that was planned, or would be.
pub(in crate::declare) async fn redistribute(
    control: &Control,
    caller: &Caller,
    arguments: &Arguments,
) -> Result<Vec<Vec<Option<String>>>, PgError> {
    let Some(change) = Change::of(arguments)? else {
        return spread_from_home(control, caller, arguments).await;
    };
    if Box::pin(is_so_already(control, caller, &change)).await? {
        // The call is made again.
        return spread_from_home(control, caller, arguments).await;
    }
    let is_dry_run = arguments.boolean("dry_run")?;
    let groups = Box::pin(check(control, caller, &change, arguments.boolean("with_colocated")?)).await?;
    let mut moved = Box::pin(bring_home(control, caller, &groups, is_dry_run)).await?;
    if !is_dry_run {
        Box::pin(repeated(|| change_once(control, caller, &change))).await?;
        if control.drives_moves() {
            let group = moves::group_of(control, caller, change.table).await?;
            let mut spreading = start(control, spread(caller, Some(group), 0.0, false)).await?;
            until_spread(control, caller, &mut spreading).await?;
            moved.extend(spreading);
        }
    }
    Ok(moved.into_iter().map(row).collect())
}

/// What is to be another one.
struct Change<'a> {
    table: &'a str,
    key: Option<&'a str>,
    strategy: Option<Strategy>,
    colocate_with: Option<&'a str>,
    planned_shards: Option<i32>,
}

impl<'a> Change<'a> {
    /// `None`: the table is only to be spread.
    fn of(arguments: &'a Arguments) -> Result<Option<Self>, PgError> {
        let change = Self {
            table: arguments.text("table_name")?,
            key: arguments.optional_text("key")?,
            strategy: arguments.optional_text("strategy")?.map(parse_strategy).transpose()?,
            colocate_with: arguments.optional_text("colocate_with")?,
            planned_shards: arguments.optional_integer("planned_shards")?,
        };
        let is_one =
            change.key.is_some() || change.strategy.is_some() || change.colocate_with.is_some() || change.planned_shards.is_some();
        Ok(is_one.then_some(change))
    }

    /// What is not given stays: the key, and without another table the strategy and the number of hash partitions.
    fn request<'r>(&'r self, key: &'r str, strategy: Strategy, partitions: usize) -> Result<Request<'r>, PgError> {
        let is_colocated = self.colocate_with.is_some();
        let wanted = if is_colocated { self.strategy } else { Some(self.strategy.unwrap_or(strategy)) };
        if self.planned_shards.is_some() && (is_colocated || wanted != Some(Strategy::Hash)) {
            return Err(super::only_of_hash());
        }
        let known =
            if strategy == Strategy::Hash { u32::try_from(partitions).unwrap_or(PARTITIONS_DEFAULT) } else { PARTITIONS_DEFAULT };
        Ok(Request {
            tables: vec![(self.table, key)],
            strategy: wanted,
            colocate_with: self.colocate_with.map_or(Colocation::Nobody, Colocation::With),
            partitions: planned_partitions(known, self.planned_shards)?,
            on_shards: "all",
            bounds: None,
        })
    }
}

/// How a table is declared, and the map without it.
struct Known<'a> {
    relation: &'a Relation,
    group: GroupId,
    key: String,
    strategy: Strategy,
    partitions: usize,
    map: MapSnapshot,
}

impl<'a> Known<'a> {
    fn find(map: &MapSnapshot, catalog: &'a Catalog, caller: &Caller, table: &str) -> Result<Self, PgError> {
        let relation = names::find_table(catalog, caller, table)?;
        let group = Schema { catalog, map }.group(relation)?;
        let key = match map.table(&relation.schema, &relation.name).map(|table| &table.kind) {
            Some(TableKind::Sharded { key, .. }) => key_text(key),
            Some(TableKind::Reference) | None => return Err(PgError::internal("a group of a table that is not sharded")),
        };
        let mut without = map.clone();
        without.tables.remove(&(relation.schema.clone(), relation.name.clone()));
        let (strategy, partitions) = (group.strategy, group.partitions.len());
        Ok(Self { relation, group: group.id, key, strategy, partitions, map: without })
    }
}

/// The table has this key and strategy, and no other group is asked for.
async fn is_so_already(control: &Control, caller: &Caller, change: &Change<'_>) -> Result<bool, PgError> {
    if change.colocate_with.is_some() || change.planned_shards.is_some() {
        return Ok(false);
    }
    let map = control.fresh_snapshot().await?;
    let catalog = home_catalog(control, &map).await?;
    let known = Known::find(&map, &catalog, caller, change.table)?;
    let is_same = |key: &str| key.trim() == known.key;
    Ok(change.key.is_none_or(is_same) && change.strategy.is_none_or(|strategy| strategy == known.strategy))
}

/// What stands in the way is heard before anything moves. The groups whose partitions have to be on the home shard.
async fn check(control: &Control, caller: &Caller, change: &Change<'_>, with_colocated: bool) -> Result<Vec<GroupId>, PgError> {
    let map = control.fresh_snapshot().await?;
    let catalog = Arc::new(home_catalog(control, &map).await?);
    let known = Known::find(&map, &catalog, caller, change.table)?;
    let request = change.request(change.key.unwrap_or(&known.key), known.strategy, known.partitions)?;
    let mut groups = vec![known.group];
    if let Some(other) = change.colocate_with {
        let joined = find_group(caller, &map, &catalog, other)?;
        if joined.id == known.group && change.key.is_none_or(|key| key.trim() == known.key) {
            return Err(PgError::new(
                SqlState::DUPLICATE_OBJECT,
                format!("table \"{}\" is colocated with it already", known.relation.name),
            )
            .with_hint("SELECT * FROM shardgate.tables shows the colocation groups."));
        }
        groups.push(joined.id);
        groups.dedup();
    }
    // Once all is at home; until then it may hold no rows as far as this check goes.
    let plan = Plan::make(caller, &known.map, &catalog, &[known.relation], &request, false)?;
    refuse_all(caller, &known, &catalog, &plan, &map)?;
    if !with_colocated {
        let name: TableName = (known.relation.schema.clone(), known.relation.name.clone());
        refuse_company(&map, &groups, &[name], (&known.relation.name, &change.call(known.relation)))?;
    }
    Ok(groups)
}

impl Change<'_> {
    /// To be made again, with all tables of the groups.
    fn call(&self, relation: &Relation) -> String {
        let literal = |text: &str| quoted_literal(text).trim_start().to_owned();
        let mut call = format!("shardgate.redistribute_table({}", literal(&shown_name(&relation.schema, &relation.name)));
        let given = [
            ("key", self.key.map(literal)),
            ("strategy", self.strategy.map(|strategy| literal(strategy.name()))),
            ("colocate_with", self.colocate_with.map(literal)),
            ("planned_shards", self.planned_shards.map(|shards| shards.to_string())),
        ];
        for (name, value) in given.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            call.push_str(&format!(", {name} => {value}"));
        }
        call + ", with_colocated => true)"
    }
}

fn refuse_all(caller: &Caller, known: &Known<'_>, catalog: &Arc<Catalog>, plan: &Plan, map: &MapSnapshot) -> Result<(), PgError> {
    refuse_obstacles(caller, &known.map, catalog, &[known.relation], (plan, Vec::new()))?;
    let users = Schema { catalog, map }.used_by_others(&[known.relation]);
    refuse(&format!("cannot redistribute table \"{}\"", known.relation.name), &users)
}

async fn change_once(control: &Control, caller: &Caller, change: &Change<'_>) -> Result<(), Unmade> {
    let mut turn = Turn::take(control).await?.ok_or_else(no_shard)?;
    turn.require_writable()?;
    let catalog = Arc::new(read_schema(control, &turn.home_shard, &mut turn.home).await?);
    let known = Known::find(&turn.snapshot, &catalog, caller, change.table)?;
    let request = change.request(change.key.unwrap_or(&known.key), known.strategy, known.partitions)?;
    let schema = Schema { catalog: &catalog, map: &turn.snapshot };
    require_at_home(known.relation, schema.group(known.relation)?, &turn.home_shard)?;
    // As of a table with rows: whatever is there stays on the home shard.
    let plan = Plan::make(caller, &known.map, &catalog, &[known.relation], &request, true)?;
    refuse_all(caller, &known, &catalog, &plan, &turn.snapshot)?;
    if !plan.keeps_rows_at_home(&turn.snapshot, &turn.home_shard) {
        return Err(PgError::internal("a table with rows is declared elsewhere than on the home shard").into());
    }
    refuse_rows_elsewhere(control, &turn.snapshot, &[known.relation]).await?;
    refuse_changed_schema(control, &turn.home_shard, &catalog).await?;
    let checked = Checked { caller, request: &request, relations: vec![known.relation], plan };
    checked.store_again(control, &turn).await?;
    control.reached().await?;
    turn.end().await;
    Ok(())
}
