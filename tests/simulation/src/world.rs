//! Everything around the host, and what happens to it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use apiserver::{ApiServer, Cut, Fault, History, Interception, Options, View, World as Objects};
use ccm_host::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Service, Taint};
use parking_lot::Mutex;
use provider_mock::{
    cloud::{
        BalancerPatch, Cloud, ConditionsPatch, Credentials, NewInstances, NewLegacyBalancer, NewRoute,
        Settings, State, Store,
    },
    fault::FaultSpec,
    serve::Mock,
};
use serde_json::json;
use tokio::time::{Duration, sleep};

use crate::{
    doubling::Doubling,
    host::{self, Host},
    kubelets::Kubelets,
    oracle,
    plan::{Setup, Step},
    provider::Provider,
    record::Record,
    seen::Seen,
};

/// Keeps nodes out of balancers.
pub const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// What the autoscaler puts on a node that it removes.
pub const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// What another controller holds Services with.
pub const OTHER_FINALIZER: &str = "example.com/other";
/// The cluster beside ours.
pub const OTHER_CLUSTER: &str = "99999999-0000-4000-8000-000000000000";
/// When all runs begin.
const BEGIN: i64 = 1_767_225_600;

/// The world of one run. Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct World(Rc<Inner>);

type Judged = ((u64, u64), Rc<[String]>);

#[derive(Debug)]
pub struct Inner {
    pub record: Record,
    pub server: ApiServer,
    pub mock: Mock,
    pub kubelets: Arc<Mutex<Kubelets>>,
    pub hosts: RefCell<Vec<Host>>,
    /// To nodes and Services.
    writes: Arc<AtomicU64>,
    nodes: Seen<Node>,
    services: Seen<Service>,
    /// What is wrong with the cluster, as of these numbers of writes and of calls.
    wrong: RefCell<Judged>,
    provider: Provider,
    doubling: Doubling,
    flags: Vec<String>,
    started: Cell<u32>,
    /// The apiserver is away.
    away: Cell<bool>,
}

