//! The controllers, their names, and which of them `--controllers` enables.
//!
//! In: the items of the flag. Out: the set to start, or the unknown names. [`crate::controllers`] implements the
//! controllers; whether a provider supports one is known only at start.

use std::collections::BTreeSet;
use std::fmt;

/// A controller of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    CloudNode,
    CloudNodeLifecycle,
    ServiceLb,
    /// Runs only if it is named, and with `--allocate-node-cidrs`.
    NodeIpam,
    NodeRoute,
}

/// Controllers that run only if they are named. Upstream's set is empty, but upstream's manager has no node-ipam:
/// published manifests say `--allocate-node-cidrs=true` in clusters whose pod CIDRs come from kube-controller-manager,
/// and two allocators would assign one block twice.
pub const DISABLED_BY_DEFAULT: &[Controller] = &[Controller::NodeIpam];

impl Controller {
    /// All controllers, in the order in which they are listed to people.
    pub const ALL: [Self; 5] =
        [Self::CloudNode, Self::CloudNodeLifecycle, Self::ServiceLb, Self::NodeIpam, Self::NodeRoute];

    /// The canonical name, in flags, logs and health checks.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CloudNode => "cloud-node-controller",
            Self::CloudNodeLifecycle => "cloud-node-lifecycle-controller",
            Self::ServiceLb => "service-lb-controller",
            Self::NodeIpam => "node-ipam-controller",
            Self::NodeRoute => "node-route-controller",
        }
    }

    /// The short name: label `name` of `running_managed_controllers`, and an alias in the flag.
    #[must_use]
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::CloudNode => "cloud-node",
            Self::CloudNodeLifecycle => "cloud-node-lifecycle",
            Self::ServiceLb => "service",
            Self::NodeIpam => "nodeipam",
            Self::NodeRoute => "route",
        }
    }

    /// Further names that the flag accepts; upstream knows these only as identities.
    const fn identity_alias(self) -> Option<&'static str> {
        match self {
            Self::CloudNode | Self::CloudNodeLifecycle | Self::NodeIpam => None,
            Self::ServiceLb => Some("service-controller"),
            Self::NodeRoute => Some("route-controller"),
        }
    }

    /// The controller with this canonical name or alias.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| {
            controller.name() == name
                || controller.short_name() == name
                || controller.identity_alias() == Some(name)
        })
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

enum Item {
    All,
    On(Controller),
    Off(Controller),
}

/// The controllers that a list enables, or the unknown names in it.
///
/// The first item that names a controller decides; a controller that is not named runs if `*` is anywhere in the list
/// and it is not disabled by default.
pub fn enabled(
    list: &[String],
    disabled_by_default: &[Controller],
) -> Result<BTreeSet<Controller>, Vec<String>> {
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
    Ok(Controller::ALL.into_iter().filter(|one| is_enabled(*one, &items, disabled_by_default)).collect())
}

fn item(text: &str) -> Option<Item> {
    if text == "*" {
        return Some(Item::All);
    }
    match text.strip_prefix('-') {
        Some(name) => Controller::from_name(name).map(Item::Off),
        None => Controller::from_name(text).map(Item::On),
    }
}

fn is_enabled(controller: Controller, items: &[Item], disabled_by_default: &[Controller]) -> bool {
    let named = items.iter().find_map(|item| match item {
        Item::On(named) if *named == controller => Some(true),
        Item::Off(named) if *named == controller => Some(false),
        Item::All | Item::On(_) | Item::Off(_) => None,
    });
    named.unwrap_or_else(|| {
        items.iter().any(|item| matches!(item, Item::All)) && !disabled_by_default.contains(&controller)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str, disabled_by_default: &[Controller]) -> Vec<&'static str> {
        let items: Vec<String> = list.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect();
        enabled(&items, disabled_by_default).unwrap().into_iter().map(Controller::short_name).collect()
    }

    /// manager.md 2.2.
    #[test]
    fn first_item_that_names_a_controller_wins() {
        let rows: [(&str, &[&str]); 17] = [
            ("*", &["cloud-node", "cloud-node-lifecycle", "service", "nodeipam", "route"]),
            ("*,-service", &["cloud-node", "cloud-node-lifecycle", "nodeipam", "route"]),
            ("-service,*", &["cloud-node", "cloud-node-lifecycle", "nodeipam", "route"]),
            ("*,-service,service", &["cloud-node", "cloud-node-lifecycle", "nodeipam", "route"]),
            ("*,service,-service", &["cloud-node", "cloud-node-lifecycle", "service", "nodeipam", "route"]),
            ("*,-service-lb-controller", &["cloud-node", "cloud-node-lifecycle", "nodeipam", "route"]),
            ("*,-route,-service-controller", &["cloud-node", "cloud-node-lifecycle", "nodeipam"]),
            ("*,-node-route-controller", &["cloud-node", "cloud-node-lifecycle", "service", "nodeipam"]),
            ("*,-node-ipam-controller", &["cloud-node", "cloud-node-lifecycle", "service", "route"]),
            ("nodeipam", &["nodeipam"]),
            ("-service,service-lb-controller", &[]),
            ("service-controller,route-controller", &["service", "route"]),
            ("cloud-node-controller,cloud-node", &["cloud-node"]),
            ("cloud-node-lifecycle", &["cloud-node-lifecycle"]),
            ("cloud-node,-service", &["cloud-node"]),
            ("-service", &[]),
            ("", &[]),
        ];
        for (list, expected) in rows {
            assert_eq!(names(list, &[]), expected, "{list:?}");
        }
    }

    #[test]
    fn disabled_by_default_runs_only_when_named() {
        let off = [Controller::ServiceLb];
        assert_eq!(names("*", &off), ["cloud-node", "cloud-node-lifecycle", "nodeipam", "route"]);
        assert_eq!(
            names("*,service", &off),
            ["cloud-node", "cloud-node-lifecycle", "service", "nodeipam", "route"]
        );
    }

    #[test]
    fn unknown_names_are_all_reported() {
        let list = ["*", "-tagging", "service", "", "nodes"].map(str::to_owned);
        assert_eq!(enabled(&list, &[]), Err(vec!["-tagging".to_owned(), String::new(), "nodes".to_owned()]));
    }
}
