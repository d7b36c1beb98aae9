//! What all cases of one run share: the provider, the scenario, the cluster that is made up for this run, the ledger.

use std::{cell::RefCell, path::Path};

use anyhow::Result;

use crate::{
    ledger::{Header, Ledger},
    provider::Provider,
    scenario::Scenario,
    target::Wire,
};

/// What all cases of one run share.
#[derive(Debug)]
pub struct Session {
    /// The way to the provider.
    pub wire: Wire,
    /// Who it is.
    pub provider: Provider,
    /// How the cloud is steered.
    pub scenario: Scenario,
    /// On whose behalf.
    pub header: Header,
    /// What was made.
    pub ledger: RefCell<Ledger>,
    /// Where chance begins.
    pub seed: u64,
}

impl Session {
    /// Begins a run: with a cluster uid that nobody else has, so that nothing foreign is ever seen or touched.
    ///
    /// # Errors
    ///
    /// When the ledger cannot be written.
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
        Ok(Self { wire, provider, scenario, header, ledger, seed })
    }
}
