//! Metrics of requests to the apiserver, under upstream's names.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use crate::buckets::Buckets;

const LATENCY: Buckets = Buckets(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// Upstream's buckets: 64 bytes to 16 MiB.
const SIZES: Buckets = Buckets(&[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
]);

/// Labels of one finished attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::kube) struct Request {
    pub(in crate::kube) code: String,
    pub(in crate::kube) method: String,
    pub(in crate::kube) host: String,
}

/// Labels of one repeated attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::kube) struct Retry {
    pub(in crate::kube) code: String,
    pub(in crate::kube) verb: String,
    pub(in crate::kube) host: String,
}

/// Labels of a duration or a size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::kube) struct OfVerb {
    pub(in crate::kube) verb: String,
    pub(in crate::kube) host: String,
}

pub(in crate::kube) type Measured = Family<OfVerb, Histogram, Buckets>;

/// Metrics of all clients.
#[derive(Debug, Clone)]
pub struct ClientMetrics {
    pub(in crate::kube) requests: Family<Request, Counter>,
    pub(in crate::kube) retries: Family<Retry, Counter>,
    pub(in crate::kube) duration: Measured,
    pub(in crate::kube) limiter: Measured,
    pub(in crate::kube) request_size: Measured,
    pub(in crate::kube) response_size: Measured,
}

impl Default for ClientMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            retries: Family::default(),
            duration: Family::new_with_constructor(LATENCY),
            limiter: Family::new_with_constructor(LATENCY),
            request_size: Family::new_with_constructor(SIZES),
            response_size: Family::new_with_constructor(SIZES),
        }
    }
}

impl ClientMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_retries",
            "Number of request retries, partitioned by status code, verb, and host",
            self.retries.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, broken down by verb and host",
            self.duration.clone(),
        );
        registry.register(
            "rest_client_rate_limiter_duration_seconds",
            "Time spent in the client-side rate limiter in seconds, broken down by verb and host",
            self.limiter.clone(),
        );
        registry.register(
            "rest_client_request_size_bytes",
            "Request size in bytes, broken down by verb and host",
            self.request_size.clone(),
        );
        registry.register(
            "rest_client_response_size_bytes",
            "Response size in bytes, broken down by verb and host; watches have none",
            self.response_size.clone(),
        );
    }
}
