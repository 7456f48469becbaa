//! `distribute_table`, `distribute_tables` and Citus's `create_distributed_table`.
//!
//! A table that holds rows stays where it is: all partitions begin on the home shard, and every statement does what it did
//! before. Only an empty one is spread at once, behind the gate, so that no row that was on its way lands at home by an old plan.

use std::sync::Arc;

use crate::catalog::{Catalog, Definitions, Oid, Relation, quoted_literal, quoted_name, shown_name};
use crate::error::{PgError, SqlState};
use crate::shard_key::{KeyColumn, KeyType};
use crate::shardmap::{
    Bound, Group, GroupId, GroupOfTables, MapSnapshot, NewPartition, NewShardedTable, Placement, Shard, Silent, StoreError,
    Strategy, Table, TableKind, hash_slices, spread,
};

use super::arguments::Arguments;
use super::checks::{Candidate, CandidateKind, Obstacle, key_text};
use super::functions::no_shard;
use super::gate::{self, LockedTables};
use super::key::TableKey;
use super::plan_tables::are_alike;
use super::reading;
use super::shard_connection::ShardConnection;
use super::shards::{read_committed, read_schema};
use super::turn::{Turn, Unmade, repeated};
use super::{BODY_READER, Caller, Control, names, placement, rows_copy, schema_copy, sequences};

mod redistribute;

pub(super) use redistribute::redistribute;

/// What a user asks for.
struct Request<'a> {
    /// Tables and their keys, all to be in one group.
    tables: Vec<(&'a str, &'a str)>,
    strategy: Option<Strategy>,
    colocate_with: Colocation<'a>,
    partitions: u32,
    on_shards: &'a str,
    /// Range: where the pieces but the first begin.
    bounds: Option<&'a [String]>,
}

enum Colocation<'a> {
    /// A group of its own.
    Nobody,
    With(&'a str),
    /// Citus's default: with whatever fits, else a group of its own.
    Fitting,
}

const PARTITIONS_MAX: u32 = 100_000;
const PARTITIONS_DEFAULT: u32 = 64;

