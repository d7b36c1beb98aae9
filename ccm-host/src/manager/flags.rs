//! The command line: arguments in, typed [`Settings`] or all mistakes at once out.
//!
//! Four steps: `args` normalises the words and adds those of the `--config` file (nothing else here touches a file or a
//! socket), clap parses each value with the parser of the part of the host that owns the flag, and `resolve`
//! checks the flags against each other. Names and meanings are upstream's where upstream has the flag; the defaults are
//! ours. The tests make `docs/flags.md` and `docs/config.schema.json` from the same definitions.

mod args;
mod controllers;
mod legacy;

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use self::args::File;
use super::{
    logging::LoggingSettings,
    serving::settings::{self as serving, ServingSettings},
    traces::TraceSettings,
};
use crate::manager::webhooks;
use ccm_base::flag::{self, FlagError, Mistakes, Wrong};
use ccm_cloud::{Division, settings as cloud, settings::ProviderSettings};
use ccm_kube::{election, shadow};
use ccm_nodes::node_ipam;
use ccm_reconcile::{Registration, settings::cidrs};

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
    providers: cloud::ProviderFlags,
    #[command(flatten)]
    kube: KubeSettings,
    /// Controllers to run: '*' enables all that are on by default, 'NAME' enables one, '-NAME' disables one; the first
    /// item that names a controller wins. Comma separated, repeatable.
    #[arg(long = "controllers", value_name = "LIST", default_value = "*", help_heading = "Controllers")]
    enabled: Vec<String>,
    #[command(flatten)]
    controllers: ccm_reconcile::Settings,
    #[command(flatten)]
    cidrs: cidrs::CidrFlags,
    #[command(flatten)]
    serving: serving::ServingFlags,
    #[command(flatten)]
    webhooks: webhooks::WebhookSettings,
    #[command(flatten)]
    logging: LoggingSettings,
    #[command(flatten)]
    traces: TraceSettings,
    #[command(flatten)]
    election: election::ElectionSettings,
    #[command(flatten)]
    shadow: shadow::ShadowSettings,
    /// Name=true or Name=false, comma separated; this host has no feature gates.
    #[arg(long, value_name = "LIST", help_heading = legacy::HEADING)]
    feature_gates: Vec<String>,

    /// YAML file with the names of flags and their values; a flag on the command line wins. docs/config.schema.json
    /// says what it may hold.
    // Read by `args`, before clap.
    #[arg(long = "config", value_name = "PATH", default_value = "", help_heading = "Global")]
    _config: String,

    /// Print the version and exit; raw prints the whole build information.
    #[arg(
        long,
        value_name = "true|raw",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = version,
        help_heading = "Global"
    )]
    version: Option<Version>,
}

/// The settings of the whole process, already validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// At least one, names and endpoints unique.
    pub providers: Vec<ProviderSettings>,
    /// Whose is what.
    pub division: Division,
    pub kube: KubeSettings,
    /// The controllers to start, if their provider supports them.
    pub enabled: Vec<&'static Registration>,
    /// Those of them whose webhook is served.
    pub admitting: Vec<&'static Registration>,
    pub controllers: ccm_reconcile::Settings,
    pub serving: ServingSettings,
    pub webhooks: webhooks::WebhookSettings,
    pub logging: LoggingSettings,
    pub traces: TraceSettings,
    pub election: election::ElectionSettings,
    pub shadow: shadow::ShadowSettings,
    /// Accepted values that deserve a warning in the log.
    pub warnings: Vec<String>,
    /// Every flag and its value, given or default, by name.
    pub flags: Vec<(String, String)>,
}

/// The request that a command line makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Run with these settings.
    Run(Box<Settings>),
    /// Print this and exit successfully.
    Print(String),
}

/// The request that `--version` makes.
#[derive(Clone, Copy, Debug)]
enum Version {
    Nothing,
    Short,
    Raw,
}

