//! What is built: the pinned modules, the flags, and a name that changes with either.

use std::env::consts::{ARCH, OS};

use sha2::{Digest as _, Sha256};

pub(super) const GO_MOD: &str = include_str!("../../assets/go.mod");
pub(super) const GO_SUM: &str = include_str!("../../assets/go.sum");

const KUBERNETES: &str = "k8s.io/kubernetes";
const ETCD: &str = "go.etcd.io/etcd/server/v3";

/// The arguments of `go`, without the output directory.
pub(super) fn arguments() -> Vec<String> {
    let version = version_of(KUBERNETES);
    // Kubernetes' own build sets these; without them the apiserver calls itself v0.0.0.
    let mut stamps = format!("-s -w -X k8s.io/component-base/version.gitVersion={version}");
    for (name, value) in ["gitMajor", "gitMinor"].iter().zip(version.trim_start_matches('v').split('.')) {
        stamps += &format!(" -X k8s.io/component-base/version.{name}={value}");
    }
    ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", &stamps]
        .map(str::to_owned)
        .to_vec()
}

/// For people.
pub(super) fn description() -> String {
    format!("kube-apiserver {} and etcd {}", version_of(KUBERNETES), version_of(ETCD))
}

/// The name of the cache's directory.
pub(super) fn fingerprint() -> String {
    let mut hash = Sha256::new();
    for part in [GO_MOD, GO_SUM, &arguments().join(" "), OS, ARCH] {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The version that go.mod requires of a module.
fn version_of(module: &str) -> &'static str {
    let mut words = GO_MOD.lines().map(str::split_whitespace);
    words
        .find_map(|mut line| (line.next() == Some(module)).then(|| line.next()).flatten())
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_pinned_modules() {
        assert_eq!(description(), "kube-apiserver v1.36.3 and etcd v3.6.8");
        assert!(arguments().concat().contains("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"));
    }
}
