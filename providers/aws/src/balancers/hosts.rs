//! The instances behind balancers: whether AWS takes them as targets, and their security groups.
//!
//! In: instance IDs. Out: what EC2 said of them in the last ten minutes.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_ec2::types::InstanceStateName;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::{Deadline, Failure};
use crate::cloud::Cloud;
use crate::instances;

const VALID: Duration = Duration::from_secs(600);

/// What EC2 says of an instance.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub state: State,
    pub groups: Vec<String>,
    at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// AWS takes it once it runs, which will be soon.
    Waits,
    /// AWS takes it once somebody starts it.
    Stopped,
    Gone,
}

#[cfg(test)]
impl Host {
    pub(super) fn running(groups: Vec<String>) -> Self {
        Self { state: State::Running, groups, at: Instant::now() }
    }
}

#[derive(Debug, Default)]
pub(super) struct Hosts {
    known: Mutex<HashMap<String, Host>>,
    /// Many balancers that are made at once have the same instances, of which the first asks.
    asks: tokio::sync::Mutex<()>,
}

impl Hosts {
    /// What is known of these, asked anew where it is old or not good.
    pub(super) async fn of(
        &self,
        cloud: &Cloud,
        ids: &BTreeSet<String>,
        until: Deadline,
    ) -> Result<HashMap<String, Host>, Failure> {
        let (hosts, unknown) = self.known(ids);
        if unknown.is_empty() {
            return Ok(hosts);
        }
        let _turn = self.asks.lock().await;
        let (mut hosts, unknown) = self.known(ids);
        if unknown.is_empty() {
            return Ok(hosts);
        }
        let (now, mut fresh) = (Instant::now(), HashMap::new());
        let found = instances::by_ids(cloud, &unknown, until).await?;
        for id in unknown {
            let instance = found.here.get(&id);
            let state = instance.and_then(|one| one.state()).and_then(|state| state.name());
            let groups = instance.map(|one| one.security_groups()).unwrap_or_default();
            let state = match state {
                Some(InstanceStateName::Running) => State::Running,
                Some(InstanceStateName::Terminated | InstanceStateName::ShuttingDown) => State::Gone,
                Some(InstanceStateName::Stopping | InstanceStateName::Stopped) => State::Stopped,
                None if found.gone.contains(&id) => State::Gone,
                _ => State::Waits,
            };
            let groups = groups.iter().filter_map(|group| group.group_id().map(str::to_owned)).collect();
            fresh.insert(id, Host { state, groups, at: now });
        }
        self.known.lock().extend(fresh.clone());
        hosts.extend(fresh);
        Ok(hosts)
    }

    /// What is known of these, and those that are not known, or no longer.
    fn known(&self, ids: &BTreeSet<String>) -> (HashMap<String, Host>, Vec<String>) {
        let mut known = self.known.lock();
        known.retain(|_, host| host.state == State::Running && host.at.elapsed() < VALID);
        let (here, unknown): (Vec<_>, Vec<_>) = ids.iter().partition(|id| known.contains_key(*id));
        let hosts = here.into_iter().filter_map(|id| Some((id.clone(), known.get(id)?.clone())));
        (hosts.collect(), unknown.into_iter().cloned().collect())
    }

    /// AWS says otherwise.
    pub(super) fn forget(&self, ids: &[String]) {
        let mut known = self.known.lock();
        ids.iter().for_each(|id| drop(known.remove(id)));
    }
}
