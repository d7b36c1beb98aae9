//! Advertised limits and intervals, with the contract's defaults where nothing is said.

use std::time::Duration;

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use crate::cloud::check;

/// However large a batch a provider asks for.
const LARGEST_BATCH: u32 = 5000;
const SMALLEST_MESSAGE: u32 = 4 << 20;

/// Paces of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cloud) struct Intervals {
    pub(in crate::cloud) bookmark: Duration,
    pub(in crate::cloud) watch_max_age: Duration,
    pub(in crate::cloud) instance_sweep: Option<Duration>,
}

impl Intervals {
    pub(super) fn of(given: Option<&pb::Intervals>) -> Self {
        let given = given.copied().unwrap_or_default();
        let or = |value: Option<prost_types::Duration>, default| {
            value.and_then(check::positive).unwrap_or(default)
        };
        Self {
            bookmark: or(given.bookmark_interval, defaults::BOOKMARK_INTERVAL),
            watch_max_age: or(given.watch_max_age, defaults::WATCH_MAX_AGE),
            instance_sweep: given.instance_sweep.and_then(check::positive),
        }
    }
}

/// Items of a batch.
pub(super) fn batch(advertised: u32) -> usize {
    let items = if advertised == 0 { defaults::MAX_BATCH } else { advertised.min(LARGEST_BATCH) };
    items as usize
}

/// Bytes of a message.
pub(super) fn message_bytes(advertised: u32) -> usize {
    let bytes = match advertised {
        0 => defaults::MAX_MESSAGE_BYTES,
        some => some.clamp(SMALLEST_MESSAGE, defaults::HARD_MAX_MESSAGE_BYTES),
    };
    bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_advertised_has_a_default_and_what_is_stays_sane() {
        for (advertised, want) in [(0, 500), (1, 1), (700, 700), (1_000_000, 5000)] {
            assert_eq!(batch(advertised), want, "{advertised}");
        }
        for (advertised, want) in [(0, 16 << 20), (1, 4 << 20), (20 << 20, 20 << 20), (u32::MAX, 64 << 20)] {
            assert_eq!(message_bytes(advertised), want, "{advertised}");
        }
        let absent = Intervals::of(None);
        assert_eq!(absent.bookmark, Duration::from_secs(30));
        assert_eq!(absent.instance_sweep, None);
        let zero = prost_types::Duration::default();
        let given =
            pb::Intervals { bookmark_interval: Some(zero), instance_sweep: Some(zero), ..Default::default() };
        assert_eq!(Intervals::of(Some(&given)), absent);
    }
}
