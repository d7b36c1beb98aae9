//! Balancers for Services.
//!
//! In: Services and their nodes. Out: what AWS has for them. Here is decided which kind of balancer a Service gets;
//! [`network`] and [`classic`] do what is left to do for either. What both have in common: [`service`] reads Services, [`behind`]
//! knows which instances AWS takes, [`hosts`] what EC2 says of them, [`rules`] opens the nodes, [`own_group`] the balancer, [`common_group`]
//! is known to the nodes, [`subnets`]
//! where balancers go, [`names`] what things are called, [`told`] what the contract says of a balancer.

mod behind;
mod classic;
mod common_group;
mod hosts;
mod names;
mod network;
mod own_group;
mod rules;
mod service;
mod subnets;
mod told;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use cloudprovider_sdk::proto::{
    self, Adoption, BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, ClusterRef,
    DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
    EnsureLoadBalancerResponse, ErrorReason, GetLoadBalancerRequest, GetLoadBalancerResponse, InProgress,
    ListLoadBalancersRequest, ListLoadBalancersResponse, LoadBalancerState, LoadBalancerUpdate,
    LoadBalancerUpdateResult, NodeRef, Ownership, ServiceRef, UpdateOutcome,
};
use cloudprovider_sdk::{CallContext, LoadBalancers, ProviderError, Result, async_trait, paging};

use crate::api::{Deadline, Failure, Stop, later, marker};
use crate::cloud::Cloud;
use crate::config::Config;
use behind::instances_of;
use hosts::Hosts;
use service::{Annotations, Defaults, Kind, Texts};
use told::{Standing, Whose, absent, whose};

/// How soon to look whether what is deleted is gone.
const UNTIL_IT_IS_GONE: Duration = Duration::from_secs(5);
/// How soon to look again while a person has to remove a rule.
const WHILE_IT_IS_NAMED: Duration = Duration::from_secs(60);
/// Begins the tokens of the list's pages of classic balancers, which come after those of the others.
const CLASSIC_PAGES: &str = "classic:";

/// As many as one call tells the tags of, or tags.
const TAGGED: usize = 20;
/// The largest page of Elastic Load Balancing.
const PAGE: i32 = 400;
/// So many balancers change at the same time; AWS's own pace is slower.
const AT_ONCE: usize = 8;

/// The balancers of one cluster.
#[derive(Debug)]
pub(crate) struct Balancers {
    cloud: Cloud,
    defaults: Defaults,
    /// Services whose annotation names no kind get a network balancer.
    network_by_default: bool,
    /// The nodes let all network balancers in by one rule.
    shared_rule: bool,
    /// Nobody opens the nodes' security groups.
    closed_groups: bool,
    /// The labels of nodes that Services may select by.
    node_labels: Vec<String>,
    hosts: Hosts,
    /// One change at a time: rules of all balancers are on the same groups.
    rules: tokio::sync::Mutex<()>,
    /// Held by all whose balancers are about to have what all have in common, which may go while there are none.
    coming: tokio::sync::RwLock<()>,
    network: network::Memory,
}

/// An Ensure.
struct Asked<'a> {
    ctx: &'a CallContext,
    request: &'a EnsureLoadBalancerRequest,
    cluster: &'a ClusterRef,
    service: &'a proto::Service,
    reference: &'a ServiceRef,
    until: Deadline,
}

