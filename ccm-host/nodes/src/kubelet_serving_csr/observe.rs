//! Gathers what a decision needs: the request, the Node of the kubelet that asks, and what the cloud has for it now.
//!
//! In: the name of a request. Out: a verdict. The Node's status plays no part: its kubelet can write it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Controller,
    decide::{self, Claim, Verdict, wait},
};
use ccm_base::clock;
use ccm_cloud::{Freshness, InstanceView, ProviderInfo};
use ccm_kube::{cache::Change, certificate_request::CertificateRequest, node::Node};
use ccm_reconcile::{
    Report, Retry,
    node_instance::{self, Found},
};

/// More Nodes than this with one address share it, as behind one gateway.
const MOST_HOLDERS: usize = 3;

impl Controller {
    /// A new request waits for its node's turn: whoever has its identity makes as many as it likes.
    pub(super) fn request_changed(&self, change: &Change<CertificateRequest>) {
        let request = change.object();
        let node = request.node().filter(|node| self.shell.parts.nodes.get(*node).is_some());
        let wait = match (change, node) {
            (Change::Added(_), Some(node)) if decide::is_open(request) => {
                self.paces.wait(node, Instant::now())
            }
            _ => Duration::ZERO,
        };
        self.shell.queue.add_after(request.name.clone(), wait);
        if matches!(change, Change::Deleted(_)) || !decide::is_open(request) {
            // Those that it superseded are not any more.
            let its =
                node.map(|node| self.shell.parts.certificate_requests.by_index(node)).unwrap_or_default();
            let open = its.iter().filter(|other| decide::is_open(other));
            open.for_each(|other| _ = self.shell.queue.add_unless_delayed(other.name.clone()));
        }
    }

