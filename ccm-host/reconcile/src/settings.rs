//! The flags of all controllers, a type for each: one field per flag, with its checks.

pub mod cidrs;
pub mod lifecycle;
pub mod ssh_keys;

use std::time::Duration;

use clap::ArgAction;

use ccm_base::flag::{self, Wrong};
use ccm_kube::{
    keep::{Keep, KeySet},
    node::Node,
    selector::LabelSelector,
};

/// The flags of all controllers.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[group(skip)]
pub struct Settings {
    #[command(flatten)]
    pub nodes: NodeSettings,
    #[command(flatten)]
    pub lifecycle: lifecycle::LifecycleSettings,
    #[command(flatten)]
    pub services: ServiceSettings,
    /// Resolved from [`cidrs::CidrFlags`], which depend on `--controllers`.
    #[arg(skip)]
    pub cidrs: cidrs::CidrSettings,
    #[command(flatten)]
    pub routes: RouteSettings,
    #[command(flatten)]
    pub ssh_keys: ssh_keys::SshKeysSettings,
    #[command(flatten)]
    pub kubelet_serving: KubeletServingSettings,
}

/// The label by which a person excludes a node; only the value `true` counts.
pub const EXCLUDE_LABEL: &str = "cloudprovider.ccm/exclude";

impl Settings {
    /// Whether this host manages the node: the selector matches it, and no label excludes it.
    pub fn manages(&self, node: &Node) -> bool {
        node.labels.get(EXCLUDE_LABEL) != Some("true")
            && self.nodes.node_selector.matches(|key| node.labels.get(key))
    }

    /// The labels that the Node cache must keep for this.
    pub fn keep_of_managed_nodes(&self) -> Keep {
        let keys = self.nodes.node_selector.keys().chain([EXCLUDE_LABEL]);
        Keep { labels: KeySet::keys(keys), annotations: KeySet::default() }
    }
}

/// The flags that select the nodes to manage, and limit how fast they are initialised and refreshed.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Nodes")]
#[group(skip)]
pub struct NodeSettings {
    /// Number of nodes to initialise and write concurrently.
    #[arg(long, value_name = "INT", default_value = "32", value_parser = node_workers)]
    pub concurrent_node_syncs: usize,

    /// Number of nodes that the periodic refresh writes concurrently; 0 means the same as --concurrent-node-syncs.
    #[arg(long, value_name = "INT", default_value = "0", value_parser = status_workers)]
    pub concurrent_node_status_updates: usize,

    /// Time between two refreshes of all node addresses.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::period)]
    pub node_status_update_frequency: Duration,

    /// Label selector of the nodes that this host manages; it neither asks about nor writes other nodes.
    #[arg(long, value_name = "SELECTOR", default_value = "", value_parser = selector)]
    pub node_selector: LabelSelector,

    /// Show what the cloud plans to do to an instance (a reboot, a reclaimed spot instance) as the condition
    /// MaintenancePlanned of its Node. Nothing is drained or deleted because of it.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub planned_maintenance_condition: bool,
}

impl NodeSettings {
    /// Maximum nodes written at once by the refresh.
    pub fn status_workers(&self) -> usize {
        match self.concurrent_node_status_updates {
            0 => self.concurrent_node_syncs,
            count => count,
        }
    }
}

fn node_workers(text: &str) -> Result<usize, Wrong> {
    flag::workers(text, "no node would ever be initialised")
}

fn status_workers(text: &str) -> Result<usize, Wrong> {
    if text == "0" { Ok(0) } else { flag::workers(text, "is zero") }
}

fn selector(text: &str) -> Result<LabelSelector, Wrong> {
    text.parse().map_err(|error: String| {
        Wrong::new(error, "write it as for kubectl -l, for example \"pool in (a,b),!unmanaged\"")
    })
}

/// How load balancers are kept in step, as the flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Services")]
#[group(skip)]
pub struct ServiceSettings {
    /// Number of Services whose load balancers are created or changed concurrently, per provider, within its own limits; as many are removed.
    #[arg(long, value_name = "INT", default_value = "16", value_parser = service_workers)]
    pub concurrent_service_syncs: usize,

