//! Takes a step of [`super::plan`] in AWS.

use std::time::Duration;

use aws_sdk_elasticloadbalancing::error::BuildError;
use aws_sdk_elasticloadbalancing::types;

use super::plan::{Balancer, PROXY, Place, Step, tls_policy};
use super::wanted::{Health, Listener, Wanted};
use crate::api::{Action, Deadline, Failure};
use crate::balancers::behind::without_unknown;
use crate::balancers::service::Texts;
use crate::balancers::told::Tagged;
use crate::cloud::Cloud;

/// How long a listener may be away that is replaced, or made again.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// How often that is tried again while AWS throttles or is silent, and how long after.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_secs(2);

/// Takes one step for the balancer of this name. Returns the DNS name of a new one.
pub(super) async fn take(
    cloud: &Cloud,
    wanted: &Wanted,
    step: &Step,
    until: Deadline,
) -> Result<String, Failure> {
    let (elb, calls, name) = (&cloud.classic, &cloud.calls, &wanted.name);
    match step {
        Step::Create(place) => return create(cloud, wanted, place, until).await,
        Step::Tag(new) => tag(cloud, name, new, until).await?,
        Step::SetGroups(groups) => {
            let asked = elb.apply_security_groups_to_load_balancer().load_balancer_name(name);
            let asked = asked.set_security_groups(Some(groups.clone()));
            calls.make(Action::ApplySecurityGroupsToLoadBalancer, until, asked.send()).await.map(drop)?;
        }
        Step::Attach(subnets) => {
            let asked = elb.attach_load_balancer_to_subnets().load_balancer_name(name);
            let asked = asked.set_subnets(Some(subnets.clone()));
            calls.make(Action::AttachLoadBalancerToSubnets, until, asked.send()).await.map(drop)?;
        }
        Step::Detach(subnets) => {
            let asked = elb.detach_load_balancer_from_subnets().load_balancer_name(name);
            let asked = asked.set_subnets(Some(subnets.clone()));
            calls.make(Action::DetachLoadBalancerFromSubnets, until, asked.send()).await.map(drop)?;
        }
        Step::CreateProxyPolicy => {
            create_policy(cloud, name, (PROXY, "ProxyProtocolPolicyType"), ("ProxyProtocol", "true"), until)
                .await?;
        }
        Step::CreateTlsPolicy(policy) => {
            let is = (&*tls_policy(policy), "SSLNegotiationPolicyType");
            create_policy(cloud, name, is, ("Reference-Security-Policy", policy), until).await?;
        }
        Step::CreateListeners(new) => create_listeners(cloud, name, new, until).await?,
        Step::DeleteListeners(ports) => delete_listeners(cloud, name, ports, until).await?,
        Step::Replace { old, new } => {
            delete_listeners(cloud, name, &[new.port], until).await?;
            if let Err(failure) = create_again(cloud, name, new).await {
                create_again(cloud, name, &old.is).await?;
                if !old.policies.is_empty() {
                    let until = Deadline::after(REPLACED_WITHIN);
                    set_policies(cloud, name, old.is.port, &old.policies, until).await?;
                }
                return Err(failure);
            }
        }
        Step::SetCertificate { port, certificate } => {
            let asked = elb.set_load_balancer_listener_ssl_certificate().load_balancer_name(name);
            let asked = asked.load_balancer_port(*port).ssl_certificate_id(certificate);
            calls.make(Action::SetLoadBalancerListenerSSLCertificate, until, asked.send()).await.map(drop)?;
        }
        Step::SetTlsPolicy { port, policy } => {
            set_policies(cloud, name, *port, &[tls_policy(policy)], until).await?;
        }
        Step::SetProxy { node_port, on } => {
            let policies = if *on { vec![PROXY.to_owned()] } else { Vec::new() };
            let asked = elb.set_load_balancer_policies_for_backend_server().load_balancer_name(name);
            let asked = asked.instance_port(*node_port).set_policy_names(Some(policies));
            calls
                .make(Action::SetLoadBalancerPoliciesForBackendServer, until, asked.send())
                .await
                .map(drop)?;
        }
        Step::SetAttributes(wanted) => {
            let action = Action::ModifyLoadBalancerAttributes;
            let asked = elb.modify_load_balancer_attributes().load_balancer_name(name);
            let asked = asked.load_balancer_attributes(attributes(action, wanted)?);
            calls.make(action, until, asked.send()).await.map(drop)?;
        }
        Step::SetHealth(wanted) => {
            let action = Action::ConfigureHealthCheck;
            let check = health(wanted).map_err(|error| Failure::unwritten(action, error))?;
            let asked = elb.configure_health_check().load_balancer_name(name).health_check(check);
            calls.make(action, until, asked.send()).await.map(drop)?;
        }
        Step::Register(ids) => {
            let asked = elb.register_instances_with_load_balancer().load_balancer_name(name);
            let asked = asked.set_instances(Some(ids.iter().map(instance).collect()));
            calls.make(Action::RegisterInstancesWithLoadBalancer, until, asked.send()).await.map(drop)?;
        }
        Step::Deregister(ids) => {
            let mut left = vec![ids.clone()];
            while let Some(ids) = left.pop() {
                let asked = elb.deregister_instances_from_load_balancer().load_balancer_name(name);
                let asked = asked.set_instances(Some(ids.iter().map(instance).collect()));
                match calls.make(Action::DeregisterInstancesFromLoadBalancer, until, asked.send()).await {
                    Err(failure) if failure.code() == "InvalidInstance" => {
                        left.extend(without_unknown(ids, failure.message()));
                    }
                    answer => answer.map(drop)?,
                }
            }
        }
    }
    Ok(String::new())
}

