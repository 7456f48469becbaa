//! What the proxy itself spends on rows that it merges: a whole table in order, a page of it, counts and groups.

use std::pin::pin;

use futures::TryStreamExt;
use tokio_postgres::Client;

use crate::report::{cpu_us, memory_kib, print_table};
use crate::support::{Cluster, Proxy, ProxyOptions};
use crate::{SERVER_SETTINGS, distribute_items};

pub async fn run() {
    let cluster = Cluster::start_with(3, SERVER_SETTINGS).await;
    let settings = vec![("log.level", "warn".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(proxy.connect().await);
    }
    fill(&clients[0], &cluster).await;
    // Code, buffers and connections that every such statement needs are there from now on; what more rows need is not.
    for statement in STATEMENTS.iter().filter(|statement| statement.units != MANY_ROWS) {
        run_by(&clients, statement.text, 1).await;
    }
    let mut lines = Vec::new();
    for statement in STATEMENTS {
        let clients = &clients[..statement.clients];
        let before = spent(&proxy);
        run_by(clients, statement.text, statement.times).await;
        let units = (clients.len() * statement.times * statement.units) as f64;
        let after = spent(&proxy);
        let (cost, growth) = ((after.0 - before.0) / units, (after.1 - before.1) / 1024.0);
        let mark = if cost <= statement.goal_us { "" } else { " missed" };
        let goal = format!("{}{mark}", statement.goal_us);
        let name = format!("{}, clients: {}", statement.name, clients.len());
        lines.push(vec![name, format!("{cost:.2}"), goal, format!("{growth:.1}")]);
    }
    println!("\n{ROWS} rows, or as many as said, over three shards: the proxy's own CPU, and what its memory grew by");
    print_table(&["", "CPU µs", "goal", "RSS MiB"], lines.into_iter());
}

/// Processor time in microseconds, and the most memory in KiB.
fn spent(proxy: &Proxy) -> (f64, f64) {
    let (user, system) = cpu_us(proxy.pid()).expect("processor time");
    (user + system, memory_kib(proxy.pid(), "VmHWM").expect("memory"))
}

/// All clients at once, each so many times.
async fn run_by(clients: &[Client], statement: &str, times: usize) {
    let runs = clients.iter().map(|client| async move {
        for _ in 0..times {
            let mut answer = pin!(client.simple_query_raw(statement).await.expect(statement));
            while answer.try_next().await.expect(statement).is_some() {}
        }
    });
    futures::future::join_all(runs).await;
}

/// Each shard gets the rows whose hash lies in its partitions.
async fn fill(client: &Client, cluster: &Cluster) {
    distribute_items(client, cluster).await;
    client.batch_execute("CREATE TABLE numbers (id bigint PRIMARY KEY, n int)").await.expect("create the table");
    let distribute = "SELECT shardgate.distribute_table('numbers', 'id', colocate_with => 'items')";
    client.batch_execute(distribute).await.expect("distribute the table");
    let partitions = client.query("SELECT shard, low, high FROM shardgate.partitions", &[]).await.expect("partitions");
    for shard in 0..cluster.shard_count() {
        let owned = partitions.iter().filter(|row| row.get::<_, &str>(0) == format!("shard{shard}")).map(|row| {
            let bound = |column: usize, sign: &str| {
                row.get::<_, Option<&str>>(column).map_or("true".to_owned(), |bound| format!("hash {sign} {bound}"))
            };
            format!("({} AND {})", bound(1, ">="), bound(2, "<"))
        });
        let owned = owned.collect::<Vec<_>>().join(" OR ");
        let insert = format!(
            "INSERT INTO items SELECT id, id % 100, md5(id::text) FROM generate_series(1, {ROWS}) id, hashint8extended(id, 0) hash \
             WHERE {owned}; INSERT INTO numbers SELECT id, id % 1000 FROM generate_series(1, {MANY_ROWS}) id, \
             hashint8extended(id, 0) hash WHERE {owned}; VACUUM ANALYZE items, numbers"
        );
        for statement in insert.split("; ") {
            cluster.connect_shard(shard).await.batch_execute(statement).await.expect("fill a shard");
        }
    }
}

struct Statement {
    name: &'static str,
    text: &'static str,
    clients: usize,
    /// By each client.
    times: usize,
    /// What its cost is divided by.
    units: usize,
    goal_us: f64,
}

const ROWS: usize = 90_000;
const MANY_ROWS: usize = 10_000_000;
/// As many as pgbench has in the comparison of single statements.
const CLIENTS: usize = 16;
const STATEMENTS: &[Statement] = &[
    Statement {
        name: "all rows in order, a row",
        text: "SELECT * FROM items ORDER BY id",
        clients: 1,
        times: 20,
        units: ROWS,
        goal_us: 0.25,
    },
    Statement {
        name: "10,000,000 rows in order, a row",
        text: "SELECT * FROM numbers ORDER BY id",
        clients: 1,
        times: 1,
        units: MANY_ROWS,
        goal_us: 0.25,
    },
    Statement {
        name: "ORDER BY key LIMIT 20",
        text: "SELECT * FROM items ORDER BY id LIMIT 20",
        clients: CLIENTS,
        times: 500,
        units: 1,
        goal_us: 60.0,
    },
    Statement { name: "count(*)", text: "SELECT count(*) FROM items", clients: CLIENTS, times: 40, units: 1, goal_us: 300.0 },
    Statement {
        name: "GROUP BY, 100 groups",
        text: "SELECT kind, count(*) FROM items GROUP BY kind",
        clients: CLIENTS,
        times: 40,
        units: 1,
        goal_us: 300.0,
    },
];
