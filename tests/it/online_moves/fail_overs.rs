//! Standbys that are promoted in the middle of a move: one that lacks what its primary had, and one whose primary goes on alone. What was
//! acknowledged is kept in a ledger, and is there in the end.

use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

use shardgate::demo::servers::Server;

use super::kills::{ENDED_WITHIN, Stage, is_passing};
use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Standby, connect};

const NAMES: [&str; 2] = ["a", "b"];
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

/// By id, the value that was acknowledged last.
type Ledger = BTreeMap<i64, i64>;

struct Scene {
    stage: Stage,
    ledger: Ledger,
    next: i64,
}

impl Scene {
    async fn start() -> Self {
        let stage = Stage::start(Cluster::separate_servers(2).await).await;
        Self { stage, ledger: (1..=500).map(|id| (id, 1)).collect(), next: 1000 }
    }

    /// A standby of the shard's primary, and a url that names both.
    async fn follow(&self, shard: usize) -> Standby {
        let standby = Standby::start(&self.stage.cluster, shard).await;
        let primary = self.stage.cluster.shard_url(shard);
        let (host, both) = (format!("127.0.0.1:{}", self.stage.cluster.shard_server(shard).port()), standby.server().port());
        let url = primary.replace(&host, &format!("{host},127.0.0.1:{both}")) + "?target_session_attrs=read-write";
        let alter = format!("SELECT shardgate.alter_shard('{}', url => '{url}')", NAMES[shard]);
        self.stage.proxy.connect().await.batch_execute(&alter).await.expect("alter_shard");
        standby
    }

