//! What sessions count while they work, each handle looked up once.
//!
//! Counting a statement is one atomic addition. Only errors are looked up by their class each time: there may be many classes,
//! and an error costs far more than the look-up.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::Counter;

use super::histogram::Histogram;
use super::metrics::Metrics;
use super::names::{self, LABEL_CLASS, LABEL_KIND, LABEL_OUTCOME, LABEL_ROUTE, LABEL_SHARD};

/// How a statement was routed.
///
/// In order of how much a statement takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// Answered by the proxy itself, or run on every shard under its control.
    Local,
    SingleShard,
    Scatter,
    Gather,
    /// SQLSTATE 0A000.
    Refused,
}

/// What became of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOutcome {
    /// It got its first ReadyForQuery.
    Login,
    /// It brought a cancel request.
    Cancel,
    /// A wrong password, database or startup parameter.
    Refused,
    /// `listen.max_clients`.
    Limit,
    /// `listen.login_timeout_ms`.
    Timeout,
    /// The client went, did not speak the protocol, or came without TLS where that is required.
    Closed,
}

/// What became of a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// To at least one backend.
    Forwarded,
    /// No session has this key.
    Unknown,
    /// The session runs nothing any more.
    Late,
}

/// The counters of all sessions of one proxy.
#[derive(Debug)]
pub struct Counters {
    metrics: Metrics,
    local: Counter,
    single_shard: Counter,
    scatter: Counter,
    gather: Counter,
    refused: Counter,
    commits: Counter,
    rollbacks: Counter,
    session_panics: Counter,
    repeats: Counter,
    gate_refusals: Counter,
    local_seconds: Arc<Histogram>,
    scatter_seconds: Arc<Histogram>,
    gather_seconds: Arc<Histogram>,
    hold_seconds: Arc<Histogram>,
    login_seconds: Arc<Histogram>,
}

impl Counters {
    pub fn new(metrics: &Metrics) -> Self {
        let route = |route| metrics.counter(names::STATEMENTS, &[(LABEL_ROUTE, route)]);
        let seconds = |route| metrics.histogram(names::STATEMENT_SECONDS, &[(LABEL_ROUTE, route)]);
        let transaction = |outcome| metrics.counter(names::TRANSACTIONS, &[(LABEL_OUTCOME, outcome)]);
        Self {
            local: route("local"),
            single_shard: route("single_shard"),
            scatter: route("scatter"),
            gather: route("gather"),
            refused: route("refused"),
            commits: transaction("commit"),
            rollbacks: transaction("rollback"),
            session_panics: metrics.counter(names::SESSION_PANICS, &[]),
            repeats: metrics.counter(names::REPEATS, &[]),
            gate_refusals: metrics.counter(names::GATE_REFUSALS, &[]),
            local_seconds: seconds("local"),
            scatter_seconds: seconds("scatter"),
            gather_seconds: seconds("gather"),
            hold_seconds: metrics.histogram(names::HOLD_SECONDS, &[]),
            login_seconds: metrics.histogram(names::LOGIN_SECONDS, &[]),
            metrics: metrics.clone(),
        }
    }

    #[inline]
    pub fn statement(&self, route: RouteKind) {
        self.statements(route, 1);
    }

    #[inline]
    pub fn statements(&self, route: RouteKind, count: u64) {
        let counter = match route {
            RouteKind::Local => &self.local,
            RouteKind::SingleShard => &self.single_shard,
            RouteKind::Scatter => &self.scatter,
            RouteKind::Gather => &self.gather,
            RouteKind::Refused => &self.refused,
        };
        counter.increment(count);
    }

    /// A client has its answers. What went to one shard counts there: [`PoolCounters::answered`].
    pub fn answered(&self, route: RouteKind, time: Duration) {
        match route {
            RouteKind::Local => self.local_seconds.record(time),
            RouteKind::Scatter => self.scatter_seconds.record(time),
            RouteKind::Gather => self.gather_seconds.record(time),
            RouteKind::SingleShard | RouteKind::Refused => {}
        }
    }

    /// A statement had to wait for a cut-over.
    pub fn held(&self, time: Duration) {
        self.hold_seconds.record(time);
    }

    /// A statement that met a move is run again.
    pub fn repeated(&self) {
        self.repeats.increment(1);
    }

    /// A shard's gate has refused a statement.
    pub fn refused_by_gate(&self) {
        self.gate_refusals.increment(1);
    }

    /// An error that goes to a client.
    pub fn error(&self, sqlstate: &[u8]) {
        self.metrics.counter(names::STATEMENT_ERRORS, &[(LABEL_CLASS, class(sqlstate))]).increment(1);
    }

    /// The home shard's schema was read.
    pub fn schema_reading(&self, is_full: bool) {
        let kind = if is_full { "full" } else { "changes" };
        self.metrics.counter(names::SCHEMA_READINGS, &[(LABEL_KIND, kind)]).increment(1);
    }

    /// For whoever reads statements.
    pub fn reading_disagreements(&self) -> Counter {
        self.metrics.counter(names::READING_DISAGREEMENTS, &[])
    }

    pub fn commit(&self) {
        self.commits.increment(1);
    }

    pub fn rollback(&self) {
        self.rollbacks.increment(1);
    }

