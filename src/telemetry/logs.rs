//! Where log lines go: standard error, as text for people or JSON for machines, from a level that can be changed while running.

use std::io::IsTerminal;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{LogConfig, LogFormat};

/// Changes the level later, on a reload of the settings.
#[derive(Clone)]
pub struct LogControl {
    filter: reload::Handle<Targets, Registry>,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log.level \"{level}\" is not a level or a list of levels by module")]
    Level { level: String, source: tracing_subscriber::filter::ParseError },
    #[error("logs are set up already")]
    Twice(#[from] TryInitError),
    #[error("the log level could not be changed")]
    Change(#[from] reload::Error),
}

/// Sets up the process's logs. Once, from `main`; tests of the library do without.
pub fn init_logs(settings: &LogConfig) -> Result<LogControl, LogError> {
    let (filter, handle) = reload::Layer::new(targets(&settings.level)?);
    let lines = match settings.format {
        LogFormat::Text => fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(LogControl { filter: handle })
}

impl LogControl {
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        Ok(self.filter.reload(targets(level)?)?)
    }
}

fn targets(level: &str) -> Result<Targets, LogError> {
    level.parse().map_err(|source| LogError::Level { level: level.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_or_lists_by_module() {
        for level in ["info", "off", "info,shardgate::session=debug", "WARN"] {
            assert!(targets(level).is_ok(), "{level}");
        }
        let error = targets("shardgate=loud").err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("log.level \"shardgate=loud\" is not a level or a list of levels by module"));
    }
}
