//! What ALTER ROLE ... SET and ALTER DATABASE ... SET give to logins.
//!
//! PostgreSQL reads these defaults at login. Here a session may be served by connections that are older or newer than its own login, so
//! each session names the values that it goes by:
//!
//! ```text
//! the defaults have changed ─► connections opened before are given out no more ─► a later login learns from one that is new
//!                           └► a session from before names the values of its own login, where it did not name them already
//! ```
//! The home shard's defaults are read with its schema. So a change through any proxy counts for every login after it, and one made at
//! the shard itself for logins some seconds later. A change that comes through this proxy is announced to its sessions before the first
//! shard commits it; of others, a session may see the new value on a connection that is opened before the schema is read.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::backend::Settings;
use crate::backend::schema_reader::StoredDefault;
use crate::catalog::Catalog;
use crate::session::gateway::Gateway;
use crate::session::protocol::greet::Greeting;
use crate::sql::ddl::role_defaults::{RoleDefault, role_default};

/// The defaults of this database, by the last reading.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct Defaults {
    stored: Vec<StoredDefault>,
    /// Those that may be stored at any moment: statements of this proxy's clients have named them.
    expected: BTreeSet<RoleDefault>,
}

impl Defaults {
    /// What a session of this login names from now on that it did not name before: the values that it had.
    pub fn kept(&self, greeting: &Greeting, named: &Settings) -> Vec<(String, String)> {
        let unnamed = self.names_of(&greeting.role).into_iter().filter(|name| named.get(name).is_none());
        unnamed
            .filter_map(|name| {
                // A custom setting that was not set had no value, and never has none again.
                let value = greeting.at_login.get(&name).or_else(|| name.contains('.').then_some(""))?.to_owned();
                Some((name, value))
            })
            .collect()
    }

    /// Names of the settings that a login as this role may be given.
    fn names_of(&self, role: &str) -> BTreeSet<String> {
        let is_meant = |of: Option<&str>| of.is_none_or(|of| of == role);
        let stored = self.stored.iter().filter(|default| is_meant(default.role.as_deref()));
        let stored = stored.filter_map(|default| default.setting.split_once('=')).map(|(name, _)| name.to_ascii_lowercase());
        let expected = self.expected.iter().filter(|default| is_meant(default.role.as_deref()));
        stored.chain(expected.map(|default| default.name.clone())).collect()
    }
}

impl Gateway {
    /// The home shard has these. True: they are others than before.
    pub(in crate::session) fn follow_defaults(&self, stored: &[StoredDefault]) -> bool {
        let known = self.defaults.load_full();
        if known.stored == stored {
            return false;
        }
        // Before they are known: who learns by them finds no connection from before.
        self.pools.renew();
        self.defaults.store(Arc::new(Defaults { stored: stored.to_vec(), expected: known.expected.clone() }));
        true
    }

    /// This statement may store a default: sessions that are there name the value that they have.
    pub(in crate::session) async fn expect_default(&self, text: &str) {
        let Some(default) = role_default(text) else { return };
        // Who reads the schema changes the same.
        let _reader = self.control.schema_readers().home().await;
        let known = self.defaults.load_full();
        if known.expected.contains(&default) {
            return;
        }
        let mut expected = known.expected.clone();
        if expected.len() >= EXPECTED_MAX {
            expected.pop_first();
        }
        expected.insert(default);
        self.defaults.store(Arc::new(Defaults { stored: known.stored.clone(), expected }));
        let catalog = Catalog::clone(&self.catalog.load());
        self.catalog.store(Arc::new(Catalog { version: catalog.version + 1, ..catalog }));
    }
}

/// Names of settings, of roles.
const EXPECTED_MAX: usize = 10_000;
