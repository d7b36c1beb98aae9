//! Counts what both providers of AWS cost, in calls: the published manager as it is shipped, and `ccm-host` with
//! `providers/aws`. Each lives the same life in a cluster of its own, on an emulator of its own, whose door counts.
//!
//! In: how many nodes and Services. Out: a table in Markdown.
#![allow(clippy::print_stdout, reason = "the table is for people")]

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use e2e::aws::{Aws, Instance, Kind, ensured, network, settled};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use test_cluster::{
    Cluster, Options, Process,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

#[derive(Debug, Parser)]
struct Arguments {
    /// How many nodes there are, two or more.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// How many Services with a load balancer. Beyond 50 the node ports are not opened, since AWS allows 60 rules.
    #[arg(long, default_value_t = 20)]
    services: usize,
    /// Make classic load balancers, not network ones.
    #[arg(long)]
    classic: bool,
    /// How long nothing happens, in seconds.
    #[arg(long, default_value_t = 300)]
    quiet: u64,
    /// Fail if anything costs more here than with the published manager.
    #[arg(long)]
    check: bool,
}

/// Of the emulator, for whatever takes longest.
const LIMIT: Duration = Duration::from_secs(3600);
/// Whoever makes no call for so long has done its work.
const PAUSE: Duration = Duration::from_secs(5);
const IN_FLIGHT: usize = 32;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let published = Life::begin(&arguments, true).await?.live().await?;
    let here = Life::begin(&arguments, false).await?.live().await?;
    println!("\n| Calls of AWS | Published | Here |\n|---|---|---|");
    for ((event, published), (_, here)) in published.iter().zip(&here) {
        println!("| {event} | {published} | {here} |");
    }
    let is_dearer = |&((_, published), (_, here)): &(&(_, u32), &(_, u32))| here > published;
    let dearer: Vec<_> = published.iter().zip(&here).filter(is_dearer).map(|((event, _), _)| event).collect();
    ensure!(!arguments.check || dearer.is_empty(), "dearer here: {dearer:?}");
    Ok(())
}

struct Life<'a> {
    arguments: &'a Arguments,
    cluster: Cluster,
    aws: Aws,
    /// `None`: the host serves the cluster.
    published: Option<Process>,
    /// By action, when the last event was over.
    before: BTreeMap<String, u32>,
    told: Vec<(String, u32)>,
    _folder: tempfile::TempDir,
}

impl<'a> Life<'a> {
    async fn begin(arguments: &'a Arguments, published: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut aws = Aws::start(folder.path()).await?;
        if arguments.services > 50 {
            aws.configure("DisableSecurityGroupIngress = true")?;
        }
        let kind = if arguments.classic { "classic" } else { "network" };
        let options = Options::default()
            .provider_under_test(aws.provider(Kind::Native))
            .provider_flag(format!("--load-balancers={kind}"))
            // Nodes are younger than five minutes here.
            .host_flag("--node-deletion-grace=0s");
        let (cluster, published) = if published {
            let cluster = options.start_control_plane().await?;
            let manager = aws.published(&cluster).await?;
            (cluster, Some(manager))
        } else {
            (options.start().await?, None)
        };
        println!("\n{}", if published.is_some() { "published" } else { "here" });
        let before = aws.calls().await?;
        Ok(Self { arguments, cluster, aws, published, before, told: Vec::new(), _folder: folder })
    }

