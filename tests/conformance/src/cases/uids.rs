//! Every call names a cluster.

use cloudprovider_proto::v1alpha1::{ClusterRef, ErrorReason};
use futures::future::LocalBoxFuture;
use tonic::Response;

use crate::{
    case::{
        Case, Outcome,
        Profile::{
            Clusters, Instances, InstancesList, InstancesWatch, LoadBalancers, LoadBalancersList, Routes,
            SshKeys, Volumes,
        },
        Run,
    },
    trial::{By, Rpc, Trial, refused},
};

const UID: &[&str] = &["cluster-uid-required"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "UID-01",
        Instances,
        "BatchGetInstances without a cluster uid is refused",
        UID,
        &Nobody(Rpc::BatchGetInstances),
    ),
    Case::new(
        "UID-02",
        InstancesWatch,
        "WatchInstances without a cluster uid is refused",
        UID,
        &Nobody(Rpc::WatchInstances),
    ),
    Case::new(
        "UID-03",
        InstancesList,
        "ListInstances without a cluster uid is refused",
        UID,
        &Nobody(Rpc::ListInstances),
    ),
    Case::new(
        "UID-04",
        SshKeys,
        "AddSshKeyToAllInstances without a cluster uid is refused",
        UID,
        &Nobody(Rpc::AddSshKeyToAllInstances),
    ),
    Case::new(
        "UID-05",
        LoadBalancers,
        "GetLoadBalancer without a cluster uid is refused",
        UID,
        &Nobody(Rpc::GetLoadBalancer),
    ),
    Case::new(
        "UID-06",
        LoadBalancers,
        "EnsureLoadBalancer without a cluster uid is refused",
        UID,
        &Nobody(Rpc::EnsureLoadBalancer),
    ),
    Case::new(
        "UID-07",
        LoadBalancers,
        "BatchUpdateLoadBalancers without a cluster uid is refused",
        UID,
        &Nobody(Rpc::BatchUpdateLoadBalancers),
    ),
    Case::new(
        "UID-08",
        LoadBalancers,
        "DeleteLoadBalancer without a cluster uid is refused",
        UID,
        &Nobody(Rpc::DeleteLoadBalancer),
    ),
    Case::new(
        "UID-09",
        LoadBalancersList,
        "ListLoadBalancers without a cluster uid is refused",
        UID,
        &Nobody(Rpc::ListLoadBalancers),
    ),
    Case::new("UID-10", Routes, "ListRoutes without a cluster uid is refused", UID, &Nobody(Rpc::ListRoutes)),
    Case::new(
        "UID-11",
        Routes,
        "BatchEnsureRoutes without a cluster uid is refused",
        UID,
        &Nobody(Rpc::BatchEnsureRoutes),
    ),
    Case::new(
        "UID-12",
        Routes,
        "BatchDeleteRoutes without a cluster uid is refused",
        UID,
        &Nobody(Rpc::BatchDeleteRoutes),
    ),
    Case::new(
        "UID-13",
        Volumes,
        "BatchGetVolumeLabels without a cluster uid is refused",
        UID,
        &Nobody(Rpc::BatchGetVolumeLabels),
    ),
    Case::new(
        "UID-14",
        Clusters,
        "ListClusters without a cluster uid is refused",
        UID,
        &Nobody(Rpc::ListClusters),
    ),
    Case::new(
        "UID-15",
        Clusters,
        "GetControlPlaneEndpoint without a cluster uid is refused",
        UID,
        &Nobody(Rpc::GetControlPlaneEndpoint),
    ),
];

/// A call without a cluster.
struct Nobody(Rpc);

impl Run for Nobody {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            for cluster in [None, Some(ClusterRef { uid: String::new(), name: "nameless".to_owned() })] {
                let what = format!("{:?} by cluster {cluster:?}", self.0);
                let answer = self.0.call(t, By { cluster, ..By::usual(t) }).await?;
                refused(&what, answer.map(Response::new), ErrorReason::InvalidArgumentShape)?;
            }
            Ok(())
        })
    }
}
