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
        sources: &[
            ("go.mod", include_str!("../../assets/1.33/go.mod")),
            ("go.sum", include_str!("../../assets/1.33/go.sum")),
        ],
        commands: SERVER_COMMANDS,
        programs: SERVER_PROGRAMS,
        renamed: SERVERS_RENAMED,
    },
    Recipe {
        minor: "1.37",
        sources: &[
            ("go.mod", include_str!("../../assets/1.37/go.mod")),
            ("go.sum", include_str!("../../assets/1.37/go.sum")),
        ],
        commands: SERVER_COMMANDS,
        programs: SERVER_PROGRAMS,
        renamed: SERVERS_RENAMED,
    },
];

const KUBERNETES: &str = "k8s.io/kubernetes";
const SERVER_COMMANDS: &[&[&str]] = &[&["build", "tool"]];
const SERVER_PROGRAMS: &[(&str, &str)] =
    &[("kube-apiserver", KUBERNETES), ("etcd", "go.etcd.io/etcd/server/v3")];

/// `go build tool` names a program after its package's directory, which for etcd is this.
const SERVERS_RENAMED: &[(&str, &str)] = &[("server", super::ETCD)];

const MACHINES_SOURCES: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../assets/machines/go.mod")),
    ("go.sum", include_str!("../../assets/machines/go.sum")),
];

/// What is built together: pinned modules, and for people the programs with the module of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recipe {
    minor: &'static str,
    /// The files of the module, go.mod first.
    pub(super) sources: &'static [(&'static str, &'static str)],
    /// What `go` is told, without the flags that are the same for all.
    commands: &'static [&'static [&'static str]],
    programs: &'static [(&'static str, &'static str)],
    /// Programs that get another name than `go` gives them.
    pub(super) renamed: &'static [(&'static str, &'static str)],
}

impl Recipe {
    /// What a cluster of machines runs besides the apiserver and [`DNS`](Self::DNS).
    pub(super) const MACHINES: Self = Self {
        minor: "1.37",
        sources: MACHINES_SOURCES,
        commands: &[&[
            "build",
            "github.com/containernetworking/plugins/plugins/ipam/host-local",
            "github.com/containernetworking/plugins/plugins/main/bridge",
            "github.com/containernetworking/plugins/plugins/main/loopback",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-proxy",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "k8s.io/kubernetes/cmd/kubectl",
            "k8s.io/kubernetes/cmd/kubelet",
        ]],
        programs: &[
            ("kubelet with everything around it", KUBERNETES),
            ("CNI plugins", "github.com/containernetworking/plugins"),
        ],
        renamed: &[],
    };

    /// What gives the Services of a cluster of machines their names.
    pub(super) const DNS: Self = Self {
        minor: "1.37",
        sources: &[
            ("go.mod", include_str!("../../assets/dns/go.mod")),
            ("go.sum", include_str!("../../assets/dns/go.sum")),
            ("main.go", include_str!("../../assets/dns/main.go")),
        ],
        commands: &[&["build", "."]],
        programs: &[("CoreDNS", "github.com/coredns/coredns")],
        renamed: &[("dns", "coredns")],
    };

    /// Kubernetes' own tests of a cluster, what runs them side by side, and the program of their pods.
    pub(super) const E2E: Self = Self {
        minor: "1.37",
        sources: MACHINES_SOURCES,
        commands: &[
            &["build", "github.com/onsi/ginkgo/v2/ginkgo", "k8s.io/kubernetes/test/images/agnhost"],
            &["test", "-c", "-vet=off", "k8s.io/kubernetes/test/e2e"],
        ],
        programs: &[("e2e.test and agnhost", KUBERNETES), ("ginkgo", "github.com/onsi/ginkgo/v2")],
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

    /// The arguments of `go`, of each run of it.
    pub(super) fn runs(&self, into: &str) -> Vec<Vec<String>> {
        let version = self.version_of(KUBERNETES);
        // Kubernetes' own build sets these; without them the apiserver calls itself v0.0.0.
        let mut stamps = format!("-s -w -X k8s.io/component-base/version.gitVersion={version}");
        for (name, value) in ["gitMajor", "gitMinor"].iter().zip(version.trim_start_matches('v').split('.')) {
            stamps += &format!(" -X k8s.io/component-base/version.{name}={value}");
        }
        let flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", &stamps, "-o", into];
        let one = |command: &&[&str]| {
            let (verb, packages) = command.split_at(1);
            [verb, &flags, packages].concat().into_iter().map(str::to_owned).collect()
        };
        self.commands.iter().map(one).collect()
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
        let sources = self.sources.iter().map(|(_, text)| (*text).to_owned());
        let runs = self.runs("").into_iter().map(|run| run.join(" "));
        for part in sources.chain(runs).chain([OS.to_owned(), ARCH.to_owned()]) {
            hash.update(part);
            hash.update([0]);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The version that go.mod requires of a module.
    fn version_of(&self, module: &str) -> &'static str {
        let go_mod = self.sources.first().map_or("", |(_, text)| *text);
        let mut lines =
            go_mod.lines().map(|line| line.trim_start_matches("require ")).map(str::split_whitespace);
        lines
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
        let run = newest.runs("there").concat().join(" ");
        assert!(run.contains("gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"), "{run}");
        assert_eq!(Recipe::DNS.description(), "CoreDNS v1.15.0");
    }

    #[test]
    fn each_recipe_is_of_its_minor_and_has_a_place_of_its_own() {
        for recipe in SERVERS.into_iter().chain([Recipe::MACHINES, Recipe::E2E]) {
            let version = recipe.version_of(KUBERNETES);
            assert!(version.starts_with(&format!("v{}.", recipe.minor)), "{version} of {}", recipe.minor);
        }
        for recipe in SERVERS {
            assert_eq!(Recipe::servers_of(Some(OsStr::new(recipe.minor))).unwrap(), recipe);
        }
        assert_ne!(SERVERS[0].fingerprint(), SERVERS[1].fingerprint());
        assert_ne!(Recipe::MACHINES.fingerprint(), Recipe::E2E.fingerprint());
    }

    #[test]
    fn an_unknown_minor_is_an_error_that_names_those_there_are() {
        let error = Recipe::servers_of(Some(OsStr::new("1.9"))).unwrap_err().to_string();
        assert_eq!(error, "KUBERNETES_MINOR is 1.9: give 1.33 or 1.37, or unset it for the newest one");
    }
}
