//! The ServiceAccounts of `--use-service-account-credentials`, with a client for each.

use std::collections::{BTreeMap, BTreeSet};

use ::kube::Client;
use anyhow::{Context as _, Result};

use crate::{
    controllers::Registration,
    kube::{ClientOptions, Writer, account::Account, client, metrics::ClientMetrics},
    manager::{health::Probe, process::Process},
};

/// Those of the enabled controllers, by name; none without the flag.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts(BTreeMap<&'static str, Own>);

#[derive(Clone)]
struct Own {
    account: Account,
    client: Client,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Own").field(&self.account).finish()
    }
}

impl Accounts {
    /// The clients, which have no token yet.
    pub(super) async fn new(
        process: &Process,
        options: &ClientOptions,
        metrics: &ClientMetrics,
    ) -> Result<Self> {
        let mut accounts = BTreeMap::new();
        if process.settings().kube.use_service_account_credentials {
            let names = process.settings().enabled.iter().filter_map(|controller| controller.account);
            // Several controllers share one.
            for name in names.collect::<BTreeSet<_>>() {
                let account = Account::new(name);
                let client = client::build_as(account.clone(), options, metrics);
                let client =
                    client.await.with_context(|| format!("no client for the ServiceAccount {name}"))?;
                accounts.insert(name, Own { account, client });
            }
        }
        Ok(Self(accounts))
    }

    /// Requests their tokens from now on.
    pub(super) fn start(&self, process: &Process, root: &Client) {
        for (name, Own { account, .. }) in &self.0 {
            let (health, running, root) = (account.clone(), account.clone(), root.clone());
            process.checks().add(Probe::Ready, format!("service-account-{name}"), move || health.health());
            process.spawn_support(name, |stop| async move {
                running.run(root, stop).await;
                Ok(())
            });
        }
    }

    /// The writer of this controller: under its own identity, if it has one.
    pub(super) fn writer(&self, controller: &Registration, shared: &Writer) -> Writer {
        let own = controller.account.and_then(|account| self.0.get(account));
        let writer = own.map_or_else(|| shared.clone(), |own| shared.clone().through(own.client.clone()));
        writer.of(controller.name)
    }

    /// Returns once this controller may write under its own identity.
    pub(super) async fn ready(&self, controller: &Registration) {
        if let Some(own) = controller.account.and_then(|account| self.0.get(account)) {
            own.account.ready().await;
        }
    }
}
