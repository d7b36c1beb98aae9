//! What the cloud plans to do to an instance. It never does it by itself: it is only reported.

use cloudprovider_sdk::proto;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::timestamp;

/// What happens to an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub enum MaintenanceKind {
    /// Not said.
    #[default]
    Unknown = proto::MaintenanceKind::Unspecified as i32,
    /// It pauses.
    Pause = proto::MaintenanceKind::Pause as i32,
    /// It restarts.
    Reboot = proto::MaintenanceKind::Reboot as i32,
    /// It stops.
    Stop = proto::MaintenanceKind::Stop as i32,
    /// It is taken away.
    Termination = proto::MaintenanceKind::Termination as i32,
}

/// What the cloud plans to do to an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maintenance {
    /// What happens.
    pub kind: MaintenanceKind,
    /// When it begins.
    pub from: Option<Timestamp>,
    /// When it is over.
    pub until: Option<Timestamp>,
    /// For people.
    pub message: String,
}

impl From<&Maintenance> for proto::PlannedMaintenance {
    fn from(planned: &Maintenance) -> Self {
        Self {
            kind: planned.kind as i32,
            from: planned.from.map(timestamp),
            until: planned.until.map(timestamp),
            message: planned.message.clone(),
        }
    }
}
