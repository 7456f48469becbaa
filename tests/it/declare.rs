//! Declaring shards and tables, as the functions of the schema `shardgate` do it, on real servers.
//!
//! The functions are called in process, as the session calls them; what a proxy adds around that is tested with the proxy.

use std::sync::Arc;
use std::time::Duration;

use shardgate::declare::{self, Answer, Argument, Call, Caller, Control};
use shardgate::error::PgError;
use shardgate::shardmap::{MapOptions, ProxyId, ShardMap};

use crate::support::Cluster;

mod adoption;
mod check;
mod keys;
mod obstacles;
mod planned;
mod races;
mod reading;
mod reading_changes;
mod reading_locked;
mod reference_tables;
mod shards;
mod tables;

/// A map, shards that may be added to it, and somebody who may do so.
struct Declarer {
    cluster: Cluster,
    map: Arc<ShardMap>,
    control: Control,
}

impl Declarer {
    async fn start(shard_count: usize) -> Self {
        let cluster = Cluster::start(shard_count).await;
        let map = connect_map(&cluster, true).await;
        let control = Control::new(map.clone(), vec!["postgres".to_owned()]);
        Self { cluster, map, control }
    }

    /// Runs `sql` on shard 0 and adds all shards, named `shard0`, `shard1`, ….
    async fn with_schema(shard_count: usize, sql: &str) -> Self {
        let declarer = Self::start(shard_count).await;
        declarer.on_shard(0, sql).await;
        for shard in 0..shard_count {
            declarer.add(shard).await.expect("add a shard");
        }
        declarer
    }

    async fn add(&self, shard: usize) -> Result<Answer, PgError> {
        let (name, url) = (format!("shard{shard}"), self.cluster.shard_url(shard));
        self.call("add_shard", &[&name, &url]).await
    }

    /// A call with positional texts, by an admin.
    async fn call(&self, function: &str, arguments: &[&str]) -> Result<Answer, PgError> {
        let arguments: Vec<(&str, &str)> = arguments.iter().map(|argument| ("", *argument)).collect();
        self.call_named(function, &arguments).await
    }

    /// Names may be empty.
    async fn call_named(&self, function: &str, arguments: &[(&str, &str)]) -> Result<Answer, PgError> {
        let argument =
            |(name, value): &(&str, &str)| ((!name.is_empty()).then(|| (*name).to_owned()), Argument::Text((*value).to_owned()));
        let call = Call { function: function.to_owned(), arguments: arguments.iter().map(argument).collect() };
        declare::call(&self.control, &admin(), &call).await
    }

    async fn on_shard(&self, shard: usize, sql: &str) {
        self.cluster.connect_shard(shard).await.batch_execute(sql).await.expect(sql);
    }

    /// One value as text.
    async fn value_on_shard(&self, shard: usize, sql: &str) -> String {
        let client = self.cluster.connect_shard(shard).await;
        client.query_one(&format!("SELECT ({sql})::text"), &[]).await.expect(sql).get(0)
    }

    async fn value_on_map(&self, sql: &str) -> String {
        let client = self.cluster.connect_map().await;
        client.query_one(&format!("SELECT ({sql})::text"), &[]).await.expect(sql).get(0)
    }
}

fn admin() -> Caller {
    Caller {
        user: "postgres".to_owned(),
        is_admin: true,
        search_path: vec!["$user".to_owned(), "public".to_owned()],
        catalog: std::sync::Arc::default(),
        stop: Default::default(),
    }
}

async fn connect_map(cluster: &Cluster, migrate: bool) -> Arc<ShardMap> {
    connect_map_at(cluster.map_url(), migrate).await
}

async fn connect_map_at(url: String, migrate: bool) -> Arc<ShardMap> {
    let options = MapOptions {
        url,
        migrate,
        lookup_cache_entries: 1000,
        poll_interval: Duration::from_secs(5),
        proxy_id: ProxyId::random(),
        address: "127.0.0.1:0".to_owned(),
    };
    ShardMap::connect(options).await.expect("connect to the map")
}

/// The error, with message, detail and hint in one text.
fn told(error: &PgError) -> String {
    [Some(error.message.as_str()), error.detail.as_deref(), error.hint.as_deref()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

fn code(error: &PgError) -> String {
    error.code.as_str().to_owned()
}
