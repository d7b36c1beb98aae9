//! Whether a connected provider can be trusted with destructive work, by family of RPCs.
//!
//! In: its health, its conditions, and the outcomes of its calls. Out: the status that controllers see.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider_proto::v1alpha1::{self as pb, ConditionStatus, ConditionType};
use tokio::time::Instant;

use crate::findings::shown;
use crate::{CloudError, ErrorReason, Family, ProviderStatus, method::Method};

/// What a failed call freezes stays frozen for this long, unless the same RPC succeeds: a working list does not prove
/// that routes can be written.
const FREEZE: Duration = Duration::from_secs(60);
/// As many nodes, or namespaces of Services, have to fail for the cloud to be at fault: one may have what no cloud serves,
/// and whoever may write Services in one namespace may write any number of those.
pub(super) const SEVERAL: usize = 3;

/// The default is a healthy provider.
#[derive(Debug, Default)]
pub(super) struct Standing {
    health: Option<String>,
    conditions: Option<String>,
    silent: Option<String>,
    /// By extent and RPC: how it failed.
    failing: BTreeMap<(Extent, &'static str), Failing>,
    /// What froze something, and the conditions were not checked since: one successful call does not outweigh that.
    unlooked: BTreeMap<Extent, String>,
    /// The provider takes this process for a former leader.
    pub(super) stale_leader: bool,
}

/// What a failure freezes: every family if the credentials or the configuration are refused, one service if the cloud's API
/// fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    Everything,
    Service(&'static str),
}

impl Extent {
    fn includes(self, family: Family) -> bool {
        matches!(self, Self::Everything) || self == Self::Service(family.service())
    }
}

/// An RPC that the cloud fails, or refuses.
#[derive(Debug, Default)]
struct Failing {
    why: String,
    /// Until when a call counts that was about many objects.
    all: Option<Instant>,
    /// The same for those about one, by whose it is; there are no more than [`SEVERAL`].
    whose: BTreeMap<String, Instant>,
}

impl Failing {
    fn freezes(&self, now: Instant) -> bool {
        let whose = self.whose.values().filter(|until| now < **until).count();
        self.all.is_some_and(|until| now < until) || whose == SEVERAL
    }

