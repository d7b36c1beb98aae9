//! Starts a provider on a socket of its own, and clients for it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use cloudprovider_sdk::contract::discovery::v1::discovery_client::DiscoveryClient;
use cloudprovider_sdk::proto::ErrorReason;
use cloudprovider_sdk::proto::instances_client::InstancesClient;
use cloudprovider_sdk::proto::load_balancers_client::LoadBalancersClient;
use cloudprovider_sdk::{
    Endpoint, Provider, ProviderError, ProviderHandle, ServeError, ServeOptions, Server,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time;
use tonic::Status;
use tonic::transport::Channel;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    pub(crate) handle: ProviderHandle,
    pub(crate) task: JoinHandle<Result<(), ServeError>>,
    pub(crate) directory: TempDir,
}

pub(crate) fn options(socket: &Path) -> ServeOptions {
    let mut options = ServeOptions::new(Endpoint::unix(socket).unwrap());
    options.shutdown_grace = PATIENCE;
    options
}

/// A directory that nobody else can enter.
pub(crate) fn private() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// Serves a provider with options that a test may change.
pub(crate) async fn serve_with(provider: Provider, change: impl FnOnce(&mut ServeOptions)) -> Served {
    serve_server(provider, change, |server| server).await
}

pub(crate) async fn serve_server(
    provider: Provider,
    change: impl FnOnce(&mut ServeOptions),
    wrap: impl FnOnce(Server) -> Server,
) -> Served {
    let directory = private();
    let socket = directory.path().join("ccm/provider.sock");
    let mut options = options(&socket);
    change(&mut options);
    let handle = provider.handle();
    let bound = wrap(Server::new(provider, options).without_signals()).bind().await.unwrap();
    let task = tokio::spawn(bound.run());
    Served { socket, handle, task, directory }
}

pub(crate) async fn serve(provider: Provider) -> Served {
    serve_with(provider, |_| {}).await
}

impl Served {
    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = format!("unix://{}", self.socket.display());
        tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn discovery(&self) -> DiscoveryClient<Channel> {
        DiscoveryClient::new(self.channel().await)
    }

    pub(crate) async fn instances(&self) -> InstancesClient<Channel> {
        InstancesClient::new(self.channel().await).max_encoding_message_size(64 << 20)
    }

    pub(crate) async fn load_balancers(&self) -> LoadBalancersClient<Channel> {
        LoadBalancersClient::new(self.channel().await)
    }

    /// Stops, and waits until all is done.
    pub(crate) async fn stopped(self) {
        self.handle.stop();
        within(self.task).await.unwrap().unwrap();
    }
}

/// Fails rather than hangs.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    time::timeout(PATIENCE, future).await.expect("took too long")
}

/// A clock that stands still until it is dropped, or for [`PATIENCE`]: what a server grants only for moments then lasts on a loaded
/// machine, too.
pub(crate) struct StoppedClock {
    _held: mpsc::Sender<()>,
}

impl StoppedClock {
    pub(crate) fn new() -> Self {
        let (held, released) = mpsc::channel();
        // Without blocking work, a paused clock jumps to the next timer whenever nothing else is to be done.
        tokio::task::spawn_blocking(move || released.recv_timeout(PATIENCE));
        time::pause();
        Self { _held: held }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        time::resume();
    }
}

/// The reason of a status that carries our details.
pub(crate) fn reason(status: &Status) -> ErrorReason {
    ProviderError::from_status(status).unwrap_or_else(|| panic!("no ErrorInfo in {status:?}")).reason()
}
