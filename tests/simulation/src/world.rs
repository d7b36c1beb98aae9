//! Everything around the host, and what happens to it.

mod people;
mod trouble;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use apiserver::{ApiServer, Options, World as Objects};
use ccm_base::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use parking_lot::Mutex;
use provider_mock::{
    cloud::{Balancer, Cloud, Instance, NewLegacyBalancer, NewRoute, Route, Settings, State, Store},
    fault::Fault,
    serve::Mock,
};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::{
    doubling::Doubling,
    generate::NODES,
    host::{self, Host},
    kubelets::Kubelets,
    oracle,
    plan::{Setup, Step},
    provider::Provider,
    record::Record,
    seen::Seen,
};

/// The label that excludes nodes from balancers.
pub const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The taint of nodes that the autoscaler removes.
pub const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// The finalizer of another controller on Services.
pub const OTHER_FINALIZER: &str = "example.com/other";
/// Another cluster in the same cloud.
pub const OTHER_CLUSTER: &str = "99999999-0000-4000-8000-000000000000";
/// How long the kubelet waits before it restarts a container.
const BACKOFF: Duration = Duration::from_secs(10);
/// The time at which all runs begin.
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
    /// Counts writes to nodes and Services.
    writes: Arc<AtomicU64>,
    nodes: Seen<Node>,
    services: Seen<Service>,
    /// What is wrong with the cluster, as of these numbers of writes and calls.
    wrong: RefCell<Judged>,
    provider: Provider,
    doubling: Doubling,
    /// The second cloud, if there is one, and its provider.
    edge: Option<(Mock, Provider)>,
    flags: Vec<String>,
    /// Whether hosts elect a leader.
    elects: bool,
    started: Cell<u32>,
    /// Whether all faults are over.
    is_calm: Cell<bool>,
    /// Whether the apiserver is down.
    away: Cell<bool>,
    /// The nodes and Services on which the provider fails permanently, and the fault that causes it.
    spoilt: RefCell<BTreeMap<String, Fault>>,
}

