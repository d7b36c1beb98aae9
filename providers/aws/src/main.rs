//! Serves AWS to `ccm-host`.

mod api;
mod balancers;
mod cloud;
mod config;
mod instances;
mod routes;
mod status;
mod zones;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use cloudprovider_sdk::proto::{Capability, GetCapabilitiesResponse, NodeFields, ServiceFields, Wants};
use cloudprovider_sdk::{Provider, ServeOptions, telemetry};

use crate::balancers::Balancers;
use crate::cloud::Cloud;
use crate::config::Config;
use crate::instances::Machines;
use crate::routes::Routing;
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
    /// Serve Services, too, and give those whose annotation names no type this kind of balancer: "classic", as the published
    /// provider does, or "network".
    #[arg(long, value_name = "KIND", value_enum)]
    load_balancers: Option<Kind>,
    /// Let all network balancers in at the nodes by one rule, instead of some for each of their ports, of which AWS allows 60:
    /// they get a security group in common beside those that let their clients in. Needs NLBSecurityGroupMode = Managed.
    #[arg(long)]
    shared_node_rule: bool,
    /// A label of nodes by which Services may select their backends; give it once for each. A node whose label changes is an
    /// update of every balancer.
    #[arg(long, value_name = "LABEL")]
    target_node_labels: Vec<String>,
    #[command(flatten)]
    serve: ServeOptions,
}

/// What a Service gets that names no type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Classic,
    Network,
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
    anyhow::ensure!(
        !flags.shared_node_rule || config.balancers_have_groups(),
        "--shared-node-rule needs NLBSecurityGroupMode = Managed in the cloud config: without it balancers have no security groups"
    );
    let cloud = Cloud::connect(&config).await?;
    tracing::info!(region = cloud.region, vpc = cloud.vpc, cluster = %cloud.cluster, "serving AWS");
    let watch_every = (flags.watch_every > 0).then(|| Duration::from_secs(flags.watch_every));
    let calls = cloud.calls.clone();
    let zones = Arc::new(Zones::new(cloud.clone()));
    let balancers = flags.load_balancers.map(|default| {
        let labels = flags.target_node_labels.clone();
        let how = (default == Kind::Network, flags.shared_node_rule);
        Balancers::new(cloud.clone(), &config, how, labels)
    });
    let mut builder = Provider::builder("aws")
        .vendor_version(env!("CARGO_PKG_VERSION"))
        .provider_id_prefix(instances::PREFIX)
        .capabilities(capabilities(&flags, &config))
        .cloud_provider(Status::new(calls.clone(), zones.clone()))
        .routes(Routing::new(cloud.clone(), &config))
        .instances(Machines::new(cloud, zones, &config, !flags.nodes_of_other_accounts, watch_every)?)
        .metrics(|registry| calls.register(registry));
    if let Some(balancers) = balancers {
        builder = builder.load_balancers(balancers);
    }
    Ok(cloudprovider_sdk::serve(builder.build()?, flags.serve).await?)
}

fn capabilities(flags: &Flags, config: &Config) -> GetCapabilitiesResponse {
    let mut capabilities = vec![Capability::InstancesList.into()];
    if flags.watch_every > 0 {
        capabilities.push(Capability::InstancesWatch.into());
    }
    let identity = NodeFields {
        creation_time: true,
        provided_node_ips: flags.nodes_by_address,
        ..NodeFields::default()
    };
    let mut wants =
        Wants { identity: Some(identity.clone()), route_target: Some(identity), ..Wants::default() };
    if flags.load_balancers.is_some() {
        capabilities.extend([Capability::Adoption, Capability::DurableDigest].map(i32::from));
        let labels = flags.target_node_labels.clone();
        wants.backend = Some(NodeFields { creation_time: true, labels, ..NodeFields::default() });
        let annotations = vec!["service.beta.kubernetes.io/*".to_owned()];
        wants.service = Some(ServiceFields { annotations, ..ServiceFields::default() });
        wants.load_balancer_settings = balancers::settings(config, flags.shared_node_rule);
    }
    GetCapabilitiesResponse { capabilities, wants: Some(wants), ..GetCapabilitiesResponse::default() }
}