    /// Requests that are still open are looked at again.
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let requests = self.shell.parts.certificate_requests.by_index(&change.object().name);
        let open: Vec<_> = requests.iter().filter(|request| decide::is_open(request)).collect();
        let is_gone = matches!(change, Change::Deleted(_));
        if is_gone || !open.is_empty() {
            let wait = self.paces.of_change(change, Instant::now());
            open.iter().for_each(|request| self.shell.queue.add_after(request.name.clone(), wait));
        }
    }

    pub(super) async fn judge(&self, request: &CertificateRequest) -> Verdict {
        match self.try_judge(request).await {
            // The next look asks again.
            Ok(Verdict::Leave(report)) => Verdict::Leave(self.paced(request, report)),
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    fn paced(&self, request: &CertificateRequest, report: Report) -> Report {
        let retry = match (report.retry, request.node()) {
            (Retry::After(least), Some(node)) if self.shell.parts.nodes.get(node).is_some() => {
                Retry::After(least.max(self.paces.wait(node, Instant::now())))
            }
            (retry, _) => retry,
        };
        Report { retry, ..report }
    }

    /// Whether its node has made another one since, which the kubelet waits for.
    fn is_superseded(&self, request: &CertificateRequest) -> bool {
        let Some(node) = request.node().filter(|_| decide::is_open(request)) else { return false };
        let all = self.shell.parts.certificate_requests.by_index(node);
        let is_newer = |other: &CertificateRequest| {
            (other.created, &other.name) > (request.created, &request.name) && other.signer == request.signer
        };
        all.iter().any(|other| is_newer(other) && decide::is_open(other))
    }

    /// `Err` if it came to a verdict before the cloud's answer counted.
    async fn try_judge(&self, request: &CertificateRequest) -> Result<Verdict, Verdict> {
        if self.is_superseded(request) {
            return Err(decide::superseded());
        }
        let claim = decide::claim(request, clock::now())?;
        let node = self.standing(request, &claim.node)?;
        let found = self.ask(&node).await;
        let node = self.still_standing(request, &node)?;
        let verdict = self.of_answer(&claim, &node, found);
        if verdict != Verdict::Approve {
            return Ok(verdict);
        }
        // Only now: these are addresses that the cloud reports, and no longer whatever the request asks for.
        let others = self.other_holders(&claim.addresses, &node).await?;
        self.still_standing(request, &node)?;
        Ok(decide::of_others(&others))
    }

    /// Judges what the cloud has for the node that asks.
    fn of_answer(&self, claim: &Claim, node: &Node, found: Found) -> Verdict {
        let parts = &self.shell.parts;
        match found {
            Found::Answer { answer, by } => {
                let settings = &parts.settings.kubelet_serving;
                let reads = |info: Arc<ProviderInfo>| info.reads_kubelets_words;
                let may_echo = !settings.kubelet_serving_csr_trust_node_readers
                    && by.iter().any(|provider| provider.info().is_none_or(reads));
                let trust = settings.kubelet_serving_csr_trust_provider_id;
                let is_other_node = |name: &str| name != node.name && parts.nodes.get(name).is_some();
                match decide::of_answer(claim, node, &answer, trust, is_other_node) {
                    Verdict::Approve if may_echo => decide::may_echo(),
                    verdict => verdict,
                }
            }
            Found::Failed { error } => {
                let after = Retry::without_sweep(&error).delay(Duration::ZERO).unwrap_or_default();
                Verdict::Leave(Report::waiting("ProviderFailed", error.to_string(), Retry::After(after)))
            }
            Found::Contested { .. } => {
                wait("SeveralProviders", "several providers have an instance for the node")
            }
            Found::Undecided => wait("ProviderUnsure", "a provider has not introduced itself yet"),
            Found::Nobody => decide::not_ours(),
        }
    }

    /// Asks the cloud about a Node. The state is asked for, too: a certificate is for an instance that runs.
    async fn ask(&self, node: &Arc<Node>) -> Found {
        let parts = &self.shell.parts;
        node_instance::ask(&parts.providers, &parts.nodes, node, InstanceView::All, Freshness::ReadThrough)
            .await
    }

    /// The other Nodes for whose instances the cloud reports one of these addresses, with that address. A Node's status
    /// only says whom to ask about: its kubelet can write it.
    async fn other_holders(
        &self,
        addresses: &[IpAddr],
        node: &Node,
    ) -> Result<Vec<(String, IpAddr)>, Verdict> {
        let mut suspects: BTreeMap<IpAddr, Vec<Arc<Node>>> =
            addresses.iter().map(|address| (*address, Vec::new())).collect();
        for other in self.shell.parts.nodes.list() {
            let its: BTreeSet<IpAddr> =
                other.addresses.iter().filter_map(|one| one.address.parse().ok()).collect();
            for address in its.iter().filter(|_| other.name != node.name) {
                if let Some(suspects) = suspects.get_mut(address) {
                    suspects.push(Arc::clone(&other));
                }
            }
        }
        let mut others = Vec::new();
        for (address, suspects) in suspects.into_iter().filter(|(_, all)| all.len() <= MOST_HOLDERS) {
            let mut holders = Vec::new();
            for other in &suspects {
                match self.ask(other).await {
                    Found::Answer { answer, .. } if decide::reports(&answer, address) => {
                        holders.push((other.name.clone(), address));
                    }
                    Found::Failed { error } => return Err(wait("ProviderFailed", error.to_string())),
                    _ => {}
                }
            }
            if holders.len() == 1 {
                others.append(&mut holders);
            }
        }
        Ok(others)
    }

    /// As before the cloud was asked, which took a while.
    fn still_standing(&self, request: &CertificateRequest, node: &Node) -> Result<Arc<Node>, Verdict> {
        let now = self.standing(request, &node.name)?;
        if (&now.uid, &now.provider_id) != (&node.uid, &node.provider_id) {
            return Err(wait("NodeReplaced", "the Node was replaced while the cloud was asked"));
        }
        Ok(now)
    }

    /// The Node of that name, if the cloud may be asked about it.
    fn standing(&self, request: &CertificateRequest, name: &str) -> Result<Arc<Node>, Verdict> {
        let nodes = &self.shell.parts.nodes;
        let node = nodes.get(name);
        let provider_id = node.as_ref().and_then(|node| node.provider_id.as_deref());
        let is_in_scope = node.as_ref().is_some_and(|node| self.shell.parts.settings.manages(node));
        let claimants = provider_id.map_or(0, |id| nodes.by_index(id).len());
        decide::standing(request, node.as_ref(), is_in_scope, claimants).cloned()
    }
}
