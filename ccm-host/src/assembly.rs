//! Assembles the parts in the order of their dependencies.
//!
//! In: the process with its settings. Out: running controllers. A step that waits reports what it waits for in
//! `/readyz` and in the log.
//!
//! 1. the client, and the identity of the cluster;
//! 2. the providers, which connect by themselves;
//! 3. the caches, which keep what controllers and providers want;
//! 4. with leader election, a standby waits here, with warm caches and connections, until it leads; it serves webhooks;
//! 5. the controllers that call no provider: they wait for the providers no longer than a moment;
//! 6. the other controllers: they start once every provider has completed its handshake, or patience is over.

mod access;
mod caches;
mod controllers;
mod providers;
mod state;
#[cfg(feature = "testing")]
pub mod testing;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::FutureExt as _;
use kube::Client;
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::manager::{
    health::Probe,
    process::Process,
    webhooks::{self, Server},
};
use caches::Caches;
use ccm_cloud::{CloudMetrics, Dialer, Family, Providers};
use ccm_kube::{
    ClientOptions, Events, KubeMetrics, WritePressure, Writer,
    client::{self, Recognition},
    election::{self, Leadership, Leading, Lock},
    events::{EventType, Regarding},
    shadow::{self, Shadow},
};
use ccm_reconcile::{Parts, report_counts};
use controllers::Accounts;

/// Everything waits this long for the providers, so that the first list already keeps what they want.
const MOMENT: Duration = Duration::from_secs(1);

/// How long the start waits for further providers after the first: a missing one must not hold up the others.
const PATIENCE: Duration = Duration::from_secs(30);

/// The environment variable with the name of the pod, which the chart sets.
const POD_NAME: &str = "POD_NAME";

/// Time to write pending Events at shutdown.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// Starts everything; returns once it runs.
///
/// # Errors
/// The apiserver cannot be used at all: no credentials, no permissions.
pub async fn start(process: &Process) -> Result<()> {
    let metrics = process.metrics.register(KubeMetrics::register);
    let options = client_options(process);
    let client = client::build(&options, &metrics.client).await.context("no client for the apiserver")?;
    watch_recognition(process, options.recognition.clone());
    access::start(process, &client, &options, &metrics.client).await?;
    let electing = match is_electing(process) {
        true => client::build(&lease_options(process, &options), &metrics.client).await,
        false => Ok(client.clone()),
    };
    let electing = electing.context("no client for the Lease")?;
    let accounts = Accounts::new(process, &options, &metrics.client).await?;
    start_with(process, metrics, client, &electing, accounts, None).await
}

async fn start_with(
    process: &Process,
    metrics: KubeMetrics,
    client: Client,
    electing: &Client,
    accounts: Accounts,
    dialer: Option<Dialer>,
) -> Result<()> {
    let cloud_metrics = process.metrics.register(CloudMetrics::register);
    let pressure = WritePressure::default();
    let events = start_events(process, &client, &pressure, &metrics);

    let shadow = start_shadow(process);
    process.waiting_for("the apiserver, for the uid of the namespace kube-system");
    let cluster = providers::identify(&client, &process.settings.kube.cluster_name).await?;
    accounts.start(process, &client);
    let (leading, leadership) = leadership(process);
    let (providers, remotes) = {
        let gates = (&leadership, shadow.as_ref());
        providers::start(process, cluster, gates, &cloud_metrics, dialer)
    };
    if let Some(leading) = leading {
        start_election(process, electing, (leading, leadership.clone()), providers.clone(), &events);
    }
    let caches = Caches::new(&process.settings, &providers, &metrics);
    let writer = Writer::new(client.clone(), pressure.clone());
    let parts = Parts {
        settings: Arc::new(process.settings.controllers.clone()),
        nodes: caches.nodes.clone(),
        services: caches.services.clone(),
        writer: writer.while_leading(leadership.clone()).in_shadow(shadow.clone()),
        certificate_requests: caches.certificate_requests.clone(),
        volumes: caches.volumes.clone(),
        providers,
        events,
        metrics,
        cloud_metrics,
        reports: process.metrics.register(report_counts),
        views: Arc::default(),
    };
    match &shadow {
        Some(shadow) => {
            tracing::info!("shadow mode: no webhook is served");
            state::compare(process, shadow.clone(), parts.clone());
        }
        None => start_webhooks(process, &parts, leadership.clone())?,
    }
    state::open(process, parts.clone(), leadership.clone(), remotes, shadow);
    process.waiting_for("a provider");
    // By itself: patience may be over long before this process leads.
    let introduced = providers::introduced(parts.providers.clone(), PATIENCE);
    let mut introduced = AbortOnDropHandle::new(tokio::spawn(introduced));
    let is_late = timeout(MOMENT, &mut introduced).await.is_err();
    let listed = caches.start(process, &client);
    if leadership.stands_by() {
        process.standing_by();
        leadership.elected().await;
        process.waiting_for("a provider");
    }
    let enabled = process.settings.enabled.iter().copied();
    let (asking, alone): (Vec<_>, Vec<_>) =
        enabled.partition(|controller| (controller.served_by)(&parts.settings).is_some());
    controllers::start(&alone, process, &parts, &accounts);
    if is_late {
        introduced.await.context("the wait for the providers panicked")?;
        caches.widen();
    }
    controllers::start(&asking, process, &parts, &accounts);
    process.waiting_for("the caches");
    listed.await;
    Ok(())
}

fn client_options(process: &Process) -> ClientOptions {
    let settings = &process.settings.kube;
    ClientOptions {
        kubeconfig: settings.kubeconfig.clone(),
        master: settings.master.clone(),
        qps: settings.kube_api_qps,
        burst: settings.kube_api_burst,
        read_only: process.settings.shadow.shadow,
        ..ClientOptions::default()
    }
}

