//! Flags of the running mock.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use cloudprovider_sdk::ServeOptions;

use crate::{admin, advertised::Advertised, cloud::Settings, duration, fault::Fault};

/// Flags of the running mock.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How it is served, as every provider of this SDK.
    #[command(flatten)]
    pub serve: ServeOptions,
    /// Where the admin door is, on the loopback address; port 0 takes a free one. No door when left out.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = admin::loopback)]
    pub admin_address: Option<SocketAddr>,
    /// File to write the door's real address to, once everything is served.
    #[arg(long, value_name = "FILE", requires = "admin_address")]
    pub admin_address_file: Option<PathBuf>,
    /// Keep everything that the cloud has in this file, over restarts and kills.
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,
    /// Name of the provider.
    #[arg(long, default_value = "mock")]
    pub name: String,
    /// Version that the provider reports of itself.
    #[arg(long, value_name = "TEXT", default_value = env!("CARGO_PKG_VERSION"))]
    pub report_version: String,
    /// What the cloud is told once.
    #[command(flatten)]
    pub settings: Settings,
    /// Make so many machines, node-0 and on, when the cloud is new.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed_instances: u32,
    /// Every call that reaches the cloud takes at least this long.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub latency: Duration,
    /// Limits and intervals other than the contract's defaults: max-batch-instances=50,page-size=10,…
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    pub advertise: Advertised,
    /// A fault that stands from the start: error,reason=RATE_LIMITED,method=EnsureLoadBalancer,times=3. May be repeated.
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<Fault>,
}

impl Options {
    pub(super) fn settings(&self) -> Settings {
        Settings { provider_id_prefix: format!("{}://", self.name), ..self.settings.clone() }
    }
}
