//! A watch: what a provider supplies to it, changes, and tokens if it can resume; and the frames that the contract makes of
//! these. The provider decides what changed; here is decided when a stream starts, sends a heartbeat, and ends.

use std::fmt;
use std::panic::AssertUnwindSafe;

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::broadcast;
use tokio::time::{self, Instant, Interval, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

use super::instances::Instances;
use crate::proto::watch_instances_response::Frame;
use crate::proto::{
    InstanceChanged, WatchBookmark, WatchInstancesRequest, WatchInstancesResponse, WatchStarted,
};
use crate::rpc::{Core, fail};
use crate::{CallContext, ProviderError, Result};

/// One event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// An instance appeared, changed in any way, or disappeared.
    Changed(InstanceChanged),
    /// All changes up to this token have been supplied. Sent at once, and repeated with every heartbeat until
    /// the next one.
    Bookmark(String),
}

/// An open watch.
pub struct InstanceWatch {
    /// The stream resumes at the caller's token: no change since then is missing. A token that is not honoured is refused
    /// with INVALID_TOKEN.
    pub resumed: bool,
    /// The changes, read no faster than the caller accepts them. When they end, the caller's stream ends with
    /// OK, or with the error if there was one; either way the host opens a new watch and reads all instances.
    pub events: BoxStream<'static, Result<WatchEvent>>,
}

impl InstanceWatch {
    /// A watch from now, without resumption.
    pub fn from_now(events: impl futures::Stream<Item = Result<WatchEvent>> + Send + 'static) -> Self {
        Self { resumed: false, events: events.boxed() }
    }
}

impl fmt::Debug for InstanceWatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("InstanceWatch").field("resumed", &self.resumed).finish_non_exhaustive()
    }
}

/// A source of changes for any number of watches: publish on one side, open watches on the other.
///
/// ```
/// # use cloudprovider_sdk::{ChangeFeed, proto::InstanceChanged};
/// let feed = ChangeFeed::new(1024);
/// let watch = feed.watch(); // the answer of `watch_instances`
/// feed.publish(InstanceChanged { provider_id: "example://1".into(), ..Default::default() });
/// # drop(watch);
/// ```
#[derive(Debug, Clone)]
pub struct ChangeFeed {
    sender: broadcast::Sender<InstanceChanged>,
}

impl ChangeFeed {
    /// A feed that keeps `capacity` changes (at least one) for a slow reader.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { sender: broadcast::Sender::new(capacity.max(1)) }
    }

    /// Reports a changed instance to every open watch. No effect without a watch: a new one starts with a
    /// read of all instances.
    pub fn publish(&self, change: InstanceChanged) {
        // An error only means that nobody watches.
        let _nobody_watches = self.sender.send(change);
    }

    /// A watch from now. One that falls behind by more than the capacity ends, so that no change is lost silently.
    #[must_use]
    pub fn watch(&self) -> InstanceWatch {
        let events = stream::unfold(self.sender.subscribe(), |mut receiver| async move {
            let change = receiver.recv().await.ok()?;
            Some((Ok(WatchEvent::Changed(change)), receiver))
        });
        InstanceWatch::from_now(events)
    }
}

type Frames = BoxStream<'static, Result<WatchInstancesResponse, Status>>;

/// Opens a watch.
pub(super) async fn open(
    core: &Core,
    ours: &dyn Instances,
    request: Request<WatchInstancesRequest>,
) -> Result<Response<Frames>, Status> {
    let stop = core.lifecycle.stop.clone();
    let ended = stop.child_token();
    let call = core.admit(request, ended.clone())?;
    // From now on, however it ends, the provider hears of it.
    let ended = ended.drop_guard();
    let ctx = call.ctx;
    let has_token = !call.request.resume_token.is_empty();
    let opened = AssertUnwindSafe(ours.watch_instances(&ctx, call.request)).catch_unwind().await;
    let watch = match opened {
        Ok(watch) => watch.map_err(|error| fail(&ctx, error))?,
        Err(_panic) => return Err(fail(&ctx, ProviderError::internal("the method panicked"))),
    };
    if has_token && !watch.resumed {
        // The provider issues no tokens, or ignored this one: the caller must not believe that it has missed nothing.
        return Err(fail(&ctx, ProviderError::invalid_token()));
    }
    let open = Open {
        heartbeat: heartbeat(core),
        end: Instant::now() + core.advertised.watch_max_age,
        token: String::new(),
        started: Some(watch.resumed),
        events: caught(watch),
        stop,
        ctx,
        _guards: (call.waiting, ended),
    };
    Ok(Response::new(stream::unfold(Some(open), next).boxed()))
}

struct Open {
    ctx: CallContext,
    events: BoxStream<'static, Result<WatchEvent>>,
    /// The first frame, with `resumed`, is still to be sent.
    started: Option<bool>,
    token: String,
    heartbeat: Interval,
    end: Instant,
    stop: CancellationToken,
    /// Dropped with the stream, which signals the provider that nobody reads any more.
    _guards: (DropGuard, DropGuard),
}

/// Bookmarks are due at least every interval, so they are sent a little more often.
fn heartbeat(core: &Core) -> Interval {
    let every = (core.advertised.bookmark_interval * 3 / 4).max(time::Duration::from_millis(1));
    let mut heartbeat = time::interval_at(Instant::now() + every, every);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

/// The events of a watch; a panic becomes an error.
fn caught(watch: InstanceWatch) -> BoxStream<'static, Result<WatchEvent>> {
    let events = AssertUnwindSafe(watch.events).catch_unwind();
    events
        .map(|event| {
            event.unwrap_or_else(|_panic| Err(ProviderError::internal("the stream of changes panicked")))
        })
        .boxed()
}

/// One frame, and the rest of the stream.
async fn next(open: Option<Open>) -> Option<(Result<WatchInstancesResponse, Status>, Option<Open>)> {
    let mut open = open?;
    if let Some(resumed) = open.started.take() {
        return Some((frame(Frame::Started(WatchStarted { resumed })), Some(open)));
    }
    // Heartbeats go before changes, or a busy stream would never send one.
    let event = tokio::select! {
        biased;
        () = open.stop.cancelled() => return Some((Err(ProviderError::shutting_down().to_status()), None)),
        () = time::sleep_until(open.end) => return None,
        _ = open.heartbeat.tick() => Ok(WatchEvent::Bookmark(open.token.clone())),
        event = open.events.next() => event?,
    };
    match event {
        Ok(WatchEvent::Changed(change)) => Some((frame(Frame::Changed(change)), Some(open))),
        Ok(WatchEvent::Bookmark(resume_token)) => {
            open.token.clone_from(&resume_token);
            Some((frame(Frame::Bookmark(WatchBookmark { resume_token })), Some(open)))
        }
        Err(error) => Some((Err(fail(&open.ctx, error)), None)),
    }
}

fn frame(frame: Frame) -> Result<WatchInstancesResponse, Status> {
    Ok(WatchInstancesResponse { frame: Some(frame) })
}
