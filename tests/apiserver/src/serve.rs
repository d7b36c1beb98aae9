//! The path of one request: through the faults, to the store, and back.

mod events;
mod read;
mod watch;

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    asked::{Asked, Verb},
    faults::{Bearing, Fault, Faults},
    kind::Kind,
    object::{Key, Object},
    patch,
    refusal::Refusal,
    server::{ApiServer, By},
    write::{Deleted, Deletion, Target},
};

/// A request or an answer that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Nobody listens.
    #[error("connection refused")]
    Refused,
    /// The connection broke.
    #[error("connection reset by peer")]
    Reset,
}

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Lost>>;

/// One client's connection to the server.
#[derive(Debug, Clone)]
pub struct Endpoint {
    server: ApiServer,
    name: Arc<str>,
    faults: Faults,
}

impl Endpoint {
    pub(crate) fn new(server: ApiServer, name: &str, faults: Faults) -> Self {
        Self { server, name: name.into(), faults }
    }

    fn bearing(&self) -> Bearing {
        self.faults.with(&self.server.0.all)
    }
}

impl tower::Service<Request<Body>> for Endpoint {
    type Response = Answer;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Answer, tower::BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let endpoint = self.clone();
        async move {
            let asked = Asked::read(Arc::clone(&endpoint.name), request).await?;
            Ok(endpoint.serve(asked).await?)
        }
        .boxed()
    }
}

impl Endpoint {
    async fn serve(self, asked: Asked) -> Result<Answer, Lost> {
        let life = self.server.life().ok_or(Lost::Refused)?;
        let alive = |server: &ApiServer| (server.life() == Some(life)).then_some(()).ok_or(Lost::Reset);
        self.server.note(&asked);
        let mut told = self.faults.told(&asked);
        if told.iter().all(|fault| matches!(fault, Fault::Delay(_))) {
            told.extend(self.server.0.all.told(&asked));
        }
        let [mut before, mut after] = self.bearing().delays;
        let mut fate = None;
        for fault in told {
            match fault {
                Fault::Delay(time) => before += time,
                Fault::AnswerAfter(time) => after += time,
                other => fate = Some(other),
            }
        }
        pause(before).await;
        alive(&self.server)?;
        let answer = match fate {
            Some(Fault::Refuse(refusal)) => refuse(&refusal),
            Some(Fault::RefuseAfter(refusal)) => {
                drop(self.answer(&asked, None).await);
                refuse(&refusal)
            }
            Some(Fault::Lose) => return Err(Lost::Reset),
            Some(Fault::Hang) => return std::future::pending().await,
            Some(Fault::Answer { code, body }) => respond(code, body),
            Some(Fault::LoseAnswer) => {
                drop(self.answer(&asked, None).await);
                return Err(Lost::Reset);
            }
            Some(Fault::HangAfter) => {
                drop(self.answer(&asked, None).await);
                return std::future::pending().await;
            }
            Some(Fault::Stall) => stalled(self.answer(&asked, None).await).await,
            Some(Fault::EndWatch { after, cut }) => self.answer(&asked, Some((after, cut))).await,
            Some(Fault::Delay(_) | Fault::AnswerAfter(_)) | None => self.answer(&asked, None).await,
        };
        pause(after).await;
        alive(&self.server)?;
        Ok(answer)
    }

    async fn answer(&self, asked: &Asked, end: Option<(usize, crate::faults::Cut)>) -> Answer {
        let answered = match asked.verb {
            None => Ok(self.other(asked)),
            Some(_) if !self.serves_group(&asked.group) => Ok(not_found()),
            Some(Verb::Watch) => self.watch(asked, end).await,
            Some(Verb::Get | Verb::List) => self.read(asked).await,
            Some(_) => self.write(asked),
        };
        answered.unwrap_or_else(|refusal| refuse(&refusal))
    }

