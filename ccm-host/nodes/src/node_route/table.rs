//! The known routes of a provider: from its last list, and from every answer since.
//!
//! In: lists and answers. Out: the routes to a destination, and those that lead to a node. Routes missing from an
//! incomplete list stay known only if nodes want them as they are, so that no node loses its network and the table
//! cannot outgrow the cluster. Changes made while a list was under way take precedence over the list.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use ccm_state::{RouteListing, RouteTable, inventory};
use ipnet::IpNet;

use super::{Cloud, Controller};
use ccm_cloud::{Route, RouteState};
use ccm_reconcile::explain::Explain;

#[derive(Debug, Default)]
pub(super) struct Table {
    routes: HashMap<String, Arc<Route>>,
    by_destination: HashMap<IpNet, BTreeSet<String>>,
    by_holder: HashMap<Holder, BTreeSet<String>>,
    learnt: RouteListing,
    clock: u64,
    /// When we last changed a destination, by the table's clock.
    touched: HashMap<IpNet, u64>,
}

/// The target of a route, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// A node, by name.
    Node(String),
    /// An instance, by provider ID.
    Instance(String),
    /// Unknown.
    Nobody,
}

impl Holder {
    pub(super) fn of(route: &Route) -> Self {
        match &route.target {
            Some(target) if !target.name.is_empty() => Self::Node(target.name.clone()),
            Some(target) if !target.provider_id.is_empty() => Self::Instance(target.provider_id.clone()),
            _ => Self::Nobody,
        }
    }
}

impl Table {
    /// The completeness of the last list.
    pub(super) fn learnt(&self) -> RouteListing {
        self.learnt
    }

    /// The current time: pass it to [`Table::learn`] with the list that starts now.
    pub(super) fn mark(&self) -> u64 {
        self.clock
    }

    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Arc<Route>> {
        self.routes.get(id)
    }

    /// The routes to a destination, by id.
    pub(super) fn to(&self, destination: &IpNet) -> impl Iterator<Item = &Arc<Route>> {
        self.by_destination.get(destination).into_iter().flatten().filter_map(|id| self.routes.get(id))
    }

    /// The routes that lead to a holder, by id.
    pub(super) fn of(&self, holder: &Holder) -> impl Iterator<Item = &Arc<Route>> {
        self.by_holder.get(holder).into_iter().flatten().filter_map(|id| self.routes.get(id))
    }

    /// Merges a list that was started at `begun`. `is_wanted`: some node wants the route as it is.
    pub(super) fn learn(
        &mut self,
        listed: Vec<Route>,
        learnt: RouteListing,
        begun: u64,
        is_wanted: impl Fn(&Route) -> bool,
    ) {
        let newer = |table: &Self, destination: &IpNet| {
            table.touched.get(destination).is_some_and(|touched| *touched > begun)
        };
        let (mut seen, mut led) = (HashSet::new(), HashSet::new());
        for mut route in listed {
            seen.insert(route.id.clone());
            led.insert((route.destination, Holder::of(&route)));
            let known = self.routes.get(&route.id).cloned();
            let destinations = known.iter().map(|known| known.destination).chain([route.destination]);
            if destinations.into_iter().any(|destination| newer(self, &destination)) {
                continue;
            }
            let same =
                |known: &Arc<Route>| (known.destination, &known.target) == (route.destination, &route.target);
            // An unknown state does not invalidate the state known before.
            if let Some(known) = known.filter(same)
                && route.state == RouteState::Unspecified
            {
                route.state = known.state;
            }
            self.insert(route);
        }
        // From what an incomplete list lacks, keep one route to where a node wants it.
        let stays = |route: &Route| {
            learnt == RouteListing::InPart
                && is_wanted(route)
                && !led.contains(&(route.destination, Holder::of(route)))
        };
        let gone: Vec<String> = self
            .routes
            .values()
            .filter(|route| !seen.contains(&route.id) && !newer(self, &route.destination) && !stays(route))
            .map(|route| route.id.clone())
            .collect();
        gone.iter().for_each(|id| self.take(id));
        self.touched.retain(|_, touched| *touched > begun);
        self.learnt = learnt;
    }

    /// Records that the destination leads only where this route says.
    pub(super) fn ensured(&mut self, route: Route) {
        self.touch(route.destination);
        let replaced: Vec<String> = self.to(&route.destination).map(|other| other.id.clone()).collect();
        replaced.iter().for_each(|id| self.take(id));
        self.insert(route);
    }

    /// Records that the route is gone.
    pub(super) fn removed(&mut self, route: &Route) {
        self.touch(route.destination);
        self.take(&route.id);
    }

    fn touch(&mut self, destination: IpNet) {
        self.clock += 1;
        self.touched.insert(destination, self.clock);
    }

    fn insert(&mut self, route: Route) {
        self.take(&route.id);
        self.by_destination.entry(route.destination).or_default().insert(route.id.clone());
        self.by_holder.entry(Holder::of(&route)).or_default().insert(route.id.clone());
        self.routes.insert(route.id.clone(), Arc::new(route));
    }

    fn take(&mut self, id: &str) {
        let Some(route) = self.routes.remove(id) else { return };
        forget(&mut self.by_destination, &route.destination, id);
        forget(&mut self.by_holder, &Holder::of(&route), id);
    }
}

fn forget<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<String>>, key: &K, id: &str) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}

