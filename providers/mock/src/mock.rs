//! What the provider, the wire and the admin door share: the cloud, and everything that steers the provider in front of it.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    advertised::Advertised,
    calls::Calls,
    cloud::{Cloud, State},
    fault::Faults,
};

/// Reads the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The cloud, and what steers the provider in front of it. Outlives a restart of the provider.
#[derive(Clone)]
pub struct Mock {
    /// Everything that exists.
    pub cloud: Cloud,
    /// Its clock.
    pub clock: Clock,
    /// Name of the provider.
    pub name: String,
    /// Version that the provider reports of itself.
    pub version: String,
    /// Limits and intervals.
    pub advertised: Advertised,
    /// How long every call to the cloud takes.
    pub latency: Duration,
    /// The call log.
    pub calls: Arc<Calls>,
    /// The faults that calls meet.
    pub faults: Arc<Faults>,
}

impl Mock {
    /// A mock with defaults and without faults.
    pub fn new(cloud: Cloud, clock: Clock) -> Self {
        Self {
            cloud,
            clock,
            name: "mock".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            advertised: Advertised::default(),
            latency: Duration::ZERO,
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

impl fmt::Debug for Mock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mock").field("name", &self.name).finish_non_exhaustive()
    }
}
