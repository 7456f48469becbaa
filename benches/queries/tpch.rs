//! The 22 queries of TPC-H, all tables sharded and facts sharded, each against one PostgreSQL that has all rows.

use std::time::Instant;

use tokio_postgres::Client;

use crate::SERVER_SETTINGS;
use crate::report::{median, print_table};
use crate::support::tpch::{self, Layout};
use crate::support::{Cluster, Proxy, ProxyOptions, connect};

pub async fn run(scale: f64, rounds: usize, only: Option<usize>) {
    for (layout, name) in [(Layout::Facts, "facts sharded"), (Layout::All, "all sharded")] {
        let cluster = Cluster::start_with(3, SERVER_SETTINGS).await;
        cluster.map_server().create_database("plain").await.expect("the plain database");
        let settings = vec![("cross_shard.gather_bytes_max", "100000000000".to_owned()), ("log.level", "warn".to_owned())];
        let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
        tpch::fill_plain(&cluster.map_server().url("plain"), scale).await;
        tpch::fill_shards(&proxy, &cluster, layout, scale).await;
        let (plain, sharded) = (connect(&cluster.map_server().url("plain")).await, proxy.connect().await);
        let mut rows = Vec::new();
        let mut sums = (0.0, 0.0);
        for (number, query) in tpch::queries(scale).iter().filter(|(number, _)| only.is_none_or(|only| only == *number)) {
            let (mut plain_ms, mut sharded_ms) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                plain_ms.push(milliseconds(&plain, query).await);
                sharded_ms.push(milliseconds(&sharded, query).await);
            }
            let (one, many) = (median(plain_ms), median(sharded_ms));
            sums = (sums.0 + one, sums.1 + many);
            rows.push(line(&number.to_string(), one, many, goal(layout, *number)));
        }
        let goal = match layout {
            Layout::All => 3.0,
            Layout::Facts => 1.5,
        };
        rows.push(line("sum", sums.0, sums.1, Some(goal)));
        println!("\nTPC-H at scale {scale}, {name}: three shards against one PostgreSQL, median of {rounds} rounds");
        print_table(&["query", "one, ms", "sharded, ms", "times", "goal"], rows.into_iter());
    }
}

/// Queries whose joins stay on a shard.
fn goal(layout: Layout, query: usize) -> Option<f64> {
    (layout == Layout::Facts && [1, 3, 4, 6, 10, 12, 14, 18, 19].contains(&query)).then_some(1.2)
}

fn line(name: &str, one: f64, many: f64, goal: Option<f64>) -> Vec<String> {
    let goal = goal.map_or(String::new(), |goal| format!("{goal:.1}{}", if many / one <= goal { "" } else { " missed" }));
    vec![name.to_owned(), format!("{one:.0}"), format!("{many:.0}"), format!("{:.2}", many / one), goal]
}

async fn milliseconds(client: &Client, query: &str) -> f64 {
    let began_at = Instant::now();
    client.simple_query(query).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
    began_at.elapsed().as_secs_f64() * 1000.0
}
