//! The two sides: one plain PostgreSQL that holds all rows, and the proxy over three shards that hold the same rows.
//!
//! Everything is a database of one server. The schema and the rows reach the shards through the proxy alone; what is written is
//! then read directly on each shard, so that a proxy that writes wrong and reads alike is found out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::answer::Names;
use super::raw_client::RawClient;
use crate::support::{Cluster, Proxy, ProxyOptions, Text};

mod planted;

pub struct World {
    pub proxy: Proxy,
    port: u16,
    /// Straight to the plain database and to each shard, for the harness itself.
    direct: Vec<RawClient>,
    tables: BTreeMap<String, Kind>,
    /// Of each table, the columns that take values.
    columns: BTreeMap<String, String>,
    plain_names: Arc<Names>,
    home_names: Arc<Names>,
    /// The rows before any case.
    first: State,
    /// Of each shard, by table: rows that lie there and are not owned.
    planted: Vec<BTreeMap<String, Vec<String>>>,
    // Ends last.
    _cluster: Cluster,
}

/// Tables, their rows, and how they are sharded: three scripts.
#[derive(Clone, Copy)]
pub struct Scene {
    pub schema: &'static str,
    /// Runs on the plain database only.
    pub rows: &'static str,
    pub declare: &'static str,
    /// Calls `shardgate.locate` for a table of the scene.
    pub locate: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sharded,
    Reference,
    Home,
}

/// Rows by table, of the plain database and of each shard.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    databases: Vec<BTreeMap<String, Vec<String>>>,
}

impl World {
    pub async fn start(scene: Scene) -> Self {
        Self::start_sorting(scene, Text::Bytewise).await
    }

    /// The biggest input of a gathered statement stays on its shards, however small it is.
    pub async fn start_staying(scene: Scene) -> Self {
        Self::start_with(scene, Text::Bytewise, vec![("cross_shard.stay_bytes_min", "0".to_owned())], false).await
    }

    pub async fn start_sorting(scene: Scene, text: Text) -> Self {
        Self::start_with(scene, text, Vec::new(), false).await
    }

    /// Each shard has altered copies of the other shards' rows, as in the middle of a move.
    pub async fn start_planted(scene: Scene) -> Self {
        Self::start_with(scene, Text::Bytewise, Vec::new(), true).await
    }

    pub async fn start_planted_staying(scene: Scene) -> Self {
        Self::start_with(scene, Text::Bytewise, vec![("cross_shard.stay_bytes_min", "0".to_owned())], true).await
    }

