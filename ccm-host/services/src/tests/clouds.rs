//! Random histories with two providers, of which either may come late, fail, go away and come back with another
//! configuration. At every moment: what is published is never deleted while its Service wants it where it is, what was
//! deleted is not published again, and no two calls about one balancer are under way. In the end: each Service has one
//! balancer, and publishes its address.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, addresses, lb, node},
    ownership::{balancer, come, leave},
    restarting::A_SWEEP,
    world::World,
};
use crate::service::FINALIZER;
use ccm_cloud::{
    ErrorReason, InProgress, LoadBalancer, LoadBalancerState, PROVIDER_ANNOTATION, Provider as _,
    ProviderStatus,
    fake::{Call, FakeProvider, error, method},
};
use ccm_kube::service::Ingress;

const METHODS: [&str; 4] = [method::ENSURE, method::UPDATE, method::DELETE, method::LIST];
const REASONS: [Option<ErrorReason>; 5] = [
    None,
    Some(ErrorReason::RetryLater),
    Some(ErrorReason::InvalidArgumentShape),
    Some(ErrorReason::UnsupportedFeature),
    Some(ErrorReason::NeedsEnsure),
];
const SERVICES: [&str; 3] = ["a", "b", "c"];
/// Machines of the first provider, and of the second.
const NODES: [(&str, &str); 4] = [("n1", "cloud"), ("n2", "cloud"), ("n3", "other"), ("n4", "other")];
const CLOUDS: [&str; 2] = ["cloud", "other"];
/// The address of what a provider only says it has.
const CLAIMED: &str = "192.0.2.250";

