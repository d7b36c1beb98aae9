//! One case: an id, the sentences of the contract that it tests, what it needs, and what it does.

use cloudprovider_proto::v1alpha1::Capability;
use futures::future::LocalBoxFuture;
use serde::Serialize;

use crate::trial::Trial;

/// A group of cases that depends on something that a provider advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Identity and capabilities.
    Identity,
    /// `Instances.BatchGetInstances`.
    Instances,
    /// `Instances.WatchInstances`.
    InstancesWatch,
    /// `Instances.ListInstances`.
    InstancesList,
    /// `Instances.AddSshKeyToAllInstances`.
    SshKeys,
    /// `LoadBalancers`, except the list.
    LoadBalancers,
    /// `LoadBalancers.ListLoadBalancers`: garbage, drift, restarts.
    LoadBalancersList,
    /// `Routes`.
    Routes,
    /// `Volumes`.
    Volumes,
    /// `Clusters`.
    Clusters,
    /// Who may call, and how.
    Security,
    /// Health and status.
    Observability,
}

impl Profile {
    /// All profiles, in the order of reports.
    pub const ALL: [Self; 12] = [
        Self::Identity,
        Self::Instances,
        Self::InstancesWatch,
        Self::InstancesList,
        Self::SshKeys,
        Self::LoadBalancers,
        Self::LoadBalancersList,
        Self::Routes,
        Self::Volumes,
        Self::Clusters,
        Self::Security,
        Self::Observability,
    ];

    /// Its name in filters and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Instances => "instances",
            Self::InstancesWatch => "instances-watch",
            Self::InstancesList => "instances-list",
            Self::SshKeys => "ssh-keys",
            Self::LoadBalancers => "load-balancers",
            Self::LoadBalancersList => "load-balancers-list",
            Self::Routes => "routes",
            Self::Volumes => "volumes",
            Self::Clusters => "clusters",
            Self::Security => "security",
            Self::Observability => "observability",
        }
    }
}

/// How important a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// It must be run for a verdict.
    Core,
    /// It may be skipped; usually only a cloud that hooks control can show it.
    Extended,
}

/// Why a case ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The provider broke the contract.
    Failed {
        /// What the contract requires.
        expected: String,
        /// What happened instead.
        seen: String,
    },
    /// It could not be tested, and why.
    NotRun(String),
    /// The provider does not advertise this.
    NotAdvertised(String),
}

/// How a case ended.
pub type Outcome = Result<(), Stop>;

/// The function of a case.
pub trait Run: Sync {
    /// Runs it once.
    fn run<'a>(&'a self, trial: &'a Trial) -> LocalBoxFuture<'a, Outcome>;
}

impl<F: AsyncFn(&Trial) -> Outcome + Sync> Run for F {
    fn run<'a>(&'a self, trial: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(self(trial))
    }
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// For example `INST-03`.
    pub id: &'static str,
    /// Its profile.
    pub profile: Profile,
    /// Its level.
    pub level: Level,
    /// The sentence that holds if it passes.
    pub title: &'static str,
    /// The tags of the rules that it tests.
    pub rules: &'static [&'static str],
    /// Words of the contract that it tests and that have no tag.
    pub words: &'static [&'static str],
    /// Capabilities that it needs in addition to the profile.
    pub capability: Option<Capability>,
    /// Hooks that it needs.
    pub hooks: &'static [&'static str],
    /// Its function.
    pub run: &'static dyn Run,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.id)
    }
}

impl Case {
    /// A core case of a rule.
    pub const fn new(
        id: &'static str,
        profile: Profile,
        title: &'static str,
        rules: &'static [&'static str],
        run: &'static dyn Run,
    ) -> Self {
        Self { id, profile, level: Level::Core, title, rules, words: &[], capability: None, hooks: &[], run }
    }

    /// Adds words of the contract that it tests.
    #[must_use]
    pub const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Makes it optional: a verdict does not need it. A provider that fails it is not conformant all the same.
    #[must_use]
    pub const fn extended(mut self) -> Self {
        self.level = Level::Extended;
        self
    }

    /// Adds hooks that it needs.
    #[must_use]
    pub const fn hooks(mut self, hooks: &'static [&'static str]) -> Self {
        self.hooks = hooks;
        self
    }

    /// Adds a capability that it needs.
    #[must_use]
    pub const fn capability(mut self, capability: Capability) -> Self {
        self.capability = Some(capability);
        self
    }
}