pub(super) async fn distribute(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<(), PgError> {
    let tables = vec![(arguments.text("table_name")?, arguments.text("key")?)];
    distribute_in_one_group(control, caller, tables, arguments).await
}

/// Foreign keys among the tables may stay, since none of them is sharded without the others.
pub(super) async fn distribute_several(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<(), PgError> {
    let keys = arguments.json("keys")?;
    let malformed = || {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, "keys must be an object of tables and their shard keys")
            .with_hint("For example: SELECT shardgate.distribute_tables('{\"customers\": \"id\", \"invoices\": \"customer_id\"}').")
    };
    let pair = |(table, key): (&'_ String, &'_ serde_json::Value)| key.as_str().map(|key| (table.clone(), key.to_owned()));
    let keys = keys.as_object().filter(|keys| !keys.is_empty()).ok_or_else(malformed)?;
    let keys: Vec<(String, String)> = keys.iter().map(pair).collect::<Option<_>>().ok_or_else(malformed)?;
    let tables = keys.iter().map(|(table, key)| (table.as_str(), key.as_str())).collect();
    distribute_in_one_group(control, caller, tables, arguments).await
}

async fn distribute_in_one_group(
    control: &Control,
    caller: &Caller,
    tables: Vec<(&str, &str)>,
    arguments: &Arguments,
) -> Result<(), PgError> {
    let colocate_with = arguments.optional_text("colocate_with")?;
    let strategy = parse_strategy(arguments.text("strategy")?)?;
    let is_strategy_open = colocate_with.is_some() && !arguments.is_given("strategy")?;
    let request = Request {
        tables,
        strategy: (!is_strategy_open).then_some(strategy),
        colocate_with: colocate_with.map_or(Colocation::Nobody, Colocation::With),
        partitions: planned_partitions(
            parse_partitions("partitions", arguments.integer("partitions")?)?,
            arguments.optional_integer("planned_shards")?,
        )?,
        on_shards: arguments.text("on_shards")?,
        bounds: arguments.optional_texts("bounds")?,
    };
    refuse_bounds(&request)?;
    refuse_planned_shards(&request, arguments)?;
    Box::pin(repeated(|| declare(control, caller, &request))).await
}

pub(super) async fn create_distributed(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<(), PgError> {
    let kind = arguments.text("distribution_type")?;
    if kind.eq_ignore_ascii_case("append") {
        return Err(PgError::unsupported(
            "distribution type \"append\" is not supported",
            "Rows of such a table have no shard of their own.",
            "Use 'hash' or 'range'.",
        ));
    }
    let request = Request {
        tables: vec![(arguments.text("table_name")?, arguments.text("distribution_column")?)],
        strategy: Some(parse_strategy(kind)?),
        colocate_with: match arguments.text("colocate_with")? {
            "default" => Colocation::Fitting,
            "none" => Colocation::Nobody,
            table => Colocation::With(table),
        },
        partitions: match arguments.optional_integer("shard_count")? {
            None => PARTITIONS_DEFAULT,
            Some(count) => parse_partitions("shard_count", count)?,
        },
        on_shards: "all",
        bounds: None,
    };
    Box::pin(repeated(|| declare(control, caller, &request))).await
}

/// As many as are asked for, or more where so many shards are planned that they would be uneven there.
fn planned_partitions(partitions: u32, planned_shards: Option<i32>) -> Result<u32, PgError> {
    let Some(shards) = planned_shards else { return Ok(partitions) };
    let shards_max = PARTITIONS_MAX / placement::PARTITIONS_PER_PLANNED_SHARD;
    let shards = u32::try_from(shards).ok().filter(|shards| (1..=shards_max).contains(shards)).ok_or_else(|| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("planned_shards must be between 1 and {shards_max}"))
    })?;
    let made = placement::even_partitions(partitions, shards);
    match made <= PARTITIONS_MAX {
        true => Ok(made),
        false => Err(PgError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("{shards} planned shards would need more than {PARTITIONS_MAX} partitions"),
        )
        .with_detail(format!("A multiple of {shards}, so that each shard has as many, would be {made}."))
        .with_hint("Give fewer partitions, or another number of planned shards.")),
    }
}

fn refuse_planned_shards(request: &Request<'_>, arguments: &Arguments) -> Result<(), PgError> {
    let is_of_hash = request.strategy == Some(Strategy::Hash) && matches!(request.colocate_with, Colocation::Nobody);
    if is_of_hash || arguments.optional_integer("planned_shards")?.is_none() {
        return Ok(());
    }
    Err(only_of_hash())
}

fn only_of_hash() -> PgError {
    PgError::new(SqlState::INVALID_PARAMETER_VALUE, "planned_shards is given for strategy 'hash' only, without colocate_with")
        .with_hint("Only partitions by hash are made for shards that are not there yet.")
}

fn refuse_bounds(request: &Request<'_>) -> Result<(), PgError> {
    let is_of_range = request.strategy == Some(Strategy::Range) && matches!(request.colocate_with, Colocation::Nobody);
    if request.bounds.is_none() || is_of_range {
        return Ok(());
    }
    Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, "bounds are given for strategy 'range' only, without colocate_with")
        .with_hint("A colocated table has the partitions of the other one."))
}

fn parse_strategy(text: &str) -> Result<Strategy, PgError> {
    Strategy::from_name(&text.trim().to_ascii_lowercase()).ok_or_else(|| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unknown strategy \"{text}\""))
            .with_hint("The strategies are 'hash', 'range' and 'lookup'.")
    })
}

fn parse_partitions(name: &str, count: i32) -> Result<u32, PgError> {
    u32::try_from(count).ok().filter(|count| (1..=PARTITIONS_MAX).contains(count)).ok_or_else(|| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("{name} must be between 1 and {PARTITIONS_MAX}"))
            .with_detail(format!("It is {count}."))
    })
}

