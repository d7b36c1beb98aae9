//! The connection to one process of a provider, and what that process reported.
//!
//! A session is bound to one socket, and so to one process and one epoch: once the socket is lost, everything in here
//! is void.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloudprovider_proto::{
    defaults,
    v1alpha1::{self as pb, instances_client::InstancesClient},
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::{client::Grpc, transport::Channel};
use tonic_health::pb::health_client::HealthClient;

use super::{limits::Intervals, negotiate::Served};
use crate::cloud::{BackendSet, ProviderInfo, call::method::Method};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) channel: Channel,
    /// Cancelled when the socket is lost.
    pub(crate) lost: CancellationToken,
    pub(crate) info: Arc<ProviderInfo>,
    pub(crate) served: Served,
    pub(crate) capabilities: pb::GetCapabilitiesResponse,
    pub(crate) limits: pb::Limits,
    pub(super) intervals: Intervals,
    /// By name of the RPC.
    pub(crate) deadlines: HashMap<String, Duration>,
    pub(crate) wants: Arc<pb::Wants>,
    /// The maximum message size, either way.
    pub(crate) message_bytes: usize,
    /// The sets of backends that the process already has.
    pub(crate) sets: SentSets,
    /// The most items of a batch, by service.
    pub(crate) most_items: HashMap<&'static str, AtomicUsize>,
    /// Advertised RPCs that turned out not to be served.
    pub(crate) refused: Mutex<HashSet<&'static str>>,
}

impl Session {
    pub(crate) fn client(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone())
            .max_decoding_message_size(self.message_bytes)
            .max_encoding_message_size(self.message_bytes)
    }

    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    pub(crate) fn instances(&self) -> InstancesClient<Channel> {
        InstancesClient::new(self.channel.clone())
            .max_decoding_message_size(self.message_bytes)
            .max_encoding_message_size(self.message_bytes)
    }

    /// The most items of one batch.
    pub(crate) fn most_items(&self, method: &Method) -> usize {
        self.most_items.get(method.service).map_or(1, |most| most.load(Ordering::Relaxed))
    }

    /// Shrinks the next batches after one of this many items was refused as too large.
    pub(crate) fn fewer_items(&self, method: &Method, refused: usize) {
        if let Some(most) = self.most_items.get(method.service) {
            most.fetch_min((refused / 2).max(1), Ordering::Relaxed);
        }
    }

    /// Whether the RPC may be called in this epoch.
    pub(crate) fn serves(&self, method: &Method) -> bool {
        self.served.has(method.service) && !self.refuses(method)
    }

    /// Whether the RPC turned out not to be served.
    pub(crate) fn refuses(&self, method: &Method) -> bool {
        self.refused.lock().contains(method.name)
    }

    /// Marks an RPC as not served, whatever was advertised. True the first time.
    pub(crate) fn refuse(&self, method: &Method) -> bool {
        self.refused.lock().insert(method.name)
    }

    /// The node fields that the provider wants of route targets; with addresses if routes hold these.
    pub(crate) fn route_target(&self) -> pb::NodeFields {
        let fields = self.wants.route_target.clone().unwrap_or_default();
        pb::NodeFields { addresses: fields.addresses || self.info.route_node_addresses, ..fields }
    }
}

/// The sets that one process has.
#[derive(Debug)]
pub(crate) struct SentSets {
    by_digest: bool,
    /// Digests in the order in which their sets arrived.
    arrived: Mutex<VecDeque<String>>,
}

impl SentSets {
    /// Empty. Without the capability, sets are never named by digest.
    pub(crate) fn new(by_digest: bool) -> Self {
        Self { by_digest, arrived: Mutex::default() }
    }

    /// The digests among these whose sets need not be sent.
    pub(crate) fn known(&self, sets: &[&BackendSet]) -> HashSet<String> {
        let arrived = self.arrived.lock();
        sets.iter().map(|set| set.digest.clone()).filter(|digest| arrived.contains(digest)).collect()
    }

    pub(crate) fn arrive(&self, sets: &[&BackendSet], named: &HashSet<String>) {
        if !self.by_digest {
            return;
        }
        let mut arrived = self.arrived.lock();
        for set in sets.iter().filter(|set| !named.contains(&set.digest)) {
            arrived.retain(|digest| *digest != set.digest);
            arrived.push_back(set.digest.clone());
        }
        while arrived.len() > defaults::KNOWN_BACKEND_SETS {
            arrived.pop_front();
        }
    }

    pub(crate) fn lose(&self, digests: &HashSet<String>) {
        self.arrived.lock().retain(|digest| !digests.contains(digest));
    }
}
