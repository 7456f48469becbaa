//! The pause: many cut-overs of one partition under the load, estimated and measured, beside the same steps by hand; and what splits
//! and merges add.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::Client;

use crate::load::Load;
use crate::report::print_table;
use crate::support::connect;
use crate::{Scene, Settings, percentile};

const ROWS: usize = 20_000;
const CUTS: usize = 10;

pub async fn run(settings: &Settings) {
    let scene = Scene::start(&[("moving", ROWS, 4), ("others", ROWS, 4)]).await;
    let load = Load::start(&scene, settings, &["moving", "others"], ROWS).await;
    let began = Instant::now();
    sleep(settings.alone).await;
    let alone = [0, 1].map(|table| load.seen(table, began, Instant::now()));

    let partition = scene.partitions("moving", "a").await[0].to_string();
    let from = Instant::now();
    for turn in 0..settings.cutovers {
        let target = ["b", "a"][turn % 2];
        scene.rebalance(&["move", "--partition", &partition, "--to", target, "--finish"]).await;
    }
    let moved = [0, 1].map(|table| load.seen(table, from, Instant::now()));
    beside_long_readers(&scene, &partition, settings.cutovers).await;
    let floor = by_hand(&scene, settings.cutovers).await;

    let from = Instant::now();
    for _ in 0..CUTS {
        let before = scene.partitions("others", "a").await;
        scene.rebalance(&["split", "--partition", &before[0].to_string(), "--into", "2"]).await;
        let after = scene.partitions("others", "a").await;
        scene.rebalance(&["merge", "--partitions", &format!("{},{}", after[0], after[1])]).await;
    }
    let cut = [0, 1].map(|table| load.seen(table, from, Instant::now()));
    load.end().await;

    let rows = scene.map.query("SELECT pause_ms, expected_pause_ms, attempts FROM shardgate_map.move ORDER BY move_id", &[]).await;
    let rows = rows.expect("moves");
    let (without, beside) = rows.split_at(settings.cutovers.min(rows.len()));
    let column = |rows: &[tokio_postgres::Row], index: usize| {
        rows.iter().filter_map(|row| row.get::<_, Option<f64>>(index)).collect::<Vec<f64>>()
    };
    let attempts: i32 = rows.iter().map(|row| row.get::<_, i32>(2)).sum();
    println!("\n{} cut-overs ({attempts} attempts) beside {} updates/s, in ms", rows.len(), settings.rate);
    let line = |name: &str, values: &[f64], wanted: &str| {
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|share| format!("{:.1}", percentile(values, share)));
        vec![name.to_owned(), p50, p99, longest, wanted.to_owned()]
    };
    let lines = [
        line("the same steps by hand", &floor, ""),
        line("pause, estimated", &column(without, 1), ""),
        line("pause, measured", &column(without, 0), "≤ 60, ≤ 150, ≤ 500"),
        line("the same beside a dump, a report, an idle reader and a COPY TO", &column(beside, 0), "unchanged"),
    ];
    print_table(&["", "p50", "p99", "longest", "wanted"], lines.into_iter());
    print_steps(&scene.map).await;

    println!("\nwhat clients saw");
    let names = ["the table that moves", "the other table"];
    let lines = [("alone", &alone), ("beside the moves", &moved), ("beside 10 splits and merges", &cut)].into_iter().flat_map(
        |(when, seen)| {
            names.iter().zip(seen).zip(&alone).map(move |((name, seen), alone)| {
                let added = seen.p99_ms - alone.p99_ms;
                let wanted = if when.contains("splits") { "p99 + ≤ 5" } else { "" };
                let numbers = [seen.per_second, seen.p99_ms, seen.longest_ms, added].map(|value| format!("{value:.1}"));
                [vec![format!("{name}, {when}")], numbers.to_vec(), vec![wanted.to_owned()]].concat()
            })
        },
    );
    print_table(&["", "updates/s", "p99 ms", "longest ms", "p99 added", "wanted"], lines.collect::<Vec<_>>().into_iter());
}

