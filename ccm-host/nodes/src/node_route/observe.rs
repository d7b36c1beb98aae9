//! Follows the nodes, and gathers what is known about one and its routes.
//!
//! In: the cache's changes, and [tables](super::table); no RPCs. Out: keys in the queue, also those of nodes that share a
//! pod CIDR with one that changed; the node's owner, and the facts for [`decide`](super::decide).
//!
//! Two nodes with the same pod CIDR would take the route from each other forever, so the older one holds it. The
//! [`sweep`](super::sweep) finds changes in the cloud.
//!
//! A destination is ours if it lies completely inside a cluster CIDR. Upstream also removes a wider route that only shares
//! its first or last address with one, such as the aggregate of a whole private network: that would cut off others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_state::RouteListing;
use ipnet::IpNet;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Cloud, Controller, RouteKey,
    condition::{self, NETWORK_UNAVAILABLE, Reach},
    decide::{Facts, Wish, contain, decide, is_removable},
    table::Holder,
};
use ccm_base::cidr;
use ccm_cloud::{Family, NodeOwner, ProviderStatus, Route};
use ccm_kube::{
    cache::{Cache, Change},
    node::Node,
};
use ccm_reconcile::{Parts, Retry, taint};

/// What there is to do about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Its condition, or a report.
    Words,
    Routes,
}

impl Cloud {
    pub(super) fn serves_routes(&self) -> bool {
        self.provider.info().is_some_and(|info| info.routes)
    }

    pub(super) fn learnt(&self) -> RouteListing {
        self.table.lock().learnt()
    }

    pub(super) fn is(&self, other: Option<&Self>) -> bool {
        other.is_some_and(|other| other.name() == self.name())
    }

    /// Whether it certainly has no route to a destination.
    fn lacks(&self, destination: &IpNet) -> bool {
        let table = self.table.lock();
        table.learnt() == RouteListing::Whole && table.to(destination).next().is_none()
    }

    pub(super) fn key_of(&self, stray: &Route) -> RouteKey {
        RouteKey::Stray { provider: self.name().to_owned(), id: stray.id.clone() }
    }

    /// Whether routes may be removed on its behalf.
    pub(super) fn is_trusted(&self) -> bool {
        *self.provider.status(Family::Routes).borrow() == ProviderStatus::Serving
    }
}

impl Controller {
    /// The provider that makes the node's routes. Without one, it is left alone for now: a change of the node or of a
    /// provider will tell.
    pub(super) fn owner(&self, node: &Node) -> Option<&Cloud> {
        if !is_identified(node) || !self.shell.parts.settings.manages(node) {
            return None;
        }
        self.maker(&self.shell.parts.providers.for_node(node))
    }

    /// The provider that makes the routes of this owner's nodes.
    fn maker(&self, owner: &NodeOwner) -> Option<&Cloud> {
        let name = match owner {
            NodeOwner::Provider(provider) => Some(provider.name()),
            NodeOwner::Candidates(_) | NodeOwner::Undecided => return None,
            NodeOwner::Nobody => None,
        };
        // Itself if it makes routes, else the only one that makes nothing but routes.
        let own = self.clouds.iter().find(|cloud| Some(cloud.name()) == name);
        own.filter(|cloud| cloud.serves_routes()).or_else(|| {
            let only_routes =
                |cloud: &&Cloud| cloud.provider.info().is_some_and(|info| info.routes && !info.instances);
            let mut all = self.clouds.iter().filter(only_routes);
            all.next().filter(|_| all.next().is_none())
        })
    }

    /// The facts about a node at its provider.
    pub(super) fn facts<'a>(&'a self, cloud: &Cloud, node: &'a Node) -> Facts<'a> {
        let wanted = destinations(node);
        let mut routes = BTreeMap::new();
        {
            let (holders, table) = (holders(node), cloud.table.lock());
            let its = holders.iter().flat_map(|holder| table.of(holder));
            for route in its.chain(wanted.iter().flat_map(|destination| table.to(destination))) {
                routes.insert(route.id.clone(), Arc::clone(route));
            }
        }
        let claims = self.claims.lock();
        let holder = |destination: &IpNet| claims.holder(destination).unwrap_or(&node.name).to_owned();
        let is_held_by_another = |destination: &IpNet| {
            let holder = holder(destination);
            holder != node.name && self.maker_of(&holder).is_none_or(|maker| cloud.is(maker))
        };
        let held_by_others: BTreeSet<_> =
            routes.values().map(|route| route.destination).filter(is_held_by_another).collect();
        Facts {
            node,
            wishes: wanted
                .into_iter()
                .map(|destination| Wish { holder: holder(&destination), destination })
                .collect(),
            routes: routes.into_values().collect(),
            held_by_others,
            holds_addresses: cloud.provider.info().is_some_and(|info| info.route_node_addresses),
            cluster: &self.shell.parts.settings.cidrs.cluster,
        }
    }

