//! The whole controller against an in-memory apiserver and provider, on a paused clock.

mod changing;
mod failing;
mod histories;
mod reconciling;
mod safety;

use ipnet::IpNet;
use serde_json::Value;
use tokio::time::sleep;

use super::*;
use ccm_cloud::{
    Route, RouteState, RouteTarget,
    fake::{Call, FakeProvider},
};
use ccm_kube::{fixtures::node, node::Node};
use ccm_reconcile::{
    node_server::NodeServer,
    stage::{self, Stage},
};

const PERIOD: Duration = Duration::from_secs(300);

#[derive(derive_more::Deref)]
struct Scene(Stage);

/// The routes of pods in these networks are ours.
fn settings() -> ccm_reconcile::Settings {
    let mut settings = stage::settings();
    settings.cidrs.cluster = cluster_cidrs();
    settings
}

fn cluster_cidrs() -> Vec<IpNet> {
    vec![net("10.120.0.0/16"), net("a00::/8")]
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// An initialised node with these pod CIDRs.
fn wanting(name: &str, cidrs: &[&str]) -> Node {
    let node = node(name).with_provider_id(&format!("fake://{name}")).with_address("InternalIP", "10.0.0.1");
    cidrs.iter().fold(node, |node, cidr| node.with_pod_cidr(cidr))
}

fn n1() -> Node {
    wanting("n1", &["10.120.0.0/24"])
}

/// A route to a node; to nothing known if its name is empty.
fn route(id: &str, cidr: &str, node: &str) -> Route {
    let machine = if node.is_empty() { String::new() } else { format!("fake://{node}") };
    to(id, cidr, node, &machine)
}

fn to(id: &str, cidr: &str, node: &str, machine: &str) -> Route {
    let target =
        RouteTarget { name: node.to_owned(), provider_id: machine.to_owned(), ..RouteTarget::default() };
    Route {
        id: id.to_owned(),
        destination: net(cidr),
        target: Some(target).filter(|target| *target != RouteTarget::default()),
        state: RouteState::Active,
        ours: true,
    }
}

fn blackhole(id: &str, cidr: &str, to: &str) -> Route {
    Route { state: RouteState::Blackhole, ..route(id, cidr, to) }
}

impl Scene {
    async fn start(nodes: impl IntoIterator<Item = Node>, routes: impl IntoIterator<Item = Route>) -> Self {
        let fake = FakeProvider::new("fake");
        routes.into_iter().for_each(|route| fake.set_route(route));
        Self::with(nodes, fake, vec![]).await
    }

    /// A scene in which the controller has settled.
    async fn settled(nodes: impl IntoIterator<Item = Node>, routes: impl IntoIterator<Item = Route>) -> Self {
        let scene = Self::start(nodes, routes).await;
        scene.rest().await;
        scene.fake.take_calls();
        scene.server.take_calls();
        scene.events.take();
        scene
    }

    async fn with(
        nodes: impl IntoIterator<Item = Node>,
        fake: Arc<FakeProvider>,
        others: Vec<Arc<FakeProvider>>,
    ) -> Self {
        Self::at(NodeServer::new(nodes), fake, others).await
    }

    async fn at(server: NodeServer, fake: Arc<FakeProvider>, others: Vec<Arc<FakeProvider>>) -> Self {
        let fakes: Vec<_> = [fake].into_iter().chain(others).collect();
        Self(Stage::set(&REGISTRATION, server, &fakes, settings()).await.run())
    }

    /// The cloud's routes: destination and node, sorted.
    fn routes(&self) -> Vec<String> {
        routes_of(&self.fake)
    }

    /// Status and reason of the condition.
    fn condition(&self, name: &str) -> String {
        let conditions = self.server.part(name, "/status/conditions");
        let list: Vec<Value> = conditions.as_array().cloned().unwrap_or_default();
        let one = list.iter().find(|one| one["type"] == condition::NETWORK_UNAVAILABLE);
        one.map_or_else(
            || "none".to_owned(),
            |one| format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap()),
        )
    }

    /// The calls to the cloud since the last time, sorted except for lists.
    fn calls(&self) -> Vec<String> {
        let mut calls: Vec<String> = self.fake.take_calls().iter().map(word).collect();
        calls.sort();
        calls
    }
}

fn routes_of(fake: &FakeProvider) -> Vec<String> {
    let to =
        |route: &Route| route.target.as_ref().map_or_else(|| "-".to_owned(), |target| target.name.clone());
    let mut words: Vec<String> =
        fake.routes().iter().map(|route| format!("{} {}", route.destination, to(route))).collect();
    words.sort();
    words
}

fn word(call: &Call) -> String {
    match call {
        Call::ListRoutes { .. } => "list".to_owned(),
        Call::EnsureRoute { destination, node } => format!("ensure {destination} {node}"),
        Call::DeleteRoute { id, .. } => format!("delete {id}"),
        other => panic!("not a route: {other:?}"),
    }
}
