//! What BatchUpdate and Delete do with one balancer.

use std::sync::Arc;

use cloudprovider_sdk::{
    ProviderError, Result,
    proto::{ErrorReason, LoadBalancerUpdate},
};
use jiff::Timestamp;

use super::{
    Backend, BalancerState, FoundBalancer, State, balancer_config,
    balancer_ensure::{set_digest, uid_of},
    state::later,
};

/// How far a deletion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// Nothing is left, or nothing was ours.
    Gone,
    /// A former controller's was left alone.
    LegacyLeft,
    /// It is going until then.
    Going {
        /// When it is gone.
        due: Timestamp,
    },
}

impl State {
    /// Gives a balancer new backends, a set by its digest, and nothing else of what the Service says by now. When it will
    /// be as wanted, if not yet.
    ///
    /// # Errors
    ///
    /// When the balancer has to be ensured.
    pub fn update_balancer(
        &mut self,
        cluster_uid: &str,
        wish: &LoadBalancerUpdate,
        (digest, backends): (&str, Arc<Vec<Backend>>),
        now: Timestamp,
    ) -> Result<Option<Timestamp>> {
        let service = wish.service.clone().unwrap_or_default();
        balancer_config::check(&service)?;
        let needs = |why: &str| {
            let text = format!("load balancer needs to be ensured: {why}");
            Err(ProviderError::new(ErrorReason::NeedsEnsure, text))
        };
        let Some(mut balancer) = self.own_balancer(cluster_uid, uid_of(&service)).cloned() else {
            return needs("there is none");
        };
        if balancer.drifted {
            return needs("it was changed from outside");
        }
        if balancer.state == BalancerState::Deleting {
            return needs("it is going");
        }
        let backends = self.share_backends(digest, backends);
        balancer.writes += u64::from(balancer.backends != backends);
        balancer.backends = backends;
        balancer.backend_digest = digest.into();
        set_digest(&mut balancer, &wish.desired_digest);
        let due = balancer.due.filter(|_| balancer.state == BalancerState::Provisioning);
        self.put_balancer(balancer);
        self.tick(now);
        Ok(due.filter(|due| *due > now))
    }

    /// Removes the balancer of a Service; what is another's is left alone.
    ///
    /// # Errors
    ///
    /// When the cloud refuses. Absence is no error.
    pub fn delete_balancer(
        &mut self,
        cluster_uid: &str,
        service_uid: &str,
        adopt: bool,
        now: Timestamp,
    ) -> Result<Deleted> {
        self.enter("balancers:write")?;
        let mut balancer = match self.find_balancer(cluster_uid, service_uid) {
            FoundBalancer::ByUid(balancer) => balancer.clone(),
            FoundBalancer::ByLegacyName(balancer) if adopt => balancer.clone(),
            FoundBalancer::ByLegacyName(_) => return Ok(Deleted::LegacyLeft),
            FoundBalancer::NotOwned | FoundBalancer::Absent => return Ok(Deleted::Gone),
        };
        if balancer.state != BalancerState::Deleting {
            balancer.state = BalancerState::Deleting;
            balancer.due = Some(later(now, self.settings.deletion_delay));
            balancer.writes += 1;
        }
        let due = balancer.due.unwrap_or(now);
        let id = balancer.id.clone();
        self.put_balancer(balancer);
        self.tick(now);
        Ok(if self.balancers.contains_key(&id) { Deleted::Going { due } } else { Deleted::Gone })
    }
}
