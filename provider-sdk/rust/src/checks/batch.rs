//! Ensures that a batch's response contains each key exactly once and no other key.

use std::collections::HashMap;

use crate::ProviderError;
use crate::proto::{
    InstanceResult, ItemError, LoadBalancerUpdateResult, RouteDeletion, RouteResult, UpdateOutcome,
    VolumeResult,
};

/// The number of unrequested keys that one log line lists.
const SHOWN: usize = 10;

/// The result of one item of a batch.
pub(crate) trait Keyed {
    /// The key of the item.
    fn key(&self) -> &str;

    /// The result of an item that failed.
    fn failed(key: &str, error: ItemError) -> Self;
}

impl Keyed for LoadBalancerUpdateResult {
    fn key(&self) -> &str {
        &self.service_uid
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

            fn failed(key: &str, error: ItemError) -> Self {
                Self { key: key.to_owned(), error: Some(error), ..Self::default() }
            }
        }
    )*};
}

keyed!(InstanceResult, RouteResult, RouteDeletion, VolumeResult);

/// Repairs the results of a batch: drops unrequested keys, and marks missing or duplicate ones as unknown.
///
/// The host would do the same; here the log names the keys for the team that can fix the provider.
pub(crate) fn settle<R: Keyed>(asked: &[String], results: &mut Vec<R>) {
    let mut given: HashMap<&str, usize> = asked.iter().map(|key| (key.as_str(), 0)).collect();
    let mut strange = Vec::new();
    for result in &*results {
        match given.get_mut(result.key()) {
            Some(count) => *count += 1,
            None => strange.push(result.key().to_owned()),
        }
    }
    let lacking: Vec<&String> = asked.iter().filter(|key| given[key.as_str()] != 1).collect();
    if lacking.is_empty() && strange.is_empty() {
        return;
    }
    strange.truncate(SHOWN);
    tracing::error!(?lacking, ?strange, "the response of a batch does not contain each key exactly once");
    results.retain(|result| given.get(result.key()) == Some(&1));
    results.extend(lacking.into_iter().map(|key| R::failed(key, no_single_answer())));
}

fn no_single_answer() -> ItemError {
    ProviderError::internal("the provider did not return exactly one result for this item").to_item()
}
