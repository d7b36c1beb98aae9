//! A cloud in memory, used by the provider in front of it, and by the admin door behind the provider's back.
//!
//! Pure: nothing here awaits or reads a clock; the time is an argument. The provider uses the contract's messages and
//! errors. [`Cloud`] is the lock around [`State`]; it wakes watchers, and saves each change before the caller may tell
//! anybody.

mod account;
mod address_pool;
mod balancer;
mod balancer_config;
mod balancer_mutations;
mod balancers;
mod conditions;
mod instances;
mod journal;
mod lookup;
mod maintenance;
mod outside;
mod routes;
mod settings;
mod state;
mod store;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use account::{HostedCluster, SshKey, Volume};
pub(crate) use address_pool::is_for_balancers;
pub use balancer::{
    ANNOTATION_PREFIX, Balancer, BalancerState, Ingress, NODE_ANNOTATIONS, Port, Protocol, ServiceFields,
    WRITTEN_PREFIX,
};
pub use balancer_mutations::{Deleted, Ensured};
pub use balancers::{FoundBalancer, NewLegacyBalancer, legacy_name};
pub use conditions::{Conditions, Credentials};
pub use instances::{Address, AddressKind, Instance, InstanceState, NewInstances};
pub(crate) use journal::{read_resume_token, resume_token};
pub use lookup::{Found, Target};
pub use maintenance::{Maintenance, MaintenanceKind};
pub use outside::CloudError;
pub(crate) use outside::existing;
pub use routes::{ListedRoute, NewRoute, Route, RouteState, canonical_cidr};
pub use settings::{Quota, Settings, UnknownNodes};
pub(crate) use state::timestamp;
pub use state::{CloudCalls, State};
pub use store::Store;
pub(crate) use store::write;

/// The cloud behind its lock.
#[derive(Debug)]
pub struct Cloud {
    state: Mutex<State>,
    store: Store,
    /// Wakes those who wait for any change; the newest sequence of the journal.
    moves: watch::Sender<u64>,
}

impl Cloud {
    /// A cloud that starts as `state` and saves to `store`.
    pub fn new(state: State, store: Store) -> Self {
        let moves = watch::Sender::new(state.journal.head());
        Self { state: Mutex::new(state), store, moves }
    }

    /// Reads the cloud as it is at `now`.
    pub fn read<R>(&self, now: Timestamp, look: impl FnOnce(&State) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.generation;
        state.tick(now);
        if state.generation > before {
            self.moves.send_replace(state.journal.head());
        }
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
            let state = self.state.lock();
            (state.generation, serde_json::to_vec(&*state))
        };
        self.store.save(generation, picture).await?;
        Ok(answer)
    }

    /// Changes the cloud without waiting until that is saved: for changes behind the provider's back.
    pub fn alter<R>(&self, now: Timestamp, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        state.generation += 1;
        state.tick(now);
        let answer = act(&mut state);
        self.moves.send_replace(state.journal.head());
        answer
    }

    /// Wakes at every change, with the newest sequence of the journal.
    pub fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }
}