async fn declare(control: &Control, caller: &Caller, request: &Request<'_>) -> Result<(), Unmade> {
    let mut turn = Turn::take(control).await?.ok_or_else(no_shard)?;
    turn.require_writable()?;
    let mut catalog = Arc::new(read_schema(control, &turn.home_shard, &mut turn.home).await?);
    let relations = find_tables(&catalog, caller, request)?;
    let had_leftover = gate::open_leftovers(control, &mut turn.home, &family_names(&catalog, &relations)).await?;
    for (relation, (_, key)) in relations.iter().zip(&request.tables) {
        if let Some(known) = turn.snapshot.table(&relation.schema, &relation.name) {
            return Ok(already_declared((&*catalog, relation), known, (key, request.strategy), had_leftover)?);
        }
    }
    let mut has_rows = false;
    for relation in &relations {
        has_rows = has_rows || rows_copy::has_rows(&mut turn.home, relation).await?;
    }
    let plan = Plan::make(caller, &turn.snapshot, &catalog, &relations, request, has_rows)?;
    let mut cycling = Vec::new();
    for relation in &relations {
        cycling.extend(sequences::cycling(&mut turn.home, relation).await?);
    }
    refuse_obstacles(caller, &turn.snapshot, &catalog, &relations, (&plan, cycling))?;
    let mut has_adopted = false;
    for relation in &relations {
        has_adopted |= Box::pin(sequences::adopt(control, caller, &turn.snapshot, &mut turn.home, relation)).await?;
    }
    if has_adopted {
        catalog = Arc::new(read_schema(control, &turn.home_shard, &mut turn.home).await?);
    }
    let relations = find_tables(&catalog, caller, request)?;
    for shard in &turn.other_shards() {
        let mut connection = control.open(shard).await?;
        for relation in &relations {
            sequences::adopt_elsewhere(control, &mut connection, relation).await?;
            Box::pin(ensure_table(control, &mut turn, &catalog, relation, (shard, &mut connection))).await?;
            sequences::own(&mut connection, &sequences::cluster_sequences(relation)).await?;
            refuse_rows(&mut connection, relation).await?;
        }
        connection.close().await;
    }
    let keeps_rows_at_home = plan.keeps_rows_at_home(&turn.snapshot, &turn.home_shard);
    let checked = Checked { caller, request, relations, plan };
    if keeps_rows_at_home {
        checked.store(control, &turn).await?;
        control.reached().await?;
    } else {
        Box::pin(checked.store_gated(control, &mut turn, &catalog)).await?;
    }
    turn.end().await;
    Ok(())
}