impl Asked<'_> {
    /// The Service's nodes, of which it may want only those with certain labels.
    fn nodes(&self, labels: &Texts) -> Vec<&NodeRef> {
        let nodes = self.request.backends.iter().flat_map(|set| &set.nodes);
        nodes.filter(|node| service::has_labels(node, labels)).collect()
    }

    /// Whether what AWS has may become what the Service wants.
    fn may_change(&self, cloud: &Cloud, is_internal: bool, internal: bool, tags: &Texts) -> Result<()> {
        let name = names::balancer(&self.reference.uid);
        match whose(cloud, &self.cluster.uid, self.reference, tags) {
            Whose::Others => return Err(ProviderError::owned_by_other_cluster(&name)),
            Whose::Legacy if self.request.adoption() != Adoption::AdoptByLegacyName => {
                return Err(ProviderError::adoption_refused(&name));
            }
            Whose::Ours | Whose::Legacy => {}
        }
        if is_internal != internal {
            let why = "a balancer cannot be moved into or out of the internet; delete the Service, and create it again";
            return Err(Annotations::error("aws-load-balancer-internal", why));
        }
        Ok(())
    }

    /// Tells what there is, and what is still to be done.
    fn answer(
        &self,
        balancer: Option<Standing<'_>>,
        outcome: Result<(), Stop>,
    ) -> Result<EnsureLoadBalancerResponse> {
        let pending = || absent(self.reference, LoadBalancerState::Pending);
        let told = |one: Standing<'_>| one.told(self.reference, Ownership::ByUid);
        let load_balancer = balancer.map_or_else(pending, told);
        Ok(EnsureLoadBalancerResponse {
            load_balancer: Some(load_balancer),
            in_progress: in_progress(outcome)?,
            ..EnsureLoadBalancerResponse::default()
        })
    }

    /// Whether a balancer with these tags, of another kind than the Service would get now, is the Service's. It stays, whatever is
    /// the default now, and must not be left behind where the Service names another kind.
    fn keeps(&self, cloud: &Cloud, tags: &Texts) -> Result<bool> {
        if whose(cloud, &self.cluster.uid, self.reference, tags) == Whose::Others {
            return Ok(false);
        }
        if Annotations::of(self.service).names_kind() {
            let why = "a balancer cannot change its type; delete the Service, and create it again";
            return Err(Annotations::error("aws-load-balancer-type", why));
        }
        Ok(true)
    }
}

/// What AWS has for a Service, by the kind that it gets or keeps.
enum There {
    Network(Option<network::Balancer>),
    Classic(Option<classic::Balancer>),
}

/// Stands for what balancers are made of besides Services and nodes.
pub(crate) fn settings(config: &Config, shared_rule: bool) -> String {
    let Config { health, shared_group, closed_groups, subnet, .. } = config;
    let have_groups = config.balancers_have_groups();
    let settings = (health, have_groups, shared_group, closed_groups, subnet, shared_rule);
    names::short_hash(&format!("{} {settings:?}", env!("CARGO_PKG_VERSION")))
}

impl Balancers {
    pub(crate) fn new(
        cloud: Cloud,
        config: &Config,
        (network_by_default, shared_rule): (bool, bool),
        node_labels: Vec<String>,
    ) -> Self {
        let defaults = Defaults {
            cluster: cloud.cluster.clone(),
            health: config.health.clone(),
            security_groups: config.balancers_have_groups(),
            shared_group: config.shared_group.clone(),
        };
        Self {
            cloud,
            defaults,
            network_by_default,
            shared_rule,
            closed_groups: config.closed_groups,
            node_labels,
            hosts: Hosts::default(),
            rules: tokio::sync::Mutex::default(),
            coming: tokio::sync::RwLock::default(),
            network: network::Memory::default(),
        }
    }

