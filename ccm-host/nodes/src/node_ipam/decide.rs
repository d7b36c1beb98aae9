//! Decides what to do with a node. Pure: no clock, no client.
//!
//! In: the node as seen, the answer of a provider. Out: what to do next.
//! [`super::ledger`] decides which blocks a node gets.

use ipnet::IpNet;

use super::problem;
use ccm_base::cidr;
use ccm_cloud::{InstanceAnswer, InstanceState};
use ccm_kube::{cache::Change, node::Node};
use ccm_reconcile::{Report, Retry, SLOW_RETRY};

/// Whether the node needs pod CIDRs: existing ones are kept, and a node being deleted needs none.
pub(super) fn wants(node: &Node) -> bool {
    node.pod_cidrs.is_empty() && !node.is_deleting()
}

/// Whether a change requires a pass now. Heartbeats do not cut a wait or a backoff short.
pub(super) fn concerns(change: &Change<Node>) -> bool {
    match change {
        Change::Added(node) => wants(node),
        Change::Updated { old, new } if wants(new) => {
            !wants(old) || old.provider_id != new.provider_id || old.labels != new.labels
        }
        // There is nothing more to report.
        Change::Updated { old, .. } => wants(old),
        Change::Deleted(_) => true,
    }
}

/// The pod CIDRs to write: at least one, at most one per family; or why there are none. `allots` says whether the
/// answering provider's cloud allots pod CIDRs at all. They are permanent, so nothing is written before there is one for
/// each family of the cluster CIDRs.
pub(super) fn of_answer(
    answer: &InstanceAnswer,
    allots: bool,
    cluster: &[IpNet],
) -> Result<Vec<IpNet>, Report> {
    use InstanceState as S;
    let why = match answer.state {
        S::NotOwned => {
            // A misconfigured provider will be fixed eventually, so keep trying slowly.
            let why = "the provider says that the instance is not its own";
            return Err(Report::waiting("NotOwned", why, Retry::After(SLOW_RETRY)));
        }
        S::Unspecified => "the provider does not know whether the instance exists",
        S::Terminating => "the instance is being terminated",
        S::Absent => "the cloud has no instance for this node (yet)",
        S::Pending | S::Running | S::Stopped | S::Exists => match &answer.instance {
            Some(instance) if !instance.pod_cidrs.is_empty() => {
                return match lacking(&instance.pod_cidrs, cluster) {
                    None => Ok(in_order(&instance.pod_cidrs, cluster)),
                    Some(why) => Err(problem::not_allotted(why, Retry::Backoff)),
                };
            }
            Some(_) if !allots => {
                let retry = Retry::After(SLOW_RETRY);
                return Err(problem::not_allotted("the provider allocates none", retry));
            }
            Some(_) => "the instance has none (yet)",
            None => "the instance is not described (yet)",
        },
    };
    let error = answer.error.as_ref();
    Err(error.map_or_else(|| problem::not_allotted(why, Retry::Backoff), problem::not_asked))
}

/// In the order of the cluster CIDRs, whose first family is the cluster's primary one; the provider's otherwise.
fn in_order(allotted: &[IpNet], cluster: &[IpNet]) -> Vec<IpNet> {
    let mut ordered = allotted.to_vec();
    ordered.sort_by_key(|network| {
        cluster.iter().position(|of| cidr::same_family(of, network)).unwrap_or(cluster.len())
    });
    ordered
}

/// Says what is missing, if a family of the cluster CIDRs is.
fn lacking(allotted: &[IpNet], cluster: &[IpNet]) -> Option<String> {
    let is_missing = |network: &&IpNet| !allotted.iter().any(|given| cidr::same_family(given, network));
    let missing = cluster.iter().find(is_missing)?;
    let given: Vec<_> = allotted.iter().map(ToString::to_string).collect();
    Some(format!(
        "the instance has {}, but none (yet) of the family of {missing} in --cluster-cidr",
        given.join(",")
    ))
}

#[cfg(test)]
mod tests;
