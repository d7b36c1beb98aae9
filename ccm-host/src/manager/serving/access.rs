//! Decides who may read what.
//!
//! In: a request, with the client certificates of its connection. Out: the request passes, or gets a Kubernetes
//! `Status` that says why not: 401, 403 or 503. Open paths (health, unless the flags differ) need no review, so that
//! probes work while the apiserver is unreachable. For the others, as upstream: a client certificate of the cluster's
//! CA or a bearer token identifies the user, a request without either is `system:anonymous`, and the apiserver says
//! what the user may do. Members of `system:masters` may do everything.
//!
//! A [`Reviewer`] asks the apiserver; its answers are cached for a few seconds.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use async_trait::async_trait;
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter, family::Family},
    registry::Registry,
};
use rustls::{
    RootCertStore,
    crypto::ring,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{
    connections::PeerCertificates,
    settings::{AccessSettings, ClientCa},
};
use crate::manager::{
    metrics::Metrics,
    refusal,
    serving::tls::{Files, read},
};
use ccm_base::metric::{Buckets, Declare, Histograms, MetricLabels};

const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";

/// Bounds the memory that made-up tokens can take.
const MOST: usize = 1024;

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), groups, ..Self::default() }
    }
}

/// The apiserver's reviews of tokens and users.
#[async_trait]
pub trait Reviewer: Send + Sync + std::fmt::Debug {
    /// The user of this token; `None` if it is not accepted.
    async fn who(&self, token: &str) -> anyhow::Result<Option<User>>;

    /// Whether this user may do `verb` on the non-resource `path`.
    async fn may(&self, user: &User, verb: &str, path: &str) -> anyhow::Result<bool>;
}

/// The rules and the cached answers.
#[derive(Debug)]
pub struct Access {
    settings: AccessSettings,
    authority: Authority,
    reviewer: OnceLock<Arc<dyn Reviewer>>,
    users: BoundedCache<Option<User>>,
    rights: BoundedCache<bool>,
    metrics: AccessMetrics,
}

impl Access {
    /// Open paths are open at once; the others wait for [`Access::ask`].
    ///
    /// # Errors
    /// The `--client-ca-file` cannot be read.
    pub fn new(settings: &AccessSettings, metrics: &Metrics) -> anyhow::Result<Arc<Self>> {
        let authority = match settings.client_ca() {
            ClientCa::File(path) => Authority::from_file(&path)?,
            ClientCa::ConfigMap { .. } | ClientCa::Nobody => Authority::default(),
        };
        Ok(Arc::new(Self {
            settings: settings.clone(),
            authority,
            reviewer: OnceLock::new(),
            users: BoundedCache::default(),
            rights: BoundedCache::default(),
            metrics: metrics.register(AccessMetrics::register),
        }))
    }

    /// Uses this reviewer from now on.
    pub fn ask(&self, reviewer: Arc<dyn Reviewer>) {
        // Only the first one counts, and there is only one.
        let _ = self.reviewer.set(reviewer);
    }

    /// The authority of accepted client certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    async fn admit(&self, asked: &Attributes<'_>) -> Result<(), Denial> {
        if self.settings.opens(asked.path) {
            return Ok(());
        }
        let reviewer = self.reviewer.get().ok_or(Denial::Unavailable(
            "the process is starting, and cannot ask the apiserver yet who may read this",
        ))?;
        let began = Instant::now();
        let who = self.who(asked, reviewer.as_ref()).await;
        self.metrics.authenticated(&who, began);
        let user = who?;
        let began = Instant::now();
        let may = self.may(&user, asked, reviewer.as_ref()).await;
        self.metrics.authorized(&may, began);
        if may? {
            return Ok(());
        }
        Err(Denial::Forbidden { user: user.name, verb: asked.verb.clone(), path: asked.path.to_owned() })
    }

    /// A request without credentials is anonymous; one whose credentials are not accepted is refused.
    async fn who(&self, asked: &Attributes<'_>, reviewer: &dyn Reviewer) -> Result<User, Denial> {
        let mut refused = None;
        if let Some(shown) = asked.certificates {
            match self.authority.who(&shown.0) {
                Some(Ok(user)) => return Ok(authenticated(user)),
                Some(Err(why)) => refused = Some(why),
                // Without a CA, certificates are ignored.
                None => {}
            }
        }
        let Some(token) = asked.token else {
            return refused.map_or_else(|| Ok(User::anonymous()), |why| Err(Denial::Unknown(why)));
        };
        let token_key = key([token]);
        let user = match self.users.get(&token_key) {
            Some(user) => user,
            None => {
                let user = reviewer.who(token).await.map_err(Denial::unanswered)?;
                self.users.put(token_key, user.clone(), self.settings.authentication_token_webhook_cache_ttl);
                user
            }
        };
        user.map(authenticated).ok_or_else(|| Denial::Unknown("the token is not accepted".to_owned()))
    }

    async fn may(
        &self,
        user: &User,
        asked: &Attributes<'_>,
        reviewer: &dyn Reviewer,
    ) -> Result<bool, Denial> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let extra = user.extra.iter().flat_map(|(name, values)| std::iter::once(name).chain(values));
        let words = [&user.name, &user.uid, &asked.verb].into_iter().chain(&user.groups).chain(extra);
        let question = key(words.map(String::as_str).chain([asked.path]));
        if let Some(may) = self.rights.get(&question) {
            return Ok(may);
        }
        let may = reviewer.may(user, &asked.verb, asked.path).await.map_err(Denial::unanswered)?;
        let ttl = match may {
            true => self.settings.authorization_webhook_cache_authorized_ttl,
            false => self.settings.authorization_webhook_cache_unauthorized_ttl,
        };
        self.rights.put(question, may, ttl);
        Ok(may)
    }
}

