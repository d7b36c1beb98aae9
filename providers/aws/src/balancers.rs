//! Network balancers for Services.
//!
//! In: Services and their nodes. Out: balancers, target groups and rules in AWS, and what is there. [`wanted`] says what a
//! Service wants, [`read`] what AWS has, [`plan`] what to do next, [`apply`] does it, [`work`] until nothing is left, [`update`]
//! for nodes that come and go; [`rules`] opens the nodes, [`own_group`] the balancer, [`hosts`] knows which nodes AWS takes,
//! [`subnets`] where balancers go.

mod apply;
mod hosts;
mod names;
mod own_group;
mod plan;
mod read;
mod rules;
mod subnets;
mod update;
mod wanted;
mod work;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use cloudprovider_sdk::proto::{
    self, Adoption, BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, ClusterRef,
    DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
    EnsureLoadBalancerResponse, GetLoadBalancerRequest, GetLoadBalancerResponse, InProgress,
    ListLoadBalancersRequest, ListLoadBalancersResponse, LoadBalancer, LoadBalancerIngress,
    LoadBalancerState, Ownership, ServiceRef,
};
use cloudprovider_sdk::{CallContext, LoadBalancers, ProviderError, Result, async_trait, paging};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::{Action, Deadline, Failure, Stop, later};
use crate::cloud::Cloud;
use crate::config::Config;
use hosts::{Hosts, State};
use own_group::OwnGroup;
use plan::{Actual, Balancer, Group, Place};
use read::Whose;
use wanted::{Annotations, Defaults, Texts, Wanted};
use work::Work;

/// How soon to look whether a new balancer serves. AWS takes minutes.
const UNTIL_IT_SERVES: Duration = Duration::from_secs(20);
/// How soon to look whether what is deleted is gone.
const UNTIL_IT_IS_GONE: Duration = Duration::from_secs(5);
/// What was read of all new balancers at once is good for this long.
const GLANCE: Duration = Duration::from_secs(10);

/// The balancers of one cluster.
#[derive(Debug)]
pub(crate) struct Balancers {
    cloud: Cloud,
    defaults: Defaults,
    /// Where balancers go if no subnet is the cluster's.
    fallback_subnet: String,
    /// Nobody opens the nodes' security groups.
    closed_groups: bool,
    /// The labels of nodes that Services may select by.
    node_labels: Vec<String>,
    hosts: Hosts,
    /// One change at a time: rules of all balancers are on the same groups.
    rules: tokio::sync::Mutex<()>,
    /// What this process has applied, by the Service's uid.
    known: Mutex<HashMap<String, Known>>,
    /// The balancers that do not serve yet, by ARN, and when they were read.
    starting: tokio::sync::Mutex<Option<(Instant, BTreeSet<String>)>>,
}

/// What this process has applied for a Service: a memory of its own writes, never of the cloud.
#[derive(Debug, Clone)]
struct Known {
    balancer: Balancer,
    groups: Vec<Group>,
    /// The security groups that its nodes had when they were opened.
    seen: BTreeSet<String>,
}

impl Balancers {
    pub(crate) fn new(
        cloud: Cloud,
        config: &Config,
        network_by_default: bool,
        node_labels: Vec<String>,
    ) -> Self {
        let defaults = Defaults {
            cluster: cloud.cluster.clone(),
            health: config.health.clone(),
            network_by_default,
            security_groups: config.balancers_have_groups(),
        };
        Self {
            cloud,
            defaults,
            fallback_subnet: config.subnet.clone(),
            closed_groups: config.closed_groups,
            node_labels,
            hosts: Hosts::default(),
            rules: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
        }
    }