impl Cloud {
    fn state(&self) -> RouteTable {
        let table = self.table.lock();
        let mut routes: Vec<_> = table.all().map(|route| row(route)).collect();
        routes.sort_by(|one, other| (&one.destination, &one.id).cmp(&(&other.destination, &other.id)));
        RouteTable { provider: self.name().to_owned(), list: table.learnt(), routes }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_cloud::RouteTarget;

    fn route(id: &str, cidr: &str, node: &str) -> Route {
        let target = RouteTarget { name: node.to_owned(), ..RouteTarget::default() };
        Route {
            id: id.to_owned(),
            destination: cidr.parse().unwrap(),
            target: Some(target).filter(|target| !target.name.is_empty()),
            state: RouteState::Active,
            ours: true,
        }
    }

    fn wanted(route: &Route) -> bool {
        Holder::of(route) != Holder::Nobody
    }

    fn ids(table: &Table) -> Vec<&str> {
        let mut ids: Vec<_> = table.all().map(|route| route.id.as_str()).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn only_a_whole_list_makes_routes_disappear() {
        let mut table = Table::default();
        assert_eq!(table.learnt(), RouteListing::NotYet);
        let mark = table.mark();
        table.learn(
            vec![route("a", "10.0.1.0/24", "n"), route("b", "10.0.2.0/24", "m")],
            RouteListing::Whole,
            mark,
            wanted,
        );
        table.learn(vec![route("b", "10.0.2.0/24", "m")], RouteListing::InPart, mark, wanted);
        assert_eq!((ids(&table), table.learnt()), (vec!["a", "b"], RouteListing::InPart));
        table.learn(vec![route("b", "10.0.2.0/24", "m")], RouteListing::Whole, mark, wanted);
        assert_eq!(ids(&table), ["b"]);
        assert_eq!(table.of(&Holder::Node("n".into())).count(), 0);
        assert_eq!(table.to(&"10.0.1.0/24".parse().unwrap()).count(), 0);
    }

    /// Whatever is listed, the table holds only what nodes want and what the last list had.
    #[test]
    fn what_nobody_wants_is_forgotten_with_the_list_that_held_it() {
        let mut table = Table::default();
        for number in 0..100 {
            let id = |word: &str| format!("{word}{number}");
            let stray = route(&id("stray"), "10.0.9.0/24", "");
            let outside = route(&id("outside"), "192.168.0.0/24", "");
            let doubled = route(&id("doubled"), "10.0.1.0/24", "n");
            table.learn(vec![stray, outside, doubled], RouteListing::InPart, table.mark(), wanted);
        }
        assert_eq!(ids(&table), ["doubled99", "outside99", "stray99"]);
        table.learn(vec![], RouteListing::InPart, table.mark(), wanted);
        assert_eq!(ids(&table), ["doubled99"]);
    }

    #[test]
    fn what_changed_while_a_list_was_made_is_known_better() {
        let mut table = Table::default();
        table.learn(
            vec![route("a", "10.0.1.0/24", "n"), route("b", "10.0.2.0/24", "n")],
            RouteListing::Whole,
            table.mark(),
            wanted,
        );
        let begun = table.mark();
        table.removed(&route("a", "10.0.1.0/24", "n"));
        table.ensured(route("b2", "10.0.2.0/24", "m"));
        table.ensured(route("c", "10.0.3.0/24", "m"));
        let old = vec![route("a", "10.0.1.0/24", "n"), route("b", "10.0.2.0/24", "n")];
        table.learn(old.clone(), RouteListing::Whole, begun, wanted);
        assert_eq!(ids(&table), ["b2", "c"]);
        table.learn(old, RouteListing::Whole, table.mark(), wanted);
        assert_eq!(ids(&table), ["a", "b"], "the next list knows all of it");
    }

    #[test]
    fn a_destination_that_was_ensured_leads_nowhere_else() {
        let mut table = Table::default();
        let doubled = vec![route("a", "10.0.1.0/24", "n"), route("b", "10.0.1.0/24", "m")];
        table.learn(doubled, RouteListing::Whole, table.mark(), wanted);
        assert_eq!(table.to(&"10.0.1.0/24".parse().unwrap()).count(), 2);
        table.ensured(route("b", "10.0.1.0/24", "k"));
        assert_eq!(ids(&table), ["b"]);
        assert_eq!(table.of(&Holder::Node("k".into())).count(), 1);
        assert_eq!(table.of(&Holder::Node("m".into())).count(), 0);
    }

    #[test]
    fn a_state_that_is_not_told_any_more_stays() {
        let mut table = Table::default();
        table.ensured(route("a", "10.0.1.0/24", "n"));
        let untold = Route { state: RouteState::Unspecified, ..route("a", "10.0.1.0/24", "n") };
        table.learn(vec![untold.clone()], RouteListing::Whole, table.mark(), wanted);
        assert_eq!(table.get("a").unwrap().state, RouteState::Active);
        let elsewhere = Route { target: route("a", "10.0.1.0/24", "m").target, ..untold };
        table.learn(vec![elsewhere], RouteListing::Whole, table.mark(), wanted);
        assert_eq!(table.get("a").unwrap().state, RouteState::Unspecified);
    }

    #[test]
    fn a_route_is_held_by_a_node_a_machine_or_nobody() {
        let machine = RouteTarget { provider_id: "x://1".into(), ..RouteTarget::default() };
        let rows = [
            (route("a", "10.0.1.0/24", "n"), Holder::Node("n".into())),
            (
                Route { target: Some(machine), ..route("a", "10.0.1.0/24", "") },
                Holder::Instance("x://1".into()),
            ),
            (route("a", "10.0.1.0/24", ""), Holder::Nobody),
        ];
        for (route, want) in rows {
            assert_eq!(Holder::of(&route), want);
        }
    }
}
