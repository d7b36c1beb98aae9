//! Keeps one cache in sync with the apiserver: a complete list, then watches from its version on, then again.
//!
//! In: a client, and the keys to keep. Out: calls of the cache, and whether the watch is lost. Every list is a
//! consistent read, so that the cache never goes back in time behind a lagging apiserver, and an object missing from a
//! list is read once more by name before it is reported as deleted.
//!
//! ```text
//!        ┌─ streaming list ─┐ whole
//! list ──┤                  ├───────► watch ──► versions gone ──► list
//!        └─ refused: pages ─┘           ▲  │ ended, failed
//!                                       └──┘
//! ```
//!
//! Each list tries streaming first, even if the last attempt was refused: apiservers are upgraded and downgraded.

use std::{convert::Infallible, pin::Pin, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::{GetParams, ListParams, WatchParams},
    core::{Request, request::Error as BadRequest},
};
use tokio::time::{Instant, error::Elapsed, sleep, timeout};

use super::{
    Cache, Slim, WantedKeys,
    read::{self, Event, Failure, ListPage, Named},
};
use crate::{
    client::{is_absent, is_too_large, may_pass},
    queue::{Backoff, jittered},
};
use ccm_base::text::with_sources;

/// A streaming list silent for this long is taken as unsupported.
const SILENT_LIST: Duration = Duration::from_secs(20);

/// How long an apiserver may take to open a watch.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// The apiserver ends a watch after this many seconds.
const WATCH_SECONDS: u32 = 290;

/// A watch that lasted this long was ended as agreed.
const WHOLE_WATCH: Duration = Duration::from_secs(WATCH_SECONDS as u64 - 5);

/// A watch still silent after this long is dead.
const SILENT_WATCH: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// A watch that ends sooner without any event did not work.
const SHORT_WATCH: Duration = Duration::from_secs(5);

/// The backoff resets after a watch that lasted this long.
const LONG_WATCH: Duration = Duration::from_secs(60);

const PAGE: u32 = 500;

/// How many objects missing from a list are read concurrently.
const READ_AT_ONCE: usize = 32;

/// How often the read of one that fails is repeated.
const READ_AGAIN: u32 = 3;

/// Short, since a host has a handful of caches: an apiserver upgrade should not wait for a backoff.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(800), max: Duration::from_secs(10) };

type Events<T> = Pin<Box<dyn Stream<Item = Result<Event<<T as Slim>::Wire>, Failure>> + Send>>;

/// Follows the apiserver for one cache, for as long as the wanted keys stay the same.
pub(super) struct Follower<'a, T: Slim> {
    cache: &'a Cache<T>,
    client: &'a Client,
    api: Api<T::Kind>,
    wanted: &'a WantedKeys,
    pauses: u32,
}

impl<'a, T: Slim> Follower<'a, T> {
    pub(super) fn new(cache: &'a Cache<T>, client: &'a Client, wanted: &'a WantedKeys) -> Self {
        Self { cache, client, api: Api::all(client.clone()), wanted, pauses: 0 }
    }

