//! The rules that may hold back a node whose instance is gone, worded for operators.

/// Why a node is not deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Rule {
    /// The provider denies nodes whose kubelets are alive.
    Contradiction,
    /// No Ready node is left to check the provider against, and too many nodes would be deleted.
    Latch,
    /// The provider found none of the Ready nodes that it was asked about.
    NoneFound,
    /// The provider denies a Ready node; within seconds its Lease will tell whether its kubelet is alive.
    Unsettled,
    /// The limit of deletions per minute is reached.
    Pace,
    /// The node's zone has no Ready node, and the limit per window is reached.
    Share,
    /// Its own kubelet is alive.
    Alive,
}

impl Rule {
    pub(in super::super) const ALL: [Self; 7] = [
        Self::Contradiction,
        Self::Latch,
        Self::NoneFound,
        Self::Unsettled,
        Self::Pace,
        Self::Share,
        Self::Alive,
    ];

    /// The metric's label value.
    pub(in super::super) fn label(self) -> &'static str {
        match self {
            Self::Contradiction => "contradiction",
            Self::Latch => "latch",
            Self::NoneFound => "control_not_found",
            Self::Unsettled => "lease_unsettled",
            Self::Pace => "pace",
            Self::Share => "zone_share",
            Self::Alive => "kubelet_alive",
        }
    }

    /// The condition's reason.
    pub(in super::super) fn reason(self) -> &'static str {
        match self {
            Self::Contradiction => "ProviderContradictsItself",
            Self::Latch => "TooManyDeletions",
            Self::NoneFound => "ControlGroupNotFound",
            Self::Unsettled => "LeaseUnsettled",
            Self::Pace => "DeletionsPaced",
            Self::Share => "ZoneWithoutReadyNode",
            Self::Alive => "KubeletAlive",
        }
    }

    /// The rule for a condition's reason.
    pub(in super::super) fn of_reason(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.reason() == reason)
    }

    /// Whether it ends within seconds, so that a condition would only flap.
    pub(in super::super) fn is_brief(self) -> bool {
        self == Self::Unsettled
    }

    /// Whether a person's word overrules it. A living kubelet would only register the node again.
    pub(in super::super) fn may_be_overruled(self) -> bool {
        self != Self::Alive
    }

    /// For people: the cause, and what ends it.
    pub(in super::super) fn explanation(self) -> &'static str {
        match self {
            Self::Contradiction => {
                "the provider also denies the instances of nodes whose kubelets still renew their Leases: no node of this \
                 provider is deleted until that stops"
            }
            Self::Latch => {
                "the provider denies too many instances at once, and no node of it is Ready to check its answers against: \
                 nothing is deleted until a node is Ready or the provider finds the instances again"
            }
            Self::NoneFound => {
                "the provider found no instance of the Ready nodes it was asked about either: nothing is deleted until it \
                 finds one"
            }
            Self::Unsettled => {
                "the provider also denies the instances of Ready nodes: within seconds their Leases show whether their \
                 kubelets are alive"
            }
            Self::Pace => {
                "as many nodes of this provider as are allowed were deleted within the last minute: this one follows within \
                 minutes"
            }
            Self::Share => {
                "no node of its zone is Ready to check the provider's answers against, and --node-deletion-max-share of the \
                 provider's nodes were deleted within --node-deletion-window: this one follows in a later window"
            }
            Self::Alive => "the kubelet of this node still renews its Lease: the node stays until that stops",
        }
    }
}
