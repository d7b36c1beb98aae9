//! Tells the provider whether this process leads, and for how long yet, if it wants to know.
//!
//! So a leader that is paused, or cut off from the apiserver, stops at the cloud, too: nobody renews its word there.

use std::{convert::Infallible, time::Duration};

use cloudprovider_proto::v1alpha1 as pb;
use tokio::time::{Instant, sleep, timeout};

use super::Link;
use crate::{
    cloud::{CloudError, ErrorReason, method, session::Session},
    election::{Fencing, Leadership, Leading},
};

/// A word that was not taken is said again after this time.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for the last word, when the process ends.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What one session of a provider was told.
pub(super) struct Lead<'a> {
    link: &'a Link,
    session: &'a Session,
    leadership: Leadership,
}

impl<'a> Lead<'a> {
    pub(super) fn new(link: &'a Link, session: &'a Session) -> Self {
        Self { link, session, leadership: link.config.leadership.clone() }
    }

    /// How it is now, once. False: it was not taken.
    pub(super) async fn tell(&mut self) -> bool {
        if !self.session.capabilities.capabilities.contains(&pb::Capability::Leadership.into()) {
            return true;
        }
        let (fencing, valid_for) = match self.leadership.heard() {
            Leading::Always => (Fencing::default(), None),
            Leading::Until { fencing, end } => (fencing, Some(end.saturating_duration_since(Instant::now()))),
            Leading::No => match self.link.led.lock().take() {
                Some(former) => (former, Some(Duration::ZERO)),
                None => return true,
            },
        };
        let told = self.link.lead(self.session, &fencing, valid_for).await;
        let leads = valid_for != Some(Duration::ZERO);
        if told.is_ok() && leads && valid_for.is_some() {
            *self.link.led.lock() = Some(fencing);
        }
        self.link.heard(&told, leads);
        if let Err(error) = &told {
            tracing::warn!(provider = self.link.name(), %error, "the provider did not take who leads");
        }
        told.is_ok()
    }

    /// Whenever it changes.
    pub(super) async fn keep_telling(mut self, mut is_told: bool) -> Infallible {
        loop {
            tokio::select! {
                () = self.leadership.changed() => {}
                () = sleep(AGAIN), if !is_told => {}
            }
            is_told = self.tell().await;
        }
    }
}

impl Link {
    /// The process ends: whoever leads next need not wait until its time is over.
    pub(super) async fn step_down(&self) {
        let led = self.led.lock().take();
        if let (Some(fencing), Some(session)) = (led, self.present()) {
            let _told = timeout(LAST_WORD, self.lead(&session, &fencing, Some(Duration::ZERO))).await;
        }
    }

    async fn lead(
        &self,
        session: &Session,
        fencing: &Fencing,
        valid_for: Option<Duration>,
    ) -> Result<(), CloudError> {
        let request = pb::LeadRequest {
            cluster: Some(self.config.cluster.message()),
            fencing: Some(fencing.message()),
            // What is out of range is longer than any Lease.
            valid_for: valid_for.and_then(|time| time.try_into().ok()),
        };
        let mut client = session.cloud_provider();
        self.call(session, &method::LEAD, None, request, async |request| client.lead(request).await)
            .await
            .map(|pb::LeadResponse {}| ())
    }

    /// Whether the provider takes this process for its leader.
    fn heard(&self, told: &Result<(), CloudError>, leads: bool) {
        match told {
            Ok(()) => self.standing.lock().stale_leader = !leads,
            Err(error) if error.is(ErrorReason::StaleLeader) => self.standing.lock().stale_leader = true,
            Err(_) => {}
        }
        self.publish_standing();
    }
}
