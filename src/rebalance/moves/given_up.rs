//! A move that is given up, since one of its shards is lost for good: it ends without it.
//!
//! ```text
//! target lost, before the switch or after a rollback:  … ─► `aborting` ─► `aborted`
//! source lost, after the switch:                `switched`, opened ─► `cleaning_up` ─► `done`
//! ```
//! The map has said that the other shard, the *kept* one, owns the partitions, and that the lost one is in maintenance and owes what it has of
//! the move (`shardmap`'s `owed`). So nothing is asked of the lost one: what the kept shard has for it is taken away, and the move ends. Should
//! the server come back, no statement reaches it before `doctor --fix` has deleted what it has (`crate::rebalance::doctor`).
//!
//! The map may have failed over and have forgotten a switch. Before the other side's gate is opened, the side that gives the set away is
//! told of it, durably: so the kept shard alone can say that the lost one may have taken writes, and then a person has to look.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::direction::Direction;
use super::drive::Driver;
use super::key_set::KeySet;
use super::moved_table::MovedTable;
use super::moving::{Beside, open};
use super::patience::Patience;
use super::site::Site;
use super::states::aborting;
use super::stop::Stop;
use super::{covering_views, deletion, fencing, gates, objects, replication, terms};
use crate::shardmap::{Epoch, Lost, MapSnapshot, Move, MoveServers, MoveState, Shard, ShardId, Term};

pub(super) async fn run(driver: &Driver, (the_move, term): (&Move, Term), beside: &Beside, lost: Lost) -> Result<(), Stop> {
    let map = driver.store.load().await?.snapshot;
    let shard = map.shard_by_name(lost.kept(the_move));
    let shard = shard.ok_or_else(|| Stop::Again(format!("\"{}\" is no shard any more", lost.kept(the_move))))?;
    *beside.primaries.lock() = vec![(shard.id, Arc::clone(&shard.primary))];
    let mut kept = Box::pin(open(shard, (the_move.id, term), Patience::of(the_move))).await?;
    kept.send(objects::SHARED).await?;
    terms::require_newest(&driver.store, (the_move.id, term), kept.take_term().await?).await?;
    let mut ending = Ending { driver, the_move, term, lost, map: &map, kept_id: shard.id, kept, beside };
    ending.confirm_term().await?;
    ending.reach("given_up").await;
    ending.require_owner().await?;
    match (the_move.state, lost) {
        (MoveState::CuttingOver, _) => ending.release().await,
        (MoveState::Aborting, Lost::Target) => Box::pin(ending.abort()).await,
        (MoveState::Switched, Lost::Source) => ending.go_on_without_source().await,
        (MoveState::CleaningUp, Lost::Source) => Box::pin(ending.clear(MoveState::Done)).await,
        (MoveState::Failed, Lost::Source) => ending.advance(MoveState::Switched, json!({})).await,
        (MoveState::Switched | MoveState::CleaningUp, Lost::Target) | (MoveState::Aborting, Lost::Source) => {
            Err(Stop::Failed(format!("shard \"{}\", which is lost, owns the partitions", lost.shard(the_move))))
        }
        (_, Lost::Target) => ending.advance(MoveState::Aborting, aborting::to_remember(&reason(&map, the_move, lost))).await,
        (_, Lost::Source) => Err(Stop::Failed(format!("the move is {} and has lost its source", the_move.state.name()))),
    }
}

fn reason(map: &MapSnapshot, the_move: &Move, lost: Lost) -> String {
    let name = lost.shard(the_move);
    let stays_away = map.shard_by_name(name).map(|shard| if_it_stays_away(map, shard)).unwrap_or_default();
    format!(
        "given up without shard \"{name}\", which is in maintenance: should its server come back, \"shard-rebalance doctor --fix\" deletes what it \
         has of the move; {stays_away}"
    )
}

/// What helps where a shard's server does not come back. Only one that owns nothing can be dropped.
pub(in crate::rebalance) fn if_it_stays_away(map: &MapSnapshot, shard: &Shard) -> String {
    let owned = map.groups.values().flat_map(|group| &group.partitions).filter(|partition| partition.shard == shard.id).count();
    let another = "promote a standby of it or restore a backup, and let shardgate.alter_shard() name that server";
    match (shard.is_home, owned) {
        (true, _) => format!("if it does not, {another}: the home shard cannot be dropped"),
        (false, 0) => format!("if it does not, SELECT shardgate.drop_shard('{}')", shard.name.replace('\'', "''")),
        (false, 1) => format!("if it does not, {another}: it owns 1 partition"),
        (false, owned) => format!("if it does not, {another}: it owns {owned} partitions"),
    }
}

struct Ending<'m> {
    driver: &'m Driver,
    the_move: &'m Move,
    term: Term,
    lost: Lost,
    map: &'m MapSnapshot,
    kept_id: ShardId,
    kept: Site,
    beside: &'m Beside,
}

