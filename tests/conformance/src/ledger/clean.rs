//! Deletes what the ledger contains, the newest first.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use cloudprovider_proto::{
    method::Rpc,
    v1alpha1::{
        BatchDeleteRoutesRequest, ClusterRef, DeleteLoadBalancerRequest, ErrorReason, Fencing, LeadRequest,
        ListRoutesRequest, Route, RouteToDelete, ServiceRef, cloud_provider_client::CloudProviderClient,
        load_balancers_client::LoadBalancersClient, routes_client::RoutesClient,
    },
};
use futures::future::join_all;
use tokio::time::Instant;
use tonic::{Code, Request};

use super::{Entry, Ledger};
use crate::{
    provider::in_words,
    scenario::{Scenario, Variables},
    target::{Wire, is_temporary},
    trial::{read_error, reason_of, within},
};

/// How long one deletion may take, if `max-wait` is not longer.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

/// An object that still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The object.
    pub what: String,
    /// Why it could not be deleted.
    pub why: String,
    /// The provider refused to delete it, for longer than anything temporary takes.
    pub refused: bool,
    /// It is no object: the cloud is still as a hook disturbed it.
    pub is_disturbance: bool,
}

/// Why something is not deleted.
struct Why {
    words: String,
    refused: bool,
}

impl From<String> for Why {
    fn from(words: String) -> Self {
        Self { words, refused: false }
    }
}

/// Deletes what is registered under the chosen numbers.
pub async fn clean(
    wire: &Wire,
    scenario: &Scenario,
    ledger: &RefCell<Ledger>,
    chosen: impl Fn(u64) -> bool,
) -> Vec<Left> {
    let mut left = Vec::new();
    let open: Vec<_> = ledger.borrow().open().into_iter().filter(|(number, _)| chosen(*number)).collect();
    let settled = Instant::now() + scenario.settle;
    let is_balancer = |(_, entry): &(u64, Entry)| matches!(entry, Entry::LoadBalancer { .. });
    // Balancers that follow one another go at once: each may take a while.
    for group in open.chunk_by(|one, next| is_balancer(one) && is_balancer(next)) {
        let all = group.iter().map(async |(number, entry)| {
            let cleaner = Cleaner { wire, scenario, settled };
            let most = cleaner.patience();
            let done = match tokio::time::timeout(most, cleaner.take_back(entry)).await {
                Ok(done) => done,
                Err(_) => Err(format!("not gone after {most:?}").into()),
            };
            let gone = || ledger.borrow_mut().gone(*number).map_err(|error| format!("{error:#}").into());
            let Why { words, refused } = done.and_then(|()| gone()).err()?;
            Some(Left { what: entry.words(), why: words, refused, is_disturbance: entry.is_disturbance() })
        });
        left.extend(join_all(all).await.into_iter().flatten());
    }
    left
}

struct Cleaner<'a> {
    wire: &'a Wire,
    scenario: &'a Scenario,
    /// From when on what was made before is listed.
    settled: Instant,
}