    /// Where the balancer is, or will be.
    async fn place(&self, wanted: &Wanted, actual: &Actual, until: Deadline) -> Result<(Place, Vec<String>)> {
        let there = actual.balancer.as_ref();
        let groups = wanted.groups();
        let subnets = match there {
            Some(balancer) if wanted.subnets.is_empty() => {
                let dual_stack = wanted.families.dual_stack(true);
                if !dual_stack && !rules::need_subnets(&groups, &wanted.source_ranges) {
                    let subnets = balancer.subnets.iter().cloned().collect();
                    return Ok((Place { subnets, has_v6: false, security_groups: None }, Vec::new()));
                }
                subnets::read(&self.cloud, balancer.subnets.iter().cloned().collect(), until).await?
            }
            _ => subnets::choose(&self.cloud, wanted, &self.fallback_subnet, until).await?,
        };
        let has_v6 = subnets.iter().all(|subnet| !subnet.ipv6_cidr_block_association_set().is_empty());
        let ids = subnets.iter().filter_map(|subnet| subnet.subnet_id().map(str::to_owned)).collect();
        let ranges = subnets.iter().filter_map(|subnet| subnet.cidr_block().map(str::to_owned)).collect();
        Ok((Place { subnets: ids, has_v6, security_groups: None }, ranges))
    }

    /// Opens the nodes to the balancer.
    async fn open(
        &self,
        claim: &rules::Claim,
        hosts: &Nodes,
        until: Deadline,
    ) -> Result<(BTreeSet<String>, bool)> {
        if self.closed_groups {
            return Ok((BTreeSet::new(), false));
        }
        let _turn = self.rules.lock().await;
        let mut groups = rules::Groups::read(&self.cloud, hosts, until).await?;
        let mut nodes = groups.of_nodes(hosts)?;
        if hosts.values().any(|host| host.state != State::Running) {
            // EC2 may have forgotten them for a while: what is open stays open.
            nodes.extend(groups.open_to(&claim.name));
        }
        let is_more = groups.grant(&self.cloud, claim, &nodes, until).await?;
        Ok((nodes, is_more))
    }

    /// Closes the nodes to what is not wanted.
    async fn close(
        &self,
        claim: &rules::Claim,
        nodes: &BTreeSet<String>,
        until: Deadline,
    ) -> Result<(), Failure> {
        if self.closed_groups {
            return Ok(());
        }
        let _turn = self.rules.lock().await;
        let mut groups = rules::Groups::read(&self.cloud, &Nodes::new(), until).await?;
        groups.revoke(&self.cloud, claim, nodes, until).await
    }

