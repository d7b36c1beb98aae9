//! `--controllers`: the controllers to run.

#[cfg(test)]
mod tests;

use crate::{controllers::ALL, manager::webhooks};
use ccm_base::flag::{self, Mistakes};
use ccm_reconcile::Registration;

/// Controllers that vendors build into their own managers.
const VENDORS: [&str; 6] = [
    "tagging",
    "gke-service",
    "gke-service-lb-controller",
    "gke-tenant",
    "gke-tenant-controller-manager",
    "gkenetworkparamset",
];

/// The controllers to run.
pub(super) fn resolve(
    given: &[String],
    mistakes: &mut Mistakes,
    warnings: &mut Vec<String>,
) -> Option<Vec<&'static Registration>> {
    let (vendors, items): (Vec<String>, Vec<String>) = flag::listed(given)
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
            mistakes.refuse("controllers", given.join(","), problem, remedy);
            None
        }
    }
}

/// The controllers whose webhook is served; `enabled` is `None` if it is not known.
pub(super) fn admitting(
    settings: &webhooks::WebhookSettings,
    enabled: Option<&[&'static Registration]>,
    mistakes: &mut Mistakes,
) -> Option<Vec<&'static Registration>> {
    let with_webhook = || ALL.into_iter().filter(|controller| controller.admit.is_some());
    let texts: Vec<_> = flag::listed(&settings.webhooks).collect();
    let is_webhook = |item: &Item| match item {
        Item::All => true,
        Item::On(named) | Item::Off(named) => named.admit.is_some(),
    };
    let items: Result<Vec<_>, _> =
        texts.iter().map(|text| item(text).filter(is_webhook).ok_or(text)).collect();
    let items = match items {
        Ok(items) => items,
        Err(text) => {
            let known: Vec<_> = with_webhook().map(|controller| controller.short_name).collect();
            let remedy =
                format!("use '*' and these, with '-' in front to turn one off: {}", known.join(", "));
            mistakes.refuse("webhooks", texts.join(","), format!("{text:?} is not a webhook"), remedy);
            return None;
        }
    };
    let enabled = enabled?;
    for item in &items {
        if let Item::On(named) = item
            && !enabled.contains(named)
        {
            let remedy =
                format!("add {} to --controllers, which does what the webhook leaves", named.short_name);
            mistakes.refuse("webhooks", texts.join(","), "has no effect without its controller", remedy);
            return None;
        }
    }
    if settings.webhook_secure_port == 0 {
        return Some(Vec::new());
    }
    let all = items.iter().any(|item| matches!(item, Item::All));
    let is_on = |controller: &&'static Registration| named(controller, &items).unwrap_or(all);
    Some(with_webhook().filter(|controller| enabled.contains(controller)).filter(is_on).collect())
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

/// What the first item that names the controller says.
fn named(controller: &Registration, items: &[Item]) -> Option<bool> {
    items.iter().find_map(|item| match item {
        Item::On(named) if *named == controller => Some(true),
        Item::Off(named) if *named == controller => Some(false),
        Item::All | Item::On(_) | Item::Off(_) => None,
    })
}

fn is_enabled(controller: &Registration, items: &[Item]) -> bool {
    named(controller, items)
        .unwrap_or_else(|| controller.by_default && items.iter().any(|item| matches!(item, Item::All)))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn known() -> String {
    ALL.map(|controller| controller.name).join(", ")
}
