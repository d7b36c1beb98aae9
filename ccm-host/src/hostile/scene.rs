//! A cluster in which everything may go wrong, all controllers, and two providers: the hostile one, and an honest one
//! whose nodes must not suffer from it.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    judge::{CLUSTER_CIDR, Deeds, HONEST, Judge, Lies, TENANT},
    neighbours,
};
use ccm_cloud::{
    CloudMetrics, ClusterRef, Division, Endpoint, Family, InstanceState, PROVIDER_ANNOTATION, Provider,
    ProviderConfig, ProviderSettings, ProviderStatus, RemoteProvider,
    fake::{FakeProvider, instance},
    hostile::Hostile,
};
use ccm_kube::{
    fixtures::{Recorded, node},
    node::Node,
};
use ccm_nodes::{cloud_node, cloud_node_lifecycle, node_ipam, node_route};
use ccm_reconcile::{Parts, Settings, node_server::NodeServer, settings::cidrs::Allocation, stage, taint};

pub(super) struct Scene {
    seed: u64,
    server: NodeServer,
    hostile: Arc<Hostile>,
    provider: Arc<RemoteProvider>,
    honest: Arc<FakeProvider>,
    judge: Arc<Judge>,
    events: Recorded,
    rng: fastrand::Rng,
    cancel: CancellationToken,
    running: JoinSet<()>,
    state: State,
}

/// The controllers that retain anything from answers, and the metrics registry.
struct State {
    cloud_node: Arc<cloud_node::Controller>,
    service_lb: Arc<ccm_services::Controller>,
    node_route: Arc<node_route::Controller>,
    node_ipam: Arc<node_ipam::Controller>,
    registry: Registry,
}

impl State {
    async fn start(
        server: &NodeServer,
        providers: Vec<Arc<dyn Provider>>,
        (mut registry, cloud_metrics): (Registry, CloudMetrics),
        cancel: &CancellationToken,
        running: &mut JoinSet<()>,
    ) -> (Self, Recorded) {
        let all = [
            &cloud_node::REGISTRATION,
            &cloud_node_lifecycle::REGISTRATION,
            &ccm_services::REGISTRATION,
            &node_route::REGISTRATION,
            &node_ipam::REGISTRATION,
        ];
        let (parts, events) =
            stage::parts(&all, server.writer(), providers, settings(), &mut Registry::default());
        // As the docs ask of whoever does not trust each provider: prefixes are anybody's to claim.
        let prefixes = [("fake://".to_owned(), "fake".to_owned())].into();
        let division = Division { prefixes, ..Division::default() };
        let parts = Parts { cloud_metrics, providers: parts.providers.divided(division), ..parts };
        server.fill(&parts.nodes, cancel).await;
        let (services, client, until) = (parts.services.clone(), server.client(), cancel.clone());
        running.spawn(async move { services.run(client, until).await });
        let run = cloud_node_lifecycle::REGISTRATION.start;
        running.spawn(run(parts.clone(), &mut registry).unwrap()(cancel.clone()));
        let cloud_node = Arc::new(cloud_node::Controller::new(parts.clone(), &mut registry));
        let service_lb = Arc::new(ccm_services::Controller::new(parts.clone(), &mut registry));
        let node_route = node_route::Controller::new(parts.clone(), &mut registry).unwrap();
        let node_ipam = node_ipam::Controller::new(parts, &mut registry).unwrap();
        running.spawn(cloud_node::run(Arc::clone(&cloud_node))(cancel.clone()));
        running.spawn(ccm_reconcile::run(Arc::clone(&service_lb))(cancel.clone()));
        running.spawn(ccm_reconcile::run(Arc::clone(&node_route))(cancel.clone()));
        running.spawn(ccm_reconcile::run(Arc::clone(&node_ipam))(cancel.clone()));
        (Self { cloud_node, service_lb, node_route, node_ipam, registry }, events)
    }

    /// The size of everything the controllers retain, in characters.
    fn size(&self) -> usize {
        let Self { cloud_node, service_lb, node_route, node_ipam, .. } = self;
        format!("{cloud_node:?}{service_lb:?}{node_route:?}{node_ipam:?}").len()
    }

    fn series(&self) -> usize {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket")).count()
    }
}

fn new(name: &str) -> Node {
    node(name).tainted_uninitialized().with_address("Hostname", name).with_label("mine", "1").ready()
}

