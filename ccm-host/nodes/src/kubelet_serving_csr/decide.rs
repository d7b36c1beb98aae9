//! Decides about one request. Pure: no clock, no client.
//!
//! In: the request, the Node of the kubelet that asks, what the cloud has for it. Out: who asks for which names, and then a
//! [`Verdict`]. The request is judged by itself first ([`claim`]), then against the cluster ([`standing`]), and only then is
//! the cloud asked, whose answer alone can approve ([`of_answer`]).
//!
//! What may change by itself (a node that the cloud has not initialised, a provider that fails) is waited for. What cannot
//! is refused for good.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::request::{self, Flaw};
use crate::cloud_node_lifecycle;
use ccm_base::{
    clock,
    text::{NAME, cut},
};
use ccm_cloud::{AddressType, Instance, InstanceAnswer, InstanceState};
use ccm_kube::{
    certificate_request::{CertificateRequest, KUBELET_SERVING, NODE_USER},
    node::Node,
};
use ccm_reconcile::{Report, Retry, taint};

/// How long a kubelet waits for an answer. Then it makes another request, with another key.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// After the pause that the request's age gives.
const SOON: Retry = Retry::After(Duration::ZERO);

/// The clocks of several apiservers differ by this much at most.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

const GROUP: &str = "system:nodes";
const GROUPS: [&str; 2] = [GROUP, "system:authenticated"];

/// The usages of a serving certificate; the last only for RSA keys.
const USAGES: [&str; 3] = ["digital signature", "server auth", "key encipherment"];

/// Names of the control plane and of Services, which the certificates of the same CA prove, too.
const RESERVED: [&str; 3] = ["localhost", "kubernetes", "kubernetes.default"];
const RESERVED_DOMAINS: [&str; 3] = [".localhost", ".svc", ".cluster.local"];

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Approve,
    /// It is decided, issued, or going.
    Settled,
    /// It is left undecided: for ever, until something changes, or, if it is blocked, denied where the policy says so.
    Leave(Report),
}

/// The Event of a request that is refused, and of one that waits for a person.
pub(super) const REFUSED: &str = "KubeletServingCertificateRefused";
const WAITING: &str = "KubeletServingCertificateWaiting";

/// A request that is in order by itself: a node, and the names that its kubelet asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) node: String,
    dns_names: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
}

/// It can never be approved.
fn refuse(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict::Leave(Report::blocked(reason, message, Retry::Wait).warning(REFUSED))
}

/// The cloud may report more later.
fn refuse_for_now(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict::Leave(Report::blocked(reason, message, SOON).warning(REFUSED))
}

pub(super) fn wait(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict::Leave(Report::waiting(reason, message, SOON))
}

/// Only a person can resolve it.
fn wait_for_person(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict::Leave(Report::waiting(reason, message, SOON).warning(WAITING))
}

/// Of another signer, or of a node that this host or its providers do not manage.
pub(super) fn not_ours() -> Verdict {
    Verdict::Leave(Report::left_alone("NotOurs", "no provider of this host manages the node"))
}

/// No kubelet waits for it any more, or it is older than the Node.
fn too_old() -> Verdict {
    Verdict::Leave(Report::left_alone("TooOld", "no kubelet waits for it any more"))
}

/// Its kubelet waits for a later one.
pub(super) fn superseded() -> Verdict {
    Verdict::Leave(Report::left_alone("NewerRequest", "its kubelet has made another request since"))
}

/// The age of a request; a clock that is behind makes it young.
fn age(request: &CertificateRequest, now: Timestamp) -> Duration {
    request.created.map_or(Duration::MAX, |created| clock::between(created, now))
}

