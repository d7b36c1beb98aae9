//! Load balancers: wanted, created, read, listed and deleted.

use std::cell::RefCell;

use cloudprovider_proto::v1alpha1::{
    Adoption, BackendSet, ClusterRef, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse,
    EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, GetLoadBalancerRequest, IpFamily, IpFamilyPolicy,
    ListLoadBalancersRequest, LoadBalancer, NodeRef, Protocol, Service, ServicePort, ServiceRef,
    TrafficPolicy,
};
use futures::future::join_all;
use tonic::{Response, Status};

use super::{Pool, Trial, failed, good, machines::as_wanted};
use crate::{
    case::{Outcome, Stop},
    ledger::Entry,
    scenario::Variables,
};

/// How many balancers are made at once, for the cases to come.
const SPARES: usize = 6;
/// Below those that cases take for health checks.
const NODE_PORTS: std::ops::Range<i32> = 30_000..32_000;
/// The maximum number of pages of a list.
const PAGES: usize = 10_000;

/// A wanted balancer.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) cluster: ClusterRef,
    pub(crate) service: Service,
    pub(crate) nodes: Vec<NodeRef>,
    pub(crate) digest: String,
    pub(crate) revision: u64,
    pub(crate) adoption: Adoption,
}

impl Wanted {
    pub(crate) fn service_ref(&self) -> ServiceRef {
        self.service.r#ref.clone().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> String {
        self.service_ref().uid
    }

    pub(crate) fn backends(&self) -> BackendSet {
        let names: Vec<_> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        BackendSet {
            digest: format!("set-{}", names.join("+")).chars().take(120).collect(),
            nodes: self.nodes.clone(),
            nodes_omitted: false,
        }
    }

    /// The same balancer in another shape: with another port, and the next digest and revision.
    pub(crate) fn changed(&self, port: i32) -> Self {
        let mut next = self.clone();
        next.service.ports.push(tcp(port));
        next.digest = format!("{}-{port}", self.digest);
        next.revision += 1;
        next
    }
}

pub(crate) fn tcp(port: i32) -> ServicePort {
    ServicePort {
        name: format!("p{port}"),
        protocol: Protocol::Tcp.into(),
        port,
        node_port: 30_000 + port % 2_000,
        ..ServicePort::default()
    }
}

fn next_node_port(taken: usize) -> i32 {
    NODE_PORTS.start + i32::try_from(taken % NODE_PORTS.len()).unwrap_or(0)
}

/// Whether a pattern of `Wants`, a key or a prefix that ends in `/` or `*`, is of this key.
fn is_wanted(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*').or_else(|| Some(pattern).filter(|pattern| pattern.ends_with('/'))) {
        Some(prefix) => key.starts_with(prefix),
        None => key == pattern,
    }
}

impl Trial {
    /// A balancer for the run's cluster, whose Service an earlier case may have left: the case's first Ensure may find it
    /// standing.
    pub(crate) async fn wanted(&self) -> Result<Wanted, Stop> {
        let takes_time = !self.scenario().balancer_takes.is_zero();
        if takes_time && self.session.balancers.borrow().is_empty() {
            self.make_spares().await?;
        }
        self.left_or_new(&self.session.balancers, self.cluster().unwrap_or_default()).await
    }

    /// What an earlier case left for this cluster, or else a new one for it.
    async fn left_or_new(
        &self,
        pool: &RefCell<Pool<ServiceRef>>,
        cluster: ClusterRef,
    ) -> Result<Wanted, Stop> {
        let left = pool.borrow_mut().take();
        if let Some(reference) = left {
            return Ok(self.wanted_for(cluster, reference));
        }
        let (number, wanted) = self.make_wanted(cluster, false).await?;
        pool.borrow_mut().add(vec![number], wanted.service_ref());
        Ok(wanted)
    }

    /// Makes several balancers at once, where each takes its time. Whether the provider can is for cases to say.
    async fn make_spares(&self) -> Outcome {
        let mut all = Vec::new();
        for _spare in 0..SPARES.min(self.session.max_balancers / 2) {
            all.push(self.make_wanted(self.cluster().unwrap_or_default(), false).await?);
        }
        join_all(all.iter().map(|(_, wanted)| self.ensure(wanted))).await;
        for (number, wanted) in all {
            self.session.balancers.borrow_mut().spare(vec![number], wanted.service_ref());
        }
        Ok(())
    }

    /// A balancer for the run's cluster that nobody has made yet; it is deleted when the case ends.
    pub(crate) async fn unmade(&self) -> Result<Wanted, Stop> {
        self.wanted_by(self.cluster().unwrap_or_default()).await
    }

    /// A balancer of the other cluster, which may stand. The case leaves it as it is.
    pub(crate) async fn wanted_by_other(&self) -> Result<Wanted, Stop> {
        self.left_or_new(&self.session.others, self.other_cluster()).await
    }

