//! The caches of the process; they keep what the controllers read and what the providers want.

use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use kube::Client;
use prometheus_client::registry::Registry;

use crate::manager::{flags::Settings, health::Probe, process::Process};
use ccm_cloud::{Family, Provider, Providers};
use ccm_kube::{
    Cache, CertificateRequest, Keep, KubeMetrics, Node, PersistentVolume, Service, Slim, keep::KeySet,
};

/// The caches, with one watch per kind.
#[derive(Debug)]
pub(super) struct Caches {
    pub(super) nodes: Cache<Node>,
    pub(super) services: Cache<Service>,
    pub(super) certificate_requests: Cache<CertificateRequest>,
    pub(super) volumes: Cache<PersistentVolume>,
    /// Other kinds than Nodes are watched only if an enabled controller needs them.
    with_services: bool,
    with_certificate_requests: bool,
    with_volumes: bool,
    providers: Providers,
}

impl Caches {
    pub(super) fn new(settings: &Settings, providers: &Providers, metrics: &KubeMetrics) -> Self {
        let kept = || settings.enabled.iter().map(|controller| (controller.keep)(&settings.controllers));
        let mut nodes = kept().fold(providers.keep_of_nodes(), |all, kept| all.union(&kept.nodes));
        if settings.shadow.shadow {
            // A label that is not kept is read when the write that would set it conflicts; here nothing is written.
            nodes.labels = KeySet::all();
        }
        let services = kept().filter_map(|kept| kept.services).reduce(|all, one| all.union(&one));
        let with_services = services.is_some();
        let with_certificate_requests = kept().any(|kept| kept.certificate_requests);
        let with_volumes = kept().any(|kept| kept.volumes);
        // A kind that is not watched has no metrics: that its watch is not open is no news.
        let unseen = KubeMetrics::register(&mut Registry::default());
        let of = |is_watched| if is_watched { &metrics.cache } else { &unseen.cache };
        let nodes = Cache::new(nodes, &metrics.cache);
        let services = Cache::new(services.unwrap_or_default(), of(with_services));
        Self {
            certificate_requests: Cache::new(Keep::default(), of(with_certificate_requests)),
            with_certificate_requests,
            volumes: Cache::new(Keep::default(), of(with_volumes)),
            with_volumes,
            providers: providers.clone(),
            nodes,
            services,
            with_services,
        }
    }

    /// Starts the watches; a provider that connects later or changes its wishes widens them. What is returned waits for
    /// the first complete list of each.
    pub(super) fn start(&self, process: &Process, client: &Client) -> impl Future<Output = ()> + use<> {
        self.widen();
        let mut listed = vec![watch("cache-nodes", &self.nodes, process, client)];
        if self.with_services {
            listed.push(watch("cache-services", &self.services, process, client));
        }
        if self.with_certificate_requests {
            listed.push(watch("cache-certificate-requests", &self.certificate_requests, process, client));
        }
        if self.with_volumes {
            listed.push(watch("cache-persistent-volumes", &self.volumes, process, client));
        }
        let Self { providers, nodes, services, .. } = self;
        let (providers, nodes, services) = (providers.clone(), nodes.clone(), services.clone());
        process.spawn_support("wanted-fields", |stop| async move {
            let widen = || providers.hand_on(&nodes, &services);
            let followed = providers.all().iter().map(|provider| follow(provider.as_ref(), &widen));
            stop.run_until_cancelled(join_all(followed)).await;
            stop.cancelled().await;
            Ok(())
        });
        join_all(listed).map(drop)
    }

    /// Also keeps what the providers known so far want.
    pub(super) fn widen(&self) {
        self.providers.hand_on(&self.nodes, &self.services);
    }
}

/// Keeps a cache up to date, and says in `/readyz` whether it is. What is returned waits for its first complete list.
fn watch<T: Slim>(
    name: &'static str,
    cache: &Cache<T>,
    process: &Process,
    client: &Client,
) -> BoxFuture<'static, ()> {
    let (running, ready, listed, client) = (cache.clone(), cache.clone(), cache.clone(), client.clone());
    process.checks.add(Probe::Ready, name, move || ready.health());
    process.spawn_support(name, |stop| async move {
        running.run(client, stop).await;
        Ok(())
    });
    async move { listed.synced().await }.boxed()
}

/// Widens the caches after each handshake, which may bring new wishes.
async fn follow(provider: &dyn Provider, widen: &impl Fn()) {
    let mut status = provider.status(Family::Instances);
    loop {
        widen();
        if status.changed().await.is_err() {
            return;
        }
    }
}
