//! The description of a running instance.

use cloudprovider_proto::v1alpha1::{Capability, NodeRef};
use futures::future::LocalBoxFuture;

use super::instances::described;
use crate::{
    case::{Case, Outcome, Profile::Instances, Run},
    invariants::OF_INSTANCES,
    trial::{Trial, expect, failed, has_addresses, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "INST-04",
        Instances,
        "provider IDs begin as advertised",
        &["provider-id-prefix", "discovery-prefix"],
        &Kept("provider-id-prefix"),
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
        &Kept("address-valid"),
    )
    .hooks(MACHINE),
    Case::new(
        "INST-07",
        Instances,
        "no address is there twice",
        &["address-unique"],
        &Kept("address-unique"),
    )
    .hooks(MACHINE),
    Case::new(
        "INST-08",
        Instances,
        "type, zone, region and labels are valid label values",
        &["label-valid"],
        &Kept("label-valid"),
    )
    .hooks(MACHINE),
    Case::new(
        "INST-09",
        Instances,
        "no label lies within kubernetes.io or k8s.io",
        &["label-reserved"],
        &Kept("label-reserved"),
    )
    .hooks(MACHINE),
    Case::new(
        "INST-19",
        Instances,
        "annotations of a node are under advertised prefixes alone",
        &["annotation-prefix"],
        &Kept("annotation-prefix"),
    )
    .hooks(MACHINE),
    Case::new("INST-13", Instances, "pod CIDRs are networks, at most one of a family", &[], &pod_cidrs)
        .words(&["Pod CIDRs, if the cloud allocates them: CAPABILITY_INSTANCE_POD_CIDRS."])
        .capability(Capability::InstancePodCidrs)
        .hooks(MACHINE),
];

/// What holds for every answer, tried with one instance as a new node and as one that has its provider ID.
struct Kept(&'static str);

impl Run for Kept {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let machine = t.machine().await?;
            for node in [machine.new_node(), machine.node()] {
                let instance = described(t, node.clone()).await?;
                if self.0 == "address-valid" {
                    has_addresses(&node, &instance)?;
                }
                for (_, check) in OF_INSTANCES.iter().filter(|(rule, _)| *rule == self.0) {
                    check(t.provider(), &instance)?;
                }
            }
            Ok(())
        })
    }
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

async fn pod_cidrs(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let cidrs = described(t, machine.node()).await?.pod_cidrs;
    let nets: Result<Vec<ipnet::IpNet>, _> = cidrs.iter().map(|cidr| cidr.parse()).collect();
    let nets = nets.map_err(|error| failed("CIDRs", format!("{cidrs:?}: {error}")))?;
    let v4 = nets.iter().filter(|net| net.addr().is_ipv4()).count();
    expect(v4 <= 1 && nets.len() - v4 <= 1, "at most one of a family", cidrs)
}
