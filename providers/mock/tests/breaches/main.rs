//! Every breach of the contract, seen once on the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod balancers;
mod discovery;
mod instances;
mod rest;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use cloudprovider_sdk::{
    contract::discovery::v1::{GetInfoRequest, GetInfoResponse},
    proto::*,
};
use provider_mock::breach::{self};
use support::*;
use tonic::Status;

impl Mock {
    /// Breaks this rule from now on, and no other one.
    pub(crate) async fn breach(&self, rule: &str) {
        self.clear().await;
        self.and_breach(rule).await;
    }

    pub(crate) async fn and_breach(&self, rule: &str) {
        let (rule, variant) = rule.split_once('/').unwrap_or((rule, ""));
        self.fault(&format!("breach,rule={rule},variant={variant}")).await;
    }

    pub(crate) async fn info(&self) -> Result<GetInfoResponse, Status> {
        self.discovery()
            .get_info(GetInfoRequest { host_name: "test".into(), ..Default::default() })
            .await
            .map(tonic::Response::into_inner)
    }

    pub(crate) async fn ensure(&self, uid: &str, digest: &str) -> Result<EnsureLoadBalancerResponse, Status> {
        self.balancers()
            .ensure_load_balancer(timely(ensure(uid, digest, 1)))
            .await
            .map(tonic::Response::into_inner)
    }

    pub(crate) async fn balancer(&self, uid: &str) -> LoadBalancer {
        let get = GetLoadBalancerRequest { cluster: cluster(), service: Some(service_ref(uid)) };
        self.balancers().get_load_balancer(get).await.unwrap().into_inner().load_balancer.unwrap()
    }

    pub(crate) async fn delete(&self, uid: &str) -> Result<DeleteLoadBalancerResponse, Status> {
        self.balancers().delete_load_balancer(delete(uid)).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn balancer_count(&self) -> usize {
        self.admin.balancers().await.unwrap().len()
    }

    pub(crate) async fn list(
        &self,
        page_size: i32,
        page_token: &str,
    ) -> Result<ListInstancesResponse, Status> {
        let page_token = page_token.to_owned();
        let request =
            ListInstancesRequest { cluster: cluster(), page_size, page_token, ..Default::default() };
        self.instances().list_instances(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn instance(&self, name: &str) -> Instance {
        self.get_one(name).await.instance.unwrap()
    }
}

pub(crate) fn delete(uid: &str) -> DeleteLoadBalancerRequest {
    DeleteLoadBalancerRequest {
        cluster: cluster(),
        fencing: fencing(),
        service: Some(service_ref(uid)),
        ..Default::default()
    }
}

#[test]
fn every_breach_is_seen_here() {
    let ours = [
        include_str!("discovery.rs"),
        include_str!("instances.rs"),
        include_str!("balancers.rs"),
        include_str!("rest.rs"),
    ]
    .concat();
    let unseen: BTreeSet<_> = breach::all()
        .map(|breach| breach.name)
        .filter(|rule| !ours.contains(&format!("\"{rule}\"")) && !ours.contains(&format!("\"{rule}/")))
        .collect();
    assert_eq!(unseen, BTreeSet::new());
}
