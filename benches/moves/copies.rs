//! The copy: a set of partitions, one partition of the same bytes, and a plain subscription with the same filter, all under the load;
//! what clients of other tables saw meanwhile.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::load::{Load, Seen};
use crate::report::print_table;
use crate::support::connect;
use crate::{ROW_BYTES, Scene, Settings};

/// Of as many partitions as this, so many move: five sixths of the rows.
const PARTITIONS: usize = 24;
const MOVED: usize = 20;
/// Where the hash space is cut, so that the lower part has as many: -2^63 + 5/6 · 2^64.
const CUT: &str = "6148914691236517204";

pub async fn run(settings: &Settings) {
    let rows = settings.megabytes * 1024 * 1024 / ROW_BYTES * PARTITIONS / MOVED;
    println!("\npreparing two tables of {rows} rows, of which {} MB move", settings.megabytes);
    let scene = Scene::start(&[("many", rows, PARTITIONS), ("one", rows, 1), ("others", 10_000, 4)]).await;
    let whole = scene.partitions("one", "a").await[0].to_string();
    scene.rebalance(&["split", "--partition", &whole, "--at", CUT]).await;
    let load = Load::start(&scene, settings, &["others"], 10_000).await;
    let began = Instant::now();
    sleep(settings.alone).await;
    let alone = load.seen(0, began, Instant::now());

    let (plain, from, to) = plain_subscription(&scene).await;
    let beside_plain = load.seen(0, from, to);
    let set: Vec<String> = scene.partitions("many", "a").await[..MOVED].iter().map(ToString::to_string).collect();
    let set = moved(&scene, &load, &set.join(",")).await;
    let one = moved(&scene, &load, &scene.partitions("one", "a").await[0].to_string()).await;
    load.end().await;

    println!("\ncopying {} MB beside {} updates/s of another table", settings.megabytes, settings.rate);
    let speed = |took: Duration| settings.megabytes as f64 / took.as_secs_f64();
    let line = |name: &str, took: Duration, wanted: &str, ratio: f64| {
        vec![
            name.to_owned(),
            format!("{:.1}", took.as_secs_f64()),
            format!("{:.0}", speed(took)),
            wanted.to_owned(),
            format!("{ratio:.2}"),
        ]
    };
    let lines = [
        line("a plain subscription", plain, "", 1.0),
        line("a move of 20 partitions, its copy", set.copied, "≥ 0.90", speed(set.copied) / speed(plain)),
        line("the same, to its switch", set.switched, "", speed(set.switched) / speed(plain)),
        line("a move of one partition, its copy", one.copied, "≥ 0.90", speed(one.copied) / speed(plain)),
        line("20 partitions, in times of one", set.switched, "≤ 1.20", set.switched.as_secs_f64() / one.switched.as_secs_f64()),
    ];
    print_table(&["", "s", "MB/s", "wanted", "is"], lines.into_iter());

    println!("\nwhat clients of the other table saw");
    let line = |name: &str, seen: &Seen, wanted: &str| {
        vec![
            name.to_owned(),
            format!("{:.0}", seen.per_second),
            format!("{:.2}", seen.p99_ms),
            format!("{:.1}", seen.longest_ms),
            wanted.to_owned(),
            format!("{:.2}, {:.2}", seen.per_second / alone.per_second, seen.p99_ms / alone.p99_ms),
        ]
    };
    let lines = [
        line("the load alone", &alone, ""),
        line("beside a plain subscription", &beside_plain, ""),
        line("beside a move of 20 partitions", &set.seen, "≥ 0.90, ≤ 1.20"),
        line("beside its clean-up", &set.seen_by_clean_up, "p99 ≤ 1.30"),
        line("beside a move of one partition", &one.seen, "≥ 0.90, ≤ 1.20"),
        line("beside its clean-up", &one.seen_by_clean_up, "p99 ≤ 1.30"),
    ];
    print_table(&["", "updates/s", "p99 ms", "longest ms", "wanted", "is"], lines.into_iter());
}

