//! The stream of changed instances.

use std::time::Duration;

use cloudprovider_proto::{
    method,
    v1alpha1::{
        Capability, ErrorReason, InstanceState, WatchInstancesRequest, WatchInstancesResponse,
        watch_instances_response::Frame,
    },
};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use crate::{
    case::{Case, Outcome, Profile::InstancesWatch, Stop},
    provider::in_words,
    trial::{Machine, Trial, failed, good, reason_of},
};

const TERMINATE: &[&str] = &["create-instance", "terminate-instance"];
const STOP: &[&str] = &["create-instance", "stop-instance", "terminate-instance"];
const TOLD: &[&str] = &["An instance appeared, changed in any way, or disappeared."];

pub(super) const CASES: &[Case] = &[
    Case::new("WATCH-01", InstancesWatch, "the first frame is `started`", &["watch-started"], &first_frame),
    Case::new(
        "WATCH-02",
        InstancesWatch,
        "bookmarks come as often as advertised",
        &["watch-bookmark"],
        &bookmarks,
    ),
    Case::new("WATCH-03", InstancesWatch, "an instance that appears is reported", &[], &appears)
        .words(TOLD)
        .hooks(TERMINATE),
    Case::new("WATCH-04", InstancesWatch, "an instance that stops is reported", &[], &stops)
        .words(TOLD)
        .hooks(STOP),
    Case::new("WATCH-05", InstancesWatch, "an instance that goes is reported", &[], &goes)
        .words(TOLD)
        .hooks(TERMINATE),
    Case::new("WATCH-06", InstancesWatch, "every watcher hears of it", &[], &every_watcher)
        .words(TOLD)
        .hooks(TERMINATE),
    Case::new(
        "WATCH-11",
        InstancesWatch,
        "of changes that come together each is reported",
        &["watch-every-key"],
        &together,
    )
    .hooks(&["create-instances", "terminate-instances"])
    .extended(),
    Case::new("WATCH-07", InstancesWatch, "a slow reader loses no key", &["watch-every-key"], &slow_reader)
        .words(&["If the reader is too slow, the provider ends the stream with OK"])
        .hooks(TERMINATE),
    Case::new(
        "WATCH-08",
        InstancesWatch,
        "the stream ends with OK at its advertised age",
        &[],
        &ends_in_time,
    )
    .words(&["the provider ends the stream with OK after `Intervals.watch_max_age`"])
    .extended(),
    Case::new("WATCH-09", InstancesWatch, "streams that are left free what they held", &[], &many_left)
        .words(&["WatchInstances streams the keys of changed instances"])
        .extended(),
    Case::new("WATCH-10", InstancesWatch, "watchers hear that the provider stops", &[], &provider_stops)
        .words(&["| the provider is stopping | UNAVAILABLE | SHUTTING_DOWN"])
        .capability(Capability::InstancesWatch)
        .hooks(&["restart-provider"])
        .extended(),
];

/// A stream that is open.
pub(super) struct Watch(Streaming<WatchInstancesResponse>);

/// Opens a stream.
pub(super) async fn open(t: &Trial, resume_token: &str) -> Result<Watch, Status> {
    let request = WatchInstancesRequest { cluster: t.cluster(), resume_token: resume_token.to_owned() };
    // No deadline on the wire: the contract wants none for this RPC.
    let opening =
        tokio::time::timeout(t.deadline(&method::WATCH_INSTANCES), t.instances().watch_instances(request))
            .await;
    opening
        .unwrap_or_else(|_| Err(Status::unknown("the stream was not opened in time")))
        .map(|open| Watch(open.into_inner()))
}

impl Watch {
    /// The next frame, within this time.
    pub(super) async fn next(&mut self, within: Duration) -> Result<Option<Frame>, Stop> {
        loop {
            match tokio::time::timeout(within, self.0.message()).await {
                Err(_) => return Err(failed(format!("a frame within {within:?}"), "silence")),
                Ok(Err(status)) => return Err(failed("a frame", in_words(&status))),
                Ok(Ok(None)) => return Ok(None),
                // A frame of a newer contract is skipped.
                Ok(Ok(Some(WatchInstancesResponse { frame: None }))) => {}
                Ok(Ok(Some(WatchInstancesResponse { frame: Some(frame) }))) => return Ok(Some(frame)),
            }
        }
    }

    /// The first bookmark with a token, and all keys that came before it.
    pub(super) async fn bookmark(&mut self, within: Duration) -> Result<String, Stop> {
        let end = Instant::now() + within;
        while Instant::now() < end {
            match self.next(within).await? {
                Some(Frame::Bookmark(bookmark)) => return Ok(bookmark.resume_token),
                Some(_) => {}
                None => return Err(failed(format!("a bookmark within {within:?}"), "the stream ended")),
            }
        }
        Err(failed(format!("a bookmark within {within:?}"), "other frames"))
    }

    /// Waits until a change of this instance arrives.
    pub(super) async fn tells(&mut self, machine: &Machine, within: Duration) -> Outcome {
        self.tells_each(vec![(&machine.provider_id, &machine.name)], within).await
    }

