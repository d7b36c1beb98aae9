//! Metrics: keys in the Secret, and keys on all instances.

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use ccm_base::metric::{Declare, OfProvider};

#[derive(Debug, Clone)]
pub(super) struct SshKeyMetrics {
    wanted: Gauge,
    refused: Gauge,
    unreadable: Gauge,
    spread: Family<OfProvider, Gauge>,
}

impl SshKeyMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            wanted: registry.metric("ssh_keys_wanted", "Public keys in the Secret"),
            refused: registry.metric(
                "ssh_keys_refused",
                "Lines of the Secret that are not a public key, or whose user is not a login name",
            ),
            unreadable: registry
                .metric("ssh_keys_secret_unreadable", "Whether the Secret cannot be read (1)"),
            spread: registry
                .metric("ssh_keys_spread", "Public keys that a provider has made valid on all instances"),
        }
    }

    pub(super) fn planned(&self, wanted: usize, refused: usize) {
        self.wanted.set(gauge(wanted));
        self.refused.set(gauge(refused));
    }

    pub(super) fn unreadable(&self, unreadable: bool) {
        self.unreadable.set(i64::from(unreadable));
    }

    pub(super) fn spread(&self, provider: &str, keys: usize) {
        let label = OfProvider::new(provider);
        self.spread.get_or_create(&label).set(gauge(keys));
    }
}

fn gauge(keys: usize) -> i64 {
    i64::try_from(keys).unwrap_or(i64::MAX)
}