    /// What a reconcile of the node would find to do at this provider.
    pub(super) fn due(&self, cloud: &Cloud, node: &Node) -> Due {
        if !cloud.is(self.owner(node)) {
            return Due::Nothing;
        }
        let plan = decide(&self.facts(cloud, node));
        let stand = plan.lanes.iter().map(|_| Reach::Stands);
        let reaches: Vec<Reach> = stand.chain(plan.unreached.iter().copied()).collect();
        let is_whole = cloud.learnt() == RouteListing::Whole;
        let differs = || {
            condition::wanted(node, plan.concerned, &reaches, is_whole)
                .is_some_and(|wanted| !condition::says(node, &wanted))
        };
        // The others have a retry of their own.
        let is_told = || {
            let mut said = self.shell.reports.of(&RouteKey::Node(node.name.clone()));
            said.retain(|report| report.retry == Retry::Wait);
            said == plan.reports
        };
        match plan.is_idle() {
            false => Due::Routes,
            true if differs() || !is_told() => Due::Words,
            true => Due::Nothing,
        }
    }

    /// Whether a route leads to the node that should have it.
    pub(super) fn is_as_wanted(&self, route: &Route) -> bool {
        let claims = self.claims.lock();
        let Some(holder) = claims.holder(&route.destination) else { return false };
        match Holder::of(route) {
            Holder::Node(name) => name == holder,
            Holder::Instance(id) => {
                self.shell.parts.nodes.by_index(&id).iter().any(|node| node.name == holder)
            }
            Holder::Nobody => false,
        }
    }

    /// The provider that makes the routes of the node that holds a destination; `None` while that is open.
    fn maker_of(&self, holder: &str) -> Option<Option<&Cloud>> {
        let node = self.shell.parts.nodes.get(holder).filter(|node| is_identified(node))?;
        match self.shell.parts.providers.for_node(&node) {
            NodeOwner::Candidates(_) | NodeOwner::Undecided => None,
            owner => Some(self.maker(&owner)),
        }
    }

    /// Whether a route is one of ours that no node has: not the one that it leads to, nor the one that holds its destination.
    /// Two providers of one cloud list the same routes, each with what it knows of their targets, so a route to another's
    /// machine is never a stray, nor is one to who knows where if it may be the one that another made.
    pub(super) fn is_stray(&self, cloud: &Cloud, route: &Route) -> bool {
        let Parts { settings, nodes, providers, .. } = &self.shell.parts;
        let is_ours = is_removable(route) && contain(&settings.cidrs.cluster, &route.destination);
        if !cloud.serves_routes() || !is_ours {
            return false;
        }
        let machine = route.target.as_ref().map(|target| target.provider_id.as_str()).unwrap_or_default();
        let maker = match (!machine.is_empty()).then(|| providers.for_id(machine)) {
            Some(NodeOwner::Candidates(_) | NodeOwner::Undecided) => return false,
            owner => owner.and_then(|owner| self.maker(&owner)),
        };
        if maker.is_some() && !cloud.is(maker) {
            return false;
        }
        let led = match Holder::of(route) {
            Holder::Node(name) => nodes.get(&name),
            Holder::Instance(id) => nodes.by_index(&id).into_iter().next(),
            Holder::Nobody => None,
        };
        if let Some(node) = led {
            let owner = self.owner(&node);
            // What the node has here, its own run removes. What it, or a former machine of its name, had here, nobody else does.
            let is_its =
                |owner: &Cloud| cloud.is(Some(owner)) || maker.is_none() && !owner.lacks(&route.destination);
            if owner.is_none_or(is_its) {
                return false;
            }
        }
        let holder = self.claims.lock().holder(&route.destination).map(str::to_owned);
        match holder.map(|holder| self.maker_of(&holder)) {
            None => true,
            Some(None) => false,
            Some(Some(at)) if cloud.is(at) => false,
            Some(Some(at)) => maker.is_some() || at.is_none_or(|at| at.lacks(&route.destination)),
        }
    }

