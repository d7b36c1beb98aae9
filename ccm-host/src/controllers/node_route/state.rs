//! Shows the known routes, and says why a node has not all of its own.

use ccm_state::{Explanation, RouteListing, RouteTable, Standing, inventory};

use super::{
    COMPONENT, Cloud, Controller, Subject,
    condition::NETWORK_UNAVAILABLE,
    table::{Holder, Learnt},
};
use crate::{
    clock,
    cloud::{Route, RouteState},
    controllers::explain::{Explain, explanation},
    kube::Node,
};

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
    fn explain(&self, node: &Node) -> Option<Explanation> {
        let cloud = self.owner(node)?;
        if node.pod_cidrs.is_empty() {
            return None;
        }
        let subject = Subject::Node(node.name.clone());
        let why = self.queue.why(&subject);
        let unavailable = node.condition(NETWORK_UNAVAILABLE).is_some_and(|known| known.status == "True");
        let name = cloud.name();
        let said = match (cloud.learnt(), why) {
            (None, _) => explanation(
                COMPONENT,
                Standing::Waiting,
                "RoutesNotListed",
                format!("the routes of provider {name:?} are not listed yet"),
                "the host lists them, and then makes those that this node lacks",
            ),
            (_, Some(why)) => explanation(
                COMPONENT,
                Standing::Blocked,
                "RouteNotReady",
                format!("not all routes to the node's pod CIDRs are in place: {why}"),
                format!("the host asks provider {name:?} again"),
            ),
            (_, None) if unavailable || self.is_due(cloud, node) => explanation(
                COMPONENT,
                Standing::Waiting,
                "RouteMissing",
                "not all routes to the node's pod CIDRs are in place",
                format!("the host makes them at provider {name:?}"),
            ),
            (_, None) => return None,
        };
        let (retries, next) = (self.queue.retries(&subject), self.queue.due(&subject));
        Some(Explanation { retries, next_attempt: next.map(clock::at), ..said })
    }

    /// Those of each provider that has any.
    fn routes(&self) -> Vec<RouteTable> {
        self.clouds.iter().filter(|cloud| cloud.serves_routes()).map(Cloud::state).collect()
    }
}
