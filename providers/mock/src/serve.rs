//! The running mock: the provider on its endpoint, the admin door, and the cloud's clock.

mod options;

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::Context as _;
use cloudprovider_sdk::{ProviderHandle, ServeOptions, Server, proto::Capability};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, Door, Info},
    cloud::{Cloud, NewInstances, Store, load, write},
    provider, wire,
};

pub use crate::mock::{Clock, Mock};
pub use options::Options;

/// Serves until it is asked to stop.
///
/// # Errors
///
/// When an address, the state file or a flag cannot be used.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let clock: Clock = Arc::new(Timestamp::now);
    let cloud = open_cloud(&options, &clock).await?;
    let mock = Mock {
        name: options.name.clone(),
        version: options.report_version.clone(),
        advertised: options.advertise.clone(),
        latency: options.latency,
        ..Mock::new(cloud, clock)
    };
    for fault in &options.fault {
        mock.faults.add(fault.clone());
    }
    let epoch = uuid::Uuid::new_v4().to_string();
    let (server, handle) = mock.server(&epoch, options.serve.clone())?;
    let server = server.bind().await?;
    let info = Info {
        name: options.name.clone(),
        epoch,
        endpoint: server.endpoint().to_string(),
        version: options.report_version.clone(),
    };
    let door = Door { mock: mock.clone(), info };
    let stop = CancellationToken::new();
    let _stops_the_rest = stop.clone().drop_guard();
    let admin = open_door(&options, door, stop.clone()).await?;
    tokio::select! {
        ended = server.run() => ended?,
        failed = admin => failed?,
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
        let mut moves = self.cloud.schedule_moves();
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
async fn open_cloud(options: &Options, clock: &Clock) -> anyhow::Result<Cloud> {
    let known = options.state_file.as_deref().map(load).transpose()?.flatten();
    let fresh = known.is_none();
    let mut state = known.unwrap_or_default().restored(options.settings());
    if !options.advertise.has(Capability::DurableDigest) {
        state.forget_digests();
    }
    let store = options.state_file.clone().map_or_else(Store::nowhere, Store::file);
    let cloud = Cloud::new(state, store);
    if fresh && options.seed_instances > 0 {
        let now = clock();
        let wish = NewInstances::many(options.seed_instances);
        cloud.change(now, |state| state.create_instances(&wish, now)).await??;
    }
    Ok(cloud)
}

/// Opens the admin door, if requested, and publishes its address; the gRPC endpoint is open by then.
async fn open_door(
    options: &Options,
    door: Door,
    stop: CancellationToken,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let listener = match options.admin_address {
        Some(address) => {
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("cannot listen on admin address {address}"))?;
            let address = listener.local_addr().context("the admin door has no address")?;
            tracing::info!(%address, "the admin door is open");
            if let Some(path) = &options.admin_address_file {
                // A reader of the file sees a whole address or none.
                write(path, address.to_string().as_bytes())
                    .with_context(|| format!("cannot write admin address file {}", path.display()))?;
            }
            Some(listener)
        }
        None => None,
    };
    Ok(async move {
        let Some(listener) = listener else { return std::future::pending().await };
        let served =
            axum::serve(listener, admin::router(door)).with_graceful_shutdown(stop.cancelled_owned());
        served.await.context("the admin door broke")
    })
}
