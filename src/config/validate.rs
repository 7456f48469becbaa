//! Ranges, and what one setting demands of another. Runs once, after the layers are merged.
//!
//! The ranges are those that `config/shardgate.toml` documents.

use std::collections::HashSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{AuthConfig, AuthMethod, Config, ConfigError, ListenConfig, PoolConfig, ShardUrl, TlsMode, UserConfig};

pub(super) fn validate(config: &Config) -> Result<(), ConfigError> {
    listen(&config.listen)?;
    map(config)?;
    name("database.name", &config.database.name)?;
    pool(&config.pool)?;
    auth(&config.auth, &config.listen)?;
    cross_shard(config)?;
    within("moves.grace_ms", config.moves.grace_ms, 0..=30 * DAY_MS)?;
    within("moves.driver_lease_ms", config.moves.driver_lease_ms, 2000..=60_000)?;
    config.log.level.parse::<tracing_subscriber::filter::Targets>().map(drop).map_err(|_| {
        ConfigError::invalid(
            "log.level",
            &config.log.level,
            "expected off, error, warn, info, debug or trace, or such words for modules, as in \"info,shardgate::session=debug\"",
        )
    })
}

fn listen(listen: &ListenConfig) -> Result<(), ConfigError> {
    within("listen.max_clients", listen.max_clients, 1..=1_000_000)?;
    within("listen.login_timeout_ms", listen.login_timeout_ms, 100..=600_000)?;
    within("listen.startup_packet_bytes_max", listen.startup_packet_bytes_max, 200..=10_000)?;
    within("listen.backlog", listen.backlog, 1..=65_535)?;
    within("listen.threads", listen.threads, 0..=1024)?;
    within("listen.drain_timeout_ms", listen.drain_timeout_ms, 0..=DAY_MS)?;
    let tls = &listen.tls;
    if tls.mode != TlsMode::Off {
        let missing = |key: &str| ConfigError::Missing {
            key: key.into(),
            allowed: "expected the path of a PEM file, since listen.tls.mode is not off".into(),
        };
        if tls.cert.is_none() {
            return Err(missing("listen.tls.cert"));
        }
        if tls.key.is_none() {
            return Err(missing("listen.tls.key"));
        }
    }
    match &tls.client_ca {
        Some(path) if tls.mode != TlsMode::Require => Err(ConfigError::invalid(
            "listen.tls.client_ca",
            path,
            "needs listen.tls.mode = \"require\", or a client could leave TLS out and with it the certificate",
        )),
        Some(_) | None => Ok(()),
    }
}

fn map(config: &Config) -> Result<(), ConfigError> {
    let map = &config.map;
    if map.url.is_empty() {
        return Err(ConfigError::Missing { key: "map.url".into(), allowed: URL_EXPECTED.into() });
    }
    // The relations of the schema shardgate are read there as on a shard: it is an address like theirs.
    ShardUrl::parse(map.url.reveal()).map_err(|error| ConfigError::invalid("map.url", &map.url, error.to_string()))?;
    within("map.lookup_cache_entries", map.lookup_cache_entries, 1000..=1_000_000_000)?;
    within("map.poll_interval_ms", map.poll_interval_ms, 100..=60_000)
}

fn pool(pool: &PoolConfig) -> Result<(), ConfigError> {
    within("pool.size_per_shard", pool.size_per_shard, 2..=100_000)?;
    within("pool.late_joiner_share", pool.late_joiner_share, 0.0..=0.9)?;
    within("pool.checkout_timeout_ms", pool.checkout_timeout_ms, 1..=HOUR_MS)?;
    within("pool.maintenance_timeout_ms", pool.maintenance_timeout_ms, 0..=HOUR_MS)?;
    within("pool.idle_timeout_ms", pool.idle_timeout_ms, 0..=30 * DAY_MS)?;
    within("pool.max_lifetime_ms", pool.max_lifetime_ms, 0..=30 * DAY_MS)?;
    within("pool.connect_timeout_ms", pool.connect_timeout_ms, 10..=600_000)?;
    within("pool.unasked_bytes_max", pool.unasked_bytes_max, 1 << 20..=1 << 40)?;
    let health = &pool.health;
    within("pool.health.backoff_base_ms", health.backoff_base_ms, 1..=60_000)?;
    within("pool.health.backoff_factor", health.backoff_factor, 1.0..=10.0)?;
    within("pool.health.backoff_jitter", health.backoff_jitter, 0.0..=1.0)?;
    within("pool.health.backoff_max_ms", health.backoff_max_ms, health.backoff_base_ms..=600_000)
}