/// As many cut-overs again, while a dump has begun, a report runs again and again in one transaction, a reader idles, and a COPY is not read.
async fn beside_long_readers(scene: &Scene, partition: &str, cutovers: usize) {
    let [dump, report, idle, copying] =
        [scene.proxy.connect().await, scene.proxy.connect().await, scene.proxy.connect().await, scene.proxy.connect().await];
    let begin =
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE moving IN ACCESS SHARE MODE; SELECT count(*) FROM moving";
    for reader in [&dump, &report] {
        reader.batch_execute(begin).await.expect("a snapshot");
    }
    idle.batch_execute("BEGIN; SELECT count(*) FROM moving").await.expect("a reader");
    let rows = copying.copy_out("COPY (SELECT * FROM moving) TO STDOUT").await.expect("a copy");
    let is_over = AtomicBool::new(false);
    let reporting = async {
        while !is_over.load(Ordering::Relaxed) {
            report.query_one("SELECT count(*), sum(n)::bigint FROM moving", &[]).await.expect("a report");
            sleep(Duration::from_millis(50)).await;
        }
    };
    let moving = async {
        for turn in 0..cutovers {
            scene.rebalance(&["move", "--partition", partition, "--to", ["b", "a"][turn % 2], "--finish"]).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(reporting, moving);
    drop(rows);
    for reader in [&dump, &report, &idle] {
        reader.batch_execute("COMMIT").await.expect("its end");
    }
}

/// What the pauses were spent on.
async fn print_steps(map: &Client) {
    let sql = "SELECT s.value ->> 'step', array_agg((s.value ->> 'ms')::float8)
               FROM shardgate_map.move m, jsonb_array_elements(m.journal -> 'pause_steps') WITH ORDINALITY s (value, place)
               GROUP BY 1 ORDER BY min(s.place)";
    let steps = map.query(sql, &[]).await.expect("steps");
    println!("\ntheir steps, in ms");
    let line = |row: &tokio_postgres::Row| {
        let took: Vec<f64> = row.get(1);
        let numbers = [0.5, 0.99, 1.0].map(|share| format!("{:.1}", percentile(&took, share)));
        [vec![row.get::<_, String>(0)], numbers.to_vec()].concat()
    };
    print_table(&["", "p50", "p99", "longest"], steps.iter().map(line));
}

/// A gate closed with a marker, its arrival, a commit at the target, the changes of the map, a gate opened: what no cut-over can save.
async fn by_hand(scene: &Scene, times: usize) -> Vec<f64> {
    scene.cluster.create_database("by_hand").await;
    let target = connect(&scene.cluster.map_server().url("by_hand")).await;
    let source = scene.cluster.connect_shard(0).await;
    let tables = "CREATE TABLE hand_marker (number int PRIMARY KEY); CREATE TABLE hand_gate (is_open bool PRIMARY KEY)";
    for side in [&source, &target, &scene.map] {
        side.batch_execute(tables).await.expect("tables");
    }
    source.batch_execute("CREATE PUBLICATION by_hand FOR TABLE hand_marker").await.expect("a publication");
    source.query_one("SELECT pg_create_logical_replication_slot('by_hand', 'pgoutput')", &[]).await.expect("a slot");
    let subscribe = format!(
        "CREATE SUBSCRIPTION by_hand CONNECTION '{}' PUBLICATION by_hand WITH (create_slot = false, copy_data = false)",
        scene.cluster.shard_url(0)
    );
    target.batch_execute(&subscribe).await.expect("a subscription");
    let mut taken = Vec::new();
    for number in 0..times.max(2) {
        let began = Instant::now();
        steps(&source, &target, &scene.map, number).await;
        taken.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    for text in
        ["ALTER SUBSCRIPTION by_hand DISABLE", "ALTER SUBSCRIPTION by_hand SET (slot_name = NONE)", "DROP SUBSCRIPTION by_hand"]
    {
        target.batch_execute(text).await.expect(text);
    }
    let active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'by_hand' AND active";
    while source.query_one(active, &[]).await.expect("the slot").get::<_, i64>(0) > 0 {
        sleep(Duration::from_millis(20)).await;
    }
    source.batch_execute("SELECT pg_drop_replication_slot('by_hand')").await.expect("no slot");
    source.batch_execute("DROP PUBLICATION by_hand; DROP TABLE hand_marker, hand_gate").await.expect("nothing is left");
    // The first one waits for the subscription to begin.
    taken.split_off(1)
}

async fn steps(source: &Client, target: &Client, map: &Client, number: usize) {
    let change = format!("INSERT INTO hand_marker VALUES ({number})");
    map.batch_execute(&change).await.expect("held");
    source.batch_execute(&format!("BEGIN; TRUNCATE hand_gate; {change}; COMMIT")).await.expect("the gate is closed");
    let arrived = format!("SELECT EXISTS (SELECT FROM hand_marker WHERE number = {number})");
    while !target.query_one(&arrived, &[]).await.expect("the marker").get::<_, bool>(0) {
        sleep(Duration::from_millis(1)).await;
    }
    target.batch_execute("TRUNCATE hand_gate").await.expect("durable");
    map.batch_execute(&format!("DELETE FROM hand_marker WHERE number = {number}")).await.expect("switched");
    target.batch_execute("INSERT INTO hand_gate VALUES (true)").await.expect("the gate is open");
    map.batch_execute(&change).await.expect("online");
}
