//! Takes a step of [`super::plan`] in AWS.

use std::collections::BTreeSet;

use aws_sdk_elasticloadbalancingv2::types::{
    self, ActionTypeEnum, IpAddressType, LoadBalancerSchemeEnum, LoadBalancerTypeEnum, ProtocolEnum,
};

use super::plan::{Balancer, Place, Step};
use super::wanted::{Health, Listener, TargetGroup, Wanted};
use crate::api::{Action, Deadline, Failure};
use crate::balancers::behind::without_unknown;
use crate::balancers::service::Texts;
use crate::balancers::told::Tagged;
use crate::cloud::Cloud;

/// What a step made, if it makes something.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub arn: String,
    /// Of a balancer.
    pub dns: String,
}

impl Made {
    fn arn(arn: Option<&str>) -> Self {
        Self { arn: arn.unwrap_or_default().to_owned(), dns: String::new() }
    }
}

/// Takes one step for the balancer with this ARN.
pub(super) async fn take(
    cloud: &Cloud,
    wanted: &Wanted,
    balancer: &str,
    step: &Step,
    until: Deadline,
) -> Result<Made, Failure> {
    let (elb, calls) = (&cloud.elb, &cloud.calls);
    match step {
        Step::CreateBalancer(place) => return create_balancer(cloud, wanted, place, until).await,
        Step::CreateGroup(group) => return create_group(cloud, wanted, group, until).await,
        Step::CreateListener { listener, group } => {
            let asked = elb
                .create_listener()
                .load_balancer_arn(balancer)
                .port(listener.port)
                .protocol(listener.protocol.clone())
                .default_actions(forward(group))
                .set_certificates(certificates(listener))
                .set_ssl_policy(policy(listener))
                .set_tags(Some(tags(&wanted.tags)));
            let answer = calls.make(Action::CreateListener, until, asked.send()).await?;
            return Ok(Made::arn(answer.listeners().first().and_then(|one| one.listener_arn())));
        }
        Step::ModifyListener { arn, listener, group } => {
            let asked = elb
                .modify_listener()
                .listener_arn(arn)
                .port(listener.port)
                .protocol(listener.protocol.clone())
                .default_actions(forward(group))
                .set_certificates(certificates(listener))
                .set_ssl_policy(policy(listener));
            calls.make(Action::ModifyListener, until, asked.send()).await.map(drop)?;
        }
        Step::DeleteListener { arn } => {
            let asked = elb.delete_listener().listener_arn(arn);
            calls.make(Action::DeleteListener, until, asked.send()).await.map(drop)?;
        }
        Step::DeleteGroup { group } => delete_group(cloud, group, until).await?,
        Step::Tag(new) => tag(cloud, &[balancer.to_owned()], new, until).await?,
        Step::SetFamilies { dual_stack } => {
            let asked =
                elb.set_ip_address_type().load_balancer_arn(balancer).ip_address_type(family(*dual_stack));
            calls.make(Action::SetIpAddressType, until, asked.send()).await.map(drop)?;
        }
        Step::SetSubnets(subnets) => {
            let mappings = mappings(wanted, subnets);
            let asked = elb.set_subnets().load_balancer_arn(balancer).set_subnet_mappings(Some(mappings));
            calls.make(Action::SetSubnets, until, asked.send()).await.map(drop)?;
        }
        Step::SetSecurityGroups(groups) => {
            let asked = elb.set_security_groups().load_balancer_arn(balancer);
            let asked = asked.set_security_groups(Some(groups.clone()));
            calls.make(Action::SetSecurityGroups, until, asked.send()).await.map(drop)?;
        }
        Step::SetAttributes(attributes) => {
            let of = |(key, value)| types::LoadBalancerAttribute::builder().key(key).value(value).build();
            let attributes = attributes.iter().map(of).collect();
            let asked = elb
                .modify_load_balancer_attributes()
                .load_balancer_arn(balancer)
                .set_attributes(Some(attributes));
            calls.make(Action::ModifyLoadBalancerAttributes, until, asked.send()).await.map(drop)?;
        }
        Step::SetHealth { group, health } => {
            let asked = elb
                .modify_target_group()
                .target_group_arn(group)
                .health_check_port(&health.port)
                .set_health_check_path(path(health))
                .healthy_threshold_count(health.healthy)
                .unhealthy_threshold_count(health.unhealthy);
            calls.make(Action::ModifyTargetGroup, until, asked.send()).await.map(drop)?;
        }
        Step::SetGroupAttributes { group, attributes } => {
            let of = |(key, value)| types::TargetGroupAttribute::builder().key(key).value(value).build();
            let attributes = attributes.iter().map(of).collect();
            let asked =
                elb.modify_target_group_attributes().target_group_arn(group).set_attributes(Some(attributes));
            calls.make(Action::ModifyTargetGroupAttributes, until, asked.send()).await.map(drop)?;
        }
        Step::Deregister { .. } | Step::Register { .. } => {
            targets(cloud, step, &mut BTreeSet::new(), until).await?;
        }
    }
    Ok(Made::default())
}

async fn create_balancer(
    cloud: &Cloud,
    wanted: &Wanted,
    place: &Place,
    until: Deadline,
) -> Result<Made, Failure> {
    let asked = cloud
        .elb
        .create_load_balancer()
        .name(&wanted.name)
        .r#type(LoadBalancerTypeEnum::Network)
        .set_scheme(wanted.internal.then_some(LoadBalancerSchemeEnum::Internal))
        .set_ip_address_type(wanted.families.dual_stack(place.has_v6).then_some(IpAddressType::Dualstack))
        .set_subnet_mappings(Some(mappings(wanted, &place.subnets)))
        .set_security_groups(place.security_groups.clone())
        .set_tags(Some(tags(&wanted.tags)));
    let answer = cloud.calls.make(Action::CreateLoadBalancer, until, asked.send()).await?;
    let made = answer.load_balancers().first();
    let dns = made.and_then(|one| one.dns_name()).unwrap_or_default().to_owned();
    Ok(Made { dns, ..Made::arn(made.and_then(|one| one.load_balancer_arn())) })
}

