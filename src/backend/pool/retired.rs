//! A pool whose shard has another address or state now: it gives nothing more out, those who wait in its queue ask the new pool, and
//! connections that are in use are closed when they are given back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{CheckoutError, Pool, Pools};

impl Pool {
    pub(super) fn retired(&self) -> CheckoutError {
        CheckoutError::Retired { shard: self.address.name.clone() }
    }

    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Its shard has another address or state, or is gone.
    pub fn retire(&self) {
        let mut state = self.state.lock();
        self.is_retired.store(true, Ordering::Release);
        let dropped: Vec<_> = state.idle.iter_mut().flat_map(std::mem::take).collect();
        state.open -= dropped.len();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        drop(waiters);
        dropped.into_iter().for_each(|connection| connection.close());
    }

    fn renew(&self, now: Instant) {
        let mut state = self.state.lock();
        state.not_before = state.not_before.max(now);
        let mut dropped = Vec::new();
        for idle in &mut state.idle {
            dropped.extend(idle.extract_if(.., |connection| connection.opened_at < now));
        }
        for _ in &dropped {
            state.open -= 1;
            self.serve_slot(&mut state);
        }
        drop(state);
        dropped.into_iter().for_each(|connection| connection.close());
    }
}

impl Pools {
    /// Retires those that are not to be kept.
    pub fn retire_unless(&self, keep: impl Fn(&Pool) -> bool) {
        let retired: Vec<Arc<Pool>> = self.pools.write().extract_if(|_, pool| !keep(pool)).map(|(_, pool)| pool).collect();
        retired.iter().for_each(|pool| pool.retire());
    }

    /// What a login gets is another thing now: connections whose login has begun before this moment are given out no more.
    pub fn renew(&self) {
        let now = Instant::now();
        self.all().iter().for_each(|pool| pool.renew(now));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{address, pools};
    use super::*;
    use crate::auth::{BackendCredentials, BackendSecret};
    use crate::backend::Checkout;
    use crate::shardmap::{ShardId, ShardState};

    #[tokio::test]
    async fn whoever_waits_in_a_pool_that_is_retired_asks_the_new_one() {
        let pools = pools();
        let (old, new) = ("postgres://postgres@127.0.0.1:1/app", "postgres://postgres@127.0.0.1:2/app");
        let credentials = || BackendCredentials { user: "ada".into(), secret: BackendSecret::None };
        let pool = pools.pool(ShardId(1), address(old, ShardState::Online), credentials(), 1);
        // No place is left: the next one waits.
        {
            let mut state = pool.state.lock();
            (state.open, state.in_use) = (2, 2);
        }
        let waiting = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.checkout(Checkout::First, 0, |_| true).await.map(drop) }
        });
        while pool.describe().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let next = pools.pool(ShardId(1), address(new, ShardState::Online), credentials(), 2);
        assert!(pool.is_retired() && !next.is_retired());
        assert!(matches!(waiting.await.expect("no panic"), Err(CheckoutError::Retired { .. })));
        assert!(matches!(pool.checkout(Checkout::First, 0, |_| true).await.map(drop), Err(CheckoutError::Retired { .. })));
        assert!(Arc::ptr_eq(&next, &pools.pool(ShardId(1), address(new, ShardState::Online), credentials(), 3)));
        // Another state needs connections that are set up in another way.
        let reading = pools.pool(ShardId(1), address(new, ShardState::ReadOnly), credentials(), 3);
        assert!(next.is_retired() && !reading.is_retired());
    }
}
