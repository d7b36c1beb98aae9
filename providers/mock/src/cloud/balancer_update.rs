//! What BatchUpdate and Delete do with one balancer.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Backend, BalancerKey, BalancerState, CloudError, FoundBalancer, State, WantedService, balancer_config,
    balancer_ensure::set_digest, state::later,
};

/// New backends for a balancer that is there.
#[derive(Debug, Clone)]
pub struct UpdateWish<'a> {
    /// Uid of the cluster.
    pub cluster_uid: &'a str,
    /// The Service.
    pub service: &'a WantedService,
    /// The nodes, shared by all balancers of one set.
    pub backends: Arc<Vec<Backend>>,
    /// Digest of the nodes.
    pub backend_digest: &'a str,
    /// Digest of everything.
    pub desired_digest: &'a str,
}

/// How far an updated balancer is: when it will be as wanted, if not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// When it is provisioned.
    pub due: Option<Timestamp>,
}

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
    /// Gives a balancer new backends, and nothing else of what the Service says by now.
    ///
    /// # Errors
    ///
    /// When the balancer has to be ensured.
    pub fn update_balancer(&mut self, wish: UpdateWish<'_>, now: Timestamp) -> Result<Updated, CloudError> {
        let key = BalancerKey { cluster_uid: wish.cluster_uid.into(), service_uid: wish.service.uid.clone() };
        balancer_config::check(wish.service)?;
        let needs = |why: &str| Err(CloudError::NeedsEnsure { why: why.to_owned() });
        let Some(mut balancer) = self.own_balancer(&key).cloned() else { return needs("there is none") };
        if balancer.drifted {
            return needs("it was changed from outside");
        }
        if balancer.state == BalancerState::Deleting {
            return needs("it is going");
        }
        let backends = self.share_backends(wish.backend_digest, wish.backends);
        balancer.writes += u64::from(balancer.backends != backends);
        balancer.backends = backends;
        balancer.backend_digest = wish.backend_digest.into();
        set_digest(&mut balancer, wish.desired_digest);
        let due = balancer.due.filter(|_| balancer.state == BalancerState::Provisioning);
        self.put_balancer(balancer);
        self.tick(now);
        Ok(Updated { due: due.filter(|due| *due > now) })
    }

    /// Removes the balancer of a Service; what is another's is left alone.
    ///
    /// # Errors
    ///
    /// When the cloud refuses. Absence is no error.
    pub fn delete_balancer(
        &mut self,
        key: &BalancerKey,
        adopt: bool,
        now: Timestamp,
    ) -> Result<Deleted, CloudError> {
        self.enter("balancers:write")?;
        let mut balancer = match self.find_balancer(key) {
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
