//! How a session hears that the proxy drains, or that its time is over: looked at whenever it waits, so one flag and one waker of its
//! own, without a lock that all sessions share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

#[derive(Default)]
pub struct StopSignal {
    is_set: AtomicBool,
    waker: AtomicWaker,
}

impl StopSignal {
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Ready once it is set. One waiter: the session's task.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_set() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        // Set between the look and the registration.
        if self.is_set() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn who_waits_is_woken() {
        let stop = Arc::new(StopSignal::default());
        let waiting = tokio::spawn({
            let stop = Arc::clone(&stop);
            async move { std::future::poll_fn(|context| stop.poll(context)).await }
        });
        tokio::task::yield_now().await;
        assert!(!stop.is_set());
        stop.set();
        waiting.await.expect("no panic");
        std::future::poll_fn(|context| stop.poll(context)).await;
    }
}
