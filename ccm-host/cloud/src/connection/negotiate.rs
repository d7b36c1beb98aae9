//! The versions to speak with a provider.
//!
//! In: the names of its services. Out: the highest version of each that both sides name (D5), or a sentence that says
//! which side to upgrade. Parsed names are compared, never version strings.

use crate::findings::shown;

#[cfg(test)]
mod tests;

const PACKAGE: &str = "ccm.cloudprovider.";
/// The versions that this host speaks, oldest first.
const SPOKEN: [&str; 1] = ["v1alpha1"];
/// The services that this host calls.
const SERVICES: [&str; 6] = ["CloudProvider", "Instances", "LoadBalancers", "Routes", "Volumes", "Clusters"];

/// The versions in common with a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// The name of each service, and the version to speak.
    pub(crate) versions: Vec<(&'static str, &'static str)>,
    /// Services that the provider has, but in no version that this host speaks, and what people should know of that.
    pub(crate) unusable: Vec<(&'static str, String)>,
}

impl Served {
    /// Whether the service can be called.
    pub(crate) fn has(&self, service: &str) -> bool {
        self.versions.iter().any(|(name, _)| *name == service)
    }
}

/// The service names that the host announces.
pub(crate) fn host_services() -> Vec<String> {
    SPOKEN
        .iter()
        .flat_map(|version| SERVICES.iter().map(move |service| format!("{PACKAGE}{version}.{service}")))
        .collect()
}

/// The services and versions that both sides speak.
pub(crate) fn negotiate(names: &[String]) -> Result<Served, String> {
    negotiate_with(names, &SPOKEN)
}

fn negotiate_with(names: &[String], spoken: &[&'static str]) -> Result<Served, String> {
    let theirs: Vec<(&str, &str)> = names.iter().filter_map(|name| split(name)).collect();
    if theirs.is_empty() {
        return Err(format!("it serves no service of {PACKAGE}*: it names {:?}", some(names)));
    }
    let mut served = Served::default();
    for service in SERVICES {
        let versions: Vec<&str> =
            theirs.iter().filter(|(_, name)| *name == service).map(|(version, _)| *version).collect();
        if versions.is_empty() {
            continue;
        }
        match spoken.iter().rev().find(|ours| versions.contains(ours)) {
            Some(version) => served.versions.push((service, version)),
            None => served.unusable.push((service, no_common(service, &versions, spoken))),
        }
    }
    if served.has("CloudProvider") {
        return Ok(served);
    }
    let versions = served.unusable.into_iter().find(|(service, _)| *service == "CloudProvider");
    Err(versions.map(|(_, why)| why).unwrap_or_else(|| {
        format!("it serves {:?}, but not CloudProvider, which every provider must serve", some(names))
    }))
}

/// As many of a provider's words as people read.
fn some(words: &[impl AsRef<str>]) -> Vec<String> {
    words.iter().take(16).map(|word| shown(word.as_ref(), 128)).collect()
}

fn no_common(service: &str, theirs: &[&str], spoken: &[&str]) -> String {
    let highest = spoken.last().and_then(|version| rank(version));
    let is_newer = theirs.iter().all(|version| rank(version) > highest);
    let (what, side) =
        if is_newer { ("only newer versions", "host") } else { ("no common version", "provider") };
    let (theirs, ours) = (some(theirs).join(", "), SPOKEN.join(", "));
    format!("it speaks {what} of {service} ({theirs}; this host speaks {ours}): upgrade the {side}")
}

fn split(name: &str) -> Option<(&str, &str)> {
    let (version, service) = name.strip_prefix(PACKAGE)?.split_once('.')?;
    rank(version).map(|_| (version, service))
}

/// Kubernetes' order of versions: v1alpha1 < v1alpha2 < v1beta1 < v1 < v2alpha1.
fn rank(version: &str) -> Option<(u32, u8, u32)> {
    let rest = version.strip_prefix('v')?;
    for (word, stage) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((major.parse().ok()?, stage, minor.parse().ok()?));
        }
    }
    Some((rest.parse().ok()?, 2, 0))
}
