//! Names and tags of what a Service has in AWS: the published provider's, so that each finds what the other made.
//!
//! In: the cluster, the Service, one of its ports. Out: texts. That they are the same is shown by balancers that each
//! provider makes and the other finds nothing to change about.

use aws_sdk_elasticloadbalancingv2::types::ProtocolEnum;
use cloudprovider_sdk::proto::ServiceRef;
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};

use crate::cloud::{CLUSTER_TAG, LEGACY_TAG};

/// How the tags begin that nobody else may set.
pub(super) const OURS: &str = "cloudprovider.ccm/";
/// Has the cluster's uid and the Service's.
pub(super) const OWNER_TAG: &str = "cloudprovider.ccm/owner";
/// What is applied, without the backends.
pub(super) const APPLIED_TAG: &str = "cloudprovider.ccm/applied";
/// The backends that are applied.
pub(super) const BACKENDS_TAG: &str = "cloudprovider.ccm/backends";
/// Has the Service's namespace and name.
pub(super) const SERVICE_TAG: &str = "kubernetes.io/service-name";
const BALANCER_LENGTH: usize = 32;

/// Whether a tag tells whose something is, and not what a user wants.
pub(super) fn says_whose(key: &str) -> bool {
    [OWNER_TAG, SERVICE_TAG, LEGACY_TAG].contains(&key) || key.starts_with(CLUSTER_TAG)
}

/// Of the balancer.
pub(super) fn balancer(service_uid: &str) -> String {
    let mut name = format!("a{}", service_uid.replace('-', ""));
    name.truncate(name.floor_char_boundary(BALANCER_LENGTH));
    name
}

/// Whether a balancer may be a Service's, by its name.
pub(super) fn is_balancer(name: &str) -> bool {
    name.starts_with('a') && name.len() == BALANCER_LENGTH
}

/// The value of [`SERVICE_TAG`].
pub(super) fn service(service: &ServiceRef) -> String {
    format!("{}/{}", service.namespace, service.name)
}

/// The value of [`OWNER_TAG`].
pub(super) fn owner(cluster_uid: &str, service: &ServiceRef) -> String {
    format!("{cluster_uid}/{}", service.uid)
}

/// How the names of all target groups of a Service begin, and those of other Services that are named alike.
pub(super) fn groups(service: &ServiceRef) -> String {
    format!("k8s-{}-{}-", short(&service.namespace), short(&service.name))
}

/// Of a target group. What cannot be changed about a group is in its name.
pub(super) fn group(
    cluster: &str,
    service: &ServiceRef,
    port: i32,
    node_port: i32,
    protocol: &ProtocolEnum,
    health: (&ProtocolEnum, i32),
) -> String {
    let text = format!(
        "{cluster}{}{}{port}{node_port}{}instance{}{}",
        service.namespace,
        service.name,
        protocol.as_str(),
        health.0.as_str(),
        health.1
    );
    groups(service) + &short_hash(&text)
}

/// Of a network balancer's own security group.
pub(super) fn security_group(cluster_name: &str, service: &ServiceRef) -> String {
    let text = format!("{cluster_name}{}{}{}", service.name, service.namespace, service.uid);
    groups(service) + &hex(&Sha256::digest(text))
}

/// Of the security group of a classic balancer's own.
pub(super) fn classic_group(balancer: &str) -> String {
    format!("k8s-elb-{balancer}")
}

/// Tells texts apart.
pub(super) fn short_hash(text: &str) -> String {
    hex(&Sha1::digest(text))
}

/// Ten digits of a hash.
fn hex(hash: &[u8]) -> String {
    hash.iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

/// Eight letters and digits at most.
fn short(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).take(8).collect()
}

/// A digest as the values of [`APPLIED_TAG`] and [`BACKENDS_TAG`]: a node that comes or goes changes the second alone, which is
/// equal for all balancers with the same nodes. A value of AWS has not every character.
pub(super) fn split(digest: &str) -> (String, String) {
    match digest.rsplit_once('-') {
        Some((applied, backends)) if !applied.is_empty() && !backends.is_empty() => {
            (escaped(applied), escaped(backends))
        }
        _ => (escaped(digest), String::new()),
    }
}

/// The digest of these values.
pub(super) fn joined(applied: &str, backends: &str) -> String {
    match (unescaped(applied), unescaped(backends)) {
        (applied, backends) if backends.is_empty() => applied,
        (applied, backends) => format!("{applied}-{backends}"),
    }
}

fn escaped(text: &str) -> String {
    let plain = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:/+@".contains(c);
    let one = |c: u8| if plain(&c) { char::from(c).to_string() } else { format!("={c:02x}") };
    text.bytes().map(one).collect()
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split('=');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(code, 16));
        bytes.extend(rest.bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_comes_back_from_its_tags() {
        for digest in ["", "a", "-", "a-", "-b", "a-b", "a-b-c", "a b=%-ü~", "=3d"] {
            let (applied, backends) = split(digest);
            assert_eq!(joined(&applied, &backends), digest);
            let allowed = |c: char| c.is_alphanumeric() || " _.:/=+-@".contains(c);
            assert!(applied.chars().chain(backends.chars()).all(allowed), "{applied} {backends}");
        }
        assert_eq!(split("class-service-nodes"), ("class-service".to_owned(), "nodes".to_owned()));
    }

    #[test]
    fn a_balancer_has_the_name_that_kubernetes_gives_it() {
        let name = balancer("5e7c1a9e-0000-4000-8000-000000000001");
        assert_eq!(name, "a5e7c1a9e00004000800000000000000");
        assert!(is_balancer(&name) && !is_balancer("my-balancer"));
    }
}
