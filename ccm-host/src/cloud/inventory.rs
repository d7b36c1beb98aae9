//! Lists what a provider has, for people.
//!
//! In: what to list. Out: rows. The calls are the contract's, under the same limits as those of controllers; nothing is
//! decided on their answers.

use ccm_state::inventory::{
    Cluster, Instance, Inventory, Items, LoadBalancer, Route, Volume, volume_queries,
};
use cloudprovider_proto::v1alpha1::{self as pb, ErrorReason};

use super::{
    CloudError,
    check::Findings,
    link::Link,
    method::{self, Method},
    session::Session,
    status,
    walk::{Page, Paged, Walked, walk},
};

/// What a person asks a provider for.
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
        Question::Instances => all(link, List::Instances, Items::Instances(Vec::new())).await?,
        Question::LoadBalancers => all(link, List::LoadBalancers, Items::LoadBalancers(Vec::new())).await?,
        Question::Routes => all(link, List::Routes, Items::Routes(Vec::new())).await?,
        Question::Clusters => all(link, List::Clusters, Items::Clusters(Vec::new())).await?,
        Question::Cluster(name) => (Items::Clusters(vec![endpoint(link, name).await?]), Vec::new()),
        Question::Volumes { plugin, ids } => (Items::Volumes(volumes(link, plugin, ids).await?), Vec::new()),
    };
    Ok(Inventory::new(link.name(), items, unreachable))
}

async fn all(link: &Link, list: List, mut items: Items) -> Result<(Items, Vec<String>), CloudError> {
    let Walked { items: rows, unreachable, .. } = walk(link, &list).await?;
    for row in rows {
        match (&mut items, row) {
            (Items::Instances(all), Row::Instance(row)) => all.push(row),
            (Items::LoadBalancers(all), Row::LoadBalancer(row)) => all.push(row),
            (Items::Routes(all), Row::Route(row)) => all.push(row),
            (Items::Clusters(all), Row::Cluster(row)) => all.push(row),
            // A list has rows of its own kind only.
            _ => {}
        }
    }
    let unreachable = unreachable.into_iter().map(|(location, error)| format!("{location}: {error}"));
    Ok((items, unreachable.collect()))
}

async fn endpoint(link: &Link, name: &str) -> Result<Cluster, CloudError> {
    let method = &method::GET_CONTROL_PLANE_ENDPOINT;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let message = pb::GetControlPlaneEndpointRequest {
        cluster: Some(link.config.cluster.message()),
        cluster_name: name.to_owned(),
    };
    let mut client = session.clusters();
    let found = link
        .call(&session, method, None, message, async |request| {
            client.get_control_plane_endpoint(request).await
        })
        .await?;
    Ok(Cluster::at(name, &found))
}

async fn volumes(link: &Link, plugin: &str, ids: &[String]) -> Result<Vec<Volume>, CloudError> {
    let method = &method::BATCH_GET_VOLUME_LABELS;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let queries = volume_queries(plugin, ids);
    let most = session.most_volumes();
    if queries.len() > most {
        let message = format!("{} volumes are too many for one question: give at most {most}", queries.len());
        return Err(status::local(method.name, ErrorReason::BatchTooLarge, message));
    }
    let message = pb::BatchGetVolumeLabelsRequest { cluster: Some(link.config.cluster.message()), queries };
    let mut client = session.volumes();
    let found = link
        .call(&session, method, None, message, async |request| client.batch_get_volume_labels(request).await)
        .await?;
    Ok(found.results.into_iter().map(Volume::from).collect())
}

/// What the contract lists page by page.
#[derive(Debug, Clone, Copy)]
enum List {
    Instances,
    LoadBalancers,
    Routes,
    Clusters,
}

enum Row {
    Instance(Instance),
    LoadBalancer(LoadBalancer),
    Route(Route),
    Cluster(Cluster),
}

impl Paged for List {
    type Given = Row;
    type Key = String;
    type Item = Row;

    fn method(&self) -> &'static Method {
        match self {
            Self::Instances => &method::LIST_INSTANCES,
            Self::LoadBalancers => &method::LIST_LOAD_BALANCERS,
            Self::Routes => &method::LIST_ROUTES,
            Self::Clusters => &method::LIST_CLUSTERS,
        }
    }

    async fn page(
        &self,
        link: &Link,
        session: &Session,
        page_size: i32,
        page_token: String,
    ) -> Result<Page<Row>, CloudError> {
        let method = self.method();
        let _permit = link.permit(method).await?;
        let cluster = Some(link.config.cluster.message());
        Ok(match self {
            Self::Instances => {
                let view = pb::InstanceView::Metadata.into();
                let message = pb::ListInstancesRequest { cluster, page_size, page_token, view };
                let mut client = session.instances();
                let send = async |request| client.list_instances(request).await;
                let page = link.call(session, method, None, message, send).await?;
                let items = page.instances.into_iter().map(|given| Row::Instance(given.into())).collect();
                Page { items, next: page.next_page_token, unreachable: page.unreachable }
            }
            Self::LoadBalancers => {
                let message = pb::ListLoadBalancersRequest { cluster, page_size, page_token };
                let mut client = session.load_balancers();
                let send = async |request| client.list_load_balancers(request).await;
                let page = link.call(session, method, None, message, send).await?;
                let items = page.load_balancers.into_iter().map(|given| Row::LoadBalancer(given.into()));
                Page { items: items.collect(), next: page.next_page_token, unreachable: page.unreachable }
            }
            Self::Routes => {
                let message = pb::ListRoutesRequest {
                    cluster,
                    page_size,
                    page_token,
                    ..pb::ListRoutesRequest::default()
                };
                let mut client = session.routes();
                let send = async |request| client.list_routes(request).await;
                let page = link.call(session, method, None, message, send).await?;
                let items = page.routes.into_iter().map(|given| Row::Route(given.into())).collect();
                Page { items, next: page.next_page_token, unreachable: page.unreachable }
            }
            Self::Clusters => {
                let message = pb::ListClustersRequest { cluster, page_size, page_token };
                let mut client = session.clusters();
                let send = async |request| client.list_clusters(request).await;
                let page = link.call(session, method, None, message, send).await?;
                let cluster = |name| Row::Cluster(Cluster { name, endpoint: None });
                let items = page.names.into_iter().map(cluster).collect();
                Page { items, next: page.next_page_token, unreachable: Vec::new() }
            }
        })
    }

    fn read(&self, row: Row, _: &mut Findings) -> Option<(String, Row)> {
        let key = match &row {
            Row::Instance(row) => row.provider_id.clone(),
            Row::LoadBalancer(row) => row.id.clone(),
            Row::Route(row) => row.id.clone(),
            Row::Cluster(row) => row.name.clone(),
        };
        Some((key, row))
    }
}
