//! Reads what AWS has for a Service.
//!
//! In: names and ARNs. Out: the types of [`super::plan`].

use std::collections::{BTreeSet, HashMap};

use aws_sdk_elasticloadbalancingv2::types::{
    self, LoadBalancerSchemeEnum, LoadBalancerStateEnum, LoadBalancerTypeEnum, TargetHealthReasonEnum,
};
use cloudprovider_sdk::proto::ServiceRef;

use super::plan::{Actual, Balancer, Group, Open};
use super::wanted::{Health, TargetGroup, Tls};
use crate::api::{Action, Deadline, Failure, Page, all_pages, marker};
use crate::balancers::service::Texts;
use crate::balancers::told::{Whose, whose};
use crate::balancers::{PAGE, names, rules, tags_of};
use crate::cloud::Cloud;

/// The balancer of this name, without listeners and attributes.
pub(in crate::balancers) async fn balancer(
    cloud: &Cloud,
    name: &str,
    until: Deadline,
) -> Result<Option<Balancer>, Failure> {
    let asked = cloud.elb.describe_load_balancers().names(name).send();
    let answer = match cloud.calls.make(Action::DescribeLoadBalancers, until, asked).await {
        Err(failure) if failure.code() == "LoadBalancerNotFound" => return Ok(None),
        answer => answer?,
    };
    let Some(found) = answer.load_balancers().iter().find(|one| is_network(one)) else { return Ok(None) };
    let balancer = described(found);
    let tags = tags(cloud, std::slice::from_ref(&balancer.arn), until).await?.remove(&balancer.arn);
    // Without an entry, even an empty one, it has gone in the meantime.
    Ok(tags.map(|tags| Balancer { tags, ..balancer }))
}

pub(super) fn is_network(balancer: &types::LoadBalancer) -> bool {
    balancer.r#type() == Some(&LoadBalancerTypeEnum::Network)
}

pub(super) fn described(found: &types::LoadBalancer) -> Balancer {
    let state = found.state().and_then(|state| state.code());
    let failed = (state == Some(&LoadBalancerStateEnum::Failed))
        .then(|| found.state().and_then(|state| state.reason()).unwrap_or("it does not say why").to_owned());
    Balancer {
        arn: found.load_balancer_arn().unwrap_or_default().to_owned(),
        // One that failed is reachable at no address.
        dns: found.dns_name().filter(|_| failed.is_none()).unwrap_or_default().to_owned(),
        failed,
        serves: matches!(state, Some(LoadBalancerStateEnum::Active | LoadBalancerStateEnum::ActiveImpaired)),
        internal: found.scheme() == Some(&LoadBalancerSchemeEnum::Internal),
        dual_stack: found.ip_address_type() == Some(&types::IpAddressType::Dualstack),
        subnets: found
            .availability_zones()
            .iter()
            .filter_map(|zone| zone.subnet_id().map(str::to_owned))
            .collect(),
        security_groups: found.security_groups().iter().cloned().collect(),
        ..Balancer::default()
    }
}

/// The tags of balancers and target groups, by ARN.
pub(super) async fn tags(
    cloud: &Cloud,
    arns: &[String],
    until: Deadline,
) -> Result<HashMap<String, Texts>, Failure> {
    let read = |arns| async move {
        let asked = cloud.elb.describe_tags().set_resource_arns(Some(arns)).send();
        let answer = cloud.calls.make(Action::DescribeTags, until, asked).await?;
        let of = |tag: &types::Tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()));
        let told = answer.tag_descriptions().iter().map(|one| {
            (one.resource_arn().unwrap_or_default().to_owned(), one.tags().iter().filter_map(of).collect())
        });
        Ok(told.collect())
    };
    tags_of(arns, read).await
}

/// Reads everything else that AWS has for a Service, and on which ports others are checked.
pub(super) async fn everything(
    cloud: &Cloud,
    cluster_uid: &str,
    service: &ServiceRef,
    actual: &mut Actual,
    until: Deadline,
) -> Result<BTreeSet<i32>, Failure> {
    let all = all_groups(cloud, until).await?;
    let checked_by_others;
    (actual.groups, checked_by_others) = all.of(cloud, cluster_uid, service, until).await?;
    for group in &mut actual.groups {
        group.attributes = group_attributes(cloud, &group.arn, until).await?;
        group.targets = targets(cloud, &group.arn, until).await?;
    }
    if let Some(balancer) = &mut actual.balancer {
        balancer.listeners = listeners(cloud, &balancer.arn, until).await?;
        balancer.attributes = attributes(cloud, &balancer.arn, until).await?;
    }
    Ok(checked_by_others)
}

