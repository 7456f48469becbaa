//! Rows that are not owned: each shard gets altered copies of the rows that the other shards own, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardgate::backend::catalog_reader::{self, Known, WhenHeld};
use shardgate::catalog::quoted_name;
use shardgate::rebalance::moves::covering_views::{OBJECTS, make_sql};
use shardgate::shardmap::{GroupId, MoveId, Store};
use shardgate::sql::Context;
use shardgate::sql::residues::{covering_name, covering_query, key_types, views_to_cover};
use sqlx::{Connection, PgConnection};

use super::super::raw_client::RawClient;
use super::{Kind, SHARDS, World, quoted};

/// A sharded table, or a partition of one.
struct Table {
    name: String,
    /// As SQL, one expression or more.
    key: String,
    group: String,
}

impl World {
    pub(super) async fn plant(&mut self) {
        let mut map = RawClient::connect(self.port, "map", &[]).await;
        let groups: Vec<(String, String)> = map.rows(EXCLUDABLE).await.into_iter().map(pair).collect();
        assert!(!groups.is_empty(), "no group that can have residues");
        for (group, strategy) in &groups {
            for shard in 0..SHARDS {
                let excluded = match strategy.as_str() {
                    // Keys are those of the rows.
                    "lookup" => map.rows(&other_keys(group, shard)).await[0][0].clone().expect("what is excluded"),
                    strategy => map.rows(&excluded(strategy, group, shard)).await[0][0].clone().expect("what is excluded"),
                };
                self.direct[shard + 1].rows(&format!("INSERT INTO shardgate.residue VALUES ({group}, 1, {excluded})")).await;
            }
        }
        for table in self.sharded_tables(&mut map).await {
            let is_lookup = groups.iter().any(|(group, strategy)| *group == table.group && strategy == "lookup");
            if NULL_KEYS.iter().any(|(name, _)| *name == table.name) {
                self.add_null_key(&table.name).await;
            }
            self.plant_in(&table, is_lookup).await;
        }
        self.cover_views(&groups).await;
        let ids: Vec<&str> = groups.iter().map(|(group, _)| group.as_str()).collect();
        map.rows(&format!(
            "BEGIN; SELECT shardgate_map.begin_change('parity', 'plant', '{{}}');
             UPDATE shardgate_map.colocation_group SET has_residues = true WHERE group_id IN ({}); COMMIT",
            ids.join(", ")
        ))
        .await;
        let planted: usize = self.planted.iter().flat_map(BTreeMap::values).map(Vec::len).sum();
        assert!(planted > 0, "nothing is planted");
    }

    /// On every shard, as a mover makes them.
    async fn cover_views(&mut self, groups: &[(String, String)]) {
        let map = Store::new(&self._cluster.map_url()).expect("a map").load().await.expect("the map").snapshot;
        let mut home = PgConnection::connect(&self._cluster.shard_url(0)).await.expect("connect");
        let wait = WhenHeld::Wait(Duration::ZERO);
        let catalog = catalog_reader::read(&mut home, &mut Known::default(), wait).await.expect("read");
        let context = Context {
            catalog: Arc::new(catalog),
            map: Arc::new(map),
            search_path: Vec::new(),
            temporary_tables: Vec::new(),
            brought: BTreeMap::new(),
            id: 1,
            user: "postgres".to_owned(),
        };
        let types = key_types(context.map.groups.values().map(AsRef::as_ref));
        let groups = groups.iter().map(|(group, _)| GroupId(group.parse().expect("a group")));
        let views: Vec<String> = groups
            .flat_map(|group| views_to_cover(&context, group))
            .map(|view| {
                let query = covering_query(view.view_definition.as_deref().expect("a query"), &context).expect("covered");
                make_sql(MoveId(1), &quoted_name(&view.schema, &view.name), &covering_name(&view.schema, &view.name), &query)
            })
            .collect();
        for direct in &mut self.direct[1..] {
            direct.rows(&format!("BEGIN; {OBJECTS}{types} COMMIT; {}", views.concat())).await;
        }
    }

    /// A row that belongs to no partition, and lies somewhere. A proxy takes none.
    async fn add_null_key(&mut self, table: &str) {
        for (_, row) in NULL_KEYS.iter().filter(|(name, _)| *name == table) {
            for side in [0, 2] {
                self.direct[side].rows(&format!("INSERT INTO {table} VALUES {row}")).await;
            }
        }
    }