/// The relevant parts of a request.
#[derive(Debug)]
struct Attributes<'a> {
    path: &'a str,
    /// Lower case, as in roles.
    verb: String,
    token: Option<&'a str>,
    certificates: Option<&'a PeerCertificates>,
}

/// Lets a request pass, or refuses it.
pub(super) async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let asked = Attributes {
        path: request.uri().path(),
        verb: request.method().as_str().to_ascii_lowercase(),
        token: bearer(request.headers()),
        certificates: request.extensions().get(),
    };
    match access.admit(&asked).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.answer(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn authenticated(user: User) -> User {
    let mut user = user;
    if !user.groups.iter().any(|group| group == AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Why a request is refused.
#[derive(Debug)]
enum Denial {
    /// The apiserver cannot be asked yet, or did not answer.
    Unavailable(&'static str),
    /// The credentials are not accepted, and why.
    Unknown(String),
    Forbidden {
        user: String,
        verb: String,
        path: String,
    },
}

impl Denial {
    /// Logs the exact error, which names addresses, instead of sending it.
    fn unanswered(error: anyhow::Error) -> Self {
        tracing::warn!(error = format!("{error:#}"), "cannot ask the apiserver who may read this");
        Self::Unavailable("the apiserver does not say who may read this; the log says why")
    }

    fn answer(self) -> Response {
        let (code, reason, message) = match self {
            Self::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why.to_owned()),
            Self::Unknown(why) => (StatusCode::UNAUTHORIZED, "Unauthorized", format!("Unauthorized: {why}")),
            Self::Forbidden { user, verb, path } => {
                let why = format!(
                    "forbidden: User {user:?} cannot {verb} path {path:?}: bind a ClusterRole with nonResourceURLs \
                     [{path:?}] and verbs [{verb:?}] to it"
                );
                (StatusCode::FORBIDDEN, "Forbidden", why)
            }
        };
        let mut answer = refusal(code, reason, &message);
        if code == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// The digest of a question, so that no token is kept.
type Key = [u8; 32];

/// The key of a question of several words.
fn key<'a>(words: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for word in words {
        // With its length, so that no two questions have the same digest input.
        digest.update(word.len().to_be_bytes());
        digest.update(word);
    }
    digest.finalize().into()
}

/// A bounded cache of answers.
#[derive(Debug)]
struct BoundedCache<V> {
    answers: Mutex<HashMap<Key, (V, Instant)>>,
}

impl<V> Default for BoundedCache<V> {
    fn default() -> Self {
        Self { answers: Mutex::default() }
    }
}

impl<V: Clone> BoundedCache<V> {
    fn get(&self, key: &Key) -> Option<V> {
        let answers = self.answers.lock();
        let (answer, until) = answers.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn put(&self, key: Key, answer: V, ttl: Duration) {
        let mut answers = self.answers.lock();
        let now = Instant::now();
        if answers.len() >= MOST {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, (answer, now + ttl));
    }
}

/// The authority; without one, client certificates are ignored.
#[derive(Debug, Default)]
pub struct Authority {
    state: Mutex<AuthorityState>,
}

#[derive(Debug, Default)]
struct AuthorityState {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The bundle that `verifier` was built from.
    pem: Vec<u8>,
    file: Option<(PathBuf, Files)>,
}

impl Authority {
    /// The authority in this file, reloaded when the file changes.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let files = Files::new(&[path]);
        let authority = Self::default();
        let pem = read(path)?;
        authority.set(&pem).with_context(|| format!("--client-ca-file={} cannot be used", path.display()))?;
        authority.state.lock().file = Some((path.to_owned(), files));
        Ok(authority)
    }

    /// Replaces the authority by this bundle.
    ///
    /// # Errors
    /// The bundle holds no certificate; the previous one stays.
    pub fn set(&self, pem: &[u8]) -> anyhow::Result<()> {
        if self.state.lock().pem == pem {
            return Ok(());
        }
        let verifier = verifier(pem)?;
        let mut state = self.state.lock();
        (state.verifier, state.pem) = (Some(verifier), pem.to_owned());
        Ok(())
    }

    /// The user of this certificate, or why it is not accepted; `None` without an authority.
    fn who(&self, shown: &[CertificateDer<'_>]) -> Option<Result<User, String>> {
        self.look_again();
        let verifier = self.state.lock().verifier.clone()?;
        let (first, issuers) = shown.split_first()?;
        if let Err(error) = verifier.verify_client_cert(first, issuers, UnixTime::now()) {
            return Some(Err(format!("the client certificate is not accepted: {error}")));
        }
        Some(user(first))
    }

    fn look_again(&self) {
        let mut state = self.state.lock();
        let Some((path, files)) = &mut state.file else { return };
        if !files.changed() {
            return;
        }
        let path = path.clone();
        drop(state);
        if let Err(error) = read(&path).and_then(|pem| self.set(&pem)) {
            tracing::warn!(error = format!("{error:#}"), "the CA of client certificates stays as it was");
            self.state.lock().file.iter_mut().for_each(|(_, files)| files.read_again());
        }
    }
}

fn verifier(pem: &[u8]) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| anyhow!("the CA is not valid PEM: {error}"))?;
        roots.add(certificate).context("the CA cannot be read")?;
    }
    if roots.is_empty() {
        bail!("there is no certificate in PEM");
    }
    let provider = Arc::new(ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

/// Reads certificates as Kubernetes does: the common name is the user, the organisations are the groups.
fn user(certificate: &CertificateDer<'_>) -> Result<User, String> {
    let unreadable = "the client certificate has no common name that can be read";
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| unreadable.to_owned())?;
    let subject = certificate.subject();
    let name =
        subject.iter_common_name().next().and_then(|name| name.as_str().ok()).filter(|name| !name.is_empty());
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    match name {
        Some(name) => Ok(User { name: name.to_owned(), groups: groups.collect(), ..User::default() }),
        None => Err(unreadable.to_owned()),
    }
}

/// 1 ms to 16 s, doubling.
const DURATIONS: Buckets = Buckets(&[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
]);

/// Authentication and authorization, under upstream's names and labels. Requests to open paths are not counted.
#[derive(Clone, Debug)]
struct AccessMetrics {
    users: Family<MetricLabels<1>, Unsuffixed>,
    attempts: Family<MetricLabels<1>, Unsuffixed>,
    authentication: Histograms<MetricLabels<1>>,
    decisions: Family<MetricLabels<1>, Counter>,
    authorization: Histograms<MetricLabels<1>>,
}

/// Counters without the `_total` in upstream's names, which OpenMetrics requires of a counter.
#[derive(Clone, Debug, Default)]
struct Unsuffixed(Counter);

impl TypedMetric for Unsuffixed {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Unsuffixed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

impl AccessMetrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            users: registry.metric(
                "authenticated_user_requests",
                "Counter of authenticated requests broken out by username",
            ),
            attempts: registry.metric("authentication_attempts", "Counter of authentication attempts"),
            authentication: registry.histograms(
                "authentication_duration_seconds",
                "Authentication duration in seconds broken out by result",
                DURATIONS,
            ),
            decisions: registry.metric(
                "authorization_attempts",
                "Counter of authorization attempts broken down by result: allowed, denied or error",
            ),
            authorization: registry.histograms(
                "authorization_duration_seconds",
                "Authorization duration in seconds broken out by result",
                DURATIONS,
            ),
        }
    }

    /// Counts an authentication.
    fn authenticated(&self, who: &Result<User, Denial>, since: Instant) {
        let result = match who {
            Ok(user) => {
                self.users.get_or_create(&[("username", class_of(&user.name))]).0.inc();
                "success"
            }
            Err(Denial::Unknown(_)) => "failure",
            Err(_) => "error",
        };
        let labels = [("result", result)];
        self.attempts.get_or_create(&labels).0.inc();
        self.authentication.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
    }

    /// Counts an authorization.
    fn authorized(&self, may: &Result<bool, Denial>, since: Instant) {
        let result = match may {
            Ok(true) => "allowed",
            Ok(false) => "denied",
            Err(_) => "error",
        };
        let labels = [("result", result)];
        self.decisions.get_or_create(&labels).inc();
        self.authorization.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
    }
}

/// Classes of users, as upstream: names are unbounded, labels must not be.
fn class_of(user: &str) -> &'static str {
    const KNOWN: [&str; 5] =
        ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"];
    let other = if user.contains('@') { "email_id" } else { "other" };
    KNOWN.into_iter().find(|known| *known == user).unwrap_or(other)
}

#[cfg(test)]
pub(super) mod tests;
