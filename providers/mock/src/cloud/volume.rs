//! Volumes and their topology.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider_sdk::{
    ProviderError,
    proto::{VolumeQuery, VolumeResult, VolumeState},
};
use serde::{Deserialize, Serialize};

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

impl State {
    /// All volumes, by id.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// Looks up a volume by id and plugin. This cloud knows the plugins of Kubernetes' in-tree volumes, and its own.
    pub fn find_volume(&self, query: VolumeQuery) -> VolumeResult {
        let VolumeQuery { key, plugin, volume_id: id, .. } = query;
        let known = plugin.starts_with("kubernetes.io/") || plugin.starts_with(super::ANNOTATION_PREFIX);
        let foreign = id.contains("://") && !id.starts_with(&self.settings.provider_id_prefix);
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
        self.touch();
        Ok(volume)
    }

    /// Deletes a volume.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn delete_volume(&mut self, id: &str) -> Result<Volume, CloudError> {
        let gone = existing("volume", id, self.volumes.remove(id))?;
        self.touch();
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::ErrorReason;

    use super::*;
    use crate::cloud::Settings;

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
}
