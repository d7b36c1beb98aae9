//! The subjects of a request and its caller, read from the wire: for the call log, and for faults that target one node or
//! Service.

use cloudprovider_sdk::proto::*;
use prost::{DecodeError, Message, bytes::Bytes};

use super::Method;

/// One subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Its key in the results of a batch.
    pub(crate) key: String,
    /// The names that people may use for it; the first is shown.
    pub(crate) names: Vec<String>,
}

impl Subject {
    fn new(key: String, names: impl IntoIterator<Item = String>) -> Self {
        Self { key, names: names.into_iter().filter(|name| !name.is_empty()).collect() }
    }

    /// Whether one of the given names matches; no names match everything, and a trailing `*` makes a prefix.
    pub(crate) fn is_among(&self, on: &[String]) -> bool {
        let means = |wanted: &String, name: &String| match wanted.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == wanted,
        };
        on.is_empty() || on.iter().any(|wanted| self.names.iter().any(|name| means(wanted, name)))
    }
}

/// The fields that every request to the cloud begins with.
#[derive(Clone, PartialEq, Message)]
struct Asks {
    #[prost(message, optional, tag = "1")]
    cluster: Option<ClusterRef>,
}

/// The fields that every mutation begins with.
#[derive(Clone, PartialEq, Message)]
struct Changes {
    #[prost(message, optional, tag = "2")]
    fencing: Option<Fencing>,
}

/// The cluster and the leader's epoch of a request, if it has them, and its subjects.
pub(crate) struct Head {
    pub(crate) cluster_uid: String,
    pub(crate) epoch: u64,
    pub(crate) subjects: Vec<Subject>,
}

impl Head {
    /// # Errors
    ///
    /// It is not a request of this RPC.
    pub(crate) fn read(method: Method, message: &Bytes) -> Result<Self, DecodeError> {
        let mut head =
            Self { cluster_uid: String::new(), epoch: 0, subjects: subjects(method, message.clone())? };
        if method == Method::Lead || !method.is_from_memory() {
            head.cluster_uid = Asks::decode(message.clone())?.cluster.unwrap_or_default().uid;
        }
        if Method::CHANGES.contains(&method) {
            head.epoch = Changes::decode(message.clone())?.fencing.unwrap_or_default().epoch;
        }
        Ok(head)
    }
}

fn subjects(method: Method, message: Bytes) -> Result<Vec<Subject>, DecodeError> {
    Ok(match method {
        Method::BatchGetInstances => {
            let queries = BatchGetInstancesRequest::decode(message)?.queries.into_iter();
            queries.map(|query| of_node(query.key, query.node.unwrap_or_default())).collect()
        }
        Method::GetLoadBalancer => of_service(GetLoadBalancerRequest::decode(message)?.service),
        Method::EnsureLoadBalancer => {
            of_service(EnsureLoadBalancerRequest::decode(message)?.service.and_then(|service| service.r#ref))
        }
        Method::DeleteLoadBalancer => of_service(DeleteLoadBalancerRequest::decode(message)?.service),
        Method::BatchUpdateLoadBalancers => {
            let items = BatchUpdateLoadBalancersRequest::decode(message)?.items.into_iter();
            items.flat_map(|item| of_service(item.service.and_then(|service| service.r#ref))).collect()
        }
        Method::BatchEnsureRoutes => {
            let items = BatchEnsureRoutesRequest::decode(message)?.items.into_iter();
            items.map(|item| of_route(item.key, item.destination_cidr, String::new(), item.target)).collect()
        }
        Method::BatchDeleteRoutes => {
            let items = BatchDeleteRoutesRequest::decode(message)?.items.into_iter();
            let routes = items.map(|item| (item.key, item.route.unwrap_or_default()));
            routes.map(|(key, is)| of_route(key, is.destination_cidr, is.id, is.target)).collect()
        }
        Method::BatchGetVolumeLabels => {
            let queries = BatchGetVolumeLabelsRequest::decode(message)?.queries.into_iter();
            queries.map(|query| Subject::new(query.key, [query.volume_id, query.name])).collect()
        }
        Method::GetControlPlaneEndpoint => {
            let name = GetControlPlaneEndpointRequest::decode(message)?.cluster_name;
            vec![Subject::new(String::new(), [name])]
        }
        Method::AddSshKeyToAllInstances => {
            vec![Subject::new(String::new(), [AddSshKeyToAllInstancesRequest::decode(message)?.user])]
        }
        _ => Vec::new(),
    })
}

fn of_service(service: Option<ServiceRef>) -> Vec<Subject> {
    let subject = |service: ServiceRef| {
        let path = format!("{}/{}", service.namespace, service.name);
        Subject::new(service.uid.clone(), [path, service.uid, service.name])
    };
    service.map(subject).into_iter().collect()
}

fn of_node(key: String, node: NodeRef) -> Subject {
    Subject::new(key, [node.name, node.provider_id, node.uid])
}

fn of_route(key: String, cidr: String, id: String, target: Option<NodeRef>) -> Subject {
    let node = target.unwrap_or_default();
    Subject::new(key, [cidr, node.name, node.provider_id, id])
}
