//! One constructor for each condition, which requires every detail that the contract asks for.

use std::error::Error;
use std::time::Duration;

use super::ProviderError;
use crate::proto::ErrorReason as R;

/// Instances.
impl ProviderError {
    /// A call about a single object refers to an instance that does not exist, for example a route's target.
    #[must_use]
    pub fn instance_not_found(instance: &str) -> Self {
        Self::new(R::InstanceNotFound, format!("instance {instance:?} does not exist"))
    }

    /// The instance exists but cannot be described yet: the error beside state RUNNING, PENDING or EXISTS.
    #[must_use]
    pub fn metadata_not_ready(retry_after: Duration) -> Self {
        Self::new(R::MetadataNotReady, "the instance cannot be described yet").with_retry_after(retry_after)
    }

    /// A region, zone or account could not be queried.
    #[must_use]
    pub fn location_unreachable(location: &str) -> Self {
        Self::new(R::LocationUnreachable, format!("location {location:?} could not be queried"))
    }

    /// More than one instance matches the node.
    #[must_use]
    pub fn instance_ambiguous(node: &str) -> Self {
        Self::new(R::InstanceAmbiguous, format!("node {node:?} is claimed by more than one instance"))
    }

    /// The text is not an SSH public key, or its type is not accepted.
    #[must_use]
    pub fn invalid_ssh_key(why: &str) -> Self {
        Self::new(R::InvalidSshKey, why)
    }
}

/// Requests.
impl ProviderError {
    /// The provider does not serve the RPC.
    #[must_use]
    pub fn method_not_supported(method: &str) -> Self {
        Self::new(R::MethodNotSupported, format!("{method} is not served"))
    }

    /// The provider serves the RPC, but not this field or value of it.
    #[must_use]
    pub fn unsupported_feature(field: &str, why: &str) -> Self {
        Self::new(R::UnsupportedFeature, why).with_field(field, why)
    }

    /// Another controller serves this Service.
    #[must_use]
    pub fn implemented_elsewhere(who: &str) -> Self {
        Self::new(R::ImplementedElsewhere, format!("{who} serves this Service"))
    }

    /// The user's Service or its annotations are invalid; `field` is a Kubernetes field path.
    #[must_use]
    pub fn invalid_configuration(field: &str, why: &str) -> Self {
        Self::new(R::InvalidConfiguration, format!("{field}: {why}")).with_field(field, why)
    }

    /// The request violates the contract; `field` is a path in the request.
    #[must_use]
    pub fn invalid_argument_shape(field: &str, why: &str) -> Self {
        Self::new(R::InvalidArgumentShape, format!("{field} {why}")).with_field(field, why)
    }

    /// More items than advertised.
    #[must_use]
    pub fn batch_too_large(items: usize, max: u32) -> Self {
        Self::new(R::BatchTooLarge, format!("more than {max} items"))
            .with_metadata("max", max.to_string())
            .with_metadata("items", items.to_string())
    }

    /// The token was never issued in this process epoch.
    #[must_use]
    pub fn invalid_token() -> Self {
        Self::new(R::InvalidToken, "the token was not issued by this process")
    }

    /// The resume token has expired.
    #[must_use]
    pub fn resume_token_expired() -> Self {
        Self::new(R::ResumeTokenExpired, "the resume token has expired")
    }
}

/// Retry later.
impl ProviderError {
    /// The cloud throttles; retry after this long. All reads, or all mutations, pause, unless
    /// `with_metadata("scope", "LoadBalancers")` names the services that share the quota.
    #[must_use]
    pub fn rate_limited(retry_after: Duration) -> Self {
        Self::new(R::RateLimited, "the cloud throttles").with_retry_after(retry_after)
    }

    /// A quota is exhausted: its subject (an account, a region), and what it limits.
    #[must_use]
    pub fn quota_exceeded(subject: &str, what: &str) -> Self {
        Self::new(R::QuotaExceeded, format!("quota of {subject} is exhausted: {what}"))
            .with_quota(subject, what)
    }

    /// The cloud is out of capacity.
    #[must_use]
    pub fn capacity_unavailable(what: &str) -> Self {
        Self::new(R::CapacityUnavailable, format!("the cloud has no {what} left"))
    }

    /// A temporary failure; retry after exactly this long.
    #[must_use]
    pub fn retry_later(retry_after: Duration, why: &str) -> Self {
        Self::new(R::RetryLater, why).with_retry_after(retry_after)
    }

