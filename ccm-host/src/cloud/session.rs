//! The connection to one process of a provider, and what that process reported.
//!
//! A session is bound to one socket, and so to one process and one epoch: once the socket is lost, everything in here
//! is void.

mod handshake;
mod limits;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloudprovider_proto::{
    service_names,
    v1alpha1::{
        self as pb, cloud_provider_client::CloudProviderClient, clusters_client::ClustersClient,
        instances_client::InstancesClient, load_balancers_client::LoadBalancersClient,
        routes_client::RoutesClient, volumes_client::VolumesClient,
    },
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

pub(super) use handshake::{HandshakeError, handshake};
pub(super) use limits::Intervals;

use super::{ProviderInfo, method::Method, negotiate::Served, sets::SentSets, spliced::Spliced};

#[derive(Debug)]
pub(super) struct Session {
    channel: Channel,
    /// Cancelled when the socket is lost.
    pub(super) lost: CancellationToken,
    pub(super) info: Arc<ProviderInfo>,
    pub(super) served: Served,
    pub(super) capabilities: pb::GetCapabilitiesResponse,
    pub(super) limits: pb::Limits,
    pub(super) intervals: Intervals,
    /// By name of the RPC.
    pub(super) deadlines: HashMap<String, Duration>,
    pub(super) wants: Arc<pb::Wants>,
    /// The maximum message size, either way.
    pub(super) message_bytes: usize,
    /// The sets of backends that the process already has.
    pub(super) sets: SentSets,
    most_instances: AtomicUsize,
    most_balancers: AtomicUsize,
    most_routes: AtomicUsize,
    most_volumes: AtomicUsize,
    /// Advertised RPCs that turned out not to be served.
    refused: Mutex<HashSet<&'static str>>,
}

impl Session {
    pub(super) fn cloud_provider(&self) -> CloudProviderClient<Channel> {
        CloudProviderClient::new(self.channel.clone())
    }

    pub(super) fn health(&self) -> tonic_health::pb::health_client::HealthClient<Channel> {
        tonic_health::pb::health_client::HealthClient::new(self.channel.clone())
    }

    pub(super) fn instances(&self) -> InstancesClient<Channel> {
        InstancesClient::new(self.channel.clone())
            .max_decoding_message_size(self.message_bytes)
            .max_encoding_message_size(self.message_bytes)
    }

    pub(super) fn load_balancers(&self) -> LoadBalancersClient<Channel> {
        LoadBalancersClient::new(self.channel.clone())
            .max_decoding_message_size(self.message_bytes)
            .max_encoding_message_size(self.message_bytes)
    }

    /// Calls LoadBalancers with a message spliced from parts, exactly as the generated client would.
    pub(super) async fn send_balancers<M, A>(
        &self,
        method: &'static Method,
        request: Request<Spliced<M>>,
    ) -> Result<Response<A>, Status>
    where
        M: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/{}/{}", service_names::LOAD_BALANCERS, method.name))
            .map_err(|error| Status::internal(error.to_string()))?;
        let mut client = tonic::client::Grpc::new(self.channel.clone())
            .max_decoding_message_size(self.message_bytes)
            .max_encoding_message_size(self.message_bytes);
        client.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
        client.unary(request, path, ProstCodec::<Spliced<M>, A>::default()).await
    }

    pub(super) fn routes(&self) -> RoutesClient<Channel> {
        RoutesClient::new(self.channel.clone())
            .max_decoding_message_size(self.message_bytes)
            .max_encoding_message_size(self.message_bytes)
    }

    pub(super) fn volumes(&self) -> VolumesClient<Channel> {
        VolumesClient::new(self.channel.clone()).max_decoding_message_size(self.message_bytes)
    }

    pub(super) fn clusters(&self) -> ClustersClient<Channel> {
        ClustersClient::new(self.channel.clone()).max_decoding_message_size(self.message_bytes)
    }

    /// The most volumes of one batch.
    pub(super) fn most_volumes(&self) -> usize {
        self.most_volumes.load(Ordering::Relaxed)
    }

    /// Whether the RPC may be called in this epoch.
    pub(super) fn serves(&self, method: &Method) -> bool {
        self.served.has(method.service) && !self.refuses(method)
    }

    /// Whether the RPC turned out not to be served.
    pub(super) fn refuses(&self, method: &Method) -> bool {
        self.refused.lock().contains(method.name)
    }

    /// Marks an RPC as not served, whatever was advertised. True the first time.
    pub(super) fn refuse(&self, method: &Method) -> bool {
        self.refused.lock().insert(method.name)
    }

    pub(super) fn most_instances(&self) -> usize {
        self.most_instances.load(Ordering::Relaxed)
    }

    pub(super) fn most_balancers(&self) -> usize {
        self.most_balancers.load(Ordering::Relaxed)
    }

    pub(super) fn most_routes(&self) -> usize {
        self.most_routes.load(Ordering::Relaxed)
    }

    /// Shrinks the next batches after a batch of this many instances was refused as too large.
    pub(super) fn fewer_instances(&self, refused: usize) {
        self.most_instances.fetch_min((refused / 2).max(1), Ordering::Relaxed);
    }

    /// Likewise for balancers.
    pub(super) fn fewer_balancers(&self, refused: usize) {
        self.most_balancers.fetch_min((refused / 2).max(1), Ordering::Relaxed);
    }

    /// Likewise for routes.
    pub(super) fn fewer_routes(&self, refused: usize) {
        self.most_routes.fetch_min((refused / 2).max(1), Ordering::Relaxed);
    }

    /// Likewise for volumes.
    pub(super) fn fewer_volumes(&self, refused: usize) {
        self.most_volumes.fetch_min((refused / 2).max(1), Ordering::Relaxed);
    }

    /// If routes cannot record an owner, all routes in the cluster's tables are the cluster's.
    pub(super) fn owned(&self, mut route: pb::Route) -> pb::Route {
        if !self.info.route_ownership {
            route.set_ownership(pb::Ownership::ByUid);
        }
        route
    }

    /// The node fields that the provider wants in order to find an instance.
    pub(super) fn identity(&self) -> pb::NodeFields {
        self.wants.identity.clone().unwrap_or_default()
    }

    /// The node fields that the provider wants of route targets; with addresses if routes hold these.
    pub(super) fn route_target(&self) -> pb::NodeFields {
        let fields = self.wants.route_target.clone().unwrap_or_default();
        pb::NodeFields { addresses: fields.addresses || self.info.route_node_addresses, ..fields }
    }
}