/// An initialised node of that provider.
fn of(provider: &str, name: &str) -> Node {
    node(name)
        .with_provider_id(&format!("{provider}://{name}"))
        .with_address("InternalIP", "10.0.0.1")
        .with_label("mine", "1")
}

fn service(name: &str) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("{name}-uid"),
            "labels": {"mine": "1"}, "annotations": {"mine.example/id": "1"},
            "finalizers": ["mine.example/holds-it"],
        },
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "ipFamilies": ["IPv4"],
            "externalTrafficPolicy": "Cluster",
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30_080}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn populate(server: &NodeServer) {
    ["n0", "n1", "n2"].iter().for_each(|name| server.put(&new(name)));
    for (number, name) in ["r0", "r1", "r2", "r3"].into_iter().enumerate() {
        let old = of("test", name).created_at(Timestamp::from_second(-60).unwrap());
        server.put(&old.with_pod_cidr(&format!("10.0.{number}.0/24")).ready());
    }
    ["d0", "d1", "d2", "d3"].iter().for_each(|name| fall_silent(server, name));
    // Its kubelet is alive, and says itself that it is not ready.
    server.put(&of("test", "a0").with_condition("Ready", "False", "KubeletNotReady"));
    server.put(&of("test", "y0").not_ready().created_at(Timestamp::from_second(4_000_000_000).unwrap()));
    server.put(&node("u0").not_ready());
    server.put(&of("foreign", "o0").not_ready());
    ["x0", "x1"].iter().for_each(|name| server.put(&of("fake", name).ready()));
    ["x2", "x9"].iter().for_each(|name| server.put(&of("fake", name).not_ready()));
    server.put(&new("x4").with_provider_id("fake://x4"));
    for name in ["n0", "n1", "n2", "r0", "r1", "r2", "r3", "a0", "x0", "x1", "x4"] {
        server.renew_lease(name);
    }
    for name in ["y0", "u0", "o0", "x2", "x9"] {
        server.stop_lease(name, SignedDuration::from_secs(60));
    }
    [TENANT, "s1", "s2"].iter().for_each(|name| put(server, service(name)));
    let mut honest = service(HONEST);
    honest["metadata"]["annotations"][PROVIDER_ANNOTATION] = json!("fake");
    put(server, honest);
    let mut foreign = service("f0");
    foreign["spec"]["loadBalancerClass"] = json!("foreign.example/lb");
    put(server, foreign);
    let mut plain = service("c0");
    plain["spec"]["type"] = json!("ClusterIP");
    put(server, plain);
}

fn put(server: &NodeServer, object: Value) {
    server.api().world().put_value(object).unwrap();
}

/// The node is NotReady, and its kubelet is silent.
fn fall_silent(server: &NodeServer, name: &str) {
    let number: u8 = name[1..].parse().unwrap();
    server.put(&of("test", name).with_pod_cidr(&format!("10.0.1{number}.0/24")).not_ready());
    server.stop_lease(name, SignedDuration::from_secs(60));
}

impl Scene {
    pub(super) async fn start(hostile: Arc<Hostile>, seed: u64, lies: Lies) -> Self {
        let honest = FakeProvider::new("fake");
        for name in ["x0", "x1", "x2", "x4"] {
            honest.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
        }
        for name in ["n0", "n1", "n2"] {
            honest.set_state(name, InstanceState::NotOwned);
        }
        let server = NodeServer::new([]);
        let judge = Judge::over(server.api().clone(), Arc::clone(&hostile), lies);
        judge.watch(&honest);
        populate(&server);
        let (cancel, mut registry) = (CancellationToken::new(), Registry::default());
        let cloud_metrics = CloudMetrics::register(&mut registry);
        let endpoint = Endpoint::Unix("/run/p.sock".into());
        let settings = ProviderSettings { name: "p".to_owned(), endpoint, allowed_uids: Vec::new() };
        let mut config = ProviderConfig::new(settings, ClusterRef::default());
        config.dialer = Some(hostile.dialer());
        let provider = RemoteProvider::spawn(config, &cloud_metrics, cancel.clone());
        let both = vec![Arc::clone(&provider) as Arc<dyn Provider>, Arc::clone(&honest) as _];
        let mut running = JoinSet::new();
        let (state, events) =
            State::start(&server, both, (registry, cloud_metrics), &cancel, &mut running).await;
        Self {
            seed,
            server,
            hostile,
            provider,
            honest,
            judge,
            events,
            rng: fastrand::Rng::with_seed(seed),
            cancel,
            running,
            state,
        }
    }

