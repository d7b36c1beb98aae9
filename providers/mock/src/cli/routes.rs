//! `admin routes`.

use clap::Subcommand;

use super::{
    Screen,
    table::{Table, word},
};
use crate::{
    admin::Client,
    cloud::{ListedRoute, NewRoute, Route, RoutePatch, RouteTarget},
};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show all routes.
    List,
    /// Make a route behind the provider's back.
    Create {
        /// Its destination.
        cidr: String,
        /// Name of the node it leads to; to nothing when left out.
        #[arg(long)]
        node: Option<String>,
        /// Uid of the cluster.
        #[arg(long, default_value = "")]
        cluster: String,
    },
    /// Re-point a route behind the provider's back.
    Point {
        /// Id or CIDR.
        reference: String,
        /// Name of the node it leads to; to nothing when left out.
        #[arg(long)]
        node: Option<String>,
    },
    /// Take a route away behind the provider's back.
    Delete {
        /// Id or CIDR.
        reference: String,
    },
}

impl Verb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let shown = match self {
            Self::List => client.routes().await?,
            Self::Create { cidr, node, cluster } => {
                let wish =
                    NewRoute { cluster_uid: cluster, destination_cidr: cidr, target: node.map(target) };
                vec![client.create_route(&wish).await?]
            }
            Self::Point { reference, node } => {
                let patch = RoutePatch { no_target: node.is_none(), target: node.map(target) };
                vec![client.patch_route(&reference, &patch).await?]
            }
            Self::Delete { reference } => {
                let gone = vec![client.delete_route(&reference).await?];
                return screen
                    .show(&gone, |routes| Table::new(HEADS).rows(routes, |route| row(route, "deleted")));
            }
        };
        screen.show(&shown, |routes| table(routes))
    }
}

const HEADS: [&str; 5] = ["ID", "DESTINATION", "NODE", "STATE", "OWNER"];

fn target(node: String) -> RouteTarget {
    RouteTarget { node, provider_id: String::new() }
}

fn table(routes: &[ListedRoute]) -> Table {
    Table::new(HEADS).rows(routes, |listed| row(&listed.route, &word(listed.state)))
}

fn row(route: &Route, state: &str) -> [String; 5] {
    [
        route.id.clone(),
        route.destination_cidr.to_string(),
        route.target.as_ref().map_or_else(|| "-".to_owned(), |target| target.node.clone()),
        state.to_owned(),
        route.cluster_uid.clone(),
    ]
}
