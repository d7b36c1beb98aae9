//! `--controllers`: the controllers to run.

use std::collections::BTreeSet;

use crate::flag::{self, Mistakes};
use crate::manager::controller::{self, Controller, DISABLED_BY_DEFAULT};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Controllers")]
pub(super) struct RawControllers {
    /// Controllers to run: '*' enables all that are on by default, 'NAME' enables one, '-NAME' disables one; the first
    /// item that names a controller wins. Comma separated, repeatable.
    #[arg(long, value_name = "LIST", default_value = "*")]
    pub controllers: Vec<String>,
}

/// Controllers that vendors build into their own managers.
const VENDORS: [&str; 6] = [
    "tagging",
    "gke-service",
    "gke-service-lb-controller",
    "gke-tenant",
    "gke-tenant-controller-manager",
    "gkenetworkparamset",
];

impl RawControllers {
    pub(super) fn resolve(
        &self,
        mistakes: &mut Mistakes,
        warnings: &mut Vec<String>,
    ) -> Option<BTreeSet<Controller>> {
        let (vendors, items): (Vec<String>, Vec<String>) = flag::listed(&self.controllers)
            .map(str::to_owned)
            .partition(|item| VENDORS.contains(&item.trim_start_matches('-')));
        for item in vendors {
            warnings.push(format!(
                "--controllers: {item} has no effect: it belongs to a vendor's own manager; whether it runs is said \
                 to the sidecar"
            ));
        }
        match controller::enabled(&items, DISABLED_BY_DEFAULT) {
            Ok(controllers) => Some(controllers),
            Err(unknown) => {
                let problem = format!("{} is unknown", quoted(&unknown));
                let remedy = format!("use '*' and these, with '-' in front to turn one off: {}", known());
                mistakes.refuse("controllers", self.controllers.join(","), problem, remedy);
                None
            }
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn known() -> String {
    Controller::ALL.map(Controller::name).join(", ")
}