fn start_events(
    process: &Process,
    client: &Client,
    pressure: &WritePressure,
    metrics: &KubeMetrics,
) -> Arc<Events> {
    let (events, writer) = Events::new(client.clone(), pressure.clone(), metrics.events.clone());
    let (last, shadow) = (events.clone(), process.settings.shadow.shadow);
    process.spawn_support("events", |stop| async move {
        let writing = CancellationToken::new();
        let writes = async {
            match shadow {
                true => writer.write_none(writing.clone()).await,
                false => writer.run(writing.clone()).await,
            }
        };
        let ends = async {
            stop.cancelled().await;
            last.flush(LAST_EVENTS).await;
            writing.cancel();
        };
        tokio::join!(writes, ends);
        Ok(())
    });
    events
}

/// `None` unless this process runs in shadow mode, which `/readyz` then names.
fn start_shadow(process: &Process) -> Option<Shadow> {
    let metrics = process.metrics.register(shadow::ShadowMetrics::register);
    let settings = &process.settings;
    settings.shadow.shadow.then(|| {
        tracing::info!("shadow mode: everything is decided, nothing is written or changed");
        process.checks.add(Probe::Ready, "shadow", || Ok(()));
        settings.enabled.iter().for_each(|controller| metrics.starts(controller.name));
        Shadow::new(&settings.shadow, metrics)
    })
}

/// Whether this process competes for the Lease: never in shadow mode.
fn is_electing(process: &Process) -> bool {
    let settings = &process.settings;
    settings.election.leader_elect && !settings.shadow.shadow
}

/// Options for a client that renews the Lease even when the host is busy: its own connection, no limiter, no retries
/// that would hide how long a renewal took and, as upstream, time for a second attempt: over another connection, if the
/// first is dead.
fn lease_options(process: &Process, options: &ClientOptions) -> ClientOptions {
    let request_timeout = process.settings.election.leader_elect_renew_deadline / 2;
    let silence = request_timeout.mul_f64(0.8);
    ClientOptions { qps: 0.0, retries: 0, request_timeout, silence, ..options.clone() }
}

/// Ends a process that the apiserver no longer knows, whether it leads, stands by or is alone.
fn watch_recognition(process: &Process, recognition: Recognition) {
    process.spawn_support("recognition", |stop| async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            () = recognition.lost() => bail!(
                "the apiserver does not know who this process is, or has another certificate: a restart reads the kubeconfig's files anew"
            ),
        }
    });
}

/// What the parts of the process follow, and the end that announces changes, if it competes for the Lease.
fn leadership(process: &Process) -> (Option<watch::Sender<Leading>>, Leadership) {
    if process.settings.shadow.shadow {
        return (None, Leadership::shadow());
    }
    if !is_electing(process) {
        return (None, Leadership::always());
    }
    let (leading, leadership) = Leadership::standby();
    (Some(leading), leadership)
}

/// Starts competing for the Lease. Losing it ends the process.
fn start_election(
    process: &Process,
    client: &Client,
    ends: (watch::Sender<Leading>, Leadership),
    providers: Providers,
    events: &Arc<Events>,
) {
    let settings = process.settings.election.clone();
    let is_fit = move || providers.all().iter().any(|one| !one.status(Family::Instances).borrow().is_away());
    let recorder = events.recorder("cloud-controller-manager");
    let (namespace, name) =
        (settings.leader_elect_resource_namespace.clone(), settings.leader_elect_resource_name.clone());
    let tell = move |uid: &str, message| {
        let lease = Regarding {
            api_version: "coordination.k8s.io/v1",
            ..Regarding::core("Lease", Some(&namespace), &name, uid)
        };
        recorder.record(lease, EventType::Normal, "LeaderElection", message);
    };
    let lock = Lock::new(client.clone(), settings.clone(), identity(), Box::new(is_fit), Box::new(tell));
    let health = lock.health();
    process.checks.add(Probe::Ready, "lease", move || health.check());
    let metrics = process.metrics.register(election::ElectionMetrics::register);
    process.spawn_support("leader-election", |stop| election::run(lock, settings, metrics, ends, stop));
}

/// For people, the pod's name if the manifest passes it on, else the host name like upstream's; and a unique part.
/// With the node's network the host name is the machine's, which need not be the name of the Node.
fn identity() -> String {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = std::env::var(POD_NAME).ok().filter(|name| !name.is_empty()).unwrap_or_else(host);
    format!("{name}_{}", uuid::Uuid::new_v4())
}

/// Binds the port for the webhooks of controllers, if there is anything to serve: on every replica, also on one that
/// stands by.
fn start_webhooks(process: &Process, parts: &Parts, leadership: Leadership) -> Result<()> {
    let settings = &process.settings;
    let routes = process.metrics.register(|registry| {
        let admitting = settings.admitting.iter().filter_map(|controller| controller.admit);
        admitting.map(|admit| admit(parts, registry)).reduce(axum::Router::merge)
    });
    let Some(routes) = routes else { return Ok(()) };
    let bind = |registry: &mut _| Server::bind(settings.webhooks.clone(), parts.writer.clone(), registry);
    let server = process.metrics.register(bind)?;
    process.spawn_support("webhooks", |stop| server.serve(routes, stop));
    let (settings, writer) = (settings.webhooks.clone(), parts.writer.clone());
    process.spawn_support("webhook-certificate", |stop| {
        webhooks::keep_up(settings, writer, leadership, stop).map(Ok)
    });
    Ok(())
}
