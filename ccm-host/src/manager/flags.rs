//! The command line: arguments in, typed [`Settings`] or all mistakes at once out.
//!
//! Four steps: `args` sorts the words, `file` adds what the file of `--config` says (nothing else here touches a file or a
//! socket), clap fills the raw flags (text as it was written), `resolve` turns them into types. Names and meaning are
//! upstream's where the flag exists upstream; the defaults are ours. `docs/flags.md` and `docs/config.schema.json` are made
//! from the same definitions by [`table`] and [`schema`].

mod access;
mod args;
mod cidrs;
mod controllers;
mod election;
mod error;
mod file;
mod gates;
mod kube;
mod legacy;
mod logging;
mod nodes;
mod providers;
mod removed;
mod routes;
pub mod schema;
mod services;
mod serving;
pub mod table;
mod tls;
mod value;

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

pub use access::{AccessSettings, ClientCa, OpenPath};
pub use cidrs::{Allocation, CidrSettings, NodeRange};
pub use error::FlagError;
pub use kube::KubeSettings;
pub use logging::{LogFormat, LoggingSettings};
pub use nodes::{LifecycleSettings, NodeSettings, Share};
pub use providers::{Endpoint, ProviderSettings, TlsDir};
pub use routes::RouteSettings;
pub use services::ServiceSettings;
pub use serving::ServingSettings;
pub use tls::{CertificateSource, TlsSettings};

use self::cidrs::RawCidrs;
use self::controllers::RawControllers;
use self::election::RawElection;
use self::error::Mistakes;
use self::file::File;
use self::gates::RawGates;
use self::kube::RawKube;
use self::legacy::RawLegacy;
use self::logging::RawLogging;
use self::nodes::{RawLifecycle, RawNodes};
use self::providers::RawProviders;
use self::routes::RawRoutes;
use self::services::RawServices;
use self::serving::RawServing;
use crate::manager::build_info;
use crate::manager::controller::Controller;

/// Provider-neutral cloud controller manager: keeps nodes and load balancers of a cluster in step with the cloud,
/// through a provider that runs beside it.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "ccm-host",
    disable_version_flag = true,
    args_override_self = true,
    after_help = "Flags may be written with '_' in place of '-'. Every mistake is reported at once, exit code 1."
)]
pub struct RawFlags {
    #[command(flatten)]
    providers: RawProviders,
    #[command(flatten)]
    kube: RawKube,
    #[command(flatten)]
    controllers: RawControllers,
    #[command(flatten)]
    nodes: RawNodes,
    #[command(flatten)]
    lifecycle: RawLifecycle,
    #[command(flatten)]
    services: RawServices,
    #[command(flatten)]
    cidrs: RawCidrs,
    #[command(flatten)]
    routes: RawRoutes,
    #[command(flatten)]
    serving: RawServing,
    #[command(flatten)]
    logging: RawLogging,
    #[command(flatten)]
    election: RawElection,
    #[command(flatten)]
    legacy: RawLegacy,
    #[command(flatten)]
    gates: RawGates,

    /// YAML file with the names of flags and their values; a flag on the command line wins. docs/config.schema.json
    /// says what it may hold.
    // Read by `file`, before clap.
    #[arg(long = "config", value_name = "PATH", default_value = "", help_heading = "Global")]
    _config: String,

    /// Print the version and exit; raw prints the whole build information.
    #[arg(
        long,
        value_name = "true|raw",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Global"
    )]
    version: Option<String>,
}

/// What the whole process is told to do; checked, so that nothing is checked again.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// At least one, names and endpoints unique.
    pub providers: Vec<ProviderSettings>,
    pub kube: KubeSettings,
    /// The controllers to start, where their provider supports them.
    pub controllers: BTreeSet<Controller>,
    pub nodes: NodeSettings,
    pub lifecycle: LifecycleSettings,
    pub services: ServiceSettings,
    pub cidrs: CidrSettings,
    pub routes: RouteSettings,
    pub serving: ServingSettings,
    pub logging: LoggingSettings,
    /// How replicas elect a leader, if they do.
    pub election: Option<crate::election::Settings>,
    /// What was accepted but deserves a word in the log.
    pub warnings: Vec<String>,
    /// Every flag and its value, given or default, by name.
    pub flags: Vec<(String, String)>,
}

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Run with these settings.
    Run { settings: Box<Settings> },
    /// Print this and end well.
    Print(String),
}

