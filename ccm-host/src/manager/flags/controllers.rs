//! `--controllers`: the controllers to run.

#[cfg(test)]
mod tests;

use crate::controllers::{ALL, Registration};
use crate::flag::{self, Mistakes};

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
    ) -> Option<Vec<&'static Registration>> {
        let (vendors, items): (Vec<String>, Vec<String>) = flag::listed(&self.controllers)
            .map(str::to_owned)
            .partition(|item| VENDORS.contains(&item.trim_start_matches('-')));
        for item in vendors {
            warnings.push(format!(
                "--controllers: {item} has no effect: it belongs to a vendor's own manager; whether it runs is said \
                 to the sidecar"
            ));
        }
        match enabled(&items) {
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

enum Item {
    All,
    On(&'static Registration),
    Off(&'static Registration),
}

/// The controllers that a list enables, in start order, or the unknown names in it.
///
/// The first item that names a controller decides; a controller that is not named runs if `*` is anywhere in the list
/// and it is on by default.
fn enabled(list: &[String]) -> Result<Vec<&'static Registration>, Vec<String>> {
    let mut items = Vec::new();
    let mut unknown = Vec::new();
    for text in list {
        match item(text) {
            Some(item) => items.push(item),
            None => unknown.push(text.clone()),
        }
    }
    if !unknown.is_empty() {
        return Err(unknown);
    }
    Ok(ALL.into_iter().filter(|controller| is_enabled(controller, &items)).collect())
}

fn item(text: &str) -> Option<Item> {
    let named = |name: &str| ALL.into_iter().find(|controller| controller.is_called(name));
    match text.strip_prefix('-') {
        _ if text == "*" => Some(Item::All),
        Some(name) => named(name).map(Item::Off),
        None => named(text).map(Item::On),
    }
}

fn is_enabled(controller: &Registration, items: &[Item]) -> bool {
    let named = items.iter().find_map(|item| match item {
        Item::On(named) if *named == controller => Some(true),
        Item::Off(named) if *named == controller => Some(false),
        Item::All | Item::On(_) | Item::Off(_) => None,
    });
    named.unwrap_or_else(|| controller.by_default && items.iter().any(|item| matches!(item, Item::All)))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn known() -> String {
    ALL.map(|controller| controller.name).join(", ")
}