fn find_tables<'a>(catalog: &'a Catalog, caller: &Caller, request: &Request<'_>) -> Result<Vec<&'a Relation>, PgError> {
    let mut found: Vec<&Relation> = Vec::new();
    for (table, _) in &request.tables {
        let relation = names::find_table(catalog, caller, table)?;
        if found.iter().any(|other| other.oid == relation.oid) {
            let message = format!("table \"{}\" is named twice", relation.name);
            return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        found.push(relation);
    }
    Ok(found)
}

fn family_names(catalog: &Catalog, relations: &[&Relation]) -> Vec<String> {
    relations.iter().flat_map(|relation| gate::names(&catalog.family(relation))).collect()
}

/// Of all tables at once.
fn refuse_obstacles(
    caller: &Caller,
    snapshot: &MapSnapshot,
    catalog: &Arc<Catalog>,
    relations: &[&Relation],
    (plan, more): (&Plan, Vec<Obstacle>),
) -> Result<(), PgError> {
    let keys: Vec<(Oid, &[KeyColumn])> =
        relations.iter().zip(&plan.keys).map(|(relation, key)| (relation.oid, key.columns.as_slice())).collect();
    let tables: Vec<(&Relation, &[KeyColumn])> =
        relations.iter().zip(&plan.keys).map(|(relation, key)| (*relation, key.columns.as_slice())).collect();
    let map = reading::with_tables(snapshot, &tables, plan.group(), (plan.strategy, &plan.types));
    let declared = reading::under(catalog, map, &reading::path_of(caller));
    let mut obstacles = plan.group_obstacles(snapshot, relations);
    for (relation, key) in relations.iter().zip(&plan.keys) {
        let kind = CandidateKind::Sharded { key: &key.columns, group: plan.group(), together_with: &keys };
        let candidate = Candidate { catalog, map: snapshot, relation, kind, reader: &BODY_READER, declared: &declared };
        for obstacle in candidate.obstacles() {
            if !obstacles.contains(&obstacle) {
                obstacles.push(obstacle);
            }
        }
    }
    obstacles.extend(more);
    if obstacles.len() > 1 {
        let pair = |(relation, key): (&&Relation, &TableKey)| {
            let table = serde_json::Value::from(shown_name(&relation.schema, &relation.name));
            format!("{table}: {}", serde_json::Value::from(key_text(&key.columns)))
        };
        let pairs: Vec<String> = relations.iter().zip(&plan.keys).map(pair).collect();
        let keys = quoted_literal(&format!("{{{}}}", pairs.join(", ")));
        let remedy = format!("SELECT * FROM shardgate.plan_tables({}) gives it all as a script.", keys.trim_start());
        obstacles.iter_mut().last().into_iter().for_each(|last| last.remedy.push_str(&format!("\n{remedy}")));
    }
    let names: Vec<String> = relations.iter().map(|relation| format!("\"{}\"", relation.name)).collect();
    let tables = if relations.len() == 1 { "table" } else { "tables" };
    refuse(&format!("cannot distribute {tables} {}", names.join(", ")), &obstacles)
}

/// `had_leftover`: a call that ended half-way is at its end now, if it was for the same key.
fn already_declared(
    (catalog, relation): (&Catalog, &Relation),
    known: &Table,
    (wanted, strategy): (&str, Option<Strategy>),
    had_leftover: bool,
) -> Result<(), PgError> {
    let error = match &known.kind {
        TableKind::Sharded { key, .. } => {
            let asked = TableKey::resolve(wanted, catalog, relation, strategy.unwrap_or(Strategy::Hash));
            if had_leftover && asked.is_ok_and(|asked| asked.columns == *key) {
                return Ok(());
            }
            format!("table \"{}\" is already sharded", relation.name)
        }
        TableKind::Reference => format!("table \"{}\" is already a reference table", relation.name),
    };
    Err(PgError::new(SqlState::DUPLICATE_OBJECT, error).with_hint("SELECT * FROM shardgate.tables shows how."))
}

/// Where the partitions will be.
struct Plan {
    /// Of each table.
    keys: Vec<TableKey>,
    /// Of the group: the widest of integers, which are placed alike.
    types: Vec<KeyType>,
    strategy: Strategy,
    placement: Placement,
}

impl Plan {
    fn make(
        caller: &Caller,
        snapshot: &MapSnapshot,
        catalog: &Catalog,
        relations: &[&Relation],
        request: &Request<'_>,
        has_rows: bool,
    ) -> Result<Self, PgError> {
        let home = snapshot.home().ok_or_else(no_shard)?;
        let keys = |strategy: Strategy| -> Result<Vec<TableKey>, PgError> {
            let key = |(relation, (_, key)): (&&Relation, &(&str, &str))| TableKey::resolve(key, catalog, relation, strategy);
            relations.iter().zip(&request.tables).map(key).collect()
        };
        let colocated = match request.colocate_with {
            Colocation::Nobody => None,
            Colocation::With(table) => Some(find_group(caller, snapshot, catalog, table)?),
            Colocation::Fitting => {
                let keys = keys(request.strategy.unwrap_or(Strategy::Hash))?;
                keys.first().and_then(|key| fitting_group(snapshot, key, request, has_rows, home))
            }
        };
        let strategy = request.strategy.or(colocated.map(|group| group.strategy)).unwrap_or(Strategy::Hash);
        let keys = keys(strategy)?;
        let types = common_types(&keys);
        let placement = match colocated {
            Some(group) => {
                for relation in relations {
                    refuse_rows_elsewhere(relation, group, home, has_rows)?;
                }
                Placement::Colocated(group.id)
            }
            None => new_group(snapshot, home, strategy, &types, request, has_rows)?,
        };
        Ok(Self { keys, types, strategy, placement })
    }

    /// Tables of one group are placed alike.
    fn group_obstacles(&self, snapshot: &MapSnapshot, relations: &[&Relation]) -> Vec<Obstacle> {
        let of_group = self.group().and_then(|group| snapshot.group(group)).map(|group| group.key_types.as_slice());
        let wanted = of_group.or_else(|| self.keys.first().map(|key| key.types.as_slice())).unwrap_or_default();
        let names = |types: &[KeyType]| types.iter().map(|key_type| key_type.name()).collect::<Vec<_>>().join(", ");
        let other = relations.iter().zip(&self.keys).filter(|(_, key)| !are_alike(&key.types, wanted));
        let obstacle = |(relation, key): (&&Relation, &TableKey)| Obstacle {
            what: match (of_group, relations.first()) {
                (None, Some(first)) => format!(
                    "The shard keys have different types. Table \"{}\": {}; table \"{}\": {}.",
                    first.name,
                    names(wanted),
                    relation.name,
                    names(&key.types)
                ),
                _ => format!(
                    "The shard keys have different types. The colocation group: {}; table \"{}\": {}.",
                    names(wanted),
                    relation.name,
                    names(&key.types)
                ),
            },
            remedy: "Change the type of one of the columns, or declare tables with keys of other types by a call of their own."
                .to_owned(),
        };
        let others_strategy = self.group().and_then(|group| snapshot.group(group)).map(|group| group.strategy);
        let strategy = others_strategy.filter(|strategy| *strategy != self.strategy).map(|strategy| Obstacle {
            what: format!(
                "A table that is sharded by {} cannot be colocated with tables that are sharded by {}.",
                self.strategy.name(),
                strategy.name()
            ),
            remedy: format!("Use strategy '{}', or leave out colocate_with.", strategy.name()),
        });
        strategy.into_iter().chain(other.map(obstacle)).collect()
    }

    fn group(&self) -> Option<GroupId> {
        match &self.placement {
            Placement::Colocated(group) => Some(*group),
            Placement::Partitions { .. } => None,
        }
    }

    /// Every key's rows are on the home shard, and stay there: who writes by an older map writes to the right place.
    fn keeps_rows_at_home(&self, snapshot: &MapSnapshot, home: &Shard) -> bool {
        match &self.placement {
            Placement::Colocated(group) => snapshot.group(*group).is_some_and(|group| is_covered_by(group, home)),
            Placement::Partitions { partitions, default_shard } => {
                (self.strategy != Strategy::Lookup || default_shard.as_ref() == Some(&home.name))
                    && partitions.iter().all(|partition| partition.shard == home.name)
            }
        }
    }
}

fn is_group_on(group: &Group, shard: &Shard) -> bool {
    group.partitions.iter().all(|partition| partition.shard == shard.id)
}

/// Every key is on this shard. Lookup partitions take keys later, wherever they are, but for what the default says.
fn is_covered_by(group: &Group, shard: &Shard) -> bool {
    match group.strategy {
        Strategy::Hash | Strategy::Range => is_group_on(group, shard),
        Strategy::Lookup => is_group_on(group, shard) && group.default_partition.is_some(),
    }
}

fn find_group<'a>(caller: &Caller, snapshot: &'a MapSnapshot, catalog: &Catalog, table: &str) -> Result<&'a Group, PgError> {
    let other = names::find_table(catalog, caller, table)?;
    let group = match snapshot.table(&other.schema, &other.name).map(|table| &table.kind) {
        Some(TableKind::Sharded { group, .. }) => snapshot.group(*group),
        Some(TableKind::Reference) | None => None,
    };
    group.map(AsRef::as_ref).ok_or_else(|| {
        PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("cannot colocate with table \"{}\"", other.name))
            .with_detail("It is not sharded.")
            .with_hint("Distribute that table first, or leave out colocate_with.")
    })
}

