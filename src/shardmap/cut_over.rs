//! The changes of the map that hold, switch and open the partitions of a move, by one connection of its own.
//!
//! Statements wait between the first and the last of them. A server's process reads much when it does something for the first time
//! (functions, tables, plans), which takes longer than the change itself; so a cut-over is rehearsed: one call makes all three changes and
//! takes them back, and the statements that make them later are prepared. What the map would refuse it refuses then, before anybody waits.

use std::time::Duration;

use super::changes::read;
use super::error::StoreError;
use super::model::{Epoch, ShardId};
use super::moves::{MoveId, Term};
use super::primary::PrimaryServer;
use super::proxies::ProxiesSeen;
use super::store::{Kept, Store};

/// With which servers of both sides a driver works; `None`: they were not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MoveServers {
    pub source: Option<PrimaryServer>,
    pub target: Option<PrimaryServer>,
}

/// Of one move, under one driver's term.
pub struct CutOver {
    kept: Kept,
    actor: String,
    id: MoveId,
    term: Term,
    servers: MoveServers,
}

impl Store {
    pub async fn cut_over(&self, actor: &str, (id, term): (MoveId, Term), servers: MoveServers) -> Result<CutOver, StoreError> {
        Ok(CutOver { kept: self.kept().await?, actor: actor.to_owned(), id, term, servers })
    }

    /// The same, rehearsed.
    pub async fn rehearsed_cut_over(
        &self,
        actor: &str,
        driven: (MoveId, Term),
        servers: MoveServers,
    ) -> Result<CutOver, StoreError> {
        let mut cut_over = self.cut_over(actor, driven, servers).await?;
        cut_over.rehearse().await?;
        Ok(cut_over)
    }
}

impl CutOver {
    async fn rehearse(&mut self) -> Result<(), StoreError> {
        let MoveServers { source, target } = self.servers;
        let query = sqlx::query("SELECT shardgate_map.rehearse_cut_over($1, $2, $3, $4, $5, $6, $7)::text")
            .bind(&*self.actor)
            .bind(self.id.0)
            .bind(self.term.0)
            .bind(source.map(|server| server.system_identifier))
            .bind(source.map(|server| server.timeline))
            .bind(target.map(|server| server.system_identifier))
            .bind(target.map(|server| server.timeline));
        self.kept.change(query).await?;
        for sql in [HOLD, SWITCH, OPEN] {
            self.kept.prepare(sql).await?;
        }
        self.not_drained(Epoch::default(), &[]).await?;
        Ok(())
    }

    /// The epoch from which on statements of the set wait.
    pub async fn hold(&mut self) -> Result<Epoch, StoreError> {
        let query = sqlx::query(HOLD).bind(&*self.actor).bind(self.id.0).bind(self.term.0);
        epoch(&self.kept.change(query).await?)
    }

    /// The point of no return. Where the outcome is unknown, the move's state tells it. `held`: of a map that has failed over since
    /// nothing is switched, nor where one of the servers is not its shard's primary any more.
    pub async fn switch(&mut self, held: Epoch) -> Result<(), StoreError> {
        let MoveServers { source, target } = self.servers;
        let query = sqlx::query(SWITCH)
            .bind(&*self.actor)
            .bind(self.id.0)
            .bind(self.term.0)
            .bind(held.incarnation)
            .bind(source.map(|server| server.system_identifier))
            .bind(source.map(|server| server.timeline))
            .bind(target.map(|server| server.system_identifier))
            .bind(target.map(|server| server.timeline));
        self.kept.change(query).await.map(drop)
    }

    /// The epoch by which statements of the set go on at the new owner.
    pub async fn open(&mut self, pause: Option<Duration>) -> Result<Epoch, StoreError> {
        let pause = pause.map(|pause| pause.as_secs_f64() * 1000.0);
        let query = sqlx::query(OPEN).bind(&*self.actor).bind(self.id.0).bind(self.term.0).bind(pause);
        epoch(&self.kept.change(query).await?)
    }

    /// Proxies that may have statements which were planned before the hold and may still reach these shards, or transactions that pass it.
    pub async fn not_drained(&mut self, held: Epoch, shards: &[ShardId]) -> Result<ProxiesSeen, StoreError> {
        ProxiesSeen::not_drained(&mut self.kept, held, shards).await
    }
}

fn epoch(row: &sqlx::postgres::PgRow) -> Result<Epoch, StoreError> {
    Ok(Epoch { incarnation: read(row, 0)?, counter: read(row, 1)? })
}

const HOLD: &str = "SELECT h.incarnation, h.counter FROM shardgate_map.hold_move($1, $2, $3) h";
const SWITCH: &str = "SELECT shardgate_map.switch_move($1, $2, $3, $4, $5, $6, $7, $8)::text";
const OPEN: &str = "SELECT o.incarnation, o.counter FROM shardgate_map.open_move($1, $2, $3, $4) o";
