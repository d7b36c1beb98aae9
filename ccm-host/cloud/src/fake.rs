//! A provider in memory, for component tests of controllers.
//!
//! By default it is serving, its provider IDs start with `<name>://`, and it knows no instance: every node is
//! authoritatively absent. Balancers and routes become active at once.
//!
//! It is as unkind as a cloud. A balancer that is made anew has another address. A list shows what was there when it
//! began. A mutation that was begun ends, though its caller gave up, its deadline passed or its provider went away. Work
//! in progress ends by itself, and until then nothing is answered about it but that it is in progress.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_debug_implementations,
    reason = "only tests run it"
)]

mod answers;
mod balancers;
mod provider;
mod routes;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use ccm_kube::Ingress;
use parking_lot::Mutex;
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep, sleep_until},
};

pub use answers::{digest_for, error, instance, machine, volume};
use balancers::Balancers;

use super::{
    CloudError, Effects, Family, Freshness, InProgress, Instance, InstanceAnswer, InstanceState,
    InstanceView, ProviderEvent, ProviderInfo, ProviderStatus, Route, ServiceCondition, VolumeAnswer,
};

#[derive(Debug)]
pub struct FakeProvider {
    name: String,
    info: Mutex<Option<Arc<ProviderInfo>>>,
    /// By family.
    status: [watch::Sender<ProviderStatus>; Family::ALL.len()],
    changes: broadcast::Sender<String>,
    sweeps: watch::Sender<u64>,
    state: Arc<Mutex<State>>,
    witness: Mutex<Witness>,
}

type See = dyn Fn(&Call) + Send + Sync;

/// Sees each call when it begins.
#[derive(Default)]
struct Witness(Option<Arc<See>>);

impl std::fmt::Debug for Witness {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Witness")
    }
}

#[derive(Debug, Default)]
struct State {
    instances: HashMap<String, InstanceAnswer>,
    balancers: Balancers,
    routes: BTreeMap<String, Route>,
    /// By the volume's id.
    volumes: BTreeMap<String, VolumeAnswer>,
    rejected_routes: Vec<String>,
    next_route: u64,
    list_complete: bool,
    unreachable: Vec<(String, CloudError)>,
    errors: HashMap<&'static str, VecDeque<CloudError>>,
    always: HashMap<&'static str, CloudError>,
    in_progress: HashMap<&'static str, VecDeque<(InProgress, Duration)>>,
    effects: Effects,
    updated_ingress: Vec<Ingress>,
    latency: HashMap<&'static str, Duration>,
    queued: HashMap<&'static str, Duration>,
    patience: HashMap<&'static str, Duration>,
    calls: Vec<Call>,
    /// By the uid of a Service: the last call about its balancer, for as long as somebody waits for it.
    under_way: HashMap<String, Weak<()>>,
    overlaps: Vec<Call>,
    reads_node_state: bool,
}

/// A call, in the order in which calls began. Services and nodes are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `instance`
    Instance { node: String, view: InstanceView, freshness: Freshness },
    /// `load_balancer`
    Get { service: String },
    /// `ensure_load_balancer`
    Ensure { service: String, nodes: Vec<String>, digest: String, revision: u64, adopt: bool },
    /// `update_load_balancer`
    Update { service: String, nodes: Vec<String>, digest: String, revision: u64 },
    /// `delete_load_balancer`, with the keys of the annotations that the Service is last known to have
    Delete { service: String, uid: String, annotations: Vec<String>, adopt: bool },
    /// `list_load_balancers`
    List,
    /// `list_routes`
    ListRoutes { within: Vec<String> },
    /// `ensure_route`
    EnsureRoute { destination: String, node: String },
    /// `delete_route`
    DeleteRoute { id: String, destination: String },
    /// `add_ssh_key`
    AddSshKey { user: String, public_key: String },
    /// `volume_labels`
    VolumeLabels { volume: String, plugin: &'static str, id: String },
}

/// Names of the RPCs, as [`FakeProvider::fail_next`] and others take them.
pub mod method {
    pub const INSTANCE: &str = "BatchGetInstances";
    pub const GET: &str = "GetLoadBalancer";
    pub const ENSURE: &str = "EnsureLoadBalancer";
    pub const UPDATE: &str = "BatchUpdateLoadBalancers";
    pub const DELETE: &str = "DeleteLoadBalancer";
    pub const LIST: &str = "ListLoadBalancers";
    pub const LIST_ROUTES: &str = "ListRoutes";
    pub const ENSURE_ROUTE: &str = "BatchEnsureRoutes";
    pub const DELETE_ROUTE: &str = "BatchDeleteRoutes";
    pub const ADD_SSH_KEY: &str = "AddSshKeyToAllInstances";
    pub const VOLUME_LABELS: &str = "BatchGetVolumeLabels";
}