/// The oldest group with the same key types, strategy and number of partitions into which this table may go.
fn fitting_group<'a>(
    snapshot: &'a MapSnapshot,
    key: &TableKey,
    request: &Request<'_>,
    has_rows: bool,
    home: &Shard,
) -> Option<&'a Group> {
    let fits = |group: &&Group| {
        Some(group.strategy) == request.strategy
            && group.strategy == Strategy::Hash
            && group.key_types == key.types
            && group.partitions.len() == request.partitions as usize
            && (!has_rows || is_group_on(group, home))
    };
    snapshot.groups.values().map(AsRef::as_ref).filter(fits).min_by_key(|group| group.id)
}

fn refuse_rows_elsewhere(relation: &Relation, group: &Group, home: &Shard, has_rows: bool) -> Result<(), PgError> {
    if !has_rows || is_covered_by(group, home) {
        return Ok(());
    }
    Err(PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("cannot colocate table \"{}\" because it holds rows", relation.name),
    )
    .with_detail("Its rows are on the home shard, but the colocation group has partitions on other shards or keys without any.")
    .with_hint(
        "Distribute the table without colocate_with while the other's partitions are elsewhere, or create an empty table, \
         colocate that, and insert the rows into it.",
    ))
}

fn new_group(
    snapshot: &MapSnapshot,
    home: &Shard,
    strategy: Strategy,
    key_types: &[KeyType],
    request: &Request<'_>,
    has_rows: bool,
) -> Result<Placement, PgError> {
    let on_shards = placement::parse_shards(snapshot, request.on_shards)?;
    let on_shards = if has_rows { vec![home] } else { on_shards };
    if on_shards.is_empty() {
        return Err(placement::no_shard_takes_partitions());
    }
    let (partitions, default_shard) = match strategy {
        Strategy::Hash => {
            let turns = placement::turns(&on_shards, request.partitions as usize);
            (spread(hash_slices(request.partitions), &turns), None)
        }
        // Where to cut only the user knows: by bounds, or split_partition.
        Strategy::Range => {
            let lows = range_lows(key_types, request.bounds.unwrap_or_default())?;
            let pieces = if has_rows { None } else { placement::parse_pieces(snapshot, request.on_shards, lows.len())? };
            let turns = match (pieces, on_shards.as_slice()) {
                (Some(pieces), _) => pieces,
                (None, [first, ..]) if lows.len() == 1 => vec![first.name.clone()],
                (None, shards) => placement::turns(shards, lows.len()),
            };
            (spread(lows, &turns), None)
        }
        // One for each shard, to which keys are mapped. Rows that are there already must be found: by the default.
        Strategy::Lookup => {
            let partitions = on_shards.iter().map(|shard| NewPartition { low: None, shard: shard.name.clone() }).collect();
            (partitions, has_rows.then(|| home.name.clone()))
        }
    };
    Ok(Placement::Partitions { partitions, default_shard })
}

