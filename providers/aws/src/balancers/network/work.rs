//! One mutation: takes the steps of [`super::plan`], and leaves out what AWS does not take yet.

use std::collections::BTreeSet;

use cloudprovider_sdk::CallContext;

use super::apply::{self, Made};
use super::plan::{self, Actual, Group, Place, Step};
use super::wanted::Wanted;
use crate::api::{Failure, Stop};
use crate::balancers::behind::Behind;
use crate::balancers::{Balancers, told};

pub(super) struct Work<'a> {
    pub of: &'a Balancers,
    pub ctx: &'a CallContext,
    pub behind: Behind<'a>,
}

impl Work<'_> {
    /// Takes steps until none is left.
    pub(super) async fn converge(
        &mut self,
        wanted: &Wanted,
        place: &Place,
        actual: &mut Actual,
    ) -> Result<(), Stop> {
        while let Some(step) = plan::next(wanted, place, &self.behind.backends, actual) {
            if let Some(found) = &mut actual.balancer {
                told::blank((&self.of.cloud, self.ctx, self.behind.until), found).await?;
            }
            if let Step::ModifyListener { group, .. } | Step::CreateListener { group, .. } = &step
                && actual.groups.iter().any(|one| one.arn == *group && one.targets.is_empty())
            {
                self.behind.room()?;
            }
            let arn = actual.balancer.as_ref().map(|one| one.arn.clone()).unwrap_or_default();
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

    /// The security groups of the nodes, once these are open. `None`: EC2 may have forgotten some nodes, whose groups stay open.
    pub(super) fn seen(&self) -> Option<BTreeSet<String>> {
        self.behind.all_run().then(|| self.behind.security_groups())
    }

    /// Gives a target group the backends, and nothing else.
    pub(super) async fn fill(&mut self, group: &mut Group) -> Result<(), Stop> {
        while let Some(step) = plan::of_targets(group, &self.behind.backends) {
            Stop::if_cancelled(self.ctx)?;
            match apply::targets(&self.of.cloud, &step, &mut group.targets, self.behind.until).await {
                Ok(()) => group.after(&step),
                Err(failure) => self.without_refused(failure, &step).await?,
            }
        }
        Ok(())
    }

    /// `None`: AWS refused some of the targets, which are left out from now on.
    async fn take(&mut self, wanted: &Wanted, balancer: &str, step: &Step) -> Result<Option<Made>, Stop> {
        Stop::if_cancelled(self.ctx)?;
        match apply::take(&self.of.cloud, wanted, balancer, step, self.behind.until).await {
            Ok(made) => Ok(Some(made)),
            Err(failure) => self.without_refused(failure, step).await.map(|()| None),
        }
    }

    /// Looks again if AWS refuses targets, and does without those for which a group has no room: the others serve.
    async fn without_refused(&mut self, failure: Failure, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Register { targets, .. } if failure.code() == "InvalidTarget" => {
                self.behind.refused(targets, failure.message()).await
            }
            Step::Register { targets, .. } if failure.code() == "TooManyTargets" => {
                // For the first half there may be.
                self.behind.no_room(&targets[targets.len() / 2..], failure);
                Ok(())
            }
            _ => Err(failure.into()),
        }
    }
}
