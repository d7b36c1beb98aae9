//! One Service that asks for everything at once: through edits, at once, an update, and Delete.
//!
//! A cloud may refuse any part of it. What it takes must stand beside all that it took before, and what it refuses must
//! leave that alone.

use cloudprovider_proto::v1alpha1::{
    ErrorReason, IpFamily, IpFamilyPolicy, Protocol, Service, TrafficPolicy,
};

use super::{
    built::{behind, done, next, stands, stands_or_is_refused},
    idempotency::beside_others,
    updates::updated,
};
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers, Stop},
    provider::in_words,
    trial::{HOLDS, INSPECT, Trial, Wanted, expect, failed, port_of, reason_of, same, tcp},
};

const LOOK: &[&str] = &[INSPECT, "create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "BUILT-11",
        LoadBalancers,
        "a Service that grows edit by edit, and shrinks again, stands as asked at each step",
        &["built-as-asked", "ensure-keeps-working"],
        &grows_and_shrinks,
    )
    .hooks(LOOK),
    Case::new(
        "BUILT-12",
        LoadBalancers,
        "a Service with all of it stands at once, an update changes its instances alone, and Delete leaves nothing",
        &["built-as-asked", "update-backends-only", "delete-leaves-nothing"],
        &at_once,
    )
    .hooks(LOOK),
    Case::new(
        "BUILT-13",
        LoadBalancers,
        "two Services of one name in two namespaces, ensured at once, have a balancer each",
        &["delete-by-key", "built-as-asked"],
        &namesakes,
    )
    .hooks(&[INSPECT]),
];

