//! Monitors a connected provider: its health as it changes, its conditions at a fixed pace.
//!
//! Out: its [`Standing`], from its health, its conditions and the outcomes of its calls.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider_proto::v1alpha1::{self as pb, ConditionStatus, ConditionType};
use tokio::time::Instant;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use super::{Link, session::Session};
use crate::cloud::{CloudError, ErrorReason, ProviderStatus, call::rpc, check::shown};

/// After this many unanswered status calls in a row, the host drops the connection and reconnects.
const MOST_SILENCES: u32 = 3;
/// Minimum time between two status checks that calls asked for, and between two attempts to watch the health.
const SHORTEST: Duration = Duration::from_secs(1);

/// Checks health and status before the first call.
pub(super) async fn first_look(link: &Link, session: &Session) {
    check_health(link, session).await;
    look(link, session).await;
}

/// Monitors until the provider is lost or silent, and returns why.
pub(super) async fn monitor(link: &Link, session: &Session) -> String {
    tokio::select! {
        () = session.lost.cancelled() => "the connection was lost".to_owned(),
        why = poll(link, session) => why,
        () = follow_health(link, session) => "cannot watch its health".to_owned(),
    }
}

async fn poll(link: &Link, session: &Session) -> String {
    let mut silences = 0;
    loop {
        let well = *link.status.borrow() == ProviderStatus::Serving;
        let pace = if well { link.config.paces.status } else { link.config.paces.status_bad };
        tokio::select! {
            () = tokio::time::sleep(pace) => {}
            () = link.look_now.notified() => tokio::time::sleep(SHORTEST.min(pace)).await,
        }
        check_health(link, session).await;
        if look(link, session).await {
            silences = 0;
        } else {
            silences += 1;
        }
        link.publish_standing();
        if silences == MOST_SILENCES {
            return format!("it answered none of {MOST_SILENCES} GetStatus in a row");
        }
    }
}

/// Calls GetStatus. False if it was not answered in time, or at all: after a GOAWAY, a connection takes no more calls, but
/// stays open for the watch of the health.
async fn look(link: &Link, session: &Session) -> bool {
    let answer = link.call(session, None, pb::GetStatusRequest {}).await;
    let silent = matches!(&answer, Err(error) if error.code == Code::DeadlineExceeded || error.is_unanswered);
    link.standing.lock().looked(answer);
    !silent
}

/// Calls Health/Check where it is served.
async fn check_health(link: &Link, session: &Session) {
    if session.refuses(&rpc::HEALTH_CHECK) {
        return;
    }
    let deadline = rpc::HEALTH_CHECK.deadline(&Default::default());
    let message = HealthCheckRequest::default();
    match rpc::unary(&link.metrics, session.client(), deadline, None, message).await {
        Ok(answer) => link.standing.lock().healthy(is_healthy(&answer)),
        // A provider without a health service accepts work.
        Err(error) if error.is(ErrorReason::MethodNotSupported) || error.code == Code::NotFound => {
            session.refuse(&rpc::HEALTH_CHECK);
            link.standing.lock().healthy(true);
        }
        // GetStatus will reveal the cause.
        Err(_) => {}
    }
}

/// Watches the health, so that a provider that stops or comes back is noticed at once.
async fn follow_health(link: &Link, session: &Session) {
    loop {
        match HealthClient::new(session.channel.clone()).watch(HealthCheckRequest::default()).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                while let Ok(Some(answer)) = stream.message().await {
                    link.standing.lock().healthy(is_healthy(&answer));
                    link.publish_standing();
                }
            }
            Err(status) if status.code() == Code::Unimplemented => std::future::pending().await,
            Err(_) => {}
        }
        tokio::time::sleep(SHORTEST).await;
    }
}

/// An unknown health is not a bad one.
fn is_healthy(answer: &HealthCheckResponse) -> bool {
    match answer.status() {
        ServingStatus::NotServing => false,
        ServingStatus::Serving | ServingStatus::Unknown | ServingStatus::ServiceUnknown => true,
    }
}

