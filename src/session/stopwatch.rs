//! How long a client waits for its answers, by the kind of route, and by the shard where there is one.
//!
//! From the first message of a cycle, which is one Query or a pipeline up to its Sync, to its ReadyForQuery. A cycle of several statements
//! counts once, under the widest of their routes. Never by key, user or text.

use std::time::Instant;

use super::Session;
use crate::shardmap::ShardId;
use crate::telemetry::RouteKind;

#[derive(Default)]
pub(super) struct Stopwatch {
    began_at: Option<Instant>,
    route: Option<(RouteKind, Option<ShardId>)>,
}

impl Session {
    /// The first message of a cycle is here.
    #[inline]
    pub(super) fn start_stopwatch(&mut self) {
        if !self.batch.is_open && !self.cycle.is_repeated() {
            self.running.stopwatch = Stopwatch { began_at: Some(Instant::now()), route: None };
        }
    }

    /// A statement is about to run. `shard`: the only one.
    #[inline]
    pub(super) fn count_statement(&mut self, route: RouteKind, shard: Option<ShardId>) {
        self.gateway.counters.statement(route);
        self.note_route(route, shard);
    }

    #[inline]
    pub(super) fn note_route(&mut self, route: RouteKind, shard: Option<ShardId>) {
        if self.running.stopwatch.route.is_none_or(|(widest, _)| widest <= route) {
            self.running.stopwatch.route = Some((route, shard));
        }
    }

    /// The client has its answers.
    #[inline]
    pub(super) fn stop_stopwatch(&mut self) {
        let Stopwatch { began_at, route } = std::mem::take(&mut self.running.stopwatch);
        let Some((began_at, (route, shard))) = began_at.zip(route) else { return };
        match shard.and_then(|shard| self.known_pool(shard)) {
            Some(pool) => pool.counters.answered(began_at.elapsed()),
            None => self.gateway.counters.answered(route, began_at.elapsed()),
        }
    }
}