    async fn ensure(
        &self,
        ctx: &CallContext,
        request: &EnsureLoadBalancerRequest,
        (cluster, service): (&ClusterRef, &proto::Service),
        actual: &mut Actual,
    ) -> Result<(), Stop> {
        let until = Deadline::of_change(ctx);
        let reference = reference(service)?;
        let wanted = Wanted::of(service, cluster, &self.defaults)?;
        self.check_labels(&wanted.node_labels)?;
        let (balancer, groups) = tokio::try_join!(
            Box::pin(read::balancer(&self.cloud, &wanted.name, until)),
            Box::pin(read::all_groups(&self.cloud, until))
        )?;
        let is_new = balancer.is_none();
        if let Some(found) = &balancer {
            match read::whose(&self.cloud, &cluster.uid, reference, &found.tags) {
                Whose::Others => return Err(ProviderError::owned_by_other_cluster(&wanted.name).into()),
                Whose::Legacy if request.adoption() != Adoption::AdoptByLegacyName => {
                    return Err(ProviderError::adoption_refused(&wanted.name).into());
                }
                Whose::Ours | Whose::Legacy => {}
            }
            if found.internal != wanted.internal {
                let why = "a balancer cannot be moved into or out of the internet; delete the Service, and create it again";
                return Err(Annotations::error("aws-load-balancer-internal", why).into());
            }
        }
        let checked_by_others;
        (*actual, checked_by_others) =
            read::everything(&self.cloud, &cluster.uid, reference, (balancer, groups), until).await?;
        let (mut place, ranges) = self.place(&wanted, actual, until).await?;
        let dual_stack = wanted.families.dual_stack(place.has_v6);
        let clients = rules::of_clients(&wanted.listeners, &wanted.source_ranges, dual_stack);
        let own = own_group::guard(
            &self.cloud,
            (cluster, reference),
            (&wanted, &clients),
            (actual, &mut place),
            until,
        )
        .await?;
        let nodes = request.backends.iter().flat_map(|set| &set.nodes);
        let nodes = nodes.filter(|node| wanted::has_labels(node, &wanted.node_labels)).collect();
        let mut work = Work::of(self, ctx, nodes, until).await?;
        let claim = rules::Claim {
            name: wanted.name.clone(),
            wanted: rules::wanted(&wanted.name, &wanted.groups(), &wanted.source_ranges, &ranges),
            checked: actual.groups.iter().map(|group| rules::health_port(&group.is)).collect(),
            checked_by_others,
        };
        // What cannot be opened must not keep everything else from working.
        let opened = if is_new && work.hosts.is_empty() {
            Ok((BTreeSet::new(), false))
        } else {
            self.open(&claim, &work.hosts, until).await
        };
        work.converge(&wanted, &place, actual).await?;
        let (open, is_more) = opened?;
        if is_more {
            self.close(&claim, &open, until).await?;
        }
        if let Some(own) = own {
            own_group::unguard(&self.cloud, &own, (&wanted, &clients), until).await?;
        }
        if let Some(waits) = work.waits() {
            return Err(Stop::Later(waits));
        }
        let Some(balancer) = &mut actual.balancer else { return Ok(()) };
        let new = plan::missing(&digest_tags(&request.desired_digest), &balancer.tags);
        if !new.is_empty() {
            apply::tag(&self.cloud, std::slice::from_ref(&balancer.arn), &new, until).await?;
            balancer.tags.extend(new);
        }
        balancer.serves = balancer.serves || self.serves_now(&balancer.arn, until).await?;
        let serves = balancer.serves;
        let known =
            Known { balancer: balancer.clone(), groups: actual.groups.clone(), seen: work.security_groups() };
        self.known.lock().insert(reference.uid.clone(), known);
        if serves {
            return Ok(());
        }
        Err(Stop::Later(still_starting()))
    }

    /// The same Ensure again, while nothing but AWS's own work was left: whether that has ended. `None`: it is another one.
    async fn still_starts(
        &self,
        service: &ServiceRef,
        digest: &str,
        until: Deadline,
    ) -> Result<Option<(Balancer, bool)>, Failure> {
        let known = self.known.lock().get(&service.uid).map(|known| known.balancer.clone());
        let same = |one: &Balancer| !one.serves && !digest.is_empty() && digest_of(&one.tags) == digest;
        let Some(balancer) = known.filter(same) else { return Ok(None) };
        let serves = self.serves_now(&balancer.arn, until).await?;
        if serves && let Some(known) = self.known.lock().get_mut(&service.uid) {
            known.balancer.serves = true;
        }
        Ok(Some((balancer, serves)))
    }