    /// Waits until each of these instances, by provider ID and node name, is reported. The contract knows no order of changes.
    async fn tells_each(&mut self, mut missing: Vec<(&String, &String)>, within: Duration) -> Outcome {
        let end = Instant::now() + within;
        while !missing.is_empty() {
            let ids: Vec<_> = missing.iter().map(|(id, _)| (*id).clone()).collect();
            let rest = end.saturating_duration_since(Instant::now());
            let expected = || format!("instances {ids:?} reported within {within:?}");
            match self.next(rest).await {
                Ok(Some(Frame::Changed(change))) => {
                    missing.retain(|(id, name)| **id != change.provider_id && **name != change.node_name);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err(failed(expected(), "the stream ended")),
                Err(Stop::Failed { seen, .. }) => return Err(failed(expected(), seen)),
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }
}

/// A stream after its first frame.
pub(super) async fn started(t: &Trial, resume_token: &str) -> Result<(Watch, bool), Stop> {
    let mut watch =
        open(t, resume_token).await.map_err(|status| failed("an open stream", in_words(&status)))?;
    match watch.next(t.deadline(&method::WATCH_INSTANCES)).await? {
        Some(Frame::Started(started)) => Ok((watch, started.resumed)),
        other => Err(failed("the frame `started` first", format!("{other:?}"))),
    }
}

/// How long a change may take to arrive.
pub(super) fn patience(t: &Trial) -> Duration {
    t.scenario().settle.max(Duration::from_secs(1)) + t.provider().bookmark_interval()
}

async fn first_frame(t: &Trial) -> Outcome {
    started(t, "").await.map(drop)
}

async fn bookmarks(t: &Trial) -> Outcome {
    let interval = t.provider().bookmark_interval();
    if interval > t.scenario().max_wait {
        return Err(Stop::NotRun(format!("bookmark_interval is {interval:?}, longer than max-wait")));
    }
    let (mut watch, _) = started(t, "").await?;
    for _bookmark in 0..2 {
        // Half an interval of tolerance, and what a busy machine takes; after three silent intervals the host gives up.
        watch.bookmark(interval + interval / 2 + Duration::from_secs(2)).await?;
    }
    Ok(())
}

async fn appears(t: &Trial) -> Outcome {
    let (mut watch, _) = started(t, "").await?;
    let machine = t.own_machine().await?;
    watch.tells(&machine, patience(t)).await
}

async fn stops(t: &Trial) -> Outcome {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    let (mut watch, _) = started(t, "").await?;
    t.steer_machine("stop-instance", &machine).await?;
    watch.tells(&machine, patience(t)).await
}

async fn goes(t: &Trial) -> Outcome {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    let (mut watch, _) = started(t, "").await?;
    t.steer_machine("terminate-instance", &machine).await?;
    watch.tells(&machine, patience(t)).await
}

async fn every_watcher(t: &Trial) -> Outcome {
    let (mut one, _) = started(t, "").await?;
    let (mut other, _) = started(t, "").await?;
    let machine = t.own_machine().await?;
    one.tells(&machine, patience(t)).await?;
    other.tells(&machine, patience(t)).await
}

async fn together(t: &Trial) -> Outcome {
    let (mut watch, _) = started(t, "").await?;
    let nodes = t.machines_at_once(5).await?;
    watch.tells_each(nodes.iter().map(|node| (&node.provider_id, &node.name)).collect(), patience(t)).await
}

async fn slow_reader(t: &Trial) -> Outcome {
    let (mut watch, _) = started(t, "").await?;
    let machines = t.own_machines(5).await?;
    // Nothing is read while they arrive; afterwards all are there, or the stream has ended and a sweep finds them.
    tokio::time::sleep(t.provider().bookmark_interval().min(Duration::from_secs(3))).await;
    let all = machines.iter().map(|machine| (&machine.provider_id, &machine.name)).collect();
    match watch.tells_each(all, patience(t)).await {
        Err(Stop::Failed { seen, .. }) if seen == "the stream ended" => Ok(()),
        outcome => outcome,
    }
}

async fn ends_in_time(t: &Trial) -> Outcome {
    let age = t.provider().watch_max_age();
    if age > t.scenario().max_wait {
        return Err(Stop::NotRun(format!("watch_max_age is {age:?}, longer than max-wait")));
    }
    let (mut watch, _) = started(t, "").await?;
    let end = Instant::now() + age + age / 2 + Duration::from_secs(1);
    while Instant::now() < end {
        if watch.next(t.provider().bookmark_interval() * 3).await?.is_none() {
            return Ok(());
        }
    }
    Err(failed(format!("an end with OK after {age:?}"), "the stream goes on"))
}

async fn many_left(t: &Trial) -> Outcome {
    for _stream in 0..50 {
        started(t, "").await?;
    }
    let node = t.stranger();
    good("BatchGetInstances", t.instances().batch_get_instances(t.ask(t.batch(vec![node]))).await).map(drop)
}

async fn provider_stops(t: &Trial) -> Outcome {
    let (mut watch, _) = started(t, "").await?;
    let end = async {
        loop {
            match watch.0.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
    };
    let (end, restarted) = tokio::join!(end, t.restart("restart-provider"));
    restarted?;
    match end {
        Err(status) if reason_of(&status) == Some(ErrorReason::ShuttingDown) => {
            crate::trial::examine(t, &status)
        }
        other => Err(failed("UNAVAILABLE with SHUTTING_DOWN", format!("{other:?}"))),
    }
}
