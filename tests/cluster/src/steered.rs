//! A cloud as a test history uses it, whichever provider is in front of it.

use std::{collections::BTreeMap, future::Future};

use anyhow::Result;
use provider_mock::cloud::Balancer;

use crate::{Cloud, cloud::backend_names};

/// What a history changes and reads in a cloud.
pub trait Steered {
    /// Creates a running machine for the node with this name, with this internal address.
    fn create_machine(&self, name: &str, zone: &str, address: &str) -> impl Future<Output = Result<()>>;
    /// Stops a machine; it can be started again.
    fn stop_machine(&self, name: &str) -> impl Future<Output = Result<()>>;
    /// Starts a stopped machine.
    fn start_machine(&self, name: &str) -> impl Future<Output = Result<()>>;
    /// Terminates a machine for good.
    fn terminate_machine(&self, name: &str) -> impl Future<Output = Result<()>>;
    /// The nodes behind each balancer, sorted, by "NAMESPACE/SERVICE".
    fn backends(&self) -> impl Future<Output = Result<BTreeMap<String, Vec<String>>>>;
}

impl Steered for Cloud {
    async fn create_machine(&self, name: &str, zone: &str, address: &str) -> Result<()> {
        self.create_instance(name, zone).await?;
        self.set_internal_ip(name, address).await
    }

    async fn stop_machine(&self, name: &str) -> Result<()> {
        self.stop_instance(name).await
    }

    async fn start_machine(&self, name: &str) -> Result<()> {
        self.start_instance(name).await
    }

    async fn terminate_machine(&self, name: &str) -> Result<()> {
        self.terminate_instance(name).await
    }

    async fn backends(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let balancers = self.balancers().await?;
        let service = |balancer: &Balancer| format!("{}/{}", balancer.namespace, balancer.service_name);
        Ok(balancers.iter().map(|balancer| (service(balancer), backend_names(balancer))).collect())
    }
}
