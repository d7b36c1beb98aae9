//! Two who mean harm beside the provider: a tenant with the role `edit`, and root on a worker. They write whatever the
//! apiserver allows them to, about what is theirs: the Service `s0`, and the Node `w0` and its Lease.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::judge::WORKER;
use ccm_cloud::{PROVIDER_ANNOTATION, hostile::Hostile};
use ccm_kube::{fixtures::node, node::Node};
use ccm_reconcile::node_server::NodeServer;

/// Keys that the host, its providers or nobody reads.
const KEYS: [&str; 9] = [
    PROVIDER_ANNOTATION,
    "cloudprovider.ccm/load-balancer-ip-mode",
    "cloudprovider.ccm/exclude",
    "cloudprovider.ccm/owned-labels",
    "cloudprovider.ccm/confirm-deletion",
    "service.beta.kubernetes.io/load-balancer-source-ranges",
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "alpha.kubernetes.io/provided-node-ip",
    "test.example/id",
];

/// The tenant changes anything that an edit of a Service may change.
pub(super) fn tenant(service: &mut Value, hostile: &Hostile, random: &mut fastrand::Rng) {
    let mut word = |random: &mut fastrand::Rng| match random.u8(..4) {
        0 => json!("fake"),
        1 => json!("p"),
        _ => json!(hostile.word(random)),
    };
    for field in ["labels", "annotations"] {
        scrawl(&mut service["metadata"][field], &mut word, random);
    }
    match random.u8(..6) {
        0 => service["spec"]["loadBalancerSourceRanges"] = json!([word(random), word(random)]),
        1 => service["spec"]["loadBalancerIP"] = word(random),
        2 => service["spec"]["type"] = json!("ClusterIP"),
        3 => service["spec"]["externalTrafficPolicy"] = json!("Local"),
        4 => service["metadata"]["finalizers"] = json!([]),
        _ => service["spec"]["type"] = json!("LoadBalancer"),
    }
}

/// The worker registers its node anew, as anybody's it likes, and says anything of it.
pub(super) fn worker(server: &NodeServer, hostile: &Hostile, random: &mut fastrand::Rng) {
    let ids = ["test://r0", "test://w0", "fake://x0", "fake://w0"];
    let cidrs = ["10.0.0.0/24", "10.0.77.0/24"];
    let mut word = |random: &mut fastrand::Rng| json!(hostile.word(random));
    if server.node(WORKER).is_none() || random.bool() {
        server.delete(WORKER);
        let mut new = Node { uid: format!("{WORKER}-{}-uid", random.u32(..)), ..node(WORKER) };
        new.created = Some(Timestamp::now());
        new.provider_id = Some(ids[random.usize(..ids.len())].into());
        server.put(&if random.bool() { new.with_pod_cidr(cidrs[random.usize(..cidrs.len())]) } else { new });
    }
    server.edit(WORKER, |node| {
        for field in ["labels", "annotations"] {
            scrawl(&mut node["metadata"][field], &mut word, random);
        }
        let ready = ["True", "False", "Unknown"][random.usize(..3)];
        node["status"]["conditions"] = json!([
            {"type": "Ready", "status": ready, "reason": word(random), "message": word(random)},
            {"type": "NetworkUnavailable", "status": "True"},
        ]);
        node["status"]["addresses"] =
            json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": word(random)}]);
    });
    match random.u8(..3) {
        0 => server.renew_lease(WORKER),
        1 => server.stop_lease(WORKER, SignedDuration::from_hours(random.i64(-900_000..900_000))),
        _ => {}
    }
}

fn scrawl(pairs: &mut Value, word: &mut impl FnMut(&mut fastrand::Rng) -> Value, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(..4) {
        let fresh = format!("t.example/{}", random.u32(..));
        let key = if random.bool() { KEYS[random.usize(..KEYS.len())].to_owned() } else { fresh };
        pairs[key] = word(random);
    }
}