/// When to look at an open request again. It grows with the request's age, as a backoff does.
pub(super) fn pause(request: &CertificateRequest, now: Timestamp) -> Duration {
    (age(request, now) / 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Whether the request is open at all.
pub(super) fn is_open(request: &CertificateRequest) -> bool {
    !(request.is_decided || request.is_issued || request.has_conditions || request.is_deleting)
}

/// Judges the request by itself. `Err` is final.
pub(super) fn claim(request: &CertificateRequest, now: Timestamp) -> Result<Claim, Verdict> {
    if request.signer != KUBELET_SERVING {
        return Err(not_ours());
    }
    if !is_open(request) {
        return Err(Verdict::Settled);
    }
    if age(request, now) >= LIFETIME {
        return Err(too_old());
    }
    let node = request.node().ok_or_else(|| {
        refuse("NotANode", format!("{:?} is not the user of a kubelet", cut(&request.username, NAME)))
    })?;
    if let Some(missing) = GROUPS.iter().find(|group| !request.groups.iter().any(|has| has == *group)) {
        return Err(refuse("NotANode", format!("the user is not in the group {missing}")));
    }
    if !are_of_serving(&request.usages) {
        let usages = request.usages.join(", ");
        let usages = cut(&usages, NAME);
        return Err(refuse("WrongUsages", format!("the usages are {usages:?}, not those of a server")));
    }
    let wanted = request::read(&request.pem).map_err(|flaw| refuse(reason_of(&flaw), flaw.to_string()))?;
    if wanted.organization != GROUP {
        let has = cut(&wanted.organization, NAME);
        return Err(refuse("WrongSubject", format!("the organization is {has:?}, not {GROUP}")));
    }
    if wanted.common_name.strip_prefix(NODE_USER) != Some(node) {
        let has = cut(&wanted.common_name, NAME);
        return Err(refuse("WrongSubject", format!("the common name is {has:?}, not the user that asks")));
    }
    if let Some((name, why)) = wanted.dns_names.iter().find_map(|name| Some((name, unfit_name(name)?))) {
        return Err(refuse("ForbiddenName", format!("the DNS name {:?} {why}", cut(name, NAME))));
    }
    if let Some((address, why)) = wanted.addresses.iter().find_map(|one| Some((one, unfit_address(*one)?))) {
        return Err(refuse("ForbiddenAddress", format!("the IP address {address} is {why}")));
    }
    Ok(Claim { node: node.to_owned(), dns_names: wanted.dns_names, addresses: wanted.addresses })
}

/// A set, since order and repetition mean nothing to a signer either.
fn are_of_serving(usages: &[String]) -> bool {
    let usages: BTreeSet<_> = usages.iter().map(String::as_str).collect();
    usages == BTreeSet::from(USAGES) || usages == USAGES[..2].iter().copied().collect()
}

fn reason_of(flaw: &Flaw) -> &'static str {
    match flaw {
        Flaw::TooLong | Flaw::Pem | Flaw::Encoding => "Malformed",
        Flaw::Subject => "WrongSubject",
        Flaw::Attribute | Flaw::Extension(_) => "ForbiddenExtension",
        Flaw::NameType(_) => "ForbiddenNameType",
        Flaw::NoNames => "NoNames",
        Flaw::Key => "WeakKey",
        Flaw::Signature => "WrongSignature",
    }
}

/// Why no node may have this DNS name, whatever the cloud reports.
fn unfit_name(name: &str) -> Option<&'static str> {
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(fits) && !label.starts_with('-')
    };
    let lower = name.to_ascii_lowercase();
    if name.contains('*') {
        Some("is a wildcard")
    } else if name.parse::<IpAddr>().is_ok() {
        Some("is an IP address")
    } else if name.len() > 253 || !name.split('.').all(is_label) {
        Some("is not written like a host name")
    } else if RESERVED.contains(&lower.as_str())
        || RESERVED_DOMAINS.iter().any(|domain| lower.ends_with(domain))
        || lower.contains(".svc.")
    {
        Some("belongs to the control plane or to Services")
    } else {
        None
    }
}

/// Why no node may have this address, whatever the cloud reports.
fn unfit_address(address: IpAddr) -> Option<&'static str> {
    let (link_local, other) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.is_broadcast() || v4.octets()[0] == 0),
        // An IPv4 address in disguise is not among what the cloud reports.
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.to_ipv4_mapped().is_some()),
    };
    match () {
        () if address.is_unspecified() => Some("unspecified"),
        () if address.is_loopback() => Some("a loopback address"),
        () if address.is_multicast() => Some("a multicast address"),
        () if link_local => Some("link-local"),
        () if other => Some("not the address of a host"),
        () => None,
    }
}

/// Judges the node whose kubelet asks, if there is one, before the cloud is asked. `is_in_scope`: this host manages it;
/// `claimants`: how many Nodes carry its provider ID. `Ok` holds its Node.
pub(super) fn standing<'a>(
    request: &CertificateRequest,
    node: Option<&'a Arc<Node>>,
    is_in_scope: bool,
    claimants: usize,
) -> Result<&'a Arc<Node>, Verdict> {
    let Some(node) = node else {
        return Err(wait("NoNode", "no Node has this name"));
    };
    if !is_in_scope {
        return Err(not_ours());
    }
    if is_before(request, node) {
        return Err(too_old());
    }
    if node.is_deleting() {
        return Err(wait("NodeDeleting", "the Node is being deleted"));
    }
    if cloud_node_lifecycle::is_held_back(node) || cloud_node_lifecycle::is_given_up(node) {
        return Err(wait("NodeGoing", "the Node is about to be deleted"));
    }
    if node.has_taint(taint::UNINITIALIZED) {
        return Err(wait("NodeUninitialized", "the cloud has not initialised the Node yet"));
    }
    if node.provider_id.is_none() {
        return Err(wait("NoProviderID", "the Node has no provider ID"));
    }
    if claimants != 1 {
        let message = format!(
            "{claimants} Nodes have the provider ID of this one: delete those that are not this instance's"
        );
        return Err(wait_for_person("InstanceContested", message));
    }
    Ok(node)
}

