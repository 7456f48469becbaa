//! Residues: rows that lie on a shard and are not owned by it change no answer of a text that is covered.
//!
//! Two databases hold one scene. In the first one the rows of some keys are missing, as on a shard that has only what it owns;
//! in the second one they are there, altered, as copies that went stale. Each statement of the scene runs on the first as it is
//! and on the second as `sql::residues` covers it: rows and errors are equal. What the proxy refuses over several shards is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardgate::backend::catalog_reader::{self, Known, WhenHeld};
use shardgate::catalog::{Catalog, quoted_identifier, quoted_name};
use shardgate::rebalance::moves::covering_views::{OBJECTS, make_sql};
use shardgate::shard_key::{KeyColumn, KeyFunction, KeyType};
use shardgate::shardmap::{
    Group, GroupId, MapSnapshot, MoveId, Partition, PartitionId, PartitionState, ShardId, Strategy, Table, TableKind,
};
use shardgate::sql::Context;
use shardgate::sql::residues::{cover, covering_name, covering_query, views_to_cover};
use sqlx::{Connection, PgConnection};
use std::time::Duration;

use super::answer::{Answer, RowOrder};
use super::case::{Expected, Step, with_literals};
use super::raw_client::RawClient;
use super::world::Scene;
use crate::support::{Cluster, Proxy, ProxyOptions};

/// What is excluded of each group, as the tables of the shards have it.
type Residues = BTreeMap<GroupId, String>;

/// Half of the space of hashes.
const HASHES: &str = "{[-4611686018427387904,4611686018427387904)}";

#[tokio::test]
async fn rows_that_are_not_owned_change_no_answer() {
    for (scene, name) in [(super::GENERAL, "general"), (super::GATHER, "gather"), (super::KEYS, "keys"), (super::MERGES, "merges")]
    {
        Sides::start(scene).await.run(name).await;
    }
}

struct Sides {
    /// Without the rows that are excluded, and with them.
    clean: RawClient,
    stale: RawClient,
    context: Context,
    _cluster: Cluster,
}

#[derive(Default)]
struct Tally {
    covered: usize,
    refused: usize,
    differences: Vec<String>,
    /// Statements that fail on a row that is not owned.
    failures: Vec<String>,
}

