//! What belongs to another cluster, and whose a call is.

use cloudprovider_proto::v1alpha1::{
    AddSshKeyToAllInstancesRequest, BatchDeleteRoutesRequest, BatchEnsureRoutesRequest,
    BatchGetInstancesRequest, BatchGetVolumeLabelsRequest, BatchUpdateLoadBalancersRequest, ClusterRef,
    DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, ErrorReason, GetControlPlaneEndpointRequest,
    GetLoadBalancerRequest, ListClustersRequest, ListInstancesRequest, ListLoadBalancersRequest,
    ListRoutesRequest, LoadBalancerState, Route, WatchInstancesRequest,
};
use futures::future::LocalBoxFuture;
use tonic::{Response, Status};

use crate::{
    case::{
        Case, Outcome,
        Profile::{
            Clusters, Instances, InstancesList, InstancesWatch, LoadBalancers, LoadBalancersList, Routes,
            SshKeys, Volumes,
        },
        Run,
    },
    trial::{Trial, Wanted, expect, refused, same},
};

const UID: &[&str] = &["cluster-uid-required"];
const OWNS: &[&str] = &["cluster-owns-by-uid"];

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
        &Nobody(Rpc::AddSshKey),
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
        &Nobody(Rpc::BatchUpdate),
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
    Case::new("OWN-01", LoadBalancers, "another cluster's balancer is not shown as ours", OWNS, &not_ours)
        .words(&["| it is another cluster's | OK, NOT_OWNED |"]),
    Case::new("OWN-02", LoadBalancers, "Delete leaves another cluster's balancer alone", OWNS, &not_deleted)
        .words(&["| it is another cluster's | OK | | removes the finalizer; nothing was touched |"]),
    Case::new("OWN-03", LoadBalancers, "Ensure leaves another cluster's balancer alone", OWNS, &not_changed),
    Case::new(
        "OWN-04",
        Routes,
        "another cluster's route is neither re-pointed nor removed",
        OWNS,
        &foreign_route,
    )
    .words(&["| the destination is another's | OK, item error | OWNED_BY_OTHER_CLUSTER"])
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new(
        "OWN-05",
        LoadBalancersList,
        "a balancer of another cluster is never listed",
        &["list-own-only"],
        &not_listed,
    ),
];

/// An RPC that reaches the cloud.
#[derive(Debug, Clone, Copy)]
enum Rpc {
    BatchGetInstances,
    WatchInstances,
    ListInstances,
    AddSshKey,
    GetLoadBalancer,
    EnsureLoadBalancer,
    BatchUpdate,
    DeleteLoadBalancer,
    ListLoadBalancers,
    ListRoutes,
    BatchEnsureRoutes,
    BatchDeleteRoutes,
    BatchGetVolumeLabels,
    ListClusters,
    GetControlPlaneEndpoint,
}

/// A call on behalf of nobody.
struct Nobody(Rpc);

impl Run for Nobody {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            for cluster in [None, Some(ClusterRef { uid: String::new(), name: "nameless".to_owned() })] {
                let what = format!("{:?} by cluster {cluster:?}", self.0);
                let answer = self.0.call(t, cluster).await;
                refused(&what, answer.map(|()| Response::new(())), ErrorReason::InvalidArgumentShape)?;
            }
            Ok(())
        })
    }
}

