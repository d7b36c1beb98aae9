//! Serves AWS to `ccm-host`.

mod api;
mod cloud;
mod config;
mod instances;
mod status;
mod zones;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use cloudprovider_sdk::proto::{Capability, GetCapabilitiesResponse, NodeFields, Wants};
use cloudprovider_sdk::{Provider, ServeOptions, telemetry};

use crate::cloud::Cloud;
use crate::config::Config;
use crate::instances::Machines;
use crate::status::Status;
use crate::zones::Zones;

/// A cloud provider for AWS.
#[derive(Debug, clap::Parser)]
#[command(version)]
struct Flags {
    /// The cloud config, as the published provider reads it. What it leaves out is asked of the instance metadata service.
    #[arg(long, value_name = "FILE")]
    cloud_config: Option<PathBuf>,
    /// The cluster has nodes in accounts that these credentials do not see: no instance that is not found counts as gone.
    #[arg(long)]
    nodes_of_other_accounts: bool,
    /// Find a node whose name EC2 does not have by the kubelet's --node-ip, too. A kubelet can claim another machine's address
    /// so, and the host's kubelet-serving-csr trusts this provider no more.
    #[arg(long)]
    nodes_by_address: bool,
    /// Look for changed instances this often, so that the host hears of them before its next sweep. Costs a call for every
    /// thousand instances each time. 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    watch_every: u64,
    #[command(flatten)]
    serve: ServeOptions,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    telemetry::init(flags.serve.log_format, &flags.serve.log_level)?;
    let config = match &flags.cloud_config {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Config::read(&text).with_context(|| path.display().to_string())?
        }
        None => Config::read("")?,
    };
    let cloud = Cloud::connect(&config).await?;
    tracing::info!(region = cloud.region, vpc = cloud.vpc, cluster = %cloud.cluster, "serving AWS");
    let watch_every = (flags.watch_every > 0).then(|| Duration::from_secs(flags.watch_every));
    let calls = cloud.calls.clone();
    let zones = Arc::new(Zones::new(cloud.clone()));
    let provider = Provider::builder("aws")
        .vendor_version(env!("CARGO_PKG_VERSION"))
        .provider_id_prefix(instances::PREFIX)
        .capabilities(capabilities(&flags))
        .cloud_provider(Status::new(calls.clone(), zones.clone()))
        .instances(Machines::new(cloud, zones, &config, !flags.nodes_of_other_accounts, watch_every)?)
        .metrics(|registry| calls.register(registry))
        .build()?;
    Ok(cloudprovider_sdk::serve(provider, flags.serve).await?)
}

fn capabilities(flags: &Flags) -> GetCapabilitiesResponse {
    let mut capabilities = vec![Capability::InstancesList.into()];
    if flags.watch_every > 0 {
        capabilities.push(Capability::InstancesWatch.into());
    }
    let identity = NodeFields {
        creation_time: true,
        provided_node_ips: flags.nodes_by_address,
        ..NodeFields::default()
    };
    let wants = Wants { identity: Some(identity), ..Wants::default() };
    GetCapabilitiesResponse { capabilities, wants: Some(wants), ..GetCapabilitiesResponse::default() }
}
