//! [`Provider`], answered from memory.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use jiff::Timestamp;
use prost::bytes::Bytes;
use tokio::sync::{broadcast, watch};

use super::{Call, FakeProvider, answers, machine, method};
use crate::{
    Accepted, BackendSet, CloudError, DeleteLoadBalancer, Effects, EnsureLoadBalancer, EnsureRoute, Ensured,
    EnsuredRoute, Family, InProgress, InstanceAnswer, InstanceQuery, InstanceState, Listed, LoadBalancer,
    Provider, ProviderInfo, ProviderStatus, Route, UpdateLoadBalancer, VolumeAnswer, VolumeQuery,
    VolumeState, digest::join,
};
use ccm_kube::{Node, Service};

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
        let digest = format!("{:016x}", hasher.finish());
        Arc::new(BackendSet { digest, nodes, encoded: Bytes::new(), wants: Arc::default() })
    }

    fn desired_digest(&self, service: &Service, backends: &BackendSet) -> String {
        let text = format!("{} {:?} {:?}", service.uid, service.spec, service.annotations);
        // One word, as a record needs it.
        let text = text.replace('-', "_").replace(' ', "");
        join(service.spec.load_balancer_class.as_deref(), &text, &backends.digest)
    }

    async fn load_balancer(&self, service: &Service) -> Result<LoadBalancer, CloudError> {
        let read = self.read(&service.key, &service.uid);
        self.begin(method::GET, Call::Get { service: service.key.to_string() }).await?;
        Ok(read)
    }

    async fn ensure_load_balancer(&self, wanted: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
        let EnsureLoadBalancer { service, backends, desired_digest: digest, revision, adopt } = wanted;
        let (uid, nodes) = (service.uid.clone(), names(&backends));
        let call = Call::Ensure {
            service: service.key.to_string(),
            nodes: nodes.clone(),
            digest: digest.clone(),
            revision,
            adopt,
        };
        self.change_balancer((method::ENSURE, &uid, revision), call, move |state| {
            let unfinished = state.next_in_progress(method::ENSURE);
            let balancers = state.balancers.now();
            let (load_balancer, in_progress) =
                balancers.ensure(&service.key, &service.uid, digest, nodes, unfinished);
            let effects = if in_progress.is_none() { state.effects.clone() } else { Effects::default() };
            Ok(Ensured { load_balancer, in_progress, effects })
        })
        .await
    }

    async fn update_load_balancer(&self, wanted: UpdateLoadBalancer) -> Result<Accepted, CloudError> {
        let UpdateLoadBalancer { service, backends, desired_digest: digest, revision, .. } = wanted;
        let (uid, nodes) = (service.uid.clone(), names(&backends));
        let call = Call::Update {
            service: service.key.to_string(),
            nodes: nodes.clone(),
            digest: digest.clone(),
            revision,
        };
        self.change_balancer((method::UPDATE, &uid, revision), call, move |state| {
            let unfinished = state.next_in_progress(method::UPDATE);
            let in_progress = state.balancers.now().update(&service.uid, digest, nodes, unfinished)?;
            Ok(Accepted {
                in_progress,
                effects: state.effects.clone(),
                ingress: state.updated_ingress.clone(),
            })
        })
        .await
    }

    async fn delete_load_balancer(&self, wanted: DeleteLoadBalancer) -> Result<Accepted, CloudError> {
        let DeleteLoadBalancer { key, uid, last_known, revision, adopt } = wanted;
        let call = Call::Delete {
            service: key.to_string(),
            uid: uid.clone(),
            annotations: last_known
                .iter()
                .flat_map(|service| service.annotations.iter())
                .map(|(key, _)| key.to_owned())
                .collect(),
            adopt,
        };
        self.change_balancer((method::DELETE, &uid.clone(), revision), call, move |state| {
            let unfinished = state.next_in_progress(method::DELETE);
            let in_progress = state.balancers.now().delete(&uid, unfinished);
            Ok(Accepted { in_progress, effects: state.effects.clone(), ..Accepted::default() })
        })
        .await
    }

    async fn list_load_balancers(&self) -> Result<Listed<LoadBalancer>, CloudError> {
        let list = self.list();
        self.begin(method::LIST, Call::List).await?;
        Ok(list)
    }

    async fn list_routes(&self, within: &[IpNet]) -> Result<Listed<Route>, CloudError> {
        let within = within.iter().map(ToString::to_string).collect();
        self.begin(method::LIST_ROUTES, Call::ListRoutes { within }).await?;
        Ok(self.listed_routes())
    }

    async fn ensure_route(&self, wanted: EnsureRoute) -> Result<EnsuredRoute, CloudError> {
        let (destination, node) = (wanted.destination.to_string(), wanted.node.name.clone());
        let holds_addresses = self.info.lock().as_ref().is_some_and(|info| info.route_node_addresses);
        let call = Call::EnsureRoute { destination, node };
        self.change(method::ENSURE_ROUTE, call, move |state| Ok(state.make_route(&wanted, holds_addresses)))
            .await
    }

    async fn delete_route(&self, listed: Route) -> Result<Option<InProgress>, CloudError> {
        let (id, destination) = (listed.id.clone(), listed.destination.to_string());
        let call = Call::DeleteRoute { id, destination };
        self.change(method::DELETE_ROUTE, call, move |state| state.remove_route(&listed)).await
    }

    async fn add_ssh_key(&self, user: &str, public_key: &str) -> Result<Option<InProgress>, CloudError> {
        let call = Call::AddSshKey { user: user.to_owned(), public_key: public_key.to_owned() };
        self.change(method::ADD_SSH_KEY, call, |state| {
            Ok(state.next_in_progress(method::ADD_SSH_KEY).map(|(in_progress, _)| in_progress))
        })
        .await
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
