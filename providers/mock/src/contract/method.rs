//! Every RPC of the contract by name, and the types of its messages.

use std::sync::LazyLock;

use cloudprovider_sdk::contract::{FILE_DESCRIPTOR_SET, service_names};
use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

/// The contract's descriptors. If they were unreadable, faults would have no effect.
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default());

macro_rules! rpcs {
    ($($service:ident { $($name:ident)* })*) => {
        /// An RPC of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Method {
            $($(
                #[doc = concat!("`", stringify!($name), "`")]
                $name,
            )*)*
        }

        impl Method {
            /// All of them, in the order of the contract.
            pub const ALL: &[Self] = &[$($(Self::$name,)*)*];

            /// Its name, without the service.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)*)* }
            }

            /// Its service, fully qualified.
            pub fn service(self) -> &'static str {
                match self { $($(Self::$name)|* => service_names::$service,)* }
            }
        }
    };
}

rpcs! {
    DISCOVERY { GetInfo }
    CLOUD_PROVIDER { GetCapabilities GetStatus Lead }
    INSTANCES { BatchGetInstances WatchInstances ListInstances AddSshKeyToAllInstances }
    LOAD_BALANCERS {
        GetLoadBalancer EnsureLoadBalancer BatchUpdateLoadBalancers DeleteLoadBalancer ListLoadBalancers
    }
    ROUTES { ListRoutes BatchEnsureRoutes BatchDeleteRoutes }
    VOLUMES { BatchGetVolumeLabels }
    CLUSTERS { ListClusters GetControlPlaneEndpoint }
}

impl Method {
    /// RPCs that ask the cloud: those after `Lead`, which is the last that answers from memory.
    pub(crate) const CLOUD_FACING: &[Self] = Self::ALL.split_at(Self::Lead as usize + 1).1;
    /// RPCs that change the cloud.
    pub(crate) const CHANGES: &[Self] = Self::LED.split_at(1).1;
    /// RPCs that only a leader may call.
    pub(crate) const LED: &[Self] = &[
        Self::Lead,
        Self::AddSshKeyToAllInstances,
        Self::EnsureLoadBalancer,
        Self::BatchUpdateLoadBalancers,
        Self::DeleteLoadBalancer,
        Self::BatchEnsureRoutes,
        Self::BatchDeleteRoutes,
    ];
    /// RPCs that answer item by item.
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

    fn descriptor(self) -> Option<MethodDescriptor> {
        let service = POOL.get_service_by_name(self.service())?;
        service.methods().find(|method| method.name() == self.name())
    }

    /// The type of its request.
    pub(super) fn request(self) -> Option<MessageDescriptor> {
        self.descriptor().map(|method| method.input())
    }

    /// The type of its answer; of a stream, of one frame.
    pub(super) fn answer(self) -> Option<MessageDescriptor> {
        self.descriptor().map(|method| method.output())
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
    fn the_messages_of_every_rpc_are_known() {
        for method in Method::ALL {
            assert!(method.request().is_some() && method.answer().is_some(), "{method:?}");
        }
    }

    #[test]
    fn four_answer_from_memory() {
        let memory: Vec<_> =
            Method::ALL.iter().filter(|method| !Method::CLOUD_FACING.contains(method)).collect();
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
