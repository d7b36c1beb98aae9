//! A cloud in memory, used by the provider in front of it, and by the admin door behind the provider's back.
//!
//! Pure: nothing here awaits or reads a clock; the time is an argument. The provider uses the contract's messages and
//! errors. [`Cloud`] is the lock around [`State`]; it wakes watchers, and saves each change before the caller may tell
//! anybody.

mod address_pool;
mod balancer;
mod balancer_config;
mod balancer_mutations;
mod balancers;
mod conditions;
mod error;
mod hosted_cluster;
mod index;
mod instances;
mod journal;
mod lookup;
mod patch;
mod routes;
mod settings;
mod ssh_key;
mod state;
mod store;
mod volume;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use balancer::{
    ANNOTATION_PREFIX, Backend, Balancer, BalancerState, Ingress, Port, Protocol, WRITTEN_PREFIX,
};
pub use balancer_mutations::{Deleted, Ensured};
pub use balancers::{FoundBalancer, Held, NewLegacyBalancer, legacy_name};
pub use conditions::{Conditions, Credentials};
pub use error::CloudError;
pub(crate) use error::existing;
pub use hosted_cluster::HostedCluster;
pub use instances::{Address, AddressKind, Instance, InstanceState, NewInstances};
pub use journal::Change;
pub(crate) use journal::{read_resume_token, resume_token};
pub use lookup::Found;
pub use routes::{ListedRoute, NewRoute, Route, RouteState, RouteTarget, canonical_cidr};
pub use settings::{Quota, Settings, UnknownNodes};
pub use ssh_key::SshKey;
pub(crate) use state::timestamp;
pub use state::{CloudCalls, State};
pub(crate) use store::write;
pub use store::{Store, load};
pub use volume::Volume;

/// The cloud behind its lock.
#[derive(Debug, Clone)]
pub struct Cloud {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    store: Store,
    /// The newest sequence of the journal, for watchers.
    journal_head: watch::Sender<u64>,
    /// Changes when the next due time may have changed, for the ticker.
    schedule: watch::Sender<u64>,
}

impl Cloud {
    /// A cloud that starts as `state` and saves to `store`.
    pub fn new(state: State, store: Store) -> Self {
        let journal_head = watch::Sender::new(state.journal.head());
        let schedule = watch::Sender::new(0);
        Self { shared: Arc::new(Shared { state: Mutex::new(state), store, journal_head, schedule }) }
    }

    /// Reads the cloud as it is at `now`.
    pub fn read<R>(&self, now: Timestamp, look: impl FnOnce(&State) -> R) -> R {
        let mut state = self.shared.state.lock();
        state.tick(now);
        self.publish(&state);
        look(&state)
    }

    /// Changes the cloud and returns once the change is saved.
    ///
    /// # Errors
    ///
    /// The state file cannot be written: the change is made, but a restart may forget it.
    pub async fn change<R>(&self, now: Timestamp, act: impl FnOnce(&mut State) -> R) -> anyhow::Result<R> {
        let (answer, generation) = self.alter(now, |state| (act(state), state.generation));
        let picture = || {
            let state = self.shared.state.lock();
            (state.generation, serde_json::to_vec(&*state))
        };
        self.shared.store.save(generation, picture).await?;
        Ok(answer)
    }

    /// Changes the cloud without waiting until that is saved: for changes behind the provider's back.
    pub fn alter<R>(&self, now: Timestamp, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.shared.state.lock();
        state.tick(now);
        let answer = act(&mut state);
        self.publish(&state);
        answer
    }

    /// Wakes those who wait for changes.
    fn publish(&self, state: &State) {
        let move_to = |head: &mut u64, now: u64| std::mem::replace(head, now) != now;
        self.shared.journal_head.send_if_modified(|head| move_to(head, state.journal.head()));
        self.shared.schedule.send_if_modified(|seen| move_to(seen, state.generation));
    }

    /// Wakes when the journal has grown.
    pub fn journal_moves(&self) -> watch::Receiver<u64> {
        self.shared.journal_head.subscribe()
    }

    /// Wakes when the next due time may have changed.
    pub fn schedule_moves(&self) -> watch::Receiver<u64> {
        self.shared.schedule.subscribe()
    }
}
