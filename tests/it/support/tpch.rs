//! TPC-H: its tables, its rows and its 22 queries, on one database and over shards.
//!
//! The rows come from a port of the benchmark's own generator and are the same in every run. They are put into the databases
//! directly, each shard gets those whose hash lies in its partitions: loading is not what is shown here. The queries have the
//! parameters by which the benchmark validates answers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use futures::SinkExt;
use shardgate::shard_key::{Key, KeyType};
use tokio_postgres::Client;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator, RegionGenerator,
    SupplierGenerator,
};
use tpchgen::text::TextPool;

use super::{Cluster, Proxy, connect};

/// Which tables are sharded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All but `nation` and `region`, which are reference tables.
    All,
    /// `orders` and `lineitem`; the others are reference tables.
    Facts,
}

/// A query's number, and its text for a scale.
pub fn queries(scale: f64) -> Vec<(usize, String)> {
    // Query 11 asks for a share of the stock that shrinks as the scale grows.
    let fraction = format!("{:.10}", 0.0001 / scale);
    QUERIES.iter().enumerate().map(|(at, text)| (at + 1, text.replace("0.0001000000", &fraction))).collect()
}

/// Fills an empty database.
pub async fn fill_plain(url: &str, scale: f64) {
    let client = connect(url).await;
    client.batch_execute(SCHEMA).await.expect("tables");
    let mut places = vec![Place::new(client)];
    fill(&mut places, &BTreeMap::new(), scale).await;
}

/// Adds the shards, makes the tables, and fills them.
pub async fn fill_shards(proxy: &Proxy, cluster: &Cluster, layout: Layout, scale: f64) {
    let client = proxy.connect().await;
    for shard in 0..cluster.shard_count() {
        let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
        client.batch_execute(&add).await.expect("add a shard");
    }
    let declare = match layout {
        Layout::All => ALL_SHARDED,
        Layout::Facts => FACTS_SHARDED,
    };
    for statement in statements(SCHEMA).chain(statements(declare)) {
        client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    let mut owners: BTreeMap<String, Vec<Owned>> = BTreeMap::new();
    for row in client.query(PARTITIONS, &[]).await.expect("partitions") {
        let bound = |column: usize| row.get::<_, Option<&str>>(column).map(|text| text.parse::<i64>().expect("a hash"));
        let shard = row.get::<_, &str>(3).trim_start_matches("shard").parse().expect("a shard's number");
        owners.entry(row.get(0)).or_default().push(Owned { low: bound(1), high: bound(2), shard });
    }
    let mut places = Vec::new();
    for shard in 0..cluster.shard_count() {
        places.push(Place::new(cluster.connect_shard(shard).await));
    }
    fill(&mut places, &owners, scale).await;
}

/// Hashes of a table that lie on one shard.
struct Owned {
    low: Option<i64>,
    high: Option<i64>,
    shard: usize,
}

/// A database, and lines on their way to it.
struct Place {
    client: Client,
    lines: BytesMut,
}

impl Place {
    fn new(client: Client) -> Self {
        Self { client, lines: BytesMut::new() }
    }

    async fn send(&mut self, table: &str) {
        let copy = format!("COPY {table} FROM STDIN (DELIMITER '|')");
        let mut sink = pin!(self.client.copy_in::<_, Bytes>(&copy).await.expect("COPY"));
        sink.send(self.lines.split().freeze()).await.expect("rows");
        sink.close().await.expect("the end of COPY");
    }
}

async fn fill(places: &mut [Place], owners: &BTreeMap<String, Vec<Owned>>, scale: f64) {
    let distributions = Distributions::static_default();
    let text = TextPool::new(TEXT_BYTES, distributions);
    let (d, t) = (distributions, &text);
    let none = Vec::new();
    let of = |table: &str| owners.get(table).unwrap_or(&none);
    let nations = NationGenerator::new_with_distributions_and_text_pool(d, t);
    put(places, "nation", of("nation"), nations.iter()).await;
    let regions = RegionGenerator::new_with_distributions_and_text_pool(d, t);
    put(places, "region", of("region"), regions.iter()).await;
    let parts = PartGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, t);
    put(places, "part", of("part"), parts.iter()).await;
    let suppliers = SupplierGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, t);
    put(places, "supplier", of("supplier"), suppliers.iter()).await;
    let stocks = PartSuppGenerator::new_with_text_pool(scale, 1, 1, t);
    put(places, "partsupp", of("partsupp"), stocks.iter()).await;
    let customers = CustomerGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, t);
    put(places, "customer", of("customer"), customers.iter()).await;
    let orders = OrderGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, t);
    put(places, "orders", of("orders"), orders.iter()).await;
    let items = LineItemGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, t);
    put(places, "lineitem", of("lineitem"), items.iter()).await;
    for place in places {
        place.client.batch_execute(INDEXES).await.expect("indexes");
        place.client.batch_execute("VACUUM ANALYZE").await.expect("vacuum");
    }
}

