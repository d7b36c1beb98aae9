//! The honest provider in front of the cloud: the SDK's traits, answered from [`Cloud`].
//!
//! In: requests that the SDK found well-formed. Out: what the cloud knows, in the contract's words. Shapes, fencing and
//! revisions are checked by the SDK; whatever a provider does wrong on purpose is done in `wire`.

mod account;
mod advertised;
mod instances;
mod load_balancers;
mod routes;
mod to_wire;
mod watch;

use std::{sync::Arc, time::Duration};

use cloudprovider_sdk::{BuildError, Pager, Provider, Result};
use jiff::Timestamp;

use crate::cloud::{Cloud, State};

pub use advertised::{Advertised, AdvertisedError};
pub(crate) use to_wire::{balancer as balancer_message, timestamp};

/// Reads the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What all services of the provider share.
#[derive(Clone)]
pub(crate) struct Mock {
    cloud: Cloud,
    pager: Arc<Pager>,
    epoch: String,
    clock: Clock,
    resume_validity: Duration,
    bookmark_interval: Duration,
    keyed_by_name: bool,
    tagged_routes: bool,
}

impl Mock {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The time at which a call of the cloud's API is answered, once it took as long as it takes.
    async fn at_cloud(&self) -> Timestamp {
        let latency = self.cloud.read(self.now(), |state| state.conditions.latency_ms);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        self.now()
    }

    /// Asks the cloud.
    async fn ask<R>(&self, look: impl FnOnce(&State, Timestamp) -> Result<R> + Send) -> Result<R> {
        let now = self.at_cloud().await;
        self.cloud.read(now, |state| look(state, now))
    }

    /// Changes the cloud. What is answered is saved; when that fails, the caller has to ask again, and the log says why.
    async fn change<R: Send>(
        &self,
        act: impl FnOnce(&mut State, Timestamp) -> Result<R> + Send,
    ) -> Result<R> {
        let now = self.at_cloud().await;
        self.cloud.change(now, |state| act(state, now)).await?
    }
}

impl std::fmt::Debug for Mock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Mock").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The provider of this name and version in front of this cloud.
///
/// # Errors
///
/// When the name or what is advertised is outside of the contract.
pub fn build(
    name: &str,
    version: &str,
    epoch: &str,
    cloud: Cloud,
    advertised: &Advertised,
    clock: Clock,
) -> Result<Provider, BuildError> {
    let mock = Mock {
        cloud,
        pager: Arc::new(Pager::new(advertised.page_token_validity())),
        epoch: epoch.to_owned(),
        clock,
        resume_validity: advertised.resume_token_validity(),
        bookmark_interval: advertised.bookmark_interval(),
        keyed_by_name: advertised.keyed_by_name(),
        tagged_routes: advertised.tagged_routes(),
    };
    let settings = mock.cloud.read(mock.now(), |state| state.settings.clone());
    Provider::builder(name)
        .leaders(advertised.leaders())
        .vendor_version(version)
        .process_epoch(epoch)
        .provider_id_prefix(&settings.provider_id_prefix)
        .capabilities(advertised.answer(&settings))
        .cloud_provider(mock.clone())
        .instances(mock.clone())
        .load_balancers(mock.clone())
        .routes(mock.clone())
        .volumes(mock.clone())
        .clusters(mock)
        .build()
}
