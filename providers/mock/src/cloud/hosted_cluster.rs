//! Clusters that the cloud hosts.

use serde::{Deserialize, Serialize};

use super::{CloudError, State, existing};

/// A hosted cluster and where its control plane is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostedCluster {
    /// Its name.
    pub name: String,
    /// Host of its control plane.
    pub host: String,
    /// Port; 0: the usual one.
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

    /// Makes or replaces a hosted cluster.
    ///
    /// # Errors
    ///
    /// When name or host are missing.
    pub fn put_cluster(&mut self, cluster: HostedCluster) -> Result<HostedCluster, CloudError> {
        if cluster.name.is_empty() || cluster.host.is_empty() {
            return Err(CloudError::Invalid("a cluster needs a name and a host".to_owned()));
        }
        self.clusters.insert(cluster.name.clone(), cluster.clone());
        self.touch();
        Ok(cluster)
    }

    /// Takes a hosted cluster away.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn delete_cluster(&mut self, name: &str) -> Result<HostedCluster, CloudError> {
        let gone = existing("cluster", name, self.clusters.remove(name))?;
        self.touch();
        Ok(gone)
    }
}
