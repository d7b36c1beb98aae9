//! The provider's conditions, from the calls that are made anyway.
//!
//! While nobody calls AWS for a while, or when the last call went wrong, a call of its own finds out how things are.

use std::sync::Arc;
use std::time::Duration;

use cloudprovider_sdk::proto::GetStatusResponse;
use cloudprovider_sdk::{CallContext, CloudProvider, Result, async_trait};

use crate::api::{Calls, Deadline};
use crate::zones::Zones;

/// Longer than the host's sweeps are apart, which tell as much.
const QUIET: Duration = Duration::from_secs(600);
const QUIET_AFTER_TROUBLE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Status {
    calls: Calls,
}

impl Status {
    pub(crate) fn new(calls: Calls, zones: Arc<Zones>) -> Self {
        tokio::spawn(probe(calls.clone(), zones));
        Self { calls }
    }
}

async fn probe(calls: Calls, zones: Arc<Zones>) {
    loop {
        let (silence, well) = calls.silence();
        let quiet = if well { QUIET } else { QUIET_AFTER_TROUBLE };
        if silence.is_none_or(|silence| silence >= quiet) {
            // A failure is remembered as that of any other call.
            let _remembered = zones.refresh(Deadline::after(quiet)).await;
        }
        tokio::time::sleep(TICK).await;
    }
}

#[async_trait]
impl CloudProvider for Status {
    async fn get_status(&self, _ctx: &CallContext) -> Result<GetStatusResponse> {
        Ok(GetStatusResponse { conditions: self.calls.conditions() })
    }
}
