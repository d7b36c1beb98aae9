//! The guard around every request: limiter, deadline, bounded retries, metrics.
//!
//! The response body is read within the deadline, so that a stalled body cannot hang a caller; watches have no deadline
//! and are passed through.
//!
//! It notices, too, when the apiserver and this process no longer take each other for who they are: when nothing but
//! refusals have come for a minute. The files that a kubeconfig names are read once, so a process that waits would wait for
//! ever, and a restart mends it. An apiserver that starts refuses everybody for a moment: that is forgiven.

use std::{io, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use kube::client::Body;
use parking_lot::Mutex;
use rustls::{AlertDescription, Error as TlsError};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, Service, ServiceExt, service_fn};

use crate::metrics::ClientMetrics;
use ccm_base::{bucket::Bucket, metric::MetricLabels};

/// First wait when the server does not say how long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait between two attempts, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Larger answers are given up: labels have no limit, so a tenant's Services could make one page of a list larger than
/// the host's memory.
const LARGEST_ANSWER: usize = 32 << 20;

/// The limits that the guard enforces.
#[derive(Debug, Clone)]
pub(super) struct RequestRules {
    pub(super) limiter: Option<RequestLimiter>,
    pub(super) deadline: Duration,
    pub(super) retries: u32,
    pub(super) metrics: ClientMetrics,
    pub(super) read_only: bool,
    /// `None` for an account of a controller, whose token is renewed when it is rejected.
    pub(super) recognition: Option<Recognition>,
}

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Sends requests within the rules.
pub(super) fn guarded<S, B>(
    inner: S,
    rules: RequestRules,
) -> impl Service<Request<Body>, Response = Answer, Error = BoxError, Future: Send> + Clone
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    service_fn(move |request| send(inner.clone(), rules.clone(), request))
}

/// Who waits for the limiter waits here: a service that is not ready holds up every request behind.
async fn send<S, B>(inner: S, rules: RequestRules, request: Request<Body>) -> Result<Answer, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    if rules.read_only && request.method() != Method::GET {
        let method = request.method();
        return Err(format!("not sent: in shadow mode nothing is written, and this is a {method}").into());
    }
    let about = About::of(&request);
    if about.is_watch {
        rules.wait_for_token(&about).await;
        let answer = rules.attempt(inner, request, &about).await?;
        return Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()));
    }
    let started = Instant::now();
    let answered = timeout(rules.deadline, rules.until_taken(inner, request, &about)).await;
    rules.metrics.duration.get_or_create(&about.of_verb()).observe(started.elapsed().as_secs_f64());
    answered.unwrap_or_else(|_elapsed| {
        rules.count(&about, "<error>");
        Err(format!("no answer from the apiserver within {:?}", rules.deadline).into())
    })
}

/// The properties of a request that metrics and rules need.
struct About {
    method: String,
    host: String,
    is_watch: bool,
}

impl About {
    fn of(request: &Request<Body>) -> Self {
        let uri = request.uri();
        Self {
            method: request.method().to_string(),
            host: uri.authority().map_or_else(String::new, ToString::to_string),
            is_watch: super::is_watch(uri),
        }
    }

    fn of_verb(&self) -> MetricLabels<2, String> {
        [("verb", self.method.clone()), ("host", self.host.clone())]
    }
}

impl RequestRules {
    /// Repeats the request while the server rejects it with a retry, then reads the whole response.
    async fn until_taken<S, B>(
        &self,
        inner: S,
        request: Request<Body>,
        about: &About,
    ) -> Result<Answer, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut request = request;
        let mut retries = 0;
        loop {
            self.wait_for_token(about).await;
            let again = copy(&request);
            let answer = self.attempt(inner.clone(), request, about).await?;
            match (wait_before_retry(&answer, retries), again) {
                (Some(wait), Some(again)) if retries < self.retries => {
                    self.count_retry(about, answer.status());
                    request = again;
                    retries += 1;
                    sleep(wait).await;
                }
                _ => {
                    let (size, answer) = whole(answer).await?;
                    self.metrics.response_size.get_or_create(&about.of_verb()).observe(size as f64);
                    return Ok(answer);
                }
            }
        }
    }

    async fn attempt<S, B>(
        &self,
        inner: S,
        request: Request<Body>,
        about: &About,
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        if let Some(size) = request.body().size_hint().exact() {
            self.metrics.request_size.get_or_create(&about.of_verb()).observe(size as f64);
        }
        let answer = inner.oneshot(request).await.map_err(Into::into);
        match &answer {
            Ok(answer) => self.count(about, answer.status().as_str()),
            Err(_) => self.count(about, "<error>"),
        }
        self.recognition.iter().for_each(|recognition| recognition.saw(&answer));
        answer
    }

    async fn wait_for_token(&self, about: &About) {
        if let Some(limiter) = &self.limiter {
            let started = Instant::now();
            limiter.acquire().await;
            self.metrics.limiter.get_or_create(&about.of_verb()).observe(started.elapsed().as_secs_f64());
        }
    }

    fn count(&self, about: &About, code: &str) {
        let labels =
            [("code", code.to_owned()), ("method", about.method.clone()), ("host", about.host.clone())];
        self.metrics.requests.get_or_create(&labels).inc();
    }

    fn count_retry(&self, about: &About, status: StatusCode) {
        let code = status.as_str().to_owned();
        let labels = [("code", code), ("verb", about.method.clone()), ("host", about.host.clone())];
        self.metrics.repeated.get_or_create(&labels).inc();
    }
}