/// After a call reported the cloud down or the credentials refused, destructive work is frozen for this long, unless
/// the same RPC succeeds: a working list does not prove that routes can be written.
const CLOUD_FREEZE: Duration = Duration::from_secs(60);

/// The default is a healthy provider.
#[derive(Debug, Default)]
pub(super) struct Standing {
    health: Option<String>,
    conditions: Option<String>,
    silent: Option<String>,
    /// By RPC: the error, and until when it counts.
    cloud: BTreeMap<&'static str, (String, Instant)>,
    /// A call failed and the conditions were not checked since: one successful call does not outweigh the failure.
    unlooked: Option<String>,
    /// The provider takes this process for a former leader.
    pub(super) stale_leader: bool,
}

impl Standing {
    /// The status that controllers see.
    pub(super) fn status(&self, now: Instant) -> ProviderStatus {
        let cloud = self.cloud.values().find(|(_, until)| now < *until).map(|(why, _)| why);
        let leader = || self.stale_leader.then(|| "it considers this host a former leader".to_owned());
        let told = [self.silent.as_ref(), self.health.as_ref(), self.conditions.as_ref(), cloud];
        let why = told.into_iter().flatten().chain(&self.unlooked).next().cloned();
        match why.or_else(leader) {
            Some(why) => ProviderStatus::Frozen(why),
            None => ProviderStatus::Serving,
        }
    }

    /// Resets after a reconnect. A different process has forgotten the leaders that the former one saw.
    pub(super) fn connected_anew(&mut self, same_process: bool) {
        *self = Self { stale_leader: self.stale_leader && same_process, ..Self::default() };
    }

    /// Whether it accepts work, by `grpc.health.v1`; true if that is not served.
    pub(super) fn healthy(&mut self, healthy: bool) {
        self.health = (!healthy).then(|| "its health is NOT_SERVING".to_owned());
    }

    /// Records the answer of GetStatus, or why there is none.
    pub(super) fn looked(&mut self, answer: Result<pb::GetStatusResponse, CloudError>) {
        self.unlooked = None;
        match answer {
            Ok(status) => {
                self.silent = None;
                self.conditions = bad_condition(&status.conditions);
            }
            // It has no conditions to report.
            Err(error) if error.is(ErrorReason::MethodNotSupported) => self.silent = None,
            Err(error) => self.silent = Some(error.to_string()),
        }
    }

    /// Records how a call that reaches the cloud ended. True means that the conditions should be checked now.
    pub(super) fn called(&mut self, rpc: &'static str, error: Option<&CloudError>, now: Instant) -> bool {
        match error {
            None => {
                self.cloud.remove(rpc);
                false
            }
            Some(error) => match error.reason {
                Some(reason) if reason.freezes() => {
                    self.cloud.insert(rpc, (error.to_string(), now + CLOUD_FREEZE));
                    self.unlooked = Some(error.to_string());
                    true
                }
                Some(ErrorReason::StaleLeader) => {
                    self.stale_leader = true;
                    false
                }
                None => error.code == Code::DeadlineExceeded || error.is_unanswered,
                Some(_) => false,
            },
        }
    }
}

