//! What a case works with: clients with deadlines, unique names, instances and balancers that are deleted
//! automatically, and checks that report what was expected and what was seen.

mod balancers;
mod check;
mod cloud;
mod errors;
mod machines;
mod pages;
mod pool;
mod routes;
mod rpc;
mod standing;
mod steer;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, atomic::AtomicI32},
    time::Duration,
};

use cloudprovider_proto::{
    discovery::v1::discovery_client::DiscoveryClient,
    method::{self, Method},
    v1alpha1::{
        ClusterRef, Fencing, InProgress, cloud_provider_client::CloudProviderClient,
        clusters_client::ClustersClient, instances_client::InstancesClient,
        load_balancers_client::LoadBalancersClient, routes_client::RoutesClient,
        volumes_client::VolumesClient,
    },
};
use tonic::Request;

pub(crate) use balancers::{Wanted, tcp};
pub(crate) use check::{
    expect, failed, good, is_bare_unimplemented, refused, same, single, under, within_bytes,
};
pub(crate) use cloud::{COUNT, HOLDS};
pub(crate) use errors::{examine, no_secret, read as read_error, reason_of, small, well_formed};
pub(crate) use machines::{Machine, has_addresses};
pub(crate) use pages::List;
pub(crate) use pool::Pool;
pub(crate) use rpc::{By, NOWHERE, Rpc};
pub(crate) use standing::{INSPECT, port_of};

use crate::{
    case::Stop,
    ledger::Entry,
    provider::Provider,
    scenario::{Scenario, Variables},
    session::Session,
    target::{Patient, Wire},
};

/// The limit for whatever a provider may send.
const MESSAGE: usize = 64 << 20;
/// The interval of checks for something that takes time.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The same in a cloud that takes its time, and counts calls.
const LOOK_AGAIN_SLOWLY: Duration = Duration::from_secs(1);
/// The longest wait for work that goes on, whatever the provider names.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What one case works with.
#[derive(Debug)]
pub struct Trial {
    session: Rc<Session>,
    case: &'static str,
    names: Cell<u32>,
    chance: RefCell<fastrand::Rng>,
    /// The number of the reason that the case provokes at the moment.
    provoked: Arc<AtomicI32>,
}

