//! The rules by which the guard holds back the deletion of a node, and every word about them.

/// Why a node is not deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// The provider denies too many nodes whose kubelets are alive.
    Contradiction,
    /// The provider found none of the Ready nodes that it was asked about.
    NoneFound,
    /// Its own Lease, or those of Ready nodes that the provider denies, do not tell yet whether kubelets are alive.
    Unsettled,
    /// The limit of deletions per minute is reached.
    Pace,
    /// The node's zone has no Ready node, and the limit per window is reached.
    ZoneShare,
    /// The provider has no Ready node, and the limit per window is reached.
    Share,
    /// Its own kubelet is alive.
    Alive,
    /// It has no provider ID, and no instance was found by its name.
    Nameless,
}

impl Rule {
    pub(super) const ALL: [Self; 8] = [
        Self::Contradiction,
        Self::NoneFound,
        Self::Unsettled,
        Self::Pace,
        Self::ZoneShare,
        Self::Share,
        Self::Alive,
        Self::Nameless,
    ];

    /// The metric's label value, the condition's reason and, for people, the cause and what ends it.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Contradiction => (
                "contradiction",
                "ProviderContradictsItself",
                "the provider also denies the instances of Ready nodes whose kubelets renew their Leases, in this zone or \
                 more than a tenth of all: the node stays until that stops",
            ),
            Self::NoneFound => (
                "control_not_found",
                "ControlGroupNotFound",
                "the provider found no instance of the Ready nodes it was asked about either: nothing is deleted until it \
                 finds one",
            ),
            Self::Unsettled => (
                "lease_unsettled",
                "LeaseUnsettled",
                "it is not known yet whether the kubelet of this node, or those of Ready nodes that the provider denies, \
                 are alive: their Leases show it once they were renewed, or were not for their duration",
            ),
            Self::Pace => (
                "pace",
                "DeletionsPaced",
                "as many nodes of this provider as are allowed are being deleted, or were within the last minute: this one follows \
                 within minutes",
            ),
            Self::ZoneShare => (
                "zone_share",
                "ZoneWithoutReadyNode",
                "no node of its zone is Ready to check the provider's answers against, and --node-deletion-max-share of the \
                 provider's nodes were deleted within --node-deletion-window: this one follows in a later window",
            ),
            Self::Share => (
                "share",
                "TooManyDeletions",
                "no node of the provider is Ready to check its answers against, and --node-deletion-max-share of its nodes \
                 were deleted within --node-deletion-window: this one follows in a later window, or within minutes once a \
                 node is Ready",
            ),
            Self::Alive => (
                "kubelet_alive",
                "KubeletAlive",
                "the kubelet of this node still renews its Lease: the node stays until that stops",
            ),
            Self::Nameless => (
                "no_provider_id",
                "NoProviderID",
                "the node has no provider ID, and that no instance has its name proves nothing: the node stays until an operator confirms it",
            ),
        }
    }

    pub(super) fn label(self) -> &'static str {
        self.words().0
    }

    pub(super) fn reason(self) -> &'static str {
        self.words().1
    }

    pub(super) fn explanation(self) -> &'static str {
        self.words().2
    }

    /// Whether it ends by itself so soon that a condition would only flap.
    pub(super) fn is_brief(self) -> bool {
        matches!(self, Self::Unsettled | Self::Pace)
    }

    /// How a person makes the node go nevertheless. A living kubelet would only register it again.
    pub(super) fn remedy(self, overrule: String) -> String {
        if self == Self::Alive { "stop its kubelet if the node is really to go".to_owned() } else { overrule }
    }
}
