//! The honest provider in front of the cloud: implements the SDK's traits on [`crate::cloud::Cloud`].
//!
//! In: requests that passed the SDK's checks of shape, fencing and revision. Out: answers from the cloud. Everything that
//! is wrong on purpose happens in `wire`.

mod account;
mod instances;
mod load_balancers;
mod routes;
mod watch;

use std::time::Duration;

use cloudprovider_sdk::{BuildError, Provider, Result, proto::Capability};
use jiff::Timestamp;

use crate::{cloud::State, mock::Mock};

/// Shared by all services of the provider.
#[derive(Debug, Clone)]
pub(crate) struct Honest {
    mock: Mock,
    epoch: String,
}

impl Honest {
    /// Waits as long as a call of the cloud's API takes, and returns the time.
    async fn at_cloud(&self) -> Timestamp {
        let latency =
            |state: &State| state.settings.latency.max(Duration::from_millis(state.conditions.latency_ms));
        let latency = self.mock.look(latency);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        self.mock.now()
    }

    /// Reads the cloud.
    async fn ask<R>(&self, look: impl FnOnce(&State, Timestamp) -> Result<R> + Send) -> Result<R> {
        let now = self.at_cloud().await;
        self.mock.cloud.read(now, |state| look(state, now))
    }

    /// Changes the cloud and saves it. If saving fails, the caller gets an error and has to retry.
    async fn change<R: Send>(
        &self,
        act: impl FnOnce(&mut State, Timestamp) -> Result<R> + Send,
    ) -> Result<R> {
        let now = self.at_cloud().await;
        self.mock.cloud.change(now, |state| act(state, now)).await?
    }
}

/// Builds the provider in front of this cloud, for one run.
///
/// # Errors
///
/// When the name or the advertised values violate the contract.
pub(crate) fn build(mock: &Mock, epoch: &str) -> Result<Provider, BuildError> {
    let Mock { advertised, version, .. } = mock;
    let honest = Honest { mock: mock.clone(), epoch: epoch.to_owned() };
    let settings = mock.look(|state| state.settings.clone());
    let builder = Provider::builder(&settings.name);
    let leads = advertised.has(Capability::Leadership);
    let builder = if leads { builder } else { builder.without_leadership() };
    builder
        .vendor_version(version)
        .process_epoch(epoch)
        .provider_id_prefix(settings.provider_id_prefix())
        .capabilities(advertised.answer(&settings))
        .cloud_provider(honest.clone())
        .instances(honest.clone())
        .load_balancers(honest.clone())
        .routes(honest.clone())
        .volumes(honest.clone())
        .clusters(honest)
        .build()
}
