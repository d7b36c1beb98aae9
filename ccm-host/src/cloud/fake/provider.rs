//! [`Provider`], answered from memory.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::Ipv4Addr,
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use jiff::Timestamp;
use prost::bytes::Bytes;
use tokio::sync::{broadcast, watch};

use super::{Call, FakeProvider, answers, machine, method};
use crate::{
    cloud::{
        Accepted, BackendSet, CloudError, DeleteLoadBalancer, EnsureLoadBalancer, EnsureRoute, Ensured,
        EnsuredRoute, ErrorReason, Family, InProgress, Ingress, InstanceAnswer, InstanceQuery, InstanceState,
        Listed, LoadBalancer, LoadBalancerState, Ownership, Provider, ProviderInfo, ProviderStatus, Route,
        SyncState, UpdateLoadBalancer, VolumeAnswer, VolumeQuery, VolumeState, digest::join,
    },
    kube::{Node, Service},
};

#[async_trait]
impl Provider for FakeProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn status(&self, of: Family) -> watch::Receiver<ProviderStatus> {
        self.status[of as usize].subscribe()
    }

    fn info(&self) -> Option<Arc<ProviderInfo>> {
        self.info.lock().clone()
    }

    fn instance_changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }

    fn sweeps(&self) -> watch::Receiver<u64> {
        self.sweeps.subscribe()
    }

    async fn instance(&self, query: InstanceQuery) -> Result<InstanceAnswer, CloudError> {
        let node = query.node.name.clone();
        let call = Call::Instance { node: node.clone(), view: query.view, freshness: query.freshness };
        self.begin(method::INSTANCE, call).await?;
        let answer = self.state.lock().instances.get(&node).cloned();
        let mut answer = answer.unwrap_or_else(|| machine(InstanceState::Absent, None));
        // An answer prepared without a time is observed when it is asked for.
        if answer.observed_at == Some(Timestamp::UNIX_EPOCH) {
            answer.observed_at = Some(Timestamp::now());
        }
        Ok(answer)
    }

    fn backend_set(&self, mut nodes: Vec<Arc<Node>>) -> Arc<BackendSet> {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let reads_state = self.state.lock().reads_node_state;
        let words: Vec<_> = nodes
            .iter()
            .map(|node| {
                let labels: String =
                    node.labels.iter().map(|(key, value)| format!(" {key}={value}")).collect();
                let ready = node.condition("Ready").map(|ready| ready.status.as_str());
                let state = reads_state.then_some((&node.taints, node.unschedulable, ready));
                format!("{}={}{labels}{state:?}", node.name, node.provider_id.as_deref().unwrap_or(""))
            })
            .collect();
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        Arc::new(BackendSet { digest: format!("{:016x}", hasher.finish()), nodes, encoded: Bytes::new() })
    }

    fn desired_digest(&self, service: &Service, backends: &BackendSet) -> String {
        let text = format!("{} {:?} {:?}", service.uid, service.spec, service.annotations);
        join(service.spec.load_balancer_class.as_deref(), &text.replace('-', "_"), &backends.digest)
    }

    async fn load_balancer(&self, service: &Service) -> Result<LoadBalancer, CloudError> {
        self.begin(method::GET, Call::Get { service: service.key.to_string() }).await?;
        let known = self.state.lock().balancers.get(&service.uid).cloned();
        Ok(known.unwrap_or_else(|| answers::absent(service.key.clone(), &service.uid)))
    }

    async fn ensure_load_balancer(&self, wanted: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
        let call = Call::Ensure {
            service: wanted.service.key.to_string(),
            nodes: names(&wanted.backends),
            digest: wanted.desired_digest.clone(),
            revision: wanted.revision,
            adopt: wanted.adopt,
        };
        self.begin(method::ENSURE, call).await?;
        let mut state = self.state.lock();
        let in_progress = state.next_in_progress(method::ENSURE);
        let mut load_balancer = active(&wanted);
        if in_progress.is_some() {
            load_balancer.state = LoadBalancerState::Pending;
            load_balancer.applied_digest = None;
            load_balancer.sync_state = SyncState::Unspecified;
        }
        state.balancers.insert(load_balancer.service_uid.clone(), load_balancer.clone());
        state.behind.insert(load_balancer.service_uid.clone(), names(&wanted.backends));
        let (annotations, removed_annotations) = state.annotations.clone();
        Ok(Ensured {
            load_balancer,
            in_progress,
            events: state.events.clone(),
            annotations,
            removed_annotations,
            conditions: state.conditions.clone(),
        })
    }

    async fn update_load_balancer(&self, wanted: UpdateLoadBalancer) -> Result<Accepted, CloudError> {
        let call = Call::Update {
            service: wanted.service.key.to_string(),
            nodes: names(&wanted.backends),
            digest: wanted.desired_digest.clone(),
            revision: wanted.revision,
        };
        self.begin(method::UPDATE, call).await?;
        let mut state = self.state.lock();
        let in_progress = state.next_in_progress(method::UPDATE);
        let events = state.events.clone();
        let state = &mut *state;
        match state.balancers.get_mut(&wanted.service.uid) {
            Some(balancer) if balancer.sync_state != SyncState::Drifted => {
                if in_progress.is_none() {
                    balancer.applied_digest = Some(wanted.desired_digest);
                    state.behind.insert(balancer.service_uid.clone(), names(&wanted.backends));
                }
                Ok(Accepted { in_progress, events })
            }
            _ => Err(answers::error(method::UPDATE, Some(ErrorReason::NeedsEnsure))),
        }
    }

    async fn delete_load_balancer(&self, wanted: DeleteLoadBalancer) -> Result<Accepted, CloudError> {
        let call = Call::Delete {
            service: wanted.key.to_string(),
            uid: wanted.uid.clone(),
            with_last_known: wanted.last_known.is_some(),
            adopt: wanted.adopt,
        };
        self.begin(method::DELETE, call).await?;
        let mut state = self.state.lock();
        let in_progress = state.next_in_progress(method::DELETE);
        if in_progress.is_none() {
            state.balancers.remove(&wanted.uid);
        }
        Ok(Accepted { in_progress, events: state.events.clone() })
    }

    async fn list_load_balancers(&self) -> Result<Listed<LoadBalancer>, CloudError> {
        self.begin(method::LIST, Call::List).await?;
        Ok(self.list())
    }

    async fn list_routes(&self, within: &[IpNet]) -> Result<Listed<Route>, CloudError> {
        let within = within.iter().map(ToString::to_string).collect();
        self.begin(method::LIST_ROUTES, Call::ListRoutes { within }).await?;
        Ok(self.listed_routes())
    }

    async fn ensure_route(&self, wanted: EnsureRoute) -> Result<EnsuredRoute, CloudError> {
        let (destination, node) = (wanted.destination.to_string(), wanted.node.name.clone());
        self.begin(method::ENSURE_ROUTE, Call::EnsureRoute { destination, node }).await?;
        self.make_route(&wanted)
    }

    async fn delete_route(&self, listed: Route) -> Result<Option<InProgress>, CloudError> {
        let (id, destination) = (listed.id.clone(), listed.destination.to_string());
        self.begin(method::DELETE_ROUTE, Call::DeleteRoute { id, destination }).await?;
        self.remove_route(&listed)
    }

    async fn add_ssh_key(&self, user: &str, public_key: &str) -> Result<Option<InProgress>, CloudError> {
        let call = Call::AddSshKey { user: user.to_owned(), public_key: public_key.to_owned() };
        self.begin(method::ADD_SSH_KEY, call).await?;
        Ok(self.state.lock().next_in_progress(method::ADD_SSH_KEY))
    }

    async fn volume_labels(&self, query: VolumeQuery) -> Result<VolumeAnswer, CloudError> {
        let VolumeQuery { name: volume, plugin, volume_id: id, .. } = query;
        self.begin(method::VOLUME_LABELS, Call::VolumeLabels { volume, plugin, id: id.clone() }).await?;
        let known = self.state.lock().volumes.get(&id).cloned();
        Ok(known.unwrap_or_else(|| answers::volume(VolumeState::Absent, &[])))
    }
}

fn names(backends: &BackendSet) -> Vec<String> {
    backends.nodes.iter().map(|node| node.name.clone()).collect()
}

fn active(wanted: &EnsureLoadBalancer) -> LoadBalancer {
    LoadBalancer {
        key: wanted.service.key.clone(),
        service_uid: wanted.service.uid.clone(),
        id: format!("lb-{}", wanted.service.uid),
        name: format!("lb-{}", wanted.service.key.name),
        state: LoadBalancerState::Active,
        ingress: vec![Ingress {
            ip: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
            hostname: None,
            ip_mode: Some("VIP"),
            ports: Vec::new(),
        }],
        applied_digest: Some(wanted.desired_digest.clone()),
        sync_state: SyncState::InSync,
        ownership: Ownership::ByUid,
        rejected: Vec::new(),
    }
}