impl Sides {
    async fn start(scene: Scene) -> Self {
        let cluster = Cluster::start(2).await;
        // They are shards, with what a shard has; no statement goes to them through a proxy.
        let proxy = Proxy::start(&cluster, ProxyOptions::default());
        let mut declarer = RawClient::connect(proxy.port(), "app", &[]).await;
        for shard in 0..2 {
            declarer.rows(&format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard))).await;
        }
        let port = cluster.map_server().port();
        let mut clean = RawClient::connect(port, "shard0", &[]).await;
        let mut stale = RawClient::connect(port, "shard1", &[]).await;
        for side in [&mut clean, &mut stale] {
            side.rows(scene.schema).await;
            side.rows(scene.rows).await;
        }
        let mut connection = PgConnection::connect(&cluster.shard_url(0)).await.expect("connect");
        let wait = WhenHeld::Wait(Duration::ZERO);
        let catalog = catalog_reader::read(&mut connection, &mut Known::default(), wait).await.expect("read");
        let (map, residues) = declared(scene.declare, &catalog);
        let tables: Vec<Arc<Table>> = map.tables.values().cloned().collect();
        let context = Context {
            catalog: Arc::new(catalog),
            map: Arc::new(map),
            search_path: vec!["public".to_owned()],
            temporary_tables: Vec::new(),
            brought: BTreeMap::new(),
            id: 1,
            user: "postgres".to_owned(),
        };
        for (group, excluded) in &residues {
            let plant = format!("INSERT INTO shardgate.residue (group_id, move_id, {excluded}");
            let plant = plant.replace("GROUP", &group.0.to_string());
            clean.rows(&plant).await;
            stale.rows(&plant).await;
        }
        for group in residues.keys() {
            for view in views_to_cover(&context, *group) {
                let query = covering_query(view.view_definition.as_deref().expect("a query"), &context).expect("covered");
                let make =
                    make_sql(MoveId(1), &quoted_name(&view.schema, &view.name), &covering_name(&view.schema, &view.name), &query);
                stale.rows(&format!("BEGIN; {OBJECTS} {make} COMMIT")).await;
            }
        }
        let mut sides = Self { clean, stale, context, _cluster: cluster };
        sides.part(&tables).await;
        sides
    }

    /// Takes the excluded rows from the one side, and alters them on the other.
    async fn part(&mut self, tables: &[Arc<Table>]) {
        let off = "SET session_replication_role = replica; ";
        for table in tables {
            let TableKind::Sharded { group, .. } = &table.kind else { continue };
            if !self.context.map.group(*group).is_some_and(|group| group.has_residues) {
                continue;
            }
            let name = quoted_name(&table.schema, &table.name);
            let covered = self.covered(&format!("SELECT 1 FROM {name}")).expect("covered");
            let condition = covered.split_once(" WHERE ").expect("a condition").1.to_owned();
            let condition = condition.strip_suffix("IS NOT TRUE").expect("its end");
            self.clean.rows(&format!("{off} DELETE FROM {name} WHERE {condition} IS TRUE; RESET session_replication_role")).await;
            let altered = self.altered_columns(table);
            if !altered.is_empty() {
                let update = format!("{off} UPDATE {name} SET {altered} WHERE {condition} IS TRUE; RESET session_replication_role");
                self.stale.rows(&update).await;
            }
        }
    }

    /// `None`: it is refused.
    fn covered(&self, text: &str) -> Option<String> {
        let covered = cover(text.to_owned(), &self.context, &self.context.map).ok()?;
        Some(String::from_utf8(covered.text().to_vec()).expect("UTF-8"))
    }

    /// Every column without a key and a constraint gets another value.
    fn altered_columns(&self, table: &Table) -> String {
        let TableKind::Sharded { key, .. } = &table.kind else { return String::new() };
        let relation = self.context.catalog.resolve(Some(&table.schema), &table.name, &[]).expect("known");
        let is_kept = |name: &str| {
            key.iter().any(|key| key.column == name)
                || relation.uniques.iter().any(|unique| unique.columns.iter().flatten().any(|column| column == name))
                || relation.foreign_keys.iter().any(|key| key.columns.iter().any(|column| column == name))
        };
        let columns = relation.columns.iter().filter(|column| !is_kept(&column.name) && !column.is_generated);
        let value = |type_name: &str| match type_name {
            "integer" | "bigint" | "smallint" | "double precision" | "real" => Some("7"),
            "text" | "character varying" => Some("'stale'"),
            name if name.starts_with("numeric") => Some("7.5"),
            "boolean" => Some("true"),
            "date" | "timestamp without time zone" | "timestamp with time zone" => Some("'2024-02-02'"),
            _ => None,
        };
        let set = columns.filter_map(|column| Some(format!("{} = {}", quoted_identifier(&column.name), value(&column.type_name)?)));
        set.collect::<Vec<_>>().join(", ")
    }

    async fn run(&mut self, directory: &str) {
        let mut tally = Tally::default();
        for cases in super::files_of(directory, None) {
            for case in cases.iter().filter(|case| !case.is_script) {
                for step in case.steps.iter().filter(|step| step.expected != Expected::Refused) {
                    for values in &step.values {
                        self.step(&case.place, step, &with_literals(&step.text, values), &mut tally).await;
                    }
                }
            }
        }
        println!("{directory}: {} covered, {} refused", tally.covered, tally.refused);
        assert!(tally.covered > 50, "few statements of {directory} read such rows: {}", tally.covered);
        let failing = if directory == "keys" { vec!["SELECT * FROM k_int4 WHERE -k = 1"] } else { Vec::new() };
        assert_eq!(tally.failures, failing, "statements that fail on rows that are not owned");
        assert!(tally.differences.is_empty(), "{} differ\n{}", tally.differences.len(), tally.differences.join("\n"));
    }

    async fn step(&mut self, place: &str, step: &Step, text: &str, tally: &mut Tally) {
        let word = text.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty()).unwrap_or_default().to_ascii_uppercase();
        let is_known = ["SELECT", "WITH", "TABLE", "UPDATE", "DELETE", "INSERT", "MERGE"].contains(&word.as_str());
        if !is_known || text.contains("shardgate.") || self.updates_key(text) {
            return;
        }
        let covered = match self.covered(text) {
            Some(covered) if covered == text => return,
            Some(covered) => covered,
            None => {
                tally.refused += 1;
                return;
            }
        };
        tally.covered += 1;
        let (clean, stale) = (within(&mut self.clean, text).await, within(&mut self.stale, &covered).await);
        let (expected, found) = (lines(&clean, step.order), lines(&stale, step.order));
        // PostgreSQL evaluates the cheaper condition first, and a cheap one may fail: who covers a text has to tell such an error from
        // the client's own.
        if clean.error().is_none() && stale.error().and_then(|error| error.get('C')).is_some_and(|code| code.starts_with("22")) {
            tally.failures.push(text.to_owned());
        } else if expected != found {
            tally.differences.push(format!("{place}\n{text}\n{covered}\n  expected {expected:?}\n  found    {found:?}"));
        }
    }
}

impl Sides {
    /// A row that is given another key is written by the owner of that key: it is no text for a shard that has residues of it.
    fn updates_key(&self, text: &str) -> bool {
        let keys = self.context.map.tables.values().filter_map(|table| match &table.kind {
            TableKind::Sharded { key, .. } => Some(key),
            TableKind::Reference => None,
        });
        keys.flatten().any(|key| text.contains(&format!("SET {} =", key.column)))
    }
}

/// In a transaction that is rolled back, so that every statement finds the same rows.
async fn within(client: &mut RawClient, text: &str) -> Answer {
    client.rows("BEGIN").await;
    let answer = client.query(text, &[]).await;
    client.rows("ROLLBACK").await;
    answer
}