/// Reads a command line without the name of the program.
pub fn parse(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Request, Vec<FlagError>> {
    let mut command = RawFlags::command();
    command.build();
    let mut mistakes = Mistakes::default();
    let mut words = args::sort(&command, words.into_iter().map(Into::into), &mut mistakes);
    let file = File::append(&command, &mut words, &mut mistakes);
    let matches = match command.try_get_matches_from_mut(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return Ok(Request::Print(error.to_string()));
        }
        Err(error) => return Err(refused(mistakes, &error)),
    };
    let raw = match RawFlags::from_arg_matches(&matches) {
        Ok(raw) => raw,
        Err(error) => return Err(refused(mistakes, &error)),
    };
    if let Some(text) = raw.version_text(&mut mistakes) {
        return Ok(Request::Print(text));
    }
    match resolve(&raw) {
        Ok(settings) if mistakes.is_empty() => {
            let flags = table::values(&command, &matches);
            Ok(Request::Run { settings: Box::new(Settings { flags, ..settings }) })
        }
        Ok(_) => Err(mistakes.into_vec()),
        Err(errors) => {
            mistakes.extend(file.locate(errors));
            Err(mistakes.into_vec())
        }
    }
}

/// Turns raw flags into settings, or says everything that is wrong with them.
pub fn resolve(raw: &RawFlags) -> Result<Settings, Vec<FlagError>> {
    let mut mistakes = Mistakes::default();
    let mut warnings = Vec::new();
    let settings = resolve_into(raw, &mut mistakes, &mut warnings);
    match settings {
        Some(settings) if mistakes.is_empty() => Ok(Settings { warnings, ..settings }),
        _ => Err(mistakes.into_vec()),
    }
}

/// Every group is resolved before the first missing one ends it, so that all mistakes are found.
fn resolve_into(raw: &RawFlags, mistakes: &mut Mistakes, warnings: &mut Vec<String>) -> Option<Settings> {
    let providers = raw.providers.resolve(mistakes);
    let kube = raw.kube.resolve(mistakes, warnings);
    let controllers = raw.controllers.resolve(mistakes, warnings);
    let nodes = raw.nodes.resolve(mistakes);
    let lifecycle = raw.lifecycle.resolve(mistakes);
    let services = raw.services.resolve(mistakes);
    let with_ipam = controllers.as_ref().is_none_or(|named| named.contains(&Controller::NodeIpam));
    let cidrs = raw.cidrs.resolve(with_ipam, mistakes, warnings);
    let routes = raw.routes.resolve(mistakes);
    let serving = raw.serving.resolve(mistakes, warnings);
    let logging = raw.logging.resolve(mistakes);
    let election = raw.election.resolve(mistakes);
    raw.legacy.check(mistakes, warnings);
    raw.gates.check(mistakes, warnings);
    Some(Settings {
        providers: providers?,
        kube: kube?,
        controllers: controllers?,
        nodes: nodes?,
        lifecycle: lifecycle?,
        services: services?,
        cidrs: cidrs?,
        routes: routes?,
        serving: serving?,
        logging: logging?,
        election: election?,
        warnings: Vec::new(),
        flags: Vec::new(),
    })
}

impl RawFlags {
    /// What `--version` prints, if it was asked for.
    fn version_text(&self, mistakes: &mut Mistakes) -> Option<String> {
        match self.version.as_deref()? {
            "raw" => Some(build_info::raw()),
            other => match mistakes.keep(
                value::switch("version", other)
                    .map_err(|error| FlagError { remedy: "give true or raw".to_owned(), ..error }),
            )? {
                true => Some(build_info::short()),
                false => None,
            },
        }
    }
}

/// What [`args`] let through and clap still refuses.
fn refused(mut mistakes: Mistakes, error: &clap::Error) -> Vec<FlagError> {
    let text = error.to_string();
    let problem = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    mistakes.add(FlagError { given: "command line".to_owned(), problem, remedy: args::SEE_HELP.to_owned() });
    mistakes.into_vec()
}

#[cfg(test)]
mod tests;
