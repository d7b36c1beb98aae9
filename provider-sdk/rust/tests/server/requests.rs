//! Requests as a host sends them.

use cloudprovider_sdk::proto::*;

pub(crate) fn cluster() -> Option<ClusterRef> {
    Some(ClusterRef { uid: "cluster-1".into(), name: "demo".into() })
}

pub(crate) fn batch(keys: &[&str]) -> BatchGetInstancesRequest {
    let node = || Some(NodeRef { name: "node".into(), ..Default::default() });
    let queries = keys.iter().map(|key| InstanceQuery { key: (*key).into(), node: node() }).collect();
    BatchGetInstancesRequest { cluster: cluster(), queries, ..Default::default() }
}

pub(crate) fn watch(resume_token: &str) -> WatchInstancesRequest {
    WatchInstancesRequest { cluster: cluster(), resume_token: resume_token.into() }
}

pub(crate) fn fencing(epoch: u64) -> Option<Fencing> {
    Some(Fencing { scope: "lease-1".into(), epoch })
}

pub(crate) fn service(name: &str, uid: &str) -> Option<Service> {
    let named = ServiceRef { namespace: "default".into(), name: name.into(), uid: uid.into() };
    Some(Service { r#ref: Some(named), ..Default::default() })
}

pub(crate) fn ensure(name: &str) -> EnsureLoadBalancerRequest {
    EnsureLoadBalancerRequest {
        cluster: cluster(),
        fencing: fencing(0),
        service: service(name, &format!("uid-{name}")),
        backends: Some(BackendSet::default()),
        desired_digest: "digest".into(),
        ..Default::default()
    }
}

pub(crate) fn update(uid: &str, revision: u64) -> LoadBalancerUpdate {
    LoadBalancerUpdate { service: service("svc", uid), desired_digest: "d".into(), revision }
}

pub(crate) fn updates(items: Vec<LoadBalancerUpdate>) -> BatchUpdateLoadBalancersRequest {
    let backends = Some(BackendSet::default());
    BatchUpdateLoadBalancersRequest { cluster: cluster(), fencing: fencing(0), backends, items }
}
