//! What a provider advertises, with the contract's defaults filled in.

use std::time::Duration;

use cloudprovider_proto::defaults;

use crate::proto::{Capability, GetCapabilitiesResponse, Intervals, Limits};

/// What a provider advertises: the response of GetCapabilities, and the values that this crate uses.
#[derive(Debug, Clone)]
pub(crate) struct Advertised {
    pub(crate) answer: GetCapabilitiesResponse,
    /// None is left to its default.
    pub(crate) limits: Limits,
    pub(crate) bookmark_interval: Duration,
    pub(crate) watch_max_age: Duration,
}

impl Advertised {
    pub(crate) fn new(answer: GetCapabilitiesResponse) -> Self {
        let mut limits = answer.limits.clone().unwrap_or_default();
        let unset = [
            (&mut limits.max_batch_instances, defaults::MAX_BATCH),
            (&mut limits.max_batch_load_balancers, defaults::MAX_BATCH),
            (&mut limits.max_batch_routes, defaults::MAX_BATCH),
            (&mut limits.max_batch_volumes, defaults::MAX_BATCH),
            (&mut limits.max_page_size, defaults::MAX_PAGE_SIZE),
            (&mut limits.max_message_bytes, defaults::MAX_MESSAGE_BYTES),
            (&mut limits.max_concurrent_reads, defaults::MAX_CONCURRENT_READS),
            (&mut limits.max_concurrent_mutations, defaults::MAX_CONCURRENT_MUTATIONS),
        ];
        unset.into_iter().filter(|(limit, _)| **limit == 0).for_each(|(limit, default)| *limit = default);
        let intervals = answer.intervals.unwrap_or_default();
        let Intervals { bookmark_interval, watch_max_age, .. } = intervals;
        Self {
            answer,
            limits,
            bookmark_interval: interval(bookmark_interval, defaults::BOOKMARK_INTERVAL),
            watch_max_age: interval(watch_max_age, defaults::WATCH_MAX_AGE),
        }
    }

    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.answer.capabilities.contains(&capability.into())
    }
}

fn interval(value: Option<prost_types::Duration>, default: Duration) -> Duration {
    value
        .and_then(|value| value.try_into().ok())
        .filter(|value: &Duration| !value.is_zero())
        .unwrap_or(default)
}
