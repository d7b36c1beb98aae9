//! What is built: pinned modules, the flags, and a name that changes with either.

use std::{
    env,
    env::consts::{ARCH, OS},
    ffi::OsStr,
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Chooses the minor of the servers that are built; the newest one otherwise.
const VARIABLE: &str = "KUBERNETES_MINOR";

/// The servers of the oldest and the newest supported minor, as docs/versions.md has them.
const SERVERS: [Recipe; 2] = [
    Recipe {
        minor: "1.33",
        go_mod: include_str!("../../assets/1.33/go.mod"),
        go_sum: include_str!("../../assets/1.33/go.sum"),
        programs: SERVER_PROGRAMS,
        renamed: SERVERS_RENAMED,
    },
    Recipe {
        minor: "1.37",
        go_mod: include_str!("../../assets/1.37/go.mod"),
        go_sum: include_str!("../../assets/1.37/go.sum"),
        programs: SERVER_PROGRAMS,
        renamed: SERVERS_RENAMED,
    },
];

const KUBERNETES: &str = "k8s.io/kubernetes";
const SERVER_PROGRAMS: &[(&str, &str)] =
    &[("kube-apiserver", KUBERNETES), ("etcd", "go.etcd.io/etcd/server/v3")];

/// `go build tool` names a program after its package's directory, which for etcd is this.
const SERVERS_RENAMED: &[(&str, &str)] = &[("server", super::ETCD)];

/// What is built together: pinned modules, and for people the programs with the module of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recipe {
    minor: &'static str,
    pub(super) go_mod: &'static str,
    pub(super) go_sum: &'static str,
    programs: &'static [(&'static str, &'static str)],
    /// Programs that get another name than `go` gives them.
    pub(super) renamed: &'static [(&'static str, &'static str)],
}

impl Recipe {
    /// What a cluster of machines runs besides the apiserver.
    pub(super) const MACHINES: Self = Self {
        minor: "1.37",
        go_mod: include_str!("../../assets/machines/go.mod"),
        go_sum: include_str!("../../assets/machines/go.sum"),
        programs: &[
            ("kubelet with everything around it", KUBERNETES),
            ("CNI plugins", "github.com/containernetworking/plugins"),
        ],
        renamed: &[],
    };

    /// The servers, as the environment says.
    pub(super) fn servers() -> Result<Self> {
        Self::servers_of(env::var_os(VARIABLE).as_deref())
    }

    fn servers_of(minor: Option<&OsStr>) -> Result<Self> {
        let [.., newest] = SERVERS;
        let Some(minor) = minor.filter(|minor| !minor.is_empty()) else { return Ok(newest) };
        SERVERS.into_iter().find(|recipe| minor == recipe.minor).with_context(|| {
            let minors = SERVERS.map(|recipe| recipe.minor).join(" or ");
            format!("{VARIABLE} is {}: give {minors}, or unset it for the newest one", minor.display())
        })
    }

    /// The arguments of `go`, without the output directory.
    pub(super) fn arguments(&self) -> Vec<String> {
        let version = self.version_of(KUBERNETES);
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
    pub(super) fn description(&self) -> String {
        let programs: Vec<String> = self
            .programs
            .iter()
            .map(|(program, module)| format!("{program} {}", self.version_of(module)))
            .collect();
        programs.join(" and ")
    }

    /// The name of the cache's directory.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.go_mod, self.go_sum, &self.arguments().join(" "), OS, ARCH] {
            hash.update(part);
            hash.update([0]);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The version that go.mod requires of a module.
    fn version_of(&self, module: &str) -> &'static str {
        let mut words = self.go_mod.lines().map(str::split_whitespace);
        words
            .find_map(|mut line| (line.next() == Some(module)).then(|| line.next()).flatten())
            .unwrap_or("unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_pinned_modules() {
        let newest = Recipe::servers_of(None).unwrap();
        assert_eq!(newest.description(), "kube-apiserver v1.37.2 and etcd v3.7.0");
        assert!(
            newest.arguments().concat().contains("gitMajor=1 -X k8s.io/component-base/version.gitMinor=37")
        );
    }

    #[test]
    fn each_recipe_is_of_its_minor_and_has_a_place_of_its_own() {
        for recipe in SERVERS.into_iter().chain([Recipe::MACHINES]) {
            let version = recipe.version_of(KUBERNETES);
            assert!(version.starts_with(&format!("v{}.", recipe.minor)), "{version} of {}", recipe.minor);
        }
        for recipe in SERVERS {
            assert_eq!(Recipe::servers_of(Some(OsStr::new(recipe.minor))).unwrap(), recipe);
        }
        assert_ne!(SERVERS[0].fingerprint(), SERVERS[1].fingerprint());
    }

    #[test]
    fn an_unknown_minor_is_an_error_that_names_those_there_are() {
        let error = Recipe::servers_of(Some(OsStr::new("1.9"))).unwrap_err().to_string();
        assert_eq!(error, "KUBERNETES_MINOR is 1.9: give 1.33 or 1.37, or unset it for the newest one");
    }
}
