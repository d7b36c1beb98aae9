//! Who may read metrics and configuration: what is asked of the apiserver, and what is open to everybody.

use std::path::PathBuf;
use std::time::Duration;

use super::error::{FlagError, Mistakes};
use super::value;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Authentication and authorization")]
pub(super) struct RawAccess {
    /// File with the access to the apiserver that reviews tokens; empty means that of --kubeconfig, or the pod's
    /// ServiceAccount.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub authentication_kubeconfig: String,

    /// Do not read the CA of client certificates from the ConfigMap extension-apiserver-authentication.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub authentication_skip_lookup: String,

    /// Go on if that ConfigMap may not be read: client certificates are accepted from nobody then.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub authentication_tolerate_lookup_failure: String,

    /// How long the review of a token is remembered.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub authentication_token_webhook_cache_ttl: String,

    /// File with the CA of client certificates, in place of the ConfigMap: the common name is the user, the
    /// organisations are the groups. Read again when it changes.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub client_ca_file: String,

    /// File with the access to the apiserver that is asked who may do what; empty means that of --kubeconfig, or the
    /// pod's ServiceAccount.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub authorization_kubeconfig: String,

    /// Paths that are open to everybody, comma separated; one that ends in * opens all that begin so. Giving the flag
    /// replaces the default.
    #[arg(long, value_name = "LIST", default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,

    /// How long it is remembered that a request was allowed.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub authorization_webhook_cache_authorized_ttl: String,

    /// How long it is remembered that a request was not allowed.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub authorization_webhook_cache_unauthorized_ttl: String,
}

/// Who may read what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// `None`: as the rest of the process reaches the apiserver.
    pub authentication_kubeconfig: Option<PathBuf>,
    /// The same for authorization.
    pub authorization_kubeconfig: Option<PathBuf>,
    pub client_ca: ClientCa,
    pub open: Vec<OpenPath>,
    pub token_ttl: Duration,
    pub allowed_ttl: Duration,
    pub denied_ttl: Duration,
}

/// Whose client certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCa {
    /// Those of the CA in this file.
    File(PathBuf),
    /// Those of the CA in the cluster's ConfigMap.
    ConfigMap {
        /// Not being allowed to read it is no reason to end.
        tolerant: bool,
    },
    /// None.
    Nobody,
}

/// A path that needs no right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenPath {
    Exactly(String),
    Below(String),
}

impl OpenPath {
    /// Whether it opens this path.
    #[must_use]
    pub fn opens(&self, path: &str) -> bool {
        match self {
            Self::Exactly(open) => path == open,
            Self::Below(begin) => path.starts_with(begin),
        }
    }
}

impl RawAccess {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<AccessSettings> {
        let client_ca = self.client_ca(mistakes);
        let mut ttl = |name: &str, text: &str| mistakes.keep(value::any_duration(name, text));
        let token_ttl =
            ttl("authentication-token-webhook-cache-ttl", &self.authentication_token_webhook_cache_ttl);
        let allowed_ttl = ttl(
            "authorization-webhook-cache-authorized-ttl",
            &self.authorization_webhook_cache_authorized_ttl,
        );
        let denied_ttl = ttl(
            "authorization-webhook-cache-unauthorized-ttl",
            &self.authorization_webhook_cache_unauthorized_ttl,
        );
        let file = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        Some(AccessSettings {
            authentication_kubeconfig: file(&self.authentication_kubeconfig),
            authorization_kubeconfig: file(&self.authorization_kubeconfig),
            open: self.open(mistakes)?,
            client_ca: client_ca?,
            token_ttl: token_ttl?,
            allowed_ttl: allowed_ttl?,
            denied_ttl: denied_ttl?,
        })
    }

    fn client_ca(&self, mistakes: &mut Mistakes) -> Option<ClientCa> {
        let skip =
            mistakes.keep(value::switch("authentication-skip-lookup", &self.authentication_skip_lookup));
        let tolerant = mistakes.keep(value::switch(
            "authentication-tolerate-lookup-failure",
            &self.authentication_tolerate_lookup_failure,
        ));
        let (skip, tolerant) = (skip?, tolerant?);
        Some(match self.client_ca_file.as_str() {
            "" if skip => ClientCa::Nobody,
            "" => ClientCa::ConfigMap { tolerant },
            file => ClientCa::File(PathBuf::from(file)),
        })
    }

    fn open(&self, mistakes: &mut Mistakes) -> Option<Vec<OpenPath>> {
        let paths = self.authorization_always_allow_paths.iter().flat_map(|list| list.split(','));
        let read = |path: &str| {
            if !path.starts_with('/') {
                let flag = "authorization-always-allow-paths";
                return Err(FlagError::value(flag, path, "is no path", "begin it with /, as in /healthz"));
            }
            Ok(match path.strip_suffix('*') {
                Some(begin) => OpenPath::Below(begin.to_owned()),
                None => OpenPath::Exactly(path.to_owned()),
            })
        };
        let paths: Vec<&str> = paths.map(str::trim).filter(|path| !path.is_empty()).collect();
        let read: Vec<_> = paths.iter().filter_map(|path| mistakes.keep(read(path))).collect();
        (read.len() == paths.len()).then_some(read)
    }
}
