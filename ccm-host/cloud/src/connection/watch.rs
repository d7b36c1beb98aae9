//! Watches for changed instances: keys only, an accelerator and never the source of truth.
//!
//! A stream asks for a sweep when it starts, since earlier changes were not reported, unless it resumes where the last
//! one ended. Stream ends are counted; streams are reopened for ever, with a growing backoff while they do not last.

use std::{convert::Infallible, time::Duration};

use cloudprovider_proto::v1alpha1::{self as pb, ErrorReason, watch_instances_response::Frame};
use tokio::time::Instant;
use tonic::Streaming;

use super::{
    Link,
    connect::{LIVED, pause},
    session::Session,
};
use crate::findings::rule;
use crate::{CloudError, call::rpc, method};

/// After this many intervals without a bookmark, the stream is dead.
const SILENT_INTERVALS: u32 = 3;
/// The maximum length of a provider ID, and of a resume token.
const LONGEST: usize = 1 << 10;

/// How a stream ended.
#[derive(Debug)]
enum StreamEnd {
    Finished,
    TooOld,
    Silent,
    NotStarted,
    TokenExpired,
    TokenUnknown,
    Failed(CloudError),
}

impl StreamEnd {
    fn label(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::TooOld => "too_old",
            Self::Silent => "silent",
            Self::NotStarted => "not_started",
            Self::TokenExpired => "token_expired",
            Self::TokenUnknown => "token_unknown",
            Self::Failed(_) => "failed",
        }
    }
}

/// Watches for as long as the session lives.
pub(super) async fn watch(link: &Link, session: &Session) -> Infallible {
    if !session.info.watch_instances {
        return std::future::pending().await;
    }
    let mut failures = 0_u32;
    let mut token = String::new();
    let mut swept = false;
    loop {
        if !session.serves(&method::WATCH_INSTANCES) {
            return std::future::pending().await;
        }
        let mut started = None;
        let end = stream(link, session, &mut token, &mut started).await;
        link.metrics.watch_ended(end.label());
        tracing::debug!(provider = link.name(), ?end, "watch ended");
        if started.is_some_and(|since: Instant| since.elapsed() >= LIVED) {
            failures = 0;
        }
        if started.is_none() && !swept {
            // No sweep has run since the provider was lost.
            link.request_sweep();
        }
        swept = true;
        match &end {
            StreamEnd::TokenExpired => token.clear(),
            StreamEnd::TokenUnknown => {
                link.metrics.violation(rule::TOKEN_ISSUED);
                token.clear();
            }
            StreamEnd::Silent => link.metrics.violation(rule::WATCH_BOOKMARK),
            StreamEnd::NotStarted => link.metrics.violation(rule::WATCH_STARTED),
            StreamEnd::Failed(error) if error.is(ErrorReason::MethodNotSupported) => {
                link.refused(session, &method::WATCH_INSTANCES);
            }
            StreamEnd::Finished | StreamEnd::TooOld | StreamEnd::Failed(_) => {}
        }
        let backoff = link.config.paces.reconnect;
        tokio::time::sleep(pause(backoff, &mut failures, fastrand::f64(), Duration::MAX)).await;
    }
}

/// Follows one stream to its end; `started` is set when it begins.
async fn stream(
    link: &Link,
    session: &Session,
    token: &mut String,
    started: &mut Option<Instant>,
) -> StreamEnd {
    let silence = session.intervals.bookmark * SILENT_INTERVALS;
    let ends = Instant::now() + session.intervals.watch_max_age + silence;
    let (mut frames, pb::WatchStarted { resumed }) = match open(link, session, token.clone()).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    *started = Some(Instant::now());
    if !resumed || token.is_empty() {
        link.request_sweep();
    }
    loop {
        let frame = tokio::select! {
            frame = tokio::time::timeout(silence, frames.message()) => frame,
            () = tokio::time::sleep_until(ends) => return StreamEnd::TooOld,
        };
        match frame {
            Err(_) => return StreamEnd::Silent,
            Ok(Err(error)) => return ended(link, &error),
            Ok(Ok(None)) => return StreamEnd::Finished,
            Ok(Ok(Some(message))) => match message.frame {
                Some(Frame::Changed(pb::InstanceChanged { provider_id, node_name })) => {
                    // A new node is known by its name only. Longer than any node's key: thousands may be buffered for
                    // slow readers.
                    let keys = [provider_id, node_name].into_iter();
                    for key in keys.filter(|key| !key.is_empty() && key.len() <= LONGEST) {
                        let _nobody_listens = link.changes.send(key).is_err();
                    }
                }
                Some(Frame::Bookmark(bookmark)) if bookmark.resume_token.len() <= LONGEST => {
                    *token = bookmark.resume_token;
                }
                Some(Frame::Bookmark(_) | Frame::Started(_)) | None => {}
            },
        }
    }
}

/// Opens a stream and waits for its first frame, which must be Started.
async fn open(
    link: &Link,
    session: &Session,
    resume_token: String,
) -> Result<(Streaming<pb::WatchInstancesResponse>, pb::WatchStarted), StreamEnd> {
    let method = &method::WATCH_INSTANCES;
    let deadline = method::deadline(method, &session.deadlines);
    let message = pb::WatchInstancesRequest { cluster: Some(link.cluster()), resume_token };
    let mut client = session.instances();
    // A deadline on the wire would bound the whole stream.
    let request = rpc::request(message, None, &tracing::Span::current());
    let opened = tokio::time::timeout(deadline, async {
        let mut frames = client.watch_instances(request).await?.into_inner();
        let first = frames.message().await?;
        Ok::<_, tonic::Status>((frames, first))
    });
    match opened.await {
        Err(_) => Err(StreamEnd::Failed(CloudError::deadline_exceeded(method.name, deadline))),
        Ok(Err(error)) => Err(ended(link, &error)),
        Ok(Ok((frames, Some(pb::WatchInstancesResponse { frame: Some(Frame::Started(started)) })))) => {
            Ok((frames, started))
        }
        Ok(Ok((_, None))) => Err(StreamEnd::Finished),
        Ok(Ok((_, Some(_)))) => Err(StreamEnd::NotStarted),
    }
}

fn ended(link: &Link, status: &tonic::Status) -> StreamEnd {
    let method = method::WATCH_INSTANCES.name;
    let error = link.metrics.checked(|findings| CloudError::of_status(method, status, findings));
    match error.reason {
        Some(ErrorReason::ResumeTokenExpired) => StreamEnd::TokenExpired,
        Some(ErrorReason::InvalidToken) => StreamEnd::TokenUnknown,
        _ => StreamEnd::Failed(error),
    }
}
