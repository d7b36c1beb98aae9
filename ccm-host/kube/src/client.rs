//! The client of the apiserver: one HTTP/2 connection for requests and one for watches, limits, deadlines, few retries,
//! upstream's metrics.
//!
//! In: a kubeconfig (or the pod's own service account) and limits. Out: a [`Client`]. What to request, and how often,
//! is decided elsewhere. Leader election has its own client (own connection, no limiter, no retries), so that a busy
//! host still renews its lease.

mod guard;
#[cfg(test)]
mod tests;

pub use guard::Recognition;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use http::{
    HeaderValue, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, USER_AGENT},
};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig, NamedCluster},
    core::{Status, response::reason},
};
use rustls_pki_types::ServerName;
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt as _, layer::layer_fn, service_fn, steer::Steer,
    util::BoxCloneSyncService,
};
use tower_http::decompression::DecompressionLayer;

use super::{
    account::{Account, NAMESPACE},
    metrics::ClientMetrics,
};
pub(crate) use guard::is_too_large;
use guard::{Answer, RequestLimiter, RequestRules, copy, guarded};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How far a watch may run ahead of the host. An adaptive window stays small on a short path, and the apiserver closes
/// a watch whose events it cannot send for a while: a storm of changes would then cost a new watch every few seconds.
const STREAM_WINDOW: u32 = 4 << 20;
/// The window of all streams together.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// What is unusable of TLS or login.
const CREDENTIALS: &str = "credentials for the apiserver";

/// How to reach the apiserver, and how hard to use it.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// A kubeconfig file. Without it and without `master` the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// The apiserver's address, instead of the one in the kubeconfig.
    pub master: Option<Uri>,
    /// Requests per second on average; 0 or less means no limit.
    pub qps: f32,
    /// Requests allowed at once above the average.
    pub burst: u32,
    /// The name of this process in the apiserver's logs and field managers.
    pub user_agent: String,
    /// Maximum time for one request with its retries and the wait for the limiter. Watches are exempt.
    pub request_timeout: Duration,
    /// How often to repeat a request that the apiserver rejects with 429, or with 503 and a Retry-After.
    pub retries: u32,
    /// A connection whose peer has been silent for this long is dead, watches included. An HTTP/2 connection outlives the
    /// requests on it: with less than `request_timeout`, the next attempt goes over a new one.
    pub silence: Duration,
    /// Whether nothing but GET is sent.
    pub read_only: bool,
    /// Learns whether the apiserver still knows this process.
    pub recognition: Recognition,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            master: None,
            qps: 1000.0,
            burst: 2000,
            user_agent: concat!("cloud-controller-manager/", env!("CARGO_PKG_VERSION")).to_owned(),
            request_timeout: Duration::from_secs(30),
            retries: 3,
            silence: Duration::from_secs(45),
            read_only: false,
            recognition: Recognition::default(),
        }
    }
}

/// Builds a client. Must be called within a tokio runtime.
pub async fn build(options: &ClientOptions, metrics: &ClientMetrics) -> Result<Client> {
    from_config(config(options).await?, None, options, metrics)
}

/// Like [`build`], for a client that sends the tokens of this account and no other credentials.
pub async fn build_as(
    account: Arc<Account>,
    options: &ClientOptions,
    metrics: &ClientMetrics,
) -> Result<Client> {
    let mut config = config(options).await?;
    config.auth_info = AuthInfo::default();
    let user_agent = format!("{}/system:serviceaccount:{NAMESPACE}:{}", options.user_agent, account.name());
    from_config(config, Some(account), &ClientOptions { user_agent, ..options.clone() }, metrics)
}

async fn config(options: &ClientOptions) -> Result<Config> {
    let mut config = match (&options.kubeconfig, &options.master) {
        (Some(path), _) => from_kubeconfig(path).await?,
        (None, Some(master)) => Config::new(master.clone()),
        (None, None) => Config::incluster().context("not in a pod: give --kubeconfig or --master")?,
    };
    if let Some(master) = &options.master {
        config.cluster_url = master.clone();
    }
    Ok(config)
}

