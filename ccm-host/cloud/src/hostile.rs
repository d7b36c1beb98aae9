//! A provider that answers anything, for tests: right answers, almost right ones, and bytes that are no message.
//!
//! In: a seed. Out: a dialer to it, over pipes in the runtime of the test. Answers are generated from the contract's
//! own descriptors, so that they reach as deep into the host as honest ones; only what an honest provider says first is
//! written by hand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_debug_implementations,
    reason = "only tests run it"
)]

pub(crate) mod believed;
mod flood;
pub mod fuzz;
mod grammar;
pub(crate) mod honest;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::{Body, Bytes};
use cloudprovider_proto::v1alpha1 as pb;
use futures::{StreamExt as _, stream};
use grammar::Grammar;
use honest::Honest;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message as _;

use super::Dialer;

pub struct Hostile {
    mood: Mood,
    honest: Honest,
    grammar: &'static Grammar,
    random: Mutex<fastrand::Rng>,
    answers: AtomicU64,
    /// The number of invented items that nobody asked about.
    unknown: AtomicU64,
    /// The times of credible answers that an instance is absent, by key.
    denials: Mutex<HashMap<String, HashSet<(i64, i32)>>>,
    /// The prefixes of annotations that it said it writes.
    writes: Mutex<HashSet<String>>,
    /// The types of conditions that it said it sets.
    sets: Mutex<HashSet<String>>,
    hook: OnceLock<Hook>,
}

/// Sees each call: the RPC, and the message.
type Hook = Box<dyn Fn(&str, &[u8]) + Send + Sync>;

/// The behaviour of a hostile provider.
#[derive(Clone, Copy)]
enum Mood {
    /// Answers anything to everything.
    Wild,
    /// Lies in its answers to these RPCs only.
    LiesIn(&'static [&'static str]),
    /// Honest, but adds many items that nobody asked about, different ones each time.
    Floods,
}

/// Reads a number from the environment.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// How an answer is produced.
#[derive(Clone, Copy)]
enum Manner {
    Honest,
    /// An honest answer plus many items that nobody asked about.
    Flooded,
    /// An honest answer with its unset fields invented, at every depth.
    Grafted,
    /// An invented message of the right type.
    Made,
    /// An honest answer with some bytes changed.
    Bitten,
    Raw,
    /// A status with any details.
    Refused,
    /// Not valid gRPC.
    Broken,
    /// No answer, however long the caller waits.
    Hung,
}

const MANNERS: [Manner; 16] = [
    Manner::Honest,
    Manner::Honest,
    Manner::Honest,
    Manner::Grafted,
    Manner::Grafted,
    Manner::Grafted,
    Manner::Grafted,
    Manner::Made,
    Manner::Made,
    Manner::Made,
    Manner::Bitten,
    Manner::Bitten,
    Manner::Raw,
    Manner::Refused,
    Manner::Refused,
    Manner::Broken,
];

/// One call in this many is never answered.
const HANGS: u32 = 200;

impl Hostile {
    pub fn new(seed: u64) -> Arc<Self> {
        Self::of(Mood::Wild, seed)
    }

