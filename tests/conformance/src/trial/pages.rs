//! The four lists of the contract behind one interface.

use cloudprovider_proto::v1alpha1::{
    ListClustersRequest, ListInstancesRequest, ListLoadBalancersRequest, ListRoutesRequest,
};
use tonic::{Response, Status};

use super::{Trial, expect, failed, good};
use crate::case::Stop;

/// The maximum number of pages of a list.
const PAGES: usize = 2_000;

/// A list of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Instances,
    LoadBalancers,
    Routes,
    Clusters,
}

/// A page of any list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// The keys of the items.
    pub(crate) keys: Vec<String>,
    pub(crate) next: String,
    /// Parts that could not be queried.
    pub(crate) unreachable: usize,
}

impl List {
    pub(crate) fn rpc(self) -> &'static str {
        match self {
            Self::Instances => "ListInstances",
            Self::LoadBalancers => "ListLoadBalancers",
            Self::Routes => "ListRoutes",
            Self::Clusters => "ListClusters",
        }
    }

    pub(crate) async fn page(self, t: &Trial, page_size: i32, token: &str) -> Result<Response<Page>, Status> {
        let (cluster, page_token) = (t.cluster(), token.to_owned());
        let page = match self {
            Self::Instances => {
                let list = ListInstancesRequest { cluster, page_size, page_token, view: 0 };
                let page = t.instances().list_instances(t.ask(list)).await?.into_inner();
                let key = |listed: &cloudprovider_proto::v1alpha1::ListedInstance| {
                    listed.instance.as_ref().map(|instance| instance.provider_id.clone()).unwrap_or_default()
                };
                let keys = page.instances.iter().map(key).collect();
                Page { keys, next: page.next_page_token, unreachable: page.unreachable.len() }
            }
            Self::LoadBalancers => {
                let list = ListLoadBalancersRequest { cluster, page_size, page_token };
                let page = t.load_balancers().list_load_balancers(t.ask(list)).await?.into_inner();
                let uid = |listed: cloudprovider_proto::v1alpha1::LoadBalancer| {
                    listed.service.unwrap_or_default().uid
                };
                let keys = page.load_balancers.into_iter().map(uid).collect();
                Page { keys, next: page.next_page_token, unreachable: page.unreachable.len() }
            }
            Self::Routes => {
                let list = ListRoutesRequest { cluster, page_size, page_token, within: Vec::new() };
                let page = t.routes().list_routes(t.ask(list)).await?.into_inner();
                let keys = page.routes.into_iter().map(|route| route.destination_cidr).collect();
                Page { keys, next: page.next_page_token, unreachable: page.unreachable.len() }
            }
            Self::Clusters => {
                let list = ListClustersRequest { cluster, page_size, page_token };
                let page = t.clusters().list_clusters(t.ask(list)).await?.into_inner();
                Page { keys: page.names, next: page.next_page_token, unreachable: 0 }
            }
        };
        Ok(Response::new(page))
    }

    /// All pages of this size.
    pub(crate) async fn walk(self, t: &Trial, page_size: i32) -> Result<Page, Stop> {
        self.walk_from(t, page_size, String::new()).await
    }

    /// All pages of this size from this token on.
    pub(crate) async fn walk_from(self, t: &Trial, page_size: i32, token: String) -> Result<Page, Stop> {
        let mut all = Page { next: token, ..Page::default() };
        for _page in 0..PAGES {
            let page = good(self.rpc(), self.page(t, page_size, &all.next).await)?;
            if let Ok(most @ 1..) = usize::try_from(page_size) {
                expect(
                    page.keys.len() <= most,
                    format!("{}: at most {most} a page", self.rpc()),
                    &page.keys,
                )?;
            }
            all.keys.extend(page.keys);
            all.unreachable += page.unreachable;
            all.next = page.next;
            if all.next.is_empty() {
                return Ok(all);
            }
        }
        Err(failed(format!("{}: a walk that ends", self.rpc()), format!("{PAGES} pages and no end")))
    }

    /// This many objects to be listed, all `new` ones if need be. Returns their keys.
    pub(crate) async fn fill(self, t: &Trial, count: usize, new: bool) -> Result<Vec<String>, Stop> {
        let mut keys = Vec::new();
        match self {
            Self::Instances => {
                let machines = if new { t.own_machines(count).await? } else { t.machines(count).await? };
                keys.extend(machines.into_iter().map(|machine| machine.provider_id));
            }
            Self::LoadBalancers => {
                for _number in 0..count {
                    let wanted = if new { t.unmade().await? } else { t.wanted().await? };
                    t.ensure(&wanted).await?;
                    keys.push(wanted.uid());
                }
            }
            Self::Routes => {
                let machine = t.machine().await?;
                for _number in 0..count {
                    let destination = t.destination()?;
                    t.ensure_route(&destination, &machine.node()).await?;
                    keys.push(destination);
                }
            }
            Self::Clusters => {
                for _number in 0..count {
                    let name = t.name();
                    t.hosted_cluster(&name).await?;
                    keys.push(name);
                }
            }
        }
        Ok(keys)
    }
}
