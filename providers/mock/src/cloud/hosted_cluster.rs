//! Clusters that the cloud hosts.

use serde::{Deserialize, Serialize};

use super::{CloudError, State, existing};

/// A hosted cluster and the address of its control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostedCluster {
    /// Its name.
    pub name: String,
    /// Host of its control plane.
    pub host: String,
    /// Port; 0 for the default.
    #[serde(default)]
    pub port: u16,
}

impl State {
    /// All hosted clusters, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &HostedCluster> {
        self.clusters.values()
    }

    /// The hosted cluster of this name.
    pub fn cluster(&self, name: &str) -> Option<&HostedCluster> {
        self.clusters.get(name)
    }

    /// Creates or replaces a hosted cluster.
    ///
    /// # Errors
    ///
    /// The name or the host is missing.
    pub fn put_cluster(&mut self, cluster: HostedCluster) -> Result<HostedCluster, CloudError> {
        if cluster.name.is_empty() || cluster.host.is_empty() {
            return Err(CloudError::Invalid("a cluster needs a name and a host".to_owned()));
        }
        self.clusters.insert(cluster.name.clone(), cluster.clone());
        self.touch();
        Ok(cluster)
    }

    /// Deletes a hosted cluster.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn delete_cluster(&mut self, name: &str) -> Result<HostedCluster, CloudError> {
        let gone = existing("cluster", name, self.clusters.remove(name))?;
        self.touch();
        Ok(gone)
    }
}