    /// Lists and watches until it is dropped.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let failure = match self.list().await {
                Ok((version, events)) => self.watch(version, events).await,
                Err(failure) => failure,
            };
            self.pause_after(&failure).await;
        }
    }

    /// A complete list, and the watch that continues it if the list was streamed.
    async fn list(&self) -> Result<(String, Option<Events<T>>), Failure> {
        let failure = match self.list_by_stream().await {
            Ok((version, events)) => return Ok((version, Some(events))),
            // Paging would get the same answer.
            Err(failure) if failure.is_no_answer() => return Err(failure),
            Err(failure) => failure,
        };
        tracing::info!(kind = T::KIND, error = %with_sources(&failure), "no streaming list, listing by pages");
        Ok((self.list_by_pages().await?, None))
    }

    async fn list_by_stream(&self) -> Result<(String, Events<T>), Failure> {
        let params = WatchParams { send_initial_events: true, ..watch_params::<T>() };
        // No version: at least as new as the moment of the request. 0 would be whatever this apiserver has.
        let mut events = self.open(&params, "", SILENT_LIST).await?;
        self.cache.begin_list();
        loop {
            let next = timeout(SILENT_LIST, events.next()).await;
            match next.map_err(|_: Elapsed| Failure::Silent(SILENT_LIST))? {
                Some(Ok(Event::Put(object))) => _ = self.cache.put(object, self.wanted),
                Some(Ok(Event::Deleted(object))) => _ = self.cache.remove(object, self.wanted),
                Some(Ok(Event::Bookmark { ends_list: false, .. })) => {}
                Some(Ok(Event::Bookmark { version, ends_list: true })) => {
                    let version = some(version)?;
                    self.end_list().await?;
                    return Ok((version, events));
                }
                Some(Ok(Event::Refused(status))) => return Err(Failure::Refused(status)),
                Some(Err(error)) => return Err(Failure::BrokenOff(Some(Box::new(error)))),
                None => return Err(Failure::BrokenOff(None)),
            }
        }
    }

    async fn list_by_pages(&self) -> Result<String, Failure> {
        let mut params = list_params::<T>(PAGE);
        self.cache.begin_list();
        loop {
            let page = match self.page(&params).await {
                Err(Failure::Client(error)) if is_too_large(&error) && params.limit > Some(1) => {
                    params.limit = params.limit.map(|most| (most / 8).max(1));
                    continue;
                }
                page => page?,
            };
            page.items.into_iter().for_each(|object| _ = self.cache.put(object, self.wanted));
            params.continue_token = page.next;
            if params.continue_token.is_none() {
                let version = page.version.ok_or(Failure::NoVersion)?;
                self.end_list().await?;
                return Ok(version);
            }
        }
    }

    async fn page(&self, params: &ListParams) -> Result<ListPage<T::Wire>, Failure> {
        let request = Request::new(self.api.resource_url()).list(params).map_err(unbuilt)?;
        let text = self.client.request_text(request).await?;
        Ok(read::page(&text).map_err(::kube::Error::SerdeError)?)
    }

    /// Objects missing from the list are gone, unless they can still be read.
    async fn end_list(&self) -> Result<(), Failure> {
        let reads = stream::iter(self.cache.missing()).map(|object| async move {
            let (api, name) = T::place(&object.key(), self.client);
            let mut failures = 0;
            loop {
                let request = Request::new(api.resource_url()).get_metadata(&name, &GetParams::default());
                match self.client.request::<Named>(request.map_err(unbuilt)?).await {
                    Ok(live) if live.metadata.uid == object.uid() => {
                        return Err(Failure::Stale(format!("{} {}", T::KIND, object.key())));
                    }
                    Ok(_) => return Ok(()),
                    Err(::kube::Error::Api(status)) if is_absent(&status) => return Ok(()),
                    // One read of thousands that fails must not cost the whole list.
                    Err(error) if failures < READ_AGAIN && may_pass(&error) => {
                        sleep(jittered(BACKOFF.delay(failures), fastrand::f64())).await;
                        failures += 1;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        });
        reads.buffer_unordered(READ_AT_ONCE).try_collect::<()>().await?;
        self.cache.end_list(self.wanted);
        Ok(())
    }

    /// Watches from a version on, again and again, until that version has expired. Returns why a new list is needed.
    async fn watch(&mut self, version: String, events: Option<Events<T>>) -> Failure {
        let (mut version, mut events, mut broke_off) = (version, events, false);
        loop {
            let (from, began) = (version.clone(), Instant::now());
            let opened = match events.take() {
                Some(events) => {
                    self.cache.found();
                    Ok(events)
                }
                None if broke_off => self.reopen(&version).await,
                None => self.open(&watch_params::<T>(), &version, OPENED_WITHIN).await,
            };
            let ended = match opened {
                Ok(events) => self.drain(events, &mut version).await,
                Err(failure) => Err(failure),
            };
            broke_off = ended.is_err() || began.elapsed() < WHOLE_WATCH;
            if began.elapsed() >= LONG_WATCH {
                self.pauses = 0;
            }
            match ended {
                Err(failure) if failure.needs_list() => return failure,
                Err(failure) => self.pause_after(&failure).await,
                Ok(()) if version == from && began.elapsed() < SHORT_WATCH => {
                    self.pause_after(&Failure::Short).await;
                }
                Ok(()) => {}
            }
        }
    }

    /// Opens a watch after one that broke off, perhaps since the apiserver was restarted. One whose etcd was restored from
    /// a backup takes a version of the future for a watch, and says nothing until it has come that far.
    async fn reopen(&self, seen: &str) -> Result<Events<T>, Failure> {
        let now = self.page(&list_params::<T>(1)).await?.version.unwrap_or_default();
        let number = |version: &str| version.parse::<u64>().ok();
        if number(&now).zip(number(seen)).is_some_and(|(now, seen)| now < seen) {
            return Err(Failure::Restored { now, seen: seen.to_owned() });
        }
        self.open(&watch_params::<T>(), seen, OPENED_WITHIN).await
    }

    /// Hands on the events of one watch until it ends. One that ends at once, or brings an error alone, was none.
    async fn drain(&self, mut events: Events<T>, version: &mut String) -> Result<(), Failure> {
        let (mut is_found, mut silence) = (false, SHORT_WATCH);
        loop {
            match timeout(silence, events.next()).await {
                Ok(Some(event)) => self.take(event?, version)?,
                Ok(None) => return Ok(()),
                Err(_) if is_found => return Ok(()),
                Err(_) => {}
            }
            if !is_found {
                self.cache.found();
                (is_found, silence) = (true, SILENT_WATCH);
            }
        }
    }

    fn take(&self, event: Event<T::Wire>, version: &mut String) -> Result<(), Failure> {
        match event {
            Event::Put(object) => *version = some(self.cache.put(object, self.wanted))?,
            Event::Deleted(object) => *version = some(self.cache.remove(object, self.wanted))?,
            Event::Bookmark { version: now, .. } => *version = some(now)?,
            Event::Refused(status) => return Err(Failure::Refused(status)),
        }
        Ok(())
    }

    async fn open(
        &self,
        params: &WatchParams,
        version: &str,
        within: Duration,
    ) -> Result<Events<T>, Failure> {
        let opened =
            timeout(within, read::watch(self.client, self.api.resource_url(), params, version)).await;
        Ok(opened.map_err(|_: Elapsed| Failure::Silent(within))??.boxed())
    }

    async fn pause_after(&mut self, failure: &Failure) {
        let why = with_sources(failure);
        tracing::warn!(kind = T::KIND, error = why, "watch failed, trying again");
        self.cache.lost(why);
        sleep(jittered(BACKOFF.delay(self.pauses), fastrand::f64())).await;
        self.pauses += 1;
    }
}

fn list_params<T: Slim>(limit: u32) -> ListParams {
    ListParams { field_selector: T::FIELDS.map(str::to_owned), ..ListParams::default().limit(limit) }
}

fn watch_params<T: Slim>() -> WatchParams {
    let fields = T::FIELDS.map(str::to_owned);
    WatchParams { field_selector: fields, ..WatchParams::default().timeout(WATCH_SECONDS) }
}

fn some(version: String) -> Result<String, Failure> {
    if version.is_empty() { Err(Failure::NoVersion) } else { Ok(version) }
}

fn unbuilt(error: BadRequest) -> Failure {
    Failure::Client(::kube::Error::BuildRequest(error))
}