    /// A session ended by a panic.
    pub fn session_panic(&self) {
        self.session_panics.increment(1);
    }

    pub fn connection(&self, outcome: ConnectionOutcome) {
        let outcome = match outcome {
            ConnectionOutcome::Login => "login",
            ConnectionOutcome::Cancel => "cancel",
            ConnectionOutcome::Refused => "refused",
            ConnectionOutcome::Limit => "limit",
            ConnectionOutcome::Timeout => "timeout",
            ConnectionOutcome::Closed => "closed",
        };
        self.metrics.counter(names::CONNECTIONS, &[(LABEL_OUTCOME, outcome)]).increment(1);
    }

    /// From accept to the first ReadyForQuery.
    pub fn login_took(&self, time: Duration) {
        self.login_seconds.record(time);
    }

    pub fn cancel(&self, outcome: CancelOutcome) {
        let outcome = match outcome {
            CancelOutcome::Forwarded => "forwarded",
            CancelOutcome::Unknown => "unknown",
            CancelOutcome::Late => "late",
        };
        self.metrics.counter(names::CANCELS, &[(LABEL_OUTCOME, outcome)]).increment(1);
    }
}

/// The counters of one pool.
#[derive(Debug)]
pub struct PoolCounters {
    connects: Counter,
    failures: Counter,
    losses: Counter,
    wait_seconds: Arc<Histogram>,
    statement_seconds: Arc<Histogram>,
}

impl PoolCounters {
    pub fn new(metrics: &Metrics, shard: &str) -> Self {
        let statements = [(LABEL_ROUTE, "single_shard"), (LABEL_SHARD, shard)];
        let connects = |outcome| metrics.counter(names::SHARD_CONNECTS, &[(LABEL_SHARD, shard), (LABEL_OUTCOME, outcome)]);
        Self {
            connects: connects("ok"),
            failures: connects("failed"),
            losses: metrics.counter(names::SHARD_LOSSES, &[(LABEL_SHARD, shard)]),
            wait_seconds: metrics.histogram(names::POOL_WAIT_SECONDS, &[(LABEL_SHARD, shard)]),
            statement_seconds: metrics.histogram(names::STATEMENT_SECONDS, &statements),
        }
    }

    /// A client has its answers, all of them from this shard.
    #[inline]
    pub fn answered(&self, time: Duration) {
        self.statement_seconds.record(time);
    }

    pub fn connected(&self) {
        self.connects.increment(1);
    }

    pub fn failed(&self) {
        self.failures.increment(1);
    }

    pub fn lost(&self) {
        self.losses.increment(1);
    }

    /// Only of sessions that had to wait.
    pub fn waited(&self, time: Duration) {
        self.wait_seconds.record(time);
    }
}

/// Counters that another part of the proxy keeps: set to what they are there.
pub fn set_map_counters(metrics: &Metrics, full_loads: u64, delta_loads: u64, lookup_queries: u64, lookup_keys: u64) {
    metrics.counter(names::MAP_LOADS, &[(LABEL_KIND, "full")]).absolute(full_loads);
    metrics.counter(names::MAP_LOADS, &[(LABEL_KIND, "changes")]).absolute(delta_loads);
    metrics.counter(names::LOOKUP_QUERIES, &[]).absolute(lookup_queries);
    metrics.counter(names::LOOKUP_KEYS, &[]).absolute(lookup_keys);
}

/// The first two characters; what is no SQLSTATE counts as an internal error.
fn class(sqlstate: &[u8]) -> &str {
    let class = sqlstate.get(..2).filter(|class| class.iter().all(u8::is_ascii_alphanumeric));
    class.and_then(|class| std::str::from_utf8(class).ok()).unwrap_or("XX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_appears_under_its_labels() {
        let metrics = Metrics::new().expect("built");
        let counters = Counters::new(&metrics);
        counters.statement(RouteKind::SingleShard);
        counters.statements(RouteKind::SingleShard, 2);
        counters.error(b"23505");
        counters.error(b"\0");
        counters.rollback();
        counters.reading_disagreements().increment(4);
        counters.schema_reading(false);
        counters.connection(ConnectionOutcome::Limit);
        counters.cancel(CancelOutcome::Late);
        PoolCounters::new(&metrics, "one").failed();
        set_map_counters(&metrics, 1, 5, 2, 7);
        let text = metrics.render();
        for line in [
            "shardgate_statements_total{route=\"single_shard\"} 3",
            "shardgate_statements_total{route=\"refused\"} 0",
            "shardgate_statement_errors_total{class=\"23\"} 1",
            "shardgate_statement_errors_total{class=\"XX\"} 1",
            "shardgate_transactions_total{outcome=\"rollback\"} 1",
            "shardgate_reading_disagreements_total 4",
            "shardgate_schema_readings_total{kind=\"changes\"} 1",
            "shardgate_client_connections_total{outcome=\"limit\"} 1",
            "shardgate_cancel_requests_total{outcome=\"late\"} 1",
            "shardgate_shard_connects_total{shard=\"one\",outcome=\"failed\"} 1",
            "shardgate_map_loads_total{kind=\"changes\"} 5",
            "shardgate_lookup_keys_total 7",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
