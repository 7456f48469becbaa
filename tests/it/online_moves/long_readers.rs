//! What reads for long, or holds what it has read, outlives any number of moves and delays none of them.

use std::process::Stdio;
use std::time::Duration;

use futures::TryStreamExt;

use super::kills::Stage;
use super::{leftovers, move_partitions, partitions_on, rebalance, text};
use crate::support::{Cluster, client_program};

const SWITCHES: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_every_kind_outlive_moves_and_delay_none() {
    let stage = Stage::start(Cluster::start(2).await).await;
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

    let mut shown = Vec::new();
    for _ in 0..SWITCHES {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0];
        let moved = tokio::time::timeout(Duration::from_secs(60), move_partitions(&stage.cluster, &[partition], "b")).await;
        shown.push(moved.expect("a move is delayed"));
    }
    let map = stage.cluster.connect_map().await;
    let attempts = map.query_one("SELECT max(attempts), count(*) FILTER (WHERE state = 'done') FROM shardgate_map.move", &[]).await;
    let attempts = attempts.expect("moves");
    assert_eq!((attempts.get::<_, i32>(0), attempts.get::<_, i64>(1)), (1, SWITCHES), "a cut-over was delayed: {shown:?}");

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