/// All target groups of instances in the cluster's network, with the ARNs of the balancers that use them.
#[derive(Debug)]
pub(super) struct AllGroups(Vec<(Vec<String>, Group)>);

pub(super) async fn all_groups(cloud: &Cloud, until: Deadline) -> Result<AllGroups, Failure> {
    let page = async |at| {
        let asked = cloud.elb.describe_target_groups().page_size(PAGE).set_marker(at).send();
        let answer = cloud.calls.make(Action::DescribeTargetGroups, until, asked).await?;
        let is_of_instances = |one: &&types::TargetGroup| {
            one.vpc_id() == Some(&*cloud.vpc) && one.target_type() == Some(&types::TargetTypeEnum::Instance)
        };
        let groups = answer.target_groups().iter().filter(is_of_instances);
        let groups = groups.map(|one| (one.load_balancer_arns().to_vec(), group(one))).collect();
        Ok((groups, marker(answer.next_marker)))
    };
    all_pages(page).await.map(AllGroups)
}

impl AllGroups {
    /// Those of the balancer of a Service.
    pub(super) fn of_balancer(&self, service: &ServiceRef) -> Vec<Group> {
        // Also where the balancer is gone, and AWS still says that its groups are used.
        let part_of_arn = format!("/{}/", names::balancer(&service.uid));
        let is_used = |(at, _): &&(Vec<String>, Group)| at.iter().any(|arn| arn.contains(&part_of_arn));
        self.0.iter().filter(is_used).map(|(_, group)| group.clone()).collect()
    }

    /// On which ports the targets of other balancers of Services are checked.
    pub(super) fn checked_by_others(&self, service: &ServiceRef) -> BTreeSet<i32> {
        let part_of_arn = format!("/{}/", names::balancer(&service.uid));
        let is_anothers = |arn: &String| may_be_of_a_service(arn) && !arn.contains(&part_of_arn);
        let others = self.0.iter().filter(|(at, _)| at.iter().any(is_anothers));
        others.map(|(_, group)| rules::health_port(&group.is)).collect()
    }

    /// Those of the balancer of a Service, those that a former attempt for it left without one, and on which ports the targets of
    /// others are checked.
    pub(super) async fn of(
        &self,
        cloud: &Cloud,
        cluster_uid: &str,
        service: &ServiceRef,
        until: Deadline,
    ) -> Result<(Vec<Group>, BTreeSet<i32>), Failure> {
        let begin = names::groups(service);
        let unused = self.0.iter().filter(|(at, _)| at.is_empty()).map(|(_, group)| group);
        let unused = unused.filter(|group| group.is.name.starts_with(&begin));
        let mut left: Vec<_> = unused.cloned().collect();
        let arns: Vec<_> = left.iter().map(|group| group.arn.clone()).collect();
        let tags = tags(cloud, &arns, until).await?;
        // Other Services have names that begin alike.
        left.retain(|group| {
            tags.get(&group.arn).is_some_and(|tags| whose(cloud, cluster_uid, service, tags) != Whose::Others)
        });
        Ok(([self.of_balancer(service), left].concat(), self.checked_by_others(service)))
    }
}

/// Whether this is the ARN of a network balancer that is named like those of Services.
fn may_be_of_a_service(arn: &str) -> bool {
    let name = arn.split_once("/net/").and_then(|(_, name)| name.split('/').next());
    name.is_some_and(names::is_balancer)
}

/// A page of all balancers of the account in this region, of whatever type.
pub(super) async fn page(
    cloud: &Cloud,
    size: i32,
    at: Option<String>,
    until: Deadline,
) -> Result<Page<types::LoadBalancer>, Failure> {
    let asked = cloud.elb.describe_load_balancers().page_size(size).set_marker(at).send();
    let answer = cloud.calls.make(Action::DescribeLoadBalancers, until, asked).await?;
    Ok((answer.load_balancers.unwrap_or_default(), marker(answer.next_marker)))
}

pub(super) async fn all_balancers(
    cloud: &Cloud,
    until: Deadline,
) -> Result<Vec<types::LoadBalancer>, Failure> {
    all_pages(|at| page(cloud, PAGE, at, until)).await
}