    async fn live(mut self) -> Result<Vec<(String, u32)>> {
        let Arguments { nodes, services, quiet, classic, .. } = *self.arguments;
        let mut machines = Vec::new();
        for (zone, count) in [(0, nodes - nodes / 2), (1, nodes / 2)] {
            machines.extend(self.aws.launch_many(zone, count).await?);
        }
        self.join(&machines).await?;
        self.over(format!("{nodes} nodes join")).await?;

        tokio::time::sleep(Duration::from_secs(quiet)).await;
        self.over(format!("{quiet} quiet seconds")).await?;

        let client = self.cluster.client.clone();
        let names: Vec<_> = (0..services).map(|number| format!("web-{number}")).collect();
        let wish = if classic { load_balancer } else { network };
        stream::iter(&names)
            .map(|name| create(&client, wish(name)))
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        let api = Api::<Service>::namespaced(client.clone(), "default");
        self.until("all Services have an address", async || {
            let all = api.list(&ListParams::default()).await?;
            Ok(all.iter().filter(|service| !ingress(service).is_empty()).count() == services)
        })
        .await?;
        self.behind(machines.len()).await?;
        self.over(format!("{services} Services")).await?;

        let ports = json!([
            { "name": "http", "protocol": "TCP", "port": 80 }, { "name": "https", "protocol": "TCP", "port": 443 },
        ]);
        let edit = Patch::Merge(json!({ "spec": { "ports": ports } }));
        stream::iter(&names)
            .map(async |name| api.patch(name, &PatchParams::default(), &edit).await)
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        wait::until_within(LIMIT, "all balancers have both ports", async || {
            let all = self.aws.balancers().await?;
            Ok((all.iter().filter(|one| one.ports == [80, 443]).count() == services).then_some(()))
        })
        .await
        .with_context(|| self.tail())?;
        self.over(format!("{services} Services get another port")).await?;

        let machine = self.aws.launch(0).await?;
        self.join(std::slice::from_ref(&machine)).await?;
        machines.push(machine);
        self.behind(machines.len()).await?;
        self.over(format!("a node joins {services} balancers")).await?;

        let gone = machines.swap_remove(0);
        self.aws.terminate(&gone).await?;
        set_ready(&client, &gone.node, "Unknown").await?;
        let nodes = Api::<Node>::all(client.clone());
        self.until("its node is gone", async || Ok(nodes.get_opt(&gone.node).await?.is_none())).await?;
        self.behind(machines.len()).await?;
        self.over("an instance ends".to_owned()).await?;

        self.restart().await?;
        self.over("a restart".to_owned()).await?;

        for name in &names {
            api.delete(name, &DeleteParams::default()).await?;
        }
        self.until("all Services are gone", async || {
            let all = api.list(&ListParams::default()).await?;
            Ok(!all
                .iter()
                .filter_map(|service| service.metadata.name.as_ref())
                .any(|name| names.contains(name)))
        })
        .await?;
        self.over(format!("{services} Services go")).await?;
        Ok(self.told)
    }

    async fn join(&mut self, machines: &[Instance]) -> Result<()> {
        let client = self.cluster.client.clone();
        stream::iter(machines)
            .map(async |machine| {
                register(&client, as_registered(&machine.node)).await?;
                set_ready(&client, &machine.node, "True").await
            })
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        let nodes = Api::<Node>::all(client.clone());
        self.until("all nodes are initialised", async || {
            Ok(!nodes.list(&ListParams::default()).await?.iter().any(is_uninitialized))
        })
        .await
    }

    /// Waits until each balancer has so many instances behind it.
    async fn behind(&mut self, instances: usize) -> Result<()> {
        let services = self.arguments.services;
        wait::until_within(LIMIT, "all instances are behind all balancers", async || {
            let all = self.aws.balancers().await?;
            let full = all.iter().filter(|one| one.instances.len() == instances).count();
            Ok((full == services).then_some(()))
        })
        .await
        .with_context(|| self.tail())
    }

    async fn restart(&mut self) -> Result<()> {
        let services = self.arguments.services;
        if let Some(manager) = &mut self.published {
            let before = manager.output().len();
            manager.terminate().await?;
            *manager = self.aws.published(&self.cluster).await?;
            let manager = &*manager;
            return wait::until_within(
                LIMIT,
                "the published manager has looked at all Services",
                async || Ok((ensured(manager, before) == services).then_some(())),
            )
            .await;
        }
        self.cluster.restart_provider_with(&[]).await?;
        self.cluster.restart_host_with(&[]).await?;
        self.until("all Services are settled", async || Ok(settled(&self.cluster).await? == services)).await
    }

    async fn until(&self, what: &str, mut is: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let look = async || Ok(is().await?.then_some(()));
        wait::until_within(LIMIT, what, look).await.with_context(|| self.tail())
    }

    fn tail(&self) -> String {
        self.published.as_ref().map_or_else(|| format!("{:?}", self.cluster.parts()), Process::tail)
    }

    /// Waits until nothing more is called, and tells what was.
    async fn over(&mut self, event: String) -> Result<()> {
        let mut calls = self.aws.calls().await?;
        loop {
            tokio::time::sleep(PAUSE).await;
            let then = std::mem::replace(&mut calls, self.aws.calls().await?);
            if then == calls {
                break;
            }
        }
        let mut of_event = calls.clone();
        for (action, count) in &mut of_event {
            *count -= self.before.get(action).copied().unwrap_or_default();
        }
        of_event.retain(|_, count| *count > 0);
        let sum = of_event.values().sum();
        let mut line = format!("{event}: {sum}");
        for (action, count) in of_event {
            write!(line, ", {count} {}", action.rsplit(':').next().unwrap_or(&action))?;
        }
        println!("{line}");
        self.before = calls;
        self.told.push((event, sum));
        Ok(())
    }
}
