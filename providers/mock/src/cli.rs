//! The command line: serving by flags, and the admin door for people.

mod calls;
mod faults;
mod instances;
mod load_balancers;
mod rest;
mod routes;
mod standing;
mod table;

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde::Serialize;

use crate::{admin::Client, serve};
use table::Table;

/// A complete cloud in memory behind the CloudProvider contract.
#[derive(Debug, Parser)]
#[command(name = "provider-mock", version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(flatten)]
    options: serve::Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at a running mock's cloud and change it.
    Admin(Box<AdminArguments>),
}

/// What is to be done.
#[derive(Debug)]
pub enum Work {
    /// Serve.
    Serve(Box<serve::Options>),
    /// Speak to the admin door of a running mock.
    Admin(Box<AdminArguments>),
}

impl Arguments {
    /// What is to be done.
    #[must_use]
    pub fn work(self) -> Work {
        match self.command {
            Some(Command::Admin(admin)) => Work::Admin(admin),
            None => Work::Serve(Box::new(self.options)),
        }
    }
}

/// The admin door for people.
#[derive(Debug, Args)]
pub struct AdminArguments {
    /// Address of the door.
    #[arg(long, env = "PROVIDER_MOCK_ADMIN", value_name = "ADDRESS:PORT", global = true)]
    address: Option<SocketAddr>,
    /// File that holds the address of the door.
    #[arg(long, value_name = "FILE", global = true)]
    address_file: Option<PathBuf>,
    /// JSON instead of tables.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Who answers, and where gRPC is served.
    Info,
    /// Machines.
    #[command(subcommand, visible_alias = "instance")]
    Instances(instances::Verb),
    /// Load balancers, seen and changed behind the provider's back.
    #[command(subcommand, visible_alias = "balancer")]
    Balancers(load_balancers::Verb),
    /// Routes, seen and changed behind the provider's back.
    #[command(subcommand, visible_alias = "route")]
    Routes(routes::Verb),
    /// Volumes.
    #[command(subcommand, visible_alias = "volume")]
    Volumes(rest::VolumeVerb),
    /// Hosted clusters.
    #[command(subcommand, visible_alias = "cluster")]
    Clusters(rest::ClusterVerb),
    /// What the cloud holds for a cluster, beside its machines.
    Held {
        /// Uid of the cluster.
        cluster_uid: String,
    },
    /// SSH keys that were spread.
    SshKeys,
    /// Upper bounds of the account.
    #[command(subcommand)]
    Quota(rest::QuotaVerb),
    /// Credentials, reachability, rights, health.
    #[command(subcommand)]
    Conditions(rest::ConditionsVerb),
    /// RPCs that came in.
    #[command(subcommand)]
    Calls(calls::Verb),
    /// What is done to calls on purpose.
    #[command(subcommand, visible_alias = "fault")]
    Faults(faults::Verb),
}

/// Speaks to the admin door of a running mock and prints what it says.
///
/// # Errors
///
/// When the door does not answer, or refuses.
pub async fn admin(arguments: AdminArguments) -> anyhow::Result<()> {
    let AdminArguments { address, address_file, json, what } = arguments;
    let screen = Screen { json };
    if let What::Faults(faults::Verb::Kinds) = what {
        return screen.show(&faults::kinds(), faults::kind_table);
    }
    let client = match (address, address_file) {
        (Some(address), _) => Client::new(address),
        (None, Some(file)) => Client::from_address_file(file, Duration::ZERO).await?,
        (None, None) => {
            let error = "tell where the admin door is: --address, --address-file or PROVIDER_MOCK_ADMIN";
            Arguments::command().error(clap::error::ErrorKind::MissingRequiredArgument, error).exit()
        }
    };
    match what {
        What::Info => screen.show(&client.info().await?, rest::info_table),
        What::Instances(verb) => verb.run(&client, &screen).await,
        What::Balancers(verb) => verb.run(&client, &screen).await,
        What::Routes(verb) => verb.run(&client, &screen).await,
        What::Volumes(verb) => verb.run(&client, &screen).await,
        What::Clusters(verb) => verb.run(&client, &screen).await,
        What::Held { cluster_uid } => {
            screen.show(&client.held(&cluster_uid).await?, |held| rest::held_table(held))
        }
        What::SshKeys => screen.show(&client.ssh_keys().await?, |keys| rest::key_table(keys)),
        What::Quota(verb) => verb.run(&client, &screen).await,
        What::Conditions(verb) => verb.run(&client, &screen).await,
        What::Calls(verb) => verb.run(&client, &screen).await,
        What::Faults(verb) => verb.run(&client, &screen).await,
    }
}

/// Where answers are shown: as tables, or as JSON.
#[derive(Debug)]
struct Screen {
    json: bool,
}

impl Screen {
    fn show<T: Serialize>(&self, value: &T, table: impl FnOnce(&T) -> Table) -> anyhow::Result<()> {
        let text =
            if self.json { serde_json::to_string_pretty(value)? + "\n" } else { table(value).to_string() };
        match io::stdout().lock().write_all(text.as_bytes()) {
            // Whoever read has read enough, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Tells a person what went wrong, with its causes.
pub fn complain(error: &anyhow::Error) {
    // There is nobody left to tell when stderr is gone, too.
    let _told = writeln!(io::stderr().lock(), "error: {error:#}");
}
