//! `--feature-gates`: this host has none; upstream's gates are matched with what the host always does.

use super::legacy::{self, ignored};
use crate::flag::{self, Mistakes, Wrong};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = legacy::HEADING)]
pub(super) struct RawGates {
    /// Name=true or Name=false, comma separated; this host has no feature gates.
    #[arg(long, value_name = "LIST")]
    pub feature_gates: Vec<String>,
}

/// Upstream's gates for a cloud controller manager: the state that always holds here, and why the other has no effect.
const KNOWN: [(&str, bool, &str); 6] = [
    (
        "CloudControllerManagerWatchBasedRoutesReconciliation",
        true,
        "routes always follow the events of nodes, and are swept every --route-reconciliation-period",
    ),
    ("CloudControllerManagerWebhook", true, "the webhooks that --webhooks names are served"),
    ("ComponentFlagz", true, "/flagz is always served"),
    ("ComponentStatusz", true, "/statusz is always served"),
    ("ContextualLogging", true, "lines always carry their context"),
    ("LoggingBetaOptions", true, "--logging-format=json is always there"),
];

impl RawGates {
    pub(super) fn check(&self, mistakes: &mut Mistakes, warnings: &mut Vec<String>) {
        for gate in flag::listed(&self.feature_gates) {
            let read = in_vain(gate).map_err(|wrong| wrong.of("feature-gates", gate));
            if let Some(Some(why)) = mistakes.keep(read) {
                warnings.push(ignored("feature-gates", gate, why));
            }
        }
    }
}

/// Why this setting of a gate has no effect, unless it asks for what holds anyway.
fn in_vain(gate: &str) -> Result<Option<&'static str>, Wrong> {
    let (name, state) = flag::named("feature-gates", gate, "NAME=true or NAME=false")?;
    let on = flag::switch(state).map_err(|wrong| Wrong { remedy: format!("write {name}=true"), ..wrong })?;
    Ok(match KNOWN.iter().find(|(known, ..)| *known == name) {
        Some((_, holds, _)) if *holds == on => None,
        Some((.., why)) => Some(why),
        None => Some("this host knows no such gate"),
    })
}