/// The flags as clap knows them.
fn command() -> Command {
    let mut command = legacy::arguments(RawFlags::command()).mut_args(|arg| {
        let is_switch = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "BOOL"));
        // A bare `--name` turns it on, and takes no value from the next word.
        if is_switch { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
    });
    command.build();
    command
}

/// Parses a command line without the program name.
///
/// # Errors
/// All mistakes at once; flags are checked against each other only if their values are valid.
pub fn parse(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Request, Vec<FlagError>> {
    let mut command = command();
    let mut mistakes = Mistakes::default();
    let mut words = args::sort(&command, words.into_iter().map(Into::into), &mut mistakes);
    let file = File::append(&command, &mut words, &mut mistakes);
    args::drop_unset(&command, &mut words);
    let mut found = Mistakes::default();
    let matches = loop {
        match command.try_get_matches_from_mut(&words) {
            Ok(matches) => break matches,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                return Ok(Request::Print(error.to_string()));
            }
            Err(error) => match wrong_value(&error, &mut words) {
                Some(mistake) => found.add(mistake),
                None => return Err(refused(mistakes, &error)),
            },
        }
    };
    let raw = match RawFlags::from_arg_matches(&matches) {
        Ok(raw) => raw,
        Err(error) => return Err(refused(mistakes, &error)),
    };
    match raw.version {
        Some(Version::Short) => return Ok(Request::Print(format!("ccm-host v{}", super::VERSION))),
        Some(Version::Raw) => return Ok(Request::Print(super::build())),
        Some(Version::Nothing) | None => {}
    }
    let mut warnings = Vec::new();
    let settings = resolve(raw, &mut found, &mut warnings);
    legacy::check(&matches, &mut found, &mut warnings);
    mistakes.extend(found.into_vec().into_iter().map(|mistake| file.locate(mistake)));
    match settings {
        Some(settings) if mistakes.is_empty() => {
            let flags = values(&command, &matches);
            Ok(Request::Run(Box::new(Settings { warnings, flags, ..settings })))
        }
        _ => Err(mistakes.into_vec()),
    }
}

/// The mistake of an invalid value. Removes the word, so that the others are still parsed.
fn wrong_value(error: &clap::Error, words: &mut Vec<String>) -> Option<FlagError> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let wrong = error.source()?.downcast_ref::<Wrong>()?.clone();
    let (flag, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let name = flag.trim_start_matches("--").split([' ', '[']).next()?;
    let word = format!("--{name}={value}");
    let before = words.len();
    words.retain(|other| *other != word);
    (words.len() < before).then(|| wrong.of(name, value))
}

/// Resolves every group before the first failure returns, so that all mistakes are found.
fn resolve(raw: RawFlags, mistakes: &mut Mistakes, warnings: &mut Vec<String>) -> Option<Settings> {
    let providers = raw.providers.resolve(mistakes);
    let division = providers.as_ref().map(|providers| raw.providers.division(providers, mistakes));
    raw.kube.check(warnings);
    let enabled = controllers::resolve(&raw.enabled, mistakes, warnings);
    let admitting = controllers::admitting(&raw.webhooks, enabled.as_deref(), mistakes);
    raw.controllers.lifecycle.check(mistakes);
    let with_ipam = enabled.as_ref().is_none_or(|named| named.contains(&&node_ipam::REGISTRATION));
    let cidrs = raw.cidrs.resolve(with_ipam, mistakes, warnings);
    let serving = raw.serving.resolve(mistakes, warnings);
    raw.election.check(mistakes);
    raw.shadow.check(raw.kube.use_service_account_credentials, mistakes);
    legacy::check_gates(&raw.feature_gates, mistakes, warnings);
    Some(Settings {
        providers: providers?,
        division: division?,
        kube: raw.kube,
        enabled: enabled?,
        admitting: admitting?,
        controllers: ccm_reconcile::Settings { cidrs: cidrs?, ..raw.controllers },
        serving: serving?,
        webhooks: raw.webhooks,
        logging: raw.logging,
        traces: raw.traces,
        election: raw.election,
        shadow: raw.shadow,
        warnings: Vec::new(),
        flags: Vec::new(),
    })
}

