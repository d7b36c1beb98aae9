//! The security group that all network balancers of the cluster have in common, by which the nodes know them: one rule for all of
//! them, where each would need one for each of its ports and ranges. Only with `--shared-node-rule`.
//!
//! In: nothing but the cluster. Out: the group, or its end once no balancer has it. Who comes in at a balancer is up to its other
//! groups. It needs the cluster's tag: whoever may make groups can guess its name.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider_sdk::ProviderError;

use super::own_group::{OwnGroup, WHILE_IT_IS_ANOTHERS};
use super::rules;
use super::{Balancers, Nodes, network};
use crate::api::{Deadline, Failure, Stop};
use crate::cloud::Owner;

const DESCRIPTION: &str = "Network balancers of the cluster, which its nodes let in";

pub(super) fn name(of: &Balancers) -> String {
    format!("k8s-balancers-{}", of.cloud.cluster.id())
}

pub(super) async fn find(of: &Balancers, until: Deadline) -> Result<Option<OwnGroup>, Failure> {
    let found = OwnGroup::of_whom(&of.cloud, &name(of), until).await?;
    Ok(found.filter(|(owner, _)| *owner == Owner::Us).map(|(_, group)| group))
}

/// The group, if it is among these.
pub(super) fn among(of: &Balancers, groups: &rules::Groups) -> Option<OwnGroup> {
    OwnGroup::among(groups, &name(of)).filter(|group| groups.is_tagged(&group.id))
}

pub(super) async fn ensure(of: &Balancers, until: Deadline) -> Result<OwnGroup, Stop> {
    // Many balancers are made at the same time.
    let _turn = of.rules.lock().await;
    let tags: BTreeMap<_, _> = of.cloud.cluster.tags().into_iter().collect();
    let name = name(of);
    match OwnGroup::of_whom(&of.cloud, &name, until).await? {
        None => Ok(OwnGroup::create(&of.cloud, (&name, DESCRIPTION), &tags, until).await?),
        Some((Owner::Us, found)) => Ok(found),
        Some(_) => {
            let why = format!(
                "security group {name} has not the cluster's tag: tag it with {tags:?} if it is the cluster's, or else delete it"
            );
            Err(ProviderError::retry_later(WHILE_IT_IS_ANOTHERS, &why).into())
        }
    }
}

/// Ends the group if no balancer has it, or is about to. Returns whether nothing is left to do, which takes until AWS has forgotten
/// the last one.
pub(super) async fn end_unless_used(
    of: &Balancers,
    found: Option<OwnGroup>,
    until: Deadline,
) -> Result<bool, Failure> {
    let Some(group) = found else { return Ok(true) };
    // Its turn is first: somebody else who ends the group is not one who is about to have it.
    let _turn = of.rules.lock().await;
    let Ok(_nobody) = of.coming.try_write() else { return Ok(true) };
    if network::any_has_group(of, &group.id, until).await? {
        return Ok(true);
    }
    let mut all = rules::Groups::read(&of.cloud, &Nodes::new(), until).await?;
    let nodes = all.shut_out(&of.cloud, (&group.id, true), rules::ALL_IN, &BTreeSet::new(), until).await?;
    if group.delete(&of.cloud, until).await? {
        return Ok(true);
    }
    // AWS may not list one yet that has got it just now.
    all.let_in(&of.cloud, (&group.id, true), rules::ALL_IN, &nodes, until).await?;
    Ok(false)
}