    async fn start_with(scene: Scene, text: Text, settings: Vec<(&'static str, String)>, is_planted: bool) -> Self {
        let cluster = Cluster::start_sorting(SHARDS, text).await;
        cluster.create_database(PLAIN).await;
        let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
        let port = cluster.map_server().port();
        let mut direct = vec![RawClient::connect(port, PLAIN, &[]).await];
        for shard in 0..SHARDS {
            direct.push(RawClient::connect(port, &format!("shard{shard}"), &[]).await);
        }
        let mut world = World {
            proxy,
            port,
            direct,
            tables: BTreeMap::new(),
            columns: BTreeMap::new(),
            plain_names: Arc::default(),
            home_names: Arc::default(),
            first: State { databases: Vec::new() },
            planted: vec![BTreeMap::new(); SHARDS],
            _cluster: cluster,
        };
        world.make(scene, is_planted).await;
        world
    }

    /// A new connection to the plain database.
    pub async fn connect_plain(&self) -> RawClient {
        RawClient::connect(self.port, PLAIN, &[]).await.knowing(&self.plain_names)
    }

    pub async fn connect_proxy(&self) -> RawClient {
        RawClient::connect(self.proxy.port(), "app", &[]).await.knowing(&self.home_names)
    }

    pub fn plain_conninfo(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname={PLAIN}", self.port)
    }

    async fn make(&mut self, scene: Scene, is_planted: bool) {
        let mut proxy = self.connect_proxy().await;
        // An application's database as it was; the other shards get its schema when they are added.
        for database in [PLAIN_SIDE, HOME_SIDE] {
            self.direct[database].rows(scene.schema).await;
        }
        for shard in 0..SHARDS {
            let url = self._cluster.shard_url(shard);
            proxy.rows(&format!("SELECT shardgate.add_shard('shard{shard}', '{url}')")).await;
        }
        for statement in statements(scene.rows) {
            self.direct[0].rows(statement).await;
        }
        let tables: Vec<String> = self.direct[0].rows(TABLES).await.into_iter().flatten().flatten().collect();
        for table in &tables {
            let columns = self.direct[0].rows(&COLUMNS.replace("$1", &quoted(table))).await;
            self.columns.insert(table.clone(), columns[0][0].clone().expect("columns"));
        }
        // Reference tables are filled before they are declared, sharded ones after.
        let declarations = statements(scene.declare);
        // A partition is placed like the table that it belongs to.
        let mut whole = BTreeMap::new();
        for table in &tables {
            let roots = self.direct[0].rows(&format!("SELECT coalesce(pg_partition_root('{table}'), '{table}')::text")).await;
            whole.insert(table.clone(), roots[0][0].clone().expect("a table"));
        }
        let is_sharded = |table: &str| {
            let table = whole.get(table).map_or(table, String::as_str);
            declarations.iter().any(|text| text.contains(&format!("distribute_table('{table}'")))
        };
        for table in tables.iter().filter(|table| !is_sharded(table)) {
            self.copy_rows(&mut proxy, table).await;
        }
        for statement in &declarations {
            proxy.rows(statement).await;
            if !statement.starts_with("SELECT shardgate.") {
                self.direct[0].rows(statement).await;
            }
        }
        for (table, bounds) in SPLITS.iter().filter(|(table, _)| is_sharded(table)) {
            for bound in *bounds {
                let located = proxy.rows(&format!("SELECT * FROM shardgate.locate('{table}', {bound})")).await;
                let partition = located[0][0].clone().expect("a partition");
                let at = match bound.contains("', '") {
                    true => format!("'({})'", bound.trim_matches('\'').replace("', '", ",")),
                    false => (*bound).to_owned(),
                };
                proxy.rows(&format!("SELECT shardgate.split_partition({partition}, {at})")).await;
            }
        }
        self.spread_ranges().await;
        // Reads the map anew.
        proxy.rows(scene.locate).await;
        for table in tables.iter().filter(|table| is_sharded(table)) {
            self.copy_rows(&mut proxy, table).await;
        }
        for table in tables {
            let kind = match () {
                () if is_sharded(&table) => Kind::Sharded,
                () if declarations.iter().any(|text| text.contains(&format!("reference_table('{table}'"))) => Kind::Reference,
                () => Kind::Home,
            };
            self.tables.insert(table, kind);
        }
        if is_planted {
            self.plant().await;
            // Reads the map anew.
            proxy.rows("SELECT shardgate.alter_shard('shard1', capacity => 1)").await;
        }
        self.plain_names = names(&mut self.direct[PLAIN_SIDE]).await;
        self.home_names = names(&mut self.direct[HOME_SIDE]).await;
        self.first = self.state().await;
        if let Some(difference) = self.first.difference(&self.tables) {
            panic!("the sides differ before the first case:\n{difference}");
        }
        let saves: Vec<String> =
            self.tables.keys().map(|table| format!("CREATE TEMP TABLE {} AS TABLE {table}", saved(table))).collect();
        for direct in &mut self.direct {
            direct.rows("SET session_replication_role = replica").await;
            direct.rows(&saves.join("; ")).await;
        }
    }

    /// Row by row, as text, from the plain database.
    async fn copy_rows(&mut self, proxy: &mut RawClient, table: &str) {
        let columns = self.columns[table].clone();
        for row in self.direct[0].rows(&format!("SELECT {columns} FROM {table}")).await {
            let values: Vec<String> = row.into_iter().map(|value| value.map_or("NULL".to_owned(), |text| quoted(&text))).collect();
            proxy.rows(&format!("INSERT INTO {table} ({columns}) VALUES ({})", values.join(", "))).await;
        }
    }

    /// Partitions of range groups lie on one shard after their splits: dealt out while the tables are still empty.
    async fn spread_ranges(&mut self) {
        let mut map = RawClient::connect(self.port, "map", &[]).await;
        map.rows(
            "BEGIN; SELECT shardgate_map.begin_change('parity', 'spread', '{}');
             UPDATE shardgate_map.partition p SET shard_id = s.shard_id
             FROM (SELECT partition_id, row_number() OVER (PARTITION BY group_id ORDER BY low) AS n
                   FROM shardgate_map.partition WHERE strategy = 'range') o,
                  (SELECT shard_id, row_number() OVER (ORDER BY name) AS n FROM shardgate_map.shard) s
             WHERE p.partition_id = o.partition_id AND s.n = (o.n + 1) % 3 + 1; COMMIT",
        )
        .await;
    }

    pub async fn state(&mut self) -> State {
        let row = |table: &String| format!("SELECT {}, whole_row::text FROM {table} whole_row", quoted(table));
        let query = self.tables.keys().map(row).collect::<Vec<_>>().join(" UNION ALL ");
        let mut databases = Vec::new();
        for direct in &mut self.direct {
            let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for row in direct.rows(&query).await {
                let mut values = row.into_iter().flatten();
                rows.entry(values.next().expect("a table")).or_default().push(values.next().expect("a row"));
            }
            rows.values_mut().for_each(|rows| rows.sort());
            databases.push(rows);
        }
        for (rows, planted) in databases.iter_mut().skip(HOME_SIDE).zip(&self.planted) {
            planted::take_out(rows, planted);
        }
        State { databases }
    }

    /// What differs between the sides now; afterwards both hold the first rows again.
    ///
    /// `is_refused`: the shards must not have changed, whatever the plain database did.
    pub async fn check_and_restore(&mut self, is_refused: bool) -> Option<String> {
        let mut state = self.state().await;
        if state == self.first {
            return None;
        }
        let plain = state.databases[PLAIN_SIDE].clone();
        if is_refused {
            state.databases[PLAIN_SIDE].clone_from(&self.first.databases[PLAIN_SIDE]);
        }
        let difference = state.difference(&self.tables);
        state.databases[PLAIN_SIDE] = plain;
        for (index, direct) in self.direct.iter_mut().enumerate() {
            let changed: BTreeSet<&String> = self
                .tables
                .keys()
                .filter(|table| state.databases[index].get(*table) != self.first.databases[index].get(*table))
                .collect();
            for table in changed {
                let columns = &self.columns[table];
                let rows = format!("SELECT {columns} FROM {}", saved(table));
                direct.rows(&format!("DELETE FROM {table}; INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE {rows}")).await;
            }
        }
        difference
    }

    /// What PostgreSQL makes of a text as this type, in binary.
    pub async fn binary(&mut self, type_oid: u32, text: &str) -> Option<Vec<u8>> {
        use super::raw_client::{Format, Message};
        let plain = &mut self.direct[0];
        plain.put(&Message::Parse { name: String::new(), text: "SELECT $1".to_owned(), types: vec![type_oid] });
        plain.put(&Message::Bind {
            portal: String::new(),
            statement: String::new(),
            format: Format::Text,
            values: vec![Some(text.as_bytes().to_vec())],
            results: vec![Format::Binary],
        });
        plain.put(&Message::Execute { portal: String::new(), rows: 0 });
        let answer = plain.sync(b"").await;
        let row = answer.rows().next()?;
        row.first().cloned().flatten()
    }
}

impl State {
    /// The shards' rows against the plain database's.
    fn difference(&self, tables: &BTreeMap<String, Kind>) -> Option<String> {
        let none = Vec::new();
        let of = |database: usize, table: &str| self.databases[database].get(table).unwrap_or(&none).clone();
        let mut found = String::new();
        for (table, kind) in tables {
            let plain = of(0, table);
            match kind {
                Kind::Sharded => {
                    let mut all: Vec<String> = (1..=SHARDS).flat_map(|database| of(database, table)).collect();
                    all.sort();
                    found.push_str(&compared(table, "all shards", &plain, &all));
                }
                Kind::Reference => {
                    for database in 1..=SHARDS {
                        found.push_str(&compared(table, &format!("shard{}", database - 1), &plain, &of(database, table)));
                    }
                }
                Kind::Home => {
                    found.push_str(&compared(table, "shard0", &plain, &of(1, table)));
                    for database in 2..=SHARDS {
                        found.push_str(&compared(table, &format!("shard{}", database - 1), &none, &of(database, table)));
                    }
                }
            }
        }
        (!found.is_empty()).then_some(found)
    }
}

/// As a client reads them, which asks the home shard.
async fn names(direct: &mut RawClient) -> Arc<Names> {
    let rows = direct.rows(NAMES).await.into_iter();
    let entry = |row: Vec<Option<String>>| match row.as_slice() {
        [Some(oid), Some(name)] => (oid.parse().expect("an oid"), name.clone()),
        _ => panic!("an oid without a name"),
    };
    Arc::new(rows.map(entry).collect())
}

fn compared(table: &str, place: &str, plain: &[String], found: &[String]) -> String {
    if plain == found {
        return String::new();
    }
    let missing: Vec<_> = plain.iter().filter(|row| !found.contains(row)).collect();
    let surplus: Vec<_> = found.iter().filter(|row| !plain.contains(row)).collect();
    format!("      {table} on {place}: {} rows for {}; missing {missing:?}; surplus {surplus:?}\n", found.len(), plain.len())
}

fn saved(table: &str) -> String {
    format!("pg_temp.\"saved {}\"", table.replace('"', ""))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A script's statements: they end with a semicolon at the end of a line.
fn statements(script: &str) -> Vec<&str> {
    script.split(";\n").map(str::trim).filter(|statement| !statement.is_empty()).collect()
}

const SHARDS: usize = 3;
/// Indexes of direct connections.
const PLAIN_SIDE: usize = 0;
const HOME_SIDE: usize = 1;
const PLAIN: &str = "plain";
/// Bounds between the partitions of range tables.
const SPLITS: &[(&str, &[&str])] = &[
    ("m_days", &["'2024-01-08'", "'2024-01-15'", "'2024-01-22'"]),
    ("orders", &["'2024-02-01'", "'2024-04-01'", "'2024-06-01'", "'2025-01-01'"]),
    ("readings", &["'4', '-infinity'", "'7', '2024-06-01 03:00:00'"]),
    ("r_int2", &["'-100'", "'100'"]),
    ("r_int4", &["'0'", "'100'", "'200'", "'300'"]),
    ("r_int8", &["'0'", "'1000'", "'5000000000'"]),
    ("r_text", &["'G'", "'g'", "'p'"]),
    ("r_uuid", &["'40000000-0000-0000-0000-000000000000'", "'a0000000-0000-0000-0000-000000000000'"]),
    ("r_date", &["'2024-01-15'", "'2024-02-15'", "'2024-03-15'"]),
    ("r_timestamp", &["'2024-01-03 12:00:00'", "'2024-01-06 00:00:00'"]),
    ("r_timestamptz", &["'2024-01-03 12:00:00+00'", "'2024-01-06 00:00:00+00'"]),
    ("r_bytea", &["'\\x40'", "'\\x80'"]),
];
const TABLES: &str =
    "SELECT CASE WHEN n.nspname = 'public' THEN '' ELSE quote_ident(n.nspname) || '.' END || quote_ident(c.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_t%' ORDER BY c.oid";
/// Generated columns take no values.
const COLUMNS: &str = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''";
const NAMES: &str =
    "SELECT oid, relname FROM pg_class WHERE oid >= 16384 UNION ALL SELECT oid, typname FROM pg_type WHERE oid >= 16384";