/// Where the pieces begin: at the beginning, and at each of these, which ascend.
fn range_lows(key_types: &[KeyType], bounds: &[String]) -> Result<Vec<Option<Bound>>, PgError> {
    let mut lows = vec![None];
    for text in bounds {
        let bound = Bound::parse_key(key_types, text)?;
        if lows.last().is_some_and(|before: &Option<Bound>| before.as_ref() >= Some(&bound)) {
            return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, "the bounds of the partitions do not ascend")
                .with_detail(format!("\"{text}\" is not greater than the bound before it."))
                .with_hint(
                    "Give each place once where a partition begins, in ascending order; the first one begins at the beginning.",
                ));
        }
        lows.push(Some(bound));
    }
    Ok(lows)
}

/// The types of a new group's key: those of the first table, and of integers, which are placed alike, the widest.
fn common_types(keys: &[TableKey]) -> Vec<KeyType> {
    let Some(first) = keys.first() else { return Vec::new() };
    let wider = |(place, own): (usize, &KeyType)| {
        let widths = [KeyType::Int2, KeyType::Int4, KeyType::Int8];
        let width = |key_type: &KeyType| widths.iter().position(|known| known == key_type);
        let others =
            keys.iter().filter_map(|key| key.types.get(place)).filter(|other| width(other) > width(own) && width(own).is_some());
        others.max_by_key(|other| width(other)).copied().unwrap_or(*own)
    };
    first.types.iter().enumerate().map(wider).collect()
}

