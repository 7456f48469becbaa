//! What a running proxy can take over from new settings, and what waits for a restart.

use serde_json::Value;

use super::Config;

impl Config {
    /// The settings that differ and that a running proxy does not take over, by their keys, sorted.
    pub fn changes_for_restart(&self, new: &Config) -> Vec<String> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // A configuration of ours has no value that JSON could not hold.
        flatten("", &serde_json::to_value(self).unwrap_or_default(), &mut ours);
        flatten("", &serde_json::to_value(new).unwrap_or_default(), &mut theirs);
        let differs = |(key, value): &&(String, String)| !theirs.iter().any(|(other, same)| (other, same) == (key, value));
        let mut changed: Vec<String> = ours.iter().filter(differs).map(|(key, _)| key.clone()).collect();
        // Secrets look alike as JSON.
        if self.map.url != new.map.url {
            changed.push("map.url".to_owned());
        }
        changed.retain(|key| !is_taken_over(key));
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

fn is_taken_over(key: &str) -> bool {
    TAKEN_OVER.iter().any(|prefix| key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Leaves with their keys; a list is one leaf.
fn flatten(prefix: &str, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&key, value, leaves);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            leaves.push((prefix.to_owned(), value.to_string()));
        }
    }
}

const TAKEN_OVER: [&str; 4] = ["auth.query", "auth.users", "listen.tls", "log.level"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AuthMethod, Secret, TlsMode, UserConfig};

    #[test]
    fn users_certificates_and_the_log_level_need_no_restart_and_the_rest_does() {
        let config = Config::default();
        let mut new = config.clone();
        new.auth.users.push(UserConfig::default());
        new.listen.tls.mode = TlsMode::Allow;
        new.listen.tls.cert = Some("new.crt".into());
        new.log.level = "debug".into();
        assert!(config.changes_for_restart(&new).is_empty());
        new.auth.method = AuthMethod::Trust;
        new.pool.health.backoff_factor = 3.0;
        new.map.url = Secret::new("postgres://elsewhere/map");
        assert_eq!(config.changes_for_restart(&new), ["auth.method", "map.url", "pool.health.backoff_factor"]);
    }
}
