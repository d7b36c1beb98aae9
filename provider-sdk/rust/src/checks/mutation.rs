//! What mutations are about, item by item: their natural keys, and the revisions of the wanted state.

use ipnet::IpNet;

use super::batch::Keyed;
use super::parts::uid_of_cluster;
use crate::Result;
use crate::proto::{
    AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, BackendSet, BatchDeleteRoutesRequest,
    BatchDeleteRoutesResponse, BatchEnsureRoutesRequest, BatchEnsureRoutesResponse,
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerRequest,
    DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, NodeRef, Service,
    ServiceRef,
};

/// A natural key: two mutations must not work on it at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    kind: &'static str,
    cluster: String,
    /// Uid of the Service, or the destination of the route.
    pub(crate) name: String,
}

impl Subject {
    /// The balancer of a Service.
    pub(crate) fn service(cluster: &str, uid: &str) -> Self {
        Self { kind: "service", cluster: cluster.to_owned(), name: uid.to_owned() }
    }

    /// CIDRs are compared as networks, never as text; a text that is none is the provider's to refuse.
    fn route(cluster: &str, destination: &str) -> Self {
        let network = destination.parse::<IpNet>().map(|network| network.trunc().to_string());
        let name = network.unwrap_or_else(|_| destination.to_owned());
        Self { kind: "route", cluster: cluster.to_owned(), name }
    }
}

/// Says whether a key may be worked on, for this revision of its wanted state.
pub(crate) type May<'a> = dyn FnMut(Subject, u64) -> Result<()> + 'a;

/// A request that changes something.
pub(crate) trait Mutation: super::Shape + Clone + PartialEq + Send + 'static {
    type Answer: Clone + Default + Send + Sync + 'static;

    /// Asks about everything that the mutation is about. A whole one ends with the refusal; refused items leave a batch, and
    /// what they get is in the answer.
    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer>;

    /// What equal mutations have in common: backends that a digest names need not be looked at.
    fn same(&mut self) -> Self {
        self.clone()
    }

    /// Whether nothing is left of a batch.
    fn is_empty(&self) -> bool {
        false
    }

    /// Adds what refused items get.
    fn add(_answer: &mut Self::Answer, _refused: Self::Answer) {}
}

impl Mutation for EnsureLoadBalancerRequest {
    type Answer = EnsureLoadBalancerResponse;

    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        may(Subject::service(uid_of_cluster(&self.cluster), uid_of(&self.service)), self.revision)?;
        Ok(Self::Answer::default())
    }

    fn same(&mut self) -> Self {
        without_nodes(self, |request| request.backends.as_mut_slice())
    }
}

impl Mutation for DeleteLoadBalancerRequest {
    type Answer = DeleteLoadBalancerResponse;

    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        may(Subject::service(uid_of_cluster(&self.cluster), uid(&self.service)), self.revision)?;
        Ok(Self::Answer::default())
    }
}

impl Mutation for AddSshKeyToAllInstancesRequest {
    type Answer = AddSshKeyToAllInstancesResponse;

    fn admit(&mut self, _may: &mut May<'_>) -> Result<Self::Answer> {
        Ok(Self::Answer::default())
    }
}

impl Mutation for BatchUpdateLoadBalancersRequest {
    type Answer = BatchUpdateLoadBalancersResponse;

    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        let (cluster, items) = (uid_of_cluster(&self.cluster), &mut self.items);
        let results = refuse(items, |item| {
            let uid = uid_of(&item.service);
            (uid, may(Subject::service(cluster, uid), item.revision))
        });
        Ok(Self::Answer { results })
    }

    fn same(&mut self) -> Self {
        without_nodes(self, |request| &mut request.backend_sets)
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn add(answer: &mut Self::Answer, refused: Self::Answer) {
        answer.results.extend(refused.results);
    }
}

impl Mutation for BatchEnsureRoutesRequest {
    type Answer = BatchEnsureRoutesResponse;

    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        let (cluster, items) = (uid_of_cluster(&self.cluster), &mut self.items);
        let results =
            refuse(items, |item| (&*item.key, may(Subject::route(cluster, &item.destination_cidr), 0)));
        Ok(Self::Answer { results })
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn add(answer: &mut Self::Answer, refused: Self::Answer) {
        answer.results.extend(refused.results);
    }
}

impl Mutation for BatchDeleteRoutesRequest {
    type Answer = BatchDeleteRoutesResponse;

    fn admit(&mut self, may: &mut May<'_>) -> Result<Self::Answer> {
        let (cluster, items) = (uid_of_cluster(&self.cluster), &mut self.items);
        let results = refuse(items, |item| {
            let destination = item.route.as_ref().map_or("", |route| &route.destination_cidr);
            (&*item.key, may(Subject::route(cluster, destination), 0))
        });
        Ok(Self::Answer { results })
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn add(answer: &mut Self::Answer, refused: Self::Answer) {
        answer.results.extend(refused.results);
    }
}

/// A copy in which sets that have a digest lack their nodes: thousands are not copied for nothing.
fn without_nodes<Q: Clone>(request: &mut Q, sets: fn(&mut Q) -> &mut [BackendSet]) -> Q {
    let taken = |set: &mut BackendSet| {
        if set.digest.is_empty() { Vec::new() } else { std::mem::take(&mut set.nodes) }
    };
    let nodes: Vec<Vec<NodeRef>> = sets(request).iter_mut().map(taken).collect();
    let copy = request.clone();
    for (set, mut nodes) in sets(request).iter_mut().zip(nodes) {
        set.nodes.append(&mut nodes);
    }
    copy
}

/// Takes the refused items out, by their keys.
fn refuse<I, R: Keyed>(items: &mut Vec<I>, mut may: impl FnMut(&I) -> (&str, Result<()>)) -> Vec<R> {
    let mut refused = Vec::new();
    items.retain(|item| {
        let (key, allowed) = may(item);
        allowed.map_err(|error| refused.push(R::failed(key, error.to_item()))).is_ok()
    });
    refused
}

fn uid(service: &Option<ServiceRef>) -> &str {
    service.as_ref().map_or("", |service| &service.uid)
}

/// The key of an update.
pub(crate) fn uid_of(service: &Option<Service>) -> &str {
    service.as_ref().map_or("", |service| uid(&service.r#ref))
}
