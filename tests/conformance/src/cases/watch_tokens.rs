//! Resuming a stream.

use std::time::Duration;

use cloudprovider_proto::{
    method,
    v1alpha1::{ErrorReason, InstanceState},
};
use tokio::time::Instant;
use tonic::Status;

use super::watch::{Watch, open, patience, started};
use crate::{
    case::{Case, Outcome, Profile::InstancesWatch, Stop},
    provider::in_words,
    trial::{Trial, expect, failed, reason_of},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "RESUME-01",
        InstancesWatch,
        "what changed while nobody watched is reported after resuming",
        &[],
        &resumed,
    )
    .words(&["The stream resumes at the token: no change since then is missing."])
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new("RESUME-02", InstancesWatch, "a token that was never issued is INVALID_TOKEN", &[], &garbage)
        .words(&[
            "| the token was never issued | INVALID_ARGUMENT | INVALID_TOKEN | the same, and counts it",
        ]),
    Case::new("RESUME-03", InstancesWatch, "a token that is too old is RESUME_TOKEN_EXPIRED", &[], &expired)
        .words(&["| the token has expired | OUT_OF_RANGE | RESUME_TOKEN_EXPIRED"]),
    Case::new(
        "RESUME-04",
        InstancesWatch,
        "a token of a former process is not honoured",
        &[],
        &former_process,
    )
    .words(&["The token of the last bookmark in the same process epoch."])
    .hooks(&["restart-provider"])
    .extended(),
    Case::new(
        "RESUME-05",
        InstancesWatch,
        "a stream without a token is not said to be resumed",
        &["watch-started"],
        &not_resumed,
    ),
];

/// A token, if the provider can resume.
async fn token(t: &Trial) -> Result<String, Stop> {
    let (mut watch, _) = started(t, "").await?;
    let interval = t.provider().bookmark_interval();
    if interval > t.scenario().max_wait {
        return Err(Stop::NotRun(format!("bookmark_interval is {interval:?}, longer than max-wait")));
    }
    // A provider that is busy may have none yet at its first bookmark.
    let end = Instant::now() + interval + Duration::from_secs(3);
    let mut token = String::new();
    while token.is_empty() {
        if Instant::now() > end {
            return Err(Stop::NotAdvertised("bookmarks carry no token".to_owned()));
        }
        token = watch.bookmark(interval * 2 + Duration::from_secs(1)).await?;
    }
    expect(token.len() <= 1 << 10, "a token of at most 1 KiB", token.len())?;
    Ok(token)
}

/// The error of a stream: on opening, or instead of its first frame.
async fn refusal(t: &Trial, token: &str) -> Result<Status, Stop> {
    let first = async |mut watch: Watch| watch.next(t.deadline(&method::WATCH_INSTANCES)).await;
    match open(t, token).await {
        Err(status) => Ok(status),
        Ok(watch) => Err(failed("a refusal", format!("an open stream: {:?}", first(watch).await))),
    }
}

async fn refused_with(t: &Trial, token: &str, wanted: &[ErrorReason]) -> Outcome {
    let status = refusal(t, token).await?;
    let told = reason_of(&status).is_some_and(|reason| wanted.contains(&reason));
    expect(told, format!("one of {wanted:?}"), in_words(&status))
}

async fn resumed(t: &Trial) -> Outcome {
    let token = token(t).await?;
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    let (mut watch, resumed) = started(t, &token).await?;
    expect(resumed, "`started` with resumed: the token is fresh", resumed)?;
    watch.tells(&machine, patience(t)).await
}

async fn garbage(t: &Trial) -> Outcome {
    refused_with(t, "never-issued-by-anybody", &[ErrorReason::InvalidToken]).await
}

async fn expired(t: &Trial) -> Outcome {
    let validity = t.provider().resume_token_validity();
    let token = token(t).await?;
    t.wait("resume_token_validity", validity + validity / 4 + Duration::from_millis(200)).await?;
    refused_with(t, &token, &[ErrorReason::ResumeTokenExpired]).await
}

async fn former_process(t: &Trial) -> Outcome {
    let token = token(t).await?;
    t.restart("restart-provider").await?;
    refused_with(t, &token, &[ErrorReason::InvalidToken, ErrorReason::ResumeTokenExpired]).await
}

async fn not_resumed(t: &Trial) -> Outcome {
    let (_, resumed) = started(t, "").await?;
    expect(!resumed, "`started` without resumed", resumed)
}
