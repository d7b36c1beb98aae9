//! The contract's RPCs: the bounded list behind spans and metrics.

use cloudprovider_proto::service_names as service;

use crate::metrics::Method;

const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";

const fn of(service: &'static str, method: &'static str) -> Method {
    Method { service, method }
}

pub(crate) const GET_INFO: Method = of(service::DISCOVERY, "GetInfo");
pub(crate) const GET_CAPABILITIES: Method = of(service::CLOUD_PROVIDER, "GetCapabilities");
pub(crate) const GET_STATUS: Method = of(service::CLOUD_PROVIDER, "GetStatus");
pub(crate) const LEAD: Method = of(service::CLOUD_PROVIDER, "Lead");
pub(crate) const BATCH_GET_INSTANCES: Method = of(service::INSTANCES, "BatchGetInstances");
pub(crate) const WATCH_INSTANCES: Method = of(service::INSTANCES, "WatchInstances");
pub(crate) const LIST_INSTANCES: Method = of(service::INSTANCES, "ListInstances");
pub(crate) const ADD_SSH_KEY: Method = of(service::INSTANCES, "AddSshKeyToAllInstances");
pub(crate) const GET_LOAD_BALANCER: Method = of(service::LOAD_BALANCERS, "GetLoadBalancer");
pub(crate) const ENSURE_LOAD_BALANCER: Method = of(service::LOAD_BALANCERS, "EnsureLoadBalancer");
pub(crate) const BATCH_UPDATE_LOAD_BALANCERS: Method =
    of(service::LOAD_BALANCERS, "BatchUpdateLoadBalancers");
pub(crate) const DELETE_LOAD_BALANCER: Method = of(service::LOAD_BALANCERS, "DeleteLoadBalancer");
pub(crate) const LIST_LOAD_BALANCERS: Method = of(service::LOAD_BALANCERS, "ListLoadBalancers");
pub(crate) const LIST_ROUTES: Method = of(service::ROUTES, "ListRoutes");
pub(crate) const BATCH_ENSURE_ROUTES: Method = of(service::ROUTES, "BatchEnsureRoutes");
pub(crate) const BATCH_DELETE_ROUTES: Method = of(service::ROUTES, "BatchDeleteRoutes");
pub(crate) const BATCH_GET_VOLUME_LABELS: Method = of(service::VOLUMES, "BatchGetVolumeLabels");
pub(crate) const LIST_CLUSTERS: Method = of(service::CLUSTERS, "ListClusters");
pub(crate) const GET_CONTROL_PLANE_ENDPOINT: Method = of(service::CLUSTERS, "GetControlPlaneEndpoint");
const HEALTH_CHECK: Method = of(HEALTH, "Check");
const HEALTH_WATCH: Method = of(HEALTH, "Watch");
const REFLECTION_INFO: Method = of(REFLECTION, "ServerReflectionInfo");
const OTHER: Method = of("other", "other");

const ALL: [Method; 22] = [
    GET_INFO,
    GET_CAPABILITIES,
    GET_STATUS,
    LEAD,
    BATCH_GET_INSTANCES,
    WATCH_INSTANCES,
    LIST_INSTANCES,
    ADD_SSH_KEY,
    GET_LOAD_BALANCER,
    ENSURE_LOAD_BALANCER,
    BATCH_UPDATE_LOAD_BALANCERS,
    DELETE_LOAD_BALANCER,
    LIST_LOAD_BALANCERS,
    LIST_ROUTES,
    BATCH_ENSURE_ROUTES,
    BATCH_DELETE_ROUTES,
    BATCH_GET_VOLUME_LABELS,
    LIST_CLUSTERS,
    GET_CONTROL_PLANE_ENDPOINT,
    HEALTH_CHECK,
    HEALTH_WATCH,
    REFLECTION_INFO,
];

/// The RPC of a path such as `/package.Service/Method`; "other" for any that is not in the contract.
pub(crate) fn of_path(path: &str) -> Method {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return OTHER;
    };
    ALL.into_iter().find(|known| known.service == service && known.method == method).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn every_rpc_of_the_contract_has_a_name() {
        let files = FileDescriptorSet::decode(cloudprovider_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut seen = 0;
        for file in files.file {
            for service in &file.service {
                for method in &service.method {
                    let full = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    assert_ne!(of_path(&full), OTHER, "{full} is not in the list");
                    seen += 1;
                }
            }
        }
        assert_eq!(seen + 3, ALL.len());
        assert_eq!(of_path("/x.Y/Z"), OTHER);
        assert_eq!(of_path(""), OTHER);
    }
}
