//! Where the verifiers of users come from whom the settings do not list.

use futures::future::BoxFuture;

use crate::config::ScramVerifier;
use crate::error::PgError;

/// Asked at each login of a user who is not listed.
pub trait VerifierSource: Send + Sync {
    /// `None`: there is no such user, or it may not log in. An error is what the client is told.
    fn verifier<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Option<ScramVerifier>, PgError>>;

    /// Its password was not the right one: what is known of it may be out of date.
    fn forget(&self, user: &str);
}
