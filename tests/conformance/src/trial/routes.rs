//! Routes: wanted, created, listed and deleted.

use cloudprovider_proto::v1alpha1::{
    BatchDeleteRoutesRequest, BatchEnsureRoutesRequest, ClusterRef, ListRoutesRequest, NodeRef, Route,
    RouteDeletion, RouteResult, RouteToDelete, RouteToEnsure,
};

use super::{Trial, failed, good, machines::as_wanted, single};
use crate::{
    case::Stop,
    ledger::{Entry, same_network},
};

impl Trial {
    /// Whether this run has registered a route to this destination.
    pub(crate) fn has_registered_route(&self, listed: &str) -> bool {
        let ledger = self.session.ledger.borrow();
        let is_of = |entry: &Entry| matches!(entry, Entry::Route { destination, .. } if same_network(destination, listed));
        ledger.ever().iter().any(is_of)
    }

    /// A new destination within 198.18.0.0/15, which is reserved for benchmarks of networks: no cluster uses it. The route to
    /// it is deleted when the case ends.
    pub(crate) fn destination(&self) -> Result<String, Stop> {
        self.destination_of(&self.cluster().unwrap_or_default())
    }

    /// Likewise for another cluster.
    pub(crate) fn destination_of(&self, cluster: &ClusterRef) -> Result<String, Stop> {
        let number = self.chance.borrow_mut().u16(..);
        let destination =
            format!("198.{}.{}.{}/28", 18 + (number >> 15), (number >> 4) & 0xff, (number & 0xf) << 4);
        self.register(Entry::route(cluster, &destination))?;
        Ok(destination)
    }

    pub(crate) fn routes_to_ensure(&self, items: Vec<(String, NodeRef)>) -> BatchEnsureRoutesRequest {
        let wanted = self.provider().wants().route_target;
        let item = |(at, (destination_cidr, target)): (usize, (String, NodeRef))| RouteToEnsure {
            key: format!("k{at}"),
            destination_cidr,
            target: Some(as_wanted(target, wanted.as_ref())),
        };
        BatchEnsureRoutesRequest {
            cluster: self.cluster(),
            fencing: self.fencing(),
            items: items.into_iter().enumerate().map(item).collect(),
        }
    }

    /// Repeats a request for routes until each is done or refused.
    pub(crate) async fn ensure_routes(
        &self,
        request: BatchEnsureRoutesRequest,
    ) -> Result<Vec<RouteResult>, Stop> {
        self.to_its_end("BatchEnsureRoutes", async || {
            let answer = self.routes().batch_ensure_routes(self.ask(request.clone())).await;
            let results = good("BatchEnsureRoutes", answer)?.results;
            let goes_on = results.iter().find_map(|result| result.in_progress.clone());
            Ok(goes_on.map_or(Ok(results), Err))
        })
        .await
    }

    /// Likewise for one route.
    pub(crate) async fn ensure_route_or_refused(
        &self,
        request: BatchEnsureRoutesRequest,
    ) -> Result<RouteResult, Stop> {
        single("one result", self.ensure_routes(request).await?)
    }

    /// The route, once it exists.
    pub(crate) async fn ensure_route(&self, destination: &str, target: &NodeRef) -> Result<Route, Stop> {
        let request = self.routes_to_ensure(vec![(destination.to_owned(), target.clone())]);
        self.ensure_route_by(request).await
    }

    /// Likewise, with a given request.
    pub(crate) async fn ensure_route_by(&self, request: BatchEnsureRoutesRequest) -> Result<Route, Stop> {
        let result = self.ensure_route_or_refused(request).await?;
        result.route.clone().ok_or_else(|| failed("a route", format!("{result:?}")))
    }

    /// Requests the deletion of routes until each is done or refused.
    pub(crate) async fn delete_routes(
        &self,
        cluster: &ClusterRef,
        routes: &[Route],
    ) -> Result<Vec<RouteDeletion>, Stop> {
        let item = |(at, route): (usize, &Route)| RouteToDelete {
            key: format!("k{at}"),
            route: Some(route.clone()),
        };
        let items = routes.iter().enumerate().map(item).collect();
        let request =
            BatchDeleteRoutesRequest { cluster: Some(cluster.clone()), fencing: self.fencing(), items };
        self.to_its_end("BatchDeleteRoutes", async || {
            let answer = self.routes().batch_delete_routes(self.ask(request.clone())).await;
            let results = good("BatchDeleteRoutes", answer)?.results;
            let goes_on = results.iter().find_map(|result| result.in_progress.clone());
            Ok(goes_on.map_or(Ok(results), Err))
        })
        .await
    }

    /// Likewise of one route.
    pub(crate) async fn delete_route(
        &self,
        cluster: &ClusterRef,
        route: &Route,
    ) -> Result<RouteDeletion, Stop> {
        single("one result", self.delete_routes(cluster, std::slice::from_ref(route)).await?)
    }

    /// All routes of a cluster.
    pub(crate) async fn listed_routes(
        &self,
        cluster: &ClusterRef,
        within: &[String],
    ) -> Result<Vec<Route>, Stop> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let list = ListRoutesRequest {
                cluster: Some(cluster.clone()),
                page_size: 0,
                page_token,
                within: within.to_vec(),
            };
            let page = good("ListRoutes", self.routes().list_routes(self.ask(list)).await)?;
            all.extend(page.routes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// The route to a destination in the list.
    pub(crate) async fn listed_route(
        &self,
        cluster: &ClusterRef,
        destination: &str,
    ) -> Result<Option<Route>, Stop> {
        let all = self.listed_routes(cluster, &[]).await?;
        Ok(all.into_iter().find(|route| same_network(&route.destination_cidr, destination)))
    }
}