impl Ending<'_> {
    async fn reach(&self, name: &str) {
        self.driver.points.reach(&format!("move.{name}")).await;
    }

    async fn confirm_term(&self) -> Result<(), Stop> {
        let told = self.beside.progress.lock().clone();
        self.driver.store.keep_move(self.the_move.id, self.term, &told).await?;
        Ok(())
    }

    async fn advance(&self, to: MoveState, remembered: Value) -> Result<(), Stop> {
        let (id, from) = (self.the_move.id, self.the_move.state);
        self.driver.store.advance_move((id, self.term), from, to, remembered, None).await?;
        tracing::info!(
            move_id = id.0,
            from = from.name(),
            to = to.name(),
            "move goes on without shard {}",
            self.lost.shard(self.the_move)
        );
        Ok(())
    }

    /// The kept shard knows of no switch that the map has forgotten.
    async fn require_owner(&mut self) -> Result<(), Stop> {
        // Where it took the set over, and is not opened yet, the residue is its own.
        let has_own = match self.lost {
            Lost::Source => !self.the_move.remembers("opened"),
            Lost::Target => self.the_move.is_rollback,
        };
        let gives_away = format!("SELECT EXISTS (SELECT FROM shardgate.residue WHERE move_id = {})", self.the_move.id.0);
        if has_own || !self.kept.value::<bool>(&gives_away).await? {
            return Ok(());
        }
        Err(Stop::Failed(format!(
            "shard \"{}\" has been told that shard \"{}\" owns the partitions, which the map database has forgotten: rows that were written since \
             are on that shard alone. Promote a standby of it or restore a backup, let shardgate.alter_shard() name it, and see \"What a map \
             forgets\" in docs/failing-over.md",
            self.lost.kept(self.the_move),
            self.lost.shard(self.the_move)
        )))
    }

    /// The owner has kept the set.
    async fn release(&mut self) -> Result<(), Stop> {
        let id = self.the_move.id;
        self.kept.act(&objects::keep_owner(id, self.the_move.group.0)).await?;
        let reason = reason(self.map, self.the_move, self.lost);
        Ok(self.driver.store.release_move(&self.driver.actor, id, self.term, &reason).await?)
    }

    async fn abort(&mut self) -> Result<(), Stop> {
        if self.the_move.is_rollback && !self.the_move.remembers("reopened") {
            self.take_over().await?;
        }
        self.clear(MoveState::Aborted).await
    }

    async fn go_on_without_source(&mut self) -> Result<(), Stop> {
        if !self.the_move.remembers("opened") {
            self.take_over().await?;
        }
        self.reach("given_up_opened").await;
        self.advance(MoveState::CleaningUp, json!({ "finishing": true, "reverse_ended": true })).await
    }

    /// The last acts of the pause. Everything had arrived here, durably, before the map has switched.
    async fn take_over(&mut self) -> Result<(), Stop> {
        let (id, group, store) = (self.the_move.id, self.the_move.group.0, &self.driver.store);
        let decided = objects::decide(id, store.epoch().await?.incarnation);
        self.kept.act(&format!("{decided}{}{}", objects::remove_residue(id, group), objects::open_gate(id))).await?;
        self.reach("given_up_taken_over").await;
        store.cut_over(&self.driver.actor, (id, self.term), MoveServers::default()).await?.open(None).await?;
        Ok(())
    }

    /// All that the kept shard, and others, have of the move.
    async fn clear(&mut self, end: MoveState) -> Result<(), Stop> {
        let id = self.the_move.id;
        self.end_replication().await?;
        self.reach("given_up_freed").await;
        self.remember_owed().await?;
        self.kept.act(&objects::remove_residue(id, self.the_move.group.0)).await?;
        Box::pin(self.uncover_views()).await?;
        gates::remove_from(&mut self.kept, id, &self.driver.store).await?;
        self.reach("given_up_ungated").await;
        self.confirm_primary().await?;
        let given_up = reason(self.map, self.the_move, self.lost);
        let reason = if self.the_move.is_rollback { format!("rolled back; {given_up}") } else { given_up };
        self.driver.store.end_move(&self.driver.actor, (id, self.term), end, Some(&reason)).await?;
        tracing::warn!(move_id = id.0, state = end.name(), reason, "move has ended without one of its shards");
        let records =
            format!("DELETE FROM shardgate.switched WHERE move_id = {0}; DELETE FROM shardgate.term WHERE move_id = {0}", id.0);
        if let Err(error) = self.kept.act(&records).await {
            tracing::debug!(move_id = id.0, %error, "records of a move that has ended are left");
        }
        Ok(())
    }

    /// What was done here was done at the shard's primary, as far as the map knows by now.
    async fn confirm_primary(&self) -> Result<(), Stop> {
        let primaries = self.driver.store.primaries(&[self.kept_id]).await?;
        match primaries.iter().any(|(_, primary)| self.kept.server().is_some_and(|server| server != *primary)) {
            true => Err(Stop::Again(format!("shard \"{}\" has another primary server since", self.kept.name))),
            false => Ok(()),
        }
    }

    /// The kept side publishes one way and subscribes the other.
    async fn end_replication(&mut self) -> Result<(), Stop> {
        let id = self.the_move.id;
        match self.lost {
            Lost::Target => {
                replication::unsubscribe(&mut self.kept, &Direction::Back.name(id)).await?;
                replication::end_copy(&mut self.kept, self.the_move).await
            }
            Lost::Source => {
                replication::unsubscribe(&mut self.kept, &Direction::Forward.name(id)).await?;
                replication::unpublish(&mut self.kept, &Direction::Back.name(id)).await
            }
        }
    }

    /// Which rows the lost shard may have, in the move's journal: its partitions may be split, merged and moved before it comes back.
    async fn remember_owed(&self) -> Result<(), Stop> {
        let group = self.map.group(self.the_move.group);
        let group = group.ok_or_else(|| Stop::Failed("the tables of the group were dropped".to_owned()))?;
        let keys = KeySet::read(&self.driver.store, group, &self.the_move.partitions).await?;
        let tables = MovedTable::of_group(self.map, group, &keys).map_err(|reason| Stop::Failed(reason.0))?;
        let owed: Vec<Value> = tables.iter().map(MovedTable::to_journal).collect();
        self.advance_nowhere(json!({ OWED: owed })).await
    }

    async fn advance_nowhere(&self, remembered: Value) -> Result<(), Stop> {
        let (id, state) = (self.the_move.id, self.the_move.state);
        Ok(self.driver.store.advance_move((id, self.term), state, state, remembered, None).await?)
    }

    async fn uncover_views(&self) -> Result<(), Stop> {
        if !covering_views::are_made(self.the_move) {
            return Ok(());
        }
        let (store, id) = (&self.driver.store, self.the_move.id);
        let ended = store.end_exclusion(&self.driver.actor, id, self.term).await?;
        self.all_reached(ended).await?;
        for shard in covering_views::with_statements(self.map) {
            let mut site = Box::pin(Site::open(shard, id, self.term)).await?;
            covering_views::begin(&mut site).await?;
            self.confirm_term().await?;
            covering_views::remove_from(&mut site, self.the_move).await?;
            self.reach("given_up_uncovered").await;
        }
        Ok(())
    }

    /// Proxies that may reach the kept shard: the lost one is not asked to shut any out.
    async fn all_reached(&self, epoch: Epoch) -> Result<(), Stop> {
        loop {
            let behind = self.driver.store.proxies_behind(epoch, &[self.kept_id]).await?.behind;
            if behind.is_empty() {
                self.beside.progress.lock().error = None;
                return Ok(());
            }
            self.beside.progress.lock().error = Some(fencing::waited_for(&behind, &self.beside.trouble));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// What the lost server has of a move that has ended without it, now that it is back: its rows, and what is known of it there. What bears the
/// move's name is gone by then. No statement reaches the shard.
pub(in crate::rebalance) async fn clean(shard: &Shard, owner: &Shard, the_move: &Move) -> Result<(), String> {
    clean_all(shard, owner, the_move).await.map_err(|stop| stop.reason().to_owned())
}

async fn clean_all(shard: &Shard, owner: &Shard, the_move: &Move) -> Result<(), Stop> {
    let id = the_move.id;
    let tables = owed_rows(the_move).ok_or_else(|| Stop::Failed("the map does not say which rows it may have".to_owned()))?;
    let mut site = Box::pin(Site::open(shard, id, LAST_TERM)).await?;
    site.send(objects::SHARED).await?;
    site.take_term().await?;
    // Outlives a map that forgets that it is clean, and may have given the shard some of these partitions since.
    site.act("CREATE TABLE IF NOT EXISTS shardgate.given_up (move_id int PRIMARY KEY)").await?;
    let is_clean = format!("SELECT EXISTS (SELECT FROM shardgate.given_up WHERE move_id = {})", id.0);
    if !site.value::<bool>(&is_clean).await? {
        let mut owner = Box::pin(Site::open(owner, id, LAST_TERM)).await?;
        deletion::delete_rows(&mut site, &mut owner, &tables).await?;
    }
    let records = format!(
        "{0}; DELETE FROM shardgate.marker WHERE move_id = {1}; DELETE FROM shardgate.switched WHERE move_id = {1}; \
         INSERT INTO shardgate.given_up VALUES ({1}) ON CONFLICT DO NOTHING; DELETE FROM shardgate.term WHERE move_id = {1}",
        objects::remove_residue(id, the_move.group.0),
        id.0
    );
    Ok(site.act(&records).await?)
}

/// Of which tables which rows.
fn owed_rows(the_move: &Move) -> Option<Vec<MovedTable>> {
    the_move.journal.get(OWED)?.as_array()?.iter().map(MovedTable::of_journal).collect()
}

/// In the journal.
const OWED: &str = "owed";
/// Of a move that has ended: any driver of it comes too late.
const LAST_TERM: Term = Term(i64::MAX);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
