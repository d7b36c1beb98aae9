//! The instances behind a balancer.
//!
//! In: a Service's nodes, and what EC2 says of their instances. Out: which of these AWS takes as targets now, and which it will
//! take.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cloudprovider_sdk::proto::{InProgress, NodeRef};

use super::hosts::State;
use super::service::{Texts, has_labels};
use super::{Balancers, Nodes};
use crate::api::{Deadline, Failure, Stop, later};
use crate::instances;

/// How soon to look whether AWS takes an instance.
const UNTIL_IT_RUNS: Duration = Duration::from_secs(15);
/// The same where somebody has stopped it, perhaps for days, or has to do something about it.
const WHILE_A_PERSON_IS_NEEDED: Duration = Duration::from_secs(300);

/// The instances of the Service's nodes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Backends {
    pub all: BTreeSet<String>,
    /// Those of them that AWS would not take now.
    pub not_now: BTreeSet<String>,
}

impl Backends {
    /// Those that have to join the ones that are there.
    pub(super) fn joining<'a>(
        &'a self,
        there: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = String> + use<'a> {
        self.all.iter().filter(|id| !there.contains(*id) && !self.not_now.contains(*id)).cloned()
    }

    /// Those that have to leave.
    pub(super) fn leaving<'a>(
        &'a self,
        there: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = String> + use<'a> {
        there.difference(&self.all).cloned()
    }
}

pub(super) struct Behind<'a> {
    of: &'a Balancers,
    nodes: Vec<&'a NodeRef>,
    pub until: Deadline,
    pub hosts: Arc<Nodes>,
    pub backends: Backends,
    /// The instances that AWS will take.
    waiting: BTreeSet<String>,
    /// Those that run, and that AWS names when it refuses a call.
    refused: BTreeSet<String>,
    /// Those of them that are in another network.
    elsewhere: BTreeSet<String>,
    /// Those for which a group has no room, and what AWS said.
    too_many: (BTreeSet<String>, Option<Failure>),
}

impl<'a> Behind<'a> {
    pub(super) async fn of(
        of: &'a Balancers,
        nodes: Vec<&'a NodeRef>,
        until: Deadline,
    ) -> Result<Self, Failure> {
        let hosts = of.hosts.of(&of.cloud, &instances_of(of, &nodes), until).await?;
        Ok(Self::knowing(of, nodes, hosts.into(), until))
    }

    /// With what was read of the nodes' instances.
    fn knowing(of: &'a Balancers, nodes: Vec<&'a NodeRef>, hosts: Arc<Nodes>, until: Deadline) -> Self {
        let mut behind = Self {
            of,
            nodes,
            until,
            hosts,
            backends: Backends::default(),
            waiting: BTreeSet::new(),
            refused: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            too_many: (BTreeSet::new(), None),
        };
        behind.look();
        behind
    }

