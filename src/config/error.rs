//! Why a configuration was not accepted: which key, what value, what is allowed, and where it was set.

/// One reason; the first that was found.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read configuration file \"{path}\"")]
    Read { path: String, source: std::io::Error },
    #[error("configuration file \"{path}\" is not TOML: {reason}")]
    Syntax { path: String, reason: String },
    #[error("unknown setting {key} ({origin}): allowed here are {allowed}")]
    Unknown { key: String, origin: String, allowed: String },
    #[error("bad value {value} for {key}{}: {allowed}", origin_suffix(.origin))]
    Invalid { key: String, value: String, allowed: String, origin: Option<String> },
    /// A word or address that its type refused; the reason quotes it, unless it is a secret.
    #[error("bad value for {key}{}: {reason}", origin_suffix(.origin))]
    Rejected { key: String, reason: String, origin: Option<String> },
    #[error("{key} is not set: {allowed}")]
    Missing { key: String, allowed: String },
}

impl ConfigError {
    /// A value that was read but is not allowed; `allowed` is a phrase that follows a colon.
    pub(super) fn invalid(key: &str, value: impl std::fmt::Debug, allowed: impl Into<String>) -> Self {
        Self::Invalid { key: key.into(), value: format!("{value:?}"), allowed: allowed.into(), origin: None }
    }
}

fn origin_suffix(origin: &Option<String>) -> String {
    origin.as_ref().map(|origin| format!(" ({origin})")).unwrap_or_default()
}
