//! Starts the controllers that the flags enable, each once a provider serves it, under its own ServiceAccount if the
//! flags say so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, future::select_all};
use kube::Client;

use crate::manager::{health::Probe, process::Process};
use ccm_cloud::{Family, Providers};
use ccm_kube::{ClientOptions, Writer, account::Account, client, metrics::ClientMetrics};
use ccm_reconcile::{Parts, Registration, Serves};

/// Starts these controllers; each waits for its own caches.
pub(super) fn start(
    controllers: &[&'static Registration],
    process: &Process,
    parts: &Parts,
    accounts: &Accounts,
) {
    for controller in controllers {
        let parts = Parts { writer: accounts.writer(controller, &parts.writer), ..parts.clone() };
        let due = due(controller, process, &parts, accounts);
        if let Some(run) = process.metrics.register(|registry| (controller.start)(parts, registry)) {
            process.spawn_controller(controller, due, |stop| run(stop).map(Ok));
        }
    }
}

/// Returns once the controller can write under its own identity and some provider serves it. Without a provider it is
/// skipped, which the log and a metric report: a provider may be upgraded while the host runs.
fn due(
    controller: &'static Registration,
    process: &Process,
    parts: &Parts,
    accounts: &Accounts,
) -> impl Future<Output = ()> + Send + 'static {
    let (providers, metrics) = (parts.providers.clone(), process.metrics.clone());
    let served_by = (controller.served_by)(&parts.settings);
    let accounts = accounts.clone();
    async move {
        accounts.ready(controller).await;
        let Some(served_by) = served_by else { return };
        if is_served(served_by, &providers) {
            return;
        }
        let _skipped = metrics.skipped(controller);
        tracing::warn!(
            controller = controller.name,
            "skipped: no connected provider serves this controller; it starts when one does"
        );
        let mut statuses: Vec<_> =
            providers.all().iter().map(|provider| provider.status(Family::Instances)).collect();
        while !is_served(served_by, &providers) {
            let changes = statuses.iter_mut().map(|status| Box::pin(status.changed()));
            if select_all(changes).await.0.is_err() {
                // The providers' connections ended with the process.
                std::future::pending::<()>().await;
            }
        }
        tracing::info!(controller = controller.name, "starts: a provider serves this controller now");
    }
}

fn is_served(served_by: Serves, providers: &Providers) -> bool {
    providers.all().iter().filter_map(|provider| provider.info()).any(|info| served_by(&info))
}

/// The ServiceAccounts of the enabled controllers, by name, with a client for each; none without
/// `--use-service-account-credentials`.
#[derive(Clone, Default)]
pub(super) struct Accounts(BTreeMap<&'static str, (Arc<Account>, Client)>);

impl Accounts {
    /// The clients, which have no token yet.
    pub(super) async fn new(
        process: &Process,
        options: &ClientOptions,
        metrics: &ClientMetrics,
    ) -> Result<Self> {
        let mut accounts = BTreeMap::new();
        if process.settings.kube.use_service_account_credentials {
            let names = process.settings.enabled.iter().filter_map(|controller| controller.account);
            // Several controllers share one.
            for name in names.collect::<BTreeSet<_>>() {
                let account = Account::new(name);
                let client = client::build_as(account.clone(), options, metrics);
                let client =
                    client.await.with_context(|| format!("no client for the ServiceAccount {name}"))?;
                accounts.insert(name, (account, client));
            }
        }
        Ok(Self(accounts))
    }

    /// Requests their tokens from now on.
    pub(super) fn start(&self, process: &Process, root: &Client) {
        for (name, (account, _)) in &self.0 {
            let (health, running, root) = (account.clone(), account.clone(), root.clone());
            process.checks.add(Probe::Ready, format!("service-account-{name}"), move || health.health());
            process.spawn_support(name, |stop| running.run(root, stop).map(Ok));
        }
    }

    /// The writer of this controller: under its own identity, if it has one.
    fn writer(&self, controller: &Registration, shared: &Writer) -> Writer {
        let own = controller.account.and_then(|account| self.0.get(account));
        let writer = own.map_or_else(|| shared.clone(), |(_, client)| shared.clone().through(client.clone()));
        writer.of(controller.name)
    }

    /// Returns once this controller may write under its own identity.
    async fn ready(&self, controller: &Registration) {
        if let Some((account, _)) = controller.account.and_then(|account| self.0.get(account)) {
            account.ready().await;
        }
    }
}
