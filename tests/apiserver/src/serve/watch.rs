//! WATCH: each watch reads on in the history, which the store keeps once for all of them.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Bytes;
use serde_json::json;
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};

use super::{
    Answer, Endpoint, Lost, Shape,
    read::{number, selection},
    with_head,
};
use crate::{
    asked::Asked,
    faults::{Bearing, Cut, View},
    kind::Kind,
    object::Object,
    refusal::{Cause, Refusal},
    selector::Selector,
    store::{Event, line},
};

/// How long before its end a watch gets a last bookmark.
const LAST_WORD: Duration = Duration::from_secs(2);

struct Watch {
    endpoint: Endpoint,
    kind: Arc<Kind>,
    switched: Receiver<()>,
    changed: Receiver<()>,
    /// The faults when the watch began.
    bearing: Bearing,
    life: u64,
    of: usize,
    shape: Shape,
    namespace: String,
    selector: Selector,
    /// Everything up to this version has been delivered.
    told: u64,
    /// Delivered, but not sent yet.
    lines: VecDeque<Bytes>,
    /// The version that the initial events must reach before their end is announced.
    owes_end: Option<u64>,
    /// When the next bookmark is due, if any.
    bookmark: Option<Instant>,
    ends: Instant,
    /// After how many more lines the watch is cut.
    cut: Option<(usize, Cut)>,
    over: bool,
}

/// What to do next.
enum Step {
    /// Send a line.
    Tell,
    /// Wait until then, or until something changes.
    Wait(Option<Instant>),
    End,
    Break,
    Nothing,
}

impl Endpoint {
    pub(super) async fn watch(&self, asked: &Asked, cut: Option<(usize, Cut)>) -> Result<Answer, Refusal> {
        let (of, shape) = self.resource(asked)?;
        let bearing = self.bearing();
        check_watch_options(asked, bearing.streaming_lists)?;
        let from = number(asked, "resourceVersion").map_err(|refusal| {
            // The apiserver reports this as an internal error.
            Refusal::new(500, "", refusal.message.trim_start_matches("invalid resource version: "))
        })?;
        let Some(life) = self.server.life() else { return Err(Refusal::unavailable()) };
        let initial = asked.parameter("sendInitialEvents").map(|_| asked.is("sendInitialEvents"));
        let newest = self.server.version();
        let started = match (initial, from) {
            // A consistent state, or one that is at least this new.
            (Some(true) | None, None) => self.seen_by(of, newest).await,
            (Some(true), Some(wanted)) => self.seen_by(of, wanted).await,
            _ => Ok(()),
        };
        let (kind, selector, changed) = {
            let store = self.server.0.store.lock();
            let collection = &store.collections[of];
            (Arc::clone(&collection.kind), selection(collection, asked)?, collection.changed.subscribe())
        };
        let mut watch = Watch {
            endpoint: self.clone(),
            kind,
            switched: self.server.0.switched.subscribe(),
            changed,
            bearing,
            life,
            of,
            shape,
            namespace: asked.namespace.clone(),
            selector,
            told: from.unwrap_or_default(),
            lines: VecDeque::new(),
            owes_end: None,
            bookmark: None,
            ends: Instant::now() + self.duration(asked),
            cut,
            over: false,
        };
        match started {
            Err(refusal) => watch.fail(&refusal),
            Ok(()) => watch.begin(asked, initial, from, newest),
        }
        let frames = stream::unfold(watch, |mut watch| async move {
            let line = watch.next().await?;
            Some((line.map(Frame::data), watch))
        });
        Ok(with_head(200, BodyExt::boxed_unsync(StreamBody::new(frames))))
    }

    fn duration(&self, asked: &Asked) -> Duration {
        let wanted = asked.parameter("timeoutSeconds").and_then(|text| text.parse().ok());
        // Random, so that they do not all come back at once.
        Duration::from_secs(
            wanted
                .filter(|wanted| *wanted > 0)
                .unwrap_or_else(|| self.server.0.random.lock().u64(1800..3600)),
        )
    }
}

impl Watch {
    fn begin(&mut self, asked: &Asked, initial: Option<bool>, from: Option<u64>, newest: u64) {
        if asked.is("allowWatchBookmarks") {
            self.bookmark = Some(self.next_bookmark());
            if initial == Some(true) {
                self.owes_end = Some(from.unwrap_or(newest));
            }
        }
        let server = self.endpoint.server.clone();
        let store = server.0.store.lock();
        let collection = &store.collections[self.of];
        let seen = store.seen(collection, self.bearing.view);
        match (initial, from) {
            (Some(true), _) | (None, None | Some(0)) => {
                let all: Vec<_> =
                    collection.at(seen, None).filter(|object| self.wants(object)).cloned().collect();
                self.lines.extend(all.iter().map(|object| line("ADDED", &self.shape.render(object))));
                self.told = seen;
            }
            (Some(false), None | Some(0)) => self.told = seen,
            (_, Some(version)) if version < collection.floor => {
                let refusal = Refusal::expired(version, collection.floor);
                drop(store);
                self.fail(&refusal);
            }
            (_, Some(version)) => self.told = version,
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.lines.push_back(line("ERROR", refusal.status().to_string().as_bytes()));
        self.over = true;
    }

    fn wants(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || object.key().namespace() == self.namespace)
            && self.selector.selects(object)
    }

