//! The provider at the endpoint, and what it advertises, with the contract's defaults.
//!
//! In: a connection. Out: [`Provider`], or why there is none: nobody listens, something else does, it hangs, or it
//! speaks only versions that this suite does not know.

mod introduce;

use std::time::Duration;

use cloudprovider_proto::{
    defaults,
    discovery::v1::GetInfoResponse,
    method::Method,
    v1alpha1::{Capability, GetCapabilitiesResponse, Intervals, Limits, Wants},
};

pub use introduce::{NoProvider, introduce};
pub(crate) use introduce::{in_words, no_answer};

/// A provider that introduced itself.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    /// The response of `GetInfo`; none if it failed.
    pub info: GetInfoResponse,
    /// The response of `GetCapabilities`; none if it failed.
    pub capabilities: GetCapabilitiesResponse,
    /// The error of a failed one.
    pub problem: Option<String>,
}

impl Provider {
    /// Whether this service is listed as served.
    pub fn serves(&self, service: &str) -> bool {
        self.info.services.iter().any(|served| served == service)
    }

    /// Whether this capability is advertised.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.capabilities.contains(&i32::from(capability))
    }

    /// The advertised limits.
    pub fn limits(&self) -> Limits {
        self.capabilities.limits.clone().unwrap_or_default()
    }

    /// What it asked to be told, and what it may write.
    pub fn wants(&self) -> Wants {
        self.capabilities.wants.clone().unwrap_or_default()
    }

    fn intervals(&self) -> Intervals {
        self.capabilities.intervals.unwrap_or_default()
    }

    /// The maximum number of items in a page.
    pub fn max_page_size(&self) -> usize {
        count(self.limits().max_page_size, defaults::MAX_PAGE_SIZE)
    }

    /// The maximum size of a message in bytes.
    pub fn max_message_bytes(&self) -> usize {
        count(self.limits().max_message_bytes, defaults::MAX_MESSAGE_BYTES)
    }

    /// The deadline that a host gives a call.
    pub fn deadline(&self, method: &Method) -> Duration {
        let limits = self.limits();
        let own = limits.deadlines.into_iter().find(|own| own.method == method.name);
        time(own.and_then(|own| own.deadline), method.deadline).min(method.max_deadline)
    }

    /// How long a resume token is valid.
    pub fn resume_token_validity(&self) -> Duration {
        time(self.intervals().resume_token_validity, defaults::TOKEN_VALIDITY)
    }

    /// The maximum interval of bookmarks.
    pub fn bookmark_interval(&self) -> Duration {
        time(self.intervals().bookmark_interval, defaults::BOOKMARK_INTERVAL)
    }

    /// When the provider ends a stream.
    pub fn watch_max_age(&self) -> Duration {
        time(self.intervals().watch_max_age, defaults::WATCH_MAX_AGE)
    }
}

/// A limit, or its default if none is advertised.
pub fn count(advertised: u32, default: u32) -> usize {
    (if advertised == 0 { default } else { advertised }) as usize
}

fn time(advertised: Option<prost_types::Duration>, default: Duration) -> Duration {
    advertised
        .and_then(|advertised| Duration::try_from(advertised).ok())
        .filter(|advertised| !advertised.is_zero())
        .unwrap_or(default)
}