    /// Looks at all balancers at once: many that were made together start together.
    async fn serves_now(&self, arn: &str, until: Deadline) -> Result<bool, Failure> {
        let mut starting = self.starting.lock().await;
        if let Some((at, arns)) = &*starting
            && at.elapsed() < GLANCE
            && arns.contains(arn)
        {
            return Ok(false);
        }
        let all = read::all_balancers(&self.cloud, until).await?;
        let (ready, others): (Vec<_>, Vec<_>) =
            all.iter().map(read::described).partition(|balancer| balancer.serves);
        let serves = ready.iter().any(|balancer| balancer.arn == arn);
        let arns = others.into_iter().map(|balancer| balancer.arn).collect();
        *starting = Some((Instant::now(), arns));
        Ok(serves)
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
        let name = names::balancer(&service.uid);
        let adopts = request.adoption() == Adoption::AdoptByLegacyName;
        let may_delete = |tags: &Texts| match read::whose(&self.cloud, &cluster.uid, service, tags) {
            Whose::Ours => true,
            Whose::Legacy => adopts,
            Whose::Others => false,
        };
        let balancer = read::balancer(&self.cloud, &name, until).await?;
        if balancer.as_ref().is_some_and(|found| !may_delete(&found.tags)) {
            return Ok(());
        }
        self.known.lock().remove(&service.uid);
        let all = read::all_groups(&self.cloud, until).await?;
        let found = all.of(&self.cloud, &cluster.uid, service, until).await?;
        if let Some(balancer) = &balancer {
            absence_is_fine(apply::delete_balancer(&self.cloud, &balancer.arn, until).await)?;
        }
        let mut in_use = false;
        let groups = [found.of_balancer, found.left].concat();
        for group in &groups {
            match apply::delete_group(&self.cloud, &group.arn, until).await {
                Err(failure) if failure.code() == "ResourceInUse" => in_use = true,
                answer => absence_is_fine(answer)?,
            }
        }
        let claim = rules::Claim {
            name,
            wanted: rules::Rules::new(),
            checked: groups.iter().map(|group| rules::health_port(&group.is)).collect(),
            checked_by_others: found.checked_by_others,
        };
        self.close(&claim, &BTreeSet::new(), until).await?;
        if self.defaults.security_groups || balancer.is_some_and(|one| !one.security_groups.is_empty()) {
            let name = names::security_group(&cluster.name, service);
            if let Some(own) = OwnGroup::find(&self.cloud, &name, until).await? {
                in_use |= !own.delete(&self.cloud, until).await?;
            }
        }
        if in_use {
            let message = "AWS still uses groups of the balancer that is deleted";
            return Err(Stop::Later(later(UNTIL_IT_IS_GONE, "DELETING", message)));
        }
        Ok(())
    }
}

type Nodes = HashMap<String, hosts::Host>;

fn absence_is_fine(answer: Result<(), Failure>) -> Result<(), Failure> {
    match answer {
        Err(failure) if read::is_gone(&failure) => Ok(()),
        answer => answer,
    }
}

fn still_starting() -> InProgress {
    later(UNTIL_IT_SERVES, "PROVISIONING", "AWS is starting the balancer")
}

fn reference(service: &proto::Service) -> Result<&ServiceRef> {
    let missing = || ProviderError::invalid_argument_shape("service.ref", "is missing");
    service.r#ref.as_ref().ok_or_else(missing)
}

fn digest_tags(digest: &str) -> Texts {
    let (applied, backends) = names::split(digest);
    [(names::APPLIED_TAG.to_owned(), applied), (names::BACKENDS_TAG.to_owned(), backends)].into()
}

fn digest_of(tags: &Texts) -> String {
    let of = |key| tags.get(key).map(String::as_str).unwrap_or_default();
    names::joined(of(names::APPLIED_TAG), of(names::BACKENDS_TAG))
}

/// As the contract has it.
fn told(service: &ServiceRef, balancer: &Balancer, ownership: Ownership) -> LoadBalancer {
    let state = if balancer.serves { LoadBalancerState::Active } else { LoadBalancerState::Pending };
    let ingress = LoadBalancerIngress { hostname: balancer.dns.clone(), ..LoadBalancerIngress::default() };
    LoadBalancer {
        service: Some(service.clone()),
        id: balancer.arn.clone(),
        name: names::balancer(&service.uid),
        state: state.into(),
        ingress: if balancer.dns.is_empty() { Vec::new() } else { vec![ingress] },
        applied_digest: digest_of(&balancer.tags),
        ownership: ownership.into(),
        ..LoadBalancer::default()
    }
}

fn absent(service: &ServiceRef, state: LoadBalancerState) -> LoadBalancer {
    LoadBalancer { service: Some(service.clone()), state: state.into(), ..LoadBalancer::default() }
}

