//! `--provider` and the flags beside it: the providers, where they listen, who may answer there, and what is whose.
//!
//! Out: one [`ProviderSettings`] per provider, with unique names that are valid metric labels, and a [`Division`] of
//! objects among them. `connect` connects and reads the certificates.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use super::Division;
use ccm_base::flag::{self, FlagError, Mistakes, Wrong};
use ccm_kube::selector::LabelSelector;

const LONGEST_NAME: usize = 63;

/// The flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Providers")]
#[group(skip)]
pub struct ProviderFlags {
    /// A provider and its endpoint: unix:///path, an absolute path, or https://host:port together with
    /// --provider-tls-dir. Repeat the flag for several providers.
    #[arg(long, value_name = "NAME=ENDPOINT")]
    provider: Vec<String>,

    /// Directory with ca.crt, tls.crt and tls.key for the provider of that name; required for https endpoints,
    /// repeatable.
    #[arg(long, value_name = "NAME=DIR")]
    provider_tls_dir: Vec<String>,

    /// Nodes of the provider of that name for as long as they have no provider ID, by their labels; repeatable. Without
    /// it, all providers are asked about such a node, and the only one that has its instance owns it.
    #[arg(long, value_name = "NAME=SELECTOR")]
    provider_node_selector: Vec<String>,

    /// The provider of nodes whose provider ID begins with PREFIX, whatever prefixes the providers claim; of several, the
    /// longest counts. Needed where providers claim the same provider IDs, whose nodes belong to none of them otherwise,
    /// and where the nodes of one provider must not wait for another one that has not connected since the start. Repeatable.
    #[arg(long, value_name = "NAME=PREFIX")]
    provider_id_prefix: Vec<String>,

    /// The provider of Services that have neither a spec.loadBalancerClass nor the annotation
    /// cloudprovider.ccm/load-balancer-provider. Without it, the first --provider that looks after such Services gets
    /// them.
    #[arg(long, value_name = "NAME", default_value = "")]
    default_load_balancer_provider: String,

    /// User ids, besides root and the host's own, that may own a provider's socket and serve it; comma separated.
    /// Needed when the provider's container runs as another user.
    #[arg(long, value_name = "UIDS", default_value = "", value_parser = uids)]
    allowed_peer_uids: Uids,

    /// Optional. If set, it must be the name of a --provider, so that a manifest cannot start with the wrong cloud.
    #[arg(long, value_name = "STRING", default_value = "")]
    cloud_provider: String,
}

/// One value for clap, which takes a `Vec` for a flag that is given several times.
type Uids = Vec<u32>;

/// A provider and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The name given on the command line; label `provider` of metrics and logs.
    pub name: String,
    pub endpoint: Endpoint,
    /// Users that may own the socket and answer on it, besides root and this process's own.
    pub allowed_uids: Vec<u32>,
}

impl ProviderFlags {
    /// Validates what names a provider against the providers.
    pub fn division(&self, providers: &[ProviderSettings], mistakes: &mut Mistakes) -> Division {
        let known = |name: &str| {
            let names: Vec<_> = providers.iter().map(|provider| provider.name.as_str()).collect();
            if names.contains(&name) {
                return Ok(());
            }
            Err(Wrong::new(
                format!("{name:?} is not a provider"),
                format!("name one of: {}", names.join(", ")),
            ))
        };
        let mut nodes = BTreeMap::new();
        for text in &self.provider_node_selector {
            let read = selector(text).and_then(|(name, selector)| {
                known(name)?;
                match nodes.insert(name.to_owned(), selector) {
                    None => Ok(()),
                    Some(_) => {
                        let problem = format!("is the second selector for {name:?}");
                        Err(Wrong::new(problem, "give one for each provider"))
                    }
                }
            });
            mistakes.keep(read.map_err(|wrong| wrong.of("provider-node-selector", text)));
        }
        let mut prefixes = BTreeMap::new();
        for text in &self.provider_id_prefix {
            let read = flag::named("provider-id-prefix", text, "NAME=PREFIX").and_then(|(name, prefix)| {
                known(name)?;
                match prefixes.insert(prefix.to_owned(), name.to_owned()).filter(|other| other != name) {
                    None => Ok(()),
                    Some(other) => {
                        let problem = format!("gives {prefix:?} to a second provider, besides {other:?}");
                        Err(Wrong::new(problem, "give each prefix to one provider"))
                    }
                }
            });
            mistakes.keep(read.map_err(|wrong| wrong.of("provider-id-prefix", text)));
        }
        let services = Some(self.default_load_balancer_provider.clone()).filter(|name| !name.is_empty());
        if let Some(name) = &services {
            mistakes.keep(known(name).map_err(|wrong| wrong.of("default-load-balancer-provider", name)));
        }
        Division { nodes, services, prefixes }
    }

