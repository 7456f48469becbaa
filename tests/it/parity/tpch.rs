//! The 22 queries of TPC-H, in two layouts, equal to what one PostgreSQL answers.
//!
//! Every value is compared as the client gets it, and the order of rows too. `SHARDGATE_TPCH_SCALE` sets how much data there is
//! (1: 8.6 million rows), `SHARDGATE_TPCH_ONLY` a query.

use std::time::Instant;

use super::answer::RowOrder;
use super::raw_client::RawClient;
use crate::support::tpch::{self, Layout};
use crate::support::{Cluster, Proxy, ProxyOptions, volume};

#[tokio::test]
async fn tpch_is_answered_as_by_one_postgresql_with_all_tables_sharded() {
    compare(Layout::All).await;
}

#[tokio::test]
async fn tpch_is_answered_as_by_one_postgresql_with_facts_sharded() {
    compare(Layout::Facts).await;
}

async fn compare(layout: Layout) {
    let scale = number("SHARDGATE_TPCH_SCALE").unwrap_or(volume(50, 1000) as f64 / 1000.0);
    let only = number("SHARDGATE_TPCH_ONLY");
    let cluster = Cluster::start(3).await;
    cluster.map_server().create_database("plain").await.expect("the plain database");
    let settings = vec![("cross_shard.gather_bytes_max", "8000000000".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
    tpch::fill_plain(&cluster.map_server().url("plain"), scale).await;
    tpch::fill_shards(&proxy, &cluster, layout, scale).await;
    let mut plain = RawClient::connect(cluster.map_server().port(), "plain", &[]).await;
    let mut sharded = RawClient::connect(proxy.port(), "app", &[]).await;
    let mut differences = Vec::new();
    for (number, query) in tpch::queries(scale).iter().filter(|(number, _)| only.is_none_or(|only| only == *number as f64)) {
        let began_at = Instant::now();
        let expected = plain.query(query, b"").await;
        let plain_ms = began_at.elapsed().as_secs_f64() * 1000.0;
        let began_at = Instant::now();
        let found = sharded.query(query, b"").await;
        let sharded_ms = began_at.elapsed().as_secs_f64() * 1000.0;
        let rows = expected.rows().count();
        let explained = sharded.rows(&format!("EXPLAIN (SHARDS) {query}")).await;
        let route = explained.first().and_then(|row| row.first()?.clone()).unwrap_or_default();
        println!("query {number}: {rows} rows, {plain_ms:.0} ms, sharded {sharded_ms:.0} ms, {route}");
        assert!(expected.error().is_none(), "query {number}:\n{expected}");
        if expected.lines(RowOrder::Total) != found.lines(RowOrder::Total) {
            differences.push(format!("query {number}: expected\n{expected}    found\n{found}"));
        }
    }
    assert!(differences.is_empty(), "{} queries differ\n{}", differences.len(), differences.join("\n"));
}

fn number(variable: &str) -> Option<f64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?} is no number")))
}
