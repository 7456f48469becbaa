//! A move in its driver's hands: what it moves, and the connections to both sides.

use std::sync::Arc;
use std::time::Duration;

use super::direction::Direction;
use super::drive::Driver;
use super::fencing::{self, Trouble};
use super::key_set::KeySet;
use super::moved_table::MovedTable;
use super::patience::Patience;
use super::site::{Site, refuse_two_primaries};
use super::stop::Stop;
use crate::config::ShardUrl;
use crate::failpoint::Failpoints;
use crate::shardmap::{
    CutOver, Epoch, Group, MapSnapshot, Move, MoveId, MoveServers, MoveState, Primary, Progress, ProxyBehind, Shard,
    ShardAddresses, ShardId, Store, StoreError, Term,
};

/// Not `Debug`: holds passwords.
pub(super) struct Moving {
    pub(super) store: Store,
    /// For the history of the map.
    pub(super) actor: String,
    pub(super) term: Term,
    pub(super) the_move: Move,
    pub(super) group: Arc<Group>,
    pub(super) keys: KeySet,
    /// As the map has them.
    pub(super) sharded: Vec<MovedTable>,
    /// Those that hold their rows, by the source.
    pub(super) tables: Vec<MovedTable>,
    pub(super) source: Site,
    pub(super) target: Site,
    /// How each reaches the other, as libpq takes it.
    pub(super) to_source: String,
    pub(super) to_target: String,
    pub(super) points: Arc<Failpoints>,
    shards: [Arc<Shard>; 2],
    beside: Beside,
}

/// What a state's work shares with what runs beside it.
#[derive(Clone, Default)]
pub(super) struct Beside {
    /// Told to the map by the heartbeat.
    pub(super) progress: Arc<parking_lot::Mutex<Progress>>,
    /// What is in the way of shutting silent proxies out.
    pub(super) trouble: Arc<Trouble>,
    /// Locked while the slot of the way back must not be advanced.
    pub(super) quiet: Arc<tokio::sync::Mutex<()>>,
    /// Of both sides: who has a connection to a server hears when it is the primary no more.
    pub(super) primaries: Arc<parking_lot::Mutex<Primaries>>,
    /// By which both sides were opened, and reach each other.
    pub(super) addresses: Arc<parking_lot::Mutex<Vec<ShardAddresses>>>,
}

type Primaries = Vec<(ShardId, Arc<Primary>)>;

impl Beside {
    /// What the map knows by now.
    pub(super) async fn learn_primaries(&self, store: &Store) -> Result<(), StoreError> {
        let known = self.primaries.lock().clone();
        let ids: Vec<ShardId> = known.iter().map(|(id, _)| *id).collect();
        for (id, server) in store.primaries(&ids).await? {
            known.iter().filter(|(known, _)| *known == id).for_each(|(_, primary)| primary.learn(server));
        }
        Ok(())
    }

    /// Somebody has given one of the sides another address, or another password.
    pub(super) async fn has_other_addresses(&self, store: &Store) -> Result<bool, StoreError> {
        // Before the sides are opened nothing is known of them, and what is answered now would be of none.
        let known = self.addresses.lock().clone();
        let ids: Vec<ShardId> = self.primaries.lock().iter().map(|(id, _)| *id).collect();
        if known.is_empty() || ids.is_empty() {
            return Ok(false);
        }
        Ok(store.addresses(&ids).await? != known)
    }
}