impl std::ops::Deref for World {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The name of a node.
#[must_use]
pub fn node(number: u8) -> String {
    format!("n{number}")
}

/// The name of a Service.
#[must_use]
pub fn service(number: u8) -> String {
    format!("s{number}")
}

impl World {
    /// A world without nodes, its provider started. Must be called within a runtime.
    ///
    /// # Errors
    /// What is advertised makes no sense.
    pub fn new(setup: &Setup, record: Record) -> Result<Self> {
        clock::follow_tokio(Timestamp::from_second(BEGIN).context("the year 2026")?);
        let server = ApiServer::new(Options {
            clock: Some(Arc::new(clock::now)),
            keep_requests: false,
            ..Options::default()
        });
        let writes = Arc::new(AtomicU64::new(1));
        let written = Arc::clone(&writes);
        server.on_write(move |write| {
            if matches!(write.resource, "nodes" | "services") {
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let settings = Settings {
            provisioning_delay: setup.provisioning,
            deletion_delay: setup.provisioning,
            ..Settings::default()
        };
        let cloud = Cloud::new(State::new(settings), Store::nowhere());
        let mock = Mock {
            advertised: setup.advertise.parse()?,
            latency: setup.latency,
            ..Mock::new(cloud, Arc::new(clock::now))
        };
        let doubling = Doubling::default();
        let provider = Provider::new(mock.clone(), doubling.clone());
        provider.start();
        let world = Self(Rc::new(Inner {
            record,
            server,
            mock,
            kubelets: Arc::default(),
            hosts: RefCell::default(),
            writes: Arc::clone(&writes),
            nodes: Seen::default(),
            services: Seen::default(),
            wrong: RefCell::new(((0, 0), Rc::new([]))),
            provider,
            doubling,
            flags: setup.flags.clone(),
            started: Cell::new(0),
            away: Cell::new(false),
        }));
        world.neighbours()?;
        Ok(world)
    }

    /// What another cluster has in the same cloud.
    fn neighbours(&self) -> Result<()> {
        let legacy = NewLegacyBalancer {
            service_uid: "88888888-0000-4000-8000-000000000001".to_owned(),
            namespace: "default".to_owned(),
            service_name: service(0),
            cluster_name: "other".to_owned(),
            cluster_uid: OTHER_CLUSTER.to_owned(),
            ..NewLegacyBalancer::default()
        };
        let route = NewRoute {
            cluster_uid: OTHER_CLUSTER.to_owned(),
            destination_cidr: "10.99.0.0/24".to_owned(),
            target: None,
        };
        self.alter(|state, now| state.create_legacy_balancer(legacy, now).map(drop))?;
        self.alter(|state, _| state.create_route_outside(route).map(drop))?;
        Ok(())
    }

    /// The uid of the cluster.
    #[must_use]
    pub fn cluster(&self) -> String {
        let namespace = self.objects().get::<Namespace>("", "kube-system");
        namespace.and_then(|namespace| namespace.metadata.uid).unwrap_or_default()
    }

    /// All objects, as the users and kubelets see them.
    #[must_use]
    pub fn objects(&self) -> Objects {
        self.server.world()
    }

    /// All nodes, by name.
    #[must_use]
    pub fn nodes(&self) -> Rc<[Rc<Node>]> {
        self.nodes.list(&self.objects(), self.writes.load(Ordering::Relaxed))
    }

    /// All Services, by name.
    #[must_use]
    pub fn services(&self) -> Rc<[Rc<Service>]> {
        self.services.list(&self.objects(), self.writes.load(Ordering::Relaxed))
    }

    /// What is not as it must be in calm times.
    #[must_use]
    pub fn wrong(&self) -> Rc<[String]> {
        let generation = self.generation();
        let mut known = self.wrong.borrow_mut();
        if known.0 != generation {
            *known = (generation, oracle::differences(self).into());
        }
        Rc::clone(&known.1)
    }

    /// Counts everything that happens to nodes and Services and in the cloud.
    #[must_use]
    pub fn generation(&self) -> (u64, u64) {
        (self.writes.load(Ordering::Relaxed), self.look(State::generation))
    }

    /// Looks at the cloud.
    pub fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.mock.cloud.read(clock::now(), look)
    }

    fn alter<R>(&self, act: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let now = clock::now();
        self.mock.cloud.alter(now, |state| act(state, now))
    }

    /// One second of the kubelets' lives.
    pub fn tick(&self) {
        let objects = self.objects().named("kubelet");
        let nodes = self.nodes();
        self.kubelets.lock().tick(&objects, &nodes, &self.mock.cloud, clock::now(), !self.away.get());
        self.hosts.borrow_mut().retain(|host| !host.has_ended());
    }

    /// Starts a host.
    ///
    /// # Errors
    /// Its flags are none.
    pub fn start_host(&self) -> Result<()> {
        self.started.set(self.started.get() + 1);
        let name = format!("host-{}", self.started.get());
        self.record.note(&name, "starts");
        let settings = host::settings(&self.flags)?;
        let host = Host::start(name, settings, &self.server, &self.provider, &self.record);
        self.hosts.borrow_mut().push(host);
        Ok(())
    }

    /// The hosts that were not told to stop.
    fn active(&self, mut act: impl FnMut(&Host)) {
        self.hosts.borrow().iter().filter(|host| !host.is_leaving()).for_each(&mut act);
    }

    /// How many objects hosts have written so far.
    #[must_use]
    pub fn host_writes(&self) -> u64 {
        (1..=self.started.get())
            .flat_map(|number| self.server.counts(&format!("host-{number}")))
            .filter(|(what, _)| {
                !what.ends_with("events")
                    && !["get ", "list ", "watch "].iter().any(|read| what.starts_with(read))
            })
            .map(|(_, count)| count)
            .sum()
    }

    /// Does something later.
    fn later(&self, after: Duration, act: impl FnOnce(&Self) + 'static) {
        let world = self.clone();
        tokio::task::spawn_local(async move {
            sleep(after).await;
            act(&world);
        });
    }

    /// Ends all trouble: whatever is down comes up, whatever is held is let go, and exactly one host runs.
    ///
    /// # Errors
    /// No host can be started.
    pub fn calm(&self) -> Result<()> {
        self.mock.faults.clear();
        self.provider.start();
        self.doubling.percent(0);
        self.condition(ConditionsPatch {
            cloud_reachable: Some(true),
            serving: Some(true),
            credentials: Some(Credentials::Valid),
            ..ConditionsPatch::default()
        });
        self.kubelets.lock().speak();
        let mut active = 0;
        self.active(|host| {
            host.api.hold(false);
            host.cloud.hold(false);
            host.faults.clear();
            active += 1;
            if active > 1 {
                host.stop();
            }
        });
        if active == 0 {
            self.start_host()?;
        }
        Ok(())
    }

    /// Stops the host and starts another.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn replace_host(&self) -> Result<()> {
        self.active(Host::stop);
        self.start_host()
    }

    fn condition(&self, patch: ConditionsPatch) {
        self.alter(|state, _| state.patch_conditions(patch));
    }

    /// Does one step.
    ///
    /// # Errors
    /// A host cannot be started, or a fault is none of the mock.
    pub fn apply(&self, step: &Step) -> Result<()> {
        self.record.note("world", &format!("{step:?}"));
        match step {
            Step::Join(number) => self.join(*number),
            Step::Terminate(numbers) => numbers.iter().for_each(|number| self.terminate(*number)),
            Step::ScaleDown(numbers) => self.scale_down(numbers.clone()),
            Step::Stop(number) => drop(self.alter(|state, now| state.stop_instance(&node(*number), now))),
            Step::Start(number) => drop(self.alter(|state, now| state.start_instance(&node(*number), now))),
            Step::Silence(number, time) => self.kubelets.lock().silence(&node(*number), *time),
            Step::DeleteNode(number) => drop(self.objects().named("user").delete::<Node>("", &node(*number))),
            Step::Exclude(number, out) => self.label(*number, EXCLUDE, out.then_some("true")),
            Step::Label(number) => {
                self.label(
                    *number,
                    "example.com/color",
                    Some(&self.record.elapsed().as_millis().to_string()),
                );
            }
            Step::Create(number) => self.create(*number),
            Step::Flip(number, time) => {
                let number = *number;
                self.edit(&Step::Retype(number, false));
                self.later(*time, move |world| world.edit(&Step::Retype(number, true)));
            }
            Step::Edit(..) | Step::Retype(..) | Step::Delete(_) | Step::Finalizer(..) => self.edit(step),
            Step::Drift(_) | Step::DropBalancer(_) | Step::StrayRoute(_) | Step::DropRoute(_) => {
                self.meddle(step);
            }
            Step::Crash(_) | Step::Restart | Step::Hold(_) | Step::Overlap(_) => self.disturb_host(step)?,
            Step::ProviderCrash(_) | Step::ProviderHold(_) | Step::ProviderCut => self.disturb_provider(step),
            Step::Cloud(time, text) => self.fault(*time, text.parse()?),
            Step::Unreachable(_) | Step::Credentials(_) | Step::NotServing(_) => self.disturb_cloud(step),
            Step::Doubled(time, percent) => {
                self.doubling.percent(*percent);
                self.later(*time, |world| world.doubling.percent(0));
            }
            Step::ApiDown(time, compacted) => self.api_down(*time, *compacted),
            _ => self.disturb_api(step),
        }
        Ok(())
    }

    fn join(&self, number: u8) {
        let name = node(number);
        let known = self.look(|state| state.instance(&name).is_some());
        if known {
            return;
        }
        let made = self.alter(|state, now| state.create_instances(&NewInstances::named(name.clone()), now));
        if let Ok([machine, ..]) = made.as_deref() {
            self.kubelets.lock().boot(&name, &machine.provider_id);
        }
    }

    fn terminate(&self, number: u8) {
        let _none_is_fine = self.alter(|state, now| state.terminate_instance(&node(number), None, now));
    }

    fn scale_down(&self, numbers: Vec<u8>) {
        let objects = self.objects().named("autoscaler");
        for number in &numbers {
            let _none_is_fine = objects.change::<Node>("", &node(*number), |node| {
                let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
                taints.retain(|taint| taint.key != AUTOSCALER);
                let (key, effect) = (AUTOSCALER.to_owned(), "NoSchedule".to_owned());
                taints.push(Taint { key, effect, ..Taint::default() });
            });
        }
        self.later(Duration::from_secs(10), move |world| {
            numbers.iter().for_each(|number| world.terminate(*number));
        });
    }

    fn label(&self, number: u8, key: &str, value: Option<&str>) {
        let _none_is_fine = self.objects().named("user").change::<Node>("", &node(number), |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            match value {
                Some(value) => drop(labels.insert(key.to_owned(), value.to_owned())),
                None => drop(labels.remove(key)),
            }
        });
    }

