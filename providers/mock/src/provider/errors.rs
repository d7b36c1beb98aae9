//! What the cloud refuses, in the contract's words.

use cloudprovider_sdk::{ProviderError, proto::ErrorReason as R};

use crate::cloud::{CloudError, StoreError};

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
pub(super) fn not_saved(error: StoreError) -> ProviderError {
    ProviderError::internal(error)
}