fn version(text: &str) -> Result<Version, Wrong> {
    match text {
        "raw" => Ok(Version::Raw),
        _ => match flag::switch(text) {
            Ok(true) => Ok(Version::Short),
            Ok(false) => Ok(Version::Nothing),
            Err(wrong) => Err(Wrong { remedy: "give true or raw".to_owned(), ..wrong }),
        },
    }
}

/// Mistakes that [`args`] let through and clap still refuses.
fn refused(mut mistakes: Mistakes, error: &clap::Error) -> Vec<FlagError> {
    let text = error.to_string();
    let problem = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    mistakes.add(FlagError { given: "command line".to_owned(), problem, remedy: args::SEE_HELP.to_owned() });
    mistakes.into_vec()
}

/// Every flag with its value, given or default.
fn values(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let mut values: Vec<(String, String)> = command
        .get_arguments()
        .filter(|arg| !matches!(arg.get_action(), ArgAction::Help))
        .filter_map(|arg| {
            let raw = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
            let value = raw.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
            arg.get_long().map(|name| (name.to_owned(), value))
        })
        .collect();
    values.sort();
    values
}

/// How to reach the apiserver, and how hard to use it: one field per flag.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[command(next_help_heading = "Kubernetes API")]
#[group(skip)]
pub struct KubeSettings {
    /// Kubeconfig file for access to the cluster; empty means the pod's ServiceAccount.
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the apiserver; overrides the one from the kubeconfig or the pod.
    #[arg(long, value_name = "URL", value_parser = master)]
    pub master: Option<http::Uri>,

    /// Average number of requests a second to the apiserver.
    #[arg(long, value_name = "NUMBER", default_value = "1000", value_parser = qps)]
    pub kube_api_qps: f32,

    /// Number of requests to the apiserver that may exceed the average at once.
    #[arg(long, value_name = "INT", default_value = "2000", value_parser = burst)]
    pub kube_api_burst: u32,

    /// Name of the cluster, sent with every call to a provider; many clouds derive the names of balancers and routes
    /// from it.
    #[arg(long, value_name = "STRING", default_value = "kubernetes", value_parser = cluster_name)]
    pub cluster_name: String,

    /// Let each controller write under a ServiceAccount of its own in kube-system: node-controller, service-controller,
    /// route-controller, kubelet-serving-csr-controller or persistent-volume-label-controller. It is created if it does not
    /// exist; this process must be allowed to request its tokens.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub use_service_account_credentials: bool,
}

impl KubeSettings {
    fn check(&self, warnings: &mut Vec<String>) {
        if f64::from(self.kube_api_qps) > f64::from(self.kube_api_burst) {
            warnings.push(format!(
                "--kube-api-burst={} is less than --kube-api-qps={}: the rate is reached only by requests that \
                 are spread over the second",
                self.kube_api_burst, self.kube_api_qps
            ));
        }
    }
}

fn master(text: &str) -> Result<http::Uri, Wrong> {
    let wrong = |problem| Wrong::new(problem, "give a URL such as https://host:6443");
    flag::without_password(text, "put credentials into a kubeconfig")?;
    let uri: http::Uri = text.parse().map_err(|_| wrong("is not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("is not an http or https URL"));
    }
    Ok(uri)
}

fn qps(text: &str) -> Result<f32, Wrong> {
    let wrong = |problem| Wrong::new(problem, "give a number above 0, such as 1000");
    let qps: f32 = text.parse().map_err(|_| wrong("is not a number"))?;
    if !qps.is_finite() {
        return Err(wrong("is not a finite number"));
    }
    if qps <= 0.0 {
        return Err(wrong("would let no request through"));
    }
    Ok(qps)
}

fn burst(text: &str) -> Result<u32, Wrong> {
    flag::at_least(text, 1)
}

fn cluster_name(text: &str) -> Result<String, Wrong> {
    match text {
        "" => Err(Wrong::new("is empty", "give a name, or leave the flag out for \"kubernetes\"")),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests;