    /// Again until it is acknowledged; what was not may be there all the same, and is the same.
    async fn write(&mut self, ids: &[i64]) {
        self.next += 1;
        let deadline = Instant::now() + ENDED_WITHIN;
        let update = format!("UPDATE t SET v = {} WHERE id = ANY ($1)", self.next);
        loop {
            match self.stage.proxy.connect().await.execute(&update, &[&ids]).await {
                Ok(rows) => break assert_eq!(rows as usize, ids.len()),
                Err(error) => assert!(is_repeated(&error) && Instant::now() < deadline, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.ledger.extend(ids.iter().map(|id| (*id, self.next)));
    }

    /// The copy at this server has what was written last.
    async fn until_copied(&self, server: &Server, shard: usize, id: i64) {
        let client = connect(&server.url(&format!("shard{shard}"))).await;
        let deadline = Instant::now() + ENDED_WITHIN;
        let sql = format!("SELECT count(*) FROM t WHERE id = {id} AND v = {}", self.next);
        while client.query_one(&sql, &[]).await.expect("count").get::<_, i64>(0) == 0 {
            assert!(Instant::now() < deadline, "the copy does not follow");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The map knows of the promotion.
    async fn until_told(&self, shard: usize, timeline: i32) {
        let admin = self.stage.proxy.connect().await;
        let sql = format!("SELECT timeline FROM shardgate.shards WHERE name = '{}'", NAMES[shard]);
        let deadline = Instant::now() + ENDED_WITHIN;
        while admin.query_one(&sql, &[]).await.expect("a timeline").get::<_, i32>(0) < timeline {
            assert!(Instant::now() < deadline, "nobody has seen the promotion");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A move that waits for its cut-over; its number, and the ids that it moves.
    async fn waiting(&self) -> (String, Vec<i64>) {
        let partition = partitions_on(&self.stage.proxy, "t", "a").await[0].to_string();
        let arguments = ["move", "--partition", &partition, "--to", "b", "--manual-cutover", "--detach"];
        self.succeeds(&arguments).await;
        let map = self.stage.cluster.connect_map().await;
        let last = "SELECT move_id::text, state, coalesce(error, '') FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        let deadline = Instant::now() + ENDED_WITHIN;
        loop {
            let row = map.query_one(last, &[]).await.expect("the move");
            let (id, state, error): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            if error.contains("waits for \"shard-rebalance cutover") {
                return (id, self.residues(1).await);
            }
            assert!(Instant::now() < deadline, "the move does not wait: {state}, {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Rows at a shard, whoever owns them.
    async fn stored(&self, shard: usize) -> i64 {
        self.stage.cluster.connect_shard(shard).await.query_one("SELECT count(*) FROM t", &[]).await.expect("a count").get(0)
    }

    /// Ids at a shard that does not own them.
    async fn residues(&self, shard: usize) -> Vec<i64> {
        let sql = "SELECT t.id FROM t JOIN shardgate.residue r ON pg_catalog.hashint8extended(t.id, 0) <@ r.hashes ORDER BY 1";
        let rows = self.stage.cluster.connect_shard(shard).await.query(sql, &[]).await.expect("ids");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// By hand: what these rows are at the side that does not own them, at their owner.
    async fn bring_over(&self, from: usize, ids: &[i64]) {
        let rows = self.stage.cluster.connect_shard(from).await.query("SELECT id, v FROM t WHERE id = ANY ($1)", &[&ids]).await;
        let client = self.stage.proxy.connect().await;
        let update = "UPDATE t SET v = $2 WHERE id = $1";
        let mut differed = 0;
        for row in rows.expect("rows") {
            let (id, v): (i64, i64) = (row.get(0), row.get(1));
            let owned: i64 = client.query_one("SELECT v FROM t WHERE id = $1", &[&id]).await.expect("a row").get(0);
            differed += i32::from(owned != v);
            assert_eq!(client.execute(update, &[&id, &v]).await.expect("the owner takes it"), 1, "{id}");
        }
        assert!(differed > 0, "the owner lacks something");
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        rebalance(&self.stage.cluster, arguments).await
    }

    async fn succeeds(&self, arguments: &[&str]) {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    }

    async fn fails_over(&mut self, shard: usize, standby: Standby) -> Server {
        let promoted = standby.promote().await;
        self.stage.cluster.replace_shard_server(shard, promoted)
    }

    async fn is_whole(&self, when: &str) {
        let rows = self.stage.proxy.connect().await.query("SELECT id, v FROM t", &[]).await.expect("rows");
        assert_eq!(rows.len(), 500, "{when}");
        let found: Ledger = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(found, self.ledger, "{when}");
        assert_eq!(leftovers(&self.stage.cluster).await, Vec::<String>::new(), "{when}");
        self.until_clean(when).await;
    }

    /// A driver that comes late forgets its term by itself, a little later than the move ends.
    async fn until_clean(&self, when: &str) {
        let deadline = Instant::now() + CLEAN_WITHIN;
        loop {
            let doctor = self.run(&["doctor"]).await;
            if doctor.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "{when}: {}", text(&doctor.stdout));
        }
    }

    async fn is_aborted(&self, shard: &str) {
        assert_eq!(self.stage.ended().await, "aborted");
        let map = self.stage.cluster.connect_map().await;
        let last = "SELECT coalesce(error, '') FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        let error: String = map.query_one(last, &[]).await.expect("the move").get(0);
        assert_eq!(error, format!("shard \"{shard}\" has failed over to another server since the move began"));
    }
}

/// Its outcome may be unknown: it writes the same again.
fn is_repeated(error: &tokio_postgres::Error) -> bool {
    is_passing(error) || error.code().is_some_and(|code| code.code() == "08007")
}

/// Commits there need no standby, and the standby gets nothing any more.
async fn leave_behind(primary: &Server, standby: &Standby) {
    commits_alone(primary).await;
    let client = connect(&standby.server().url("postgres")).await;
    client.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.expect("set");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    let deadline = Instant::now() + ENDED_WITHIN;
    while client.query_one("SELECT count(*) FROM pg_stat_wal_receiver", &[]).await.expect("receivers").get::<_, i64>(0) > 0 {
        assert!(Instant::now() < deadline, "the standby goes on receiving");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn commits_alone(primary: &Server) {
    let client = connect(&primary.url("postgres")).await;
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = ''").await.expect("set");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_in_the_middle_of_a_move_loses_nothing_that_was_acknowledged() {
    let mut scene = Scene::start().await;
    the_target_lacks_what_was_copied(&mut scene).await;
    the_source_goes_on_alone(&mut scene).await;
    the_source_lacks_what_came_back(&mut scene).await;
    the_target_lacks_what_it_was_given(&mut scene).await;
    the_target_has_all_that_it_was_given(&mut scene).await;
    the_source_lacks_what_it_was_given_back(&mut scene).await;
}

/// The copy goes on at the promoted server without an error, and without what its standby had not.
async fn the_target_lacks_what_was_copied(scene: &mut Scene) {
    let standby = scene.follow(1).await;
    let (id, moving) = scene.waiting().await;
    leave_behind(scene.stage.cluster.shard_server(1), &standby).await;
    scene.write(&moving[..5]).await;
    scene.until_copied(scene.stage.cluster.shard_server(1), 1, moving[0]).await;
    scene.stage.cluster.shard_server_mut(1).kill().expect("killed");
    let _former = scene.fails_over(1, standby).await;
    drop(scene.run(&["cutover", &id]).await);
    scene.is_aborted("b").await;
    scene.is_whole("the target has failed over").await;
}

/// The server before is alive, and the mover has connections to it; the proxies know better.
async fn the_source_goes_on_alone(scene: &mut Scene) {
    let standby = scene.follow(0).await;
    let (id, moving) = scene.waiting().await;
    let former = scene.fails_over(0, standby).await;
    // The one before acknowledges nothing without its standby.
    scene.write(&moving[..5]).await;
    scene.until_told(0, 2).await;
    commits_alone(&former).await;
    drop(scene.run(&["cutover", &id]).await);
    scene.is_aborted("a").await;
    scene.is_whole("the source has failed over").await;
}

/// After the switch: what the target has acknowledged had come to the source before, and is not sent again.
async fn the_source_lacks_what_came_back(scene: &mut Scene) {
    let standby = scene.follow(0).await;
    let partition = partitions_on(&scene.stage.proxy, "t", "a").await[0].to_string();
    let id = scene.stage.switched(&partition, "1h").await;
    let rows = scene.stage.cluster.connect_shard(1).await.query("SELECT id FROM t ORDER BY 1", &[]).await.expect("ids");
    let moved: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    leave_behind(scene.stage.cluster.shard_server(0), &standby).await;
    scene.write(&moved[..5]).await;
    scene.until_copied(scene.stage.cluster.shard_server(0), 0, moved[0]).await;
    scene.stage.cluster.shard_server_mut(0).kill().expect("killed");
    let _former = scene.fails_over(0, standby).await;
    let refused = scene.run(&["rollback", &id]).await;
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{told}");
    assert!(told.contains("shard \"a\" has failed over to another server since the move began"), "{told}");
    assert_eq!(partitions_on(&scene.stage.proxy, "t", "b").await.len(), 1);
    scene.succeeds(&["finish", &id]).await;
    scene.is_whole("the source has failed over after the switch").await;
}

/// The target's standby does not: a person brings over what only the source has, before its rows are deleted.
async fn the_target_lacks_what_it_was_given(scene: &mut Scene) {
    let standby = scene.follow(1).await;
    let (id, moving) = scene.waiting().await;
    leave_behind(scene.stage.cluster.shard_server(1), &standby).await;
    scene.write(&moving[..5]).await;
    scene.succeeds(&["cutover", &id]).await;
    scene.stage.cluster.shard_server_mut(1).kill().expect("killed");
    let _former = scene.fails_over(1, standby).await;
    scene.until_told(1, 3).await;
    let before = scene.stored(0).await;
    let finished = scene.run(&["finish", &id]).await;
    let told = text(&finished.stderr);
    assert_eq!(finished.status.code(), Some(4), "{told}");
    assert!(told.contains("which may lack rows that the source still has"), "{told}");
    assert_eq!(scene.stored(0).await, before, "nothing is deleted at the source");
    scene.bring_over(0, &moving).await;
    scene.succeeds(&["finish", "--unverified", &id]).await;
    scene.is_whole("the target has failed over after the switch").await;
}

/// Nobody is asked.
async fn the_target_has_all_that_it_was_given(scene: &mut Scene) {
    let standby = scene.follow(1).await;
    let partition = partitions_on(&scene.stage.proxy, "t", "a").await[0].to_string();
    scene.stage.arm("replication_ended", "hold");
    let driver = scene.stage.drive(&partition, &[]);
    scene.stage.until_reached("replication_ended").await;
    scene.stage.cluster.shard_server_mut(1).kill().expect("killed");
    let _former = scene.fails_over(1, standby).await;
    scene.until_told(1, 4).await;
    scene.stage.disarm("replication_ended");
    assert_eq!(scene.stage.ended().await, "done");
    drop(driver);
    scene.is_whole("the target has failed over, and its standby had all").await;
}

/// After the switch back, when the target's rows are about to be deleted.
async fn the_source_lacks_what_it_was_given_back(scene: &mut Scene) {
    let standby = scene.follow(0).await;
    let partition = partitions_on(&scene.stage.proxy, "t", "a").await[0].to_string();
    let id = scene.stage.switched(&partition, "1h").await;
    let moved = scene.residues(0).await;
    leave_behind(scene.stage.cluster.shard_server(0), &standby).await;
    scene.write(&moved[..5]).await;
    scene.stage.arm("abort_begun", "hold");
    let mut driver = scene.stage.command(&["rollback", &id]);
    scene.stage.until_reached("abort_begun").await;
    scene.stage.cluster.shard_server_mut(0).kill().expect("killed");
    let _former = scene.fails_over(0, standby).await;
    let before = scene.stored(1).await;
    scene.stage.disarm("abort_begun");
    let ended = tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it ends").expect("a status");
    assert_eq!(ended.code(), Some(4), "it waits for a person");
    assert_eq!(scene.stored(1).await, before, "nothing is deleted at the target");
    let shown = text(&scene.run(&["show", &id]).await.stdout);
    assert!(shown.contains("which may lack rows that the target still has"), "{shown}");
    assert!(shown.contains(&format!("\"shard-rebalance rollback --unverified {id}\"")), "{shown}");
    // The source owns them, and takes writes.
    scene.bring_over(1, &moved).await;
    scene.succeeds(&["rollback", "--unverified", &id]).await;
    assert_eq!(scene.stage.ended().await, "aborted");
    scene.is_whole("the source has failed over after the switch back").await;
}
