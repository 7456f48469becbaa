//! The sections of the configuration as types, with their defaults.
//!
//! Field names are the names in the file; units are the last word of a name. `config/shardgate.toml` says what each does;
//! [`super::validate`] knows the ranges. A setting in milliseconds has a method without the unit that gives a `Duration`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::{AuthMethod, BackendUser, CrossShardIsolation, CrossShardWrites, LogFormat, PoolMode, ScramVerifier, Secret, TlsMode};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenConfig {
    #[serde(deserialize_with = "socket_address")]
    pub address: SocketAddr,
    pub tls: ListenTlsConfig,
    pub max_clients: u32,
    pub login_timeout_ms: u64,
    pub startup_packet_bytes_max: u32,
    pub backlog: u32,
    /// 0: one runtime per core, and one on two cores.
    pub threads: u32,
    pub drain_timeout_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenTlsConfig {
    pub mode: TlsMode,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    #[serde(deserialize_with = "socket_address")]
    pub address: SocketAddr,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MapConfig {
    /// The only setting without a default.
    pub url: Secret,
    pub migrate: bool,
    pub lookup_cache_entries: u64,
    pub poll_interval_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    pub mode: PoolMode,
    pub size_per_shard: u32,
    pub late_joiner_share: f64,
    pub checkout_timeout_ms: u64,
    pub maintenance_timeout_ms: u64,
    /// 0: never.
    pub idle_timeout_ms: u64,
    /// 0: never.
    pub max_lifetime_ms: u64,
    pub connect_timeout_ms: u64,
    pub unasked_bytes_max: u64,
    pub health: HealthConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    pub backoff_base_ms: u64,
    pub backoff_factor: f64,
    pub backoff_jitter: f64,
    pub backoff_max_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    pub method: AuthMethod,
    pub backend_user: BackendUser,
    /// Asks the home shard for the verifier of a user that is not listed.
    pub query: Option<String>,
    pub users: Vec<UserConfig>,
}

/// One entry of `[[auth.users]]`. Under scram-sha-256 it has exactly one of password and verifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserConfig {
    pub name: String,
    pub password: Option<Secret>,
    pub verifier: Option<ScramVerifier>,
    /// May call the functions that change the cluster.
    pub admin: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CrossShardConfig {
    pub writes: CrossShardWrites,
    pub isolation: CrossShardIsolation,
    pub gather_bytes_max: u64,
    pub stay_bytes_min: u64,
    pub merge_bytes_max: u64,
    pub row_bytes_max: u64,
    pub cursors_max: u32,
    pub fan_out_max: u32,
    pub commit_timeout_ms: u64,
    pub sequence_block: u32,
    pub statement_bytes_max: u64,
    pub prepared_statements_max: u32,
    pub prepared_bytes_max: u64,
    pub idle_in_pipeline_timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MovesConfig {
    pub grace_ms: u64,
    pub driver_lease_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    pub format: LogFormat,
    pub level: String,
}

impl ListenConfig {
    /// From accept to the first ReadyForQuery.
    pub fn login_timeout(&self) -> Duration {
        Duration::from_millis(self.login_timeout_ms)
    }

    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }
}

impl MapConfig {
    pub fn poll_interval(&self) -> Duration {
        Duration::from_millis(self.poll_interval_ms)
    }
}

impl PoolConfig {
    pub fn checkout_timeout(&self) -> Duration {
        Duration::from_millis(self.checkout_timeout_ms)
    }

    pub fn maintenance_timeout(&self) -> Duration {
        Duration::from_millis(self.maintenance_timeout_ms)
    }

    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub fn idle_timeout(&self) -> Option<Duration> {
        (self.idle_timeout_ms > 0).then(|| Duration::from_millis(self.idle_timeout_ms))
    }

    pub fn max_lifetime(&self) -> Option<Duration> {
        (self.max_lifetime_ms > 0).then(|| Duration::from_millis(self.max_lifetime_ms))
    }
}

impl HealthConfig {
    pub fn backoff_base(&self) -> Duration {
        Duration::from_millis(self.backoff_base_ms)
    }

    pub fn backoff_max(&self) -> Duration {
        Duration::from_millis(self.backoff_max_ms)
    }
}

impl CrossShardConfig {
    pub fn commit_timeout(&self) -> Duration {
        Duration::from_millis(self.commit_timeout_ms)
    }

    pub fn idle_in_pipeline_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_in_pipeline_timeout_ms)
    }
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            address: loopback(6432),
            tls: ListenTlsConfig::default(),
            max_clients: 10_000,
            login_timeout_ms: 15_000,
            startup_packet_bytes_max: 10_000,
            backlog: 1024,
            threads: 0,
            drain_timeout_ms: 30_000,
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { address: loopback(6433) }
    }
}

impl Default for MapConfig {
    fn default() -> Self {
        Self { url: Secret::default(), migrate: true, lookup_cache_entries: 1_000_000, poll_interval_ms: 1000 }
    }
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self { name: "app".into() }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            mode: PoolMode::default(),
            size_per_shard: 50,
            late_joiner_share: 0.25,
            checkout_timeout_ms: 5000,
            maintenance_timeout_ms: 30_000,
            idle_timeout_ms: 600_000,
            max_lifetime_ms: 3_600_000,
            connect_timeout_ms: 5000,
            unasked_bytes_max: 16 << 20,
            health: HealthConfig::default(),
        }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { backoff_base_ms: 100, backoff_factor: 2.0, backoff_jitter: 0.2, backoff_max_ms: 1000 }
    }
}

impl Default for CrossShardConfig {
    fn default() -> Self {
        Self {
            writes: CrossShardWrites::default(),
            isolation: CrossShardIsolation::default(),
            gather_bytes_max: 256 << 20,
            stay_bytes_min: 1 << 20,
            merge_bytes_max: 64 << 20,
            row_bytes_max: 256 << 20,
            cursors_max: 16,
            fan_out_max: 256,
            commit_timeout_ms: 10_000,
            sequence_block: 1000,
            statement_bytes_max: 64 << 20,
            prepared_statements_max: 10_000,
            prepared_bytes_max: 128 << 20,
            idle_in_pipeline_timeout_ms: 60_000,
        }
    }
}

impl Default for MovesConfig {
    fn default() -> Self {
        Self { grace_ms: 900_000, driver_lease_ms: 4000 }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::default(), level: "info".into() }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The standard library's own message says neither the value nor what is expected.
fn socket_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!("{text:?} is not an address: expected IP:PORT, such as 127.0.0.1:6432 or [::]:6432"))
    })
}