async fn from_kubeconfig(path: &PathBuf) -> Result<Config> {
    let unusable = || format!("kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).with_context(unusable)?;
    // Proxies from the environment are meant for the internet, not for the apiserver: ignore them.
    let proxy_of = |cluster: &NamedCluster| cluster.cluster.as_ref()?.proxy_url.clone();
    if kubeconfig.clusters.iter().filter_map(proxy_of).any(|proxy| !proxy.is_empty()) {
        // Its URL may hold a password.
        bail!("kubeconfig {} names a proxy, which is not supported: remove proxy-url", path.display());
    }
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.with_context(unusable)
}

fn from_config(
    config: Config,
    account: Option<Arc<Account>>,
    options: &ClientOptions,
    metrics: &ClientMetrics,
) -> Result<Client> {
    let user_agent = HeaderValue::from_str(&options.user_agent)
        .map_err(|_| anyhow!("user agent {:?} holds characters that a header may not", options.user_agent))?;
    let mut config = config;
    config.headers.push((USER_AGENT, user_agent));
    let (requests, watches) = (connection(&config, options.silence)?, connection(&config, options.silence)?);
    let apart = Steer::new([requests, watches], |request: &Request<Body>, _: &[Http]| {
        usize::from(is_watch(request.uri()))
    });
    layered(apart, &config, account, options, metrics)
}

/// An apiserver that runs as a service in this process.
pub type Apiserver = BoxCloneSyncService<Request<Body>, Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// A client of an apiserver in this process, under the same limits and deadlines as any other.
pub fn over(apiserver: Apiserver, options: &ClientOptions, metrics: &ClientMetrics) -> Result<Client> {
    layered(apiserver, &Config::new(Uri::from_static("http://apiserver")), None, options, metrics)
}

fn layered<S, B>(
    service: S,
    config: &Config,
    account: Option<Arc<Account>>,
    options: &ClientOptions,
    metrics: &ClientMetrics,
) -> Result<Client>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let rules = RequestRules {
        recognition: account.is_none().then(|| options.recognition.clone()),
        limiter: RequestLimiter::new(options.qps, options.burst),
        deadline: options.request_timeout,
        retries: options.retries,
        metrics: metrics.clone(),
        read_only: options.read_only,
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context(CREDENTIALS)?)
        .layer(config.extra_headers_layer().context(CREDENTIALS)?)
        .map_err(BoxError::from)
        .option_layer(account.map(|account| layer_fn(move |inner| as_account(inner, account.clone()))))
        .layer_fn(|inner| guarded(inner, rules.clone()))
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .service(service);
    Ok(Client::new(service, config.default_namespace.clone()))
}

type Http = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// Watches have their own connection. On a shared one the apiserver interleaves watch events with the answers to all
/// writes, falls behind in a storm of them, and closes the watch: every second while 2,000 nodes are initialised.
fn connection(config: &Config, silence: Duration) -> Result<Http> {
    let ping_timeout = silence / 3;
    Ok(legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(silence - ping_timeout)
        .http2_keep_alive_timeout(ping_timeout)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector(config)?))
}

/// Whether the same request may succeed later. The apiserver refuses an invalid one every time.
pub(crate) fn may_pass(error: &::kube::Error) -> bool {
    match error {
        ::kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

/// Whether the apiserver says that there is no such object. The 404 of a proxy before it says nothing of the kind.
pub(crate) fn is_absent(answer: &Status) -> bool {
    answer.reason == reason::NOT_FOUND
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

fn connector(config: &Config) -> Result<HttpsConnector<HttpConnector>> {
    let tls = config.rustls_client_config().context(CREDENTIALS)?;
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    // Without this every small PATCH over HTTP/2 waits for the peer's delayed acknowledgement.
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match &config.tls_server_name {
        None => builder,
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|_| anyhow!("tls-server-name {name:?} is neither a host name nor an IP address"))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    Ok(builder.enable_all_versions().wrap_connector(http))
}

/// Sends requests in the account's name.
fn as_account<S>(
    inner: S,
    account: Arc<Account>,
) -> impl Service<Request<Body>, Response = Answer, Error = BoxError, Future: Send> + Clone
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError> + Clone + Send,
    S::Future: Send,
{
    service_fn(move |request| authorised(inner.clone(), account.clone(), request))
}

/// Repeats a request once that is rejected for its token: it was not processed.
async fn authorised<S>(
    inner: S,
    account: Arc<Account>,
    mut request: Request<Body>,
) -> Result<Answer, BoxError>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError> + Clone + Send,
    S::Future: Send,
{
    let token = account.token().await?;
    let again = copy(&request);
    request.headers_mut().insert(AUTHORIZATION, token.clone());
    let answer = inner.clone().oneshot(request).await?;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return Ok(answer);
    }
    account.rejected(&token);
    let Some(mut request) = again else { return Ok(answer) };
    request.headers_mut().insert(AUTHORIZATION, account.token().await?);
    inner.oneshot(request).await
}