/// An edit, and what it adds.
type Part = (&'static str, fn(&mut Service));

const PARTS: &[Part] = &[
    ("a dozen ports, up to 65535", |service| {
        service.ports.extend((0..11).map(|number| tcp(1000 + number)).chain([tcp(65_535)]));
    }),
    ("TCP and UDP on port 53", |service| {
        service.ports.extend([Protocol::Tcp, Protocol::Udp].map(|protocol| port_of(protocol, 53)));
    }),
    ("both families", |service| {
        service.ip_families = vec![IpFamily::Ipv4.into(), IpFamily::Ipv6.into()];
        service.set_ip_family_policy(IpFamilyPolicy::RequireDualStack);
    }),
    ("two source ranges", |service| {
        let other = if service.ip_families.len() > 1 { "2001:db8:7::/48" } else { "198.51.100.7/32" };
        service.source_ranges = vec!["192.0.2.0/24".to_owned(), other.to_owned()];
    }),
    ("affinity by client IP", |service| {
        service.client_ip_affinity = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    }),
    ("policy LOCAL", |service| {
        service.set_external_traffic_policy(TrafficPolicy::Local);
        service.health_check_node_port = HEALTH[0];
    }),
    ("another health check port", |service| {
        if service.external_traffic_policy() == TrafficPolicy::Local {
            service.health_check_node_port = HEALTH[1];
        }
    }),
    ("no node ports", |service| service.allocate_node_ports = Some(false)),
];

/// Reserved for documentation: a cloud that has none of its own to give refuses it.
const ADDRESSES: [&str; 2] = ["203.0.113.77", "2001:db8:77::77"];

const HEALTH: [i32; 2] = [32_123, 32_124];

/// Names the step in what a check says.
fn at(step: &str, outcome: Outcome) -> Outcome {
    outcome.map_err(|stop| match stop {
        Stop::Failed { expected, seen } => failed(format!("{step}: {expected}"), seen),
        other => other,
    })
}

/// Grows a balancer part by part. Returns what it has in the end, and the Services that stood before, the poorest first.
async fn grown(t: &Trial) -> Result<(Wanted, Vec<Service>), Stop> {
    let nodes = behind(&t.machines(1).await?);
    let first = Wanted { nodes, ..t.wanted().await? };
    at("one port", stands(t, &first).await)?;
    let (mut stood, mut last) = (Vec::new(), first);
    for (part, edit) in PARTS {
        let wanted = next(&last, |wanted| edit(&mut wanted.service));
        if wanted.service == last.service {
            continue;
        }
        match t.ensure_or_refused(&wanted).await? {
            Ok(_) => {
                at(&format!("with {part}, by an edit"), stands(t, &wanted).await)?;
                stood.push(std::mem::replace(&mut last, wanted).service);
            }
            Err(status) => {
                let refuses = [ErrorReason::UnsupportedFeature, ErrorReason::InvalidConfiguration];
                if !reason_of(&status).is_some_and(|reason| refuses.contains(&reason)) {
                    let expected = format!("{part}, or UNSUPPORTED_FEATURE or INVALID_CONFIGURATION");
                    return Err(failed(expected, in_words(&status)));
                }
                at(&format!("{part} having been refused"), t.stands(&last).await)?;
                // The refused edit has used its revision.
                last = Wanted { service: last.service, ..wanted };
            }
        }
    }
    Ok((last, stood))
}

async fn grows_and_shrinks(t: &Trial) -> Outcome {
    let (mut last, stood) = grown(t).await?;
    let address = ADDRESSES[usize::from(last.service.ip_families().next() == Some(IpFamily::Ipv6))];
    let there = next(&last, |there| there.service.load_balancer_ip = address.to_owned());
    at("another address", stands_or_is_refused(t, "the address that is asked for", &there).await)?;
    last = Wanted { service: last.service, ..there };
    for poorer in stood.into_iter().rev() {
        last = next(&last, |last| last.service = poorer);
        at("a part less", stands(t, &last).await)?;
        if last.service.external_traffic_policy() != TrafficPolicy::Local {
            let probed: Vec<_> = t.standing(&last).await?.iter().filter_map(|one| one.probed()).collect();
            let former = probed.iter().any(|port| HEALTH.contains(port));
            let expected =
                "no probe of the former health check port, where no node answers under policy CLUSTER";
            expect(!former, expected, probed)?;
        }
    }
    Ok(())
}

async fn at_once(t: &Trial) -> Outcome {
    let (model, _) = grown(t).await?;
    let counts = t.scenario().lacks(&[HOLDS]).is_none();
    let before = if counts { Some(t.cloud_holds().await?) } else { None };
    let nodes = behind(&t.machines(3).await?);
    let bare = t.unmade().await?;
    // Node ports, since they are compared where there are some.
    let service = Service { r#ref: bare.service.r#ref.clone(), allocate_node_ports: None, ..model.service };
    let rich = Wanted { service, nodes: nodes[..2].to_vec(), ..bare };
    at("all at once", stands(t, &rich).await)?;
    let mut last = rich;
    for nodes in [&nodes[1..], &nodes[..1], &nodes[..0]] {
        last = Wanted { nodes: nodes.to_vec(), ..next(&last, |_| {}) };
        done(updated(t, &[&last]).await?)?;
        at("after an update", t.stands(&last).await)?;
    }
    t.delete(&t.delete_request(&last)).await?;
    t.nothing_stands(&last).await?;
    match before {
        Some(before) => t.holds_no_more_than(&before).await,
        None => Ok(()),
    }
}

async fn namesakes(t: &Trial) -> Outcome {
    let name = t.name();
    let one = t.namesake(&name, 1).await?;
    let other = next(&t.namesake(&name, 2).await?, |other| other.service.ports = vec![tcp(8080)]);
    t.slow_if_it_can_be().await?;
    let (made, other_made) = tokio::join!(t.ensure_once(&one), t.ensure_once(&other));
    t.restore("slow-cloud").await?;
    for (wanted, answer) in [(&one, made), (&other, other_made)] {
        let is_done = answer.as_ref().is_ok_and(|answer| answer.get_ref().in_progress.is_none());
        beside_others(answer)?;
        // What is done is not mended by another Ensure.
        if !is_done {
            t.ensure(wanted).await?;
        }
    }
    for wanted in [&one, &other] {
        at("beside its namesake", t.stands(wanted).await)?;
        let seen = t.get(wanted).await?;
        same("the Service of the balancer", &seen.service.unwrap_or_default(), &wanted.service_ref())?;
        same("applied_digest", &seen.applied_digest, &wanted.digest)?;
    }
    let other = next(&other, |other| other.service.ports.push(tcp(8443)));
    stands(t, &other).await?;
    at("its namesake being edited", t.stands(&one).await)?;
    t.delete(&t.delete_request(&one)).await?;
    t.nothing_stands(&one).await?;
    at("its namesake being deleted", t.stands(&other).await)
}