/// How long to wait before sending the same request again; `None` if it must not be repeated.
///
/// A 429 means that the request was not processed. A 503 may come from anywhere, so it is repeated only with a
/// Retry-After.
fn wait_before_retry<B>(answer: &Response<B>, retries: u32) -> Option<Duration> {
    let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let asked = after.map(Duration::from_secs);
    let wait = match answer.status() {
        StatusCode::TOO_MANY_REQUESTS => {
            asked.unwrap_or_else(|| FIRST_WAIT.saturating_mul(1 << retries.min(10)))
        }
        StatusCode::SERVICE_UNAVAILABLE => asked?,
        _ => return None,
    };
    Some(wait.min(LONGEST_WAIT))
}

pub(crate) fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let body = request.body().try_clone()?;
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Whether an answer was given up because it was too large.
pub(crate) fn is_too_large(error: &kube::Error) -> bool {
    let mut next = Some(error as &dyn std::error::Error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// The response with its body in memory, and the body's size.
async fn whole<B>(answer: Response<B>) -> Result<(usize, Answer), BoxError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = answer.into_parts();
    let bytes = Limited::new(body, LARGEST_ANSWER).collect().await?.to_bytes();
    let size = bytes.len();
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    Ok((size, Response::from_parts(head, body)))
}

/// A limit for requests, like client-go's flow control. Cheap to clone; all clones draw from the same bucket.
#[derive(Debug, Clone)]
pub(super) struct RequestLimiter(Arc<Mutex<Bucket>>);

impl RequestLimiter {
    /// `None` without a limit.
    pub(super) fn new(qps: f32, burst: u32) -> Option<Self> {
        let full = || Bucket::full(f64::from(qps), f64::from(burst.max(1)), Instant::now());
        (qps > 0.0).then(|| Self(Arc::new(Mutex::new(full()))))
    }

    /// Waits for a token; callers are served in order.
    pub(super) async fn acquire(&self) {
        let wait = self.0.lock().reserve(Instant::now());
        if !wait.is_zero() {
            let turn = Turn(self);
            sleep(wait).await;
            std::mem::forget(turn);
        }
    }
}

/// Given back when the caller gives up before its turn: a request that was never sent must not delay others.
struct Turn<'a>(&'a RequestLimiter);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.0.lock().give_back();
    }
}

/// How long refusals are forgiven.
const FORGIVEN: Duration = Duration::from_secs(60);

/// Whether one side refuses the other. Cheap to clone; all clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Recognition(Arc<watch::Sender<Refusals>>);

#[derive(Debug, Default)]
struct Refusals {
    since: Option<Instant>,
    is_lost: bool,
}

impl Recognition {
    pub(super) fn saw<B>(&self, answer: &Result<Response<B>, BoxError>) {
        let is_refused = match answer {
            Ok(answer) => answer.status() == StatusCode::UNAUTHORIZED,
            Err(error) if is_about_identity(&**error) => true,
            Err(_) => return,
        };
        self.0.send_if_modified(|Refusals { since, is_lost }| {
            *since = is_refused.then(|| since.unwrap_or_else(Instant::now));
            // Another refusal, and not only silence since the first.
            *is_lost = since.is_some_and(|since| since.elapsed() >= FORGIVEN);
            *is_lost
        });
    }

    /// Returns once refusals are no longer forgiven.
    pub async fn lost(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|refusals| refusals.is_lost).await;
    }
}

/// Whether a connection failed because one side does not accept who the other is.
fn is_about_identity(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<TlsError>() {
        return refuses_identity(error);
    }
    // The source of an I/O error is that of the error within.
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match within {
        Some(within) => is_about_identity(within),
        None => error.source().is_some_and(is_about_identity),
    }
}

fn refuses_identity(error: &TlsError) -> bool {
    match error {
        TlsError::InvalidCertificate(_) => true,
        TlsError::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_before_its_turn_delays_nobody() {
        let limiter = RequestLimiter::new(1.0, 1).unwrap();
        limiter.acquire().await;
        let given_up = (0..10).map(|_| tokio::time::timeout(Duration::from_millis(100), limiter.acquire()));
        assert!(futures::future::join_all(given_up).await.iter().all(Result::is_err));
        let begun = Instant::now();
        limiter.acquire().await;
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert!(RequestLimiter::new(0.0, 5).is_none());
        assert!(RequestLimiter::new(-1.0, 5).is_none());
    }
}