impl Moving {
    pub(super) async fn open(driver: &Driver, (the_move, term): (Move, Term), beside: Beside) -> Result<Self, Stop> {
        let store = &driver.store;
        let map = store.load().await?.snapshot;
        let group =
            map.group(the_move.group).cloned().ok_or_else(|| Stop::Abort("the tables of the group were dropped".to_owned()))?;
        let keys = KeySet::read(store, &group, &the_move.partitions).await?;
        let sharded = MovedTable::of_group(&map, &group, &keys).map_err(|reason| Stop::Abort(reason.0))?;
        let (source, target) = (shard(&map, &the_move.source)?, shard(&map, &the_move.target)?);
        let replication_urls = store.replication_urls().await?;
        let connection = |shard: &Shard| {
            let url = replication_urls.iter().find(|(name, _)| *name == shard.name).map_or(shard.url.as_str(), |(_, url)| url);
            connection_string(url)
                .ok_or_else(|| Stop::Abort(format!("the replication_url of shard \"{}\" is not valid", shard.name)))
        };
        let (to_source, to_target) = (connection(source)?, connection(target)?);
        let id = the_move.id;
        *beside.addresses.lock() = addresses_in(&replication_urls, [source, target]);
        *beside.primaries.lock() = [source, target].map(|shard| (shard.id, Arc::clone(&shard.primary))).to_vec();
        let patience = Patience::of(&the_move);
        let opening = [source, target].map(|shard| Box::pin(open(shard, (id, term), patience)));
        let [opening_source, opening_target] = opening;
        let (at_source, at_target) = tokio::try_join!(opening_source, opening_target)?;
        for shard in [source, target] {
            tell_primary(driver, shard).await?;
        }
        let (mut at_source, mut at_target) = (at_source, at_target);
        for site in [&mut at_source, &mut at_target] {
            site.has_planted_term = driver.points.has_planted("move.no_term");
        }
        Ok(Self {
            store: store.clone(),
            actor: driver.actor.clone(),
            points: Arc::clone(&driver.points),
            term,
            keys,
            tables: MovedTable::holding_rows_of(&sharded, &mut at_source).await?,
            sharded,
            to_source,
            to_target,
            beside,
            shards: [Arc::clone(source), Arc::clone(target)],
            source: at_source,
            target: at_target,
            the_move,
            group,
        })
    }

    /// Of what has been held before.
    pub(super) async fn cut_over(&self) -> Result<CutOver, Stop> {
        Ok(self.store.cut_over(&self.actor, (self.the_move.id, self.term), self.servers()).await?)
    }

    /// As both sides have shown themselves.
    pub(super) fn servers(&self) -> MoveServers {
        MoveServers { source: self.source.server(), target: self.target.server() }
    }

    pub(super) fn group_id(&self) -> i32 {
        self.group.id.0
    }

    /// To a state of which the proxies need not know.
    pub(super) async fn advance(&mut self, to: MoveState, remembered: serde_json::Value) -> Result<(), Stop> {
        let from = self.the_move.state;
        // What a short turn has found out, no heartbeat has told.
        let told = self.progress().clone();
        self.store.keep_move(self.the_move.id, self.term, &told).await?;
        self.store.advance_move((self.the_move.id, self.term), from, to, remembered, None).await?;
        tracing::info!(move_id = self.the_move.id.0, from = from.name(), to = to.name(), "move goes on");
        self.the_move.state = to;
        Ok(())
    }

    /// In the map's journal, and here.
    pub(super) async fn remember(&mut self, what: &str, value: serde_json::Value) -> Result<(), Stop> {
        let state = self.the_move.state;
        let remembered = serde_json::json!({ what: value });
        self.store.advance_move((self.the_move.id, self.term), state, state, remembered, None).await?;
        self.the_move.journal[what] = value;
        Ok(())
    }