/// Tables that can be declared, if nothing has changed since.
struct Checked<'a> {
    caller: &'a Caller,
    request: &'a Request<'a>,
    relations: Vec<&'a Relation>,
    plan: Plan,
}

impl Checked<'_> {
    async fn store(&self, control: &Control, turn: &Turn) -> Result<GroupId, StoreError> {
        let (tables, group) = self.as_stored();
        control.map.store().distribute_tables(turn.planned()?, &self.caller.user, &tables, &group).await
    }

    /// Tables that are declared otherwise until now.
    async fn store_again(&self, control: &Control, turn: &Turn) -> Result<GroupId, StoreError> {
        let (tables, group) = self.as_stored();
        control.map.store().redistribute_tables(turn.planned()?, &self.caller.user, &tables, &group).await
    }

    fn as_stored(&self) -> (Vec<NewShardedTable<'_>>, GroupOfTables<'_>) {
        let keys = self.plan.keys.iter().zip(&self.request.tables);
        let tables: Vec<NewShardedTable<'_>> = self
            .relations
            .iter()
            .zip(keys)
            .map(|(relation, (key, (_, text)))| NewShardedTable {
                schema: &relation.schema,
                name: &relation.name,
                key: &key.columns,
                key_text: text.trim(),
            })
            .collect();
        let (strategy, placement) = (self.plan.strategy, self.plan.placement.clone());
        (tables, GroupOfTables { key_types: &self.plan.types, strategy, placement })
    }

    /// Empty tables, rows of which will be elsewhere.
    async fn store_gated(&self, control: &Control, turn: &mut Turn, catalog: &Catalog) -> Result<(), Unmade> {
        gate::refuse_silent_proxies(control).await?;
        let mut locked = LockedTables::lock(&mut turn.home, family_names(catalog, &self.relations)).await?;
        // Those who were writing have ended; what they have done is to be seen now.
        let is_as_checked = match refuse_changed_schema(control, &turn.home_shard, catalog).await {
            Ok(()) => refuse_new_rows(locked.connection(), &self.relations).await.map_err(Unmade::Failed),
            changed => changed,
        };
        if let Err(error) = is_as_checked {
            locked.release().await?;
            return Err(error);
        }
        let gates = locked.close_gates().await?;
        match self.store(control, turn).await {
            Ok(_) => Ok(gates.open_when_reached(control, &mut turn.home, Silent::Awaited).await?),
            Err(error) => Err(gates.open_unless_made(error, &mut turn.home).await),
        }
    }
}

async fn refuse_new_rows(home: &mut ShardConnection, relations: &[&Relation]) -> Result<(), PgError> {
    for relation in relations {
        if rows_copy::has_rows(home, relation).await? {
            let message = format!("rows were inserted into table \"{}\" meanwhile", relation.name);
            return Err(PgError::new(SqlState::SERIALIZATION_FAILURE, message).with_hint(
                "Call the function again: the table will stay on the home shard, from where its partitions can be moved.",
            ));
        }
    }
    Ok(())
}

