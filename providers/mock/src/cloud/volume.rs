//! Volumes and where they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{CloudError, State};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Volume {
    /// The cloud's id, as a volume's source says it.
    pub id: String,
    /// The plugin that mounts it; empty: any.
    pub plugin: String,
    /// Zones from which it can be reached.
    pub zones: BTreeSet<String>,
    /// Region; the cloud's own when left out.
    pub region: String,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
}

impl Volume {
    /// The labels of the volume; several zones stand in one value.
    #[must_use]
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

/// What is known of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundVolume<'a> {
    /// It is there.
    Present(&'a Volume),
    /// It is not there.
    Absent,
    /// It is another cloud's.
    NotOwned,
    /// Its kind is not known here.
    UnknownKind,
}

impl State {
    /// All volumes, by id.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// Looks for a volume by its id and plugin. Plugins of this cloud are those of Kubernetes' in-tree volumes and its own.
    #[must_use]
    pub fn find_volume(&self, plugin: &str, id: &str) -> FoundVolume<'_> {
        if !plugin.starts_with("kubernetes.io/") && !plugin.starts_with(super::ANNOTATION_PREFIX) {
            return FoundVolume::UnknownKind;
        }
        if id.contains("://") && !id.starts_with(&self.settings.provider_id_prefix) {
            return FoundVolume::NotOwned;
        }
        match self.volumes.get(id) {
            Some(volume) if volume.plugin.is_empty() || volume.plugin == plugin => {
                FoundVolume::Present(volume)
            }
            _ => FoundVolume::Absent,
        }
    }

    /// Makes or replaces a volume.
    ///
    /// # Errors
    ///
    /// When it has no id.
    pub fn put_volume(&mut self, mut volume: Volume) -> Result<Volume, CloudError> {
        if volume.id.is_empty() {
            return Err(CloudError::Invalid { message: "a volume needs an id".to_owned() });
        }
        if volume.region.is_empty() {
            volume.region.clone_from(&self.settings.region);
        }
        self.volumes.insert(volume.id.clone(), volume.clone());
        self.touch();
        Ok(volume)
    }

    /// Takes a volume away.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn delete_volume(&mut self, id: &str) -> Result<Volume, CloudError> {
        let gone =
            self.volumes.remove(id).ok_or_else(|| CloudError::NotFound { what: format!("volume {id}") })?;
        self.touch();
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
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
        let cases = [
            ("kubernetes.io/aws-ebs", "disk-1", FoundVolume::Present(&disk)),
            ("kubernetes.io/cinder", "disk-1", FoundVolume::Absent),
            ("kubernetes.io/aws-ebs", "disk-2", FoundVolume::Absent),
            ("kubernetes.io/aws-ebs", "aws://eu/vol-1", FoundVolume::NotOwned),
            ("example.com/x", "disk-1", FoundVolume::UnknownKind),
        ];
        for (plugin, id, wanted) in cases {
            assert_eq!(cloud.find_volume(plugin, id), wanted, "{plugin} {id}");
        }
        assert_eq!(disk.topology()[ZONE], "a__b");
        assert_eq!(disk.topology()[REGION], "mock-1");
    }
}