/// The condition that freezes destructive work: the cloud rejects the credentials or does not answer.
fn bad_condition(conditions: &[pb::ProviderCondition]) -> Option<String> {
    conditions.iter().find_map(|condition| {
        let name = match condition.r#type() {
            ConditionType::CredentialsValid => "CREDENTIALS_VALID",
            ConditionType::CloudReachable => "CLOUD_REACHABLE",
            ConditionType::Unspecified
            | ConditionType::ConfigValid
            | ConditionType::WatchHealthy
            | ConditionType::RateLimited => return None,
        };
        (condition.status() == ConditionStatus::False).then(|| {
            let words = [&condition.reason, &condition.message].into_iter().filter(|word| !word.is_empty());
            let text = shown(&words.cloned().collect::<Vec<_>>().join(": "), 512);
            if text.is_empty() { format!("{name} is FALSE") } else { format!("{name} is FALSE: {text}") }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: ConditionType, status: ConditionStatus) -> pb::ProviderCondition {
        pb::ProviderCondition {
            r#type: kind.into(),
            status: status.into(),
            reason: "Why".into(),
            message: "so".into(),
            since: None,
        }
    }

    fn looked(conditions: Vec<pb::ProviderCondition>) -> ProviderStatus {
        let mut standing = Standing::default();
        standing.looked(Ok(pb::GetStatusResponse { conditions, ..Default::default() }));
        standing.status(Instant::now())
    }

    #[test]
    fn only_false_credentials_and_an_unreachable_cloud_freeze() {
        use ConditionStatus as S;
        use ConditionType as T;
        let frozen = |name: &str| ProviderStatus::Frozen(format!("{name} is FALSE: Why: so"));
        let rows = [
            (T::CredentialsValid, S::False, frozen("CREDENTIALS_VALID")),
            (T::CloudReachable, S::False, frozen("CLOUD_REACHABLE")),
            (T::CloudReachable, S::Unspecified, ProviderStatus::Serving),
            (T::CredentialsValid, S::True, ProviderStatus::Serving),
            (T::ConfigValid, S::False, ProviderStatus::Serving),
            (T::RateLimited, S::True, ProviderStatus::Serving),
        ];
        for (kind, status, want) in rows {
            assert_eq!(looked(vec![condition(kind, status)]), want, "{kind:?} {status:?}");
        }
    }

    #[test]
    fn a_cloud_that_failed_a_call_freezes_until_a_call_succeeds_or_time_passes() {
        let now = Instant::now();
        let down = CloudError::local("EnsureLoadBalancer", ErrorReason::CloudApiUnavailable, "503");
        let mut standing = Standing::default();
        assert!(standing.called("EnsureLoadBalancer", Some(&down), now));
        standing.looked(Ok(pb::GetStatusResponse::default()));
        assert!(matches!(standing.status(now), ProviderStatus::Frozen(_)));
        assert_eq!(standing.status(now + CLOUD_FREEZE), ProviderStatus::Serving);
        standing.called("ListLoadBalancers", None, now);
        assert!(
            matches!(standing.status(now), ProviderStatus::Frozen(_)),
            "S7: reads go well, writes do not"
        );
        standing.called("EnsureLoadBalancer", None, now);
        assert_eq!(standing.status(now), ProviderStatus::Serving);
    }

    /// The cloud is down and the provider's next answer is wrong: its conditions show it once they are checked.
    #[test]
    fn trouble_freezes_until_the_conditions_were_looked_at() {
        let now = Instant::now();
        let down = CloudError::local("BatchGetInstances", ErrorReason::CloudApiUnavailable, "503");
        let mut standing = Standing::default();
        standing.called("BatchGetInstances", Some(&down), now);
        standing.called("BatchGetInstances", None, now);
        assert!(matches!(standing.status(now), ProviderStatus::Frozen(_)));
        standing.looked(Ok(pb::GetStatusResponse::default()));
        assert_eq!(standing.status(now), ProviderStatus::Serving);
    }

    #[test]
    fn ordinary_errors_freeze_nothing() {
        let mut standing = Standing::default();
        for reason in
            [ErrorReason::QuotaExceeded, ErrorReason::RateLimited, ErrorReason::CloudPermissionDenied]
        {
            standing.called("M", Some(&CloudError::local("M", reason, "")), Instant::now());
        }
        assert_eq!(standing.status(Instant::now()), ProviderStatus::Serving);
    }

    #[test]
    fn health_silence_and_a_newer_leader_freeze() {
        let now = Instant::now();
        let mut standing = Standing::default();
        standing.healthy(false);
        assert_eq!(standing.status(now), ProviderStatus::Frozen("its health is NOT_SERVING".into()));
        standing.healthy(true);
        standing.looked(Err(CloudError::deadline_exceeded("GetStatus", Duration::from_secs(5))));
        assert!(matches!(standing.status(now), ProviderStatus::Frozen(_)));
        standing.looked(Ok(pb::GetStatusResponse::default()));
        standing.called("M", Some(&CloudError::local("M", ErrorReason::StaleLeader, "")), now);
        assert!(matches!(standing.status(now), ProviderStatus::Frozen(why) if why.contains("former leader")));
    }
}
