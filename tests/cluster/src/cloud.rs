//! The cloud behind the provider, in the words of a test: machines by their node's name, balancers by Service.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

use anyhow::{Context as _, Result};
use provider_mock::{
    admin::{Client, Termination},
    calls::Call,
    cloud::{Address, AddressKind, Balancer, NewInstances},
    fault::Fault,
};
use serde_json::json;

/// The admin door of the mock.
#[derive(Debug, Clone)]
pub struct Cloud(Client);

impl Cloud {
    /// The door whose address the mock wrote to this file.
    pub fn behind(file: &Path) -> Result<Self> {
        let address = fs::read_to_string(file).context("no admin door yet")?;
        let address: SocketAddr =
            address.trim().parse().with_context(|| format!("{address:?} is no address"))?;
        Ok(Self(Client::new(address)))
    }

    /// The whole API of the door.
    pub fn door(&self) -> &Client {
        &self.0
    }

    /// Creates a running machine for the node with this name.
    pub async fn create_instance(&self, name: &str, zone: &str) -> Result<()> {
        let wish = NewInstances {
            name: Some(name.to_owned()),
            zones: vec![zone.to_owned()],
            ..NewInstances::default()
        };
        self.0.create_instances(&wish).await.with_context(|| format!("cannot create the machine {name}"))?;
        Ok(())
    }

    /// Terminates the machine at once.
    pub async fn terminate_instance(&self, name: &str) -> Result<()> {
        self.0.terminate_instance(name, &Termination { linger_ms: Some(0) }).await?;
        Ok(())
    }

    /// Stops the machine; it can be started again.
    pub async fn stop_instance(&self, name: &str) -> Result<()> {
        self.0.stop_instance(name).await?;
        Ok(())
    }

    /// Starts the machine again.
    pub async fn start_instance(&self, name: &str) -> Result<()> {
        self.0.start_instance(name).await?;
        Ok(())
    }

    /// Gives the machine this internal address only.
    pub async fn set_internal_ip(&self, name: &str, address: &str) -> Result<()> {
        let address = Address::new(AddressKind::InternalIp, address);
        self.0.patch_instance(name, &json!({"addresses": [address]})).await?;
        Ok(())
    }

    /// Moves the machine to another zone and type.
    pub async fn move_instance(&self, name: &str, zone: &str, instance_type: &str) -> Result<()> {
        self.0.patch_instance(name, &json!({"zone": zone, "instance_type": instance_type})).await?;
        Ok(())
    }

    /// Adds labels that the provider wants on the machine's node.
    pub async fn set_labels(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        self.0.patch_instance(name, &json!({"labels": labels})).await?;
        Ok(())
    }

    /// Removes labels that the provider wants.
    pub async fn remove_labels(&self, name: &str, keys: &[&str]) -> Result<()> {
        let labels: BTreeMap<_, ()> = keys.iter().map(|key| (*key, ())).collect();
        self.0.patch_instance(name, &json!({"labels": labels})).await?;
        Ok(())
    }

    /// Sets whether the provider's health is SERVING.
    pub async fn set_serving(&self, serving: bool) -> Result<()> {
        self.0.patch_conditions(&json!({"serving": serving})).await?;
        Ok(())
    }

    /// Sets whether the cloud's own API answers the provider.
    pub async fn set_reachable(&self, reachable: bool) -> Result<()> {
        self.0.patch_conditions(&json!({"cloud_reachable": reachable})).await?;
        Ok(())
    }

    /// All balancers.
    pub async fn balancers(&self) -> Result<Vec<Balancer>> {
        self.0.balancers().await
    }

    /// The ids of the balancers that have this node behind them.
    pub async fn balancers_with(&self, node: &str) -> Result<Vec<String>> {
        self.0.balancers_with(node).await
    }

    /// The nodes behind the balancer of the Service with this name, sorted.
    pub async fn backends_of(&self, service: &str) -> Result<Vec<String>> {
        let balancers = self.0.balancers().await?;
        let balancer = balancers.iter().find(|balancer| balancer.service_name == service);
        Ok(balancer.map(backend_names).unwrap_or_default())
    }

    /// Makes calls fail on purpose, for example `lost-answer,method=EnsureLoadBalancer,times=1`.
    pub async fn fault(&self, fault: &str) -> Result<()> {
        let fault: Fault = fault.parse().with_context(|| format!("{fault:?} is no fault"))?;
        self.0.add_fault(&fault).await?;
        Ok(())
    }

    /// Ends all such faults.
    pub async fn clear_faults(&self) -> Result<()> {
        self.0.clear_faults().await?;
        Ok(())
    }

    /// Forgets the calls so far.
    pub async fn reset_calls(&self) -> Result<()> {
        self.0.reset_calls().await
    }

    /// Every call since the reset, for the message of a failed test.
    pub async fn all_calls(&self) -> Result<Vec<Call>> {
        self.0.calls().await
    }

    /// How often this RPC was called since the reset, and with how many items in total.
    pub async fn calls_and_items(&self, method: &str) -> Result<(u64, u64)> {
        let summary = self.0.call_summary().await?;
        Ok(summary.methods.get(method).map_or((0, 0), |seen| (seen.calls, seen.items)))
    }

    /// How often each RPC was called since the reset.
    pub async fn call_counts(&self) -> Result<Vec<(String, u64)>> {
        let summary = self.0.call_summary().await?;
        // Of a call that began before the reset, only the end is counted.
        let began = summary.methods.into_iter().filter(|(_, seen)| seen.calls > 0);
        Ok(began.map(|(method, seen)| (method, seen.calls)).collect())
    }
}

/// The nodes behind a balancer, sorted.
pub fn backend_names(balancer: &Balancer) -> Vec<String> {
    let mut names: Vec<String> = balancer.backends.iter().map(|backend| backend.node.clone()).collect();
    names.sort();
    names
}
