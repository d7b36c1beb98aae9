//! The causes of item errors, on their way to the log of their batch: the message has no field for what must not leave the
//! process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;

use crate::proto::ItemError;

tokio::task_local! {
    /// Keyed by the address of an item's text, which stays wherever the item is moved.
    static KEPT: RefCell<HashMap<usize, String>>;
}

/// Runs a batch whose causes are kept for its log.
pub(crate) async fn kept<T>(batch: impl Future<Output = T>) -> T {
    KEPT.scope(RefCell::default(), batch).await
}

/// Keeps the cause of an item; false outside a batch's own task, where nobody would log it.
pub(super) fn keep(item: &ItemError, cause: String) -> bool {
    KEPT.try_with(|kept| kept.borrow_mut().insert(item.message.as_ptr().addr(), cause)).is_ok()
}

/// Takes the cause of an item.
pub(crate) fn take(item: &ItemError) -> Option<String> {
    KEPT.try_with(|kept| kept.borrow_mut().remove(&item.message.as_ptr().addr())).ok().flatten()
}

/// Takes the causes that belong to no item any more: it was copied.
pub(crate) fn rest() -> Vec<String> {
    KEPT.try_with(|kept| kept.take().into_values().collect()).unwrap_or_default()
}
