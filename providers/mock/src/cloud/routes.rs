//! Routes, and what happens to them. The natural key is cluster and destination.

use cloudprovider_sdk::{
    ProviderError, Result,
    proto::{self, ErrorReason, NodeRef},
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CloudError, Found, State, Target, existing, outside::patched};

/// State of a route, numbered as in the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// It leads to its target.
    Active = proto::RouteState::Active as isize,
    /// Its target is gone.
    Blackhole = proto::RouteState::Blackhole as isize,
}

/// A route. Whether it is a blackhole is computed when it is read, since a target may disappear at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The cloud's id, a running number.
    pub id: String,
    /// Uid of the cluster; empty if a former controller created it.
    pub cluster_uid: String,
    /// In canonical form.
    pub destination_cidr: IpNet,
    /// Absent if the target is unknown.
    pub target: Option<Target>,
}

impl Route {
    /// Whether a former controller created it.
    pub fn is_legacy(&self) -> bool {
        self.cluster_uid.is_empty()
    }

    /// Whether the cluster of this uid may see and change it.
    fn is_of(&self, cluster_uid: &str) -> bool {
        self.is_legacy() || self.cluster_uid == cluster_uid
    }
}

/// A route to create behind the provider's back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewRoute {
    /// Uid of the cluster; empty for a former controller's route.
    pub cluster_uid: String,
    /// A CIDR.
    pub destination_cidr: String,
    /// The target.
    pub target: Option<Target>,
}

/// Parses a CIDR and clears its host bits.
pub fn canonical_cidr(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|net| net.trunc())
}

/// A route and its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRoute {
    /// The route.
    #[serde(flatten)]
    pub route: Route,
    /// Its state.
    pub state: RouteState,
}

impl ListedRoute {
    /// As a message of the contract; a table without tags cannot tell the owner.
    pub(crate) fn seen(self, tags: bool) -> proto::Route {
        let ownership = match (tags, self.route.is_legacy()) {
            (false, _) => proto::Ownership::Unspecified,
            (true, true) => proto::Ownership::ByLegacyName,
            (true, false) => proto::Ownership::ByUid,
        };
        proto::Route {
            id: self.route.id,
            destination_cidr: self.route.destination_cidr.to_string(),
            target: self.route.target.map(NodeRef::from),
            state: self.state as i32,
            ownership: ownership.into(),
        }
    }
}

impl State {
    /// All routes with their state, by id.
    pub fn routes(&self) -> impl Iterator<Item = ListedRoute> {
        self.routes.values().map(|route| self.listed(route))
    }

    fn listed(&self, route: &Route) -> ListedRoute {
        let leads = |target: &Target| match target.provider_id.as_str() {
            "" => self.named(&target.node).next().is_some(),
            provider_id => self.by_provider_id(provider_id).is_some(),
        };
        let state =
            if route.target.as_ref().is_some_and(leads) { RouteState::Active } else { RouteState::Blackhole };
        ListedRoute { route: route.clone(), state }
    }

    /// The routes of a cluster and those of former controllers, by id; only those inside `within`, if it is given.
    ///
    /// # Errors
    ///
    /// The cloud cannot be queried.
    pub fn list_routes(&self, cluster_uid: &str, within: &[IpNet]) -> Result<Vec<ListedRoute>> {
        self.enter("routes:read")?;
        let inside = |route: &&Route| {
            route.is_of(cluster_uid)
                && (within.is_empty() || within.iter().any(|net| net.contains(&route.destination_cidr)))
        };
        Ok(self.routes.values().filter(inside).map(|route| self.listed(route)).collect())
    }

    /// Creates or changes the route to a destination.
    ///
    /// # Errors
    ///
    /// The CIDR is invalid or another cluster's, the table is full, or the target does not exist.
    pub fn ensure_route(&mut self, cluster_uid: &str, cidr: &str, target: &NodeRef) -> Result<ListedRoute> {
        let Some(destination_cidr) = canonical_cidr(cidr) else {
            let text = format!("destination {cidr:?} is not a CIDR");
            return Err(ProviderError::new(ErrorReason::InvalidArgumentShape, text));
        };
        let target = self.resolve_target(cluster_uid, target)?;
        let same = self.routes.values().find(|route| route.destination_cidr == destination_cidr).cloned();
        let route = match same {
            Some(route) if !route.is_of(cluster_uid) => {
                return Err(ProviderError::owned_by_other_cluster(&format!("route to {destination_cidr}")));
            }
            Some(route) => Route { target: Some(target), cluster_uid: cluster_uid.to_owned(), ..route },
            None => {
                self.check_room()?;
                let (id, cluster_uid) = (self.next_id("rt"), cluster_uid.to_owned());
                Route { id, cluster_uid, destination_cidr, target: Some(target) }
            }
        };
        Ok(self.put_route(route))
    }

