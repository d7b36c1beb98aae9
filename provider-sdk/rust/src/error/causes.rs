//! How many causes of items' errors one call logs.

use std::cell::Cell;
use std::future::Future;

/// A cloud that is away fails all items of a batch alike.
const SHOWN: usize = 10;

tokio::task_local! {
    static LOGGED: Cell<usize>;
}

/// Runs a call, which counts its own.
pub(crate) async fn counted<T>(call: impl Future<Output = T>) -> T {
    LOGGED.scope(Cell::new(0), call).await
}

/// Whether one more is logged; always outside of a call's own task.
pub(super) fn logs_one_more() -> bool {
    let count = |logged: &Cell<usize>| {
        logged.set(logged.get() + 1);
        logged.get() <= SHOWN
    };
    LOGGED.try_with(count).unwrap_or(true)
}
