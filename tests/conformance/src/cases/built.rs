//! What was built, according to the cloud and not to the provider.

use std::net::IpAddr;

use cloudprovider_proto::{
    service_names,
    v1alpha1::{ErrorReason, InstanceState, IpFamily, Protocol, TrafficPolicy},
};

use super::updates::updated;
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers},
    provider::in_words,
    trial::{INSPECT, Machine, Trial, Wanted, expect, failed, port_of, reason_of, same, tcp},
};

const RULE: &[&str] = &["built-as-asked"];
const LOOK: &[&str] = &[INSPECT];
const LOOK_AT_MACHINES: &[&str] = &[INSPECT, "create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new("BUILT-01", LoadBalancers, "each port stands, with its protocol and node port", RULE, &ports)
        .hooks(LOOK),
    Case::new(
        "BUILT-02",
        LoadBalancers,
        "ports that are wanted no more go, and a node port that moves is followed",
        RULE,
        &fewer_ports,
    )
    .hooks(LOOK),
    Case::new(
        "BUILT-03",
        LoadBalancers,
        "the instances of the set stand behind it, no other",
        RULE,
        &targets,
    )
    .words(&[
        "a node without an instance gets no traffic, is left out, and does not keep a digest from being",
    ])
    .hooks(LOOK_AT_MACHINES),
    Case::new("BUILT-04", LoadBalancers, "source ranges stand, or are refused", RULE, &source_ranges)
        .hooks(LOOK),
    Case::new("BUILT-05", LoadBalancers, "UDP stands as UDP, or is refused", RULE, &udp).hooks(LOOK),
    Case::new("BUILT-06", LoadBalancers, "IPv6 stands as IPv6, or is refused", RULE, &ipv6).hooks(LOOK),
    Case::new(
        "BUILT-07",
        LoadBalancers,
        "policy LOCAL asks the nodes at their health port, or is refused",
        RULE,
        &local,
    )
    .hooks(LOOK),
    Case::new(
        "BUILT-08",
        LoadBalancers,
        "every balancer of a batch gets the backends",
        &["update-every-item"],
        &whole_batch,
    )
    .hooks(LOOK_AT_MACHINES),
    Case::new(
        "BUILT-09",
        LoadBalancers,
        "new backends replace backends and nothing else",
        &["update-backends-only"],
        &backends_only,
    )
    .hooks(LOOK_AT_MACHINES),
    Case::new(
        "BUILT-10",
        LoadBalancers,
        "nothing stands once Delete is done",
        &["delete-by-key"],
        &nothing_after_delete,
    )
    .hooks(LOOK),
];

/// Changes the wanted state of a balancer.
pub(super) fn next(wanted: &Wanted, change: impl FnOnce(&mut Wanted)) -> Wanted {
    let mut next = Wanted {
        digest: format!("{}-{}", wanted.digest, wanted.revision % 1000),
        revision: wanted.revision + 1,
        ..wanted.clone()
    };
    change(&mut next);
    next
}

pub(super) fn behind(machines: &[Machine]) -> Vec<cloudprovider_proto::v1alpha1::NodeRef> {
    machines.iter().map(Machine::node).collect()
}

pub(super) async fn stands(t: &Trial, wanted: &Wanted) -> Outcome {
    let made = t.ensured(wanted).await?;
    t.stands(wanted).await?;
    let is_of = |family: IpFamily, ip: &str| ip.contains(':') == (family == IpFamily::Ipv6);
    let is_reached = |family: IpFamily| made.ingress.iter().any(|way| is_of(family, &way.ip));
    let by_name = made.ingress.iter().any(|way| !way.hostname.is_empty());
    let missing = wanted.service.ip_families().find(|family| !by_name && !is_reached(*family));
    expect(missing.is_none(), "a way in for each family of the Service", (missing, &made.ingress))?;
    let asked: Option<IpAddr> = wanted.service.load_balancer_ip.parse().ok();
    let ips: Vec<_> = made.ingress.iter().map(|way| way.ip.as_str()).collect();
    let is_there = asked.is_none() || by_name || ips.iter().any(|ip| ip.parse().ok() == asked);
    expect(is_there, format!("a way in at the address that is asked for, {asked:?}"), ips)
}

/// It is built as requested, or refused; it must not be anything else.
pub(super) async fn stands_or_is_refused(t: &Trial, what: &str, wanted: &Wanted) -> Outcome {
    match t.ensure_or_refused(wanted).await? {
        Ok(_) => stands(t, wanted).await,
        Err(status) => match reason_of(&status) {
            Some(ErrorReason::UnsupportedFeature | ErrorReason::InvalidConfiguration) => Ok(()),
            _ => Err(failed(
                format!("{what} that stands, UNSUPPORTED_FEATURE or INVALID_CONFIGURATION"),
                in_words(&status),
            )),
        },
    }
}

async fn ports(t: &Trial) -> Outcome {
    stands(t, &t.wanted().await?.changed(443)).await
}