impl FakeProvider {
    pub fn new(name: &str) -> Arc<Self> {
        let info = ProviderInfo {
            name: name.to_owned(),
            epoch: "epoch-1".to_owned(),
            provider_id_prefixes: vec![format!("{name}://")],
            instances: true,
            load_balancers: true,
            pod_cidrs: true,
            routes: true,
            default_load_balancer_class: true,
            durable_digest: true,
            balancers_at_once: 1024,
            ..ProviderInfo::default()
        };
        Arc::new(Self {
            name: name.to_owned(),
            info: Mutex::new(Some(Arc::new(info))),
            status: std::array::from_fn(|_| watch::Sender::new(ProviderStatus::Serving)),
            changes: broadcast::Sender::new(64),
            sweeps: watch::Sender::new(0),
            state: Arc::new(Mutex::new(State {
                list_complete: true,
                balancers: Balancers::of(name),
                ..State::default()
            })),
            witness: Mutex::default(),
        })
    }

    /// Changes what the provider reports about itself.
    pub fn change_info(&self, change: impl FnOnce(&mut ProviderInfo)) {
        let mut info = self.info.lock();
        let mut changed = info.as_deref().cloned().unwrap_or_default();
        change(&mut changed);
        *info = Some(Arc::new(changed));
    }

    /// Whether the provider wants taints, cordons and readiness of backend nodes.
    pub fn read_node_state(&self, reads: bool) {
        self.state.lock().reads_node_state = reads;
    }

    /// Resets to the state before the first handshake.
    pub fn forget_info(&self) {
        *self.info.lock() = None;
    }

    pub fn set_status(&self, status: ProviderStatus) {
        for family in &self.status {
            family.send_replace(status.clone());
        }
    }

    /// Freezes the destructive work of one family of calls.
    pub fn freeze(&self, family: Family, why: &str) {
        self.status[family as usize].send_replace(ProviderStatus::Frozen(why.to_owned()));
    }

    /// The prepared answer for the node of that name.
    pub fn answer(&self, node: &str) -> Option<InstanceAnswer> {
        self.state.lock().instances.get(node).cloned()
    }

    /// From now on, this is the answer for the node of that name.
    pub fn set_answer(&self, node: &str, answer: InstanceAnswer) {
        self.state.lock().instances.insert(node.to_owned(), answer);
    }

    /// An authoritative answer with an instance.
    pub fn set_instance(&self, node: &str, state: InstanceState, instance: Instance) {
        self.set_answer(node, machine(state, Some(instance)));
    }

    /// An authoritative answer that keeps the last known instance, as after a shutdown or a deletion.
    pub fn set_state(&self, node: &str, state: InstanceState) {
        let mut guard = self.state.lock();
        let known = guard.instances.get(node).and_then(|answer| answer.instance.clone());
        let instance = known.filter(|_| !matches!(state, InstanceState::Absent | InstanceState::NotOwned));
        guard.instances.insert(node.to_owned(), machine(state, instance));
    }

    /// From now on, this is the answer for the volume of that id; others are absent.
    pub fn set_volume(&self, id: &str, answer: VolumeAnswer) {
        self.state.lock().volumes.insert(id.to_owned(), answer);
    }

    /// The next call of that RPC fails; repeated calls queue up errors.
    pub fn fail_next(&self, method: &'static str, error: CloudError) {
        self.state.lock().errors.entry(method).or_default().push_back(error);
    }

    /// Every call of that RPC fails; `None` lifts that.
    pub fn fail_always(&self, method: &'static str, error: Option<CloudError>) {
        let mut state = self.state.lock();
        match error {
            Some(error) => state.always.insert(method, error),
            None => state.always.remove(method),
        };
    }

    /// The next call of that RPC answers "in progress". The work ends when the caller is to ask again, also unasked.
    pub fn in_progress_next(&self, method: &'static str, in_progress: InProgress) {
        let takes = in_progress.retry_after;
        self.takes_next(method, takes, in_progress);
    }

    /// The next call of that RPC answers "in progress", and the work ends after that time, also unasked. Whoever asks
    /// earlier gets the same answer.
    pub fn takes_next(&self, method: &'static str, takes: Duration, in_progress: InProgress) {
        self.state.lock().in_progress.entry(method).or_default().push_back((in_progress, takes));
    }

    /// How long calls of that RPC take. A mutation whose caller gives up first ends all the same.
    pub fn set_latency(&self, method: &'static str, latency: Duration) {
        self.state.lock().latency.insert(method, latency);
    }

    /// How long changes of that RPC wait before they begin, as in a batch while the provider asks for patience. One whose
    /// caller gives up meanwhile never begins.
    pub fn set_queued(&self, method: &'static str, wait: Duration) {
        self.state.lock().queued.insert(method, wait);
    }

    /// The deadline of calls of that RPC.
    pub fn set_patience(&self, method: &'static str, patience: Duration) {
        self.state.lock().patience.insert(method, patience);
    }

    /// Conditions that every answer about a balancer sets on the Service.
    pub fn set_conditions(&self, conditions: BTreeMap<String, ServiceCondition>) {
        self.state.lock().effects.conditions = conditions;
    }

    /// Annotations that every answer about a balancer sets and removes on the Service.
    pub fn set_annotations(&self, set: BTreeMap<String, String>, removed: Vec<String>) {
        let set = set.into_iter().map(|(key, value)| (key, Some(value)));
        let removed = removed.into_iter().map(|key| (key, None));
        self.state.lock().effects.annotations = set.chain(removed).collect();
    }

