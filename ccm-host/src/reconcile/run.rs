//! The shell of a controller: waits for its caches, works its queue, and ends.

use std::{future::Future, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::kube::{
    Slim,
    cache::{Cache, Change},
    queue::{self, Key, Outcome, WorkQueue},
};

/// Runs a controller until the token is cancelled and its last key is done.
pub type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// A controller that works a queue.
pub trait Reconciler: Send + Sync + 'static {
    type Key: Key;

    /// Maximum keys reconciled at once.
    const AT_ONCE: usize;

    fn queue(&self) -> &WorkQueue<Self::Key>;

    /// Returns once the caches hold what the controller needs and feed its queue.
    fn begin(self: &Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// What runs beside the queue: sweeps, and what providers report.
    fn background(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Outcome> + Send;
}

/// Runs the controller until cancelled. Cancelling aborts calls and writes in flight; nothing is written afterwards.
pub fn run<R: Reconciler>(controller: Arc<R>) -> Run {
    Box::new(|cancel| work(controller, cancel).boxed())
}

async fn work<R: Reconciler>(controller: Arc<R>, cancel: CancellationToken) {
    if until_cancelled(&cancel, controller.begin()).await.is_none() {
        return;
    }
    let reconciled = queue::run(controller.queue().clone(), R::AT_ONCE, cancel.clone(), |key| {
        let (controller, cancel) = (Arc::clone(&controller), cancel.clone());
        async move { until_cancelled(&cancel, controller.reconcile(&key)).await.unwrap_or(Outcome::Done) }
    });
    tokio::join!(reconciled, until_cancelled(&cancel, controller.background()));
}

/// The result of `work`; `None` if it was cancelled, which drops it where it waits.
pub async fn until_cancelled<T>(cancel: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        // Polled first: work that could go on at this moment writes nothing any more.
        biased;
        () = cancel.cancelled() => None,
        result = work => Some(result),
    }
}

/// Shows the controller every change in a cache, for as long as it exists. `see` must not block.
pub fn follow<C, T>(controller: &Arc<C>, cache: &Cache<T>, see: fn(&C, &Change<T>))
where
    C: Send + Sync + 'static,
    T: Slim,
{
    let controller = Arc::downgrade(controller);
    cache.subscribe(move |change| {
        if let Some(controller) = controller.upgrade() {
            see(&controller, change);
        }
    });
}
