//! Settings: defaults, then a TOML file, then the environment; read once, checked once, then immutable.
//!
//! `config/shardgate.toml` documents every setting; a test holds it and [`Config::default`] together. The `config` crate
//! merges the layers. It also converts between kinds silently (`max_clients = 99.9` becomes 100, `password = 1.50` becomes
//! `"1.5"`), so `layers` compares each value's kind with the default's before anything is converted.
//!
//! A [`Config`] that [`Config::load`] returned is valid as a whole: nobody after it checks a range again. Errors name the key,
//! the value and what is allowed. Secrets are wrapped ([`Secret`]) and never printed, not even in errors.
//! Nothing here opens a socket or reads a certificate.

mod enums;
mod error;
mod layers;
mod reload;
mod secret;
mod sections;
mod url;
mod validate;
mod verifier;

pub use enums::{AuthMethod, BackendUser, CrossShardIsolation, CrossShardWrites, LogFormat, PoolMode, TlsMode};
pub use error::ConfigError;
pub use secret::Secret;
pub use sections::{
    AdminConfig, AuthConfig, CrossShardConfig, DatabaseConfig, HealthConfig, ListenConfig, ListenTlsConfig, LogConfig, MapConfig,
    MovesConfig, PoolConfig, UserConfig,
};
pub use url::{ClientCertificate, Host, PasswordError, PasswordSource, ShardUrl, SslMode, TargetSession, UrlError};
pub use verifier::ScramVerifier;

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Everything an operator can set, one field a section of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub listen: ListenConfig,
    pub admin: AdminConfig,
    pub map: MapConfig,
    pub database: DatabaseConfig,
    pub pool: PoolConfig,
    pub auth: AuthConfig,
    pub cross_shard: CrossShardConfig,
    pub moves: MovesConfig,
    pub log: LogConfig,
}

impl Config {
    /// Defaults, then the file if there is one, then this process's environment.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with_environment(path, std::env::vars_os())
    }

    /// As [`Config::load`], with the environment given: `SHARDGATE__SECTION__KEY` and its value. Other names are ignored.
    pub fn load_with_environment(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let text = match path {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ConfigError::Read { path: path.display().to_string(), source })?;
                Some((path.display().to_string(), text))
            }
        };
        let config = layers::merge(text.as_ref().map(|(name, text)| (name.as_str(), text.as_str())), environment)?;
        validate::validate(&config)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
