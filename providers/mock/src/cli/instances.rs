//! `admin instances`.

use std::{collections::BTreeMap, time::Duration};

use clap::Subcommand;

use super::{
    Screen,
    table::{Table, or_dash, word},
};
use crate::{
    admin::Client,
    cloud::{Address, AddressKind, Instance, InstancePatch, NewInstances},
    duration,
};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show all machines.
    List,
    /// Show one machine.
    Get {
        /// Id, provider ID or name.
        reference: String,
    },
    /// Make machines.
    Create {
        /// Name of the one machine.
        #[arg(conflicts_with_all = ["count", "pattern", "first"])]
        name: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 1)]
        count: u32,
        /// Name of each; {} is its number.
        #[arg(long, default_value = "node-{}")]
        pattern: String,
        /// Number of the first.
        #[arg(long, default_value_t = 0)]
        first: u32,
        /// Zones, taken in turn.
        #[arg(long, value_delimiter = ',')]
        zone: Vec<String>,
        /// Type of the machines.
        #[arg(long = "type")]
        instance_type: Option<String>,
        /// Uid of the cluster they belong to.
        #[arg(long)]
        cluster: Option<String>,
        /// Labels of their nodes.
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
        /// How long they are pending.
        #[arg(long, value_parser = duration::parse)]
        boot: Option<Duration>,
    },
    /// Change a machine.
    Set {
        /// Id, provider ID or name.
        reference: String,
        /// Zone.
        #[arg(long)]
        zone: Option<String>,
        /// Type.
        #[arg(long = "type")]
        instance_type: Option<String>,
        /// All addresses, in order: InternalIP=10.0.0.1, repeated.
        #[arg(long = "node-address", value_name = "TYPE=ADDRESS", value_parser = address)]
        addresses: Vec<Address>,
        /// Labels to set.
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
        /// Labels to take away.
        #[arg(long, value_name = "KEY")]
        remove_label: Vec<String>,
    },
    /// Stop machines.
    Stop {
        /// Ids, provider IDs or names.
        #[arg(required = true)]
        references: Vec<String>,
    },
    /// Start stopped machines.
    Start {
        /// Ids, provider IDs or names.
        #[arg(required = true)]
        references: Vec<String>,
    },
    /// Terminate machines: they are seen going, then they are gone.
    Terminate {
        /// Ids, provider IDs or names.
        #[arg(required = true)]
        references: Vec<String>,
        /// How long they are seen going.
        #[arg(long, value_parser = duration::parse)]
        linger: Option<Duration>,
    },
    /// Take away at once all machines whose name begins so.
    DeleteNamed {
        /// How their names begin.
        prefix: String,
    },
    /// Take machines away at once.
    Delete {
        /// Ids, provider IDs or names.
        #[arg(required = true)]
        references: Vec<String>,
    },
}

impl Verb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        let shown = match self {
            Self::List => client.instances().await?,
            Self::Get { reference } => vec![client.instance(&reference).await?],
            Self::Create { name, count, pattern, first, zone, instance_type, cluster, labels, boot } => {
                let many = name.is_none();
                let wish = NewInstances {
                    name,
                    count: many.then_some(count),
                    name_pattern: many.then_some(pattern),
                    first: many.then_some(first),
                    zones: zone,
                    instance_type,
                    cluster_uid: cluster,
                    labels: labels.into_iter().collect(),
                    boot_ms: boot.map(duration::millis),
                    ..NewInstances::default()
                };
                client.create_instances(&wish).await?
            }
            Self::Set { reference, zone, instance_type, addresses, labels, remove_label } => {
                let patch = InstancePatch {
                    zone,
                    instance_type,
                    addresses: (!addresses.is_empty()).then_some(addresses),
                    labels: labels.into_iter().collect::<BTreeMap<_, _>>(),
                    remove_labels: remove_label.into_iter().collect(),
                    ..InstancePatch::default()
                };
                vec![client.patch_instance(&reference, &patch).await?]
            }
            Self::Stop { references } => {
                each(&references, async |reference| client.stop_instance(reference).await).await?
            }
            Self::Start { references } => {
                each(&references, async |reference| client.start_instance(reference).await).await?
            }
            Self::Terminate { references, linger } => {
                each(&references, async |reference| client.terminate_instance(reference, linger).await)
                    .await?
            }
            Self::DeleteNamed { prefix } => client.delete_instances_named(&prefix).await?,
            Self::Delete { references } => {
                each(&references, async |reference| client.delete_instance(reference).await).await?
            }
        };
        screen.show(&shown, |machines| table(machines))
    }
}

async fn each<T>(
    references: &[String],
    act: impl AsyncFn(&str) -> Result<T, crate::admin::ClientError>,
) -> anyhow::Result<Vec<T>> {
    let mut done = Vec::new();
    for reference in references {
        done.push(act(reference).await?);
    }
    Ok(done)
}

fn table(machines: &[Instance]) -> Table {
    Table::new(["NAME", "STATE", "TYPE", "ZONE", "INTERNAL-IP", "PROVIDER-ID"]).rows(machines, |machine| {
        let internal = machine.addresses.iter().find(|address| address.kind == AddressKind::InternalIp);
        [
            machine.name.clone(),
            word(machine.state),
            or_dash(&machine.instance_type),
            or_dash(&machine.zone),
            internal.map_or_else(|| "-".to_owned(), |address| address.address.clone()),
            machine.provider_id.clone(),
        ]
    })
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn address(text: &str) -> Result<Address, String> {
    let (kind, address) = pair(text)?;
    let known = "Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS";
    let kind =
        serde_json::from_value(kind.as_str().into()).map_err(|_| format!("{kind:?} is not {known}"))?;
    Ok(Address::new(kind, address))
}
