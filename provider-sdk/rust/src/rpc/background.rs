//! A provider's background work, until it returns. `core` ends it with its term.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time;

use crate::proto::ClusterRef;
use crate::provider::WhileLeading;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs the work, and again after a panic: its term may last for months, and nobody else does the work meanwhile.
pub(super) async fn run(WhileLeading(work): WhileLeading, cluster: ClusterRef) {
    let mut pause = FIRST_PAUSE;
    // The panic's message was logged where it happened.
    while AssertUnwindSafe(async { work(cluster.clone()).await }).catch_unwind().await.is_err() {
        tracing::error!(
            cluster_uid = cluster.uid,
            ?pause,
            "the background work panicked; it runs again after a pause"
        );
        time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_each_panic_it_waits_longer_up_to_a_minute() {
        let (start, runs) = (time::Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&runs);
        let work = move |_| {
            let mut runs = seen.lock();
            runs.push(start.elapsed().as_secs());
            let last = runs.len() == 9;
            // Both while it creates its future, and within.
            assert!(last || runs.len() % 2 == 0, "it cannot begin");
            async move { assert!(last, "it cannot go on") }.boxed()
        };
        run(WhileLeading(Arc::new(work)), ClusterRef::default()).await;
        assert_eq!(*runs.lock(), [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    }
}