async fn fewer_ports(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?.changed(443);
    t.ensure(&wanted).await?;
    let fewer = next(&wanted, |next| next.service.ports = vec![tcp(8080)]);
    stands(t, &fewer).await?;
    t.move_node_ports(&fewer);
    stands(t, &next(&fewer, |_| {})).await
}

async fn targets(t: &Trial) -> Outcome {
    let machines = t.machines(3).await?;
    let first = next(&t.wanted().await?, |first| first.nodes = behind(&machines[..2]));
    stands(t, &first).await?;
    // Its node is still there.
    let gone = t.own_machine().await?;
    t.steer_machine("terminate-instance", &gone).await?;
    if t.provider().serves(service_names::INSTANCES) {
        t.look_until(&gone.node(), &[InstanceState::Absent]).await?;
    }
    let second = next(&first, |second| {
        second.nodes = behind(&machines[1..]);
        second.nodes.push(gone.node());
    });
    same("applied_digest", &t.ensured(&second).await?.applied_digest, &second.digest)?;
    t.stands(&without(&second, &gone)).await?;
    let third = next(&second, |third| third.nodes.retain(|node| node.name != machines[1].name));
    done(updated(t, &[&third]).await?)?;
    t.stands(&without(&third, &gone)).await?;
    stands(t, &next(&third, |none| none.nodes.clear())).await
}

fn without(wanted: &Wanted, gone: &Machine) -> Wanted {
    let nodes = wanted.nodes.iter().filter(|node| node.name != gone.name);
    Wanted { nodes: nodes.cloned().collect(), ..wanted.clone() }
}

async fn source_ranges(t: &Trial) -> Outcome {
    let ranges = ["192.0.2.0/24", "198.51.100.7/32"].map(str::to_owned);
    let wanted = next(&t.wanted().await?, |wanted| wanted.service.source_ranges = ranges.to_vec());
    stands_or_is_refused(t, "a restriction", &wanted).await?;
    let narrower = next(&wanted, |narrower| narrower.service.source_ranges.truncate(1));
    stands_or_is_refused(t, "a narrower restriction", &narrower).await?;
    // A balancer open to few sources is opened to all, and the other way round.
    let open = t.wanted().await?;
    stands(t, &open).await?;
    let closed = next(&open, |closed| closed.service.source_ranges = ranges[..1].to_vec());
    stands_or_is_refused(t, "a restriction", &closed).await
}

async fn udp(t: &Trial) -> Outcome {
    let wanted = next(&t.wanted().await?, |wanted| wanted.service.ports = vec![port_of(Protocol::Udp, 5353)]);
    stands_or_is_refused(t, "a UDP port", &wanted).await
}

async fn ipv6(t: &Trial) -> Outcome {
    let wanted = next(&t.wanted().await?, |wanted| wanted.service.ip_families = vec![IpFamily::Ipv6.into()]);
    stands_or_is_refused(t, "a balancer of family IPv6", &wanted).await
}

async fn local(t: &Trial) -> Outcome {
    let wanted = next(&t.wanted().await?, |wanted| {
        wanted.service.external_traffic_policy = TrafficPolicy::Local.into();
        wanted.service.health_check_node_port = 32_123;
    });
    stands_or_is_refused(t, "policy LOCAL", &wanted).await
}

async fn whole_batch(t: &Trial) -> Outcome {
    let machines = t.machines(1).await?;
    let (one, other) = (t.wanted().await?, t.wanted().await?);
    t.ensure(&one).await?;
    t.ensure(&other).await?;
    let one = next(&one, |one| one.nodes = behind(&machines));
    let other = next(&other, |other| other.nodes = behind(&machines));
    done(updated(t, &[&one, &other]).await?)?;
    t.stands(&one).await?;
    t.stands(&other).await
}

async fn backends_only(t: &Trial) -> Outcome {
    let machines = t.machines(3).await?;
    let wanted = next(&t.wanted().await?.changed(443), |first| first.nodes = behind(&machines[..2]));
    t.ensure(&wanted).await?;
    let with_nodes = next(&wanted, |next| next.nodes = behind(&machines[1..]));
    // The Service has been edited meanwhile, and its Ensure is waiting.
    let edited = Wanted {
        service: next(&wanted, |next| next.service.ports.truncate(1)).service,
        ..with_nodes.clone()
    };
    done(updated(t, &[&edited]).await?)?;
    t.stands(&with_nodes).await
}

pub(super) fn done(results: Vec<cloudprovider_proto::v1alpha1::LoadBalancerUpdateResult>) -> Outcome {
    match results.into_iter().find(|result| result.error.is_some()) {
        Some(refused) => Err(failed("UPDATED", format!("{refused:?}"))),
        None => Ok(()),
    }
}

async fn nothing_after_delete(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    stands(t, &wanted).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    t.nothing_stands(&wanted).await
}
