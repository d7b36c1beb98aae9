//! What a controller is tested on: an in-memory apiserver, fake providers, and a record of its Events and metrics.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_debug_implementations,
    reason = "only tests run it"
)]

use std::{sync::Arc, time::Duration};

use clap::Parser as _;
use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{Parts, Registration, Settings, node_server::NodeServer, report_counts};
use ccm_cloud::{CloudMetrics, Provider, Providers, fake::FakeProvider};
use ccm_kube::{
    Cache, KubeMetrics, Slim,
    events::EventType,
    fixtures::{Recorded, events},
    patch::Writer,
};

/// A controller and its surroundings.
pub struct Stage {
    pub server: NodeServer,
    /// The first provider.
    pub fake: Arc<FakeProvider>,
    pub events: Recorded,
    pub registry: Registry,
    pub parts: Parts,
    pub cancel: CancellationToken,
    controller: &'static Registration,
    running: Mutex<Option<JoinHandle<()>>>,
}

/// The settings of a command line without flags.
pub fn settings() -> Settings {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }
    Line::parse_from(["ccm-host"]).settings
}

/// What these controllers work with; the caches are empty.
pub fn parts(
    controllers: &[&Registration],
    writer: Writer,
    providers: Vec<Arc<dyn Provider>>,
    settings: Settings,
    registry: &mut Registry,
) -> (Parts, Recorded) {
    let metrics = KubeMetrics::default();
    let (events, recorded) = events();
    let kept = || controllers.iter().map(|controller| (controller.keep)(&settings));
    let nodes = kept().map(|kept| kept.nodes).reduce(|all, one| all.union(&one));
    let services = kept().filter_map(|kept| kept.services).reduce(|all, one| all.union(&one));
    let parts = Parts {
        nodes: Cache::new(nodes.unwrap_or_default(), &metrics.cache),
        services: Cache::new(services.unwrap_or_default(), &metrics.cache),
        certificate_requests: Cache::new(ccm_kube::Keep::default(), &metrics.cache),
        volumes: Cache::new(ccm_kube::Keep::default(), &metrics.cache),
        settings: Arc::new(settings),
        writer,
        providers: Providers::new(providers),
        events,
        metrics,
        cloud_metrics: CloudMetrics::register(registry),
        reports: report_counts(registry),
        views: Arc::default(),
    };
    (parts, recorded)
}

impl Stage {
    /// Nothing runs yet, and the caches are empty.
    pub fn empty(
        controller: &'static Registration,
        server: NodeServer,
        fakes: &[Arc<FakeProvider>],
        settings: Settings,
    ) -> Self {
        let mut registry = Registry::default();
        let providers = fakes.iter().map(|fake| Arc::clone(fake) as Arc<dyn Provider>).collect();
        let (parts, events) = parts(&[controller], server.writer(), providers, settings, &mut registry);
        let (fake, cancel) = (Arc::clone(&fakes[0]), CancellationToken::new());
        Self { server, fake, events, registry, parts, cancel, controller, running: Mutex::default() }
    }

    /// Nothing runs yet; the caches hold what the controller reads.
    pub async fn set(
        controller: &'static Registration,
        server: NodeServer,
        fakes: &[Arc<FakeProvider>],
        settings: Settings,
    ) -> Self {
        let stage = Self::empty(controller, server, fakes, settings);
        stage.fill().await;
        stage.server.take_calls();
        stage
    }

    /// Syncs the caches, and lets them follow until the end.
    pub async fn fill(&self) {
        let kept = (self.controller.keep)(&self.parts.settings);
        self.watch(&self.parts.nodes).await;
        if kept.certificate_requests {
            self.watch(&self.parts.certificate_requests).await;
        }
        if kept.volumes {
            self.watch(&self.parts.volumes).await;
        }
    }

    async fn watch<T: Slim>(&self, cache: &Cache<T>) {
        let (running, client, cancel) = (cache.clone(), self.server.client(), self.cancel.clone());
        tokio::spawn(async move { running.run(client, cancel).await });
        cache.synced().await;
    }

    /// Starts the controller.
    pub fn run(mut self) -> Self {
        let run = (self.controller.start)(self.parts.clone(), &mut self.registry);
        *self.running.get_mut() = run.map(|run| tokio::spawn(run(self.cancel.clone())));
        self
    }

    /// The Events since the last call.
    pub fn events(&self) -> Vec<(EventType, &'static str, String)> {
        self.events.take()
    }

    /// Their reasons.
    pub fn reasons(&self) -> Vec<&'static str> {
        self.events().into_iter().map(|(_, reason, _)| reason).collect()
    }

    /// Whether the metrics have this line.
    pub fn has_metric(&self, line: &str) -> bool {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines().any(|other| other == line)
    }

    /// Stops the controller, and waits for its end.
    pub async fn stop(&self) {
        self.cancel.cancel();
        let running = self.running.lock().take();
        running.expect("the controller runs").await.unwrap();
    }

    /// Lets everything settle that needs no more than a moment.
    pub async fn rest(&self) {
        sleep(Duration::from_millis(100)).await;
    }

    /// Waits until the condition holds.
    pub async fn until(&self, what: impl Fn(&Self) -> bool) {
        timeout(Duration::from_secs(300), async {
            while !what(self) {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("the condition was not reached in time");
    }
}