    /// Answers paths that are not those of a resource.
    fn other(&self, asked: &Asked) -> Answer {
        match asked.path.as_str() {
            "/readyz" | "/livez" | "/healthz" => respond(200, Bytes::from_static(b"ok")),
            "/version" => respond(
                200,
                Bytes::from_static(
                    br#"{"major":"1","minor":"37","gitVersion":"v1.37.2","platform":"linux/amd64"}"#,
                ),
            ),
            path if path.starts_with("/api") && !asked.resource.is_empty() => {
                let known = self.resource(asked).is_ok();
                refuse(&if known { Refusal::method_not_allowed() } else { Refusal::no_such_resource() })
            }
            _ => not_found(),
        }
    }

    fn serves_group(&self, group: &str) -> bool {
        let store = self.server.0.store.lock();
        group == "events.k8s.io" || store.collections.iter().any(|one| one.kind.group == group)
    }

    /// The collection of a request, and the shape in which it is served.
    fn resource(&self, asked: &Asked) -> Result<(usize, Shape), Refusal> {
        let (group, shape) = match (asked.group.as_str(), asked.resource.as_str()) {
            ("events.k8s.io", "events") => ("", Shape::NewEvent),
            (group, _) => (group, Shape::Whole),
        };
        let store = self.server.0.store.lock();
        let of = store
            .collections
            .iter()
            .position(|one| one.kind.group == group && one.kind.plural == asked.resource);
        let of = of.ok_or_else(Refusal::no_such_resource)?;
        let kind = &store.collections[of].kind;
        let is_served = match asked.subresource.as_str() {
            "" => true,
            "status" => kind.status,
            "approval" => kind.approval,
            _ => false,
        };
        if is_served {
            let partial = asked.accept.contains("as=PartialObjectMetadata");
            return Ok((of, if partial { Shape::Partial } else { shape }));
        }
        Err(Refusal::no_such_resource())
    }

    fn write(&self, asked: &Asked) -> Result<Answer, Refusal> {
        let Some(verb) = asked.verb else { return Err(Refusal::method_not_allowed()) };
        let (of, shape) = self.resource(asked)?;
        let of_status = !asked.subresource.is_empty();
        if of_status && !matches!(verb, Verb::Update | Verb::Patch) {
            return Err(Refusal::method_not_allowed());
        }
        let key = Key::new(&asked.namespace, &asked.name);
        let dry = asked.parameter("dryRun").is_some();
        let to = Target { of, key: &key, of_status, dry, now: self.server.now() };
        let subresource = match asked.subresource.as_str() {
            "" => "",
            "approval" => "approval",
            _ => "status",
        };
        let by = By { client: &self.name, verb, subresource };
        let as_new_event = asked.group == "events.k8s.io";
        self.server.work(&by, |store| {
            let kind = store.kind(of);
            let body = |asked: &Asked| -> Result<Value, Refusal> {
                let value = body(&kind, asked)?;
                Ok(if as_new_event { events::to_core(value) } else { value })
            };
            match verb {
                Verb::Create => {
                    let suffix = || suffix(&self.server);
                    Ok(object_answer(201, shape, &*store.create(to, body(asked)?, suffix)?))
                }
                Verb::Update => {
                    let (object, created) = store.update(to, body(asked)?)?;
                    Ok(object_answer(if created { 201 } else { 200 }, shape, &object))
                }
                Verb::Patch => {
                    let object = store.patch(to, |kind, object| {
                        let apply =
                            |object: &Value| patch::apply(kind, object, &asked.content_type, &asked.body);
                        if as_new_event {
                            apply(&events::from_core(object.clone())).map(events::to_core)
                        } else {
                            apply(object)
                        }
                    })?;
                    Ok(object_answer(200, shape, &object))
                }
                Verb::Delete => {
                    let deleted = store.delete(to, &deletion(asked)?)?;
                    Ok(deletion_answer(&kind, shape, &deleted))
                }
                _ => {
                    let items = self.select(store, of, asked)?;
                    for object in &items {
                        let to = Target { key: object.key(), ..to };
                        store.delete(to, &Deletion::default())?;
                    }
                    Ok(respond(
                        200,
                        read::list_body(
                            &kind,
                            shape,
                            &items,
                            &json!({"resourceVersion": store.version.to_string()}),
                        ),
                    ))
                }
            }
        })
    }
}