macro_rules! clients {
    ($($(#[$doc:meta])* $name:ident: $client:ident),* $(,)?) => {
        impl Trial {
            $($(#[$doc])*
            pub(crate) fn $name(&self) -> $client<Patient> {
                $client::new(self.patient()).max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE)
            })*
        }
    };
}
clients! {
    discovery: DiscoveryClient,
    base: CloudProviderClient,
    instances: InstancesClient,
    load_balancers: LoadBalancersClient,
    routes: RoutesClient,
    volumes: VolumesClient,
    clusters: ClustersClient,
}

impl Trial {
    /// A trial of this case.
    pub fn new(session: Rc<Session>, case: &'static str) -> Self {
        // The same seed leads to the same choices in a case, whichever others run.
        let of_case =
            case.bytes().fold(session.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let chance = RefCell::new(fastrand::Rng::with_seed(of_case));
        Self { session, case, names: Cell::new(0), chance, provoked: Arc::default() }
    }

    /// The connection to the provider, which waits for what is temporary.
    pub(crate) fn patient(&self) -> Patient {
        Patient {
            wire: self.session.wire.clone(),
            patience: Arc::clone(&self.session.patience),
            provoked: Arc::clone(&self.provoked),
            invariants: Arc::clone(&self.session.invariants),
            meter: Arc::clone(&self.session.meter),
        }
    }

    /// Whether the provider waited for a leader, and is led for the cluster of this run.
    pub(crate) fn is_led(&self) -> bool {
        self.session.led.get()
    }

    /// The connection to the provider, which gives every answer as it comes.
    pub(crate) fn wire(&self) -> &Wire {
        &self.session.wire
    }

    /// What all cases share.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The provider.
    pub(crate) fn provider(&self) -> &Provider {
        &self.session.provider
    }

    /// How to control the cloud.
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.session.scenario
    }

    /// A request with the usual deadline.
    pub(crate) fn ask<T: method::Rpc>(&self, message: T) -> Request<T> {
        within(message, self.deadline(T::METHOD))
    }

    /// The usual deadline of a call.
    pub(crate) fn deadline(&self, method: &Method) -> Duration {
        self.scenario().call_deadline.unwrap_or_else(|| self.provider().deadline(method))
    }

    /// The cluster of this run.
    pub(crate) fn cluster(&self) -> Option<ClusterRef> {
        Some(self.session.header.cluster())
    }

    /// Another cluster, which shares the cloud.
    pub(crate) fn other_cluster(&self) -> ClusterRef {
        self.session.header.other_cluster()
    }

    /// Leader election is off, except in cases about it.
    #[expect(clippy::unused_self, reason = "reads like its neighbours where requests are made")]
    pub(crate) fn fencing(&self) -> Option<Fencing> {
        Some(Fencing::default())
    }

    /// A unique name for a node, a volume or a cluster.
    pub(crate) fn name(&self) -> String {
        let number = self.names.get();
        self.names.set(number + 1);
        let case = self.case.to_ascii_lowercase();
        format!("cf-{}-{case}-{number}", &self.session.header.run_id[..8])
    }

    /// A unique uid.
    #[expect(clippy::unused_self, reason = "reads like its neighbours where requests are made")]
    pub(crate) fn uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    /// A shuffled order.
    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        self.chance.borrow_mut().shuffle(items);
    }

    /// Records what is about to be created.
    pub(crate) fn register(&self, entry: Entry) -> Result<u64, Stop> {
        let registered = self.session.ledger.borrow_mut().register(entry);
        registered.map_err(|error| Stop::NotRun(format!("the ledger cannot be written: {error:#}")))
    }

    /// Records what a hook must undo.
    pub(crate) fn register_hook(&self, hook: &str, variables: Variables) -> Result<u64, Stop> {
        self.register(Entry::Hook { hook: hook.to_owned(), variables: variables.into_map() })
    }

    /// Repeats a check until it succeeds, for as long as the cloud may take.
    pub(crate) async fn eventually<T>(
        &self,
        expected: &str,
        look: impl AsyncFn() -> Result<Result<T, String>, Stop>,
    ) -> Result<T, Stop> {
        self.eventually_within(self.scenario().settle, expected, look).await
    }

    /// Repeats a check until it succeeds, for this long.
    pub(crate) async fn eventually_within<T>(
        &self,
        time: Duration,
        expected: &str,
        look: impl AsyncFn() -> Result<Result<T, String>, Stop>,
    ) -> Result<T, Stop> {
        let end = tokio::time::Instant::now() + time;
        let pause = if self.scenario().balancer_takes.is_zero() { LOOK_AGAIN } else { LOOK_AGAIN_SLOWLY };
        loop {
            match look().await? {
                Ok(found) => return Ok(found),
                Err(seen) if tokio::time::Instant::now() > end => {
                    return Err(failed(format!("{expected} (within {time:?})"), seen));
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Repeats a mutation while its work goes on, as a host does: after the time that the provider names.
    pub(crate) async fn to_its_end<T>(
        &self,
        call: &str,
        make: impl AsyncFn() -> Result<Result<T, InProgress>, Stop>,
    ) -> Result<T, Stop> {
        let most = self.scenario().max_wait.max(self.scenario().settle);
        let end = tokio::time::Instant::now() + most;
        loop {
            let progress = match make().await? {
                Ok(done) => return Ok(done),
                Err(progress) => progress,
            };
            if tokio::time::Instant::now() > end {
                return Err(Stop::NotRun(format!("{call} is still in progress after max-wait ({most:?})")));
            }
            let asked = progress.retry_after.and_then(|after| Duration::try_from(after).ok());
            tokio::time::sleep(asked.unwrap_or_default().clamp(LOOK_AGAIN, LONGEST_PAUSE)).await;
        }
    }

    /// Waits until something advertised has passed, if that does not take too long.
    pub(crate) async fn wait(&self, what: &str, time: Duration) -> Result<(), Stop> {
        let most = self.scenario().max_wait;
        if time > most {
            return Err(Stop::NotRun(format!("{what} is {time:?}, longer than max-wait ({most:?})")));
        }
        tokio::time::sleep(time).await;
        Ok(())
    }
}

/// A request with this deadline.
pub(crate) fn within<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}