    /// Time between two sweeps for load balancers that drifted or have no owner any more.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = flag::period)]
    pub load_balancer_resync_period: Duration,

    /// Adopt load balancers that carry only the name that a former controller gave them. Without it, their Services get
    /// an Event and the load balancers stay untouched.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub adopt_load_balancers: bool,

    /// Delete load balancers of this cluster whose Service is gone: those that two sweeps found without one
    /// and that carry the uids of this cluster and of that Service. Without it, they are only reported.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub delete_orphaned_load_balancers: bool,

    /// Take a node out of the load balancers as soon as it is cordoned, or tainted to be deleted by the cluster autoscaler
    /// or Karpenter. Without it, one that the autoscaler tainted leaves them with the next change of nodes, and its
    /// connections survive until then; others stay until they are deleted.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub exclude_draining_nodes: bool,
}

fn service_workers(text: &str) -> Result<usize, Wrong> {
    flag::workers(text, "no load balancer would ever be built")
}

/// The flags of the route controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Routes")]
#[group(skip)]
pub struct RouteSettings {
    /// Maintain a route in the cloud to each node's pod CIDRs, if a provider supports routes and --cluster-cidr is set.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, value_parser = flag::switch)]
    pub configure_cloud_routes: bool,

    /// Time between two sweeps for routes that somebody else changed; changes of nodes are handled at once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::period)]
    pub route_reconciliation_period: Duration,
}

/// The flags that control the approval of kubelets' serving certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Kubelet serving certificates")]
#[group(skip)]
pub struct KubeletServingSettings {
    /// What happens to a certificate request of a kubelet that the cloud does not confirm: approve leaves it undecided,
    /// approve-and-deny denies it, so that the kubelet asks again at once. Needs kubelet-serving-csr in --controllers.
    #[arg(long, value_name = "POLICY", default_value = "approve", value_parser = policy)]
    pub kubelet_serving_csr_policy: CsrPolicy,

    /// Approve requests of a node whose name the cloud does not report, too: the Node's provider ID alone then says which
    /// instance it is. Only for clouds that know no names, and where kubelets cannot choose their provider ID.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub kubelet_serving_csr_trust_provider_id: bool,

    /// Also believe providers that are told what a kubelet writes in its Node, as all behind the Go bridge are. Only if they
    /// report names, addresses and provider IDs from the cloud alone: one that reports a Node's own words back makes a stolen
    /// kubelet identity good for any address.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub kubelet_serving_csr_trust_node_readers: bool,
}

/// What happens to a request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrPolicy {
    /// It is left undecided, for a person or another approver.
    Approve,
    /// It is denied.
    ApproveAndDeny,
}

fn policy(text: &str) -> Result<CsrPolicy, Wrong> {
    match text {
        "approve" => Ok(CsrPolicy::Approve),
        "approve-and-deny" => Ok(CsrPolicy::ApproveAndDeny),
        _ => Err(Wrong::new("is unknown", "give approve or approve-and-deny")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage;
    use ccm_kube::fixtures::node;

    fn selecting(selector: &str) -> Settings {
        let mut settings = stage::settings();
        settings.nodes.node_selector = selector.parse().unwrap();
        settings
    }

    #[test]
    fn a_node_is_ours_if_selected_and_not_excluded() {
        let in_a = || node("n").with_label("pool", "a");
        let rows = [
            ("no selector", "", in_a(), true),
            ("selected", "pool=a", in_a(), true),
            ("not selected", "pool=b", in_a(), false),
            ("opted out", "", in_a().with_label(EXCLUDE_LABEL, "true"), false),
            ("opted out though selected", "pool=a", in_a().with_label(EXCLUDE_LABEL, "true"), false),
            ("opt-out withdrawn", "", in_a().with_label(EXCLUDE_LABEL, "false"), true),
        ];
        for (name, selector, node, want) in rows {
            assert_eq!(selecting(selector).manages(&node), want, "{name}");
        }
    }

    #[test]
    fn what_it_reads_is_kept() {
        let keep = selecting("pool=a,!legacy").keep_of_managed_nodes();
        for key in ["pool", "legacy", EXCLUDE_LABEL] {
            assert!(keep.labels.contains(key), "{key}");
        }
    }
}
