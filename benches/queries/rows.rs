//! What the proxy itself spends on rows that it merges: a whole table in order, a page of it, counts and groups.

use std::fs;

use tokio_postgres::Client;

use crate::support::{Cluster, Proxy, ProxyOptions};
use crate::{SERVER_SETTINGS, print_table};

pub async fn run() {
    let cluster = Cluster::start_with(3, SERVER_SETTINGS).await;
    let settings = vec![("log.level", "warn".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
    let client = proxy.connect().await;
    fill(&client, &cluster).await;
    // Code, buffers and connections that every such statement needs are there from now on.
    for statement in STATEMENTS {
        client.simple_query(statement.text).await.expect(statement.text);
    }
    let rows = STATEMENTS.iter().map(|statement| async {
        let before = (cpu_us(proxy.pid()), resident_kib(proxy.pid()));
        for _ in 0..statement.times {
            client.simple_query(statement.text).await.expect(statement.text);
        }
        let units = (statement.times * statement.units) as f64;
        let cost = (cpu_us(proxy.pid()) - before.0) / units;
        let growth = (resident_kib(proxy.pid()) - before.1) / 1024.0;
        let mark = if cost <= statement.goal_us { "" } else { " missed" };
        let goal = format!("{}{mark}", statement.goal_us);
        vec![statement.name.to_owned(), format!("{cost:.2}"), goal, format!("{growth:.1}")]
    });
    let mut lines = Vec::new();
    for row in rows {
        lines.push(row.await);
    }
    println!("\n{ROWS} rows over three shards: the proxy's own CPU, and what its memory grew by");
    print_table(&["", "CPU µs", "goal", "RSS MiB"], lines.into_iter());
}

/// Each shard gets the rows whose hash lies in its partitions.
async fn fill(client: &Client, cluster: &Cluster) {
    for shard in 0..cluster.shard_count() {
        let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
        client.batch_execute(&add).await.expect("add a shard");
    }
    client.batch_execute(TABLE).await.expect("create the table");
    client.batch_execute("SELECT shardgate.distribute_table('items', 'id', partitions => 12)").await.expect("distribute the table");
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
             WHERE {owned}; VACUUM ANALYZE items"
        );
        for statement in insert.split("; ") {
            cluster.connect_shard(shard).await.batch_execute(statement).await.expect("fill a shard");
        }
    }
}

/// User and system time of a process with all its threads.
fn cpu_us(pid: i32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("/proc/PID/stat");
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks: f64 = [11, 12].iter().map(|at| fields[*at].parse::<f64>().expect("ticks")).sum();
    ticks * 1_000_000.0 / rustix::param::clock_ticks_per_second() as f64
}

fn resident_kib(pid: i32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc/PID/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

struct Statement {
    name: &'static str,
    text: &'static str,
    times: usize,
    /// What its cost is divided by.
    units: usize,
    goal_us: f64,
}

const ROWS: usize = 90_000;
const TABLE: &str = "CREATE TABLE items (id bigint PRIMARY KEY, kind int, body text)";
const STATEMENTS: &[Statement] = &[
    Statement { name: "all rows in order, a row", text: "SELECT * FROM items ORDER BY id", times: 20, units: ROWS, goal_us: 0.25 },
    Statement {
        name: "ORDER BY key LIMIT 20",
        text: "SELECT * FROM items ORDER BY id LIMIT 20",
        times: 2_000,
        units: 1,
        goal_us: 60.0,
    },
    Statement { name: "count(*)", text: "SELECT count(*) FROM items", times: 300, units: 1, goal_us: 300.0 },
    Statement {
        name: "GROUP BY, 100 groups",
        text: "SELECT kind, count(*) FROM items GROUP BY kind",
        times: 300,
        units: 1,
        goal_us: 300.0,
    },
];
