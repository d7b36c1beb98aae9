//! What all cases of one run share: the provider, the scenario, the invented cluster of this run, the ledger.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use cloudprovider_proto::{
    method,
    v1alpha1::{
        Capability, Fencing, GetStatusRequest, LeadRequest, ServiceRef,
        cloud_provider_client::CloudProviderClient,
    },
};
use tokio::time::Instant;

use crate::{
    case::{Outcome, Stop},
    invariants::Invariants,
    ledger::{self, Header, Ledger, Left},
    provider::Provider,
    scenario::Scenario,
    target::{Meter, Patience, Wire},
    trial::{Machine, Pool, within},
};

/// How long a provider may take to start its work once it is led.
const START: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The reason of a condition of a provider that waits for its first leader.
const NOT_LED: &str = "NotLed";

/// What all cases of one run share.
#[derive(Debug)]
pub struct Session {
    /// The connection to the provider.
    pub wire: Wire,
    /// The provider.
    pub provider: Provider,
    /// How to control the cloud.
    pub scenario: Scenario,
    /// The cluster of the run.
    pub header: Header,
    /// What was created.
    pub ledger: RefCell<Ledger>,
    /// The seed of random choices.
    pub seed: u64,
    /// Counts what the run makes.
    pub meter: Arc<Meter>,
    /// What no answer may break.
    pub invariants: Arc<Invariants>,
    /// How long its calls may wait for what is temporary.
    pub patience: Arc<Patience>,
    /// Services of the run's cluster whose balancers may stand.
    pub(crate) balancers: RefCell<Pool<ServiceRef>>,
    /// The same of the other cluster.
    pub(crate) others: RefCell<Pool<ServiceRef>>,
    /// Instances that run.
    pub(crate) machines: RefCell<Pool<Machine>>,
    /// Node ports by Service, protocol and port.
    pub(crate) node_ports: RefCell<BTreeMap<(String, i32, i32), i32>>,
    /// How many balancers may stand at once.
    pub max_balancers: usize,
    /// The provider waited for a leader, and was told of one for the cluster of this run.
    pub led: Cell<bool>,
}

impl Session {
    /// Begins a run with a unique cluster uid, so that it never sees or touches foreign resources.
    ///
    /// # Errors
    ///
    /// The ledger cannot be written.
    pub fn begin(
        wire: Wire,
        provider: Provider,
        scenario: Scenario,
        folder: &Path,
        seed: u64,
    ) -> Result<Self> {
        let run_id = uuid::Uuid::new_v4().simple().to_string()[..12].to_owned();
        let header = Header {
            run_id,
            endpoint: wire.endpoint().to_string(),
            cluster_uid: uuid::Uuid::new_v4().to_string(),
        };
        let ledger = RefCell::new(Ledger::begin(folder, &header)?);
        let patience = Arc::new(Patience::new(scenario.patience));
        let invariants = Arc::new(Invariants::new(provider.clone(), scenario.secrets.clone()));
        Ok(Self {
            meter: Arc::default(),
            invariants,
            wire,
            provider,
            scenario,
            header,
            ledger,
            seed,
            patience,
            max_balancers: usize::MAX,
            balancers: RefCell::default(),
            others: RefCell::default(),
            machines: RefCell::default(),
            node_ports: RefCell::default(),
            led: Cell::new(false),
        })
    }

    /// Makes room for one more balancer among those that may stand at once.
    ///
    /// # Errors
    ///
    /// The present case has them all.
    pub(crate) async fn room_for_a_balancer(&self) -> Outcome {
        if self.ledger.borrow().balancers() >= self.max_balancers {
            self.leave_nothing_for_later().await;
        }
        let most = self.max_balancers;
        if self.ledger.borrow().balancers() < most {
            return Ok(());
        }
        Err(Stop::NotRun(format!("needs more than {most} balancers at once (--max-balancers)")))
    }

    /// Deletes the balancers that cases have left for later ones.
    pub(crate) async fn leave_nothing_for_later(&self) {
        let unused = [self.balancers.borrow_mut().drain(), self.others.borrow_mut().drain()].concat();
        self.clean(|number| unused.contains(&number)).await;
    }

    /// Deletes those of what was made that are chosen.
    pub(crate) async fn clean(&self, chosen: impl Fn(u64) -> bool) -> Vec<Left> {
        ledger::clean(&self.wire, &self.scenario, &self.ledger, chosen).await
    }

    /// Deletes what the case has made and did not leave to later ones, or all it had in hands if it did not pass.
    pub(crate) async fn end_case(&self, since: u64, passed: bool) -> Vec<Left> {
        let other = self.header.other_cluster().uid;
        let stands = |cluster: &str, service: &ServiceRef| passed && self.meter.stands(cluster, &service.uid);
        let dropped = [
            self.balancers.borrow_mut().end_case(|service| stands(&self.header.cluster_uid, service)),
            self.others.borrow_mut().end_case(|service| stands(&other, service)),
            self.machines.borrow_mut().end_case(|_| passed),
        ]
        .concat();
        let kept = {
            let (balancers, others) = (self.balancers.borrow(), self.others.borrow());
            let machines = self.machines.borrow();
            balancers.kept().chain(others.kept()).chain(machines.kept()).collect::<BTreeSet<u64>>()
        };
        self.clean(|number| dropped.contains(&number) || number >= since && !kept.contains(&number)).await
    }

    /// Leads a provider that answers nothing before somebody does, as a bridged one may: as a host without leader election,
    /// whose calls are those of most cases.
    pub async fn lead_if_it_waits(&self) {
        if !self.provider.can(Capability::Leadership) || !self.waits().await {
            return;
        }
        let lead = LeadRequest {
            cluster: Some(self.header.cluster()),
            fencing: Some(Fencing::default()),
            valid_for: None,
            valid_until: None,
        };
        // Whatever it answers, what it then does is for the cases to see.
        let _ = CloudProviderClient::new(self.wire.clone()).lead(within(lead, START)).await;
        self.led.set(true);
        let end = Instant::now() + START;
        while self.waits().await && Instant::now() < end {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether the provider says that nobody has led it yet.
    async fn waits(&self) -> bool {
        let deadline = self.scenario.call_deadline.unwrap_or(method::GET_STATUS.deadline);
        let ask = within(GetStatusRequest::default(), deadline);
        let answer = CloudProviderClient::new(self.wire.clone()).get_status(ask).await;
        answer.is_ok_and(|status| status.into_inner().conditions.iter().any(|one| one.reason == NOT_LED))
    }
}
