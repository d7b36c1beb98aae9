//! Shows people what `ccm-host` and its providers know.
//!
//! In: a command, and how to reach the host or a provider. Out: tables or JSON, and an exit code.
//!
//! ```text
//! leader (Lease → pod) ──► port-forward ─┐
//!                                        ├─► door (TLS, own credentials) ─► /state ─► show
//! --server ──────────────► TCP ──────────┘
//! --provider unix:// ────► direct (gRPC) ───────────────────────────────────────────► show
//! proxy ───────────────── a browser on this machine ─► the door
//! guard confirm ─────────► the apiserver: an annotation on the Node
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "answers to the person at the command line")]

mod cli;
mod credentials;
mod direct;
mod door;
mod guard;
mod leader;
mod proxy;
mod shadow;
mod show;
mod table;

use std::process::ExitCode;

use anyhow::{Result, bail};
use ccm_state::{
    HostState, NodeState, ProviderStatus, Resync, ServiceState, Standing,
    inventory::{Inventory, Kind},
};
use clap::Parser as _;

use cli::{Arguments, Command, Explained, GuardVerb, ProviderVerb, ShadowVerb};
use door::Door;
use show::Output;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Exit code 0.
    Well,
    /// Exit code 3: it was answered, and the answer asks for a person's attention.
    Attention,
    /// Exit code 1, of `shadow diff`: there are differences.
    Differs,
    /// Exit code 2, of `shadow diff`: not everything is known.
    Unknown,
}

impl Verdict {
    fn attention_if(attention: bool) -> Self {
        if attention { Self::Attention } else { Self::Well }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A second call would fail, but nothing has installed one before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&arguments)) {
        Ok(Verdict::Well) => ExitCode::SUCCESS,
        Ok(Verdict::Attention) => ExitCode::from(3),
        Ok(Verdict::Differs) => ExitCode::from(1),
        Ok(Verdict::Unknown) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error:#}");
            if matches!(arguments.command, Command::Shadow(_)) {
                return ExitCode::from(2);
            }
            ExitCode::from(if error.is::<door::NotFound>() { 4 } else { 1 })
        }
    }
}

async fn run(arguments: &Arguments) -> Result<Verdict> {
    let output = Output::new(arguments.output);
    match &arguments.command {
        Command::Provider { verb, provider, cluster_uid } => match provider.as_deref() {
            Some(endpoint) if endpoint.contains("://") => {
                ask_provider(arguments, endpoint, cluster_uid.as_deref(), verb, &output).await
            }
            name => ask_host(arguments, name, verb, &output).await,
        },
        Command::Explain(Explained::Node { name }) => {
            let node: NodeState =
                Door::open(&arguments.way).await?.get(&format!("/state/nodes/{name}")).await?;
            output.node(&node)?;
            Ok(Verdict::attention_if(node.summary.standing == Standing::Blocked))
        }
        Command::Explain(Explained::Service { key }) => {
            let (namespace, name) = key;
            let path = format!("/state/services/{namespace}/{name}");
            let service: ServiceState = Door::open(&arguments.way).await?.get(&path).await?;
            output.service(&service)?;
            Ok(Verdict::attention_if(service.summary.standing == Standing::Blocked))
        }
        Command::Reports => {
            let state: HostState = Door::open(&arguments.way).await?.get("/state").await?;
            output.reports(&state.reports)?;
            let is_blocked = |one: &ccm_state::Report| one.explanation.standing == Standing::Blocked;
            Ok(Verdict::attention_if(knows_little(&state.host) || state.reports.iter().any(is_blocked)))
        }
        Command::Resync => {
            let answer: Resync = Door::open(&arguments.way).await?.post("/resync").await?;
            let line = format!(
                "{} load balancers are ensured again, as many at a time as their providers take: `ccmctl reports` shows what \
                 is left",
                answer.balancers
            );
            output.done(&answer, &[line])?;
            Ok(Verdict::Well)
        }
        Command::Guard(GuardVerb::Show) => {
            let state: HostState = Door::open(&arguments.way).await?.get("/state").await?;
            output.guard(&state.guard)?;
            let holds = state
                .guard
                .iter()
                .any(|guard| guard.contradicted || guard.absent.iter().any(|absent| absent.rule.is_some()));
            Ok(Verdict::attention_if(knows_little(&state.host) || holds))
        }
        Command::Guard(GuardVerb::Confirm { nodes, yes }) => {
            guard::confirm(&arguments.way, nodes, *yes, &output).await
        }
        Command::Shadow(ShadowVerb::Diff) => shadow::diff(&arguments.way, &output).await,
        Command::Proxy { port } => {
            proxy::serve(arguments.way.clone(), *port).await?;
            Ok(Verdict::Well)
        }
    }
}

