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
    /// AWS takes it once it runs.
    Waits,
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
        if let Ok(hosts) = self.known(ids) {
            return Ok(hosts);
        }
        let _turn = self.asks.lock().await;
        let unknown = match self.known(ids) {
            Ok(hosts) => return Ok(hosts),
            Err(unknown) => unknown,
        };
        let (now, mut fresh) = (Instant::now(), HashMap::new());
        let found = instances::by_ids(cloud, &unknown, until).await?;
        for id in unknown {
            let instance = found.here.get(&id);
            let state = instance.and_then(|one| one.state()).and_then(|state| state.name());
            let groups = instance.map(|one| one.security_groups()).unwrap_or_default();
            let state = match state {
                Some(InstanceStateName::Running) => State::Running,
                Some(InstanceStateName::Terminated | InstanceStateName::ShuttingDown) => State::Gone,
                None if found.gone.contains(&id) => State::Gone,
                _ => State::Waits,
            };
            let groups = groups.iter().filter_map(|group| group.group_id().map(str::to_owned)).collect();
            fresh.insert(id, Host { state, groups, at: now });
        }
        let mut known = self.known.lock();
        known.extend(fresh);
        Ok(these(&known, ids))
    }

    /// All of these, or those that are not known, or no longer.
    fn known(&self, ids: &BTreeSet<String>) -> Result<HashMap<String, Host>, Vec<String>> {
        let mut known = self.known.lock();
        known.retain(|_, host| host.state == State::Running && host.at.elapsed() < VALID);
        let unknown: Vec<_> = ids.iter().filter(|id| !known.contains_key(*id)).cloned().collect();
        if unknown.is_empty() { Ok(these(&known, ids)) } else { Err(unknown) }
    }

    /// AWS says otherwise.
    pub(super) fn forget(&self, ids: &[String]) {
        let mut known = self.known.lock();
        ids.iter().for_each(|id| drop(known.remove(id)));
    }
}

fn these(known: &HashMap<String, Host>, ids: &BTreeSet<String>) -> HashMap<String, Host> {
    ids.iter().filter_map(|id| Some((id.clone(), known.get(id)?.clone()))).collect()
}
