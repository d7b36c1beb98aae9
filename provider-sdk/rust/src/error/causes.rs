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

/// How many causes without an item the log shows: a cloud that is away fails all alike.
const SHOWN: usize = 10;

/// Runs a call whose causes are kept for the log of its items, and logs the others: of an item that was copied, or is in a list.
pub(crate) async fn kept<T>(call: impl Future<Output = T>) -> T {
    let call = async {
        let answer = call.await;
        for cause in KEPT.with(RefCell::take).into_values().take(SHOWN) {
            tracing::warn!(cause, "the error of an item");
        }
        answer
    };
    KEPT.scope(RefCell::default(), call).await
}

/// Keeps the cause of a new item, if it has one; false outside a call's own task, where nobody would log it.
pub(super) fn keep(item: &ItemError, cause: Option<String>) -> bool {
    let keep = |kept: &RefCell<HashMap<_, _>>| match cause {
        Some(cause) => kept.borrow_mut().insert(address(item), cause),
        // The text of an item that is gone may have been at the same place.
        None => kept.borrow_mut().remove(&address(item)),
    };
    KEPT.try_with(keep).is_ok()
}

/// Takes the cause of an item.
pub(crate) fn take(item: &ItemError) -> Option<String> {
    KEPT.try_with(|kept| kept.borrow_mut().remove(&address(item))).ok().flatten()
}

fn address(item: &ItemError) -> usize {
    item.message.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderError;

    #[tokio::test]
    async fn an_item_does_not_inherit_the_cause_of_one_that_is_gone() {
        let bare = ProviderError::cloud_api_unavailable;
        kept(async {
            for _ in 0..100 {
                drop(bare().with_source("no route").to_item());
                assert_eq!(take(&bare().to_item()), None);
            }
        })
        .await;
    }
}