impl Rpc {
    /// A call that lacks nothing but the cluster, and that would do nothing.
    async fn call(self, t: &Trial, cluster: Option<ClusterRef>) -> Result<(), Status> {
        let fencing = t.fencing();
        let wanted = t.wanted().map_err(|_| Status::internal("the ledger cannot be written"))?;
        match self {
            Self::BatchGetInstances => {
                let batch = t.batch(vec![super::instances::stranger(t)]);
                t.instances()
                    .batch_get_instances(t.ask(BatchGetInstancesRequest { cluster, ..batch }))
                    .await
                    .map(drop)
            }
            Self::WatchInstances => {
                let watch = WatchInstancesRequest { cluster, ..Default::default() };
                let mut stream = t.instances().watch_instances(t.ask(watch)).await?.into_inner();
                stream.message().await.map(drop)
            }
            Self::ListInstances => {
                let list = ListInstancesRequest { cluster, ..Default::default() };
                t.instances().list_instances(t.ask(list)).await.map(drop)
            }
            Self::AddSshKey => {
                let (user, public_key) = ("conformance".to_owned(), "no key".to_owned());
                let add = AddSshKeyToAllInstancesRequest { cluster, fencing, user, public_key };
                t.instances().add_ssh_key_to_all_instances(t.ask(add)).await.map(drop)
            }
            Self::GetLoadBalancer => {
                let get = GetLoadBalancerRequest { cluster, service: Some(wanted.service_ref()) };
                t.load_balancers().get_load_balancer(t.ask(get)).await.map(drop)
            }
            Self::EnsureLoadBalancer => {
                let ensure = EnsureLoadBalancerRequest { cluster, ..t.ensure_request(&wanted) };
                t.load_balancers().ensure_load_balancer(t.ask(ensure)).await.map(drop)
            }
            Self::BatchUpdate => {
                let items = vec![cloudprovider_proto::v1alpha1::LoadBalancerUpdate {
                    service: Some(wanted.service.clone()),
                    backend_set: 0,
                    desired_digest: wanted.digest.clone(),
                    revision: 0,
                }];
                let backend_sets = vec![wanted.backends()];
                let update = BatchUpdateLoadBalancersRequest { cluster, fencing, backend_sets, items };
                t.load_balancers().batch_update_load_balancers(t.ask(update)).await.map(drop)
            }
            Self::DeleteLoadBalancer => {
                let delete = DeleteLoadBalancerRequest { cluster, ..t.delete_request(&wanted) };
                t.load_balancers().delete_load_balancer(t.ask(delete)).await.map(drop)
            }
            Self::ListLoadBalancers => {
                let list = ListLoadBalancersRequest { cluster, ..Default::default() };
                t.load_balancers().list_load_balancers(t.ask(list)).await.map(drop)
            }
            Self::ListRoutes => {
                let list = ListRoutesRequest { cluster, ..Default::default() };
                t.routes().list_routes(t.ask(list)).await.map(drop)
            }
            Self::BatchEnsureRoutes => {
                let batch =
                    t.routes_to_ensure(vec![("198.19.255.240/28".to_owned(), super::instances::stranger(t))]);
                t.routes()
                    .batch_ensure_routes(t.ask(BatchEnsureRoutesRequest { cluster, ..batch }))
                    .await
                    .map(drop)
            }
            Self::BatchDeleteRoutes => {
                let route = Route {
                    id: "no-such-route".to_owned(),
                    destination_cidr: "198.19.255.240/28".to_owned(),
                    ..Route::default()
                };
                let items = vec![cloudprovider_proto::v1alpha1::RouteToDelete {
                    key: "k0".to_owned(),
                    route: Some(route),
                }];
                let delete = BatchDeleteRoutesRequest { cluster, fencing, items };
                t.routes().batch_delete_routes(t.ask(delete)).await.map(drop)
            }
            Self::BatchGetVolumeLabels => {
                let queries = vec![super::volumes::query("k0", "kubernetes.io/aws-ebs", "no-such-volume")];
                let get = BatchGetVolumeLabelsRequest { cluster, queries };
                t.volumes().batch_get_volume_labels(t.ask(get)).await.map(drop)
            }
            Self::ListClusters => {
                let list = ListClustersRequest { cluster, ..Default::default() };
                t.clusters().list_clusters(t.ask(list)).await.map(drop)
            }
            Self::GetControlPlaneEndpoint => {
                let get = GetControlPlaneEndpointRequest { cluster, cluster_name: t.name() };
                t.clusters().get_control_plane_endpoint(t.ask(get)).await.map(drop)
            }
        }
    }
}

