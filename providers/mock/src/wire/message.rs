//! Every RPC of the contract by name, and its messages, so that one layer can read and change them all; codes, reasons and
//! states as people write them.

use std::any::Any;

use cloudprovider_sdk::contract::{discovery::v1 as discovery, service_names as names};
use cloudprovider_sdk::{
    code_name,
    proto::{self, ErrorReason, InstanceState},
};
use prost::bytes::Bytes;
use prost::{DecodeError, Message as _};
use tonic::Code;

macro_rules! contract {
    ($($name:ident: $service:expr, $request:ty => $answer:ty $(, $cluster:ident $($fencing:ident)?)?;)*) => {
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
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Its service, fully qualified.
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

            /// On whose behalf the call is made.
            #[allow(unused_variables, reason = "some requests are made on nobody's")]
            pub(crate) fn cluster(&self) -> Option<&proto::ClusterRef> {
                match self { $(Self::$name(message) => None$(.or(message.$cluster.as_ref()))?,)* }
            }

            /// The same, to be changed.
            #[allow(unused_variables, reason = "some requests are made on nobody's")]
            pub(crate) fn cluster_mut(&mut self) -> Option<&mut proto::ClusterRef> {
                match self {
                    $(Self::$name(message) => None$(.or(Some(message.$cluster.get_or_insert_default())))?,)*
                }
            }
        }

        impl Request {
            /// Which leader a mutation comes from, to be changed.
            #[allow(unused_variables, reason = "most requests change nothing")]
            pub(crate) fn fencing_mut(&mut self) -> Option<&mut proto::Fencing> {
                match self { $(Self::$name(message) => None$($(.or(message.$fencing.as_mut()))?)?,)* }
            }
        }

        impl Answer {
            pub(crate) fn decode(method: Method, message: Bytes) -> Result<Self, DecodeError> {
                Ok(match method { $(Method::$name => Self::$name(<$answer>::decode(message)?),)* })
            }

            pub(crate) fn encode(&self) -> Vec<u8> {
                match self { $(Self::$name(message) => message.encode_to_vec(),)* }
            }

            /// The message, if it is of this type.
            pub(crate) fn of<T: 'static>(&mut self) -> Option<&mut T> {
                match self { $(Self::$name(message) => (message as &mut dyn Any).downcast_mut(),)* }
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
    Lead: names::CLOUD_PROVIDER, proto::LeadRequest => proto::LeadResponse, cluster;
    BatchGetInstances: names::INSTANCES, proto::BatchGetInstancesRequest => proto::BatchGetInstancesResponse, cluster;
    WatchInstances: names::INSTANCES, proto::WatchInstancesRequest => proto::WatchInstancesResponse, cluster;
    ListInstances: names::INSTANCES, proto::ListInstancesRequest => proto::ListInstancesResponse, cluster;
    AddSshKeyToAllInstances: names::INSTANCES,
        proto::AddSshKeyToAllInstancesRequest => proto::AddSshKeyToAllInstancesResponse, cluster fencing;
    GetLoadBalancer: names::LOAD_BALANCERS, proto::GetLoadBalancerRequest => proto::GetLoadBalancerResponse, cluster;
    EnsureLoadBalancer: names::LOAD_BALANCERS, proto::EnsureLoadBalancerRequest => proto::EnsureLoadBalancerResponse, cluster fencing;
    BatchUpdateLoadBalancers: names::LOAD_BALANCERS,
        proto::BatchUpdateLoadBalancersRequest => proto::BatchUpdateLoadBalancersResponse, cluster fencing;
    DeleteLoadBalancer: names::LOAD_BALANCERS, proto::DeleteLoadBalancerRequest => proto::DeleteLoadBalancerResponse, cluster fencing;
    ListLoadBalancers: names::LOAD_BALANCERS, proto::ListLoadBalancersRequest => proto::ListLoadBalancersResponse, cluster;
    ListRoutes: names::ROUTES, proto::ListRoutesRequest => proto::ListRoutesResponse, cluster;
    BatchEnsureRoutes: names::ROUTES, proto::BatchEnsureRoutesRequest => proto::BatchEnsureRoutesResponse, cluster fencing;
    BatchDeleteRoutes: names::ROUTES, proto::BatchDeleteRoutesRequest => proto::BatchDeleteRoutesResponse, cluster fencing;
    BatchGetVolumeLabels: names::VOLUMES, proto::BatchGetVolumeLabelsRequest => proto::BatchGetVolumeLabelsResponse, cluster;
    ListClusters: names::CLUSTERS, proto::ListClustersRequest => proto::ListClustersResponse, cluster;
    GetControlPlaneEndpoint: names::CLUSTERS,
        proto::GetControlPlaneEndpointRequest => proto::GetControlPlaneEndpointResponse, cluster;
}

impl Method {
    /// All that ask the cloud: those behind `Lead`, the last that answers from memory.
    pub(crate) const CLOUD_FACING: &[Self] = Self::ALL.split_at(Self::Lead as usize + 1).1;
    /// All that change the cloud.
    pub(crate) const CHANGES: &[Self] = &[
        Self::EnsureLoadBalancer,
        Self::BatchUpdateLoadBalancers,
        Self::DeleteLoadBalancer,
        Self::BatchEnsureRoutes,
        Self::BatchDeleteRoutes,
        Self::AddSshKeyToAllInstances,
    ];
    /// All that answer item by item.
    pub(crate) const BATCHES: &[Self] = &[
        Self::BatchGetInstances,
        Self::BatchUpdateLoadBalancers,
        Self::BatchEnsureRoutes,
        Self::BatchDeleteRoutes,
        Self::BatchGetVolumeLabels,
    ];

    /// The RPC of this name, with or without its service.
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
        !Self::CLOUD_FACING.contains(&self)
    }
}

/// The code of this name, other than OK.
pub(crate) fn code_named(name: &str) -> Option<Code> {
    (1..=16).map(Code::from_i32).find(|code| code_name(*code).eq_ignore_ascii_case(name))
}

/// The reason of this name.
pub(crate) fn reason_named(name: &str) -> Option<ErrorReason> {
    ErrorReason::from_wire_name(&name.to_ascii_uppercase())
}

/// The number of a state of machines, by name or as it stands.
pub(crate) fn instance_state_named(name: &str) -> Option<i32> {
    let by_name = || InstanceState::from_str_name(&format!("INSTANCE_STATE_{}", name.to_ascii_uppercase()));
    name.parse().ok().or_else(|| by_name().map(i32::from))
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
    fn four_answer_from_memory() {
        let memory: Vec<_> = Method::ALL.iter().filter(|method| method.is_from_memory()).collect();
        use Method::{GetCapabilities, GetInfo, GetStatus, Lead};
        assert_eq!(memory, [&GetInfo, &GetCapabilities, &GetStatus, &Lead]);
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