    fn next_bookmark(&self) -> Instant {
        let usual = Instant::now() + self.endpoint.server.0.options.bookmarks;
        let last = self.ends.checked_sub(LAST_WORD).unwrap_or(self.ends);
        if usual < last || Instant::now() >= last { usual } else { last }
    }

    async fn next(&mut self) -> Option<Result<Bytes, Lost>> {
        loop {
            let until = match self.step() {
                Step::Tell => {
                    if let Some((left, _)) = &mut self.cut {
                        *left = left.saturating_sub(1);
                    }
                    return self.lines.pop_front().map(Ok);
                }
                Step::End => return None,
                Step::Break => {
                    self.over = true;
                    self.lines.clear();
                    return Some(Err(Lost::Reset));
                }
                Step::Nothing => return std::future::pending().await,
                Step::Wait(until) => until,
            };
            let due = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.switched.changed() => {}
                _ = self.changed.changed() => {}
                () = due => {}
            }
        }
    }

    fn step(&mut self) -> Step {
        let bearing = self.endpoint.bearing();
        let at_line = self.cut.filter(|(left, _)| *left == 0).map(|(_, cut)| cut);
        let stopped = (self.endpoint.server.life() != Some(self.life)).then_some(Cut::Break);
        match bearing.cut_since(&self.bearing).or(at_line).or(stopped) {
            Some(Cut::Silence) => return Step::Nothing,
            Some(Cut::Break) if !self.over => return Step::Break,
            Some(_) => return Step::End,
            None => {}
        }
        if bearing.silent {
            return Step::Wait(None);
        }
        if !self.lines.is_empty() {
            return Step::Tell;
        }
        if self.over || Instant::now() >= self.ends {
            return Step::End;
        }
        let until = self.read_on(bearing.view);
        match (self.lines.is_empty(), self.over) {
            (false, _) => Step::Tell,
            (true, true) => Step::End,
            (true, false) => Step::Wait(Some(until)),
        }
    }

    /// Reads new events, and returns when to look again even if nothing changes.
    fn read_on(&mut self, view: View) -> Instant {
        let server = self.endpoint.server.clone();
        let store = server.0.store.lock();
        let collection = &store.collections[self.of];
        if self.told < collection.forgotten {
            // Too slow: the events that it has not read are gone. It ends, and learns so when it comes back.
            self.over = true;
            return self.ends;
        }
        let seen = store.seen(collection, view);
        for event in collection.since(self.told).take_while(|event| event.version <= seen) {
            self.tell(event);
        }
        self.told = self.told.max(seen);
        if self.owes_end.is_some_and(|owed| seen >= owed) {
            self.owes_end = None;
            self.lines.push_back(self.bookmark_line(seen, true));
        } else if self.owes_end.is_none() && self.bookmark.is_some_and(|due| due <= Instant::now()) {
            self.bookmark = Some(self.next_bookmark());
            self.lines.push_back(self.bookmark_line(self.told, false));
        }
        [Some(self.ends), self.bookmark, collection.shows_more_at(view)]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.ends)
    }

    fn tell(&mut self, event: &Arc<Event>) {
        let everything = self.namespace.is_empty() && self.selector.is_everything();
        if everything && self.shape == Shape::Whole {
            self.lines.push_back(event.line());
            return;
        }
        // For this watch, an object that enters the selection is new, and one that leaves it is deleted.
        let was = event.before.as_ref().is_some_and(|before| self.wants(before));
        let is = !event.gone && self.wants(&event.object);
        let type_ = match (was, is) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return,
        };
        let left = event.before.as_ref().filter(|_| was && !is && !event.gone);
        self.lines.push_back(match left {
            // As it was, since that is what the watch knows.
            Some(before) => {
                let mut last = before.value();
                last["metadata"]["resourceVersion"] = json!(event.version.to_string());
                let last = Object::new(&self.kind, before.key().clone(), event.version, last);
                line(type_, &self.shape.render(&last))
            }
            None => line(type_, &self.shape.render(&event.object)),
        });
    }

    fn bookmark_line(&self, version: u64, ends_list: bool) -> Bytes {
        let (name, api_version) = self.shape.names(&self.kind);
        let mut meta = json!({"resourceVersion": version.to_string()});
        if ends_list {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": name, "apiVersion": api_version, "metadata": meta});
        line("BOOKMARK", object.to_string().as_bytes())
    }
}

fn check_watch_options(asked: &Asked, streaming_lists: bool) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    let match_ = asked.parameter("resourceVersionMatch");
    let initial = asked.parameter("sendInitialEvents").is_some();
    if initial {
        if match_.as_deref() != Some("NotOlderThan") {
            let message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden("resourceVersionMatch", message));
        }
        if !streaming_lists {
            let message =
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            causes.push(Cause::forbidden("sendInitialEvents", message));
        }
    }
    if let Some(match_) = match_ {
        if !initial {
            let message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", message));
        }
        if match_ != "NotOlderThan" {
            causes.push(Cause::unsupported("resourceVersionMatch", &match_, &["NotOlderThan"]));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::options(causes)) }
}
