//! One case: an id, the sentences of the contract that it tries, what it needs, and how it goes.

use cloudprovider_proto::v1alpha1::Capability;
use futures::future::LocalBoxFuture;
use serde::Serialize;

use crate::trial::Trial;

/// A group of cases that stands or falls with something that a provider advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Who is there, and what can it do?
    Identity,
    /// `Instances.BatchGetInstances`.
    Instances,
    /// `Instances.WatchInstances`.
    InstancesWatch,
    /// `Instances.ListInstances`.
    InstancesList,
    /// `Instances.AddSshKeyToAllInstances`.
    SshKeys,
    /// `LoadBalancers`, but for the list.
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
    #[must_use]
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

/// How much hangs on a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// It must be run for a verdict.
    Core,
    /// It may be left out; mostly what only a steered cloud shows.
    Extended,
}

/// Why a case ended before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The contract was broken.
    Failed {
        /// What the contract wants.
        expected: String,
        /// What came instead.
        seen: String,
    },
    /// It could not be tried, and why.
    NotRun(String),
    /// The provider does not claim to do this.
    NotAdvertised(String),
}

/// How a case ended.
pub type Outcome = Result<(), Stop>;

/// What a case does.
pub trait Run: Sync {
    /// Tries it once.
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
    /// With what it stands or falls.
    pub profile: Profile,
    /// How much hangs on it.
    pub level: Level,
    /// What holds when it passes, as a sentence.
    pub title: &'static str,
    /// Tags of the rules that it tries.
    pub rules: &'static [&'static str],
    /// Words of the contract that it tries and that carry no tag.
    pub words: &'static [&'static str],
    /// What must be advertised beyond the profile.
    pub capability: Option<Capability>,
    /// Hooks without which it cannot be tried.
    pub hooks: &'static [&'static str],
    /// What it does.
    pub run: &'static dyn Run,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.id)
    }
}

impl Case {
    /// A core case of a rule.
    #[must_use]
    pub const fn new(
        id: &'static str,
        profile: Profile,
        title: &'static str,
        rules: &'static [&'static str],
        run: &'static dyn Run,
    ) -> Self {
        Self { id, profile, level: Level::Core, title, rules, words: &[], capability: None, hooks: &[], run }
    }

    /// It also tries these words of the contract.
    #[must_use]
    pub const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// A provider may fail it and be conformant.
    #[must_use]
    pub const fn extended(mut self) -> Self {
        self.level = Level::Extended;
        self
    }

    /// It needs these hooks.
    #[must_use]
    pub const fn hooks(mut self, hooks: &'static [&'static str]) -> Self {
        self.hooks = hooks;
        self
    }

    /// It needs this capability.
    #[must_use]
    pub const fn capability(mut self, capability: Capability) -> Self {
        self.capability = Some(capability);
        self
    }
}