/// Another cluster's balancer, and the same Service uid as if it were ours.
async fn theirs(t: &Trial) -> Result<(Wanted, Wanted), crate::case::Stop> {
    let theirs = t.wanted_by(t.other_cluster())?;
    t.ensure(&theirs).await?;
    let ours = Wanted {
        cluster: t.cluster().unwrap_or_default(),
        digest: format!("{}-ours", theirs.digest),
        ..theirs.clone()
    };
    t.register(crate::ledger::Entry::load_balancer(&ours.cluster.uid, &ours.service_ref()))?;
    Ok((theirs, ours))
}

async fn untouched(t: &Trial, theirs: &Wanted) -> Outcome {
    let seen = t.get(theirs).await?;
    let whole = seen.state() == LoadBalancerState::Active && seen.applied_digest == theirs.digest;
    expect(whole, "the other cluster's balancer ACTIVE with its own digest", seen)
}

async fn not_ours(t: &Trial) -> Outcome {
    let (theirs, ours) = theirs(t).await?;
    let state = t.get(&ours).await?.state();
    let fits = matches!(state, LoadBalancerState::NotOwned | LoadBalancerState::Absent);
    expect(fits, "NOT_OWNED or ABSENT", state)?;
    untouched(t, &theirs).await
}

async fn not_deleted(t: &Trial) -> Outcome {
    let (theirs, ours) = theirs(t).await?;
    t.delete(&t.delete_request(&ours)).await?;
    untouched(t, &theirs).await
}

async fn not_changed(t: &Trial) -> Outcome {
    let (theirs, ours) = theirs(t).await?;
    // Either there is room for both, or the name is taken.
    if t.ensure_once(&ours).await.is_err() {
        refused("the name is taken", t.ensure_once(&ours).await, ErrorReason::OwnedByOtherCluster)?;
    }
    untouched(t, &theirs).await
}

async fn not_listed(t: &Trial) -> Outcome {
    let (theirs, own) = (t.wanted_by(t.other_cluster())?, t.wanted()?);
    t.ensure(&theirs).await?;
    t.ensure(&own).await?;
    let listed = t.listed(&own.cluster).await?;
    for balancer in &listed {
        let uid = balancer.service.clone().unwrap_or_default().uid;
        let legacy = balancer.ownership() == cloudprovider_proto::v1alpha1::Ownership::ByLegacyName;
        expect(legacy || uid == own.uid(), format!("only the balancer of Service {}", own.uid()), balancer)?;
    }
    expect(
        listed.iter().any(|balancer| balancer.service.clone().unwrap_or_default().uid == own.uid()),
        "ours",
        &listed,
    )
}

async fn foreign_route(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let other = t.other_cluster();
    let destination = t.destination_of(&other)?;
    let mut request = t.routes_to_ensure(vec![(destination.clone(), machines[0].node())]);
    request.cluster = Some(other.clone());
    // Machines of our cluster may be no targets for another one: then there is nothing to try.
    let theirs = match t.ensure_route_once(request.clone()).await?.error {
        Some(error) => {
            return Err(crate::case::Stop::NotRun(format!(
                "another cluster cannot have a route here: {error:?}"
            )));
        }
        None => t.ensure_route_by(request).await?,
    };
    let ours = t.cluster().unwrap_or_default();
    t.register(crate::ledger::Entry::Route { cluster: ours.uid.clone(), destination: destination.clone() })?;
    let taken =
        t.ensure_route_once(t.routes_to_ensure(vec![(destination.clone(), machines[1].node())])).await?;
    if let Some(error) = &taken.error {
        same("the item's reason", &error.reason(), &ErrorReason::OwnedByOtherCluster)?;
    }
    t.delete_route(&ours, &theirs).await?;
    let after = t.listed_route(&other, &destination).await?;
    let target = after.and_then(|route| route.target).unwrap_or_default();
    same("the other cluster's target", &target.provider_id, &machines[0].provider_id)
}
