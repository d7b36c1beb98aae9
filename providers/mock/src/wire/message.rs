//! Every RPC of the contract by name, and its messages, so that one layer can read and change them all.

use cloudprovider_sdk::contract::{discovery::v1 as discovery, service_names as names};
use cloudprovider_sdk::proto;
use prost::bytes::Bytes;
use prost::{DecodeError, Message as _};

macro_rules! contract {
    ($($name:ident: $service:expr, $request:ty => $answer:ty;)*) => {
        /// An RPC of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Method {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                $name,
            )*
        }

        /// The request of an RPC.
        #[derive(Debug, Clone)]
        pub(crate) enum Request {
            $($name($request),)*
        }

        /// The answer of an RPC; of a stream, one frame.
        #[derive(Debug, Clone)]
        #[allow(clippy::large_enum_variant, reason = "there is one for each call that runs")]
        pub(crate) enum Answer {
            $($name($answer),)*
        }

        impl Method {
            /// All of them, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, without the service.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Its service, fully qualified.
            #[must_use]
            pub fn service(self) -> &'static str {
                match self { $(Self::$name => $service,)* }
            }
        }

        impl Request {
            pub(crate) fn decode(method: Method, message: Bytes) -> Result<Self, DecodeError> {
                Ok(match method { $(Method::$name => Self::$name(<$request>::decode(message)?),)* })
            }

            pub(crate) fn encode(&self) -> Vec<u8> {
                match self { $(Self::$name(message) => message.encode_to_vec(),)* }
            }

            pub(crate) fn method(&self) -> Method {
                match self { $(Self::$name(_) => Method::$name,)* }
            }
        }

        impl Answer {
            pub(crate) fn decode(method: Method, message: Bytes) -> Result<Self, DecodeError> {
                Ok(match method { $(Method::$name => Self::$name(<$answer>::decode(message)?),)* })
            }

            pub(crate) fn encode(&self) -> Vec<u8> {
                match self { $(Self::$name(message) => message.encode_to_vec(),)* }
            }

            /// An empty answer.
            pub(crate) fn empty(method: Method) -> Self {
                match method { $(Method::$name => Self::$name(<$answer>::default()),)* }
            }
        }
    };
}

contract! {
    GetInfo: names::DISCOVERY, discovery::GetInfoRequest => discovery::GetInfoResponse;
    GetCapabilities: names::CLOUD_PROVIDER, proto::GetCapabilitiesRequest => proto::GetCapabilitiesResponse;
    GetStatus: names::CLOUD_PROVIDER, proto::GetStatusRequest => proto::GetStatusResponse;
    Lead: names::CLOUD_PROVIDER, proto::LeadRequest => proto::LeadResponse;
    BatchGetInstances: names::INSTANCES, proto::BatchGetInstancesRequest => proto::BatchGetInstancesResponse;
    WatchInstances: names::INSTANCES, proto::WatchInstancesRequest => proto::WatchInstancesResponse;
    ListInstances: names::INSTANCES, proto::ListInstancesRequest => proto::ListInstancesResponse;
    AddSshKeyToAllInstances: names::INSTANCES,
        proto::AddSshKeyToAllInstancesRequest => proto::AddSshKeyToAllInstancesResponse;
    GetLoadBalancer: names::LOAD_BALANCERS, proto::GetLoadBalancerRequest => proto::GetLoadBalancerResponse;
    EnsureLoadBalancer: names::LOAD_BALANCERS, proto::EnsureLoadBalancerRequest => proto::EnsureLoadBalancerResponse;
    BatchUpdateLoadBalancers: names::LOAD_BALANCERS,
        proto::BatchUpdateLoadBalancersRequest => proto::BatchUpdateLoadBalancersResponse;
    DeleteLoadBalancer: names::LOAD_BALANCERS, proto::DeleteLoadBalancerRequest => proto::DeleteLoadBalancerResponse;
    ListLoadBalancers: names::LOAD_BALANCERS, proto::ListLoadBalancersRequest => proto::ListLoadBalancersResponse;
    ListRoutes: names::ROUTES, proto::ListRoutesRequest => proto::ListRoutesResponse;
    BatchEnsureRoutes: names::ROUTES, proto::BatchEnsureRoutesRequest => proto::BatchEnsureRoutesResponse;
    BatchDeleteRoutes: names::ROUTES, proto::BatchDeleteRoutesRequest => proto::BatchDeleteRoutesResponse;
    BatchGetVolumeLabels: names::VOLUMES, proto::BatchGetVolumeLabelsRequest => proto::BatchGetVolumeLabelsResponse;
    ListClusters: names::CLUSTERS, proto::ListClustersRequest => proto::ListClustersResponse;
    GetControlPlaneEndpoint: names::CLUSTERS,
        proto::GetControlPlaneEndpointRequest => proto::GetControlPlaneEndpointResponse;
}

impl Method {
    /// The RPC of this name, with or without its service.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        let name = text.rsplit('/').next().unwrap_or(text);
        Self::ALL.iter().copied().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    /// The RPC at this path of an HTTP request.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        Self::ALL.iter().copied().find(|method| method.name() == name && method.service() == service)
    }

    /// It answers from memory, never from the cloud.
    pub(crate) fn is_from_memory(self) -> bool {
        matches!(self, Self::GetInfo | Self::GetCapabilities | Self::GetStatus | Self::Lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_of_the_contract_is_here() {
        let text = [
            include_str!("../../../../proto/ccm/discovery/v1/discovery.proto"),
            include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/cloud_provider.proto"),
            include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/instances.proto"),
            include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/load_balancers.proto"),
            include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/routes.proto"),
            include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/volumes.proto"),
            include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/clusters.proto"),
        ]
        .join("\n");
        let rpcs: Vec<_> =
            text.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next()).collect();
        let ours: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        assert_eq!(ours, rpcs);
    }

    #[test]
    fn names_and_paths_lead_to_the_method() {
        let path = "/ccm.cloudprovider.v1alpha1.Routes/ListRoutes";
        assert_eq!(Method::of_path(path), Some(Method::ListRoutes));
        assert_eq!(Method::of_path("/ccm.cloudprovider.v2.Routes/ListRoutes"), None);
        assert_eq!(Method::named("listroutes"), Some(Method::ListRoutes));
        assert_eq!(Method::named("Routes/ListRoutes"), Some(Method::ListRoutes));
        assert_eq!(Method::named("ListRoads"), None);
    }
}