    /// The provider itself is overloaded.
    #[must_use]
    pub fn overloaded(retry_after: Duration) -> Self {
        Self::new(R::ProviderOverloaded, "the provider is overloaded").with_retry_after(retry_after)
    }

    /// The cloud's route tables are full.
    #[must_use]
    pub fn route_table_full(table: &str) -> Self {
        Self::new(R::RouteTableFull, format!("route table {table:?} is full"))
    }
}

/// Conflicts.
impl ProviderError {
    /// A conflicting operation on the same object is running.
    #[must_use]
    pub fn concurrent_operation(object: &str) -> Self {
        Self::new(R::ConcurrentOperation, format!("another operation on {object:?} is running"))
    }

    /// A resource with this natural key belongs to another cluster.
    #[must_use]
    pub fn owned_by_other_cluster(resource: &str) -> Self {
        Self::new(R::OwnedByOtherCluster, format!("{resource:?} belongs to another cluster"))
    }

    /// A former controller's resource exists, and the request does not allow adoption.
    #[must_use]
    pub fn adoption_refused(resource: &str) -> Self {
        Self::new(R::AdoptionRefused, format!("{resource:?} was created by a former controller"))
    }

    /// A newer revision of this object has already been accepted.
    #[must_use]
    pub fn stale_revision(object: &str) -> Self {
        Self::new(R::StaleRevision, format!("a newer revision of {object:?} was accepted"))
    }

    /// An update of a load balancer that is absent or must be rebuilt: an item error.
    #[must_use]
    pub fn needs_ensure(object: &str) -> Self {
        Self::new(R::NeedsEnsure, format!("the load balancer of {object:?} must be ensured"))
    }

    /// The request refers to its backend set by this unknown digest. The SDK returns this error by itself.
    #[must_use]
    pub fn unknown_backend_set(digest: &str) -> Self {
        Self::new(R::UnknownBackendSet, "the digest of the backend set is unknown")
            .with_metadata("digest", digest)
    }

    /// The route's target has changed since it was listed: an item error.
    #[must_use]
    pub fn route_changed(route: &str) -> Self {
        Self::new(R::RouteChanged, format!("route {route:?} changed since it was listed"))
    }

    /// The caller is a former leader.
    #[must_use]
    pub fn stale_leader(scope: &str) -> Self {
        Self::new(R::StaleLeader, format!("the caller does not lead by lease {scope:?}"))
    }
}

/// Trust, permissions, and the cloud itself.
impl ProviderError {
    /// The provider does not trust the peer.
    #[must_use]
    pub fn peer_not_trusted(why: &str) -> Self {
        Self::new(R::PeerNotTrusted, why)
    }

    /// The cloud rejects the provider's credentials.
    #[must_use]
    pub fn cloud_credentials_invalid() -> Self {
        Self::new(R::CloudCredentialsInvalid, "the cloud rejects the provider's credentials")
    }

    /// The provider's credentials have expired.
    #[must_use]
    pub fn cloud_credentials_expired() -> Self {
        Self::new(R::CloudCredentialsExpired, "the provider's credentials have expired")
    }

    /// The credentials are valid but lack a permission: the cloud's name of the action.
    #[must_use]
    pub fn cloud_permission_denied(action: &str) -> Self {
        Self::new(R::CloudPermissionDenied, format!("the provider may not {action}"))
            .with_metadata("action", action)
    }

    /// The provider's own configuration is invalid.
    #[must_use]
    pub fn invalid_provider_config(why: &str) -> Self {
        Self::new(R::InvalidProviderConfig, why)
    }

    /// The cloud's API is down.
    #[must_use]
    pub fn cloud_api_unavailable() -> Self {
        Self::new(R::CloudApiUnavailable, "the cloud's API does not answer")
    }

    /// The provider is stopping.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::new(R::ShuttingDown, "the provider is stopping")
    }

    /// A bug in the provider. The cause is logged here; the caller does not see it.
    #[must_use]
    pub fn internal(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(R::InternalError, "internal error; see the provider's log").with_source(source)
    }

    /// The volume does not exist.
    #[must_use]
    pub fn volume_not_found(volume: &str) -> Self {
        Self::new(R::VolumeNotFound, format!("volume {volume:?} does not exist"))
    }

    /// The named cluster does not exist in the cloud.
    #[must_use]
    pub fn cluster_not_found(name: &str) -> Self {
        Self::new(R::ClusterNotFound, format!("cluster {name:?} does not exist"))
    }
}
