//! How the apiserver is reached and how much of it is asked.

use std::path::PathBuf;

use super::error::{FlagError, Mistakes};
use super::value;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes API")]
pub(super) struct RawKube {
    /// File with the access to the cluster; empty means the ServiceAccount of the pod.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub kubeconfig: String,

    /// URL of the apiserver, in place of the one in the kubeconfig or the pod.
    #[arg(long, value_name = "URL", default_value = "")]
    pub master: String,

    /// Requests a second to the apiserver, as a long-term mean.
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    pub kube_api_qps: String,

    /// Requests to the apiserver that may be sent at once before the mean is enforced.
    #[arg(long, value_name = "INT", default_value = "2000")]
    pub kube_api_burst: String,

    /// Name of the cluster, sent with every cloud call; many clouds build names of balancers and routes from it.
    #[arg(long, value_name = "STRING", default_value = "kubernetes")]
    pub cluster_name: String,
}

/// How the apiserver is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeSettings {
    /// `None`: the ServiceAccount of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// An `http` or `https` URL that takes the place of the configured one.
    pub master: Option<http::Uri>,
    /// Requests a second, greater than zero.
    pub qps: f32,
    /// Size of the token bucket, at least one.
    pub burst: u32,
    /// `cluster.name` of every cloud-facing request.
    pub cluster_name: String,
}

impl RawKube {
    pub(super) fn resolve(
        &self,
        mistakes: &mut Mistakes,
        warnings: &mut Vec<String>,
    ) -> Option<KubeSettings> {
        let master = mistakes.keep(master(&self.master));
        let qps = mistakes.keep(qps(&self.kube_api_qps));
        let burst = mistakes.keep(value::at_least("kube-api-burst", &self.kube_api_burst, 1));
        if self.cluster_name.is_empty() {
            mistakes.add(FlagError::value(
                "cluster-name",
                "",
                "is empty",
                "give a name, or leave the flag out for \"kubernetes\"",
            ));
        }
        let settings = KubeSettings {
            kubeconfig: (!self.kubeconfig.is_empty()).then(|| PathBuf::from(&self.kubeconfig)),
            master: master?,
            qps: qps?,
            burst: burst?,
            cluster_name: self.cluster_name.clone(),
        };
        if f64::from(settings.qps) > f64::from(settings.burst) {
            warnings.push(format!(
                "--kube-api-burst={} is less than --kube-api-qps={}: the rate is reached only by requests that \
                 are spread over the second",
                settings.burst, settings.qps
            ));
        }
        Some(settings)
    }
}

fn master(value: &str) -> Result<Option<http::Uri>, FlagError> {
    if value.is_empty() {
        return Ok(None);
    }
    let error = |problem| FlagError::value("master", value, problem, "give a URL such as https://host:6443");
    let uri: http::Uri = value.parse().map_err(|_| error("is not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(error("is not an http or https URL"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        // The value must not be repeated: it holds a password.
        return Err(FlagError::flag(
            "master",
            "the URL carries a user name or password",
            "put credentials into a kubeconfig",
        ));
    }
    Ok(Some(uri))
}

fn qps(value: &str) -> Result<f32, FlagError> {
    let error =
        |problem| FlagError::value("kube-api-qps", value, problem, "give a number above 0, such as 1000");
    let qps: f32 = value.parse().map_err(|_| error("is not a number"))?;
    if !qps.is_finite() {
        return Err(error("is not a finite number"));
    }
    if qps <= 0.0 {
        return Err(error("would let no request through"));
    }
    Ok(qps)
}
