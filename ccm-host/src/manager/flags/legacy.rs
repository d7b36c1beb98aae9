//! Flags that old manifests carry: accepted with a warning, without effect.

use super::error::{FlagError, Mistakes};
use super::value;

/// The heading tells readers, and [`super::table`], that these do nothing.
pub(super) const HEADING: &str = "Accepted without effect";

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = HEADING)]
pub(super) struct RawLegacy {
    /// The cluster is always named by its uid, so nothing is ever untagged.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub allow_untagged_cloud: Option<String>,

    /// Has had no effect upstream for years.
    #[arg(long, value_name = "DURATION")]
    pub node_sync_period: Option<String>,

    /// Belongs to in-tree volume plugins, which no longer exist.
    #[arg(long, value_name = "STRING")]
    pub external_cloud_volume_plugin: Option<String>,

    /// The apiserver is spoken to in JSON.
    #[arg(long, value_name = "STRING")]
    pub kube_api_content_type: Option<String>,

    /// Name=true or Name=false, comma separated; this host has no feature gates.
    #[arg(long, value_name = "LIST")]
    pub feature_gates: Vec<String>,
}

impl RawLegacy {
    pub(super) fn check(&self, mistakes: &mut Mistakes, warnings: &mut Vec<String>) {
        if let Some(text) = &self.allow_untagged_cloud {
            mistakes.keep(value::switch("allow-untagged-cloud", text));
            warnings.push(ignored("allow-untagged-cloud", text, "the cluster is named by its uid"));
        }
        if let Some(text) = &self.node_sync_period {
            mistakes.keep(value::any_duration("node-sync-period", text));
            warnings.push(ignored("node-sync-period", text, "see --node-status-update-frequency"));
        }
        if let Some(text) = value::non_empty(&self.external_cloud_volume_plugin) {
            warnings.push(ignored("external-cloud-volume-plugin", text, "volumes belong to CSI drivers"));
        }
        if let Some(text) = value::non_empty(&self.kube_api_content_type) {
            warnings.push(ignored("kube-api-content-type", text, "the apiserver is spoken to in JSON"));
        }
        for gate in self.feature_gates.iter().flat_map(|list| list.split(',')).map(str::trim) {
            if !gate.is_empty() && mistakes.keep(feature_gate(gate)).is_some() {
                warnings.push(ignored("feature-gates", gate, "this host knows no such gate"));
            }
        }
    }
}

fn feature_gate(gate: &str) -> Result<(), FlagError> {
    let (name, state) = value::named("feature-gates", gate, "NAME=true or NAME=false")?;
    value::switch("feature-gates", state).map(|_| ()).map_err(|_| {
        FlagError::value("feature-gates", gate, "is neither true nor false", format!("write {name}=true"))
    })
}

fn ignored(name: &str, value: &str, reason: &str) -> String {
    format!("--{name}={value} has no effect: {reason}")
}
