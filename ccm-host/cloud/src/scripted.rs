//! A scripted provider behind a real socket, for tests: it answers what the test wrote and records the calls.
//!
//! Each runs in its own runtime, so that dropping it cuts every connection, as a kill does.

mod services;

use std::{
    collections::HashMap,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use cloudprovider_proto::{discovery::v1::GetInfoResponse, v1alpha1 as pb};
use futures::{StreamExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Status, metadata::MetadataMap, transport::server::Router};

use super::Dialer;

pub(super) use crate::hostile::honest::{
    all_removed, all_routed, all_running, all_updated, introduction, running,
};
pub(crate) use services::add as services_of;

type Handler<Q, A> = Box<dyn Fn(Q) -> BoxFuture<'static, Result<A, Status>> + Send + Sync>;

/// The answers of a scripted provider.
pub(super) struct Script {
    pub(super) info: Mutex<GetInfoResponse>,
    pub(super) capabilities: Mutex<pb::GetCapabilitiesResponse>,
    pub(super) status: Mutex<pb::GetStatusResponse>,
    /// GetStatus gets no answer.
    pub(super) silent: AtomicBool,
    pub(super) instances: Mutex<Handler<pb::BatchGetInstancesRequest, pb::BatchGetInstancesResponse>>,
    pub(super) watch: Mutex<Handler<pb::WatchInstancesRequest, Vec<WatchStep>>>,
    pub(super) ensure: Mutex<Handler<pb::EnsureLoadBalancerRequest, pb::EnsureLoadBalancerResponse>>,
    pub(super) update:
        Mutex<Handler<pb::BatchUpdateLoadBalancersRequest, pb::BatchUpdateLoadBalancersResponse>>,
    pub(super) list: Mutex<Handler<pb::ListLoadBalancersRequest, pb::ListLoadBalancersResponse>>,
    pub(super) list_routes: Mutex<Handler<pb::ListRoutesRequest, pb::ListRoutesResponse>>,
    pub(super) ensure_routes: Mutex<Handler<pb::BatchEnsureRoutesRequest, pb::BatchEnsureRoutesResponse>>,
    pub(super) delete_routes: Mutex<Handler<pb::BatchDeleteRoutesRequest, pb::BatchDeleteRoutesResponse>>,
    pub(super) lead: Mutex<Handler<pb::LeadRequest, pb::LeadResponse>>,
    /// Names of all RPCs called, in order.
    pub(super) log: Mutex<Vec<&'static str>>,
    /// Metadata of the last call of each RPC.
    pub(super) metadata: Mutex<HashMap<&'static str, MetadataMap>>,
}

/// The next step of a watch.
#[derive(Debug, Clone)]
pub(super) enum WatchStep {
    Frame(pb::watch_instances_response::Frame),
    Fail(Status),
    /// Stays open and silent.
    Hang,
}

impl Script {
    /// A provider `test` with instances, balancers and routes; every instance runs and has provider ID `test://<node>`.
    pub(super) fn new(epoch: &str) -> Arc<Self> {
        Arc::new(Self {
            info: Mutex::new(introduction(epoch)),
            capabilities: Mutex::default(),
            status: Mutex::default(),
            silent: AtomicBool::default(),
            instances: Mutex::new(Box::new(|request| Box::pin(async move { Ok(all_running(request)) }))),
            watch: Mutex::new(Box::new(|_| Box::pin(async { Ok(vec![WatchStep::Hang]) }))),
            ensure: Mutex::new(Box::new(|_| Box::pin(async { Err(Status::unimplemented("")) }))),
            update: Mutex::new(Box::new(|request| Box::pin(async move { Ok(all_updated(&request)) }))),
            list: Mutex::new(Box::new(|_| Box::pin(async { Ok(pb::ListLoadBalancersResponse::default()) }))),
            list_routes: Mutex::new(Box::new(|_| Box::pin(async { Ok(pb::ListRoutesResponse::default()) }))),
            ensure_routes: Mutex::new(Box::new(|request| Box::pin(async move { Ok(all_routed(request)) }))),
            delete_routes: Mutex::new(Box::new(|request| Box::pin(async move { Ok(all_removed(request)) }))),
            lead: Mutex::new(Box::new(|_| Box::pin(async { Ok(pb::LeadResponse::default()) }))),
            log: Mutex::default(),
            metadata: Mutex::default(),
        })
    }

    pub(super) fn on_instances<F>(
        &self,
        handler: impl Fn(pb::BatchGetInstancesRequest) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<pb::BatchGetInstancesResponse, Status>> + Send + 'static,
    {
        *self.instances.lock() = Box::new(move |request| Box::pin(handler(request)));
    }

    /// How often an RPC was called.
    pub(super) fn count(&self, rpc: &str) -> usize {
        self.log.lock().iter().filter(|name| **name == rpc).count()
    }

    pub(super) fn limits(&self, change: impl FnOnce(&mut pb::Limits)) {
        change(self.capabilities.lock().limits.get_or_insert_default());
    }

    pub(super) fn deadline(&self, method: &str, deadline: Duration) {
        self.limits(|limits| {
            limits.deadlines.push(pb::MethodDeadline {
                method: method.into(),
                deadline: prost_types::Duration::try_from(deadline).ok(),
            });
        });
    }

    pub(super) fn can(&self, capability: pb::Capability) {
        self.capabilities.lock().capabilities.push(capability.into());
    }

    pub(super) fn condition(&self, kind: pb::ConditionType, status: pb::ConditionStatus) {
        let condition =
            pb::ProviderCondition { r#type: kind.into(), status: status.into(), ..Default::default() };
        self.status.lock().conditions = vec![condition];
    }
}

/// A listening process. Ends when it is dropped.
pub(super) struct Running(Option<tokio::runtime::Runtime>);

impl Running {
    /// Serves the whole script at that socket.
    pub(super) fn at(path: &Path, script: &Arc<Script>) -> Self {
        let script = Arc::clone(script);
        Self::serve(path, move |builder| services::add(builder, &script))
    }

    /// Serves what is added to the router.
    pub(super) fn serve(
        path: &Path,
        add: impl FnOnce(tonic::transport::Server) -> Router + Send + 'static,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _ = std::fs::remove_file(path);
        let listener = {
            let _guard = runtime.enter();
            UnixListener::bind(path).unwrap()
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).unwrap();
        let router = add(tonic::transport::Server::builder());
        runtime.spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
        Self(Some(runtime))
    }

    /// Serves over TLS at a port that the system chooses, which is returned.
    pub(super) fn over_tls(
        script: &Arc<Script>,
        tls: tonic::transport::ServerTlsConfig,
        port: u16,
    ) -> (Self, u16) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let builder = tonic::transport::Server::builder().tls_config(tls).unwrap();
        let router = services::add(builder, script);
        let _guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        runtime.spawn(router.serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)));
        drop(_guard);
        (Self(Some(runtime)), port)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves the script in the runtime of the test, whose clock may be paused, over pipes. Ends with the runtime.
pub(super) fn piped(script: &Arc<Script>) -> Dialer {
    let (dialled, incoming) = tokio::sync::mpsc::unbounded_channel();
    let router = services::add(tonic::transport::Server::builder(), script);
    let incoming = UnboundedReceiverStream::new(incoming).map(Ok::<_, std::io::Error>);
    tokio::spawn(router.serve_with_incoming(incoming));
    Dialer::new(move |_| {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        dialled.send(theirs).map_err(|_| std::io::ErrorKind::ConnectionRefused)?;
        Ok(ours)
    })
}

/// A folder with the permissions that a socket needs.
pub(super) fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = dir.path().join("provider.sock");
    (dir, path)
}