fn lines(answer: &Answer, order: RowOrder) -> Vec<String> {
    if let Some(error) = answer.error() {
        return vec![format!("{:?} {:?}", error.get('C'), error.get('M'))];
    }
    let mut rows: Vec<String> = answer.text_rows().iter().map(|row| format!("{row:?}")).collect();
    match order {
        RowOrder::Total => {}
        RowOrder::Free => rows.sort(),
        RowOrder::CountOnly => rows = vec![rows.len().to_string()],
    }
    rows
}

/// The map that a scene declares, and what is excluded of each group.
fn declared(script: &str, catalog: &Catalog) -> (MapSnapshot, Residues) {
    let mut map = MapSnapshot::default();
    let mut residues = Residues::new();
    for line in script.lines() {
        let quoted: Vec<String> =
            line.replace("''", "\u{1}").split('\'').skip(1).step_by(2).map(|text| text.replace('\u{1}', "'")).collect();
        if line.contains("distribute_table(") {
            distribute(&mut map, &mut residues, catalog, line, &quoted);
        } else if line.contains("reference_table(") {
            insert(&mut map, &quoted[0], TableKind::Reference);
        }
    }
    (map, residues)
}

fn distribute(map: &mut MapSnapshot, residues: &mut Residues, catalog: &Catalog, line: &str, quoted: &[String]) {
    let (schema, name) = named(&quoted[0]);
    let relation = catalog.resolve(Some(&schema), &name, &[]).expect("a table of the scene");
    let key: Option<Vec<KeyColumn>> = split_key(&quoted[1])
        .iter()
        .map(|part| {
            let (column, function) = match part.split_once('(') {
                None => (part.trim_matches('"').to_owned(), None),
                Some(("right", arguments)) => (arguments.split(',').next()?.to_owned(), Some(KeyFunction::Right(1))),
                Some(("left", arguments)) => (arguments.split(',').next()?.to_owned(), Some(KeyFunction::Left(1))),
                Some(_) => return None,
            };
            let column_type = KeyType::of_column(relation.column(&column)?.type_oid)?;
            Some(KeyColumn { column, column_type, function })
        })
        .collect();
    let Some(key) = key else { return };
    let colocated = line.contains("colocate_with").then(|| named(quoted.last().expect("a table")));
    let group = match colocated.and_then(|name| map.tables.get(&name).cloned()).map(|table| table.kind.clone()) {
        Some(TableKind::Sharded { group, .. }) => group,
        _ => {
            let id = GroupId(i32::try_from(map.groups.len() + 1).expect("few"));
            let strategy = match quoted.get(2).map(String::as_str) {
                Some("range") => Strategy::Range,
                Some("lookup") => Strategy::Lookup,
                _ => Strategy::Hash,
            };
            let types: Vec<KeyType> = key
                .iter()
                .map(|key| key.function.as_ref().map_or(Some(key.column_type), |function| function.result_type(key.column_type)))
                .collect::<Option<_>>()
                .expect("a key type");
            let partition =
                Partition { id: PartitionId(id.0), shard: ShardId(1), state: PartitionState::Online, epoch: 1, low: None };
            let excluded = match (strategy, &types[..]) {
                (Strategy::Hash, _) => Some(("hashes", HASHES)),
                (Strategy::Range, [KeyType::Date | KeyType::Timestamp | KeyType::Timestamptz]) => {
                    Some(("ranges", "{\"[2024-02-01,2024-06-01)\"}"))
                }
                (Strategy::Range, [KeyType::Int2 | KeyType::Int4 | KeyType::Int8]) => Some(("ranges", "{\"[2,40)\"}")),
                (Strategy::Lookup, [KeyType::Text]) => Some(("keys", "{3,4,5,X}")),
                (Strategy::Lookup, [KeyType::Int4]) => Some(("keys", "{2,3,7}")),
                (Strategy::Lookup | Strategy::Range, _) => None,
            };
            let group = Group::new(id, strategy, types, vec![partition], None).expect("valid");
            map.groups.insert(id, Arc::new(group.with_residues(excluded.is_some())));
            residues.extend(excluded.map(|(column, keys)| (id, format!("{column}) VALUES (GROUP, 1, '{keys}')"))));
            id
        }
    };
    insert(map, &quoted[0], TableKind::Sharded { group, key });
}

/// `region, tenant_id`, and `right(isbn, 1)` as one.
fn split_key(key: &str) -> Vec<String> {
    if key.contains('(') { vec![key.to_owned()] } else { key.split(',').map(|part| part.trim().to_owned()).collect() }
}

fn named(name: &str) -> (String, String) {
    let (schema, name) = name.split_once('.').unwrap_or(("public", name));
    (schema.to_owned(), name.trim_matches('"').to_owned())
}

fn insert(map: &mut MapSnapshot, name: &str, kind: TableKind) {
    let (schema, name) = named(name);
    map.tables.insert((schema.clone(), name.clone()), Arc::new(Table { schema, name, kind, renamed: None }));
}