    /// A new balancer for this cluster.
    pub(crate) async fn wanted_by(&self, cluster: ClusterRef) -> Result<Wanted, Stop> {
        self.make_wanted(cluster, false).await.map(|(_, wanted)| wanted)
    }

    /// A new balancer for this cluster, which has leaders.
    pub(crate) async fn wanted_by_led(&self, cluster: ClusterRef) -> Result<Wanted, Stop> {
        self.make_wanted(cluster, true).await.map(|(_, wanted)| wanted)
    }

    /// Whether this run has ever asked for a balancer of this Service: a list may still have what was deleted.
    pub(crate) fn has_asked_for(&self, service_uid: &str) -> bool {
        let ledger = self.session.ledger.borrow();
        let is_of = |entry: &Entry| matches!(entry, Entry::LoadBalancer { uid, .. } if uid == service_uid);
        ledger.ever().iter().any(is_of)
    }

    /// A balancer for a Service of this name in one of the namespaces whose names, as long as may be, differ in this number
    /// alone.
    pub(crate) async fn namesake(&self, name: &str, number: u8) -> Result<Wanted, Stop> {
        let mut wanted = self.unmade().await?;
        let namespace = format!("conformance-{}{number}", "long-".repeat(10));
        let reference = ServiceRef { namespace, name: name.to_owned(), uid: wanted.uid() };
        self.register(Entry::load_balancer(&wanted.cluster, &reference, false))?;
        wanted.service.r#ref = Some(reference);
        Ok(wanted)
    }

    async fn make_wanted(&self, cluster: ClusterRef, led: bool) -> Result<(u64, Wanted), Stop> {
        self.session.room_for_a_balancer().await?;
        let reference =
            ServiceRef { namespace: "conformance".to_owned(), name: self.name(), uid: self.uid() };
        let number = self.register(Entry::load_balancer(&cluster, &reference, led))?;
        Ok((number, self.wanted_for(cluster, reference)))
    }

    pub(super) fn wanted_for(&self, cluster: ClusterRef, reference: ServiceRef) -> Wanted {
        let scenario = self.scenario();
        let service = Service {
            r#ref: Some(reference),
            ports: vec![tcp(80)],
            annotations: scenario.service_annotations.clone().into_iter().collect(),
            load_balancer_class: scenario.load_balancer_class.clone(),
            ip_families: vec![IpFamily::Ipv4.into()],
            ip_family_policy: IpFamilyPolicy::SingleStack.into(),
            external_traffic_policy: TrafficPolicy::Cluster.into(),
            ..Service::default()
        };
        let digest = format!("digest-{}", self.name());
        let now = jiff::Timestamp::now().as_microsecond();
        let revision = u64::try_from(now).unwrap_or(1);
        Wanted { cluster, service, nodes: Vec::new(), digest, revision, adoption: Adoption::Refuse }
    }

    /// The same as a host sends it: with node ports that no other Service of the run has, as Kubernetes sees to it, or none, and
    /// nothing that the provider does not want.
    pub(crate) fn sent(&self, wanted: &Wanted) -> Wanted {
        let (mut sent, uid, wants) = (wanted.clone(), wanted.uid(), self.provider().wants());
        let mut all = self.session.node_ports.borrow_mut();
        let allocates = sent.service.allocate_node_ports != Some(false);
        for port in &mut sent.service.ports {
            if !allocates {
                port.node_port = 0;
                continue;
            }
            let next = next_node_port(all.len());
            port.node_port = *all.entry((uid.clone(), port.protocol, port.port)).or_insert(next);
        }
        let keys = wants.service.unwrap_or_default().annotations;
        sent.service.annotations.retain(|key, _| keys.iter().any(|pattern| is_wanted(pattern, key)));
        sent.nodes = sent.nodes.into_iter().map(|node| as_wanted(node, wants.backend.as_ref())).collect();
        sent
    }

    /// From now on its ports have other node ports; the former ones stay taken.
    pub(crate) fn move_node_ports(&self, wanted: &Wanted) {
        let mut all = self.session.node_ports.borrow_mut();
        for port in &wanted.service.ports {
            let next = next_node_port(all.len());
            if let Some(former) = all.insert((wanted.uid(), port.protocol, port.port), next) {
                all.insert((wanted.uid(), 0, former), former);
            }
        }
    }

    pub(crate) fn ensure_request(&self, wanted: &Wanted) -> EnsureLoadBalancerRequest {
        let sent = self.sent(wanted);
        EnsureLoadBalancerRequest {
            cluster: Some(wanted.cluster.clone()),
            fencing: self.fencing(),
            backends: Some(sent.backends()),
            service: Some(sent.service),
            desired_digest: wanted.digest.clone(),
            revision: wanted.revision,
            adoption: wanted.adoption.into(),
        }
    }

