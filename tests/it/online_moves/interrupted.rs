//! What a driver has begun on a shard, and what a person has asked for, outlives the driver, and the shard.

use std::time::{Duration, Instant};

use super::kills::{ENDED_WITHIN, Part, Stage};
use super::{partitions_on, rebalance};
use crate::support::{Cable, Cluster, Frozen};

/// Of the move that was planned last.
async fn shown(stage: &Stage, expression: &str) -> String {
    let map = stage.cluster.connect_map().await;
    let sql = format!("SELECT coalesce(({expression})::text, '') FROM shardgate_map.move m ORDER BY m.move_id DESC LIMIT 1");
    map.query_one(&sql, &[]).await.expect("the move").get(0)
}

async fn until_shown(stage: &Stage, expression: &str, wanted: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + ENDED_WITHIN;
    loop {
        let found = shown(stage, expression).await;
        if wanted(&found) {
            return;
        }
        assert!(Instant::now() < deadline, "{expression} is {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Slots that PostgreSQL has made for tables that are copied, at the source.
async fn until_copy_slots(stage: &Stage, wanted: impl Fn(i64) -> bool) {
    let source = stage.cluster.connect_shard(0).await;
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'pg\\_%\\_sync\\_%'";
    let deadline = Instant::now() + ENDED_WITHIN;
    loop {
        let count: i64 = source.query_one(slots, &[]).await.expect("slots").get(0);
        if wanted(count) {
            return;
        }
        assert!(Instant::now() < deadline, "there are {count} slots of copies");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_dies_while_it_copies_leaves_no_slot_at_the_source() {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("published", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("published").await;
    // The copy has its slot and cannot write.
    let holder = stage.cluster.connect_shard(1).await;
    let waits = "SELECT pg_advisory_lock(77); \
         CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END'; \
         CREATE TRIGGER waits BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION waits(); \
         ALTER TABLE t ENABLE ALWAYS TRIGGER waits";
    holder.batch_execute(waits).await.expect("locked");
    stage.disarm("published");
    until_copy_slots(&stage, |count| count > 0).await;
    stage.server_mut(Part::Target).kill().expect("killed");
    stage.ask("abort").await;
    stage.until_state("aborting").await;
    // Without the target.
    until_copy_slots(&stage, |count| count == 0).await;
    until_shown(&stage, "m.error", |error| error.starts_with("aborted; the abort goes on when this is over: shard \"b\": ")).await;
    stage.start_again(Part::Target);
    assert_eq!(stage.ended().await, "aborted");
    drop(driver);
    assert_eq!(shown(&stage, "m.error").await, "aborted", "what was in its way is no reason");
    let target = stage.cluster.connect_shard(1).await;
    target.batch_execute("DROP FUNCTION waits() CASCADE").await.expect("dropped");
    stage.is_whole(&stage.proxy.connect().await, "the target died while it copied", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_move_that_is_to_go_on_waits_for_a_shard_that_is_slow() {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    let id = stage.switched(&partition, "1h").await;
    stage.arm("verified_again", "hold");
    let driver = stage.command(&["finish", &id]);
    stage.until_reached("verified_again").await;
    let target = stage.cluster.connect_shard(1).await;
    target.batch_execute("DELETE FROM shardgate.switched").await.expect("forgotten");
    stage.disarm("verified_again");
    stage.until_state("failed").await;
    drop(driver);
    assert_eq!(shown(&stage, "m.journal ->> 'failed_in'").await, "cleaning_up");
    let frozen = Frozen::server(stage.server_mut(Part::Target));
    let resuming = stage.command(&["resume", &id]);
    until_shown(&stage, "m.error", |error| error.contains("shard \"b\" does not answer within 5 s")).await;
    assert_eq!(shown(&stage, "m.state || ', ' || m.asked").await, "failed, resume");
    frozen.thaw();
    assert_eq!(stage.ended().await, "done");
    drop(resuming);
    stage.is_whole(&stage.proxy.connect().await, "a move that had failed beside a slow shard", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_back_is_known_before_anything_of_it_is_made() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("reverse_subscribed", "hold");
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--grace", "1h", "--partition", &partition];
    let mut driver = stage.command(&arguments);
    stage.until_reached("reverse_subscribed").await;
    assert_eq!(shown(&stage, "m.journal ->> 'reverse_began'").await, "true");
    driver.kill().await.expect("killed");
    stage.disarm("reverse_subscribed");
    until_shown(&stage, "m.journal ->> 'settled'", |settled| settled == "true").await;
    let id = shown(&stage, "m.move_id").await;
    let rolled_back = rebalance(&stage.cluster, &["rollback", &id]).await;
    assert!(rolled_back.status.success(), "{}", String::from_utf8_lossy(&rolled_back.stderr));
    assert_eq!(stage.ended().await, "aborted");
    stage.is_whole(&stage.proxy.connect().await, "a way back that was begun twice", 0).await;
}

/// Replication connects by the new address as well: of a move that has not switched, and of one that can be rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_gets_another_address_in_the_middle_of_a_move() {
    let stage = Stage::start(Cluster::separate_servers(2).await).await;
    let list = partitions_on(&stage.proxy, "t", "a").await[..2].iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let source = behind_a_cable(&stage, 0).await;
    let moved = ["move", "--to", "b", "--max-pause", "3s", "--grace", "1h", "--manual-cutover", "--partition", list.as_str()];
    let driver = stage.command(&moved);
    let map = stage.cluster.connect_map().await;
    let follows = "SELECT count(*) FROM shardgate_map.move WHERE state = 'catching_up'";
    let deadline = Instant::now() + ENDED_WITHIN;
    while map.query_one(follows, &[]).await.expect("moves").get::<_, i64>(0) == 0 {
        assert!(Instant::now() < deadline, "the move does not catch up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leads_past_the_cable(&stage, source, 0).await;
    let client = stage.proxy.connect().await;
    assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect("by the new address"), 500);
    let target = behind_a_cable(&stage, 1).await;
    let id = shown(&stage, "m.move_id").await;
    let cut_over = stage.command(&["cutover", &id]);
    until_shown(&stage, "m.journal ->> 'settled'", |settled| settled == "true").await;
    leads_past_the_cable(&stage, target, 1).await;
    assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect("by the new address"), 500);
    let back = stage.command(&["rollback", &id]);
    assert_eq!(stage.ended().await, "aborted");
    drop((driver, cut_over, back));
    stage.is_whole(&client, "another address", 1000).await;
}

/// Everybody reaches the shard over it.
async fn behind_a_cable(stage: &Stage, shard: usize) -> Cable {
    let target = format!("127.0.0.1:{}", stage.cluster.shard_server(shard).port());
    let cable = Cable::to(target.parse().expect("an address")).await;
    let url = stage.cluster.shard_url(shard).replace(&target, &cable.address().to_string());
    alter_url(stage, shard, &url).await;
    cable
}

/// The address by which it was reached leads nowhere.
async fn leads_past_the_cable(stage: &Stage, cable: Cable, shard: usize) {
    cable.refuse();
    alter_url(stage, shard, &stage.cluster.shard_url(shard)).await;
}

async fn alter_url(stage: &Stage, shard: usize, url: &str) {
    let alter = format!("SELECT shardgate.alter_shard('{}', url => '{url}')", ["a", "b"][shard]);
    stage.proxy.connect().await.batch_execute(&alter).await.expect("alter_shard");
}