    async fn plant_in(&mut self, table: &Table, is_lookup: bool) {
        let Table { name, key, group } = table;
        // Rows without a key belong to no partition. The map has numbers without zeros at their end.
        let query = format!(
            "SELECT CASE pg_typeof({0})::text WHEN 'numeric' THEN trim_scale(({0})::text::numeric)::text ELSE ({0})::text END,
                    whole_row::text FROM {name} whole_row WHERE num_nulls({key}) = 0",
            whole(key)
        );
        let mut owned: Vec<Vec<(String, String)>> = Vec::new();
        for direct in &mut self.direct[1..] {
            owned.push(direct.rows(&query).await.into_iter().map(pair).collect());
        }
        for shard in 0..SHARDS {
            let before = self.rows_of(shard, name).await;
            for (key, row) in (0..SHARDS).filter(|other| *other != shard).flat_map(|other| &owned[other]) {
                self.plant_row(shard, table, row).await;
                if is_lookup {
                    let key = quoted(key);
                    let add = format!(
                        "UPDATE shardgate.residue SET keys = keys || ({key})::text
                         WHERE group_id = {group} AND {key} <> ALL (keys) AND {key} = ANY (coalesce(other_keys, ARRAY[{key}]))"
                    );
                    self.direct[shard + 1].rows(&add).await;
                }
            }
            let mut after = self.rows_of(shard, name).await;
            for row in before {
                let place = after.iter().position(|found| *found == row).expect("a row that was there");
                after.remove(place);
            }
            self.planted[shard].insert(name.clone(), after);
        }
    }

    /// Those of groups that can have residues, partitions of partitioned tables by themselves.
    async fn sharded_tables(&mut self, map: &mut RawClient) -> Vec<Table> {
        let declared = map.rows(DECLARED).await;
        let mut tables = Vec::new();
        let is_sharded = |(_, kind): &(&String, &Kind)| **kind == Kind::Sharded;
        let names: Vec<String> = self.tables.iter().filter(is_sharded).map(|(table, _)| table.clone()).collect();
        for name in names {
            let root = self.direct[0].rows(&ROOT.replace("$1", &quoted(&name))).await;
            if let Some(row) = declared.iter().find(|row| row[..2] == root[0][..]) {
                let [key, group] = [2, 3].map(|index| row[index].clone().expect("a key and a group"));
                tables.push(Table { name, key, group });
            }
        }
        tables
    }

    async fn rows_of(&mut self, shard: usize, table: &str) -> Vec<String> {
        self.direct[shard + 1]
            .rows(&format!("SELECT whole_row::text FROM {table} whole_row"))
            .await
            .into_iter()
            .flatten()
            .flatten()
            .collect()
    }

    /// Altered; where constraints are against that, as it is; else not at all.
    async fn plant_row(&mut self, shard: usize, table: &Table, row: &str) {
        let Table { name: table, key, .. } = table;
        let columns = self.columns[table].clone();
        let direct = &mut self.direct[shard + 1];
        let altered =
            direct.rows(&ALTERED.replace("$1", &quoted(table)).replace("$2", &quoted(key))).await[0][0].clone().expect("columns");
        let row = quoted(row);
        let insert = |list: &str| {
            format!("INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {list} FROM (SELECT ({row}::{table}).*) x")
        };
        let script = format!(
            "SET session_replication_role = replica; DO $do$ BEGIN {}; EXCEPTION WHEN integrity_constraint_violation THEN
                BEGIN {}; EXCEPTION WHEN integrity_constraint_violation THEN NULL; END; END $do$",
            insert(&altered),
            insert(&columns)
        );
        direct.rows(&script).await;
    }
}

/// Leaves the owned rows, and those of the planted ones that are gone or changed.
pub(super) fn take_out(rows: &mut BTreeMap<String, Vec<String>>, planted: &BTreeMap<String, Vec<String>>) {
    for (table, planted) in planted {
        let found = rows.entry(table.clone()).or_default();
        // TRUNCATE takes all. What else takes all has counted them.
        if !planted.iter().any(|row| found.contains(row)) {
            continue;
        }
        for row in planted {
            match found.iter().position(|found| found == row) {
                Some(place) => drop(found.remove(place)),
                None => found.push(format!("not owned, and gone or changed: {row}")),
            }
        }
        found.sort();
        if found.is_empty() {
            rows.remove(table);
        }
    }
}

