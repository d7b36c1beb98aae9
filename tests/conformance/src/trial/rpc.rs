//! Every RPC that reaches the cloud behind one interface, for cases about what they have in common.
//!
//! Each call is complete and about objects that do not exist, except Ensure, whose balancer is deleted when the case
//! ends.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::{
    AddSshKeyToAllInstancesRequest, BatchDeleteRoutesRequest, BatchEnsureRoutesRequest,
    BatchGetInstancesRequest, BatchGetVolumeLabelsRequest, BatchUpdateLoadBalancersRequest, ClusterRef,
    DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fencing, GetControlPlaneEndpointRequest,
    GetLoadBalancerRequest, ListClustersRequest, ListInstancesRequest, ListLoadBalancersRequest,
    ListRoutesRequest, LoadBalancerUpdate, Route, RouteToDelete, VolumeQuery, WatchInstancesRequest,
};
use tonic::{Request, Status};

use super::{Trial, Wanted, within};
use crate::case::Stop;

/// An RPC that reaches the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rpc {
    BatchGetInstances,
    WatchInstances,
    ListInstances,
    AddSshKeyToAllInstances,
    GetLoadBalancer,
    EnsureLoadBalancer,
    BatchUpdateLoadBalancers,
    DeleteLoadBalancer,
    ListLoadBalancers,
    ListRoutes,
    BatchEnsureRoutes,
    BatchDeleteRoutes,
    BatchGetVolumeLabels,
    ListClusters,
    GetControlPlaneEndpoint,
}

/// The cluster of a call, and its limit.
#[derive(Debug, Clone)]
pub(crate) struct By {
    pub(crate) cluster: Option<ClusterRef>,
    pub(crate) fencing: Option<Fencing>,
    pub(crate) deadline: Duration,
}

impl By {
    /// Like every other call of the suite.
    pub(crate) fn usual(t: &Trial) -> Self {
        Self { cluster: t.cluster(), fencing: t.fencing(), deadline: t.scenario().call_deadline }
    }

    fn ask<T>(&self, message: T) -> Request<T> {
        within(message, self.deadline)
    }
}

/// A destination that never has a route.
const NOWHERE: &str = "198.19.255.240/28";

impl Rpc {
    /// A call with its own balancer.
    pub(crate) async fn call(self, t: &Trial, by: By) -> Result<Result<(), Status>, Stop> {
        Ok(self.call_about(t, &t.wanted().await?, by).await)
    }

    /// A call about this balancer, if it is about a balancer.
    pub(crate) async fn call_about(self, t: &Trial, wanted: &Wanted, by: By) -> Result<(), Status> {
        match self {
            Self::BatchGetInstances
            | Self::WatchInstances
            | Self::ListInstances
            | Self::AddSshKeyToAllInstances => self.of_instances(t, by).await,
            Self::GetLoadBalancer
            | Self::EnsureLoadBalancer
            | Self::BatchUpdateLoadBalancers
            | Self::DeleteLoadBalancer
            | Self::ListLoadBalancers => self.of_balancers(t, wanted, by).await,
            Self::ListRoutes | Self::BatchEnsureRoutes | Self::BatchDeleteRoutes => {
                self.of_routes(t, by).await
            }
            Self::BatchGetVolumeLabels | Self::ListClusters | Self::GetControlPlaneEndpoint => {
                self.of_the_rest(t, by).await
            }
        }
    }

    async fn of_instances(self, t: &Trial, by: By) -> Result<(), Status> {
        let (cluster, fencing, mut client) = (by.cluster.clone(), by.fencing.clone(), t.instances());
        match self {
            Self::WatchInstances => {
                let watch = WatchInstancesRequest { cluster, ..Default::default() };
                let mut stream = client.watch_instances(by.ask(watch)).await?.into_inner();
                stream.message().await.map(drop)
            }
            Self::ListInstances => {
                let list = ListInstancesRequest { cluster, ..Default::default() };
                client.list_instances(by.ask(list)).await.map(drop)
            }
            Self::AddSshKeyToAllInstances => {
                let (user, public_key) = ("conformance".to_owned(), "no key at all".to_owned());
                let add = AddSshKeyToAllInstancesRequest { cluster, fencing, user, public_key };
                client.add_ssh_key_to_all_instances(by.ask(add)).await.map(drop)
            }
            _ => {
                let batch = BatchGetInstancesRequest { cluster, ..t.batch(vec![t.stranger()]) };
                client.batch_get_instances(by.ask(batch)).await.map(drop)
            }
        }
    }