/// What a person would do without Shardgate. Taken away again.
async fn plain_subscription(scene: &Scene) -> (Duration, Instant, Instant) {
    let source = scene.cluster.connect_shard(0).await;
    let create = "CREATE TABLE many (id bigint PRIMARY KEY, n bigint NOT NULL, body text NOT NULL)";
    scene.cluster.create_database("plain").await;
    let target = connect(&scene.cluster.map_server().url("plain")).await;
    target.batch_execute(create).await.expect("a table");
    let publish = format!("CREATE PUBLICATION plain FOR TABLE many WHERE (hashint8extended(id, 0) < {CUT})");
    source.batch_execute(&publish).await.expect("a publication");
    // One server: it would wait for itself if it made the slot.
    source.query_one("SELECT pg_create_logical_replication_slot('plain', 'pgoutput')", &[]).await.expect("a slot");
    let began = Instant::now();
    let subscribe = format!(
        "CREATE SUBSCRIPTION plain CONNECTION '{}' PUBLICATION plain WITH (create_slot = false, streaming = on)",
        scene.cluster.shard_url(0)
    );
    target.batch_execute(&subscribe).await.expect("a subscription");
    let ready = "SELECT coalesce(bool_and(srsubstate = 'r'), false) FROM pg_subscription_rel";
    while !target.query_one(ready, &[]).await.expect("states").get::<_, bool>(0) {
        sleep(Duration::from_millis(20)).await;
    }
    let ended = Instant::now();
    for text in ["ALTER SUBSCRIPTION plain DISABLE", "ALTER SUBSCRIPTION plain SET (slot_name = NONE)", "DROP SUBSCRIPTION plain"] {
        target.batch_execute(text).await.expect(text);
    }
    target.batch_execute("TRUNCATE many").await.expect("emptied");
    let active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'plain' AND active";
    while source.query_one(active, &[]).await.expect("the slot").get::<_, i64>(0) > 0 {
        sleep(Duration::from_millis(20)).await;
    }
    source.batch_execute("SELECT pg_drop_replication_slot('plain')").await.expect("no slot");
    source.batch_execute("DROP PUBLICATION plain").await.expect("no publication");
    (ended - began, began, ended)
}

struct Moved {
    /// From the beginning of the copy until it follows.
    copied: Duration,
    /// From the command to the switch.
    switched: Duration,
    seen: Seen,
    seen_by_clean_up: Seen,
}

async fn moved(scene: &Scene, load: &Load, partitions: &str) -> Moved {
    let states = async {
        let mut seen: Vec<(String, Instant)> = Vec::new();
        let last = "SELECT state FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        let before: i64 = scene.map.query_one("SELECT count(*) FROM shardgate_map.move", &[]).await.expect("moves").get(0);
        loop {
            let count: i64 = scene.map.query_one("SELECT count(*) FROM shardgate_map.move", &[]).await.expect("moves").get(0);
            if count > before {
                let state: String = scene.map.query_one(last, &[]).await.expect("a move").get(0);
                if seen.last().is_none_or(|(known, _)| *known != state) {
                    seen.push((state.clone(), Instant::now()));
                }
                if state == "done" {
                    return seen;
                }
                assert_ne!(state, "aborted");
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let command = ["move", "--to", "b", "--finish", "--partition", partitions];
    let ((_, began, ended), states) = tokio::join!(scene.rebalance(&command), states);
    // A state that was too short to be seen ended with the next one.
    let order = ["copying", "catching_up", "verifying", "cutting_over", "switched", "cleaning_up", "done"];
    let at = |state: &str| {
        let place = order.iter().position(|known| *known == state).unwrap_or_default();
        order[place..].iter().find_map(|state| states.iter().find(|(seen, _)| seen == state)).map_or(ended, |(_, at)| *at)
    };
    Moved {
        copied: at("catching_up") - at("copying"),
        switched: at("switched") - began,
        seen: load.seen(0, began, at("switched")),
        seen_by_clean_up: load.seen(0, at("cleaning_up"), at("done")),
    }
}
