//! The RPCs that the host calls, with the deadlines of the proto.

use std::{collections::HashMap, time::Duration};

use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, GetInfoResponse},
    v1alpha1 as pb,
};
use prost::Message;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The limit that applies to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Answered from the provider's memory: not limited.
    Local,
    /// Reads the cloud.
    Read,
    /// Changes the cloud.
    Mutation,
}

/// Calls of one kind queue behind each other, but not behind the other kinds of their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Instances,
    /// Reads of balancers, and Ensure.
    LoadBalancers,
    /// Updates of backends.
    Updates,
    Deletions,
    Routes,
}

impl Kind {
    pub(crate) const COUNT: usize = 5;

    /// Whether calls of this kind read the cloud.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Instances | Self::LoadBalancers | Self::Routes)
    }

    /// Whether calls of this kind change the cloud.
    pub(crate) fn mutates(self) -> bool {
        self != Self::Instances
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Method {
    /// Without the service.
    pub(crate) name: &'static str,
    /// Without the package.
    pub(crate) service: &'static str,
    /// On the wire.
    pub(crate) path: &'static str,
    pub(crate) class: Class,
    default: Duration,
    longest: Duration,
}

/// A unary RPC, identified by its request.
pub(crate) trait Rpc: Message + 'static {
    type Answer: Message + Default + 'static;

    const METHOD: &'static Method;
}

macro_rules! rpcs {
    ($package:literal; $($(#[$doc:meta])* $method:ident: $service:literal $name:literal $($request:ty => $answer:ty)?,
        $class:ident, $default:literal, $longest:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) static $method: Method = Method {
            name: $name,
            service: $service,
            path: concat!("/", $package, ".", $service, "/", $name),
            class: Class::$class,
            default: Duration::from_secs($default),
            longest: Duration::from_secs($longest),
        };
        $(impl Rpc for $request {
            type Answer = $answer;

            const METHOD: &'static Method = &$method;
        })?
    )*};
}

rpcs! {
    "ccm.discovery.v1";
    GET_INFO: "Discovery" "GetInfo" GetInfoRequest => GetInfoResponse, Local, 5, 10;
}

rpcs! {
    "grpc.health.v1";
    HEALTH_CHECK: "Health" "Check" HealthCheckRequest => HealthCheckResponse, Local, 5, 10;
}

rpcs! {
    "ccm.cloudprovider.v1alpha1";
    GET_CAPABILITIES: "CloudProvider" "GetCapabilities"
        pb::GetCapabilitiesRequest => pb::GetCapabilitiesResponse, Local, 5, 10;
    GET_STATUS: "CloudProvider" "GetStatus" pb::GetStatusRequest => pb::GetStatusResponse, Local, 5, 10;
    LEAD: "CloudProvider" "Lead" pb::LeadRequest => pb::LeadResponse, Local, 5, 10;
    BATCH_GET_INSTANCES: "Instances" "BatchGetInstances"
        pb::BatchGetInstancesRequest => pb::BatchGetInstancesResponse, Read, 30, 120;
    LIST_INSTANCES: "Instances" "ListInstances"
        pb::ListInstancesRequest => pb::ListInstancesResponse, Read, 30, 120;
    /// A stream; the deadline bounds the time to the first frame only.
    WATCH_INSTANCES: "Instances" "WatchInstances", Local, 30, 120;
    ADD_SSH_KEY: "Instances" "AddSshKeyToAllInstances"
        pb::AddSshKeyToAllInstancesRequest => pb::AddSshKeyToAllInstancesResponse, Mutation, 120, 600;
    GET_LOAD_BALANCER: "LoadBalancers" "GetLoadBalancer"
        pb::GetLoadBalancerRequest => pb::GetLoadBalancerResponse, Read, 30, 120;
    LIST_LOAD_BALANCERS: "LoadBalancers" "ListLoadBalancers"
        pb::ListLoadBalancersRequest => pb::ListLoadBalancersResponse, Read, 30, 120;
    ENSURE_LOAD_BALANCER: "LoadBalancers" "EnsureLoadBalancer"
        pb::EnsureLoadBalancerRequest => pb::EnsureLoadBalancerResponse, Mutation, 120, 600;
    BATCH_UPDATE_LOAD_BALANCERS: "LoadBalancers" "BatchUpdateLoadBalancers"
        pb::BatchUpdateLoadBalancersRequest => pb::BatchUpdateLoadBalancersResponse, Mutation, 120, 600;
    DELETE_LOAD_BALANCER: "LoadBalancers" "DeleteLoadBalancer"
        pb::DeleteLoadBalancerRequest => pb::DeleteLoadBalancerResponse, Mutation, 120, 600;
    LIST_ROUTES: "Routes" "ListRoutes" pb::ListRoutesRequest => pb::ListRoutesResponse, Read, 60, 120;
    BATCH_ENSURE_ROUTES: "Routes" "BatchEnsureRoutes"
        pb::BatchEnsureRoutesRequest => pb::BatchEnsureRoutesResponse, Mutation, 120, 300;
    BATCH_DELETE_ROUTES: "Routes" "BatchDeleteRoutes"
        pb::BatchDeleteRoutesRequest => pb::BatchDeleteRoutesResponse, Mutation, 120, 300;
    BATCH_GET_VOLUME_LABELS: "Volumes" "BatchGetVolumeLabels"
        pb::BatchGetVolumeLabelsRequest => pb::BatchGetVolumeLabelsResponse, Read, 30, 120;
    LIST_CLUSTERS: "Clusters" "ListClusters" pb::ListClustersRequest => pb::ListClustersResponse, Read, 30, 120;
    GET_CONTROL_PLANE_ENDPOINT: "Clusters" "GetControlPlaneEndpoint"
        pb::GetControlPlaneEndpointRequest => pb::GetControlPlaneEndpointResponse, Read, 30, 120;
}

impl Method {
    /// The queue that the call waits in.
    pub(crate) fn kind(&self) -> Kind {
        match (self.service, self.name) {
            (_, "BatchUpdateLoadBalancers") => Kind::Updates,
            (_, "DeleteLoadBalancer") => Kind::Deletions,
            ("LoadBalancers", _) => Kind::LoadBalancers,
            ("Routes", _) => Kind::Routes,
            _ => Kind::Instances,
        }
    }

    /// The advertised deadline, capped at the maximum, or the default.
    pub(crate) fn deadline(&self, advertised: &HashMap<String, Duration>) -> Duration {
        advertised.get(self.name).map_or(self.default, |wanted| (*wanted).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_deadlines_stay_within_the_maximum() {
        let advertised = |method: &str, seconds| (method.to_owned(), Duration::from_secs(seconds));
        let rows = [
            (vec![], 30),
            (vec![advertised("BatchGetInstances", 60)], 60),
            (vec![advertised("BatchGetInstances", 1)], 1),
            (vec![advertised("BatchGetInstances", 9999)], 120),
            (vec![advertised("GetLoadBalancer", 60)], 30),
        ];
        for (advertised, want) in rows {
            assert_eq!(
                BATCH_GET_INSTANCES.deadline(&advertised.iter().cloned().collect()),
                Duration::from_secs(want),
                "{advertised:?}"
            );
        }
    }
}
