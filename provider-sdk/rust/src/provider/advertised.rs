//! What a provider advertises, with the contract's defaults filled in.

use std::time::Duration;

use cloudprovider_proto::defaults;

use crate::proto::{Capability, GetCapabilitiesResponse, Intervals, Limits};

/// What a provider advertises: the response of GetCapabilities, and the values that this crate uses.
#[derive(Debug, Clone)]
pub(crate) struct Advertised {
    pub(crate) answer: GetCapabilitiesResponse,
    pub(crate) max_batch_instances: u32,
    pub(crate) max_batch_load_balancers: u32,
    pub(crate) max_batch_routes: u32,
    pub(crate) max_batch_volumes: u32,
    pub(crate) max_page_size: u32,
    pub(crate) max_message_bytes: usize,
    pub(crate) bookmark_interval: Duration,
    pub(crate) watch_max_age: Duration,
}

impl Advertised {
    pub(crate) fn new(answer: GetCapabilitiesResponse) -> Self {
        let limits = answer.limits.clone().unwrap_or_default();
        let Limits {
            max_batch_instances,
            max_batch_load_balancers,
            max_batch_routes,
            max_batch_volumes,
            max_page_size,
            max_message_bytes,
            ..
        } = limits;
        let intervals = answer.intervals.unwrap_or_default();
        let Intervals { bookmark_interval, watch_max_age, .. } = intervals;
        Self {
            answer,
            max_batch_instances: or(max_batch_instances, defaults::MAX_BATCH),
            max_batch_load_balancers: or(max_batch_load_balancers, defaults::MAX_BATCH),
            max_batch_routes: or(max_batch_routes, defaults::MAX_BATCH),
            max_batch_volumes: or(max_batch_volumes, defaults::MAX_BATCH),
            max_page_size: or(max_page_size, defaults::MAX_PAGE_SIZE),
            max_message_bytes: or(max_message_bytes, defaults::MAX_MESSAGE_BYTES) as usize,
            bookmark_interval: interval(bookmark_interval, defaults::BOOKMARK_INTERVAL),
            watch_max_age: interval(watch_max_age, defaults::WATCH_MAX_AGE),
        }
    }

    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.answer.capabilities.contains(&capability.into())
    }
}

fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

fn interval(value: Option<prost_types::Duration>, default: Duration) -> Duration {
    value
        .and_then(|value| value.try_into().ok())
        .filter(|value: &Duration| !value.is_zero())
        .unwrap_or(default)
}
