//! Labels of a provider: those that are none by the apiserver's rules, or not its to set, are dropped.

use std::collections::{BTreeMap, HashMap};

use super::MOST;
use crate::findings::{Findings, rule};
use ccm_base::label::{REGION, ZONE, is_key, is_value};

const HOST: &str = "cloudprovider.ccm/";

/// `kubernetes.io/` or `k8s.io/`, at the start or right after a dot (NODE-19); or what people tell this host with.
pub fn is_reserved(key: &str) -> bool {
    ["kubernetes.io/", "k8s.io/", HOST]
        .iter()
        .any(|space| key.match_indices(space).any(|(at, _)| at == 0 || key[..at].ends_with('.')))
}

/// What people tell this host with on Services, and what it keeps there.
pub(super) fn is_of_host(key: &str) -> bool {
    key.starts_with(HOST)
}

/// The labels to set.
pub(super) fn labels(labels: HashMap<String, String>, findings: &mut Findings) -> BTreeMap<String, String> {
    allowed(labels, key_is_allowed, findings)
}

/// The labels of a volume, which include zone and region: of a node, fields say these.
pub(crate) fn of_volume(
    labels: HashMap<String, String>,
    findings: &mut Findings,
) -> BTreeMap<String, String> {
    let is_topology = |key: &str| [ZONE, REGION].as_flattened().contains(&key);
    allowed(labels, |key, findings| is_topology(key) || key_is_allowed(key, findings), findings)
}

fn allowed(
    labels: HashMap<String, String>,
    is_allowed: impl Fn(&str, &mut Findings) -> bool,
    findings: &mut Findings,
) -> BTreeMap<String, String> {
    let sorted: BTreeMap<_, _> = labels.into_iter().collect();
    if sorted.len() > MOST {
        findings.reject(rule::ANSWER_BOUNDS, format!("there are more than {MOST} labels"));
    }
    sorted
        .into_iter()
        .filter(|(key, value)| {
            if !is_allowed(key, findings) {
                return false;
            }
            if !is_value(value) {
                findings.reject(rule::LABEL_VALID, format!("label {key}: {value:?} is not a label value"));
                return false;
            }
            true
        })
        .take(MOST)
        .collect()
}

/// A field that becomes a label; `None` if it is empty or invalid.
pub(super) fn field(name: &str, value: String, findings: &mut Findings) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    if is_value(&value) {
        return Some(value);
    }
    findings.reject(rule::LABEL_VALID, format!("{name} {value:?} is not a label value"));
    None
}

fn key_is_allowed(key: &str, findings: &mut Findings) -> bool {
    if !is_key(key) {
        findings.reject(rule::LABEL_VALID, format!("{key:?} is not a label key"));
        return false;
    }
    if is_reserved(key) {
        findings.reject(rule::LABEL_RESERVED, format!("label {key} lies in a reserved namespace"));
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NODE-19, and what follows from upstream's pattern.
    #[test]
    fn reserved_namespaces_need_a_slash_and_a_start() {
        let rows = [
            ("topology.kubernetes.io/zone", true),
            ("topology.k8s.io/zone", true),
            ("kubernetes.io/os", true),
            ("k8s.io/os", true),
            ("cloudprovider.ccm/exclude", true),
            ("x.cloudprovider.ccm/exclude", true),
            ("app.k8snio/bar", false),
            ("k8snio/bar", false),
            ("notkubernetes.io/bar", false),
            ("kubernetes.io", false),
            ("example.com/kubernetes.io", false),
        ];
        for (key, want) in rows {
            assert_eq!(is_reserved(key), want, "NODE-19 {key}");
        }
    }

    #[test]
    fn labels_are_not_more_than_a_node_can_hold() {
        let mut findings = Findings::default();
        let given = (0..1000).map(|number| (format!("l{number:03}"), String::new())).collect();
        let kept = labels(given, &mut findings);
        assert_eq!((kept.len(), findings.rules), (MOST, vec![rule::ANSWER_BOUNDS]));
    }

    /// NODE-32, NW-20: one bad label costs itself, not the node.
    #[test]
    fn each_dropped_label_has_a_sentence_and_a_rule() {
        let mut findings = Findings::default();
        let given = [("ok", "1"), ("kubernetes.io/x", "1"), ("bad key", "1"), ("v", "no value")];
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let kept = labels(given, &mut findings);
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("ok".to_owned(), "1".to_owned())]);
        assert_eq!(findings.rules, [rule::LABEL_VALID, rule::LABEL_RESERVED, rule::LABEL_VALID]);
        assert_eq!(findings.rejected[1], "label kubernetes.io/x lies in a reserved namespace");
    }
}
