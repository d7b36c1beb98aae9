//! The rules by which a node whose instance is gone may be held back, in the words of operators.

/// Why a node is not deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Rule {
    /// The provider denies nodes whose kubelets are alive.
    Contradiction,
    /// No Ready node is left to check the provider against, and too many nodes would go.
    Latch,
    /// Of the Ready nodes that the provider was asked about, it found none.
    NoneFound,
    /// A Ready node is denied, and whether its kubelet is alive shows within seconds.
    Unsettled,
    /// So many have gone within this minute.
    Pace,
    /// Its zone has no Ready node, and so many have gone within the window.
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

    /// The value of the metric's label.
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

    /// The reason of the condition.
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

    /// The rule of a condition's reason.
    pub(in super::super) fn of_reason(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.reason() == reason)
    }

    /// Whether it ends within seconds, so that a condition would only come and go.
    pub(in super::super) fn is_brief(self) -> bool {
        self == Self::Unsettled
    }

    /// For people: why, and when it ends.
    pub(in super::super) fn explanation(self) -> &'static str {
        match self {
            Self::Contradiction => {
                "the provider also denies instances of nodes whose kubelets renew their Leases: no node of this provider is \
                 deleted until it has stopped doing so"
            }
            Self::Latch => {
                "the provider says so of too many nodes at once, and has no Ready node left against which that could be \
                 checked: nothing is deleted until one of its nodes is Ready or its answers recover"
            }
            Self::NoneFound => {
                "the provider finds none of the Ready nodes that it was asked about either: nothing is deleted until it \
                 finds one"
            }
            Self::Unsettled => {
                "whether kubelets of Ready nodes that the provider denies are alive shows within seconds"
            }
            Self::Pace => {
                "so many nodes of this provider were deleted within this minute: this one follows in the next ones"
            }
            Self::Share => {
                "its zone has no Ready node against which that could be checked, and --node-deletion-max-share of the \
                 provider's nodes were deleted within --node-deletion-window: this one follows in a later window"
            }
            Self::Alive => {
                "the kubelet of this node renews its Lease: the node is kept for as long as it does"
            }
        }
    }
}
