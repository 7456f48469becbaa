//! The users of the settings, ready for logins: verifiers for all, also for those that do not exist.
//!
//! Passwords are hashed once, here. A name that is not listed gets a verifier too, made from the name and a secret of this
//! process, so that its salt is the same each time and nobody can tell who exists.

use std::collections::HashMap;
use std::sync::Arc;

use super::scram::{ITERATIONS, ScramKeys, hmac};
use super::scram_server::Subject;
use super::shard_login::BackendSecret;
use crate::config::{AuthConfig, ScramVerifier, Secret};

pub(super) struct Users {
    by_name: HashMap<String, User>,
    /// Makes salts: of users with a password, and of nobody.
    salt_secret: [u8; 32],
}

pub(super) struct User {
    pub is_admin: bool,
    verifier: Option<ScramVerifier>,
    password: Option<Secret>,
}

impl Users {
    pub(super) fn new(settings: &AuthConfig) -> Self {
        let mut users = Self { by_name: HashMap::new(), salt_secret: rand::random() };
        for user in &settings.users {
            let derive =
                |password: &Secret| ScramKeys::derive(password.reveal().as_bytes(), &users.salt(&user.name), ITERATIONS).verifier();
            let verifier = user.verifier.clone().or_else(|| user.password.as_ref().map(derive));
            let entry = User { is_admin: user.admin, verifier, password: user.password.clone() };
            users.by_name.insert(user.name.clone(), entry);
        }
        users
    }

    pub(super) fn find(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// Whom a login under this name is checked against. `found`: the verifier of one who is not listed.
    pub(super) fn subject(&self, name: &str, found: Option<ScramVerifier>) -> Subject {
        match self.find(name).map_or(found, |user| user.verifier.clone()) {
            Some(verifier) => Subject::Known(verifier),
            None => Subject::Nobody(ScramVerifier {
                iterations: ITERATIONS.get(),
                salt: self.salt(name),
                stored_key: hmac(&self.salt_secret, &[b"stored key", name.as_bytes()]),
                server_key: hmac(&self.salt_secret, &[b"server key", name.as_bytes()]),
            }),
        }
    }

    /// 16 bytes, as PostgreSQL's.
    fn salt(&self, name: &str) -> Vec<u8> {
        hmac(&self.salt_secret, &[b"salt", name.as_bytes()]).iter().copied().take(16).collect()
    }
}

impl User {
    /// What the settings hold for logging in to shards, before any proof.
    pub(super) fn backend_secret(&self) -> BackendSecret {
        self.password.clone().map_or(BackendSecret::None, BackendSecret::Password)
    }

    /// The password, or else the keys that the client's proof gave.
    pub(super) fn backend_secret_with(&self, keys: ScramKeys) -> BackendSecret {
        self.password.clone().map_or_else(|| BackendSecret::Keys(Arc::new(keys)), BackendSecret::Password)
    }
}
