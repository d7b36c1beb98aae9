//! What each item of a mutation changes: its natural key, and the revision of its wanted state.

use cloudprovider_proto::RequestMessage;
use ipnet::IpNet;

use super::batch::Keyed;
use crate::Result;
use crate::proto::{
    AddSshKeyToAllInstancesRequest, BackendSet, BatchDeleteRoutesRequest, BatchEnsureRoutesRequest,
    BatchUpdateLoadBalancersRequest, ClusterRef, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest,
    Service, ServiceRef,
};

/// A natural key: only one mutation at a time may work on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    kind: &'static str,
    cluster: String,
    /// Uid of the Service, or the destination of the route.
    pub(crate) name: String,
}

impl Subject {
    /// The load balancer of a Service.
    pub(crate) fn service(cluster: &str, uid: &str) -> Self {
        Self { kind: "service", cluster: cluster.to_owned(), name: uid.to_owned() }
    }

    /// CIDRs are compared as networks, never as text; the provider refuses a text that is not a CIDR.
    fn route(cluster: &str, destination: &str) -> Self {
        let network = destination.parse::<IpNet>().map(|network| network.trunc().to_string());
        let name = network.unwrap_or_else(|_| destination.to_owned());
        Self { kind: "route", cluster: cluster.to_owned(), name }
    }
}

/// Decides whether a mutation may work on a key at this revision of its wanted state.
pub(crate) type May<'a> = dyn FnMut(Subject, u64) -> Result<()> + 'a;

/// A request that changes something.
pub(crate) trait Mutation: RequestMessage<Answer: Clone> + Clone + PartialEq + Send + 'static {
    /// Asks for every key of the mutation. A single mutation ends with the refusal; from a batch, refused
    /// items are removed, and their results are part of the response.
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer>;

    /// What identical mutations have in common: backends with a digest need not be compared.
    fn same(&mut self) -> Self {
        self.clone()
    }

    /// Adds the results of the refused items.
    fn add(_answer: &mut Self::Answer, _refused: Self::Answer) {}
}

impl Mutation for EnsureLoadBalancerRequest {
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        may(Subject::service(uid_of_cluster(&self.cluster), uid_of(&self.service)), self.revision)?;
        Ok(Self::Answer::default())
    }

    fn same(&mut self) -> Self {
        without_nodes(self, |request| &mut request.backends)
    }
}

impl Mutation for DeleteLoadBalancerRequest {
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        may(Subject::service(uid_of_cluster(&self.cluster), uid(&self.service)), self.revision)?;
        Ok(Self::Answer::default())
    }
}

impl Mutation for AddSshKeyToAllInstancesRequest {
    fn admit(&mut self, _may: &mut May<'_>) -> Result<Self::Answer> {
        Ok(Self::Answer::default())
    }
}

impl Mutation for BatchUpdateLoadBalancersRequest {
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        let (cluster, items) = (uid_of_cluster(&self.cluster), &mut self.items);
        let results = refuse(items, |item| {
            let uid = uid_of(&item.service);
            (uid, may(Subject::service(cluster, uid), item.revision))
        });
        Ok(Self::Answer { results })
    }

    fn same(&mut self) -> Self {
        without_nodes(self, |request| &mut request.backends)
    }

    fn add(answer: &mut Self::Answer, refused: Self::Answer) {
        answer.results.extend(refused.results);
    }
}

impl Mutation for BatchEnsureRoutesRequest {
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        let (cluster, items) = (uid_of_cluster(&self.cluster), &mut self.items);
        let results =
            refuse(items, |item| (&*item.key, may(Subject::route(cluster, &item.destination_cidr), 0)));
        Ok(Self::Answer { results })
    }

    fn add(answer: &mut Self::Answer, refused: Self::Answer) {
        answer.results.extend(refused.results);
    }
}

impl Mutation for BatchDeleteRoutesRequest {
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        let (cluster, items) = (uid_of_cluster(&self.cluster), &mut self.items);
        let results = refuse(items, |item| {
            let destination = item.route.as_ref().map_or("", |route| &route.destination_cidr);
            (&*item.key, may(Subject::route(cluster, destination), 0))
        });
        Ok(Self::Answer { results })
    }

    fn add(answer: &mut Self::Answer, refused: Self::Answer) {
        answer.results.extend(refused.results);
    }
}

/// A copy without the nodes of a set that has a digest, which may be thousands.
fn without_nodes<Q: Clone>(request: &mut Q, backends: fn(&mut Q) -> &mut Option<BackendSet>) -> Q {
    let digested = |set: &&mut BackendSet| !set.digest.is_empty();
    let nodes = backends(request).as_mut().filter(digested).map(|set| std::mem::take(&mut set.nodes));
    let copy = request.clone();
    if let Some((set, nodes)) = backends(request).as_mut().zip(nodes) {
        set.nodes = nodes;
    }
    copy
}

/// Removes the refused items by key.
fn refuse<I, R: Keyed>(items: &mut Vec<I>, mut may: impl FnMut(&I) -> (&str, Result<()>)) -> Vec<R> {
    let mut refused = Vec::new();
    items.retain(|item| {
        let (key, allowed) = may(item);
        allowed.map_err(|error| refused.push(R::failed(key, error.to_item()))).is_ok()
    });
    refused
}

/// The cluster uid, or empty.
fn uid_of_cluster(cluster: &Option<ClusterRef>) -> &str {
    cluster.as_ref().map_or("", |cluster| &cluster.uid)
}

fn uid(service: &Option<ServiceRef>) -> &str {
    service.as_ref().map_or("", |service| &service.uid)
}

/// The key of an update.
pub(crate) fn uid_of(service: &Option<Service>) -> &str {
    service.as_ref().map_or("", |service| uid(&service.r#ref))
}
