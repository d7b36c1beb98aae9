//! What all cases of one run share: the provider, the scenario, the invented cluster of this run, the ledger.

use std::{cell::RefCell, path::Path, sync::Arc};

use anyhow::Result;

use crate::{
    ledger::{Header, Ledger},
    provider::Provider,
    scenario::Scenario,
    target::{Patience, Wire},
};

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
    /// How long its calls may wait for what is temporary.
    pub patience: Arc<Patience>,
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
        Ok(Self { wire, provider, scenario, header, ledger, seed, patience })
    }
}