    /// Queues the strays that lead to this node, unless they wait for a retry.
    fn queue_strays(&self, node: &Node) {
        for cloud in &self.clouds {
            let table = cloud.table.lock();
            let its: Vec<_> = holders(node).iter().flat_map(|holder| table.of(holder)).cloned().collect();
            drop(table);
            let strays = its.iter().filter(|route| self.is_stray(cloud, route));
            strays.for_each(|route| _ = self.shell.queue.add_unless_delayed(cloud.key_of(route)));
        }
    }
}

/// Whether everything that routes depend on is unchanged. A node that no longer exists does not justify keeping its
/// routes.
pub(super) fn is_same(cached: Option<&Arc<Node>>, live: Option<&Node>) -> bool {
    match (cached, live) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(cached), Some(live)) => {
            (&cached.uid, &cached.pod_cidrs, &cached.provider_id)
                == (&live.uid, &live.pod_cidrs, &live.provider_id)
        }
    }
}

/// By what a route names a node.
fn holders(node: &Node) -> Vec<Holder> {
    let machine = node.provider_id.clone().map(Holder::Instance);
    [Holder::Node(node.name.clone())].into_iter().chain(machine).collect()
}

/// Whether no other controller is about to identify the node's instance.
fn is_identified(node: &Node) -> bool {
    node.provider_id.is_some() || !node.has_taint(taint::UNINITIALIZED)
}

#[derive(Debug, Default)]
pub(super) struct Claims {
    by_destination: HashMap<IpNet, BTreeSet<Seniority>>,
    by_node: HashMap<String, (Seniority, Vec<IpNet>)>,
}

/// Older nodes come first; equally old ones are sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seniority {
    /// A node without a creation time counts as the youngest.
    created: (bool, Option<Timestamp>),
    name: String,
}

impl Seniority {
    fn of(node: &Node) -> Self {
        Self { created: (node.created.is_none(), node.created), name: node.name.clone() }
    }
}

/// The distinct destinations of a node's pod CIDRs. The apiserver rejects anything that is not a CIDR.
pub(super) fn destinations(node: &Node) -> Vec<IpNet> {
    let mut wanted = Vec::new();
    for network in node.pod_cidrs.iter().filter_map(|text| cidr::parse(text)) {
        if !wanted.contains(&network.trunc()) {
            wanted.push(network.trunc());
        }
    }
    wanted
}

/// The runs under way that depend on a node, by its name.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<HashMap<String, (usize, CancellationToken)>>);

/// A run, until it is dropped.
#[derive(Debug)]
pub(super) struct Run<'a> {
    runs: &'a Runs,
    /// Empty if no node is known.
    pub(super) name: String,
    /// The node as it was when the run began.
    pub(super) node: Option<Arc<Node>>,
    /// Cancelled once the node has changed.
    pub(super) outdated: CancellationToken,
}

impl Runs {
    pub(super) fn begin(&self, name: &str, nodes: &Cache<Node>) -> Run<'_> {
        let outdated = {
            let mut runs = self.0.lock();
            let (count, outdated) = runs.entry(name.to_owned()).or_default();
            *count += 1;
            outdated.clone()
        };
        Run { runs: self, name: name.to_owned(), node: nodes.get(name), outdated }
    }

    fn outdate(&self, name: &str) {
        if let Some((_, outdated)) = self.0.lock().get_mut(name) {
            std::mem::take(outdated).cancel();
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut runs = self.runs.0.lock();
        if let Some((count, _)) = runs.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                runs.remove(&self.name);
            }
        }
    }
}

impl Claims {
    /// Records a new or changed node. Returns the other nodes affected.
    pub(super) fn see(&mut self, node: &Node) -> BTreeSet<String> {
        let (rank, wanted) = (Seniority::of(node), destinations(node));
        if self.by_node.get(&node.name).is_some_and(|known| *known == (rank.clone(), wanted.clone())) {
            return BTreeSet::new();
        }
        let mut touched = self.forget(&node.name);
        for destination in &wanted {
            let claims = self.by_destination.entry(*destination).or_default();
            touched.extend(claims.iter().map(|rank| rank.name.clone()));
            claims.insert(rank.clone());
        }
        if !wanted.is_empty() {
            self.by_node.insert(node.name.clone(), (rank, wanted));
        }
        touched.remove(&node.name);
        touched
    }