/// Whether the request was made before the Node: by the kubelet of a former instance of the same name.
fn is_before(request: &CertificateRequest, node: &Node) -> bool {
    let (Some(asked), Some(created)) = (request.created, node.created) else { return true };
    Duration::try_from(created.duration_since(asked)).is_ok_and(|ahead| ahead > CLOCK_SKEW)
}

/// The answer of a provider that receives what kubelets write proves nothing.
pub(super) fn may_echo() -> Verdict {
    let message = "the provider reads what the kubelet writes in its Node, and may report it back; if it reports from the \
                   cloud alone, set --kubelet-serving-csr-trust-node-readers";
    wait_for_person("ProviderReadsNode", message)
}

/// Judges the other Nodes for whose instances, and for no third one, the cloud reports an address of the request.
pub(super) fn of_others(others: &[(String, IpAddr)]) -> Verdict {
    match others.first() {
        Some((other, address)) => {
            let message = format!("the cloud reports the IP address {address} for Node {other:?}, too");
            wait_for_person("AddressOfOtherNode", message)
        }
        None => Verdict::Approve,
    }
}

/// Whether the cloud reports this address for the instance.
pub(super) fn reports(answer: &InstanceAnswer, address: IpAddr) -> bool {
    let addresses = answer.instance.iter().flat_map(|instance| reported(instance, is_ip));
    addresses.into_iter().any(|one| one.parse() == Ok(address))
}

/// Judges what the cloud has for the node. `is_other_node` says whether a name is that of another Node.
pub(super) fn of_answer(
    claim: &Claim,
    node: &Node,
    answer: &InstanceAnswer,
    trust_provider_id: bool,
    is_other_node: impl Fn(&str) -> bool,
) -> Verdict {
    use InstanceState as S;
    match answer.state {
        S::NotOwned => return not_ours(),
        S::Absent => return wait("NoInstance", "the cloud has no instance for this Node"),
        S::Unspecified => return wait("ProviderUnsure", "the provider does not know the instance"),
        S::Pending | S::Stopped | S::Terminating => {
            return wait("InstanceNotRunning", "the instance does not run");
        }
        S::Running | S::Exists => {}
    }
    let Some(instance) = answer.instance.as_ref().filter(|_| answer.authoritative && answer.error.is_none())
    else {
        return wait("ProviderUnsure", "the provider does not describe the instance with certainty");
    };
    if node.provider_id.as_deref() != Some(&instance.provider_id) {
        return refuse(
            "OtherInstance",
            format!("the cloud's instance is {}, not the Node's", instance.provider_id),
        );
    }
    of_instance(claim, &node.name, instance, trust_provider_id, is_other_node)
}

fn of_instance(
    claim: &Claim,
    node: &str,
    instance: &Instance,
    trust_provider_id: bool,
    is_other_node: impl Fn(&str) -> bool,
) -> Verdict {
    let names = reported(instance, |kind| !is_ip(kind));
    let short = format!("{node}.");
    let is_named =
        instance.name == node || names.iter().any(|name| *name == node || name.starts_with(&short));
    if !is_named && !trust_provider_id {
        let message = format!("the cloud does not report {node:?} as a name of {}", instance.provider_id);
        return refuse_for_now("NodeNotNamed", message);
    }
    for name in &claim.dns_names {
        if name != node && is_other_node(&name.to_ascii_lowercase()) {
            return refuse(
                "OtherNode",
                format!("the DNS name {:?} is that of another Node", cut(name, NAME)),
            );
        }
        if name != node && !names.contains(&name.as_str()) {
            let message =
                format!("the cloud does not report the DNS name {:?} for this instance", cut(name, NAME));
            return refuse_for_now("NotReported", message);
        }
    }
    let addresses: Vec<IpAddr> =
        reported(instance, is_ip).iter().filter_map(|address| address.parse().ok()).collect();
    match claim.addresses.iter().find(|address| !addresses.contains(address)) {
        Some(address) => refuse_for_now(
            "NotReported",
            format!("the cloud does not report the IP address {address} for this instance"),
        ),
        None => Verdict::Approve,
    }
}

fn reported(instance: &Instance, wanted: impl Fn(AddressType) -> bool) -> Vec<&str> {
    let of_kind = instance.addresses.iter().filter(|address| wanted(address.kind));
    of_kind.map(|address| address.address.as_str()).collect()
}

fn is_ip(kind: AddressType) -> bool {
    match kind {
        AddressType::InternalIp | AddressType::ExternalIp => true,
        AddressType::Hostname | AddressType::InternalDns | AddressType::ExternalDns => false,
    }
}

#[cfg(test)]
mod tests;
