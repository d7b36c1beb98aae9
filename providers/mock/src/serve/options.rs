//! Flags of the running mock.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use cloudprovider_sdk::ServeOptions;

use crate::{admin, advertised::Advertised, cloud::Settings, duration, fault::Fault};

/// Flags of the running mock.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Flags that every provider of this SDK has.
    #[command(flatten)]
    pub serve: ServeOptions,
    /// Address of the admin door, on loopback; port 0 picks a free one. Without it there is no door.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = admin::loopback)]
    pub admin_address: Option<SocketAddr>,
    /// File for the door's actual address, written once everything is served.
    #[arg(long, value_name = "FILE", requires = "admin_address")]
    pub admin_address_file: Option<PathBuf>,
    /// Keep the cloud's whole state in this file, across restarts and kills.
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,
    /// Name of the provider.
    #[arg(long, default_value = "mock")]
    pub name: String,
    /// Version that the provider reports of itself.
    #[arg(long, value_name = "TEXT", default_value = env!("CARGO_PKG_VERSION"))]
    pub report_version: String,
    /// The cloud's settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Create this many instances, node-0 and so on, in a new cloud.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed_instances: u32,
    /// Minimum duration of every call to the cloud.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub latency: Duration,
    /// Limits and intervals that differ from the contract's defaults: max-batch-instances=50,page-size=10,…
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    pub advertise: Advertised,
    /// A fault that is active from the start: error,reason=RATE_LIMITED,method=EnsureLoadBalancer,times=3. May be repeated.
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<Fault>,
}

impl Options {
    pub(super) fn settings(&self) -> Settings {
        Settings { provider_id_prefix: format!("{}://", self.name), ..self.settings.clone() }
    }
}