/// All balancers with these names, without listeners and attributes.
pub(super) async fn balancers(
    cloud: &Cloud,
    wanted: &BTreeSet<String>,
    until: Deadline,
) -> Result<HashMap<String, Balancer>, Failure> {
    let mut all = HashMap::new();
    for one in all_balancers(cloud, until).await?.iter().filter(|one| is_network(one)) {
        let name = one.load_balancer_name().unwrap_or_default();
        if wanted.contains(name) {
            all.insert(name.to_owned(), described(one));
        }
    }
    let arns: Vec<_> = all.values().map(|one| one.arn.clone()).collect();
    let mut tags = tags(cloud, &arns, until).await?;
    all.retain(|_, one| match tags.remove(&one.arn) {
        Some(its) => {
            one.tags = its;
            true
        }
        None => false,
    });
    Ok(all)
}

fn group(found: &types::TargetGroup) -> Group {
    let protocol = |protocol: Option<&types::ProtocolEnum>| protocol.cloned().unwrap_or_else(|| "".into());
    Group {
        arn: found.target_group_arn().unwrap_or_default().to_owned(),
        is: TargetGroup {
            name: found.target_group_name().unwrap_or_default().to_owned(),
            port: found.port().unwrap_or_default(),
            protocol: protocol(found.protocol()),
            health: Health {
                protocol: protocol(found.health_check_protocol()),
                port: found.health_check_port().unwrap_or_default().to_owned(),
                path: found.health_check_path().unwrap_or_default().to_owned(),
                interval: found.health_check_interval_seconds().unwrap_or_default(),
                healthy: found.healthy_threshold_count().unwrap_or_default(),
                unhealthy: found.unhealthy_threshold_count().unwrap_or_default(),
            },
        },
        attributes: Texts::new(),
        targets: BTreeSet::new(),
    }
}

/// A group's targets but those that are leaving.
pub(super) async fn targets(
    cloud: &Cloud,
    group: &str,
    until: Deadline,
) -> Result<BTreeSet<String>, Failure> {
    let asked = cloud.elb.describe_target_health().target_group_arn(group).send();
    let answer = cloud.calls.make(Action::DescribeTargetHealth, until, asked).await?;
    let leaves = |one: &&types::TargetHealthDescription| {
        let reason = one.target_health().and_then(|health| health.reason());
        reason == Some(&TargetHealthReasonEnum::DeregistrationInProgress)
    };
    let stays = answer.target_health_descriptions().iter().filter(|one| !leaves(one));
    Ok(stays.filter_map(|one| one.target()?.id().map(str::to_owned)).collect())
}

pub(super) async fn group_attributes(cloud: &Cloud, group: &str, until: Deadline) -> Result<Texts, Failure> {
    let asked = cloud.elb.describe_target_group_attributes().target_group_arn(group).send();
    let answer = cloud.calls.make(Action::DescribeTargetGroupAttributes, until, asked).await?;
    let of = |one: &types::TargetGroupAttribute| Some((one.key()?.to_owned(), one.value()?.to_owned()));
    Ok(answer.attributes().iter().filter_map(of).collect())
}

async fn attributes(cloud: &Cloud, balancer: &str, until: Deadline) -> Result<Texts, Failure> {
    let asked = cloud.elb.describe_load_balancer_attributes().load_balancer_arn(balancer).send();
    let answer = cloud.calls.make(Action::DescribeLoadBalancerAttributes, until, asked).await?;
    let of = |one: &types::LoadBalancerAttribute| Some((one.key()?.to_owned(), one.value()?.to_owned()));
    Ok(answer.attributes().iter().filter_map(of).collect())
}

async fn listeners(cloud: &Cloud, balancer: &str, until: Deadline) -> Result<Vec<Open>, Failure> {
    let page = async |at| {
        let asked = cloud.elb.describe_listeners().load_balancer_arn(balancer).set_marker(at).send();
        let answer = cloud.calls.make(Action::DescribeListeners, until, asked).await?;
        Ok((answer.listeners().iter().map(open).collect(), marker(answer.next_marker)))
    };
    all_pages(page).await
}

fn open(found: &types::Listener) -> Open {
    let certificate = found.certificates().first().and_then(|one| one.certificate_arn());
    Open {
        arn: found.listener_arn().unwrap_or_default().to_owned(),
        port: found.port().unwrap_or_default(),
        protocol: found.protocol().cloned().unwrap_or_else(|| "".into()),
        tls: certificate.map(|certificate| Tls {
            certificate: certificate.to_owned(),
            policy: found.ssl_policy().unwrap_or_default().to_owned(),
        }),
        group: found
            .default_actions()
            .first()
            .and_then(|action| action.target_group_arn())
            .unwrap_or_default()
            .to_owned(),
    }
}