    /// Forgets a node that is gone. Returns the other nodes affected.
    pub(super) fn forget(&mut self, name: &str) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        let Some((rank, destinations)) = self.by_node.remove(name) else { return touched };
        for destination in destinations {
            if let Some(claims) = self.by_destination.get_mut(&destination) {
                claims.remove(&rank);
                touched.extend(claims.iter().map(|rank| rank.name.clone()));
                if claims.is_empty() {
                    self.by_destination.remove(&destination);
                }
            }
        }
        touched
    }

    /// The node that should get this destination's route.
    pub(super) fn holder(&self, destination: &IpNet) -> Option<&str> {
        self.by_destination.get(destination)?.first().map(|rank| rank.name.as_str())
    }
}

/// Whether a change of a node may affect its routes, or its condition.
fn matters(old: &Node, new: &Node) -> bool {
    let status = |node: &Node| {
        node.condition(NETWORK_UNAVAILABLE)
            .map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    old.pod_cidrs != new.pod_cidrs
        || old.addresses != new.addresses
        || old.provider_id != new.provider_id
        || old.has_taint(taint::UNINITIALIZED) != new.has_taint(taint::UNINITIALIZED)
        // Usually our own write, which requires nothing.
        || (status(old) != status(new) && !condition::is_ours(new))
}

impl Controller {
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let is_ours = |node: &Node| self.shell.parts.settings.manages(node);
        let (node, looked_at) = match change {
            Change::Added(node) => (node, true),
            Change::Updated { old, new } => (new, matters(old, new) || is_ours(old) != is_ours(new)),
            Change::Deleted(node) => {
                self.gone(node);
                return;
            }
        };
        // A node that is not ours takes no destination from one that is.
        let mut claims = self.claims.lock();
        let others = if is_ours(node) { claims.see(node) } else { claims.forget(&node.name) };
        drop(claims);
        let is_another =
            !matches!(change, Change::Updated { old, new } if is_same(Some(old), Some(new.as_ref())));
        others.iter().chain(is_another.then_some(&node.name)).for_each(|name| self.runs.outdate(name));
        if looked_at {
            self.queue_node_after(node.name.clone(), self.paces.of_change(change, Instant::now()));
            self.queue_strays(node);
        }
        if let Change::Updated { old, .. } = change
            && is_another
        {
            self.queue_strays(old);
        }
        others.into_iter().for_each(|name| self.queue_node(name));
    }

    pub(super) fn queue_node(&self, name: String) {
        self.queue_node_after(name, Duration::ZERO);
    }

    /// Skips the queue until some provider has been listed: nothing can be decided before, and the first list
    /// requeues every node.
    fn queue_node_after(&self, name: String, wait: Duration) {
        if self.clouds.iter().any(|cloud| cloud.learnt() != RouteListing::NotYet) {
            self.shell.queue.add_after(RouteKey::Node(name), wait);
        }
    }

    fn gone(&self, node: &Node) {
        let others = self.claims.lock().forget(&node.name);
        self.shown.forget(&node.name);
        self.paces.forget(&node.name);
        others.iter().chain([&node.name]).for_each(|name| self.runs.outdate(name));
        others.into_iter().chain([node.name.clone()]).for_each(|name| self.queue_node(name));
        self.queue_strays(node);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::decide::contain, *};
    use ccm_kube::fixtures::node;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn the_older_of_two_nodes_holds_a_destination() {
        let mut claims = Claims::default();
        let (old, young) = (node("old").created_at(at(1)), node("a-young").created_at(at(2)));
        assert!(claims.see(&young.with_pod_cidr("10.0.1.0/24")).is_empty());
        assert_eq!(claims.holder(&net("10.0.1.0/24")), Some("a-young"));
        let touched = claims.see(&old.clone().with_pod_cidr("10.0.1.0/24"));
        assert_eq!(touched.into_iter().collect::<Vec<_>>(), ["a-young"]);
        assert_eq!(claims.holder(&net("10.0.1.0/24")), Some("old"));
        assert!(claims.see(&old.clone().with_pod_cidr("10.0.1.0/24")).is_empty(), "nothing changed");

        let touched = claims.see(&old.with_pod_cidr("10.0.2.0/24"));
        assert_eq!(touched.into_iter().collect::<Vec<_>>(), ["a-young"]);
        assert_eq!(claims.holder(&net("10.0.1.0/24")), Some("a-young"));
        assert!(claims.forget("a-young").is_empty());
        assert_eq!(claims.holder(&net("10.0.1.0/24")), None);
    }

    /// ROUTE-17.
    #[test]
    fn each_destination_counts_once_and_as_a_network() {
        let twice = node("n").with_pod_cidr("10.0.1.0/24").with_pod_cidr("10.0.1.7/24").with_pod_cidr("x");
        assert_eq!(destinations(&twice), [net("10.0.1.0/24")]);
    }

    /// RESP-1..17. Rows 13 and 14 differ from upstream on purpose; the text of row 16 is not a network.
    #[test]
    fn a_destination_is_ours_if_it_lies_inside_of_a_cluster_cidr() {
        let rows = [
            ("RESP-1", "10.244.0.0/16", "10.244.0.0/24", true),
            ("RESP-2", "10.244.0.0/16", "10.244.10.0/24", true),
            ("RESP-3", "10.244.0.0/16", "10.244.255.0/24", true),
            ("RESP-4", "10.244.0.0/14", "10.244.0.0/24", true),
            ("RESP-5", "10.244.0.0/14", "10.247.255.0/24", true),
            ("RESP-6", "a00:100::/10", "a00:100::/24", true),
            ("RESP-7", "10.244.0.0/16", "10.224.0.0/24", false),
            ("RESP-8", "10.244.0.0/16", "10.0.10.0/24", false),
            ("RESP-9", "10.244.0.0/16", "10.255.255.0/24", false),
            ("RESP-10", "10.244.0.0/14", "10.248.0.0/24", false),
            ("RESP-11", "10.244.0.0/14", "10.243.255.0/24", false),
            ("RESP-12", "a00:100::/10", "b00:100::/24", false),
            ("RESP-13 ours", "10.0.0.0/16", "10.0.0.0/8", false),
            ("RESP-13 ours", "10.0.0.0/16", "10.0.0.0/15", false),
            ("RESP-14 ours", "10.255.0.0/16", "10.0.0.0/8", false),
            ("RESP-15", "10.244.0.0/16", "10.0.0.0/8", false),
            ("RESP-15", "10.0.0.0/16", "0.0.0.0/0", false),
            ("RESP-16", "10.0.0.0/16", "junk", false),
            ("RESP-17", "10.0.0.0/16", "::ffff:10.0.1.0/120", true),
            ("RESP-17", "10.0.0.0/16", "010.0.1.0/24", true),
            ("RESP-17", "10.0.0.0/16", "10.0.1.5/24", true),
            ("the same network", "10.0.0.0/16", "10.0.0.0/16", true),
            ("another family", "::/0", "10.0.0.0/16", false),
        ];
        for (id, cluster, route, want) in rows {
            let cluster = [cidr::parse(cluster).unwrap()];
            let ours = cidr::parse(route).is_some_and(|network| contain(&cluster, &network.trunc()));
            assert_eq!(ours, want, "{id}: {route}");
        }
    }

    #[test]
    fn either_family_counts() {
        let cluster = ["10.0.0.0/16", "fd00::/48"].map(|text| text.parse().unwrap());
        for route in ["10.0.1.0/24", "fd00::1:0:0:0:0/64"] {
            assert!(contain(&cluster, &route.parse().unwrap()), "{route}");
        }
    }

    /// WATCH-1, WATCH-2, WATCH-4; SW-32 for changes that upstream ignores.
    #[test]
    fn only_what_routes_depend_on_wakes_us() {
        let old = || node("n").with_provider_id("fake://n").with_pod_cidr("10.0.1.0/24").ready();
        let says = |status, reason| old().with_condition(NETWORK_UNAVAILABLE, status, reason);
        let rows = [
            ("WATCH-1 an address", old(), old().with_address("InternalIP", "10.9.9.9"), true),
            ("WATCH-2 a pod CIDR", old(), old().with_pod_cidr("fd00::/64"), true),
            ("WATCH-4 nothing that is kept", old(), old().version("2"), false),
            ("readiness", old(), old().not_ready(), false),
            ("a label", old(), old().with_label("x", "1"), false),
            ("a provider ID", node("n"), node("n").with_provider_id("fake://n"), true),
            ("initialised", node("n").tainted_uninitialized(), node("n"), true),
            ("our own condition", old(), says("False", "RouteCreated"), false),
            ("our own warning", says("False", "RouteCreated"), says("True", "NoRouteCreated"), false),
            ("SW-32 somebody's condition", says("False", "RouteCreated"), says("False", "CalicoIsUp"), true),
            ("SW-32 our condition taken away", says("False", "RouteCreated"), old(), true),
        ];
        for (name, old, new, want) in rows {
            assert_eq!(matters(&old, &new), want, "{name}");
        }
    }
}
