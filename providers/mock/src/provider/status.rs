//! How the provider is, told from the cloud's conditions.

use cloudprovider_sdk::{
    CallContext, CloudProvider, Result, async_trait,
    proto::{ConditionStatus, ConditionType, GetStatusResponse, ProviderCondition},
};

use super::{Mock, to_wire};
use crate::cloud::Credentials;

#[async_trait]
impl CloudProvider for Mock {
    async fn get_status(&self, _ctx: &CallContext) -> Result<GetStatusResponse> {
        let now = self.now();
        self.cloud.read(now, |state| {
            let is = state.conditions();
            let credentials = match is.credentials {
                Credentials::Valid => (true, ""),
                Credentials::Invalid => (false, "CredentialsRefused"),
                Credentials::Expired => (false, "CredentialsExpired"),
            };
            let told = |holds: bool, reason: &'static str| (holds, if holds { "" } else { reason });
            let conditions = [
                (ConditionType::ConfigValid, told(is.config_valid, "ConfigInvalid")),
                (ConditionType::CredentialsValid, credentials),
                (ConditionType::CloudReachable, told(is.cloud_reachable, "CloudUnreachable")),
                (ConditionType::WatchHealthy, told(is.watch_healthy, "WatchBroken")),
                (
                    ConditionType::RateLimited,
                    (is.rate_limited, if is.rate_limited { "Throttled" } else { "" }),
                ),
            ];
            let last_contact = is.cloud_reachable.then(|| to_wire::timestamp(now));
            Ok(GetStatusResponse {
                conditions: conditions
                    .into_iter()
                    .map(|(kind, (holds, reason))| condition(kind, holds, reason))
                    .collect(),
                config_digest: String::new(),
                credentials_generation: is.credentials_generation,
                last_cloud_contact: last_contact,
            })
        })
    }
}

fn condition(kind: ConditionType, holds: bool, reason: &str) -> ProviderCondition {
    let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
    ProviderCondition {
        r#type: kind.into(),
        status: status.into(),
        reason: reason.to_owned(),
        message: String::new(),
        since: None,
    }
}