    /// Honest except in its answers to these RPCs.
    pub fn only(seed: u64, rpcs: &'static [&'static str]) -> Arc<Self> {
        Self::of(Mood::LiesIn(rpcs), seed)
    }

    /// Honest, but reports more and more items that nobody asked about.
    pub fn flood() -> Arc<Self> {
        Self::of(Mood::Floods, 1)
    }

    fn of(mood: Mood, seed: u64) -> Arc<Self> {
        static GRAMMAR: OnceLock<Grammar> = OnceLock::new();
        Arc::new(Self {
            mood,
            honest: Honest::default(),
            grammar: GRAMMAR.get_or_init(Grammar::new),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            answers: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            denials: Mutex::default(),
            writes: Mutex::default(),
            sets: Mutex::default(),
            hook: OnceLock::new(),
        })
    }

    /// From now on, `hook` sees each call.
    pub fn on_call(&self, hook: impl Fn(&str, &[u8]) + Send + Sync + 'static) {
        let _there_already = self.hook.set(Box::new(hook)).is_err();
    }

    /// The number of answers given.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// The number of invented items that nobody asked about.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// A word that may mean something to the host.
    pub fn word(&self, random: &mut fastrand::Rng) -> String {
        self.grammar.word(random)
    }

    /// How many credible answers, at different times, said that the instance of this node is absent.
    pub fn denials(&self, node: &str) -> usize {
        self.denials.lock().get(node).map_or(0, HashSet::len)
    }

    /// Whether it said that it writes this annotation of Services.
    pub fn writes(&self, annotation: &str) -> bool {
        self.writes.lock().iter().any(|prefix| annotation.starts_with(prefix.as_str()))
    }

    /// Whether it said that it sets this condition of Services.
    pub fn sets(&self, condition: &str) -> bool {
        self.sets.lock().contains(condition)
    }

    fn note_writes(&self, answer: &[u8]) {
        let Ok(answer) = pb::GetCapabilitiesResponse::decode(answer) else { return };
        let wants = answer.wants.unwrap_or_default();
        let prefixes = wants.service_annotation_writes.into_iter().filter(|prefix| !prefix.is_empty());
        self.writes.lock().extend(prefixes);
        self.sets.lock().extend(wants.service_condition_writes);
    }

    fn note_denials(&self, answer: &[u8]) {
        let Ok(answer) = pb::BatchGetInstancesResponse::decode(answer) else { return };
        for one in answer.results {
            let is_absent = one.state() == pb::InstanceState::Absent && one.authoritative;
            if let (true, None, None, Some(at)) = (is_absent, one.error, one.instance, one.observed_at) {
                self.denials.lock().entry(one.key).or_default().insert((at.seconds, at.nanos));
            }
        }
    }

    /// Serves every dialled stream in this runtime.
    pub fn dialer(self: &Arc<Self>) -> Dialer {
        let hostile = Arc::clone(self);
        Dialer::new(move |_| {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let hostile = Arc::clone(&hostile);
            let service = hyper::service::service_fn(move |request| {
                let hostile = Arc::clone(&hostile);
                async move { Ok::<_, Infallible>(hostile.answer(request).await) }
            });
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(theirs), service);
            tokio::spawn(serving);
            Ok(ours)
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let rpc = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let asked = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let asked = asked.get(5..).unwrap_or_default();
        if let Some(hook) = self.hook.get() {
            hook(&rpc, asked);
        }
        let manner = self.manner(&rpc);
        if matches!(manner, Manner::Hung) {
            std::future::pending::<()>().await;
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        if rpc == "WatchInstances" {
            return self.stream();
        }
        let mut random = self.random.lock();
        let message = self.message(&rpc, asked, manner, &mut random);
        match &*rpc {
            "BatchGetInstances" => self.note_denials(&message),
            "GetCapabilities" => self.note_writes(&message),
            _ => {}
        }
        match manner {
            Manner::Refused => respond([], status(self.grammar, &mut random)),
            Manner::Broken => broken(&message, &mut random),
            _ => respond([framed(&message)], trailers(0)),
        }
    }

    /// Mostly honest for the handshake: a provider that never completes it would test nothing.
    fn manner(&self, rpc: &str) -> Manner {
        match self.mood {
            Mood::LiesIn(rpcs) if !rpcs.contains(&rpc) => return Manner::Honest,
            Mood::Floods => return Manner::Flooded,
            Mood::Wild | Mood::LiesIn(_) => {}
        }
        let mut random = self.random.lock();
        let introduces = matches!(rpc, "GetInfo" | "GetCapabilities" | "GetStatus" | "Check");
        match rpc {
            "Check" | "Watch" if random.u8(..) < 128 => Manner::Refused,
            _ if introduces && random.u8(..) < 160 => Manner::Honest,
            _ if random.u32(..HANGS) == 0 => Manner::Hung,
            _ => random.choice(MANNERS).unwrap_or(Manner::Honest),
        }
    }

    fn message(&self, rpc: &str, asked: &[u8], manner: Manner, random: &mut fastrand::Rng) -> Vec<u8> {
        let name = match rpc {
            "GetInfo" => ".ccm.discovery.v1.GetInfoResponse".to_owned(),
            rpc => format!(".ccm.cloudprovider.v1alpha1.{rpc}Response"),
        };
        let mut honest = self.honest.answer(rpc, asked);
        match manner {
            Manner::Flooded => flood::flooded(rpc, &honest, &self.unknown),
            Manner::Made => self.grammar.message(&name, random),
            Manner::Grafted => self.grammar.graft(&name, &honest, random),
            Manner::Bitten => {
                let kept = random.usize(honest.len() / 2..=honest.len());
                honest.truncate(kept);
                for byte in &mut honest {
                    if random.u8(..16) == 0 {
                        *byte = random.u8(..);
                    }
                }
                honest
            }
            Manner::Raw => (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
            Manner::Honest | Manner::Refused | Manner::Broken | Manner::Hung => honest,
        }
    }

    /// Frames of a watch, which then ends, breaks or goes silent.
    fn stream(&self) -> Response<Body> {
        const NAME: &str = ".ccm.cloudprovider.v1alpha1.WatchInstancesResponse";
        let mut random = self.random.lock();
        let mut frames = Vec::new();
        if !matches!(self.mood, Mood::Wild) || random.u8(..) < 200 {
            let started = pb::watch_instances_response::Frame::Started(pb::WatchStarted::default());
            let first = pb::WatchInstancesResponse { frame: Some(started) };
            frames.push(Frame::data(framed(&first.encode_to_vec())));
        }
        if matches!(self.mood, Mood::Floods) {
            frames.extend(flood::changes(&self.unknown).map(|change| Frame::data(framed(&change))));
        }
        let made = if matches!(self.mood, Mood::Wild) { random.usize(..20) } else { 0 };
        for _ in 0..made {
            let message = match random.u8(..4) {
                0 => (0..random.usize(..50)).map(|_| random.u8(..)).collect(),
                _ => self.grammar.message(NAME, &mut random),
            };
            frames.push(Frame::data(framed(&message)));
        }
        let end = match (self.mood, random.u8(..3)) {
            (Mood::LiesIn(_), _) => None,
            (Mood::Floods, _) | (Mood::Wild, 0) => Some(Frame::trailers(trailers(0))),
            (Mood::Wild, 1) => Some(Frame::trailers(status(self.grammar, &mut random))),
            (Mood::Wild, _) => None,
        };
        let goes_on = end.is_none();
        let said = stream::iter(frames.into_iter().chain(end).map(Ok::<_, Infallible>));
        let silence = stream::pending().take(usize::from(goes_on));
        response(Body::new(StreamBody::new(said.chain(silence))))
    }
}

/// A message as framed in the body.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

fn trailers(code: u32) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(code))])
}

