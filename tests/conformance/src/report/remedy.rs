//! What to do about a broken rule, in one sentence for those who decide who fixes it.

use super::{CaseReport, Verdict};

/// By the rule's tag.
const REMEDIES: &[(&str, &str)] = &[
    (
        "absence-needs-id",
        "call absence by name not authoritative, unless the cloud's own key is the node's name",
    ),
    (
        "absent-means-looked",
        "answer an error where the cloud could not be queried, never ABSENT: nodes are deleted on that word",
    ),
    ("address-unique", "report each address of an instance once"),
    ("address-valid", "tell IPs in text form under the types of IPs"),
    ("advertised-works", "advertise only what is served"),
    ("served-whole", "serve it, or do not name its service in GetInfo"),
    ("annotation-prefix", "write annotations only under the advertised prefixes"),
    ("applied-digest", "tell the digest that was applied, once the cloud has finished and not before"),
    ("batch-keys", "answer each key of a batch exactly once"),
    ("batched-at-cloud", "ask the cloud about many instances in one call"),
    (
        "built-as-asked",
        "build all of what is asked for, or refuse it: what is left out serves nobody, or everybody",
    ),
    ("capabilities-constant", "give the same capabilities for the life of the process"),
    ("cluster-owns-by-uid", "compare the cluster's uid before anything is changed or deleted"),
    ("cluster-uid-required", "refuse calls without a cluster uid"),
    ("deadline-honoured", "bound calls of the cloud by the caller's deadline"),
    ("delete-absent-ok", "answer OK to a deletion of what is not there"),
    ("delete-by-key", "find what is to be deleted by cluster uid and Service uid, also after a restart"),
    (
        "delete-leaves-nothing",
        "remove with a balancer all that was made for it: what stays is billed and blocks",
    ),
    ("delete-not-elsewhere", "delete what is yours, whoever looks after the Service now"),
    ("discovery-always", "answer GetInfo whatever happens"),
    ("discovery-epoch", "give one epoch for the life of the process, and another after a start"),
    ("discovery-name", "name the provider as a DNS subdomain"),
    ("discovery-no-cloud", "answer GetInfo without asking the cloud"),
    ("discovery-no-refusal", "answer GetInfo to every host, whatever its name"),
    ("discovery-prefix", "tell how provider IDs begin"),
    ("discovery-services", "name exactly the services that are served"),
    (
        "durable-digest",
        "store the digest with the balancer, or do not advertise that it outlives the process",
    ),
    ("ensure-after-lost-answer", "look for the balancer by its natural key before one is made"),
    ("ensure-idempotent", "look for the balancer by its natural key before one is made"),
    ("ensure-keeps-working", "leave what works alone until the new is there"),
    ("error-info", "give each error an ErrorInfo with a reason of the contract, and that reason's code"),
    ("error-no-secret", "keep secrets out of errors and logs"),
    ("error-order", "tell missing rights as such, before anything is said of existence"),
    ("error-size", "keep details of errors below 4 KiB"),
    ("get-reads-through", "read a balancer from the cloud each time it is asked for"),
    ("in-progress-not-error", "tell work that goes on by in_progress, not by an error"),
    ("ingress-required", "tell how an ACTIVE balancer is reached, in lists, too"),
    ("ingress-valid", "give each way in an IP or a name"),
    ("label-reserved", "set no labels within kubernetes.io and k8s.io"),
    ("label-valid", "give labels that Kubernetes takes"),
    ("lead-background", "run loops that write to the cloud only while led"),
    ("lead-ends", "give mutations up when leadership ends, before their next call of the cloud"),
    ("lead-needed", "refuse mutations by anybody but the present leader"),
    ("lead-takes-over", "never take a former leader back"),
    ("list-own-only", "list balancers of the cluster that asks, and no others"),
    ("list-unreachable", "name what a list could not ask"),
    ("message-limit", "raise the gRPC library's limit to what is advertised (its default is 4 MiB)"),
    ("mutation-finishes", "run a mutation to its end on a task of its own, whatever becomes of the caller"),
    ("node-by-provider-id", "find a node by its provider ID where it has one"),
    ("observed-at", "say when an answer with authority was observed"),
    ("page-size", "give no more items than a page may hold"),
    ("page-token-refused", "answer INVALID_TOKEN where a page token leads nowhere"),
    ("page-walk-ends", "make walks over pages end"),
    ("provider-id-prefix", "begin each provider ID as advertised"),
    ("provider-id-stable", "give an instance one provider ID for its life"),
    ("read-through", "ask the cloud where max_staleness is 0, whatever a cache holds"),
    ("retry-after-positive", "give a positive retry_after"),
    ("route-canonical", "compare and tell routes in canonical form"),
    (
        "route-changed",
        "answer ROUTE_CHANGED, and delete nothing, where a route does not lead to what was listed",
    ),
    ("route-ownership", "say of each route how it was recognised, and BY_UID only where it carries the uid"),
    ("route-echo-target", "tell a route's target as it was asked for"),
    ("set-by-digest", "keep the last four sets of backends by cluster and digest"),
    (
        "set-needs-capability",
        "refuse nodes_omitted where the capability is not advertised: it is no empty set",
    ),
    ("set-per-cluster", "keep sets of backends by cluster and digest, not by digest alone"),
    ("set-unknown", "refuse the digest of an unknown set before anything is changed"),
    (
        "settings-stable",
        "tell a hash of the configuration and the version, and of nothing that a process makes up",
    ),
    ("stale-revision", "refuse revisions below the accepted one"),
    ("stopped-exists", "report a stopped instance as STOPPED: it still exists"),
    ("update-backends-only", "replace backends and nothing else"),
    ("update-every-item", "give the balancer of every item the backends of the call"),
    ("watch-bookmark", "send bookmarks as often as advertised"),
    ("watch-every-key", "send the key of every change, or end the stream"),
    ("watch-started", "begin each watch with `started`"),
];