/// A step of a history. Names that do not exist make it a no-op; providers are numbered.
#[derive(Debug, Clone)]
enum Step {
    Make(&'static str),
    Port(&'static str, u16),
    Turn(&'static str),
    Delete(&'static str),
    /// The annotation that names a provider is set, or removed.
    Name(&'static str, Option<&'static str>),
    /// It wants no balancer for a moment, and then one of the provider with this number.
    Move(&'static str, usize),
    Join(usize),
    Leave(usize),
    Fail(usize, &'static str, Option<ErrorReason>),
    /// Every Ensure fails, or none any more.
    Full(usize, bool),
    Slow(usize, &'static str, u64),
    /// How long the work takes, and when it is to be asked for.
    TakesTime(usize, &'static str, u64, u64),
    Away(usize, bool),
    /// It lists a balancer of that Service, which the other one has.
    Claim(usize, &'static str),
    /// Its record goes.
    Forget(&'static str),
    /// Away, and unknown to a host that starts.
    Gone(usize),
    /// Back, and whether it owns Services without a class.
    Back(usize, bool),
    Stop,
    Start,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let service = || prop::sample::select(&SERVICES[..]);
    let method = || prop::sample::select(&METHODS[..]);
    let named = prop::sample::select(vec![None, Some("cloud"), Some("other"), Some("typo")]);
    let (at, node) = (|| 0..CLOUDS.len(), || 0..NODES.len());
    prop_oneof![
        4 => service().prop_map(Step::Make),
        2 => (service(), 1..5_u16).prop_map(|(name, port)| Step::Port(name, port)),
        2 => service().prop_map(Step::Turn),
        1 => service().prop_map(Step::Delete),
        3 => (service(), named).prop_map(|(name, to)| Step::Name(name, to)),
        1 => (service(), at()).prop_map(|(name, at)| Step::Move(name, at)),
        1 => node().prop_map(Step::Join),
        1 => node().prop_map(Step::Leave),
        3 => (at(), method(), prop::sample::select(&REASONS[..])).prop_map(|(at, m, reason)| Step::Fail(at, m, reason)),
        1 => (at(), any::<bool>()).prop_map(|(at, full)| Step::Full(at, full)),
        2 => (at(), method(), 0..200_u64).prop_map(|(at, method, seconds)| Step::Slow(at, method, seconds)),
        2 => (at(), method(), 1..300_u64, 1..300_u64).prop_map(|(at, m, takes, again)| Step::TakesTime(at, m, takes, again)),
        1 => (at(), any::<bool>()).prop_map(|(at, away)| Step::Away(at, away)),
        1 => (at(), service()).prop_map(|(at, name)| Step::Claim(at, name)),
        1 => service().prop_map(Step::Forget),
        1 => at().prop_map(Step::Gone),
        2 => (at(), any::<bool>()).prop_map(|(at, owns)| Step::Back(at, owns)),
        2 => Just(Step::Stop),
        3 => Just(Step::Start),
        6 => (0..400_u64).prop_map(Step::Pass),
        1 => (10_000..12_000_u64).prop_map(Step::Pass),
    ]
}

/// What must not happen, and did.
#[derive(Debug, Default)]
struct Watchman {
    broken: Vec<String>,
    /// By uid: the provider that deleted its balancer, and the addresses of that.
    released: BTreeMap<String, (String, Vec<String>)>,
}

impl Watchman {
    fn watch(world: &World) -> Arc<Mutex<Self>> {
        let watchman = Arc::<Mutex<Self>>::default();
        for cloud in world.clouds() {
            let (seen, cluster, here) = (Arc::clone(&watchman), world.cluster.clone(), Arc::downgrade(cloud));
            cloud.witness(move |call| {
                if let Some(here) = here.upgrade() {
                    seen.lock().call(&cluster, &here, call);
                }
            });
        }
        let (seen, clouds) = (Arc::clone(&watchman), world.clouds().map(Arc::downgrade).collect::<Vec<_>>());
        world.cluster.on_service_written(move |before, after| {
            let clouds: Vec<_> = clouds.iter().filter_map(Weak::upgrade).collect();
            seen.lock().written(&clouds, before, after);
        });
        watchman
    }

    fn call(&mut self, cluster: &Cluster, cloud: &FakeProvider, call: &Call) {
        match call {
            Call::Delete { uid, .. } => {
                let Some(balancer) = cloud.balancers().remove(uid) else { return };
                let (service, its) = (by_uid(cluster, uid), ips(&balancer));
                let published = service.as_ref().map(addresses).unwrap_or_default();
                let stays = service.is_some_and(|service| wants(&service) && stays_at(&service, cloud));
                if stays && published.iter().any(|ip| its.contains(ip)) {
                    self.broken.push(format!("{} deletes {uid}, which is published", cloud.name()));
                }
                if !its.is_empty() {
                    self.released.insert(uid.clone(), (cloud.name().to_owned(), its));
                }
            }
            Call::Ensure { service, .. } => {
                let Some(service) = cluster.service(service.trim_start_matches("default/")) else { return };
                let uid = service["metadata"]["uid"].as_str().unwrap_or_default();
                // A deletion that failed left it as it was, and now it is to stay.
                if self.released.get(uid).is_some_and(|(by, _)| by == cloud.name())
                    && cloud.balancers().contains_key(uid)
                {
                    self.released.remove(uid);
                }
                let left = self.released.get(uid).filter(|(by, _)| by != cloud.name());
                let dead = |ip: &String| left.is_some_and(|(_, released)| released.contains(ip));
                if addresses(&service).iter().any(dead) {
                    self.broken
                        .push(format!("{uid} publishes what it left while {} makes another", cloud.name()));
                }
            }
            _ => {}
        }
    }

    fn written(&mut self, clouds: &[Arc<FakeProvider>], before: &Value, after: &Value) {
        let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
        let Some((_, released)) = self.released.get(uid) else { return };
        let (before, now) = (addresses(before), addresses(after));
        // A deletion that failed left it as it was, and a Service of nobody keeps what it has: no Ensure says so.
        let lives = |ip: &String| {
            clouds.iter().any(|cloud| cloud.balancers().get(uid).is_some_and(|one| ips(one).contains(ip)))
        };
        let is_kept = |ip: &String| is_misnamed(after) && lives(ip);
        if now.iter().any(|ip| released.contains(ip) && !before.contains(ip) && !is_kept(ip)) {
            self.broken.push(format!("{uid} publishes {now:?}, of which {released:?} is deleted"));
        }
    }
}

/// Whether it names a provider that there is not.
fn is_misnamed(service: &Value) -> bool {
    service["metadata"]["annotations"][PROVIDER_ANNOTATION] == "typo"
}

fn by_uid(cluster: &Cluster, uid: &str) -> Option<Value> {
    cluster.services().into_values().find(|service| service["metadata"]["uid"] == uid)
}

fn ips(balancer: &LoadBalancer) -> Vec<String> {
    balancer.ingress.iter().map(|entry| entry.ip.clone()).filter(|ip| !ip.is_empty()).collect()
}

fn wants(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a balancer at this provider is where its Service's may be.
fn stays_at(service: &Value, cloud: &FakeProvider) -> bool {
    match service["metadata"]["annotations"][PROVIDER_ANNOTATION]
        .as_str()
        .filter(|name| CLOUDS.contains(name))
    {
        Some(name) => name == cloud.name(),
        None => cloud.info().is_none_or(|info| info.looks_after(None)),
    }
}

struct History {
    world: World,
    made: usize,
    runs: bool,
}

impl History {
    fn cloud(&self, at: usize) -> &FakeProvider {
        self.world.clouds().nth(at).unwrap()
    }

    async fn carry_out(&mut self, step: &Step) {
        let cluster = self.world.cluster.clone();
        let change = |name: &str, act: &dyn Fn(&mut Value)| {
            if cluster.service(name).is_some() {
                cluster.change_service(name, act);
            }
        };
        match *step {
            Step::Make(name) if cluster.service(name).is_none() => {
                self.made += 1;
                let mut service = lb(name);
                service["metadata"]["uid"] = json!(format!("{name}-{}", self.made));
                cluster.put(service);
            }
            Step::Make(_) => {}
            Step::Port(name, port) => {
                change(name, &|service| service["spec"]["ports"][0]["port"] = json!(port));
            }
            Step::Turn(name) => change(name, &|service| {
                let was = service["spec"]["type"] == "LoadBalancer";
                service["spec"]["type"] = json!(if was { "ClusterIP" } else { "LoadBalancer" });
            }),
            Step::Name(name, to) => change(name, &|service| {
                service["metadata"]["annotations"] =
                    to.map_or(json!({}), |to| json!({PROVIDER_ANNOTATION: to}));
            }),
            Step::Move(name, at) => {
                change(name, &|service| service["spec"]["type"] = json!("ClusterIP"));
                self.world.pass(Duration::from_secs(1)).await;
                change(name, &|service| {
                    service["spec"]["type"] = json!("LoadBalancer");
                    service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: CLOUDS[at]});
                });
            }
            Step::Delete(name) if cluster.service(name).is_some() => cluster.delete_service(name),
            Step::Delete(_) => {}
            Step::Join(number) => cluster.put(machine(number)),
            Step::Leave(number) if cluster.has_node(NODES[number].0) => cluster.remove_node(NODES[number].0),
            Step::Leave(_) => {}
            Step::Fail(at, method, reason) => self.cloud(at).fail_next(method, error(method, reason)),
            Step::Full(at, full) => {
                let quota = error(method::ENSURE, Some(ErrorReason::QuotaExceeded));
                self.cloud(at).fail_always(method::ENSURE, full.then_some(quota));
            }
            Step::Slow(at, method, seconds) => {
                self.cloud(at).set_latency(method, Duration::from_secs(seconds));
            }
            Step::TakesTime(at, method, takes, again) => {
                let retry_after = Duration::from_secs(again);
                let answer = InProgress { retry_after, reason: String::new(), message: String::new() };
                self.cloud(at).takes_next(method, Duration::from_secs(takes), answer);
            }
            Step::Away(at, away) => self.cloud(at).set_status(if away {
                ProviderStatus::Disconnected("no socket".to_owned())
            } else {
                ProviderStatus::Serving
            }),
            Step::Claim(at, name) => {
                let uid = |service: Value| service["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let Some(uid) = cluster.service(name).map(uid) else { return };
                let has_it = |cloud: &Arc<FakeProvider>| cloud.balancers().contains_key(&uid);
                if !has_it(self.world.clouds().nth(at).unwrap()) && self.world.clouds().any(has_it) {
                    let mut claim = balancer(name);
                    claim.service_uid = uid;
                    claim.ingress = vec![Ingress { ip: CLAIMED.to_owned(), ..Ingress::default() }];
                    self.cloud(at).set_balancer(claim);
                }
            }
            Step::Forget(name) => change(name, &|service| {
                if !service["status"]["conditions"].is_null() {
                    service["status"]["conditions"] = json!([]);
                }
            }),
            Step::Gone(at) => leave(self.cloud(at)),
            Step::Back(at, owns) => {
                self.cloud(at).change_info(|info| info.default_load_balancer_class = owns);
                come(self.cloud(at));
                self.cloud(at).change_info(|info| info.default_load_balancer_class = owns);
            }
            Step::Stop if std::mem::take(&mut self.runs) => _ = self.world.stop().await,
            Step::Start if !std::mem::replace(&mut self.runs, true) => self.world.start(),
            Step::Stop | Step::Start => {}
            Step::Pass(seconds) => self.world.pass(Duration::from_secs(seconds)).await,
        }
    }

    /// Ends all faults, and lets enough time pass for retries at sweeps, and for two sweeps to find an orphan.
    async fn settle(&mut self) {
        self.carry_out(&Step::Start).await;
        for at in 0..CLOUDS.len() {
            self.carry_out(&Step::Full(at, false)).await;
            for method in METHODS {
                self.carry_out(&Step::Slow(at, method, 0)).await;
            }
            self.carry_out(&Step::Back(at, true)).await;
        }
        self.world.pass(6 * A_SWEEP).await;
    }

    /// What is not as it must be in the end.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut left: BTreeSet<_> =
            self.world.clouds().flat_map(|cloud| cloud.balancers().into_keys()).collect();
        for (name, service) in self.world.cluster.services() {
            let uid = service["metadata"]["uid"].as_str().unwrap();
            left.remove(uid);
            let have = self.world.clouds().filter_map(|cloud| Some((cloud, cloud.balancers().remove(uid)?)));
            let guarded = service["metadata"]["finalizers"] == json!([FINALIZER]);
            let (published, wanted) = (addresses(&service), wants(&service));
            // It is asked for by nobody that there is: what it has is kept, but neither made nor changed. Nor is what is said to
            // be its own removed.
            let misnamed = is_misnamed(&service);
            let is_claim = |one: &LoadBalancer| misnamed && wanted && ips(one) == [CLAIMED];
            let have: Vec<_> = have.filter(|(_, one)| !is_claim(one)).collect();
            let is_right = match have.as_slice() {
                [] => (wanted && misnamed || !wanted && !guarded) && published.is_empty(),
                [(cloud, balancer)] => {
                    let port = format!("port:{},", service["spec"]["ports"][0]["port"]);
                    wanted
                        && guarded
                        && published == ips(balancer)
                        && stays_at(&service, cloud)
                        && balancer.state == LoadBalancerState::Active
                        && (misnamed
                            || balancer.applied_digest.as_ref().is_some_and(|digest| digest.contains(&port)))
                        && cloud.backends_of(uid) == self.machines_of(cloud.name())
                }
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{name} publishes {published:?}, wants {wanted}, has {have:?}"));
            }
        }
        wrong.extend(left.into_iter().map(|uid| format!("{uid} is left")));
        wrong
    }

    fn machines_of(&self, cloud: &str) -> Vec<String> {
        let is_its = |(name, of): &&(&str, &str)| *of == cloud && self.world.cluster.has_node(name);
        NODES.iter().filter(is_its).map(|(name, _)| (*name).to_owned()).collect()
    }
}

fn machine(number: usize) -> Value {
    let (name, of) = NODES[number];
    let mut machine = node(name);
    machine["spec"]["providerID"] = json!(format!("{of}://{name}"));
    machine
}

async fn play(steps: &[Step], at_once: usize) -> Vec<String> {
    let mut world = World::new([machine(0), machine(2), lb("a")]);
    world.add_provider("other");
    world.settings.concurrent_service_syncs = at_once;
    world.settings.delete_orphaned_load_balancers = true;
    world.clouds().for_each(|cloud| cloud.distinct_addresses());
    let watchman = Watchman::watch(&world);
    let mut history = History { world, made: 0, runs: false };
    for step in steps {
        history.carry_out(step).await;
    }
    history.settle().await;
    let mut wrong = std::mem::take(&mut watchman.lock().broken);
    let overlaps = history.world.clouds().flat_map(|cloud| cloud.overlaps());
    wrong.extend(overlaps.map(|call| format!("{call:?} begins beside another call")));
    wrong.extend(history.wrong());
    wrong
}

/// A node joins, and its provider goes before the node is passed on: the set made before was used again for ever.
#[tokio::test(start_paused = true)]
async fn a_provider_that_comes_back_has_the_nodes_that_joined_meanwhile() {
    let gone = || Step::Gone(0);
    let back = Step::Back(0, false);
    let steps =
        [gone(), Step::Start, back, Step::Pass(1), Step::Join(1), gone(), Step::Make("b"), Step::Pass(1)];
    assert_eq!(play(&steps, 1).await, [""; 0]);
}

/// Its annotation names a provider that there is not, so nobody makes a balancer for it: it keeps what it has.
#[tokio::test(start_paused = true)]
async fn a_service_of_nobody_publishes_what_a_deletion_left_it() {
    let (turn, fail) = (|| Step::Turn("a"), Step::Fail(0, method::DELETE, None));
    let steps =
        [Step::Start, Step::Pass(1), fail, turn(), Step::Name("a", Some("typo")), Step::Pass(1), turn()];
    assert_eq!(play(&steps, 1).await, [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn two_providers_share_the_services_and_lose_none(
        steps in prop::collection::vec(step(), 0..40),
        at_once in 1..4_usize,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let wrong = runtime.block_on(play(&steps, at_once));
        prop_assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