    pub(super) fn progress(&self) -> parking_lot::MutexGuard<'_, Progress> {
        self.beside.progress.lock()
    }

    /// From now on the slot of the way back is advanced by nobody else.
    pub(super) async fn quiet(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.beside.quiet).lock_owned().await
    }

    /// A named point of a move.
    pub(super) async fn reach(&self, name: &str) {
        self.points.reach(&format!("move.{name}")).await;
    }

    /// Is this mistake planted?
    pub(super) fn has_planted(&self, name: &str) -> bool {
        self.points.has_planted(&format!("move.{name}"))
    }

    /// One that both ways have: `held`, and `back_held` on the way back.
    pub(super) async fn reach_on_way(&self, direction: Direction, name: &str) {
        match direction {
            Direction::Forward => self.reach(name).await,
            Direction::Back => self.reach(&format!("back_{name}")).await,
        }
    }

    /// What it waits for, shown with the move.
    pub(super) fn waits_for(&self, reason: Option<String>) {
        self.progress().error = reason;
    }

    /// The source and the target, by the map.
    pub(super) fn both(&self) -> [ShardId; 2] {
        self.shards.each_ref().map(|shard| shard.id)
    }

    /// Waits until no statement runs any more that was planned before this epoch. Not bounded. Cancel safe.
    pub(super) async fn all_reached(&self, epoch: Epoch) -> Result<(), Stop> {
        while !self.is_past(&self.store.proxies_behind(epoch, &self.both()).await?.behind).await {}
        Ok(())
    }

    /// Waits until every proxy has renewed its lease a moment ago, or is shut out: before statements are held for those.
    pub(super) async fn none_is_silent(&self) -> Result<(), Stop> {
        while !self.is_past(&self.store.proxies_silent(RENEWED_WITHIN, &self.both()).await?.behind).await {}
        Ok(())
    }

    /// A standby may have been promoted beside a primary since both sides were opened.
    pub(super) async fn none_is_split(&self) -> Result<(), Stop> {
        let [source, target] = self.shards.each_ref().map(|shard| Box::pin(refuse_two_primaries(shard)));
        tokio::try_join!(source, target)?;
        Ok(())
    }

    /// Nobody is behind; otherwise after a pause. Those that are silent are shut out meanwhile ([`fencing`]).
    async fn is_past(&self, behind: &[ProxyBehind]) -> bool {
        if behind.is_empty() {
            self.waits_for(None);
            return true;
        }
        self.waits_for(Some(fencing::waited_for(behind, &self.beside.trouble)));
        tokio::time::sleep(REACHED_POLL_INTERVAL).await;
        false
    }

    /// A shard that has forgotten a move which has ended takes any term for it: the map says whether the driver still has the move.
    pub(super) async fn confirm_term(&self) -> Result<(), Stop> {
        let told = self.progress().clone();
        self.store.keep_move(self.the_move.id, self.term, &told).await?;
        Ok(())
    }
}

/// By the shards' numbers, as [`Store::addresses`] gives them.
fn addresses_in(replication_urls: &[(String, String)], mut shards: [&Arc<Shard>; 2]) -> Vec<ShardAddresses> {
    shards.sort_by_key(|shard| shard.id);
    let own = |shard: &Shard| replication_urls.iter().find(|(name, _)| *name == shard.name).map(|(_, url)| url.clone());
    shards.iter().map(|shard| (shard.url.clone(), own(shard))).collect()
}

/// One side.
pub(super) async fn open(shard: &Shard, driven: (MoveId, Term), patience: Patience) -> Result<Site, Stop> {
    let opened = Site::open_within(shard, driven, patience.opening()).await?;
    opened.ok_or_else(|| patience.too_slow(&format!("shard \"{}\" does not answer", shard.name)))
}

/// A promotion of which nobody else has told the map yet.
async fn tell_primary(driver: &Driver, shard: &Shard) -> Result<(), Stop> {
    if let Some(server) = shard.primary.untold()
        && let Some(answer) = driver.store.note_primary(&driver.actor, shard.id, server).await?
    {
        shard.primary.note_answer(server, answer);
    }
    Ok(())
}

fn shard<'m>(map: &'m MapSnapshot, name: &str) -> Result<&'m Arc<Shard>, Stop> {
    let found = map.shard_by_name(name).ok_or_else(|| Stop::Abort(format!("there is no shard \"{name}\"")))?;
    Ok(found)
}

/// Keywords and values, as libpq reads them, with the password that this process has. `None`: not a url, or there is no password.
fn connection_string(url: &str) -> Option<String> {
    let url = ShardUrl::parse(url).ok()?;
    let password = url.any_password().ok()?;
    Some(url.conninfo_with(password.as_ref()))
}

const REACHED_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A proxy that lives renews its lease every second.
const RENEWED_WITHIN: Duration = Duration::from_millis(2500);
