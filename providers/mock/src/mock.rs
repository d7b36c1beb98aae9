//! What the provider, the wire and the admin door share: the cloud, and everything that steers the provider in front of it.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    advertised::Advertised,
    calls::Calls,
    cloud::{Cloud, State},
    fault::Faults,
};

/// The cloud, and what steers the provider in front of it. Outlives a restart of the provider.
#[derive(Debug, Clone)]
pub struct Mock {
    /// Everything that exists.
    pub cloud: Arc<Cloud>,
    /// Reads the time.
    pub clock: fn() -> Timestamp,
    /// Version that the provider reports of itself.
    pub version: String,
    /// Limits and intervals.
    pub advertised: Advertised,
    /// The call log.
    pub calls: Arc<Calls>,
    /// The faults that calls meet.
    pub faults: Arc<Faults>,
}

impl Mock {
    /// A mock with defaults and without faults.
    pub fn new(cloud: Cloud, clock: fn() -> Timestamp) -> Self {
        Self {
            cloud: Arc::new(cloud),
            clock,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            advertised: Advertised::default(),
            calls: Arc::default(),
            faults: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Reads the cloud as it is now.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.cloud.read(self.now(), look)
    }

    /// Changes the cloud behind the provider's back.
    pub(crate) fn alter<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.cloud.alter(self.now(), act)
    }
}
