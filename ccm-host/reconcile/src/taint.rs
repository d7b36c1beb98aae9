//! The taints that the cloud provider sets or removes on Nodes, and operations on lists of taints.
//!
//! Pure: a list in, the new list out, or `None` if nothing changes. The controllers decide when to add or remove a
//! taint.

use ccm_kube::node::Taint;

/// Marks a node that the cloud has not described yet. Set by the kubelet, removed by us.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Detaches the volumes of a node and deletes its pods without its kubelet; Kubernetes' own.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Set by the cluster autoscaler on a node that it is about to remove.
pub const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// Set by Karpenter on a node that it is about to remove.
pub const KARPENTER: &str = "karpenter.sh/disrupted";
/// Marks a node whose instance is stopped.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// The value that distinguishes our taints on a node that is given up from those an operator set.
const STOPPED: &str = "instance-stopped";

/// The shutdown taint as we write it: it keeps new pods away but evicts none.
pub fn shutdown() -> Taint {
    Taint { key: SHUTDOWN.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() }
}

/// The taint that evicts the pods of a node whose instance stays stopped.
pub fn evicting() -> Taint {
    given_up(SHUTDOWN)
}

/// The taint that takes a node whose instance stays stopped out of service.
pub fn out_of_service() -> Taint {
    given_up(OUT_OF_SERVICE)
}

fn given_up(key: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: STOPPED.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        ..Taint::default()
    }
}

/// Whether this host added the taint because the instance stays stopped.
pub fn is_of_given_up(taint: &Taint) -> bool {
    taint.value == STOPPED
        && taint.effect == NO_EXECUTE
        && [SHUTDOWN, OUT_OF_SERVICE].contains(&taint.key.as_str())
}

/// The list without all that this host adds while an instance is stopped; `None` if there is nothing of it.
pub fn without_stop(list: &[Taint]) -> Option<Vec<Taint>> {
    let shutdown = shutdown();
    filtered(list, |taint| !same(taint, &shutdown) && !is_of_given_up(taint))
}

/// Whether two taints are the same one: key and effect match; the value is ignored.
pub fn same(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

/// The list with `wanted` in it; `None` if it is there already. A taint that differs only in its value is replaced in
/// place.
pub fn with(list: &[Taint], wanted: &Taint) -> Option<Vec<Taint>> {
    let mut new = list.to_vec();
    match new.iter_mut().find(|taint| same(taint, wanted)) {
        Some(taint) if taint.value == wanted.value => return None,
        Some(taint) => *taint = wanted.clone(),
        None => new.push(wanted.clone()),
    }
    Some(new)
}

/// The list without any taint of this key, whatever its effect and value; `None` if there is no such taint.
pub fn without_key(list: &[Taint], key: &str) -> Option<Vec<Taint>> {
    filtered(list, |taint| taint.key != key)
}

fn filtered(list: &[Taint], keep: impl Fn(&Taint) -> bool) -> Option<Vec<Taint>> {
    let kept: Vec<Taint> = list.iter().filter(|taint| keep(taint)).cloned().collect();
    (kept.len() < list.len()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        let (rest, effect) = text.split_once(':').unwrap();
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned(), time_added: None }
    }

    fn without(list: &[Taint], unwanted: &Taint) -> Option<Vec<Taint>> {
        filtered(list, |taint| !same(taint, unwanted))
    }

    fn taints(list: &[&str]) -> Vec<Taint> {
        list.iter().map(|text| taint(text)).collect()
    }

    #[test]
    fn finds_by_key_and_effect() {
        let rows = [
            ("TNT-1 same key and effect", "a=1:NoSchedule", "a=2:NoSchedule", true),
            ("TNT-1 other key", "a:NoSchedule", "b:NoSchedule", false),
            ("TNT-1 other effect", "a:NoSchedule", "a:NoExecute", false),
        ];
        for (id, one, other, want) in rows {
            assert_eq!(same(&taint(one), &taint(other)), want, "{id}");
        }
    }

    /// Id, list, the taint to add or remove, the new list.
    type Row<'a> = (&'a str, &'a [&'a str], &'a str, Option<&'a [&'a str]>);

    #[test]
    fn removes() {
        let rows: [Row<'_>; 8] = [
            ("TNT-2 absent", &["a:NoSchedule"], "b:NoSchedule", None),
            ("TNT-3 present", &["a:NoSchedule", "b:NoExecute"], "a:NoSchedule", Some(&["b:NoExecute"])),
            ("TNT-4 empty list", &[], "a:NoSchedule", None),
            ("TNT-5 other key", &["a:NoSchedule"], "b:NoSchedule", None),
            ("TNT-5 same key, other effect", &["a:NoSchedule"], "a:NoExecute", None),
            ("TNT-5 match", &["a=x:NoSchedule"], "a:NoSchedule", Some(&[])),
            ("TNT-5 empty list", &[], "a:NoExecute", None),
            (
                "order is kept",
                &["c:NoExecute", "a:NoSchedule", "b:NoExecute"],
                "a:NoSchedule",
                Some(&["c:NoExecute", "b:NoExecute"]),
            ),
        ];
        for (id, list, unwanted, want) in rows {
            assert_eq!(without(&taints(list), &taint(unwanted)), want.map(taints), "{id}");
        }
    }

    #[test]
    fn removes_by_key_alone() {
        let list = taints(&["a=1:NoSchedule", "b:NoExecute", "a:NoExecute"]);
        assert_eq!(without_key(&list, "a"), Some(taints(&["b:NoExecute"])), "NODE-23");
        assert_eq!(without_key(&list, "c"), None);
    }

    #[test]
    fn adds() {
        let rows: [Row<'_>; 3] = [
            ("TNT-6 identical", &["a=1:NoSchedule"], "a=1:NoSchedule", None),
            (
                "TNT-6 other value",
                &["a=1:NoSchedule", "b:NoExecute"],
                "a=2:NoSchedule",
                Some(&["a=2:NoSchedule", "b:NoExecute"]),
            ),
            ("TNT-6 absent", &["b:NoExecute"], "a:NoSchedule", Some(&["b:NoExecute", "a:NoSchedule"])),
        ];
        for (id, list, wanted, want) in rows {
            assert_eq!(with(&taints(list), &taint(wanted)), want.map(taints), "{id}");
        }
        assert_eq!(
            with(&[], &shutdown()),
            Some(taints(&["node.cloudprovider.kubernetes.io/shutdown:NoSchedule"]))
        );
    }
}