    async fn of_balancers(self, t: &Trial, wanted: &Wanted, by: By) -> Result<(), Status> {
        let (cluster, fencing, mut client) = (by.cluster.clone(), by.fencing.clone(), t.load_balancers());
        match self {
            Self::EnsureLoadBalancer => {
                let ensure = EnsureLoadBalancerRequest { cluster, fencing, ..t.ensure_request(wanted) };
                client.ensure_load_balancer(by.ask(ensure)).await.map(drop)
            }
            Self::BatchUpdateLoadBalancers => {
                let (service, desired_digest) = (Some(wanted.service.clone()), wanted.digest.clone());
                let items = vec![LoadBalancerUpdate { service, desired_digest, revision: 0 }];
                let backends = Some(wanted.backends());
                let update = BatchUpdateLoadBalancersRequest { cluster, fencing, backends, items };
                client.batch_update_load_balancers(by.ask(update)).await.map(drop)
            }
            Self::DeleteLoadBalancer => {
                let delete = DeleteLoadBalancerRequest { cluster, fencing, ..t.delete_request(wanted) };
                client.delete_load_balancer(by.ask(delete)).await.map(drop)
            }
            Self::ListLoadBalancers => {
                let list = ListLoadBalancersRequest { cluster, ..Default::default() };
                client.list_load_balancers(by.ask(list)).await.map(drop)
            }
            _ => {
                let get = GetLoadBalancerRequest { cluster, service: Some(wanted.service_ref()) };
                client.get_load_balancer(by.ask(get)).await.map(drop)
            }
        }
    }

    async fn of_routes(self, t: &Trial, by: By) -> Result<(), Status> {
        let (cluster, fencing, mut client) = (by.cluster.clone(), by.fencing.clone(), t.routes());
        match self {
            Self::BatchEnsureRoutes => {
                let batch = t.routes_to_ensure(vec![(NOWHERE.to_owned(), t.stranger())]);
                let ensure = BatchEnsureRoutesRequest { cluster, fencing, ..batch };
                client.batch_ensure_routes(by.ask(ensure)).await.map(drop)
            }
            Self::BatchDeleteRoutes => {
                let (id, destination_cidr) = ("no-such-route".to_owned(), NOWHERE.to_owned());
                let route = Some(Route { id, destination_cidr, ..Route::default() });
                let items = vec![RouteToDelete { key: "k0".to_owned(), route }];
                let delete = BatchDeleteRoutesRequest { cluster, fencing, items };
                client.batch_delete_routes(by.ask(delete)).await.map(drop)
            }
            _ => {
                let list = ListRoutesRequest { cluster, ..Default::default() };
                client.list_routes(by.ask(list)).await.map(drop)
            }
        }
    }

    async fn of_the_rest(self, t: &Trial, by: By) -> Result<(), Status> {
        let cluster = by.cluster.clone();
        match self {
            Self::ListClusters => {
                let list = ListClustersRequest { cluster, ..Default::default() };
                t.clusters().list_clusters(by.ask(list)).await.map(drop)
            }
            Self::GetControlPlaneEndpoint => {
                let get = GetControlPlaneEndpointRequest { cluster, cluster_name: t.name() };
                t.clusters().get_control_plane_endpoint(by.ask(get)).await.map(drop)
            }
            _ => {
                let queries = vec![VolumeQuery {
                    key: "k0".to_owned(),
                    name: "pv-k0".to_owned(),
                    plugin: "kubernetes.io/aws-ebs".to_owned(),
                    volume_id: "no-such-volume".to_owned(),
                    ..VolumeQuery::default()
                }];
                let get = BatchGetVolumeLabelsRequest { cluster, queries };
                t.volumes().batch_get_volume_labels(by.ask(get)).await.map(drop)
            }
        }
    }
}
