//! One mutation: takes the steps of [`super::plan`], and leaves out what AWS does not take yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cloudprovider_sdk::CallContext;
use cloudprovider_sdk::proto::{InProgress, NodeRef};

use super::apply::{self, Made};
use super::hosts::State;
use super::plan::{self, Actual, Backends, Group, Place, Step};
use super::wanted::Wanted;
use super::{Balancers, Nodes, digest_tags, names};
use crate::api::{Deadline, Failure, Stop, later};
use crate::instances;

/// How soon to look whether AWS takes an instance.
const UNTIL_IT_RUNS: Duration = Duration::from_secs(15);

pub(super) struct Work<'a> {
    of: &'a Balancers,
    ctx: &'a CallContext,
    nodes: Vec<&'a NodeRef>,
    until: Deadline,
    pub hosts: Arc<Nodes>,
    backends: Backends,
    /// The instances that AWS will take.
    waiting: BTreeSet<String>,
}

impl<'a> Work<'a> {
    pub(super) async fn of(
        of: &'a Balancers,
        ctx: &'a CallContext,
        nodes: Vec<&'a NodeRef>,
        until: Deadline,
    ) -> Result<Self, Failure> {
        let hosts = of.hosts.of(&of.cloud, &instances_of(of, &nodes), until).await?;
        Ok(Self::knowing(of, ctx, nodes, hosts.into(), until))
    }

    /// With what was read of the nodes' instances.
    pub(super) fn knowing(
        of: &'a Balancers,
        ctx: &'a CallContext,
        nodes: Vec<&'a NodeRef>,
        hosts: Arc<Nodes>,
        until: Deadline,
    ) -> Self {
        let (backends, waiting) = (Backends::default(), BTreeSet::new());
        let mut work = Self { of, ctx, nodes, until, hosts, backends, waiting };
        work.look();
        work
    }

    /// Finds out which nodes' instances AWS takes.
    fn look(&mut self) {
        let now = SystemTime::now();
        let young =
            self.nodes.iter().copied().filter(|node| instances::is_young(node, now)).collect::<Vec<_>>();
        let (all, young) = (instances_of(self.of, &self.nodes), instances_of(self.of, &young));
        let state = |id: &String| self.hosts.get(id).map_or(State::Waits, |host| host.state);
        let not_now: BTreeSet<_> = all.iter().filter(|id| state(id) != State::Running).cloned().collect();
        // Of a young node's instance EC2 may not know yet.
        let waits = |id: &&String| state(id) == State::Waits || young.contains(*id);
        self.waiting = not_now.iter().filter(waits).cloned().collect();
        self.backends = Backends { all, not_now };
    }

    /// Takes steps until none is left.
    pub(super) async fn converge(
        &mut self,
        wanted: &Wanted,
        place: &Place,
        actual: &mut Actual,
    ) -> Result<(), Stop> {
        while let Some(mut step) = plan::next(wanted, place, &self.backends, actual) {
            let there = actual.balancer.as_ref();
            // Half a change must not pass for what was applied before, should the Service be changed back.
            if there.is_some_and(|one| one.tags.get(names::APPLIED_TAG).is_some_and(|tag| !tag.is_empty())) {
                step = Step::Tag(digest_tags(""));
            }
            let arn = there.map(|one| one.arn.clone()).unwrap_or_default();
            match self.take(wanted, &arn, &step).await? {
                None => {}
                Some(made) => {
                    actual.after(&step, wanted, &made.arn);
                    if let (Step::CreateBalancer(_), Some(balancer)) = (&step, &mut actual.balancer) {
                        balancer.dns = made.dns;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives a target group the backends, and nothing else.
    pub(super) async fn fill(&mut self, group: &mut Group) -> Result<(), Stop> {
        while let Some(step) = plan::of_targets(group, &self.backends) {
            Stop::if_cancelled(self.ctx)?;
            match apply::targets(&self.of.cloud, &step, self.until).await {
                Ok(()) => group.after(&step),
                Err(failure) => self.without_refused(failure, &step).await?,
            }
        }
        Ok(())
    }

    /// `None`: AWS refused some of the targets, which are left out from now on.
    async fn take(&mut self, wanted: &Wanted, balancer: &str, step: &Step) -> Result<Option<Made>, Stop> {
        Stop::if_cancelled(self.ctx)?;
        match apply::take(&self.of.cloud, wanted, balancer, step, self.until).await {
            Ok(made) => Ok(Some(made)),
            Err(failure) => self.without_refused(failure, step).await.map(|()| None),
        }
    }

    /// AWS refuses all targets of a call for one that does not run: looks again which these are.
    async fn without_refused(&mut self, failure: Failure, step: &Step) -> Result<(), Stop> {
        let targets = match step {
            Step::Register { targets, .. } if failure.code() == "InvalidTarget" => targets,
            _ => return Err(failure.into()),
        };
        self.of.hosts.forget(targets);
        let before = self.backends.not_now.len();
        let all = instances_of(self.of, &self.nodes);
        self.hosts = self.of.hosts.of(&self.of.cloud, &all, self.until).await?.into();
        self.look();
        if self.backends.not_now.len() == before {
            let message = "AWS takes no target of a call, and EC2 says that all of their instances run";
            return Err(Stop::Later(later(UNTIL_IT_RUNS, "TARGETS_REFUSED", message)));
        }
        Ok(())
    }

    /// All security groups that the nodes' instances have.
    pub(super) fn security_groups(&self) -> BTreeSet<String> {
        self.hosts.values().flat_map(|host| host.groups.iter().cloned()).collect()
    }

    /// What has to be waited for.
    pub(super) fn waits(&self) -> Option<InProgress> {
        let first = self.waiting.first()?;
        let message =
            format!("{} instances do not run, or are not known yet, for example {first}", self.waiting.len());
        Some(later(UNTIL_IT_RUNS, "WAITING_FOR_INSTANCES", &message))
    }
}

/// The instances of these nodes.
pub(super) fn instances_of(of: &Balancers, nodes: &[&NodeRef]) -> BTreeSet<String> {
    let region = &of.cloud.region;
    nodes.iter().filter_map(|node| instances::id_of(&node.provider_id, region).map(str::to_owned)).collect()
}
