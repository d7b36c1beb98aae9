//! Shows the known routes.

use ccm_state::{RouteListing, RouteTable, inventory};

use super::{
    Cloud, Controller,
    table::{Holder, Learnt},
};
use ccm_cloud::{Route, RouteState};
use ccm_reconcile::explain::Explain;

impl Cloud {
    fn state(&self) -> RouteTable {
        let table = self.table.lock();
        let mut routes: Vec<_> = table.all().map(|route| row(route)).collect();
        routes.sort_by(|one, other| (&one.destination, &one.id).cmp(&(&other.destination, &other.id)));
        RouteTable { provider: self.name().to_owned(), list: listing(table.learnt()), routes }
    }
}

fn listing(learnt: Option<Learnt>) -> RouteListing {
    match learnt {
        None => RouteListing::NotYet,
        Some(Learnt::InPart) => RouteListing::InPart,
        Some(Learnt::Whole) => RouteListing::Whole,
    }
}

fn row(route: &Route) -> inventory::Route {
    let target = match Holder::of(route) {
        Holder::Node(name) | Holder::Instance(name) => name,
        Holder::Nobody => String::new(),
    };
    let state = match route.state {
        RouteState::Unspecified => "UNKNOWN",
        RouteState::Active => "ACTIVE",
        RouteState::Pending => "PENDING",
        RouteState::Blackhole => "BLACKHOLE",
    };
    inventory::Route {
        id: route.id.clone(),
        destination: route.destination.to_string(),
        target,
        state: state.to_owned(),
    }
}

impl Explain for Controller {
    /// Those of each provider that has any.
    fn routes(&self) -> Vec<RouteTable> {
        self.clouds.iter().filter(|cloud| cloud.serves_routes()).map(Cloud::state).collect()
    }
}
