//! The honest provider in front of the cloud: the SDK's traits, answered from [`Cloud`].
//!
//! In: requests that the SDK found well-formed. Out: what the cloud knows, in the contract's words. Shapes, fencing and
//! revisions are checked by the SDK; whatever a provider does wrong on purpose is done in `wire`.

mod account;
mod advertised;
mod from_wire;
mod instances;
mod load_balancers;
mod routes;
mod to_wire;
mod watch;

use std::{sync::Arc, time::Duration};

use cloudprovider_sdk::{BuildError, Pager, Provider, ProviderError, proto::ErrorReason as R};
use jiff::Timestamp;

use crate::cloud::{Cloud, CloudError, StoreError};

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
        let latency = self.cloud.read(self.now(), |state| state.conditions().latency_ms);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        self.now()
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
    let settings = mock.cloud.read(mock.now(), |state| state.settings().clone());
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

/// The error of the contract for a refusal of the cloud.
#[must_use]
pub fn provider_error(error: CloudError) -> ProviderError {
    let text = error.to_string();
    match error {
        CloudError::CredentialsInvalid => ProviderError::cloud_credentials_invalid(),
        CloudError::CredentialsExpired => ProviderError::cloud_credentials_expired(),
        CloudError::PermissionDenied { action } => ProviderError::cloud_permission_denied(&action),
        CloudError::Unreachable => ProviderError::cloud_api_unavailable(),
        CloudError::ZoneUnreachable { zone } => ProviderError::location_unreachable(&zone),
        CloudError::Ambiguous { node, .. } => ProviderError::instance_ambiguous(&node),
        CloudError::InstanceNotFound { node } => ProviderError::instance_not_found(&node),
        CloudError::InvalidConfiguration { field, message } => {
            ProviderError::invalid_configuration(&field, &message)
        }
        CloudError::Unsupported { field, message } => ProviderError::unsupported_feature(&field, &message),
        CloudError::ImplementedElsewhere { class } if class.is_empty() => {
            ProviderError::implemented_elsewhere("another controller")
        }
        CloudError::ImplementedElsewhere { class } => {
            ProviderError::implemented_elsewhere(&format!("the controller of class {class}"))
        }
        CloudError::OwnedByOtherCluster { what } => ProviderError::owned_by_other_cluster(&what),
        CloudError::AdoptionRefused { name } => ProviderError::adoption_refused(&name),
        CloudError::RouteChanged { id } => ProviderError::route_changed(&id),
        CloudError::QuotaExceeded { subject, limit } => {
            ProviderError::quota_exceeded("the account", &format!("{limit} {subject}"))
        }
        CloudError::OutOfCapacity { what } => ProviderError::capacity_unavailable(&what),
        CloudError::InvalidSshKey { why } => ProviderError::invalid_ssh_key(&why),
        CloudError::NeedsEnsure { .. } => ProviderError::new(R::NeedsEnsure, text),
        CloudError::RouteTableFull { .. } => ProviderError::new(R::RouteTableFull, text),
        CloudError::Invalid { .. } => ProviderError::new(R::InvalidArgumentShape, text),
        CloudError::AlreadyExists { .. } | CloudError::NotFound { .. } => ProviderError::internal(text),
    }
}

/// The state file could not be written: the caller has to ask again, and the log says why.
fn not_saved(error: StoreError) -> ProviderError {
    ProviderError::internal(error)
}
