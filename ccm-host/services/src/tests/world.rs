//! A cluster, a cloud and the controller between them, on a paused clock.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use crate::{Controller, REGISTRATION, RunKey};
use ccm_cloud::{
    Division, Provider,
    fake::{Call, FakeProvider},
};
use ccm_kube::{
    cache::{Cache, Slim},
    fixtures::Recorded,
    patch::{WritePressure, Writer},
    service::ObjectKey,
};
use ccm_reconcile::{Parts, settings::ServiceSettings, stage};

/// Longer than any debounce and any short backoff of these tests, shorter than a sweep.
pub(super) const A_WHILE: Duration = Duration::from_secs(1_000);

pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) cloud: Arc<FakeProvider>,
    others: Vec<Arc<FakeProvider>>,
    recorded: Option<Recorded>,
    registry: Registry,
    pub(super) settings: ServiceSettings,
    /// Whose is what, if the command line says so.
    pub(super) division: Division,
    controller: Option<Arc<Controller>>,
    cancel: CancellationToken,
    running: JoinSet<()>,
}

impl World {
    /// A world with these objects, and nothing running yet.
    pub(super) fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let cloud = FakeProvider::new("cloud");
        let cluster = Cluster::new(Arc::clone(&cloud));
        for object in objects {
            cluster.put(object);
        }
        let settings = ServiceSettings {
            concurrent_service_syncs: 16,
            load_balancer_resync_period: Duration::from_secs(10_000),
            adopt_load_balancers: false,
            delete_orphaned_load_balancers: false,
            exclude_draining_nodes: false,
        };
        Self {
            cluster,
            cloud,
            others: Vec::new(),
            recorded: None,
            registry: Registry::default(),
            settings,
            division: Division::default(),
            controller: None,
            cancel: CancellationToken::new(),
            running: JoinSet::new(),
        }
    }

    /// A world with these objects and a controller that has settled.
    pub(super) async fn settled(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut world = Self::new(objects);
        world.start();
        world.pass(Duration::from_secs(3)).await;
        world.take();
        world
    }

    pub(super) fn add_provider(&mut self, name: &str) -> Arc<FakeProvider> {
        let other = FakeProvider::new(name);
        self.others.push(Arc::clone(&other));
        other
    }

    /// All providers, in their order.
    pub(super) fn clouds(&self) -> impl Iterator<Item = &Arc<FakeProvider>> {
        std::iter::once(&self.cloud).chain(&self.others)
    }

    /// Starts a controller without memory of an earlier one.
    pub(super) fn start(&mut self) {
        self.registry = Registry::default();
        self.cancel = CancellationToken::new();
        let providers = self.clouds().map(|one| Arc::clone(one) as Arc<dyn Provider>).collect();
        let writer = Writer::new(self.cluster.client.clone(), WritePressure::default());
        let settings = ccm_reconcile::Settings { services: self.settings, ..stage::settings() };
        let (parts, recorded) =
            stage::parts(&[&REGISTRATION], writer, providers, settings, &mut self.registry);
        let parts = Parts { providers: parts.providers.divided(self.division.clone()), ..parts };
        self.recorded = Some(recorded);
        self.watch(&parts.services);
        self.watch(&parts.nodes);
        let controller = Arc::new(Controller::new(parts, &mut self.registry));
        self.controller = Some(Arc::clone(&controller));
        self.running.spawn(ccm_reconcile::run(controller)(self.cancel.clone()));
    }

    fn watch<T: Slim>(&mut self, cache: &Cache<T>) {
        let (cache, client, cancel) = (cache.clone(), self.cluster.client.clone(), self.cancel.clone());
        self.running.spawn(async move { cache.run(client, cancel).await });
    }

    /// Stops the controller; returns how long it took to end.
    pub(super) async fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        self.cancel.cancel();
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
        begun.elapsed()
    }

    pub(super) fn controller(&self) -> &Controller {
        self.controller.as_ref().expect("started")
    }

    /// Queues a key as if the watch had reported that Service.
    pub(super) fn enqueue(&self, key: ObjectKey) {
        self.controller().shell.queue.add(RunKey::Service(key));
    }

    /// The names that have a balancer, as far as is known.
    pub(super) fn remembered(&self) -> BTreeSet<ObjectKey> {
        let rows = self.controller().rows.all();
        rows.iter().filter(|row| row.orphan.is_none()).map(|row| row.key.clone()).collect()
    }

    /// Whether nodes changed that are in no set yet.
    pub(super) fn lacks_a_set(&self) -> bool {
        self.controller().backends.is_outdated()
    }

    /// Lets time pass.
    pub(super) async fn pass(&self, time: Duration) {
        sleep(time).await;
    }

    /// Waits until the condition holds; returns how long that took.
    pub(super) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        let wait = async {
            while !holds(self) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(2 * A_WHILE, wait)
            .await
            .unwrap_or_else(|_| panic!("{what} did not happen: {:?}", self.story()));
        begun.elapsed()
    }

    /// The calls to the cloud since the last [`World::take`].
    pub(super) fn calls(&self) -> Vec<String> {
        self.cloud.calls().iter().map(word).collect()
    }

    /// The number of calls that begin with `begin`.
    pub(super) fn count(&self, begin: &str) -> usize {
        self.calls().iter().filter(|call| call.starts_with(begin)).count()
    }

    /// The Events since the last time: reason, and message of warnings.
    pub(super) fn events(&self) -> Vec<String> {
        let events = self.recorded.as_ref().map(Recorded::take).unwrap_or_default();
        events
            .into_iter()
            .map(|(type_, reason, message)| match type_.as_str() {
                "Warning" => format!("{reason}: {message}"),
                _ => reason.to_owned(),
            })
            .collect()
    }

    /// Takes the calls and writes since the last [`World::take`], in their order.
    pub(super) fn take(&self) -> Vec<String> {
        let story = self.story();
        self.cloud.take_calls();
        self.events();
        story
    }

    /// Like [`World::take`], with the Events.
    pub(super) fn take_with_events(&self) -> (Vec<String>, Vec<String>) {
        let events = self.events();
        (self.take(), events)
    }

    fn story(&self) -> Vec<String> {
        let mut writes = self.cluster.take_writes().into_iter().peekable();
        let mut story = Vec::new();
        for (number, call) in self.calls().into_iter().enumerate() {
            while let Some(write) = writes.next_if(|write| write.calls_before <= number) {
                story.push(write.word);
            }
            story.push(call);
        }
        story.extend(writes.map(|write| write.word));
        story
    }

    /// The value of a series.
    pub(super) fn metric(&self, series: &str) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).to_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A call in words: what, for which Service, with which nodes.
pub(super) fn word(call: &Call) -> String {
    let short = |service: &str| service.trim_start_matches("default/").to_owned();
    match call {
        Call::List => "list".to_owned(),
        Call::Get { service } => format!("get {}", short(service)),
        Call::Ensure { service, nodes, .. } => format!("ensure {} {}", short(service), nodes.join(",")),
        Call::Update { service, nodes, .. } => format!("update {} {}", short(service), nodes.join(",")),
        Call::Delete { uid, .. } => format!("delete {uid}"),
        Call::Instance { node, .. } => format!("instance {node}"),
        Call::ListRoutes { .. } | Call::EnsureRoute { .. } | Call::DeleteRoute { .. } => "route".to_owned(),
        Call::AddSshKey { user, .. } => format!("ssh key {user}"),
        Call::VolumeLabels { volume, .. } => format!("volume {volume}"),
    }
}
