//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Shows what ccm-host and its providers know, and confirms what the deletion guard holds back.
///
/// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 answered, and the answer asks for attention (a provider that is not
/// serving, a node or another object that is blocked, a guard that holds nodes back, a confirmation without --yes); 4 there is no such node
/// or provider. `shadow diff` ends as diff does: 0 nothing would change; 1 something would; 2 not known, or failed.
#[derive(Debug, Parser)]
#[command(name = "ccmctl", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) way: Way,
    /// A table for people, or JSON for machines.
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Asks about providers.
    Provider {
        #[command(subcommand)]
        verb: ProviderVerb,
        /// One provider of the host, by name; or unix:///PATH, to ask a provider itself without any host.
        #[arg(long, global = true, value_name = "NAME|unix:///PATH")]
        provider: Option<String>,
        /// With unix:///PATH: the uid of the namespace kube-system, by which the provider knows the cluster. Read from the
        /// cluster unless it is given.
        #[arg(long, global = true, value_name = "UID")]
        cluster_uid: Option<String>,
    },
    /// Says why something is as it is, and what the host does next.
    #[command(subcommand)]
    Explain(Explained),
    /// What objects wait for or are blocked by, of all controllers that report it.
    Reports,
    /// Lets the host ensure every load balancer again, new Services first: after a restore of etcd, or when somebody changed
    /// the cloud behind its back.
    Resync,
    /// The guard that keeps Nodes from being deleted by mistake.
    #[command(subcommand)]
    Guard(GuardVerb),
    /// Asks a host in shadow mode.
    #[command(subcommand)]
    Shadow(ShadowVerb),
    /// Shows the status page of the host to a browser on this machine, with your credentials, until it is interrupted.
    /// Other users of this machine can see it, too.
    Proxy {
        /// The port on 127.0.0.1; 0 takes a free one.
        #[arg(long, value_name = "PORT", default_value = "0")]
        port: u16,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderVerb {
    /// Who it is: name, version, contract, capabilities.
    Info,
    /// How it is: connection, last error, calls and how long they take.
    Status,
    /// The cloud's instances.
    Instances,
    /// The cloud's load balancers of this cluster.
    LoadBalancers,
    /// The cloud's routes of this cluster.
    Routes,
    /// The topology labels of volumes. The contract cannot list volumes: name them.
    Volumes {
        /// The volume plugin, as Kubernetes names it.
        #[arg(long, value_name = "PLUGIN")]
        plugin: String,
        /// IDs of volumes.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// The clusters that the cloud hosts, or where the control plane of one is.
    Clusters {
        /// Name of a cluster.
        name: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Explained {
    /// A node.
    Node {
        #[arg(value_parser = node_name)]
        name: String,
    },
    /// A Service of type LoadBalancer.
    Service {
        /// Without a namespace, that of `default`.
        #[arg(value_name = "NAMESPACE/NAME", value_parser = service_key)]
        key: (String, String),
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShadowVerb {
    /// What would change if the host took over from the other cloud controller manager. Its pod is the one that runs
    /// with the label app.kubernetes.io/name=cloud-controller-manager-shadow, unless --selector names others.
    Diff,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuardVerb {
    /// What the guard holds back, and why.
    Show,
    /// Lets these Nodes be deleted although the guard holds them back. Shows what it would allow; --yes does it.
    Confirm {
        #[arg(required = true, value_name = "NODE", value_parser = node_name)]
        nodes: Vec<String>,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
}

/// How to reach the host.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How to reach the host")]
pub(crate) struct Way {
    /// The kubeconfig; by default $KUBECONFIG, ~/.kube/config, or the ServiceAccount of the pod.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where the host serves, as https://HOST:PORT. By default the leader's pod is found and reached through a
    /// port-forward.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The CA of the host's serving certificate. A port-forward is not verified without it.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// With --server: take any serving certificate. Whoever answers then gets your token.
    #[arg(long, global = true, conflicts_with = "certificate_authority")]
    pub(crate) insecure_skip_tls_verify: bool,
    /// The name in the host's serving certificate, if it is not that of --server.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// A file with a bearer token, instead of the kubeconfig's credentials.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A bearer token, instead of the kubeconfig's credentials; others may see it in the list of processes.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "CCMCTL_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub(crate) token: Option<String>,
    /// A client certificate, instead of the kubeconfig's credentials.
    #[arg(long, global = true, value_name = "FILE", requires = "client_key")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// The key of the client certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "client_certificate")]
    pub(crate) client_key: Option<PathBuf>,
    /// The Lease that says which replica leads.
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE/NAME",
        default_value = "kube-system/cloud-controller-manager"
    )]
    pub(crate) lease: String,
    /// The labels of the host's pods.
    #[arg(
        long,
        global = true,
        value_name = "SELECTOR",
        default_value = "app.kubernetes.io/name=cloud-controller-manager"
    )]
    pub(crate) selector: String,
    /// The namespace of the host's pods.
    #[arg(short, long, global = true, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(crate) namespace: String,
    /// How long to wait for an answer, in seconds.
    #[arg(long, global = true, value_name = "SECONDS", default_value = "130")]
    pub(crate) request_timeout: u64,
}

/// A name goes into a path.
fn is_name(text: &str) -> bool {
    let fits = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(fits) && !text.starts_with('.')
}

fn node_name(text: &str) -> Result<String, String> {
    if !is_name(text) {
        return Err(format!("{text:?} is not the name of a node: lower case letters, digits, '-' and '.'"));
    }
    Ok(text.to_owned())
}

fn service_key(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if !is_name(namespace) || !is_name(name) {
        return Err(format!(
            "{text:?} is not the name of a Service: NAMESPACE/NAME of lower case letters, digits, '-' and '.'"
        ));
    }
    Ok((namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        for (words, fits) in [
            ("explain node node-1.example", true),
            ("explain node ../state", false),
            ("explain service shop/web", true),
            ("explain service web", true),
            ("explain service shop/web/x", false),
            ("explain service ../web", false),
            ("guard confirm", false),
            ("guard confirm a b --yes", true),
            ("provider volumes vol-1", false),
            ("provider volumes --plugin kubernetes.io/ebs vol-1", true),
            ("shadow", false),
            ("shadow diff --output json", true),
            ("provider clusters --provider unix:///run/p.sock", true),
            ("provider status --insecure-skip-tls-verify --certificate-authority ca.crt", false),
            ("provider status --client-certificate a.crt", false),
        ] {
            let parsed = Arguments::try_parse_from(["ccmctl"].into_iter().chain(words.split(' ')));
            assert_eq!(parsed.is_ok(), fits, "{words}: {:?}", parsed.err().map(|error| error.to_string()));
        }
    }
}
