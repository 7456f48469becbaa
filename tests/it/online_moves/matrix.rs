//! The kill matrix: at a named point of a move a part of the system is killed, stands still, or has forgotten. The move ends by itself,
//! done or aborted, nothing acknowledged is lost and nothing is left over.
//!
//! The driver is the command, held at the point unless it is the part that fails. What goes on without it is driven by a proxy. The
//! cells are data; `make soak` plays every point with every part and fault, `make test` a sample.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_postgres::Client;

use super::kills::{ENDED_WITHIN, MACHINES, Part, Stage, is_passing};
use super::partitions_on;
use crate::support::{Backup, Cluster, Frozen, Machine, Proxy, on_machines, volume};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Killed,
    /// With all of its connections, until the move has ended; a server for some seconds.
    Frozen,
    /// The link of its machine is down for some seconds: connections are half open.
    CutOff,
    /// The link of its machine is down, and a server on it killed and started again meanwhile: nobody hears of it.
    PowerLost,
    /// A copy from before the switch takes its place.
    Forgets,
    /// The same, from before both sides were compared.
    ForgetsMore,
}

/// What is done with the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Moved, without a way back.
    There,
    /// Moved, with a way back for a second.
    Grace,
    /// Aborted before the cut-over.
    Abort,
    /// Moved, and finished by a command.
    Finish,
    /// Moved, and rolled back.
    Back,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell(pub(super) Part, pub(super) Fault, pub(super) Way, pub(super) &'static str);

/// In the order in which a move comes to them.
const BEFORE_THE_HOLD: [(Way, &str); 10] = [
    (Way::There, "announced"),
    (Way::There, "taken"),
    (Way::There, "view_covered"),
    (Way::There, "excluding"),
    (Way::There, "gated"),
    (Way::There, "slot"),
    (Way::There, "published"),
    (Way::There, "subscribed"),
    (Way::There, "copied"),
    (Way::There, "verified"),
];
const IN_THE_PAUSE: [(Way, &str); 7] = [
    (Way::There, "held"),
    (Way::There, "drained"),
    (Way::There, "fenced"),
    (Way::There, "durable"),
    (Way::There, "switched"),
    (Way::There, "residue_at_source"),
    (Way::There, "target_opened"),
];
const AFTER_THE_PAUSE: [(Way, &str); 9] = [
    (Way::There, "online"),
    (Way::There, "replication_ended"),
    (Way::There, "cleaning"),
    (Way::There, "cleaned"),
    (Way::There, "exclusion_ended"),
    (Way::There, "view_uncovered"),
    (Way::There, "ungated"),
    (Way::Abort, "abort_begun"),
    (Way::Abort, "abort_cleaned"),
];
/// Of a move that can be rolled back.
const IN_THE_GRACE_PERIOD: [(Way, &str); 5] = [
    (Way::Grace, "reverse_published"),
    (Way::Grace, "reverse_subscribed"),
    (Way::Grace, "reverse_enabled"),
    (Way::Finish, "verified_again"),
    (Way::Finish, "reverse_ended"),
];
const ON_THE_WAY_BACK: [(Way, &str); 10] = [
    (Way::Back, "back_held"),
    (Way::Back, "back_drained"),
    (Way::Back, "back_fenced"),
    (Way::Back, "back_durable"),
    (Way::Back, "back_switched"),
    (Way::Back, "back_residue_at_source"),
    (Way::Back, "back_target_opened"),
    (Way::Back, "back_online"),
    (Way::Back, "abort_begun"),
    (Way::Back, "abort_cleaned"),
];

/// Clients go on, at the new owner.
const ONLINE: [&str; 5] = ["online", "replication_ended", "reverse_subscribed", "reverse_enabled", "back_online"];

/// A part that fails in a way at these points; outside of `make soak` only at some of them.
fn cells(part: Part, fault: Fault, points: &[(Way, &'static str)], in_test: &[&str]) -> Vec<Cell> {
    let all = points.iter().map(|(way, point)| Cell(part, fault, *way, point));
    all.filter(|Cell(.., point)| volume(in_test.contains(point), true)).collect()
}

/// Names of every second point.
fn every_second(points: &[(Way, &'static str)]) -> Vec<&'static str> {
    points.iter().step_by(2).map(|(_, point)| *point).collect()
}

impl Way {
    fn arguments<'a>(self, partitions: &'a str, id: &'a str) -> Vec<&'a str> {
        let moved = ["move", "--to", "b", "--max-pause", "3s", "--partition", partitions];
        match self {
            Way::There => [&moved[..], &["--finish"]].concat(),
            Way::Abort => [&moved[..], &["--finish", "--manual-cutover"]].concat(),
            Way::Grace => [&moved[..], &["--grace", "1s"]].concat(),
            Way::Finish => vec!["finish", id],
            Way::Back => vec!["rollback", id],
        }
    }

    fn begins_switched(self) -> bool {
        matches!(self, Way::Finish | Way::Back)
    }
}

impl Cell {
    fn name(&self) -> String {
        let Cell(part, fault, way, point) = self;
        format!("{part:?} {fault:?} at {point} ({way:?})")
    }

    /// How the move may end.
    fn ends(&self) -> &'static [&'static str] {
        match (self.0, self.2) {
            (_, Way::Abort | Way::Back) => &["aborted"],
            (Part::Driver | Part::Proxy, Way::There) | (_, Way::Grace | Way::Finish) => &["done"],
            (Part::Map | Part::Source | Part::Target, Way::There) => &["done", "aborted"],
        }
    }
}

/// A stage, and what was written there.
pub(super) struct Play {
    pub(super) stage: Stage,
    pub(super) written: i64,
}

impl Play {
    async fn start(cells: &[Cell], machines: &Arc<[Machine]>) -> Self {
        if !machines.is_empty() {
            return Self { stage: Stage::on_machines(Arc::clone(machines)).await, written: 0 };
        }
        let separate = cells.iter().any(|Cell(part, ..)| matches!(part, Part::Map | Part::Source | Part::Target));
        let cluster = if separate { Cluster::separate_servers(2).await } else { Cluster::start(2).await };
        Self { stage: Stage::start(cluster).await, written: 0 }
    }

    /// Waits where a part of the table is held, and is never refused.
    async fn write(&mut self, client: &Client, cell: &Cell) {
        let update =
            ["UPDATE t SET v = v + 1", "UPDATE seen SET v = v + 1"][usize::try_from(self.written / 500 % 2).expect("small")];
        assert_eq!(client.execute(update, &[]).await.unwrap_or_else(|error| panic!("{}: {error:?}", cell.name())), 500);
        self.written += 500;
    }

    pub(super) async fn cell(&mut self, cell: &Cell) {
        let Cell(part, fault, way, point) = *cell;
        let before = partitions_on(&self.stage.proxy, "t", "a").await;
        let list = format!("{},{}", before[0], before[1]);
        let id = if way.begins_switched() { self.stage.switched(&list, "1h").await } else { String::new() };
        let client = self.stage.proxy.connect().await;
        if way.begins_switched() {
            self.write(&client, cell).await;
        }
        let forgotten = match fault {
            Fault::Forgets => Some(if way == Way::Back { "back_durable" } else { "durable" }),
            Fault::ForgetsMore => Some("copied"),
            Fault::Killed | Fault::Frozen | Fault::CutOff | Fault::PowerLost => None,
        };
        let dies = (part, fault) == (Part::Driver, Fault::Killed);
        forgotten.iter().for_each(|point| self.stage.arm(point, "hold"));
        self.stage.arm(point, if dies { "abort" } else { "hold" });
        let mut driver = self.stage.command(&way.arguments(&list, &id));
        if way == Way::Abort {
            self.stage.ask_to_abort().await;
        }
        let backup = match forgotten {
            Some(point) => {
                self.stage.until_reached(point).await;
                let backup = Backup::of(self.stage.cluster.map_server());
                self.stage.disarm(point);
                Some(backup)
            }
            None => None,
        };
        if !dies {
            self.stage.until_reached(point).await;
        }
        let is_server = matches!(part, Part::Map | Part::Source | Part::Target);
        if is_server && ONLINE.contains(&point) {
            self.write(&client, cell).await;
        }
        drop(client);
        match part {
            Part::Driver if dies => {
                let died = tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it comes to the point").expect("status");
                assert!(died.code().is_none(), "{}: the driver was not killed but ended with {died}", cell.name());
                self.stage.disarm(point);
                self.goes_on(cell).await;
            }
            Part::Driver => {
                let pid = driver.id().expect("it runs").try_into().expect("a process id");
                let frozen = (fault == Fault::Frozen).then(|| Frozen::process(pid));
                self.stage.machine(part).into_iter().for_each(Machine::cut_off);
                self.stage.disarm(point);
                self.goes_on(cell).await;
                self.stage.machine(part).into_iter().for_each(Machine::reconnect);
                drop(frozen);
                tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it finds that the move is over").expect("status");
                let client = self.stage.proxy.connect().await;
                self.write(&client, cell).await;
                self.stage.is_forgotten(&cell.name()).await;
            }
            Part::Proxy => self.proxy_fails(cell).await,
            Part::Map | Part::Source | Part::Target => {
                if matches!(fault, Fault::CutOff | Fault::PowerLost) {
                    self.stage.machine(part).expect("a machine").cut_off();
                }
                if matches!(fault, Fault::Frozen | Fault::CutOff | Fault::PowerLost) {
                    self.stage.disarm(point);
                }
                self.server_fails(part, fault, backup).await;
                if matches!(fault, Fault::Killed | Fault::Forgets | Fault::ForgetsMore) {
                    self.stage.disarm(point);
                }
                self.ended(cell).await;
                self.trusts_no_receipt(cell).await;
            }
        }
        drop(driver.kill().await);
        let client = self.stage.proxy.connect().await;
        self.stage.is_whole(&client, &cell.name(), self.written).await;
        if way == Way::Back {
            assert_eq!(partitions_on(&self.stage.proxy, "t", "a").await, before, "{}", cell.name());
        }
    }

    /// Clients are served, and the move ends.
    async fn goes_on(&mut self, cell: &Cell) {
        let client = self.stage.proxy.connect().await;
        self.write(&client, cell).await;
        self.ended(cell).await;
    }

    async fn ended(&self, cell: &Cell) {
        let state = self.stage.ended().await;
        assert!(cell.ends().contains(&state.as_str()), "{}: it is {state}", cell.name());
        // Whoever has ended it, its pause is known; but for a map that has forgotten it.
        let map = self.stage.cluster.connect_map().await;
        let unknown =
            "SELECT count(*) FROM shardgate_map.move WHERE state = 'done' AND switched_at IS NOT NULL AND pause_ms IS NULL";
        let is_forgotten = matches!(cell.1, Fault::Forgets | Fault::ForgetsMore);
        assert!(is_forgotten || map.query_one(unknown, &[]).await.expect("a count").get::<_, i64>(0) == 0, "{}", cell.name());
    }

    /// A map that has forgotten a switch cannot say whether the receipt that it knows is of that one.
    async fn trusts_no_receipt(&self, Cell(_, fault, way, point): &Cell) {
        let is_decided = matches!((way, *point), (Way::There, "target_opened" | "online"));
        if is_decided && matches!(fault, Fault::Forgets | Fault::ForgetsMore) {
            let map = self.stage.cluster.connect_map().await;
            let last = "SELECT coalesce(journal ->> 'receipt', 'none') FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
            assert_eq!(map.query_one(last, &[]).await.expect("the move").get::<_, String>(0), "none", "{point}");
        }
    }

    /// One of two proxies. A write of it is not committed, where the move goes on without it.
    async fn proxy_fails(&mut self, cell: &Cell) {
        let Cell(_, fault, _, point) = *cell;
        let mut victim = self.stage.start_proxy();
        let writer = Arc::new(victim.connect().await);
        let is_before = BEFORE_THE_HOLD.iter().any(|(_, before)| *before == point);
        if fault == Fault::Killed || is_before {
            let guest = Arc::clone(&writer);
            let writing = tokio::spawn(async move {
                drop(guest.batch_execute("BEGIN; UPDATE t SET v = v + 1000 WHERE id <= 50").await);
            });
            // In the pause it waits for the hold.
            drop(tokio::time::timeout(Duration::from_millis(300), writing).await);
        }
        if fault == Fault::Killed {
            drop(victim);
            self.stage.disarm(point);
            return self.goes_on(cell).await;
        }
        match fault {
            Fault::CutOff => self.stage.machine(Part::Proxy).expect("a machine").cut_off(),
            _ => victim.signal(Signal::STOP),
        }
        self.stage.disarm(point);
        self.goes_on(cell).await;
        match fault {
            Fault::CutOff => self.stage.machine(Part::Proxy).expect("a machine").reconnect(),
            _ => victim.signal(Signal::CONT),
        }
        drop(writer);
        self.is_back(&victim, cell).await;
    }

    /// Its clients may have to repeat what they did.
    async fn is_back(&mut self, victim: &Proxy, cell: &Cell) {
        let deadline = Instant::now() + ENDED_WITHIN;
        loop {
            match victim.connect().await.execute("UPDATE t SET v = v + 1", &[]).await {
                Ok(rows) => break assert_eq!(rows, 500, "{}", cell.name()),
                Err(error) => assert!(is_passing(&error) && Instant::now() < deadline, "{}: {error:?}", cell.name()),
            }
        }
        self.written += 500;
    }

    async fn server_fails(&mut self, part: Part, fault: Fault, backup: Option<Backup>) {
        if matches!(fault, Fault::CutOff | Fault::PowerLost) {
            if fault == Fault::PowerLost {
                self.stage.server_mut(part).kill().expect("killed");
                self.stage.start_again(part);
            }
            tokio::time::sleep(CUT_OFF_FOR).await;
            return self.stage.machine(part).expect("a machine").reconnect();
        }
        if fault == Fault::Frozen {
            let frozen = Frozen::server(self.stage.server_mut(part));
            return frozen_for(frozen).await;
        }
        let server = self.stage.server_mut(part);
        server.kill().expect("killed");
        match backup {
            Some(backup) => *server = backup.take_over(server.port()).await,
            None => server.start_again().expect("started again"),
        }
    }
}

/// Longer than a driver's lease in the pause, and than the pause.
async fn frozen_for(server: Frozen) {
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.thaw();
}

/// Longer than a driver's lease, than a proxy's, and than the pause.
const CUT_OFF_FOR: Duration = Duration::from_secs(6);

async fn play(cells: &[Cell]) {
    play_on(Arc::default(), cells).await;
}

async fn play_on(machines: Arc<[Machine]>, cells: &[Cell]) {
    let mut play = Play::start(cells, &machines).await;
    for cell in cells {
        if partitions_on(&play.stage.proxy, "t", "a").await.len() < 4 {
            drop(play);
            play = Play::start(cells, &machines).await;
        }
        Box::pin(play.cell(cell)).await;
    }
}

fn play_on_machines(name: &str, cells: &[Cell]) {
    on_machines(name, MACHINES, |machines| play_on(machines, cells));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_before_the_hold_is_replaced() {
    play(&cells(Part::Driver, Fault::Killed, &BEFORE_THE_HOLD, &every_second(&BEFORE_THE_HOLD))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_in_the_pause_is_replaced() {
    play(&cells(Part::Driver, Fault::Killed, &IN_THE_PAUSE, &IN_THE_PAUSE.map(|(_, point)| point))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_after_the_pause_is_replaced() {
    play(&cells(Part::Driver, Fault::Killed, &AFTER_THE_PAUSE, &every_second(&AFTER_THE_PAUSE))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_while_it_makes_or_ends_the_way_back_is_replaced() {
    play(&cells(Part::Driver, Fault::Killed, &IN_THE_GRACE_PERIOD, &every_second(&IN_THE_GRACE_PERIOD))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_in_a_rollback_is_replaced() {
    play(&cells(Part::Driver, Fault::Killed, &ON_THE_WAY_BACK, &every_second(&ON_THE_WAY_BACK))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_freezes_before_the_switch_comes_too_late() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE[..4]].concat();
    play(&cells(Part::Driver, Fault::Frozen, &points, &["taken", "held", "fenced", "durable"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_freezes_after_the_switch_comes_too_late() {
    let points = [&IN_THE_PAUSE[4..], &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    play(&cells(Part::Driver, Fault::Frozen, &points, &["switched", "target_opened", "online", "cleaned"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_dies_keeps_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    play(&cells(Part::Proxy, Fault::Killed, &points, &["verified", "held", "switched", "back_fenced"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_freezes_keeps_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    play(&cells(Part::Proxy, Fault::Frozen, &points, &["excluding", "drained", "target_opened", "back_held"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_crashes_loses_nothing() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE].concat();
    let in_test = ["subscribed", "verified", "fenced", "durable", "switched", "cleaning"];
    play(&cells(Part::Source, Fault::Killed, &points, &in_test)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_crashes_loses_nothing() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE].concat();
    play(&cells(Part::Target, Fault::Killed, &points, &["subscribed", "fenced", "durable", "switched", "target_opened"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_crashes_loses_nothing() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE].concat();
    play(&cells(Part::Map, Fault::Killed, &points, &["gated", "held", "fenced", "switched", "online", "cleaning"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_crash_in_the_grace_period_lose_nothing() {
    let points = &IN_THE_GRACE_PERIOD;
    play(
        &[
            cells(Part::Source, Fault::Killed, points, &["reverse_enabled"]),
            cells(Part::Target, Fault::Killed, points, &["reverse_subscribed", "reverse_enabled"]),
            cells(Part::Map, Fault::Killed, points, &["reverse_enabled"]),
        ]
        .concat(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_crash_in_a_rollback_lose_nothing() {
    let points = &ON_THE_WAY_BACK;
    play(
        &[
            cells(Part::Source, Fault::Killed, points, &["back_durable", "back_switched"]),
            cells(Part::Target, Fault::Killed, points, &["back_fenced", "back_switched"]),
            cells(Part::Map, Fault::Killed, points, &["back_fenced", "back_switched"]),
        ]
        .concat(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_freezes_keeps_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    play(
        &[
            cells(Part::Source, Fault::Frozen, &points, &["subscribed", "fenced", "cleaning"]),
            cells(Part::Target, Fault::Frozen, &points, &["held", "fenced", "switched"]),
        ]
        .concat(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_freezes_keeps_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    play(&cells(Part::Map, Fault::Frozen, &points, &["held", "fenced", "switched"])).await;
}

#[test]
fn a_driver_that_is_cut_off_is_replaced() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    play_on_machines("a_driver_that_is_cut_off_is_replaced", &cells(Part::Driver, Fault::CutOff, &points, &["fenced"]));
}

#[test]
fn a_proxy_that_is_cut_off_keeps_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    let cells = cells(Part::Proxy, Fault::CutOff, &points, &["held"]);
    play_on_machines("a_proxy_that_is_cut_off_keeps_no_move_from_ending", &cells);
}

#[test]
fn servers_that_are_cut_off_keep_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    let cells = [
        cells(Part::Source, Fault::CutOff, &points, &["fenced", "switched"]),
        cells(Part::Target, Fault::CutOff, &points, &["subscribed", "fenced"]),
        cells(Part::Map, Fault::CutOff, &points, &["held", "switched"]),
    ];
    play_on_machines("servers_that_are_cut_off_keep_no_move_from_ending", &cells.concat());
}

#[test]
fn servers_that_lose_their_power_keep_no_move_from_ending() {
    let points = [&BEFORE_THE_HOLD[..], &IN_THE_PAUSE, &AFTER_THE_PAUSE, &IN_THE_GRACE_PERIOD, &ON_THE_WAY_BACK].concat();
    let cells = [
        cells(Part::Source, Fault::PowerLost, &points, &["switched"]),
        cells(Part::Target, Fault::PowerLost, &points, &["fenced"]),
        cells(Part::Map, Fault::PowerLost, &points, &["fenced"]),
    ];
    play_on_machines("servers_that_lose_their_power_keep_no_move_from_ending", &cells.concat());
}

/// It fails over to a server that has not heard of the switch, nor of what came after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_forgets_the_switch_is_told_by_the_shards() {
    let there = [&IN_THE_PAUSE[4..], &AFTER_THE_PAUSE[..2]].concat();
    play(
        &[
            cells(Part::Map, Fault::Forgets, &there, &["switched", "target_opened", "online"]),
            cells(Part::Map, Fault::ForgetsMore, &there[2..], &["target_opened", "online"]),
            cells(Part::Map, Fault::Forgets, &ON_THE_WAY_BACK[4..9], &["back_switched", "back_target_opened", "back_online"]),
        ]
        .concat(),
    )
    .await;
}