async fn create_listeners(
    cloud: &Cloud,
    name: &str,
    new: &[Listener],
    until: Deadline,
) -> Result<(), Failure> {
    let action = Action::CreateLoadBalancerListeners;
    let asked = cloud.classic.create_load_balancer_listeners().load_balancer_name(name);
    let asked = asked.set_listeners(Some(all(action, new.iter().map(listener))?));
    cloud.calls.make(action, until, asked.send()).await.map(drop)
}

/// Makes a listener for a port that has lost its own. Whoever gave up meanwhile: the port must not stay closed.
async fn create_again(cloud: &Cloud, name: &str, new: &Listener) -> Result<(), Failure> {
    let until = Deadline::after(REPLACED_WITHIN);
    let mut last = None;
    for _ in 0..TRIES {
        match create_listeners(cloud, name, std::slice::from_ref(new), until).await {
            Err(failure) if failure.is_throttled() || failure.is_silence() => last = Some(failure),
            // The time is over: what AWS said last is why.
            Err(failure) if failure.paced_for().is_some() => return Err(last.unwrap_or(failure)),
            outcome => return outcome,
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    last.map_or(Ok(()), Err)
}

async fn delete_listeners(cloud: &Cloud, name: &str, ports: &[i32], until: Deadline) -> Result<(), Failure> {
    let asked = cloud.classic.delete_load_balancer_listeners().load_balancer_name(name);
    let asked = asked.set_load_balancer_ports(Some(ports.to_vec()));
    cloud.calls.make(Action::DeleteLoadBalancerListeners, until, asked.send()).await.map(drop)
}

/// Gives a listener these policies alone.
async fn set_policies(
    cloud: &Cloud,
    name: &str,
    port: i32,
    policies: &[String],
    until: Deadline,
) -> Result<(), Failure> {
    let asked = cloud.classic.set_load_balancer_policies_of_listener().load_balancer_name(name);
    let asked = asked.load_balancer_port(port).set_policy_names(Some(policies.to_vec()));
    cloud.calls.make(Action::SetLoadBalancerPoliciesOfListener, until, asked.send()).await.map(drop)
}

async fn create(cloud: &Cloud, wanted: &Wanted, place: &Place, until: Deadline) -> Result<String, Failure> {
    let action = Action::CreateLoadBalancer;
    let asked = cloud
        .classic
        .create_load_balancer()
        .load_balancer_name(&wanted.name)
        .set_scheme(wanted.internal.then(|| "internal".to_owned()))
        .set_listeners(Some(all(action, wanted.listeners.iter().map(listener))?))
        .set_subnets(Some(place.subnets.iter().cloned().collect()))
        .set_security_groups(Some(place.groups.clone()))
        .set_tags(Some(tags(action, &wanted.tags)?));
    let answer = cloud.calls.make(action, until, asked.send()).await?;
    Ok(answer.dns_name().unwrap_or_default().to_owned())
}

pub(super) async fn delete_balancer(cloud: &Cloud, name: &str, until: Deadline) -> Result<(), Failure> {
    let asked = cloud.classic.delete_load_balancer().load_balancer_name(name);
    cloud.calls.make(Action::DeleteLoadBalancer, until, asked.send()).await.map(drop)
}

/// AWS tags one at a time.
async fn tag(cloud: &Cloud, name: &str, new: &Texts, until: Deadline) -> Result<(), Failure> {
    let asked = cloud.classic.add_tags().load_balancer_names(name);
    let asked = asked.set_tags(Some(tags(Action::AddTags, new)?));
    cloud.calls.make(Action::AddTags, until, asked.send()).await.map(drop)
}

impl Tagged for Balancer {
    fn tags(&mut self) -> &mut Texts {
        &mut self.tags
    }

    async fn tag(&self, cloud: &Cloud, new: &Texts, until: Deadline) -> Result<(), Failure> {
        tag(cloud, &self.name, new, until).await
    }
}

async fn create_policy(
    cloud: &Cloud,
    balancer: &str,
    (name, kind): (&str, &str),
    (attribute, value): (&str, &str),
    until: Deadline,
) -> Result<(), Failure> {
    let attribute =
        types::PolicyAttribute::builder().attribute_name(attribute).attribute_value(value).build();
    let asked = cloud
        .classic
        .create_load_balancer_policy()
        .load_balancer_name(balancer)
        .policy_name(name)
        .policy_type_name(kind)
        .policy_attributes(attribute);
    match cloud.calls.make(Action::CreateLoadBalancerPolicy, until, asked.send()).await {
        Err(failure) if failure.code() == "DuplicatePolicyName" => Ok(()),
        answer => answer.map(drop),
    }
}

/// All parts of a call.
fn all<T>(action: Action, parts: impl Iterator<Item = Result<T, BuildError>>) -> Result<Vec<T>, Failure> {
    parts.collect::<Result<_, _>>().map_err(|error| Failure::unwritten(action, error))
}

fn tags(action: Action, tags: &Texts) -> Result<Vec<types::Tag>, Failure> {
    all(action, tags.iter().map(|(key, value)| types::Tag::builder().key(key).value(value).build()))
}

fn listener(wanted: &Listener) -> Result<types::Listener, BuildError> {
    let certificate = Some(wanted.certificate.clone()).filter(|certificate| !certificate.is_empty());
    types::Listener::builder()
        .load_balancer_port(wanted.port)
        .protocol(&wanted.protocol)
        .instance_port(wanted.node_port)
        .instance_protocol(&wanted.node_protocol)
        .set_ssl_certificate_id(certificate)
        .build()
}

fn health(wanted: &Health) -> Result<types::HealthCheck, BuildError> {
    types::HealthCheck::builder()
        .target(&wanted.target)
        .interval(wanted.interval)
        .timeout(wanted.timeout)
        .healthy_threshold(wanted.healthy)
        .unhealthy_threshold(wanted.unhealthy)
        .build()
}

fn attributes(action: Action, wanted: &Texts) -> Result<types::LoadBalancerAttributes, Failure> {
    let text = |key: &str| wanted.get(key).cloned();
    let flag = |key: &str| wanted.get(key).is_some_and(|text| text == "true");
    let number = |key: &str| wanted.get(key).and_then(|text| text.parse().ok());
    let log = types::AccessLog::builder()
        .enabled(flag("access_log.enabled"))
        .set_emit_interval(number("access_log.interval"))
        .set_s3_bucket_name(text("access_log.bucket"))
        .set_s3_bucket_prefix(text("access_log.prefix"));
    let draining = types::ConnectionDraining::builder()
        .enabled(flag("draining.enabled"))
        .set_timeout(number("draining.timeout"));
    let cross_zone = types::CrossZoneLoadBalancing::builder().enabled(flag("cross_zone.enabled"));
    let settings = types::ConnectionSettings::builder().set_idle_timeout(number("idle_timeout")).build();
    let attributes = types::LoadBalancerAttributes::builder()
        .access_log(log.build())
        .connection_draining(draining.build())
        .cross_zone_load_balancing(cross_zone.build())
        .connection_settings(settings.map_err(|error| Failure::unwritten(action, error))?);
    Ok(attributes.build())
}

fn instance(id: &String) -> types::Instance {
    types::Instance::builder().instance_id(id).build()
}
