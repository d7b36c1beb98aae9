//! The route table of the fake. A destination has one route unless a test adds more.

use super::{FakeProvider, State, answers, method};
use crate::{
    AddressType, CloudError, EnsureRoute, EnsuredRoute, ErrorReason, InProgress, InstanceAddress, Listed,
    Route, RouteState, RouteTarget,
};

impl FakeProvider {
    /// Adds a route, whoever made it.
    pub fn set_route(&self, route: Route) {
        self.state.lock().routes.insert(route.id.clone(), route);
    }

    /// Removes a route behind the host's back.
    pub fn drop_route(&self, id: &str) -> Option<Route> {
        self.state.lock().routes.remove(id)
    }

    /// All routes, by id.
    pub fn routes(&self) -> Vec<Route> {
        self.state.lock().routes.values().cloned().collect()
    }

    /// Sentences about routes that lists drop; such a list is incomplete.
    pub fn set_rejected_routes(&self, rejected: Vec<String>) {
        self.state.lock().rejected_routes = rejected;
    }

    pub(super) fn listed_routes(&self) -> Listed<Route> {
        let state = self.state.lock();
        Listed {
            items: state.routes.values().cloned().collect(),
            complete: state.list_complete && state.rejected_routes.is_empty(),
            unreachable: state.unreachable.clone(),
            rejected: state.rejected_routes.clone(),
        }
    }
}

impl State {
    pub(super) fn make_route(&mut self, wanted: &EnsureRoute, holds_addresses: bool) -> EnsuredRoute {
        let events = self.effects.events.clone();
        if let Some((in_progress, _)) = self.next_in_progress(method::ENSURE_ROUTE) {
            return EnsuredRoute { route: None, in_progress: Some(in_progress), events };
        }
        let node = &wanted.node;
        let target = RouteTarget {
            name: node.name.clone(),
            uid: String::new(),
            provider_id: node.provider_id.clone().unwrap_or_default(),
            addresses: if holds_addresses {
                node.addresses.iter().map(|address| known(&address.type_, &address.address)).collect()
            } else {
                Vec::new()
            },
        };
        let same = self.routes.values().find(|route| route.destination == wanted.destination);
        let id = match same {
            Some(route) => route.id.clone(),
            None => {
                self.next_route += 1;
                format!("made-{}", self.next_route)
            }
        };
        let route = Route {
            id: id.clone(),
            destination: wanted.destination,
            target: Some(target),
            state: RouteState::Active,
            ours: true,
        };
        self.routes.insert(id, route.clone());
        EnsuredRoute { route: Some(route), in_progress: None, events }
    }

    pub(super) fn remove_route(&mut self, listed: &Route) -> Result<Option<InProgress>, CloudError> {
        if let Some((in_progress, _)) = self.next_in_progress(method::DELETE_ROUTE) {
            return Ok(Some(in_progress));
        }
        let changed =
            |route: &Route| (route.destination, &route.target) != (listed.destination, &listed.target);
        if self.routes.get(&listed.id).is_some_and(changed) {
            return Err(answers::error(method::DELETE_ROUTE, Some(ErrorReason::RouteChanged)));
        }
        self.routes.remove(&listed.id);
        Ok(None)
    }
}

fn known(kind: &str, address: &str) -> InstanceAddress {
    let kind = match kind {
        "InternalIP" => AddressType::InternalIp,
        "ExternalIP" => AddressType::ExternalIp,
        _ => AddressType::Hostname,
    };
    InstanceAddress { kind, address: address.to_owned() }
}
