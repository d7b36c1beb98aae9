//! How to reach the apiserver, and how hard to use it.

use std::path::PathBuf;

use clap::ArgAction;

use crate::flag::{self, Wrong};

/// One field per flag.
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

    /// Let each controller write under a ServiceAccount of its own in kube-system: node-controller, service-controller
    /// or route-controller. It is created if it does not exist; this process must be allowed to request its tokens.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub use_service_account_credentials: bool,
}

impl KubeSettings {
    pub(super) fn check(&self, warnings: &mut Vec<String>) {
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
    let uri: http::Uri = text.parse().map_err(|_| wrong("is not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("is not an http or https URL"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let problem = "the URL carries a user name or password";
        return Err(Wrong { is_secret: true, ..Wrong::new(problem, "put credentials into a kubeconfig") });
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