/// By the case, where its rules say less than it does.
const BY_CASE: &[(&str, &str)] = &[
    ("LEAD-10", "let each Lead of the present leader set the end of its term anew"),
    ("LEAD-11", "end what runs only when the term ends, not when Lead is repeated"),
    (
        "LEAD-12",
        "carry the next leader's request out anew; never answer it with the outcome of the former one's",
    ),
    ("BUILT-13", "name, tag and find a balancer by the Service's uid, not by its name"),
    ("UPD-09", "answer UPDATED only where the cloud took the backends, otherwise an item error"),
];

/// What to do about a broken rule.
pub fn remedy(rule: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(tag, _)| *tag == rule).map(|(_, remedy)| *remedy)
}

/// What to do about a failed case: by the rule that its failure names, or else by the case, or by the rules that it tries.
pub(super) fn of_case(case: &CaseReport) -> String {
    let broken = match &case.verdict {
        Verdict::Fail { expected, .. } => {
            expected.split_once("[R:").and_then(|(_, rule)| rule.split_once(']'))
        }
        _ => None,
    };
    let of_another = broken.and_then(|(rule, _)| remedy(rule));
    let of_case = BY_CASE.iter().find(|(id, _)| *id == case.id).map(|(_, remedy)| *remedy);
    let by_rule = of_another
        .or(of_case)
        .or_else(|| case.contract.iter().filter_map(|cited| cited.rule).find_map(remedy));
    by_rule.map_or_else(|| format!("see to it that {}", case.title), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{cases, target::Made};

    #[test]
    fn a_case_has_its_own_remedy_unless_it_names_a_rule() {
        let told = |id: &str, expected: &str| {
            let case = cases::all().find(|case| case.id == id).unwrap();
            let verdict = Verdict::Fail { expected: expected.to_owned(), seen: String::new() };
            of_case(&CaseReport::new(case, verdict, Duration::ZERO, Made::default()))
        };
        for (id, own) in BY_CASE {
            assert_eq!(told(id, "x"), *own);
        }
        assert_eq!(told("UPD-09", "x [R:ingress-valid]: y"), remedy("ingress-valid").unwrap());
    }
}