    fn kind<'a>(&self, service: &'a proto::Service) -> Kind<'a> {
        Annotations::of(service).kind(self.network_by_default)
    }

    async fn there(&self, asked: &Asked<'_>) -> Result<There> {
        let (cloud, until) = (&self.cloud, asked.until);
        let name = names::balancer(&asked.reference.uid);
        match self.kind(asked.service) {
            Kind::Network => {
                let of_network = network::read(cloud, &name, until).await?;
                if of_network.is_none() {
                    let of_classic = classic::read(&self.cloud, &name, until).await?;
                    if let Some(found) = of_classic
                        && asked.keeps(cloud, &found.tags)?
                    {
                        return Ok(There::Classic(Some(found)));
                    }
                }
                Ok(There::Network(of_network))
            }
            Kind::Classic => {
                let of_classic = classic::read(&self.cloud, &name, until).await?;
                if of_classic.is_none()
                    && let Some(found) = network::read(cloud, &name, until).await?
                    && asked.keeps(cloud, &found.tags)?
                {
                    return Ok(There::Network(Some(found)));
                }
                Ok(There::Classic(of_classic))
            }
            Kind::Elsewhere(who) => Err(ProviderError::implemented_elsewhere(who)),
        }
    }

    fn check_labels(&self, wanted: &Texts) -> Result<()> {
        match wanted.keys().find(|key| !self.node_labels.contains(key)) {
            None => Ok(()),
            Some(key) => {
                let why = format!(
                    "label {key:?} is unknown here; start the provider with --target-node-labels={key}"
                );
                Err(Annotations::error("aws-load-balancer-target-node-labels", &why))
            }
        }
    }

    async fn delete(&self, ctx: &CallContext, request: &DeleteLoadBalancerRequest) -> Result<(), Stop> {
        let until = Deadline::of_change(ctx);
        let (Some(cluster), Some(service)) = (&request.cluster, &request.service) else { return Ok(()) };
        let adopts = request.adoption() == Adoption::AdoptByLegacyName;
        let may_delete = |tags: &Texts| match whose(&self.cloud, &cluster.uid, service, tags) {
            Whose::Ours => true,
            Whose::Legacy => adopts,
            Whose::Others => false,
        };
        let of_network = network::delete(self, (cluster, service), may_delete, until).await?;
        let of_classic = classic::Going::read(self, service, may_delete, until).await?;
        let groups = {
            let _turn = self.rules.lock().await;
            let mut groups = rules::Groups::read(&self.cloud, &Nodes::new(), until).await?;
            if let Some(left) = of_network.as_ref().filter(|_| !self.closed_groups) {
                network::close_in(self, &mut groups, (&left.claim, service), &BTreeSet::new(), until).await?;
            }
            if let Some(going) = of_classic.as_ref().filter(|_| !self.closed_groups) {
                going.close(self, &mut groups, until).await?;
            }
            groups
        };
        let mut names = vec![
            names::security_group(&cluster.name, service),
            names::classic_group(&names::balancer(&service.uid)),
        ];
        let mut in_use = false;
        if let Some(going) = of_classic {
            in_use |= going.delete(self, &groups, until).await?;
        }
        if let Some(left) = of_network {
            in_use |= left.end(self, (cluster, service), &groups, until).await?;
            let common = common_group::among(self, &groups);
            // Others may have it: then it stays, and so may what names it.
            if !common_group::end_unless_used(self, common, until).await? {
                in_use = true;
                names.push(common_group::name(self));
            }
        }
        if in_use {
            return Err(detaching(&groups, &names));
        }
        Ok(())
    }
}

/// What is left to be done about groups that AWS still uses, of which the security groups have these names.
fn detaching(groups: &rules::Groups, names: &[String]) -> Stop {
    for own in names {
        if let Some((id, naming)) = groups.naming(own) {
            let why = format!(
                "AWS keeps security group {id} ({own}) for as long as rules of {naming:?} name it: remove these rules"
            );
            return Stop::Failed(ProviderError::retry_later(WHILE_IT_IS_NAMED, &why));
        }
    }
    Stop::Later(later(UNTIL_IT_IS_GONE, "DETACHING", "AWS still uses groups that the balancer had"))
}

/// A balancer's own security group has room for its clients now, and takes the place of the former ones.
fn makes_room() -> Stop {
    Stop::Later(later(UNTIL_IT_IS_GONE, "MAKING_ROOM", "the balancer gets a security group of its own"))
}

type Nodes = HashMap<String, hosts::Host>;

fn is_gone(failure: &Failure) -> bool {
    matches!(failure.code(), "LoadBalancerNotFound" | "TargetGroupNotFound" | "ListenerNotFound")
}

/// The tags of all of these, which `read` asks AWS for. If one has gone in the meantime, AWS tells those of none: then each is
/// asked for alone.
async fn tags_of<T: Clone, R: Future<Output = Result<HashMap<String, Texts>, Failure>>>(
    all: &[T],
    read: impl Fn(Vec<T>) -> R,
) -> Result<HashMap<String, Texts>, Failure> {
    let (mut tags, mut chunks) = (HashMap::new(), all.chunks(TAGGED).collect::<Vec<_>>());
    while let Some(chunk) = chunks.pop() {
        match read(chunk.to_vec()).await {
            Err(failure) if is_gone(&failure) => chunks.extend(chunk.chunks(1).filter(|_| chunk.len() > 1)),
            told => tags.extend(told?),
        }
    }
    Ok(tags)
}

