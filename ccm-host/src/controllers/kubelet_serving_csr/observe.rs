//! Gathers what a decision needs: the request, the Node of the kubelet that asks, and what the cloud has for it now.
//!
//! In: the name of a request. Out: a verdict. The Node's status plays no part: its kubelet can write it.

use std::{sync::Arc, time::Duration};

use super::{
    Controller,
    decide::{self, Cluster, Verdict, Waiting, wait},
};
use crate::{
    clock,
    cloud::{Freshness, InstanceView, ProviderInfo},
    controllers::node_instance::{self, Found},
    kube::{cache::Change, certificate_request::CertificateRequest, node::Node},
    reconcile::Retry,
};

impl Controller {
    pub(super) fn request_changed(&self, change: &Change<CertificateRequest>) {
        match change {
            Change::Deleted(request) => self.told.lock().forget(&request.uid),
            Change::Added(request) | Change::Updated { new: request, .. } => {
                self.queue.add(request.name.clone());
            }
        }
    }

    /// Requests that are still open are looked at again.
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let requests = self.parts.certificate_requests.by_index(&change.object().name);
        let open = requests.iter().filter(|request| decide::is_open(request));
        open.for_each(|request| self.queue.add(request.name.clone()));
    }

    /// Decides about a request: `Err` if it came to that before the cloud's answer counted.
    pub(super) async fn judge(&self, request: &CertificateRequest) -> Result<Verdict, Verdict> {
        let claim = decide::claim(request, clock::now())?;
        let node = self.standing(request, &claim.node)?;
        // The state is asked for, too: a certificate is for an instance that runs.
        let found = node_instance::ask(
            &self.parts.providers,
            &self.parts.nodes,
            &node,
            InstanceView::All,
            Freshness::ReadThrough,
        )
        .await;
        // The cluster may have changed while the cloud was asked.
        let now = self.standing(request, &claim.node)?;
        if (&now.uid, &now.provider_id) != (&node.uid, &node.provider_id) {
            return Err(wait("NodeReplaced", "the Node was replaced while the cloud was asked"));
        }
        let is_other_node = |name: &str| name != now.name && self.parts.nodes.get(name).is_some();
        Ok(match found {
            Found::Answer { answer, by } => {
                let settings = &self.parts.settings.kubelet_serving;
                let reads = |info: Arc<ProviderInfo>| info.reads_kubelets_words;
                let may_echo = !settings.kubelet_serving_csr_trust_node_readers
                    && by.iter().any(|provider| provider.info().is_none_or(reads));
                let trust = settings.kubelet_serving_csr_trust_provider_id;
                match decide::of_answer(&claim, &now, &answer, trust, is_other_node) {
                    Verdict::Approve if may_echo => decide::may_echo(),
                    verdict => verdict,
                }
            }
            Found::Failed { error } => {
                let after = Retry::without_sweep(&error).delay(Duration::ZERO).unwrap_or_default();
                Verdict::Wait(Waiting { after, ..Waiting::new("ProviderFailed", error.to_string()) })
            }
            Found::Contested { .. } => {
                wait("SeveralProviders", "several providers have an instance for the node")
            }
            Found::Undecided => wait("ProviderUnsure", "a provider has not introduced itself yet"),
            Found::Nobody => Verdict::Ignore(decide::Ignored::NotOurs),
        })
    }

    /// The Node of that name, if the cloud may be asked about it.
    fn standing(&self, request: &CertificateRequest, name: &str) -> Result<Arc<Node>, Verdict> {
        let nodes = &self.parts.nodes;
        let node = nodes.get(name);
        let provider_id = node.as_ref().and_then(|node| node.provider_id.as_deref());
        let cluster = Cluster {
            node: node.as_ref(),
            is_in_scope: node.as_ref().is_some_and(|node| self.parts.settings.manages(node)),
            claimants: provider_id.map_or(0, |id| nodes.by_index(id).len()),
        };
        decide::standing(request, cluster).cloned()
    }
}
