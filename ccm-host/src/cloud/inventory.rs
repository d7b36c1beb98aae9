//! Lists what a provider has, for people.
//!
//! The calls obey the same limits as those of controllers; no controller decides anything by these answers.

use ccm_state::inventory::{
    Cluster, Instance, Inventory, Items, LoadBalancer, Route, Volume, volume_queries,
};
use cloudprovider_proto::v1alpha1::{self as pb, ErrorReason};

use super::{
    CloudError,
    call::{
        list::{At, List, Page},
        method::{self, Rpc},
    },
    check::Findings,
    connection::{Link, session::Session},
    status,
};

/// What to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    Instances,
    LoadBalancers,
    Routes,
    /// These volumes of a plugin.
    Volumes {
        plugin: String,
        ids: Vec<String>,
    },
    Clusters,
    /// Where the control plane of this cluster is.
    Cluster(String),
}

pub(super) async fn answer(link: &Link, question: &Question) -> Result<Inventory, CloudError> {
    let (items, unreachable) = match question {
        Question::Instances => {
            let request = |At { cluster, page_size, page_token }| {
                let view = pb::InstanceView::Metadata.into();
                pb::ListInstancesRequest { cluster, page_size, page_token, view }
            };
            let open = |page: pb::ListInstancesResponse| Page {
                items: page.instances,
                next: page.next_page_token,
                unreachable: page.unreachable,
            };
            let key = |row: &Instance| row.provider_id.clone();
            let (rows, unreachable) = rows(link, request, open, Instance::from, key).await?;
            (Items::Instances(rows), unreachable)
        }
        Question::LoadBalancers => {
            let request = |At { cluster, page_size, page_token }| pb::ListLoadBalancersRequest {
                cluster,
                page_size,
                page_token,
            };
            let open = |page: pb::ListLoadBalancersResponse| Page {
                items: page.load_balancers,
                next: page.next_page_token,
                unreachable: page.unreachable,
            };
            let key = |row: &LoadBalancer| row.id.clone();
            let (rows, unreachable) = rows(link, request, open, LoadBalancer::from, key).await?;
            (Items::LoadBalancers(rows), unreachable)
        }
        Question::Routes => {
            let request = |At { cluster, page_size, page_token }| pb::ListRoutesRequest {
                cluster,
                page_size,
                page_token,
                within: Vec::new(),
            };
            let open = |page: pb::ListRoutesResponse| Page {
                items: page.routes,
                next: page.next_page_token,
                unreachable: page.unreachable,
            };
            let key = |row: &Route| row.id.clone();
            let (rows, unreachable) = rows(link, request, open, Route::from, key).await?;
            (Items::Routes(rows), unreachable)
        }
        Question::Clusters => {
            let request = |At { cluster, page_size, page_token }| pb::ListClustersRequest {
                cluster,
                page_size,
                page_token,
            };
            let open = |page: pb::ListClustersResponse| Page {
                items: page.names,
                next: page.next_page_token,
                unreachable: Vec::new(),
            };
            let row = |name| Cluster { name, endpoint: None };
            let (rows, unreachable) = rows(link, request, open, row, |row| row.name.clone()).await?;
            (Items::Clusters(rows), unreachable)
        }
        Question::Cluster(name) => (Items::Clusters(vec![endpoint(link, name).await?]), Vec::new()),
        Question::Volumes { plugin, ids } => (Items::Volumes(volumes(link, plugin, ids).await?), Vec::new()),
    };
    Ok(Inventory::new(link.name(), items, unreachable))
}

async fn rows<Q: Rpc, G, R>(
    link: &Link,
    request: impl Fn(At) -> Q,
    open: impl Fn(Q::Answer) -> Page<G>,
    row: impl Fn(G) -> R,
    key: impl Fn(&R) -> String,
) -> Result<(Vec<R>, Vec<String>), CloudError> {
    let list = List {
        request,
        open: |_: &Session, answer| open(answer),
        read: |given, _: &mut Findings| {
            let row = row(given);
            Some((key(&row), row))
        },
    };
    let walked = list.walk(link).await?;
    let unreachable = walked.unreachable.into_iter().map(|(location, error)| format!("{location}: {error}"));
    Ok((walked.items, unreachable.collect()))
}

async fn endpoint(link: &Link, name: &str) -> Result<Cluster, CloudError> {
    let cluster_name = name.to_owned();
    let message = pb::GetControlPlaneEndpointRequest { cluster: Some(link.cluster()), cluster_name };
    Ok(Cluster::at(name, &link.ask(message).await?))
}

async fn volumes(link: &Link, plugin: &str, ids: &[String]) -> Result<Vec<Volume>, CloudError> {
    let method = &method::BATCH_GET_VOLUME_LABELS;
    let (_permit, session) = link.ready(method).await?;
    let queries = volume_queries(plugin, ids);
    let most = session.most_items(method);
    if queries.len() > most {
        let message = format!("{} volumes are too many for one request: give at most {most}", queries.len());
        return Err(status::local(method.name, ErrorReason::BatchTooLarge, message));
    }
    let message = pb::BatchGetVolumeLabelsRequest { cluster: Some(link.cluster()), queries };
    let found = link.call(&session, None, message).await?;
    Ok(found.results.into_iter().map(Volume::from).collect())
}