    /// Acts as users, kubelets and autoscalers in the meantime.
    pub(super) fn disturb(&mut self, round: u64) {
        for name in ["d0", "d1", "d2", "d3"] {
            if self.server.node(name).is_none() && self.rng.bool() {
                fall_silent(&self.server, name);
            }
        }
        if round % 2 == 1 {
            let name = ["n0", "n1", "n2"][self.rng.usize(..3)];
            self.server.put(&new(name));
            let is_ready = self.rng.bool();
            self.server.put(&if is_ready { of("test", "r3").ready() } else { of("test", "r3").not_ready() });
        }
        let name = [TENANT, "s1", "s2"][self.rng.usize(..3)];
        let world = self.server.api().world();
        let known = world.object::<core::Service>("default", name).map(|known| known.value());
        match (round % 4, known) {
            (1, Some(mut known)) => {
                self.judge.changed(name);
                known["spec"]["ports"][0]["port"] = json!(self.rng.u16(1..));
                put(&self.server, known);
            }
            (3, Some(mut known)) => {
                self.judge.changed(name);
                // The other finalizer is removed.
                if let Some(finalizers) = known["metadata"]["finalizers"].as_array_mut() {
                    finalizers.retain(|one| one != "mine.example/holds-it");
                }
                put(&self.server, known);
                let _gone_already = world.delete::<core::Service>("default", name);
            }
            (_, None) => {
                self.judge.changed(name);
                let mut successor = service(name);
                successor["metadata"]["uid"] = json!(format!("{name}-{round}-uid"));
                put(&self.server, successor);
            }
            _ => {}
        }
        neighbours::worker(&self.server, &self.hostile, &mut self.rng);
        let world = self.server.api().world();
        if let Some(mut known) = world.object::<core::Service>("default", TENANT).map(|known| known.value()) {
            self.judge.changed(TENANT);
            neighbours::tenant(&mut known, &self.hostile, &mut self.rng);
            put(&self.server, known);
        }
    }

    /// Asserts that nothing written or requested so far is a breach.
    pub(super) fn assert_harmless(&mut self, panics: u32) {
        let seed = self.seed;
        assert_eq!(self.judge.breaches(), [""; 0], "HOSTILE_SEED={seed}");
        assert_eq!(panics, 0, "HOSTILE_SEED={seed}");
        let status = self.provider.status(Family::Instances).borrow().clone();
        let panicked = matches!(&status, ProviderStatus::Disconnected(why) if why.contains("panicked"));
        assert!(!panicked, "{status:?}, HOSTILE_SEED={seed}");
        assert!(self.running.try_join_next().is_none(), "a controller ended, HOSTILE_SEED={seed}");
        let series = self.state.series();
        assert!(series < 700, "{series} series, HOSTILE_SEED={seed}");
        self.events.take();
    }

    /// The size of everything the controllers retain, in characters.
    pub(super) fn remembered(&self) -> usize {
        self.honest.take_calls();
        self.state.size()
    }

    /// Ends the scene; returns what was done.
    pub(super) async fn end(mut self) -> Deeds {
        let seed = self.seed;
        assert_eq!(
            self.server.node("x9"),
            None,
            "an honest provider's dead node stayed, HOSTILE_SEED={seed}"
        );
        for name in ["x0", "x1", "x2"] {
            assert!(self.server.node(name).is_some(), "{name}, HOSTILE_SEED={seed}");
        }
        let taints = self.server.part("x4", "/spec/taints").to_string();
        assert!(!taints.contains(taint::UNINITIALIZED), "x4: {taints}, HOSTILE_SEED={seed}");
        let backends = self.honest.backends_of(&format!("{HONEST}-uid"));
        for name in ["x0", "x4"] {
            assert!(backends.contains(&name.to_owned()), "{name}: {backends:?}, HOSTILE_SEED={seed}");
        }
        self.cancel.cancel();
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
        self.judge.deeds()
    }
}

fn settings() -> Settings {
    let mut settings = stage::settings();
    settings.lifecycle.node_monitor_period = Duration::from_secs(20);
    settings.services.load_balancer_resync_period = Duration::from_secs(300);
    settings.services.delete_orphaned_load_balancers = true;
    settings.cidrs.cluster = vec![CLUSTER_CIDR.parse().unwrap()];
    settings.cidrs.allocation = Some(Allocation::Cloud);
    settings
}
