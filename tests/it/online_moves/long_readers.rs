//! What reads for long, or holds what it has read, outlives any number of moves and delays none of them.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::kills::Stage;
use super::{leftovers, move_partitions, partitions_on, rebalance, text};
use crate::support::{Cluster, client_program, volume};

const SWITCHES: usize = 20;
/// So long do they read, at least.
const LASTS_IN_SOAK: Duration = Duration::from_secs(600);
/// They are no load.
const BETWEEN_REPORTS: Duration = Duration::from_millis(50);
/// When the readers have ended.
const ALONE: i64 = 3;

/// One after the other, in a transaction or each by itself: by groups that every shard has, and by rows that are brought together.
fn reports(client: Client, begin: &'static str, end: &CancellationToken) -> JoinHandle<usize> {
    let end = end.clone();
    tokio::spawn(async move {
        client.batch_execute(begin).await.expect("begun");
        let mut reports = 0;
        while !end.is_cancelled() {
            for (query, expected) in [
                ("SELECT count(*), count(DISTINCT id), sum(id)::bigint FROM t", (500, 500, 125_250)),
                (
                    "SELECT count(*), count(DISTINCT a.id), sum(b.id)::bigint FROM t a JOIN t b ON b.id = a.id + 1",
                    (499, 499, 125_249),
                ),
            ] {
                let row = client.query_one(query, &[]).await.unwrap_or_else(|error| panic!("{begin}: {query}: {error:?}"));
                assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), expected, "{begin}: {query}");
            }
            reports += 1;
            tokio::time::sleep(BETWEEN_REPORTS).await;
        }
        client.batch_execute("COMMIT").await.expect("ended");
        reports
    })
}

/// The middle one of the pauses of the moves beside readers, in ms, and of those after them.
async fn usual_pauses(stage: &Stage, beside: usize) -> (f64, f64) {
    let map = stage.cluster.connect_map().await;
    let pauses = format!(
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY pause_ms) FILTER (WHERE move_id <= {beside}),
                percentile_cont(0.5) WITHIN GROUP (ORDER BY pause_ms) FILTER (WHERE move_id > {beside}) FROM shardgate_map.move"
    );
    let row = map.query_one(&pauses, &[]).await.expect("pauses");
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_every_kind_outlive_moves_and_delay_none() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let end = CancellationToken::new();
    let reporting = [
        reports(stage.proxy.connect().await, "SELECT 1", &end),
        reports(stage.proxy.connect().await, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", &end),
    ];
    // Has read, and idles.
    let idle = stage.proxy.connect().await;
    idle.batch_execute("BEGIN; SELECT count(*) FROM t").await.expect("a reader");
    // As pg_dump does.
    let dump = stage.proxy.connect().await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE t IN ACCESS SHARE MODE; SELECT count(*) FROM t";
    dump.batch_execute(begin).await.expect("a dump");
    // Its rows are not taken.
    let copying = stage.proxy.connect().await;
    let wide = "COPY (SELECT id, repeat('x', 20000) FROM t, generate_series(1, 20) AS g) TO STDOUT";
    let mut copied = Box::pin(copying.copy_out(wide).await.expect("a copy"));
    let first = copied.try_next().await.expect("a row").expect("a row");
    assert!(first.len() > 20_000);

    let began = Instant::now();
    let mut shown = Vec::new();
    while shown.len() < SWITCHES || began.elapsed() < volume(Duration::ZERO, LASTS_IN_SOAK) {
        let (source, target) = if (shown.len() / SWITCHES).is_multiple_of(2) { ("a", "b") } else { ("b", "a") };
        let partition = partitions_on(&stage.proxy, "t", source).await[0];
        let moved = tokio::time::timeout(Duration::from_secs(60), move_partitions(&stage.cluster, &[partition], target)).await;
        shown.push(moved.expect("a move is delayed"));
    }
    let lasted = began.elapsed();
    let map = stage.cluster.connect_map().await;
    let attempts = map.query_one("SELECT max(attempts), count(*) FILTER (WHERE state = 'done') FROM shardgate_map.move", &[]).await;
    let attempts = attempts.expect("moves");
    assert_eq!(
        (attempts.get::<_, i32>(0), attempts.get::<_, i64>(1)),
        (1, shown.len() as i64),
        "a cut-over was delayed: {shown:?}"
    );
    end.cancel();
    for reports in reporting {
        assert!(reports.await.expect("a report goes on") > 1);
    }

    let seen = idle.query_one("SELECT count(*) FROM t", &[]).await.expect("the idle reader goes on");
    assert_eq!(seen.get::<_, i64>(0), 500);
    idle.batch_execute("COMMIT").await.expect("committed");
    let stream = dump.copy_out("COPY t TO STDOUT").await.expect("the dump goes on");
    let dumped: Vec<bytes::Bytes> = stream.try_collect().await.expect("rows");
    assert_eq!(dumped.concat().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 500);
    dump.batch_execute("COMMIT").await.expect("committed");
    let mut rows = 1;
    while copied.try_next().await.expect("the copy goes on").is_some() {
        rows += 1;
    }
    assert_eq!(rows, 500 * 20);
    drop((copied, copying));
    for _ in 0..ALONE {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0];
        move_partitions(&stage.cluster, &[partition], "b").await;
    }
    let (beside, alone) = usual_pauses(&stage, shown.len()).await;
    println!("{} switches in {lasted:.0?}: held for {beside:.0} ms beside readers, for {alone:.0} ms without them", shown.len());
    // What a pause costs on a machine that does nothing else is measured by the benchmark of moves.
    assert!(beside < alone * 10.0 + 100.0, "held for {beside} ms beside readers, for {alone} ms without them");
    // Triggers that could not be dropped beside the readers are disabled, and found.
    let doctor = rebalance(&stage.cluster, &["doctor", "--fix"]).await;
    assert!(matches!(doctor.status.code(), Some(0 | 1)), "{}", text(&doctor.stderr));
    assert_eq!(leftovers(&stage.cluster).await, Vec::<String>::new());
    stage.is_whole(&stage.proxy.connect().await, "long readers", 0).await;
}

/// A whole dump by the real program, while partitions move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_through_the_proxy_lasts_through_moves() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let conninfo = stage.proxy.conninfo();
    let mut dumps = Vec::new();
    for _ in 0..2 {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0];
        let dump = tokio::process::Command::new(client_program("pg_dump"))
            .args(["--data-only", "--table", "t", "--dbname", &conninfo])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("pg_dump");
        move_partitions(&stage.cluster, &[partition], "b").await;
        dumps.push(dump.wait_with_output().await.expect("its end"));
    }
    for dump in dumps {
        let rows = text(&dump.stdout).lines().filter(|line| line.split('\t').count() == 2).count();
        assert_eq!((dump.status.code(), rows), (Some(0), 500), "{}", text(&dump.stderr));
    }
}
