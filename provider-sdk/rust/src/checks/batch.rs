//! Ensures that a batch's response contains each key exactly once and no other key, and logs which items failed.

use std::collections::HashMap;

use tonic::Code;

use crate::ProviderError;
use crate::proto::{
    InstanceResult, ItemError, LoadBalancerUpdateResult, RouteDeletion, RouteResult, UpdateOutcome,
    VolumeResult,
};

/// The number of keys that one log line lists, and of items that a batch's log names: a cloud that is away fails all alike.
const SHOWN: usize = 10;

/// The keys of a batch, each with the name of its object.
pub(crate) type Asked = Vec<(String, String)>;

/// The result of one item of a batch.
pub(crate) trait Keyed {
    /// The key of the item.
    fn key(&self) -> &str;

    /// Its error, if it failed.
    fn error(&self) -> Option<&ItemError>;

    /// The result of an item that failed.
    fn failed(key: &str, error: ItemError) -> Self;
}

impl Keyed for LoadBalancerUpdateResult {
    fn key(&self) -> &str {
        &self.service_uid
    }

    fn error(&self) -> Option<&ItemError> {
        self.error.as_ref()
    }

    fn failed(key: &str, error: ItemError) -> Self {
        let outcome = UpdateOutcome::NotUpdated.into();
        Self { service_uid: key.to_owned(), outcome, error: Some(error), ..Self::default() }
    }
}

macro_rules! keyed {
    ($($result:ty),*) => {$(
        impl Keyed for $result {
            fn key(&self) -> &str {
                &self.key
            }

            fn error(&self) -> Option<&ItemError> {
                self.error.as_ref()
            }

            fn failed(key: &str, error: ItemError) -> Self {
                Self { key: key.to_owned(), error: Some(error), ..Self::default() }
            }
        }
    )*};
}

keyed!(InstanceResult, RouteResult, RouteDeletion, VolumeResult);

/// Repairs the results of a batch: drops unrequested keys, and marks missing or duplicate ones as unknown.
///
/// The host would do the same; here the log names keys and objects for the team that can fix the provider.
pub(crate) fn settle<R: Keyed>(asked: &Asked, results: &mut Vec<R>) {
    let mut given: HashMap<&str, usize> = asked.iter().map(|(key, _)| (key.as_str(), 0)).collect();
    let mut strange = Vec::new();
    for result in &*results {
        match given.get_mut(result.key()) {
            Some(count) => *count += 1,
            None => strange.push(result.key().to_owned()),
        }
    }
    results.retain(|result| given.get(result.key()) == Some(&1));
    log_failed(asked, results);
    let lacking: Vec<&String> =
        asked.iter().map(|(key, _)| key).filter(|key| given[key.as_str()] != 1).collect();
    if lacking.is_empty() && strange.is_empty() {
        return;
    }
    strange.truncate(SHOWN);
    let shown: Vec<_> = lacking.iter().take(SHOWN).collect();
    tracing::error!(lacking = ?shown, ?strange, "the response of a batch does not contain each key exactly once");
    results.extend(lacking.into_iter().map(|key| R::failed(key, no_single_answer())));
}

/// Logs the errors of items as those of calls are: what the provider itself did wrong is a warning.
fn log_failed<R: Keyed>(asked: &Asked, results: &[R]) {
    let failed: Vec<_> = results.iter().filter_map(|result| Some((result.key(), result.error()?))).collect();
    if failed.is_empty() {
        return;
    }
    let names: HashMap<&str, &str> = asked.iter().map(|(key, name)| (key.as_str(), name.as_str())).collect();
    for (key, error) in failed.iter().take(SHOWN) {
        let (item, reason) = (names[key], error.reason().wire_name());
        if error.reason().code() == Code::Internal {
            tracing::warn!(item, reason, "{}", error.message);
        } else {
            tracing::info!(item, reason, "{}", error.message);
        }
    }
    if failed.len() > SHOWN {
        tracing::warn!(items = failed.len() - SHOWN, "more items of the batch failed");
    }
}

fn no_single_answer() -> ItemError {
    ProviderError::internal("the provider did not return exactly one result for this item").to_item()
}
