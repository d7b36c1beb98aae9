//! The rest of an account: volumes and their topology, clusters that the cloud hosts, and SSH keys.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider_sdk::{
    ProviderError, Result,
    proto::{VolumeQuery, VolumeResult, VolumeState},
};
use serde::{Deserialize, Serialize};
use ssh_key::{Algorithm, PublicKey};

use super::{CloudError, State, existing};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Volume {
    /// The cloud's id, as in a volume's source.
    pub id: String,
    /// The plugin that mounts it; empty for any.
    pub plugin: String,
    /// Zones from which it can be reached.
    pub zones: BTreeSet<String>,
    /// Region; the cloud's region by default.
    pub region: String,
    /// Additional labels.
    pub labels: BTreeMap<String, String>,
}

impl Volume {
    /// The labels of the volume; several zones are joined in one value.
    pub fn topology(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        if !self.zones.is_empty() {
            let zones: Vec<_> = self.zones.iter().map(String::as_str).collect();
            labels.insert(ZONE.to_owned(), zones.join("__"));
        }
        if !self.region.is_empty() {
            labels.insert(REGION.to_owned(), self.region.clone());
        }
        labels
    }
}

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

/// A key that all instances of a cluster accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// Uid of the cluster.
    pub cluster_uid: String,
    /// Login name.
    pub user: String,
    /// Algorithm and base64, separated by a blank.
    pub public_key: String,
}

impl State {
    /// Looks up a volume by id and plugin. This cloud knows the plugins of Kubernetes' in-tree volumes, and its own.
    pub fn find_volume(&self, query: VolumeQuery) -> VolumeResult {
        let VolumeQuery { key, plugin, volume_id: id, .. } = query;
        let known = plugin.starts_with("kubernetes.io/") || plugin.starts_with(super::ANNOTATION_PREFIX);
        let foreign = id.contains("://") && !id.starts_with(&self.settings.provider_id_prefix());
        let volume = self.volumes.get(&id).filter(|one| one.plugin.is_empty() || one.plugin == plugin);
        let (state, error) = match volume {
            _ if !known => {
                let why = "this cloud does not know this kind of volume";
                (VolumeState::NotOwned, Some(ProviderError::unsupported_feature("plugin", why)))
            }
            _ if foreign => (VolumeState::NotOwned, None),
            Some(_) => (VolumeState::Present, None),
            None => (VolumeState::Absent, Some(ProviderError::volume_not_found(&id))),
        };
        let labels =
            volume.filter(|_| state == VolumeState::Present).map(Volume::topology).unwrap_or_default();
        let error = error.map(|error| error.to_item());
        VolumeResult { key, state: state.into(), labels: labels.into_iter().collect(), error }
    }

    /// Creates or replaces a volume.
    ///
    /// # Errors
    ///
    /// It has no id.
    pub fn put_volume(&mut self, mut volume: Volume) -> Result<Volume, CloudError> {
        if volume.id.is_empty() {
            return Err(CloudError::Invalid("a volume needs an id".to_owned()));
        }
        if volume.region.is_empty() {
            volume.region.clone_from(&self.settings.region);
        }
        self.volumes.insert(volume.id.clone(), volume.clone());
        Ok(volume)
    }

    /// Deletes a volume.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn delete_volume(&mut self, id: &str) -> Result<Volume, CloudError> {
        existing("volume", id, self.volumes.remove(id))
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
        Ok(cluster)
    }

    /// Deletes a hosted cluster.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn delete_cluster(&mut self, name: &str) -> Result<HostedCluster, CloudError> {
        existing("cluster", name, self.clusters.remove(name))
    }

    /// Adds an SSH key; adding it again changes nothing.
    ///
    /// # Errors
    ///
    /// It is not a key, or its algorithm is refused.
    pub fn add_ssh_key(&mut self, cluster_uid: &str, user: &str, public_key: &str) -> Result<()> {
        let public_key = check(public_key)?;
        self.enter("ssh-keys:write")?;
        let key = SshKey { cluster_uid: cluster_uid.to_owned(), user: user.to_owned(), public_key };
        if !self.ssh_keys.contains(&key) {
            self.ssh_keys.push(key);
        }
        Ok(())
    }

    /// Removes a user's key, and returns what it removed.
    pub fn delete_ssh_key(&mut self, user: &str, public_key: &str) -> Vec<SshKey> {
        let gone = |key: &mut SshKey| key.user == user && key.public_key == public_key;
        self.ssh_keys.extract_if(.., gone).collect()
    }
}

/// The key without its comment. DSA is refused, as by OpenSSH.
fn check(text: &str) -> Result<String> {
    let refuse = |error: ssh_key::Error| ProviderError::invalid_ssh_key(&format!("it is not a key: {error}"));
    let mut key = PublicKey::from_openssh(text.trim()).map_err(refuse)?;
    if key.algorithm() == Algorithm::Dsa {
        return Err(ProviderError::invalid_ssh_key("instances do not accept DSA"));
    }
    key.set_comment("");
    key.to_openssh().map_err(refuse)
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::ErrorReason;

    use super::*;
    use crate::cloud::Settings;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    #[test]
    fn volumes_are_found_by_id_and_kind() {
        let mut cloud = State::new(Settings::default());
        let zones = ["b".to_owned(), "a".to_owned()].into();
        let disk = Volume {
            id: "disk-1".into(),
            plugin: "kubernetes.io/aws-ebs".into(),
            zones,
            ..Volume::default()
        };
        let disk = cloud.put_volume(disk).unwrap();
        let unknown = Some(ErrorReason::UnsupportedFeature);
        let gone = Some(ErrorReason::VolumeNotFound);
        let cases = [
            ("kubernetes.io/aws-ebs", "disk-1", VolumeState::Present, None),
            ("kubernetes.io/cinder", "disk-1", VolumeState::Absent, gone),
            ("kubernetes.io/aws-ebs", "disk-2", VolumeState::Absent, gone),
            ("kubernetes.io/aws-ebs", "aws://eu/vol-1", VolumeState::NotOwned, None),
            ("example.com/x", "disk-1", VolumeState::NotOwned, unknown),
        ];
        for (plugin, id, state, reason) in cases {
            let query = VolumeQuery { plugin: plugin.into(), volume_id: id.into(), ..VolumeQuery::default() };
            let found = cloud.find_volume(query);
            let labels = if state == VolumeState::Present { disk.topology() } else { BTreeMap::new() };
            assert_eq!(found.labels, labels.into_iter().collect(), "{plugin} {id}");
            let error = found.error.as_ref().map(|error| error.reason());
            assert_eq!((found.state(), error), (state, reason), "{plugin} {id}");
        }
        assert_eq!(disk.topology()[ZONE], "a__b");
        assert_eq!(disk.topology()[REGION], "mock-1");
    }

    #[test]
    fn a_key_is_kept_once_without_its_comment() {
        let mut cloud = State::new(Settings::default());
        for text in [KEY, &format!("{KEY} me@example"), KEY] {
            cloud.add_ssh_key("c1", "core", text).unwrap();
        }
        assert_eq!(cloud.ssh_keys.len(), 1);
    }

    #[test]
    fn what_is_no_key_says_why() {
        for text in ["", "ssh-ed25519", "ssh-rsa !!!", "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA", "two\nlines"] {
            let error = check(text).unwrap_err();
            assert_eq!(error.reason(), ErrorReason::InvalidSshKey, "{text:?}");
            assert!(error.message().starts_with("it is not a key: "), "{text:?}: {}", error.message());
        }
    }
}
