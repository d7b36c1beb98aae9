//! `admin balancers`.

use clap::Subcommand;

use super::{
    Screen,
    standing::Standing,
    table::{Table, or_dash, word},
};
use crate::{
    admin::Client,
    cloud::{Balancer, BalancerPatch, NewLegacyBalancer},
};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show all balancers.
    List,
    /// Show one balancer.
    Get {
        /// Id, name, Service uid or namespace/name.
        reference: String,
    },
    /// Print what there is for one Service, in the form that the conformance suite reads.
    Inspect {
        /// Uid of the Service.
        service_uid: String,
    },
    /// Make a former controller's balancer, or another cluster's.
    Legacy {
        /// Uid of the Service: the name comes from it.
        #[arg(long)]
        service_uid: String,
        /// namespace/name of the Service.
        #[arg(long, default_value = "/")]
        service: String,
        /// Name of the cluster that the former controller recorded.
        #[arg(long, default_value = "")]
        cluster_name: String,
        /// Uid of a cluster: then it is another cluster's.
        #[arg(long, default_value = "")]
        cluster_uid: String,
    },
    /// Change a balancer behind the provider's back: it loses its nodes and counts as drifted.
    Drift {
        /// Id, name, Service uid or namespace/name.
        reference: String,
    },
    /// Take a balancer away behind the provider's back.
    Delete {
        /// Id, name, Service uid or namespace/name.
        reference: String,
    },
}

impl Verb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let shown = match self {
            Self::List => client.balancers().await?,
            Self::Get { reference } => vec![client.balancer(&reference).await?],
            Self::Inspect { service_uid } => {
                let mut of_service = client.balancers().await?;
                of_service.retain(|balancer| balancer.service_uid == service_uid);
                let standing: Vec<_> = of_service.iter().map(Standing::of).collect();
                return Screen { json: true }.show(&standing, |_| table(&of_service));
            }
            Self::Legacy { service_uid, service, cluster_name, cluster_uid } => {
                let (namespace, service_name) = service.split_once('/').unwrap_or(("", &service));
                let wish = NewLegacyBalancer {
                    service_uid,
                    namespace: namespace.to_owned(),
                    service_name: service_name.to_owned(),
                    cluster_name,
                    cluster_uid,
                    ports: Vec::new(),
                };
                vec![client.create_legacy_balancer(&wish).await?]
            }
            Self::Drift { reference } => {
                let patch = BalancerPatch { backends: Some(Vec::new()), ..BalancerPatch::default() };
                vec![client.patch_balancer(&reference, &patch).await?]
            }
            Self::Delete { reference } => vec![client.delete_balancer(&reference).await?],
        };
        screen.show(&shown, |balancers| table(balancers))
    }
}

fn table(balancers: &[Balancer]) -> Table {
    let heads = ["ID", "SERVICE", "STATE", "SYNC", "OWNER", "PORTS", "NODES", "INGRESS"];
    Table::new(heads).rows(balancers, |balancer| {
        let ports: Vec<_> = balancer.ports.iter().map(|port| port.port.to_string()).collect();
        let ways: Vec<_> = balancer
            .ingress
            .iter()
            .filter_map(|way| way.ip.map(|ip| ip.to_string()).or_else(|| way.hostname.clone()))
            .collect();
        [
            balancer.id.clone(),
            format!("{}/{}", balancer.namespace, balancer.service_name),
            word(balancer.state),
            if balancer.drifted { "drifted" } else { "in sync" }.to_owned(),
            if balancer.is_legacy() { "(legacy)".to_owned() } else { balancer.cluster_uid.clone() },
            or_dash(ports.join(",")),
            balancer.backends.len().to_string(),
            or_dash(ways.join(",")),
        ]
    })
}
