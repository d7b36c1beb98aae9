//! One provider as it is run: its settings, on whose behalf it is called, and how often.

use std::{fmt, io, sync::Arc, time::Duration};

use ccm_kube::{Backoff, election::Leadership, shadow::Shadow};
use tokio::io::DuplexStream;

use super::{ClusterRef, Endpoint, ProviderSettings};

/// One provider, as configured on the command line.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    pub settings: ProviderSettings,
    /// The cluster on whose behalf every call is made: uid of the namespace `kube-system`, and name.
    pub cluster: ClusterRef,
    /// Whether this process may change anything.
    pub leadership: Leadership,
    /// Where mutations are noted that shadow mode holds back.
    pub shadow: Option<Shadow>,
    /// Connects to a provider without a socket.
    pub dialer: Option<Dialer>,
    /// How often to check status and reconnect.
    pub paces: Paces,
}

/// How often a provider is checked, and how fast the host reconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paces {
    /// Between two status checks of a healthy provider.
    pub status: Duration,
    /// Between two status checks of an unhealthy one.
    pub status_bad: Duration,
    /// Before connecting again.
    pub reconnect: Backoff,
}

impl Default for Paces {
    fn default() -> Self {
        Self {
            status: Duration::from_secs(60),
            status_bad: Duration::from_secs(10),
            reconnect: Backoff { base: Duration::from_millis(100), max: Duration::from_secs(10) },
        }
    }
}

impl ProviderConfig {
    /// The default paces.
    pub fn new(settings: ProviderSettings, cluster: ClusterRef) -> Self {
        Self {
            settings,
            cluster,
            leadership: Leadership::always(),
            shadow: None,
            dialer: None,
            paces: Paces::default(),
        }
    }
}

/// Connects to an endpoint without a socket: for a provider that a simulation runs in the same process.
#[derive(Clone)]
pub struct Dialer(pub(crate) Arc<Dial>);

pub(crate) type Dial = dyn Fn(&Endpoint) -> Result<DuplexStream, io::Error> + Send + Sync;

impl Dialer {
    /// `dial` returns the client end of a new stream to the listener at the endpoint.
    pub fn new(dial: impl Fn(&Endpoint) -> Result<DuplexStream, io::Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dialer").finish_non_exhaustive()
    }
}
