//! The honest provider in front of the cloud: the SDK's traits, answered from [`crate::cloud::Cloud`].
//!
//! In: requests that the SDK found well-formed. Out: what the cloud knows, in the contract's words. Shapes, fencing and
//! revisions are checked by the SDK; whatever a provider does wrong on purpose is done in `wire`.

mod account;
mod instances;
mod load_balancers;
mod routes;
mod watch;

use std::{sync::Arc, time::Duration};

use cloudprovider_sdk::{BuildError, Pager, Provider, Result};
use jiff::Timestamp;

use crate::{cloud::State, mock::Mock};

/// What all services of the provider share.
#[derive(Debug, Clone)]
pub(crate) struct Honest {
    mock: Mock,
    pager: Arc<Pager>,
    epoch: String,
}

impl Honest {
    /// The time at which a call of the cloud's API is answered, once it took as long as it takes.
    async fn at_cloud(&self) -> Timestamp {
        let latency = self.mock.look(|state| state.conditions.latency_ms);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        self.mock.now()
    }

    /// Asks the cloud.
    async fn ask<R>(&self, look: impl FnOnce(&State, Timestamp) -> Result<R> + Send) -> Result<R> {
        let now = self.at_cloud().await;
        self.mock.cloud.read(now, |state| look(state, now))
    }

    /// Changes the cloud. What is answered is saved; when that fails, the caller has to ask again, and the log says why.
    async fn change<R: Send>(
        &self,
        act: impl FnOnce(&mut State, Timestamp) -> Result<R> + Send,
    ) -> Result<R> {
        let now = self.at_cloud().await;
        self.mock.cloud.change(now, |state| act(state, now)).await?
    }
}

/// The provider in front of this cloud, in one of its lives.
///
/// # Errors
///
/// When the name or what is advertised is outside of the contract.
pub(crate) fn build(mock: &Mock, epoch: &str) -> Result<Provider, BuildError> {
    let Mock { advertised, name, version, .. } = mock;
    let pager = Arc::new(Pager::new(advertised.page_token_validity()));
    let honest = Honest { mock: mock.clone(), pager, epoch: epoch.to_owned() };
    let settings = mock.look(|state| state.settings.clone());
    Provider::builder(name)
        .leaders(advertised.leaders())
        .vendor_version(version)
        .process_epoch(epoch)
        .provider_id_prefix(&settings.provider_id_prefix)
        .capabilities(advertised.answer(&settings))
        .cloud_provider(honest.clone())
        .instances(honest.clone())
        .load_balancers(honest.clone())
        .routes(honest.clone())
        .volumes(honest.clone())
        .clusters(honest)
        .build()
}
