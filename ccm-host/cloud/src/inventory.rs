//! Lists what a provider has, for people.
//!
//! The calls obey the same limits as those of controllers; no controller decides anything by these answers.

use ccm_state::inventory::{
    Cluster, Instance, Inventory, Items, LoadBalancer, Route, Volume, volume_queries,
};
use cloudprovider_proto::v1alpha1::{self as pb, ErrorReason};

use super::{
    CloudError, Listed,
    call::list::{self, PagedRpc},
    connection::{Link, session::Session},
    method,
};
use crate::findings::Findings;

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
            let request =
                pb::ListInstancesRequest { view: pb::InstanceView::Metadata.into(), ..Default::default() };
            let listed = rows(link, request, Instance::from, |row| &row.provider_id).await?;
            (Items::Instances(listed.items), listed.unreachable)
        }
        Question::LoadBalancers => {
            let request = pb::ListLoadBalancersRequest::default();
            let listed = rows(link, request, LoadBalancer::from, |row| &row.id).await?;
            (Items::LoadBalancers(listed.items), listed.unreachable)
        }
        Question::Routes => {
            let listed = rows(link, pb::ListRoutesRequest::default(), Route::from, |row| &row.id).await?;
            (Items::Routes(listed.items), listed.unreachable)
        }
        Question::Clusters => {
            let row = |name| Cluster { name, endpoint: None };
            let listed = rows(link, pb::ListClustersRequest::default(), row, |row| &row.name).await?;
            (Items::Clusters(listed.items), listed.unreachable)
        }
        Question::Cluster(name) => (Items::Clusters(vec![endpoint(link, name).await?]), Vec::new()),
        Question::Volumes { plugin, ids } => (Items::Volumes(volumes(link, plugin, ids).await?), Vec::new()),
    };
    let unreachable = unreachable.into_iter().map(|(location, error)| format!("{location}: {error}"));
    Ok(Inventory::new(link.name(), items, unreachable.collect()))
}

async fn rows<Q: PagedRpc, R>(
    link: &Link,
    request: Q,
    row: impl Fn(Q::Item) -> R,
    key: impl Fn(&R) -> &String,
) -> Result<Listed<R>, CloudError> {
    let read = |_: &Session, given, _: &mut Findings| {
        let row = row(given);
        Some((key(&row).clone(), row))
    };
    list::walk(link, request, |_| true, read).await
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
        return Err(CloudError::local(method.name, ErrorReason::BatchTooLarge, message));
    }
    let message = pb::BatchGetVolumeLabelsRequest { cluster: Some(link.cluster()), queries };
    let found = link.call(&session, None, message).await?;
    Ok(found.results.into_iter().map(Volume::from).collect())
}
