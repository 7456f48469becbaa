//! Every metric of the proxy and every label: what it counts, in which unit. The only place with their names.
//!
//! Labels have few values: kinds, outcomes, names of shards. Never a user, a statement or a key.

use ::metrics::Unit;

/// One metric as it is described to Prometheus.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub const BUILD_INFO: &str = "shardgate_build_info";
pub const CLIENTS: &str = "shardgate_clients";
pub const CLIENTS_MAX: &str = "shardgate_clients_max";
pub const CONNECTIONS: &str = "shardgate_client_connections_total";
pub const LOGIN_SECONDS: &str = "shardgate_login_seconds";
pub const CANCELS: &str = "shardgate_cancel_requests_total";
pub const STATEMENTS: &str = "shardgate_statements_total";
pub const STATEMENT_SECONDS: &str = "shardgate_statement_seconds";
pub const STATEMENT_ERRORS: &str = "shardgate_statement_errors_total";
pub const READING_DISAGREEMENTS: &str = "shardgate_reading_disagreements_total";
pub const SESSION_PANICS: &str = "shardgate_session_panics_total";
pub const TRANSACTIONS: &str = "shardgate_transactions_total";
pub const POOL_CONNECTIONS: &str = "shardgate_pool_connections";
pub const POOL_WAITING: &str = "shardgate_pool_waiting_sessions";
pub const POOL_WAIT_SECONDS: &str = "shardgate_pool_wait_seconds";
pub const SHARD_CONNECTS: &str = "shardgate_shard_connects_total";
pub const SHARD_LOSSES: &str = "shardgate_shard_connections_lost_total";
pub const SHARD_UP: &str = "shardgate_shard_up";
pub const SHARD_SPLIT: &str = "shardgate_shard_split";
pub const MAP_EPOCH: &str = "shardgate_map_epoch";
pub const MAP_LOADS: &str = "shardgate_map_loads_total";
pub const MAP_REACHABLE: &str = "shardgate_map_reachable";
pub const SCHEMA_READINGS: &str = "shardgate_schema_readings_total";
pub const LOOKUP_QUERIES: &str = "shardgate_lookup_queries_total";
pub const LOOKUP_KEYS: &str = "shardgate_lookup_keys_total";
pub const HOLD_SECONDS: &str = "shardgate_hold_seconds";
pub const REPEATS: &str = "shardgate_repeated_statements_total";
pub const GATE_REFUSALS: &str = "shardgate_gate_refusals_total";
pub const MOVES: &str = "shardgate_moves";
pub const MOVE_ROWS: &str = "shardgate_move_rows";
pub const MOVE_BYTES: &str = "shardgate_move_bytes";
pub const MOVE_LAG_BYTES: &str = "shardgate_move_lag_bytes";
pub const PREPARED_TRANSACTIONS: &str = "shardgate_prepared_transactions";
pub const PREPARED_SECONDS_MAX: &str = "shardgate_prepared_transactions_seconds_max";

/// How a route was: `local`, `single_shard`, `scatter`, `gather`, `refused`.
pub const LABEL_ROUTE: &str = "route";
/// The shards that a move leads from and to, by name.
pub const LABEL_SOURCE: &str = "source";
pub const LABEL_TARGET: &str = "target";
/// A shard's name.
pub const LABEL_SHARD: &str = "shard";
/// How it ended; the values are the metric's.
pub const LABEL_OUTCOME: &str = "outcome";
/// Of connections `active`, `idle`; of moves as in `shardgate.moves`.
pub const LABEL_STATE: &str = "state";
/// The first two characters of an SQLSTATE.
pub const LABEL_CLASS: &str = "class";
/// What is counted together; the values are the metric's.
pub const LABEL_KIND: &str = "kind";
/// The package's version.
pub const LABEL_VERSION: &str = "version";

