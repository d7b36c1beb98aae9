//! GET and LIST.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{Answer, Endpoint, Shape, respond};
use crate::{
    asked::{Asked, Verb},
    faults::View,
    kind::Kind,
    object::{Key, Object},
    refusal::{Cause, Refusal},
    selector::Selector,
    server::By,
    store::{Collection, Event, Store},
};

/// How long a read waits for a version that does not exist yet.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which state a LIST returns.
enum State {
    Newest,
    /// An older one that is not older than this.
    Since(u64),
    Exactly(u64),
}

/// Where a LIST continues.
struct Continued {
    version: u64,
    after: Key,
}

impl Store {
    /// The version that a view has reached for one kind.
    pub(super) fn seen(&self, of: &Collection, view: View) -> u64 {
        let version = match view {
            View::Current => self.version,
            View::Behind(writes) => self.version.saturating_sub(writes),
            View::StoppedAt(version) => version.min(self.version),
            View::Late(time) => of.hidden_by(time).map_or(self.version, |event| event.version - 1),
        };
        // Nothing older is known.
        version.max(of.floor)
    }
}

impl Collection {
    /// The first event that is younger than `time`.
    fn hidden_by(&self, time: Duration) -> Option<&Arc<Event>> {
        let seen = self.events.partition_point(|event| event.at + time <= Instant::now());
        self.events.get(seen)
    }

    /// When a view will show more although nothing is written.
    pub(super) fn shows_more_at(&self, view: View) -> Option<Instant> {
        match view {
            View::Late(time) => self.hidden_by(time).map(|event| event.at + time),
            _ => None,
        }
    }
}

impl Endpoint {
    pub(super) async fn read(&self, asked: &Asked) -> Result<Answer, Refusal> {
        let (of, shape) = self.resource(asked)?;
        if asked.verb == Some(Verb::List) {
            self.list(asked, of, shape).await
        } else {
            self.get(asked, of, shape).await
        }
    }

    async fn get(&self, asked: &Asked, of: usize, shape: Shape) -> Result<Answer, Refusal> {
        let version = number(asked, "resourceVersion")?;
        if let Some(wanted) = version {
            self.seen_by(of, wanted).await?;
        }
        let key = Key::new(&asked.namespace, &asked.name);
        let view = self.bearing().view;
        let object = self.looked(asked, |store| {
            let collection = &store.collections[of];
            let seen = if version.is_some() { store.seen(collection, view) } else { store.version };
            let newest = collection.objects.get(&key);
            // The next change after the visible version holds the object as it was then.
            let hidden = collection.since(seen).find(|event| *event.object.key() == key);
            let found = hidden.map_or(newest, |event| event.before.as_ref());
            found.cloned().ok_or_else(|| Refusal::not_found(&collection.kind, key.name()))
        })?;
        Ok(respond(200, shape.render(&object)))
    }

    async fn list(&self, asked: &Asked, of: usize, shape: Shape) -> Result<Answer, Refusal> {
        check_list_options(asked)?;
        let limit = limit(asked)?;
        let version = number(asked, "resourceVersion")?;
        let from = asked.parameter("continue").map(|token| Continued::parse(&token)).transpose()?;
        let state = match (&from, version, asked.parameter("resourceVersionMatch").as_deref()) {
            (Some(_), Some(1..), _) => {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Refusal::bad_request(message));
            }
            (Some(from), ..) => State::Exactly(from.version),
            (None, None, _) => State::Newest,
            (None, Some(version), Some("Exact")) => State::Exactly(version),
            // A page of any state at a version is a page of exactly that version.
            (None, Some(version @ 1..), None) if limit.is_some() => State::Exactly(version),
            (None, Some(version), _) => State::Since(version),
        };
        // Any state will do: the watch cache returns it whole.
        let limit = limit.filter(|_| !matches!(state, State::Since(0)));
        if let State::Since(wanted) | State::Exactly(wanted) = state {
            self.seen_by(of, wanted).await?;
        }
        let view = self.bearing().view;
        self.looked(asked, |store| {
            let collection = &store.collections[of];
            let version = match state {
                State::Newest => store.version,
                State::Since(_) => store.seen(collection, view),
                State::Exactly(version) if version < collection.floor => {
                    return Err(expired(from.is_some()));
                }
                State::Exactly(version) => version,
            };
            let (items, meta) = page(collection, &selection(collection, asked)?, asked, version, limit, from);
            Ok(respond(200, list_body(&collection.kind, shape, &items, &meta)))
        })
    }

    /// The current objects of a selection.
    pub(super) fn select(
        &self,
        store: &Store,
        of: usize,
        asked: &Asked,
    ) -> Result<Vec<Arc<Object>>, Refusal> {
        let collection = &store.collections[of];
        let selector = selection(collection, asked)?;
        Ok(page(collection, &selector, asked, store.version, None, None).0)
    }

    fn looked<R>(&self, asked: &Asked, look: impl FnOnce(&Store) -> R) -> R {
        let verb = asked.verb.unwrap_or(Verb::Get);
        self.server.work(&By { client: &self.name, verb, subresource: "" }, |store| look(store))
    }

    /// Waits for a limited time until the visible state has reached a version.
    pub(super) async fn seen_by(&self, of: usize, wanted: u64) -> Result<(), Refusal> {
        let due = Instant::now() + PATIENCE;
        let mut switched = self.server.0.switched.subscribe();
        loop {
            let view = self.bearing().view;
            let (seen, more, mut changed) = {
                let store = self.server.0.store.lock();
                let collection = &store.collections[of];
                (store.seen(collection, view), collection.shows_more_at(view), collection.changed.subscribe())
            };
            if seen >= wanted {
                return Ok(());
            }
            let news = async {
                tokio::select! { _ = changed.changed() => {}, _ = switched.changed() => {} }
            };
            if timeout_at(more.unwrap_or(due).min(due), news).await.is_err() && Instant::now() >= due {
                return Err(Refusal::from_the_future(wanted, seen));
            }
        }
    }
}

