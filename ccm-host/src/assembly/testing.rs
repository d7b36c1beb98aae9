//! Starts the host within another process, which stands for the network.

use anyhow::{Context as _, Result};

use super::{Accounts, client_options, start_with};
use crate::manager::process::Process;
use ccm_cloud::Dialer;
use ccm_kube::{KubeMetrics, client};

/// What is there instead of a network.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Serves requests to the apiserver.
    pub apiserver: client::Apiserver,
    /// Connects to the providers.
    pub dialer: Dialer,
}

/// Like [`super::start`], with an apiserver and providers in this process.
///
/// # Errors
/// As [`super::start`].
pub async fn start_within(process: &Process, surroundings: Surroundings) -> Result<()> {
    let metrics = process.metrics.register(KubeMetrics::register);
    let client = client::over(surroundings.apiserver, &client_options(process), &metrics.client)
        .context("no client for the apiserver")?;
    start_with(process, metrics, client.clone(), &client, Accounts::default(), Some(surroundings.dialer))
        .await
}