    /// The addresses of every balancer that is updated.
    pub fn set_updated_ingress(&self, ingress: Vec<Ingress>) {
        self.state.lock().updated_ingress = ingress;
    }

    /// Events of every answer about a balancer.
    pub fn set_events(&self, events: Vec<ProviderEvent>) {
        self.state.lock().effects.events = events;
    }

    /// Locations that lists could not reach.
    pub fn set_unreachable(&self, unreachable: Vec<(String, CloudError)>) {
        let mut state = self.state.lock();
        state.list_complete = unreachable.is_empty();
        state.unreachable = unreachable;
    }

    /// Shows each call when it begins.
    pub fn witness(&self, see: impl Fn(&Call) + Send + Sync + 'static) {
        *self.witness.lock() = Witness(Some(Arc::new(see)));
    }

    /// Sends a key through the provider's watch.
    pub fn notify_change(&self, key: &str) {
        let _ = self.changes.send(key.to_owned());
    }

    /// Asks for a sweep, as after a reconnect.
    pub fn request_sweep(&self) {
        self.sweeps.send_modify(|generation| *generation += 1);
    }

    /// All calls since the start or the last [`FakeProvider::take_calls`].
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state.lock().calls)
    }

    /// Calls that began while somebody waited for another one about the same balancer.
    pub fn overlaps(&self) -> Vec<Call> {
        self.state.lock().overlaps.clone()
    }

    /// Logs a call that changes nothing, waits for its latency, and returns its prepared error.
    async fn begin(&self, method: &'static str, call: Call) -> Result<(), CloudError> {
        let latency = self.log(method, call);
        let ends = async {
            sleep(latency).await;
            self.state.lock().next_error(method).map_or(Ok(()), Err)
        };
        self.wait_for(method, ends).await
    }

    /// Logs a call, and does its work after its latency, unless an error is prepared: whether anyone still waits for the
    /// answer or not.
    async fn change<T: Send + 'static>(
        &self,
        method: &'static str,
        call: Call,
        work: impl FnOnce(&mut State) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        let queued = self.state.lock().queued.get(method).copied();
        if let Some(wait) = queued {
            sleep(wait).await;
        }
        let ends = Instant::now() + self.log(method, call);
        self.change_at(method, ends, work).await
    }

    /// Changes a balancer: calls about it are carried out one after the other, and outdated ones are refused.
    async fn change_balancer<T: Send + 'static>(
        &self,
        (method, uid, revision): (&'static str, &str, u64),
        call: Call,
        work: impl FnOnce(&mut State) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        let waits = Arc::new(());
        let before = self.state.lock().under_way.insert(uid.to_owned(), Arc::downgrade(&waits));
        if before.is_some_and(|before| before.strong_count() > 0) {
            self.state.lock().overlaps.push(call.clone());
        }
        let latency = self.log(method, call);
        let ends = self.state.lock().balancers.accept(method, uid, revision, latency)?;
        self.change_at(method, ends, work).await
    }

    async fn change_at<T: Send + 'static>(
        &self,
        method: &'static str,
        ends: Instant,
        work: impl FnOnce(&mut State) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        let state = Arc::clone(&self.state);
        let work = move || {
            let mut state = state.lock();
            state.next_error(method).map_or(Ok(()), Err)?;
            work(&mut state)
        };
        if ends <= Instant::now() {
            return self.wait_for(method, async { work() }).await;
        }
        let ended = tokio::spawn(async move {
            sleep_until(ends).await;
            work()
        });
        self.wait_for(method, async { ended.await.expect("the work ends") }).await
    }

    fn log(&self, method: &'static str, call: Call) -> Duration {
        let witness = self.witness.lock().0.clone();
        if let Some(see) = witness {
            see(&call);
        }
        let mut state = self.state.lock();
        state.calls.push(call);
        state.latency.get(method).copied().unwrap_or_default()
    }

    /// Waits for an answer for as long as there is a connection, and until the deadline.
    async fn wait_for<T>(
        &self,
        method: &'static str,
        ends: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let patience = self.state.lock().patience.get(method).copied();
        // A lost connection shows in every family.
        let mut status = self.status[0].subscribe();
        tokio::select! {
            biased;
            _ = status.wait_for(ProviderStatus::is_away) => Err(answers::unanswered(method, tonic::Code::Unavailable)),
            ended = ends => ended,
            () = sleep(patience.unwrap_or(Duration::MAX)) => Err(answers::unanswered(method, tonic::Code::DeadlineExceeded)),
        }
    }
}

impl State {
    fn next_error(&mut self, method: &'static str) -> Option<CloudError> {
        let next = self.errors.get_mut(method).and_then(VecDeque::pop_front);
        next.or_else(|| self.always.get(method).cloned())
    }

    fn next_in_progress(&mut self, method: &'static str) -> Option<(InProgress, Duration)> {
        self.in_progress.get_mut(method).and_then(VecDeque::pop_front)
    }
}
