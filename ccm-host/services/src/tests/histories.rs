//! Random histories: in the end, Services and cloud are as after a fresh start, and nothing is left over, neither in
//! the cloud nor in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    cluster::{lb, node},
    restarting::A_SWEEP,
    world::World,
};
use crate::{nodes::EXCLUDE_LABEL, service::FINALIZER};
use ccm_cloud::{
    ErrorReason, InProgress, ProviderStatus, SyncState,
    fake::{error, method},
};
use ccm_kube::fixtures::refusal;

const METHODS: [&str; 4] = [method::ENSURE, method::UPDATE, method::DELETE, method::LIST];
const REASONS: [Option<ErrorReason>; 7] = [
    None,
    Some(ErrorReason::RetryLater),
    Some(ErrorReason::InvalidArgumentShape),
    Some(ErrorReason::UnsupportedFeature),
    Some(ErrorReason::StaleRevision),
    Some(ErrorReason::ConcurrentOperation),
    Some(ErrorReason::NeedsEnsure),
];
const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A step of a history. Names that do not exist make it a no-op.
#[derive(Debug, Clone)]
enum Step {
    /// Creates a Service of type LoadBalancer, with a new uid.
    Make(&'static str),
    /// A new Service takes the name before anyone sees that the former one is gone.
    Replace(&'static str),
    Port(&'static str, u16),
    /// Switches between LoadBalancer and ClusterIP.
    Turn(&'static str),
    /// Adds or removes another finalizer.
    Guard(&'static str),
    Delete(&'static str),
    /// Removes the Service despite its finalizers.
    Tear(&'static str),
    /// The balancer is changed or deleted by someone else.
    Drift(&'static str),
    Vanish(&'static str),
    Join(&'static str),
    Leave(&'static str),
    Exclude(&'static str),
    /// Fails the next patch of that kind with this status code.
    Refuse(&'static str, u16),
    Fail(&'static str, Option<ErrorReason>),
    Slow(&'static str, u64),
    TakesTime(&'static str),
    Status(u8),
    Stop,
    Start,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let service = || prop::sample::select(&SERVICES[..]);
    let node = || prop::sample::select(&NODES[..]);
    let method = || prop::sample::select(&METHODS[..]);
    prop_oneof![
        4 => service().prop_map(Step::Make),
        1 => service().prop_map(Step::Replace),
        2 => (service(), 1..5_u16).prop_map(|(name, port)| Step::Port(name, port)),
        2 => service().prop_map(Step::Turn),
        1 => service().prop_map(Step::Guard),
        2 => service().prop_map(Step::Delete),
        1 => service().prop_map(Step::Tear),
        1 => service().prop_map(Step::Drift),
        1 => service().prop_map(Step::Vanish),
        3 => node().prop_map(Step::Join),
        1 => node().prop_map(Step::Leave),
        1 => node().prop_map(Step::Exclude),
        2 => (prop::sample::select(vec!["finalizers", "status"]), prop::sample::select(vec![404, 409, 422, 500]))
            .prop_map(|(kind, code)| Step::Refuse(kind, code)),
        3 => (method(), prop::sample::select(&REASONS[..])).prop_map(|(method, reason)| Step::Fail(method, reason)),
        1 => (method(), 0..100_u64).prop_map(|(method, seconds)| Step::Slow(method, seconds)),
        1 => method().prop_map(Step::TakesTime),
        1 => (0..3_u8).prop_map(Step::Status),
        2 => Just(Step::Stop),
        2 => Just(Step::Start),
        6 => (0..400_u64).prop_map(Step::Pass),
        1 => (10_000..12_000_u64).prop_map(Step::Pass),
    ]
}

/// The cluster, the cloud and the number of Services created.
struct History {
    world: World,
    made: usize,
    runs: bool,
}

impl History {
    async fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Make(name) if self.world.cluster.service(name).is_none() => self.make(name),
            Step::Replace(name) if self.world.cluster.service(name).is_some() => self.make(name),
            Step::Make(_) | Step::Replace(_) => {}
            Step::Stop => self.stop().await,
            Step::Start => self.start(),
            Step::Pass(seconds) => self.world.pass(Duration::from_secs(seconds)).await,
            Step::Join(name) => self.world.cluster.put(node(name)),
            Step::Leave(name) => self.on_node(name, |world, name| world.cluster.remove_node(name)),
            Step::Exclude(name) => self.on_node(name, |world, name| {
                world
                    .cluster
                    .change_node(name, |node| node["metadata"]["labels"] = json!({ EXCLUDE_LABEL: "" }));
            }),
            Step::Port(name, port) => {
                self.change(name, |service| service["spec"]["ports"][0]["port"] = json!(port));
            }
            Step::Turn(name) => self.change(name, turn),
            Step::Guard(name) => self.change(name, guard),
            Step::Delete(name) if self.world.cluster.service(name).is_some() => {
                self.world.cluster.delete_service(name);
            }
            Step::Tear(name) if self.world.cluster.service(name).is_some() => {
                self.world.cluster.remove_service(name);
            }
            Step::Delete(_) | Step::Tear(_) => {}
            Step::Drift(name) | Step::Vanish(name) => {
                self.behind_our_back(name, matches!(step, Step::Drift(_)));
            }
            Step::Refuse(kind, code) => self.world.cluster.refuse_next(kind, refusal(code, "Refused")),
            Step::Fail(method, reason) => self.world.cloud.fail_next(method, error(method, reason)),
            Step::Slow(method, seconds) => self.world.cloud.set_latency(method, Duration::from_secs(seconds)),
            Step::TakesTime(method) => {
                let retry_after = Duration::from_secs(30);
                let work = InProgress { retry_after, reason: String::new(), message: String::new() };
                self.world.cloud.in_progress_next(method, work);
            }
            Step::Status(status) => self.world.cloud.set_status(match status {
                0 => ProviderStatus::Serving,
                1 => ProviderStatus::Frozen("credentials".to_owned()),
                _ => ProviderStatus::Disconnected("no socket".to_owned()),
            }),
        }
    }

    fn make(&mut self, name: &str) {
        self.made += 1;
        let mut service = lb(name);
        service["metadata"]["uid"] = json!(format!("{name}-{}", self.made));
        self.world.cluster.put(service);
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        if self.world.cluster.service(name).is_some() {
            self.world.cluster.change_service(name, change);
        }
    }

    fn on_node(&self, name: &str, change: fn(&World, &str)) {
        if self.world.cluster.has_node(name) {
            change(&self.world, name);
        }
    }

    fn behind_our_back(&self, name: &str, drift: bool) {
        let Some(service) = self.world.cluster.service(name) else { return };
        let uid = service["metadata"]["uid"].as_str().unwrap();
        let Some(mut balancer) = self.world.cloud.balancers().remove(uid) else { return };
        if drift {
            balancer.sync_state = SyncState::Drifted;
            self.world.cloud.set_balancer(balancer);
        } else {
            self.world.cloud.remove_balancer(uid);
        }
    }

    async fn stop(&mut self) {
        if std::mem::take(&mut self.runs) {
            self.world.stop().await;
        }
    }

    fn start(&mut self) {
        if !std::mem::replace(&mut self.runs, true) {
            self.world.start();
        }
    }

    /// Ends all faults, and lets enough time pass for a retry at a sweep, and for two sweeps to find an orphan.
    async fn settle(&mut self) {
        self.start();
        self.world.cloud.set_status(ProviderStatus::Serving);
        for method in METHODS {
            self.world.cloud.set_latency(method, Duration::ZERO);
        }
        self.world.pass(6 * A_SWEEP).await;
    }
}

fn turn(service: &mut Value) {
    let was = service["spec"]["type"] == "LoadBalancer";
    service["spec"]["type"] = json!(if was { "ClusterIP" } else { "LoadBalancer" });
}

fn guard(service: &mut Value) {
    let mut others: Vec<String> =
        serde_json::from_value(service["metadata"]["finalizers"].clone()).unwrap_or_default();
    if others.iter().any(|one| one == "other/one") {
        others.retain(|one| one != "other/one");
    } else {
        others.insert(0, "other/one".to_owned());
    }
    service["metadata"]["finalizers"] = json!(others);
}

/// The state visible to users and other controllers: finalizers, status; and the balancers with what is applied.
#[derive(Debug, PartialEq)]
struct End {
    services: BTreeMap<String, Value>,
    balancers: BTreeMap<String, (String, Option<String>)>,
    remembered: BTreeSet<String>,
    pending: String,
}

fn end(world: &World) -> End {
    let mut services = world.cluster.services();
    for service in services.values_mut() {
        service["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        for condition in service["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition.as_object_mut().unwrap().remove("lastTransitionTime");
        }
        // Each balancer that was made has its own address.
        if let Some(entries) = service["status"]["loadBalancer"]["ingress"].as_array_mut() {
            entries.iter_mut().for_each(|entry| entry["ip"] = json!("an address"));
        }
    }
    let balancers = world.cloud.balancers().into_iter().map(|(uid, balancer)| {
        let how = format!("{:?} {:?} {:?}", balancer.state, balancer.sync_state, balancer.ownership);
        (uid, (how, balancer.applied_digest))
    });
    End {
        services,
        balancers: balancers.collect(),
        remembered: world.remembered().iter().map(ToString::to_string).collect(),
        pending: world.metric("ccm_service_pending"),
    }
}

/// A copy of the cluster as users and others left it, without anything of ours.
fn afresh(world: &World) -> World {
    let services = world.cluster.services().into_values().map(|mut service| {
        service["status"] = json!({"loadBalancer": {}});
        if let Some(finalizers) = service["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        service
    });
    World::new(world.cluster.nodes().into_values().chain(services))
}

async fn both_ends(steps: &[Step], delete_orphans: bool) -> (End, End) {
    let mut world = World::new([node("n1"), lb("a")]);
    world.settings.delete_orphaned_load_balancers = delete_orphans;
    world.cloud.distinct_addresses();
    let mut history = History { world, made: 0, runs: false };
    history.start();
    for step in steps {
        history.carry_out(step).await;
    }
    history.settle().await;
    let mut fresh = afresh(&history.world);
    fresh.start();
    fresh.pass(A_SWEEP).await;
    (end(&history.world), end(&fresh))
}

fn play(steps: &[Step], delete_orphans: bool) -> (End, End) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(both_ends(steps, delete_orphans))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_history_ends_as_a_fresh_start_would(steps in prop::collection::vec(step(), 0..40)) {
        let (end, fresh) = play(&steps, true);
        prop_assert_eq!(end, fresh);
    }

    /// A host that saw every Service needs no sweep to leave no balancer behind: only a stopped one may miss a removal.
    #[test]
    fn a_host_that_never_stops_leaves_no_orphan(mut steps in prop::collection::vec(step(), 0..40)) {
        steps.retain(|step| !matches!(step, Step::Stop));
        let (end, fresh) = play(&steps, false);
        prop_assert_eq!(end, fresh);
    }
}
