//! The description of a running instance.

use std::collections::BTreeSet;

use cloudprovider_proto::v1alpha1::{Capability, NodeAddressType, NodeRef};

use super::instances::described;
use crate::{
    case::{Case, Outcome, Profile::Instances},
    trial::{Trial, expect, failed, same, under},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "INST-04",
        Instances,
        "provider IDs begin as advertised",
        &["provider-id-prefix", "discovery-prefix"],
        &prefix,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-05",
        Instances,
        "the provider ID is the same at each read",
        &["provider-id-stable"],
        &stable,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-06",
        Instances,
        "addresses of an IP type are IPs, and each has a type",
        &["address-valid"],
        &addresses,
    )
    .hooks(MACHINE),
    Case::new("INST-07", Instances, "no address is there twice", &["address-unique"], &unique_addresses)
        .hooks(MACHINE),
    Case::new(
        "INST-08",
        Instances,
        "type, zone, region and labels are valid label values",
        &["label-valid"],
        &labels,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-09",
        Instances,
        "no label lies within kubernetes.io or k8s.io",
        &["label-reserved"],
        &reserved,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-19",
        Instances,
        "annotations of a node are under advertised prefixes alone",
        &["annotation-prefix"],
        &annotations,
    )
    .hooks(MACHINE),
    Case::new("INST-13", Instances, "pod CIDRs are networks, at most one of a family", &[], &pod_cidrs)
        .words(&["Pod CIDRs, if the cloud allocates them: CAPABILITY_INSTANCE_POD_CIDRS."])
        .capability(Capability::InstancePodCidrs)
        .hooks(MACHINE),
];

async fn prefix(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let id = described(t, machine.new_node()).await?.provider_id;
    let prefixes = &t.provider().info.provider_id_prefixes;
    let begins = prefixes.iter().any(|prefix| !prefix.is_empty() && id.starts_with(prefix));
    expect(begins, format!("a provider ID that begins with one of {prefixes:?}"), &id)?;
    expect(id.len() <= 1 << 10, "a provider ID of at most 1 KiB", id.len())
}

async fn stable(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let first = described(t, machine.new_node()).await?.provider_id;
    for node in [machine.new_node(), machine.node(), machine.new_node()] {
        // Not from the first answer: once a node has its provider ID, the ID stays.
        let again =
            described(t, NodeRef { provider_id: machine.provider_id.clone(), ..node }).await?.provider_id;
        same("the provider ID", &again, &first)?;
    }
    Ok(())
}

async fn addresses(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    for address in described(t, machine.node()).await?.addresses {
        let is_ip = address.address.parse::<std::net::IpAddr>().is_ok();
        let fits = match address.r#type() {
            NodeAddressType::Unspecified => false,
            NodeAddressType::InternalIp | NodeAddressType::ExternalIp => is_ip,
            _ => !address.address.is_empty() && address.address.len() <= 253,
        };
        expect(fits, "a type, and an IP where the type is of IPs", &address)?;
    }
    Ok(())
}

async fn unique_addresses(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let addresses = described(t, machine.node()).await?.addresses;
    let distinct: BTreeSet<_> = addresses.iter().map(|address| (address.r#type, &address.address)).collect();
    expect(distinct.len() == addresses.len(), "no pair of type and address twice", &addresses)
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().copied().all(inner) && ends(bytes.first()) && ends(bytes.last())
}

/// A valid label value may be empty.
fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name(text),
        Some((domain, name)) => {
            let label = |label: &str| is_name(label) && !label.contains('_');
            domain.len() <= 253 && domain.split('.').all(label) && is_name(name)
        }
    }
}

async fn labels(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let instance = described(t, machine.node()).await?;
    for (what, value) in
        [("type", &instance.instance_type), ("zone", &instance.zone), ("region", &instance.region)]
    {
        expect(is_value(value), format!("{what}: a valid label value"), value)?;
    }
    for (key, value) in &instance.labels {
        expect(is_key(key) && is_value(value), "a valid label", format!("{key}={value}"))?;
    }
    Ok(())
}

async fn annotations(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let instance = described(t, machine.node()).await?;
    let prefixes = t.provider().capabilities.wants.clone().unwrap_or_default().node_annotation_writes;
    instance.annotations.keys().try_for_each(|key| under(&prefixes, key))
}

async fn reserved(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let instance = described(t, machine.node()).await?;
    for key in instance.labels.keys() {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |owner: &str| domain == owner || domain.ends_with(&format!(".{owner}"));
        expect(
            !within("kubernetes.io") && !within("k8s.io"),
            "no label within kubernetes.io or k8s.io",
            key,
        )?;
    }
    Ok(())
}

async fn pod_cidrs(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let cidrs = described(t, machine.node()).await?.pod_cidrs;
    let nets: Result<Vec<ipnet::IpNet>, _> = cidrs.iter().map(|cidr| cidr.parse()).collect();
    let nets = nets.map_err(|error| failed("CIDRs", format!("{cidrs:?}: {error}")))?;
    let v4 = nets.iter().filter(|net| net.addr().is_ipv4()).count();
    expect(v4 <= 1 && nets.len() - v4 <= 1, "at most one of a family", cidrs)
}