/// Rows go where their first column says, which is the shard key of every table, or everywhere.
async fn put<T: Display>(places: &mut [Place], table: &str, owners: &[Owned], rows: impl Iterator<Item = T>) {
    for row in rows {
        let line = row.to_string();
        let line = line.strip_suffix('|').expect("a line of the generator");
        let key = line.split('|').next().expect("a first column");
        let owner = (!owners.is_empty()).then(|| shard_of(key, owners));
        for (at, place) in places.iter_mut().enumerate() {
            if owner.is_none_or(|owner| owner == at) {
                place.lines.extend_from_slice(line.as_bytes());
                place.lines.extend_from_slice(b"\n");
            }
            if place.lines.len() > CHUNK_BYTES {
                place.send(table).await;
            }
        }
    }
    for place in places {
        place.send(table).await;
    }
}

fn shard_of(key: &str, owners: &[Owned]) -> usize {
    let hash = Key::parse(&[KeyType::Int8], &[key]).expect("a key").hash();
    let is_owner = |owned: &&Owned| owned.low.is_none_or(|low| hash >= low) && owned.high.is_none_or(|high| hash < high);
    owners.iter().find(is_owner).expect("an owner").shard
}

/// A script's statements: they end with a semicolon at the end of a line.
fn statements(script: &str) -> impl Iterator<Item = &str> {
    script.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
}

const SCHEMA: &str = include_str!("../../tpch/schema.sql");
const INDEXES: &str = include_str!("../../tpch/indexes.sql");
const ALL_SHARDED: &str = include_str!("../../tpch/all_sharded.sql");
const FACTS_SHARDED: &str = include_str!("../../tpch/facts_sharded.sql");
const PARTITIONS: &str = "SELECT t.table_name, p.low, p.high, p.shard FROM shardgate.tables t
    JOIN shardgate.partitions p ON p.colocation_group = t.colocation_group";
/// Comments are cut out of so much text; the benchmark's own 300 MB take long to make.
const TEXT_BYTES: i32 = 4 << 20;
const CHUNK_BYTES: usize = 4 << 20;

const QUERIES: [&str; 22] = [
    include_str!("../../tpch/queries/01.sql"),
    include_str!("../../tpch/queries/02.sql"),
    include_str!("../../tpch/queries/03.sql"),
    include_str!("../../tpch/queries/04.sql"),
    include_str!("../../tpch/queries/05.sql"),
    include_str!("../../tpch/queries/06.sql"),
    include_str!("../../tpch/queries/07.sql"),
    include_str!("../../tpch/queries/08.sql"),
    include_str!("../../tpch/queries/09.sql"),
    include_str!("../../tpch/queries/10.sql"),
    include_str!("../../tpch/queries/11.sql"),
    include_str!("../../tpch/queries/12.sql"),
    include_str!("../../tpch/queries/13.sql"),
    include_str!("../../tpch/queries/14.sql"),
    include_str!("../../tpch/queries/15.sql"),
    include_str!("../../tpch/queries/16.sql"),
    include_str!("../../tpch/queries/17.sql"),
    include_str!("../../tpch/queries/18.sql"),
    include_str!("../../tpch/queries/19.sql"),
    include_str!("../../tpch/queries/20.sql"),
    include_str!("../../tpch/queries/21.sql"),
    include_str!("../../tpch/queries/22.sql"),
];