    fn resolve_target(&self, cluster_uid: &str, target: &NodeRef) -> Result<Target> {
        match self.find_node(cluster_uid, target) {
            Found::Instance(machine) => {
                Ok(Target { node: target.name.clone(), provider_id: machine.provider_id.clone() })
            }
            Found::Unknown(error) => Err(error),
            Found::Absent | Found::NotOwned => {
                let node = if target.provider_id.is_empty() { &target.name } else { &target.provider_id };
                Err(ProviderError::instance_not_found(node))
            }
        }
    }

    fn check_room(&self) -> Result<()> {
        match self.quota.max_routes {
            Some(limit) if self.routes.len() >= limit as usize => {
                let text = format!("the route table already holds its maximum of {limit} routes");
                Err(ProviderError::new(ErrorReason::RouteTableFull, text))
            }
            _ => Ok(()),
        }
    }

    /// Deletes a route that is still as it was listed. A route that is already gone is not an error.
    ///
    /// # Errors
    ///
    /// Its target has changed, or it is another cluster's, or, with `only_by_uid`, a former controller's.
    pub fn delete_route(
        &mut self,
        cluster_uid: &str,
        id: &str,
        cidr: &str,
        target: Option<&Target>,
        only_by_uid: bool,
    ) -> Result<()> {
        let changed = || ProviderError::route_changed(id);
        let Some(route) = self.routes.get(id) else {
            let net = canonical_cidr(cidr);
            let replaced = |route: &Route| route.is_of(cluster_uid) && Some(route.destination_cidr) == net;
            return if self.routes.values().any(replaced) { Err(changed()) } else { Ok(()) };
        };
        if !route.is_of(cluster_uid) || only_by_uid && route.is_legacy() {
            return Err(ProviderError::owned_by_other_cluster(&format!("route {id}")));
        }
        if canonical_cidr(cidr) != Some(route.destination_cidr) || !same_target(route.target.as_ref(), target)
        {
            return Err(changed());
        }
        self.routes.remove(id);
        Ok(())
    }

    fn put_route(&mut self, route: Route) -> ListedRoute {
        let listed = self.listed(&route);
        self.routes.insert(route.id.clone(), route);
        listed
    }

    /// Creates a route behind the provider's back.
    ///
    /// # Errors
    ///
    /// The CIDR is invalid.
    pub fn create_route_outside(&mut self, wish: NewRoute) -> Result<ListedRoute, CloudError> {
        let Some(destination_cidr) = canonical_cidr(&wish.destination_cidr) else {
            return Err(CloudError::Invalid(format!("{:?} is not a CIDR", wish.destination_cidr)));
        };
        let id = self.next_id("rt");
        let route = Route { id, cluster_uid: wish.cluster_uid, destination_cidr, target: wish.target };
        Ok(self.put_route(route))
    }

    /// Changes a route behind the provider's back.
    ///
    /// # Errors
    ///
    /// There is none, or the patch does not fit.
    pub fn patch_route(&mut self, id: &str, patch: &Value) -> Result<ListedRoute, CloudError> {
        let route = patched(&self.existing_route(id)?, patch, &["id"])?;
        Ok(self.put_route(route))
    }

    /// Deletes a route behind the provider's back.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn remove_route_outside(&mut self, id: &str) -> Result<Route, CloudError> {
        let route = self.existing_route(id)?;
        self.routes.remove(&route.id);
        Ok(route)
    }

    fn existing_route(&self, reference: &str) -> Result<Route, CloudError> {
        let by_cidr = || {
            let net = canonical_cidr(reference)?;
            self.routes.values().find(|route| route.destination_cidr == net)
        };
        existing("route", reference, self.routes.get(reference).or_else(by_cidr).cloned())
    }
}

fn same_target(is: Option<&Target>, listed: Option<&Target>) -> bool {
    match (is, listed) {
        (None, None) => true,
        (Some(is), Some(listed)) if is.provider_id.is_empty() || listed.provider_id.is_empty() => {
            is.node == listed.node
        }
        (Some(is), Some(listed)) => is.provider_id == listed.provider_id,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
