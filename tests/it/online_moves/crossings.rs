//! Rows whose shard key is changed leave the moving partitions, and enter them, at every state of a move.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::kills::Stage;
use super::{leftovers, partitions_on};
use crate::support::Cluster;

/// A value that is stored apart, and that an UPDATE of another column does not write again.
const WIDE: usize = 9600;

struct Ledger {
    stage: Stage,
    client: Client,
    /// Keys that no row has, in moving partitions and in others.
    free: [Vec<i64>; 2],
    /// Rows by key, and what tells them apart.
    rows: BTreeMap<i64, i64>,
    /// The keys of rows, in moving partitions and in others.
    taken: [Vec<i64>; 2],
}

impl Ledger {
    async fn start() -> (Self, String) {
        let stage = Stage::start(Cluster::start(2).await).await;
        let client = stage.proxy.connect().await;
        client
            .batch_execute(
                "CREATE TABLE wide (id bigint PRIMARY KEY, n bigint, wide text);
                 ALTER TABLE wide ALTER wide SET STORAGE EXTERNAL;
                 SELECT shardgate.distribute_table('wide', 'id', colocate_with => 't')",
            )
            .await
            .expect("a table");
        let moving: Vec<i32> = partitions_on(&stage.proxy, "wide", "a").await.into_iter().step_by(2).collect();
        let (mut free, mut taken, mut rows) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], BTreeMap::new());
        for key in 1..=600_i64 {
            let located = format!("SELECT partition_id FROM shardgate.locate('wide', '{key}')");
            let partition: i32 = client.query_one(&located, &[]).await.expect("locate").get(0);
            let side = usize::from(!moving.contains(&partition));
            if key <= 80 {
                let insert = format!("INSERT INTO wide VALUES ({key}, {key}, repeat('x', {WIDE}))");
                client.batch_execute(&insert).await.expect("a row");
                rows.insert(key, key);
                taken[side].push(key);
            } else {
                free[side].push(key);
            }
        }
        let list = moving.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        (Self { stage, client, free, rows, taken }, list)
    }

    /// Where a row is, and where it goes to: of the moving partitions or not.
    fn step(&mut self, from: usize, to: usize) -> (i64, i64) {
        let old = self.taken[from].remove(0);
        let new = self.free[to].pop().expect("a key");
        self.taken[to].push(new);
        self.free[from].insert(0, old);
        let n = self.rows.remove(&old).expect("a row");
        self.rows.insert(new, n);
        (old, new)
    }

    async fn cross(&mut self, point: &str) {
        for (from, to) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            let (old, new) = self.step(from, to);
            let update = format!("UPDATE wide SET id = {new} WHERE id = {old}");
            self.client.batch_execute(&update).await.unwrap_or_else(|error| panic!("{point}: {update}: {error:?}"));
            let (old, new) = self.step(from, to);
            let returned = self
                .client
                .query("UPDATE wide SET id = $1 WHERE id = $2 RETURNING id, n, length(wide)", &[&new, &old])
                .await
                .unwrap_or_else(|error| panic!("{point}: prepared: {error:?}"));
            let returned: Vec<(i64, i64, i32)> = returned.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
            assert_eq!(returned, [(new, self.rows[&new], WIDE as i32)], "{point}");
        }
        // There and back in one transaction.
        let ((old, new), (other, another)) = (self.step(0, 1), self.step(1, 0));
        let text = format!(
            "BEGIN; UPDATE wide SET id = {new} WHERE id = {old}; UPDATE wide SET n = n + 0 WHERE id = {new};
             UPDATE wide SET id = {another} WHERE id = {other}; COMMIT"
        );
        self.client.batch_execute(&text).await.unwrap_or_else(|error| panic!("{point}: {text}: {error:?}"));
        self.cross_otherwise(point).await;
        self.is_right(point).await;
    }

    /// By statements that are not taken apart: they are done, or refused with what to do instead.
    async fn cross_otherwise(&mut self, point: &str) {
        for (from, to) in [(0, 1), (1, 0)] {
            for other in [
                "INSERT INTO wide VALUES ($old, 0, 'new') ON CONFLICT (id) DO UPDATE SET id = $new",
                "MERGE INTO wide w USING (VALUES ($old::bigint)) s (id) ON w.id = s.id WHEN MATCHED THEN UPDATE SET id = $new",
            ] {
                let (old, new) = (self.taken[from][0], *self.free[to].last().expect("a key"));
                let text = other.replace("$old", &old.to_string()).replace("$new", &new.to_string());
                match self.client.batch_execute(&text).await {
                    Ok(()) => assert_eq!(self.step(from, to), (old, new)),
                    Err(error) => {
                        let error = error.as_db_error().unwrap_or_else(|| panic!("{point}: {text}: {error:?}"));
                        let is_refused = ["0A000", "55006"].contains(&error.code().code()) && error.hint().is_some();
                        assert!(is_refused, "{point}: {text}: {error:?}");
                    }
                }
            }
        }
    }

    async fn is_right(&self, point: &str) {
        let rows = self.client.query("SELECT id, n, length(wide) FROM wide", &[]).await.expect("rows");
        let seen: BTreeMap<i64, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!((&seen, rows.len()), (&self.rows, self.rows.len()), "{point}");
        assert!(rows.iter().all(|row| row.get::<_, Option<i32>>(2) == Some(WIDE as i32)), "{point}: a value is lost");
    }

    async fn at_each_point(&mut self, points: &[&str], arguments: &[&str]) {
        points.iter().for_each(|point| self.stage.arm(point, "hold"));
        let mut driver = self.stage.command(arguments);
        for point in points {
            self.stage.until_reached(point).await;
            self.cross(point).await;
            self.stage.disarm(point);
        }
        assert!(driver.wait().await.expect("it runs").success(), "{arguments:?}");
        self.cross("settled").await;
    }

    async fn is_whole(&self, point: &str) {
        self.is_right(point).await;
        self.stage.is_whole(&self.client, point, 0).await;
        let mut stored = 0;
        for shard in 0..2 {
            let sql = format!("SELECT count(*) FROM wide WHERE length(wide) = {WIDE}");
            stored += self.stage.cluster.connect_shard(shard).await.query_one(&sql, &[]).await.expect("stored").get::<_, i64>(0);
        }
        assert_eq!(stored, 80, "{point}: rows lie where they are not owned, or have lost a value");
        assert_eq!(leftovers(&self.stage.cluster).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_change_across_the_edge_of_a_move_at_every_state() {
    let (mut ledger, list) = Ledger::start().await;
    ledger.cross("before").await;
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--keep", "--partition", &list];
    let points = ["announced", "excluding", "gated", "published", "subscribed", "copied", "verified", "online", "reverse_enabled"];
    ledger.at_each_point(&points, &arguments).await;
    ledger.at_each_point(&["back_online", "abort_begun"], &["rollback", "1"]).await;
    ledger.is_whole("after the rollback").await;
    // The owner is one again.
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--finish", "--partition", &list];
    ledger.at_each_point(&["verified", "replication_ended", "cleaning", "ungated"], &arguments).await;
    ledger.is_whole("after the move").await;
}