    /// Those of these nodes that have the labels which a Service wants, with what was read of all of them.
    pub(super) fn among(
        of: &'a Balancers,
        nodes: &[&'a NodeRef],
        labels: &Texts,
        hosts: &Arc<Nodes>,
        until: Deadline,
    ) -> Self {
        let wanted: Vec<_> = nodes.iter().copied().filter(|node| has_labels(node, labels)).collect();
        if wanted.len() == nodes.len() {
            return Self::knowing(of, wanted, hosts.clone(), until);
        }
        let ids = instances_of(of, &wanted).into_iter();
        let of_them: Nodes = ids.filter_map(|id| Some((id.clone(), hosts.get(&id)?.clone()))).collect();
        Self::knowing(of, wanted, of_them.into(), until)
    }

    /// Finds out which nodes' instances AWS takes.
    fn look(&mut self) {
        let now = SystemTime::now();
        let young =
            self.nodes.iter().copied().filter(|node| instances::is_young(node, now)).collect::<Vec<_>>();
        let (all, young) = (instances_of(self.of, &self.nodes), instances_of(self.of, &young));
        let state = |id: &String| self.state(id);
        let is_not_taken = |id: &&String| state(id) != State::Running || self.refused.contains(*id);
        let mut not_now: BTreeSet<_> = all.iter().filter(is_not_taken).cloned().collect();
        // Of a young node's instance EC2 may not know yet.
        let waits =
            |id: &&String| state(id) != State::Gone || young.contains(*id) || self.refused.contains(*id);
        self.waiting = not_now.iter().filter(waits).cloned().collect();
        not_now.extend(self.too_many.0.iter().cloned());
        self.backends = Backends { all, not_now };
    }

    fn state(&self, id: &str) -> State {
        self.hosts.get(id).map_or(State::Waits, |host| host.state)
    }

    /// AWS refuses all targets of a call for one that does not run, or that it does not take: looks again which these are.
    pub(super) async fn refused(&mut self, targets: &[String], words: &str) -> Result<(), Stop> {
        self.of.hosts.forget(targets);
        let before = self.backends.not_now.len();
        let all = instances_of(self.of, &self.nodes);
        self.hosts = self.of.hosts.of(&self.of.cloud, &all, self.until).await?.into();
        let named = instances::ids_in(words);
        let refused = targets.iter().filter(|id| named.contains(&***id) && self.state(id) == State::Running);
        let refused: Vec<_> = refused.cloned().collect();
        if words.contains("VPC") {
            self.elsewhere.extend(refused.iter().cloned());
        }
        self.refused.extend(refused);
        self.look();
        if self.backends.not_now.len() == before {
            let message = format!(
                "AWS takes no target of a call, and EC2 says that all of their instances run: {words}"
            );
            return Err(Stop::Later(later(UNTIL_IT_RUNS, "TARGETS_REFUSED", &message)));
        }
        Ok(())
    }

    /// A group has no room for these: what it has serves all the same.
    pub(super) fn no_room(&mut self, targets: &[String], failure: Failure) {
        self.too_many.0.extend(targets.iter().cloned());
        self.too_many.1.get_or_insert(failure);
        self.look();
    }

    /// Whether there was room for all of them.
    pub(super) fn room(&self) -> Result<(), Stop> {
        self.too_many.1.as_ref().map_or(Ok(()), |failure| Err(Stop::of(failure)))
    }

    /// Whether EC2 says of all that they run. It may have forgotten the others for a while.
    pub(super) fn all_run(&self) -> bool {
        self.backends.all.iter().all(|id| self.state(id) == State::Running)
    }

    /// All security groups that the nodes' instances have.
    pub(super) fn security_groups(&self) -> BTreeSet<String> {
        self.hosts.values().flat_map(|host| host.groups.iter().cloned()).collect()
    }

    /// What has to be waited for, with these targets. One that AWS took before stays a target whether it runs or not: a stopped
    /// node must not make its balancers look for ever.
    pub(super) fn waits<'t>(
        &self,
        targets: impl Iterator<Item = &'t BTreeSet<String>> + Clone,
    ) -> Option<InProgress> {
        let lacks = |id: &&String| targets.clone().any(|there| !there.contains(*id));
        let waiting: Vec<_> = self.waiting.iter().filter(lacks).collect();
        let first = waiting.first()?;
        let message = format!(
            "{} instances do not run, or AWS does not take them yet, for example {first}",
            waiting.len()
        );
        let is_for_a_person = |id: &String| self.state(id) == State::Stopped || self.elsewhere.contains(id);
        let all = waiting.iter().all(|id| is_for_a_person(id));
        let soon = if all { WHILE_A_PERSON_IS_NEEDED } else { UNTIL_IT_RUNS };
        Some(later(soon, "WAITING_FOR_INSTANCES", &message))
    }
}

/// What to deregister instead of all these, of which AWS does not know some: it has forgotten terminated instances, and may have
/// taken out none of the others.
pub(super) fn without_unknown(ids: Vec<String>, words: &str) -> Vec<Vec<String>> {
    let unknown = instances::ids_in(words);
    let known: Vec<_> = ids.iter().filter(|id| !unknown.contains(&***id)).cloned().collect();
    match (ids.len(), known.len()) {
        (1, _) | (_, 0) => Vec::new(),
        // It does not say which.
        (all, known) if all == known => ids.into_iter().map(|id| vec![id]).collect(),
        _ => vec![known],
    }
}

/// The instances of these nodes.
pub(super) fn instances_of(of: &Balancers, nodes: &[&NodeRef]) -> BTreeSet<String> {
    let region = &of.cloud.region;
    nodes.iter().filter_map(|node| instances::id_of(&node.provider_id, region).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_aws_does_not_know_keeps_nothing_else_from_leaving() {
        let ids = ["i-1", "i-2", "i-3"].map(str::to_owned).to_vec();
        let left = |ids: &[String], words: &str| without_unknown(ids.to_vec(), words);
        assert_eq!(left(&ids, "'i-2' does not exist"), [vec!["i-1".to_owned(), "i-3".to_owned()]]);
        assert_eq!(left(&ids, "one does not exist").len(), 3, "each alone");
        assert_eq!(left(&ids, "i-1, i-2 and i-3 do not exist").len(), 0);
        assert_eq!(left(&ids[..1], "one does not exist").len(), 0);
    }
}