fn absence_is_fine(answer: Result<(), Failure>) -> Result<(), Failure> {
    match answer {
        Err(failure) if is_gone(&failure) => Ok(()),
        answer => answer,
    }
}

fn service_of(item: &LoadBalancerUpdate) -> Result<&proto::Service> {
    item.service.as_ref().ok_or_else(no_reference)
}

fn reference(service: &proto::Service) -> Result<&ServiceRef> {
    service.r#ref.as_ref().ok_or_else(no_reference)
}

fn no_reference() -> ProviderError {
    ProviderError::invalid_argument_shape("service.ref", "is missing")
}

/// The uid of an item's Service, or nothing where it is missing.
fn uid_of(item: &LoadBalancerUpdate) -> String {
    let reference = item.service.as_ref().and_then(|service| service.r#ref.as_ref());
    reference.map(|one| one.uid.clone()).unwrap_or_default()
}

/// The outcome of one item of a batch, by the Service's uid.
type Outcome = (String, Result<(), Stop>);

/// The outcomes but those of Services without a balancer of this kind, whose items are returned.
fn without_balancer(
    outcomes: Vec<Outcome>,
    mut items: Vec<LoadBalancerUpdate>,
) -> (Vec<Outcome>, Vec<LoadBalancerUpdate>) {
    let lacks_it = |outcome: &Result<(), Stop>| matches!(outcome, Err(Stop::Failed(error)) if error.reason() == ErrorReason::NeedsEnsure);
    let (without, done): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, outcome)| lacks_it(outcome));
    items.retain(|item| without.iter().any(|(uid, _)| *uid == uid_of(item)));
    (done, items)
}

/// Why one item of a batch goes no further. Of what they share nothing is left to the others while AWS listens to none of them.
fn stopped<T>(all: &mut Result<T, Failure>, failure: Failure) -> Stop {
    let stop = Stop::of(&failure);
    if stop.changed_nothing() {
        *all = Err(failure);
    }
    stop
}

fn updated((service_uid, outcome): Outcome) -> LoadBalancerUpdateResult {
    let result = LoadBalancerUpdateResult { service_uid, ..LoadBalancerUpdateResult::default() };
    let not_updated = UpdateOutcome::NotUpdated.into();
    match outcome {
        Ok(()) => LoadBalancerUpdateResult { outcome: UpdateOutcome::Updated.into(), ..result },
        Err(stop) => {
            let (in_progress, error) = stop.of_item();
            LoadBalancerUpdateResult { outcome: not_updated, in_progress, error, ..result }
        }
    }
}

