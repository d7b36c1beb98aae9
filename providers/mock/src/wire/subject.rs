//! What a request is about: for the call log, and for faults that are meant for one node or Service only.

use cloudprovider_sdk::proto::{NodeRef, Service, ServiceRef};

use super::message::Request;

/// One thing that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The key under which it is answered in a batch.
    pub(crate) key: String,
    /// By what a person may name it; the first is shown.
    pub(crate) names: Vec<String>,
}

impl Request {
    pub(crate) fn cluster_uid(&self) -> &str {
        self.cluster().map_or("", |cluster| cluster.uid.as_str())
    }

    /// The Service that a call is about, if it is about one.
    pub(crate) fn service(&self) -> Option<&ServiceRef> {
        match self {
            Self::GetLoadBalancer(request) => request.service.as_ref(),
            Self::EnsureLoadBalancer(request) => request.service.as_ref()?.r#ref.as_ref(),
            Self::DeleteLoadBalancer(request) => request.service.as_ref(),
            _ => None,
        }
    }

    /// Everything that the request is about.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        match self {
            Self::BatchGetInstances(request) => {
                request.queries.iter().map(|query| of_node(&query.key, query.node.as_ref())).collect()
            }
            Self::GetLoadBalancer(_) | Self::EnsureLoadBalancer(_) | Self::DeleteLoadBalancer(_) => {
                self.service().map(of_service).into_iter().collect()
            }
            Self::BatchUpdateLoadBalancers(request) => {
                let reference = |service: &Service| service.r#ref.clone();
                let services =
                    request.items.iter().filter_map(|item| item.service.as_ref().and_then(reference));
                services.map(|service| of_service(&service)).collect()
            }
            Self::BatchEnsureRoutes(request) => request
                .items
                .iter()
                .map(|item| of_route(&item.key, &item.destination_cidr, "", item.target.as_ref()))
                .collect(),
            Self::BatchDeleteRoutes(request) => request
                .items
                .iter()
                .map(|item| {
                    let route = item.route.clone().unwrap_or_default();
                    of_route(&item.key, &route.destination_cidr, &route.id, route.target.as_ref())
                })
                .collect(),
            Self::BatchGetVolumeLabels(request) => request
                .queries
                .iter()
                .map(|query| subject(&query.key, [&query.volume_id, &query.name]))
                .collect(),
            Self::GetControlPlaneEndpoint(request) => vec![subject("", [&request.cluster_name])],
            Self::AddSshKeyToAllInstances(request) => vec![subject("", [&request.user])],
            _ => Vec::new(),
        }
    }
}

fn subject<'a>(key: &str, names: impl IntoIterator<Item = &'a String>) -> Subject {
    let names = names.into_iter().filter(|name| !name.is_empty()).cloned().collect();
    Subject { key: key.to_owned(), names }
}

fn of_node(key: &str, node: Option<&NodeRef>) -> Subject {
    node.map_or_else(|| subject(key, []), |node| subject(key, [&node.name, &node.provider_id, &node.uid]))
}

fn of_service(service: &ServiceRef) -> Subject {
    let path = format!("{}/{}", service.namespace, service.name);
    subject(&service.uid, [&path, &service.uid, &service.name])
}

fn of_route(key: &str, cidr: &str, id: &str, target: Option<&NodeRef>) -> Subject {
    let node = target.cloned().unwrap_or_default();
    subject(key, [&cidr.to_owned(), &node.name, &node.provider_id, &id.to_owned()])
}
