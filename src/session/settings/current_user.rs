//! As whom the session's statements run, which is what `"$user"` in a search path means.
//!
//! With `auth.backend_user = "shard"` a connection is logged in as the user of the shard's URL, whoever the client is. Where the URLs
//! name different users and a schema is called like one of them, `"$user"` would be another schema on each shard: what reads names is
//! refused then, until the search path or the role says what is meant.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::config::BackendUser;
use crate::config::ShardUrl;
use crate::error::PgError;
use crate::session::Session;
use crate::shardmap::{Epoch, MapSnapshot};

/// The roles of the session, and of the shards.
#[derive(Debug, Default)]
pub(in crate::session) struct Roles {
    shard_users: ShardUsers,
    /// `is_superuser` of the roles that the session has taken, by their names.
    pub superusers: HashMap<String, String>,
}

/// The users of the shards' URLs, where these are what connections are logged in as.
#[derive(Debug, Default)]
struct ShardUsers {
    /// Of the map that they are from.
    epoch: Option<Epoch>,
    home: Option<Arc<str>>,
    /// Of the other shards, without the home shard's.
    others: BTreeSet<String>,
}

impl ShardUsers {
    fn of(map: &MapSnapshot) -> Self {
        let user = |url: &str| ShardUrl::parse(url).ok().map(|url| url.user);
        let home = map.home().and_then(|home| user(&home.url));
        let others = map.shards.iter().filter_map(|shard| user(&shard.url)).filter(|user| Some(user) != home.as_ref()).collect();
        Self { epoch: Some(map.epoch), home: home.map(Arc::from), others }
    }
}

impl Session {
    /// As SET ROLE or SET SESSION AUTHORIZATION say; else as whom the home shard is logged in to.
    pub(in crate::session) fn current_user(&self) -> &str {
        let role = self.effective("role").filter(|role| *role != "none");
        let login = || self.roles.shard_users.home.as_deref().unwrap_or(&self.login.identity.user);
        role.or_else(|| self.effective("session_authorization")).unwrap_or_else(login)
    }

    /// Are the shards' users, as this map has them, other ones than before?
    pub(in crate::session) fn learn_shard_users(&mut self, map: &MapSnapshot) -> bool {
        if self.gateway.config.auth.backend_user != BackendUser::Shard || self.roles.shard_users.epoch == Some(map.epoch) {
            return false;
        }
        let before = std::mem::replace(&mut self.roles.shard_users, ShardUsers::of(map));
        before.home != self.roles.shard_users.home || before.others != self.roles.shard_users.others
    }

    /// A schema that `"$user"`, which the search path has, would mean on some shards only, where no role says whom it means.
    pub(in crate::session) fn find_schema_of_one_user(&self, schemas: &[String]) -> Option<String> {
        let users = &self.roles.shard_users;
        let is_of_one = |schema: &&String| users.home.as_deref() == Some(schema.as_str()) || users.others.contains(*schema);
        schemas.iter().find(is_of_one).filter(|_| !users.others.is_empty()).cloned()
    }

    /// Before a statement's names are read by shards.
    pub(in crate::session) fn check_user_schema(&self) -> Result<(), PgError> {
        let Some(schema) = &self.reading.schema_of_one_user else { return Ok(()) };
        let has_role = self.effective("role").is_some_and(|role| role != "none");
        if has_role || self.effective("session_authorization").is_some() {
            return Ok(());
        }
        Err(PgError::unsupported(
            "\"$user\" in search_path is not supported where the shards' users differ",
            format!("The URLs of the shards name different users, and schema \"{schema}\" belongs to one of them only."),
            "SET search_path without \"$user\", or let the URLs of all shards name the same user.",
        ))
    }
}
