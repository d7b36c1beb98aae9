//! The frames of a watch: started, changes, heartbeats, and a timely end.
//!
//! In: the provider's events. Out: the contract's frames. The provider decides what changed; this module
//! decides when a stream starts, sends a heartbeat, and ends.

use std::panic::AssertUnwindSafe;

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{self, Instant, Interval, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

use super::core::{Core, fail};
use crate::proto::watch_instances_response::Frame;
use crate::proto::{WatchBookmark, WatchInstancesRequest, WatchInstancesResponse, WatchStarted};
use crate::services::{InstanceWatch, Instances, WatchEvent};
use crate::{CallContext, ProviderError, Result};

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
        _guards: (call.waiting, ended.drop_guard()),
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
