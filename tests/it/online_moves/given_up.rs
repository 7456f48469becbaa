//! Moves one of whose shards is lost for good: a person gives them up, and they end without it, whoever dies meanwhile. Nothing that was
//! acknowledged is lost by that; what would lose it is refused. A lost server that comes back is used when it is clean.

use std::time::{Duration, Instant};

use tokio::process::Child;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::kills::{ENDED_WITHIN, Part, Stage, is_passing};
use super::{partitions_on, rebalance, text};
use crate::support::Cluster;

/// Where the driver that gives a move up dies.
const DIES: [&str; 4] = ["given_up", "given_up_freed", "given_up_uncovered", "given_up_ungated"];

struct Scene {
    stage: Stage,
    written: i64,
}

impl Scene {
    async fn start() -> Self {
        Self { stage: Stage::start(Cluster::separate_servers(2).await).await, written: 0 }
    }

    async fn first(&self, shard: &str) -> String {
        partitions_on(&self.stage.proxy, "t", shard).await[0].to_string()
    }

    async fn last(&self, expression: &str) -> String {
        let map = self.stage.cluster.connect_map().await;
        let sql = format!("SELECT coalesce(({expression})::text, '') FROM shardgate_map.move m ORDER BY m.move_id DESC LIMIT 1");
        map.query_opt(&sql, &[]).await.expect("moves").map(|row| row.get(0)).unwrap_or_default()
    }