    /// Validates the flags together.
    pub fn resolve(&self, mistakes: &mut Mistakes) -> Option<Vec<ProviderSettings>> {
        let mut tls_dirs = self.tls_dirs(mistakes);
        let mut providers: Vec<ProviderSettings> = Vec::new();
        let mut complete = !self.provider.is_empty();
        if self.provider.is_empty() {
            mistakes.add(self.missing());
        }
        for text in &self.provider {
            let read = provider(text, &providers, &mut tls_dirs);
            match mistakes.keep(read.map_err(|wrong| wrong.of("provider", text))) {
                Some(provider) => providers.push(provider),
                None => complete = false,
            }
        }
        for (name, dir) in tls_dirs {
            mistakes.refuse(
                "provider-tls-dir",
                format!("{name}={}", dir.display()),
                "belongs to no provider with an https endpoint",
                format!("give --provider {name}=https://HOST:PORT, or leave this flag out"),
            );
        }
        self.check_cloud_provider(mistakes);
        for provider in &mut providers {
            provider.allowed_uids.clone_from(&self.allowed_peer_uids);
        }
        complete.then_some(providers)
    }

    /// The error for a command line taken over from a cloud controller manager with its cloud built in.
    fn missing(&self) -> FlagError {
        match self.cloud_provider.as_str() {
            cloud if is_name(cloud) && cloud != "external" => FlagError::flag(
                "provider",
                format!(
                    "no provider is given, and this process holds the code of no cloud, nor that of {cloud}"
                ),
                format!(
                    "run the provider of {cloud} beside it, and add --provider {cloud}=unix:///path/of/the/socket"
                ),
            ),
            _ => FlagError::flag(
                "provider",
                "no provider is given",
                "write --provider NAME=unix:///path/of/the/socket",
            ),
        }
    }

    fn tls_dirs(&self, mistakes: &mut Mistakes) -> BTreeMap<String, PathBuf> {
        let mut dirs = BTreeMap::new();
        for text in &self.provider_tls_dir {
            let named = flag::named("provider-tls-dir", text, "NAME=DIR");
            let Some((name, dir)) = mistakes.keep(named.map_err(|wrong| wrong.of("provider-tls-dir", text)))
            else {
                continue;
            };
            if dirs.insert(name.to_owned(), PathBuf::from(dir)).is_some() {
                let problem = format!("is the second folder for {name:?}");
                mistakes.refuse("provider-tls-dir", text, problem, "give one for each provider");
            }
        }
        dirs
    }

    fn check_cloud_provider(&self, mistakes: &mut Mistakes) {
        let wanted = self.cloud_provider.as_str();
        let names: Vec<&str> =
            self.provider.iter().filter_map(|text| text.split_once('=')).map(|(name, _)| name).collect();
        if wanted.is_empty() || names.is_empty() || names.contains(&wanted) {
            return;
        }
        let problem = match wanted {
            "external" => "is the kubelet's value; this process is the external provider".to_owned(),
            _ => "is not the name of a provider".to_owned(),
        };
        let remedy = format!("leave it out, or give {}", names.join(" or "));
        mistakes.refuse("cloud-provider", wanted, problem, remedy);
    }
}

fn provider(
    text: &str,
    earlier: &[ProviderSettings],
    tls_dirs: &mut BTreeMap<String, PathBuf>,
) -> Result<ProviderSettings, Wrong> {
    let (name, address) = flag::named("provider", text, "NAME=ENDPOINT")?;
    if !is_name(name) {
        return Err(Wrong::new(
            format!("{name:?} cannot name a provider"),
            "use at most 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
        ));
    }
    let tls_dir = if address.starts_with("https://") { tls_dirs.remove(name) } else { None };
    let endpoint = endpoint(name, address, tls_dir)?;
    if earlier.iter().any(|other| other.name == name) {
        return Err(Wrong::new(format!("{name:?} is already a provider"), "give each provider its own name"));
    }
    if let Some(other) = earlier.iter().find(|other| other.endpoint == endpoint) {
        return Err(Wrong::new(
            format!("{:?} listens at the same endpoint", other.name),
            "give each provider its own endpoint",
        ));
    }
    Ok(ProviderSettings { name: name.to_owned(), endpoint, allowed_uids: Vec::new() })
}