/// All of them, described at start so that a scrape explains itself.
pub const ALL: [Metric; 34] = [
    gauge(BUILD_INFO, Unit::Count, "Always 1; the label says which version runs."),
    gauge(CLIENTS, Unit::Count, "Client sessions, from login on."),
    gauge(CLIENTS_MAX, Unit::Count, "Client connections allowed, before and after login (listen.max_clients)."),
    counter(CONNECTIONS, "Client connections by outcome: login, cancel, refused, limit, timeout, closed."),
    histogram(LOGIN_SECONDS, "From accept to the first ReadyForQuery."),
    counter(CANCELS, "Cancel requests by outcome: forwarded, unknown, late."),
    counter(STATEMENTS, "Statements by route."),
    histogram(
        STATEMENT_SECONDS,
        "What a client waits for, from the first message of a Query or a pipeline to ReadyForQuery, by route; of single_shard by shard.",
    ),
    counter(STATEMENT_ERRORS, "Errors sent to clients by SQLSTATE class."),
    counter(READING_DISAGREEMENTS, "Statements whose two readings differ, so that they were not narrowed to fewer shards."),
    counter(SESSION_PANICS, "Sessions that ended by an error in the proxy itself: its log says where."),
    counter(TRANSACTIONS, "Transaction blocks by outcome: commit, rollback. A statement outside of one is not counted."),
    gauge(POOL_CONNECTIONS, Unit::Count, "Connections to a shard by state: active, idle."),
    gauge(POOL_WAITING, Unit::Count, "Sessions that wait for a connection to a shard."),
    histogram(POOL_WAIT_SECONDS, "Time in the queue for a connection to a shard, of sessions that had to wait."),
    counter(SHARD_CONNECTS, "Connections opened to a shard by outcome: ok, failed."),
    counter(SHARD_LOSSES, "Connections to a shard that have ended by themselves: it was stopped, or lies beyond a broken network."),
    gauge(SHARD_UP, Unit::Count, "1 while a shard can be reached, 0 while connecting to it fails."),
    gauge(SHARD_SPLIT, Unit::Count, "1 while two servers of a shard are primaries of the same timeline, so that none is used."),
    gauge(MAP_EPOCH, Unit::Count, "The epoch of the shard map that this proxy routes by."),
    counter(MAP_LOADS, "Times that the shard map was read, by kind: full, changes."),
    gauge(MAP_REACHABLE, Unit::Count, "1 while the map database can be reached."),
    counter(SCHEMA_READINGS, "Readings of the home shard's schema by kind: full, or what has changed since the last one."),
    counter(LOOKUP_QUERIES, "Queries to the map database for lookup keys that were not in memory."),
    counter(LOOKUP_KEYS, "Lookup keys that these queries asked for."),
    histogram(HOLD_SECONDS, "Waits of statements for a partition that is held by a move's cut-over."),
    counter(REPEATS, "Statements that met a move and were run again by the proxy."),
    counter(GATE_REFUSALS, "Statements that a shard's gate has refused because of a move: they were run again, or got 40001."),
    gauge(MOVES, Unit::Count, "Moves by state, those that have ended left out."),
    gauge(MOVE_ROWS, Unit::Count, "Rows that running moves have copied, by source and target."),
    gauge(MOVE_BYTES, Unit::Bytes, "Bytes that running moves have copied, by source and target."),
    gauge(MOVE_LAG_BYTES, Unit::Bytes, "WAL of the source that the target has not applied yet, of running moves."),
    gauge(PREPARED_TRANSACTIONS, Unit::Count, "Transactions over several shards that recovery's last look has found prepared."),
    gauge(PREPARED_SECONDS_MAX, Unit::Seconds, "Age of the oldest of these: more than a few seconds is a transaction in doubt."),
];

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, help }
}

/// Gauges that have a value for each shard.
pub const SHARD_GAUGES: [&str; 4] = [POOL_CONNECTIONS, POOL_WAITING, SHARD_UP, SHARD_SPLIT];

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, unit: Unit::Seconds, help }
}

/// Upper bounds of every histogram's buckets, in seconds.
pub const BUCKETS_SECONDS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_prometheus_s_rules_and_are_described_once() {
        let mut names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
        for metric in ALL {
            assert!(metric.name.starts_with("shardgate_"));
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Histogram, metric.name.ends_with("_seconds"), "{}", metric.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
