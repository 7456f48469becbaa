//! Somebody is killed while recovery works: before it finishes what it has resolved, and before it removes old decision rows.
//!
//! Recovery is held at the point, then somebody is killed or frozen; afterwards the transaction that a dead proxy has left is whole
//! or absent, as it was decided, and nothing is prepared any more.

use rustix::process::Signal;

use super::Ledger;
use super::kills::Points;
use super::leftover::Leftover;
use crate::sessions::Stage;
use crate::support::{Cluster, Proxy, volume};

/// Who goes while recovery stands at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    ProxyKilled,
    /// And thawed when another proxy has done its work.
    ProxyFrozen,
    DecidingShardKilled,
    OtherShardKilled,
    MapStopped,
}

const ACTORS: [Actor; 5] =
    [Actor::ProxyKilled, Actor::ProxyFrozen, Actor::DecidingShardKilled, Actor::OtherShardKilled, Actor::MapStopped];

#[tokio::test]
async fn who_dies_before_recovery_finishes_leaves_nothing_half_done() {
    let mut scene = Scene::start().await;
    let in_test = vec![(Actor::ProxyKilled, true), (Actor::ProxyFrozen, true), (Actor::DecidingShardKilled, false)];
    let in_soak = ACTORS.into_iter().flat_map(|actor| [(actor, true), (actor, false)]).collect();
    for (number, (actor, is_committed)) in volume(in_test, in_soak).into_iter().enumerate() {
        scene.points.arm("before_recovery_finish", "hold");
        let left = Leftover::make(&scene.stage, number, is_committed).await;
        scene.points.until_reached("before_recovery_finish").await;
        let wanted = if is_committed { 3 } else { 0 };
        scene.act(actor, "before_recovery_finish", &left, wanted).await;
    }
}

/// A row that is old enough goes unless its transaction is prepared anywhere, also when it has been prepared since the look
/// at the clock.
#[tokio::test]
async fn who_dies_before_old_decisions_go_leaves_nothing_half_done() {
    let mut scene = Scene::start().await;
    for (number, actor) in volume(vec![Actor::OtherShardKilled, Actor::MapStopped], ACTORS.to_vec()).into_iter().enumerate() {
        scene.points.arm("collect_in_every_round", "");
        scene.points.arm("before_collect", "hold");
        scene.points.until_reached("before_collect").await;
        let old = Leftover::make_finished(&scene.stage, 100 + number).await;
        let left = Leftover::make(&scene.stage, number, true).await;
        for transaction in [&old, &left] {
            transaction.make_old(&scene.stage).await;
        }
        scene.act(actor, "before_collect", &left, 3).await;
        old.until_forgotten(&scene.stage).await;
        assert!(left.is_remembered(&scene.stage).await, "its decision was needed a moment ago: {actor:?}");
        scene.points.release("collect_in_every_round");
    }
}

/// Servers that can be killed one by one, and a proxy whose recovery can be held.
struct Scene {
    stage: Stage,
    points: Points,
}

impl Scene {
    async fn start() -> Self {
        let points = Points::new();
        let stage = Stage::on(Cluster::separate_servers(3).await, points.options()).await;
        Ledger::create(&stage).await;
        Self { stage, points }
    }

    /// Recovery is held at the point. Afterwards it is not, and the transaction is on so many shards.
    async fn act(&mut self, actor: Actor, point: &str, left: &Leftover, wanted: usize) {
        match actor {
            Actor::ProxyKilled => {
                self.stage.proxy.signal(Signal::KILL);
                self.points.release(point);
                self.stage.proxy = Proxy::start(&self.stage.cluster, self.points.options());
            }
            Actor::ProxyFrozen => {
                self.stage.proxy.signal(Signal::STOP);
                let others = Points::new();
                others.arm("collect_in_every_round", "");
                let _other = Proxy::start(&self.stage.cluster, others.options());
                left.assert_found(&self.stage, wanted, &format!("{actor:?}")).await;
                self.points.release(point);
                self.stage.proxy.signal(Signal::CONT);
            }
            Actor::DecidingShardKilled => self.kill_shard(0, point),
            Actor::OtherShardKilled => self.kill_shard(1, point),
            Actor::MapStopped => {
                self.stage.cluster.map_server_mut().kill().expect("killed");
                self.points.release(point);
                left.assert_found(&self.stage, wanted, &format!("{actor:?}")).await;
                self.stage.cluster.map_server_mut().start_again().expect("started again");
            }
        }
        left.assert_found(&self.stage, wanted, &format!("{actor:?}")).await;
        self.stage.assert_log_is_clean();
    }

    fn kill_shard(&mut self, shard: usize, point: &str) {
        self.stage.cluster.shard_server_mut(shard).kill().expect("killed");
        self.points.release(point);
        self.stage.cluster.shard_server_mut(shard).start_again().expect("started again");
    }
}
