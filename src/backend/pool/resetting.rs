//! A connection that its session gives back, where something that is not on record may be on it: see [`crate::backend::reset`].
//!
//! The reset is sent at once. Who takes the connection next reads the answer, and makes sure that nothing has come behind it.

use super::Pooled;
use crate::backend::reset::RESET_TIMEOUT;

impl Pooled {
    /// The answer to a reset that was sent has come, and the connection is clean.
    pub(super) async fn is_reset(&mut self, deadline: tokio::time::Instant) -> bool {
        let Some(connection) = self.connection.as_mut() else { return false };
        let Some(until) = connection.reset_until() else { return true };
        match tokio::time::timeout_at(deadline.min(until.into()), connection.reset()).await {
            // The shard may have ended it since.
            Ok(Ok(())) => connection.is_quiet() && connection.is_clean(),
            reset => {
                tracing::debug!(?reset, "a connection that could not be reset in time is closed");
                false
            }
        }
    }

    /// Whoever takes it next reads the answer. The first one of a connection is a task of its own, which ends with the shard's last answer
    /// or at its deadline; until then the place in the pool is taken.
    pub(super) fn reset(mut self) {
        if self.connection.as_mut().is_some_and(|connection| connection.send_reset()) {
            return self.give_back();
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        tokio::spawn(async move {
            let Some(connection) = self.connection.as_mut() else { return };
            match tokio::time::timeout(RESET_TIMEOUT, connection.reset()).await {
                // What comes after its answer is seen at the next checkout.
                Ok(Ok(())) if connection.is_clean() => self.give_back(),
                reset => tracing::debug!(?reset, "a connection that could not be reset in time is closed"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::AsyncWriteExt;

    use super::super::tests::{ask, connected, has_idle, pools};
    use crate::backend::reset::tests::{answer_to_reset, begin_reset};
    use crate::backend::{Checkout, CheckoutError};
    use crate::wire::shard_tag;

    #[tokio::test]
    async fn a_connection_that_has_ended_since_it_was_reset_is_not_given_out() {
        for has_ended in [false, true] {
            let pool = ask(&pools(), "any", 1);
            let (mut connection, mut shard) = connected(0).await;
            begin_reset(&mut connection);
            shard.write_all(&answer_to_reset()).await.expect("sent");
            while connection.owes() {
                connection.receive_due().expect("no loss");
                tokio::task::yield_now().await;
            }
            if has_ended {
                let farewell = b"SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0";
                let length = u32::try_from(farewell.len() + 4).expect("short").to_be_bytes();
                shard.write_all(&[&[shard_tag::ERROR][..], &length, farewell].concat()).await.expect("sent");
            }
            connection.idle_since = Some(Instant::now());
            has_idle(&pool, connection);
            let told = pool.checkout(Checkout::First, 0, |_| true).await.map(drop);
            match has_ended {
                false => assert!(told.is_ok(), "{told:?}"),
                // There is no server to open another one.
                true => assert!(matches!(told, Err(CheckoutError::Unavailable { .. })), "{told:?}"),
            }
        }
    }
}
