//! The RPCs that the host calls, with the deadlines of the proto.

use std::{collections::HashMap, time::Duration};

/// The limit that applies to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Answered from the provider's memory: not limited.
    Local,
    /// Reads the cloud.
    Read,
    /// Changes the cloud.
    Mutation,
}

/// Calls of one kind queue behind each other, but not behind the other kinds of their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Instances,
    /// Reads of balancers, and Ensure.
    LoadBalancers,
    /// Updates of backends.
    Updates,
    Deletions,
    Routes,
}

impl Kind {
    pub(super) const COUNT: usize = 5;

    /// Whether calls of this kind read the cloud.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Instances | Self::LoadBalancers | Self::Routes)
    }

    /// Whether calls of this kind change the cloud.
    pub(super) fn mutates(self) -> bool {
        self != Self::Instances
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Method {
    /// Without the service.
    pub(super) name: &'static str,
    /// Without the package.
    pub(super) service: &'static str,
    pub(super) class: Class,
    default: Duration,
    longest: Duration,
}

const fn method(
    service: &'static str,
    name: &'static str,
    class: Class,
    default: u64,
    longest: u64,
) -> Method {
    Method {
        name,
        service,
        class,
        default: Duration::from_secs(default),
        longest: Duration::from_secs(longest),
    }
}

pub(super) static GET_INFO: Method = method("Discovery", "GetInfo", Class::Local, 5, 10);
pub(super) static GET_CAPABILITIES: Method = method("CloudProvider", "GetCapabilities", Class::Local, 5, 10);
pub(super) static GET_STATUS: Method = method("CloudProvider", "GetStatus", Class::Local, 5, 10);
pub(super) static LEAD: Method = method("CloudProvider", "Lead", Class::Local, 5, 10);
pub(super) static HEALTH_CHECK: Method = method("Health", "Check", Class::Local, 5, 10);
pub(super) static BATCH_GET_INSTANCES: Method =
    method("Instances", "BatchGetInstances", Class::Read, 30, 120);
pub(super) static LIST_INSTANCES: Method = method("Instances", "ListInstances", Class::Read, 30, 120);
/// The deadline bounds the time to the first frame only.
pub(super) static WATCH_INSTANCES: Method = method("Instances", "WatchInstances", Class::Local, 30, 120);
pub(super) static GET_LOAD_BALANCER: Method =
    method("LoadBalancers", "GetLoadBalancer", Class::Read, 30, 120);
pub(super) static LIST_LOAD_BALANCERS: Method =
    method("LoadBalancers", "ListLoadBalancers", Class::Read, 30, 120);
pub(super) static ENSURE_LOAD_BALANCER: Method =
    method("LoadBalancers", "EnsureLoadBalancer", Class::Mutation, 120, 600);
pub(super) static BATCH_UPDATE_LOAD_BALANCERS: Method =
    method("LoadBalancers", "BatchUpdateLoadBalancers", Class::Mutation, 120, 600);
pub(super) static DELETE_LOAD_BALANCER: Method =
    method("LoadBalancers", "DeleteLoadBalancer", Class::Mutation, 120, 600);
pub(super) static ADD_SSH_KEY: Method =
    method("Instances", "AddSshKeyToAllInstances", Class::Mutation, 120, 600);
pub(super) static LIST_ROUTES: Method = method("Routes", "ListRoutes", Class::Read, 60, 120);
pub(super) static BATCH_ENSURE_ROUTES: Method =
    method("Routes", "BatchEnsureRoutes", Class::Mutation, 120, 300);
pub(super) static BATCH_DELETE_ROUTES: Method =
    method("Routes", "BatchDeleteRoutes", Class::Mutation, 120, 300);
pub(super) static BATCH_GET_VOLUME_LABELS: Method =
    method("Volumes", "BatchGetVolumeLabels", Class::Read, 30, 120);
pub(super) static LIST_CLUSTERS: Method = method("Clusters", "ListClusters", Class::Read, 30, 120);
pub(super) static GET_CONTROL_PLANE_ENDPOINT: Method =
    method("Clusters", "GetControlPlaneEndpoint", Class::Read, 30, 120);

impl Method {
    /// The queue that the call waits in.
    pub(super) fn kind(&self) -> Kind {
        match (self.service, self.name) {
            (_, "BatchUpdateLoadBalancers") => Kind::Updates,
            (_, "DeleteLoadBalancer") => Kind::Deletions,
            ("LoadBalancers", _) => Kind::LoadBalancers,
            ("Routes", _) => Kind::Routes,
            _ => Kind::Instances,
        }
    }

    /// The advertised deadline, capped at the maximum, or the default.
    pub(super) fn deadline(&self, advertised: &HashMap<String, Duration>) -> Duration {
        advertised.get(self.name).map_or(self.default, |wanted| (*wanted).min(self.longest))
    }
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
                BATCH_GET_INSTANCES.deadline(&advertised.iter().cloned().collect()),
                Duration::from_secs(want),
                "{advertised:?}"
            );
        }
    }
}
