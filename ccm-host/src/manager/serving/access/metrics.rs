//! Metrics of authentication and authorization, under upstream's names and labels. Requests to open paths are not
//! counted.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Denial, User};
use ccm_base::metric::{Buckets, Declare, Histograms};

/// 1 ms to 16 s, doubling.
const DURATIONS: Buckets = Buckets(&[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
]);

#[derive(Clone, Debug)]
pub(super) struct AccessMetrics {
    users: Family<ByUser, Unsuffixed>,
    attempts: Family<ByResult, Unsuffixed>,
    authentication: Histograms<ByResult>,
    decisions: Family<ByResult, Counter>,
    authorization: Histograms<ByResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByUser {
    username: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// Counters without the `_total` in upstream's names, which OpenMetrics requires of a counter.
#[derive(Clone, Debug, Default)]
struct Unsuffixed(Counter);

impl TypedMetric for Unsuffixed {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Unsuffixed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

impl AccessMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            users: registry.metric(
                "authenticated_user_requests",
                "Counter of authenticated requests broken out by username",
            ),
            attempts: registry.metric("authentication_attempts", "Counter of authentication attempts"),
            authentication: registry.histograms(
                "authentication_duration_seconds",
                "Authentication duration in seconds broken out by result",
                DURATIONS,
            ),
            decisions: registry.metric(
                "authorization_attempts",
                "Counter of authorization attempts broken down by result: allowed, denied or error",
            ),
            authorization: registry.histograms(
                "authorization_duration_seconds",
                "Authorization duration in seconds broken out by result",
                DURATIONS,
            ),
        }
    }

    /// Counts an authentication.
    pub(super) fn authenticated(&self, who: &Result<User, Denial>, since: Instant) {
        let result = match who {
            Ok(user) => {
                self.users.get_or_create(&ByUser { username: class_of(&user.name) }).0.inc();
                "success"
            }
            Err(Denial::Unknown(_)) => "failure",
            Err(_) => "error",
        };
        self.attempts.get_or_create(&ByResult { result }).0.inc();
        self.authentication.get_or_create(&ByResult { result }).observe(since.elapsed().as_secs_f64());
    }

    /// Counts an authorization.
    pub(super) fn authorized(&self, may: &Result<bool, Denial>, since: Instant) {
        let result = match may {
            Ok(true) => "allowed",
            Ok(false) => "denied",
            Err(_) => "error",
        };
        self.decisions.get_or_create(&ByResult { result }).inc();
        self.authorization.get_or_create(&ByResult { result }).observe(since.elapsed().as_secs_f64());
    }
}

/// Classes of users, as upstream: names are unbounded, labels must not be.
fn class_of(user: &str) -> &'static str {
    const KNOWN: [&str; 5] =
        ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"];
    let other = if user.contains('@') { "email_id" } else { "other" };
    KNOWN.into_iter().find(|known| *known == user).unwrap_or(other)
}
