//! The five batches of the contract behind one interface, about objects that do not exist, so that nothing is ever
//! created.

use cloudprovider_proto::{
    defaults,
    v1alpha1::{
        BatchDeleteRoutesRequest, BatchEnsureRoutesRequest, BatchGetInstancesRequest,
        BatchGetVolumeLabelsRequest, BatchUpdateLoadBalancersRequest, InstanceQuery, LoadBalancerUpdate,
        NodeRef, Route, RouteToDelete, RouteToEnsure, Service, ServiceRef, VolumeQuery,
    },
};
use tonic::{Response, Status};

use crate::{
    provider::count,
    trial::{Trial, tcp},
};

/// A batch of the contract.
#[derive(Debug, Clone, Copy)]
pub(super) enum Batch {
    Instances,
    Updates,
    EnsureRoutes,
    DeleteRoutes,
    Volumes,
}

impl Batch {
    pub(super) fn rpc(self) -> &'static str {
        match self {
            Self::Instances => "BatchGetInstances",
            Self::Updates => "BatchUpdateLoadBalancers",
            Self::EnsureRoutes => "BatchEnsureRoutes",
            Self::DeleteRoutes => "BatchDeleteRoutes",
            Self::Volumes => "BatchGetVolumeLabels",
        }
    }

    /// The request in words, since the reader of a failure cannot see it otherwise.
    pub(super) fn sent(self, keys: &[String]) -> String {
        let what = match self {
            Self::Instances => "nodes that no cloud ever had, without provider ID",
            Self::Updates => {
                "Services that nobody made (TCP port 80, node port 30080), with one backend set without nodes"
            }
            Self::EnsureRoutes => "routes below 198.18.0.0/16 to a node that no cloud ever had",
            Self::DeleteRoutes => "routes below 198.18.0.0/16 that are not there",
            Self::Volumes => "volumes of an unknown plugin",
        };
        let shown: Vec<_> = keys.iter().take(3).collect();
        let more = if keys.len() > shown.len() { ", …" } else { "" };
        format!("{} of {} {what}, keys {shown:?}{more}", self.rpc(), keys.len())
    }

    pub(super) fn most(self, t: &Trial) -> usize {
        let limits = t.provider().limits();
        let advertised = match self {
            Self::Instances => limits.max_batch_instances,
            Self::Updates => limits.max_batch_load_balancers,
            Self::EnsureRoutes | Self::DeleteRoutes => limits.max_batch_routes,
            Self::Volumes => limits.max_batch_volumes,
        };
        count(advertised, defaults::MAX_BATCH)
    }

    /// Sends a batch about objects that do not exist, so that nothing is created. Returns the keys of the response.
    pub(super) async fn call(self, t: &Trial, keys: &[String]) -> Result<Response<Vec<String>>, Status> {
        let (cluster, fencing) = (t.cluster(), t.fencing());
        let keys_out = match self {
            Self::Instances => {
                let query = |key: &String| InstanceQuery { key: key.clone(), node: Some(nobody(key)) };
                let queries = keys.iter().map(query).collect();
                let request = t.ask(BatchGetInstancesRequest { cluster, queries, ..Default::default() });
                let answer = t.instances().batch_get_instances(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
            Self::Updates => {
                let items = keys.iter().map(|key| update(key)).collect();
                let backends = Some(Default::default());
                let request = t.ask(BatchUpdateLoadBalancersRequest { cluster, fencing, backends, items });
                let answer = t.load_balancers().batch_update_load_balancers(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.service_uid).collect()
            }
            Self::EnsureRoutes => {
                let items = keys.iter().enumerate().map(|(at, key)| route_to_nobody(at, key)).collect();
                let request = t.ask(BatchEnsureRoutesRequest { cluster, fencing, items });
                let answer = t.routes().batch_ensure_routes(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
            Self::DeleteRoutes => {
                let items = keys.iter().enumerate().map(|(at, key)| route_that_is_gone(at, key)).collect();
                let request = t.ask(BatchDeleteRoutesRequest { cluster, fencing, items });
                let answer = t.routes().batch_delete_routes(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
            Self::Volumes => {
                let queries = keys.iter().map(|key| no_volume(key)).collect();
                let request = t.ask(BatchGetVolumeLabelsRequest { cluster, queries });
                let answer = t.volumes().batch_get_volume_labels(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
        };
        Ok(Response::new(keys_out))
    }
}

fn nobody(key: &str) -> NodeRef {
    let name = format!("no-such-node-{}", if key.len() > 60 { "long" } else { key });
    NodeRef { uid: format!("uid-{name}"), name, ..NodeRef::default() }
}

fn update(uid: &str) -> LoadBalancerUpdate {
    let reference = ServiceRef {
        namespace: "conformance".to_owned(),
        name: "no-such-service".to_owned(),
        uid: uid.to_owned(),
    };
    let service = Service { r#ref: Some(reference), ports: vec![tcp(80)], ..Default::default() };
    LoadBalancerUpdate { service: Some(service), desired_digest: "digest".to_owned(), revision: 0 }
}

fn destination(at: usize) -> String {
    format!("198.18.{}.{}/32", (at >> 8) & 0xff, at & 0xff)
}

fn route_to_nobody(at: usize, key: &str) -> RouteToEnsure {
    RouteToEnsure { key: key.to_owned(), destination_cidr: destination(at), target: Some(nobody("target")) }
}

fn route_that_is_gone(at: usize, key: &str) -> RouteToDelete {
    let id = format!("no-such-route-{at}");
    let target = Some(nobody("target"));
    let route = Route { id, destination_cidr: destination(at), target, state: 1, ..Route::default() };
    RouteToDelete { key: key.to_owned(), route: Some(route) }
}

fn no_volume(key: &str) -> VolumeQuery {
    VolumeQuery {
        key: key.to_owned(),
        name: format!("pv-{key}"),
        plugin: "kubernetes.io/no-such-plugin".to_owned(),
        volume_id: format!("no-such-volume-{key}"),
        ..VolumeQuery::default()
    }
}