    fn create(&self, number: u8) {
        let _there_is_fine = self.objects().named("user").create_value(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": service(number), "namespace": "default" },
            "spec": {
                "type": "LoadBalancer", "selector": { "app": service(number) },
                "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080 }],
            },
        }));
    }

    fn edit(&self, step: &Step) {
        let objects = self.objects().named("user");
        let change = |number: u8, act: &dyn Fn(&mut Service)| {
            let _none_is_fine = objects.change::<Service>("default", &service(number), act);
        };
        match step {
            Step::Edit(number, port) => change(*number, &|service| {
                let ports = service.spec.get_or_insert_default().ports.get_or_insert_default();
                ports.iter_mut().for_each(|one| one.port = i32::from(*port));
            }),
            Step::Retype(number, balanced) => change(*number, &|service| {
                let type_ = if *balanced { "LoadBalancer" } else { "ClusterIP" };
                service.spec.get_or_insert_default().type_ = Some(type_.to_owned());
                if !balanced {
                    // As the apiserver does.
                    service.status.get_or_insert_default().load_balancer = None;
                }
            }),
            Step::Finalizer(number, on) => change(*number, &|service| {
                let finalizers = service.metadata.finalizers.get_or_insert_default();
                finalizers.retain(|one| one != OTHER_FINALIZER);
                if *on && service.metadata.deletion_timestamp.is_none() {
                    finalizers.push(OTHER_FINALIZER.to_owned());
                }
            }),
            Step::Delete(number) => drop(objects.delete::<Service>("default", &service(*number))),
            _ => {}
        }
    }

    /// What somebody does in the cloud's own console.
    fn meddle(&self, step: &Step) {
        let cluster = self.cluster();
        let balancer = |state: &State, number: u8| {
            let mut ours = state.balancers().filter(|one| one.cluster_uid == cluster);
            ours.find(|one| one.service_name == service(number)).map(|one| one.id.clone())
        };
        self.alter(|state, _| match step {
            Step::Drift(number) => {
                let patch = BalancerPatch { ports: Some(Vec::new()), ..BalancerPatch::default() };
                let _none_is_fine = balancer(state, *number).map(|id| state.patch_balancer(&id, patch));
            }
            Step::DropBalancer(number) => {
                let _none_is_fine = balancer(state, *number).map(|id| state.remove_balancer_outside(&id));
            }
            Step::StrayRoute(third) => {
                let destination_cidr = format!("10.244.{third}.0/24");
                let wish = NewRoute { cluster_uid: cluster.clone(), destination_cidr, target: None };
                let taken =
                    state.routes().any(|one| one.route.destination_cidr.to_string() == wish.destination_cidr);
                let _refused_is_fine = (!taken).then(|| state.create_route_outside(wish));
            }
            Step::DropRoute(number) => {
                let name = node(*number);
                let is_its = |route: &provider_mock::cloud::ListedRoute| {
                    route.route.target.as_ref().is_some_and(|target| target.node == name)
                };
                let found = state.routes().find(is_its).map(|route| route.route.id);
                let _none_is_fine = found.map(|id| state.remove_route_outside(&id));
            }
            _ => {}
        });
    }

    fn disturb_host(&self, step: &Step) -> Result<()> {
        match step {
            Step::Crash(time) => {
                self.active(Host::kill);
                self.later(*time, Self::host_again);
            }
            Step::Restart => self.replace_host()?,
            Step::Hold(time) => self.hold(*time, |host, held| {
                host.api.hold(held);
                host.cloud.hold(held);
            }),
            Step::Overlap(time) => {
                let old: Vec<String> = self.hosts.borrow().iter().map(|host| host.name.clone()).collect();
                self.start_host()?;
                self.later(*time, move |world| {
                    let hosts = world.hosts.borrow();
                    hosts.iter().filter(|host| old.contains(&host.name)).for_each(Host::stop);
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// After a crash, unless another one was started meanwhile.
    fn host_again(&self) {
        let mut alive = false;
        self.active(|_| alive = true);
        if !alive && let Err(error) = self.start_host() {
            self.record.broken("a host cannot be started", format!("{error:#}"));
        }
    }

    /// For all hosts of now.
    fn hold(&self, time: Duration, switch: impl Fn(&Host, bool) + Copy + 'static) {
        let mut names = Vec::new();
        self.active(|host| {
            switch(host, true);
            names.push(host.name.clone());
        });
        self.later(time, move |world| {
            let hosts = world.hosts.borrow();
            hosts.iter().filter(|host| names.contains(&host.name)).for_each(|host| switch(host, false));
        });
    }

    fn disturb_provider(&self, step: &Step) {
        match step {
            Step::ProviderCrash(time) => {
                self.provider.kill();
                self.later(*time, |world| world.provider.start());
            }
            Step::ProviderHold(time) => self.hold(*time, |host, held| host.cloud.hold(held)),
            Step::ProviderCut => self.active(|host| host.cloud.break_connections()),
            _ => {}
        }
    }

    fn fault(&self, time: Duration, spec: FaultSpec) {
        let id = self.mock.faults.add(spec.into_fault()).id;
        self.later(time, move |world| _ = world.mock.faults.remove(id));
    }

    fn disturb_cloud(&self, step: &Step) {
        let patch = |good: bool| match step {
            Step::Unreachable(_) => ConditionsPatch { cloud_reachable: Some(good), ..Default::default() },
            Step::Credentials(_) => {
                let credentials = if good { Credentials::Valid } else { Credentials::Expired };
                ConditionsPatch { credentials: Some(credentials), ..Default::default() }
            }
            _ => ConditionsPatch { serving: Some(good), ..Default::default() },
        };
        self.condition(patch(false));
        let end = patch(true);
        self.later(step.lasts(), move |world| world.condition(end));
    }

    fn api_down(&self, time: Duration, compacted: bool) {
        self.server.stop();
        self.away.set(true);
        self.later(time, move |world| {
            world.server.start(if compacted { History::Compacted } else { History::Kept });
            world.away.set(false);
        });
    }

    fn disturb_api(&self, step: &Step) {
        match step {
            Step::ApiHold(time) => self.hold(*time, |host, held| host.api.hold(held)),
            Step::ApiCutWatches => self.active(|host| host.faults.cut_watches(Cut::Break)),
            Step::ApiSilent(time) => self.hold(*time, |host, on| host.faults.silence_watches(on)),
            Step::ApiLagging(time, behind) => {
                self.active(|host| host.faults.view(View::Late(*behind)));
                self.later(*time, |world| world.active(|host| host.faults.view(View::Current)));
            }
            Step::ApiNoStreamingLists(time) => {
                self.hold(*time, |host, off| host.faults.streaming_lists(!off));
            }
            Step::ApiLossy(time, percent) => {
                let mut kept: Vec<Interception> = Vec::new();
                let percent = *percent;
                self.active(|host| kept.push(host.faults.intercept(move |_| lossy(percent))));
                self.later(*time, move |_| drop(kept));
            }
            _ => {}
        }
    }
}

fn lossy(percent: u8) -> Option<Fault> {
    if fastrand::u8(..100) >= percent {
        return None;
    }
    let time = Duration::from_millis(fastrand::u64(1..8000));
    Some(match fastrand::u8(..7) {
        0 => Fault::Lose,
        1 => Fault::LoseAnswer,
        2 => Fault::Delay(time),
        3 => Fault::AnswerAfter(time),
        4 => Fault::Hang,
        5 => Fault::HangAfter,
        _ => Fault::Refuse(apiserver::Refusal::too_many_requests(Duration::from_secs(2))),
    })
}