impl std::ops::Deref for World {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The name of a node.
pub fn node(number: u8) -> String {
    format!("n{number}")
}

/// The name of a Service.
pub fn service(number: u8) -> String {
    format!("s{number}")
}

impl World {
    /// A world without nodes, its provider started. Must be called within a runtime.
    ///
    /// # Errors
    /// The advertised values are invalid.
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
            latency: setup.latency,
            provisioning_delay: setup.provisioning,
            deletion_delay: setup.provisioning,
            ..Settings::default()
        };
        let cloud = Cloud::new(State::new(settings.clone()), Store::default());
        let mock = Mock { advertised: setup.advertise.parse()?, ..Mock::new(cloud, clock::now) };
        let doubling = Doubling::default();
        let provider = Provider::new(
            mock.clone(),
            doubling.clone(),
            record.clone(),
            &setup.advertise,
            setup.reads_labels,
        );
        let beyond = || -> Result<_> {
            let settings = Settings { name: "edge".to_owned(), ..settings };
            let cloud = Cloud::new(State::new(settings), Store::default());
            let keyed = format!("keyed-by-name={}", mock.advertised.keyed_by_name);
            let mock = Mock { advertised: keyed.parse()?, ..Mock::new(cloud, clock::now) };
            let provider = Provider::new(mock.clone(), Doubling::default(), record.clone(), &keyed, false);
            Ok((mock, provider))
        };
        let edge = setup.edge.map(|_| beyond()).transpose()?;
        let world = Self(Rc::new(Inner {
            record,
            server,
            mock,
            kubelets: Arc::new(Mutex::new(Kubelets::new(setup))),
            hosts: RefCell::default(),
            writes: Arc::clone(&writes),
            nodes: Seen::default(),
            services: Seen::default(),
            wrong: RefCell::new(((0, 0), Rc::new([]))),
            provider,
            doubling,
            edge,
            flags: setup.flags.clone(),
            elects: setup.elects,
            started: Cell::new(0),
            is_calm: Cell::new(false),
            away: Cell::new(false),
            spoilt: RefCell::default(),
        }));
        world.neighbours()?;
        world.later(setup.late, |world| world.provider.start());
        world.later(setup.edge.unwrap_or_default(), |world| {
            world.edge.iter().for_each(|(_, provider)| provider.start());
        });
        Ok(world)
    }

    /// Adds another cluster's resources to the same cloud.
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
    pub fn cluster(&self) -> String {
        let namespace = self.objects().get::<Namespace>("", "kube-system");
        namespace.and_then(|namespace| namespace.metadata.uid).unwrap_or_default()
    }

    /// All objects, as users and kubelets see them.
    pub fn objects(&self) -> Objects {
        self.server.world()
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> Rc<[Rc<Node>]> {
        self.nodes.list(&self.objects(), self.writes.load(Ordering::Relaxed))
    }

    /// All Services, by name.
    pub fn services(&self) -> Rc<[Rc<Service>]> {
        self.services.list(&self.objects(), self.writes.load(Ordering::Relaxed))
    }

    /// Whether the provider fails permanently on this node or Service.
    pub fn is_spoilt(&self, name: &str) -> bool {
        self.spoilt.borrow().contains_key(name)
    }

    /// Whether the provider fails permanently on any of them.
    pub fn is_anything_spoilt(&self) -> bool {
        !self.spoilt.borrow().is_empty()
    }

    /// What is not as it must be in calm times.
    pub fn wrong(&self) -> Rc<[String]> {
        let generation = self.generation();
        let mut known = self.wrong.borrow_mut();
        if known.0 != generation {
            *known = (generation, oracle::differences(self).into());
        }
        Rc::clone(&known.1)
    }

    /// Counts all changes of nodes, Services and the cloud.
    pub fn generation(&self) -> (u64, u64) {
        let clouds = self.mocks().map(|mock| mock.cloud.read(clock::now(), State::generation));
        (self.writes.load(Ordering::Relaxed), clouds.sum())
    }

    /// The first cloud, and the second if there is one.
    pub fn mocks(&self) -> impl Iterator<Item = &Mock> {
        std::iter::once(&self.mock).chain(self.edge.as_ref().map(|(mock, _)| mock))
    }

    /// Whether there is a second cloud.
    pub fn has_edge(&self) -> bool {
        self.edge.is_some()
    }

    /// What there is in the clouds, each with whether it is in the second one.
    pub fn all<T>(&self, list: impl Fn(&State) -> Vec<T>) -> Vec<(T, bool)> {
        let of = |(at, mock): (usize, &Mock)| {
            mock.cloud.read(clock::now(), &list).into_iter().map(move |one| (one, at > 0))
        };
        self.mocks().enumerate().flat_map(of).collect()
    }

    /// All machines.
    pub fn machines(&self) -> Vec<Instance> {
        self.all(|state| state.instances().cloned().collect()).into_iter().map(|(one, _)| one).collect()
    }

    /// This cluster's balancers, each with whether it is in the second cloud.
    pub fn balancers(&self) -> Vec<(Balancer, bool)> {
        let cluster = self.cluster();
        self.all(|state| state.balancers().filter(|one| one.cluster_uid == cluster).cloned().collect())
    }

    /// This cluster's routes, each with whether it is in the second cloud.
    pub fn routes(&self) -> Vec<(Route, bool)> {
        let cluster = self.cluster();
        let ours = |route: &Route| route.cluster_uid == cluster;
        self.all(|state| state.routes().map(|listed| listed.route).filter(ours).collect())
    }

    /// Looks at the cloud.
    pub fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.mock.cloud.read(clock::now(), look)
    }

    fn alter<R>(&self, act: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let now = clock::now();
        self.mock.cloud.alter(now, |state| act(state, now))
    }

    /// Alters the cloud of this node.
    fn alter_of<R>(&self, number: u8, act: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let (now, beyond) = (clock::now(), self.edge.as_ref().filter(|_| number >= NODES));
        let mock = beyond.map_or(&self.mock, |(mock, _)| mock);
        mock.cloud.alter(now, |state| act(state, now))
    }

    /// Runs the kubelets for one second.
    pub fn tick(&self) {
        let objects = self.objects().named("kubelet");
        let nodes = self.nodes();
        let machines = self.machines();
        self.kubelets.lock().tick(&objects, &nodes, &machines, clock::now(), !self.away.get());
        self.hosts.borrow_mut().retain(|host| {
            let ended = host.has_ended();
            if ended && !host.is_leaving() {
                // It lost the Lease, so the kubelet restarts it.
                self.later(BACKOFF, Self::host_again);
            }
            !ended
        });
    }

    /// Starts a host.
    ///
    /// # Errors
    /// Its flags are invalid.
    pub fn start_host(&self) -> Result<()> {
        self.started.set(self.started.get() + 1);
        let name = format!("host-{}", self.started.get());
        self.record.note(&name, "starts");
        let settings = host::settings(&self.flags)?;
        let edge = self.edge.as_ref().map(|(_, provider)| provider);
        let host = Host::start(name, settings, &self.server, &self.provider, edge, &self.record);
        self.hosts.borrow_mut().push(host);
        Ok(())
    }

    /// The first of the hosts, which usually leads; all of them, if they do not elect a leader.
    fn leaders(&self, mut act: impl FnMut(&Host)) {
        let mut left = if self.elects { 1 } else { usize::MAX };
        self.active(|host| {
            if left > 0 {
                left -= 1;
                act(host);
            }
        });
    }

    /// The hosts that have not been told to stop.
    fn active(&self, mut act: impl FnMut(&Host)) {
        self.hosts.borrow().iter().filter(|host| !host.is_leaving()).for_each(&mut act);
    }

    /// Whether there is exactly one host, and no other one still stopping.
    pub fn is_one_host_alone(&self) -> bool {
        self.hosts.borrow().len() == 1
    }

    /// The number of objects that hosts have written so far.
    pub fn host_writes(&self) -> u64 {
        (1..=self.started.get())
            .flat_map(|number| self.server.counts(&format!("host-{number}")))
            .filter(|(what, _)| {
                !what.ends_with("events")
                    && !what.ends_with("leases")
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

    /// Ends all faults: whatever is down starts, whatever stalls continues, and exactly one host runs.
    ///
    /// # Errors
    /// No host can be started.
    pub fn calm(&self) -> Result<()> {
        self.is_calm.set(true);
        self.mock.faults.remove(|_id, _kind| true);
        for spec in self.spoilt.borrow().values() {
            self.mock.faults.add(spec.clone());
        }
        self.provider.start();
        if let Some((mock, provider)) = &self.edge {
            mock.faults.remove(|_id, _kind| true);
            provider.start();
        }
        self.doubling.percent(0);
        self.condition(&json!({"cloud_reachable": true, "serving": true, "credentials": "valid"}))?;
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

    fn condition(&self, patch: &Value) -> Result<()> {
        self.alter(|state, _| state.patch_conditions(patch))?;
        Ok(())
    }

    /// Does one step.
    ///
    /// # Errors
    /// A host cannot be started, or the mock does not know a fault.
    pub fn apply(&self, step: &Step) -> Result<()> {
        self.record.note("world", &format!("{step:?}"));
        match step {
            Step::Join(number) => self.join(*number),
            Step::Terminate(numbers) => numbers.iter().for_each(|number| self.terminate(*number)),
            Step::ScaleDown(numbers) => self.scale_down(numbers.clone()),
            Step::Stop(number) => {
                drop(self.alter_of(*number, |state, _now| state.set_running(&node(*number), false)));
            }
            Step::Start(number) => {
                drop(self.alter_of(*number, |state, _now| state.set_running(&node(*number), true)));
            }
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
            Step::Scribble(number) => self.scribble(*number),
            Step::FarFuture(number) => self.kubelets.lock().lose_clock(&node(*number)),
            Step::Create(number) => self.create(*number),
            Step::Flip(number, time) => {
                let number = *number;
                self.edit(&Step::Retype(number, false));
                self.later(*time, move |world| world.edit(&Step::Retype(number, true)));
            }
            Step::Edit(..) | Step::Retype(..) | Step::Delete(_) | Step::Finalizer(..) | Step::Move(..) => {
                self.edit(step);
            }
            Step::Drift(_) | Step::DropBalancer(_) | Step::StrayRoute(_) | Step::DropRoute(_) => {
                self.meddle(step);
            }
            Step::Crash(_) | Step::Restart | Step::Hold(_) | Step::Overlap(_) => self.disturb_host(step)?,
            Step::ProviderCrash(_) | Step::ProviderHold(_) | Step::ProviderCut => self.disturb_provider(step),
            Step::EdgeCrash(time) => {
                self.edge.iter().for_each(|(_, provider)| provider.kill());
                self.later(*time, |world| world.edge.iter().for_each(|(_, provider)| provider.start()));
            }
            Step::Cloud(time, text) => self.fault(&self.mock, *time, text.parse()?),
            Step::EdgeCloud(time, text) => {
                let fault: Fault = text.parse()?;
                self.edge.iter().for_each(|(mock, _)| self.fault(mock, *time, fault.clone()));
            }
            Step::Unreachable(_) | Step::Credentials(_) | Step::NotServing(_) => self.disturb_cloud(step)?,
            Step::Doubled(time, percent) => {
                self.doubling.percent(*percent);
                self.later(*time, |world| world.doubling.percent(0));
            }
            Step::SpoilNode(..) | Step::SpoilService(..) => self.spoil(step)?,
            Step::ApiDown(time, compacted) => self.api_down(*time, *compacted),
            _ => self.disturb_api(step),
        }
        Ok(())
    }
}
