//! Counts what a run makes, since a real account pays for it: balancers as the calls show them, instances as hooks make them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use cloudprovider_proto::v1alpha1::{
    DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, ServiceRef,
};
use prost::Message as _;
use serde::{Deserialize, Serialize};

/// How many of each were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Made {
    /// Balancers.
    pub balancers: u32,
    /// Instances; those of hooks for very many do not count.
    pub instances: u32,
}

impl std::ops::Sub for Made {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            balancers: self.balancers.saturating_sub(before.balancers),
            instances: self.instances.saturating_sub(before.instances),
        }
    }
}

impl std::iter::Sum for Made {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            balancers: sum.balancers + one.balancers,
            instances: sum.instances + one.instances,
        })
    }
}

/// Counts for one run.
#[derive(Debug, Default)]
pub struct Meter(Mutex<(Made, BTreeSet<(String, String)>)>);

impl Meter {
    /// What was made until now.
    #[must_use]
    pub fn made(&self) -> Made {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether the balancer of a Service stands, as far as the calls show.
    pub(crate) fn stands(&self, cluster_uid: &str, service_uid: &str) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.contains(&(cluster_uid.to_owned(), service_uid.to_owned()))
    }

    pub(crate) fn instance(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.instances += 1;
    }

    /// Looks at a call that was answered OK.
    pub(super) fn look(&self, path: &str, request: &[u8], answer: &[u8]) {
        let key =
            |cluster_uid: String, service: Option<ServiceRef>| (cluster_uid, service.unwrap_or_default().uid);
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, standing) = &mut *state;
        match path.rsplit('/').next() {
            Some("EnsureLoadBalancer") => {
                let EnsureLoadBalancerRequest { cluster, service, .. } =
                    EnsureLoadBalancerRequest::decode(request).unwrap_or_default();
                let service = service.and_then(|service| service.r#ref);
                made.balancers += u32::from(standing.insert(key(cluster.unwrap_or_default().uid, service)));
            }
            Some("DeleteLoadBalancer") => {
                let done =
                    DeleteLoadBalancerResponse::decode(answer).is_ok_and(|one| one.in_progress.is_none());
                let DeleteLoadBalancerRequest { cluster, service, .. } =
                    DeleteLoadBalancerRequest::decode(request).unwrap_or_default();
                if done {
                    standing.remove(&key(cluster.unwrap_or_default().uid, service));
                }
            }
            _ => {}
        }
    }
}
