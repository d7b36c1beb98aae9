//! `admin volumes`, `clusters`, `quota`, `conditions`, and what is only shown.

use std::time::Duration;

use clap::Subcommand;

use super::{
    Screen,
    table::{Table, maybe, or_dash, word},
};
use crate::{
    admin::{Client, Info},
    cloud::{Conditions, ConditionsPatch, Held, HostedCluster, Quota, SshKey, Volume},
    duration,
};

#[derive(Debug, Subcommand)]
pub(super) enum VolumeVerb {
    /// Show all volumes.
    List,
    /// Make or replace a volume.
    Create {
        /// Its id.
        id: String,
        /// Zones from which it can be reached.
        #[arg(long, value_delimiter = ',')]
        zone: Vec<String>,
        /// The plugin that mounts it; any when left out.
        #[arg(long, default_value = "")]
        plugin: String,
    },
    /// Take a volume away.
    Delete {
        /// Its id.
        id: String,
    },
}

impl VolumeVerb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let shown = match self {
            Self::List => client.volumes().await?,
            Self::Create { id, zone, plugin } => {
                let volume = Volume { id, plugin, zones: zone.into_iter().collect(), ..Volume::default() };
                vec![client.put_volume(&volume).await?]
            }
            Self::Delete { id } => vec![client.delete_volume(&id).await?],
        };
        screen.show(&shown, |volumes| {
            Table::new(["ID", "PLUGIN", "ZONES", "REGION"]).rows(volumes, |volume| {
                let zones: Vec<_> = volume.zones.iter().map(String::as_str).collect();
                [
                    volume.id.clone(),
                    or_dash(&volume.plugin),
                    or_dash(zones.join(",")),
                    or_dash(&volume.region),
                ]
            })
        })
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum ClusterVerb {
    /// Show all hosted clusters.
    List,
    /// Make or replace a hosted cluster.
    Create {
        /// Its name.
        name: String,
        /// Host of its control plane.
        host: String,
        /// Port; the usual one when left out.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Take a hosted cluster away.
    Delete {
        /// Its name.
        name: String,
    },
}

impl ClusterVerb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let shown = match self {
            Self::List => client.clusters().await?,
            Self::Create { name, host, port } => {
                vec![client.put_cluster(&HostedCluster { name, host, port }).await?]
            }
            Self::Delete { name } => vec![client.delete_cluster(&name).await?],
        };
        screen.show(&shown, |clusters| {
            Table::new(["NAME", "HOST", "PORT"]).rows(clusters, |cluster| {
                [cluster.name.clone(), cluster.host.clone(), cluster.port.to_string()]
            })
        })
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum QuotaVerb {
    /// Show the upper bounds.
    Show,
    /// Set all upper bounds; what is left out has none.
    Set {
        /// Load balancers.
        #[arg(long)]
        max_balancers: Option<u32>,
        /// Routes.
        #[arg(long)]
        max_routes: Option<u32>,
        /// Addresses of load balancers.
        #[arg(long)]
        max_addresses: Option<u32>,
    },
}

impl QuotaVerb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let quota = match self {
            Self::Show => client.quota().await?,
            Self::Set { max_balancers, max_routes, max_addresses } => {
                client.set_quota(&Quota { max_balancers, max_routes, max_addresses }).await?
            }
        };
        screen.show(&quota, |quota| {
            Table::new(["BALANCERS", "ROUTES", "ADDRESSES"]).row([
                maybe(quota.max_balancers),
                maybe(quota.max_routes),
                maybe(quota.max_addresses),
            ])
        })
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum ConditionsVerb {
    /// Show how things are.
    Show,
    /// Change how things are.
    Set {
        /// valid, invalid or expired.
        #[arg(long, value_parser = ["valid", "invalid", "expired"])]
        credentials: Option<String>,
        /// Whether the cloud's API answers.
        #[arg(long)]
        cloud_reachable: Option<bool>,
        /// Whether gRPC health says SERVING.
        #[arg(long)]
        serving: Option<bool>,
        /// Whether the condition RATE_LIMITED is shown.
        #[arg(long)]
        rate_limited: Option<bool>,
        /// Whether the condition WATCH_HEALTHY is shown.
        #[arg(long)]
        watch_healthy: Option<bool>,
        /// Whether the condition CONFIG_VALID is shown.
        #[arg(long)]
        config_valid: Option<bool>,
        /// How long every call of the cloud's API takes.
        #[arg(long, value_parser = duration::parse)]
        latency: Option<Duration>,
        /// How long a new load balancer takes at least.
        #[arg(long, value_parser = duration::parse)]
        provisioning_delay: Option<Duration>,
        /// All zones that do not answer; an empty text for none.
        #[arg(long, value_name = "ZONE,...")]
        unreachable_zones: Option<String>,
        /// All rights that are missing, such as instances:read; an empty text for none.
        #[arg(long, value_name = "ACTION,...")]
        denied_actions: Option<String>,
    },
}

impl ConditionsVerb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let conditions = match self {
            Self::Show => client.conditions().await?,
            Self::Set {
                credentials,
                cloud_reachable,
                serving,
                rate_limited,
                watch_healthy,
                config_valid,
                latency,
                provisioning_delay,
                unreachable_zones,
                denied_actions,
            } => {
                let set =
                    |text: String| text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
                let patch = ConditionsPatch {
                    credentials: credentials.map(|word| serde_json::from_value(word.into())).transpose()?,
                    cloud_reachable,
                    serving,
                    rate_limited,
                    watch_healthy,
                    config_valid,
                    latency_ms: latency.map(duration::millis),
                    provisioning_ms: provisioning_delay.map(duration::millis),
                    unreachable_zones: unreachable_zones.map(set),
                    denied_actions: denied_actions.map(set),
                };
                client.patch_conditions(&patch).await?
            }
        };
        screen.show(&conditions, condition_table)
    }
}

fn condition_table(conditions: &Conditions) -> Table {
    let joined =
        |set: &std::collections::BTreeSet<String>| or_dash(set.iter().cloned().collect::<Vec<_>>().join(","));
    let rows = [
        ("credentials", word(conditions.credentials)),
        ("cloud reachable", conditions.cloud_reachable.to_string()),
        ("serving", conditions.serving.to_string()),
        ("rate limited", conditions.rate_limited.to_string()),
        ("watch healthy", conditions.watch_healthy.to_string()),
        ("config valid", conditions.config_valid.to_string()),
        ("latency", format!("{} ms", conditions.latency_ms)),
        ("provisioning delay", format!("{} ms", conditions.provisioning_ms)),
        ("unreachable zones", joined(&conditions.unreachable_zones)),
        ("denied actions", joined(&conditions.denied_actions)),
    ];
    Table::new(["CONDITION", "IS"]).rows(rows, |(name, is)| [name.to_owned(), is])
}

pub(super) fn info_table(info: &Info) -> Table {
    Table::new(["NAME", "VERSION", "EPOCH", "ENDPOINT"]).row([
        info.name.clone(),
        info.version.clone(),
        info.epoch.clone(),
        info.endpoint.clone(),
    ])
}

pub(super) fn key_table(keys: &[SshKey]) -> Table {
    Table::new(["CLUSTER", "USER", "KEY"])
        .rows(keys, |key| [key.cluster_uid.clone(), key.user.clone(), key.public_key.clone()])
}

pub(super) fn held_table(held: &[Held]) -> Table {
    Table::new(["KIND", "ID"]).rows(held, |one| [one.kind.clone(), one.id.clone()])
}