/// Whether what a host tells is not all that there is, and says why.
fn knows_little(host: &ccm_state::Host) -> bool {
    let mut why = host.not_ready.clone();
    if host.leadership == ccm_state::Leadership::Standby {
        why.push("it does not lead: ask the holder of the Lease".to_owned());
    }
    why.iter().for_each(|why| eprintln!("this host does not know everything: {}", table::plain(why)));
    !why.is_empty()
}

/// Through the host, which asks the provider on our behalf.
async fn ask_host(
    arguments: &Arguments,
    name: Option<&str>,
    verb: &ProviderVerb,
    output: &Output,
) -> Result<Verdict> {
    let mut door = Door::open(&arguments.way).await?;
    let state: HostState = door.get("/state").await?;
    if let Some(name) = name
        && !state.providers.iter().any(|provider| provider.name == name)
    {
        let known: Vec<_> = state.providers.iter().map(|provider| provider.name.as_str()).collect();
        bail!(door::NotFound(format!("there is no provider {name:?}: this host has {}", known.join(", "))));
    }
    let mut providers = state.providers;
    providers.retain(|provider| name.is_none_or(|name| provider.name == name));
    let question = match verb {
        ProviderVerb::Info => {
            output.info(&providers)?;
            return Ok(Verdict::Well);
        }
        ProviderVerb::Status => {
            output.status(&providers)?;
            let well = |provider: &ccm_state::Provider| provider.status == ProviderStatus::Serving;
            return Ok(Verdict::attention_if(!providers.iter().all(well)));
        }
        ProviderVerb::Instances => Kind::Instances.name().to_owned(),
        ProviderVerb::LoadBalancers => Kind::LoadBalancers.name().to_owned(),
        ProviderVerb::Routes => Kind::Routes.name().to_owned(),
        ProviderVerb::Volumes { plugin, ids } => door::volumes(plugin, ids),
        ProviderVerb::Clusters { name: None } => Kind::Clusters.name().to_owned(),
        ProviderVerb::Clusters { name: Some(cluster) } => door::cluster(cluster),
    };
    let [provider] = providers.as_slice() else {
        let known: Vec<_> = providers.iter().map(|provider| provider.name.as_str()).collect();
        bail!("this host has several providers ({}): say which one with --provider NAME", known.join(", "));
    };
    let inventory: Inventory = door.get(&format!("/state/providers/{}/{question}", provider.name)).await?;
    output.inventory(&inventory)?;
    Ok(Verdict::attention_if(!inventory.unreachable.is_empty()))
}

/// Without any host.
async fn ask_provider(
    arguments: &Arguments,
    endpoint: &str,
    cluster_uid: Option<&str>,
    verb: &ProviderVerb,
    output: &Output,
) -> Result<Verdict> {
    let provider = direct::Provider::connect(endpoint).await?;
    match verb {
        ProviderVerb::Info | ProviderVerb::Status => {
            let provider = provider.describe().await?;
            let well = provider.status == ProviderStatus::Serving;
            let all = [provider];
            match verb {
                ProviderVerb::Status => output.status(&all)?,
                _ => output.info(&all)?,
            }
            Ok(Verdict::attention_if(matches!(verb, ProviderVerb::Status) && !well))
        }
        verb => {
            let uid = match cluster_uid {
                Some(uid) => uid.to_owned(),
                None => credentials::cluster_uid(&arguments.way).await?,
            };
            let inventory = provider.inventory(&uid, verb).await?;
            output.inventory(&inventory)?;
            Ok(Verdict::attention_if(!inventory.unreachable.is_empty()))
        }
    }
}
