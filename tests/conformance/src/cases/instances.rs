//! What is said of machines, while they run.

use std::collections::BTreeSet;

use cloudprovider_proto::v1alpha1::{
    Capability, Instance, InstanceState, InstanceView, NodeAddressType, NodeRef,
};

use crate::{
    case::{Case, Outcome, Profile::Instances, Stop},
    trial::{Trial, expect, failed, good, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new("INST-01", Instances, "a new node is found without a provider ID, and runs", &[], &by_name)
        .words(&["| the machine is there | OK, item PENDING .. TERMINATING|"])
        .hooks(MACHINE),
    Case::new(
        "INST-02",
        Instances,
        "a node is found by its provider ID, whatever its name",
        &["node-by-provider-id"],
        &by_provider_id,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-03",
        Instances,
        "the provider ID wins over another machine's name",
        &["node-by-provider-id"],
        &id_over_name,
    )
    .hooks(MACHINE),
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
        "INST-10",
        Instances,
        "an answer with authority says when it was observed",
        &["observed-at"],
        &observed_at,
    )
    .hooks(MACHINE),
    Case::new("INST-11", Instances, "the view EXISTENCE tells state, provider ID and name", &[], &existence)
        .words(&["Only the state, the provider ID and the name."])
        .hooks(MACHINE),
    Case::new("INST-12", Instances, "a view of a newer contract is read as ALL", &[], &unknown_view)
        .words(&["Read as ALL.", "an unknown enum number is read as zero"])
        .hooks(MACHINE),
    Case::new("INST-13", Instances, "pod CIDRs are networks, at most one of a family", &[], &pod_cidrs)
        .words(&["Pod CIDRs, if the cloud allots them: CAPABILITY_INSTANCE_POD_CIDRS. At most one a family."])
        .capability(Capability::InstancePodCidrs)
        .hooks(MACHINE),
    Case::new(
        "INST-14",
        Instances,
        "a node that nobody knows is ABSENT or NOT_OWNED, never an error",
        &[],
        &unknown_node,
    )
    .words(&[
        "InstanceState says whether a machine exists and in which state. It is an answer, never an error.",
    ]),
    Case::new("INST-15", Instances, "another cloud's provider ID is NOT_OWNED", &[], &foreign_id)
        .words(&["The provider ID or name belongs to another cloud, account or region. Never touched."]),
];

/// A node that no cloud ever had.
pub(super) fn stranger(t: &Trial) -> NodeRef {
    NodeRef { name: t.name(), uid: t.uid(), ..NodeRef::default() }
}

/// What is said of a machine that runs.
async fn described(t: &Trial, node: NodeRef) -> Result<Instance, Stop> {
    let result = t.look_until(&node, &[InstanceState::Running]).await?;
    result.instance.clone().ok_or_else(|| failed("an instance beside RUNNING", format!("{result:?}")))
}

async fn by_name(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let instance = described(t, machine.new_node()).await?;
    same("the provider ID", &instance.provider_id, &machine.provider_id)
}

async fn by_provider_id(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let node = NodeRef { provider_id: machine.provider_id.clone(), ..stranger(t) };
    let instance = described(t, node).await?;
    same("the provider ID", &instance.provider_id, &machine.provider_id)
}

async fn id_over_name(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let mixed = NodeRef { provider_id: machines[0].provider_id.clone(), ..machines[1].new_node() };
    let instance = described(t, mixed).await?;
    same("the provider ID", &instance.provider_id, &machines[0].provider_id)
}

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
        // Not by what the first answer said: a node whose provider ID is written keeps that one.
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
    for key in &instance.removed_labels {
        expect(is_key(key), "a valid label key", key)?;
    }
    Ok(())
}

async fn reserved(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let instance = described(t, machine.node()).await?;
    for key in instance.labels.keys().chain(&instance.removed_labels) {
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

async fn observed_at(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    for node in [machine.node(), machine.new_node(), stranger(t)] {
        let result = t.look(node).await?;
        expect(
            !result.authoritative || result.observed_at.is_some(),
            "observed_at beside authoritative",
            &result,
        )?;
    }
    Ok(())
}

async fn existence(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    described(t, machine.node()).await?;
    let request = cloudprovider_proto::v1alpha1::BatchGetInstancesRequest {
        view: InstanceView::Existence.into(),
        ..t.batch(vec![machine.node()])
    };
    let results = good("BatchGetInstances", t.instances().batch_get_instances(t.ask(request)).await)?.results;
    let told = results.first().is_some_and(|result| {
        let id = result.instance.as_ref().map(|instance| &instance.provider_id);
        result.state() == InstanceState::Running && id == Some(&machine.provider_id)
    });
    expect(told, "RUNNING with its provider ID", results)
}

async fn unknown_view(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let whole = described(t, machine.node()).await?;
    let mut request = t.batch(vec![machine.node()]);
    request.view = 99;
    let results = good("BatchGetInstances", t.instances().batch_get_instances(t.ask(request)).await)?.results;
    let instance = results.into_iter().next().and_then(|result| result.instance).unwrap_or_default();
    same("as much as ALL tells:", &instance.addresses, &whole.addresses)
}

async fn pod_cidrs(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let cidrs = described(t, machine.node()).await?.pod_cidrs;
    let nets: Result<Vec<ipnet::IpNet>, _> = cidrs.iter().map(|cidr| cidr.parse()).collect();
    let nets = nets.map_err(|error| failed("CIDRs", format!("{cidrs:?}: {error}")))?;
    let v4 = nets.iter().filter(|net| net.addr().is_ipv4()).count();
    expect(v4 <= 1 && nets.len() - v4 <= 1, "at most one of a family", cidrs)
}

async fn unknown_node(t: &Trial) -> Outcome {
    let result = t.look(stranger(t)).await?;
    let fits = matches!(result.state(), InstanceState::Absent | InstanceState::NotOwned);
    expect(fits && result.instance.is_none(), "ABSENT or NOT_OWNED, and no instance", result)
}

async fn foreign_id(t: &Trial) -> Outcome {
    let id = "no-such-cloud-0b9c://nowhere/i-1".to_owned();
    let result = t.look(NodeRef { provider_id: id, ..stranger(t) }).await?;
    expect(result.state() == InstanceState::NotOwned, "NOT_OWNED", result)
}
