//! Volumes of the cloud, as plain values.

use std::collections::BTreeMap;

use super::CloudError;

/// A query for the labels of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeQuery {
    /// Name of the PersistentVolume.
    pub name: String,
    /// Its uid; empty while it is being admitted.
    pub uid: String,
    /// The volume plugin as Kubernetes names it.
    pub plugin: &'static str,
    /// The volume's id as its source says it.
    pub volume_id: String,
    /// Labels that the volume has already.
    pub labels: BTreeMap<String, String>,
}

/// The state of a volume. `VolumeState` in `volumes.proto` has the table of what each state leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeState {
    /// Not known: the safe branch.
    Unknown,
    Present,
    /// The provider looked for it and did not find it.
    Absent,
    /// It belongs to another cloud, or is of a kind that the provider does not know.
    NotOwned,
}

/// The answer about one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAnswer {
    pub state: VolumeState,
    /// Valid labels; of reserved namespaces those of zone and region only.
    pub labels: BTreeMap<String, String>,
    /// Why the state is unknown.
    pub error: Option<CloudError>,
    /// One sentence for each thing dropped from the answer, for an Event on the volume.
    pub rejected: Vec<String>,
}
