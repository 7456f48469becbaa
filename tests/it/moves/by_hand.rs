//! A cluster whose `accounts` move by hand: partitions get another state or owner in the map, and their rows are carried directly
//! from shard to shard.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::sessions::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

/// Some partitions of `accounts` that are on one shard.
pub struct Moving {
    pub stage: Stage,
    map: Client,
    shards: Vec<Client>,
    /// Where the set is.
    owner: Cell<usize>,
    partitions: Vec<i32>,
    /// Ids of `accounts` of each of the partitions.
    ids: Vec<Vec<i64>>,
    /// What statements are read by changes with each new owner.
    changes_tables: bool,
}

impl Moving {
    /// Two partitions of shard 0 that have rows.
    pub async fn start(shards: usize, settings: &[(&'static str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let stage = Stage::start(shards, ProxyOptions { settings, ..ProxyOptions::default() }).await;
        let mut client = stage.client().await;
        let mut known: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
        for id in (1..=90).filter(|id| stage.is_on(0, *id)) {
            let partition = client.value(&format!("SELECT partition_id FROM shardgate.locate('accounts', '{id}')")).await;
            known.entry(partition.parse().expect("a partition")).or_default().push(id);
        }
        let (partitions, ids) = known.into_iter().filter(|(_, ids)| ids.len() >= 3).take(2).unzip();
        let map = stage.cluster.connect_map().await;
        let mut direct = Vec::new();
        for shard in 0..shards {
            direct.push(stage.cluster.connect_shard(shard).await);
        }
        let moving = Self { stage, map, shards: direct, owner: Cell::new(0), partitions, ids, changes_tables: false };
        assert_eq!(moving.ids.len(), 2, "two partitions with rows");
        moving
    }

    pub fn with_changed_tables(self) -> Self {
        Self { changes_tables: true, ..self }
    }

    /// The `nth` id of the `place`th partition of the set.
    pub fn id(&self, place: usize, nth: usize) -> i64 {
        self.ids[place][nth]
    }

    /// `{k}`, `{l}`, `{m}`: ids of the first partition of the set, `{q}`: of the second one; `{a}` to `{z}` as the stage has them, of
    /// another partition.
    pub fn fill_in(&self, text: &str) -> String {
        let own = [("{k}", 0, 0), ("{l}", 0, 1), ("{m}", 0, 2), ("{q}", 1, 0)];
        let text =
            own.iter().fold(text.to_owned(), |text, (name, place, nth)| text.replace(name, &self.id(*place, *nth).to_string()));
        text.replace("{o}", &self.elsewhere().to_string()).replace("{z}", &self.stage.key(1, 0).to_string())
    }

    /// An id on shard 0 that does not move.
    fn elsewhere(&self) -> i64 {
        let moves = |id: &i64| self.ids.iter().any(|ids| ids.contains(id));
        (1..=90).find(|id| self.stage.is_on(0, *id) && !moves(id)).expect("an id that stays")
    }

    pub fn owner(&self) -> usize {
        self.owner.get()
    }

    /// Where the set goes next.
    pub fn target(&self) -> usize {
        1 - self.owner()
    }

    /// The set in another state. Returns the counter of the epoch.
    pub async fn set_state(&self, state: &str) -> i64 {
        self.change(&format!("state = '{state}'")).await
    }

    /// Held, and the proxy knows it.
    pub async fn hold(&self) -> i64 {
        let epoch = self.set_state("held").await;
        self.until("seen", epoch).await;
        epoch
    }

    pub async fn release(&self) {
        let epoch = self.set_state("online").await;
        self.until("seen", epoch).await;
    }

    /// The rows are carried to the other shard, each with this balance, and the set is online there.
    pub async fn switch(&self, balance: i32) {
        self.carry(balance).await;
        self.change_owner("online").await;
    }

    /// From held to online, with the rows at the other shard, and the proxy knows it.
    pub async fn switch_and_follow(&self, balance: i32) {
        self.carry(balance).await;
        let epoch = self.change_owner("online").await;
        self.until("seen", epoch).await;
    }

    /// Back to shard 0, with these balances, if it is not there.
    pub async fn go_home(&self, balance: i32) {
        if self.owner() != 0 {
            self.switch_and_follow(balance).await;
        }
    }

    /// Triggers as a move has them on both shards: each refuses rows of the set unless its gate is open.
    pub async fn install_gates(&self) {
        let ids = self.ids.concat().iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        for shard in &self.shards[..2] {
            let script = format!(
                "SET session_replication_role = replica;
                 CREATE TABLE shardgate.by_hand_gate (is_open bool);
                 CREATE SEQUENCE shardgate.by_hand_refused;
                 CREATE FUNCTION shardgate.by_hand_gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
                     IF (CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END) IN ({ids})
                        AND NOT EXISTS (SELECT FROM shardgate.by_hand_gate) THEN
                         PERFORM nextval('shardgate.by_hand_refused');
                         RAISE EXCEPTION 'the partition of this key is being moved' USING ERRCODE = '40001', CONSTRAINT = 'shardgate_gate';
                     END IF;
                     RETURN NULL;
                 END $$;
                 CREATE TRIGGER zz_sg_by_hand AFTER INSERT OR UPDATE OR DELETE ON accounts
                     FOR EACH ROW EXECUTE FUNCTION shardgate.by_hand_gate();"
            );
            shard.batch_execute(&script).await.expect("a gate");
        }
    }

    /// Only the gate where the set goes next is open: the shard refuses rows before the map says that they are elsewhere.
    pub async fn close_gate(&self) {
        self.shards[self.owner()].batch_execute("DELETE FROM shardgate.by_hand_gate").await.expect("closed");
        self.open_gate(self.target()).await;
    }

    /// How often gates have refused a row.
    pub async fn refusals(&self) -> i64 {
        let mut count = 0;
        for shard in &self.shards[..2] {
            let sql = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM shardgate.by_hand_refused";
            count += shard.query_one(sql, &[]).await.expect("a count").get::<_, i64>(0);
        }
        count
    }

    /// They have refused one more.
    pub async fn until_refused(&self, before: i64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.refusals().await == before {
            assert!(Instant::now() < deadline, "no gate refuses the statement");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn open_gate(&self, shard: usize) {
        self.shards[shard].batch_execute("INSERT INTO shardgate.by_hand_gate VALUES (true)").await.expect("open");
    }

    async fn change_owner(&self, state: &str) -> i64 {
        self.owner.set(self.target());
        let name = format!("shard{}", self.owner());
        self.change(&format!("state = '{state}', shard_id = (SELECT shard_id FROM shardgate_map.shard WHERE name = '{name}')"))
            .await
    }

    async fn carry(&self, balance: i32) {
        let ids: Vec<i64> = self.ids.concat();
        let read = "SELECT id, owner FROM accounts WHERE id = ANY ($1)";
        let rows = self.shards[self.owner()].query(read, &[&ids]).await.expect("rows");
        for row in rows {
            let (id, owner): (i64, Option<String>) = (row.get(0), row.get(1));
            let write = "INSERT INTO accounts VALUES ($1, $2, $3)";
            self.shards[self.target()].execute(write, &[&id, &owner, &balance]).await.expect("a row");
        }
        let delete = "DELETE FROM accounts WHERE id = ANY ($1)";
        self.shards[self.owner()].batch_execute("SET lock_timeout = '100ms'").await.expect("a setting");
        // Rows that an open transaction has locked are left behind, as they are by a move until its clean-up.
        if let Err(error) = self.shards[self.owner()].execute(delete, &[&ids]).await {
            assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{error}");
        }
    }

    async fn change(&self, set: &str) -> i64 {
        let partitions = self.partitions.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        let changes_tables = self.changes_tables && set.contains("shard_id");
        let tables = if changes_tables { "UPDATE shardgate_map.shard SET region = coalesce(region, '') || 'r'" } else { "" };
        let script = format!(
            "BEGIN; SELECT shardgate_map.lock_map(); SELECT shardgate_map.begin_change('test', 'by hand', '{{}}');
             UPDATE shardgate_map.partition SET {set} WHERE partition_id IN ({partitions}); {tables}; COMMIT"
        );
        self.map.batch_execute(&script).await.expect("a change of the map");
        self.epoch().await
    }

    /// The proxy has `seen` this epoch, or `reached` it.
    pub async fn until(&self, what: &str, epoch: i64) {
        assert!(self.is(what, epoch).await, "epoch {epoch} is not {what}");
    }

    /// The same; `false`: not within a long time.
    pub async fn is(&self, what: &str, epoch: i64) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.counters().await.of(what) < epoch {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        true
    }

    /// The proxy has told again and again that it has seen this epoch and not reached it.
    pub async fn is_not_reached(&self, epoch: i64) {
        self.until("seen", epoch).await;
        let first = self.counters().await;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let now = self.counters().await;
            assert!(now.reached < epoch, "epoch {epoch} is reached");
            if now.renewals >= first.renewals + 5 {
                return;
            }
            assert!(Instant::now() < deadline, "the proxy tells nothing");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn counters(&self) -> Counters {
        let sql = "SELECT seen_counter, counter, renewals FROM shardgate_map.proxy";
        let row = self.map.query_one(sql, &[]).await.expect("one proxy");
        Counters { seen: row.get(0), reached: row.get(1), renewals: row.get(2) }
    }

    /// How many rows the set has.
    pub fn count(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }

    /// What was left behind by [`Moving::switch`] is gone.
    pub async fn tidy(&self) {
        let delete = "DELETE FROM accounts WHERE id = ANY ($1)";
        self.shards[self.target()].execute(delete, &[&self.ids.concat()]).await.expect("rows are deleted");
    }

    /// The proxy knows the newest map.
    pub async fn until_online(&self) {
        let epoch = self.epoch().await;
        self.until("seen", epoch).await;
    }

    async fn epoch(&self) -> i64 {
        self.map.query_one("SELECT counter FROM shardgate_map.cluster", &[]).await.expect("the epoch").get(0)
    }

    /// No client of this user is left.
    pub async fn until_gone(&self, user: &str) {
        let mut watcher = self.client().await;
        let deadline = Instant::now() + Duration::from_secs(20);
        let sql = format!("SELECT count(*) FROM shardgate.clients WHERE \"user\" = '{user}'");
        while watcher.value(&sql).await != "0" {
            assert!(Instant::now() < deadline, "the client does not go");
        }
    }

    /// A shard has taken rows of a COPY. Bytes tell it: since PostgreSQL 18 rows are counted when many have come.
    pub async fn until_copied(&self) {
        let sql = "SELECT coalesce(sum(bytes_processed), 0)::int8 FROM pg_stat_progress_copy";
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.shards[0].query_one(sql, &[]).await.expect("progress").get::<_, i64>(0) == 0 {
            assert!(Instant::now() < deadline, "the rows do not come");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn client(&self) -> WireClient {
        self.stage.client().await
    }

    /// A client that is told from the others by its name.
    pub async fn reader(&self) -> WireClient {
        WireClient::connect_with(self.stage.proxy.address(), &[("user", "reader"), ("database", "app")]).await
    }

    /// Runs these, which must not fail.
    pub async fn run(&self, client: &mut WireClient, statements: &[&str]) {
        for statement in statements {
            succeed(client, &self.fill_in(statement)).await;
        }
    }

    pub async fn ask(&self, client: &mut WireClient, statement: &str) -> String {
        client.ask(&self.fill_in(statement)).await
    }

    /// The proxy works at a statement of this client, which is no other's name.
    pub async fn until_at_work(&self, user: &str) {
        let mut watcher = self.client().await;
        let deadline = Instant::now() + Duration::from_secs(20);
        let sql = format!("SELECT count(*) FROM shardgate.clients WHERE \"user\" = '{user}' AND state LIKE 'active%'");
        while watcher.value(&sql).await == "0" {
            assert!(Instant::now() < deadline, "the statement does not wait");
        }
    }
}

struct Counters {
    seen: i64,
    reached: i64,
    renewals: i64,
}

impl Counters {
    fn of(&self, what: &str) -> i64 {
        match what {
            "seen" => self.seen,
            "reached" => self.reached,
            _ => panic!("{what}"),
        }
    }
}