/// With the table locked: nobody has changed what the declaration was checked by. Through the proxies the map says so; past them it
/// shows here.
pub(super) async fn refuse_changed_schema(control: &Control, home: &Shard, checked: &Catalog) -> Result<(), Unmade> {
    // The declaration's own connection is in a transaction.
    let now = read_committed(control, home).await?;
    if now.digest == checked.digest {
        return Ok(());
    }
    Err(Unmade::Overtaken(
        PgError::new(SqlState::SERIALIZATION_FAILURE, "the home shard's schema was changed meanwhile")
            .with_detail("Whether the table can be declared was checked by what it was before.")
            .with_hint("Call the function again."),
    ))
}

/// The error that lists everything that stands in the way; none when nothing does.
pub(super) fn refuse(what: &str, obstacles: &[Obstacle]) -> Result<(), PgError> {
    if obstacles.is_empty() {
        return Ok(());
    }
    let mut remedies: Vec<&str> = Vec::new();
    for obstacle in obstacles {
        if !remedies.contains(&obstacle.remedy.as_str()) {
            remedies.push(&obstacle.remedy);
        }
    }
    let details: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.what.as_str()).collect();
    Err(PgError::unsupported(what, details.join("\n"), remedies.join("\n")))
}

/// The table is on the shard as at home; where it is missing it is made.
pub(super) async fn ensure_table(
    control: &Control,
    turn: &mut Turn,
    home_catalog: &Catalog,
    relation: &Relation,
    (shard, connection): (&Shard, &mut ShardConnection),
) -> Result<(), PgError> {
    let wanted = home_catalog.definitions_of_family(relation);
    let found_there = |there: &Catalog| match there.resolve(Some(&relation.schema), &relation.name, &[]) {
        Some(relation) => there.definitions_of_family(relation),
        None => Definitions::default(),
    };
    let mut found = found_there(&read_schema(control, shard, connection).await?);
    if found.is_empty() && !wanted.is_empty() {
        schema_copy::copy_table(&mut turn.home, &turn.home_shard.url, &home_catalog.family(relation), connection).await?;
        found = found_there(&read_schema(control, shard, connection).await?);
    }
    let differences = wanted.differences(&found);
    if differences.is_empty() {
        return Ok(());
    }
    Err(PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("table \"{}\" is not the same on shard \"{}\"", relation.name, shard.name),
    )
    .with_detail(format!("Here: shard \"{}\", there: shard \"{}\".\n{}.", turn.home.name, shard.name, differences.join(";\n")))
    .with_hint("Make the tables alike; \"shardgate check\" lists all differences."))
}

/// Rows there would belong to the table from now on.
pub(super) async fn refuse_rows(shard: &mut ShardConnection, relation: &Relation) -> Result<(), PgError> {
    if !rows_copy::has_rows(shard, relation).await? {
        return Ok(());
    }
    let table = quoted_name(&relation.schema, &relation.name);
    Err(PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("table \"{}\" holds rows on shard \"{}\"", relation.name, shard.name),
    )
    .with_detail("They would appear among the rows that the table has on the other shards.")
    .with_hint(format!("If they are not needed, empty the table there: TRUNCATE {table}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_shards_make_no_more_partitions_than_a_table_may_have() {
        assert_eq!(planned_partitions(64, Some(10_000)).ok(), Some(100_000));
        assert_eq!(planned_partitions(100_000, Some(10)).ok(), Some(100_000));
        let refused = planned_partitions(100_000, Some(9_999)).unwrap_err();
        assert_eq!(refused.code, SqlState::INVALID_PARAMETER_VALUE);
        assert!(refused.detail.is_some_and(|detail| detail.contains("109989")));
    }
}