    /// A move that waits for its cut-over, with a way back: its number, and its driver.
    async fn waiting(&self) -> (String, Child) {
        let partition = self.first("a").await;
        let driver = self.stage.command(&["move", "--to", "b", "--manual-cutover", "--partition", &partition]);
        let deadline = Instant::now() + ENDED_WITHIN;
        while !self.last("m.error").await.contains("waits for \"shard-rebalance cutover") {
            assert!(Instant::now() < deadline, "it does not wait: {}", self.last("m.state || m.error").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (self.last("m.move_id").await, driver)
    }

    /// A driver that stands at a point, and the number of its move.
    async fn standing(&self, point: &str, arguments: &[&str]) -> (String, Child) {
        self.stage.arm(point, "hold");
        let driver = self.stage.command(arguments);
        self.stage.until_reached(point).await;
        (self.last("m.move_id").await, driver)
    }

    async fn refused(&self, arguments: &[&str], parts: &[&str]) {
        let output = rebalance(&self.stage.cluster, arguments).await;
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {told}");
        assert!(parts.iter().all(|part| told.contains(part)), "{arguments:?}: {told}");
    }

    async fn until_given_up(&self, lost: &str) {
        let deadline = Instant::now() + ENDED_WITHIN;
        while self.last("m.journal ->> 'lost'").await != lost {
            assert!(Instant::now() < deadline, "nobody has given it up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whoever gives the move up is killed at this point, and a proxy goes on. `stands`: where an earlier driver stood.
    async fn killed_at(&self, point: &str, stands: Option<&str>, arguments: &[&str]) {
        self.stage.arm(point, "abort");
        let mut driver = self.stage.command(arguments);
        let died = tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it comes to the point").expect("status");
        assert!(died.code().is_none(), "{point}: the driver was not killed but ended with {died}");
        self.stage.disarm(point);
        stands.into_iter().for_each(|stands| self.stage.disarm(stands));
    }

    async fn succeeds(&self, arguments: &[&str]) {
        let output = rebalance(&self.stage.cluster, arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    }

    /// One row after the other: those of shards that are there.
    async fn write(&mut self, ids: &[i64]) {
        let client = self.stage.proxy.connect().await;
        for id in ids {
            let deadline = Instant::now() + ENDED_WITHIN;
            loop {
                // Not prepared: that takes the home shard, which may be the one that is lost.
                match client.simple_query(&format!("UPDATE t SET v = v + 1 WHERE id = {id}")).await {
                    Ok(done) => break assert!(matches!(done[..], [SimpleQueryMessage::CommandComplete(1)]), "{id}: {done:?}"),
                    Err(error) => assert!(is_passing(&error) && Instant::now() < deadline, "{id}: {error:?}"),
                }
            }
            self.written += 1;
        }
    }

    /// What a move has changed at the home shard, the proxy reads there at the next statement: none goes on before, while it is away.
    async fn read_schema(&self) {
        let client = self.stage.proxy.connect().await;
        let id = self.owned_by("a").await[0];
        client.simple_query(&format!("SELECT v FROM t WHERE id = {id}")).await.expect("a row");
    }

    /// Ids of rows that this shard owns, by the map.
    async fn owned_by(&self, shard: &str) -> Vec<i64> {
        let client = self.stage.proxy.connect().await;
        let mut owned = Vec::new();
        for id in 1..=500_i64 {
            let located = client.simple_query(&format!("SELECT shard FROM shardgate.locate('t', '{id}')")).await.expect("locate");
            if located.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some(shard))) {
                owned.push(id);
            }
        }
        owned
    }

    /// Nothing of moves is on a shard that was not lost; no partition waits.
    async fn is_free(&self, shard: usize, when: &str) {
        let sql = "SELECT 'slot ' || slot_name FROM pg_replication_slots
                   UNION ALL SELECT 'publication ' || pubname FROM pg_publication
                   UNION ALL SELECT 'subscription ' || subname FROM pg_subscription
                   UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgname ~ '^(00|zz)_shardgate'
                   UNION ALL SELECT 'gate ' || relname FROM pg_class WHERE relname LIKE 'gate_%' AND relkind = 'r'
                   UNION ALL SELECT 'view ' || relname FROM pg_class WHERE relnamespace = 'shardgate'::regnamespace AND relname LIKE 'view_%'
                   UNION ALL SELECT 'residue ' || move_id FROM shardgate.residue
                   UNION ALL SELECT 'origin ' || roname FROM pg_replication_origin";
        let rows = self.stage.cluster.connect_shard(shard).await.query(sql, &[]).await.expect("leftovers");
        let left: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(left, Vec::<String>::new(), "{when}");
        let map = self.stage.cluster.connect_map().await;
        let held = "SELECT count(*) FROM shardgate_map.partition WHERE state <> 'online'";
        assert_eq!(map.query_one(held, &[]).await.expect("states").get::<_, i64>(0), 0, "{when}");
    }

    /// The lost server is back: it is not used before it is clean.
    async fn is_cleaned(&mut self, part: Part, when: &str) {
        let name = if part == Part::Source { "a" } else { "b" };
        self.stage.start_again(part);
        let client = self.stage.proxy.connect().await;
        let online = format!("SELECT shardgate.alter_shard('{name}', state => 'online')");
        let refused = client.batch_execute(&online).await.expect_err("it is not clean");
        let refused = refused.as_db_error().expect("an answer");
        assert_eq!(refused.code().code(), "55000", "{when}: {refused}");
        assert!(refused.hint().is_some_and(|hint| hint.contains("doctor --fix")), "{when}: {refused:?}");
        if part == Part::Target {
            // All rows are at the source. SET itself needs the home shard.
            client.batch_execute(&format!("SET shardgate.shard = '{name}'")).await.expect("named");
        }
        let unused = count(&client).await.expect_err("it is not used");
        assert_eq!(unused.code().map(|code| code.code()), Some("57P03"), "{when}: {unused:?}");
        let found = rebalance(&self.stage.cluster, &["doctor"]).await;
        assert_eq!(found.status.code(), Some(1), "{when}");
        assert!(text(&found.stdout).contains("which was given up while the shard was away"), "{when}: {}", text(&found.stdout));
        let fixed = rebalance(&self.stage.cluster, &["doctor", "--fix"]).await;
        assert!(fixed.status.success(), "{when}: {}", text(&fixed.stdout));
        let clean = rebalance(&self.stage.cluster, &["doctor"]).await;
        assert!(clean.status.success(), "{when}: {}", text(&clean.stdout));
        let client = self.stage.proxy.connect().await;
        client.batch_execute(&online).await.expect("it is clean");
        self.stage.is_whole(&client, when, self.written).await;
        self.stage.is_forgotten(when).await;
    }
}

async fn count(client: &Client) -> Result<String, tokio_postgres::Error> {
    let answer = client.simple_query("SELECT count(*) FROM t").await?;
    let row = answer.iter().find_map(|message| if let SimpleQueryMessage::Row(row) = message { row.get(0) } else { None });
    Ok(row.expect("a count").to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_has_lost_its_target_is_aborted_without_it() {
    let mut scene = Scene::start().await;
    for point in DIES {
        let (id, _driver) = scene.waiting().await;
        scene.refused(&["abort", &id, "--lost", "target"], &["shard \"b\" answers, and is not lost"]).await;
        scene.stage.server_mut(Part::Target).kill().expect("killed");
        scene.refused(&["finish", &id, "--lost", "target"], &[&format!("abort {id} --lost target")]).await;
        let told = text(&rebalance(&scene.stage.cluster, &["doctor"]).await.stdout);
        assert!(told.contains(&format!("\"shard-rebalance abort {id} --lost target\"")), "{told}");
        scene.killed_at(point, None, &["abort", &id, "--lost", "target"]).await;
        assert_eq!(scene.stage.ended().await, "aborted", "{point}");
        assert!(scene.last("m.error").await.starts_with("given up without shard \"b\""), "{}", scene.last("m.error").await);
        scene.is_free(0, point).await;
        // Again: it is so.
        scene.succeeds(&["abort", &id, "--lost", "target"]).await;
        scene.write(&[1, 2, 3]).await;
        assert_eq!(count(&scene.stage.proxy.connect().await).await.expect("all are at the source"), "500");
        let told = text(&rebalance(&scene.stage.cluster, &["doctor"]).await.stdout);
        assert!(told.contains("run doctor again when it is back; if it does not, SELECT shardgate.drop_shard('b')"), "{told}");
        scene.is_cleaned(Part::Target, point).await;
    }
    // In the middle of the pause: nobody waits.
    let partition = scene.first("a").await;
    let moved = ["move", "--to", "b", "--finish", "--max-pause", "3s", "--partition", &partition];
    let (id, driver) = scene.standing("fenced", &moved).await;
    scene.stage.server_mut(Part::Target).kill().expect("killed");
    let giving_up = scene.stage.command(&["abort", &id, "--lost", "target"]);
    scene.until_given_up("target").await;
    scene.stage.disarm("fenced");
    assert_eq!(scene.stage.ended().await, "aborted");
    drop((driver, giving_up));
    scene.write(&(1..=500).collect::<Vec<_>>()).await;
    // One that never comes back.
    scene.stage.proxy.connect().await.batch_execute("SELECT shardgate.drop_shard('b')").await.expect("dropped");
    let map = scene.stage.cluster.connect_map().await;
    assert_eq!(map.query_one("SELECT count(*) FROM shardgate_map.owed", &[]).await.expect("owed").get::<_, i64>(0), 0);
    let clean = rebalance(&scene.stage.cluster, &["doctor"]).await;
    assert!(clean.status.success(), "{}", text(&clean.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_has_lost_its_source_is_finished_without_it() {
    let mut scene = Scene::start().await;
    for (stands, point) in [
        ("reverse_enabled", "given_up"),
        ("verified_again", "given_up_opened"),
        ("replication_ended", "given_up_freed"),
        ("reverse_ended", "given_up_uncovered"),
        ("cleaning", "given_up_ungated"),
    ] {
        let partition = scene.first("a").await;
        let moved = ["move", "--to", "b", "--max-pause", "3s", "--partition", &partition];
        let (id, _driver) = match stands {
            "verified_again" | "reverse_ended" => {
                let id = scene.stage.switched(&partition, "1h").await;
                scene.standing(stands, &["finish", &id]).await
            }
            "reverse_enabled" => scene.standing(stands, &moved).await,
            _ => scene.standing(stands, &[&moved[..], &["--finish"]].concat()).await,
        };
        let moved = scene.owned_by("b").await;
        scene.write(&moved).await;
        scene.stage.server_mut(Part::Source).kill().expect("killed");
        scene.refused(&["abort", &id, "--lost", "source"], &[&format!("finish {id} --lost source")]).await;
        scene.write(&moved).await;
        scene.killed_at(point, Some(stands), &["finish", &id, "--lost", "source"]).await;
        assert_eq!(scene.stage.ended().await, "done", "{point}");
        // The home shard cannot be dropped.
        let helps = "if it does not, promote a standby of it or restore a backup, and let shardgate.alter_shard() name that server: the home shard";
        let error = scene.last("m.error").await;
        assert!(error.starts_with("given up without shard \"a\"") && error.contains(helps), "{error}");
        let told = text(&rebalance(&scene.stage.cluster, &["doctor"]).await.stdout);
        assert!(told.contains(helps) && !told.contains("drop_shard"), "{told}");
        scene.is_free(1, point).await;
        scene.write(&moved).await;
        // What needs the lost shard is told so at once.
        let unused = count(&scene.stage.proxy.connect().await).await.expect_err("it is not there");
        assert_eq!(unused.code().map(|code| code.code()), Some("57P03"), "{unused:?}");
        scene.is_cleaned(Part::Source, point).await;
    }
    // Between the switch and the opening of the target: statements wait no longer.
    let partition = scene.first("a").await;
    let moved = ["move", "--to", "b", "--max-pause", "3s", "--partition", &partition];
    let (id, _driver) = scene.standing("switched", &moved).await;
    scene.read_schema().await;
    scene.stage.server_mut(Part::Source).kill().expect("killed");
    let moved = scene.owned_by("b").await;
    scene.killed_at("given_up_taken_over", Some("switched"), &["finish", &id, "--lost", "source"]).await;
    assert_eq!(scene.stage.ended().await, "done");
    scene.write(&moved).await;
    scene.is_free(1, "not opened").await;
    scene.is_cleaned(Part::Source, "not opened").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_that_has_lost_its_target_ends_without_it() {
    let mut scene = Scene::start().await;
    for (point, dies) in [("back_switched", "given_up_taken_over"), ("back_online", "given_up_freed"), ("abort_begun", "given_up")]
    {
        let partition = scene.first("a").await;
        let id = scene.stage.switched(&partition, "1h").await;
        let moved = scene.owned_by("b").await;
        scene.write(&moved).await;
        let (_, _driver) = scene.standing(point, &["rollback", &id]).await;
        scene.stage.server_mut(Part::Target).kill().expect("killed");
        scene.killed_at(dies, Some(point), &["abort", &id, "--lost", "target"]).await;
        assert_eq!(scene.stage.ended().await, "aborted", "{point}");
        assert!(scene.last("m.error").await.starts_with("rolled back; given up without shard \"b\""), "{point}");
        scene.is_free(0, point).await;
        scene.write(&moved).await;
        scene.is_cleaned(Part::Target, point).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_whose_owner_is_lost_is_not_given_up() {
    let mut scene = Scene::start().await;
    let (id, driver) = scene.waiting().await;
    scene.stage.server_mut(Part::Source).kill().expect("killed");
    let expected =
        ["cannot be given up without shard \"a\"", "which may be all that is left", "Promote a standby or restore a backup"];
    scene.refused(&["abort", &id, "--lost", "source"], &expected).await;
    scene.refused(&["finish", &id, "--lost", "source"], &expected).await;
    scene.stage.start_again(Part::Source);
    scene.succeeds(&["cutover", &id]).await;
    drop(driver);
    scene.stage.server_mut(Part::Target).kill().expect("killed");
    let expected = ["cannot be given up without shard \"b\"", "what was written there since the switch", "Promote a standby"];
    scene.refused(&["abort", &id, "--lost", "target"], &expected).await;
    scene.refused(&["finish", &id, "--lost", "target"], &expected).await;
    scene.stage.start_again(Part::Target);
    scene.succeeds(&["finish", &id]).await;
    scene.stage.is_whole(&scene.stage.proxy.connect().await, "nothing was given up", 0).await;
    let map = scene.stage.cluster.connect_map().await;
    let state = "SELECT count(*) FROM shardgate_map.shard WHERE state <> 'online'";
    assert_eq!(map.query_one(state, &[]).await.expect("states").get::<_, i64>(0), 0);
    // The source knows of a switch that the map has forgotten: only a person can say what the target has taken.
    let (id, _driver) = scene.waiting().await;
    let residue = format!("INSERT INTO shardgate.residue (group_id, move_id, hashes) VALUES (1, {id}, '{{[1,2]}}')");
    scene.stage.arm("given_up", "hold");
    scene.stage.server_mut(Part::Target).kill().expect("killed");
    let mut giving_up = scene.stage.command(&["abort", &id, "--lost", "target"]);
    scene.stage.until_reached("given_up").await;
    scene.stage.cluster.connect_shard(0).await.batch_execute(&residue).await.expect("planted");
    scene.stage.disarm("given_up");
    let ended = tokio::time::timeout(ENDED_WITHIN, giving_up.wait()).await.expect("it ends").expect("a status");
    assert_eq!(ended.code(), Some(4), "it waits for a person");
    assert!(scene.last("m.error").await.contains("which the map database has forgotten"), "{}", scene.last("m.error").await);
    // It goes on with both when the server is back.
    scene.stage.cluster.connect_shard(0).await.batch_execute("DELETE FROM shardgate.residue").await.expect("a mistake");
    scene.stage.start_again(Part::Target);
    scene.stage.command(&["resume", &id]).wait().await.expect("it runs");
    assert_eq!(scene.stage.ended().await, "aborted");
    scene.stage.proxy.connect().await.batch_execute("SELECT shardgate.alter_shard('b', state => 'online')").await.expect("online");
    scene.stage.is_whole(&scene.stage.proxy.connect().await, "taken up again", 0).await;
}

/// Lost for the mover, and not for a transaction that has begun there: it reads no copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_was_given_up_answers_nobody() {
    let mut scene = Scene::start().await;
    let partition = scene.first("a").await;
    let moved = scene.stage.drive(&partition, &[]).wait().await.expect("it runs");
    assert!(moved.success());
    let (id, _driver) = scene.waiting().await;
    let client = scene.stage.proxy.connect().await;
    let prepared = client.prepare("SELECT count(*) FROM t").await.expect("prepared");
    client.batch_execute("BEGIN").await.expect("begun");
    assert_eq!(client.query_one(&prepared, &[]).await.expect("a count").get::<_, i64>(0), 500);
    let lost = scene.owned_by("b").await;
    // Not prepared, which would lock the table at the home shard, too.
    client.batch_execute(&format!("UPDATE t SET v = v WHERE id = {}", lost[0])).await.expect("a write");
    let map = scene.stage.cluster.connect_map().await;
    let given_up = format!("SELECT shardgate_map.give_up_move('test', {id}, 'abort', 'target', NULL)");
    map.batch_execute(&given_up).await.expect("given up");
    assert_eq!(scene.stage.ended().await, "aborted");
    let unused = client.query_one(&prepared, &[]).await.expect_err("it is not used");
    assert_eq!(unused.code().map(|code| code.code()), Some("57P03"), "{unused:?}");
    client.batch_execute("ROLLBACK").await.expect("rolled back");
    let kept = scene.owned_by("a").await;
    scene.write(&kept[..3]).await;
    let fixed = rebalance(&scene.stage.cluster, &["doctor", "--fix"]).await;
    assert!(fixed.status.success(), "{}", text(&fixed.stdout));
    client.batch_execute("SELECT shardgate.alter_shard('b', state => 'online')").await.expect("it is clean");
    scene.stage.is_whole(&client, "given up while it was there", scene.written).await;
}