    /// Creates it, and makes the cloud change it behind the provider's back.
    pub(crate) async fn made_drifted(&self, wanted: &Wanted) -> Result<(), Stop> {
        let made = self.ensured(wanted).await?;
        let told = Variables::new()
            .with("SERVICE_UID", wanted.uid())
            .with("LOAD_BALANCER_ID", &made.id)
            .with("LOAD_BALANCER_NAME", &made.name);
        self.hook("make-drift", &told).await.map(drop)
    }

    /// One call of Ensure.
    pub(crate) async fn ensure_once(
        &self,
        wanted: &Wanted,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let request = self.ask(self.ensure_request(wanted));
        self.load_balancers().ensure_load_balancer(request).await
    }

    /// Repeats Ensure until it is done or refused: work in the background may find out later what it cannot do.
    pub(crate) async fn ensure_or_refused(
        &self,
        wanted: &Wanted,
    ) -> Result<Result<Response<EnsureLoadBalancerResponse>, Status>, Stop> {
        self.to_its_end("EnsureLoadBalancer", async || {
            let answer = self.ensure_once(wanted).await;
            let goes_on = answer.as_ref().ok().and_then(|answer| answer.get_ref().in_progress.clone());
            Ok(goes_on.map_or(Ok(answer), Err))
        })
        .await
    }

    /// The same where it must be refused: who says for ever that it goes on does not refuse it.
    pub(crate) async fn refusal(
        &self,
        wanted: &Wanted,
    ) -> Result<Result<Response<EnsureLoadBalancerResponse>, Status>, Stop> {
        self.ensure_or_refused(wanted).await.map_err(|stop| match stop {
            Stop::NotRun(why) => failed("a refusal", why),
            stop => stop,
        })
    }

    /// Repeats Ensure until it is done, and returns the last response.
    pub(crate) async fn ensure(&self, wanted: &Wanted) -> Result<EnsureLoadBalancerResponse, Stop> {
        good("EnsureLoadBalancer", self.ensure_or_refused(wanted).await?)
    }

    /// Repeats Ensure until it is done, and returns the balancer.
    pub(crate) async fn ensured(&self, wanted: &Wanted) -> Result<LoadBalancer, Stop> {
        let answer = self.ensure(wanted).await?;
        answer
            .load_balancer
            .ok_or_else(|| failed("load_balancer in the answer of EnsureLoadBalancer", "none"))
    }

    pub(crate) async fn get(&self, wanted: &Wanted) -> Result<LoadBalancer, Stop> {
        let get = GetLoadBalancerRequest {
            cluster: Some(wanted.cluster.clone()),
            service: Some(wanted.service_ref()),
        };
        let answer = good("GetLoadBalancer", self.load_balancers().get_load_balancer(self.ask(get)).await)?;
        answer.load_balancer.ok_or_else(|| failed("load_balancer in the answer of GetLoadBalancer", "none"))
    }

    pub(crate) fn delete_request(&self, wanted: &Wanted) -> DeleteLoadBalancerRequest {
        DeleteLoadBalancerRequest {
            cluster: Some(wanted.cluster.clone()),
            fencing: self.fencing(),
            service: Some(wanted.service_ref()),
            last_known: None,
            adoption: wanted.adoption.into(),
            revision: wanted.revision,
        }
    }

    /// One call of Delete.
    pub(crate) async fn delete_once(
        &self,
        request: DeleteLoadBalancerRequest,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        self.load_balancers().delete_load_balancer(self.ask(request)).await
    }

    /// Repeats Delete until it is done.
    pub(crate) async fn delete(&self, request: &DeleteLoadBalancerRequest) -> Outcome {
        self.to_its_end("DeleteLoadBalancer", async || {
            let answer = good("DeleteLoadBalancer", self.delete_once(request.clone()).await)?;
            Ok(answer.in_progress.map_or(Ok(()), Err))
        })
        .await
    }

    /// All balancers of a cluster.
    pub(crate) async fn listed(&self, cluster: &ClusterRef) -> Result<Vec<LoadBalancer>, Stop> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        for _page in 0..PAGES {
            let list = ListLoadBalancersRequest { cluster: Some(cluster.clone()), page_size: 0, page_token };
            let page =
                good("ListLoadBalancers", self.load_balancers().list_load_balancers(self.ask(list)).await)?;
            all.extend(page.load_balancers);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
        Err(failed("a walk that ends", format!("{PAGES} pages and no end")))
    }

    /// The balancers of one Service in the list.
    pub(crate) async fn listed_of(&self, wanted: &Wanted) -> Result<Vec<LoadBalancer>, Stop> {
        let all = self.listed(&wanted.cluster).await?;
        let uid = wanted.uid();
        let ours = |listed: &LoadBalancer| listed.service.as_ref().is_some_and(|service| service.uid == uid);
        Ok(all.into_iter().filter(ours).collect())
    }
}
