//! How many files the process may have open, which is how many sockets, and how many the settings may need.
//!
//! The limit that a shell or a service manager gives is often 1024, with a higher one that the process may take by itself. At the
//! limit neither clients are accepted nor shards reached, so it is raised at start, and what does not fit then is said at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{BackendUser, Config};

/// Connections that may be open although `listen.max_clients` are connected, until they have said what they want.
pub const STANDING_MAX: usize = 256;

/// The listeners, the map, the admin HTTP, recovery, declarations, files.
const OTHERS: u64 = 256;

/// Takes what the process may have. Returns how many files it may have open now.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many files a proxy that is started from here could have open.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// How many files may be open at a time when everything that the settings allow is used.
pub fn needed(config: &Config, shards: usize) -> u64 {
    // One pool for each shard and user.
    let users = match config.auth.backend_user {
        BackendUser::Shard => 1,
        BackendUser::Client => config.auth.users.len().max(1),
    };
    let pools = u64::try_from(shards.saturating_mul(users)).unwrap_or(u64::MAX);
    let pooled = pools.saturating_mul(u64::from(config.pool.size_per_shard));
    u64::from(config.listen.max_clients).saturating_add(pooled).saturating_add(STANDING_MAX as u64 + OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UserConfig;

    #[test]
    fn the_limit_is_raised_to_what_the_process_may_have() {
        let limit = getrlimit(Resource::Nofile);
        let lower = limit.current.map(|current| current - 1);
        setrlimit(Resource::Nofile, Rlimit { current: lower, maximum: limit.maximum }).expect("lowered");
        assert_eq!(raise_limit(), limit.maximum.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }

    #[test]
    fn each_client_and_each_place_in_a_pool_counts() {
        let mut config = Config::default();
        (config.listen.max_clients, config.pool.size_per_shard) = (1000, 20);
        config.auth.backend_user = BackendUser::Shard;
        config.auth.users = vec![UserConfig::default(), UserConfig::default()];
        assert_eq!(needed(&config, 3), 1000 + 3 * 20 + 512);
        config.auth.backend_user = BackendUser::Client;
        assert_eq!(needed(&config, 3), 1000 + 2 * 3 * 20 + 512);
        assert_eq!(needed(&config, usize::MAX), u64::MAX);
    }
}
