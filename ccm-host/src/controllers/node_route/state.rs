//! Shows the known routes, and says why a node has not all of its own.

use std::sync::Arc;

use ccm_state::{Explanation, RouteListing, RouteTable, Standing, inventory};

use super::{
    COMPONENT, Cloud, Controller, Shared,
    condition::NETWORK_UNAVAILABLE,
    observe::Owner,
    subject::Subject,
    table::{Holder, Learnt},
};
use crate::{
    clock,
    cloud::{Route, RouteState},
    controllers::explain::{Explain, explanation},
    kube::Node,
};

/// What people may ask this controller; outlives its run.
#[derive(Debug, Clone)]
pub struct View(Arc<Shared>);

impl Controller {
    /// Answers people for as long as it is kept.
    #[must_use]
    pub fn view(&self) -> View {
        View(Arc::clone(&self.0))
    }
}

impl View {
    /// The known routes of each provider that has any.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteTable> {
        self.0.clouds.iter().filter(|cloud| cloud.serves_routes()).map(Cloud::state).collect()
    }
}

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
        Holder::Node(name) | Holder::Machine(name) => name,
        Holder::Nobody => String::new(),
    };
    let state = match route.state {
        RouteState::Unknown => "UNKNOWN",
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

impl Explain for View {
    fn explain(&self, node: &Node) -> Option<Explanation> {
        let shared = &self.0;
        let Owner::Of(cloud) = shared.owner(node) else { return None };
        if node.pod_cidrs.is_empty() {
            return None;
        }
        let subject = Subject::Node(node.name.clone());
        let why = shared.waiting.why(&subject);
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
            (_, None) if unavailable || shared.is_due(cloud, node) => explanation(
                COMPONENT,
                Standing::Waiting,
                "RouteMissing",
                "not all routes to the node's pod CIDRs are in place",
                format!("the host makes them at provider {name:?}"),
            ),
            (_, None) => return None,
        };
        let (retries, next) = (shared.queue.retries(&subject), shared.queue.due(&subject));
        Some(Explanation { retries, next_attempt: next.map(clock::at), ..said })
    }
}