async fn create_group(
    cloud: &Cloud,
    wanted: &Wanted,
    group: &TargetGroup,
    until: Deadline,
) -> Result<Made, Failure> {
    let health = &group.health;
    let asked = cloud
        .elb
        .create_target_group()
        .name(&group.name)
        .vpc_id(&cloud.vpc)
        .port(group.port)
        .protocol(group.protocol.clone())
        .target_type(types::TargetTypeEnum::Instance)
        .health_check_protocol(health.protocol.clone())
        .health_check_port(&health.port)
        .set_health_check_path(path(health))
        .health_check_interval_seconds(health.interval)
        .healthy_threshold_count(health.healthy)
        .unhealthy_threshold_count(health.unhealthy)
        .set_tags(Some(tags(&wanted.tags)));
    let answer = cloud.calls.make(Action::CreateTargetGroup, until, asked.send()).await?;
    Ok(Made::arn(answer.target_groups().first().and_then(|one| one.target_group_arn())))
}

/// Takes a step that moves targets. Those that leave are no more `there`, also if it takes several calls, of which one fails.
pub(super) async fn targets(
    cloud: &Cloud,
    step: &Step,
    there: &mut BTreeSet<String>,
    until: Deadline,
) -> Result<(), Failure> {
    match step {
        Step::Deregister { group, targets } => {
            let mut calls = vec![targets.clone()];
            while let Some(targets) = calls.pop() {
                let asked = cloud.elb.deregister_targets().target_group_arn(group);
                let asked = asked.set_targets(Some(described(&targets))).send();
                match cloud.calls.make(Action::DeregisterTargets, until, asked).await {
                    Err(failure) if failure.code() == "InvalidTarget" => {
                        calls.extend(without_unknown(targets, failure.message()));
                    }
                    answer => {
                        answer.map(drop)?;
                        there.retain(|one| !targets.contains(one));
                    }
                }
            }
            Ok(())
        }
        Step::Register { group, targets } => {
            let asked = cloud.elb.register_targets().target_group_arn(group);
            let asked = asked.set_targets(Some(described(targets))).send();
            cloud.calls.make(Action::RegisterTargets, until, asked).await.map(drop)
        }
        _ => Ok(()),
    }
}

pub(super) async fn delete_group(cloud: &Cloud, group: &str, until: Deadline) -> Result<(), Failure> {
    let asked = cloud.elb.delete_target_group().target_group_arn(group);
    cloud.calls.make(Action::DeleteTargetGroup, until, asked.send()).await.map(drop)
}

pub(super) async fn delete_balancer(cloud: &Cloud, arn: &str, until: Deadline) -> Result<(), Failure> {
    let asked = cloud.elb.delete_load_balancer().load_balancer_arn(arn);
    cloud.calls.make(Action::DeleteLoadBalancer, until, asked.send()).await.map(drop)
}

/// Gives several balancers the same tags, or none of them.
pub(super) async fn tag(cloud: &Cloud, arns: &[String], new: &Texts, until: Deadline) -> Result<(), Failure> {
    let asked = cloud.elb.add_tags().set_resource_arns(Some(arns.to_vec())).set_tags(Some(tags(new)));
    cloud.calls.make(Action::AddTags, until, asked.send()).await.map(drop)
}

impl Tagged for Balancer {
    fn tags(&mut self) -> &mut Texts {
        &mut self.tags
    }

    async fn tag(&self, cloud: &Cloud, new: &Texts, until: Deadline) -> Result<(), Failure> {
        tag(cloud, std::slice::from_ref(&self.arn), new, until).await
    }
}

fn tags(tags: &Texts) -> Vec<types::Tag> {
    tags.iter().map(|(key, value)| types::Tag::builder().key(key).value(value).build()).collect()
}

fn mappings(wanted: &Wanted, subnets: &[String]) -> Vec<types::SubnetMapping> {
    let mapping = |(at, subnet): (usize, &String)| {
        types::SubnetMapping::builder()
            .subnet_id(subnet)
            .set_allocation_id(wanted.allocations.get(at).cloned())
            .set_private_ipv4_address(wanted.private_addresses.get(at).cloned())
            .build()
    };
    subnets.iter().enumerate().map(mapping).collect()
}

fn family(dual_stack: bool) -> IpAddressType {
    if dual_stack { IpAddressType::Dualstack } else { IpAddressType::Ipv4 }
}

fn forward(group: &str) -> types::Action {
    types::Action::builder().r#type(ActionTypeEnum::Forward).target_group_arn(group).build()
}

fn certificates(listener: &Listener) -> Option<Vec<types::Certificate>> {
    let tls = listener.tls.as_ref()?;
    Some(vec![types::Certificate::builder().certificate_arn(&tls.certificate).build()])
}

fn policy(listener: &Listener) -> Option<String> {
    listener.tls.as_ref().map(|tls| tls.policy.clone()).filter(|policy| !policy.is_empty())
}

fn path(health: &Health) -> Option<String> {
    (health.protocol != ProtocolEnum::Tcp).then(|| health.path.clone())
}

/// The port is the group's.
fn described(targets: &[String]) -> Vec<types::TargetDescription> {
    targets.iter().map(|id| types::TargetDescription::builder().id(id).build()).collect()
}
