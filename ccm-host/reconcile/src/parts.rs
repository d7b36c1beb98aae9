//! What a controller works with, made by the host's `assembly`.

use std::sync::Arc;

use ccm_cloud::{CloudMetrics, Providers};
use ccm_kube::{Cache, CertificateRequest, Events, KubeMetrics, Node, PersistentVolume, Service, Writer};

use crate::{ReportMetrics, Settings, explain::Views};

/// What a controller works with. All share it but the writer.
#[derive(Debug, Clone)]
pub struct Parts {
    pub settings: Arc<Settings>,
    /// Keeps of each node what the controllers and the providers want.
    pub nodes: Cache<Node>,
    /// Empty unless a controller that reads Services is enabled.
    pub services: Cache<Service>,
    /// Empty unless a controller that reads them is enabled.
    pub certificate_requests: Cache<CertificateRequest>,
    /// Empty unless a controller that reads them is enabled.
    pub volumes: Cache<PersistentVolume>,
    /// Writes as this controller, and only while this process leads.
    pub writer: Writer,
    pub providers: Providers,
    pub events: Events,
    pub metrics: KubeMetrics,
    pub cloud_metrics: CloudMetrics,
    /// Counts what the controllers report.
    pub reports: ReportMetrics,
    /// What the controllers say of themselves to people.
    pub views: Arc<Views>,
}
