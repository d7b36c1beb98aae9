//! The flags that control the approval of kubelets' serving certificates.

use clap::ArgAction;

use ccm_base::flag::{self, Wrong};

/// One field per flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Kubelet serving certificates")]
#[group(skip)]
pub struct Settings {
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
