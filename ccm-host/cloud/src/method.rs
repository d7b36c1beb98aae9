//! The RPCs that the host calls: the contract's table, the health check, and what the host adds to each.

use std::{collections::HashMap, time::Duration};

pub(crate) use cloudprovider_proto::method::*;

/// Calls of one kind queue behind each other, but not behind the other kinds of their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Instances,
    /// Reads of balancers, and Ensure.
    LoadBalancers,
    /// Updates of backends.
    Updates,
    Deletions,
    Routes,
}

impl Kind {
    /// The queue that a call waits in.
    pub(crate) fn of(method: &Method) -> Self {
        match (method.service, method.name) {
            (_, "BatchUpdateLoadBalancers") => Self::Updates,
            (_, "DeleteLoadBalancer") => Self::Deletions,
            ("LoadBalancers", _) => Self::LoadBalancers,
            ("Routes", _) => Self::Routes,
            _ => Self::Instances,
        }
    }

    pub(crate) const ALL: [Self; 5] =
        [Self::Instances, Self::LoadBalancers, Self::Updates, Self::Deletions, Self::Routes];

    /// The service of these calls, without the package. Volumes and clusters count as instances.
    pub(crate) fn service(self) -> &'static str {
        match self {
            Self::Instances => "Instances",
            Self::LoadBalancers | Self::Updates | Self::Deletions => "LoadBalancers",
            Self::Routes => "Routes",
        }
    }

    /// Whether calls of this kind read the cloud.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Instances | Self::LoadBalancers | Self::Routes)
    }

    /// Whether calls of this kind change the cloud.
    pub(crate) fn mutates(self) -> bool {
        self != Self::Instances
    }
}

/// Whether only people ask this, of which no controller should feel anything.
pub(crate) fn is_for_people(method: &Method) -> bool {
    matches!(method.name, "ListInstances" | "ListClusters" | "GetControlPlaneEndpoint")
}

pub(crate) static HEALTH_CHECK: Method = Method {
    name: "Check",
    service: "Health",
    path: "/grpc.health.v1.Health/Check",
    class: Class::Local,
    deadline: Duration::from_secs(5),
    max_deadline: Duration::from_secs(10),
    capability: None,
};

/// The advertised deadline of a call, capped at the maximum, or the default.
pub(crate) fn deadline(method: &Method, advertised: &HashMap<String, Duration>) -> Duration {
    advertised.get(method.name).map_or(method.deadline, |wanted| (*wanted).min(method.max_deadline))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_deadlines_stay_within_the_maximum() {
        let advertised = |method: &str, seconds| (method.to_owned(), Duration::from_secs(seconds));
        let rows = [
            (vec![], 30),
            (vec![advertised("BatchGetInstances", 60)], 60),
            (vec![advertised("BatchGetInstances", 1)], 1),
            (vec![advertised("BatchGetInstances", 9999)], 120),
            (vec![advertised("GetLoadBalancer", 60)], 30),
        ];
        for (advertised, want) in rows {
            assert_eq!(
                deadline(&BATCH_GET_INSTANCES, &advertised.iter().cloned().collect()),
                Duration::from_secs(want),
                "{advertised:?}"
            );
        }
    }
}