    fn failed(&mut self, whose: Option<&str>, now: Instant) {
        let until = now + FREEZE;
        let Some(whose) = whose else {
            self.all = Some(until);
            return;
        };
        self.whose.insert(whose.to_owned(), until);
        if self.whose.len() > SEVERAL
            && let Some((oldest, _)) = self.whose.iter().min_by_key(|(_, until)| **until)
        {
            let oldest = oldest.clone();
            self.whose.remove(&oldest);
        }
    }
}

impl Standing {
    /// The status that controllers see. The provider's own word, its credentials and its configuration count for every
    /// family; where the cloud's API fails, it does so for one.
    pub(super) fn status(&self, family: Family, now: Instant) -> ProviderStatus {
        let leader = || self.stale_leader.then(|| "it considers this host a former leader".to_owned());
        let told = [&self.silent, &self.health, &self.conditions].into_iter().flatten();
        let failing =
            self.failing.iter().filter(|((extent, _), one)| extent.includes(family) && one.freezes(now));
        let unlooked = self.unlooked.iter().filter(|(extent, _)| extent.includes(family)).map(|(_, why)| why);
        let why = told.chain(failing.map(|(_, one)| &one.why)).chain(unlooked).next().cloned();
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
        self.unlooked.clear();
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

    /// Records how a call that reaches the cloud ended, about one object or about many. `whose` is its Node or the Service's
    /// namespace. True means that the conditions should be checked now.
    pub(super) fn called(
        &mut self,
        method: &'static Method,
        whose: Option<&str>,
        error: Option<&CloudError>,
        now: Instant,
    ) -> bool {
        let Some(error) = error else {
            self.failing.retain(|(_, name), _| *name != method.name);
            return false;
        };
        let extent = match error.reason {
            Some(ErrorReason::CloudApiUnavailable) => Extent::Service(method.service),
            Some(reason) if reason.freezes() => Extent::Everything,
            Some(ErrorReason::StaleLeader) => {
                self.stale_leader = true;
                return false;
            }
            None => return error.is_silence(),
            Some(_) => return false,
        };
        let failing = self.failing.entry((extent, method.name)).or_default();
        failing.why = error.to_string();
        failing.failed(whose, now);
        if failing.freezes(now) {
            self.unlooked.insert(extent, error.to_string());
        }
        true
    }
}

/// The condition that freezes destructive work: the cloud rejects the credentials or does not answer.
fn bad_condition(conditions: &[pb::ProviderCondition]) -> Option<String> {
    conditions.iter().find_map(|condition| {
        let name = match condition.r#type() {
            ConditionType::CredentialsValid => "CREDENTIALS_VALID",
            ConditionType::CloudReachable => "CLOUD_REACHABLE",
            ConditionType::Unspecified => return None,
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
    use crate::method;

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
        standing.looked(Ok(pb::GetStatusResponse { conditions }));
        standing.status(Family::Routes, Instant::now())
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
            (T::Unspecified, S::False, ProviderStatus::Serving),
        ];
        for (kind, status, want) in rows {
            assert_eq!(looked(vec![condition(kind, status)]), want, "{kind:?} {status:?}");
        }
    }

    /// What calls about Services of these namespaces, `*` for a list, do to the families of balancers and of routes.
    #[test]
    fn a_cloud_that_fails_several_namespaces_freezes_their_family() {
        let down = CloudError::local("EnsureLoadBalancer", ErrorReason::CloudApiUnavailable, "503");
        let rows: [(&[&str], bool); 5] = [
            (&["a"], false),
            (&["a", "a", "a", "a"], false),
            (&["a", "b"], false),
            (&["a", "b", "c"], true),
            (&["*"], true),
        ];
        for (all, freezes) in rows {
            let now = Instant::now();
            let failed = || {
                let mut standing = Standing::default();
                for whose in all {
                    let whose = Some(*whose).filter(|whose| *whose != "*");
                    assert!(
                        standing.called(&method::ENSURE_LOAD_BALANCER, whose, Some(&down), now),
                        "look now"
                    );
                }
                standing
            };
            let mut hasty = failed();
            hasty.called(&method::ENSURE_LOAD_BALANCER, Some("z"), None, now);
            let is_frozen = |standing: &Standing, family, now| {
                matches!(standing.status(family, now), ProviderStatus::Frozen(_))
            };
            assert_eq!(is_frozen(&hasty, Family::LoadBalancers, now), freezes, "not looked at: {all:?}");
            hasty.looked(Ok(pb::GetStatusResponse::default()));
            assert!(!is_frozen(&hasty, Family::LoadBalancers, now), "{all:?}");

            let mut standing = failed();
            standing.looked(Ok(pb::GetStatusResponse::default()));
            assert_eq!(is_frozen(&standing, Family::LoadBalancers, now), freezes, "{all:?}");
            assert!(!is_frozen(&standing, Family::Routes, now), "{all:?}");
            assert!(!is_frozen(&standing, Family::LoadBalancers, now + FREEZE), "{all:?}");
            standing.called(&method::LIST_LOAD_BALANCERS, None, None, now);
            assert_eq!(
                is_frozen(&standing, Family::LoadBalancers, now),
                freezes,
                "S7: reads go well, writes do not"
            );
            standing.called(&method::ENSURE_LOAD_BALANCER, Some("z"), None, now);
            assert!(!is_frozen(&standing, Family::LoadBalancers, now), "{all:?}");
        }
    }

    /// Namespaces that fail one at a time, each forgotten before the next, are no evidence; those that go on failing are.
    #[test]
    fn failures_of_long_ago_do_not_count() {
        let down = CloudError::local("DeleteLoadBalancer", ErrorReason::CloudApiUnavailable, "503");
        let (mut now, mut standing) = (Instant::now(), Standing::default());
        for whose in 0..100 {
            standing.called(&method::DELETE_LOAD_BALANCER, Some(&whose.to_string()), Some(&down), now);
            assert_eq!(standing.status(Family::LoadBalancers, now), ProviderStatus::Serving);
            now += FREEZE / 2;
        }
        for whose in ["a", "b", "c", "d", "a"] {
            standing.called(&method::DELETE_LOAD_BALANCER, Some(whose), Some(&down), now);
        }
        assert!(matches!(standing.status(Family::LoadBalancers, now), ProviderStatus::Frozen(_)));
    }

    /// The credentials are refused and the provider's next answer is wrong: its conditions show it once they are checked.
    #[test]
    fn trouble_freezes_until_the_conditions_were_looked_at() {
        let now = Instant::now();
        for reason in [ErrorReason::CloudCredentialsInvalid, ErrorReason::InvalidProviderConfig] {
            let refused = CloudError::local("BatchGetInstances", reason, "401");
            let mut standing = Standing::default();
            standing.called(&method::BATCH_GET_INSTANCES, None, Some(&refused), now);
            standing.called(&method::BATCH_GET_INSTANCES, Some("n"), None, now);
            for family in Family::ALL {
                assert!(matches!(standing.status(family, now), ProviderStatus::Frozen(_)), "{family:?}");
            }
            standing.looked(Ok(pb::GetStatusResponse::default()));
            assert_eq!(standing.status(Family::Routes, now), ProviderStatus::Serving);
        }
    }

    /// A Service can quote, or refer to, what makes its cloud or its provider refuse it in the words of lost credentials.
    #[test]
    fn what_one_namespace_is_refused_freezes_nothing_but_is_looked_into() {
        let now = Instant::now();
        for reason in [ErrorReason::CloudCredentialsInvalid, ErrorReason::InvalidProviderConfig] {
            let refused = CloudError::local("EnsureLoadBalancer", reason, "401");
            let mut standing = Standing::default();
            for (whose, freezes) in [("a", false), ("a", false), ("b", false), ("a", false), ("c", true)] {
                assert!(standing.called(&method::ENSURE_LOAD_BALANCER, Some(whose), Some(&refused), now));
                let is_frozen = standing.status(Family::Instances, now) != ProviderStatus::Serving;
                assert_eq!(is_frozen, freezes, "{reason:?} of {whose}");
            }
        }
    }

    #[test]
    fn ordinary_errors_freeze_nothing() {
        let mut standing = Standing::default();
        for reason in
            [ErrorReason::QuotaExceeded, ErrorReason::RateLimited, ErrorReason::CloudPermissionDenied]
        {
            let error = CloudError::local("ListRoutes", reason, "");
            standing.called(&method::LIST_ROUTES, None, Some(&error), Instant::now());
        }
        assert_eq!(standing.status(Family::Routes, Instant::now()), ProviderStatus::Serving);
    }

    #[test]
    fn health_silence_and_a_newer_leader_freeze() {
        let (now, of) = (Instant::now(), Family::Instances);
        let mut standing = Standing::default();
        standing.healthy(false);
        assert_eq!(standing.status(of, now), ProviderStatus::Frozen("its health is NOT_SERVING".into()));
        standing.healthy(true);
        standing.looked(Err(CloudError::deadline_exceeded("GetStatus", Duration::from_secs(5))));
        assert!(matches!(standing.status(of, now), ProviderStatus::Frozen(_)));
        standing.looked(Ok(pb::GetStatusResponse::default()));
        let stale = CloudError::local("BatchEnsureRoutes", ErrorReason::StaleLeader, "");
        standing.called(&method::BATCH_ENSURE_ROUTES, None, Some(&stale), now);
        assert!(
            matches!(standing.status(of, now), ProviderStatus::Frozen(why) if why.contains("former leader"))
        );
    }
}
