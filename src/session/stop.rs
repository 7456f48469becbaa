//! How a session hears that the proxy drains, or that its time is over: looked at whenever it waits, so one flag and one waker of its
//! own, without a lock that all sessions share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

#[derive(Default)]
pub struct StopSignal {
    is_set: AtomicBool,
    wants_look: AtomicBool,
    waker: AtomicWaker,
}

impl StopSignal {
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The waiter is woken once, to look around. The flag is set between taking the waker and waking it: who has seen it registers again.
    pub fn look(&self) {
        let waker = self.waker.take();
        self.wants_look.store(true, Ordering::Release);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// It was woken for that; its waker is used up.
    pub fn takes_look(&self) -> bool {
        self.wants_look.load(Ordering::Acquire) && self.wants_look.swap(false, Ordering::AcqRel)
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
    async fn who_is_to_look_is_woken_and_still_hears_the_signal() {
        let stop = Arc::new(StopSignal::default());
        let waiting = tokio::spawn({
            let stop = Arc::clone(&stop);
            async move {
                let mut looks = 0;
                std::future::poll_fn(|context| {
                    looks += u32::from(stop.takes_look());
                    stop.poll(context)
                })
                .await;
                looks
            }
        });
        tokio::task::yield_now().await;
        stop.look();
        tokio::task::yield_now().await;
        stop.set();
        assert_eq!(waiting.await.expect("no panic"), 1);
    }

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