/// The form in which objects are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    Partial,
    /// The form of `events.k8s.io`.
    NewEvent,
}

impl Shape {
    /// Kind and API version of an object on the wire.
    fn names(self, kind: &Kind) -> (&'static str, String) {
        match self {
            Self::Whole => (kind.name, kind.api_version()),
            Self::Partial => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            Self::NewEvent => (kind.name, "events.k8s.io/v1".to_owned()),
        }
    }

    /// The object on the wire.
    fn render(self, object: &Object) -> Bytes {
        match self {
            Self::Whole => object.body().clone(),
            Self::Partial => {
                let meta = &object.value()["metadata"];
                let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
                Bytes::from(partial.to_string())
            }
            Self::NewEvent => Bytes::from(events::from_core(object.value()).to_string()),
        }
    }
}

fn body(kind: &Kind, asked: &Asked) -> Result<Value, Refusal> {
    serde_json::from_slice(&asked.body).map_err(|error| {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {error}",
            kind.name
        );
        Refusal::bad_request(message)
    })
}

fn deletion(asked: &Asked) -> Result<Deletion, Refusal> {
    if asked.body.is_empty() {
        return Ok(Deletion::default());
    }
    let options: Value = serde_json::from_slice(&asked.body).map_err(|error| {
        Refusal::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    let text = |name: &str| options["preconditions"][name].as_str().map(str::to_owned);
    Ok(Deletion {
        uid: text("uid"),
        version: text("resourceVersion"),
        foreground: options["propagationPolicy"] == "Foreground",
    })
}

fn deletion_answer(kind: &Kind, shape: Shape, deleted: &Deleted) -> Answer {
    match deleted {
        Deleted::Gone(object) if !kind.answers_deletion_with_object => {
            let details = if kind.group.is_empty() {
                json!({"name": object.key().name(), "kind": kind.plural, "uid": object.uid()})
            } else {
                json!({"name": object.key().name(), "group": kind.group, "kind": kind.plural, "uid": object.uid()})
            };
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            respond(200, Bytes::from(status.to_string()))
        }
        Deleted::Gone(object) | Deleted::Held(object) => object_answer(200, shape, object),
    }
}

fn object_answer(code: u16, shape: Shape, object: &Object) -> Answer {
    respond(code, shape.render(object))
}

/// The answer for a path that nobody serves.
fn not_found() -> Answer {
    respond(404, Bytes::from_static(b"404 page not found\n"))
}

fn refuse(refusal: &Refusal) -> Answer {
    let mut answer = respond(refusal.code, Bytes::from(refusal.status().to_string()));
    if let Some(after) = refusal.retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    answer
}

fn respond(code: u16, body: Bytes) -> Answer {
    let whole = Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync();
    with_head(code, whole)
}

fn with_head(code: u16, body: UnsyncBoxBody<Bytes, Lost>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Sends the head and half of the body, and then nothing.
async fn stalled(answer: Answer) -> Answer {
    let (head, body) = answer.into_parts();
    let whole = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let half = whole.slice(..whole.len() / 2);
    let frames = stream::iter([Ok(Frame::data(half))]).chain(stream::pending());
    Response::from_parts(head, BodyExt::boxed_unsync(StreamBody::new(frames)))
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// The suffix of a generated name.
pub(crate) fn suffix(server: &ApiServer) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = server.0.random.lock();
    (0..5).map(|_| char::from(LETTERS[random.usize(..LETTERS.len())])).collect()
}
