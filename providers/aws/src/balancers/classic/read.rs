//! Reads what AWS has of classic balancers.
//!
//! In: names. Out: [`Balancer`], whose tags and attributes are read by themselves.

use std::collections::HashMap;

use aws_sdk_elasticloadbalancing::types;

use super::plan::{Balancer, Open, PROXY};
use super::wanted::{Health, Listener};
use crate::api::{Action, Deadline, Failure, Page, all_pages, marker};
use crate::balancers::service::Texts;
use crate::balancers::{PAGE, tags_of};
use crate::cloud::Cloud;

/// The balancer of this name, without its attributes.
pub(in crate::balancers) async fn balancer(
    cloud: &Cloud,
    name: &str,
    until: Deadline,
) -> Result<Option<Balancer>, Failure> {
    let asked = cloud.classic.describe_load_balancers().load_balancer_names(name).send();
    let answer = match cloud.calls.make(Action::DescribeLoadBalancers, until, asked).await {
        Err(failure) if failure.code() == "LoadBalancerNotFound" => return Ok(None),
        answer => answer?,
    };
    let Some(found) = answer.load_balancer_descriptions().first() else { return Ok(None) };
    // Without an entry, even an empty one, it has gone in the meantime.
    let tags = tags(cloud, &[name], until).await?.remove(name);
    Ok(tags.map(|tags| Balancer { tags, ..described(found) }))
}

/// A page of all balancers of the account in this region.
pub(super) async fn page(
    cloud: &Cloud,
    size: i32,
    at: Option<String>,
    until: Deadline,
) -> Result<Page<Balancer>, Failure> {
    let asked = cloud.classic.describe_load_balancers().page_size(size).set_marker(at).send();
    let answer = cloud.calls.make(Action::DescribeLoadBalancers, until, asked).await?;
    let balancers = answer.load_balancer_descriptions().iter().map(described).collect();
    Ok((balancers, marker(answer.next_marker)))
}

pub(super) async fn all(cloud: &Cloud, until: Deadline) -> Result<Vec<Balancer>, Failure> {
    all_pages(|at| page(cloud, PAGE, at, until)).await
}

fn described(found: &types::LoadBalancerDescription) -> Balancer {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let policies = found.policies();
    let policies = policies.map(types::Policies::other_policies).unwrap_or_default();
    let has_proxy =
        |one: &&types::BackendServerDescription| one.policy_names().iter().any(|one| one == PROXY);
    let proxied = found.backend_server_descriptions().iter().filter(has_proxy);
    Balancer {
        name: text(found.load_balancer_name()),
        dns: text(found.dns_name()),
        internal: found.scheme() == Some("internal"),
        tags: Texts::new(),
        subnets: found.subnets().iter().cloned().collect(),
        groups: found.security_groups().to_vec(),
        listeners: found.listener_descriptions().iter().filter_map(open).collect(),
        policies: policies.iter().cloned().collect(),
        proxied: proxied.filter_map(types::BackendServerDescription::instance_port).collect(),
        attributes: Texts::new(),
        health: found.health_check().map(health).unwrap_or_default(),
        instances: found.instances().iter().filter_map(|one| one.instance_id().map(str::to_owned)).collect(),
    }
}

fn open(found: &types::ListenerDescription) -> Option<Open> {
    let listener = found.listener()?;
    let protocol = listener.protocol();
    let is = Listener {
        port: listener.load_balancer_port(),
        protocol: protocol.to_ascii_uppercase(),
        node_port: listener.instance_port(),
        node_protocol: listener.instance_protocol().unwrap_or(protocol).to_ascii_uppercase(),
        certificate: listener.ssl_certificate_id().unwrap_or_default().to_owned(),
    };
    Some(Open { is, policies: found.policy_names().to_vec() })
}

fn health(found: &types::HealthCheck) -> Health {
    Health {
        target: found.target().to_owned(),
        interval: found.interval(),
        timeout: found.timeout(),
        healthy: found.healthy_threshold(),
        unhealthy: found.unhealthy_threshold(),
    }
}

/// The tags of these, by name.
pub(super) async fn tags(
    cloud: &Cloud,
    names: &[&str],
    until: Deadline,
) -> Result<HashMap<String, Texts>, Failure> {
    let read = |names: Vec<&str>| {
        let names = names.into_iter().map(str::to_owned).collect();
        async move {
            let asked = cloud.classic.describe_tags().set_load_balancer_names(Some(names)).send();
            let answer = cloud.calls.make(Action::DescribeTags, until, asked).await?;
            let of = |tag: &types::Tag| (tag.key().to_owned(), tag.value().unwrap_or_default().to_owned());
            let told = answer.tag_descriptions().iter().map(|one| {
                (one.load_balancer_name().unwrap_or_default().to_owned(), one.tags().iter().map(of).collect())
            });
            Ok(told.collect())
        }
    };
    tags_of(names, read).await
}

/// The attributes that Services can set.
pub(super) async fn attributes(cloud: &Cloud, name: &str, until: Deadline) -> Result<Texts, Failure> {
    let asked = cloud.classic.describe_load_balancer_attributes().load_balancer_name(name).send();
    let answer = cloud.calls.make(Action::DescribeLoadBalancerAttributes, until, asked).await?;
    let Some(found) = answer.load_balancer_attributes() else { return Ok(Texts::new()) };
    let (log, draining) = (found.access_log(), found.connection_draining());
    let cross_zone = found.cross_zone_load_balancing().map(types::CrossZoneLoadBalancing::enabled);
    let idle = found.connection_settings().map(types::ConnectionSettings::idle_timeout);
    let all = [
        ("access_log.enabled", log.map(|log| log.enabled().to_string())),
        ("access_log.interval", log.and_then(|log| Some(log.emit_interval()?.to_string()))),
        ("access_log.bucket", log.and_then(|log| log.s3_bucket_name().map(str::to_owned))),
        ("access_log.prefix", log.and_then(|log| log.s3_bucket_prefix().map(str::to_owned))),
        ("cross_zone.enabled", cross_zone.map(|on| on.to_string())),
        ("draining.enabled", draining.map(|one| one.enabled().to_string())),
        ("draining.timeout", draining.and_then(|one| Some(one.timeout()?.to_string()))),
        ("idle_timeout", idle.map(|seconds| seconds.to_string())),
    ];
    Ok(all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}
