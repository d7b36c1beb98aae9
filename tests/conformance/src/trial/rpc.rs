//! RPCs that reach the cloud behind one interface, for cases that try them alike.
//!
//! Each call is complete and about objects that do not exist, except Ensure, whose balancer is deleted when the case
//! ends.

use std::time::Duration;

use cloudprovider_proto::{
    method,
    v1alpha1::{
        BatchEnsureRoutesRequest, BatchGetInstancesRequest, BatchGetVolumeLabelsRequest, ClusterRef,
        DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fencing, GetLoadBalancerRequest,
        ListClustersRequest, ListInstancesRequest, ListLoadBalancersRequest, ListRoutesRequest, ServiceRef,
        VolumeQuery,
    },
};
use tonic::{Request, Status};

use super::{Trial, Wanted, within};
use crate::case::Stop;

/// An RPC that such cases try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rpc {
    BatchGetInstances,
    ListInstances,
    GetLoadBalancer,
    EnsureLoadBalancer,
    DeleteLoadBalancer,
    ListLoadBalancers,
    ListRoutes,
    BatchEnsureRoutes,
    BatchGetVolumeLabels,
    ListClusters,
}

/// The cluster of a call, and its limit.
#[derive(Debug, Clone)]
pub(crate) struct By {
    pub(crate) cluster: Option<ClusterRef>,
    pub(crate) fencing: Option<Fencing>,
    /// If it is another than usual.
    pub(crate) deadline: Option<Duration>,
}

impl By {
    /// Like every other call of the suite.
    pub(crate) fn usual(t: &Trial) -> Self {
        Self { cluster: t.cluster(), fencing: t.fencing(), deadline: None }
    }

    fn ask<T: method::Rpc>(&self, t: &Trial, message: T) -> Request<T> {
        match self.deadline {
            Some(deadline) => within(message, deadline),
            None => t.ask(message),
        }
    }
}

/// A destination that never has a route.
pub(crate) const NOWHERE: &str = "198.19.255.240/28";

impl Rpc {
    /// A call, with its own balancer if it is about one.
    pub(crate) async fn call(self, t: &Trial, by: By) -> Result<Result<(), Status>, Stop> {
        // Balancers take time and money, so only those calls have one that are about it.
        let is_about_balancers = matches!(
            self,
            Self::GetLoadBalancer
                | Self::EnsureLoadBalancer
                | Self::DeleteLoadBalancer
                | Self::ListLoadBalancers
        );
        let wanted = if is_about_balancers {
            t.wanted().await?
        } else {
            t.wanted_for(t.cluster().unwrap_or_default(), ServiceRef::default())
        };
        Ok(self.call_about(t, &wanted, by).await)
    }

    /// A call about this balancer, if it is about a balancer.
    pub(crate) async fn call_about(self, t: &Trial, wanted: &Wanted, by: By) -> Result<(), Status> {
        match self {
            Self::BatchGetInstances | Self::ListInstances => self.of_instances(t, by).await,
            Self::GetLoadBalancer
            | Self::EnsureLoadBalancer
            | Self::DeleteLoadBalancer
            | Self::ListLoadBalancers => self.of_balancers(t, wanted, by).await,
            Self::ListRoutes | Self::BatchEnsureRoutes => self.of_routes(t, by).await,
            Self::BatchGetVolumeLabels | Self::ListClusters => self.of_the_rest(t, by).await,
        }
    }

    async fn of_instances(self, t: &Trial, by: By) -> Result<(), Status> {
        let (cluster, mut client) = (by.cluster.clone(), t.instances());
        match self {
            Self::ListInstances => {
                let list = ListInstancesRequest { cluster, ..Default::default() };
                client.list_instances(by.ask(t, list)).await.map(drop)
            }
            _ => {
                let batch = BatchGetInstancesRequest { cluster, ..t.batch(vec![t.stranger()]) };
                client.batch_get_instances(by.ask(t, batch)).await.map(drop)
            }
        }
    }

    async fn of_balancers(self, t: &Trial, wanted: &Wanted, by: By) -> Result<(), Status> {
        let (cluster, fencing, mut client) = (by.cluster.clone(), by.fencing.clone(), t.load_balancers());
        match self {
            Self::EnsureLoadBalancer => {
                let ensure = EnsureLoadBalancerRequest { cluster, fencing, ..t.ensure_request(wanted) };
                client.ensure_load_balancer(by.ask(t, ensure)).await.map(drop)
            }
            Self::DeleteLoadBalancer => {
                let delete = DeleteLoadBalancerRequest { cluster, fencing, ..t.delete_request(wanted) };
                client.delete_load_balancer(by.ask(t, delete)).await.map(drop)
            }
            Self::ListLoadBalancers => {
                let list = ListLoadBalancersRequest { cluster, ..Default::default() };
                client.list_load_balancers(by.ask(t, list)).await.map(drop)
            }
            _ => {
                let get = GetLoadBalancerRequest { cluster, service: Some(wanted.service_ref()) };
                client.get_load_balancer(by.ask(t, get)).await.map(drop)
            }
        }
    }

    async fn of_routes(self, t: &Trial, by: By) -> Result<(), Status> {
        let (cluster, fencing, mut client) = (by.cluster.clone(), by.fencing.clone(), t.routes());
        match self {
            Self::BatchEnsureRoutes => {
                let batch = t.routes_to_ensure(vec![(NOWHERE.to_owned(), t.stranger())]);
                let ensure = BatchEnsureRoutesRequest { cluster, fencing, ..batch };
                client.batch_ensure_routes(by.ask(t, ensure)).await.map(drop)
            }
            _ => {
                let list = ListRoutesRequest { cluster, ..Default::default() };
                client.list_routes(by.ask(t, list)).await.map(drop)
            }
        }
    }

    async fn of_the_rest(self, t: &Trial, by: By) -> Result<(), Status> {
        let cluster = by.cluster.clone();
        match self {
            Self::ListClusters => {
                let list = ListClustersRequest { cluster, ..Default::default() };
                t.clusters().list_clusters(by.ask(t, list)).await.map(drop)
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
                t.volumes().batch_get_volume_labels(by.ask(t, get)).await.map(drop)
            }
        }
    }
}