fn cross_shard(config: &Config) -> Result<(), ConfigError> {
    let limits = &config.cross_shard;
    within("cross_shard.gather_bytes_max", limits.gather_bytes_max, 64 << 10..=1 << 40)?;
    within("cross_shard.stay_bytes_min", limits.stay_bytes_min, 0..=1 << 40)?;
    within("cross_shard.merge_bytes_max", limits.merge_bytes_max, 64 << 10..=1 << 40)?;
    within("cross_shard.row_bytes_max", limits.row_bytes_max, 64 << 10..=1 << 30)?;
    within("cross_shard.cursors_max", limits.cursors_max, 1..=10_000)?;
    within("cross_shard.fan_out_max", limits.fan_out_max, 1..=100_000)?;
    within("cross_shard.commit_timeout_ms", limits.commit_timeout_ms, 100..=HOUR_MS)?;
    within("cross_shard.sequence_block", limits.sequence_block, 1..=1_000_000)?;
    within("cross_shard.statement_bytes_max", limits.statement_bytes_max, 1024..=1 << 30)?;
    within("cross_shard.prepared_statements_max", limits.prepared_statements_max, 1..=1_000_000)?;
    within("cross_shard.prepared_bytes_max", limits.prepared_bytes_max, 1024..=1 << 40)?;
    within("cross_shard.idle_in_pipeline_timeout_ms", limits.idle_in_pipeline_timeout_ms, 100..=DAY_MS)
}

fn auth(auth: &AuthConfig, listen: &ListenConfig) -> Result<(), ConfigError> {
    if auth.method == AuthMethod::Trust && !listen.address.ip().is_loopback() {
        return Err(ConfigError::invalid(
            "auth.method",
            "trust",
            format!("allowed only where listen.address is a loopback address, not {}: use \"scram-sha-256\"", listen.address),
        ));
    }
    if let Some(query) = &auth.query {
        if auth.method == AuthMethod::Trust {
            let allowed = "allowed only under auth.method = \"scram-sha-256\": without it nobody is asked for a password";
            return Err(ConfigError::invalid("auth.query", query, allowed));
        }
        if !query.contains("$1") {
            let allowed = "expected a query that takes the user's name as its parameter $1";
            return Err(ConfigError::invalid("auth.query", query, allowed));
        }
    }
    let mut seen = HashSet::new();
    for (at, user) in auth.users.iter().enumerate() {
        let key = format!("auth.users[{at}]");
        name(&format!("{key}.name"), &user.name)?;
        if !seen.insert(user.name.as_str()) {
            return Err(ConfigError::invalid(&format!("{key}.name"), &user.name, "each user is listed once"));
        }
        secret(&key, user, auth.method)?;
    }
    Ok(())
}

fn secret(key: &str, user: &UserConfig, method: AuthMethod) -> Result<(), ConfigError> {
    if let Some(password) = &user.password
        && (password.is_empty() || password.reveal().contains('\0') || password.reveal().len() > PASSWORD_BYTES_MAX)
    {
        let allowed = format!("expected 1 to {PASSWORD_BYTES_MAX} bytes without NUL");
        return Err(ConfigError::invalid(&format!("{key}.password"), password, allowed));
    }
    match (&user.password, &user.verifier, method) {
        (Some(_), Some(_), _) => Err(ConfigError::invalid(
            &format!("{key}.verifier"),
            &user.verifier,
            format!("user \"{}\" has both a password and a verifier: leave one out", user.name),
        )),
        (None, None, AuthMethod::ScramSha256) => Err(ConfigError::Missing {
            key: format!("{key}.password"),
            allowed: format!("user \"{}\" needs a password or a verifier under auth.method = \"scram-sha-256\"", user.name),
        }),
        (None, None, AuthMethod::Trust) | (Some(_), None, _) | (None, Some(_), _) => Ok(()),
    }
}

/// A name as PostgreSQL takes it for a database or role.
fn name(key: &str, value: &str) -> Result<(), ConfigError> {
    if value.is_empty() || value.len() > NAME_BYTES_MAX || value.contains('\0') {
        return Err(ConfigError::invalid(key, value, format!("expected a name of 1 to {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn within<T: PartialOrd + Display + std::fmt::Debug>(key: &str, value: T, range: RangeInclusive<T>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::invalid(key, value, format!("expected {} to {}", range.start(), range.end())))
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// PostgreSQL's NAMEDATALEN less its closing NUL.
const NAME_BYTES_MAX: usize = 63;
const PASSWORD_BYTES_MAX: usize = 1024;
const URL_EXPECTED: &str = "expected the map database as postgres://USER:PASSWORD@HOST:PORT/DATABASE";