fn in_progress(outcome: Result<(), Stop>) -> Result<Option<InProgress>> {
    match outcome {
        Ok(()) => Ok(None),
        Err(Stop::Later(later)) => Ok(Some(later)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

#[async_trait]
impl LoadBalancers for Balancers {
    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse> {
        let (cluster, service) = (request.cluster.unwrap_or_default(), request.service.unwrap_or_default());
        let (name, until) = (names::balancer(&service.uid), Deadline::of(ctx));
        let network = network::read(&self.cloud, &name, until).await?;
        let classic = match &network {
            None => classic::read(&self.cloud, &name, until).await?,
            Some(_) => None,
        };
        let network = network.as_ref().map(network::Balancer::standing);
        let load_balancer = match network.or(classic.as_ref().map(classic::Balancer::standing)) {
            None => absent(&service, LoadBalancerState::Absent),
            Some(found) => match whose(&self.cloud, &cluster.uid, &service, found.tags) {
                Whose::Ours => found.told(&service, Ownership::ByUid),
                Whose::Legacy => found.told(&service, Ownership::ByLegacyName),
                Whose::Others => absent(&service, LoadBalancerState::NotOwned),
            },
        };
        Ok(GetLoadBalancerResponse { load_balancer: Some(load_balancer) })
    }

    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse> {
        let cluster = &request.cluster.clone().unwrap_or_default();
        let service = &request.service.clone().unwrap_or_default();
        let (reference, until) = (reference(service)?, Deadline::of_change(ctx));
        let asked = Asked { ctx, request: &request, cluster, service, reference, until };
        self.network.begin(request.fencing.as_ref());
        if let Some(answer) = network::still_starting(self, &asked).await? {
            return Ok(answer);
        }
        match self.there(&asked).await? {
            There::Network(there) => network::ensure(self, &asked, there).await,
            There::Classic(there) => classic::ensure(self, &asked, there).await,
        }
    }

    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse> {
        let until = Deadline::of_change(ctx);
        self.network.begin(request.fencing.as_ref());
        let backends = request.backends.unwrap_or_default();
        let nodes: Vec<_> = backends.nodes.iter().collect();
        let cluster = request.cluster.unwrap_or_default();
        let (mut network, mut classic, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        for item in request.items {
            match item.service.as_ref().map_or(Kind::Network, |service| self.kind(service)) {
                Kind::Network => network.push(item),
                Kind::Classic => classic.push(item),
                Kind::Elsewhere(who) => {
                    outcomes.push((uid_of(&item), Err(ProviderError::implemented_elsewhere(who).into())));
                }
            }
        }
        let hosts = self.hosts.of(&self.cloud, &instances_of(self, &nodes), until).await?.into();
        let (of, on) = ((ctx, &cluster), (&*nodes, &hosts));
        let done = classic::update(self, of, &classic, on, until).await?;
        let (done, not_classic) = without_balancer(done, classic);
        outcomes.extend(done);
        let done = network::update(self, of, &network, on, until).await?;
        let (done, not_network) = without_balancer(done, network);
        outcomes.extend(done);
        // The type may have been changed, which Ensure refuses: the balancer that is there follows its nodes.
        outcomes.extend(network::update(self, of, &not_classic, on, until).await?);
        outcomes.extend(classic::update(self, of, &not_network, on, until).await?);
        Ok(BatchUpdateLoadBalancersResponse { results: outcomes.into_iter().map(updated).collect() })
    }

    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse> {
        let in_progress = in_progress(self.delete(ctx, &request).await)?;
        Ok(DeleteLoadBalancerResponse { in_progress, ..DeleteLoadBalancerResponse::default() })
    }

    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse> {
        let until = Deadline::of(ctx);
        let at: String = paging::open(&request)?;
        let cluster = request.cluster.as_ref().map(|cluster| &*cluster.uid).unwrap_or_default();
        let size = request.page_size.clamp(1, PAGE);
        let page = match at.strip_prefix(CLASSIC_PAGES) {
            Some(at) => classic::page(self, cluster, (size, marker(Some(at.to_owned()))), until)
                .await
                .map(|(page, next)| (page, next.map(|next| format!("{CLASSIC_PAGES}{next}")))),
            None => network::page(self, cluster, (size, marker(Some(at))), until)
                .await
                .map(|(page, next)| (page, next.or_else(|| Some(CLASSIC_PAGES.to_owned())))),
        };
        let (load_balancers, next) = match page {
            // AWS takes its own markers for a while.
            Err(failure) if failure.code() == "ValidationError" && !request.page_token.is_empty() => {
                return Err(ProviderError::invalid_token());
            }
            page => page?,
        };
        let next_page_token = paging::seal(&request, &next.unwrap_or_default())?;
        Ok(ListLoadBalancersResponse {
            load_balancers,
            next_page_token,
            ..ListLoadBalancersResponse::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_with_what_balancers_are_made_of() {
        let under = |setting: &str| settings(&Config::read(&format!("[Global]\n{setting}")).unwrap(), false);
        let plain = under("");
        for other in [
            "ElbSecurityGroup = sg-1",
            "NLBSecurityGroupMode = Managed",
            "ClusterServiceLoadBalancerHealthProbeMode = Shared",
            "DisableSecurityGroupIngress",
        ] {
            assert_ne!(under(other), plain, "{other}");
        }
        assert_eq!(under("Zone = us-east-1a"), plain, "what is no balancer's does not matter");
    }
}
