//! Keeps the certificate good and the apiserver informed; only the leader does.
//!
//! In: the Secret and the MutatingWebhookConfiguration, read again and again: the right to get one object by its name is
//! less than that to watch all. Out: at most one write each time, and warnings, once.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Settings,
    certificate::{self, SecretStep},
};
use ccm_base::clock;
use ccm_kube::{election::Leadership, patch::Writer};

/// Between two looks when everything is as it should be.
const PERIOD: Duration = Duration::from_secs(30);

/// After a step, and after a failure.
const SOON: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Upkeep {
    pub settings: Settings,
    /// Writes only while this process leads.
    pub writer: Writer,
}

impl Upkeep {
    /// Runs until cancelled.
    pub async fn run(self, leadership: Leadership, cancel: CancellationToken) {
        let kept_up = async {
            leadership.elected().await;
            let mut told = String::new();
            loop {
                let (pause, problem) = match self.once(clock::now()).await {
                    Ok(SecretStep::Keep) => (PERIOD, String::new()),
                    Ok(_) => (SOON, String::new()),
                    Err(error) => (RETRY, format!("{error:#}")),
                };
                if problem != told && !problem.is_empty() {
                    tracing::warn!(
                        problem,
                        "webhooks have no valid certificate: the apiserver continues without them"
                    );
                }
                told = problem;
                sleep(pause).await;
            }
        };
        cancel.run_until_cancelled(kept_up).await;
    }

    /// Looks once, and carries out what is due.
    pub(super) async fn once(&self, now: Timestamp) -> Result<SecretStep> {
        let (name, key) = (&self.settings.webhook_configuration, &self.settings.webhook_certificate_secret);
        let configuration = self.writer.get_webhook_configuration(name).await;
        let configuration = configuration
            .with_context(|| format!("MutatingWebhookConfiguration {name} cannot be read"))?
            .with_context(|| {
                format!("MutatingWebhookConfiguration {name} does not exist: create it, or omit --webhooks")
            })?;
        let secret = self.writer.get_secret(key).await;
        let secret = secret
            .with_context(|| format!("Secret {key} cannot be read"))?
            .with_context(|| format!("Secret {key} does not exist: create it empty, or omit --webhooks"))?;
        let hosts: Vec<_> = configuration.webhooks.iter().map(|one| one.host.clone()).collect();
        ensure!(
            !hosts.is_empty() && hosts.iter().all(|host| !host.is_empty()),
            "MutatingWebhookConfiguration {name} names no host: give each of its webhooks a service or a url"
        );
        let authorities = certificate::authorities(&secret.data);
        let is_announced = configuration.webhooks.iter().all(|one| one.authorities == authorities);
        let step = certificate::step(&secret.data, &hosts, is_announced, now);
        match step {
            SecretStep::Keep => {}
            SecretStep::Announce => {
                self.writer
                    .announce_webhooks(name, &configuration, authorities)
                    .await
                    .with_context(|| format!("MutatingWebhookConfiguration {name} cannot be written"))?;
            }
            SecretStep::Prepare | SecretStep::Promote | SecretStep::Replace => {
                let data = certificate::after(step, &secret.data, &hosts, now)?;
                self.writer
                    .replace_secret(key, &secret, &data)
                    .await
                    .with_context(|| format!("Secret {key} cannot be written"))?;
            }
        }
        if step != SecretStep::Keep {
            tracing::info!(?step, hosts = hosts.join(","), "certificate of the webhooks");
        }
        Ok(step)
    }
}
