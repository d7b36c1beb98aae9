//! The running mock: the provider on its endpoint, the admin door, and the cloud's clock.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use cloudprovider_sdk::{ProviderHandle, ServeOptions, Server, proto::Capability};
use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    admin::{self, Door},
    advertised::Advertised,
    cloud::{Cloud, NewInstances, Settings, Store, write},
    fault::Fault,
    provider, traffic, wire,
};

pub use crate::mock::Mock;

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
    /// Version that the provider reports of itself.
    #[arg(long, value_name = "TEXT", default_value = env!("CARGO_PKG_VERSION"))]
    pub report_version: String,
    /// Carry the traffic of balancers to their nodes: on Linux, as root, in the network namespace of the router in front
    /// of them.
    #[arg(long)]
    pub carry_traffic: bool,
    /// The cloud's settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Create this many instances, node-0 and so on, in a new cloud.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed_instances: u32,
    /// Limits and intervals that differ from the contract's defaults: max-batch-instances=50,page-size=10,…
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    pub advertise: Advertised,
    /// A fault that is active from the start: error,reason=RATE_LIMITED,method=EnsureLoadBalancer,times=3. May be repeated.
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<Fault>,
}

/// Serves until it is asked to stop.
///
/// # Errors
///
/// When an address, the state file or a flag cannot be used.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let mock = Mock {
        version: options.report_version.clone(),
        advertised: options.advertise.clone(),
        ..Mock::new(open_cloud(&options).await?, Timestamp::now)
    };
    for fault in &options.fault {
        mock.faults.add(fault.clone());
    }
    let epoch = uuid::Uuid::new_v4().to_string();
    let (server, handle) = mock.server(&epoch, options.serve.clone())?;
    let server = server.bind().await?;
    let (name, version) = (&options.settings.name, &options.report_version);
    let endpoint = server.endpoint().to_string();
    let info = json!({"name": name, "epoch": epoch, "endpoint": endpoint, "version": version});
    let door = Door { mock: mock.clone(), info };
    tokio::select! {
        ended = server.run() => ended?,
        failed = serve_door(&options, door) => failed?,
        failed = traffic::carry(&mock), if options.carry_traffic => failed?,
        never = mock.live(handle) => match never {},
    }
    Ok(())
}

impl Mock {
    /// One run of the provider: its server and its handle.
    ///
    /// # Errors
    ///
    /// When the name or the advertised values violate the contract.
    pub fn server(&self, epoch: &str, serve: ServeOptions) -> anyhow::Result<(Server, ProviderHandle)> {
        let provider = provider::build(self, epoch).context("the flags do not define a valid provider")?;
        let handle = provider.handle();
        Ok((Server::new(provider, serve).layer(wire::layer(self.clone())), handle))
    }

    /// Applies changes when they are due, so that watches see them even if nobody asks; health follows the conditions.
    pub async fn live(&self, handle: ProviderHandle) -> Infallible {
        let mut moves = self.cloud.moves();
        loop {
            moves.borrow_and_update();
            let now = self.now();
            let (due, serving) = self.cloud.read(now, |state| (state.next_due(), state.conditions.serving));
            handle.set_serving(serving);
            let wait = due.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or_default());
            tokio::select! {
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                // The sender lives as long as the cloud, which is held here.
                _changed = moves.changed() => {}
            }
        }
    }
}

/// The cloud from the state file, or a new one with the requested instances.
async fn open_cloud(options: &Options) -> anyhow::Result<Cloud> {
    let store = Store::at(options.state_file.clone());
    let known = store.load()?;
    let fresh = known.is_none();
    let mut state = known.unwrap_or_default().restored(options.settings.clone());
    if !options.advertise.has(Capability::DurableDigest) {
        state.forget_digests();
    }
    let cloud = Cloud::new(state, store);
    if fresh && options.seed_instances > 0 {
        let (now, wish) = (Timestamp::now(), NewInstances::many(options.seed_instances));
        cloud.change(now, |state| state.create_instances(&wish, now)).await??;
    }
    Ok(cloud)
}

/// Serves the admin door, if it is requested, and publishes its address; the gRPC endpoint is open by then.
async fn serve_door(options: &Options, door: Door) -> anyhow::Result<()> {
    let Some(address) = options.admin_address else { return std::future::pending().await };
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on admin address {address}"))?;
    let address = listener.local_addr().context("the admin door has no address")?;
    tracing::info!(%address, "the admin door is open");
    if let Some(path) = &options.admin_address_file {
        // A reader of the file sees a whole address or none.
        write(path, address.to_string().as_bytes())
            .with_context(|| format!("cannot write admin address file {}", path.display()))?;
    }
    axum::serve(listener, admin::router(door)).await.context("the admin door broke")
}