#[async_trait]
impl LoadBalancers for Balancers {
    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse> {
        let (cluster, service) = (request.cluster.unwrap_or_default(), request.service.unwrap_or_default());
        let found = read::balancer(&self.cloud, &names::balancer(&service.uid), Deadline::of(ctx)).await?;
        let load_balancer = match &found {
            None => absent(&service, LoadBalancerState::Absent),
            Some(found) => match read::whose(&self.cloud, &cluster.uid, &service, &found.tags) {
                Whose::Ours => told(&service, found, Ownership::ByUid),
                Whose::Legacy => told(&service, found, Ownership::ByLegacyName),
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
        let cluster = request.cluster.clone().unwrap_or_default();
        let service = request.service.clone().unwrap_or_default();
        let reference = reference(&service)?;
        if let Some((balancer, serves)) =
            self.still_starts(reference, &request.desired_digest, Deadline::of(ctx)).await?
        {
            let balancer = Balancer { serves, ..balancer };
            return Ok(EnsureLoadBalancerResponse {
                load_balancer: Some(told(reference, &balancer, Ownership::ByUid)),
                in_progress: (!serves).then(still_starting),
                ..EnsureLoadBalancerResponse::default()
            });
        }
        self.known.lock().remove(&reference.uid);
        let mut actual = Actual::default();
        let in_progress = match self.ensure(ctx, &request, (&cluster, &service), &mut actual).await {
            Ok(()) => None,
            Err(Stop::Later(later)) => Some(later),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let load_balancer = match &actual.balancer {
            Some(balancer) => told(reference, balancer, Ownership::ByUid),
            None => absent(reference, LoadBalancerState::Pending),
        };
        Ok(EnsureLoadBalancerResponse {
            load_balancer: Some(load_balancer),
            in_progress,
            ..EnsureLoadBalancerResponse::default()
        })
    }

    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse> {
        update::all(self, ctx, request).await
    }

    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse> {
        match self.delete(ctx, &request).await {
            Ok(()) => Ok(DeleteLoadBalancerResponse::default()),
            Err(Stop::Later(later)) => Ok(DeleteLoadBalancerResponse {
                in_progress: Some(later),
                ..DeleteLoadBalancerResponse::default()
            }),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse> {
        let until = Deadline::of(ctx);
        let marker = paging::open(&request)?;
        let asked = self
            .cloud
            .elb
            .describe_load_balancers()
            .page_size(request.page_size.clamp(1, read::PAGE))
            .set_marker((!marker.is_empty()).then_some(marker))
            .send();
        let answer = match self.cloud.calls.make(Action::DescribeLoadBalancers, until, asked).await {
            // AWS takes its own markers for a while.
            Err(failure) if failure.code() == "ValidationError" && !request.page_token.is_empty() => {
                return Err(ProviderError::invalid_token());
            }
            answer => answer?,
        };
        let is_candidate = |one: &&aws_sdk_elasticloadbalancingv2::types::LoadBalancer| {
            read::is_network(one) && names::is_balancer(one.load_balancer_name().unwrap_or_default())
        };
        let found: Vec<_> = answer
            .load_balancers()
            .iter()
            .filter(is_candidate)
            .map(|one| (one.load_balancer_name().unwrap_or_default(), read::described(one)))
            .collect();
        let arns: Vec<_> = found.iter().map(|(_, one)| one.arn.clone()).collect();
        let mut tags = read::tags(&self.cloud, &arns, until).await?;
        let cluster = request.cluster.as_ref().map(|cluster| &*cluster.uid).unwrap_or_default();
        let ours = found.into_iter().filter_map(|(name, mut balancer)| {
            balancer.tags = tags.remove(&balancer.arn)?;
            let (owner, uid) = balancer.tags.get(names::OWNER_TAG)?.split_once('/')?;
            let (namespace, of_namespace) = balancer.tags.get(names::SERVICE_TAG)?.split_once('/')?;
            let service = ServiceRef {
                namespace: namespace.to_owned(),
                name: of_namespace.to_owned(),
                uid: uid.to_owned(),
            };
            (owner == cluster && names::balancer(uid) == name)
                .then(|| told(&service, &balancer, Ownership::ByUid))
        });
        let load_balancers = ours.collect();
        let next_page_token = paging::seal(&request, answer.next_marker().unwrap_or_default())?;
        Ok(ListLoadBalancersResponse {
            load_balancers,
            next_page_token,
            ..ListLoadBalancersResponse::default()
        })
    }
}
