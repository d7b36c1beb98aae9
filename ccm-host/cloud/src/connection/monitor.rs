//! Monitors a connected provider: its health as it changes, its conditions at a fixed pace.
//!
//! Out: its [`super::standing`], from its health, its conditions and the outcomes of its calls.

use std::time::Duration;

use cloudprovider_proto::v1alpha1 as pb;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use super::{Link, session::Session};
use crate::{CloudError, ErrorReason, ProviderStatus, call::rpc, method};

/// After this many unanswered status calls in a row, the host drops the connection and reconnects.
const MOST_SILENCES: u32 = 3;
/// Minimum time between two status checks that calls asked for, and between two attempts to watch the health.
const SHORTEST: Duration = Duration::from_secs(1);

/// Checks health and status before the first call.
pub(super) async fn first_look(link: &Link, session: &Session) {
    check_health(link, session).await;
    look(link, session).await;
}

/// Monitors until the provider is lost or silent, and returns why.
pub(super) async fn monitor(link: &Link, session: &Session) -> String {
    tokio::select! {
        () = session.lost.cancelled() => "the connection was lost".to_owned(),
        why = poll(link, session) => why,
        () = follow_health(link, session) => "cannot watch its health".to_owned(),
    }
}

async fn poll(link: &Link, session: &Session) -> String {
    let mut silences = 0;
    loop {
        let well = link.worst() == ProviderStatus::Serving;
        let pace = if well { link.config.paces.status } else { link.config.paces.status_bad };
        tokio::select! {
            () = tokio::time::sleep(pace) => {}
            () = link.look_now.notified() => tokio::time::sleep(SHORTEST.min(pace)).await,
        }
        check_health(link, session).await;
        let silence = look(link, session).await;
        silences = silence.map_or(0, |_| silences + 1);
        link.publish_standing();
        if silences == MOST_SILENCES {
            if silence == Some(Code::DeadlineExceeded) {
                // Calls under way have nothing to wait for, and hold the places of those over the next connection. After a
                // GOAWAY they are still answered.
                session.lost.cancel();
            }
            return format!("it answered none of {MOST_SILENCES} GetStatus in a row");
        }
    }
}

/// Calls GetStatus. Returns how it was not answered, if it was not, in time or at all: after a GOAWAY, a connection takes no
/// more calls, but stays open for the watch of the health.
async fn look(link: &Link, session: &Session) -> Option<Code> {
    let answer = link.call(session, None, pb::GetStatusRequest {}).await;
    let silent = |error: &&CloudError| error.code == Code::DeadlineExceeded || error.is_unanswered;
    let silence = answer.as_ref().err().filter(silent).map(|error| error.code);
    link.standing.lock().looked(answer);
    silence
}

/// Calls Health/Check where it is served.
async fn check_health(link: &Link, session: &Session) {
    if session.refuses(&method::HEALTH_CHECK) {
        return;
    }
    let deadline = method::deadline(&method::HEALTH_CHECK, &Default::default());
    let message = HealthCheckRequest::default();
    let (client, bytes) = (session.client(), session.message_bytes);
    let (metrics, lost) = (&link.metrics, &session.lost);
    match rpc::unary(metrics, client, bytes, lost, deadline, None, &method::HEALTH_CHECK, message).await {
        Ok(answer) => link.standing.lock().healthy(is_healthy(&answer)),
        // A provider without a health service accepts work.
        Err(error) if error.is(ErrorReason::MethodNotSupported) || error.code == Code::NotFound => {
            session.refuse(&method::HEALTH_CHECK);
            link.standing.lock().healthy(true);
        }
        // GetStatus will reveal the cause.
        Err(_) => {}
    }
}

/// Watches the health, so that a provider that stops or comes back is noticed at once.
async fn follow_health(link: &Link, session: &Session) {
    loop {
        match HealthClient::new(session.channel.clone()).watch(HealthCheckRequest::default()).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                while let Ok(Some(answer)) = stream.message().await {
                    link.standing.lock().healthy(is_healthy(&answer));
                    link.publish_standing();
                }
            }
            Err(status) if status.code() == Code::Unimplemented => std::future::pending().await,
            Err(_) => {}
        }
        tokio::time::sleep(SHORTEST).await;
    }
}

/// An unknown health is not a bad one.
fn is_healthy(answer: &HealthCheckResponse) -> bool {
    match answer.status() {
        ServingStatus::NotServing => false,
        ServingStatus::Serving | ServingStatus::Unknown | ServingStatus::ServiceUnknown => true,
    }
}