fn selector(text: &str) -> Result<(&str, LabelSelector), Wrong> {
    let (name, selector) = flag::named("provider-node-selector", text, "NAME=SELECTOR")?;
    let remedy = "write it as for kubectl get -l, for example NAME=example.com/cloud=a";
    let selector: LabelSelector = selector.parse().map_err(|error: String| Wrong::new(error, remedy))?;
    if selector.is_everything() {
        return Err(Wrong::new("selects every node", remedy));
    }
    Ok((name, selector))
}

fn uids(list: &str) -> Result<Uids, Wrong> {
    let uid = |text: &str| {
        let wrong =
            |_| Wrong::new(format!("{text:?} is not a user id"), "give numbers, for example 1000,65532");
        text.trim().parse().map_err(wrong)
    };
    list.split(',').filter(|_| !list.is_empty()).map(uid).collect()
}

fn is_name(text: &str) -> bool {
    let end = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
    text.len() <= LONGEST_NAME
        && text.starts_with(end)
        && text.ends_with(end)
        && text.chars().all(|char| end(char) || matches!(char, '-' | '.'))
}

/// Where a provider listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, by absolute path.
    Unix(PathBuf),
    /// TCP with mutual TLS.
    Https {
        /// A DNS name or an IP address (IPv6 in brackets); also the name that the provider's certificate must carry.
        host: String,
        port: u16,
        /// The folder with `ca.crt`, the authorities that may have signed the provider's certificate, and with the host's
        /// own `tls.crt` and `tls.key`.
        tls: PathBuf,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix://{}", path.display()),
            Self::Https { host, port, .. } => write!(out, "https://{host}:{port}"),
        }
    }
}

/// The longest path that fits into a socket address on Linux, without the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

fn endpoint(name: &str, address: &str, tls_dir: Option<PathBuf>) -> Result<Endpoint, Wrong> {
    if address.starts_with('/') {
        return socket(address);
    }
    if let Some(path) = address.strip_prefix("unix:") {
        return socket(path.strip_prefix("//").unwrap_or(path));
    }
    flag::without_password(address, "providers over TCP show certificates: use --provider-tls-dir")?;
    if let Some(authority) = address.strip_prefix("https://") {
        return https(name, authority, tls_dir);
    }
    Err(match address.split_once("://") {
        Some(("http", rest)) => plain(name, rest),
        Some((scheme, _)) => Wrong::new(
            format!("the scheme {scheme:?} is not supported"),
            "use unix:///path, or https://host:port with --provider-tls-dir",
        ),
        None if address.contains(':') => plain(name, address),
        None => Wrong::new(
            format!("{address:?} is neither an absolute path nor a URL"),
            "use unix:///path, or https://host:port with --provider-tls-dir",
        ),
    })
}

fn socket(path: &str) -> Result<Endpoint, Wrong> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(Wrong::new(
            format!("{path:?} is not the absolute path of a socket"),
            "write unix:///path/of/the/socket",
        ));
    }
    if path.len() > LONGEST_SOCKET_PATH {
        return Err(Wrong::new(
            format!("the path has {} bytes, a socket address holds {LONGEST_SOCKET_PATH}", path.len()),
            "use a shorter path",
        ));
    }
    Ok(Endpoint::Unix(PathBuf::from(path)))
}

fn https(name: &str, authority: &str, tls_dir: Option<PathBuf>) -> Result<Endpoint, Wrong> {
    let Some((host, port)) = host_and_port(authority) else {
        return Err(Wrong::new(
            format!("{authority:?} is not host:port"),
            "write https://host:port, without a path",
        ));
    };
    match tls_dir {
        Some(tls) => Ok(Endpoint::Https { host, port, tls }),
        None => Err(Wrong::new(
            "an https endpoint needs certificates of both sides",
            format!("add --provider-tls-dir {name}=DIR with ca.crt, tls.crt and tls.key"),
        )),
    }
}

fn host_and_port(authority: &str) -> Option<(String, u16)> {
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let parsed: http::uri::Authority = authority.parse().ok()?;
    let port = parsed.port_u16().filter(|port| *port > 0)?;
    (!parsed.host().is_empty()).then(|| (parsed.host().to_owned(), port))
}

/// Refuses plain TCP: anyone on the path could read the traffic and answer for the provider.
fn plain(name: &str, rest: &str) -> Wrong {
    Wrong::new(
        "plain TCP has neither encryption nor proof of who answers",
        format!(
            "use unix:///path, or {name}=https://{} with --provider-tls-dir {name}=DIR",
            rest.trim_end_matches('/')
        ),
    )
}