fn pair(row: Vec<Option<String>>) -> (String, String) {
    match <[Option<String>; 2]>::try_from(row) {
        Ok([Some(one), Some(other)]) => (one, other),
        row => panic!("no pair: {row:?}"),
    }
}

/// One expression, whose text is that of the key.
fn whole(key: &str) -> String {
    if key.contains('(') || !key.contains(',') { key.to_owned() } else { format!("ROW({key})") }
}

/// The columns of `shardgate.residue` for a lookup group, without the keys of lists. Where another shard has the default partition, its
/// rows are excluded as all that no list names.
fn other_keys(group: &str, shard: usize) -> String {
    format!(
        "SELECT format('NULL, ''{{}}'', NULL, %L::text[]', CASE WHEN s.name <> 'shard{shard}' THEN
             (SELECT coalesce(array_agg(k.key_text), '{{}}')::text FROM shardgate_map.lookup_key k WHERE k.group_id = g.group_id) END)
         FROM shardgate_map.colocation_group g LEFT JOIN shardgate_map.partition p ON p.partition_id = g.default_partition
         LEFT JOIN shardgate_map.shard s USING (shard_id) WHERE g.group_id = {group}"
    )
}

/// The columns of `shardgate.residue` for all that other shards own.
fn excluded(strategy: &str, group: &str, shard: usize) -> String {
    let (bound, columns) = match strategy {
        "hash" => (
            "CASE WHEN p.low = '' THEN NULL ELSE (('x' || encode(p.low, 'hex'))::bit(64)::bigint # (-9223372036854775808))::text END",
            "format('%L::int8multirange, NULL, NULL, NULL', '{' || coalesce(string_agg(range, ','), '') || '}')",
        ),
        _ => ("p.low_text", "format('NULL, NULL, %L::text[], NULL', coalesce(array_agg(range), '{}')::text)"),
    };
    format!(
        "SELECT {columns} FROM (
            SELECT coalesce('[' || low, '(') || ',' || coalesce(high, '') || ')' AS range FROM (
                SELECT s.name, v.low, lead(v.low) OVER (ORDER BY p.low) AS high
                FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id), LATERAL (SELECT to_json({bound})::text AS low) v
                WHERE p.group_id = {group}) b WHERE name <> 'shard{shard}') r"
    )
}

const NULL_KEYS: &[(&str, &str)] =
    &[("m_t", "(NULL, 3, 'no key')"), ("m_u", "(NULL, 2, NULL)"), ("m_l", "(NULL, 4)"), ("m_pair", "(NULL, 5, 1), (1, NULL, 2)")];

/// Groups whose rows can be excluded.
const EXCLUDABLE: &str = "SELECT group_id, strategy FROM shardgate_map.colocation_group ORDER BY group_id";
const DECLARED: &str = "SELECT schema_name, table_name, key_text, group_id
    FROM shardgate_map.declared_table t JOIN shardgate_map.colocation_group g USING (group_id)";
const ROOT: &str = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = coalesce(pg_partition_root($1::regclass), $1::regclass)";
/// The columns of a table that take values; those that no key and no constraint holds get another value.
const ALTERED: &str = "SELECT string_agg(coalesce(
    CASE WHEN strpos($2, a.attname) > 0 THEN NULL
         WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey)) THEN NULL
         WHEN EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = a.attrelid AND c.contype = 'f' AND a.attnum = ANY (c.conkey)) THEN NULL
         WHEN EXISTS (SELECT FROM pg_partitioned_table p JOIN pg_attribute k ON k.attrelid = p.partrelid AND k.attnum = ANY (p.partattrs)
                      WHERE p.partrelid = pg_partition_root(a.attrelid) AND k.attname = a.attname) THEN NULL
         WHEN format_type(a.atttypid, NULL) IN ('integer', 'bigint', 'smallint', 'double precision', 'real') THEN '7'
         WHEN format_type(a.atttypid, NULL) = 'numeric' THEN '7.5'
         WHEN format_type(a.atttypid, NULL) IN ('text', 'character varying') THEN $$'st'$$
         WHEN format_type(a.atttypid, NULL) = 'boolean' THEN 'true'
         WHEN format_type(a.atttypid, NULL) IN ('date', 'timestamp without time zone', 'timestamp with time zone') THEN $$'2024-02-02'$$
    END, quote_ident(a.attname)), ', ' ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''";