/// A status of any code, with details that are well-formed or not.
fn status(grammar: &Grammar, random: &mut fastrand::Rng) -> HeaderMap {
    use tonic_types::{ErrorDetails, StatusExt as _};
    let code = tonic::Code::from_i32(random.i32(1..17));
    let domain = cloudprovider_proto::ERROR_DOMAIN;
    let mut details = ErrorDetails::with_error_info(grammar.word(random), domain, HashMap::new());
    if random.bool() {
        let delays = [Duration::MAX, Duration::from_nanos(1), Duration::from_secs(3)];
        details.set_retry_info(random.choice(delays));
    }
    let mut bytes = tonic::Status::with_error_details(code, "no", details).details().to_vec();
    if random.u8(..4) == 0 {
        for byte in &mut bytes {
            if random.u8(..8) == 0 {
                *byte = random.u8(..);
            }
        }
    }
    let mut trailers = HeaderMap::new();
    let status = tonic::Status::with_details(code, grammar.word(random), bytes.into());
    match status.add_header(&mut trailers) {
        Ok(()) => trailers,
        Err(_) => HeaderMap::new(),
    }
}

/// Frames and trailers that no gRPC library sends.
fn broken(message: &[u8], random: &mut fastrand::Rng) -> Response<Body> {
    let whole = framed(message);
    match random.u8(..6) {
        0 => respond([whole.slice(..random.usize(..=whole.len()))], trailers(0)),
        1 => respond([whole.clone(), whole], trailers(0)),
        2 => respond([Bytes::from_static(&[1, 0, 0, 0, 1, 7])], trailers(0)),
        3 => respond([Bytes::from_static(&[0, 255, 255, 255, 255])], trailers(0)),
        4 => respond([whole], HeaderMap::new()),
        _ => {
            let mut response = Response::new(Body::from("<html>bad gateway</html>"));
            *response.status_mut() = http::StatusCode::BAD_GATEWAY;
            response
        }
    }
}

fn respond<const N: usize>(data: [Bytes; N], trailers: HeaderMap) -> Response<Body> {
    let frames = data.into_iter().map(Frame::data).chain([Frame::trailers(trailers)]);
    response(Body::new(StreamBody::new(stream::iter(
        frames.collect::<Vec<_>>().into_iter().map(Ok::<_, Infallible>),
    ))))
}

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