pub(super) fn selection(collection: &Collection, asked: &Asked) -> Result<Selector, Refusal> {
    let (labels, fields) = (asked.parameter("labelSelector"), asked.parameter("fieldSelector"));
    Selector::parse(&collection.kind, labels.as_deref(), fields.as_deref())
}

/// One page, and the list's metadata.
fn page(
    collection: &Collection,
    selector: &Selector,
    asked: &Asked,
    version: u64,
    limit: Option<usize>,
    from: Option<Continued>,
) -> (Vec<Arc<Object>>, Value) {
    let wanted = |object: &&Arc<Object>| {
        let key = object.key();
        (asked.namespace.is_empty() || key.namespace() == asked.namespace) && selector.selects(object)
    };
    let limit = limit.unwrap_or(usize::MAX);
    let after = from.as_ref().map(|from| &from.after);
    let mut found = collection.at(version, after).filter(wanted);
    let items: Vec<_> = found.by_ref().take(limit).cloned().collect();
    let left = found.count();
    let mut meta = json!({"resourceVersion": version.to_string()});
    if let Some(last) = items.last().filter(|_| left > 0) {
        meta["continue"] = json!(Continued { version, after: last.key().clone() }.token());
        if selector.is_everything() {
            meta["remainingItemCount"] = json!(left);
        }
    }
    (items, meta)
}

pub(super) fn list_body(kind: &Kind, shape: Shape, items: &[Arc<Object>], meta: &Value) -> Bytes {
    let (name, version) = shape.names(kind);
    let head = format!(r#"{{"kind":"{name}List","apiVersion":"{version}","metadata":{meta},"items":["#);
    let mut body = Vec::with_capacity(head.len() + items.iter().map(|item| item.body().len()).sum::<usize>());
    body.extend_from_slice(head.as_bytes());
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        match shape {
            Shape::Whole => item.push_item(&mut body),
            other => body.extend_from_slice(&other.render(item)),
        }
    }
    body.extend_from_slice(b"]}");
    Bytes::from(body)
}

impl Continued {
    fn token(&self) -> String {
        let (namespace, name) = (self.after.namespace(), self.after.name());
        URL_SAFE_NO_PAD.encode(
            json!({"v": "meta.k8s.io/v1", "rv": self.version, "start": [namespace, name]}).to_string(),
        )
    }

    fn parse(token: &str) -> Result<Self, Refusal> {
        let parse = || {
            let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
            let start = &value["start"];
            Some(Self {
                version: value["rv"].as_u64()?,
                after: Key::new(start[0].as_str()?, start[1].as_str()?),
            })
        };
        parse().ok_or_else(|| Refusal::bad_request("invalid continue token: continue key is not valid"))
    }
}

/// A numeric parameter; zero is a value, absence is none.
pub(super) fn number(asked: &Asked, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(text) = asked.parameter(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_no_number| {
        Refusal::bad_request(format!(
            "invalid resource version: {name}: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

fn limit(asked: &Asked) -> Result<Option<usize>, Refusal> {
    let Some(text) = asked.parameter("limit") else { return Ok(None) };
    let limit: i64 = text.parse().map_err(|_no_number| {
        Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
    })?;
    Ok(usize::try_from(limit).ok().filter(|limit| *limit > 0))
}

fn expired(continued: bool) -> Refusal {
    let message = if continued {
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter."
    } else {
        "The resourceVersion for the provided list is too old."
    };
    Refusal::new(410, "Expired", message)
}

fn check_list_options(asked: &Asked) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    if let Some(match_) = asked.parameter("resourceVersionMatch") {
        let version = asked.parameter("resourceVersion");
        let mut forbid = |why| causes.push(Cause::forbidden("resourceVersionMatch", why));
        if version.is_none() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if asked.parameter("continue").is_some() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if match_ == "Exact" && version.as_deref() == Some("0") {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !["Exact", "NotOlderThan"].contains(&match_.as_str()) {
            causes.push(Cause::unsupported("resourceVersionMatch", &match_, &["Exact", "NotOlderThan", ""]));
        }
    }
    if asked.parameter("sendInitialEvents").is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::options(causes)) }
}
