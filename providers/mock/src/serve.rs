//! The running mock: the provider on its endpoint, the admin door, and time passing in the cloud.

mod clockwork;
mod options;

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use cloudprovider_sdk::Server;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, Door, Info},
    calls::Calls,
    cloud::{Cloud, NewInstances, State, Store, load},
    fault::Faults,
    provider::{self, Clock},
    wire::{Stage, WireLayer, World},
};

pub use options::Options;

/// Serves until it is told to stop.
///
/// # Errors
///
/// When something is in the way: an address, the state file, a flag.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let clock: Clock = Arc::new(Timestamp::now);
    let cloud = open_cloud(&options, &clock).await?;
    let epoch = uuid::Uuid::new_v4().to_string();
    let advertised = options.advertise.clone();
    let provider = provider::build(&options.name, &epoch, cloud.clone(), &advertised, Arc::clone(&clock))
        .context("the flags make no provider")?;
    let handle = provider.handle();
    let (calls, faults) = (Arc::new(Calls::default()), Arc::new(Faults::default()));
    for spec in &options.fault {
        faults.add(spec.clone().into_fault());
    }
    let world =
        World { cloud: cloud.clone(), clock: Arc::clone(&clock), advertised, memory: Default::default() };
    let stage =
        Stage { world, calls: Arc::clone(&calls), faults: Arc::clone(&faults), latency: options.latency };
    let server = Server::new(provider, options.serve.clone()).layer(WireLayer::new(stage)).bind().await?;
    let info = Info {
        name: options.name.clone(),
        epoch,
        endpoint: server.endpoint().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let door = Door { cloud: cloud.clone(), clock: Arc::clone(&clock), calls, faults, info };
    let stop = CancellationToken::new();
    let _stops_the_rest = stop.clone().drop_guard();
    let admin = open_door(&options, door, stop.clone()).await?;
    tokio::select! {
        ended = server.run() => ended?,
        failed = admin => failed?,
        never = clockwork::turn(cloud.clone(), clock) => match never {},
        never = clockwork::tell_health(cloud, handle) => match never {},
    }
    Ok(())
}

/// The cloud as the state file has it, or a new one with the wished machines.
async fn open_cloud(options: &Options, clock: &Clock) -> anyhow::Result<Cloud> {
    let settings = options.settings();
    let known = options.state_file.as_deref().map(load).transpose()?.flatten();
    let fresh = known.is_none();
    let state = known.map_or_else(|| State::new(settings.clone()), |state| state.restored(settings.clone()));
    let store = options.state_file.clone().map_or_else(Store::nowhere, Store::file);
    let cloud = Cloud::new(state, store);
    if fresh && options.seed_instances > 0 {
        let now = clock();
        let wish = NewInstances::many(options.seed_instances);
        cloud.change(now, |state| state.create_instances(&wish, now)).await??;
    }
    Ok(cloud)
}

/// Opens the admin door, if one is wished for, and tells where; gRPC's endpoint is open by then.
async fn open_door(
    options: &Options,
    door: Door,
    stop: CancellationToken,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let listener = match options.admin_address {
        Some(address) => {
            let opened = TcpListener::bind(address).await;
            Some(opened.with_context(|| format!("cannot listen on admin address {address}"))?)
        }
        None => None,
    };
    if let Some(listener) = &listener {
        let address = listener.local_addr().context("the admin door has no address")?;
        tracing::info!(%address, "the admin door is open");
        if let Some(path) = &options.admin_address_file {
            write_address(path, &address.to_string())?;
        }
    }
    Ok(async move {
        match listener {
            Some(listener) => {
                let served =
                    axum::serve(listener, admin::router(door)).with_graceful_shutdown(stop.cancelled_owned());
                served.await.context("the admin door broke")
            }
            None => std::future::pending().await,
        }
    })
}

/// Whoever reads the file sees a whole address or none.
fn write_address(path: &Path, address: &str) -> anyhow::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, address)
        .and_then(|()| std::fs::rename(&beside, path))
        .with_context(|| format!("cannot write admin address file {}", path.display()))
}
