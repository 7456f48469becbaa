//! Tasks that a proxy cannot serve without: recovery, deadlocks, numbers, the map.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;

/// A defect that panics at once would otherwise fill the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs a task that ends when it is told to, and begins it anew where it panics: without it the proxy would go on, and nobody
/// would notice that, for instance, nothing is recovered any more.
pub fn keep_running<S, F>(name: &'static str, state: S, task: impl Fn(S) -> F + Send + 'static) -> JoinHandle<()>
where
    S: Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        while let Err(error) = tokio::spawn(task(state.clone())).await {
            // Not a panic: the runtime ends.
            if error.is_cancelled() {
                return;
            }
            tracing::error!(task = name, %error, "a background task has panicked and begins anew");
            tokio::time::sleep(PAUSE).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::keep_running;

    #[tokio::test]
    async fn a_task_that_panics_begins_anew_until_it_ends() {
        let begun = Arc::new(AtomicUsize::new(0));
        let task = keep_running("test", Arc::clone(&begun), |begun| async move {
            assert!(begun.fetch_add(1, Ordering::Relaxed) > 0, "on purpose");
        });
        task.await.expect("it ends as its task does");
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }
}