impl Cleaner<'_> {
    async fn take_back(&self, entry: &Entry) -> Result<(), Why> {
        match entry {
            Entry::LoadBalancer { cluster, cluster_name, led, namespace, name, uid } => {
                let service =
                    ServiceRef { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
                let cluster = ClusterRef { uid: cluster.clone(), name: cluster_name.clone() };
                if *led {
                    self.delete_led(cluster, service).await
                } else {
                    self.delete_balancer(cluster, Fencing::default(), service).await
                }
            }
            Entry::Route { cluster, cluster_name, destination } => {
                let cluster = ClusterRef { uid: cluster.clone(), name: cluster_name.clone() };
                self.delete_route(&cluster, destination).await
            }
            Entry::Hook { hook, variables } => {
                let variables = Variables::from_map(variables.clone());
                self.scenario.hook(hook, &variables).await.map(drop).map_err(|error| error.to_string().into())
            }
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE.max(self.scenario.max_wait)
    }

    fn ask<T: Rpc>(&self, message: T) -> Request<T> {
        within(message, self.scenario.call_deadline.unwrap_or(T::METHOD.deadline))
    }

    /// Deletes as a leader of its own, which then steps down.
    async fn delete_led(&self, cluster: ClusterRef, service: ServiceRef) -> Result<(), Why> {
        let leader = Fencing { scope: format!("cleanup-{}", uuid::Uuid::new_v4()), epoch: 1 };
        let lead = async |time: Duration| {
            let valid_for = time.try_into().ok();
            let request = LeadRequest {
                cluster: Some(cluster.clone()),
                fencing: Some(leader.clone()),
                valid_for,
                valid_until: None,
            };
            let answer = CloudProviderClient::new(self.wire.clone()).lead(self.ask(request)).await;
            answer.map(drop).map_err(|status| Why::from(in_words(&status)))
        };
        lead(self.patience()).await?;
        let deleted = self.delete_balancer(cluster.clone(), leader.clone(), service).await;
        lead(Duration::ZERO).await.and(deleted)
    }

    async fn delete_balancer(
        &self,
        cluster: ClusterRef,
        fencing: Fencing,
        service: ServiceRef,
    ) -> Result<(), Why> {
        let delete = DeleteLoadBalancerRequest {
            cluster: Some(cluster),
            fencing: Some(fencing),
            service: Some(service),
            ..DeleteLoadBalancerRequest::default()
        };
        self.until_done(async || {
            let asked = self.ask(delete.clone());
            let answer = LoadBalancersClient::new(self.wire.clone()).delete_load_balancer(asked).await?;
            Ok(answer.into_inner().in_progress.is_none())
        })
        .await
    }

    async fn delete_route(&self, cluster: &ClusterRef, destination: &str) -> Result<(), Why> {
        let deleted = Cell::new(false);
        self.until_done(async || {
            let Some(route) = self.find_route(cluster, destination).await? else {
                // A list may lag behind what was made.
                return Ok(deleted.get() || Instant::now() > self.settled);
            };
            let items = vec![RouteToDelete { key: "clean".to_owned(), route: Some(route) }];
            let (cluster, fencing) = (Some(cluster.clone()), Some(Fencing::default()));
            let delete = self.ask(BatchDeleteRoutesRequest { cluster, fencing, items });
            let answer = RoutesClient::new(self.wire.clone()).batch_delete_routes(delete).await?;
            deleted.set(answer.into_inner().results.iter().all(|result| result.error.is_none()));
            Ok(false)
        })
        .await
    }

    async fn find_route(
        &self,
        cluster: &ClusterRef,
        destination: &str,
    ) -> Result<Option<Route>, tonic::Status> {
        let mut page_token = String::new();
        for _page in 0..1000 {
            let list = ListRoutesRequest { cluster: Some(cluster.clone()), page_token, ..Default::default() };
            let page = RoutesClient::new(self.wire.clone()).list_routes(self.ask(list)).await?.into_inner();
            let mut routes = page.routes.into_iter();
            if let Some(found) = routes.find(|route| same_network(&route.destination_cidr, destination)) {
                return Ok(Some(found));
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Retries while the deletion is in progress or fails temporarily.
    async fn until_done(&self, attempt: impl AsyncFn() -> Result<bool, tonic::Status>) -> Result<(), Why> {
        let soon = Instant::now() + self.scenario.settle.max(PAUSE * 10);
        let latest = soon.max(Instant::now() + self.scenario.max_wait);
        loop {
            let (end, why) = match attempt().await {
                Ok(true) => return Ok(()),
                Ok(false) => (latest, Why::from("it is still going".to_owned())),
                // A provider that does not serve this call did not serve the one that creates objects either: both are
                // of one service.
                Err(status) if status.code() == Code::Unimplemented => return Ok(()),
                Err(status) => {
                    let refused = !comes_back(&status);
                    let why = Why { words: read_error(&status).words(), refused };
                    (if refused { latest } else { soon }, why)
                }
            };
            if Instant::now() > end {
                return Err(why);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether it says something about the cloud as a whole, and not about the object.
fn comes_back(status: &tonic::Status) -> bool {
    reason_of(status).is_none_or(|reason| match reason {
        ErrorReason::ConcurrentOperation => false,
        ErrorReason::ShuttingDown => true,
        other => is_temporary(other),
    })
}

/// Whether both are the same destination.
pub(crate) fn same_network(left: &str, right: &str) -> bool {
    let network = |text: &str| text.parse::<ipnet::IpNet>().map(|net| net.trunc()).ok();
    network(left).is_some() && network(left) == network(right)
}
